//! A session file as a conversation to read: messages, and tool calls of one line each.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::lines::is_prompt;
use super::shape::{Line, Message};
use crate::kit::loose::Text;
use crate::kit::tools::about;
use crate::transcript::{Item, ItemKind, one_line};

/// Arguments that tell what a call is about, in this order.
const ABOUT: &[&str] =
    &["command", "file_path", "absolute_path", "pattern", "path", "url", "query", "description", "prompt"];

/// The items that a line adds to the conversation. Broken and irrelevant lines add none.
pub(super) fn items(line: &[u8]) -> Vec<Item> {
    let Ok(line) = serde_json::from_slice::<Line>(line.trim_ascii()) else { return Vec::new() };
    let kinds = match line.kind.0.as_deref() {
        Some("user") if is_prompt(&line) => user(&line).into_iter().collect(),
        Some("assistant") => assistant(&line),
        Some("tool_result") => failure(&line).into_iter().collect(),
        Some("system") if line.subtype.0.as_deref() == Some("chat_compression") => {
            vec![ItemKind::Note("conversation compacted")]
        }
        _ => Vec::new(),
    };
    kinds.into_iter().map(|kind| Item { at: line.at(), kind }).collect()
}

fn user(line: &Line<'_>) -> Option<ItemKind> {
    Some(ItemKind::User(Message::of(line)?.words()?.to_owned()))
}

fn assistant(line: &Line<'_>) -> Vec<ItemKind> {
    let message = Message::of(line).unwrap_or_default();
    let text = message.texts().collect::<Vec<_>>().concat();
    let text = (!text.trim().is_empty()).then(|| ItemKind::Assistant(text.trim_end().to_owned()));
    let calls = message.parts.iter().filter_map(|part| part.function_call.as_ref());
    let calls = calls.filter_map(|call| {
        let name = call.name.0.as_deref()?.to_owned();
        Some(ItemKind::Tool { name, about: call.args.map(|args| about(args, ABOUT)).unwrap_or_default() })
    });
    text.into_iter().chain(calls).collect()
}

fn failure(line: &Line<'_>) -> Option<ItemKind> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Outcome<'a> {
        #[serde(borrow, default)]
        status: Text<'a>,
        #[serde(borrow, default)]
        result_display: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Display<'a> {
        #[serde(borrow, default)]
        text: Text<'a>,
    }
    let outcome: Outcome = serde_json::from_str(line.tool_call_result?.get()).ok()?;
    let failed = matches!(outcome.status.0.as_deref()?, "error" | "cancelled");
    let display = outcome.result_display?.get();
    let text = || Some(serde_json::from_str::<Display>(display).ok()?.text.0?.into_owned());
    let text = serde_json::from_str::<String>(display).ok().or_else(text).unwrap_or_default();
    failed.then(|| ItemKind::ToolFailed(one_line(&text)))
}
