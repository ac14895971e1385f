//! As much HTTP/1.1 as the agents speak to a model API and codemie to a receiver: one request per connection, answered as JSON or as a stream
//! of server-sent events in chunks, so that the agent can tell a finished stream from a broken one.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// An agent that stops sending in the middle of a request holds its thread no longer than this.
const STALLED: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    /// The lines of the head after the first, as they came.
    pub(crate) head: Vec<String>,
    /// The body as it came.
    pub(crate) bytes: Vec<u8>,
    pub(crate) body: Value,
}

impl Request {
    /// Reads one request; `None` when the peer closed without sending one.
    pub(crate) fn read(stream: &TcpStream) -> io::Result<Option<Self>> {
        stream.set_read_timeout(Some(STALLED))?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split_ascii_whitespace().map(str::to_owned);
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("not a request line: {line:?}")));
        };
        let (mut headers, mut head) = (Vec::new(), Vec::new());
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            head.push(line.trim_end().to_owned());
        }
        let mut request = Self { method, target, headers, head, bytes: Vec::new(), body: Value::Null };
        request.bytes = match (request.header("content-length"), request.header("transfer-encoding")) {
            (Some(length), _) => {
                let mut body = vec![0; length.parse().map_err(io::Error::other)?];
                reader.read_exact(&mut body)?;
                body
            }
            (None, Some("chunked")) => read_chunks(&mut reader)?,
            _ => Vec::new(),
        };
        request.body = serde_json::from_slice(&request.bytes).unwrap_or_default();
        Ok(Some(request))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}

fn read_chunks(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
        let start = body.len();
        body.resize(start + size, 0);
        reader.read_exact(&mut body[start..])?;
        reader.read_line(&mut String::new())?;
        if size == 0 {
            return Ok(body);
        }
    }
}

pub(crate) fn respond(stream: &mut TcpStream, status: u16, body: &Value) -> io::Result<()> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    // The reason phrase means nothing to a client; retry-after keeps the agents' own back-off short.
    write!(
        stream,
        "HTTP/1.1 {status} Answer\r\ncontent-type: application/json\r\ncontent-length: {}\r\nretry-after: 0\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    stream.flush()
}

/// A stream of server-sent events under way.
#[derive(Debug)]
pub(crate) struct Events<'a> {
    stream: &'a mut TcpStream,
    named: bool,
}

impl<'a> Events<'a> {
    /// `named`: each event carries its `type` in an `event:` line, as Anthropic's and OpenAI's do and Google's do not.
    pub(crate) fn begin(stream: &'a mut TcpStream, named: bool) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
        )?;
        Ok(Self { stream, named })
    }

    pub(crate) fn send(&mut self, event: &Value) -> io::Result<()> {
        let name = event["type"].as_str().filter(|_| self.named);
        let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        self.send_chunk(&format!("{name}data: {event}\n\n"))
    }

    /// An event that is no JSON.
    pub(crate) fn send_data(&mut self, data: &str) -> io::Result<()> {
        self.send_chunk(&format!("data: {data}\n\n"))
    }

    fn send_chunk(&mut self, text: &str) -> io::Result<()> {
        write!(self.stream, "{:x}\r\n{text}\r\n", text.len())
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        self.stream.write_all(b"0\r\n\r\n")
    }

    /// Whether the agent hung up: it sends nothing while it reads a stream, so end of file is the only news there is.
    pub(crate) fn hung_up(&self) -> bool {
        let set = self.stream.set_read_timeout(Some(Duration::from_millis(1)));
        set.is_err() || matches!(self.stream.peek(&mut [0]), Ok(0))
    }
}

/// Sends one request to `http://host:port` and reads the whole answer: status, headers, body.
pub(crate) fn ask(
    at: &str,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> io::Result<(u16, String, Vec<u8>)> {
    let mut stream = TcpStream::connect(at.trim_start_matches("http://"))?;
    let host = at.trim_start_matches("http://");
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
    for (name, value) in headers {
        if !matches!(name.as_str(), "host" | "connection" | "content-length") {
            head.extend([name.as_str(), ": ", value.as_str(), "\r\n"]);
        }
    }
    write!(stream, "{head}content-length: {}\r\n\r\n", body.len())?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let cut = || io::Error::other("the answer was cut off");
    let end = memchr::memmem::find(&answer, b"\r\n\r\n").ok_or_else(cut)?;
    let headers = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = headers.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
    Ok((status, headers, answer[end + 4..].to_vec()))
}
