//! Tool calls: how much of their texts is kept, how their lines are counted, and what is recorded. The same for every agent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::loose::Loose;
use crate::meter::record::Tool;
use crate::transcript::one_line;
use types::ToolKind;

/// Longest name of a tool that is kept.
pub(crate) const MAX_NAME: usize = 256;

/// Longest path of a file that is kept: `PATH_MAX`.
pub(crate) const MAX_PATH: usize = 4096;

/// The beginning of a text, at most `limit` bytes; no letter is cut in two.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

/// Lines of a text, an unfinished last one included.
pub(crate) fn line_count(text: &str) -> u64 {
    u64::try_from(text.lines().count()).unwrap_or(u64::MAX)
}

/// An agent's own names of tools by their kind. Tools of an MCP server are of unknown kind.
#[derive(Debug)]
pub(crate) struct ToolNames {
    pub(crate) read: &'static [&'static str],
    pub(crate) write: &'static [&'static str],
    pub(crate) edit: &'static [&'static str],
    pub(crate) exec: &'static [&'static str],
}

impl ToolNames {
    pub(crate) fn kind(&self, name: &str) -> ToolKind {
        let kinds = [
            (self.read, ToolKind::Read),
            (self.write, ToolKind::Write),
            (self.edit, ToolKind::Edit),
            (self.exec, ToolKind::Exec),
        ];
        let known = kinds.into_iter().find(|(names, _)| names.contains(&name));
        known.map_or(ToolKind::Other, |(_, kind)| kind)
    }

    /// An ended call. Only a call that changed a file has lines, and only one of a known kind a file.
    pub(crate) fn tool(&self, name: &str, ok: bool, file: Option<String>, lines: ChangedLines) -> Tool {
        let kind = self.kind(name);
        let changes = ok && matches!(kind, ToolKind::Write | ToolKind::Edit);
        let lines = if changes { lines } else { ChangedLines::default() };
        Tool {
            name: cut(name, MAX_NAME),
            ok,
            kind,
            file: file
                .filter(|_| !matches!(kind, ToolKind::Other | ToolKind::Exec))
                .map(|file| cut(&file, MAX_PATH)),
            further: Vec::new(),
            lines_added: lines.added,
            lines_removed: lines.removed,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedLines {
    pub(crate) added: u64,
    pub(crate) removed: u64,
}

impl ChangedLines {
    /// From the statistics of an edit, as Gemini CLI and its descendants write them. Lines of the model's proposal and of the
    /// user's changes to it count alike, as the agent's own statistics do.
    pub(crate) fn of_statistics(raw: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(default)]
        #[expect(clippy::struct_field_names, reason = "these are the agent's names")]
        #[derive(Default)]
        struct Statistics {
            model_added_lines: Loose<u64>,
            model_removed_lines: Loose<u64>,
            user_added_lines: Loose<u64>,
            user_removed_lines: Loose<u64>,
        }
        let lines: Statistics = serde_json::from_str(raw.get()).ok()?;
        let sum = |a: &Loose<u64>, b: &Loose<u64>| a.0.unwrap_or(0).saturating_add(b.0.unwrap_or(0));
        Some(Self {
            added: sum(&lines.model_added_lines, &lines.user_added_lines),
            removed: sum(&lines.model_removed_lines, &lines.user_removed_lines),
        })
    }
}

/// The first of these fields of an object that is a text.
pub(crate) fn first_text(object: &RawValue, names: &[&str]) -> Option<String> {
    let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(object.get()).ok()?;
    let text = |raw: &&RawValue| serde_json::from_str::<Cow<'_, str>>(raw.get()).ok().map(Cow::into_owned);
    names.iter().find_map(|name| fields.get(*name).and_then(text))
}

/// The most telling argument of a call, on one line: the first of these that it has.
pub(crate) fn about(arguments: &RawValue, names: &[&str]) -> String {
    first_text(arguments, names).map(|text| one_line(&text)).unwrap_or_default()
}
