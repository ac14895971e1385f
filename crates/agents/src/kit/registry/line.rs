//! A line of a session file, as agents of this kind write it: who wrote it, when and where, and a message. Borrowed from the
//! line; unknown fields are ignored. A field that an agent does not write is absent.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::files::{Layout, slug};
use crate::kit::loose::{Loose, Text};
use crate::meter::form::Opened;
use crate::meter::line::LineFacts;
use crate::meter::record::{Fact, Record};
use crate::transcript::Forwards;
use os::file::open_regular;
use types::{AgentSessionId, Timestamp};

/// One line. `M` is its message: raw, where it is parsed only once the line's kind is known.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "M: Deserialize<'de>"))]
pub(crate) struct Line<'a, M = &'a RawValue> {
    #[serde(borrow, default, rename = "type")]
    pub(crate) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) subtype: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) uuid: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) timestamp: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) session_id: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) cwd: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) relocated_cwd: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) version: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) git_branch: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) agent_id: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) request_id: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) prompt_id: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) prompt_source: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) provenance: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) ai_title: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) custom_title: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) error: Text<'a>,
    #[serde(default)]
    pub(crate) api_error_status: Loose<u64>,
    #[serde(default)]
    pub(crate) is_api_error_message: Loose<bool>,
    #[serde(default)]
    pub(crate) is_sidechain: Loose<bool>,
    #[serde(default)]
    pub(crate) is_meta: Loose<bool>,
    #[serde(default)]
    pub(crate) is_compact_summary: Loose<bool>,
    #[serde(default)]
    pub(crate) interrupted_message_id: Option<IgnoredAny>,
    #[serde(default)]
    pub(crate) forked_from: Option<IgnoredAny>,
    #[serde(borrow, default)]
    pub(crate) origin: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) tool_use_result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) tool_call_result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) system_payload: Option<&'a RawValue>,
    #[serde(default = "none")]
    pub(crate) message: Option<M>,
}

/// A default without bounds on the type.
fn none<T>() -> Option<T> {
    None
}

impl<M> Line<'_, M> {
    pub(crate) fn is_copied(&self) -> bool {
        self.forked_from.is_some()
    }

    /// Versions that kept sub-agents in the main file marked them without naming them.
    pub(crate) fn subagent(&self) -> Option<String> {
        match &self.agent_id.0 {
            Some(id) => Some(id.to_string()),
            None if self.is_sidechain.0 == Some(true) => Some("sidechain".to_owned()),
            None => None,
        }
    }

    pub(crate) fn at(&self) -> Option<Timestamp> {
        self.timestamp.0.as_deref().and_then(Timestamp::parse)
    }

    /// A fact that the line states, under a key. The time is zero where the line names none (none was ever seen): a record must
    /// not depend on the lines before it.
    pub(crate) fn keyed(&self, key: Option<&str>, fact: Fact) -> Option<Record> {
        let (at, copied) = (self.at().unwrap_or_default(), self.is_copied());
        Some(Record { key: key?.to_owned(), at, copied, subagent: self.subagent(), fact })
    }

    pub(crate) fn note_facts(&self, facts: &mut LineFacts) {
        if let Some(session) = self.session_id.0.as_deref()
            && facts.session.as_ref().is_none_or(|known| known.0 != session)
        {
            facts.session = Some(AgentSessionId(session.to_owned()));
        }
        note(&mut facts.cwd, self.relocated_cwd.0.as_deref().or(self.cwd.0.as_deref()));
        note(&mut facts.version, self.version.0.as_deref());
        note(&mut facts.branch, self.git_branch.0.as_deref());
        if let Some(at) = self.at() {
            facts.saw(at);
        }
    }
}

/// Copies only what is new: most lines repeat the one before.
fn note(known: &mut Option<String>, value: Option<&str>) {
    if let Some(value) = value
        && known.as_deref() != Some(value)
    {
        *known = Some(value.to_owned());
    }
}

/// What the lines of a file name first, as far as they can be read.
fn first_named<T>(session_file: &Path, mut named: impl FnMut(Line<'_>) -> Option<T>) -> Option<T> {
    let file = open_regular(session_file).map(Opened::File).ok()?;
    let mut lines = Forwards::new(&file, 0).ok()?;
    while let Ok(Some(line)) = lines.next() {
        if let Some(found) = serde_json::from_slice::<Line>(&line).ok().and_then(&mut named) {
            return Some(found);
        }
    }
    None
}

/// The folder of a conversation: of the folders its lines name, the one it is filed under. The agent's shell changes
/// folders, and `/cd` files the conversation elsewhere.
pub(crate) fn folder(layout: &Layout, session_file: &Path) -> Option<PathBuf> {
    let filed: &OsStr = layout.project_of(session_file)?;
    let mut first = None;
    let found = first_named(session_file, |line| {
        let named = PathBuf::from(line.relocated_cwd.0.or(line.cwd.0)?.into_owned());
        if *slug(named.as_os_str()) == *filed {
            return Some(named);
        }
        first.get_or_insert(named);
        None
    });
    found.or(first)
}

/// The conversation that a file's first lines name.
pub(crate) fn conversation(session_file: &Path) -> Option<AgentSessionId> {
    first_named(session_file, |line| Some(AgentSessionId(line.session_id.0?.into_owned())))
}
