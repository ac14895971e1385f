//! Which requests are calls of a model.

use std::borrow::Cow;

use http::Method;

use super::Api;

/// How the paths of calls end. docs/proxy.md names those that cost money and are not among them.
const ENDS: [(&str, Api); 8] = [
    ("/messages", Api::Messages),
    ("/chat/completions", Api::ChatCompletions),
    // Their answers report usage in the same form.
    ("/completions", Api::ChatCompletions),
    ("/embeddings", Api::ChatCompletions),
    ("/responses", Api::Responses),
    // Codex's remote compaction: a model writes the summary.
    ("/responses/compact", Api::Responses),
    (":generateContent", Api::Gemini),
    (":streamGenerateContent", Api::Gemini),
];

/// The form of the call that a request makes; `None`: it makes none that uses tokens (counting tokens, lists of models, files,
/// probes, telemetry). `path` is without the secret and the query; whatever stands before an API's own part of it makes no
/// difference, nor does another spelling that servers take for the same ([`plain_path`]). `hint` is the form of the route's calls: it decides where the path is empty, because the address is the whole
/// endpoint.
///
/// A `GET` is a call only as the handshake of a WebSocket, which the caller recognises.
pub fn api_of(method: &Method, path: &str, hint: Option<Api>) -> Option<Api> {
    let path = plain_path(path);
    let path = path.trim_end_matches('/');
    if *method == Method::GET {
        return path.ends_with("/responses").then_some(Api::Responses);
    }
    if *method != Method::POST {
        return None;
    }
    if path.is_empty() {
        return hint;
    }
    ENDS.iter().find(|(end, _)| path.ends_with(end)).map(|(_, api)| *api)
}

/// A path as a server reads it that decodes `%6d` and resolves `.` and `..`: once, as they do.
pub fn plain_path(path: &str) -> Cow<'_, str> {
    if !path.contains('%') && !path.contains("/.") {
        return Cow::Borrowed(path);
    }
    let decoded = decoded(path);
    let mut kept: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    Cow::Owned(kept.join("/"))
}

/// What is no escape stays as it is.
fn decoded(path: &str) -> String {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = path.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escape = (byte == b'%').then(|| Some(digit(bytes.get(at + 1))? * 16 + digit(bytes.get(at + 2))?));
        let escaped = escape.flatten().and_then(|value| u8::try_from(value).ok());
        plain.push(escaped.unwrap_or(byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_a_model_have_an_api() {
        for (method, path, expected) in [
            ("POST", "/v1/messages", Some(Api::Messages)),
            ("POST", "/anthropic/v1/messages/", Some(Api::Messages)),
            ("POST", "/v1/messages/count_tokens", None),
            ("POST", "/v1/messages/batches", None),
            ("GET", "/v1/messages", None),
            ("HEAD", "/", None),
            ("HEAD", "/api/hello", None),
            ("POST", "/api/event_logging/batch", None),
            ("POST", "/v1/files", None),
            ("POST", "/v1/responses", Some(Api::Responses)),
            ("POST", "/backend-api/codex/responses", Some(Api::Responses)),
            ("POST", "/v1/responses/compact", Some(Api::Responses)),
            ("POST", "/v1/responses/resp_1/cancel", None),
            ("GET", "/v1/responses", Some(Api::Responses)),
            ("GET", "/v1/responses/resp_1", None),
            ("DELETE", "/v1/responses", None),
            ("GET", "/v1/models", None),
            ("POST", "/v1/chat/completions", Some(Api::ChatCompletions)),
            ("POST", "/v1/completions", Some(Api::ChatCompletions)),
            ("POST", "/v1/embeddings", Some(Api::ChatCompletions)),
            ("POST", "/v1beta/models/gemini-2.5-pro:generateContent", Some(Api::Gemini)),
            ("POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent", Some(Api::Gemini)),
            ("POST", "/v1beta/models/gemini-2.5-pro:countTokens", None),
            ("POST", "/v1beta/models/gemini-embedding-001:batchEmbedContents", None),
            ("POST", "/v1/%6dessages", Some(Api::Messages)),
            ("POST", "/v1/%6Dessages%2F", Some(Api::Messages)),
            ("POST", "/v1%2fmessages", Some(Api::Messages)),
            ("POST", "/v1/models/../messages", Some(Api::Messages)),
            ("POST", "/v1/messages/.", Some(Api::Messages)),
            ("POST", "/v1/messages/x/%2e%2e", Some(Api::Messages)),
            ("POST", "/v1/%256dessages", None),
            ("POST", "/v1/messages%", None),
            ("POST", "/v1/messages%2", None),
            ("POST", "/v1/messages%zz", None),
            ("POST", "/v1/messages%ff", None),
            ("POST", "/v1beta/models/gemini-2.5-pro%3AgenerateContent", Some(Api::Gemini)),
            ("GET", "/v1/r%65sponses", Some(Api::Responses)),
            ("POST", "", None),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(api_of(&method, path, None), expected, "{method} {path}");
            if !path.is_empty() {
                let hinted = api_of(&method, path, Some(Api::ChatCompletions));
                assert_eq!(hinted, expected, "{method} {path}: a path that shows the call is not overruled");
            }
        }
    }

    #[test]
    fn an_address_that_is_the_whole_endpoint_is_read_as_the_route_says() {
        assert_eq!(api_of(&Method::POST, "/", Some(Api::Messages)), Some(Api::Messages));
        assert_eq!(api_of(&Method::HEAD, "/", Some(Api::Messages)), None);
    }
}
