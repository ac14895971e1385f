//! Tool calls: a `tool_use` block and, on a later line, its `tool_result`. The first holds the name, the second
//! the outcome, and sometimes the result's line comes first (separate write queues).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::shape::Text;
use crate::kit::tools::{ChangedLines, MAX_NAME, MAX_PATH, ToolNames, cut, first_text, line_count};
use crate::meter::record::{Fact, Record};
use types::Timestamp;

/// Bounds the stored state, together with the longest name and path. Why 256: one answer starts some tens of tools at most, and each is answered before the next turn. Older
/// entries are leftovers of killed runs; the oldest go first.
const MAX_WAITING: usize = 256;

/// The halves of tool calls that wait for each other, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Waiting(VecDeque<(String, Half)>);

/// The names are part of the state that stores of earlier versions hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Half {
    Use(Use),
    Outcome(ToolOutcome),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Use {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ToolOutcome {
    pub(super) at: Timestamp,
    pub(super) ok: bool,
    pub(super) copied: bool,
    pub(super) subagent: Option<String>,
    pub(super) change: Change,
}

/// What a result reports of the file it changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Change {
    file: Option<String>,
    added: u64,
    removed: u64,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A `tool_use` block; a record if its result is already there.
    pub(super) fn used(&mut self, id: &str, name: &str, input: Option<&RawValue>) -> Option<Record> {
        let call = Use { name: cut(name, MAX_NAME), file: input.and_then(input_file) };
        if let Some(Half::Outcome(outcome)) = self.take(id) {
            return Some(record(id, call, outcome));
        }
        self.wait(id, Half::Use(call));
        None
    }

    /// A `tool_result` block; a record if its call is known.
    pub(super) fn ended(&mut self, id: &str, outcome: ToolOutcome) -> Option<Record> {
        if let Some(Half::Use(call)) = self.take(id) {
            return Some(record(id, call, outcome));
        }
        self.wait(id, Half::Outcome(outcome));
        None
    }

    fn take(&mut self, id: &str) -> Option<Half> {
        let at = self.0.iter().position(|(waiting, _)| waiting == id)?;
        self.0.remove(at).map(|(_, half)| half)
    }

    fn wait(&mut self, id: &str, half: Half) {
        if self.0.len() == MAX_WAITING {
            self.0.pop_front();
        }
        self.0.push_back((cut(id, MAX_NAME), half));
    }
}

fn record(id: &str, call: Use, outcome: ToolOutcome) -> Record {
    let Change { file, added, removed } = outcome.change;
    let lines = ChangedLines { added, removed };
    Record {
        key: id.to_owned(),
        at: outcome.at,
        copied: outcome.copied,
        subagent: outcome.subagent,
        fact: Fact::Tool(TOOLS.tool(&call.name, outcome.ok, file.or(call.file), lines)),
    }
}

static TOOLS: ToolNames = ToolNames {
    read: &["Read", "Grep", "Glob", "LS", "NotebookRead"],
    write: &["Write"],
    edit: &["Edit", "MultiEdit", "NotebookEdit"],
    exec: &["Bash", "PowerShell"],
};

fn input_file(input: &RawValue) -> Option<String> {
    first_text(input, &["file_path", "notebook_path"]).map(|path| cut(&path, MAX_PATH))
}

impl Change {
    /// From `toolUseResult`, which is an object, a list or, for errors, a string. An edit and an update carry a patch; a
    /// created file carries none and all its content is new.
    pub(super) fn of(result: Option<&RawValue>) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Result<'a> {
            #[serde(borrow, default, rename = "type")]
            kind: Text<'a>,
            #[serde(borrow, default)]
            file_path: Text<'a>,
            #[serde(borrow, default)]
            content: Text<'a>,
            #[serde(borrow, default)]
            structured_patch: Option<&'a RawValue>,
        }
        let Some(Ok(result)) = result.map(|raw| serde_json::from_str::<Result>(raw.get())) else {
            return Self::default();
        };
        let file = result.file_path.0.map(|path| cut(&path, MAX_PATH));
        if result.kind.0.as_deref() == Some("create") {
            let added = result.content.0.map_or(0, |content| line_count(&content));
            return Self { file, added, removed: 0 };
        }
        let (added, removed) = result.structured_patch.map_or((0, 0), patch);
        Self { file, added, removed }
    }
}

fn patch(raw: &RawValue) -> (u64, u64) {
    #[derive(Deserialize)]
    struct Hunk<'a> {
        #[serde(borrow, default)]
        lines: Vec<Text<'a>>,
    }
    let hunks: Vec<Hunk> = serde_json::from_str(raw.get()).unwrap_or_default();
    let signs =
        hunks.iter().flat_map(|hunk| &hunk.lines).filter_map(|line| line.0.as_deref()?.chars().next());
    signs.fold((0, 0), |(added, removed), sign| match sign {
        '+' => (added + 1, removed),
        '-' => (added, removed + 1),
        _ => (added, removed), // context, and git's "\ No newline at end of file"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::record::Tool;
    use types::ToolKind;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn outcome(ok: bool, result: &str) -> ToolOutcome {
        let change = Change::of(Some(&raw(result)));
        ToolOutcome { at: Timestamp(7), ok, copied: false, subagent: None, change }
    }

    fn tool(name: &str, input: &str, outcome: ToolOutcome) -> Tool {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.used("toolu_1", name, Some(&raw(input))), None);
        let record = waiting.ended("toolu_1", outcome).unwrap();
        assert!(waiting.is_empty());
        match record.fact {
            Fact::Tool(tool) => tool,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_are_counted_from_the_result() {
        let patch = r#"{"filePath":"/p/a.rs","structuredPatch":[{"lines":[" a","-b","+c","+d"]},{"lines":["-x","\\ No newline at end of file"]}]}"#;
        for (name, input, ok, result, expected) in [
            ("Edit", r#"{"file_path":"/p/a.rs"}"#, true, patch, (2, 2)),
            ("MultiEdit", "{}", true, patch, (2, 2)),
            (
                "Write",
                "{}",
                true,
                r#"{"type":"update","structuredPatch":[{"lines":["+x"]}],"content":"a\nb"}"#,
                (1, 0),
            ),
            ("Write", "{}", true, r#"{"type":"create","content":"a\nb\n","structuredPatch":[]}"#, (2, 0)),
            ("Write", "{}", true, r#"{"type":"create","content":"a\nb"}"#, (2, 0)),
            ("Write", "{}", true, r#"{"type":"create","content":""}"#, (0, 0)),
            ("Edit", "{}", false, r#""Error: String to replace not found""#, (0, 0)),
            ("Edit", "{}", false, patch, (0, 0)), // refused after the diff was made
            ("mcp__disk__write", "{}", true, patch, (0, 0)), // not ours to interpret
            ("Edit", "{}", true, r#"{"structuredPatch":7}"#, (0, 0)),
            ("Edit", "{}", true, "[1,2]", (0, 0)),
        ] {
            let tool = tool(name, input, outcome(ok, result));
            assert_eq!((tool.lines_added, tool.lines_removed), expected, "{name} {result}");
            assert_eq!(tool.ok, ok);
        }
    }

    #[test]
    fn tools_have_kinds_and_files() {
        let path = r#"{"file_path":"/p/a.rs","command":"ls"}"#;
        for (name, input, kind, file) in [
            ("Read", path, ToolKind::Read, Some("/p/a.rs")),
            ("Grep", r#"{"pattern":"x","path":"/p"}"#, ToolKind::Read, None),
            ("Write", path, ToolKind::Write, Some("/p/a.rs")),
            ("NotebookEdit", r#"{"notebook_path":"/p/n.ipynb"}"#, ToolKind::Edit, Some("/p/n.ipynb")),
            ("Edit", r#"{"file_path":7}"#, ToolKind::Edit, None),
            ("Bash", path, ToolKind::Exec, None),
            ("Agent", path, ToolKind::Other, None),
            ("mcp__server__Read", path, ToolKind::Other, None),
        ] {
            let tool = tool(name, input, outcome(true, "{}"));
            assert_eq!((tool.kind, tool.file.as_deref()), (kind, file), "{name}");
        }
        let edit = tool("Edit", "{}", outcome(true, r#"{"filePath":"/real/a.rs"}"#));
        assert_eq!(edit.file.as_deref(), Some("/real/a.rs"));
    }

    #[test]
    fn either_half_may_come_first_and_the_waiting_one_survives_a_restart() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.ended("toolu_1", outcome(true, "{}")), None);
        assert_eq!(waiting.used("toolu_2", "Bash", None), None);
        let state = serde_json::to_string(&waiting).unwrap();
        let mut restored: Waiting = serde_json::from_str(&state).unwrap();
        assert_eq!(restored, waiting);
        assert_eq!(restored.used("toolu_1", "Read", None).unwrap().key, "toolu_1");
        assert_eq!(restored.ended("toolu_2", outcome(false, "{}")).unwrap().at, Timestamp(7));
        assert!(restored.is_empty());
    }

    #[test]
    fn a_state_of_an_earlier_version_is_read() {
        let state = r#"[["toolu_1",{"use":{"name":"Read","file":"/p/a.rs"}}],["toolu_2",{"outcome":{"at":7,"ok":true,"copied":false,"subagent":null,"change":{"file":null,"added":0,"removed":0}}}]]"#;
        let mut waiting: Waiting = serde_json::from_str(state).unwrap();
        assert_eq!(serde_json::to_string(&waiting).unwrap(), state);
        assert!(waiting.ended("toolu_1", outcome(true, "{}")).is_some());
        assert!(waiting.used("toolu_2", "Bash", None).is_some());
    }

    #[test]
    fn unanswered_calls_are_forgotten_oldest_first() {
        let mut waiting = Waiting::default();
        for call in 0..=MAX_WAITING {
            waiting.used(&format!("toolu_{call}"), &"n".repeat(MAX_NAME * 2), None);
        }
        assert_eq!(waiting.0.len(), MAX_WAITING);
        assert_eq!(waiting.ended("toolu_0", outcome(true, "{}")), None);
        let last = waiting.ended(&format!("toolu_{MAX_WAITING}"), outcome(true, "{}")).unwrap();
        assert!(matches!(last.fact, Fact::Tool(tool) if tool.name.len() == MAX_NAME));
    }
}
