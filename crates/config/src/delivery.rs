//! Where events are sent and how: the part of the settings that delivery goes by.
//!
//! An invalid address is reported after the agent has ended, and nothing is sent there. No text made
//! here repeats a token, a header or a password.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use format::since::length;
use reqwest::Url;

use super::{Settings, expand_home};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub backend: Option<Backend>,
    pub otlp: Option<Otlp>,
    pub codemie_v1: Option<CodemieV1>,
    pub interval: Duration,
    pub exit_timeout: Duration,
    pub max_megabytes: u32,
    pub ca_file: Option<PathBuf>,
    pub user: User,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    pub url: Url,
    pub token: Option<Secret>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    pub endpoint: Url,
    pub headers: Vec<(String, Secret)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodemieV1 {
    pub url: Url,
    /// The header that says who we are: a cookie, or the user id of a developer's own server.
    pub auth: Option<(String, Secret)>,
}

/// Who is named in events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    Login,
    Named(String),
    Nobody,
}

/// A text that no log, error or debug output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Delivery {
    pub(super) fn read<V: Fn(&str) -> Option<OsString>>(
        settings: &mut Settings<V>,
        home: Option<&Path>,
    ) -> Self {
        let backend = address(settings, "backend.url")
            .map(|url| Backend { url, token: settings.text("backend.token").map(Secret) });
        let otlp = address(settings, "otlp.endpoint").map(|endpoint| {
            let text = settings.text("otlp.headers").unwrap_or_default();
            Otlp { endpoint, headers: headers(settings, &text) }
        });
        let codemie_v1 = address(settings, "codemieV1.url").map(|url| {
            let text = settings.text("codemieV1.auth");
            let auth = text.as_deref().and_then(header);
            if text.is_some() && auth.is_none() {
                settings.problem(format!("codemieV1.auth {AUTH}"));
            }
            CodemieV1 { url, auth }
        });
        let mut time = |key| settings.text(key).as_deref().and_then(length).unwrap_or_default();
        let (interval, exit_timeout) = (time("sync.interval"), time("sync.exitTimeout"));
        let megabytes = settings.get("sync.maxMegabytes").and_then(|(value, _)| value.as_integer());
        Self {
            backend,
            otlp,
            codemie_v1,
            // A pause of nothing would be no pause at all.
            interval: interval.max(Duration::from_millis(100)),
            exit_timeout,
            max_megabytes: megabytes.and_then(|count| u32::try_from(count).ok()).unwrap_or(u32::MAX),
            ca_file: settings.text("tls.caFile").map(|path| expand_home(&path, home)),
            user: match settings.text("identity.user") {
                None => User::Login,
                Some(name) if name == "none" => User::Nobody,
                Some(name) => User::Named(name),
            },
        }
    }

    /// Whether anything is to be sent anywhere.
    pub fn any(&self) -> bool {
        self.backend.is_some() || self.otlp.is_some() || self.codemie_v1.is_some()
    }
}

fn address<V: Fn(&str) -> Option<OsString>>(settings: &mut Settings<V>, key: &str) -> Option<Url> {
    let text = settings.text(key).filter(|text| !text.trim().is_empty())?;
    match usable(&text) {
        Ok(url) => Some(url),
        Err(expected) => {
            settings.problem(format!("{key} {expected}; nothing is sent there"));
            None
        }
    }
}

pub(super) fn usable(text: &str) -> Result<Url, &'static str> {
    match Url::parse(text.trim()) {
        Ok(url) if !url.username().is_empty() || url.password().is_some() => Err("must hold no password"),
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(url),
        _ => Err("must be an address that begins with http:// or https://"),
    }
}

/// What is wrong with a setting of delivery, beyond its kind: asked when it is set, and not only when it is needed.
pub(super) fn refused(key: &str, text: &str) -> Option<&'static str> {
    match key {
        "backend.url" | "otlp.endpoint" | "codemieV1.url" => usable(text).err(),
        "otlp.headers" => pairs(text).any(|pair| pair.is_none()).then_some(HEADERS),
        "codemieV1.auth" => header(text).is_none().then_some(AUTH),
        _ => None,
    }
}

const HEADERS: &str = "must be like \"name=value,name=value\"";
const AUTH: &str = "must be a header like \"Cookie: name=value\"";

fn pairs(text: &str) -> impl Iterator<Item = Option<(String, Secret)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').and_then(|(name, value)| pair_of(name, value)))
}

/// `name=value,name=value`, as OpenTelemetry's own variable has it.
fn headers<V: Fn(&str) -> Option<OsString>>(settings: &mut Settings<V>, text: &str) -> Vec<(String, Secret)> {
    let mut headers = Vec::new();
    for pair in pairs(text) {
        match pair {
            Some(pair) => headers.push(pair),
            None => settings.problem(format!("otlp.headers {HEADERS}")),
        }
    }
    headers
}

fn header(text: &str) -> Option<(String, Secret)> {
    text.split_once(':').and_then(|(name, value)| pair_of(name, value))
}

fn pair_of(name: &str, value: &str) -> Option<(String, Secret)> {
    let (name, value) = (name.trim(), value.trim());
    let possible = reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_ok()
        && reqwest::header::HeaderValue::from_str(value).is_ok();
    possible.then(|| (name.to_owned(), Secret(value.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str) -> (Delivery, Vec<String>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let mut settings = Settings::read(Some(file.path()), |_| None);
        let delivery = Delivery::read(&mut settings, None);
        (delivery, settings.problems)
    }

    #[test]
    fn nothing_is_sent_without_an_address() {
        let (delivery, problems) = read("");
        assert!(!delivery.any() && problems.is_empty());
        assert_eq!(
            (delivery.interval, delivery.exit_timeout),
            (Duration::from_secs(10), Duration::from_secs(1))
        );
        assert_eq!((delivery.max_megabytes, delivery.user), (256, User::Login));
    }

    #[test]
    fn headers_have_two_spellings_and_no_secret_is_shown() {
        let (delivery, problems) = read(
            "otlp.endpoint = 'http://localhost:4318'\notlp.headers = 'x-key=canary-1, broken canary-2'\n\
             codemieV1.url = 'https://codemie.example/api'\ncodemieV1.auth = 'Cookie: session=canary-3'\n\
             backend.url = 'https://b.example'\nbackend.token = 'canary-4'\nidentity.user = 'none'\n",
        );
        let otlp = delivery.otlp.as_ref().unwrap();
        assert_eq!(otlp.headers, [("x-key".to_owned(), Secret::new("canary-1"))]);
        let auth = delivery.codemie_v1.as_ref().unwrap().auth.as_ref().unwrap();
        assert_eq!((auth.0.as_str(), auth.1.reveal()), ("Cookie", "session=canary-3"));
        assert_eq!(delivery.user, User::Nobody);
        assert_eq!(problems, ["otlp.headers must be like \"name=value,name=value\""]);
        let shown = format!("{delivery:?} {problems:?}");
        assert!(!shown.contains("canary"), "{shown}");
    }
}
