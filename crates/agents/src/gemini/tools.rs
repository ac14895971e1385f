//! Tool calls: the message that asked for them is written again with the outcome of each.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::shape::Text;
use crate::kit::tools::{ChangedLines, MAX_NAME, ToolNames, cut, first_text};
use crate::meter::record::{Fact, Record};
use types::Timestamp;

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
        let (changed, lines) = change(self.result_display);
        let file = changed.or_else(|| first_text(self.args?, &["file_path", "absolute_path"]));
        let fact = Fact::Tool(TOOLS.tool(name, ok, file, lines));
        Some(Record {
            key: format!("{message}/{}", cut(id, MAX_NAME)),
            at: self.timestamp.0.as_deref().and_then(Timestamp::parse).unwrap_or(asked_at),
            copied: false,
            subagent: subagent.map(str::to_owned),
            fact,
        })
    }
}

static TOOLS: ToolNames = ToolNames {
    read: &["read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content"],
    write: &["write_file"],
    edit: &["replace", "edit"],
    exec: &["run_shell_command"],
};

/// What a result reports of the file it changed. Of most tools it is a text or a list.
fn change(display: Option<&RawValue>) -> (Option<String>, ChangedLines) {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Display<'a> {
        #[serde(borrow, default)]
        file_path: Text<'a>,
        #[serde(borrow, default)]
        diff_stat: Option<&'a RawValue>,
    }
    let display: Display = display.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let lines = display.diff_stat.and_then(ChangedLines::of_statistics);
    (display.file_path.0.map(std::borrow::Cow::into_owned), lines.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ToolKind;

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
