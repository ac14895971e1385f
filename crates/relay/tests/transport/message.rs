//! HTTP/1.1 read byte by byte, so that nothing about a message is lost.

use std::io::{BufRead, Read};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The request line or the status line.
    pub start: String,
    /// As they were written, in their order.
    pub headers: Vec<(String, String)>,
    pub framing: Framing,
    /// Without the framing of chunks.
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// Whether it ended as its framing says.
    pub whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Nothing,
    Length,
    Chunked,
    UntilClose,
}

impl Message {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub fn status(&self) -> u16 {
        self.start.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// `None`: the connection ended instead.
pub fn read_request(reader: &mut impl BufRead) -> Option<Message> {
    let (start, headers) = read_head(reader)?;
    let framing = framing(&headers, Framing::Nothing);
    Some(read_body(reader, start, headers, framing))
}

/// `method`: of the request that is answered.
pub fn read_response(reader: &mut impl BufRead, method: &str) -> Option<Message> {
    let (start, headers) = read_head(reader)?;
    let status = start.split(' ').nth(1)?.to_owned();
    let bodiless = method == "HEAD" || status == "204" || status == "304" || status.starts_with('1');
    let framing = if bodiless { Framing::Nothing } else { framing(&headers, Framing::UntilClose) };
    Some(read_body(reader, start, headers, framing))
}

pub fn read_head(reader: &mut impl BufRead) -> Option<(String, Vec<(String, String)>)> {
    let start = read_line(reader)?;
    Some((start, read_fields(reader)?))
}

fn read_fields(reader: &mut impl BufRead) -> Option<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Some(fields);
        }
        let (name, value) = line.split_once(':')?;
        fields.push((name.to_owned(), value.trim_start_matches(' ').to_owned()));
    }
}

fn read_line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).ok()?;
    let line = line.strip_suffix(b"\r\n")?;
    Some(line.iter().map(|byte| char::from(*byte)).collect())
}

fn framing(headers: &[(String, String)], otherwise: Framing) -> Framing {
    let has = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    if has("transfer-encoding") {
        Framing::Chunked
    } else if has("content-length") {
        Framing::Length
    } else {
        otherwise
    }
}

fn read_body(
    reader: &mut impl BufRead,
    start: String,
    headers: Vec<(String, String)>,
    framing: Framing,
) -> Message {
    let mut message =
        Message { start, headers, framing, body: Vec::new(), trailers: Vec::new(), whole: true };
    match framing {
        Framing::Nothing => {}
        Framing::Length => {
            let length: u64 = message.header("content-length").unwrap().parse().unwrap();
            let _ = reader.take(length).read_to_end(&mut message.body);
            message.whole = message.body.len() as u64 == length;
        }
        Framing::UntilClose => {
            message.whole = reader.read_to_end(&mut message.body).is_ok();
        }
        Framing::Chunked => message.whole = read_chunks(reader, &mut message).is_some(),
    }
    message
}

fn read_chunks(reader: &mut impl BufRead, message: &mut Message) -> Option<()> {
    loop {
        let line = read_line(reader)?;
        let length = u64::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
        if length == 0 {
            message.trailers = read_fields(reader)?;
            return Some(());
        }
        let before = message.body.len();
        reader.take(length).read_to_end(&mut message.body).ok()?;
        let came = (message.body.len() - before) as u64;
        if came != length || !read_line(reader)?.is_empty() {
            return None;
        }
    }
}
