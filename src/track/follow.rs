//! Reading the files of one session into the store, from wherever the last reader stopped.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::agent::Trail;
use crate::meter::form::{Followed, Opened};
use crate::meter::line::{LineFacts, Lines};
use system::file::FileId;
use wire::Timestamp;

use crate::meter::record::{Fact, Record};
use crate::session::Error;
use crate::session::absorb::{Absorbed, Batch, absorb};
use crate::store::{self, Priced, Store};
use wire::SessionId;

/// How often a batch is tried again because another reader was faster.
const RACES: usize = 16;

/// The tails of a session's files, by the files' identity, so that a renamed one is still known.
#[derive(Default)]
pub struct Follower {
    tails: BTreeMap<FileId, Followed<Box<dyn Lines + Send>>>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("files", &self.tails.keys()).finish()
    }
}

/// The result of reading.
#[derive(Debug, Default)]
pub struct News {
    /// Something was read.
    pub any: bool,
    pub facts: LineFacts,
}

impl Follower {
    /// Reads all files to their present end, and notes in `news` the lines that were taken, also before some were refused. A file
    /// that cannot be opened now is read another time.
    pub fn read(
        &mut self,
        store: &mut Store,
        at: Timestamp,
        session: SessionId,
        trail: &dyn Trail,
        files: &[PathBuf],
        news: &mut News,
    ) -> Result<(), Error> {
        for path in files {
            match trail.form(path).open(path) {
                Ok(file) => self.read_file(store, at, session, trail, path, &file, news)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(%session, "{}: {error}", path.display()),
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one level of a loop, not an interface")]
    fn read_file(
        &mut self,
        store: &mut Store,
        at: Timestamp,
        session: SessionId,
        trail: &dyn Trail,
        path: &Path,
        file: &Opened,
        news: &mut News,
    ) -> Result<(), Error> {
        let Ok(id) = file.id() else { return Ok(()) };
        let mut races = 0;
        loop {
            let tail = match self.tails.entry(id) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    let stored = store.read(|view| view.position(id))?;
                    entry.insert(resume(id, path, stored.as_ref(), trail))
                }
            };
            let batch = match tail.next(file) {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ok(()),
                Err(error) => {
                    tracing::warn!(%session, "{}: {error}", path.display());
                    self.tails.remove(&id); // its lines may have got further than it
                    return Ok(());
                }
            };
            let (from, checkpoint) = (batch.began_at(), batch.checkpoint());
            let records: Vec<_> = batch.harvest.records.into_iter().map(priced).collect();
            let read = Batch {
                file: id,
                path,
                from,
                restart: batch.restart.is_some(),
                to: checkpoint.progress,
                state: &checkpoint.state,
                unreadable: batch.unreadable,
                records: &records,
            };
            // A tail is past the lines it has read: refused ones are read again from where the store is.
            let taken = store
                .write(|tx| absorb(tx, at, session, &read))
                .inspect_err(|_| drop(self.tails.remove(&id)))?;
            match taken {
                Absorbed::Taken(_) => {
                    news.any = true;
                    news.facts.merge(batch.harvest.facts);
                }
                Absorbed::Elsewhere(position) => {
                    races += 1;
                    if races > RACES {
                        return Ok(()); // the other reader is doing our work
                    }
                    self.tails.insert(id, resume(id, path, position.as_ref(), trail));
                }
            }
        }
    }
}

fn resume(
    file: FileId,
    path: &Path,
    stored: Option<&store::Position>,
    trail: &dyn Trail,
) -> Followed<Box<dyn Lines + Send>> {
    let checkpoint = stored.map(|stored| (stored.offset, &*stored.state));
    Followed::resume(trail.form(path), file, checkpoint, |state| trail.lines(state))
}

fn priced(record: Record) -> Priced {
    match &record.fact {
        Fact::Usage(usage) => {
            let cost = usage.cost();
            Priced { cost, prices: cost.map(|_| prices::TABLE_VERSION.to_string()), record }
        }
        _ => Priced { record, cost: None, prices: None },
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
