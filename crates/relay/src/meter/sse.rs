//! Server-sent events as their bytes come: the data of each event in pieces, and its end.
//!
//! Lines end with CRLF, LF or CR. An event may have several lines of data; comments and other fields are passed over. Their
//! names are not needed: the APIs repeat them in the data.

/// Who is told of events.
pub(super) trait Events {
    /// More of the event's data. Lines are joined by `\n`.
    fn data(&mut self, bytes: &[u8]);
    /// An event with data is at its end.
    fn event_ends(&mut self);
}

const FIELD: &[u8] = b"data";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// At the beginning of a line.
    Line,
    /// In the name of a field: so many characters are those of [`FIELD`].
    Name(usize),
    /// Behind the colon of data: one space may follow that is not part of it.
    Colon,
    Data,
    /// The rest of this line is passed over.
    Other,
}

#[derive(Debug)]
pub(super) struct Splitter {
    state: State,
    /// The last byte was a CR: an LF that follows belongs to it.
    after_cr: bool,
    /// The event has data.
    has_data: bool,
}

impl Default for Splitter {
    fn default() -> Self {
        Self { state: State::Line, after_cr: false, has_data: false }
    }
}

impl Splitter {
    pub(super) fn read(&mut self, mut bytes: &[u8], into: &mut impl Events) {
        while let Some((&byte, rest)) = bytes.split_first() {
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                bytes = rest;
                continue;
            }
            if byte == b'\n' || byte == b'\r' {
                self.after_cr = byte == b'\r';
                self.line_ends(into);
                bytes = rest;
                continue;
            }
            match self.state {
                State::Line | State::Name(_) => {
                    let matched = if let State::Name(matched) = self.state { matched } else { 0 };
                    self.state = match byte {
                        b':' if matched == FIELD.len() => {
                            self.data_begins(into);
                            State::Colon
                        }
                        _ if FIELD.get(matched) == Some(&byte) => State::Name(matched + 1),
                        _ => State::Other,
                    };
                    bytes = rest;
                }
                State::Colon => {
                    self.state = State::Data;
                    if byte == b' ' {
                        bytes = rest;
                    }
                }
                State::Data | State::Other => {
                    let length = memchr::memchr2(b'\n', b'\r', bytes).unwrap_or(bytes.len());
                    let (line, after) = bytes.split_at(length);
                    if self.state == State::Data {
                        into.data(line);
                    }
                    bytes = after;
                }
            }
        }
    }

    fn data_begins(&mut self, into: &mut impl Events) {
        if std::mem::replace(&mut self.has_data, true) {
            into.data(b"\n");
        }
    }

    fn line_ends(&mut self, into: &mut impl Events) {
        match std::mem::replace(&mut self.state, State::Line) {
            State::Line if std::mem::take(&mut self.has_data) => into.event_ends(),
            // The field's name alone is a line of data, and an empty one.
            State::Name(matched) if matched == FIELD.len() => self.data_begins(into),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(Vec<u8>);

    impl Events for Seen {
        fn data(&mut self, bytes: &[u8]) {
            self.0.extend_from_slice(bytes);
        }

        fn event_ends(&mut self) {
            self.0.push(b'|');
        }
    }

    #[test]
    fn events_are_split_for_every_chunking_and_every_line_end() {
        for (stream, expected) in [
            ("data: a\n\n", "a|"),
            ("data:a\n\ndata:  b\n\n", "a| b|"),
            ("event: x\nid: 1\n: comment\ndata: a\nretry: 1\n\n", "a|"),
            ("data: a\ndata: b\n\n", "a\nb|"),
            ("data\ndata: b\n\n", "\nb|"),
            ("data:\n\n", "|"),
            ("\n\n\nevent: ping\n\n: keep-alive\n\n", ""),
            ("datax: a\ndat: b\n data: c\nxdata: d\n\n", ""),
            ("data: a:b data: c\n\n", "a:b data: c|"),
            ("data: cut", "cut"),
            ("data: cut\n", "cut"),
        ] {
            for end in ["\n", "\r", "\r\n"] {
                let stream = stream.replace('\n', end);
                for size in 1..=stream.len() {
                    let (mut splitter, mut seen) = (Splitter::default(), Seen::default());
                    stream.as_bytes().chunks(size).for_each(|piece| splitter.read(piece, &mut seen));
                    assert_eq!(String::from_utf8(seen.0).unwrap(), expected, "{stream:?} by {size}");
                }
            }
        }
    }
}
