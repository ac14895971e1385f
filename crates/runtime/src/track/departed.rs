//! Sessions that a run has departed from, whose files may still grow.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::clock::RunClock;
use super::follow::{Follower, News, read_title};
use agents::Observer;
use os::file::Stamp;
use store::Store;
use store::session;
use types::{AgentSessionId, SessionId};

/// The agents write late: a session just departed from is read with every look until its files have been quiet for this long.
const QUIET: Duration = Duration::from_secs(2);

/// A sub-agent of it may work on for an hour, so it is never given up: once quiet, it is read when one of its files has
/// changed, and with the last look.
pub(super) struct DepartedSession {
    session: SessionId,
    conversation: AgentSessionId,
    follower: Follower,
    /// Read with every look until then.
    quiet_at: Option<Instant>,
    /// Its files and their folders, as they were when last read.
    stamps: Vec<(PathBuf, Option<Stamp>)>,
}

impl DepartedSession {
    pub(super) fn new(
        now: Instant,
        session: SessionId,
        conversation: AgentSessionId,
        follower: Follower,
    ) -> Self {
        Self { session, conversation, follower, quiet_at: Some(now + QUIET), stamps: Vec::new() }
    }

    pub(super) fn session(&self) -> SessionId {
        self.session
    }

    /// When it may be read for the last time without a change of its files; a look is due then.
    pub(super) fn quiet_at(&self) -> Option<Instant> {
        self.quiet_at
    }

    /// Whether there may be something to read.
    pub(super) fn may_have_grown(&self) -> bool {
        self.quiet_at.is_some() || self.stamps.iter().any(|(path, stamp)| Stamp::of(path) != *stamp)
    }

    /// Reads its files to their present end. One that fails is due again with the next look.
    pub(super) fn read(
        &mut self,
        store: &mut Store,
        observer: &mut dyn Observer,
        clock: &dyn RunClock,
        news: &mut News,
    ) -> Result<(), session::Error> {
        let files = observer.files(&self.conversation);
        let stamps = stamped(&files);
        let at = clock.now().wall;
        self.follower.read(store, at, self.session, observer, &files, news)?;
        read_title(store, self.session, observer, &self.conversation)?;
        self.stamps = stamps;
        self.was_read(clock.now().steady, news.any);
        Ok(())
    }

    fn was_read(&mut self, now: Instant, grew: bool) {
        let quiet_at = if grew { Some(now + QUIET) } else { self.quiet_at };
        self.quiet_at = quiet_at.filter(|at| now < *at);
    }

    #[cfg(test)]
    pub(super) fn forget_stamps(&mut self) {
        self.stamps.clear();
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use types::{Ids, RandomIds};

    fn departed(now: Instant) -> DepartedSession {
        DepartedSession::new(now, RandomIds.session(), AgentSessionId("a".into()), Follower::default())
    }

    /// Reads, each so many ms after the run departed and with or without something new; then whether it is still read with
    /// every look.
    #[test]
    fn it_is_read_with_every_look_until_it_was_quiet_for_two_seconds() {
        let cases: &[(&str, &[(u64, bool)], bool)] = &[
            ("not read yet", &[], true),
            ("just departed", &[(100, false)], true),
            ("quiet for almost long enough", &[(100, false), (1999, false)], true),
            ("quiet for long enough", &[(100, false), (2000, false)], false),
            ("grown in between", &[(1500, true), (2000, false), (3499, false)], true),
            ("grown in between, then quiet", &[(1500, true), (3500, false)], false),
            ("grown after it was quiet", &[(2000, false), (9000, true)], true),
        ];
        for (what, reads, expected) in cases {
            let start = Instant::now();
            let mut session = departed(start);
            for (at, grew) in *reads {
                session.was_read(start + Duration::from_millis(*at), *grew);
            }
            assert_eq!(session.quiet_at().is_some(), *expected, "{what}");
            assert_eq!(session.may_have_grown(), *expected, "{what}");
        }
    }

    #[test]
    fn a_quiet_one_is_read_again_when_its_files_or_their_folders_change() {
        type Change = fn(&std::path::Path);
        let changes: &[(&str, Change, bool)] = &[
            ("nothing", |_| (), false),
            ("its file grows", |folder| fs::write(folder.join("a"), "more").unwrap(), true),
            ("its file is removed", |folder| fs::remove_file(folder.join("a")).unwrap(), true),
            ("a file appears in its folder", |folder| fs::write(folder.join("b"), "").unwrap(), true),
        ];
        for (what, change, expected) in changes {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("a");
            fs::write(&file, "").unwrap();
            // The times of files are no finer than a tick of the kernel.
            let earlier = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
            fs::File::open(folder.path()).unwrap().set_modified(earlier).unwrap();
            let start = Instant::now();
            let mut session = departed(start);
            session.stamps = stamped(&[file]);
            session.was_read(start + QUIET, false);
            change(folder.path());
            assert_eq!(session.may_have_grown(), *expected, "{what}");
        }
    }
}
