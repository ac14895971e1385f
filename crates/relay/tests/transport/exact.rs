//! Random exchanges between a recording client and a recording server. What passes is identical, but for the exceptions that
//! `docs/proxy.md` lists; each of them is one line of [`expected_request`] or [`expected_answer`].

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use relay::CallEnd;

use crate::message::{Framing, Message, read_request, read_response};
use crate::served::{PATIENCE, SECRET, Served, before, upstream};

/// One exchange as the test made it up.
struct Plan {
    request: Message,
    answer: Message,
    /// How the bytes of each are cut into writes.
    request_bytes: Vec<Vec<u8>>,
    answer_bytes: Vec<Vec<u8>>,
    /// The answer breaks off after so many of its writes.
    cut: Option<usize>,
    /// Between two writes of either end.
    pause: Duration,
}

type Plans = Arc<Mutex<HashMap<String, (Plan, Option<Message>)>>>;

#[test]
fn random_exchanges_pass_unchanged() {
    let full = std::env::var_os("CODEMIE_TEST_FULL").is_some();
    let exchanges = if full { 10_000 } else { 500 };
    let seed = std::env::var("CODEMIE_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    println!("CODEMIE_TEST_SEED={seed}");
    let plans: Plans = Arc::default();
    let server = serving(plans.clone());
    let served = before(server);
    let mut rng = Rng::with_seed(seed);
    let mut cut = 0;
    let mut done = 0;
    while done < exchanges {
        // Several on one connection, sometimes the next one before the answer to this one.
        let connection = served.connect();
        let in_a_row = rng.usize(1..20).min(exchanges - done);
        let batch: Vec<String> = (0..in_a_row).map(|number| format!("{}", done + number)).collect();
        let broken = converse(&served, &connection, &plans, &batch, &mut rng);
        cut += usize::from(broken < batch.len());
        done += broken.min(batch.len() - 1) + 1;
        plans.lock().unwrap().clear();
    }
    assert!(cut > exchanges / 100, "some answers were cut: {cut}");
    served.join();
}

#[test]
fn random_requests_that_break_off_do_not_arrive_whole() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let plans: Plans = Arc::default();
    let served = before(serving(plans.clone()));
    let mut cut = 0;
    while cut < 50 {
        let plan = plan(&cut.to_string(), &mut rng);
        let kept = rng.usize(..plan.request_bytes.len());
        let sent = plan.request_bytes[..kept].concat();
        if !matches!(plan.request.framing, Framing::Length | Framing::Chunked)
            || !sent.windows(4).any(|at| at == b"\r\n\r\n")
        {
            continue;
        }
        let id = cut.to_string();
        plans.lock().unwrap().insert(id.clone(), (plan, None));
        let mut connection = served.connect();
        connection.write_all(&sent).unwrap();
        drop(connection);
        assert_ne!(served.call().end, CallEnd::Complete, "{id}");
        let (plan, seen) = plans.lock().unwrap().remove(&id).unwrap();
        if let Some(seen) = seen {
            assert!(!seen.whole && plan.request.body.starts_with(&seen.body), "{id}");
        }
        cut += 1;
    }
    served.join();
}

/// Plays the exchanges one after the other. Gives the number of the one that was cut, or how many there were.
fn converse(served: &Served, connection: &TcpStream, plans: &Plans, ids: &[String], rng: &mut Rng) -> usize {
    for id in ids {
        plans.lock().unwrap().insert(id.clone(), (plan(id, rng), None));
    }
    let ahead = rng.bool();
    let sends: Vec<(Duration, Vec<Vec<u8>>)> = ids
        .iter()
        .map(|id| {
            let plan = &plans.lock().unwrap()[id].0;
            (plan.pause, plan.request_bytes.clone())
        })
        .collect();
    let mut writer = connection.try_clone().unwrap();
    let mut reader = BufReader::new(connection);
    std::thread::scope(|scope| {
        let (answered, may_send) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            for (number, (pause, pieces)) in sends.iter().enumerate() {
                for piece in pieces {
                    std::thread::sleep(*pause);
                    if writer.write_all(piece).is_err() {
                        return;
                    }
                }
                // One ahead at most: the next request is written while this one is being answered.
                let wait = if ahead { number > 0 } else { true };
                if wait && may_send.recv_timeout(PATIENCE).is_err() {
                    return;
                }
            }
        });
        for (number, id) in ids.iter().enumerate() {
            let method = plans.lock().unwrap()[id].0.request.start.split(' ').next().unwrap().to_owned();
            let came = read_response(&mut reader, &method);
            let (plan, seen) = plans.lock().unwrap().remove(id).unwrap();
            let call = served.call();
            let seen = seen.unwrap_or_else(|| panic!("request {id} did not arrive"));
            assert_eq!(seen, expected_request(&plan.request, &seen), "request {id}");
            if plan.cut.is_some() && !is_whole_when_cut(&plan) {
                if let Some(came) = came {
                    assert!(!came.whole, "the broken answer {id} looked whole");
                    assert!(plan.answer.body.starts_with(&came.body), "answer {id}");
                }
                assert_eq!(call.end, CallEnd::UpstreamGone, "call {id}");
                let _ = connection.shutdown(Shutdown::Both);
                return number;
            }
            let came = came.unwrap_or_else(|| panic!("no answer to {id}"));
            assert_eq!(came, expected_answer(&plan.answer, &method), "answer {id}");
            assert_eq!(call.end, CallEnd::Complete, "call {id}");
            let _ = answered.send(());
        }
        ids.len()
    })
}

/// An answer without a body is over with its head, an answer until the end of the connection whenever that ends.
fn is_whole_when_cut(plan: &Plan) -> bool {
    plan.cut.is_none_or(|cut| cut >= plan.answer_bytes.len())
}

/// The exceptions on the way there: the secret, `Host`, headers of one hop, and equal names that move together.
fn expected_request(sent: &Message, seen: &Message) -> Message {
    let host = seen.header("host").unwrap().to_owned();
    let mut expected = sent.clone();
    expected.start = sent.start.replacen(&format!("/{SECRET}"), "", 1);
    for (name, value) in &mut expected.headers {
        if name.eq_ignore_ascii_case("host") {
            value.clone_from(&host);
        }
    }
    expected.headers = together(without_hop(expected.headers));
    expected
}

fn expected_answer(sent: &Message, method: &str) -> Message {
    let mut expected = sent.clone();
    expected.headers = together(without_hop(expected.headers));
    if expected.framing == Framing::UntilClose {
        expected.framing = Framing::Chunked;
        expected.headers.push(("transfer-encoding".to_owned(), "chunked".to_owned()));
    }
    if method == "HEAD" {
        expected.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("transfer-encoding"));
    }
    expected
}

fn without_hop(mut headers: Vec<(String, String)>) -> Vec<(String, String)> {
    headers.retain(|(name, _)| !["connection", "keep-alive"].contains(&name.to_lowercase().as_str()));
    headers
}

fn together(headers: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut groups: Vec<Vec<(String, String)>> = Vec::new();
    for field in headers {
        match groups.iter_mut().find(|group| group[0].0.eq_ignore_ascii_case(&field.0)) {
            Some(group) => group.push(field),
            None => groups.push(vec![field]),
        }
    }
    groups.concat()
}

fn serving(plans: Plans) -> std::net::SocketAddr {
    upstream(move |stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(request) = read_request(&mut reader) {
            let id = request.header("x-id").unwrap().to_owned();
            let (pieces, cut, ends, pause) = {
                let mut plans = plans.lock().unwrap();
                let Some((plan, seen)) = plans.get_mut(&id) else { return };
                let whole = request.whole;
                assert!(seen.replace(request).is_none(), "request {id} came twice");
                if !whole {
                    return;
                }
                let ends = plan.answer.framing == Framing::UntilClose;
                (plan.answer_bytes.clone(), plan.cut, ends, plan.pause)
            };
            for piece in pieces.iter().take(cut.unwrap_or(usize::MAX)) {
                std::thread::sleep(pause);
                if (&stream).write_all(piece).is_err() {
                    return;
                }
            }
            if ends || cut.is_some_and(|cut| cut < pieces.len()) {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    })
}

fn plan(id: &str, rng: &mut Rng) -> Plan {
    let method = ["GET", "POST", "POST", "POST", "PUT", "HEAD", "DELETE", "OPTIONS"][rng.usize(..8)];
    let path = ["/v1/messages", "/v1/responses", "/v1/models", "/a/../b//c", "/%7Ex%2F", "/"][rng.usize(..6)];
    let query = ["", "?", "?beta=true", "?a=1&a=2&b=%20+", "?x=/?y"][rng.usize(..5)];
    let framing = match (method, rng.u8(..4)) {
        ("GET" | "HEAD" | "OPTIONS", 1..) | (_, 0) => Framing::Nothing,
        (_, 1 | 2) => Framing::Length,
        _ => Framing::Chunked,
    };
    let mut request = message(format!("{method} /{SECRET}{path}{query} HTTP/1.1"), framing, rng);
    request.headers.insert(rng.usize(..=request.headers.len()), ("Host".to_owned(), "127.0.0.1".to_owned()));
    request.headers.insert(rng.usize(..=request.headers.len()), ("X-Id".to_owned(), id.to_owned()));
    if rng.bool() {
        request
            .headers
            .insert(rng.usize(..=request.headers.len()), ("Connection".to_owned(), "keep-alive".to_owned()));
    }

    let status = [
        "200 OK",
        "200 Fine",
        "201 Created",
        "204 No Content",
        "304 Not Modified",
        "400 Bad Request",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "529 Overloaded",
    ][rng.usize(..9)];
    let bodiless = method == "HEAD" || status.starts_with("204") || status.starts_with("304");
    let framing = match rng.u8(..8) {
        _ if bodiless => Framing::Nothing,
        0 => Framing::UntilClose,
        1..=3 => Framing::Length,
        _ => Framing::Chunked,
    };
    let mut answer = message(format!("HTTP/1.1 {status}"), framing, rng);
    if bodiless && !status.starts_with("204") && rng.bool() {
        // The length of what a GET would have brought.
        let length = rng.u32(..100_000).to_string();
        answer.headers.insert(rng.usize(..=answer.headers.len()), ("Content-Length".to_owned(), length));
    }
    if rng.bool() {
        answer
            .headers
            .insert(rng.usize(..=answer.headers.len()), ("Keep-Alive".to_owned(), "timeout=5".to_owned()));
    }
    let request_bytes = pieces(&request, rng);
    let answer_bytes = pieces(&answer, rng);
    let may_cut = matches!(framing, Framing::Length | Framing::Chunked) && answer_bytes.len() > 2;
    let cut = (may_cut && rng.u8(..10) == 0).then(|| rng.usize(1..answer_bytes.len()));
    // Some ends are slow.
    let pause = Duration::from_millis(if rng.u8(..10) == 0 { 2 } else { 0 });
    Plan { request, answer, request_bytes, answer_bytes, cut, pause }
}

fn message(start: String, framing: Framing, rng: &mut Rng) -> Message {
    let mut headers = Vec::new();
    for _ in 0..rng.usize(..12) {
        let name = [
            "X-Multi",
            "x-multi",
            "Accept",
            "anthropic-beta",
            "X-Stainless-OS",
            "Set-Cookie",
            "eTag",
            "x",
            "Authorization",
            "Content-Encoding",
        ][rng.usize(..10)];
        let value: String = (0..rng.usize(..30)).map(|_| char::from(rng.u8(b'!'..=b'~'))).collect();
        headers.push((name.to_owned(), value));
    }
    let body = if framing == Framing::Nothing {
        Vec::new()
    } else {
        let length = [0, 1, 10, 1_000, 20_000, 200_000][rng.usize(..6)];
        (0..rng.usize(..=length)).map(|_| rng.u8(..)).collect()
    };
    let at = rng.usize(..=headers.len());
    match framing {
        Framing::Length => headers.insert(at, ("Content-Length".to_owned(), body.len().to_string())),
        Framing::Chunked => headers.insert(at, ("Transfer-Encoding".to_owned(), "chunked".to_owned())),
        Framing::Nothing | Framing::UntilClose => {}
    }
    Message { start, headers, framing, body, trailers: Vec::new(), whole: true }
}

/// The message as bytes, cut at random places. The last piece is never empty: a message that is cut before it is not whole.
fn pieces(message: &Message, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut bytes = format!("{}\r\n", message.start).into_bytes();
    for (name, value) in &message.headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    match message.framing {
        Framing::Chunked => {
            let mut rest = message.body.as_slice();
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(rng.usize(1..=rest.len().min(30_000)));
                bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
                rest = after;
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        }
        Framing::Nothing | Framing::Length | Framing::UntilClose => bytes.extend_from_slice(&message.body),
    }
    let mut pieces = Vec::new();
    let whole = rng.bool();
    while !bytes.is_empty() {
        let length = if whole { bytes.len() } else { rng.usize(1..=bytes.len().min(40_000)) };
        let rest = bytes.split_off(length);
        pieces.push(std::mem::replace(&mut bytes, rest));
    }
    pieces
}
