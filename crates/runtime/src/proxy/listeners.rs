//! The listeners that live now: a file each in `$CODEMIE_HOME/run/proxy`, readable by its owner alone.
//!
//! It proves to a codemie inside a proxied agent that the address it was given is one of ours, and where that one leads. It holds
//! the secret's hash, not the secret.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::settings::ProxySettings;
use os::file::{create_private, entries, read_at_most};
use os::home::Home;
use pty::process::Processes;
use store::BootAndPidNs;
use types::{Pid, ProcessId, RunId, StartTime, Timestamp};

const MAX_BYTES: u64 = 64 << 10;
/// Of a secret ([`super::settings::new_secret`]).
const SECRET_DIGITS: usize = 64;

/// A keeper needs some ten milliseconds; this bounds an address of a keeper that is gone.
const NOTED_WITHIN: Duration = Duration::from_secs(1);

/// One listener, as its keeper has noted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    pub port: u16,
    pub keeper_pid: i32,
    pub keeper_start: u64,
    pub run: Option<RunId>,
    pub since: Timestamp,
    pub routes: Vec<ListenerRoute>,
    secret_hash: String,
    /// Where the keeper's pid means something.
    boot: String,
    pids: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerRoute {
    pub name: String,
    pub agent: String,
    pub upstream: String,
}

impl Listener {
    pub fn keeper(&self) -> ProcessId {
        ProcessId { pid: Pid(self.keeper_pid), start: StartTime(self.keeper_start) }
    }
}

/// Notes a listener; the note is removed when this is dropped.
pub fn note(settings: &ProxySettings, keeper: ProcessId, since: Timestamp) -> io::Result<Note> {
    let BootAndPidNs { boot, pids } = BootAndPidNs::here();
    let listener = Listener {
        port: settings.port,
        keeper_pid: keeper.pid.0,
        keeper_start: keeper.start.0,
        run: settings.run,
        since,
        routes: settings
            .routes
            .iter()
            .map(|route| ListenerRoute {
                name: route.name.clone(),
                agent: route.agent.clone(),
                upstream: route.upstream.clone(),
            })
            .collect(),
        secret_hash: hash(&settings.secret),
        boot,
        pids,
    };
    let folder = folder(&settings.home());
    create_private(&folder)?;
    let mut file = tempfile::NamedTempFile::new_in(&folder)?;
    file.write_all(&serde_json::to_vec(&listener)?)?;
    let path = folder.join(format!("{}-{}.json", settings.port, keeper.pid));
    file.persist(&path).map_err(|error| error.error)?;
    Ok(Note(path))
}

/// A note that is there as long as this is.
#[derive(Debug)]
pub struct Note(PathBuf);

impl Drop for Note {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// All listeners whose keepers live. Notes of others are removed.
pub fn living(home: &Home, processes: &dyn Processes) -> Vec<Listener> {
    let here = BootAndPidNs::here();
    let mut living = Vec::new();
    for path in entries(&folder(home)).unwrap_or_default() {
        let Some(listener) = read(&path) else { continue };
        // One of another container may live where it cannot be seen.
        if listener.boot == here.boot && listener.pids != here.pids {
            continue;
        }
        if listener.boot == here.boot && processes.alive(listener.keeper()) {
            living.push(listener);
        } else {
            let _ = fs::remove_file(path);
        }
    }
    living.sort_by_key(|listener| (listener.since, listener.port));
    living
}

/// An address as our listeners have them.
struct OwnAddress<'a> {
    port: u16,
    secret: &'a str,
    route: &'a str,
}

impl<'a> OwnAddress<'a> {
    fn parse(address: &'a str) -> Option<Self> {
        let (port, path) = address.strip_prefix("http://127.0.0.1:")?.split_once('/')?;
        let (secret, route) = path.split_once('/').unwrap_or((path, ""));
        let is_secret = secret.len() == SECRET_DIGITS && secret.bytes().all(|byte| byte.is_ascii_hexdigit());
        let port = port.parse().ok().filter(|_| is_secret)?;
        Some(Self { port, secret, route: route.trim_end_matches('/') })
    }
}

/// Whether an address has the form of ours: it holds a secret then, and is shown to nobody.
pub fn is_own_form(address: &str) -> bool {
    OwnAddress::parse(address).is_some()
}

/// Where an address leads, if it is that of a living listener of ours: its secret proves it. A keeper notes its listener while
/// the agent starts already, so one that is not noted yet is waited for.
pub fn upstream_of(address: &str, home: &Home, processes: &dyn Processes) -> Option<String> {
    let own = OwnAddress::parse(address)?;
    let until = Instant::now() + NOTED_WITHIN;
    loop {
        let mut living = living(home, processes).into_iter();
        let known =
            living.find(|listener| listener.port == own.port && listener.secret_hash == hash(own.secret));
        match known {
            Some(known) => {
                return known
                    .routes
                    .into_iter()
                    .find(|route| route.name == own.route)
                    .map(|route| route.upstream);
            }
            None if Instant::now() >= until => return None,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn read(path: &Path) -> Option<Listener> {
    serde_json::from_slice(&read_at_most(path, MAX_BYTES).ok()?).ok()
}

fn folder(home: &Home) -> PathBuf {
    home.run().join("proxy")
}

fn hash(secret: &str) -> String {
    Sha256::digest(secret.as_bytes()).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::settings::RouteSettings;
    use pty::process::SystemProcesses;
    use std::os::unix::fs::PermissionsExt;

    const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn settings(home: &Home) -> ProxySettings {
        let route = |name: &str, upstream: &str| RouteSettings {
            name: name.into(),
            agent: "claude".into(),
            upstream: upstream.into(),
            auth: None,
            headers: Vec::new(),
        };
        ProxySettings {
            home: home.path().to_owned(),
            run: None,
            port: 4242,
            secret: SECRET.into(),
            routes: vec![route("", "https://api.anthropic.com"), route("openai", "https://gw")],
            ca_file: None,
            log_level: None,
            leading: Vec::new(),
        }
    }

    fn ourselves() -> ProcessId {
        SystemProcesses.identify(Pid(std::process::id().cast_signed())).unwrap()
    }

    #[test]
    fn an_address_is_ours_by_its_secret_while_its_keeper_lives() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let of = |address: &str| upstream_of(address, &home, &SystemProcesses);
        let note = note(&settings(&home), ourselves(), Timestamp(1)).unwrap();
        let content = fs::read_to_string(&note.0).unwrap();
        assert!(!content.contains(SECRET), "{content}");
        assert_eq!(fs::metadata(&note.0).unwrap().permissions().mode() & 0o777, 0o600);
        for (address, upstream) in [
            ("http://127.0.0.1:4242/word", Some("https://api.anthropic.com")),
            ("http://127.0.0.1:4242/word/", Some("https://api.anthropic.com")),
            ("http://127.0.0.1:4242/word/openai", Some("https://gw")),
            ("http://127.0.0.1:4242/word/other", None),
            ("http://127.0.0.1:4242/guess", None),
            ("http://127.0.0.1:4243/word", None),
            ("http://127.0.0.1:4242", None),
            ("https://127.0.0.1:4242/word", None),
            ("http://evil.example/word", None),
        ] {
            let address = address.replace("word", SECRET);
            assert_eq!(of(&address).as_deref(), upstream, "{address}");
        }
        assert!(
            is_own_form(&format!("http://127.0.0.1:1/{SECRET}")) && !is_own_form("http://127.0.0.1:1/v1")
        );
        drop(note);
        assert_eq!(of(&format!("http://127.0.0.1:4242/{SECRET}")), None);
    }

    #[test]
    fn the_note_of_a_killed_keeper_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let gone = ProcessId { start: StartTime(1), ..ourselves() };
        let note = note(&settings(&home), gone, Timestamp(1)).unwrap();
        assert_eq!(living(&home, &SystemProcesses), []);
        assert!(!note.0.exists());
    }
}
