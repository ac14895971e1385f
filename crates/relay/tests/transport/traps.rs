//! What proxies get wrong, one test each.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use relay::CallEnd;

use crate::message::{Framing, Message, read_head, read_request, read_response};
use crate::served::{PATIENCE, SECRET, answering, before, serve, settings, upstream};

/// Sends one request and reads its answer.
pub fn ask(stream: &TcpStream, request: &str) -> Message {
    let method = request.split(' ').next().unwrap();
    let mut out = stream;
    out.write_all(request.replace("SECRET", SECRET).as_bytes()).unwrap();
    read_response(&mut BufReader::new(stream), method).expect("no answer")
}

#[test]
fn a_request_and_its_answer_pass_unchanged() {
    let (address, requests) = answering(
        b"HTTP/1.1 203 Very Well\r\nX-Second: 2\r\nx-first: 1\r\nSet-Cookie: a\r\nSet-Cookie: b\r\ncontent-LENGTH: 5\r\n\r\nhello",
    );
    let served = before(address);
    let stream = served.connect();
    let answer = ask(
        &stream,
        "POST /SECRET/v1/messages?beta=true&x=%2F HTTP/1.1\r\nX-B: 1\r\nhost: here\r\nx-A: 2\r\nCONTENT-length: 3\r\nX-b2: \r\n\r\nabc",
    );
    let request = requests.recv().unwrap();
    assert_eq!(request.start, "POST /v1/messages?beta=true&x=%2F HTTP/1.1");
    let host = address.to_string();
    let expected =
        [("X-B", "1"), ("host", host.as_str()), ("x-A", "2"), ("CONTENT-length", "3"), ("X-b2", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(request.headers, expected);
    assert_eq!(request.body, b"abc");
    assert_eq!(answer.start, "HTTP/1.1 203 Very Well");
    let expected = [
        ("X-Second", "2"),
        ("x-first", "1"),
        ("Set-Cookie", "a"),
        ("Set-Cookie", "b"),
        ("content-LENGTH", "5"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(answer.headers, expected);
    assert_eq!(answer.body, b"hello");
    let call = served.call();
    assert_eq!((call.end, call.status), (CallEnd::Complete, Some(203)));
    assert_eq!(call.request.path, "/v1/messages");
    assert_eq!(call.request.body.as_deref(), Some(&b"abc"[..]));
    served.join();
}

#[test]
fn a_path_without_the_secret_is_not_found_and_names_nothing() {
    let (address, requests) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let served = before(address);
    for path in ["/", "/v1/messages", "/s3cret-012345678/v1", "/s3cret-01234567890/v1", "//SECRET/v1"] {
        let stream = served.connect();
        let answer =
            ask(&stream, &format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"));
        assert_eq!(answer.status(), 404, "{path}");
        assert!(answer.text().starts_with(r#"{"error":"#), "{}", answer.text());
        assert!(!answer.text().contains("s3cret"), "{}", answer.text());
    }
    assert!(requests.try_recv().is_err(), "nothing went upstream");
    served.join();
}

#[test]
fn the_upstreams_own_path_stands_before_the_requests() {
    let (address, requests) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let served = serve(settings(&format!("http://{address}/api/v2/")), Arc::new(crate::served::Open));
    ask(&served.connect(), "GET /SECRET/a//b/../c?q=1?2 HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(requests.recv().unwrap().start, "GET /api/v2/a//b/../c?q=1?2 HTTP/1.1");
    served.join();
}

#[test]
fn a_request_without_a_body_gets_no_length() {
    let (address, requests) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let served = before(address);
    for method in ["GET", "HEAD", "POST", "DELETE", "OPTIONS"] {
        let answer = ask(&served.connect(), &format!("{method} /SECRET/x HTTP/1.1\r\nhost: x\r\n\r\n"));
        assert_eq!(requests.recv().unwrap().headers, [("host".to_owned(), address.to_string())], "{method}");
        assert_eq!(answer.headers, [("content-length".to_owned(), "0".to_owned())], "{method}");
    }
    served.join();
}

#[test]
fn an_empty_body_keeps_its_framing() {
    let (address, requests) = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nx: 1\r\n\r\n");
    let served = before(address);
    let answer = ask(&served.connect(), "POST /SECRET/x HTTP/1.1\r\nContent-Length: 0\r\nhost: x\r\n\r\n");
    let request = requests.recv().unwrap();
    assert_eq!(request.headers[0], ("Content-Length".to_owned(), "0".to_owned()));
    assert_eq!(request.framing, Framing::Length);
    assert_eq!(answer.headers[0], ("Content-Length".to_owned(), "0".to_owned()), "where it stood");
    ask(
        &served.connect(),
        "POST /SECRET/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\nhost: x\r\n\r\n0\r\n\r\n",
    );
    let request = requests.recv().unwrap();
    assert_eq!(request.headers[0], ("Transfer-Encoding".to_owned(), "chunked".to_owned()));
    assert_eq!((request.framing, request.whole), (Framing::Chunked, true));
    served.join();
}

#[test]
fn a_get_with_a_body_in_chunks_keeps_it() {
    let (address, requests) = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let served = before(address);
    ask(
        &served.connect(),
        "GET /SECRET/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\nhost: x\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    assert_eq!(requests.recv().unwrap().body, b"abc");
    served.join();
}

#[test]
fn answers_without_a_body_keep_their_length() {
    for (method, answer, headers) in [
        (
            "HEAD",
            &b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nx: 1\r\n\r\n"[..],
            &[("Content-Length", "1234"), ("x", "1")][..],
        ),
        ("HEAD", b"HTTP/1.1 200 OK\r\nx: 1\r\n\r\n", &[("x", "1")]),
        (
            "GET",
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\nETag: e\r\n\r\n",
            &[("Content-Length", "99"), ("ETag", "e")],
        ),
        ("GET", b"HTTP/1.1 204 No Content\r\nx: 1\r\n\r\n", &[("x", "1")]),
    ] {
        let (address, _requests) = answering(answer);
        let served = before(address);
        let stream = served.connect();
        for _ in 0..2 {
            let came = ask(&stream, &format!("{method} /SECRET/ HTTP/1.1\r\nhost: x\r\n\r\n"));
            let expected: Vec<_> =
                headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(came.headers, expected, "{method} {}", String::from_utf8_lossy(answer));
            assert_eq!(served.call().end, CallEnd::Complete);
        }
        served.join();
    }
}

#[test]
fn compressed_bytes_are_not_touched() {
    let packed = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3];
    let (address, requests) =
        answering(b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\ncontent-length: 4\r\n\r\n\xff\xfe\x00\x01");
    let served = before(address);
    let stream = served.connect();
    let mut request = format!(
        "POST /{SECRET}/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-encoding: gzip\r\naccept-encoding: gzip, br\r\ncontent-length: {}\r\n\r\n",
        packed.len()
    )
    .into_bytes();
    request.extend_from_slice(&packed);
    (&stream).write_all(&request).unwrap();
    let answer = read_response(&mut BufReader::new(&stream), "POST").unwrap();
    let request = requests.recv().unwrap();
    assert_eq!(request.body, packed);
    assert_eq!(request.header("accept-encoding"), Some("gzip, br"));
    assert_eq!(answer.body, b"\xff\xfe\x00\x01");
    assert_eq!(answer.header("content-encoding"), Some("br"));
    served.join();
}

#[test]
fn trailers_pass_both_ways() {
    let (address, requests) = answering(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 7\r\n\r\n",
    );
    let served = before(address);
    let answer = ask(
        &served.connect(),
        "POST /SECRET/x HTTP/1.1\r\nhost: x\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\nTrailer: X-Count\r\n\r\n3\r\nabc\r\n0\r\nX-Count: 3\r\n\r\n",
    );
    let lower = |trailers: &[(String, String)]| {
        trailers.iter().map(|(name, value)| (name.to_lowercase(), value.clone())).collect::<Vec<_>>()
    };
    let request = requests.recv().unwrap();
    assert_eq!(lower(&request.trailers), [("x-count".to_owned(), "3".to_owned())]);
    assert_eq!(request.header("te"), Some("trailers"));
    assert_eq!(lower(&answer.trailers), [("x-sum".to_owned(), "7".to_owned())]);
    served.join();
}

#[test]
fn an_answer_with_a_length_and_chunks_passes_in_chunks() {
    let (address, _requests) = answering(
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\nx: 1\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    );
    let served = before(address);
    let answer = ask(&served.connect(), "GET /SECRET/ HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!((answer.framing, answer.whole, answer.text().as_str()), (Framing::Chunked, true, "hi"));
    assert_eq!((answer.header("content-length"), answer.header("x")), (None, Some("1")));
    served.join();
}

#[test]
fn an_answer_that_cannot_be_read_is_a_502() {
    let address = upstream(|stream, _| {
        read_request(&mut BufReader::new(stream.try_clone().unwrap())).unwrap();
        let headers = "x: 1\r\n".repeat(150);
        (&stream).write_all(format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes()).unwrap();
    });
    let served = before(address);
    let request = "POST /SECRET/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx";
    let answer = ask(&served.connect(), request);
    assert_eq!(answer.status(), 502);
    assert!(answer.text().contains("cannot read what http://127.0.0.1:"), "{}", answer.text());
    let call = served.call();
    assert_eq!((call.end, call.status), (CallEnd::UpstreamGone, Some(502)));
    served.join();
}

/// It knows no chunks, and says that its connection goes on.
#[test]
fn an_upstream_of_http_1_0_gets_each_request_whole() {
    let (address, requests) =
        answering(b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok");
    let served = before(address);
    for _ in 0..2 {
        let answer = ask(
            &served.connect(),
            "POST /SECRET/x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        );
        assert_eq!(answer.text(), "ok");
        assert_eq!(requests.recv().unwrap().body, b"abc");
    }
    served.join();
}

#[test]
fn the_agent_hears_100_only_when_the_upstream_said_it() {
    let (asked, is_asked) = channel();
    let (proceed, may_proceed) = channel::<()>();
    let (asked, may_proceed) = (Mutex::new(asked), Mutex::new(may_proceed));
    let address = upstream(move |stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (_, headers) = read_head(&mut reader).unwrap();
        asked.lock().unwrap().send(headers).unwrap();
        may_proceed.lock().unwrap().recv().unwrap();
        (&stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let mut body = [0; 3];
        reader.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"abc");
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
    });
    let served = before(address);
    let stream = served.connect();
    let head =
        format!("POST /{SECRET}/x HTTP/1.1\r\nhost: x\r\nExpect: 100-continue\r\ncontent-length: 3\r\n\r\n");
    (&stream).write_all(head.as_bytes()).unwrap();
    let headers = is_asked.recv().unwrap();
    assert!(headers.contains(&("Expect".to_owned(), "100-continue".to_owned())), "{headers:?}");
    // The upstream has the head and has said nothing: so has the proxy.
    stream.set_nonblocking(true).unwrap();
    assert!(stream.peek(&mut [0]).is_err(), "an answer came before the upstream's");
    stream.set_nonblocking(false).unwrap();
    proceed.send(()).unwrap();
    let mut reader = BufReader::new(&stream);
    let (start, _) = read_head(&mut reader).unwrap();
    assert_eq!(start, "HTTP/1.1 100 Continue");
    (&stream).write_all(b"abc").unwrap();
    assert_eq!(read_response(&mut reader, "POST").unwrap().body, b"ok");
    served.join();
}

#[test]
fn a_body_that_the_upstream_does_not_want_is_not_asked_for() {
    let address = upstream(|stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_head(&mut reader).unwrap();
        (&stream).write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nn").unwrap();
        // Nothing of the body comes, longer than anybody waits for a 100; then the connection ends.
        stream.set_read_timeout(Some(Duration::from_millis(1_500))).unwrap();
        assert!(reader.read(&mut [0]).is_err());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        (&stream).write_all(b"o").unwrap();
        assert_eq!(reader.read(&mut [0]).unwrap_or(0), 0);
    });
    let served = before(address);
    let stream = served.connect();
    let head =
        format!("POST /{SECRET}/x HTTP/1.1\r\nhost: x\r\nExpect: 100-continue\r\ncontent-length: 3\r\n\r\n");
    (&stream).write_all(head.as_bytes()).unwrap();
    let answer = read_response(&mut BufReader::new(&stream), "POST").unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (401, "no"), "and no 100 before it");
    let ended = (&stream).read(&mut [0]).map_err(|error| error.kind());
    let is_closed = matches!(ended, Ok(0) | Err(ErrorKind::ConnectionReset));
    assert!(is_closed, "what comes next would be taken for the body: {ended:?}");
    served.join();
}

#[test]
fn every_byte_passes_at_once() {
    let (next, step) = channel::<()>();
    let step = Mutex::new(step);
    let address = upstream(move |stream, _| {
        read_request(&mut BufReader::new(stream.try_clone().unwrap())).unwrap();
        let mut stream = &stream;
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        for _ in 0..20 {
            step.lock().unwrap().recv().unwrap();
            stream.write_all(b"1\r\n.\r\n").unwrap();
        }
        stream.write_all(b"0\r\n\r\n").unwrap();
    });
    let served = before(address);
    let stream = served.connect();
    (&stream)
        .write_all(
            format!("POST /{SECRET}/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").as_bytes(),
        )
        .unwrap();
    let mut reader = BufReader::new(&stream);
    read_head(&mut reader).expect("the head comes before the first byte of the body");
    for _ in 0..20 {
        // Each byte is written only after the one before has arrived: a buffer on the way would hang here.
        next.send(()).unwrap();
        let mut chunk = [0; 6];
        reader.read_exact(&mut chunk).unwrap();
        assert_eq!(&chunk, b"1\r\n.\r\n");
    }
    let mut end = String::new();
    reader.read_line(&mut end).unwrap();
    assert_eq!(end, "0\r\n");
    served.join();
}

#[test]
fn a_request_passes_as_it_comes() {
    let (seen, came) = channel();
    let seen = Mutex::new(seen);
    let address = upstream(move |stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_head(&mut reader).unwrap();
        for _ in 0..10 {
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            seen.lock().unwrap().send(byte[0]).unwrap();
        }
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    });
    let served = before(address);
    let stream = served.connect();
    (&stream)
        .write_all(
            format!("POST /{SECRET}/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n")
                .as_bytes(),
        )
        .unwrap();
    for number in 0..10 {
        (&stream).write_all(&[number]).unwrap();
        assert_eq!(came.recv_timeout(crate::served::PATIENCE).unwrap(), number);
    }
    assert_eq!(read_response(&mut BufReader::new(&stream), "POST").unwrap().status(), 200);
    served.join();
}

/// Both bodies are longer than the buffers on the way.
#[test]
fn an_agent_that_sends_all_before_it_reads_gets_an_answer_that_came_early() {
    const LENGTH: usize = 24 << 20;
    let address = upstream(move |stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_head(&mut reader).unwrap();
        let answer = std::thread::spawn(move || {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n");
            (&stream).write_all(head.as_bytes()).unwrap();
            (&stream).write_all(&vec![b'a'; LENGTH]).unwrap();
        });
        let received = std::io::copy(&mut reader.by_ref().take(LENGTH as u64), &mut std::io::sink());
        assert_eq!(received.unwrap(), LENGTH as u64);
        answer.join().unwrap();
    });
    let served = before(address);
    let mut stream = served.connect();
    // The system would take in a whole answer of some megabytes.
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 64 << 10).unwrap();
    let head = format!("POST /{SECRET}/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {LENGTH}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b'q'; LENGTH]).unwrap();
    let answer = read_response(&mut BufReader::new(&stream), "POST").unwrap();
    assert_eq!(answer.body.len(), LENGTH);
    drop(stream);
    served.join();
}

#[test]
fn an_answer_that_ends_with_its_connection_is_whole() {
    let address = upstream(|stream, _| {
        read_request(&mut BufReader::new(stream.try_clone().unwrap())).unwrap();
        (&stream).write_all(b"HTTP/1.1 200 OK\r\nx: 1\r\n\r\nuntil the end").unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    });
    let served = before(address);
    let answer = ask(&served.connect(), "GET /SECRET/ HTTP/1.1\r\nhost: x\r\n\r\n");
    // Nothing else can be written on a connection that goes on: one of the listed exceptions.
    assert_eq!(
        (answer.framing, answer.whole, answer.text().as_str()),
        (Framing::Chunked, true, "until the end")
    );
    served.join();
}

#[test]
fn no_connection_is_a_502_that_says_what_to_do() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let served = before(closed);
    let stream = served.connect();
    for _ in 0..2 {
        let body = "x".repeat(300_000);
        let answer = ask(
            &stream,
            &format!(
                "POST /SECRET/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ),
        );
        assert_eq!(answer.status(), 502, "on the same connection");
        let text = answer.text();
        assert!(
            text.starts_with(r#"{"error":{"message":"codemie's proxy cannot connect to http://127.0.0.1:"#),
            "{text}"
        );
        assert!(
            text.contains(r#""type":"api_error""#) && text.contains("refused") && text.contains("--proxy"),
            "{text}"
        );
        assert!(!text.contains(SECRET), "{text}");
        assert_eq!(served.call().end, CallEnd::NotConnected);
    }
    served.join();
}
