//! What callers of the MCP server may do: the part of the settings that it goes by.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use toml_edit::Value;

use super::{Settings, keys};

/// The table that holds one command line per name, for `codemie mcp --compat genie`.
const GENIE: &str = "mcp.genie";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpConfig {
    /// A session may be started in any folder, not only in the caller's project.
    pub any_folder: bool,
    /// Arguments that a caller may give an agent, one pattern each.
    pub allow_args: Vec<String>,
    /// Callers inside of a session may answer the dialogs of others.
    pub allow_answers: bool,
    /// How many sessions may run at once below one caller.
    pub max_sessions: u32,
    /// How deep sessions may start sessions.
    pub max_depth: u32,
    /// How long a session that was started here may be idle while nobody needs it; `None`: for ever.
    pub idle_limit: Option<Duration>,
    /// Command lines by name.
    pub genie: BTreeMap<String, Vec<String>>,
}

impl McpConfig {
    pub(super) fn read<V: Fn(&str) -> Option<OsString>>(settings: &mut Settings<V>) -> Self {
        let names = settings.names_in(GENIE);
        Self {
            any_folder: settings.flag("mcp.anyFolder"),
            allow_args: settings.list("mcp.allowArgs"),
            allow_answers: settings.flag(keys::ALLOW_ANSWERS),
            max_sessions: settings.count("mcp.maxSessions"),
            max_depth: settings.count("mcp.maxDepth"),
            idle_limit: settings
                .text("mcp.idleLimit")
                .as_deref()
                .and_then(keys::limit)
                .filter(|limit| !limit.is_zero()),
            genie: names
                .into_iter()
                .map(|name| {
                    let line = settings.list(&format!("{GENIE}.{name}"));
                    (name, line)
                })
                .filter(|(_, line)| !line.is_empty())
                .collect(),
        }
    }
}

impl<V: Fn(&str) -> Option<OsString>> Settings<V> {
    pub(super) fn list(&mut self, key: &str) -> Vec<String> {
        let texts = |value: Value| {
            let texts = value.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned);
            Some(texts.collect())
        };
        self.get(key).and_then(|(value, _)| texts(value)).unwrap_or_default()
    }

    fn count(&mut self, key: &str) -> u32 {
        let count = self.get(key).and_then(|(value, _)| value.as_integer());
        count.and_then(|count| u32::try_from(count).ok()).unwrap_or_default()
    }
}
