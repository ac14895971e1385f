//! Where Claude Code keeps its files.

use std::path::PathBuf;

use crate::kit::registry::{Layout, RegistryFiles};

pub static LAYOUT: &Layout = &Layout {
    variable: Some("CLAUDE_CONFIG_DIR"),
    folder: ".claude",
    projects_variable: None,
    sessions: None,
    subagents: Some("subagents"),
};

/// Settings the program itself keeps, beside the default folder and inside one of the user's choice.
pub(crate) fn global_config(files: &RegistryFiles) -> PathBuf {
    const NAME: &str = ".claude.json";
    if files.is_default() { files.root().with_file_name(NAME) } else { files.root().join(NAME) }
}
