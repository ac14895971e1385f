//! What the lines of a session file mean.
//!
//! - An answered call is an `assistant` line with usage, keyed by `message.id`. One answer is several lines (one per content
//!   block), each with the whole, final usage, so a key comes several times; `<synthetic>` messages are not calls.
//! - A tool call is a `tool_use` block and its `tool_result`, keyed by the id they share.
//! - A prompt is a `user` line that a person or a program driving the agent submitted, keyed by its uuid ([`is_prompt`]).
//! - An API error is an `assistant` line marked as one, keyed by its uuid. Retries that succeeded leave no line.
//! - `forkedFrom` marks a copy from another conversation. A copy made by `--fork-session` is not marked.

use memchr::memmem::Finder;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::shape::{self, Block, Content, Line, Message, Origin, Text};
use super::tools::{Change, ToolOutcome, Waiting};
use super::view;
use crate::meter::line::{Lines, ParsedLines, Unreadable};
use crate::meter::record::{ApiError, Fact, Record, Usage};
use crate::meter::title::{Title, TitleSource};
use pricing::tier::Tier;
use types::Tokens;

/// Reads one session file, or one sub-agent's file.
#[derive(Debug, Default)]
pub struct ClaudeLines {
    waiting: Waiting,
    /// Only lines that can hold usage are parsed.
    usage_only: Option<Box<UsageWords>>,
}

/// The words that both occur in every line with usage.
#[derive(Debug)]
struct UsageWords {
    assistant: Finder<'static>,
    usage: Finder<'static>,
}

impl UsageWords {
    /// Most bytes are in lines whose type comes first: those are not searched.
    fn may_be_in(&self, line: &[u8]) -> bool {
        leading_kind(line).is_none_or(|kind| kind == b"assistant")
            && self.usage.find(line).is_some()
            && self.assistant.find(line).is_some()
    }
}

/// The `type` of a line, where only plain fields precede it; `None`: the line must be parsed.
fn leading_kind(line: &[u8]) -> Option<&[u8]> {
    let mut rest = line.strip_prefix(b"{")?;
    loop {
        let (key, after) = plain_text(rest)?;
        let value = after.strip_prefix(b":")?;
        let after = if value.first() == Some(&b'"') {
            let (text, after) = plain_text(value)?;
            if key == b"type" {
                return Some(text);
            }
            after
        } else {
            // true, false, null or a number
            let length = value.iter().take(24).position(|byte| !byte.is_ascii_alphanumeric())?;
            &value[length..]
        };
        rest = after.strip_prefix(b",")?;
    }
}

/// A text without escapes, and what comes after it.
fn plain_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = bytes.strip_prefix(b"\"")?;
    let end = memchr::memchr2(b'"', b'\\', inside)?;
    (inside[end] == b'"').then(|| (&inside[..end], &inside[end + 1..]))
}

impl ClaudeLines {
    /// All records. `state` is what [`Lines::state`] gave at the position where reading goes on; if it cannot be read, only
    /// the tool calls that were open there are lost.
    pub fn new(state: Option<&str>) -> Self {
        let waiting = state.and_then(|state| serde_json::from_str(state).ok()).unwrap_or_default();
        Self { waiting, usage_only: None }
    }

    /// Answered calls alone, for scanning many files fast. Other lines are passed over unparsed, so they are unreadable
    /// only if they do not look like JSON objects.
    pub fn usage_only() -> Self {
        let words = UsageWords { assistant: Finder::new("\"assistant\""), usage: Finder::new("\"usage\"") };
        Self { waiting: Waiting::default(), usage_only: Some(Box::new(words)) }
    }
}

impl Lines for ClaudeLines {
    fn read(&mut self, line: &[u8], into: &mut ParsedLines) -> Result<(), Unreadable> {
        let bytes = line.trim_ascii();
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some(words) = &self.usage_only {
            if !(bytes.starts_with(b"{") && bytes.ends_with(b"}")) {
                return Err(Unreadable::Shape("not a JSON object"));
            }
            if !words.may_be_in(bytes) {
                return Ok(());
            }
            // In one go. A line that does not fit is examined below, to tell a broken one from a new kind.
            if let Ok(line) = serde_json::from_slice::<Line<'_, Message<'_, IgnoredAny>>>(bytes) {
                line.note_facts(&mut into.facts);
                return match (line.kind.0.as_deref(), &line.message) {
                    (Some("assistant"), Some(message)) => {
                        into.records.extend(answered(&line, message)?);
                        Ok(())
                    }
                    _ => Ok(()),
                };
            }
        }
        let line: Line = serde_json::from_slice(bytes)?;
        line.note_facts(&mut into.facts);
        match line.kind.0.as_deref() {
            Some("assistant") => self.assistant(&line, into),
            Some("user") if self.usage_only.is_none() => {
                self.user(&line, into);
                Ok(())
            }
            Some("ai-title" | "custom-title") if self.usage_only.is_none() => {
                into.note_title(title(&line));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn state(&self) -> Option<String> {
        if self.waiting.is_empty() { None } else { serde_json::to_string(&self.waiting).ok() }
    }

    fn forget(&mut self) {
        self.waiting = Waiting::default();
    }
}

impl ClaudeLines {
    fn assistant(&mut self, line: &Line, into: &mut ParsedLines) -> Result<(), Unreadable> {
        let everything = self.usage_only.is_none();
        if everything && line.is_api_error_message.0 == Some(true) {
            let error = Fact::Error(ApiError {
                status: line.api_error_status.0.and_then(|status| u16::try_from(status).ok()),
                kind: owned(&line.error).unwrap_or_else(|| "unknown".to_owned()),
            });
            into.records.extend(line.keyed(line.uuid.0.as_deref(), error));
        }
        let Some(message) = line.message else { return Ok(()) };
        let message: Message = serde_json::from_str(message.get())?;
        if is_synthetic(&message) {
            return Ok(());
        }
        into.records.extend(answered(line, &message)?);
        if everything && let Some(Content::Blocks(blocks)) = Content::of(message.content) {
            for block in blocks.iter().filter(|block| block.kind.0.as_deref() == Some("tool_use")) {
                if let (Some(id), Some(name)) = (&block.id.0, &block.name.0) {
                    into.records.extend(self.waiting.used(id, name, block.input));
                }
            }
        }
        Ok(())
    }

    fn user(&mut self, line: &Line, into: &mut ParsedLines) {
        let at = line.at().unwrap_or_default();
        let content = line
            .message
            .and_then(|raw| serde_json::from_str::<Message>(raw.get()).ok())
            .and_then(|message| Content::of(message.content));
        let Some(content) = content else { return };
        if let Content::Blocks(blocks) = &content {
            for (id, ok) in blocks.iter().filter_map(result) {
                let outcome = ToolOutcome {
                    at,
                    ok,
                    copied: line.is_copied(),
                    subagent: line.subagent(),
                    change: Change::of(line.tool_use_result),
                };
                into.records.extend(self.waiting.ended(id, outcome));
            }
        }
        if is_prompt(line, &content) {
            into.records.extend(line.keyed(line.uuid.0.as_deref(), Fact::Prompt));
            if into.title.is_none() {
                into.note_title(Title::of_prompt(&view::texts(&content).join("\n")));
            }
        }
    }
}

/// The title that the agent found, or the user chose by `/rename` or `/clear NAME`.
fn title(line: &Line) -> Option<Title> {
    match (&line.custom_title.0, &line.ai_title.0) {
        (Some(title), _) => Title::given(TitleSource::User, title),
        (None, Some(title)) => Title::given(TitleSource::Agent, title),
        (None, None) => None,
    }
}

/// The usage of an answer, if the line is one.
fn answered<M, C>(line: &Line<'_, M>, message: &Message<'_, C>) -> Result<Option<Record>, Unreadable> {
    let Some(usage) = message.usage.as_ref().filter(|_| !is_synthetic(message)) else { return Ok(None) };
    let Some(id) = message.id.0.as_deref() else {
        return Err(Unreadable::Shape("usage without a message id"));
    };
    let usage = Fact::Usage(Usage {
        model: owned(&message.model).unwrap_or_default(),
        tokens: tokens(usage),
        tier: if usage.speed.0.as_deref() == Some("fast") { Tier::Fast } else { Tier::Standard },
        request_id: owned(&line.request_id),
    });
    Ok(line.keyed(Some(id), usage))
}

/// A message of the program itself in the model's place.
fn is_synthetic<C>(message: &Message<'_, C>) -> bool {
    message.model.0.as_deref() == Some("<synthetic>")
}

fn result<'a>(block: &'a Block) -> Option<(&'a str, bool)> {
    let is_result = block.kind.0.as_deref() == Some("tool_result");
    is_result.then_some(block.tool_use_id.0.as_deref()?).map(|id| (id, block.is_error.0 != Some(true)))
}

/// Whether the user submitted this line. `promptSource` decides where the line has one (`typed`, `sdk`, … but `system` is
/// the program's own). Lines of older versions have none, and are prompts unless they are something else: a tool's result, a
/// hidden message, a compaction's summary, an interruption, the echo or output of a local command, of `!` or of a
/// background task. A sub-agent's instructions come from the model.
pub(super) fn is_prompt<M>(line: &Line<'_, M>, content: &Content) -> bool {
    let flagged =
        [&line.is_meta, &line.is_compact_summary, &line.is_sidechain].iter().any(|flag| flag.0 == Some(true));
    if flagged
        || line.agent_id.0.is_some()
        || line.interrupted_message_id.is_some()
        || line.tool_use_result.is_some()
    {
        return false;
    }
    let texts: Vec<&RawValue> = match content {
        Content::Text(text) => vec![text],
        Content::Blocks(blocks) if blocks.iter().any(|block| result(block).is_some()) => return false,
        Content::Blocks(blocks) => blocks.iter().filter_map(|block| block.text).collect(),
    };
    match line.prompt_source.0.as_deref() {
        Some(source) => source != "system",
        None => by_a_human(line.origin) && !texts.first().is_some_and(|text| is_echo(text)),
    }
}

fn by_a_human(origin: Option<&RawValue>) -> bool {
    let origin = origin.and_then(|raw| serde_json::from_str::<Origin>(raw.get()).ok());
    origin.and_then(|origin| origin.kind.0).is_none_or(|kind| kind == "human")
}

/// Beginnings of `user` texts that the program wrote.
fn is_echo(text: &RawValue) -> bool {
    const MARKS: &[&str] = &[
        "<command-name>",
        "<command-message>",
        "<local-command-",
        "<bash-input>",
        "<bash-stdout>",
        "<bash-stderr>",
        "<task-notification>",
        "<system-reminder>",
        "[Request interrupted by user",
    ];
    MARKS.iter().any(|mark| shape::begins(text, mark))
}

/// The split by lifetime is a part of the total. A line without it is from the time when all cache entries lived 5 minutes.
fn tokens(usage: &shape::Usage) -> Tokens {
    let split = usage.cache_creation.as_ref();
    let one_hour = split.and_then(|split| split.ephemeral_1h_input_tokens).unwrap_or(0);
    let five_minutes = split.and_then(|split| split.ephemeral_5m_input_tokens).unwrap_or(0);
    let written = usage.cache_creation_input_tokens.unwrap_or_else(|| five_minutes.saturating_add(one_hour));
    Tokens {
        input: usage.input_tokens.unwrap_or(0),
        output: usage.output_tokens.unwrap_or(0),
        cache_read: usage.cache_read_input_tokens.unwrap_or(0),
        cache_write_5m: written.saturating_sub(one_hour),
        cache_write_1h: one_hour.min(written),
        reasoning: usage.output_tokens_details.as_ref().and_then(|parts| parts.thinking_tokens).unwrap_or(0),
    }
}

fn owned(text: &Text) -> Option<String> {
    text.0.as_deref().map(str::to_owned)
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
