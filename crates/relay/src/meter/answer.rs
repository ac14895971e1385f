//! The meter of one answer by HTTP.

use http::HeaderMap;

use super::body::Body;
use super::unpack::Unpacker;
use super::{Api, Metered, Unread};

/// Reads the body of one answer, in pieces of any length.
#[derive(Debug)]
pub struct AnswerMeter {
    body: Unpacker<Body>,
    /// Why nothing is read any more is in `Metered`.
    stopped: bool,
    content_reported: bool,
}

/// What a piece of an answer brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    Nothing,
    /// The first byte that a model wrote: of text, of its thoughts, of a tool's input. Reported once.
    FirstContent,
}

impl AnswerMeter {
    /// For an answer with these headers. Its status makes no difference: errors are read, too.
    pub fn new(api: Api, headers: &HeaderMap) -> Self {
        match Unpacker::new(headers, Body::new(api)) {
            Ok(body) => Self { body, stopped: false, content_reported: false },
            Err(mut body) => {
                body.give_up(Unread::Encoding);
                Self { body: Unpacker::Plain(body), stopped: true, content_reported: false }
            }
        }
    }

    /// The next bytes of the body as they came, compressed or not, without the framing of chunks.
    pub fn read(&mut self, bytes: &[u8]) -> Progress {
        if !self.stopped && self.body.read(bytes).is_err() {
            self.body.get_mut().give_up(Unread::Compression);
            self.stopped = true;
        }
        if self.body.get_ref().has_content() && !std::mem::replace(&mut self.content_reported, true) {
            return Progress::FirstContent;
        }
        Progress::Nothing
    }

    /// What is known so far.
    pub fn metered(&self) -> &Metered {
        self.body.get_ref().metered()
    }

    /// No more bytes come.
    pub fn finish(self) -> Metered {
        self.body.into_inner().finish()
    }
}
