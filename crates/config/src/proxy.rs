//! Where the proxy sends an agent's calls, and what it adds to them: the part of the settings that it goes by.
//!
//! No text made here repeats a secret.

use std::ffi::OsString;

use toml_edit::Value;

use super::delivery::{Secret, usable};
use super::{Settings, keys};

/// The header of a value that names none.
const BEARER: &str = "authorization";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyConfig {
    /// Runs go through the proxy without being asked to.
    pub enabled: bool,
    /// Requests tell the upstream which session they belong to.
    pub session_header: bool,
    agents: Vec<(String, AgentProxy)>,
}

/// What is configured for the calls of one agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentProxy {
    pub upstream: Option<String>,
    pub auth: Option<AuthSource>,
}

/// Where the value that authenticates calls comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthSource {
    Static(Secret),
    /// The name of a variable.
    Env(String),
    /// Program and arguments; it prints the value.
    Command(Vec<String>),
}

impl ProxyConfig {
    pub(super) fn read<V: Fn(&str) -> Option<OsString>>(settings: &mut Settings<V>, agents: &[&str]) -> Self {
        let (enabled, session_header) =
            (settings.flag("proxy.enabled"), settings.flag("proxy.sessionHeader"));
        let agents = agents.iter().map(|agent| ((*agent).to_owned(), AgentProxy::read(settings, agent)));
        Self { agents: agents.collect(), enabled, session_header }
    }

    pub fn agent(&self, name: &str) -> AgentProxy {
        let known = self.agents.iter().find(|(agent, _)| agent == name);
        known.map_or_else(AgentProxy::default, |(_, proxy)| proxy.clone())
    }
}

impl AgentProxy {
    fn read<V: Fn(&str) -> Option<OsString>>(settings: &mut Settings<V>, agent: &str) -> Self {
        let mut checked = |part: &str| {
            let key = format!("proxy.{agent}.{part}");
            let text = settings.text(&key).filter(|text| !text.trim().is_empty())?;
            match refused(&key, &text) {
                None => Some(text),
                Some(expected) => {
                    settings.problem(format!("{key} {expected}; it is not used"));
                    None
                }
            }
        };
        let upstream = checked("upstream").map(|url| url.trim().trim_end_matches('/').to_owned());
        Self { upstream, auth: checked("auth").as_deref().and_then(AuthSource::read) }
    }
}

impl AuthSource {
    fn read(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        let rest = rest.trim();
        match kind.trim() {
            "static" => (!rest.is_empty()).then(|| Self::Static(Secret::new(rest))),
            "env" => (!rest.is_empty() && !rest.contains(['=', '\0'])).then(|| Self::Env(rest.to_owned())),
            "command" => {
                let list = keys::Kind::List.parse(rest).ok()?;
                let argv: Vec<String> =
                    list.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                (!argv.is_empty()).then_some(Self::Command(argv))
            }
            _ => None,
        }
    }
}

/// A header and its value, as `Name: value` has it; a value alone is a bearer token, with or without the word `Bearer`.
pub fn header_of(text: &str) -> (String, Secret) {
    let text = text.trim();
    let named = text.split_once(": ").filter(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    });
    match named {
        Some((name, value)) => (name.to_ascii_lowercase(), Secret::new(value.trim())),
        None if has_scheme(text) => (BEARER.to_owned(), Secret::new(text)),
        None => (BEARER.to_owned(), Secret::new(format!("Bearer {text}"))),
    }
}

/// Whether a value begins with the word `Bearer`, in any letters (RFC 9110, 11.1).
fn has_scheme(text: &str) -> bool {
    text.split_once(' ').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
}

const AUTH: &str = r#"must be "static:VALUE", "env:NAME" or "command:[\"program\", \"argument\"]""#;

/// What is wrong with a setting of the proxy, beyond its kind.
pub(super) fn refused(key: &str, text: &str) -> Option<&'static str> {
    match keys::find(key)?.name {
        "proxy.*.upstream" => usable(text).err(),
        "proxy.*.auth" => AuthSource::read(text).is_none().then_some(AUTH),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str) -> (ProxyConfig, Vec<String>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let mut settings = Settings::read(Some(file.path()), |_: &str| None);
        let config = ProxyConfig::read(&mut settings, &["claude", "codex"]);
        (config, settings.problems)
    }

    #[test]
    fn nothing_is_proxied_by_default() {
        assert_eq!(read("").0.agent("claude"), AgentProxy::default());
        assert!(!read("").0.enabled && !read("").0.session_header);
    }

    #[test]
    fn upstream_and_auth_are_read_per_agent() {
        let (config, problems) = read(
            "[proxy]\nenabled = true\n[proxy.claude]\nupstream = 'https://gw.example/anthropic/'\nauth = 'static:x-api-key: secret'\n[proxy.codex]\nauth = 'command:[\"print-token\", \"-q\"]'\n",
        );
        assert_eq!(problems, [""; 0]);
        assert!(config.enabled);
        let claude = config.agent("claude");
        assert_eq!(claude.upstream.as_deref(), Some("https://gw.example/anthropic"));
        assert_eq!(claude.auth, Some(AuthSource::Static(Secret::new("x-api-key: secret"))));
        let argv = vec!["print-token".to_owned(), "-q".to_owned()];
        assert_eq!(config.agent("codex").auth, Some(AuthSource::Command(argv)));
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn a_wrong_value_is_reported_and_not_used() {
        for (line, problem) in [
            ("upstream = 'ftp://x'", "proxy.claude.upstream must be an address"),
            ("upstream = 'https://me:secret@x'", "proxy.claude.upstream must hold no password"),
            ("auth = 'secret'", "proxy.claude.auth must be \"static:"),
            ("auth = 'command:secret'", "proxy.claude.auth must be \"static:"),
            ("auth = 'env:'", "proxy.claude.auth must be \"static:"),
            ("auth = 'static: '", "proxy.claude.auth must be \"static:"),
        ] {
            let (config, problems) = read(&format!("[proxy.claude]\n{line}\n"));
            assert_eq!(config.agent("claude"), AgentProxy::default(), "{line}");
            assert!(problems.len() == 1 && problems[0].starts_with(problem), "{line}: {problems:?}");
            assert!(!problems[0].contains("secret"), "{problems:?}");
        }
    }

    #[test]
    fn a_value_without_a_header_is_a_bearer_token() {
        for (text, name, value) in [
            ("sk-1", "authorization", "Bearer sk-1"),
            ("Bearer sk-1", "authorization", "Bearer sk-1"),
            ("bearer sk-1", "authorization", "bearer sk-1"),
            ("Bearer", "authorization", "Bearer Bearer"),
            ("user:word", "authorization", "Bearer user:word"),
            ("X-Api-Key: sk-1", "x-api-key", "sk-1"),
            ("Authorization: Basic abc=", "authorization", "Basic abc="),
            ("not a name: x", "authorization", "Bearer not a name: x"),
        ] {
            assert_eq!(header_of(text), (name.to_owned(), Secret::new(value)), "{text}");
        }
    }
}
