//! Connections that end early: each end learns of the other's end at once, and nothing is sent twice.

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use relay::CallEnd;

use crate::message::{read_head, read_request, read_response};
use crate::served::{Open, PATIENCE, SECRET, SEVERAL, before, connect, serve_on, settings, upstream};
use crate::traps::ask;

#[test]
fn an_agent_that_goes_away_cancels_the_request_before_its_answer() {
    let (gone, is_gone) = channel();
    let (came, has_come) = channel();
    let (gone, came) = (Mutex::new(gone), Mutex::new(came));
    let address = upstream(move |stream, _| {
        let mut reader = BufReader::new(stream);
        read_request(&mut reader).unwrap();
        came.lock().unwrap().send(()).unwrap();
        // Nothing is written: only the end of the connection can end this.
        gone.lock().unwrap().send(reader.read(&mut [0]).unwrap_or(0)).unwrap();
    });
    let served = before(address);
    let stream = served.connect();
    (&stream)
        .write_all(
            format!("POST /{SECRET}/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx")
                .as_bytes(),
        )
        .unwrap();
    has_come.recv_timeout(PATIENCE).unwrap();
    drop(stream);
    assert_eq!(is_gone.recv_timeout(PATIENCE).unwrap(), 0);
    assert_eq!(served.call().end, CallEnd::ClientGone);
    served.join();
}

#[test]
fn an_agent_that_goes_away_cancels_a_silent_stream() {
    leave_silent_stream(|_| {});
}

/// As the kernel does it for any program that closes its connection: the end of file is sent first, and for a moment the socket is
/// still listed as the program's.
#[test]
fn an_agent_that_goes_away_after_its_end_of_file_cancels_a_silent_stream() {
    leave_silent_stream(|stream| stream.shutdown(Shutdown::Write).unwrap());
}

/// `first`: what the agent does when it has asked.
fn leave_silent_stream(first: impl Fn(&TcpStream)) {
    let (gone, is_gone) = channel();
    let gone = Mutex::new(gone);
    let address = upstream(move |stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_request(&mut reader).unwrap();
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n.\r\n").unwrap();
        gone.lock().unwrap().send(reader.read(&mut [0]).unwrap_or(0)).unwrap();
    });
    let served = before(address);
    let stream = served.connect();
    (&stream)
        .write_all(
            format!("POST /{SECRET}/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx")
                .as_bytes(),
        )
        .unwrap();
    first(&stream);
    let mut reader = BufReader::new(&stream);
    read_head(&mut reader).unwrap();
    reader.read_exact(&mut [0; 6]).unwrap();
    drop(stream);
    assert_eq!(is_gone.recv_timeout(PATIENCE).unwrap(), 0);
    let call = served.call();
    assert_eq!((call.end, call.status), (CallEnd::ClientGone, Some(200)));
    served.join();
}

/// The end of its connection is not read, because nothing is: the upstream takes no more of the request.
#[test]
fn an_agent_that_goes_away_cancels_a_request_that_nobody_takes() {
    let (came, has_come) = channel();
    let (end, ended) = channel::<()>();
    let (came, ended) = (Mutex::new(came), Mutex::new(ended));
    let address = upstream(move |stream, _| {
        read_head(&mut BufReader::new(&stream)).unwrap();
        came.lock().unwrap().send(()).unwrap();
        let _ = ended.lock().unwrap().recv();
    });
    let served = before(address);
    let stream = served.connect();
    let head =
        format!("POST /{SECRET}/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", u32::MAX);
    (&stream).write_all(head.as_bytes()).unwrap();
    has_come.recv_timeout(PATIENCE).unwrap();
    stream.set_nonblocking(true).unwrap();
    let piece = vec![b'q'; 1 << 20];
    // As much as the buffers on the way take in.
    while (&stream).write(&piece).is_ok() {}
    drop(stream);
    assert_eq!(served.call().end, CallEnd::ClientGone);
    drop(end);
    served.join();
}

/// Many agents at once, and two threads that pass bytes on: each agent goes away at another moment of its answer.
#[test]
fn agents_that_go_away_at_any_moment_cancel_their_requests() {
    const AGENTS: usize = 24;
    const REQUESTS: usize = 12;
    let (gone, is_gone) = channel();
    let gone = Mutex::new(gone);
    let address = upstream(move |stream, number| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(request) = read_request(&mut reader) {
            (&stream).write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n.\r\n").unwrap();
            if request.text().ends_with("whole") {
                (&stream).write_all(b"0\r\n\r\n").unwrap();
                continue;
            }
            for _ in 0..number % 7 {
                // The agent may have gone already.
                let _ = (&stream).write_all(b"5\r\npiece\r\n");
                std::thread::yield_now();
            }
            let _ = gone.lock().unwrap().send(reader.read(&mut [0]).unwrap_or(0));
            return;
        }
    });
    let served = serve_on(SEVERAL, settings(&format!("http://{address}")), Arc::new(Open));
    let at = served.address;
    let agents: Vec<_> = (0..AGENTS)
        .map(|agent| {
            std::thread::spawn(move || {
                for turn in 0..REQUESTS {
                    let stream = connect(at);
                    let body = "x".repeat(1 + 9_000 * (turn % 5));
                    if turn % 2 == 0 {
                        send(&stream, &format!("{body}whole"));
                        read_response(&mut BufReader::new(&stream), "POST").unwrap();
                    }
                    send(&stream, &body);
                    let mut reader = BufReader::new(&stream);
                    read_head(&mut reader).unwrap();
                    reader.read_exact(&mut [0; 6]).unwrap();
                    for _ in 0..(agent * turn) % 13 {
                        std::thread::yield_now();
                    }
                    if (agent + turn) % 3 == 0 {
                        stream.shutdown(Shutdown::Write).unwrap();
                    }
                }
            })
        })
        .collect();
    for agent in agents {
        agent.join().unwrap();
    }
    for left in (1..=AGENTS * REQUESTS).rev() {
        assert_eq!(is_gone.recv_timeout(PATIENCE), Ok(0), "{left} requests live on");
    }
    served.join();
}

fn send(stream: &TcpStream, body: &str) {
    let mut stream = stream;
    let length = body.len();
    stream
        .write_all(
            format!(
                "POST /{SECRET}/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        )
        .unwrap();
}

#[test]
fn an_upstream_that_breaks_off_breaks_the_agents_connection() {
    for answer in [
        &b""[..],
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\n12345",
    ] {
        let address = upstream(move |stream, _| {
            read_request(&mut BufReader::new(stream.try_clone().unwrap())).unwrap();
            (&stream).write_all(answer).unwrap();
            stream.shutdown(Shutdown::Both).unwrap();
        });
        let served = before(address);
        let stream = served.connect();
        (&stream)
            .write_all(
                format!("POST /{SECRET}/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx")
                    .as_bytes(),
            )
            .unwrap();
        let shown = String::from_utf8_lossy(answer);
        match read_response(&mut BufReader::new(&stream), "POST") {
            None => assert!(!answer.ends_with(b"12345") && !answer.ends_with(b"12345\r\n"), "{shown}"),
            Some(came) => {
                assert!(!came.whole, "a broken answer looked whole: {shown}");
                assert_eq!(came.text(), "12345", "{shown}");
            }
        }
        assert_eq!(served.call().end, CallEnd::UpstreamGone, "{shown}");
        served.join();
    }
}

#[test]
fn a_request_that_may_have_arrived_is_not_sent_again() {
    // The first request is answered. The second arrives on the same connection, which then breaks.
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let address = upstream(move |stream, number| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while read_request(&mut reader).is_some() {
            if counted.fetch_add(1, Ordering::SeqCst) == 1 {
                stream.shutdown(Shutdown::Both).unwrap();
                return;
            }
            (&stream)
                .write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}").as_bytes())
                .unwrap();
        }
    });
    let served = before(address);
    let request = "POST /SECRET/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx";
    assert_eq!(ask(&served.connect(), request).text(), "0");
    assert_eq!(served.call().end, CallEnd::Complete);
    let stream = served.connect();
    (&stream).write_all(request.replace("SECRET", SECRET).as_bytes()).unwrap();
    assert!(read_response(&mut BufReader::new(&stream), "POST").is_none(), "the agent learns that it broke");
    assert_eq!(served.call().end, CallEnd::UpstreamGone);
    assert_eq!(count.load(Ordering::SeqCst), 2);
    served.join();
}

#[test]
fn connections_that_the_upstream_closed_while_idle_are_not_used() {
    let (closed, is_closed) = channel();
    let closed = Mutex::new(closed);
    let address = upstream(move |stream, _| {
        read_request(&mut BufReader::new(stream.try_clone().unwrap())).unwrap();
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
        closed.lock().unwrap().send(()).unwrap();
    });
    let served = before(address);
    let stream = served.connect();
    for _ in 0..200 {
        let answer =
            ask(&stream, "POST /SECRET/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx");
        assert_eq!(answer.text(), "ok");
        is_closed.recv_timeout(PATIENCE).unwrap();
    }
    served.join();
}

#[test]
fn an_idle_connection_that_the_upstream_closes_is_closed() {
    let (closed, is_closed) = channel();
    let closed = Mutex::new(closed);
    let address = upstream(move |stream, _| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        read_request(&mut reader).unwrap();
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        closed.lock().unwrap().send(reader.read(&mut [0]).unwrap_or(0)).unwrap();
    });
    let served = before(address);
    let stream = served.connect();
    ask(&stream, &format!("POST /{SECRET}/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"));
    assert_eq!(is_closed.recv_timeout(PATIENCE), Ok(0));
    drop(stream);
    served.join();
}

#[test]
fn connections_are_used_again() {
    let connections = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let address = upstream(move |stream, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(request) = read_request(&mut reader) {
            let trailers = if request.header("te").is_some() { "x-sum: 7\r\n" } else { "" };
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n";
            (&stream).write_all(format!("{head}2\r\nok\r\n0\r\n{trailers}\r\n").as_bytes()).unwrap();
        }
    });
    let served = before(address);
    for end in [
        "content-length: 1\r\n\r\nx",
        "te: trailers\r\ncontent-length: 1\r\n\r\nx",
        "transfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n1\r\nx\r\n0\r\nx-sum: 1\r\n\r\n",
    ] {
        for _ in 0..20 {
            let request = format!("POST /SECRET/v1/messages HTTP/1.1\r\nhost: x\r\n{end}");
            assert_eq!(ask(&served.connect(), &request).text(), "ok");
            let call = served.call();
            assert_eq!(call.end, CallEnd::Complete, "{end:?}");
            assert_eq!(call.request.body.as_deref(), Some(b"x".as_slice()), "{end:?}");
        }
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    served.join();
}

#[test]
fn the_end_of_the_listener_waits_for_what_is_open() {
    let (proceed, may_proceed) = channel::<()>();
    let may_proceed = Mutex::new(may_proceed);
    let address = upstream(move |stream, _| {
        read_request(&mut BufReader::new(stream.try_clone().unwrap())).unwrap();
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n1").unwrap();
        may_proceed.lock().unwrap().recv().unwrap();
        (&stream).write_all(b"2").unwrap();
    });
    let mut served = before(address);
    let stream = served.connect();
    (&stream).write_all(format!("GET /{SECRET}/ HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).unwrap();
    let mut reader = BufReader::new(&stream);
    read_head(&mut reader).unwrap();
    assert_eq!((served.activity.connections(), served.activity.exchanges()), (1, 1));
    served.stop();
    proceed.send(()).unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "12");
    let activity = served.activity.clone();
    served.join();
    assert_eq!((activity.connections(), activity.exchanges()), (0, 0));
}

#[cfg(target_os = "linux")]
#[test]
fn an_agent_that_only_stops_sending_gets_its_answer() {
    let (proceed, may_proceed) = channel::<()>();
    let (came, has_come) = channel();
    let (may_proceed, came) = (Mutex::new(may_proceed), Mutex::new(came));
    let address = upstream(move |stream, _| {
        read_request(&mut BufReader::new(stream.try_clone().unwrap())).unwrap();
        came.lock().unwrap().send(()).unwrap();
        may_proceed.lock().unwrap().recv().unwrap();
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n1").unwrap();
        may_proceed.lock().unwrap().recv().unwrap();
        (&stream).write_all(b"2").unwrap();
    });
    let served = before(address);
    let stream = served.connect();
    let request = format!("POST /{SECRET}/x HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx");
    (&stream).write_all(request.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    has_come.recv_timeout(PATIENCE).unwrap();
    proceed.send(()).unwrap();
    let mut reader = BufReader::new(&stream);
    read_head(&mut reader).unwrap();
    proceed.send(()).unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "12", "and the proxy closes its side after it");
    assert_eq!(served.call().end, CallEnd::Complete);
    served.join();
}

#[test]
fn a_request_that_breaks_off_breaks_off_upstream() {
    let (seen, came) = channel();
    let seen = Mutex::new(seen);
    let address = upstream(move |stream, _| {
        let request = read_request(&mut BufReader::new(stream)).unwrap();
        seen.lock().unwrap().send(request).unwrap();
    });
    let served = before(address);
    for framing in ["content-length: 10\r\n\r\n12345", "transfer-encoding: chunked\r\n\r\n5\r\n12345\r\n"] {
        let stream = served.connect();
        (&stream).write_all(format!("POST /{SECRET}/x HTTP/1.1\r\nhost: x\r\n{framing}").as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let request = came.recv_timeout(PATIENCE).unwrap();
        assert!(!request.whole, "half a request looked whole");
        assert_eq!(request.text(), "12345");
        served.call();
    }
    served.join();
}

#[cfg(target_os = "linux")]
#[test]
fn another_user_is_not_served() {
    use std::os::unix::process::CommandExt;
    let (address, requests) = crate::served::answering(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    let served = before(address);
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{} && printf 'GET /{SECRET}/ HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n' >&3 && head -n 1 <&3",
        served.address.port()
    );
    let run = |uid: Option<u32>| {
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &script]).current_dir("/");
        if let Some(uid) = uid {
            command.uid(uid);
        }
        command.output().map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(run(None).unwrap().trim_end(), "HTTP/1.1 200 OK");
    requests.recv_timeout(PATIENCE).unwrap();
    // Only root can be another user, and not in every sandbox.
    if let Ok(answer) = run(Some(65_534)) {
        assert_eq!(answer, "", "another user was answered");
        assert!(requests.try_recv().is_err());
    }
    served.join();
}

#[test]
fn all_that_came_before_a_break_arrives() {
    let sent: Vec<u8> = (0..2_000_000).map(|_| fastrand::u8(..)).collect();
    let bytes = sent.clone();
    let address = upstream(move |stream, _| {
        read_request(&mut BufReader::new(stream.try_clone().unwrap())).unwrap();
        (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3000000\r\n\r\n").unwrap();
        (&stream).write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    });
    let served = before(address);
    let stream = served.connect();
    (&stream)
        .write_all(
            format!("POST /{SECRET}/v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n").as_bytes(),
        )
        .unwrap();
    // The upstream is gone long before the agent reads.
    while served.activity.exchanges() == 0 {
        std::thread::yield_now();
    }
    let came = read_response(&mut BufReader::new(&stream), "POST").unwrap();
    assert!(!came.whole);
    assert_eq!(came.body.len(), sent.len());
    assert!(came.body == sent);
    assert_eq!(served.call().end, CallEnd::UpstreamGone);
    served.join();
}
