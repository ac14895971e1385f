//! Reading the files of one session into the store, from wherever the last reader stopped.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pricing::PriceList;

use agents::Observer;
use agents::meter::form::{FormReader, Opened};
use agents::meter::line::{LineFacts, Lines};
use os::file::FileId;
use os::project::head::{CallPlace, HeadLog};
use types::Timestamp;

use agents::meter::record::Fact;
use store::session::absorb::{Absorbed, Batch, absorb};
use store::session::{Error, quota};
use store::{self, Priced, Store};
use types::{AgentSessionId, SessionId};

/// How often a batch is tried again because another reader was faster.
const RACES: usize = 16;

/// The tails of a session's files, by the files' identity, so that a renamed one is still known.
#[derive(Default)]
pub struct Follower {
    /// What calls cost.
    prices: Arc<PriceList>,
    tails: BTreeMap<FileId, FormReader<Box<dyn Lines + Send>>>,
    /// Of the session that is read; `None` until something is.
    heads: Option<(SessionId, HeadLog)>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("files", &self.tails.keys()).finish_non_exhaustive()
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
    pub fn pricing(prices: Arc<PriceList>) -> Self {
        Self { prices, ..Self::default() }
    }

    /// Reads all files to their present end, and notes in `news` the lines that were taken, also before some were refused. A file
    /// that cannot be opened now is read another time.
    pub fn read(
        &mut self,
        store: &mut Store,
        at: Timestamp,
        session: SessionId,
        observer: &dyn Observer,
        files: &[PathBuf],
        news: &mut News,
    ) -> Result<(), Error> {
        for path in files {
            match observer.form(path).open(path) {
                Ok(file) => self.read_file(store, at, session, observer, path, &file, news)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(%session, "{}: {error}", path.display()),
            }
        }
        Ok(())
    }

    /// Which commit was checked out at each call, where that is certain.
    fn places_of<'r>(
        &mut self,
        store: &mut Store,
        session: SessionId,
        records: &'r [Priced],
    ) -> Vec<(&'r str, CallPlace)> {
        if self.heads.as_ref().is_none_or(|(of, _)| *of != session) {
            let Ok(Some(row)) = store.read(|view| view.session(session)) else { return Vec::new() };
            self.heads = Some((session, HeadLog::of(&row.workspace.cwd)));
        }
        let Some((_, heads)) = self.heads.as_mut() else { return Vec::new() };
        heads.look();
        let calls = records.iter().map(|priced| &priced.record);
        calls
            .filter(|record| matches!(record.fact, Fact::Usage(_)))
            .filter_map(|record| Some((record.key.as_str(), heads.at(record.at)?)))
            .collect()
    }

    #[expect(clippy::too_many_arguments, reason = "one level of a loop, not an interface")]
    fn read_file(
        &mut self,
        store: &mut Store,
        at: Timestamp,
        session: SessionId,
        observer: &dyn Observer,
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
                    entry.insert(resume(id, path, stored.as_ref(), observer))
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
            let priced = |record| Priced::by(&self.prices, record);
            let records: Vec<_> = batch.parsed.records.into_iter().map(priced).collect();
            let places = self.places_of(store, session, &records);
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
                .write(|tx| {
                    let taken = absorb(tx, at, session, &read)?;
                    if let (Absorbed::Written(_), Some(title)) = (&taken, &batch.parsed.title) {
                        tx.set_title(session, title)?;
                    }
                    if matches!(taken, Absorbed::Written(_)) {
                        quota::take_read(tx, session, &batch.parsed.quotas)?;
                        for (key, place) in &places {
                            tx.set_call_place(session, key, place.branch.as_deref(), &place.head)?;
                        }
                    }
                    Ok::<_, Error>(taken)
                })
                .inspect_err(|_| drop(self.tails.remove(&id)))?;
            match taken {
                Absorbed::Written(_) => {
                    news.any = true;
                    news.facts.merge(batch.parsed.facts);
                }
                Absorbed::Elsewhere(position) => {
                    races += 1;
                    if races > RACES {
                        return Ok(()); // the other reader is doing our work
                    }
                    self.tails.insert(id, resume(id, path, position.as_ref(), observer));
                }
            }
        }
    }
}

/// Stores the title that the agent keeps apart from the conversation, if it has a new one.
pub(super) fn read_title(
    store: &mut Store,
    session: SessionId,
    observer: &mut dyn Observer,
    conversation: &AgentSessionId,
) -> Result<(), Error> {
    match observer.title(conversation) {
        Some(title) => Ok(store.write(|tx| tx.set_title(session, &title))?),
        None => Ok(()),
    }
}

fn resume(
    file: FileId,
    path: &Path,
    stored: Option<&store::Position>,
    observer: &dyn Observer,
) -> FormReader<Box<dyn Lines + Send>> {
    let checkpoint = stored.map(|stored| (stored.offset, &*stored.state));
    FormReader::resume(observer.form(path), file, checkpoint, |state| observer.lines(state))
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
