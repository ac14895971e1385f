//! What a call used, read from a copy of its bytes. Pure: bytes in, numbers out; no panic and bounded memory for any input.
//!
//! ```text
//! bytes of an answer ─ unpack ─ body ─┬─ server-sent events ─┬─ json: scalars by path ─ api: Metered
//! bytes of a WebSocket ─ frames ──────┴─ documents ──────────┘
//! ```
//!
//! Nothing is collected: [`json`] reports single values by their path while bytes pass, so an event may be of any length (the
//! last event of OpenAI's Responses repeats the whole answer) and a reader takes some kilobytes all the same.

mod answer;
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

use pricing::tier::Tier;
use types::Tokens;

pub use answer::{AnswerMeter, Progress};
pub use paths::{api_of, plain_path};
pub use quotas::{openai as openai_quota, quotas};
pub use socket::{Moment, SocketMeter};
pub use unpack::unpacked;

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
