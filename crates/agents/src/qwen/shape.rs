//! What stands in the lines of a session file beside what all agents of the registry kind write.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::kit::loose::{Loose, Text};
pub(super) use crate::kit::registry::line::Line;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    pub(super) parts: Vec<Part<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part<'a> {
    #[serde(borrow, default)]
    pub(super) text: Text<'a>,
    #[serde(default)]
    pub(super) thought: Loose<bool>,
    #[serde(borrow, default)]
    pub(super) function_call: Option<FunctionCall<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct FunctionCall<'a> {
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
    #[serde(borrow, default)]
    pub(super) args: Option<&'a RawValue>,
}

impl Message<'_> {
    pub(super) fn of<'a>(line: &Line<'a>) -> Option<Message<'a>> {
        serde_json::from_str(line.message?.get()).ok()
    }

    /// What was said, without thoughts.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let said = self.parts.iter().filter(|part| part.thought.0 != Some(true));
        said.filter_map(|part| part.text.0.as_deref())
    }

    /// The words of the user: the last text, without the reminders that the agent puts in front of them.
    pub(super) fn words(&self) -> Option<&str> {
        const REMINDER: (&str, &str) = ("<system-reminder>", "</system-reminder>");
        let mut words = self.texts().last()?.trim();
        while words.starts_with(REMINDER.0)
            && let Some((_, rest)) = words.split_once(REMINDER.1)
        {
            words = rest.trim_start();
        }
        (!words.is_empty()).then_some(words)
    }
}

/// What a `system` line holds.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Payload<'a> {
    #[serde(borrow, default)]
    pub(super) ui_event: Option<Event<'a>>,
    #[serde(borrow, default)]
    pub(super) custom_title: Text<'a>,
    #[serde(borrow, default)]
    pub(super) title_source: Text<'a>,
}

/// A `ui_telemetry` line. Counts are read strictly: one of another type makes the line unreadable, which is reported.
#[derive(Debug, Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, default, rename = "event.name")]
    pub(super) name: Text<'a>,
    #[serde(borrow, default)]
    pub(super) model: Text<'a>,
    #[serde(borrow, default)]
    pub(super) subagent_name: Text<'a>,
    #[serde(borrow, default)]
    pub(super) response_id: Text<'a>,
    #[serde(default)]
    pub(super) input_token_count: Option<u64>,
    #[serde(default)]
    pub(super) output_token_count: Option<u64>,
    #[serde(default)]
    pub(super) cached_content_token_count: Option<u64>,
    #[serde(default)]
    pub(super) thoughts_token_count: Option<u64>,
    #[serde(default)]
    pub(super) status_code: Loose<u64>,
    #[serde(borrow, default)]
    pub(super) error_type: Text<'a>,
    // a tool call
    #[serde(borrow, default)]
    pub(super) function_name: Text<'a>,
    #[serde(borrow, default)]
    pub(super) function_args: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) success: Loose<bool>,
    #[serde(borrow, default)]
    pub(super) metadata: Option<&'a RawValue>,
}
