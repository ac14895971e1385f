//! How a session file begins. Bytes in, facts out.

use std::path::Path;

use super::RegistryFormat;
use super::line::Line;
use crate::correlate::Beginning;
use crate::kit::loose::Text;
use types::{AgentSessionId, Timestamp};

/// How much of a file's start decides how it begins. Why 256 KiB: the first message comes within some hundred bytes
/// unless a pasted image precedes the rest of it. A longer file without one holds a message all the same.
pub const HEAD_BYTES: usize = 256 * 1024;

/// How a session file begins, from its first [`HEAD_BYTES`] at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub beginning: Beginning,
    pub session: Option<AgentSessionId>,
    pub cwd: Option<String>,
    pub version: Option<String>,
    /// When the deciding line was written.
    pub at: Option<Timestamp>,
    /// The id of the prompt that a first `/clear` was typed with. Up to 2.1.113 of Claude Code it equals the id of the prompt
    /// before it, so the file with that prompt belongs to the same process.
    pub prompt: Option<String>,
}

impl RegistryFormat {
    /// Reads the start of a session file. The last line may be torn; the file may go on.
    pub fn head(&self, bytes: &[u8]) -> Head {
        let mut head = Head {
            beginning: Beginning::Silent,
            session: None,
            cwd: None,
            version: None,
            at: None,
            prompt: None,
        };
        for line in bytes.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let Ok(line) = serde_json::from_slice::<Line>(line) else { continue };
            let note = |known: &mut Option<String>, value: &Text| {
                if known.is_none() {
                    *known = value.0.as_deref().map(str::to_owned);
                }
            };
            note(&mut head.cwd, &line.cwd);
            note(&mut head.version, &line.version);
            head.session =
                head.session.or_else(|| line.session_id.0.as_deref().map(|id| AgentSessionId(id.to_owned())));
            if let Some(beginning) = (self.beginning)(&line) {
                head.beginning = beginning;
                head.at = line.at();
                head.prompt = line.prompt_id.0.as_deref().map(str::to_owned);
                return head;
            }
        }
        if bytes.len() >= HEAD_BYTES {
            head.beginning = Beginning::Spoken { copied: false };
        }
        head
    }

    pub(crate) fn head_of(&self, path: &Path) -> Option<Head> {
        Some(self.head(&os::file::head(path, HEAD_BYTES as u64).ok()?))
    }
}

/// The time of the last prompt in these lines, if it is not before `since`. Summaries and answers do not count: the process that
/// asked was there earlier.
pub(super) fn last_prompt_since(bytes: &[u8], since: Timestamp) -> Option<Timestamp> {
    bytes.rsplit(|&byte| byte == b'\n').find_map(|line| {
        let line = serde_json::from_slice::<Line>(line).ok()?;
        let prompted = line.kind.0.as_deref() == Some("user");
        let at = line.at()?;
        (prompted && !line.is_copied() && at >= since).then_some(at)
    })
}
