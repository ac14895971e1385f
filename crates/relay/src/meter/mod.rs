//! What a call used, read from a copy of its bytes. Pure: bytes in, numbers out; no panic and bounded memory for any input.
//!
//! ```text
//! bytes of an answer ─ unpack ─ body ─┬─ server-sent events ─┬─ json: scalars by path ─ api: Metered
//! bytes of a WebSocket ─ frames ──────┴─ documents ──────────┘
//! ```
//!
//! Nothing is collected: [`json`] reports single values by their path while bytes pass, so an event may be of any length (the
//! last event of OpenAI's Responses repeats the whole answer) and a reader takes some kilobytes all the same.

use body::Body;
use http::HeaderMap;
pub use paths::{api_of, plain_path};
pub use quotas::{openai as openai_quota, quotas};
pub use socket::{Moment, SocketMeter};
use unpack::Unpacker;
pub use unpack::unpacked;

use pricing::tier::Tier;
use types::Tokens;

mod api;
mod body;
mod frames;
#[cfg(test)]
mod fuzz_tests;
mod json;
mod paths;
mod quotas;
mod socket;
mod sse;
mod unpack;

/// The forms of calls that can be metered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Anthropic Messages: server-sent events or one document.
    Messages,
    /// OpenAI Responses: server-sent events, one document, or messages of a WebSocket.
    Responses,
    /// OpenAI Chat Completions.
    ChatCompletions,
    /// Gemini's generateContent and streamGenerateContent.
    Gemini,
}

/// What was read of one call so far. The last usage wins; an aborted stream keeps what it had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metered {
    /// The API's id of the answer: the key that the agent's own file has for the call, where it has one.
    pub response_id: Option<String>,
    pub model: Option<String>,
    /// `None`: no usage was reported.
    pub tokens: Option<Tokens>,
    pub tier: Tier,
    /// The answer reported its own end, and its numbers are final. A document is at its end when it is closed, an error, too;
    /// an error in the middle of a stream is no end.
    pub finished: bool,
    /// The kind of an error that the API reported (`overloaded_error`, `rate_limit_exceeded`).
    pub error: Option<String>,
    /// Why bytes of the answer were not read, where that is so: the numbers may be too small.
    pub unread: Option<Unread>,
}

/// Why bytes were not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// They are compressed in a way that is not known here.
    Encoding,
    /// They cannot be decompressed.
    Compression,
    /// They became more than any answer is, decompressed.
    TooLong,
    /// They are neither JSON nor events of JSON, or no frames of a WebSocket.
    Form,
    /// A number of the usage is none: negative, a fraction, a text, or larger than any.
    Number,
}

// The meter of one answer by HTTP.

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
