//! Which files have been read in their present state. A half-written file is read again, but not for ever. A file that changed
//! within the last tick of the kernel's clock is read again, too, because a second change in that tick would not show.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::observe::Observation;
use os::file::{Stamp, TICK};
use types::Timestamp;

/// How often an unreadable file is read before it is left alone until it changes. The agents rewrite in place within a
/// millisecond, so a file that stays unreadable is broken or not theirs.
const TRIES: u32 = 3;

/// The stamps that files had when they were last read.
#[derive(Debug, Default)]
pub(crate) struct ReadStamps(BTreeMap<PathBuf, LastRead>);

#[derive(Debug)]
struct LastRead {
    stamp: Stamp,
    /// How often it could not be read with this stamp.
    torn: u32,
    /// It need not be read again until it changes.
    known: bool,
}

impl ReadStamps {
    /// The stamp of a file or folder that may hold unread content.
    pub(crate) fn due(&self, path: &Path) -> Option<Stamp> {
        let known = self.0.get(path).filter(|last| last.known).map(|last| last.stamp);
        Stamp::of(path).filter(|stamp| known != Some(*stamp))
    }

    /// Notes that it was read when it had this stamp, and whether it could be understood. Sets in `seen` when to look again.
    pub(crate) fn note(
        &mut self,
        path: &Path,
        stamp: Stamp,
        understood: bool,
        now: Timestamp,
        seen: &mut Observation,
    ) {
        let before = self.0.get(path).filter(|last| last.stamp == stamp).map_or(0, |last| last.torn);
        let torn = if understood { 0 } else { before + 1 };
        let known = stamp.is_settled(now) && (understood || torn >= TRIES);
        if !known && understood {
            seen.look_again(TICK);
        }
        seen.torn |= !known && !understood;
        self.0.insert(path.to_owned(), LastRead { stamp, torn, known });
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&Path) -> bool) {
        self.0.retain(|path, _| keep(path));
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    /// A file that changed at 1000 ms.
    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        File::open(path).unwrap().set_modified(UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    }

    #[test]
    fn a_file_is_read_again_when_torn_or_just_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("7.json");
        // When it is read, whether it can be understood; whether it is due again then, how soon it is stamps at.
        let steps = [
            ("x", 5000, true, false, (false, None)),
            ("xx", 1005, true, true, (false, Some(TICK))),
            ("xx", 1025, true, false, (false, None)),
            ("", 5000, false, true, (true, None)),
            ("", 5005, false, true, (true, None)),
            ("", 5010, false, false, (false, None)),
            ("y", 5000, false, true, (true, None)),
            ("y", 5005, true, false, (false, None)),
            ("zz", 1001, false, true, (true, None)),
            ("zz", 1002, false, true, (true, None)),
            ("zz", 1003, false, true, (true, None)),
            ("zz", 1020, false, false, (false, None)),
            ("future", 900, true, false, (false, None)),
        ];
        let mut stamps = ReadStamps::default();
        assert_eq!(stamps.due(&path), None, "there is none");
        for (text, now, understood, due, again) in steps {
            write(&path, text);
            let stamp = stamps.due(&path).expect("it was not noted yet");
            let mut seen = Observation::default();
            stamps.note(&path, stamp, understood, Timestamp(now), &mut seen);
            assert_eq!((seen.torn, seen.again), again, "{text:?} at {now}");
            assert_eq!(stamps.due(&path).is_some(), due, "{text:?} at {now}");
        }
        stamps.retain(|_| false);
        assert!(stamps.due(&path).is_some());
    }
}
