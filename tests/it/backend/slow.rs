//! Clients that take their time: each is cut off within its limit, and others are served meanwhile.
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use backend::Options;
use reader::token::Role;
use server::{Clients, Timeouts};

use super::api::Node;

/// Longer than a client that does its best takes for anything, on a machine with other work.
const SOON: Duration = Duration::from_secs(2);
const NEVER: Duration = Duration::from_hours(1);

const EVENTS: &str = "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ingest-secret\r\nContent-Length: 1000\r\n\r\n[";
const LOGIN: &str = "POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n\
    Content-Length: 1000\r\n\r\nt";

fn node(timeouts: Timeouts) -> Node {
    Node::start(Options { clients: Clients { timeouts, ..Clients::default() }, ..Options::default() })
}

/// A connection on which so much was said.
fn begun(node: &Node, said: &str) -> TcpStream {
    let mut stream = TcpStream::connect(node.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(said.as_bytes()).unwrap();
    stream
}

/// Everything up to the end of the connection, which comes although nothing more was said.
fn rest(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is cut off");
    answer
}

#[test]
fn who_stops_in_the_middle_is_cut_off_and_others_are_served() {
    let cases = [
        (Timeouts { head: SOON, body: NEVER, silence: NEVER }, "GET /healthz HTTP/1.1\r\nHo", ""),
        (Timeouts { head: SOON, body: NEVER, silence: NEVER }, "", ""),
        (Timeouts { head: NEVER, body: NEVER, silence: SOON }, EVENTS, "HTTP/1.1 408"),
        (Timeouts { head: NEVER, body: NEVER, silence: SOON }, LOGIN, "HTTP/1.1 408"),
        (Timeouts { head: NEVER, body: SOON, silence: NEVER }, EVENTS, "HTTP/1.1 408"),
        (Timeouts { head: NEVER, body: SOON, silence: NEVER }, LOGIN, "HTTP/1.1 408"),
    ];
    let check = |timeouts, said, answer: &str| {
        let node = node(timeouts);
        let slow: Vec<_> = (0..20).map(|_| begun(&node, said)).collect();
        assert_eq!(node.client(Role::Read).get("/healthz").status, 200);
        for slow in slow {
            let told = rest(slow);
            assert!(told.starts_with(answer) && told.is_empty() == answer.is_empty(), "{said}: {told}");
        }
        assert_eq!(node.client(Role::Ingest).post(b"[]", &[]).status, 200);
    };
    // Side by side: each waits for the same time to pass.
    std::thread::scope(|scope| {
        for (timeouts, said, answer) in cases {
            scope.spawn(move || check(timeouts, said, answer));
        }
    });
}

#[test]
fn who_sends_a_byte_now_and_then_is_cut_off_too() {
    for said in [EVENTS, LOGIN] {
        let node = node(Timeouts { head: NEVER, body: SOON, silence: NEVER });
        let slow = begun(&node, said);
        let mut drip = slow.try_clone().unwrap();
        let dripping = std::thread::spawn(move || {
            while drip.write_all(b" ").is_ok() {
                std::thread::sleep(SOON / 20);
            }
        });
        // The server may hang up on bytes that it has not read, which is an error here and takes the answer along.
        let (mut slow, mut answer) = (slow, Vec::new());
        let _ = slow.read_to_end(&mut answer);
        dripping.join().unwrap();
    }
}

#[test]
fn a_login_is_small_and_a_body_that_nobody_wants_is_not_waited_for() {
    let node = node(Timeouts { head: NEVER, body: NEVER, silence: NEVER });
    let large = LOGIN.replace("1000", "1000000");
    let told = rest(begun(&node, &format!("{large}{}", "x".repeat(5000))));
    assert!(told.starts_with("HTTP/1.1 413"), "{told}");
    let told = rest(begun(&node, "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"));
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
}

#[test]
fn who_announces_much_and_sends_little_takes_no_room_from_others() {
    let node = node(Timeouts { head: NEVER, body: NEVER, silence: NEVER });
    let head = "POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ingest-secret\r\n";
    let long = format!("{head}Content-Length: {}\r\n\r\n[", 8 << 20);
    let endless = format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n");
    let _slow: Vec<_> = (0..40).flat_map(|_| [begun(&node, &long), begun(&node, &endless)]).collect();
    // All of them are being read when a page is served after them.
    assert_eq!(node.client(Role::Read).get("/healthz").status, 200);
    assert_eq!(node.client(Role::Ingest).post(b"[]", &[]).status, 200);
}
