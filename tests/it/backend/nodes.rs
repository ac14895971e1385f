//! `codemie backend` as a process: its files, its tokens, its end; and two of it before one PostgreSQL, one of them killed.
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::client::Client;
use super::events::{end, life, session, start, usage};
use crate::support::postgres::Cluster;
use crate::support::processes::signal;

pub(super) fn codemie(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_codemie"));
    command.env("CODEMIE_HOME", home).env("USER", "dev").env_remove("CODEMIE_BACKEND_DATABASE");
    command
}

/// A serving process; killed if the test forgets it.
pub(super) struct Process {
    child: Child,
    pub(super) address: SocketAddr,
    pub(super) log: std::path::PathBuf,
}

impl Process {
    pub(super) fn start(home: &Path, database: Option<&str>) -> Self {
        Self::of(codemie(home), home, database)
    }

    /// The same by a command that ends in our own program.
    pub(super) fn of(mut command: Command, home: &Path, database: Option<&str>) -> Self {
        let log = home.join(format!("log-{}", uuid::Uuid::new_v4()));
        command.args(["backend", "serve", "--listen", "127.0.0.1:0"]);
        command.args(database.map(|url| format!("--database={url}")));
        let stderr = std::fs::File::create(&log).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("{line}{}", std::fs::read_to_string(&log).unwrap()));
        Self { child, address, log }
    }

    pub(super) fn client(&self, token: &str) -> Client {
        Client { address: self.address, token: token.to_owned() }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// It stays, and does nothing more.
    pub(super) fn freeze(&self) {
        signal(self.child.id().cast_signed(), Signal::STOP);
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn terminate(&mut self) -> Option<i32> {
        signal(self.child.id().cast_signed(), Signal::TERM);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(super) fn tokens(home: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(home.join("backend/tokens.json")).unwrap()).unwrap()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn the_first_start_makes_what_is_needed_and_later_ones_keep_it() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let mut node = Process::start(home, None);
    let made = tokens(home);
    for file in ["backend/tokens.json", "backend/backend.db"] {
        assert_eq!(mode(&home.join(file)), 0o600, "{file}");
    }
    assert_eq!(mode(&home.join("backend")), 0o700);
    let token = |role: &str| made[role].as_str().unwrap().to_owned();
    assert_eq!(
        node.client(&token("ingest")).post_events(&life(&session(1), "widgets")).json()["accepted"],
        9
    );
    assert_eq!(node.client(&token("read")).get("/v1/sessions").json()["sessions"][0]["complete"], true);
    assert_eq!(node.terminate(), Some(0));
    let log = std::fs::read_to_string(&node.log).unwrap();
    for secret in made.as_object().unwrap().values() {
        assert!(!log.contains(secret.as_str().unwrap()), "{log}");
    }
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["time"].is_string() && line["level"].is_string(), "{line}");
    }
    let mut node = Process::start(home, None);
    assert_eq!(tokens(home), made);
    assert_eq!(node.client(&token("admin")).get("/v1/sessions").json()["sessions"][0]["complete"], true);
    node.terminate();
    // A database that was begun anew knows the tokens of the file.
    for file in ["backend.db", "backend.db-wal", "backend.db-shm"] {
        let _ = std::fs::remove_file(home.join("backend").join(file));
    }
    let node = Process::start(home, None);
    assert_eq!(node.client(&token("read")).get("/v1/sessions").json(), json!({"sessions": [], "next": null}));
}

#[test]
fn tokens_are_made_listed_and_revoked_by_command() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let run = |args: &[&str]| {
        let result = codemie(home).args(["backend", "token"]).args(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (result.status.code().unwrap(), text(result.stdout), text(result.stderr))
    };
    for looks in [&["list"][..], &["revoke", "wall"]] {
        let (code, _, err) = run(looks);
        assert!(code == 1 && err.contains("there is no database "), "{err}");
    }
    assert_eq!(std::fs::read_dir(home).unwrap().count(), 0, "who looks makes nothing");
    let (code, secret, _) = run(&["create", "--role", "read", "--name", "wall"]);
    assert_eq!((code, secret.lines().count()), (0, 1));
    let secret = secret.trim();
    assert!(secret.starts_with("codemie_read_") && secret.len() > 60, "{secret}");
    let (code, out, err) = run(&["create", "--role", "read", "--name", "wall"]);
    assert_eq!((code, &*out), (1, ""));
    assert!(err.contains("choose another name"), "{err}");
    assert_eq!(run(&["create", "--role", "king"]).0, 2);
    let listed: Value = serde_json::from_str(&run(&["list", "--json"]).1).unwrap();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["role"], listed.as_array().unwrap().len()),
        (&json!("wall"), &json!("read"), 1)
    );
    assert!(!run(&["list"]).1.contains(secret));
    let node = Process::start(home, None);
    assert_eq!(node.client(secret).get("/v1/sessions").status, 200);
    assert_eq!(run(&["revoke", "wall"]).0, 0, "while it is in use");
    let (code, _, err) = run(&["revoke", "wall"]);
    assert!(code == 1 && err.contains("was revoked before"), "{err}");
    assert!(run(&["revoke", "hall"]).2.contains("there is no token"));
    let deadline = Instant::now() + Duration::from_mins(1);
    while node.client(secret).get("/v1/sessions").status != 401 {
        assert!(Instant::now() < deadline, "the token is still good");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(run(&["list"]).1.contains("revoked"));
}

#[test]
fn what_a_wrapped_program_did_arrives_without_any_set_up_but_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let node = Process::start(home, None);
    let url = format!("http://{}", node.address);
    let run = |args: &[&str]| {
        let result = codemie(home).env("CODEMIE_BACKEND_URL", &url).args(args).output().unwrap();
        assert!(result.status.success(), "{args:?}: {}", String::from_utf8_lossy(&result.stderr));
        result.stdout
    };
    run(&["--name", "first", "run", "--", "true"]);
    run(&["sync", "--timeout", "60s"]);
    let mine: Value = serde_json::from_slice(&run(&["show", "first", "--json"])).unwrap();
    let reader = node.client(tokens(home)["read"].as_str().unwrap());
    let arrived = reader.get(&format!("/v1/sessions/{}", mine["sessionId"].as_str().unwrap())).json();
    assert_eq!((&arrived["complete"], &arrived["name"]), (&json!(true), &json!("first")));
    for field in
        ["agent", "status", "endReason", "exitCode", "startTime", "endTime", "durationMs", "project", "usage"]
    {
        assert_eq!(arrived[field], mine[field], "{field}");
    }
}

#[test]
fn another_owners_session_becomes_a_dead_letter_that_says_what_to_do() {
    let (server, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let node = Process::start(server.path(), None);
    let token = |args: &[&str]| {
        let result = codemie(server.path()).args(["backend", "token"]).args(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (result.status.code().unwrap(), text(result.stdout).trim().to_owned(), text(result.stderr))
    };
    let create = |args: &[&str]| {
        let (code, secret, err) = token(&[&["create", "--role", "ingest"], args].concat());
        assert_eq!((code, &*err), (0, ""));
        secret
    };
    let first = create(&["--name", "laptop"]);
    let other = create(&["--name", "desktop", "--owner", "team"]);
    let second = create(&["--name", "laptop-2", "--replaces", "laptop"]);
    create(&[]);
    for (args, code, error) in [
        (&["--name", "team"][..], 1, "there is an owner \"team\" already; add --owner"),
        (&["--name", "default"], 1, "there is an owner"),
        (&["--name", "x", "--replaces", "nobody"], 1, "there is no token \"nobody\" to replace"),
        (&["--owner", "a\nb"], 1, "1 to 100 bytes"),
        (&["--owner", "a", "--replaces", "laptop"], 2, "cannot be used with"),
    ] {
        let result = token(&[&["create", "--role", "ingest"], args].concat());
        assert!(result.0 == code && result.1.is_empty() && result.2.contains(error), "{args:?}: {result:?}");
    }
    let listed: Value = serde_json::from_str(&token(&["list", "--json"]).1).unwrap();
    let owners = listed.as_array().unwrap().iter();
    let mut owners: Vec<_> =
        owners.map(|token| (token["name"].as_str().unwrap(), token["owner"].as_str().unwrap())).collect();
    owners.sort_unstable();
    let (first_ones, made): (Vec<_>, Vec<_>) = owners.into_iter().partition(|(name, owner)| {
        *name != *owner && name.starts_with(&format!("{owner}-")) && *owner != "laptop"
    });
    assert!(
        first_ones.len() == 3 && first_ones.iter().all(|(_, owner)| *owner == first_ones[0].1),
        "{first_ones:?}"
    );
    let expected =
        [("desktop", "team"), ("ingest-7", "ingest-7"), ("laptop", "laptop"), ("laptop-2", "laptop")];
    assert_eq!(made, expected);
    assert!(token(&["list"]).1.contains("OWNER"));
    let url = format!("http://{}", node.address);
    let run = |token: &str, args: &[&str]| {
        let mut command = codemie(machine.path());
        command.env("CODEMIE_BACKEND_URL", &url).env("CODEMIE_BACKEND_TOKEN", token);
        let result = command.args(args).output().unwrap();
        String::from_utf8([result.stdout, result.stderr].concat()).unwrap()
    };
    run(&first, &["--name", "mine", "run", "--", "true"]);
    run(&first, &["sync", "--timeout", "60s"]);
    run(&other, &["tag", "mine", "blue"]);
    run(&other, &["sync", "--timeout", "60s"]);
    let status = run(&other, &["sync", "--status"]);
    let words = status.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("belongs to another owner") && words.contains("--retry-dead"), "{status}");
    let reader = node.client(tokens(server.path())["read"].as_str().unwrap());
    let tags = || reader.get("/v1/sessions").json()["sessions"][0]["tags"].clone();
    assert_eq!(tags(), json!([]));
    // With a token of the same owner it arrives.
    run(&second, &["sync", "--retry-dead"]);
    run(&second, &["sync", "--timeout", "60s"]);
    assert_eq!(tags(), json!(["blue"]), "{}", run(&second, &["sync", "--status"]));
}

#[test]
fn a_newer_schema_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("newer.db");
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    let result = codemie(folder.path())
        .args(["backend", "serve", "--listen", "127.0.0.1:0", "--database"])
        .arg(format!("sqlite:{}", path.display()))
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&result.stderr);
    assert_eq!(result.status.code(), Some(1), "{err}");
    assert!(err.contains("schema 99") && err.contains("update codemie"), "{err}");
}

/// One address for several nodes: each connection goes to the next that answers.
struct Balancer {
    address: SocketAddr,
    nodes: Arc<Mutex<Vec<SocketAddr>>>,
    stop: Arc<AtomicBool>,
}

impl Balancer {
    fn start(nodes: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (nodes, stop) = (Arc::new(Mutex::new(nodes)), Arc::new(AtomicBool::new(false)));
        let (behind, stopped) = (nodes.clone(), stop.clone());
        std::thread::spawn(move || {
            for (turn, client) in listener.incoming().map_while(Result::ok).enumerate() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let nodes = behind.lock().unwrap().clone();
                let node =
                    (0..nodes.len()).find_map(|at| TcpStream::connect(nodes[(turn + at) % nodes.len()]).ok());
                if let Some(node) = node {
                    pipe(&client, &node);
                    pipe(&node, &client);
                }
            }
        });
        Self { address, nodes, stop }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Everything that comes from one goes to the other, and its end, too.
fn pipe(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
        let _ = from.shutdown(std::net::Shutdown::Read);
    });
}

/// The batches of one session: START, calls, END, ten events each.
fn batches(id: &str) -> Vec<Vec<Value>> {
    let mut events = vec![start(id, 1, "widgets")];
    events.extend((2..=99).map(|seq| usage(id, seq, seq)));
    events.push(end(id, 100, 100));
    events.chunks(10).map(<[Value]>::to_vec).collect()
}

#[test]
fn a_node_that_is_killed_loses_nothing_it_answered() {
    const WRITERS: u32 = 8;
    const SESSIONS: u32 = 6; // of each writer
    let Some(cluster) = Cluster::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let url = cluster.database("codemie");
    let mut nodes = vec![Process::start(home, Some(&url)), Process::start(home, Some(&url))];
    let balancer = Balancer::start(nodes.iter().map(|node| node.address).collect());
    let made = tokens(home);
    let token = |role: &str| made[role].as_str().unwrap().to_owned();
    let (answered, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let client = Client { address: balancer.address, token: token("ingest") };
            let (answered, failed) = (answered.clone(), failed.clone());
            std::thread::spawn(move || {
                for number in 0..SESSIONS {
                    for batch in batches(&session(writer * SESSIONS + number)) {
                        let body = serde_json::to_vec(&batch).unwrap();
                        // Sent until it is answered: like the delivery client, and never again after that.
                        let deadline = Instant::now() + Duration::from_mins(2);
                        loop {
                            assert!(Instant::now() < deadline, "no node takes a batch");
                            match client.ask("POST", "/v1/events", &[], &body) {
                                Ok(answer) if answer.status == 200 => break,
                                Ok(answer) => assert!(answer.status >= 500, "{answer:?}"),
                                Err(_) => {
                                    failed.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            std::thread::sleep(Duration::from_millis(20));
                        }
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let all = usize::try_from(WRITERS * SESSIONS * 10).unwrap();
    // Twice in the middle of the work: kill a node, and put another in its place.
    for part in [1, 2] {
        let deadline = Instant::now() + Duration::from_mins(2);
        while answered.load(Ordering::Relaxed) < all * part / 4 {
            assert!(Instant::now() < deadline, "{answered:?} of {all} batches are answered");
            std::thread::sleep(Duration::from_millis(1));
        }
        nodes[part - 1].kill();
        let fresh = Process::start(home, Some(&url));
        balancer.nodes.lock().unwrap()[part - 1] = fresh.address;
        nodes[part - 1] = fresh;
    }
    for writer in writers {
        writer.join().unwrap();
    }
    let reader = Client { address: balancer.address, token: token("read") };
    let sessions = reader.get("/v1/sessions?limit=500").json()["sessions"].clone();
    let sessions = sessions.as_array().unwrap();
    assert_eq!(sessions.len(), usize::try_from(WRITERS * SESSIONS).unwrap());
    let output: i64 = (2..=99).sum();
    for record in sessions {
        assert_eq!(record["complete"], true, "{record}");
        assert_eq!(
            (&record["usage"]["apiCalls"], &record["usage"]["outputTokens"]),
            (&json!(98), &json!(output))
        );
    }
    let total = reader.get("/v1/usage?by=day").json()["total"].clone();
    assert_eq!(total["apiCalls"], 98 * WRITERS * SESSIONS);
    assert_eq!(total["outputTokens"], output * i64::from(WRITERS * SESSIONS));
    eprintln!(
        "{all} batches answered, {} sent again after a broken connection",
        failed.load(Ordering::Relaxed)
    );
    for mut node in nodes {
        assert_eq!(node.terminate(), Some(0));
    }
}
