//! WebSockets: bytes in both directions, whatever they are, and 426 where there can be none.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::channel;

use relay::{CallEnd, Transport};

use crate::message::{read_head, read_response};
use crate::served::{PATIENCE, SECRET, answering, before, upstream};
use crate::traps::ask;

pub const HANDSHAKE: &str = "GET /SECRET/v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate\r\nsession-id: abc\r\n\r\n";

const ACCEPTED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzhZRbK+xOo0=\r\n\r\n";

#[test]
fn the_handshake_and_all_bytes_pass_untouched() {
    let (seen, requests) = channel();
    let seen = Mutex::new(seen);
    let address = upstream(move |stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        seen.lock().unwrap().send(read_head(&mut reader).unwrap()).unwrap();
        // The first message comes in the same packet as the handshake's answer.
        let mut answer = ACCEPTED.to_vec();
        answer.extend_from_slice(b"\x81\x02hi");
        (&stream).write_all(&answer).unwrap();
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = reader.read(&mut piece) {
            (&stream).write_all(&piece[..length]).unwrap();
        }
        let _ = stream.shutdown(Shutdown::Write);
    });
    let served = before(address);
    let stream = served.connect();
    (&stream).write_all(HANDSHAKE.replace("SECRET", SECRET).as_bytes()).unwrap();
    let mut reader = BufReader::new(&stream);
    let (start, headers) = read_head(&mut reader).unwrap();
    assert_eq!(start, "HTTP/1.1 101 Switching Protocols");
    let expected = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzhZRbK+xOo0="),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(headers, expected);
    let (start, headers) = requests.recv().unwrap();
    assert_eq!(start, "GET /v1/responses HTTP/1.1");
    let sent: Vec<_> = HANDSHAKE.lines().skip(1).filter_map(|line| line.split_once(": ")).skip(1).collect();
    let came: Vec<_> = headers.iter().skip(1).map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(came, sent);
    let mut hello = [0; 4];
    reader.read_exact(&mut hello).unwrap();
    assert_eq!(&hello, b"\x81\x02hi");
    for length in [1, 5, 4_000, 100_000] {
        let bytes: Vec<u8> = (0..length).map(|_| fastrand::u8(..)).collect();
        let copy = bytes.clone();
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || writer.write_all(&copy).unwrap());
        let mut back = vec![0; length];
        reader.read_exact(&mut back).unwrap();
        assert_eq!(back, bytes);
        writing.join().unwrap();
    }
    assert_eq!(served.activity.exchanges(), 1);
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "each end's end passes to the other");
    served.join();
}

#[test]
fn an_agent_that_goes_away_ends_the_tunnel() {
    let (gone, is_gone) = channel();
    let gone = Mutex::new(gone);
    let address = upstream(move |stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_head(&mut reader).unwrap();
        (&stream).write_all(ACCEPTED).unwrap();
        gone.lock().unwrap().send(reader.read(&mut [0]).unwrap_or(0)).unwrap();
    });
    let served = before(address);
    let stream = served.connect();
    (&stream).write_all(HANDSHAKE.replace("SECRET", SECRET).as_bytes()).unwrap();
    read_head(&mut BufReader::new(&stream)).unwrap();
    drop(stream);
    assert_eq!(is_gone.recv_timeout(PATIENCE).unwrap(), 0);
    served.join();
}

#[test]
fn a_refusal_of_the_upstream_passes_as_it_is() {
    let (address, _requests) =
        answering(b"HTTP/1.1 403 Forbidden\r\nX-Reason: no\r\ncontent-length: 2\r\n\r\nno");
    let served = before(address);
    let answer = ask(&served.connect(), HANDSHAKE);
    assert_eq!((answer.status(), answer.header("x-reason"), answer.text().as_str()), (403, Some("no"), "no"));
    served.join();
}

#[test]
fn where_there_can_be_none_the_handshake_is_answered_426() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = upstream(|stream: TcpStream, _| {
        read_head(&mut BufReader::new(stream.try_clone().unwrap())).unwrap();
        let _ = stream.shutdown(Shutdown::Both);
    });
    for address in [closed, silent] {
        let served = before(address);
        let stream = served.connect();
        (&stream).write_all(HANDSHAKE.replace("SECRET", SECRET).as_bytes()).unwrap();
        let answer = read_response(&mut BufReader::new(&stream), "GET").unwrap();
        assert_eq!(answer.status(), 426, "{}", answer.text());
        served.join();
    }
}

/// A frame with a whole text; an agent's are masked.
fn frame(text: &str, mask: Option<[u8; 4]>) -> Vec<u8> {
    let mut frame = vec![0x81, if mask.is_some() { 0xfe } else { 0x7e }];
    frame.extend_from_slice(&u16::try_from(text.len()).unwrap().to_be_bytes());
    let mask = mask.inspect(|mask| frame.extend_from_slice(mask)).unwrap_or_default();
    frame.extend(text.bytes().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
    frame
}

#[test]
fn each_call_of_a_websocket_is_reported() {
    let ask = format!(r#"{{"type":"response.create","model":"gpt-5","input":"{}"}}"#, "x".repeat(200));
    let answer = format!(
        r#"{{"type":"response.completed","response":{{"id":"resp_1","model":"gpt-5","status":"completed","output":"{}","usage":{{"input_tokens":7,"output_tokens":5,"total_tokens":12}}}}}}"#,
        "y".repeat(200)
    );
    let (question, reply) = (frame(&ask, Some([1, 2, 3, 4])), frame(&answer, None));
    let length = question.len();
    let address = upstream(move |stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_head(&mut reader).unwrap();
        (&stream).write_all(ACCEPTED).unwrap();
        let mut question = vec![0; length];
        while reader.read_exact(&mut question).is_ok() {
            (&stream).write_all(&reply).unwrap();
        }
    });
    let served = before(address);
    let stream = served.connect();
    (&stream).write_all(HANDSHAKE.replace("SECRET", SECRET).as_bytes()).unwrap();
    read_head(&mut BufReader::new(&stream)).unwrap();
    let mut numbers = Vec::new();
    for _ in 0..3 {
        (&stream).write_all(&question).unwrap();
        let call = served.call();
        assert_eq!((call.transport, call.end), (Transport::WebSocket, CallEnd::Complete));
        assert_eq!(call.metered.response_id.as_deref(), Some("resp_1"));
        assert!(call.metered.tokens.is_some(), "{call:?}");
        assert_eq!(call.request.body.as_deref(), Some(ask.as_bytes()));
        assert_eq!(call.request.headers.get("session-id").unwrap(), "abc");
        numbers.push(call.request.number);
    }
    numbers.dedup();
    assert_eq!(numbers.len(), 3, "each call has a number of its own");
    drop(stream);
    served.join();
}
