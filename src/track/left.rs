//! Reading what was written: the files of the session the run is in, and of those it has left, which may still grow.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::follow::{Follower, News};
use super::run::Run;
use crate::forward::Hint;
use crate::session::{self};
use system::clock::{Clock, SystemClock};
use system::file::Stamp;
use wire::{AgentSessionId, SessionId};

/// The agents write late: a session just left is read with every look until its files have been quiet for this long.
const QUIET: Duration = Duration::from_secs(2);

/// A session that this run has left. A sub-agent of it may work on for an hour, so it is never given up: once quiet, it is
/// read when one of its files has changed, and with the last look.
pub(super) struct Left {
    pub(super) session: SessionId,
    conversation: AgentSessionId,
    follower: Follower,
    /// Read with every look until then.
    pub(super) until: Option<Instant>,
    /// Its files and their folders, as they were when last read.
    seen: Vec<(PathBuf, Option<Stamp>)>,
}

/// The store did not take all that was read.
#[derive(Debug)]
pub(super) struct Refused;

impl Left {
    pub(super) fn now(session: SessionId, conversation: AgentSessionId, follower: Follower) -> Self {
        Self { session, conversation, follower, until: Some(Instant::now() + QUIET), seen: Vec::new() }
    }

    #[cfg(test)]
    pub(super) fn forget_what_was_seen(&mut self) {
        self.seen.clear();
    }

    fn may_have_grown(&self) -> bool {
        self.until.is_some() || self.seen.iter().any(|(path, stamp)| Stamp::of(path) != *stamp)
    }
}

/// Files and the folders they are in, with their stamps.
fn stamped(files: &[PathBuf]) -> Vec<(PathBuf, Option<Stamp>)> {
    let folders = files.iter().filter_map(|file| file.parent().map(PathBuf::from));
    let mut paths: Vec<PathBuf> = files.iter().cloned().chain(folders).collect();
    paths.sort();
    paths.dedup();
    paths.into_iter().map(|path| (Stamp::of(&path), path)).map(|(stamp, path)| (path, stamp)).collect()
}

impl Run {
    /// Meters what has been written since; with `all`, looks at the files of every session of this run. Whether the store
    /// refused some of it that it may take another time.
    pub(super) fn read(&mut self, all: bool) -> Result<(), Refused> {
        let left = self.read_left(all);
        self.read_current().and(left)
    }

    fn read_left(&mut self, all: bool) -> Result<(), Refused> {
        let now = SystemClock.now();
        let (Some(store), Some(trail)) = (&mut self.store, &mut self.plan.trail) else { return Ok(()) };
        let (mut failed, mut metered) = (None, false);
        self.left.retain_mut(|left| {
            if !all && !left.may_have_grown() {
                return true;
            }
            let files = trail.files(&left.conversation);
            let seen = stamped(&files);
            let mut news = News::default();
            let read = left.follower.read(store, now, left.session, &**trail, &files, &mut news);
            metered |= news.any;
            match read {
                Ok(()) => {
                    left.seen = seen;
                    let quiet_at = if news.any { Some(Instant::now() + QUIET) } else { left.until };
                    left.until = quiet_at.filter(|at| Instant::now() < *at);
                    true
                }
                Err(error @ session::Error::Store(_)) => {
                    failed = Some(error);
                    true
                }
                // One that was pruned meanwhile has nowhere to go, and nobody misses it.
                Err(error) => {
                    tracing::info!(session = %left.session, %error, "read no further");
                    false
                }
            }
        });
        if metered {
            self.say(Hint::Soon);
        }
        failed.map_or(Ok(()), |error| self.was_not_read(&error))
    }

    fn was_not_read(&mut self, error: &session::Error) -> Result<(), Refused> {
        self.broke(error);
        if error.may_pass() { Err(Refused) } else { Ok(()) }
    }

    fn read_current(&mut self) -> Result<(), Refused> {
        let now = SystemClock.now();
        let (Some(store), Some(trail)) = (&mut self.store, &mut self.plan.trail) else { return Ok(()) };
        let Some(id) = &self.conversation else { return Ok(()) };
        let files = trail.files(id);
        let vanished = files.is_empty() && self.file.is_some();
        let file = files.first().filter(|file| self.file.as_ref() != Some(file)).cloned();
        let mut news = News::default();
        let read = self.follower.read(store, now, self.session, &**trail, &files, &mut news);
        if let Some(file) = file {
            self.tell_file(file);
        }
        if vanished {
            self.tell_vanished();
        }
        if news.any {
            self.say(Hint::Soon);
        }
        if let Some(version) = news.facts.version {
            self.learn_version(version);
        }
        read.or_else(|error| self.was_not_read(&error))
    }

    fn tell_file(&mut self, file: PathBuf) {
        let session = self.session;
        let told = self.commit(|store| {
            store.write(|tx| tx.set_agent_session_file(session, &file).map_err(session::Error::from))
        });
        if told.is_some() {
            self.file = Some(file);
            self.publish();
        }
    }

    /// What was never spoken in some agents leave no file of.
    fn tell_vanished(&mut self) {
        let session = self.session;
        let told = self.commit(|store| {
            store.write(|tx| tx.forget_agent_session_file(session).map_err(session::Error::from))
        });
        if told.is_some() {
            self.file = None;
            self.publish();
        }
    }
}
