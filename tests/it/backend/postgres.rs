//! What only PostgreSQL can do to a node: hold a lock for ever, be newer, be somebody else.
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use backend::postgres::Postgres;
use backend::read::fetch;
use backend::sql::Query;
use backend::storage::Storage;
use reader::token::Owner;
use reader::{Error, Reader};
use serde_json::json;
use tokio::net::TcpSocket;

use super::block_on;
use super::events::{NOW, end, life, parsed, record, session, start, usage};
use super::nodes::{Process, codemie, tokens};
use crate::support::agents::left_out;
use crate::support::postgres::{Cluster, hand_over};

/// The locks of all sessions, as batches take them.
const EVERY_LOCK: &str =
    "SELECT count(pg_advisory_lock(25453, stripe)) FROM generate_series(0, 255) AS stripe";
/// The one that nodes take before they look at the schema.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_lock(7165055918959846656)";

/// Until the statement counts so many.
async fn until(client: &tokio_postgres::Client, sql: &str, number: i64) {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let found: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
        if found == number {
            return;
        }
        assert!(Instant::now() < deadline, "{found} instead of {number}: {sql}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn a_lock_that_another_node_never_gives_back_is_waited_for_only_so_long() {
    let Some(cluster) = Cluster::start() else { return };
    let url = cluster.database("codemie");
    block_on(async {
        let (other, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let node = Postgres::connect(&format!("{url}?options=-c%20lock_timeout%3D100ms")).await.unwrap();
        other.execute(EVERY_LOCK, &[]).await.unwrap();
        let batch = parsed(&life(&session(1), "widgets"));
        let refused = node.ingest(&Owner::default(), batch.clone(), NOW).await.unwrap_err();
        assert!(matches!(refused, Error::Unavailable(_)), "{refused:?}");
        assert!(node.sessions_by_id(vec![session(1)]).await.unwrap().is_empty());
        // Whoever no longer waits for an answer leaves no transaction behind.
        let patient = Postgres::connect(&url).await.unwrap();
        let short = Duration::from_millis(100);
        assert!(
            tokio::time::timeout(short, patient.ingest(&Owner::default(), batch.clone(), NOW)).await.is_err()
        );
        other.execute("SELECT pg_advisory_unlock_all()", &[]).await.unwrap();
        let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
        until(&other, held, 0).await;
        assert_eq!(patient.ingest(&Owner::default(), batch, NOW).await.unwrap().accepted, 9);
    });
}

#[test]
fn whatever_isolation_is_the_default_who_waited_sees_what_was_done_meanwhile() {
    let Some(cluster) = Cluster::start() else { return };
    let id = session(1);
    let (first, second) = (parsed(&[start(&id, 1, "widgets")]), parsed(&[usage(&id, 2, 50), end(&id, 3, 3)]));
    for (at, level) in ["repeatable read", "serializable"].into_iter().enumerate() {
        let name = format!("strict{at}");
        let url = cluster.database(&name);
        cluster.run(&name, &format!("ALTER DATABASE {name} SET default_transaction_isolation = '{level}'"));
        block_on(async {
            let (other, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            let held_up = async |number: i64| {
                let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted";
                until(&other, waiting, number).await;
                other.execute("SELECT pg_advisory_unlock_all()", &[]).await.unwrap();
            };
            // Two nodes that bring the schema up to date at once.
            other.execute(MIGRATION_LOCK, &[]).await.unwrap();
            let connect = async || Postgres::connect(&url).await.unwrap();
            let (one, two, ()) = tokio::join!(connect(), connect(), held_up(2));
            // And two that are told of one session at once.
            other.execute(EVERY_LOCK, &[]).await.unwrap();
            let (begun, ended, ()) = tokio::join!(
                one.ingest(&Owner::default(), first.clone(), NOW),
                two.ingest(&Owner::default(), second.clone(), NOW),
                held_up(2)
            );
            assert_eq!((begun.unwrap().accepted, ended.unwrap().accepted), (1, 2), "{level}");
            let told = record(&one, &id).await;
            assert_eq!((&told["complete"], &told["usage"]["apiCalls"]), (&json!(true), &json!(1)), "{level}");
        });
    }
}

#[test]
fn pages_are_sorted_in_memory_unless_somebody_says_how_much() {
    let Some(cluster) = Cluster::start() else { return };
    for (name, given, asked, expected) in [
        ("usual", "4MB", "", "16MB"),
        ("generous", "64MB", "", "64MB"),
        ("told", "4MB", "?options=-c%20work_mem%3D1MB", "1MB"),
    ] {
        let url = cluster.database(name);
        cluster.run(name, &format!("ALTER DATABASE {name} SET work_mem = '{given}'"));
        block_on(async {
            let node = Postgres::connect(&format!("{url}{asked}")).await.unwrap();
            let room = Query::new("SELECT current_setting('work_mem') AS work_mem");
            let room = fetch(&node, room, |row| row.text("work_mem")).await.unwrap();
            assert_eq!(room, [Some(expected.to_owned())], "{name}");
        });
    }
}

#[test]
fn a_node_that_freezes_in_a_batch_stops_no_other() {
    let Some(cluster) = Cluster::start() else { return };
    let url = cluster.database("codemie");
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let (frozen, other) = (Process::start(home, Some(&url)), Process::start(home, Some(&url)));
    let made = tokens(home);
    let token = made["ingest"].as_str().unwrap();
    let body = serde_json::to_vec(&life(&session(1), "widgets")).unwrap();
    let asked = block_on(async {
        let (watch, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        watch.execute(EVERY_LOCK, &[]).await.unwrap();
        let (client, batch) = (frozen.client(token), body.clone());
        let asked = std::thread::spawn(move || client.ask("POST", "/v1/events", &[], &batch).is_err());
        until(&watch, "SELECT count(*) FROM pg_locks WHERE NOT granted", 1).await;
        frozen.freeze();
        watch.execute("SELECT pg_advisory_unlock_all()", &[]).await.unwrap();
        let idle = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
        until(&watch, idle, 1).await;
        asked
    });
    let deadline = Instant::now() + Duration::from_mins(2);
    loop {
        let answer = other.client(token).post(&body, &[]);
        if answer.status == 200 {
            assert_eq!(answer.json()["accepted"], 9);
            break;
        }
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(Instant::now() < deadline, "the frozen node keeps its locks");
    }
    drop(frozen);
    assert!(asked.join().unwrap(), "the frozen node answered nothing");
}

#[test]
fn a_newer_schema_is_left_alone() {
    let Some(cluster) = Cluster::start() else { return };
    let url = cluster.database("codemie");
    cluster.run(
        "codemie",
        "CREATE TABLE codemie_schema (version bigint); INSERT INTO codemie_schema VALUES (99)",
    );
    let folder = tempfile::tempdir().unwrap();
    let output = codemie(folder.path())
        .args(["backend", "serve", "--listen", "127.0.0.1:0", "--database", &url])
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("schema 99") && err.contains("update codemie"), "{err}");
    cluster.run("codemie", "SELECT 1 / (count(*) = 1)::int FROM pg_tables WHERE schemaname = 'public'");
}

fn openssl(folder: &Path, args: &str) {
    let output = Command::new("openssl").current_dir(folder).args(args.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// `ca.pem` and `server.pem` signed by it for `localhost`, and `other.pem` that signed nothing.
fn certificates(folder: &Path) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    for name in ["ca", "other"] {
        openssl(folder, &format!("req -x509 {key} -keyout {name}.key -out {name}.pem -subj /CN={name}"));
    }
    openssl(
        folder,
        &format!(
            "req -x509 -CA ca.pem -CAkey ca.key {key} -keyout server.key -out server.pem -subj /CN=server \
             -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE"
        ),
    );
    hand_over(&folder.join("server.key"));
}

#[test]
fn a_server_must_show_a_certificate_that_is_trusted() {
    if Command::new("openssl").arg("version").output().is_err() {
        return left_out("openssl is not installed");
    }
    let folder = tempfile::Builder::new().prefix("tls").tempdir_in("/tmp").unwrap();
    hand_over(folder.path());
    certificates(folder.path());
    // Bound for as long as the server lives, so that nobody else gets it; the server may listen beside, since both say that
    // the address may be used again.
    let kept = TcpSocket::new_v4().unwrap();
    kept.set_reuseaddr(true).unwrap();
    kept.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = kept.local_addr().unwrap().port();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let settings = [
        "fsync=off".to_owned(),
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", file("server.pem")),
        format!("ssl_key_file={}", file("server.key")),
        "listen_addresses=127.0.0.1".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let Some(cluster) = Cluster::start_at(port, &settings) else { return };
    cluster.database("codemie");
    let home = tempfile::tempdir().unwrap();
    for (host, mode, trusted, expected) in [
        ("localhost", "require", Some("ca.pem"), ""),
        ("localhost", "prefer", Some("ca.pem"), ""),
        ("localhost", "require", Some("other.pem"), "certificate"),
        ("localhost", "prefer", Some("other.pem"), "certificate"),
        ("localhost", "require", None, "certificate"),
        ("127.0.0.1", "require", Some("ca.pem"), "certificate"),
    ] {
        let url = format!("postgres://postgres@{host}:{port}/codemie?sslmode={mode}&connect_timeout=20");
        let mut command = codemie(home.path());
        command.env_remove("SSL_CERT_FILE").env_remove("PGSSLROOTCERT");
        command.envs(trusted.map(|name| ("PGSSLROOTCERT", file(name))));
        let output = command.args(["backend", "token", "list", "--database", &url]).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        let told = format!("{host} {mode} {trusted:?}: {err}");
        assert_eq!(output.status.success(), expected.is_empty(), "{told}");
        assert!(err.contains(expected), "{told}");
    }
}
