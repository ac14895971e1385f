//! genie's `sessions.json`: version 1 keyed by agent, 2 by session id, 3 by name. Versions were left out at times, so
//! the shape decides first.

use std::path::Path;

use serde_json::{Map, Value};

use super::{OldSession, ending, text, time};
use crate::Exit;
use crate::Workspace;
use types::AgentSessionId;

/// What the entries of `sessions` are found under; those of `agents` always by their agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    Id,
    Name,
}

impl Keys {
    pub(super) fn of(version: Option<u64>) -> Self {
        if version.unwrap_or(2) >= 3 { Self::Name } else { Self::Id }
    }
}

enum Key {
    Agent,
    Id,
    Name,
}

/// One entry of `agents` or `sessions`. A file caught in the middle of a migration holds both.
pub(super) fn session(
    object: &str,
    key: &str,
    keys: Keys,
    fields: &Map<String, Value>,
    workspace: &Workspace,
) -> OldSession {
    let keyed = match (object, keys) {
        ("agents", _) => Key::Agent,
        (_, Keys::Id) => Key::Id,
        (_, Keys::Name) => Key::Name,
    };
    let entry = format!("{object}/{key}");
    let field = |name: &str| text(fields.get(name));
    let agent_session = field("sessionId");
    let id = match keyed {
        Key::Id => agent_session.clone().or_else(|| Some(key.to_owned())),
        Key::Agent | Key::Name => agent_session.clone(),
    };
    let agent = field("agent").unwrap_or_else(|| match keyed {
        Key::Agent => key.to_owned(),
        Key::Id | Key::Name => field("executor").unwrap_or_else(|| "genie".into()),
    });
    let name = field("name").or_else(|| matches!(keyed, Key::Name).then(|| key.to_owned()));
    let exit = match (
        fields.get("exitCode").and_then(Value::as_i64),
        fields.get("signal").and_then(Value::as_i64),
    ) {
        (Some(code), _) => i32::try_from(code).ok().map(Exit::Code),
        (None, Some(signal)) => i32::try_from(signal).ok().map(Exit::Signal),
        (None, None) => None,
    };
    let (status, reason) = ending(field("status").as_deref(), exit);
    let noted = ["executor", "executorVariant", "mode", "preset", "model"];
    let note: Vec<_> = noted.iter().filter_map(|name| Some(format!("{name} {}", field(name)?))).collect();
    OldSession {
        entry,
        id,
        agent,
        name,
        agent_session: agent_session.and_then(AgentSessionId::plain),
        agent_session_file: None,
        started_at: time(fields.get("created")),
        ended_at: time(fields.get("lastUsed")),
        status,
        reason,
        exit,
        workspace: workspace.clone(),
        note: format!("from genie: {}", note.join(", ")).trim_end_matches([':', ' ']).to_owned(),
    }
}

/// The project is the folder that holds `.genie`.
pub(super) fn workspace_of(path: &Path) -> Workspace {
    let root = path.ancestors().find(|folder| folder.ends_with(".genie")).and_then(Path::parent);
    let Some(root) = root else { return Workspace::default() };
    let project = root.file_name().map(|name| name.to_string_lossy().into_owned());
    Workspace { cwd: root.to_owned(), project, ..Workspace::default() }
}
