//! Gemini CLI while it runs: the turns that a session file reports, and how a prompt is given at the start.
//!
//! Measured on 0.61.0, and on 0.40.1 where it differs. Reads, and writes nothing.

use std::ffi::OsString;

use super::shape::{self, Line};
use super::{Gemini, screen, writers};
use crate::Var;
use crate::live::{Live, ScreenReading, TurnKind, TurnMark, Writer};
use pty::process::Processes;
use pty::screen::ScreenView;
use types::{AgentSessionId, Timestamp};

impl Live for Gemini {
    fn writers(&self, var: Var<'_>, conversation: &AgentSessionId, processes: &dyn Processes) -> Vec<Writer> {
        writers::writers(var, conversation, processes)
    }

    fn read_screen(&self, view: &ScreenView) -> ScreenReading {
        screen::read(view)
    }

    /// A message of its own line; or, up to 0.3x, an element of the document's list, which has the same shape.
    fn read_turn(&self, line: &[u8]) -> Option<TurnMark> {
        let line: Line<'_> = serde_json::from_slice(line.trim_ascii()).ok()?;
        let kind = turn(&line)?;
        Some(TurnMark { at: line.timestamp.0.as_deref().and_then(Timestamp::parse), kind })
    }

    fn marks_turns(&self) -> bool {
        true
    }

    /// With `=`, because a text may begin with a dash.
    fn prompt_arguments(&self, prompt: &str) -> Option<Vec<OsString>> {
        (!prompt.trim().is_empty()).then(|| vec![format!("--prompt-interactive={prompt}").into()])
    }
}

fn turn(line: &Line<'_>) -> Option<TurnKind> {
    line.id.0.as_ref()?;
    let texts = || line.content.map(shape::texts).unwrap_or_default();
    match line.speaker.0.as_deref()? {
        "user" => match line.prompt() {
            Some(sent) => Some(TurnKind::Prompt(shown(line).unwrap_or(sent))),
            // The answers of tools, which the model gets next. Context comes before a conversation.
            None => texts().is_empty().then_some(TurnKind::Goes),
        },
        // Written before its tools run, and again with them when they have ended. What asks for tools alone has no text. With a
        // text it looks like the end of the turn until then, also while it asks for a permission: nothing in the file tells
        // them apart, but the screen and the title do.
        "gemini" => {
            let asks = line.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
            let silent = texts().concat().trim().is_empty();
            Some(if asks || silent { TurnKind::Goes } else { TurnKind::Ended })
        }
        "error" => Some(TurnKind::Ended),
        "info" => (texts().concat() == "Request cancelled.").then_some(TurnKind::Ended),
        _ => None,
    }
}

/// The text as the user typed it, where another was sent: with the files in it that it names.
fn shown(line: &Line<'_>) -> Option<String> {
    let texts = shape::texts(line.display_content?);
    (!texts.is_empty()).then(|| texts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live_fixtures;
    use std::path::Path;

    fn recorded(file: &str) -> Vec<u8> {
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(file)).unwrap()
    }

    fn row<'a>(lines: impl Iterator<Item = &'a [u8]>) -> String {
        live_fixtures::marks(&Gemini, lines)
    }

    #[test]
    fn turns_of_recorded_conversations_begin_and_end() {
        for (file, expected) in [
            ("gemini/plain/session-2026-11-15T23-44-11111111.jsonl", ">hello one|>hello two THINK|"),
            ("gemini/clear/session-2026-11-15T23-45-31b4067a.jsonl", ""),
        ] {
            let bytes = recorded(file);
            assert_eq!(row(bytes.split(|&byte| byte == b'\n')), expected, "{file}");
        }
        let bytes = recorded("gemini/tools/session-2026-11-15T23-44-a359baa2.jsonl");
        let tools = row(bytes.split(|&byte| byte == b'\n'));
        // A tool: asked for, ended, handed to the model.
        assert!(tools.contains("...|") && tools.ends_with("...|") && !tools.contains("||"), "{tools}");
    }

    #[test]
    fn refused_prompts_and_cancelled_ones_are_over() {
        let bytes = recorded("gemini/api-error/session-2026-11-15T23-48-bdde697d.jsonl");
        let errors = row(bytes.split(|&byte| byte == b'\n'));
        assert!(errors.ends_with('|') && !errors.contains('.'), "{errors}");
        for (text, expected) in
            [("Request cancelled.", Some(TurnKind::Ended)), ("Chat history compressed", None)]
        {
            let line = format!(
                r#"{{"id":"a","timestamp":"2026-11-15T23:48:00Z","type":"info","content":"{text}"}}"#
            );
            assert_eq!(Gemini.read_turn(line.as_bytes()).map(|mark| mark.kind), expected, "{text}");
        }
    }

    /// Each element of the list is a line there.
    #[test]
    fn a_document_of_an_older_version_has_the_same_marks() {
        let document: serde_json::Value = serde_json::from_slice(&recorded(
            "gemini-older/0.30.1-clear/chats/session-2026-11-17T09-24-5b280c07.json",
        ))
        .unwrap();
        let messages = document["messages"].as_array().unwrap();
        let lines: Vec<Vec<u8>> = messages.iter().map(|message| message.to_string().into_bytes()).collect();
        let marks = row(lines.iter().map(Vec::as_slice));
        assert!(marks.starts_with(">one [run x].") && marks.ends_with('|'), "{marks}");
    }

    #[test]
    fn the_text_is_the_one_that_was_typed() {
        let line = r#"{"id":"a","type":"user","content":[{"text":"see @a.txt"},{"text":"\n--- Content from referenced files ---"}],"displayContent":[{"text":"see @a.txt"}]}"#;
        let mark = Gemini.read_turn(line.as_bytes()).unwrap();
        assert_eq!((mark.at, mark.kind), (None, TurnKind::Prompt("see @a.txt".to_owned())));
        for none in [
            "",
            "{",
            r#"{"sessionId":"a","startTime":"2026-11-15T23:48:00Z"}"#,
            r#"{"$set":{"messages":[{"id":"a","type":"user","content":"hello"}]}}"#,
            r#"{"id":"a","type":"user","content":[{"text":"<session_context>\nx"}]}"#,
        ] {
            assert_eq!(Gemini.read_turn(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn a_prompt_is_never_a_flag_or_a_subcommand() {
        for prompt in ["hello", "mcp", "--version", "-", "two\nlines \"quoted\" a=b"] {
            let arguments = Gemini.prompt_arguments(prompt).unwrap();
            assert_eq!(arguments, [format!("--prompt-interactive={prompt}").as_str()]);
            let invocation = crate::Launch::classify(&Gemini, &arguments);
            assert_eq!(invocation.kind, crate::InvocationKind::Interactive, "{prompt}");
            assert!(invocation.injectable, "{prompt}");
        }
        assert_eq!(Gemini.prompt_arguments(""), None);
    }
}
