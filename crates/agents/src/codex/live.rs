//! Codex while it runs: the turns that a rollout's lines report, how a prompt is given at the start, and its shared server.
//!
//! Measured on 0.166.0, and on 0.150.1 and 0.60.1 where they differ. Reads, and writes nothing.

use std::ffi::{OsStr, OsString};

use super::shape::{Event, Item, Line, ResponseItem, peek, text};
use super::{Codex, screen, writers};
use crate::Var;
use crate::live::{Live, ScreenReading, TurnKind, TurnMark, Writer};
use pty::process::Processes;
use pty::screen::ScreenView;
use types::{AgentSessionId, Timestamp};

impl Live for Codex {
    fn writers(&self, var: Var<'_>, conversation: &AgentSessionId, processes: &dyn Processes) -> Vec<Writer> {
        writers::writers(var, conversation, processes)
    }

    fn read_screen(&self, view: &ScreenView) -> ScreenReading {
        screen::read(view)
    }

    fn read_turn(&self, line: &[u8]) -> Option<TurnMark> {
        // The first line holds the whole base prompt, and tools' output can be long.
        if !matches!(peek(line), Some(b"event_msg" | b"response_item")) {
            return None;
        }
        let line: Line = serde_json::from_slice(line.trim_ascii()).ok()?;
        let kind = match line.kind.0.as_deref()? {
            "event_msg" => event(&line.payload().ok()?)?,
            "response_item" => answer(&line.payload().ok()?)?,
            _ => return None,
        };
        Some(TurnMark { at: line.timestamp.0.as_deref().and_then(Timestamp::parse), kind })
    }

    fn marks_turns(&self) -> bool {
        true
    }

    /// Behind `--`, because a word alone may be the name of a subcommand (`review`), and a text may begin with a dash.
    fn prompt_arguments(&self, prompt: &str) -> Option<Vec<OsString>> {
        (!prompt.trim().is_empty()).then(|| vec!["--".into(), prompt.into()])
    }

    /// `codex app-server --listen unix:// --managed-daemon`, and beside it `codex app-server daemon pid-update-loop`: they serve
    /// every terminal of the user, and outlive each of them.
    fn is_shared_daemon(&self, command: &[OsString]) -> bool {
        let mut words = command.iter().map(OsString::as_os_str).skip_while(|word| *word != "app-server");
        words.next().is_some()
            && words.any(|word| word == OsStr::new("--managed-daemon") || word == "pid-update-loop")
    }
}

/// Turns have a beginning and an end of their own in 0.120.0; in 0.92.0 they do not. There, the last line of a turn looks like any other
/// answer, so that nothing there says that a turn is over.
fn event(event: &Event<'_>) -> Option<TurnKind> {
    match event.kind.0.as_deref()? {
        "task_started" => Some(TurnKind::Goes),
        "task_complete" | "turn_aborted" => Some(TurnKind::Ended),
        "item_completed" => {
            let item: Item<'_> = serde_json::from_str(event.item?.get()).ok()?;
            // Other items are no sign of a turn: that of a command in the background comes whenever the command ends.
            (item.kind.0.as_deref() == Some("UserMessage"))
                .then(|| TurnKind::Prompt(text(item.content).unwrap_or_default()))
        }
        "user_message" => Some(TurnKind::Prompt(event.message.0.as_deref()?.to_owned())),
        _ => None,
    }
}

/// What the model says or asks for. Messages of other roles are context, which is also written between turns.
fn answer(item: &ResponseItem<'_>) -> Option<TurnKind> {
    match item.kind.0.as_deref()? {
        "message" => (item.role.0.as_deref() == Some("assistant")).then_some(TurnKind::Speaks),
        "reasoning" | "function_call" | "custom_tool_call" | "local_shell_call" | "web_search_call"
        | "tool_search_call" => Some(TurnKind::Goes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live_fixtures;
    use std::path::Path;

    fn marks(file: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(file);
        live_fixtures::marks(&Codex, std::fs::read(path).unwrap().split(|&byte| byte == b'\n'))
    }

    #[test]
    fn turns_of_a_recorded_rollout_begin_and_end() {
        const DAY: &str = "codex/plain/sessions/2026/11/15";
        assert_eq!(
            marks(&format!("{DAY}/rollout-2026-11-15T23-31-34-01a1e18d-46b4-7352-92dc-1e28b60230dc.jsonl")),
            ".>hello one.|.>hello two REASON..|"
        );
    }

    #[test]
    fn compaction_is_a_turn_without_a_prompt() {
        const DAY: &str = "codex/fork-compact/sessions/2026/11/15";
        let marks =
            marks(&format!("{DAY}/rollout-2026-11-15T23-34-38-01a1e190-148f-7113-b11c-135dc2344788.jsonl"));
        assert!(marks.starts_with("..|.>") && marks.ends_with(".|"), "{marks}");
    }

    #[test]
    fn turns_of_older_versions() {
        const DAY: &str = "sessions/2026/11/17";
        for (file, expected) in [
            (
                format!(
                    "codex-older/0.120.0-fork/{DAY}/rollout-2026-11-17T09-21-14-01a1e8cf-7bc4-7872-a719-eaed5ca56f3c.jsonl"
                ),
                ".>one [run x]...|.>two.|",
            ),
            // No line says that a turn is over.
            (
                format!(
                    "codex-older/0.92.0-fork/{DAY}/rollout-2026-11-17T09-17-50-01a1e8cc-601b-72c0-9ddb-3106a8520424.jsonl"
                ),
                ">one [think] [run x].....>two.",
            ),
            (
                format!(
                    "codex-older/0.60.1-compact/{DAY}/rollout-2026-11-17T09-17-29-01a1e8cc-0e2b-7e70-bb69-d2551b9e5a9f.jsonl"
                ),
                ">four.>five.",
            ),
        ] {
            assert_eq!(marks(&file), expected, "{file}");
        }
    }

    #[test]
    fn only_turns_are_marked() {
        let line = |kind: &str, payload: &str| {
            format!(r#"{{"timestamp":"2026-11-17T09:21:18.427Z","type":"{kind}","payload":{payload}}}"#)
        };
        for (kind, payload, expected) in [
            ("event_msg", r#"{"type":"turn_aborted","reason":"interrupted"}"#, Some(TurnKind::Ended)),
            ("event_msg", r#"{"type":"task_complete","error":{"message":"no"}}"#, Some(TurnKind::Ended)),
            ("event_msg", r#"{"type":"token_count"}"#, None),
            // A command in the background, which ends between two turns.
            (
                "event_msg",
                r#"{"type":"item_completed","item":{"type":"CommandExecution","status":"failed"}}"#,
                None,
            ),
            ("response_item", r#"{"type":"message","role":"user","content":[]}"#, None),
            (
                "response_item",
                r#"{"type":"message","role":"assistant","content":[]}"#,
                Some(TurnKind::Speaks),
            ),
            ("response_item", r#"{"type":"function_call","name":"exec_command"}"#, Some(TurnKind::Goes)),
            ("response_item", r#"{"type":"function_call_output","output":"x"}"#, None),
            ("turn_context", r#"{"type":"task_started"}"#, None),
        ] {
            let mark = Codex.read_turn(line(kind, payload).as_bytes());
            assert_eq!(mark.map(|mark| mark.kind), expected, "{payload}");
        }
        let text = r#"{"type":"item_completed","item":{"type":"UserMessage","content":[{"type":"text","text":"a\tb\n\nc\n"}]}}"#;
        let mark = Codex.read_turn(line("event_msg", text).as_bytes()).unwrap();
        assert_eq!(mark.kind, TurnKind::Prompt("a\tb\n\nc\n".to_owned()));
        assert_eq!(mark.at, Timestamp::parse("2026-11-17T09:21:18.427Z"));
        for broken in ["", "{", "[]", r#"{"type":"event_msg"}"#, r#"{"type":"response_item","payload":7}"#] {
            assert_eq!(Codex.read_turn(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn a_prompt_is_never_a_flag_or_a_subcommand() {
        for prompt in ["hello", "review", "--version", "-", "two\nlines \"quoted\""] {
            let arguments = Codex.prompt_arguments(prompt).unwrap();
            assert_eq!(arguments, ["--", prompt]);
            let invocation = crate::Launch::classify(&Codex, &arguments);
            assert_eq!(invocation.kind, crate::InvocationKind::Interactive, "{prompt}");
        }
        assert_eq!(Codex.prompt_arguments(" \n"), None);
    }

    #[test]
    fn the_shared_server_is_known_by_its_command_line() {
        let shared = |line: &str| {
            Codex.is_shared_daemon(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
        };
        assert!(shared("/home/dev/.codex/packages/x/codex app-server --listen unix:// --managed-daemon"));
        assert!(shared("codex app-server daemon pid-update-loop"));
        for line in [
            "codex",
            "codex app-server",
            "codex app-server --listen stdio://",
            "codex -- --managed-daemon",
            "",
        ] {
            assert!(!shared(line), "{line}");
        }
    }
}
