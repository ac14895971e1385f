//! What one line of a conversation can record: a call of the model's API, a tool call, a prompt, an API error.
//!
//! These are facts as the agent states them, before anyone decides which session owns them.

use pricing::tier::Tier;
use serde::{Deserialize, Serialize};
use types::{MAX_COUNT, Timestamp, Tokens, ToolKind};

/// The longest key; the agents' own have some forty characters.
pub const LONGEST_KEY: usize = 512;
/// The longest name or id of anything else; a cloud's name for a model has some hundred characters.
const LONGEST_NAME: usize = 256;

/// One fact, keyed by the agent's own id for it. A key counts once per agent and kind, over all files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: String,
    pub at: Timestamp,
    /// The line is marked as a copy from another conversation (`forkedFrom`): it never decides ownership.
    pub copied: bool,
    /// The sub-agent that made it, by the agent's id; `None` in the main conversation.
    pub subagent: Option<String>,
    pub fact: Fact,
}

impl Record {
    /// Whether an agent can have meant it. A longer or larger value would be kept for good, added to every sum and sent on.
    pub fn is_plausible(&self) -> bool {
        let named = match &self.fact {
            Fact::Usage(usage) => {
                usage.tokens.is_plausible() && is_name(&usage.model) && usage.request_id.iter().all(is_name)
            }
            Fact::Tool(tool) => is_name(&tool.name) && tool.lines_added.max(tool.lines_removed) <= MAX_COUNT,
            Fact::Error(error) => is_name(&error.kind),
            Fact::Prompt => true,
        };
        named && self.key.len() <= LONGEST_KEY && self.subagent.iter().all(is_name) && self.at.is_a_date()
    }

    /// Of a model or tool that is named by its file (as servers of local models do) the last part stays, behind a mark: it is for this
    /// machine alone, and what is sent is no name with such a mark ([`types::redact`]).
    pub fn strip_paths(&mut self) {
        let name = match &mut self.fact {
            Fact::Usage(usage) => &mut usage.model,
            Fact::Tool(tool) => &mut tool.name,
            Fact::Prompt | Fact::Error(_) => return,
        };
        let of_a_drive = || name.len() > 2 && name.is_char_boundary(1) && name[1..].starts_with(":\\");
        if name.starts_with(['/', '~', '\\']) || name.starts_with("file:") || of_a_drive() {
            let part = name.split(['/', '\\']).rfind(|part| !part.is_empty()).unwrap_or_default();
            *name =
                if part.is_empty() { String::new() } else { format!("{}{part}", types::redact::FILE_MARK) };
        }
    }
}

fn is_name(name: impl AsRef<str>) -> bool {
    name.as_ref().len() <= LONGEST_NAME
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    Usage(Usage),
    Tool(Tool),
    Prompt,
    Error(ApiError),
}

types::row! {
    /// One answered API call.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Usage {
        pub model: String,
        pub tokens: Tokens [row],
        pub tier: Tier = "fast" as Option<i64> => Tier::stored,
        pub request_id: Option<String>,
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

types::row! {
    /// The API refused or failed, as the agent reports it after its own retries.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ApiError {
        pub status: Option<u16> = "error_status",
        pub kind: String = "error_kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(change: impl FnOnce(&mut Record, &mut Usage)) -> Record {
        let mut usage = Usage {
            model: "claude-opus-4-8".into(),
            tokens: Tokens { input: 10_000_000, ..Tokens::default() },
            tier: Tier::Standard,
            request_id: Some("req_1".into()),
        };
        let mut record = Record {
            key: "msg_1".into(),
            at: Timestamp(0),
            copied: false,
            subagent: Some("a1".into()),
            fact: Fact::Prompt,
        };
        change(&mut record, &mut usage);
        record.fact = Fact::Usage(usage);
        record
    }

    #[test]
    fn paths_are_removed_from_names() {
        for (name, kept) in [
            ("claude-opus-4-8", "claude-opus-4-8"),
            ("anthropic/claude-opus-4-8", "anthropic/claude-opus-4-8"),
            ("/home/dev/secret/model.gguf", "…/model.gguf"),
            ("~/models/llama/", "…/llama"),
            ("file:///srv/m.gguf", "…/m.gguf"),
            ("C:\\models\\m.gguf", "…/m.gguf"),
            ("\\\\server\\share\\m", "…/m"),
            ("…/m", "…/m"),
            ("/", ""),
            ("é:", "é:"),
        ] {
            let mut record = call(|_, usage| usage.model = name.into());
            record.strip_paths();
            let Fact::Usage(usage) = record.fact else { panic!() };
            assert_eq!(usage.model, kept, "{name}");
            let is_path = kept.starts_with(types::redact::FILE_MARK);
            assert!(!is_path || types::redact::model(kept) == "other", "no file's name is sent");
        }
    }

    #[test]
    fn implausible_records_are_recognised() {
        let long = |length: usize| "x".repeat(length);
        let good = [
            call(|_, _| {}),
            call(|record, _| record.key = long(512)),
            call(|_, usage| usage.model = long(256)),
            call(|_, usage| usage.tokens.output = 1 << 40),
        ];
        let bad = [
            call(|record, _| record.key = long(513)),
            call(|record, _| record.subagent = Some(long(257))),
            call(|_, usage| usage.model = long(257)),
            call(|_, usage| usage.request_id = Some(long(257))),
            call(|record, _| record.at = Timestamp(-1)),
            call(|_, usage| usage.tokens.input = u64::MAX),
            call(|_, usage| usage.tokens.cache_write_1h = (1 << 40) + 1),
        ];
        assert!(good.iter().all(Record::is_plausible));
        for record in bad {
            assert!(!record.is_plausible(), "{record:?}");
        }
    }
}
