//! The API of one node, over real connections.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use backend::Options;
use backend::sqlite::Sqlite;
use backend::storage::Storage;
use dashboard::KnownAgents;
use jiff::tz::TimeZone;
use reader::token::{Owner, Role, Token, TokenHash};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use types::Timestamp;

use super::block_on;
use super::client::Client;
use super::events::{but, end, life, session, start, usage};

/// A node in this process.
pub(super) struct Node {
    pub(super) address: SocketAddr,
    storage: Arc<dyn Storage>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Node {
    pub(super) fn start(options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let storage: Arc<dyn Storage> = Arc::new(Sqlite::open(&folder.path().join("backend.db")).unwrap());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let kept = storage.clone();
        for role in Role::ALL {
            let token = Token {
                name: role.to_string(),
                role: *role,
                owner: Owner::default(),
                hash: TokenHash::of(&format!("{role}-secret")),
                created_at: Timestamp(0),
                revoked_at: None,
            };
            assert!(runtime.block_on(storage.add_token(token)).unwrap());
        }
        let thread = std::thread::spawn(move || {
            let shutdown = async { drop(stopped.await) };
            let (reader, tokens, zone) = (kept.clone(), kept.clone(), ("UTC".to_owned(), TimeZone::UTC));
            let pages = dashboard::of_backend(reader, tokens, KnownAgents::default(), zone);
            runtime.block_on(backend::run(listener, kept, options, pages, shutdown));
        });
        Self { address, storage, stop: Some(stop), thread: Some(thread), _folder: folder }
    }

    pub(super) fn client(&self, role: Role) -> Client {
        Client { address: self.address, token: format!("{role}-secret") }
    }

    /// Returns when the node no longer takes the token for good.
    fn revoke_read(&self) {
        assert!(block_on(self.storage.revoke_token("read", Timestamp(1))).unwrap());
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.client(Role::Read).get("/v1/usage").status != 401 {
            assert!(Instant::now() < deadline, "the token is still good");
            std::thread::sleep(Duration::from_millis(50)); // nothing tells when a node forgets, but its answer
        }
    }

    /// The lines of the live feed, once it has begun.
    fn watch(&self) -> impl Iterator<Item = String> + use<> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        stream
            .write_all(b"GET /v1/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer read-secret\r\n\r\n")
            .unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("watching")), "it has begun");
        lines
    }

    fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn every_route_asks_for_the_right_token() {
    let node = Node::start(Options::default());
    let description = node.client(Role::Read).get("/openapi.json").json();
    let nobody = Client { address: node.address, token: String::new() };
    let stranger = Client { address: node.address, token: "codemie_admin_0000".to_owned() };
    let mut seen = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path = path.replace("{id}", "x");
            let ask = |client: &Client| client.ask(&method.to_uppercase(), &path, &[], b"").unwrap().status;
            if path == "/healthz" {
                assert_eq!(ask(&nobody), 200);
                continue;
            }
            assert_eq!(ask(&nobody), 401, "{path}");
            assert_eq!(ask(&stranger), 401, "{path}");
            let other = if method == "post" { Role::Read } else { Role::Ingest };
            let expected = if path == "/openapi.json" { 200 } else { 403 };
            assert_eq!(ask(&node.client(other)), expected, "{path}");
            seen += 1;
        }
    }
    assert_eq!(seen, 8, "{description}");
    let refused = nobody.get("/v1/usage");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    let reader = node.client(Role::Read);
    let (unknown, method) = (reader.get("/v1/nothing"), reader.ask("DELETE", "/metrics", &[], b"").unwrap());
    for answer in
        [refused, reader.get("/v1/usage"), reader.get("/metrics"), reader.get("/healthz"), unknown, method]
    {
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{answer:?}");
    }
    // Revoked tokens are refused, if not at once.
    node.revoke_read();
}

#[test]
fn events_are_taken_in_however_they_are_packed() {
    let node = Node::start(Options::default());
    let (sender, reader) = (node.client(Role::Ingest), node.client(Role::Read));
    let body = |number| serde_json::to_vec(&life(&session(number), "widgets")).unwrap();
    let zstd = zstd::encode_all(&*body(1), 3).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&body(2)).unwrap();
    let gzip = gzip.finish().unwrap();
    for (headers, body) in [
        (&[("Content-Encoding", "zstd")][..], &zstd),
        (&[("Content-Encoding", "gzip")], &gzip),
        (&[("Content-Encoding", "identity")], &body(3)),
        (&[], &body(4)),
    ] {
        let answer = sender.post(body, headers);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json(), json!({"accepted": 9, "duplicates": 0, "rejected": []}));
        assert_eq!(sender.post(body, headers).json()["duplicates"], 9);
    }
    let record = reader.get(&format!("/v1/sessions/{}", session(1))).json();
    assert_eq!((&record["complete"], &record["usage"]["apiCalls"]), (&json!(true), &json!(2)));
    let answer = sender.post(b"x", &[("Content-Encoding", "br")]);
    assert_eq!((answer.status, answer.header("accept-encoding")), (415, Some("zstd, gzip, identity")));
    assert_eq!(sender.post(b"not zstd", &[("Content-Encoding", "zstd")]).status, 400);
    let bomb = zstd::encode_all(&*vec![b' '; 40 << 20], 3).unwrap();
    assert!(bomb.len() < 100_000);
    assert_eq!(sender.post(&bomb, &[("Content-Encoding", "zstd")]).status, 413);
    assert_eq!(sender.post(&vec![b' '; 9 << 20], &[]).status, 413);
    assert_eq!(sender.post(b"", &[("Content-Length", "99999999")]).status, 413, "before it is sent");
    let many = format!("[{}]", vec!["0"; 10_001].join(","));
    assert_eq!(sender.post(many.as_bytes(), &[]).status, 413);
}

#[test]
fn a_bad_event_costs_the_others_nothing() {
    let node = Node::start(Options::default());
    let (sender, id) = (node.client(Role::Ingest), session(1));
    for body in ["", "{}", "null", "[", "[{}] x", "3", "\u{0}"] {
        let answer = sender.post(body.as_bytes(), &[]);
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.json()["error"].is_string());
    }
    let good = start(&id, 1, "widgets");
    let bad = |changes: Value| but(usage(&id, 2, 1), &changes);
    let table = [
        (json!(7), ""),
        (json!({"id": "not a uuid canary"}), "id is no UUID"),
        (bad(json!({"id": "x"})), "id is no UUID"),
        (bad(json!({"rev": -1})), "rev"),
        (bad(json!({"rev": 1.5})), "found floating"),
        (bad(json!({"seq": 0})), "seq"),
        (bad(json!({"seq": 9_000_000_000_i64})), "seq"),
        (bad(json!({"type": ""})), "empty"),
        (bad(json!({"type": 7})), "type: expected"),
        (bad(json!({"type": "canary".repeat(200)})), "longer"),
        (bad(json!({"time": "yesterday canary"})), "time"),
        (bad(json!({"time": "0001-01-01T00:00:00Z"})), "time"),
        (bad(json!({"sessionId": ""})), "empty"),
        (bad(json!({"agent": null})), "agent: expected"),
        (bad(json!({"agent": "a\u{0}canary"})), "NUL"),
        (bad(json!({"attributes": []})), "attributes"),
        (bad(json!({"attributes": null})), "attributes"),
        (bad(json!({".inputTokens": "canary"})), "found string"),
        (bad(json!({".inputTokens": -1})), "number"),
        (bad(json!({".outputTokens": 1e30})), "attributes"),
        (bad(json!({".costUsd": -0.1})), "costUsd"),
        (bad(json!({".costUsd": 1001})), "costUsd"),
        (bad(json!({".model": null})), "attributes"),
        (bad(json!({".source": "canary"})), "unknown word"),
        (bad(json!({"user": "x".repeat(1025)})), "longer"),
        (bad(json!({".model": "canary".repeat(100)})), "longer"),
    ];
    for (event, expected) in table {
        let answer = sender.post_events(&[event.clone(), good.clone()]).json();
        assert_eq!(answer["rejected"].as_array().unwrap().len(), 1, "{event}: {answer}");
        let error = answer["rejected"][0]["error"].as_str().unwrap();
        assert!(error.contains(expected), "{event}: {error}");
        assert!(!error.contains("canary"), "what is refused is not repeated: {error}");
        assert_eq!(answer["accepted"].as_u64().unwrap() + answer["duplicates"].as_u64().unwrap(), 1);
    }
    let answer = sender.post_events(&[bad(json!({"seq": 0}))]).json();
    assert_eq!(answer["rejected"][0]["id"], usage(&id, 2, 1)["id"], "told by its id");
    // Fields of a newer client are taken for what they are: not ours.
    let newer = but(usage(&id, 2, 1), &json!({"colour": "red", ".mood": {"x": [1]}}));
    assert_eq!(sender.post_events(&[newer]).json()["accepted"], 1);
    // So are their types, with whatever they describe.
    let unknown = but(
        usage(&id, 3, 1),
        &json!({"id": uuid::Uuid::from_u128(3), "type": "forecast", "attributes": {"x": [{}]}}),
    );
    assert_eq!(sender.post_events(std::slice::from_ref(&unknown)).json()["accepted"], 1);
    assert_eq!(sender.post_events(&[unknown]).json()["duplicates"], 1);
    let timeline = node.client(Role::Read).get(&format!("/v1/sessions/{id}/events?after=2")).json();
    assert_eq!(
        (&timeline["events"][0]["type"], &timeline["events"][0]["attributes"]),
        (&json!("forecast"), &json!({}))
    );
}

#[test]
fn sessions_and_usage_are_asked_for() {
    let node = Node::start(Options::default());
    let (sender, reader) = (node.client(Role::Ingest), node.client(Role::Read));
    for number in 1..=7 {
        sender.post_events(&life(&session(number), if number % 2 == 0 { "even" } else { "odd" }));
    }
    let ids = |path: &str| -> Vec<String> {
        let sessions = reader.get(path).json()["sessions"].clone();
        sessions
            .as_array()
            .unwrap()
            .iter()
            .map(|record| record["sessionId"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids("/v1/sessions?project=even").len(), 3);
    assert_eq!(ids("/v1/sessions?project=&status=completed").len(), 7);
    assert_eq!(ids("/v1/sessions?since=2026-11-17").len(), 0);
    let first = reader.get("/v1/sessions?limit=5").json();
    let next = first["next"].as_str().unwrap();
    assert_eq!(ids(&format!("/v1/sessions?limit=5&cursor={next}")).len(), 2);
    for wrong in [
        "limit=0",
        "limit=501",
        "status=asleep",
        "since=sometime",
        "cursor=x",
        "wat=1",
        "project=%00",
        "gaps=2",
    ] {
        let answer = reader.get(&format!("/v1/sessions?{wrong}"));
        assert_eq!(answer.status, 400, "{wrong}");
        assert!(answer.json()["error"].is_string());
    }
    let usage = reader.get("/v1/usage?by=project").json();
    let rows = usage["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (&rows[0]["key"], &rows[0]["apiCalls"], &rows[0]["sessions"]),
        (&json!("odd"), &json!(8), &json!(4))
    );
    assert_eq!((&usage["total"]["apiCalls"], &usage["total"]["prompts"]), (&json!(14), &json!(7)));
    let models = reader.get("/v1/usage?by=model&limit=1").json();
    assert_eq!((&models["total"]["prompts"], &models["rows"][0]["prompts"]), (&json!(7), &Value::Null));
    let model = models["rows"][0]["key"].as_str().unwrap();
    let of_one = reader.get(&format!("/v1/usage?by=day&model={model}")).json();
    for sums in [&of_one["total"], &of_one["rows"][0]] {
        assert_eq!((&sums["sessions"], &sums["toolCalls"]), (&Value::Null, &Value::Null), "not none: {sums}");
        assert!(sums["apiCalls"].as_i64() > Some(0), "{sums}");
    }
    assert_eq!(
        (&usage["more"], &reader.get("/v1/usage?by=project&limit=1").json()["more"]),
        (&json!(false), &json!(true))
    );
    let first = reader.get("/v1/usage?by=project&limit=1").json();
    let next = first["next"].as_str().unwrap();
    let second = reader.get(&format!("/v1/usage?by=project&limit=1&cursor={next}")).json();
    assert_eq!((&usage["rows"][1], second["more"].as_bool()), (&second["rows"][0], Some(false)), "{second}");
    assert_eq!((&usage["next"], &second["next"]), (&Value::Null, &Value::Null));
    assert_eq!(reader.get("/v1/usage?by=mood").status, 400);
    let events = reader.get(&format!("/v1/sessions/{}/events?after=7", session(1))).json();
    assert_eq!((&events["events"][0]["type"], &events["next"]), (&json!("error"), &json!(null)));
    let place = format!("/v1/sessions/{}/events?limit=1&after=", session(1));
    let next = reader.get(&format!("{place}7")).json()["next"].as_str().unwrap().to_owned();
    assert_eq!(reader.get(&format!("{place}{next}")).json()["events"][0]["seq"], 9);
    for wrong in ["", "-1", "x", "7.", "7.x", "99999999999"] {
        assert_eq!(reader.get(&format!("{place}{wrong}")).status, 400, "{wrong}");
    }
    assert_eq!(events["events"].as_array().unwrap().len(), 2);
    for nobody in ["/v1/sessions/nobody", "/v1/sessions/nobody/events", "/v1/sessions/%00", "/v1/nothing"] {
        assert_eq!(reader.get(nobody).status, 404, "{nobody}");
    }
    assert_eq!(reader.ask("DELETE", "/v1/sessions", &[], b"").unwrap().status, 405);
    let text = String::from_utf8(reader.get("/metrics").body).unwrap();
    for line in ["codemie_events_total{outcome=\"accepted\"} 63", "codemie_sessions 7", "codemie_up 1"] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    assert!(text.contains("codemie_build_info{version="), "{text}");
    let counters = |name: &str| {
        let values = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum::<f64>()
    };
    let total = &reader.get("/v1/usage?by=agent").json()["total"];
    let tokens = ["inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"];
    let tokens: f64 = tokens.iter().map(|name| total[*name].as_f64().unwrap()).sum();
    assert!((counters("codemie_cost_usd_total") - total["costUsd"].as_f64().unwrap()).abs() < 1e-9, "{text}");
    assert!(tokens > 0.0 && (counters("codemie_tokens_total") - tokens).abs() < 0.5, "{text}\n{total}");
}

#[test]
fn who_asks_too_often_is_told_when_to_come_back() {
    let node = Node::start(Options { rate: 3, ..Options::default() });
    let client = node.client(Role::Ingest);
    let statuses: Vec<u16> = (0..12).map(|_| client.post(b"[]", &[]).status).collect();
    assert!(statuses.starts_with(&[200; 6]), "{statuses:?}");
    let deadline = Instant::now() + Duration::from_mins(1);
    let refused = loop {
        let answer = client.post(b"[]", &[]);
        if answer.status == 429 {
            break answer;
        }
        assert!(Instant::now() < deadline, "nobody is told to come back: {answer:?}");
    };
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(node.client(Role::Read).get("/v1/usage").status, 200, "others are not concerned");
}

#[test]
fn who_watches_sees_a_session_appear() {
    let mut node = Node::start(Options::default());
    let mut lines = node.watch();
    let id = session(1);
    node.client(Role::Ingest).post_events(&[start(&id, 1, "widgets"), end(&id, 2, 2)]);
    let message = lines.find(|line| line.starts_with("data:")).unwrap();
    let message: Value = serde_json::from_str(&message["data:".len()..]).unwrap();
    assert_eq!(
        (&message["session"]["sessionId"], &message["session"]["complete"]),
        (&json!(id), &json!(true))
    );
    // The end of the server is the end of the stream.
    node.stop();
    lines.for_each(drop);
}

#[test]
fn who_watches_with_a_token_that_was_revoked_hears_no_more() {
    let node = Node::start(Options::default());
    let mut lines = node.watch();
    node.revoke_read();
    node.client(Role::Ingest).post_events(&[start(&session(1), 1, "secret")]);
    assert_eq!(lines.find(|line| line.contains("secret")), None, "it ended");
}

#[test]
fn the_end_waits_for_what_is_under_way() {
    let mut node = Node::start(Options::default());
    let mut stream = TcpStream::connect(node.address).unwrap();
    let body = serde_json::to_vec(&life(&session(1), "widgets")).unwrap();
    let (first, second) = body.split_at(body.len() / 2);
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ingest-secret\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(first).unwrap();
    // Whoever asks the next question over another connection knows that the first was accepted before.
    assert_eq!(node.client(Role::Read).get("/v1/usage").status, 200);
    let _ = node.stop.take().unwrap().send(());
    let deadline = Instant::now() + Duration::from_mins(1);
    while TcpStream::connect(node.address).is_ok() {
        assert!(Instant::now() < deadline, "it still takes connections");
        std::thread::sleep(Duration::from_millis(10));
    }
    stream.write_all(second).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"accepted\":9"), "{answer}");
    node.stop();
}
