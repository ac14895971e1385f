//! Calls that are over and not stored yet: an append-only file for each process that passes calls on.
//!
//! A call is appended as soon as it is over. That is one write, and it survives the process. When its transaction is committed, and
//! no other call waits, the file is emptied. A file that no process holds was left by one that was killed: whoever finds it takes
//! its calls in. A call that was stored as well is known by its key, so that it counts once.
//!
//! Limits that came with a call are not in it: the next answer reports them again.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};

use super::{Error, proxied};
use crate::Store;
use agents::meter::proxied::ProxiedCall;
use os::file::{create_private, entries, open_regular, read_at_most};
use os::home::Home;
use types::{Ids, Timestamp};

/// Some 20,000 calls: a store that refuses a day's work of a busy agent. What comes after is not appended.
const MOST_BYTES: u64 = 16 << 20;

/// Calls that are taken in by one transaction.
const BATCH: usize = 64;

const EXTENSION: &str = "calls";

/// The file of this process.
#[derive(Debug)]
pub struct CallJournal {
    path: PathBuf,
    pages: Mutex<Pages>,
}

#[derive(Debug)]
struct Pages {
    /// Locked as long as this process lives.
    file: File,
    length: u64,
    unstored: usize,
}

impl CallJournal {
    /// Appears under its name when it is locked already, so that nobody takes it for one that was left.
    pub fn begin(home: &Home, ids: &dyn Ids) -> io::Result<Self> {
        let folder = folder(home);
        create_private(&folder)?;
        let draft = tempfile::Builder::new().append(true).tempfile_in(&folder)?;
        flock(draft.as_file(), FlockOperation::NonBlockingLockExclusive)?;
        let path = folder.join(ids.uuid().to_string()).with_extension(EXTENSION);
        let file = draft.persist(&path).map_err(|error| error.error)?;
        Ok(Self { path, pages: Mutex::new(Pages { file, length: 0, unstored: 0 }) })
    }

    /// Whether it stands there now. Every call for which it does is to be reported to [`Self::stored`] once.
    pub fn append(&self, call: &ProxiedCall) -> bool {
        let Ok(mut line) = serde_json::to_vec(call) else { return false };
        line.push(b'\n');
        let mut pages = self.lock();
        pages.length += line.len() as u64;
        if pages.length > MOST_BYTES || pages.file.write_all(&line).is_err() {
            return false;
        }
        pages.unstored += 1;
        true
    }

    /// So many of the appended calls are stored, or given up.
    pub fn stored(&self, count: usize) {
        let mut pages = self.lock();
        pages.unstored = pages.unstored.saturating_sub(count);
        if pages.unstored == 0 && pages.length > 0 && pages.file.set_len(0).is_ok() {
            pages.length = 0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallJournal {
    fn drop(&mut self) {
        if self.lock().unstored == 0 {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether there are files at all, held or left.
pub fn is_any(home: &Home) -> bool {
    !files(home).is_empty()
}

/// Takes in the calls of processes that were killed. Returns how many there were. Costs a listing where there are none.
pub fn take_in(store: &mut Store, home: &Home, now: Timestamp) -> Result<usize, Error> {
    let mut taken = 0;
    for path in files(home) {
        let Ok(Some((_held, calls))) = read_left(&path) else { continue };
        for batch in calls.chunks(BATCH) {
            store.write(|tx| batch.iter().try_for_each(|call| proxied::take(tx, now, call).map(drop)))?;
        }
        taken += calls.len();
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!("a journal of calls that are stored cannot be removed: {error}");
        }
    }
    Ok(taken)
}

fn files(home: &Home) -> Vec<PathBuf> {
    let mut files = entries(&folder(home)).unwrap_or_default();
    files.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
    files
}

/// The calls of a file that no living process holds, and its lock. A last line that was cut off is none.
fn read_left(path: &Path) -> io::Result<Option<(File, Vec<ProxiedCall>)>> {
    let file = open_regular(path)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let bytes = read_at_most(path, MOST_BYTES)?;
    let lines = bytes.split(|byte| *byte == b'\n');
    let calls = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    Ok(Some((file, calls)))
}

fn folder(home: &Home) -> PathBuf {
    home.run().join("calls")
}

#[cfg(test)]
mod tests {
    use super::super::lifecycle::ConversationStart;
    use super::super::testing::World;
    use super::super::tests::proxied::call;
    use super::*;

    fn written(journal: &CallJournal) -> String {
        fs::read_to_string(&journal.path).unwrap()
    }

    #[test]
    fn a_file_is_emptied_when_every_call_in_it_is_stored_and_removed_at_the_end() {
        let world = World::new();
        let journal = CallJournal::begin(&world.home, &world.ids).unwrap();
        assert!(journal.append(&call("m1", world.now, 7)) && journal.append(&call("m2", world.now, 7)));
        journal.stored(1);
        assert_eq!(written(&journal).lines().count(), 2);
        journal.stored(1);
        assert_eq!(written(&journal), "");
        assert!(journal.append(&call("m3", world.now, 7)));
        assert_eq!(written(&journal).lines().count(), 1, "it begins anew");
        journal.stored(1);
        drop(journal);
        assert!(!is_any(&world.home));
    }

    #[test]
    fn calls_of_a_killed_process_are_taken_in_once_and_those_of_a_living_one_are_left() {
        let mut world = World::new();
        let (_, session) = world.bound(ConversationStart::Fresh, "a");
        let (home, now) = (world.home.clone(), world.now);
        let journal = CallJournal::begin(&home, &world.ids).unwrap();
        for key in ["m1", "m2"] {
            journal.append(&call(key, now, 7));
        }
        assert_eq!(take_in(&mut world.store, &home, now).unwrap(), 0, "its process lives");
        // It stored one, and was killed before it could empty the file, in the middle of a line.
        world.store.write(|tx| proxied::take(tx, now, &call("m1", now, 7))).unwrap();
        journal.lock().file.write_all(b"{\"key\":\"m3\",").unwrap();
        let left = written(&journal);
        drop(journal);
        assert!(is_any(&home), "what is not stored stays");
        assert_eq!(take_in(&mut world.store, &home, now).unwrap(), 2);
        assert_eq!(world.output(session), (2, 14));
        assert!(!is_any(&home));
        // The same file once more: nothing is counted twice.
        fs::write(folder(&home).join("again.calls"), left).unwrap();
        assert_eq!(take_in(&mut world.store, &home, now).unwrap(), 2);
        assert_eq!(world.output(session), (2, 14));
    }

    #[test]
    fn a_store_that_refuses_leaves_the_file_to_the_next() {
        let mut world = World::new();
        world.bound(ConversationStart::Fresh, "a");
        let (home, now) = (world.home.clone(), world.now);
        let journal = CallJournal::begin(&home, &world.ids).unwrap();
        journal.append(&call("m1", now, 7));
        drop(journal);
        world.store.faults.after(1);
        assert!(take_in(&mut world.store, &home, now).is_err());
        world.store.faults.none();
        assert_eq!(take_in(&mut world.store, &home, now).unwrap(), 1);
    }
}
