//! The first line of a rollout, which names its thread and conversation.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::shape::{Line, Meta};
use os::file::open_regular;
use types::AgentSessionId;

/// The first line holds the whole base prompt, 23 kB when this was written; none is this long.
const MAX_FIRST_LINE: u64 = 4 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) thread: AgentSessionId,
    /// The conversation it counts for: its own, or that of the thread it works for.
    pub(super) root: AgentSessionId,
    /// The program itself began it, for a sub-agent or a review.
    pub(super) helper: bool,
    pub(super) forked_from: Option<AgentSessionId>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) version: Option<String>,
    pub(super) originator: Option<String>,
}

impl Head {
    /// `None` while the first line is not whole, and for a file that is not a rollout.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let mut line = Vec::new();
        BufReader::new(open_regular(path).ok()?.take(MAX_FIRST_LINE)).read_until(b'\n', &mut line).ok()?;
        if line.pop() != Some(b'\n') {
            return None;
        }
        Self::parse(&line)
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let line: Line = serde_json::from_slice(line).ok()?;
        if line.kind.0.as_deref() != Some("session_meta") {
            return None;
        }
        let meta: Meta = line.payload().ok()?;
        let id = |text: &str| AgentSessionId(text.to_owned());
        Some(Self {
            thread: id(meta.id.0.as_deref()?),
            root: id(meta.root()?),
            helper: meta.is_helper(),
            forked_from: meta.forked_from_id.0.as_deref().map(id),
            cwd: meta.cwd.0.as_deref().map(PathBuf::from),
            version: meta.cli_version.0.as_deref().map(str::to_owned),
            originator: meta.originator.0.as_deref().map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_place_of_a_rollout_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rollout.jsonl");
        os::file::make_pipe(&path).unwrap();
        assert_eq!(Head::read(&path), None);
    }

    #[test]
    fn a_first_line_is_read_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rollout");
        let prompt = "be helpful ".repeat(50_000);
        let line = format!(
            r#"{{"type":"session_meta","payload":{{"id":"b","session_id":"a","thread_source":"subagent","cwd":"/p","base_instructions":{{"text":"{prompt}"}},"cli_version":"0.166.0"}}}}"#
        );
        for (content, there) in [
            (format!("{line}\nrest"), true),
            (line.clone(), false),
            (line[..900].to_owned(), false),
            (format!("{{\"type\":\"event_msg\",\"payload\":{{}}}}\n{line}\n"), false),
            ("[]\n".to_owned(), false),
            (String::new(), false),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(Head::read(&path).is_some(), there);
        }
        std::fs::write(&path, format!("{line}\n")).unwrap();
        let head = Head::read(&path).unwrap();
        assert!(head.helper);
        assert_eq!((head.thread.0.as_str(), head.root.0.as_str()), ("b", "a"));
        assert_eq!((head.cwd, head.version.as_deref()), (Some("/p".into()), Some("0.166.0")));
        assert_eq!(Head::read(&folder.path().join("nowhere")), None);
    }
}
