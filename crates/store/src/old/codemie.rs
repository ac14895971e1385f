//! CodeMie's files, one per session.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{OldSession, ending, text, time};
use crate::Workspace;
use types::AgentSessionId;

/// `None` when the file is nothing of CodeMie's.
pub(super) fn read(path: &Path, fields: &Map<String, Value>) -> Option<OldSession> {
    let field = |name: &str| text(fields.get(name));
    let known = ["sessionId", "agentName", "startTime", "workingDirectory", "correlation"];
    if known.iter().filter(|&&name| fields.contains_key(name)).count() < 2 {
        return None;
    }
    let correlation = fields.get("correlation");
    let correlated = |name: &str| text(correlation.and_then(|correlation| correlation.get(name)));
    let cwd: PathBuf = field("workingDirectory").unwrap_or_default().into();
    let folder_name = || cwd.file_name().map(|name| name.to_string_lossy().into_owned());
    let started_at = time(fields.get("startTime"));
    let (status, reason) = ending(field("status").as_deref(), None);
    Some(OldSession {
        entry: path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned()),
        id: field("sessionId"),
        agent: field("agentName").or_else(|| field("agent")).unwrap_or_else(|| "codemie".into()),
        name: field("name"),
        agent_session: correlated("agentSessionId").and_then(AgentSessionId::plain),
        agent_session_file: correlated("agentSessionFile").map(PathBuf::from),
        started_at,
        ended_at: time(fields.get("endTime")),
        status,
        reason,
        exit: None,
        workspace: Workspace {
            project: field("project").or_else(folder_name),
            repository: field("repository"),
            branch: field("gitBranch").or_else(|| field("branch")),
            cwd,
        },
        note: field("provider")
            .map_or_else(|| "from CodeMie".into(), |by| format!("from CodeMie: provider {by}")),
    })
}
