//! Behind the proxy an agent is the same program as without it: same calls, same tools, same header lines in the same order,
//! same bodies.
//!
//! Claude Code becomes another program when its base URL names another host. So the "direct" run here has none: in a mount
//! namespace of its own the vendor's name leads to this machine, where the fake API stands behind TLS.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::tls::{self, Vendor};
use super::{built_in_codex, configure};
use crate::support::agents::{Agent, in_full_form, left_out};
use crate::support::fake_api::{Call, CallLog};
use crate::support::stage::{Form, Stage};

const HOST: &str = "api.anthropic.com";

#[test]
fn claude_stays_the_same_program() {
    let (Some(direct), Some(vendor)) = (Stage::set(), vendor()) else { return };
    let proxied = direct.another();
    claude(&direct, &proxied, &vendor, &[]);
}

/// What cannot be kept, by the beta's name: this version looks at the host itself before it asks for it.
const LOST_IN_2_1_325: [&str; 1] = ["mid-conversation-system-clear-at-2026-08-21"];

#[test]
fn claude_2_1_325_stays_the_same_program() {
    let (Some(direct), Some(vendor)) = (Stage::set_version(Agent::Claude, "2.1.325"), vendor()) else {
        return;
    };
    let mut proxied = direct.another();
    proxied.home.pin(Agent::Claude, direct.home.program(Agent::Claude));
    claude(&direct, &proxied, &vendor, &LOST_IN_2_1_325);
}

fn vendor() -> Option<Vendor> {
    tls::vendor(HOST).map_err(|why| left_out(&why)).ok()
}

fn claude(direct: &Stage, proxied: &Stage, vendor: &Vendor, lost: &[&str]) {
    configure(proxied, &format!("[tls]\ncaFile = '{}'\n", vendor.ca.display()));
    for stage in [direct, proxied] {
        let leading = vendor.lead_to(&stage.api.url());
        let output = at_home(stage, vendor);
        assert!(output.status.success(), "{output:?}\n{}", stage.api.log());
        drop(leading);
    }
    let lead = led(proxied, Agent::Claude);
    assert!(
        lead.contains("to https://api.anthropic.com")
            && lead.contains("_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL=1"),
        "{lead}"
    );
    compare("Claude Code", direct, proxied, lost);
}

/// `codemie claude -p` where the vendor's name leads to this machine.
fn at_home(stage: &Stage, vendor: &Vendor) -> std::process::Output {
    let mut command = Command::new("unshare");
    let script =
        "mount --make-rprivate / 2>/dev/null; mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
    command.args(["-m", "sh", "-c", script, "sh"]).arg(&vendor.hosts);
    command.args(stage.argv(Agent::Claude, Form::Wrapped, &["-p", "hello [run echo a]"]));
    command.current_dir(stage.home.project()).env_clear();
    let own = stage.home.environment(&stage.api).into_iter();
    // Without it, it is what it is on a user's machine.
    command.envs(own.filter(|(name, _)| *name != "ANTHROPIC_BASE_URL"));
    command.env("NODE_EXTRA_CA_CERTS", &vendor.ca);
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn codex_stays_the_same_program() {
    let Some(direct) = Stage::set() else { return };
    let proxied = direct.another();
    configure(&proxied, "");
    for stage in [&direct, &proxied] {
        built_in_codex(stage);
        let output = stage.pipe(Agent::Codex, Form::Wrapped, &["exec", "hello [run echo a]"], "");
        assert!(output.status.success(), "{output:?}\n{}", stage.api.log());
    }
    assert!(led(&proxied, Agent::Codex).contains("-c openai_base_url"), "{}", led(&proxied, Agent::Codex));
    compare("Codex", &direct, &proxied, &[]);
}

#[test]
fn gemini_stays_the_same_program() {
    let Some(direct) = Stage::set() else { return };
    let proxied = direct.another();
    configure(&proxied, "");
    for stage in [&direct, &proxied] {
        let arguments = ["--approval-mode", "yolo", "-p", "hello [run echo a]"];
        let output = stage.pipe(Agent::Gemini, Form::Wrapped, &arguments, "");
        assert!(output.status.success(), "{output:?}\n{}", stage.api.log());
    }
    assert!(led(&proxied, Agent::Gemini).contains("GOOGLE_GEMINI_BASE_URL"));
    compare("Gemini CLI", &direct, &proxied, &[]);
}

#[test]
fn qwen_stays_the_same_program() {
    if !in_full_form() {
        return;
    }
    let Some(direct) = Stage::set() else { return };
    let proxied = direct.another();
    configure(&proxied, "");
    for stage in [&direct, &proxied] {
        let output = stage.pipe(Agent::Qwen, Form::Wrapped, &["--yolo", "-p", "hello [run echo a]"], "");
        assert!(output.status.success(), "{output:?}\n{}", stage.api.log());
    }
    assert!(led(&proxied, Agent::Qwen).contains("OPENAI_BASE_URL"), "{}", led(&proxied, Agent::Qwen));
    compare("Qwen Code", &direct, &proxied, &[]);
}

/// What `explain` says of the proxy in the only session there is.
fn led(stage: &Stage, agent: Agent) -> String {
    let records = super::recorded(stage, agent);
    let session = &records.values().next().expect("a session").session_id;
    let argv = [env!("CARGO_BIN_EXE_codemie"), "explain", session].map(Into::into);
    let explained = String::from_utf8(stage.run(&argv, "").stdout).unwrap();
    explained.lines().filter(|line| line.contains("proxy")).collect()
}

fn compare(name: &str, direct: &Stage, proxied: &Stage, lost: &[&str]) {
    let (one, other) = (direct.api.log(), proxied.api.log());
    let (one, other) = (Seen::of(&one, direct.home.path()), Seen::of(&other, proxied.home.path()));
    println!("{}", table(name, &one, &other));
    assert_eq!(one.len(), other.len(), "as many calls:\n{}", table(name, &one, &other));
    for (at, (one, other)) in one.iter().zip(&other).enumerate() {
        assert_eq!(one.what, other.what, "call {at}");
        assert_eq!(one.tools, other.tools, "tools of call {at}");
        assert_eq!(one.head, other.head, "header lines of call {at}");
        let mut betas = one.betas.clone();
        betas.retain(|beta| !lost.contains(&beta.as_str()));
        assert_eq!(betas, other.betas, "betas of call {at}");
        assert_eq!(one.betas.len() - betas.len(), lost.len(), "what is lost, and no more: {:?}", one.betas);
        assert!(one.body == other.body, "call {at} differs at {}", difference(&one.body, &other.body));
    }
}

/// A call without what differs between any two runs.
struct Seen {
    what: String,
    tools: Vec<String>,
    head: Vec<String>,
    betas: Vec<String>,
    body: String,
    bytes: usize,
}

impl Seen {
    fn of(log: &CallLog, home: &Path) -> Vec<Self> {
        let mut calls: Vec<&Call> = log.calls.iter().collect();
        // Calls that are made at once come in any order.
        calls.sort_by_key(|call| (call.turn, format!("{:?}", call.kind), call.n));
        calls.into_iter().map(|call| Self::of_call(call, home)).collect()
    }

    fn of_call(call: &Call, home: &Path) -> Self {
        let body = call.body.to_string();
        let tools = call.body["tools"].as_array().into_iter().flatten();
        let head = call.head.iter().filter(|line| !changes(line)).map(|line| steady(line, home));
        Self {
            what: format!("{:?} {}", call.kind, call.model),
            tools: tools.map(name_of).collect(),
            head: head.collect(),
            betas: betas(&call.head),
            bytes: body.len(),
            body: steady(&body, home),
        }
    }
}

/// A tool's name; in chat completions it stands one level deeper.
fn name_of(tool: &Value) -> String {
    let name = tool["name"].as_str().or_else(|| tool["function"]["name"].as_str());
    name.unwrap_or_default().to_owned()
}

const BETAS: &str = "anthropic-beta: ";

fn betas(head: &[String]) -> Vec<String> {
    let lists = head.iter().filter_map(|line| line.strip_prefix(BETAS));
    lists.flat_map(|list| list.split(',')).map(|beta| beta.trim().to_owned()).collect()
}

/// The exceptions: hop-by-hop headers, the host's own name, and the length of a body that holds a path of the run.
fn changes(line: &str) -> bool {
    let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
    matches!(name.as_str(), "host" | "connection" | "content-length" | "keep-alive")
}

/// Ids, hashes and times are one sign each, and the run's own folder another. Betas are compared by themselves.
fn steady(text: &str, home: &Path) -> String {
    // How long a tool took, in milliseconds.
    if let Some(name) =
        [BETAS, "x-claude-code-prev-tool-durations: "].into_iter().find(|name| text.starts_with(name))
    {
        return name.to_owned();
    }
    let text = without_numbers(text).replace(home.to_str().unwrap(), "HOME");
    let folder = home.file_name().unwrap().to_str().unwrap();
    let text = text.replace(folder, "HOME");
    let (mut steady, mut word) = (String::with_capacity(text.len()), String::new());
    for letter in text.chars().chain(['\0']) {
        if letter.is_ascii_hexdigit() || letter == '-' {
            word.push(letter);
            continue;
        }
        let id = word.len() >= 5 && word.contains(|letter: char| letter.is_ascii_digit());
        steady.push_str(if id { "#" } else { &word });
        word.clear();
        steady.push(letter);
    }
    steady
}

/// Each fake API has a number of its own in its ids (`fake3x0001`), each tool's process another, and takes its own time. Codex names
/// each piece of a tool's output by a hexadecimal number, and Claude each request (`cch=aabdd`); it may have letters alone.
fn without_numbers(text: &str) -> String {
    let decimal = |letter: char| letter.is_ascii_digit() || letter == '.';
    let hexadecimal = |letter: char| letter.is_ascii_hexdigit();
    let marks: [(&str, &dyn Fn(char) -> bool); 5] = [
        ("fake", &decimal),
        ("PGID: ", &decimal),
        ("Wall time: ", &decimal),
        ("Chunk ID: ", &hexadecimal),
        ("cch=", &hexadecimal),
    ];
    marks.into_iter().fold(text.to_owned(), |text, (mark, is_part)| {
        let mut parts = text.split(mark);
        let mut steady = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            steady.push_str(mark);
            steady.push_str(part.trim_start_matches(is_part));
        }
        steady
    })
}

fn difference(one: &str, other: &str) -> String {
    let at = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| {
        let bytes = &text.as_bytes()[at.saturating_sub(60)..(at + 60).min(text.len())];
        String::from_utf8_lossy(bytes).into_owned()
    };
    format!("{at}:\n  direct  {}\n  proxied {}", around(one), around(other))
}

/// What a reader compares: one line per call.
fn table(name: &str, direct: &[Seen], proxied: &[Seen]) -> String {
    let mut text = format!("{name}: tools, header lines, body bytes\n");
    let show = |seen: Option<&Seen>| {
        seen.map_or("-".to_owned(), |seen| {
            format!("{} {} / {} / {}", seen.what, seen.tools.len(), seen.head.len(), seen.bytes)
        })
    };
    for at in 0..direct.len().max(proxied.len()) {
        let _ = writeln!(text, "  direct {:40} proxied {}", show(direct.get(at)), show(proxied.get(at)));
    }
    text
}

#[test]
fn what_differs_between_any_two_runs_is_left_out() {
    let home = PathBuf::from("/tmp/home-12-0");
    assert_eq!(
        steady("in /tmp/home-12-0/project at 0a1b2c3d-4e5f, added 12 feet", &home),
        "in HOME/project at #, added 12 feet\0"
    );
    for id in ["edddba", "ed00ba", "123456"] {
        assert_eq!(
            steady(&format!("Chunk ID: {id}\nWall time: 0.1 seconds"), &home),
            "Chunk ID: \nWall time:  seconds\0"
        );
        assert_eq!(steady(&format!("cc_entrypoint=cli; cch={id};"), &home), "cc_entrypoint=cli; cch=;\0");
    }
    assert!(changes("Host: x") && !changes("anthropic-beta: x"));
}
