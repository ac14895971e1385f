//! Remembers which rollout belongs to which thread: a head is read once, a folder listed only when it has changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::files::{CodexFiles, rollouts_in, thread_of};
use super::head::Head;
use os::clock::{Clock, SystemClock};
use types::AgentSessionId;
use types::Timestamp;

/// A folder that changed less than this ago may change again without a new time: the kernel's clock ticks in
/// milliseconds.
const UNSETTLED: Duration = Duration::from_secs(1);

/// When folders changed last, to decide whether to list them again.
#[derive(Debug, Default)]
pub(super) struct Folders(BTreeMap<PathBuf, SystemTime>);

impl Folders {
    /// Whether a folder may hold something that was not there at the last call.
    pub(super) fn changed(&mut self, folder: &Path) -> bool {
        let Ok(modified) = fs::metadata(folder).and_then(|meta| meta.modified()) else { return false };
        let now = UNIX_EPOCH + SystemClock.now().since(Timestamp(0));
        let settled = now.duration_since(modified).is_ok_and(|age| age > UNSETTLED);
        let known = self.0.insert(folder.to_owned(), modified);
        !settled || known != Some(modified)
    }
}

#[derive(Debug)]
pub(super) struct Catalog {
    files: CodexFiles,
    folders: Folders,
    /// `None`: its first line is not whole yet.
    heads: BTreeMap<PathBuf, Option<Head>>,
    /// Where rollouts were found.
    found: BTreeMap<AgentSessionId, PathBuf>,
}

impl Catalog {
    pub(super) fn new(files: CodexFiles) -> Self {
        Self { files, folders: Folders::default(), heads: BTreeMap::new(), found: BTreeMap::new() }
    }

    /// A thread's rollout, also after it was moved.
    pub(super) fn rollout(&mut self, thread: &AgentSessionId) -> Option<PathBuf> {
        if let Some(path) = self.found.get(thread).filter(|path| path.exists()) {
            return Some(path.clone());
        }
        let path = self.files.find(thread)?;
        self.found.insert(thread.clone(), path.clone());
        Some(path)
    }

    pub(super) fn head(&mut self, rollout: &Path) -> Option<&Head> {
        let head = self.heads.entry(rollout.to_owned()).or_default();
        if head.is_none() {
            *head = Head::read(rollout);
        }
        head.as_ref()
    }

    /// The rollouts of a conversation's sub-agents, and of theirs. None began before it.
    pub(super) fn helpers(&mut self, root: &AgentSessionId, rollout: &Path) -> Vec<PathBuf> {
        self.list_since(rollout);
        let began = |path: &PathBuf| thread_of(path).is_some_and(|thread| thread > *root);
        let later: Vec<PathBuf> = self.heads.keys().filter(|path| began(path)).cloned().collect();
        later
            .into_iter()
            .filter(|path| self.head(path).is_some_and(|head| head.helper && head.root == *root))
            .collect()
    }

    /// Notes every rollout since the day of this one.
    fn list_since(&mut self, rollout: &Path) {
        let days = self.files.days_since(Some(rollout)).unwrap_or_default();
        for folder in days.into_iter().chain([self.files.archived()]) {
            if self.folders.changed(&folder) {
                let there = rollouts_in(&folder).unwrap_or_default();
                self.heads.retain(|path, _| path.parent() != Some(&folder) || there.contains(path));
                for path in there {
                    self.heads.entry(path).or_default();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(id: &str, root: &str) -> String {
        let source = if id == root { "\"cli\"" } else { "{\"subagent\":\"review\"}" };
        format!(
            "{{\"type\":\"session_meta\",\"payload\":{{\"id\":\"{id}\",\"session_id\":\"{root}\",\"source\":{source}}}}}\n"
        )
    }

    #[test]
    fn helpers_are_found_as_they_appear_and_when_they_are_moved() {
        let folder = tempfile::tempdir().unwrap();
        let files = CodexFiles::at(folder.path());
        let day = files.sessions().join("2026/11/15");
        fs::create_dir_all(&day).unwrap();
        fs::create_dir_all(files.archived()).unwrap();
        let id = |n: u8| format!("01a1e18d-46b4-7352-92dc-1e28b60230{n:02x}");
        let name = |n: u8| format!("rollout-2026-11-15T23-31-{n:02}-{}.jsonl", id(n));
        let write = |n: u8, root: u8| fs::write(day.join(name(n)), meta(&id(n), &id(root))).unwrap();
        let mut catalog = Catalog::new(files.clone());
        let root = AgentSessionId(id(2));
        assert_eq!(catalog.rollout(&root), None);
        write(1, 1);
        write(2, 2);
        let rollout = catalog.rollout(&root).unwrap();
        assert_eq!(rollout, day.join(name(2)));
        assert_eq!(catalog.helpers(&root, &rollout), [""; 0].map(PathBuf::from));
        write(3, 2);
        write(4, 1);
        fs::write(day.join(name(5)), &meta(&id(5), &id(2))[..40]).unwrap();
        assert_eq!(catalog.helpers(&root, &rollout), [day.join(name(3))]);
        write(5, 2);
        assert_eq!(catalog.helpers(&root, &rollout), [day.join(name(3)), day.join(name(5))]);
        for n in [2, 3] {
            fs::rename(day.join(name(n)), files.archived().join(name(n))).unwrap();
        }
        let moved = catalog.rollout(&root).unwrap();
        assert_eq!(moved, files.archived().join(name(2)));
        assert_eq!(catalog.helpers(&root, &moved), [files.archived().join(name(3)), day.join(name(5))]);
    }
}
