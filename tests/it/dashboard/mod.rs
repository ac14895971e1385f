//! The dashboard in a real browser, on a store that an invented team has filled.

mod door;
mod http;
mod local;
mod speed;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use backend::Options;
use backend::postgres::Postgres;
use backend::sqlite::Sqlite;
use backend::storage::Storage;
use dashboard::KnownAgents;
use jiff::tz::TimeZone;
use os::clock::{Clock, SystemClock};
use reader::token::{Owner, Role, Token, TokenHash, new_secret};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use types::Event;

use crate::support::agents::left_out;
use crate::support::invented::{self, InventedSession, Opening};

const CHROMIUM: &str = "/usr/bin/chromium";

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A backend in this process.
struct Served {
    runtime: Runtime,
    storage: Arc<dyn Storage>,
    address: SocketAddr,
    token: String,
    _folder: Option<tempfile::TempDir>,
}

impl Served {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let storage = Arc::new(Sqlite::open(&folder.path().join("backend.db")).unwrap());
        Self { _folder: Some(folder), ..Self::with(runtime(), storage) }
    }

    fn on_postgres(url: &str) -> Self {
        let runtime = runtime();
        let storage = Arc::new(runtime.block_on(Postgres::connect(url)).unwrap());
        Self::with(runtime, storage)
    }

    fn with(runtime: Runtime, storage: Arc<dyn Storage>) -> Self {
        let token = new_secret(Role::Read).unwrap();
        let known = Token {
            name: "read".into(),
            role: Role::Read,
            owner: Owner::default(),
            hash: TokenHash::of(&token),
            created_at: SystemClock.now(),
            revoked_at: None,
        };
        assert!(runtime.block_on(storage.add_token(known)).unwrap());
        let address = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let never = std::future::pending();
            let agents = KnownAgents(&["claude", "codex", "gemini"]);
            let (reader, tokens, zone) =
                (storage.clone(), storage.clone(), ("UTC".to_owned(), TimeZone::UTC));
            let pages = dashboard::of_backend(reader, tokens, agents, zone);
            tokio::spawn(backend::run(listener, storage.clone(), Options::default(), pages, never));
            address
        });
        Self { runtime, storage, address, token, _folder: None }
    }

    fn send(&self, events: Vec<Event>) {
        let number = events.len();
        let ingested =
            self.runtime.block_on(self.storage.ingest(&Owner::default(), events, SystemClock.now())).unwrap();
        assert_eq!(ingested.accepted, number);
    }
}

/// What the browser's script asks to happen.
struct Play {
    served: Served,
    chain: Vec<String>,
    incomplete: String,
    resumed: String,
    running: Option<InventedSession>,
}

impl Play {
    fn new(served: Served) -> Self {
        let now = SystemClock.now();
        let mut incomplete = String::new();
        let mut events = Vec::new();
        for session in invented::history(now, 100, 9, 4) {
            if session.iter().zip(1..).any(|(event, seq)| event.seq != seq) {
                incomplete = session[0].session.to_string();
            }
            events.extend(session);
        }
        let (chain, more) = invented::chain(now);
        events.extend(more);
        let (resumed, more) = invented::resumed(now);
        events.extend(more);
        for batch in events.chunks(5_000) {
            served.send(batch.to_vec());
        }
        Self { served, chain, incomplete, resumed, running: None }
    }

    fn answer(&mut self, word: &str) -> Value {
        match word {
            "sessions" => {
                json!({"sessions": self.chain, "incomplete": self.incomplete, "resumed": self.resumed})
            }
            "start" => self.begin(201, "startup", "live-work"),
            "clear" => {
                let old = self.running.take().unwrap();
                let (old_id, answer) = (old.id.clone(), self.begin_after(202, "live-work.2", old));
                assert_ne!(answer["id"], old_id);
                answer
            }
            "end" => {
                let mut last = self.running.take().unwrap();
                last.end("completed", "exit", None);
                self.served.send(last.events.split_off(last.events.len() - 1));
                json!({"id": last.id})
            }
            "long" => {
                let (id, events) = invented::long_words(SystemClock.now());
                self.served.send(events);
                json!({"id": id})
            }
            other => panic!("the script asks for {other}"),
        }
    }

    fn begin(&mut self, seed: u64, reason: &str, name: &str) -> Value {
        let mut session = InventedSession::new(seed, 0, 3, SystemClock.now());
        session.start(&Opening { name, project: 1, reason, from: None });
        self.served.send(session.events.clone());
        let id = session.id.clone();
        self.running = Some(session);
        json!({"id": id})
    }

    /// END and START as one, as a `/clear` sends them.
    fn begin_after(&mut self, seed: u64, name: &str, mut old: InventedSession) -> Value {
        let mut new = InventedSession::new(seed, 0, 3, old.at());
        old.end("completed", "clear", Some(&new.id));
        new.start(&Opening { name, project: 1, reason: "clear", from: Some(&old.id) });
        let mut events = old.events.split_off(old.events.len() - 1);
        events.extend(new.events.clone());
        self.served.send(events);
        let id = new.id.clone();
        self.running = Some(new);
        json!({"id": id})
    }
}

fn modules() -> PathBuf {
    let given = std::env::var_os("CODEMIE_TEST_BROWSER").map(PathBuf::from);
    given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/browser"))
}

fn missing() -> Option<&'static str> {
    if !Path::new(CHROMIUM).exists() {
        return Some("chromium is not installed");
    }
    if !modules().join("node_modules/playwright-core").exists() {
        return Some("playwright-core is not installed under target/browser (tests/run.sh does it)");
    }
    Command::new("node").arg("--version").output().is_err().then_some("node is not installed")
}

#[test]
fn every_page_in_a_real_browser() {
    if let Some(missing) = missing() {
        return left_out(missing);
    }
    let mut play = Play::new(Served::new());
    let mut node = Command::new("node")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/dashboard.mjs"))
        .env("BASE", format!("http://{}", play.served.address))
        .env("TOKEN", &play.served.token)
        .env("MODULES", modules())
        .env("CHROMIUM", CHROMIUM)
        .env("PROJECT", "checkout-web")
        .envs(std::env::var_os("CODEMIE_TEST_SHOTS").map(|folder| ("SHOTS", folder)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = node.stdin.take().unwrap();
    let (mut passed, mut failed) = (0, Vec::new());
    for line in BufReader::new(node.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        println!("{line}");
        match line.split_once(' ') {
            Some(("ask", word)) => writeln!(answers, "{}", play.answer(word)).unwrap(),
            Some(("ok", _)) => passed += 1,
            _ => failed.push(line),
        }
    }
    assert!(node.wait().unwrap().success() && failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!(passed, 14, "every check was made");
}
