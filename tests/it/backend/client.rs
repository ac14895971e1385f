//! A small HTTP client: one request per connection, everything of the answer kept.
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
}

impl Client {
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], &[]).unwrap()
    }

    pub(crate) fn post(&self, body: &[u8], headers: &[(&str, &str)]) -> Answer {
        self.ask("POST", "/v1/events", headers, body).unwrap()
    }

    pub(crate) fn post_events(&self, events: &[Value]) -> Answer {
        self.post(&serde_json::to_vec(events).unwrap(), &[])
    }

    /// An error if the connection broke before the whole answer was there.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Answer> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        if !self.token.is_empty() {
            write!(head, "Authorization: Bearer {}\r\n", self.token).unwrap();
        }
        if !headers.iter().any(|(name, _)| *name == "Content-Length" || *name == "Transfer-Encoding") {
            write!(head, "Content-Length: {}\r\n", body.len()).unwrap();
        }
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        // The server may refuse before it has read everything.
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let outcome = stream.read_to_end(&mut answer);
        let cut = || std::io::Error::other("the answer was cut off");
        let end = memchr::memmem::find(&answer, b"\r\n\r\n").ok_or_else(cut)?;
        let headers = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = headers.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
        let answer = Answer { status, headers, body: answer[end + 4..].to_vec() };
        match answer.header("content-length").and_then(|length| length.parse::<usize>().ok()) {
            Some(length) if length != answer.body.len() => Err(cut()),
            Some(_) => Ok(answer),
            None => outcome.map(|_| answer),
        }
    }
}
