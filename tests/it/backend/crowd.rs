//! Many connections that say nothing, and a database that takes nothing: who is served all the same, and who is told.
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use backend::Options;
use backend::postgres::Postgres;
use backend::storage::Storage;
use reader::Error;
use reader::token::Role;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::{Clients, Timeouts};
use tokio::net::TcpSocket;

use super::api::Node;
use super::block_on;
use super::client::Client;
use super::events::{life, session};
use super::nodes::{Process, tokens};
use crate::support::agents::left_out;
use crate::support::postgres::Cluster;

const NEVER: Duration = Duration::from_hours(1);

/// Connections to the node from an address of the loopback network.
fn connect_from(address: [u8; 4], node: SocketAddr, number: usize) -> Vec<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let connect = || async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((address, 0))).unwrap();
        let stream = socket.connect(node).await.unwrap().into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        // Bounds failures only.
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream
    };
    (0..number).map(|_| runtime.block_on(connect())).collect()
}

fn health_over(mut stream: TcpStream) -> String {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn half_open_connections_of_one_address_delay_nobody() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let enough = maximum.unwrap_or(8192).min(8192);
    setrlimit(Resource::Nofile, Rlimit { current: current.max(Some(enough)), maximum }).unwrap();
    // Nobody is cut off for being slow, so only room that is made for them lets others in.
    let timeouts = Timeouts { head: NEVER, body: NEVER, silence: NEVER };
    let node =
        Node::start(Options { clients: Clients { timeouts, ..Clients::default() }, ..Options::default() });
    let from = |last: u8, number| connect_from([127, 0, 0, last], node.address, number);
    let one_from = |last: u8| from(last, 1).remove(0);
    let mut faithful = one_from(1);
    let ask = "GET /v1/usage HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer read-secret\r\n\r\n";
    let mut answered = |what: &str| {
        faithful.write_all(ask.as_bytes()).unwrap();
        let mut head = [0; 15];
        faithful.read_exact(&mut head).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(&head, b"HTTP/1.1 200 OK", "{what}");
        let mut rest = Vec::new();
        let mut byte = [0];
        // The answer's last byte is that of its JSON.
        while !rest.ends_with(b"}}") {
            faithful.read_exact(&mut byte).unwrap();
            rest.push(byte[0]);
        }
    };
    answered("before");
    let mut half_open = from(1, 1030);
    for stream in &mut half_open {
        // The first are hung up on already.
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHo");
    }
    assert!(health_over(one_from(2)).starts_with("HTTP/1.1 200"));
    assert_eq!(node.client(Role::Ingest).post_events(&life(&session(1), "widgets")).status, 200);
    assert!(health_over(one_from(1)).starts_with("HTTP/1.1 200"));
    answered("one that has shown its token keeps its connection");
    // The oldest were asked to go, the youngest not.
    let mut end = Vec::new();
    let _ = half_open[0].read_to_end(&mut end);
    assert_eq!(end, b"", "its place was given to another");
    let youngest = half_open.last_mut().unwrap();
    youngest.write_all(b"st: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    youngest.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn connections_of_a_named_proxy_are_not_limited() {
    let timeouts = Timeouts { head: NEVER, body: NEVER, silence: NEVER };
    let proxies = vec!["127.0.0.3".parse().unwrap()];
    let node = Node::start(Options { clients: Clients { timeouts, proxies }, ..Options::default() });
    let mut all = connect_from([127, 0, 0, 3], node.address, 200);
    let first = all.remove(0);
    assert!(health_over(first).starts_with("HTTP/1.1 200"), "the oldest is still there");
}

#[test]
fn healthz_says_that_the_file_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let node = Process::start(folder.path(), None);
    let nobody = node.client("");
    assert_eq!(nobody.get("/healthz").status, 200);
    std::fs::remove_file(folder.path().join("backend/backend.db")).unwrap();
    await_health(&nobody, 503, "the database does not answer");
}

/// What it says is known for a second.
fn await_health(client: &Client, status: u16, reason: &str) {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let answer = client.get("/healthz");
        let output = answer.json()["status"].clone();
        if answer.status == status && output == reason {
            return;
        }
        assert!(Instant::now() < deadline, "{answer:?}");
        std::thread::sleep(Duration::from_millis(50)); // nothing else tells
    }
}

#[test]
fn healthz_says_that_the_disk_is_full_until_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let (home, disk) = (folder.path().join("home"), folder.path().join("disk"));
    std::fs::create_dir_all(&home).unwrap();
    std::fs::create_dir_all(&disk).unwrap();
    // A small disk of the node's own, in a namespace of its own.
    let own = |command: &mut Command| {
        let mount = "mount -t tmpfs -o size=48m tmpfs \"$0\" && exec \"$@\"";
        command.args(["-Urm", "sh", "-c", mount]).arg(&disk);
    };
    let mut try_it = Command::new("unshare");
    own(&mut try_it);
    if !try_it.arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        left_out("no disk can be mounted here");
        return;
    }
    let mut command = Command::new("unshare");
    own(&mut command);
    command.arg(env!("CARGO_BIN_EXE_codemie")).env("CODEMIE_HOME", &home);
    let node = Process::of(command, &home, Some(&format!("sqlite:{}/backend.db", disk.display())));
    let (nobody, made) = (node.client(""), tokens(&home));
    let sender = node.client(made["ingest"].as_str().unwrap());
    await_health(&nobody, 200, "ok");
    assert_eq!(sender.post_events(&life(&session(1), "widgets")).status, 200);
    // Its disk, seen through it.
    let filler =
        Path::new("/proc").join(node.id().to_string()).join("root").join(disk.strip_prefix("/").unwrap());
    let filler = filler.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[7; 16_384]).is_ok() {}
    drop(file);
    await_health(&nobody, 503, "the disk of the database is full");
    std::fs::remove_file(&filler).unwrap();
    await_health(&nobody, 200, "ok");
    assert_eq!(sender.post_events(&life(&session(2), "widgets")).status, 200);
}

#[test]
fn a_postgresql_that_takes_nothing_is_not_ready() {
    let Some(mut cluster) = Cluster::start() else { return };
    block_on(async {
        let storage = Postgres::connect(&cluster.database("codemie")).await.unwrap();
        storage.ready().await.unwrap();
        cluster.run("postgres", "ALTER SYSTEM SET default_transaction_read_only = on");
        cluster.run("postgres", "SELECT pg_reload_conf()");
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            match storage.ready().await {
                Err(Error::ReadOnly(_)) => break,
                other => assert!(Instant::now() < deadline, "{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await; // the server tells nobody when it has read its settings
        }
        cluster.stop();
        assert!(matches!(storage.ready().await, Err(Error::Unavailable(_))));
    });
}
