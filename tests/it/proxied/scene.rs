//! A run whose agent is a script: it writes down which address it was given and stays until it is told to go. The test calls
//! the API in its place.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::fake_api::FakeApi;
use crate::support::processes;

/// Bounds failures only.
pub(super) const TIMEOUT: Duration = Duration::from_mins(1);

/// What calls authenticate with.
pub(super) const KEY: &str = "sk-ant-api03-hush";

/// In the folder of its run are its address, what else it is to do, and in the end the file that ends it.
const AGENT: &str = r#"#!/bin/sh
folder=${SCENE_FOLDER:?}
printf '%s' "$ANTHROPIC_BASE_URL" > "$folder/address.part" && mv "$folder/address.part" "$folder/address"
[ -e "$folder/nest" ] && eval "$(cat "$folder/nest")"
while [ ! -e "$folder/end" ]; do sleep 0.02; done
"#;

/// An agent that calls the API itself, in the conversation that the file `ask` names, or has a process of its own do it (`nested`).
/// Their connections stay open, as an agent's do.
const CALLING_AGENT: &str = r#"#!/bin/bash
folder=${SCENE_FOLDER:?}
printf '%s' "$ANTHROPIC_BASE_URL" > "$folder/address.part" && mv "$folder/address.part" "$folder/address"
address=${ANTHROPIC_BASE_URL#http://}
host=${address%%/*}
call() {
    local body='{"model":"claude-opus-4-8","stream":true,"tools":[{"name":"Bash"}],"messages":[{"role":"user","content":"hello"}]}'
    exec 3<>"/dev/tcp/${host%:*}/${host#*:}"
    printf 'POST /%s/v1/messages?beta=true HTTP/1.1\r\nhost: x\r\nx-claude-code-session-id: %s\r\ncontent-length: %d\r\n\r\n%s' \
        "${address#*/}" "$1" "${#body}" "$body" >&3
    while read -r line <&3; do case $line in *message_stop*) break ;; esac; done
}
while [ ! -e "$folder/end" ]; do
    for kind in ask nested; do
        [ -e "$folder/$kind" ] || continue
        conversation=$(cat "$folder/$kind")
        case $kind in
        ask) call "$conversation" ;;
        nested) (call "$conversation"; touch "$folder/called"; while [ ! -e "$folder/end" ]; do sleep 0.02; done) & ;;
        esac
        rm "$folder/$kind"
    done
    sleep 0.02
done
wait
"#;

pub(super) struct Scene {
    pub(super) api: FakeApi,
    root: TempDir,
}

impl Scene {
    pub(super) fn set() -> Self {
        let scene = Self { api: FakeApi::start(), root: tempfile::tempdir().unwrap() };
        scene.agent_is(AGENT);
        fs::create_dir(scene.root.path().join("project")).unwrap();
        scene
    }

    /// The agent calls the API itself.
    pub(super) fn calling_agent(&self) {
        self.agent_is(CALLING_AGENT);
    }

    fn agent_is(&self, script: &str) {
        let agent = self.root.path().join("claude");
        fs::write(&agent, script).unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(super) fn codemie_home(&self) -> PathBuf {
        self.root.path().join("codemie")
    }

    /// A command of codemie's, in this scene's home.
    pub(super) fn codemie(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_codemie"));
        command.args(arguments).current_dir(self.root.path().join("project")).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.root.path());
        command.env("CODEMIE_HOME", self.codemie_home()).env("CODEMIE_LOG", "debug");
        command.env("CODEMIE_REAL_CLAUDE", self.root.path().join("claude"));
        command.env("ANTHROPIC_BASE_URL", self.api.url());
        command
    }

    pub(super) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.codemie(arguments).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{arguments:?}: {output:?}"))
    }

    /// The folder of one run.
    pub(super) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.root.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// `codemie --proxy claude --session-id ID` with more variables.
    pub(super) fn start(&self, name: &str, conversation: &str, variables: &[(&str, &str)]) -> ScriptedRun {
        self.launch(name, &["--session-id", conversation], variables)
    }

    /// `codemie --proxy claude --continue`.
    pub(super) fn start_continuing(&self, name: &str) -> ScriptedRun {
        self.launch(name, &["--continue"], &[])
    }

    fn launch(&self, name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> ScriptedRun {
        let folder = self.folder(name);
        let mut command = self.codemie(&["--proxy", "--name", name, "claude"]);
        command.args(arguments).env("SCENE_FOLDER", &folder).envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        ScriptedRun { child: Some(command.spawn().unwrap()), folder }
    }

    /// The proxy's own processes of this scene, by their command.
    pub(super) fn own(&self, command: &str) -> Vec<i32> {
        let mut own = processes::started_in(self.root.path());
        own.retain(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(1) == Some(command.as_bytes())
        });
        own
    }

    pub(super) fn wait_own(&self, command: &str, what: impl Fn(&[i32]) -> bool) -> Vec<i32> {
        await_some(&format!("{command}: {:?}", self.log()), || {
            Some(self.own(command)).filter(|own| what(own))
        })
    }

    /// Waits until nothing of the proxy is left, its note neither.
    pub(super) fn wait_gone(&self) {
        self.wait_own("proxy-keeper", <[i32]>::is_empty);
        self.wait_own("proxy-worker", <[i32]>::is_empty);
        assert_eq!(self.notes(), 0);
    }

    pub(super) fn notes(&self) -> usize {
        fs::read_dir(self.codemie_home().join("run/proxy")).map_or(0, Iterator::count)
    }

    /// Where workers note calls that are not stored yet.
    pub(super) fn journals(&self) -> PathBuf {
        self.codemie_home().join("run/calls")
    }

    /// How many calls stand there.
    pub(super) fn journaled(&self) -> usize {
        let files = fs::read_dir(self.journals()).into_iter().flatten().flatten();
        files.map(|file| fs::read_to_string(file.path()).map_or(0, |text| text.lines().count())).sum()
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.codemie_home().join("logs/codemie.log")).unwrap_or_default()
    }

    /// Waits until a session has so many calls.
    pub(super) fn wait_calls(&self, session: &str, calls: u64) -> Value {
        await_some(&format!("{calls} calls of {session}"), || {
            let output = self.codemie(&["show", session, "--json"]).output().unwrap();
            let record: Value = serde_json::from_slice(&output.stdout).ok()?;
            (record["usage"]["apiCalls"] == calls).then_some(record)
        })
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        processes::kill_started_in(self.root.path());
    }
}

pub(super) struct ScriptedRun {
    child: Option<Child>,
    pub(super) folder: PathBuf,
}

impl ScriptedRun {
    /// The address that the agent was given.
    pub(super) fn address(&self) -> String {
        await_file(&self.folder.join("address"))
    }

    /// Has a calling agent call the API itself.
    pub(super) fn ask(&self, conversation: &str) {
        self.order("ask", conversation);
    }

    /// Has a process that a calling agent starts call the API, and waits until it has.
    pub(super) fn ask_nested(&self, conversation: &str) {
        self.order("nested", conversation);
        await_file(&self.folder.join("called"));
    }

    fn order(&self, kind: &str, conversation: &str) {
        let part = self.folder.join("order.part");
        fs::write(&part, conversation).unwrap();
        fs::rename(part, self.folder.join(kind)).unwrap();
    }

    pub(super) fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(super) fn end(mut self) -> Output {
        fs::write(self.folder.join("end"), "").unwrap();
        self.child.take().unwrap().wait_with_output().unwrap()
    }
}

pub(super) fn await_file(path: &Path) -> String {
    await_some(&format!("{}", path.display()), || fs::read_to_string(path).ok())
}

/// Looks until there is one. What is awaited here gives no other sign.
pub(super) fn await_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A call as an agent would make it; the answer's status and body.
pub(super) fn call(address: &str, conversation: &str, prompt: &str) -> io::Result<(u16, Vec<u8>)> {
    let (mut reader, status) = begin(address, conversation, prompt)?;
    let mut body = Vec::new();
    reader.read_to_end(&mut body)?;
    Ok((status, body))
}

/// The same without reading more than the head of the answer.
pub(super) fn begin(
    address: &str,
    conversation: &str,
    prompt: &str,
) -> io::Result<(BufReader<TcpStream>, u16)> {
    let (host, path) = address.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let body = serde_json::json!({"model": "claude-opus-4-8", "stream": true,
        "tools": [{"name": "Bash"}], "messages": [{"role": "user", "content": prompt}]})
    .to_string();
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(
        stream,
        "POST /{path}/v1/messages?beta=true HTTP/1.1\r\nhost: {host}\r\nx-claude-code-session-id: {conversation}\r\n\
         x-api-key: {KEY}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no answer: {line:?}")))?;
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    Ok((reader, status))
}

pub(super) fn kill(pid: i32) {
    processes::signal(pid, Signal::KILL);
}
