//! A session file as a conversation to read: messages, and tool calls of one line each. Messages that were rewound, replaced
//! or never answered are left out, as when the agent itself loads it.

use super::shape::{self, Line};
use super::tools::Call;
use crate::kit::tools::about;
use crate::transcript::{Entry, Item, ItemKind, Message, one_line};
use types::Timestamp;

/// How a line changes the conversation. Broken and irrelevant lines do not.
pub(super) fn entry(line: &[u8]) -> Option<Entry> {
    let line: Line = serde_json::from_slice(line.trim_ascii()).ok()?;
    if let Some(id) = line.rewind_to.0 {
        return Some(Entry::Rewind(id.into_owned()));
    }
    let all = line.set.as_ref().and_then(|set| set.messages.as_deref()).or(line.messages.as_deref());
    if let Some(all) = all {
        let messages = all.iter().filter_map(|raw| message(&serde_json::from_str(raw.get()).ok()?));
        return Some(Entry::Replace(messages.collect()));
    }
    message(&line).map(Entry::Message)
}

fn message(line: &Line) -> Option<Message> {
    let id = line.id.0.as_deref()?.to_owned();
    let at = line.timestamp.0.as_deref().and_then(Timestamp::parse);
    let items = kind(line).into_iter().map(|kind| Item { at, kind }).collect();
    Some(Message { id, items })
}

fn kind(line: &Line) -> Vec<ItemKind> {
    let texts = line.content.map(shape::texts).unwrap_or_default();
    match line.speaker.0.as_deref() {
        Some("user") => user(line, texts),
        Some("gemini") => {
            let text = texts.concat();
            let calls =
                line.tool_calls.iter().flatten().filter_map(|raw| Call::of(raw)).flat_map(|call| tool(&call));
            let text = (!text.trim().is_empty()).then(|| ItemKind::Assistant(text.trim_end().to_owned()));
            text.into_iter().chain(calls).collect()
        }
        Some("error") => vec![ItemKind::Assistant(texts.concat())],
        Some("info") if texts.concat() == "Request cancelled." => {
            vec![ItemKind::Note("interrupted by the user")]
        }
        _ => Vec::new(),
    }
}

fn user(line: &Line, texts: Vec<String>) -> Vec<ItemKind> {
    // The text shown to the user in place of the one sent.
    let shown = line.display_content.map(shape::texts).filter(|shown| !shown.is_empty());
    let texts: Vec<String> =
        shown.unwrap_or(texts).into_iter().filter(|text| !shape::is_context(text.trim_start())).collect();
    let text = texts.concat();
    if text.trim_start().starts_with("<state_snapshot>") {
        return vec![ItemKind::Note("conversation compacted")];
    }
    if text.trim().is_empty() { Vec::new() } else { vec![ItemKind::User(text.trim().to_owned())] }
}

/// The call, and its failure if it failed.
fn tool(call: &Call) -> Vec<ItemKind> {
    let Some(name) = call.name.0.as_deref() else { return Vec::new() };
    let mut kind = vec![ItemKind::Tool {
        name: name.to_owned(),
        about: call.args.map(|args| about(args, ABOUT)).unwrap_or_default(),
    }];
    if call.ok() == Some(false) {
        let text = call.result_display.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
        kind.push(ItemKind::ToolFailed(text.map(|text| one_line(&text)).unwrap_or_default()));
    }
    kind
}

/// Arguments that tell what a call is about, in this order.
const ABOUT: &[&str] =
    &["command", "file_path", "absolute_path", "pattern", "dir_path", "path", "query", "prompt"];
