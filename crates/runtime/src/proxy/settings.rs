//! What a proxy's processes are started with. It holds secrets, so it is handed over through a socket, never on a command line
//! and never in an environment.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use config::proxy::{AgentProxy, AuthSource, header_of};
use os::home::Home;
use relay::Auth;
use types::{Ids, RunId};

/// A line of this length is not one of ours.
const MAX_LINE: u64 = 1 << 20;

/// One listener, with everything its processes need.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxySettings {
    pub home: PathBuf,
    /// The run it serves; `None` for a proxy that stands alone.
    pub run: Option<RunId>,
    pub port: u16,
    pub secret: String,
    pub routes: Vec<RouteSettings>,
    pub ca_file: Option<PathBuf>,
    pub log_level: Option<String>,
    /// Variables that lead an agent here; our own processes are started without them.
    #[serde(default)]
    pub leading: Vec<String>,
}

/// Authorities to trust beside the system's: those of the settings, else those that the agents made with Node trust as well.
pub fn own_authorities(
    configured: Option<PathBuf>,
    var: impl Fn(&str) -> Option<OsString>,
) -> Option<PathBuf> {
    let of_node = || var("NODE_EXTRA_CA_CERTS").map(PathBuf::from).filter(|file| file.is_file());
    configured.or_else(of_node)
}

/// Where the requests of one route go.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteSettings {
    /// The part of the path behind the secret; empty where there is one route alone.
    pub name: String,
    /// The agent whose requests these are.
    pub agent: String,
    pub upstream: String,
    pub auth: Option<Auth>,
    /// Headers added to every request.
    pub headers: Vec<(String, String)>,
}

impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxySettings")
            .field("port", &self.port)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RouteSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteSettings")
            .field("name", &self.name)
            .field("agent", &self.agent)
            .finish_non_exhaustive()
    }
}

impl ProxySettings {
    pub fn home(&self) -> Home {
        Home::at(&self.home)
    }

    /// The address that agents are given.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}", self.port, self.secret)
    }

    /// One line, the end of which shows that it is whole.
    pub fn send(&self, to: &mut impl Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        to.write_all(&line)
    }

    pub fn receive(from: &mut impl BufRead) -> io::Result<Self> {
        let mut line = Vec::new();
        io::Read::take(from, MAX_LINE).read_until(b'\n', &mut line)?;
        // The parser's own words could repeat a secret.
        serde_json::from_slice(&line)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the settings of a proxy are not whole"))
    }
}

/// A secret of 244 random bits.
pub fn new_secret(ids: &dyn Ids) -> String {
    format!("{}{}", ids.uuid().simple(), ids.uuid().simple())
}

/// What authenticates the calls to `upstream`: only the address that was configured gets it, and no other.
pub fn route_auth(
    configured: &AgentProxy,
    upstream: &str,
    var: impl Fn(&str) -> Option<OsString>,
) -> Option<Auth> {
    let auth = configured.auth.as_ref().filter(|_| configured.upstream.as_deref() == Some(upstream))?;
    let of_value = |text: &str| {
        let (header, value) = header_of(text);
        Auth::Static { header, value: value.reveal().to_owned() }
    };
    Some(match auth {
        AuthSource::Static(value) => of_value(value.reveal()),
        AuthSource::Env(name) => {
            let value =
                var(name).filter(|value| !value.is_empty()).and_then(|value| value.into_string().ok());
            value.map_or_else(|| Auth::Missing { why: format!("set {name}") }, |value| of_value(&value))
        }
        AuthSource::Command(argv) => Auth::Command { header: "authorization".to_owned(), argv: argv.clone() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::delivery::Secret;
    use types::RandomIds;

    fn settings() -> ProxySettings {
        ProxySettings {
            home: "/home/dev/.codemie".into(),
            run: Some(RandomIds.run()),
            port: 4242,
            secret: new_secret(&RandomIds),
            routes: vec![RouteSettings {
                name: String::new(),
                agent: "claude".into(),
                upstream: "https://api.anthropic.com".into(),
                auth: Some(Auth::Static { header: "x-api-key".into(), value: "hidden".into() }),
                headers: Vec::new(),
            }],
            ca_file: None,
            log_level: None,
            leading: Vec::new(),
        }
    }

    #[test]
    fn settings_pass_through_a_socket_and_are_shown_nowhere() {
        let settings = settings();
        let mut bytes = Vec::new();
        settings.send(&mut bytes).unwrap();
        assert_eq!(ProxySettings::receive(&mut &bytes[..]).unwrap(), settings);
        let cut = ProxySettings::receive(&mut &bytes[..bytes.len() / 2]).unwrap_err().to_string();
        let shown = format!("{settings:?} {:?} {cut}", settings.routes);
        assert!(!shown.contains(&settings.secret) && !shown.contains("hidden"), "{shown}");
        assert_eq!(settings.secret.len(), 64);
    }

    #[test]
    fn only_the_configured_address_is_authenticated() {
        let configured = |auth| AgentProxy { upstream: Some("https://gw".into()), auth: Some(auth) };
        let var = |name: &str| (name == "KEY").then(|| OsString::from("x-key: word"));
        let fixed = configured(AuthSource::Static(Secret::new("word")));
        assert_eq!(route_auth(&fixed, "https://api.anthropic.com", var), None);
        let bearer = Auth::Static { header: "authorization".into(), value: "Bearer word".into() };
        assert_eq!(route_auth(&fixed, "https://gw", var), Some(bearer));
        let named = Auth::Static { header: "x-key".into(), value: "word".into() };
        assert_eq!(route_auth(&configured(AuthSource::Env("KEY".into())), "https://gw", var), Some(named));
        let missing = Auth::Missing { why: "set NONE".into() };
        assert_eq!(
            route_auth(&configured(AuthSource::Env("NONE".into())), "https://gw", var),
            Some(missing),
            "never as the agent authenticates itself"
        );
    }
}
