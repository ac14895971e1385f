//! What the lines of a session file mean.
//!
//! - An answered call is a `ui_telemetry` line of the kind `api_response`, keyed by its uuid, which copies keep. Those of sub-agents
//!   stand in the conversation's own file, and once more, in another form, in files of their own, which are not read. An answer
//!   that was cut, or that reported no usage, has a line with zeros, one for each attempt.
//! - A tool call is such a line of the kind `tool_call`, with its outcome.
//! - An API error is one of the kind `api_error`. Retries that succeeded leave none.
//! - A prompt is a `user` line that a person submitted, in the middle of a turn too; the program's own notifications are `user` lines
//!   as well.

use memchr::memmem::Finder;

use super::shape::{Event, Line, Message, Payload};
use crate::correlate::Beginning;
use crate::kit::tools::{ChangedLines, ToolNames, first_text};
use crate::live::{TurnKind, TurnMark};
use crate::meter::line::{Lines, ParsedLines, Unreadable};
use crate::meter::record::{ApiError, Fact, Record, Usage};
use crate::meter::title::{Title, TitleSource};
use pricing::tier::Tier;
use types::Tokens;

const RESPONSE: &str = "qwen-code.api_response";
const TOOL_CALL: &str = "qwen-code.tool_call";
const ERROR: &str = "qwen-code.api_error";

static TOOLS: ToolNames = ToolNames {
    read: &["read_file", "read_many_files", "list_directory", "glob", "grep_search"],
    write: &["write_file"],
    edit: &["edit", "replace"],
    exec: &["run_shell_command"],
};

/// Reads one session file. A line needs none of those before it.
#[derive(Debug, Default)]
pub(super) struct QwenLines {
    /// Only lines that can hold usage are parsed.
    usage_only: Option<Box<Finder<'static>>>,
}

impl QwenLines {
    pub(super) fn usage_only() -> Self {
        Self { usage_only: Some(Box::new(Finder::new(RESPONSE))) }
    }
}

impl Lines for QwenLines {
    fn read(&mut self, line: &[u8], into: &mut ParsedLines) -> Result<(), Unreadable> {
        let bytes = line.trim_ascii();
        if bytes.is_empty() {
            return Ok(());
        }
        if !(bytes.starts_with(b"{") && bytes.ends_with(b"}")) {
            return Err(Unreadable::Shape("not a JSON object"));
        }
        if self.usage_only.as_ref().is_some_and(|usage| usage.find(bytes).is_none()) {
            return Ok(());
        }
        let line: Line = serde_json::from_slice(bytes)?;
        line.note_facts(&mut into.facts);
        match line.kind.0.as_deref() {
            Some("system") => self.system(&line, into)?,
            Some("user") if self.usage_only.is_none() && is_prompt(&line) => {
                into.records.extend(line.keyed(line.uuid.0.as_deref(), Fact::Prompt));
                let message = Message::of(&line);
                into.note_title(message.as_ref().and_then(Message::words).and_then(Title::of_prompt));
            }
            _ => {}
        }
        Ok(())
    }
}

impl QwenLines {
    fn system(&self, line: &Line<'_>, into: &mut ParsedLines) -> Result<(), Unreadable> {
        let everything = self.usage_only.is_none();
        let Some(payload) = line.system_payload else { return Ok(()) };
        match line.subtype.0.as_deref() {
            Some("ui_telemetry") => {
                let payload: Payload = serde_json::from_str(payload.get())?;
                let Some(event) = payload.ui_event else { return Ok(()) };
                let fact = match event.name.0.as_deref() {
                    Some(RESPONSE) => usage(&event),
                    Some(TOOL_CALL) if everything => called(&event),
                    Some(ERROR) if everything => Some(error(&event)),
                    _ => None,
                };
                let record = fact.and_then(|fact| line.keyed(line.uuid.0.as_deref(), fact));
                let subagent = event.subagent_name.0.map(String::from);
                into.records.extend(record.map(|record| Record { subagent, ..record }));
            }
            Some("custom_title") if everything => {
                let payload: Payload = serde_json::from_str(payload.get())?;
                let by_user = payload.title_source.0.as_deref() != Some("auto");
                let source = if by_user { TitleSource::User } else { TitleSource::Agent };
                into.note_title(payload.custom_title.0.and_then(|title| Title::given(source, &title)));
            }
            _ => {}
        }
        Ok(())
    }
}

/// `None` for an answer without usage. The input includes cached tokens, the output thoughts.
fn usage(event: &Event<'_>) -> Option<Fact> {
    let count = |count: Option<u64>| count.unwrap_or(0);
    let (input, cached) = (count(event.input_token_count), count(event.cached_content_token_count));
    let tokens = Tokens {
        input: input.saturating_sub(cached),
        output: count(event.output_token_count),
        cache_read: cached,
        reasoning: count(event.thoughts_token_count),
        ..Tokens::default()
    };
    let owned = |text: &crate::kit::loose::Text<'_>| text.0.as_deref().map(str::to_owned);
    (tokens != Tokens::default()).then(|| {
        Fact::Usage(Usage {
            model: owned(&event.model).unwrap_or_default(),
            tokens,
            tier: Tier::Standard,
            request_id: owned(&event.response_id).filter(|id| !id.is_empty()),
        })
    })
}

fn called(event: &Event<'_>) -> Option<Fact> {
    let lines = event.metadata.and_then(ChangedLines::of_statistics).unwrap_or_default();
    let file = event.function_args.and_then(|args| first_text(args, &["file_path", "absolute_path"]));
    let name = event.function_name.0.as_deref()?;
    Some(Fact::Tool(TOOLS.tool(name, event.success.0 == Some(true), file, lines)))
}

/// The error's name alone: its text may hold words of the conversation.
fn error(event: &Event<'_>) -> Fact {
    let status = event.status_code.0.and_then(|status| u16::try_from(status).ok());
    let kind = event.error_type.0.as_deref().filter(|kind| !kind.is_empty());
    Fact::Error(ApiError { status, kind: kind.unwrap_or("unknown").to_owned() })
}

/// A sub-agent's instructions come from the model, and notifications from the program.
pub(super) fn is_prompt(line: &Line<'_>) -> bool {
    line.subtype.0.as_deref().is_none_or(|subtype| subtype == "mid_turn_user_message")
        && line.provenance.0.as_deref().is_none_or(|by| by == "real_user")
        && line.subagent().is_none()
}

pub(super) fn beginning(line: &Line<'_>) -> Option<Beginning> {
    let spoken = matches!(line.kind.0.as_deref()?, "user" | "assistant");
    spoken.then(|| Beginning::Spoken { copied: line.is_copied() })
}

/// What a line says about the conversation's turns.
pub(super) fn read_turn(line: &[u8]) -> Option<TurnMark> {
    let line: Line = serde_json::from_slice(line.trim_ascii()).ok()?;
    if line.subagent().is_some() {
        return None;
    }
    let message = Message::of(&line);
    let kind = match line.kind.0.as_deref()? {
        "user" if is_prompt(&line) => TurnKind::Prompt(message?.words()?.to_owned()),
        // The model is asked about it at once.
        "user" | "tool_result" => TurnKind::Goes,
        "assistant" => {
            let asks = |message: &Message| message.parts.iter().any(|part| part.function_call.is_some());
            let ends = message.is_some_and(|message| !asks(&message) && message.texts().next().is_some());
            if ends { TurnKind::Ended } else { TurnKind::Goes }
        }
        "system" => {
            let payload: Payload = serde_json::from_str(line.system_payload?.get()).ok()?;
            let event = payload.ui_event?;
            let gave_up = event.name.0.as_deref() == Some(ERROR) && event.subagent_name.0.is_none();
            gave_up.then_some(TurnKind::Ended)?
        }
        _ => return None,
    };
    Some(TurnMark { at: line.at(), kind })
}
