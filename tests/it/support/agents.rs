//! The real agents: where they are, what else a test with them needs, and that only few tests at a time have them.
//!
//! They are big and slow, so locks keep tests of one machine from running more than two at once. And they must reach
//! nothing but the fake API, so they run only where the kernel knows no route but loopback.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use testing::left_out;

/// Where a test keeps what must outlive no test run, but lies outside `/tmp` (Codex mistrusts temporary folders).
pub(crate) fn scratch() -> PathBuf {
    let ours = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if ours.starts_with(std::env::temp_dir()) { "/var/tmp/codemie-tests".into() } else { ours.to_owned() }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agent {
    Claude,
    Codex,
    Gemini,
    Qwen,
}

/// The least that an agent of npm's runs on: Qwen Code.
const NODE_LEAST: u32 = 22;

impl Agent {
    pub(crate) const ALL: [Self; 4] = [Self::Claude, Self::Codex, Self::Gemini, Self::Qwen];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Qwen => "qwen",
        }
    }

    /// The real program.
    pub(crate) fn program(self) -> PathBuf {
        let agents = std::env::var_os("CODEMIE_TEST_AGENTS").map(PathBuf::from);
        let agents = agents.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/agents"));
        agents.join("node_modules/.bin").join(self.name())
    }

    /// The real program in another version than the usual one; `tests/run.sh` installs each into a folder of its own.
    pub(crate) fn program_in(self, version: &str) -> PathBuf {
        let versions = std::env::var_os("CODEMIE_TEST_VERSIONS").map(PathBuf::from);
        let versions =
            versions.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/versions"));
        versions.join(format!("{}-{version}", self.name())).join("node_modules/.bin").join(self.name())
    }
}

/// So many tests run real agents at once. Each has a home of its own, and waits for its agents more than it computes.
const TURNS: u32 = 2;

/// The right to run real agents; [`TURNS`] tests have one at a time.
#[derive(Debug)]
pub(crate) struct Turn {
    _lock: File,
}

impl Turn {
    /// `None`, and a line that says why, where the agents cannot run. With `CODEMIE_TEST_REQUIRE=1` that is a failure:
    /// there everything needed was installed.
    pub(crate) fn take() -> Option<Self> {
        if let Some(missing) = missing() {
            left_out(&missing);
            return None;
        }
        fs::create_dir_all(scratch()).unwrap();
        let open = |turn| File::create(scratch().join(format!("agents-{turn}.lock"))).unwrap();
        let free = (0..TURNS).map(open).find(|lock| lock.try_lock().is_ok());
        let lock = free.unwrap_or_else(|| {
            let lock = open(std::process::id() % TURNS);
            lock.lock().unwrap();
            lock
        });
        Some(Self { _lock: lock })
    }
}

fn missing() -> Option<String> {
    let agents = Agent::ALL.into_iter().filter(|agent| !agent.program().exists());
    let agents: Vec<_> = agents.map(Agent::name).collect();
    if !agents.is_empty() {
        return Some(format!(
            "{} not installed under target/agents (tests/run.sh does it)",
            agents.join(", ")
        ));
    }
    let Ok(node) = Command::new("node").arg("--version").output() else {
        return Some("node is not installed".to_owned());
    };
    let node = String::from_utf8_lossy(&node.stdout).trim().to_owned();
    if node_major(&node).is_none_or(|major| major < NODE_LEAST) {
        return Some(format!(
            "node is {node:?}, and at least {NODE_LEAST} is needed (tests/run.sh fetches it)"
        ));
    }
    let proc = |file: &str| fs::read_to_string(format!("/proc/self/net/{file}")).unwrap_or_default();
    let ways = ways_out(&proc("route"), &proc("ipv6_route"));
    let out = "needs a network of loopback alone (tests/run.sh makes one), and there is a route through";
    (!ways.is_empty()).then(|| format!("it {out} {}", ways.join(", ")))
}

/// Whether the long form runs (`tests/run.sh --full`). Where it does not, a line says that this test is part of it.
pub(crate) fn in_full_form() -> bool {
    let full = std::env::var_os("CODEMIE_TEST_FULL").is_some();
    if !full {
        println!("only with --full");
    }
    full
}

/// `v22.23.3` is 22.
fn node_major(version: &str) -> Option<u32> {
    version.strip_prefix('v')?.split('.').next()?.parse().ok()
}

#[test]
fn versions_of_node_are_read() {
    for (version, major) in [("v22.23.3", Some(22)), ("v8", Some(8)), ("22.1", None), ("", None)] {
        assert_eq!(node_major(version), major, "{version}");
    }
}

/// The interfaces other than loopback that a route leads through, from the kernel's two tables.
fn ways_out(ipv4: &str, ipv6: &str) -> Vec<String> {
    let ipv4 = ipv4.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let ipv6 = ipv6.lines().filter_map(|line| line.split_whitespace().last());
    let mut ways: Vec<String> = ipv4.chain(ipv6).filter(|way| *way != "lo").map(str::to_owned).collect();
    ways.sort();
    ways.dedup();
    ways
}

#[test]
fn routes_out_are_seen() {
    let head = "Iface\tDestination\tGateway \tFlags\n";
    let local6 = "00000000000000000000000000000001 80 0 00 0 0100 00000001 00000000 80200001       lo\n";
    let link6 = "fe800000000000000000000000000000 40 0 00 0 0100 00000001 00000000 00000001     eth0\n";
    for (ipv4, ipv6, expected) in [
        ("", "", &[][..]),
        (head, local6, &[]),
        (&format!("{head}eth0\t00000000\t0200000A\t0003\n"), link6, &["eth0"]),
        (head, &format!("{local6}{link6}"), &["eth0"]),
    ] {
        assert_eq!(ways_out(ipv4, ipv6), expected, "{ipv4}{ipv6}");
    }
}
