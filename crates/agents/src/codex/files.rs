//! Where Codex keeps its files. Reading only.
//!
//! `sessions/YYYY/MM/DD/rollout-<local time>-<thread id>.jsonl`, by the time the thread began; `archived_sessions/` holds
//! archived ones; `thread-writer-locks/<thread id>.lock` is held open by the process that may write to the thread.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp as Instant;
use jiff::ToSpan;
use jiff::tz::TimeZone;
use serde::Deserialize;
use uuid::Uuid;

use crate::meter::title::{Title, TitleSource};
use crate::{SessionFile, SessionFiles};
use os::file::{entries, tail};
use types::AgentSessionId;
use types::Timestamp;

/// The agent's own folder: `$CODEX_HOME`, else `~/.codex`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodexFiles {
    root: PathBuf,
}

impl CodexFiles {
    /// `None` when the environment does not name it.
    pub fn from_env(var: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let set = |name: &str| var(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        set("CODEX_HOME").or_else(|| Some(set("HOME")?.join(".codex"))).map(Self::at)
    }

    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn locks(&self) -> PathBuf {
        self.root.join("thread-writer-locks")
    }

    pub fn lock(&self, thread: &AgentSessionId) -> PathBuf {
        self.locks().join(format!("{thread}.lock"))
    }

    pub fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }

    pub fn archived(&self) -> PathBuf {
        self.root.join("archived_sessions")
    }

    /// The note that the shared background server leaves of itself while it runs, and after a kill.
    pub fn daemon_note(&self) -> PathBuf {
        self.root.join("app-server-daemon/daemon.pid")
    }

    /// The names of threads, one line each; of several for one thread the last counts.
    pub(super) fn names(&self) -> PathBuf {
        self.root.join("session_index.jsonl")
    }

    /// The name of a thread: what the agent found, or the user chose by `/rename`.
    pub(super) fn name_of(&self, thread: &AgentSessionId) -> Option<Title> {
        /// Some ten thousand names; earlier ones are forgotten.
        const MOST: u64 = 2 << 20;
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            id: Cow<'a, str>,
            #[serde(borrow)]
            thread_name: Cow<'a, str>,
        }
        let lines = tail(&self.names(), MOST).ok()?;
        let named = lines.split(|byte| *byte == b'\n').rev().find_map(|line| {
            memchr::memmem::find(line, thread.0.as_bytes())?;
            serde_json::from_slice::<Named>(line).ok().filter(|named| named.id == thread.0)
        });
        Title::given(TitleSource::Agent, &named?.thread_name)
    }

    /// The day folders from that of `path` on, or all of them, oldest first. Earlier years and months are not searched.
    pub(super) fn days_since(&self, path: Option<&Path>) -> io::Result<Vec<PathBuf>> {
        let since = path.and_then(|path| self.day_of(path));
        let mut days = vec![self.sessions()];
        for above in [2, 1, 0] {
            let from = since.as_deref().and_then(|since| since.ancestors().nth(above));
            let mut deeper = Vec::new();
            for folder in days {
                let inside = entries(&folder)?.into_iter();
                deeper.extend(inside.filter(|path| from.is_none_or(|from| *path >= *from) && path.is_dir()));
            }
            days = deeper;
        }
        days.sort();
        Ok(days)
    }

    /// The last day folder there is, and the folders above it: where the next rollout will appear, or the next folder for it.
    pub(super) fn newest_days(&self) -> Vec<PathBuf> {
        let mut chain = vec![self.sessions()];
        for _ in ["year", "month", "day"] {
            let last = chain
                .last()
                .and_then(|folder| entries(folder).ok()?.into_iter().filter(|path| path.is_dir()).max());
            match last {
                Some(last) => chain.push(last),
                None => break,
            }
        }
        chain
    }

    /// The day folder that a rollout of this name belongs to, wherever it lies now.
    fn day_of(&self, path: &Path) -> Option<PathBuf> {
        let date = path.file_name()?.to_str()?.strip_prefix("rollout-")?.get(..10)?;
        Some(date.split('-').fold(self.sessions(), |folder, part| folder.join(part)))
    }

    /// The rollout of a thread. An id holds the time its thread began, so that only the days around it are searched.
    pub fn find(&self, thread: &AgentSessionId) -> Option<PathBuf> {
        let days = match begun(thread) {
            Some(at) => days_around(at).into_iter().map(|day| self.sessions().join(day)).collect(),
            None => self.days_since(None).unwrap_or_default(),
        };
        days.into_iter().chain([self.archived()]).find_map(|folder| {
            rollouts_in(&folder).ok()?.into_iter().find(|path| thread_of(path).as_ref() == Some(thread))
        })
    }

    /// Every rollout there is, archived ones and those of sub-agents included. Only its first line names a file's
    /// conversation.
    pub fn all(&self) -> SessionFiles {
        let mut found = SessionFiles::default();
        let mut folders = vec![self.sessions()];
        for _ in ["year", "month", "day"] {
            let mut deeper = Vec::new();
            for folder in folders {
                deeper.extend(
                    found.entries(&folder, entries(&folder)).into_iter().filter(|path| path.is_dir()),
                );
            }
            folders = deeper;
        }
        folders.push(self.archived());
        for folder in folders {
            let rollouts = found.entries(&folder, rollouts_in(&folder));
            found.files.extend(rollouts.into_iter().map(|path| SessionFile { path, conversation: None }));
        }
        found.files.sort();
        found
    }
}

/// The thread of a rollout, by its file name.
pub fn thread_of(rollout: &Path) -> Option<AgentSessionId> {
    let stem = rollout.file_name()?.to_str()?.strip_prefix("rollout-")?.strip_suffix(".jsonl")?;
    thread_id(stem.get(stem.len().checked_sub(36)?..)?)
}

/// The thread of a lock, by its file name.
pub fn locked_thread(lock: &Path) -> Option<AgentSessionId> {
    thread_id(lock.file_name()?.to_str()?.strip_suffix(".lock")?)
}

/// The lock that the agent holds while it examines the others.
pub(super) fn is_coordination(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == ".coordination.lock")
}

fn thread_id(text: &str) -> Option<AgentSessionId> {
    (text.len() == 36 && Uuid::try_parse(text).is_ok()).then(|| AgentSessionId(text.to_owned()))
}

/// When a thread began, by its id, to the millisecond.
pub(super) fn begun(thread: &AgentSessionId) -> Option<Timestamp> {
    let time = Uuid::try_parse(&thread.0).ok().filter(|id| id.get_version_num() == 7)?.get_timestamp()?;
    let (seconds, nanos) = time.to_unix();
    Some(Timestamp(i64::try_from(seconds).ok()?.checked_mul(1000)? + i64::from(nanos / 1_000_000)))
}

/// `YYYY/MM/DD` of a time in whatever zone the agent took it; that of UTC first.
fn days_around(at: Timestamp) -> Vec<PathBuf> {
    let Ok(at) = Instant::from_millisecond(at.0) else { return Vec::new() };
    let here = at.to_zoned(TimeZone::UTC).date();
    let days = [0, -1, 1].into_iter().filter_map(|days: i64| here.checked_add(days.days()).ok());
    days.map(|day| PathBuf::from(day.strftime("%Y/%m/%d").to_string())).collect()
}

pub(super) fn rollouts_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> =
        entries(folder)?.into_iter().filter(|path| thread_of(path).is_some()).collect();
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ID: &str = "01a1e18d-46b4-7352-92dc-1e28b60230dc";

    #[test]
    fn the_environment_names_the_root() {
        let files = |vars: &[(&str, &str)]| {
            CodexFiles::from_env(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()))
        };
        assert_eq!(
            files(&[("HOME", "/home/dev"), ("CODEX_HOME", "")]),
            Some(CodexFiles::at("/home/dev/.codex"))
        );
        assert_eq!(files(&[("HOME", "/home/dev"), ("CODEX_HOME", "/x")]), Some(CodexFiles::at("/x")));
        assert_eq!(files(&[]), None);
    }

    #[test]
    fn rollouts_and_locks_are_recognised_by_name() {
        let id = || Some(AgentSessionId(ID.into()));
        assert_eq!(thread_of(Path::new(&format!("/s/rollout-2026-11-15T23-31-34-{ID}.jsonl"))), id());
        assert_eq!(locked_thread(Path::new(&format!("/l/{ID}.lock"))), id());
        for other in [
            "/s/rollout-x.jsonl",
            "/s/rollout-é.jsonl",
            "/s/rollout-2026-11-15T23-31-34-no.jsonl.tmp",
            "/s/history.jsonl",
        ] {
            assert_eq!(thread_of(Path::new(other)), None, "{other}");
        }
        assert_eq!(locked_thread(Path::new("/l/.coordination.lock")), None);
    }

    #[test]
    fn a_rollout_is_found_by_its_day_or_in_the_archive() {
        let folder = tempfile::tempdir().unwrap();
        let files = CodexFiles::at(folder.path());
        let id = AgentSessionId(ID.into());
        assert_eq!(files.find(&id), None);
        assert_eq!(files.newest_days(), [files.sessions()]);
        // By local time it began the day after.
        let name = format!("rollout-2026-11-16T07-31-34-{ID}.jsonl");
        for place in ["sessions/2026/11/16", "archived_sessions"] {
            let path = folder.path().join(place).join(&name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            assert_eq!(files.find(&id), Some(path.clone()));
            assert_eq!(files.all().files[..], [SessionFile { path: path.clone(), conversation: None }]);
            fs::remove_file(path).unwrap();
        }
        let other = "0b9d3c7e-1111-4222-8333-444455556666";
        let path =
            folder.path().join(format!("sessions/2025/01/02/rollout-2025-01-02T03-04-05-{other}.jsonl"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        assert_eq!(files.find(&AgentSessionId(other.into())), Some(path.clone()), "its id holds no time");
        let days = files.days_since(Some(Path::new("/x/rollout-2026-01-01T00-00-00-x.jsonl"))).unwrap();
        assert_eq!(days, [folder.path().join("sessions/2026/11/16")]);
        assert_eq!(files.newest_days().len(), 4);
    }
}
