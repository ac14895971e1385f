//! Tool calls: the message that asked for them is written again with the outcome of each.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::shape::Text;
use crate::kit::loose::Loose;
use crate::kit::tools::{MAX_NAME, MAX_PATH, cut};
use crate::meter::record::{Fact, Record, Tool};
use types::Timestamp;
use types::ToolKind;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Call<'a> {
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
    #[serde(borrow, default)]
    pub(super) status: Text<'a>,
    #[serde(borrow, default)]
    timestamp: Text<'a>,
    #[serde(borrow, default)]
    pub(super) args: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) result_display: Option<&'a RawValue>,
}

impl<'a> Call<'a> {
    pub(super) fn of(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// `None` while the call runs.
    pub(super) fn ok(&self) -> Option<bool> {
        match self.status.0.as_deref()? {
            "success" => Some(true),
            "error" | "cancelled" => Some(false),
            _ => None,
        }
    }

    /// The ended call. Ids of calls are the model's and may come again in another conversation, so the message's id, which
    /// is unique, precedes them.
    pub(super) fn record(
        &self,
        message: &str,
        subagent: Option<&str>,
        asked_at: Timestamp,
    ) -> Option<Record> {
        let (id, name, ok) = (self.id.0.as_deref()?, self.name.0.as_deref()?, self.ok()?);
        let kind = kind(name);
        let change = Change::of(self.result_display);
        let changes = ok && matches!(kind, ToolKind::Write | ToolKind::Edit);
        let file = if matches!(kind, ToolKind::Other | ToolKind::Exec) {
            None
        } else {
            change.file.or_else(|| self.args.and_then(file_argument))
        };
        let fact = Fact::Tool(Tool {
            name: cut(name, MAX_NAME),
            ok,
            kind,
            file: file.map(|file| cut(&file, MAX_PATH)),
            further: Vec::new(),
            lines_added: if changes { change.added } else { 0 },
            lines_removed: if changes { change.removed } else { 0 },
        });
        Some(Record {
            key: format!("{message}/{}", cut(id, MAX_NAME)),
            at: self.timestamp.0.as_deref().and_then(Timestamp::parse).unwrap_or(asked_at),
            copied: false,
            subagent: subagent.map(str::to_owned),
            fact,
        })
    }
}

/// By the agent's own tool names; tools of an MCP server are of unknown kind.
fn kind(name: &str) -> ToolKind {
    match name {
        "read_file"
        | "read_many_files"
        | "list_directory"
        | "glob"
        | "grep_search"
        | "search_file_content" => ToolKind::Read,
        "write_file" => ToolKind::Write,
        "replace" | "edit" => ToolKind::Edit,
        "run_shell_command" => ToolKind::Exec,
        _ => ToolKind::Other,
    }
}

fn file_argument(args: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Args<'a> {
        #[serde(borrow, default)]
        file_path: Text<'a>,
        #[serde(borrow, default)]
        absolute_path: Text<'a>,
    }
    let args: Args = serde_json::from_str(args.get()).ok()?;
    args.file_path.0.or(args.absolute_path.0).map(std::borrow::Cow::into_owned)
}

/// What a result reports of the file it changed. Lines of the model's proposal and of the user's changes to it count alike, as
/// the agent's own statistics do.
#[derive(Debug, Default)]
struct Change {
    file: Option<String>,
    added: u64,
    removed: u64,
}

impl Change {
    fn of(display: Option<&RawValue>) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Display<'a> {
            #[serde(borrow, default)]
            file_path: Text<'a>,
            #[serde(default)]
            diff_stat: Option<Stat>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        #[expect(clippy::struct_field_names, reason = "these are the agent's names")]
        struct Stat {
            model_added_lines: Loose<u64>,
            model_removed_lines: Loose<u64>,
            user_added_lines: Loose<u64>,
            user_removed_lines: Loose<u64>,
        }
        // Of most tools it is a text or a list.
        let Some(Ok(display)) = display.map(|raw| serde_json::from_str::<Display>(raw.get())) else {
            return Self::default();
        };
        let stat = display.diff_stat.unwrap_or_default();
        let sum = |a: &Loose<u64>, b: &Loose<u64>| a.0.unwrap_or(0).saturating_add(b.0.unwrap_or(0));
        Self {
            file: display.file_path.0.map(std::borrow::Cow::into_owned),
            added: sum(&stat.model_added_lines, &stat.user_added_lines),
            removed: sum(&stat.model_removed_lines, &stat.user_removed_lines),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(json: &str) -> Option<Record> {
        let raw = RawValue::from_string(json.to_owned()).unwrap();
        Call::of(&raw)?.record("m1", None, Timestamp(7))
    }

    #[test]
    fn ended_calls_have_outcomes_files_and_lines() {
        let diff = r#""resultDisplay":{"filePath":"/p/a.rs","diffStat":{"model_added_lines":3,"model_removed_lines":1,"user_added_lines":1,"user_removed_lines":0}}"#;
        for (json, kind, ok, file, lines) in [
            (format!(r#"{{"id":"c","name":"write_file","status":"success",{diff}}}"#), ToolKind::Write, true, Some("/p/a.rs"), (4, 1)),
            (format!(r#"{{"id":"c","name":"replace","status":"error",{diff}}}"#), ToolKind::Edit, false, Some("/p/a.rs"), (0, 0)),
            (r#"{"id":"c","name":"replace","status":"cancelled","args":{"file_path":"x.rs"},"resultDisplay":"no"}"#.into(), ToolKind::Edit, false, Some("x.rs"), (0, 0)),
            (r#"{"id":"c","name":"read_file","status":"success","args":{"absolute_path":"/p/r"}}"#.into(), ToolKind::Read, true, Some("/p/r"), (0, 0)),
            (format!(r#"{{"id":"c","name":"mcp_disk_write","status":"success",{diff}}}"#), ToolKind::Other, true, None, (0, 0)),
            (r#"{"id":"c","name":"run_shell_command","status":"success","args":{"file_path":7},"resultDisplay":[[1]]}"#.into(), ToolKind::Exec, true, None, (0, 0)),
            (r#"{"id":"c","name":"write_file","status":"success","resultDisplay":{"diffStat":{"model_added_lines":"x"}}}"#.into(), ToolKind::Write, true, None, (0, 0)),
        ] {
            let record = tool(&json).unwrap_or_else(|| panic!("{json}"));
            assert_eq!((record.key.as_str(), record.at), ("m1/c", Timestamp(7)));
            let Fact::Tool(tool) = record.fact else { panic!("{json}") };
            assert_eq!((tool.kind, tool.ok, tool.file.as_deref()), (kind, ok, file), "{json}");
            assert_eq!((tool.lines_added, tool.lines_removed), lines, "{json}");
        }
    }

    #[test]
    fn a_call_that_runs_or_has_no_name_is_no_record() {
        for json in [
            r#"{"id":"c","name":"glob","status":"executing"}"#,
            r#"{"id":"c","name":"glob"}"#,
            r#"{"name":"glob","status":"success"}"#,
            r#"{"id":"c","status":"success"}"#,
            "[]",
            "7",
        ] {
            assert_eq!(tool(json), None, "{json}");
        }
    }
}
