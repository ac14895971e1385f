//! A rollout as a conversation to read: messages, and tool calls of one line each.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::shape::{Event, Item as Completed, Line, ResponseItem, Text, text};
use crate::transcript::{Item, ItemKind, one_line};

/// The items that a line adds to the conversation. Broken and irrelevant lines add none.
pub fn items(line: &[u8]) -> Vec<Item> {
    let Ok(line) = serde_json::from_slice::<Line>(line.trim_ascii()) else { return Vec::new() };
    let kind = match line.kind.0.as_deref() {
        Some("event_msg") => line.payload().ok().and_then(|event: Event| event_item(&event)),
        Some("response_item") => line.payload().ok().and_then(|item: ResponseItem| tool(&item)),
        Some("compacted") => Some(ItemKind::Note("conversation compacted")),
        _ => None,
    };
    let at = line.timestamp.0.as_deref().and_then(types::Timestamp::parse);
    kind.map(|kind| Item { at, kind }).into_iter().collect()
}

fn event_item(event: &Event) -> Option<ItemKind> {
    match event.kind.0.as_deref()? {
        "item_completed" => completed(&serde_json::from_str(event.item?.get()).ok()?),
        "turn_aborted" => Some(ItemKind::Note("interrupted by the user")),
        "task_complete" => failure(event.error?),
        // Older versions.
        "user_message" => non_blank(event.message.0.as_deref()?).map(ItemKind::User),
        "agent_message" => non_blank(event.message.0.as_deref()?).map(ItemKind::Assistant),
        _ => None,
    }
}

fn completed(item: &Completed) -> Option<ItemKind> {
    match item.kind.0.as_deref()? {
        "UserMessage" => non_blank(&text(item.content)?).map(ItemKind::User),
        "AgentMessage" => non_blank(&text(item.content)?).map(ItemKind::Assistant),
        "CommandExecution" | "FileChange" if item.status.0.as_deref() == Some("failed") => {
            let output = item.aggregated_output.0.as_deref().or(item.stderr.0.as_deref());
            Some(ItemKind::ToolFailed(one_line(output.unwrap_or_default())))
        }
        _ => None,
    }
}

/// The error of a failed turn is shown as an answer of the model.
fn failure(error: &RawValue) -> Option<ItemKind> {
    #[derive(Deserialize)]
    struct Error<'a> {
        #[serde(borrow, default)]
        message: Text<'a>,
    }
    let error: Error = serde_json::from_str(error.get()).ok()?;
    Some(ItemKind::Assistant(format!("API error: {}", error.message.0?)))
}

fn tool(item: &ResponseItem) -> Option<ItemKind> {
    let kind = item.kind.0.as_deref()?;
    match kind {
        "function_call" => {
            let arguments = text(item.arguments).unwrap_or_default();
            Some(ItemKind::Tool { name: item.name.0.as_deref()?.to_owned(), about: about(&arguments) })
        }
        "custom_tool_call" => {
            let input = item.input.0.as_deref().unwrap_or_default();
            Some(ItemKind::Tool { name: item.name.0.as_deref()?.to_owned(), about: patched(input) })
        }
        "web_search_call" => Some(ItemKind::Tool { name: "web_search".to_owned(), about: String::new() }),
        // A patch that did not apply has no item.
        "custom_tool_call_output" => {
            let output = text(item.output)?;
            output.contains("verification failed").then(|| ItemKind::ToolFailed(one_line(&output)))
        }
        _ => None,
    }
}

/// The files that a patch is for; the first line of anything else.
fn patched(input: &str) -> String {
    const VERBS: [&str; 3] = ["*** Add File: ", "*** Update File: ", "*** Delete File: "];
    let files: Vec<&str> =
        input.lines().filter_map(|line| VERBS.iter().find_map(|verb| line.strip_prefix(verb))).collect();
    one_line(&if files.is_empty() {
        input.lines().next().unwrap_or_default().to_owned()
    } else {
        files.join(" ")
    })
}

/// The most telling argument of a call, in this order.
fn about(arguments: &str) -> String {
    #[derive(Deserialize)]
    struct Arguments<'a> {
        #[serde(borrow, default)]
        cmd: Text<'a>,
        #[serde(borrow, default)]
        command: Option<&'a RawValue>,
        #[serde(borrow, default)]
        path: Text<'a>,
        #[serde(borrow, default)]
        message: Text<'a>,
        #[serde(borrow, default)]
        query: Text<'a>,
    }
    let Ok(arguments) = serde_json::from_str::<Arguments>(arguments) else { return String::new() };
    // A command line, whole or as a list of words.
    let command = arguments.command.and_then(|raw| {
        let words = serde_json::from_str::<Vec<String>>(raw.get()).map(|words| words.join(" "));
        words.or_else(|_| serde_json::from_str(raw.get())).ok()
    });
    let others = [arguments.path, arguments.message, arguments.query].into_iter().find_map(|text| text.0);
    let shown = arguments.cmd.0.or(command.map(Into::into)).or(others);
    shown.map(|text| one_line(&text)).unwrap_or_default()
}

fn non_blank(text: &str) -> Option<String> {
    (!text.trim().is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn recorded(file: &str) -> Vec<ItemKind> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/codex").join(file);
        let bytes = std::fs::read(path).unwrap();
        bytes.split(|&byte| byte == b'\n').flat_map(items).map(|item| item.kind).collect()
    }

    fn tool(name: &str, about: &str) -> ItemKind {
        ItemKind::Tool { name: name.into(), about: about.into() }
    }

    #[test]
    fn a_plain_conversation() {
        let kind = recorded(
            "clear-new/sessions/2026/11/15/rollout-2026-11-15T23-32-45-01a1e18e-5c04-7c81-b525-b7d2f464be7c.jsonl",
        );
        assert_eq!(
            kind,
            [ItemKind::User("beta one".into()), ItemKind::Assistant("Fake answer number 3.".into())]
        );
    }

    #[test]
    fn tools_are_one_line_each_and_only_failures_show_their_result() {
        let kind = recorded(
            "tools/sessions/2026/11/15/rollout-2026-11-15T23-31-52-01a1e18d-8b20-7270-b8c1-15f14562bb0c.jsonl",
        );
        let tools: Vec<&ItemKind> = kind
            .iter()
            .filter(|kind| matches!(kind, ItemKind::Tool { .. } | ItemKind::ToolFailed(_)))
            .collect();
        assert!(tools.contains(&&tool("exec_command", "echo loop 0")), "{tools:?}");
        assert!(tools.contains(&&tool("apply_patch", "notes.txt")), "{tools:?}");
        let bad = tools.iter().position(|kind| **kind == tool("apply_patch", "nosuch.txt")).unwrap();
        assert!(
            matches!(tools[bad + 1], ItemKind::ToolFailed(why) if why.starts_with("apply_patch verification failed"))
        );
        let failed = tools.iter().position(|kind| **kind == tool("exec_command", "false")).unwrap();
        assert!(tools[failed + 1..].iter().any(|kind| **kind == ItemKind::ToolFailed(String::new())));
    }

    #[test]
    fn compactions_and_interruptions_are_noted() {
        let kind = recorded(
            "fork-compact/sessions/2026/11/15/rollout-2026-11-15T23-34-38-01a1e190-148f-7113-b11c-135dc2344788.jsonl",
        );
        assert!(kind.contains(&ItemKind::Note("conversation compacted")), "{kind:?}");
        let line = |payload: &str| format!(r#"{{"type":"event_msg","payload":{payload}}}"#);
        for (payload, expected) in [
            (
                r#"{"type":"turn_aborted","reason":"interrupted"}"#,
                Some(ItemKind::Note("interrupted by the user")),
            ),
            (
                r#"{"type":"task_complete","error":{"message":"no"}}"#,
                Some(ItemKind::Assistant("API error: no".into())),
            ),
            (r#"{"type":"task_complete"}"#, None),
            (r#"{"type":"user_message","message":"old"}"#, Some(ItemKind::User("old".into()))),
            (r#"{"type":"token_count"}"#, None),
        ] {
            let kind: Vec<ItemKind> =
                items(line(payload).as_bytes()).into_iter().map(|item| item.kind).collect();
            assert_eq!(kind, expected.into_iter().collect::<Vec<_>>(), "{payload}");
        }
        for broken in
            [&b""[..], b"{", b"[]", br#"{"type":"event_msg"}"#, br#"{"type":"response_item","payload":7}"#]
        {
            assert_eq!(items(broken), []);
        }
    }

    #[test]
    fn a_command_is_shown_whether_text_or_list() {
        assert_eq!(about(r#"{"cmd":"ls\n-l"}"#), "ls -l");
        assert_eq!(about(r#"{"command":["bash","-lc","ls"]}"#), "bash -lc ls");
        assert_eq!(about(r#"{"command":"ls"}"#), "ls");
        assert_eq!(about("[]"), "");
    }
}
