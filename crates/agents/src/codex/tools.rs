//! Tool calls: a call line of the model, perhaps an item with the outcome, and an output line for the model.
//!
//! The call holds the name, the item the outcome or, where there is none, the output's text. A command that continues
//! in the background gives its output first, and its item when it has ended; until then the call is not over. A patch
//! that does not fit has no item at all. One that a shell command carries out (`apply_patch <<EOF`) is a patch all the same.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::shape::{Item, Text};
use crate::kit::tools::{MAX_NAME, MAX_PATH, cut, line_count};
use crate::meter::record::{Fact, Record, Tool};
use types::Timestamp;
use types::ToolKind;

/// Bounds the stored state, together with the longest name and path. Why 256: one answer calls some tens of tools at most. Older entries are leftovers of killed runs and of
/// commands that never end; the oldest go first.
const MAX_WAITING: usize = 256;

/// Files of one patch that are counted beside the first; no patch a model writes has more.
const MAX_FURTHER: usize = 1000;

/// The calls that are not over, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Waiting(VecDeque<(String, Call)>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Call {
    name: String,
    /// Its output has come, but its command runs on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    goes_on: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<ToolOutcome>,
}

/// The outcome that an item reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ToolOutcome {
    ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<ToolKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    further: Vec<String>,
    #[serde(default)]
    added: u64,
    #[serde(default)]
    removed: u64,
}

/// When the call was made, and by which sub-agent.
#[derive(Clone, Debug)]
pub(super) struct CallOrigin {
    pub(super) at: Timestamp,
    pub(super) subagent: Option<String>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn called(&mut self, id: &str, name: &str) {
        if self.0.len() == MAX_WAITING {
            self.0.pop_front();
        }
        self.0.push_back((
            cut(id, MAX_NAME),
            Call { name: cut(name, MAX_NAME), goes_on: false, outcome: None },
        ));
    }

    /// An item that came to its end; a record if that ends the call.
    pub(super) fn item_ended(&mut self, item: &Item, origin: CallOrigin) -> Option<Record> {
        let id = item.id.0.as_deref()?;
        let at = self.position(id)?;
        let outcome = ToolOutcome::of(item)?;
        if self.0[at].1.goes_on {
            let (id, call) = self.0.remove(at)?;
            return Some(record(id, call, outcome, origin));
        }
        self.0[at].1.outcome = Some(outcome);
        None
    }

    /// The output for the model; a record unless the command goes on.
    pub(super) fn answered(&mut self, id: &str, output: &str, origin: CallOrigin) -> Option<Record> {
        let at = self.position(id)?;
        let call = &mut self.0[at].1;
        let outcome = match call.outcome.take() {
            Some(outcome) => outcome,
            None if goes_on(output) => {
                call.goes_on = true;
                return None;
            }
            None => ToolOutcome { ok: went_well(&call.name, output), ..ToolOutcome::default() },
        };
        let (id, call) = self.0.remove(at)?;
        Some(record(id, call, outcome, origin))
    }

    fn position(&self, id: &str) -> Option<usize> {
        self.0.iter().position(|(waiting, _)| waiting == id)
    }
}

/// A call that is one line, with no output to wait for.
pub(super) fn at_once(id: &str, name: &str, origin: CallOrigin) -> Record {
    let call = Call { name: name.to_owned(), goes_on: false, outcome: None };
    let outcome = ToolOutcome { ok: true, ..ToolOutcome::default() };
    record(cut(id, MAX_NAME), call, outcome, origin)
}

fn record(key: String, call: Call, outcome: ToolOutcome, origin: CallOrigin) -> Record {
    let kind = outcome.kind.unwrap_or_else(|| kind(&call.name));
    Record {
        key,
        at: origin.at,
        copied: false,
        subagent: origin.subagent,
        fact: Fact::Tool(Tool {
            name: call.name,
            ok: outcome.ok,
            kind,
            file: outcome.file,
            further: outcome.further,
            lines_added: if outcome.ok { outcome.added } else { 0 },
            lines_removed: if outcome.ok { outcome.removed } else { 0 },
        }),
    }
}

/// By the agent's own tool names, of this and earlier versions.
fn kind(name: &str) -> ToolKind {
    match name {
        "exec_command" | "write_stdin" | "shell" | "shell_command" | "local_shell" | "container.exec" => {
            ToolKind::Exec
        }
        "apply_patch" => ToolKind::Edit,
        "read_file" | "list_dir" | "grep_files" | "view_image" => ToolKind::Read,
        _ => ToolKind::Other,
    }
}

fn goes_on(output: &str) -> bool {
    head(output).any(|line| line.starts_with("Process running with session ID"))
}

/// The outcome by the output's text, where there is no item: an exit code if there is one. A call that could not be made
/// has none.
fn went_well(name: &str, output: &str) -> bool {
    const CODES: [&str; 2] = ["Process exited with code ", "Exit code: "];
    const REFUSALS: [&str; 4] = [
        "unsupported call: ",
        "failed to parse function arguments",
        "apply_patch verification failed",
        "aborted",
    ];
    #[derive(Deserialize)]
    struct Older {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        exit_code: i64,
    }
    let code = head(output).find_map(|line| CODES.iter().find_map(|words| line.strip_prefix(words)));
    match code {
        Some(code) => code.trim() == "0",
        None => match serde_json::from_str::<Older>(output) {
            Ok(older) => older.metadata.exit_code == 0,
            // A patch that was applied is reported as such.
            Err(_) if kind(name) == ToolKind::Edit => output.starts_with("Success"),
            Err(_) => !REFUSALS.iter().any(|refusal| output.starts_with(refusal)),
        },
    }
}

/// The lines above a command's own output.
fn head(output: &str) -> impl Iterator<Item = &str> {
    output.lines().take(6).take_while(|line| *line != "Output:")
}

impl ToolOutcome {
    fn of(item: &Item) -> Option<Self> {
        let ok = item.status.0.as_deref() == Some("completed");
        let plain = Self { ok, ..Self::default() };
        match item.kind.0.as_deref()? {
            "FileChange" => Some(changes(item.changes, plain)),
            "CommandExecution" => Some(command(item.parsed_cmd, plain)),
            _ => item.status.0.is_some().then_some(plain),
        }
    }
}

/// A patch: new files alone are written, anything else is edited. Several files are one call.
fn changes(raw: Option<&RawValue>, plain: ToolOutcome) -> ToolOutcome {
    #[derive(Deserialize)]
    struct Change<'a> {
        #[serde(borrow, default, rename = "type")]
        kind: Text<'a>,
        #[serde(borrow, default)]
        content: Text<'a>,
        #[serde(borrow, default)]
        unified_diff: Text<'a>,
    }
    let changes: std::collections::BTreeMap<String, Change> =
        raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let written =
        !changes.is_empty() && changes.values().all(|change| change.kind.0.as_deref() == Some("add"));
    let mut outcome =
        ToolOutcome { kind: Some(if written { ToolKind::Write } else { ToolKind::Edit }), ..plain };
    for (path, change) in &changes {
        match outcome.file {
            None => outcome.file = Some(cut(path, MAX_PATH)),
            Some(_) if outcome.further.len() < MAX_FURTHER => outcome.further.push(cut(path, MAX_PATH)),
            Some(_) => {}
        }
        let content = || change.content.0.as_deref().map_or(0, line_count);
        match change.kind.0.as_deref() {
            Some("add") => outcome.added += content(),
            Some("delete") => outcome.removed += content(),
            _ => {
                let (added, removed) = change.unified_diff.0.as_deref().map_or((0, 0), diff);
                outcome.added += added;
                outcome.removed += removed;
            }
        }
    }
    outcome
}

/// A command that only reads files: the agent itself notes the purpose of each part of the line.
fn command(raw: Option<&RawValue>, plain: ToolOutcome) -> ToolOutcome {
    #[derive(Deserialize)]
    struct Parsed<'a> {
        #[serde(borrow, default, rename = "type")]
        kind: Text<'a>,
        #[serde(borrow, default)]
        path: Text<'a>,
    }
    let parsed: Vec<Parsed> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let reads = |part: &Parsed| matches!(part.kind.0.as_deref(), Some("read" | "list_files" | "search"));
    if parsed.is_empty() || !parsed.iter().all(reads) {
        return plain;
    }
    let read = parsed.into_iter().find(|part| part.kind.0.as_deref() == Some("read"));
    let file = read.and_then(|part| part.path.0).map(|path| cut(&path, MAX_PATH));
    ToolOutcome { kind: Some(ToolKind::Read), file, ..plain }
}

/// Lines added and removed. A diff may begin with the names of its two sides.
fn diff(text: &str) -> (u64, u64) {
    let hunks = text.lines().skip_while(|line| !line.starts_with("@@"));
    hunks.fold((0, 0), |(added, removed), line| match line.as_bytes().first() {
        Some(b'+') => (added + 1, removed),
        Some(b'-') => (added, removed + 1),
        _ => (added, removed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> CallOrigin {
        CallOrigin { at: Timestamp(7), subagent: None }
    }

    fn item(json: &str) -> Item<'_> {
        serde_json::from_str(json).unwrap()
    }

    fn tool(record: Option<Record>) -> Tool {
        match record.map(|record| record.fact) {
            Some(Fact::Tool(tool)) => tool,
            other => panic!("{other:?}"),
        }
    }

    /// A call, its item if it has one, its output.
    fn play(name: &str, reported: Option<&str>, output: &str) -> Tool {
        let mut waiting = Waiting::default();
        waiting.called("c", name);
        if let Some(reported) = reported {
            assert_eq!(waiting.item_ended(&item(reported), origin()), None);
        }
        let tool = tool(waiting.answered("c", output, origin()));
        assert!(waiting.is_empty());
        tool
    }

    #[test]
    fn outcomes_are_read_from_item_or_output() {
        let done = |kind: &str, status: &str| format!(r#"{{"type":"{kind}","id":"c","status":"{status}"}}"#);
        let exited = |code: i32| {
            format!("Chunk ID: a\nWall time: 0.1 seconds\nProcess exited with code {code}\nOutput:\nx\n")
        };
        for (name, reported, output, ok) in [
            ("exec_command", Some(done("CommandExecution", "completed")), exited(0), true),
            ("exec_command", Some(done("CommandExecution", "failed")), exited(3), false),
            ("exec_command", None, exited(0), true),
            ("write_stdin", None, exited(1), false),
            (
                "shell",
                None,
                r#"{"output":"x","metadata":{"exit_code":2,"duration_seconds":0.1}}"#.to_owned(),
                false,
            ),
            ("shell", None, r#"{"output":"x","metadata":{"exit_code":0}}"#.to_owned(), true),
            ("apply_patch", None, "apply_patch verification failed: no such file".to_owned(), false),
            ("apply_patch", None, "Exit code: 1\nOutput:\nno".to_owned(), false),
            ("apply_patch", None, "Success. Updated the following files:\nA a".to_owned(), true),
            ("spawn_agent", Some(done("CollabAgentToolCall", "completed")), "{}".to_owned(), true),
            ("spawn_agent", Some(done("CollabAgentToolCall", "failed")), "{}".to_owned(), false),
            ("nosuch", None, "unsupported call: nosuch".to_owned(), false),
            ("update_plan", None, "Plan updated".to_owned(), true),
            // A command's own output decides nothing.
            ("exec_command", None, format!("{}Exit code: 9\n", exited(0)), true),
        ] {
            assert_eq!(play(name, reported.as_deref(), &output).ok, ok, "{name} {output}");
        }
    }

    #[test]
    fn calls_have_kinds_files_and_lines() {
        let changes = |changes: &str, status: &str| {
            format!(r#"{{"type":"FileChange","id":"c","status":"{status}","changes":{changes}}}"#)
        };
        let add = r#"{"/p/a.rs":{"type":"add","content":"one\ntwo"}}"#;
        let update = r#"{"/p/a.rs":{"type":"update","unified_diff":"--- a\n+++ b\n@@ -1 +1,2 @@\n x\n-y\n+z\n+--w\n","move_path":null}}"#;
        let both =
            r#"{"/p/b.rs":{"type":"add","content":"x\n"},"/p/a.rs":{"type":"delete","content":"1\n2\n"}}"#;
        let run = |parsed: &str| {
            format!(r#"{{"type":"CommandExecution","id":"c","status":"completed","parsed_cmd":{parsed}}}"#)
        };
        let read = r#"[{"type":"search","path":null},{"type":"read","path":"src/a.rs"}]"#;
        for (name, reported, kind, file, lines) in [
            ("apply_patch", changes(add, "completed"), ToolKind::Write, Some("/p/a.rs"), (2, 0)),
            ("apply_patch", changes(update, "completed"), ToolKind::Edit, Some("/p/a.rs"), (2, 1)),
            ("apply_patch", changes(update, "declined"), ToolKind::Edit, Some("/p/a.rs"), (0, 0)),
            ("exec_command", changes(both, "completed"), ToolKind::Edit, Some("/p/a.rs"), (1, 2)),
            ("apply_patch", changes("7", "completed"), ToolKind::Edit, None, (0, 0)),
            ("exec_command", run(read), ToolKind::Read, Some("src/a.rs"), (0, 0)),
            (
                "exec_command",
                run(r#"[{"type":"read","path":"a"},{"type":"unknown"}]"#),
                ToolKind::Exec,
                None,
                (0, 0),
            ),
            ("exec_command", run("[]"), ToolKind::Exec, None, (0, 0)),
        ] {
            let tool = play(name, Some(&reported), "Output:\n");
            let seen = (tool.kind, tool.file.as_deref(), (tool.lines_added, tool.lines_removed));
            assert_eq!(seen, (kind, file, lines), "{reported}");
        }
        let several = play("apply_patch", Some(&changes(both, "completed")), "Output:\n");
        assert_eq!(several.further, ["/p/b.rs"]);
    }

    #[test]
    fn a_command_that_goes_on_ends_with_its_item_also_after_a_restart() {
        let mut waiting = Waiting::default();
        waiting.called("c", "exec_command");
        let output = "Chunk ID: a\nWall time: 0.3 seconds\nProcess running with session ID 31310\nOutput:\n";
        assert_eq!(waiting.answered("c", output, origin()), None);
        let state = serde_json::to_string(&waiting).unwrap();
        let mut waiting: Waiting = serde_json::from_str(&state).unwrap();
        let ended = r#"{"type":"CommandExecution","id":"c","status":"failed","exit_code":-1}"#;
        assert!(!tool(waiting.item_ended(&item(ended), origin())).ok);
        assert!(waiting.is_empty());
    }

    #[test]
    fn an_output_without_a_call_is_no_call() {
        let mut waiting = Waiting::default();
        let by_the_user = r#"{"type":"CommandExecution","id":"x","status":"completed"}"#;
        assert_eq!(waiting.item_ended(&item(by_the_user), origin()), None);
        assert_eq!(waiting.answered("x", "", origin()), None);
        for call in 0..=MAX_WAITING {
            waiting.called(&format!("c{call}"), &"n".repeat(MAX_NAME * 2));
        }
        assert_eq!(waiting.0.len(), MAX_WAITING, "the oldest goes");
    }
}
