//! What the lines of a session file mean.
//!
//! - An answered call is a `gemini` message with tokens, keyed by its id. The message is written again when its tools have
//!   ended, and with all others whenever the history changes (`$set.messages`), so a key comes many times. Messages that
//!   were rewound or compressed away were paid for all the same.
//! - A tool call is part of the message that asked for it ([`super::tools`]).
//! - A prompt is a `user` message of its own line, keyed by its id. `/chat resume` writes old messages again under new ids:
//!   such a sequence begins with the program's own context on a line of its own and ends with the next `$set.messages`.
//! - An API error is an `error` message that names one; the agent writes its other errors there, too.
//! - Only the first line names the conversation, and whether it is a sub-agent's; so both are remembered.

use memchr::memmem::Finder;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::shape::{self, Line, Text};
use super::tools::Call;
use crate::meter::line::{Lines, ParsedLines, Unreadable};
use crate::meter::record::{ApiError, Fact, Record, Usage};
use crate::meter::title::{Title, TitleSource};
use pricing::tier::Tier;
use types::AgentSessionId;
use types::Timestamp;
use types::Tokens;

/// Reads one session file, or one sub-agent's file.
#[derive(Debug, Default)]
pub struct GeminiLines {
    memory: Memory,
    /// Only lines that can hold usage are parsed.
    usage_only: Option<Box<Finder<'static>>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Memory {
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    subagent: bool,
    /// Old messages are being written again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    again: bool,
}

impl Memory {
    fn recall(state: Option<&str>) -> Self {
        state.and_then(|state| serde_json::from_str(state).ok()).unwrap_or_default()
    }
}

impl GeminiLines {
    /// All records. `state` is what [`Lines::state`] gave at the position where reading goes on.
    pub fn new(state: Option<&str>) -> Self {
        Self { memory: Memory::recall(state), usage_only: None }
    }

    /// Answered calls alone, for scanning many files fast. Other lines are passed over unparsed, so they are unreadable
    /// only if they do not look like JSON objects.
    pub fn usage_only(state: Option<&str>) -> Self {
        Self { memory: Memory::recall(state), usage_only: Some(Box::new(Finder::new("\"tokens\""))) }
    }
}

impl Lines for GeminiLines {
    fn read(&mut self, line: &[u8], into: &mut ParsedLines) -> Result<(), Unreadable> {
        let bytes = line.trim_ascii();
        if bytes.is_empty() {
            return Ok(());
        }
        if !(bytes.starts_with(b"{") && bytes.ends_with(b"}")) {
            return Err(Unreadable::Shape("not a JSON object"));
        }
        if let Some(tokens) = &self.usage_only
            && tokens.find(bytes).is_none()
            && !bytes.starts_with(b"{\"sessionId\"")
        {
            return Ok(());
        }
        let line: Line = serde_json::from_slice(bytes)?;
        self.note_facts(&line, into);
        let replayed = line.messages.as_deref().or(line.set.as_ref().and_then(|set| set.messages.as_deref()));
        if let Some(messages) = replayed {
            self.memory.again = false;
            return self.replay(messages, into);
        }
        if line.id.0.is_some() {
            self.message(&line, MessageOrigin::Line, into);
        }
        Ok(())
    }

    fn state(&self) -> Option<String> {
        if self.memory == Memory::default() { None } else { serde_json::to_string(&self.memory).ok() }
    }

    fn forget(&mut self) {
        self.memory = Memory::default();
    }
}

/// How a message was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageOrigin {
    Line,
    /// Among all messages, written again.
    Replay,
}

impl GeminiLines {
    /// One message that cannot be read makes the line unreadable, but not the others.
    fn replay(&mut self, messages: &[&RawValue], into: &mut ParsedLines) -> Result<(), Unreadable> {
        let mut broken = Ok(());
        for raw in messages {
            match serde_json::from_str::<Line>(raw.get()) {
                Ok(message) => self.message(&message, MessageOrigin::Replay, into),
                Err(error) => broken = Err(error.into()),
            }
        }
        broken
    }

    fn message(&mut self, message: &Line, origin: MessageOrigin, into: &mut ParsedLines) {
        let Some(id) = message.id.0.as_deref() else { return };
        let at = time(&message.timestamp);
        let subagent = self.memory.session.as_deref().filter(|_| self.memory.subagent);
        let record = |fact: Fact| Record {
            key: id.to_owned(),
            at,
            copied: false,
            subagent: subagent.map(str::to_owned),
            fact,
        };
        match message.speaker.0.as_deref() {
            Some("gemini") => {
                if let Some(tokens) = &message.tokens {
                    into.records.push(record(Fact::Usage(Usage {
                        model: message.model.0.as_deref().unwrap_or_default().to_owned(),
                        tokens: disjoint(tokens),
                        tier: Tier::Standard,
                        request_id: None,
                    })));
                }
                if self.usage_only.is_none() {
                    let calls = message.tool_calls.iter().flatten().filter_map(|raw| Call::of(raw));
                    into.records.extend(calls.filter_map(|call| call.record(id, subagent, at)));
                }
            }
            _ if self.usage_only.is_some() || origin == MessageOrigin::Replay => {}
            Some("user") => {
                let texts = message.content.map(shape::texts).unwrap_or_default();
                let context = texts.first().is_some_and(|text| shape::is_context(text));
                if !context
                    && !self.memory.again
                    && !self.memory.subagent
                    && let Some(prompt) = message.prompt()
                {
                    into.records.push(record(Fact::Prompt));
                    into.note_title(Title::of_prompt(&prompt));
                }
                self.memory.again |= context;
            }
            Some("error") => {
                let error = message.content.map(shape::texts).and_then(|texts| api_error(&texts.concat()));
                into.records.extend(error.map(|error| record(Fact::Error(error))));
            }
            _ => {}
        }
    }

    fn note_facts(&mut self, line: &Line, into: &mut ParsedLines) {
        if let Some(session) = line.session_id.0.as_deref() {
            self.memory.session = Some(session.to_owned());
            self.memory.subagent = line.kind.0.as_deref() == Some("subagent");
        }
        if into.facts.session.as_ref().map(|known| known.0.as_str()) != self.memory.session.as_deref() {
            into.facts.session = self.memory.session.clone().map(AgentSessionId);
        }
        let summary = line.set.as_ref().and_then(|set| set.summary.0.as_ref()).or(line.summary.0.as_ref());
        if let Some(summary) = summary.filter(|_| self.usage_only.is_none() && !self.memory.subagent) {
            into.note_title(Title::given(TitleSource::Agent, summary));
        }
        for text in [&line.timestamp, &line.start_time] {
            if let Some(at) = text.0.as_deref().and_then(Timestamp::parse) {
                into.facts.saw(at);
            }
        }
    }
}

/// Zero where the message names none (none was ever seen).
fn time(text: &Text) -> Timestamp {
    text.0.as_deref().and_then(Timestamp::parse).unwrap_or_default()
}

/// Its input includes cached tokens, but not those of tools in the prompt; its output does not include thoughts.
fn disjoint(tokens: &shape::Tokens) -> Tokens {
    let count = |count: Option<u64>| count.unwrap_or(0);
    let cached = count(tokens.cached);
    Tokens {
        input: count(tokens.input).saturating_sub(cached).saturating_add(count(tokens.tool)),
        output: count(tokens.output).saturating_add(count(tokens.thoughts)),
        cache_read: cached,
        cache_write_5m: 0,
        cache_write_1h: 0,
        reasoning: count(tokens.thoughts),
    }
}

/// An error of the API, by the agent's text for it; `None`: another error. Only the API's name for the error is kept, never
/// its text.
fn api_error(text: &str) -> Option<ApiError> {
    const WITHOUT_ANSWER: [(&str, &str); 2] =
        [("Model stream ended", "stream_ended"), ("The model returned an empty response", "empty_response")];
    if let Some((_, kind)) = WITHOUT_ANSWER.iter().find(|(mark, _)| text.starts_with(mark)) {
        return Some(ApiError { status: None, kind: (*kind).to_owned() });
    }
    if !text.contains("[API Error:") {
        return None;
    }
    let after = |mark: &str| text.split_once(mark).map(|(_, rest)| rest.trim_start_matches([':', ' ', '"']));
    let digits = |rest: &str| {
        rest.split(|char: char| !char.is_ascii_digit()).next().and_then(|code| code.parse().ok())
    };
    let name = |rest: &str| {
        let name: String =
            rest.chars().take_while(|char| char.is_ascii_uppercase() || *char == '_').collect();
        (!name.is_empty() && name.len() <= 64).then_some(name)
    };
    Some(ApiError {
        status: after("\"code\"").and_then(digits),
        kind: after("\"status\"").and_then(name).unwrap_or_else(|| "unknown".to_owned()),
    })
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
