//! What the proxy changes in the head of a request and of an answer. Pure.
//!
//! `http::HeaderMap` keeps names in the order of their first appearance as long as none is removed (a removal moves the last one
//! into the gap). So a head is always written anew, never cut. Values of one name stay in their order, side by side: where a
//! message has the same name twice with another name between, the second moves up to the first. That has no meaning in HTTP
//! (RFC 9110, 5.3), and hyper offers no other order.

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::PathAndQuery;
use subtle::ConstantTimeEq;

use crate::Route;

/// Which version of HTTP the next connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    One,
    Two,
}

/// What is left of a path when the secret is taken away; `None` where it does not begin with it.
pub(crate) fn without_secret<'a>(path_and_query: &'a str, secret: &str) -> Option<&'a str> {
    let path = path_and_query.strip_prefix('/')?;
    let (given, rest) = path.as_bytes().split_at_checked(secret.len())?;
    // Where the path ends is no secret; what it holds is.
    let equal = bool::from(given.ct_eq(secret.as_bytes()));
    let ends = matches!(rest.first(), None | Some(b'/' | b'?'));
    (equal && ends && !secret.is_empty()).then(|| &path[secret.len()..])
}

/// The route of a request, and its path from there on. A route without a name takes what no name fits.
pub(crate) fn route_of<'r, 'p>(routes: &'r [Route], rest: &'p str) -> Option<(usize, &'r Route, &'p str)> {
    let named =
        routes.iter().enumerate().filter(|(_, route)| !route.name.is_empty()).find_map(|(index, route)| {
            let after = rest.strip_prefix('/')?.strip_prefix(route.name.as_str())?;
            matches!(after.as_bytes().first(), None | Some(b'/' | b'?')).then_some((index, route, after))
        });
    named.or_else(|| {
        routes
            .iter()
            .enumerate()
            .find(|(_, route)| route.name.is_empty())
            .map(|(index, route)| (index, route, rest))
    })
}

/// The upstream's own path before the request's, neither of them changed.
pub(crate) fn join(base: &str, rest: &str) -> Result<PathAndQuery, http::uri::InvalidUri> {
    let base = base.trim_end_matches('/');
    if base.is_empty() && rest.starts_with('/') {
        return PathAndQuery::try_from(rest);
    }
    let slash = if base.is_empty() && !rest.starts_with('/') { "/" } else { "" };
    PathAndQuery::try_from(format!("{base}{slash}{rest}"))
}

/// Whether it asks for a WebSocket. Other upgrades are offers that nobody has to take; they are left out.
pub(crate) fn wants_websocket(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
}

pub(crate) fn expects_continue(headers: &HeaderMap) -> bool {
    headers
        .get(http::header::EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// A request's headers as the upstream gets them. `added` replaces what the agent sent under the same name.
pub(crate) fn request_headers(
    headers: &HeaderMap,
    host: &HeaderValue,
    hop: Hop,
    upgrade: bool,
    added: &[(HeaderName, HeaderValue)],
) -> HeaderMap {
    let mut out = HeaderMap::with_capacity(headers.len() + added.len() + 1);
    let dropped = named_by_connection(headers);
    for (name, value) in headers {
        if name == HOST {
            if hop == Hop::One && !out.contains_key(HOST) {
                out.append(HOST, host.clone());
            }
            continue;
        }
        let kept = if upgrade && (name == CONNECTION || name == UPGRADE) {
            true
        } else if name == TE {
            // Without it the upstream may not send trailers, and ours could not pass them on.
            value.as_bytes().eq_ignore_ascii_case(b"trailers")
        } else if name == TRANSFER_ENCODING {
            // hyper takes the framing from it and leaves it where it stands.
            hop == Hop::One
        } else {
            !is_of_one_hop(name) && !dropped.iter().any(|dropped| name.as_str().eq_ignore_ascii_case(dropped))
        };
        if !kept {
            continue;
        }
        match added.iter().find(|(given, _)| given == name) {
            Some((_, ours)) => {
                out.insert(name.clone(), ours.clone());
            }
            None => {
                out.append(name.clone(), value.clone());
            }
        }
    }
    if hop == Hop::One && !out.contains_key(HOST) {
        out.insert(HOST, host.clone());
    }
    for (name, value) in added {
        if !out.contains_key(name) {
            out.insert(name.clone(), value.clone());
        }
    }
    out
}

/// An answer's headers as the agent gets them.
pub(crate) fn response_headers(headers: &HeaderMap, upgraded: bool) -> HeaderMap {
    let mut out = HeaderMap::with_capacity(headers.len());
    let dropped = named_by_connection(headers);
    let is_chunked = headers.contains_key(TRANSFER_ENCODING);
    for (name, value) in headers {
        // Chunks decide where an answer has both (RFC 9112, 6.3), and hyper writes no head that has.
        if is_chunked && name == CONTENT_LENGTH {
            continue;
        }
        let kept = name == TRANSFER_ENCODING
            || (upgraded && (name == CONNECTION || name == UPGRADE))
            || (!is_of_one_hop(name)
                && !dropped.iter().any(|dropped| name.as_str().eq_ignore_ascii_case(dropped)));
        if kept {
            out.append(name.clone(), value.clone());
        }
    }
    out
}

/// What agents authenticate with towards their vendors. Headers of gateways that a user has an agent add are not among them.
const AGENTS_CREDENTIALS: [&str; 5] = ["authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"];

/// A request's headers without what authenticates its agent; `replaced` stays, because the route's own value takes its place.
pub(crate) fn without_agents_credentials(headers: &HeaderMap, replaced: &HeaderName) -> HeaderMap {
    // Anew, because the others keep their order: `HeaderMap::remove` puts the last one in the place of the removed.
    let mut out = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if name == replaced || !AGENTS_CREDENTIALS.contains(&name.as_str()) {
            out.append(name.clone(), value.clone());
        }
    }
    out
}

/// The address without a key in its query (`?key=…`, as Gemini's API takes it).
pub(crate) fn without_key(path: PathAndQuery) -> PathAndQuery {
    let is_key = |pair: &&str| matches!(pair.split('=').next(), Some("key" | "access_token"));
    let Some(query) = path.query().filter(|query| query.split('&').any(|pair| is_key(&pair))) else {
        return path;
    };
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_key(pair)).collect();
    let mark = if kept.is_empty() { "" } else { "?" };
    // Parts of a good address make a good one.
    PathAndQuery::try_from(format!("{}{mark}{}", path.path(), kept.join("&")))
        .unwrap_or_else(|_| PathAndQuery::from_static("/"))
}

/// A request's headers as others in this process may see them: without what authenticates.
pub(crate) fn without_credentials(headers: &HeaderMap, also: Option<&HeaderName>) -> HeaderMap {
    let mut out = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if !is_credential(name.as_str()) && Some(name) != also && !value.is_sensitive() {
            out.append(name.clone(), value.clone());
        }
    }
    out
}

/// By parts of the name: gateways have names of their own, and a header too many is left out rather than one too few.
/// In one pass, because it is on the way of every request: nine searches in seven names took 4 µs.
fn is_credential(name: &str) -> bool {
    let name = name.as_bytes();
    (0..name.len()).any(|at| {
        let parts: &[&str] = match name[at] {
            b'a' => &["auth", "api-key", "apikey"],
            b'c' => &["cookie", "credential"],
            b'p' => &["password"],
            b's' => &["secret", "signature"],
            b't' => &["token"],
            _ => return false,
        };
        parts.iter().any(|part| name[at..].starts_with(part.as_bytes()))
    })
}

fn is_of_one_hop(name: &HeaderName) -> bool {
    name == CONNECTION
        || name == TE
        || name == TRANSFER_ENCODING
        || name == UPGRADE
        || name.as_str() == "keep-alive"
        || name.as_str().starts_with("proxy-")
}

/// Headers that `Connection` says are meant for the next hop alone (RFC 9110, 7.6.1).
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    tokens(headers, &CONNECTION)
        .filter(|token| {
            !["close", "keep-alive", "upgrade", "te"].iter().any(|usual| token.eq_ignore_ascii_case(usual))
        })
        .map(str::to_owned)
        .collect()
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Upstream;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        map
    }

    fn lines(map: &HeaderMap) -> Vec<(String, String)> {
        map.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect()
    }

    fn owned(lines: &[(&str, &str)]) -> Vec<(String, String)> {
        lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_secret_must_be_the_whole_first_part_of_the_path() {
        for (path, rest) in [
            ("/s3cret/v1/messages?beta=true", Some("/v1/messages?beta=true")),
            ("/s3cret", Some("")),
            ("/s3cret?x", Some("?x")),
            ("/s3cret/", Some("/")),
            ("/s3cretx/v1", None),
            ("/s3cre", None),
            ("/S3CRET/v1", None),
            ("//s3cret/v1", None),
            ("/", None),
            ("*", None),
        ] {
            assert_eq!(without_secret(path, "s3cret"), rest, "{path}");
        }
        assert_eq!(without_secret("/v1", ""), None);
    }

    #[test]
    fn a_name_leads_to_its_route_and_anything_else_to_the_one_without() {
        let route = |name: &str| Route {
            name: name.to_owned(),
            upstream: Upstream { base: "http://127.0.0.1:1".parse().unwrap() },
            api: None,
            auth: None,
            headers: Vec::new(),
        };
        let routes = [route("anthropic"), route("")];
        for (rest, expected) in [
            ("/anthropic/v1/messages", (0, "/v1/messages")),
            ("/anthropic", (0, "")),
            ("/anthropic?x", (0, "?x")),
            ("/anthropics/v1", (1, "/anthropics/v1")),
            ("/v1/messages", (1, "/v1/messages")),
        ] {
            let found = route_of(&routes, rest).map(|(index, _, rest)| (index, rest));
            assert_eq!(found, Some(expected), "{rest}");
        }
        assert!(route_of(&routes[..1], "/v1").is_none());
    }

    #[test]
    fn paths_are_joined_unchanged() {
        for (base, rest, expected) in [
            ("/", "/v1/messages?beta=true", "/v1/messages?beta=true"),
            ("", "", "/"),
            ("/", "?x=%2F", "/?x=%2F"),
            ("/api/v2/", "/a//b/../c?x=1&x=2", "/api/v2/a//b/../c?x=1&x=2"),
            ("/api", "", "/api"),
        ] {
            assert_eq!(join(base, rest).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn request_headers_keep_their_order_and_lose_what_is_of_one_hop() {
        let given = map(&[
            ("accept", "*/*"),
            ("host", "127.0.0.1:1"),
            ("connection", "keep-alive, x-hop"),
            ("x-hop", "1"),
            ("x-api-key", "mine"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("proxy-authorization", "x"),
            ("accept-language", "a"),
            ("accept-language", "b"),
        ]);
        let host = HeaderValue::from_static("api.example");
        let added = [
            (HeaderName::from_static("x-api-key"), HeaderValue::from_static("ours")),
            (HeaderName::from_static("x-team"), HeaderValue::from_static("t")),
        ];
        assert_eq!(
            lines(&request_headers(&given, &host, Hop::One, false, &added)),
            owned(&[
                ("accept", "*/*"),
                ("host", "api.example"),
                ("x-api-key", "ours"),
                ("te", "trailers"),
                ("transfer-encoding", "chunked"),
                ("accept-language", "a"),
                ("accept-language", "b"),
                ("x-team", "t"),
            ])
        );
        let two = request_headers(&given, &host, Hop::Two, false, &added);
        assert!(!two.contains_key(HOST) && !two.contains_key(TRANSFER_ENCODING));
    }

    #[test]
    fn a_websocket_is_asked_for_by_both_headers() {
        let handshake = map(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]);
        assert!(wants_websocket(&handshake));
        assert!(!wants_websocket(&map(&[("upgrade", "websocket")])));
        assert!(!wants_websocket(&map(&[("connection", "upgrade"), ("upgrade", "h2c")])));
        let host = HeaderValue::from_static("h");
        let sent = request_headers(&handshake, &host, Hop::One, true, &[]);
        assert_eq!(sent.get(UPGRADE).unwrap(), "websocket");
        assert_eq!(sent.get(CONNECTION).unwrap(), "keep-alive, Upgrade");
    }

    #[test]
    fn what_authenticates_an_agent_is_taken_out() {
        let given = map(&[
            ("authorization", "Bearer agent"),
            ("x-api-key", "agent"),
            ("x-goog-api-key", "agent"),
            ("cookie", "agent"),
            ("x-team-token", "a gateway's"),
            ("anthropic-beta", "b"),
        ]);
        let kept = |replaced| lines(&without_agents_credentials(&given, &HeaderName::from_static(replaced)));
        let rest = [("x-team-token", "a gateway's"), ("anthropic-beta", "b")];
        assert_eq!(kept("x-corp"), owned(&rest));
        assert_eq!(kept("x-api-key"), owned(&[&[("x-api-key", "agent")][..], &rest].concat()));
        for (given, expected) in [
            ("/v1/x", "/v1/x"),
            ("/v1/x?alt=sse", "/v1/x?alt=sse"),
            ("/v1/x?key=agent", "/v1/x"),
            ("/v1/x?alt=sse&key=agent&b=", "/v1/x?alt=sse&b="),
            ("/v1/x?access_token=agent&monkey=1", "/v1/x?monkey=1"),
        ] {
            assert_eq!(without_key(PathAndQuery::from_static(given)).as_str(), expected);
        }
    }

    #[test]
    fn headers_that_authenticate_are_not_shown() {
        let own = HeaderName::from_static("x-corp");
        let given = map(&[
            ("authorization", "Bearer x"),
            ("x-api-key", "x"),
            ("x-goog-api-key", "x"),
            ("cookie", "x"),
            ("x-corp", "x"),
            ("x-claude-code-session-id", "id"),
            ("anthropic-beta", "b"),
        ]);
        let shown = without_credentials(&given, Some(&own));
        assert_eq!(lines(&shown), owned(&[("x-claude-code-session-id", "id"), ("anthropic-beta", "b")]));
    }
}
