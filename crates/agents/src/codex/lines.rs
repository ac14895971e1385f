//! What the lines of a rollout mean.
//!
//! - An answered call is a `token_usage_record`, keyed by `response_id`; its model is in the `turn_context` before it, or in
//!   the settings of the thread: a fork that is compacted first has no turn by then.
//!   Versions without such lines are counted by what their `token_count` events add up to ([`super::fallback`]).
//! - A tool call is a call line, perhaps an item, and an output line ([`super::tools`]), keyed by `call_id`.
//! - A prompt is a completed `UserMessage` of this very thread, keyed by the item's id. A review writes the sub-agent's into
//!   its own file as well; a sub-agent's instructions come from the model.
//! - An API error is a turn that ended with one, keyed by the turn. Retries that succeeded leave no line.
//!
//! A fork points at its parent's lines; in older versions it begins with a copy of them ([`super::copies`]).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::copies::Copies;
use super::fallback::ReportedSums;
use super::shape::{
    Counts, Event, Failure, Git, Item, Line, Meta, ResponseItem, TokenInfo, TurnContext, UsageRecord, peek,
    text,
};
use super::tools::{self, CallOrigin, Waiting};
use crate::meter::line::{LineFacts, Lines, ParsedLines, Unreadable};
use crate::meter::record::{ApiError, Fact, Record, Usage};
use crate::meter::title::Title;
use pricing::tier::Tier;
use types::AgentSessionId;
use types::Timestamp;
use types::Tokens;

/// Reads one rollout.
#[derive(Debug, Default)]
pub struct CodexLines {
    memory: Memory,
    /// Only lines that can concern an answered call are parsed.
    usage_only: bool,
}

/// What must be remembered of the lines before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Memory {
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<String>,
    /// The user writes no prompts in this thread.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    helper: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    model: String,
    #[serde(flatten)]
    tier: Tier,
    /// Prompts of versions that give them no id.
    prompts: u64,
    sums: ReportedSums,
    /// The lines that follow are the parent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    copies: Option<Copies>,
    #[serde(skip_serializing_if = "Waiting::is_empty")]
    waiting: Waiting,
}

impl CodexLines {
    /// All records. `state` is what [`Lines::state`] gave at the position where reading goes on; if it cannot be read, only
    /// the model and the open tool calls are lost.
    pub fn new(state: Option<&str>) -> Self {
        let memory = state.and_then(|state| serde_json::from_str(state).ok()).unwrap_or_default();
        Self { memory, usage_only: false }
    }

    /// Answered calls alone, for scanning many files fast.
    pub fn usage_only(state: Option<&str>) -> Self {
        Self { usage_only: true, ..Self::new(state) }
    }
}

impl Lines for CodexLines {
    fn read(&mut self, line: &[u8], into: &mut ParsedLines) -> Result<(), Unreadable> {
        let bytes = line.trim_ascii();
        if bytes.is_empty() {
            return Ok(());
        }
        if self.usage_only {
            if !(bytes.starts_with(b"{") && bytes.ends_with(b"}")) {
                return Err(Unreadable::Shape("not a JSON object"));
            }
            if peek(bytes).is_some_and(|kind| self.passes_over(kind, bytes)) {
                return Ok(());
            }
        }
        let line: Line = serde_json::from_slice(bytes)?;
        let at = line.at();
        if at != Timestamp::default() {
            into.facts.saw(at);
        }
        let before = into.records.len();
        let read = self.read_line(&line, at, into);
        if self.memory.copies.is_some() {
            into.records[before..].iter_mut().for_each(|record| record.copied = true);
        }
        read
    }

    fn state(&self) -> Option<String> {
        if self.memory == Memory::default() { None } else { serde_json::to_string(&self.memory).ok() }
    }

    fn forget(&mut self) {
        self.memory = Memory::default();
    }
}

impl CodexLines {
    fn read_line(&mut self, line: &Line, at: Timestamp, into: &mut ParsedLines) -> Result<(), Unreadable> {
        match line.kind.0.as_deref() {
            Some("session_meta") => self.meta(line, at, &mut into.facts),
            Some("turn_context") => {
                let context: TurnContext = line.payload()?;
                self.turn_begins(context.turn_id.0.as_deref(), at);
                if let Some(model) = context.model.0 {
                    self.memory.model = model.into_owned();
                }
                if let Some(cwd) = context.cwd.0 {
                    into.facts.cwd = Some(cwd.into_owned());
                }
                Ok(())
            }
            Some("token_usage_record") => self.usage(line, at, into),
            Some("event_msg") => self.event(line, at, into),
            Some("response_item") => self.response(line, at, into),
            _ => Ok(()),
        }
    }

    /// Whether a line cannot concern answered calls.
    fn passes_over(&self, kind: &[u8], line: &[u8]) -> bool {
        let early =
            |word: &str| memchr::memmem::find(&line[..line.len().min(512)], word.as_bytes()).is_some();
        match kind {
            b"session_meta" | b"turn_context" | b"token_usage_record" => false,
            b"event_msg" => !early("\"token_count\"") && !early("\"thread_settings_applied\""),
            b"response_item" => self.memory.sums.ignore_answers(),
            _ => true,
        }
    }

    fn meta(&mut self, line: &Line, at: Timestamp, facts: &mut LineFacts) -> Result<(), Unreadable> {
        let meta: Meta = line.payload()?;
        if self.memory.thread.is_some() {
            self.ancestor(meta.id.0.as_deref(), at);
            return Ok(());
        }
        let forked = meta.forked_from_id.0.is_some();
        self.memory = Memory {
            thread: meta.id.0.as_deref().map(str::to_owned),
            helper: meta.is_helper(),
            sums: ReportedSums::of_thread(forked),
            ..Memory::default()
        };
        facts.session = meta.root().map(|root| AgentSessionId(root.to_owned()));
        facts.cwd = meta.cwd.0.map(|cwd| cwd.into_owned());
        let git = meta.git.and_then(|git| serde_json::from_str::<Git>(git.get()).ok());
        facts.branch = git.and_then(|git| git.branch.0).map(|branch| branch.into_owned());
        Ok(())
    }

    /// A further first line: older versions copied the lines of a fork's parent, its first included, behind the fork's own.
    fn ancestor(&mut self, id: Option<&str>, at: Timestamp) {
        let Some(id) = id.filter(|id| self.memory.thread.as_deref() != Some(id)) else { return };
        match &mut self.memory.copies {
            Some(copies) => copies.further_ancestor(at),
            None if self.memory.sums.are_untouched() && self.memory.prompts == 0 => {
                self.memory.sums.begin_at_zero();
                self.memory.copies = Some(Copies::of(id, at));
            }
            None => {}
        }
    }

    /// A line begins a turn, or is the prompt right before that.
    fn turn_begins(&mut self, turn: Option<&str>, at: Timestamp) {
        let thread = self.memory.thread.as_deref().unwrap_or_default();
        if self.memory.copies.as_mut().is_some_and(|copies| copies.end_with(turn, thread, at)) {
            self.memory.copies = None;
        } else if let Some(copies) = &mut self.memory.copies {
            copies.goes_on(at);
        }
    }

    fn usage(&mut self, line: &Line, at: Timestamp, into: &mut ParsedLines) -> Result<(), Unreadable> {
        let record: UsageRecord = line.payload()?;
        let Some(counts) = record.usage else { return Ok(()) };
        let Some(key) = record.response_id.0 else {
            return Err(Unreadable::Shape("usage without a response id"));
        };
        self.memory.sums.recorded();
        // It names both, so nothing depends on the file's first line.
        let root = record.session_id.0.as_deref();
        let subagent =
            record.thread_id.0.as_deref().filter(|thread| root.is_some_and(|root| root != *thread));
        into.records.push(Record {
            key: key.into_owned(),
            at,
            copied: false,
            subagent: subagent.map(str::to_owned),
            fact: self.answered(counts),
        });
        if let Some(root) = root {
            into.facts.session = Some(AgentSessionId(root.to_owned()));
        }
        Ok(())
    }

    fn answered(&self, counts: Counts) -> Fact {
        Fact::Usage(Usage {
            model: self.memory.model.clone(),
            tokens: tokens(counts),
            tier: self.memory.tier,
            request_id: None,
        })
    }

    fn event(&mut self, line: &Line, at: Timestamp, into: &mut ParsedLines) -> Result<(), Unreadable> {
        let event: Event = line.payload()?;
        match event.kind.0.as_deref() {
            Some("token_count") => {
                if !self.usage_only && self.memory.copies.is_none() {
                    into.quotas.extend(event.limits(at).map(|quota| (at, quota)));
                }
                self.token_count(event.info, at, into)
            }
            Some("thread_settings_applied") => {
                let settings = event.settings().unwrap_or_default();
                self.memory.tier = Tier::named(settings.service_tier.0.as_deref());
                if let Some(model) = settings.model.0 {
                    self.memory.model = model.into_owned();
                }
                Ok(())
            }
            _ if self.usage_only => Ok(()),
            Some("item_completed") => {
                if let Some(Ok(item)) = event.item.map(|raw| serde_json::from_str::<Item>(raw.get())) {
                    self.item(&item, event.thread_id.0.as_deref(), at, into);
                }
                Ok(())
            }
            Some("task_complete") => {
                if let (Some(turn), Some(Ok(failure))) = (
                    event.turn_id.0.as_deref(),
                    event.error.map(|raw| serde_json::from_str::<Failure>(raw.get())),
                ) {
                    into.records.push(self.record(
                        turn,
                        at,
                        Fact::Error(api_error(failure.codex_error_info)),
                    ));
                }
                Ok(())
            }
            // Older versions.
            Some("user_message") if !self.memory.helper => {
                self.turn_begins(None, at);
                if let Some(key) = self.prompt_key() {
                    into.records.push(self.record(&key, at, Fact::Prompt));
                    into.note_title(event.message.0.as_deref().and_then(Title::of_prompt));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn token_count(
        &mut self,
        info: Option<&RawValue>,
        at: Timestamp,
        into: &mut ParsedLines,
    ) -> Result<(), Unreadable> {
        if let Some(copies) = &mut self.memory.copies {
            copies.goes_on(at);
        }
        let Some(info) = info.filter(|info| info.get() != "null") else {
            self.memory.sums.begin_at_zero();
            return Ok(());
        };
        let info: TokenInfo = serde_json::from_str(info.get())?;
        if let Some(counts) = self.memory.sums.call(&info)
            && let Some(key) = self.call_key()
        {
            into.records.push(self.record(&key, at, self.answered(counts)));
        }
        Ok(())
    }

    /// The key of the next call that only sums report; `None` where its thread is not known.
    fn call_key(&mut self) -> Option<String> {
        if let Some(copies) = &mut self.memory.copies {
            return copies.call_key();
        }
        self.memory.sums.counted += 1;
        let thread = self.memory.thread.as_deref().unwrap_or_default();
        Some(format!("{thread}:{}", self.memory.sums.counted))
    }

    /// The same for a prompt without an id.
    fn prompt_key(&mut self) -> Option<String> {
        if let Some(copies) = &mut self.memory.copies {
            return copies.prompt_key();
        }
        self.memory.prompts += 1;
        let thread = self.memory.thread.as_deref().unwrap_or_default();
        Some(format!("{thread}:{}", self.memory.prompts))
    }

    fn item(&mut self, item: &Item, thread: Option<&str>, at: Timestamp, into: &mut ParsedLines) {
        if item.kind.0.as_deref() == Some("UserMessage") {
            let own = thread.is_none_or(|thread| self.memory.thread.as_deref() == Some(thread));
            if own
                && !self.memory.helper
                && let Some(id) = item.id.0.as_deref()
            {
                into.records.push(self.record(id, at, Fact::Prompt));
                into.note_title(text(item.content).as_deref().and_then(Title::of_prompt));
            }
            return;
        }
        let origin = self.origin(at);
        into.records.extend(self.memory.waiting.item_ended(item, origin));
    }

    fn response(&mut self, line: &Line, at: Timestamp, into: &mut ParsedLines) -> Result<(), Unreadable> {
        let item: ResponseItem = line.payload()?;
        let kind = item.kind.0.as_deref().unwrap_or_default();
        if kind == "message" {
            if item.role.0.as_deref() == Some("assistant") {
                self.memory.sums.answered();
            }
            return Ok(());
        }
        let id = item.call_id.0.as_deref().or(item.id.0.as_deref());
        let is_output = kind.ends_with("_output");
        if kind.ends_with("_call") || kind == "reasoning" {
            self.memory.sums.answered();
        }
        let Some(id) = id.filter(|_| !self.usage_only) else { return Ok(()) };
        let origin = self.origin(at);
        match kind {
            // Tools that the vendor runs: the line is written when they are done.
            "web_search_call" | "image_generation_call" => {
                let name = kind.trim_end_matches("_call");
                into.records.push(tools::at_once(id, name, origin));
            }
            "local_shell_call" => self.memory.waiting.called(id, "local_shell"),
            "tool_search_call" => self.memory.waiting.called(id, "tool_search"),
            _ if is_output => {
                let output = text(item.output).unwrap_or_default();
                into.records.extend(self.memory.waiting.answered(id, &output, origin));
            }
            "function_call" | "custom_tool_call" => {
                self.memory.waiting.called(id, item.name.0.as_deref().unwrap_or_default());
            }
            _ => {}
        }
        Ok(())
    }

    fn record(&self, key: &str, at: Timestamp, fact: Fact) -> Record {
        Record { key: key.to_owned(), at, copied: false, subagent: self.subagent(), fact }
    }

    fn origin(&self, at: Timestamp) -> CallOrigin {
        CallOrigin { at, subagent: self.subagent() }
    }

    fn subagent(&self) -> Option<String> {
        self.memory.thread.clone().filter(|_| self.memory.helper)
    }
}

/// The vendor's input includes cached tokens, read or written; its output includes the reasoning.
fn tokens(counts: Counts) -> Tokens {
    let cached = counts.cached_input_tokens.saturating_add(counts.cache_write_input_tokens);
    Tokens {
        input: counts.input_tokens.saturating_sub(cached),
        output: counts.output_tokens,
        cache_read: counts.cached_input_tokens,
        cache_write_5m: counts.cache_write_input_tokens,
        cache_write_1h: 0,
        reasoning: counts.reasoning_output_tokens,
    }
}

/// A word, or an object whose one field is the word and may hold the HTTP status.
fn api_error(info: Option<&RawValue>) -> ApiError {
    #[derive(Deserialize)]
    struct Details {
        http_status_code: Option<u16>,
    }
    let raw = info.map_or("null", RawValue::get);
    if let Ok(word) = serde_json::from_str::<String>(raw) {
        return ApiError { status: None, kind: word };
    }
    let named = serde_json::from_str::<std::collections::BTreeMap<String, Option<Details>>>(raw);
    match named.ok().and_then(|mut named| named.pop_first()) {
        Some((kind, details)) => {
            ApiError { status: details.and_then(|details| details.http_status_code), kind }
        }
        None => ApiError { status: None, kind: "unknown".to_owned() },
    }
}

#[cfg(test)]
#[path = "lines_tests.rs"]
mod tests;
