//! What the proxy adds to a call, side by side with nginx and litellm in the same run: `cargo bench --bench proxy`. "hyper" is the
//! least that a proxy can be with the library that ours is built on: it passes requests on and nothing else.
//!
//! Client, upstream and each proxy are processes of their own on the same processors. The ways take turns in short slices, so that
//! whatever else the machine does meets all of them. Requests are paced: a closed loop on 64 connections would measure how fast two
//! processors are, not what a proxy adds. Bare times mean nothing elsewhere; differences to direct and ratios in one run do.
//!
//! nginx comes from Debian's package (`CODEMIE_BENCH_NGINX` names the program), litellm from PyPI (`CODEMIE_BENCH_LITELLM`, a venv's
//! `bin/litellm`); by default they are looked for in `target/bench-proxy`. What is missing is left out. `CODEMIE_BENCH_EARLIER` names
//! an earlier build of this program, whose proxy takes part as well. Words after `--` choose measurements by their headings:
//! `cargo bench --bench proxy -- "1 kB, first byte"`.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss, clippy::disallowed_methods)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use relay::{Call, Gate, Observer, Request, Route, Secret, Settings, Upstream, Verdict};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const ROUNDS: usize = 5;
/// Requests of one slice, over all connections.
const SLICE: usize = 300;
/// Requests per second, over all connections.
const RATE: f64 = 400.0;
/// litellm answers some ten requests a second here; more would measure its queue.
const SLOW_SLICE: usize = 8;
const SLOW_RATE: f64 = 8.0;

const STREAMS: usize = 64;
const STREAM_BYTES: usize = 10 << 20;
const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn main() {
    match std::env::var("CODEMIE_BENCH_ROLE").as_deref() {
        Ok("upstream") => run(upstream()),
        Ok("relay") => run(relay_process()),
        Ok("hyper") => run(bare_hyper()),
        _ => run(measure()),
    }
}

fn run(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

// ---- the upstream ----

/// Answers as Anthropic's Messages do: one document, or events in a chunk each.
async fn upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        tokio::spawn(async move {
            let _ = answer_all(stream).await;
        });
    }
}

async fn answer_all(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let Some(head) = read_head(&mut stream, &mut buffer).await? else { return Ok(()) };
        let length = content_length(&buffer[..head]).unwrap_or(0);
        while buffer.len() < head + length {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        let body = &buffer[head..head + length];
        if contains(body, b"answer-endless") {
            write_long(&mut stream).await?;
        } else if contains(body, b"answer-stream") {
            write_events(&mut stream, Some(Duration::from_millis(2))).await?;
        } else if contains(body, b"answer-burst") {
            write_events(&mut stream, None).await?;
        } else {
            stream.write_all(document().as_bytes()).await?;
        }
        buffer.drain(..head + length);
    }
}

fn document() -> String {
    let text = "word ".repeat(150);
    let body = format!(
        r#"{{"id":"msg_01","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{{"type":"text","text":"{text}"}}],"stop_reason":"end_turn","stop_sequence":null,"usage":{{"input_tokens":12,"output_tokens":150}}}}"#
    );
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn chunk(event: &str) -> String {
    format!("{:x}\r\n{event}\r\n", event.len())
}

/// A model takes some milliseconds for each event. Without a pause all of them are written within a fifth of a millisecond, and the
/// upstream itself has one of the two processors meanwhile: then the system's scheduler decides who comes first, more than the proxy.
async fn write_events(stream: &mut TcpStream, pause: Option<Duration>) -> std::io::Result<()> {
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .await?;
    stream.write_all(chunk("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_01\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-sonnet-4-5\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":12,\"output_tokens\":1}}}\n\n").as_bytes()).await?;
    stream.write_all(chunk("event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n").as_bytes()).await?;
    for _ in 0..if pause.is_some() { 4 } else { 20 } {
        match pause {
            Some(pause) => tokio::time::sleep(pause).await,
            None => tokio::task::yield_now().await,
        }
        stream.write_all(chunk("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"some words of an answer \"}}\n\n").as_bytes()).await?;
    }
    stream
        .write_all(
            chunk("event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n")
                .as_bytes(),
        )
        .await?;
    stream.write_all(chunk("event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":60}}\n\n").as_bytes()).await?;
    stream.write_all(chunk("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n").as_bytes()).await?;
    stream.write_all(b"0\r\n\r\n").await
}

async fn write_long(stream: &mut TcpStream) -> std::io::Result<()> {
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .await?;
    let text = "x".repeat(16 << 10);
    let event = chunk(&format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
    ));
    for _ in 0..STREAM_BYTES / event.len() {
        stream.write_all(event.as_bytes()).await?;
    }
    stream.write_all(b"0\r\n\r\n").await
}

// ---- the proxy of codemie ----

struct Unlimited;

impl Gate for Unlimited {
    fn admit<'a>(&'a self, _: &'a Request) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        Box::pin(std::future::ready(Verdict::Go))
    }
}

struct Counter;

impl Observer for Counter {
    fn ended(&self, call: Call) {
        assert!(call.metered.tokens.is_some() || call.latency_ms > 1000, "a call was not metered: {call:?}");
    }
}

async fn relay_process() {
    let base = format!("http://127.0.0.1:{}", std::env::var("CODEMIE_BENCH_UPSTREAM").unwrap());
    let route = Route {
        name: String::new(),
        upstream: Upstream { base: base.parse().unwrap() },
        api: None,
        auth: None,
        headers: Vec::new(),
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let settings = Settings::new(Secret::new(SECRET.to_owned()), vec![route]);
    relay::serve(listener, settings, Arc::new(Unlimited), Arc::new(Counter), std::future::pending())
        .await
        .unwrap();
}

// ---- the library alone ----

/// A connection to the upstream for each of the client's.
async fn bare_hyper() {
    let upstream = std::env::var("CODEMIE_BENCH_UPSTREAM").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    loop {
        let (from, _) = listener.accept().await.unwrap();
        from.set_nodelay(true).unwrap();
        let to = TcpStream::connect(format!("127.0.0.1:{upstream}")).await.unwrap();
        to.set_nodelay(true).unwrap();
        tokio::spawn(async move {
            let (sender, connection) = client::handshake::<_, Incoming>(TokioIo::new(to)).await.unwrap();
            tokio::spawn(connection);
            let sender = Arc::new(tokio::sync::Mutex::new(sender));
            let service = service_fn(move |request| {
                let sender = sender.clone();
                async move {
                    let mut sender = sender.lock().await;
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            });
            let _ = server::Builder::new().serve_connection(TokioIo::new(from), service).await;
        });
    }
}

// ---- the ways ----

struct Way {
    name: &'static str,
    port: u16,
    prefix: String,
    child: Option<Child>,
    slice: usize,
    rate: f64,
}

impl Drop for Way {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let _ = child.wait();
        }
    }
}

fn itself(role: &str, upstream: u16) -> (Child, u16) {
    start(&std::env::current_exe().unwrap(), role, upstream)
}

fn start(build: &Path, role: &str, upstream: u16) -> (Child, u16) {
    let mut child = Command::new(build)
        .env("CODEMIE_BENCH_ROLE", role)
        .env("CODEMIE_BENCH_UPSTREAM", upstream.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim().parse().unwrap();
    (child, port)
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn program(variable: &str, inside: &str) -> Option<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-proxy").join(inside);
    let path = std::env::var_os(variable).map_or(default, PathBuf::from);
    path.exists().then_some(path)
}

/// As it is set up for streams: nothing buffered, connections kept.
fn nginx(folder: &Path, upstream: u16) -> Option<Way> {
    let program = program("CODEMIE_BENCH_NGINX", "nginx/usr/sbin/nginx")?;
    let port = free_port();
    let at = folder.display();
    let config = format!(
        "daemon off; worker_processes 2; pid {at}/pid; error_log {at}/errors crit; user root;
        events {{ worker_connections 4096; }}
        http {{
          access_log off; keepalive_requests 100000000; tcp_nodelay on; client_max_body_size 0;
          client_body_temp_path {at}/a; proxy_temp_path {at}/b; fastcgi_temp_path {at}/c; uwsgi_temp_path {at}/d; scgi_temp_path {at}/e;
          upstream api {{ server 127.0.0.1:{upstream}; keepalive 128; keepalive_requests 100000000; }}
          server {{ listen 127.0.0.1:{port}; location / {{
            proxy_pass http://api; proxy_http_version 1.1; proxy_set_header Connection \"\";
            proxy_buffering off; proxy_request_buffering off; }} }}
        }}"
    );
    std::fs::write(folder.join("nginx.conf"), config).unwrap();
    let child = Command::new(program)
        .args(["-p", &at.to_string(), "-c", "nginx.conf", "-e", "stderr"])
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    Some(Way { name: "nginx", port, prefix: String::new(), child: Some(child), slice: SLICE, rate: RATE })
}

fn litellm(folder: &Path, upstream: u16) -> Option<Way> {
    let program = program("CODEMIE_BENCH_LITELLM", "litellm/bin/litellm")?;
    let port = free_port();
    let config = format!(
        "model_list:\n  - model_name: claude-sonnet-4-5\n    litellm_params:\n      model: anthropic/claude-sonnet-4-5\n      api_base: http://127.0.0.1:{upstream}\n      api_key: x\n"
    );
    std::fs::write(folder.join("litellm.yaml"), config).unwrap();
    let child = Command::new(program)
        .args(["--config", "litellm.yaml", "--host", "127.0.0.1", "--port", &port.to_string()])
        .current_dir(folder)
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .env("LITELLM_TELEMETRY", "False")
        // It listens on loopback, for this benchmark.
        .env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true")
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(folder.join("litellm.log")).unwrap())
        .spawn()
        .ok()?;
    Some(Way {
        name: "litellm",
        port,
        prefix: String::new(),
        child: Some(child),
        slice: SLOW_SLICE,
        rate: SLOW_RATE,
    })
}

/// Until it answers.
async fn is_up(way: &Way, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    while Instant::now() < until {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", way.port)).await {
            let mut connection = Connection { stream, buffer: Vec::new() };
            if connection.ask(&request(way, 1_000, "answer-whole")).await.is_ok() {
                return true;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("left out: {} did not answer", way.name);
    false
}

// ---- the client ----

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Sample {
    first: Duration,
    whole: Duration,
}

fn request(way: &Way, size: usize, mode: &str) -> Vec<u8> {
    let stream = mode != "answer-whole";
    let frame = format!(
        r#"{{"model":"claude-sonnet-4-5","max_tokens":1000,"stream":{stream},"messages":[{{"role":"user","content":"{mode} PAD"}}]}}"#
    );
    let body = frame.replace("PAD", &"y".repeat(size.saturating_sub(frame.len())));
    format!(
        "POST {}/v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nx-api-key: sk-bench\r\nanthropic-version: 2023-06-01\r\nuser-agent: bench\r\naccept: */*\r\ncontent-length: {}\r\n\r\n{body}",
        way.prefix,
        body.len()
    )
    .into_bytes()
}

impl Connection {
    /// To the first byte of the body, and to its last.
    async fn ask(&mut self, request: &[u8]) -> std::io::Result<Sample> {
        let start = Instant::now();
        self.stream.write_all(request).await?;
        let gone = || std::io::Error::other("the connection ended");
        let head = read_head(&mut self.stream, &mut self.buffer).await?.ok_or_else(gone)?;
        if !self.buffer.starts_with(b"HTTP/1.1 200") {
            return Err(std::io::Error::other(String::from_utf8_lossy(&self.buffer).into_owned()));
        }
        let length = content_length(&self.buffer[..head]);
        let mut first = None;
        loop {
            if self.buffer.len() > head {
                first.get_or_insert_with(|| start.elapsed());
            }
            let whole = match length {
                Some(length) => self.buffer.len() >= head + length,
                None => self.buffer.ends_with(b"0\r\n\r\n"),
            };
            if whole {
                self.buffer.clear();
                let whole = start.elapsed();
                return Ok(Sample { first: first.unwrap_or(whole), whole });
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(gone());
            }
        }
    }
}

async fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<usize>> {
    loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            return Ok(Some(at + 4));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

fn content_length(head: &[u8]) -> Option<usize> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let line = head.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    line.trim().parse().ok()
}

fn contains(body: &[u8], word: &[u8]) -> bool {
    // The word is near the beginning, or near the end where a gateway has put keys in another order.
    let (start, end) = (&body[..body.len().min(600)], &body[body.len().saturating_sub(600)..]);
    [start, end].iter().any(|part| part.windows(word.len()).any(|window| window == word))
}

/// One slice: paced requests on so many connections.
async fn slice(way: &Way, connections: usize, request: &Arc<Vec<u8>>) -> Vec<Sample> {
    let each = (way.slice / connections).max(1);
    let pause = Duration::from_secs_f64(connections as f64 / way.rate);
    let mut tasks = Vec::new();
    for number in 0..connections.min(way.slice) {
        let (port, request) = (way.port, request.clone());
        let offset = pause.mul_f64(number as f64 / connections as f64);
        tasks.push(tokio::spawn(async move {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut connection = Connection { stream, buffer: Vec::with_capacity(64 << 10) };
            // The first one opens the connections behind the proxy.
            connection.ask(&request).await.unwrap();
            tokio::time::sleep(offset).await;
            let mut samples = Vec::with_capacity(each);
            let mut ticks = tokio::time::interval(pause);
            for _ in 0..each {
                ticks.tick().await;
                samples.push(connection.ask(&request).await.unwrap());
            }
            samples
        }));
    }
    let mut samples = Vec::new();
    for task in tasks {
        samples.extend(task.await.unwrap());
    }
    samples
}

fn percentile(samples: &mut [Duration], part: f64) -> f64 {
    samples.sort();
    let at = ((samples.len() - 1) as f64 * part).round() as usize;
    samples[at].as_secs_f64() * 1000.0
}

/// Whether the words of the command line, if there are any, ask for it.
fn is_wanted(heading: &str) -> bool {
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with("--")).peekable();
    words.peek().is_none() || words.any(|word| heading.contains(&word))
}

async fn compare(ways: &[Way], connections: usize, size: usize, mode: &str) {
    let what = if mode == "answer-whole" { "request" } else { "first byte" };
    let heading = format!("{connections} connections, {} kB, {what} of {mode}", size / 1000);
    if !is_wanted(&heading) {
        return;
    }
    let requests: Vec<_> = ways.iter().map(|way| Arc::new(request(way, size, mode))).collect();
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); ways.len()];
    for round in 0..ROUNDS {
        for turn in 0..ways.len() {
            // Who comes first changes, too.
            let index = (turn + round) % ways.len();
            samples[index].extend(slice(&ways[index], connections, &requests[index]).await);
        }
    }
    println!("\n{heading}");
    let mut direct = (0.0, 0.0);
    for (way, samples) in ways.iter().zip(samples) {
        let mut times: Vec<Duration> = samples
            .iter()
            .map(|sample| if mode == "answer-whole" { sample.whole } else { sample.first })
            .collect();
        let (p50, p99) = (percentile(&mut times, 0.5), percentile(&mut times, 0.99));
        if way.name == "direct" {
            direct = (p50, p99);
        }
        println!(
            "  {:8} p50 {p50:8.3} ms  p99 {p99:8.3} ms   added {:+8.3} {:+8.3}   ({} requests)",
            way.name,
            p50 - direct.0,
            p99 - direct.1,
            times.len()
        );
    }
}

// ---- memory ----

/// Of a process and its children, in MiB.
fn resident(pid: u32) -> f64 {
    let of = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
    };
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    of(pid) + children.split_whitespace().filter_map(|child| child.parse().ok()).map(of).sum::<f64>()
}

/// 64 streams of 10 MB to readers that take 1 MB a second each.
async fn memory(way: &Way) {
    let Some(pid) = way.child.as_ref().map(Child::id) else { return };
    let before = resident(pid);
    let request = Arc::new(request(way, 1_000, "answer-endless"));
    let mut tasks = Vec::new();
    for _ in 0..STREAMS {
        let (port, request) = (way.port, request.clone());
        tasks.push(tokio::spawn(async move {
            let socket = TcpSocket::new_v4().unwrap();
            // Else the system's own buffers would take most of a stream.
            socket.set_recv_buffer_size(64 << 10).unwrap();
            let mut stream = socket.connect(format!("127.0.0.1:{port}").parse().unwrap()).await.unwrap();
            stream.write_all(&request).await.unwrap();
            let mut piece = vec![0; 32 << 10];
            let mut tail = Vec::new();
            let mut total = 0;
            while !tail.ends_with(b"0\r\n\r\n") {
                let length = stream.read(&mut piece).await.unwrap();
                assert!(length > 0, "a stream broke off after {total} bytes");
                total += length;
                tail.extend_from_slice(&piece[length.saturating_sub(8)..length]);
                tail.drain(..tail.len().saturating_sub(8));
                tokio::time::sleep(Duration::from_secs_f64(length as f64 / f64::from(1 << 20))).await;
            }
            total
        }));
    }
    let mut peaks = Vec::new();
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        peaks.push(resident(pid));
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let mut total = 0;
    for task in tasks {
        total += task.await.unwrap();
    }
    let half = &peaks[peaks.len() / 4..peaks.len() / 2];
    let late = &peaks[peaks.len() / 2..peaks.len() * 3 / 4];
    let most = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
    println!(
        "  {:8} before {before:6.1} MiB  second quarter {:6.1}  third quarter {:6.1}  most {:6.1}   ({} MB passed)",
        way.name,
        most(half),
        most(late),
        most(&peaks),
        total / 1_000_000
    );
}

/// What reading the copy costs: the reason why it is done on the thread that passes bytes on.
fn meter() {
    let mut headers = http::HeaderMap::new();
    headers.insert("content-type", http::HeaderValue::from_static("text/event-stream"));
    println!("\nthe meter, for one event");
    for size in [20, 300, 16 << 10] {
        let text = "x".repeat(size);
        let event = format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
        );
        let mut meter = relay::meter::AnswerMeter::new(relay::Api::Messages, &headers);
        let times = 2_000_000 / event.len();
        let start = Instant::now();
        for _ in 0..times {
            let _ = meter.read(event.as_bytes());
        }
        println!("  {:6} bytes  {:8.2} µs", event.len(), start.elapsed().as_secs_f64() * 1e6 / times as f64);
    }
}

async fn measure() {
    let folder = tempfile::tempdir().unwrap();
    let (upstream, port) = itself("upstream", 0);
    let way = |name, prefix: &str, (child, port)| Way {
        name,
        port,
        prefix: prefix.to_owned(),
        child: Some(child),
        slice: SLICE,
        rate: RATE,
    };
    let secret = format!("/{SECRET}");
    let mut ways = vec![
        way("direct", "", (upstream, port)),
        way("codemie", &secret, itself("relay", port)),
        way("hyper", "", itself("hyper", port)),
    ];
    if let Some(build) = std::env::var_os("CODEMIE_BENCH_EARLIER") {
        ways.push(way("earlier", &secret, start(Path::new(&build), "relay", port)));
    }
    for (name, way) in [("nginx", nginx(folder.path(), port)), ("litellm", litellm(folder.path(), port))] {
        match way {
            Some(way) if is_up(&way, Duration::from_mins(5)).await => ways.push(way),
            Some(_) => {}
            None => println!("left out: {name} is not installed"),
        }
    }
    for mode in ["answer-whole", "answer-stream", "answer-burst"] {
        for size in [1_000, 100_000] {
            for connections in [1, 16, 64] {
                compare(&ways, connections, size, mode).await;
            }
        }
    }
    if is_wanted("meter") {
        meter();
    }
    if !is_wanted("memory") {
        return;
    }
    println!("\nmemory while {STREAMS} streams of {} MB run to slow readers", STREAM_BYTES >> 20);
    for way in ways.iter().filter(|way| ["codemie", "nginx"].contains(&way.name)) {
        memory(way).await;
    }
}
