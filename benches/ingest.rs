//! What taking events in costs, side by side with a bare multi-row upsert of the same rows in the same run:
//! `cargo bench --bench ingest`.
//!
//! The whole of `codemie backend serve` (HTTP, zstd, checking, sums, commit) with its client on the same processors, 8 connections,
//! batches of 500, every tenth batch sent twice. The bare upsert has none of that: rows that are ready, one table with its two
//! indexes, one transaction per batch, the same durability. Bare times mean nothing elsewhere; the ratio does.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss, clippy::disallowed_methods)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rusqlite::ToSql;
use serde_json::{Value, json};
use types::Event;
use types::EventType;
use types::Timestamp;
use uuid::Uuid;

// The tests' own cluster and processes; a benchmark needs little of them.
#[allow(dead_code)]
#[path = "../tests/it/support/postgres.rs"]
mod postgres;
#[allow(dead_code)]
#[path = "../tests/it/support/processes.rs"]
mod processes;

mod agents {
    pub(crate) fn left_out(reason: &str) {
        println!("left out: {reason}");
    }
}
use postgres::Cluster;

const CONNECTIONS: usize = 8;
const BATCH: usize = 500;
const BATCHES: usize = 240;
const ROUNDS: usize = 3;
/// Events of one session; a batch tells of five.
const LIFE: usize = 100;

const TOOLS: [&str; 3] = ["Edit", "Read", "Bash"];

/// One batch: as it is sent, and as rows.
struct Load {
    body: Vec<u8>,
    events: Vec<Event>,
}

fn event(session: &str, seq: usize, number: usize) -> Value {
    let (kind, attributes) = match seq {
        1 => (
            "session.start",
            json!({"name": format!("work-{number}"), "reason": "startup", "agentVersion": "2.1.197", "wrapperVersion": "0.1.0",
                "project": format!("project-{}", number % 40), "repository": "acme/widgets", "branch": "main", "tags": []}),
        ),
        2 => ("session.bound", json!({"agentSessionId": Uuid::new_v4(), "evidence": "assigned"})),
        LIFE => (
            "session.end",
            json!({"status": "completed", "endReason": "exit", "exitCode": 0, "durationMs": 100_000, "lastSeq": LIFE,
                "totals": {"filesChanged": 3, "coverage": "transcript"}}),
        ),
        _ if seq.is_multiple_of(3) => (
            "tool",
            json!({"key": Uuid::new_v4(), "name": TOOLS[seq % 7 % 3], "ok": true, "kind": "edit",
                "fileExtension": "rs", "linesAdded": 3, "linesRemoved": 1}),
        ),
        _ if seq.is_multiple_of(10) => ("prompt", json!({"key": Uuid::new_v4()})),
        _ => (
            "usage",
            json!({"key": format!("msg_{}", Uuid::new_v4().simple()), "model": "claude-sonnet-4-5", "inputTokens": 12,
                "outputTokens": 350, "cacheReadTokens": 60_321, "cacheWriteTokens": 632, "reasoningTokens": 0,
                "costUsd": 0.024_123, "subagent": false, "source": "transcript"}),
        ),
    };
    let time = Timestamp(1_794_787_200_000 + i64::try_from(number * 1000 + seq).unwrap());
    json!({"id": Uuid::new_v4(), "rev": 0, "type": kind, "sessionId": session, "seq": seq, "time": time.to_string(),
        "agent": "claude", "machine": format!("machine-{}", number % 50), "user": format!("user-{}", number % 50),
        "attributes": attributes})
}

/// Every tenth batch comes twice.
fn loads() -> Vec<Load> {
    let mut loads = Vec::new();
    for batch in 0..BATCHES {
        let mut events = Vec::with_capacity(BATCH);
        for part in 0..BATCH / LIFE {
            let session = Uuid::new_v4().to_string();
            events.extend((1..=LIFE).map(|seq| event(&session, seq, batch * 5 + part)));
        }
        let body = zstd::encode_all(&*serde_json::to_vec(&events).unwrap(), 3).unwrap();
        let events: Vec<Event> =
            events.iter().map(|event| Event::parse(&event.to_string()).unwrap()).collect();
        if batch % 10 == 9 {
            loads.push(Load { body: body.clone(), events: events.clone() });
        }
        loads.push(Load { body, events });
    }
    loads
}

struct Server {
    child: Child,
    address: SocketAddr,
    token: String,
}

impl Server {
    fn start(home: &Path, database: &str) -> Self {
        let mut child = Command::new(codemie())
            .env("CODEMIE_HOME", home)
            .env("CODEMIE_LOG", "warn")
            .args([
                "backend",
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--rate",
                "1000000",
                "--database",
                database,
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().parse().unwrap();
        let tokens: Value =
            serde_json::from_slice(&std::fs::read(home.join("backend/tokens.json")).unwrap()).unwrap();
        Self { child, address, token: tokens["ingest"].as_str().unwrap().to_owned() }
    }

    /// The most memory it ever had, in MiB.
    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Posts one body over a connection that stays; panics unless everything was taken.
fn post(stream: &mut BufReader<TcpStream>, token: &str, body: &[u8]) {
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Encoding: zstd\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.get_mut().write_all(&[head.as_bytes(), body].concat()).unwrap();
    let (mut line, mut length) = (String::new(), 0);
    stream.read_line(&mut line).unwrap();
    assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    loop {
        line.clear();
        stream.read_line(&mut line).unwrap();
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer.ends_with(b"\"rejected\":[]}"), "{}", String::from_utf8_lossy(&answer));
}

fn through_the_backend(server: &Server, loads: &[Load]) -> Duration {
    let next = AtomicUsize::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut stream = BufReader::new(TcpStream::connect(server.address).unwrap());
                stream.get_ref().set_nodelay(true).unwrap();
                while let Some(load) = loads.get(next.fetch_add(1, Ordering::Relaxed)) {
                    post(&mut stream, &server.token, &load.body);
                }
            });
        }
    });
    begun.elapsed()
}

/// A row of an event, with a number for its session, as the backend has it.
fn row(event: &Event, session: i64) -> (i64, i64, Uuid, i64, &'static str, i64, String) {
    (
        session,
        event.seq,
        event.id,
        event.rev,
        event.kind().known().map_or("", EventType::as_str),
        event.time.0,
        event.attributes.to_json(),
    )
}

/// The rows, made beforehand.
type Rows = Vec<Vec<(i64, i64, Uuid, i64, &'static str, i64, String)>>;

fn rows(loads: &[Load]) -> Rows {
    let number = |at: usize| i64::try_from(at).unwrap();
    let rows = |(at, load): (usize, &Load)| {
        load.events.iter().enumerate().map(|(n, event)| row(event, number(at * 5 + n / LIFE))).collect()
    };
    loads.iter().enumerate().map(rows).collect()
}

const UPSERT: &str = "ON CONFLICT (id) DO UPDATE SET rev = excluded.rev, time = excluded.time, attributes = excluded.attributes
     WHERE event.rev < excluded.rev";

fn bare_sqlite(folder: &Path, batches: &Rows) -> Duration {
    let mut conn = rusqlite::Connection::open(folder.join("bare.db")).unwrap();
    conn.pragma_update(None, "journal_mode", "wal").unwrap();
    conn.pragma_update(None, "synchronous", "full").unwrap();
    conn.pragma_update(None, "wal_autocheckpoint", 4096).unwrap();
    conn.pragma_update(None, "cache_size", -32_768).unwrap();
    conn.execute_batch(
        "CREATE TABLE event (session INTEGER NOT NULL, seq INTEGER NOT NULL, id BLOB NOT NULL, rev INTEGER NOT NULL,
           kind TEXT NOT NULL, time INTEGER NOT NULL, attributes TEXT NOT NULL, PRIMARY KEY (session, seq, id))
         STRICT, WITHOUT ROWID;
         CREATE UNIQUE INDEX event_by_id ON event (id)",
    )
    .unwrap();
    let values = vec!["(?, ?, ?, ?, ?, ?, ?)"; BATCH].join(", ");
    let sql =
        format!("INSERT INTO event (session, seq, id, rev, kind, time, attributes) VALUES {values} {UPSERT}");
    let begun = Instant::now();
    for batch in batches {
        let tx = conn.transaction().unwrap();
        let ids: Vec<[u8; 16]> = batch.iter().map(|row| row.2.into_bytes()).collect();
        let values = batch
            .iter()
            .zip(&ids)
            .flat_map(|(row, id)| [&row.0 as &dyn ToSql, &row.1, id, &row.3, &row.4, &row.5, &row.6]);
        tx.prepare_cached(&sql).unwrap().execute(rusqlite::params_from_iter(values)).unwrap();
        tx.commit().unwrap();
    }
    begun.elapsed()
}

fn bare_postgres(url: &str, batches: &Rows) -> Duration {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            clients.push(client);
        }
        clients[0]
            .batch_execute(
                "CREATE TABLE event (session bigint NOT NULL, seq bigint NOT NULL, id uuid PRIMARY KEY, rev bigint NOT NULL,
                   kind text NOT NULL, time bigint NOT NULL, attributes text NOT NULL);
                 CREATE INDEX event_of_session ON event (session, seq)",
            )
            .await
            .unwrap();
        let sql = format!(
            "INSERT INTO event (session, seq, id, rev, kind, time, attributes)
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::bigint[], $5::text[], $6::bigint[], $7::text[])
             {UPSERT}"
        );
        let (next, sql) = (AtomicUsize::new(0), &sql);
        let begun = Instant::now();
        let work = clients.iter().map(|client| async {
            let statement = client.prepare(sql).await.unwrap();
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                let sessions: Vec<_> = batch.iter().map(|row| row.0).collect();
                let seqs: Vec<_> = batch.iter().map(|row| row.1).collect();
                let ids: Vec<_> = batch.iter().map(|row| row.2).collect();
                let revs: Vec<_> = batch.iter().map(|row| row.3).collect();
                let kinds: Vec<_> = batch.iter().map(|row| row.4).collect();
                let times: Vec<_> = batch.iter().map(|row| row.5).collect();
                let attributes: Vec<_> = batch.iter().map(|row| &*row.6).collect();
                client.execute(&statement, &[&sessions, &seqs, &ids, &revs, &kinds, &times, &attributes]).await.unwrap();
            }
        });
        futures_util::future::join_all(work).await;
        begun.elapsed()
    })
}

/// Events per second of both, their ratio, the backend's memory; the middle of the rounds by ratio.
fn report(name: &str, loads: &[Load], mut round: impl FnMut(usize) -> (Duration, Duration, u64)) {
    let events = (loads.len() * BATCH) as f64;
    let mut rounds: Vec<_> = (0..ROUNDS)
        .map(|number| {
            let (bare, served, peak) = round(number);
            (
                bare.as_secs_f64() / served.as_secs_f64(),
                events / bare.as_secs_f64(),
                events / served.as_secs_f64(),
                peak,
            )
        })
        .collect();
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, bare, served, peak) = rounds[ROUNDS / 2];
    let all: Vec<_> = rounds.iter().map(|round| format!("{:.2}", round.0)).collect();
    println!("{name:10} {bare:9.0} {served:9.0} {ratio:7.2}  {peak:5} MiB   ({})", all.join(", "));
}

/// The build that is measured; `CODEMIE_BENCH_BINARY` names another one.
fn codemie() -> std::ffi::OsString {
    std::env::var_os("CODEMIE_BENCH_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_codemie").into())
}

fn main() {
    // Cargo hands on what is meant for the usual harness.
    let loads = loads();
    let batches = rows(&loads);
    println!("{} batches of {BATCH}, {CONNECTIONS} connections; events per second", loads.len());
    println!("{:10} {:>9} {:>9} {:>7}  {:>9}", "", "bare", "backend", "ratio", "peak");
    report("sqlite", &loads, |_| {
        let folder = tempfile::tempdir().unwrap();
        let bare = bare_sqlite(folder.path(), &batches);
        let server =
            Server::start(folder.path(), &format!("sqlite:{}", folder.path().join("backend.db").display()));
        (bare, through_the_backend(&server, &loads), server.peak())
    });
    let Some(cluster) = Cluster::start_with(&[]) else { return };
    report("postgres", &loads, |number| {
        let folder = tempfile::tempdir().unwrap();
        let bare = bare_postgres(&cluster.database(&format!("bare{number}")), &batches);
        let server = Server::start(folder.path(), &cluster.database(&format!("served{number}")));
        (bare, through_the_backend(&server, &loads), server.peak())
    });
}
