//! `codemie mcp`, driven by a client that nobody here wrote: the official TypeScript SDK. And by clients that send anything.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::sandbox::{CODEMIE, Sandbox, output_of};
use crate::support::agents::left_out;
use crate::support::processes;

/// Bounds failures only.
const TIMEOUT: Duration = Duration::from_secs(30);

fn modules() -> PathBuf {
    let given = std::env::var_os("CODEMIE_TEST_MCP_SDK").map(PathBuf::from);
    given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/mcp-sdk"))
}

fn missing() -> Option<&'static str> {
    if !modules().join("node_modules/@modelcontextprotocol/sdk").exists() {
        return Some("the MCP SDK is not installed under target/mcp-sdk (tests/run.sh does it)");
    }
    Command::new("node").arg("--version").output().is_err().then_some("node is not installed")
}

/// Runs a part of tests/mcp/client.mjs and returns how many checks it made.
fn run_client(sandbox: &Sandbox, part: &str) -> usize {
    let mut node = sandbox.command("node");
    node.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/client.mjs"))
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("CODEMIE", CODEMIE)
        .env("FOLDER", sandbox.home())
        .env("MODULES", modules())
        .env("PART", part);
    let printed = output_of(&mut node);
    println!("{}{}", printed.out, printed.err);
    let failed: Vec<&str> = printed.out.lines().filter(|line| !line.starts_with("ok ")).collect();
    assert!(failed.is_empty() && printed.code == Some(0), "{}\n{}", failed.join("\n"), printed.err);
    printed.out.lines().count()
}

/// A project of its own: the folder lies in the repository of the tests.
fn project() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file(".git/HEAD", "ref: refs/heads/main\n");
    sandbox
}

/// A session in a terminal that is nobody's here: a pipe keeps it alive.
fn busy(sandbox: &Sandbox) -> Child {
    let mut command = sandbox.codemie(&["run", "--name", "busy", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // It echoes when it runs; its session is stored beside that.
    child.stdin.as_mut().unwrap().write_all(b"x\n").unwrap();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let begun = Instant::now();
    while !output_of(&mut sandbox.codemie(&["list", "--active"])).out.contains("busy") {
        assert!(begun.elapsed() < TIMEOUT, "the session is not recorded");
    }
    child
}

#[test]
fn the_official_sdk_asks_every_tool() {
    if let Some(missing) = missing() {
        return left_out(missing);
    }
    let sandbox = project();
    assert_eq!(output_of(&mut sandbox.codemie(&["run", "--name", "plain", "--", "true"])).code, Some(0));
    let mut busy = busy(&sandbox);
    assert_eq!(run_client(&sandbox, "asked"), 8, "every check was made");
    drop(busy.stdin.take());
    busy.wait().unwrap();
}

#[test]
fn the_official_sdk_drives_a_background_session() {
    if let Some(missing) = missing() {
        return left_out(missing);
    }
    let sandbox = project();
    let talker = "[mcp.genie]\ntalker = ['sh', '-c', 'echo ready; cat']\n";
    sandbox.file(".codemie/config.toml", talker);
    assert_eq!(run_client(&sandbox, "background"), 4, "every check was made");
}

/// The server, spoken to by hand.
pub(crate) struct Server {
    process: Child,
    /// Read as they come, so that the server never waits for its client.
    lines: Receiver<String>,
}

impl Server {
    pub(crate) fn start(sandbox: &Sandbox) -> Self {
        let mut command = sandbox.codemie(&["mcp"]);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { process, lines }
    }

    fn say(&mut self, bytes: &[u8]) {
        // A server that has ended is seen by what follows.
        let _ = self.process.stdin.as_mut().unwrap().write_all(bytes);
    }

    pub(crate) fn say_json(&mut self, message: &Value) {
        self.say(format!("{message}\n").as_bytes());
    }

    pub(crate) fn open(&mut self) {
        self.say_json(&json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
        }}));
        let answer = self.answer_to(&json!("init"));
        assert_eq!(answer["result"]["serverInfo"]["name"], "codemie", "{answer}");
        self.say_json(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    /// Every line before it must be MCP, too.
    pub(crate) fn answer_to(&mut self, id: &Value) -> Value {
        loop {
            let line = self.lines.recv_timeout(TIMEOUT).expect("an answer");
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no MCP: {line:?}"));
            assert_eq!(message["jsonrpc"], "2.0", "{line}");
            if message["id"] == *id {
                return message;
            }
        }
    }

    /// Closes its input and returns how it ended, how long that took, and what it printed on standard error.
    pub(crate) fn close(mut self) -> (Option<i32>, Duration, String) {
        drop(self.process.stdin.take());
        let begun = Instant::now();
        while self.process.try_wait().unwrap().is_none() && begun.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(10));
        }
        let took = begun.elapsed();
        let _ = self.process.kill();
        let mut err = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.process.wait().unwrap().code(), took, err)
    }
}

#[test]
fn the_server_ends_when_its_input_does_also_in_the_middle_of_a_wait() {
    let sandbox = project();
    let mut busy = busy(&sandbox);
    let unopened = Server::start(&sandbox);
    assert_eq!(unopened.close().0, Some(0), "before anything was asked");
    let mut server = Server::start(&sandbox);
    server.open();
    let wait = json!({"name": "wait_for_session", "arguments": {"session": "busy", "timeout_ms": 600_000}});
    server.say_json(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": wait}));
    let list = json!({"name": "list_sessions", "arguments": {}});
    server.say_json(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": list}));
    let listed = server.answer_to(&json!(2));
    assert_eq!(listed["result"]["structuredContent"]["sessions"][0]["name"], "busy", "{listed}");
    let (code, took, err) = server.close();
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(busy.try_wait().unwrap().is_none(), "the session lives on");
    drop(busy.stdin.take());
    busy.wait().unwrap();
}

const METHODS: [&str; 6] = ["tools/call", "tools/list", "initialize", "ping", "resources/read", "x"];

/// A JSON value, often one that looks like a request.
fn arbitrary(random: &mut fastrand::Rng, depth: usize) -> Value {
    match random.u8(0..if depth == 0 { 5 } else { 8 }) {
        0 => Value::Null,
        1 => json!(random.bool()),
        2 => json!(random.i64(..)),
        3 => json!(random.f64() * 1e200),
        4 => json!((0..random.usize(0..20)).map(|_| random.char(..)).collect::<String>()),
        5 => (0..random.usize(0..4)).map(|_| arbitrary(random, depth - 1)).collect(),
        6 => json!({
            "jsonrpc": "2.0",
            "id": arbitrary(random, 0),
            "method": METHODS[random.usize(0..METHODS.len())],
            "params": {"name": "get_session_data", "arguments": arbitrary(random, depth - 1), "_meta": arbitrary(random, 0)},
        }),
        _ => {
            let names =
                ["jsonrpc", "id", "method", "params", "result", "error", "name", "arguments", "session"];
            let name = |random: &mut fastrand::Rng| names[random.usize(0..names.len())].to_owned();
            let fields = 0..random.usize(0..5);
            fields
                .map(|_| (name(random), arbitrary(random, depth - 1)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
    }
}

#[test]
fn whatever_is_sent_the_server_answers_on_and_stays_small() {
    let sandbox = Sandbox::new();
    let mut random = fastrand::Rng::with_seed(20_261_117);
    for opened in [false, true] {
        let mut server = Server::start(&sandbox);
        if opened {
            server.open();
        }
        let pid = i32::try_from(server.process.id()).unwrap();
        let mut before = 0;
        for round in 0..400 {
            let mut line = match round % 4 {
                0 => (0..random.usize(0..200)).map(|_| random.u8(..)).filter(|byte| *byte != b'\n').collect(),
                1 => vec![b'['; random.usize(1..5_000)],
                _ => arbitrary(&mut random, 4).to_string().into_bytes(),
            };
            // A string or an object that opens a new client is another test.
            if !opened && memchr::memmem::find(&line, b"initialize").is_some() {
                continue;
            }
            line.push(b'\n');
            server.say(&line);
            if round == 50 {
                server.say_json(&json!({"jsonrpc": "2.0", "id": "small", "method": "ping"}));
                server.answer_to(&json!("small"));
                before = processes::resident_kib(&[pid]);
            }
        }
        // A line that never ends is let go of, and so is one that is too long.
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..40 {
            server.say(&piece);
        }
        server.say(b"\n");
        if !opened {
            server.open();
        }
        server.say_json(&json!({"jsonrpc": "2.0", "id": "last", "method": "tools/list"}));
        assert!(server.answer_to(&json!("last"))["result"]["tools"].is_array());
        let after = processes::resident_kib(&[pid]);
        assert!(after < before + 64 * 1024, "{before} KiB became {after}");
        let (code, _, err) = server.close();
        assert_eq!((code, err.as_str()), (Some(0), ""), "no panic");
    }
}
