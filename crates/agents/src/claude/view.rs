//! A session file as a conversation to read: messages, and tool calls of one line each.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::lines::is_prompt;
use super::shape::{Block, Content, Line, Message, Text};
use crate::kit::tools::about;
use crate::transcript::{Item, ItemKind, Threaded, one_line};
use types::Timestamp;

/// The text that Claude writes where no answer was asked for.
const FILLER: &str = "No response requested.";
const SYNTHETIC: &str = "<synthetic>";

/// A line and the one it follows. Answers are sometimes written before the prompt, or before its attachments.
pub fn thread(line: &[u8]) -> Threaded {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Link<'a> {
        #[serde(borrow, default, rename = "type")]
        kind: Text<'a>,
        #[serde(borrow, default)]
        uuid: Text<'a>,
        #[serde(borrow, default)]
        parent_uuid: Text<'a>,
    }
    let Ok(link) = serde_json::from_slice::<Link>(line.trim_ascii()) else { return Threaded::default() };
    let waits = matches!(link.kind.0.as_deref(), Some("assistant" | "attachment"));
    Threaded {
        id: link.uuid.0.map(Cow::into_owned),
        follows: link.parent_uuid.0.filter(|_| waits).map(Cow::into_owned),
        items: items(line),
    }
}

/// The items that a line adds to the conversation. Broken and irrelevant lines add none.
fn items(line: &[u8]) -> Vec<Item> {
    let Ok(line) = serde_json::from_slice::<Line>(line.trim_ascii()) else { return Vec::new() };
    let at = line.timestamp.0.as_deref().and_then(Timestamp::parse);
    let message = line.message.and_then(|raw| serde_json::from_str::<Message>(raw.get()).ok());
    let synthetic = message.as_ref().is_some_and(|message| message.model.0.as_deref() == Some(SYNTHETIC));
    let content = message.and_then(|message| Content::of(message.content));
    let kind = match (line.kind.0.as_deref(), content) {
        (Some("assistant"), Some(content)) => assistant(&content)
            .into_iter()
            .map(|kind| match kind {
                ItemKind::Assistant(text) if synthetic && text == FILLER => ItemKind::Filler(text),
                kind => kind,
            })
            .collect(),
        (Some("user"), Some(content)) => user(&line, &content),
        (Some("system"), _) if line.subtype.0.as_deref() == Some("compact_boundary") => {
            vec![ItemKind::Note("conversation compacted")]
        }
        _ => Vec::new(),
    };
    kind.into_iter().map(|kind| Item { at, kind }).collect()
}

fn assistant(content: &Content) -> Vec<ItemKind> {
    match content {
        Content::Text(text) => string(text).map(ItemKind::Assistant).into_iter().collect(),
        Content::Blocks(blocks) => blocks.iter().filter_map(assistant_block).collect(),
    }
}

fn assistant_block(block: &Block) -> Option<ItemKind> {
    match block.kind.0.as_deref()? {
        "text" => string(block.text?).map(ItemKind::Assistant),
        "tool_use" => {
            let name = block.name.0.as_deref()?.to_owned();
            Some(ItemKind::Tool {
                name,
                about: block.input.map(|input| about(input, ABOUT)).unwrap_or_default(),
            })
        }
        _ => None,
    }
}

fn user(line: &Line, content: &Content) -> Vec<ItemKind> {
    if line.interrupted_message_id.is_some() {
        return vec![ItemKind::Note("interrupted by the user")];
    }
    if is_prompt(line, content) {
        return texts(content).into_iter().map(ItemKind::User).collect();
    }
    match content {
        Content::Blocks(blocks) => blocks.iter().filter_map(failure).collect(),
        Content::Text(_) => Vec::new(),
    }
}

/// The texts of a message, without tool calls and results.
pub(super) fn texts(content: &Content) -> Vec<String> {
    match content {
        Content::Text(text) => string(text).into_iter().collect(),
        Content::Blocks(blocks) => blocks.iter().filter_map(|block| string(block.text?)).collect(),
    }
}

fn failure(block: &Block) -> Option<ItemKind> {
    let failed = block.kind.0.as_deref() == Some("tool_result") && block.is_error.0 == Some(true);
    failed.then(|| {
        ItemKind::ToolFailed(block.content.and_then(string).map(|text| one_line(&text)).unwrap_or_default())
    })
}

/// Fields of a tool's input that tell what it is about, in this order.
const ABOUT: &[&str] = &["command", "file_path", "notebook_path", "pattern", "url", "query", "description"];

fn string(raw: &RawValue) -> Option<String> {
    serde_json::from_str::<Cow<str>>(raw.get())
        .ok()
        .map(Cow::into_owned)
        .filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::claude::files::LAYOUT;
    use crate::kit::registry::line::folder;

    fn recorded(file: &str) -> Vec<ItemKind> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/claude").join(file);
        let bytes = std::fs::read(path).unwrap();
        bytes.split(|&byte| byte == b'\n').flat_map(items).map(|item| item.kind).collect()
    }

    fn tool(name: &str, about: &str) -> ItemKind {
        ItemKind::Tool { name: name.into(), about: about.into() }
    }

    #[test]
    fn a_plain_conversation() {
        let kind = recorded("01-plain/projects/-home-dev-project/01000000-0000-4000-8000-000000000001.jsonl");
        assert_eq!(
            kind,
            [
                ItemKind::User("hello there".into()),
                ItemKind::Assistant("OK 2: hello there".into()),
                ItemKind::User("second prompt".into()),
                ItemKind::Assistant("OK 3: second prompt".into()),
                ItemKind::User("third prompt".into()),
                ItemKind::Assistant("OK 4: third prompt".into()),
            ]
        );
    }

    #[test]
    fn tools_are_one_line_each_and_only_failures_show_their_result() {
        let kind = recorded("02-tools/projects/-home-dev-project/02000000-0000-4000-8000-000000000002.jsonl");
        let tools: Vec<&ItemKind> = kind
            .iter()
            .filter(|kind| matches!(kind, ItemKind::Tool { .. } | ItemKind::ToolFailed(_)))
            .collect();
        assert_eq!(tools.len(), 12 + 2);
        assert_eq!(tools[1], &tool("Write", "/home/dev/project/new.txt"));
        let bash = tools.iter().position(|kind| **kind == tool("Bash", "exit 3")).unwrap();
        assert_eq!(tools[bash + 1], &ItemKind::ToolFailed("Exit code 3".into()));
    }

    #[test]
    fn echoes_are_left_out_and_compactions_and_interruptions_are_noted() {
        let compacted =
            recorded("06-compact/projects/-home-dev-project/06000000-0000-4000-8000-000000000006.jsonl");
        assert_eq!(compacted.iter().filter(|kind| matches!(kind, ItemKind::User(_))).count(), 3);
        assert_eq!(compacted[4], ItemKind::Note("conversation compacted"));
        let errors =
            recorded("08-api-error/projects/-home-dev-project/08000000-0000-4000-8000-000000000008.jsonl");
        assert!(errors.contains(&ItemKind::Note("interrupted by the user")));
        assert!(errors.contains(&ItemKind::Assistant("API Error: 400 fake 400".into())));
    }

    #[test]
    fn a_conversation_belongs_to_the_folder_it_is_filed_under() {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join("-home-dev-other");
        std::fs::create_dir(&project).unwrap();
        let file = project.join("7a27.jsonl");
        let line = |cwd: &str| format!("{{\"type\":\"user\",\"cwd\":\"{cwd}\"}}\n");
        for (content, expected) in [
            (line("/home/dev/project") + &line("/home/dev/other") + &line("/tmp"), Some("/home/dev/other")),
            (
                line("/home/dev/project") + "{\"type\":\"relocated\",\"relocatedCwd\":\"/home/dev/other\"}\n",
                Some("/home/dev/other"),
            ),
            (line("/elsewhere") + &line("/tmp"), Some("/elsewhere")),
            ("{\"type\":\"mode\"}\n".to_owned(), None),
        ] {
            std::fs::write(&file, &content).unwrap();
            assert_eq!(folder(LAYOUT, &file).as_deref(), expected.map(Path::new), "{content}");
        }
    }

    #[test]
    fn texts_of_the_program_are_no_answers() {
        let line = |model: &str, text: &str| {
            format!(
                r#"{{"type":"assistant","message":{{"model":"{model}","content":[{{"type":"text","text":"{text}"}}]}}}}"#
            )
        };
        for (model, text, filler) in [
            ("<synthetic>", "No response requested.", true),
            ("<synthetic>", "API Error: 400", false),
            ("claude-opus-4-8", "No response requested.", false),
        ] {
            let kind: Vec<ItemKind> =
                items(line(model, text).as_bytes()).into_iter().map(|item| item.kind).collect();
            let expected =
                if filler { ItemKind::Filler(text.into()) } else { ItemKind::Assistant(text.into()) };
            assert_eq!(kind, [expected], "{model}");
        }
    }

    #[test]
    fn an_answer_that_was_written_before_its_prompt_names_what_it_follows() {
        let file = "07-subagent/projects/-home-dev-project/07000000-0000-4000-8000-000000000007/subagents/agent-a5d0c878158073cce.jsonl";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/claude").join(file);
        let bytes = std::fs::read(path).unwrap();
        let lines: Vec<Threaded> = bytes.split(|&byte| byte == b'\n').take(3).map(thread).collect();
        let [answer, prompt, attached] = lines.as_slice() else { panic!("{lines:?}") };
        assert!(answer.follows.is_some() && answer.follows == attached.id, "{lines:?}");
        assert!(attached.follows.is_some() && attached.follows == prompt.id, "{lines:?}");
        assert_eq!(prompt.follows, None, "a prompt waits for nobody");
    }

    #[test]
    fn broken_lines_add_nothing() {
        for broken in [&b""[..], b"{", b"[]", br#"{"type":"user","message":{"content":[{"type":"text"}]}}"#] {
            assert_eq!(items(broken), []);
        }
    }
}
