//! One request, one answer, both bounded.
//!
//! Promises: redirections are not followed (a token would go with them); no more than [`MAX_ANSWER`] of a body is read; a
//! receiver that answers byte by byte is given up after [`REQUEST_TIMEOUT`] like one that is silent; errors name no path and no
//! credentials.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Certificate, Client, Url};

use super::answer;
use super::answer::{Answer, Verdict};
use super::configured::Sinks;
use super::identity::Identity;
use super::sink::Sink;
use config::delivery::Secret;
use os::clock::{Clock, SystemClock};
use os::file::read_at_most;
use types::Timestamp;

/// For a whole request, its answer included.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An answer names rejected events at worst: 500 of them with a sentence each.
const MAX_ANSWER: usize = 256 * 1024;
/// The certificates of every authority there is have a quarter of a megabyte.
const MAX_CERTIFICATES: u64 = 16 << 20;
/// Compressing harder takes longer than it saves on bodies of this size.
const ZSTD_LEVEL: i32 = 3;

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Zstd,
    Gzip,
}

/// A request to be posted.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub url: Url,
    /// Headers that authenticate us; shown to nobody.
    pub credentials: Vec<(String, Secret)>,
    pub headers: Vec<(&'static str, String)>,
    pub content_type: &'static str,
    /// As `sync preview` shows it, and as it is sent but for the encoding.
    pub body: Vec<u8>,
    /// `None`: this receiver takes no compressed bodies.
    pub encoding: Option<Encoding>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    NotSent(String),
    #[error("cannot read the certificates in {}: {why}; see tls.caFile", file.display())]
    Certificates { file: PathBuf, why: String },
}

/// A connection to one receiver.
#[derive(Debug)]
pub struct Http {
    client: Client,
}

impl Http {
    /// For requests to `url`. Certificates are loaded only for HTTPS.
    pub fn new(url: &Url, ca_file: Option<&PathBuf>) -> Result<Self, Error> {
        // Fails only if there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("codemie/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .timeout(REQUEST_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(1)
            .http1_only();
        if is_loopback(url) {
            // This machine itself is never behind a proxy.
            builder = builder.no_proxy();
        }
        if url.scheme() == "http" {
            builder = builder.tls_certs_only([]);
        } else if let Some(file) = ca_file {
            builder = builder.tls_certs_merge(certificates(file)?);
        }
        let client = builder.build().map_err(|error| Error::NotSent(describe(error, url)))?;
        Ok(Self { client })
    }

    pub async fn post(&self, request: &Request, uncompressed: bool, now: Timestamp) -> Result<Answer, Error> {
        let mut posting = self.client.post(request.url.clone()).header(CONTENT_TYPE, request.content_type);
        let encoding = request.encoding.filter(|_| !uncompressed);
        let packed = encoding.and_then(|encoding| Some((pack(encoding, &request.body)?, encoding)));
        posting = match packed {
            Some((body, Encoding::Zstd)) => posting.header(CONTENT_ENCODING, "zstd").body(body),
            Some((body, Encoding::Gzip)) => posting.header(CONTENT_ENCODING, "gzip").body(body),
            None => posting.body(request.body.clone()),
        };
        let open = request.headers.iter().map(|(name, value)| (*name, value.as_str(), false));
        let hidden = request.credentials.iter().map(|(name, value)| (name.as_str(), value.reveal(), true));
        for (name, value, sensitive) in open.chain(hidden) {
            // A branch name that no header can hold is left out.
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_str(value)) {
                value.set_sensitive(sensitive);
                posting = posting.header(name, value);
            }
        }
        let mut response =
            posting.send().await.map_err(|error| Error::NotSent(describe(error, &request.url)))?;
        let header = |name: HeaderName| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let mut answer = Answer {
            status: response.status().as_u16(),
            retry_after: answer::asked(&header(RETRY_AFTER), now),
            content_type: header(CONTENT_TYPE),
            ..Answer::default()
        };
        while let Some(chunk) =
            response.chunk().await.map_err(|error| Error::NotSent(describe(error, &request.url)))?
        {
            if answer.body.len() + chunk.len() > MAX_ANSWER {
                answer.truncated = true;
                break;
            }
            answer.body.extend_from_slice(&chunk);
        }
        Ok(answer)
    }
}

/// The address below a base that may or may not end in a slash.
pub fn join(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let joined = format!("{}{path}", base.path().trim_end_matches('/'));
    url.set_path(&joined);
    url
}

/// Whether an address is this machine's own, without asking a name server.
pub fn is_loopback(url: &Url) -> bool {
    match url.host_str().map(|host| host.trim_matches(['[', ']'])) {
        Some("localhost") => true,
        Some(host) => host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback()),
        None => false,
    }
}

fn certificates(file: &Path) -> Result<Vec<Certificate>, Error> {
    let problem = |why: String| Error::Certificates { file: file.to_owned(), why };
    let pem = read_at_most(file, MAX_CERTIFICATES).map_err(|error| problem(error.to_string()))?;
    let found = Certificate::from_pem_bundle(&pem).map_err(|error| problem(error.to_string()))?;
    if found.is_empty() { Err(problem("there is none in it".to_owned())) } else { Ok(found) }
}

fn pack(encoding: Encoding, body: &[u8]) -> Option<Vec<u8>> {
    match encoding {
        Encoding::Zstd => zstd::bulk::compress(body, ZSTD_LEVEL).ok(),
        Encoding::Gzip => {
            use std::io::Write;
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            writer.write_all(body).and_then(|()| writer.finish()).ok()
        }
    }
}

/// The error with its causes; of the address only the origin.
fn describe(error: reqwest::Error, url: &Url) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let origin = url.origin().ascii_serialization();
    // With a proxy in between, it may be the proxy that is not there.
    let direct = is_loopback(url) || !PROXIES.iter().any(|name| std::env::var_os(name).is_some());
    if direct && refused(&error) {
        return format!("nobody listens at {origin}");
    }
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(deeper) = cause {
        let reason = deeper.to_string();
        if !text.ends_with(&reason) {
            text = format!("{text}: {reason}");
        }
        cause = deeper.source();
    }
    text.chars().take(300).collect()
}

const PROXIES: [&str; 6] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

fn refused(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

// Asking a receiver whether it would accept events, without sending any: settings that look right may hold a wrong token or
// an address where nobody listens.

/// Asks one receiver; `Err` says why it would accept nothing. One that cannot be asked without an event counts as willing.
pub async fn ask(sink: &dyn Sink, ca_file: Option<&PathBuf>, timeout: Duration) -> Result<(), String> {
    let Some(question) = sink.question() else { return Ok(()) };
    let http = Http::new(sink.url(), ca_file).map_err(|error| error.to_string())?;
    let asked = async {
        let answer = http.post(&question, false, SystemClock.now()).await?;
        if answer.status == 415 {
            return http.post(&question, true, SystemClock.now()).await;
        }
        Ok::<_, Error>(answer)
    };
    let answer = match tokio::time::timeout(timeout, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string())?,
        Err(_) => return Err("no answer in time".to_owned()),
    };
    objection(answer.status, sink.judge(&[], &question, &answer))
}

/// Whether the verdict on a request without events means that one with events would not be accepted.
fn objection(status: u16, verdict: Verdict) -> Result<(), String> {
    match verdict {
        Verdict::Accepted { .. }
        | Verdict::PartlyAccepted(_)
        | Verdict::TooLarge(_)
        | Verdict::SomeRefused(_)
        | Verdict::NotServed(_) => Ok(()),
        // It knows us and only objects to a request without events. Where the path is unknown there is no such receiver.
        Verdict::AllRefused(_) if !matches!(status, 404 | 405 | 410) => Ok(()),
        Verdict::EncodingRefused(why)
        | Verdict::CredentialsRefused(why)
        | Verdict::AllRefused(why)
        | Verdict::Unconfirmed { why, .. } => Err(why),
    }
}

/// Asks the configured receivers that `wanted` selects by name, all at the same time. Needs no store: the
/// question does not name machine and user.
pub fn ask_all(
    sinks: &Sinks,
    wanted: impl Fn(&str) -> bool,
    timeout: Duration,
) -> Vec<(&'static str, Result<(), String>)> {
    let nobody = Identity { machine: String::new(), user: None };
    let mut receivers = sinks.sinks(&nobody);
    receivers.retain(|sink| wanted(sink.name()));
    let ca_file = sinks.delivery.ca_file.as_ref();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let all =
        join_all(receivers.iter().map(|sink| async { (sink.name(), ask(&**sink, ca_file, timeout).await) }));
    match runtime {
        Ok(runtime) => runtime.block_on(all),
        Err(error) => receivers.iter().map(|sink| (sink.name(), Err(error.to_string()))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_joined_to_a_base_with_or_without_slash() {
        for (base, expected) in [
            ("http://h:1", "http://h:1/v1/events"),
            ("http://h:1/", "http://h:1/v1/events"),
            ("https://h/codemie/", "https://h/codemie/v1/events"),
        ] {
            assert_eq!(join(&Url::parse(base).unwrap(), "/v1/events").as_str(), expected);
        }
    }

    #[test]
    fn loopback_addresses_are_recognised_without_a_name_server() {
        for (url, expected) in [
            ("http://127.0.0.1:1", true),
            ("http://[::1]:1", true),
            ("http://localhost/x", true),
            ("http://localhost.example", false),
            ("http://10.0.0.1", false),
            ("https://b.example", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn unreadable_certificates_are_an_error_that_names_the_setting() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let url = Url::parse("https://b.example").unwrap();
        for content in ["", "no certificate"] {
            std::fs::write(file.path(), content).unwrap();
            let error = Http::new(&url, Some(&file.path().to_owned())).unwrap_err().to_string();
            assert!(error.contains("tls.caFile"), "{error}");
        }
    }
}

#[cfg(test)]
mod ask_tests {
    use super::*;

    #[test]
    fn only_wrong_credentials_and_missing_receivers_are_objections() {
        let why = || "why".to_owned();
        for (status, verdict, fine) in [
            (200, Verdict::Accepted { rejected: Vec::new() }, true),
            (400, Verdict::SomeRefused(why()), true),
            (413, Verdict::TooLarge(why()), true),
            (404, Verdict::NotServed(why()), true),
            (409, Verdict::AllRefused(why()), true),
            (404, Verdict::AllRefused(why()), false),
            (401, Verdict::CredentialsRefused(why()), false),
            (415, Verdict::EncodingRefused(why()), false),
            (500, Verdict::Unconfirmed { why: why(), retry_after: None }, false),
        ] {
            assert_eq!(objection(status, verdict.clone()).is_ok(), fine, "{verdict:?}");
        }
    }
}
