//! What one line of an agent's session file can tell: a call of the model's API, a tool call, a prompt, an API error.
//!
//! These are facts as the agent states them, before anyone decides which session owns them.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// One fact, keyed by the agent's own id for it. A key counts once per agent and kind, over all files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: String,
    pub at: Timestamp,
    /// The line says itself that it is a copy from another conversation (`forkedFrom`): it never decides ownership.
    pub copied: bool,
    /// The sub-agent that made it, by the agent's id; `None` in the main conversation.
    pub subagent: Option<String>,
    pub fact: Fact,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    Usage(Usage),
    Tool(Tool),
    Prompt,
    Error(ApiError),
}

/// One answered API call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    pub model: String,
    pub tokens: Tokens,
    /// The vendor's faster, dearer service (Claude's fast mode, priority tiers).
    pub fast: bool,
    pub request_id: Option<String>,
}

/// Token counts, disjoint but for `reasoning`, which is the part of `output` spent on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tokens {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write_5m: u64,
    pub cache_write_1h: u64,
    pub reasoning: u64,
}

impl Tokens {
    pub fn cache_write(&self) -> u64 {
        self.cache_write_5m.saturating_add(self.cache_write_1h)
    }

    /// Everything billed.
    pub fn total(&self) -> u64 {
        [self.input, self.output, self.cache_read, self.cache_write()]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Several revisions of one call: the larger output wins, then the larger sum.
    pub fn supersedes(&self, earlier: &Self) -> bool {
        (self.output, self.total()) > (earlier.output, earlier.total())
    }
}

/// One ended tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    pub name: String,
    pub ok: bool,
    pub kind: ToolKind,
    /// The file it worked on, if any. Stays on this machine; only its extension is ever sent.
    pub file: Option<String>,
    /// Further files changed by the same call. They are counted; only the first is kept with the record.
    pub further: Vec<String>,
    pub lines_added: u64,
    pub lines_removed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolKind {
    Read,
    Write,
    Edit,
    Exec,
    Other,
}

/// The API refused or failed, as the agent reports it after its own retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub status: Option<u16>,
    pub kind: String,
}
