//! Records enter the store: who owns each, which are revisions, and what that changes of events, sums and ENDs.
//!
//! [`take_records`] takes records of any producer. [`absorb`] takes the records of one batch of a file and notes how far the
//! file has been read, both in the caller's one transaction, so that a line counts once.
//!
//! A key counts once per agent and kind. Its owner is the session that first took it up and stays that for good:
//! - a line marked as a copy never makes an owner;
//! - a session does not own lines older than its START, unless its conversation began empty for certain.
//!
//! A call that the proxy has seen as well ([`super::proxied`]) is one record, whichever of the two came first: by its key, or,
//! where the agent's file has no key of the API's, by its tokens and the order of the calls. The better numbers win: the larger
//! output, then the larger sum, then the proxy's.
//!
//! A line that is passed over here can still become the record of the session that owns it.

use std::collections::BTreeMap;
use std::path::Path;

use super::Error;
use super::event::amend_end;
use super::proxied::{self, RecentCallPolicy};
use super::state::{Move, Phase, State};
use crate::{
    EventRow, FileId, Position, Priced, ProxyColumns, RecordKind, Seen, SessionRow, StoredRecord, Tx,
};
use agents::meter::record::Fact;
use types::EventType;
use types::SessionId;
use types::Timestamp;
use types::event::{Source, keyed_id};
use types::{CallSums, Sums, ToolKind};

/// Where the clock turns out to have been set back during a session, lines this much older than the present are taken
/// for its own: nobody knows by how much it was, and a fork of an unknown conversation within the same hour is rarer
/// than a clock that is corrected.
const CLOCK_SLACK_MS: i64 = 3_600_000;

/// The clocks of an agent and of its proxy are one; a time that an agent rounds may lie a little before.
pub(super) const ROUNDING_MS: i64 = 1000;

/// An agent writes down an error as soon as its last attempt has failed.
pub(super) const REPORTED_WITHIN_MS: i64 = 60_000;

/// The part of one file that was read at once.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub file: FileId,
    pub path: &'a Path,
    /// Where the reading began: it counts only if the store is still there.
    pub from: u64,
    /// The file was truncated or replaced: whatever position is stored is void.
    pub restart: bool,
    pub to: u64,
    pub state: &'a [u8],
    /// Lines in this batch that could not be read.
    pub unreadable: u64,
    pub records: &'a [Priced],
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absorbed {
    Written(WriteCounts),
    /// Another reader has been here: nothing was taken, go on from its position (`None`: from the beginning).
    Elsewhere(Option<Position>),
}

/// How many records were new, and how many replaced an earlier reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCounts {
    pub added: u64,
    pub revised: u64,
}

/// Takes in what was read of one file.
pub fn absorb(tx: &Tx<'_>, at: Timestamp, session: SessionId, batch: &Batch<'_>) -> Result<Absorbed, Error> {
    let row = tx.session(session)?.ok_or(Error::NoSession(session))?;
    let stored = tx.position(batch.file)?;
    if !batch.restart && stored.as_ref().map_or(0, |position| position.offset) != batch.from {
        return Ok(Absorbed::Elsewhere(stored));
    }
    let counts = take_records(tx, at, &row, batch.records)?;
    move_position(tx, stored, batch)?;
    Ok(Absorbed::Written(counts))
}

/// Takes in records of a session.
pub fn take_records(
    tx: &Tx<'_>,
    at: Timestamp,
    row: &SessionRow,
    records: &[Priced],
) -> Result<WriteCounts, Error> {
    if row.proxied {
        // The proxy's calls that waited for a moment come before the lines about them.
        proxied::assign(tx, at, row.n, RecentCallPolicy::Wait)?;
    }
    let mut writer = RecordWriter::of(tx, row);
    let owns_from = owns_from(tx, at, row)?;
    for priced in records {
        writer.take(priced, owns_from)?;
    }
    if let Some(last) = writer.last {
        // Whatever clock a line was written by, nothing of the future has happened yet.
        tx.note_activity(row.n, last.min(at))?;
    }
    writer.settle()
}

/// Notes how far a file has been read, from where it was read before.
fn move_position(tx: &Tx<'_>, stored: Option<Position>, batch: &Batch<'_>) -> Result<(), Error> {
    // What is read again from its start is counted again.
    let before = stored.filter(|_| !batch.restart).map_or(0, |position| position.unreadable);
    let unreadable = before.saturating_add(batch.unreadable);
    Ok(tx.set_position(batch.file, batch.path, batch.to, batch.state, unreadable)?)
}

/// From when on lines are the session's own; `None`: all are.
fn owns_from(tx: &Tx<'_>, at: Timestamp, row: &SessionRow) -> Result<Option<Timestamp>, Error> {
    let Some(from) = row.owns_from.filter(|&from| at < from) else { return Ok(row.owns_from) };
    let earlier = Timestamp(at.0.saturating_sub(CLOCK_SLACK_MS));
    tracing::warn!(session = %row.id, %from, now = %at, "the clock was set back during the session");
    tx.set_owns_from(row.n, earlier)?;
    Ok(Some(earlier))
}

/// Records on their way into the store.
pub(super) struct RecordWriter<'a> {
    tx: &'a Tx<'a>,
    row: &'a SessionRow,
    /// By session: a revision may concern the record of another one.
    changes: BTreeMap<i64, Sums>,
    counts: WriteCounts,
    /// The time of the latest record that is new.
    last: Option<Timestamp>,
}

impl<'a> RecordWriter<'a> {
    pub(super) fn of(tx: &'a Tx<'a>, row: &'a SessionRow) -> Self {
        Self { tx, row, changes: BTreeMap::new(), counts: WriteCounts::default(), last: None }
    }

    /// A record of the agent's file.
    fn take(&mut self, priced: &Priced, owns_from: Option<Timestamp>) -> Result<(), Error> {
        let record = &priced.record;
        let kind = RecordKind::of(&record.fact);
        if let Some(stored) = self.tx.stored_record(&self.row.agent, kind, &record.key)? {
            return self.revise(&stored, priced);
        }
        let older = owns_from.is_some_and(|from| record.at < from);
        if record.copied || older {
            return Ok(());
        }
        if kind == RecordKind::Usage && self.tx.is_pruned_call(&self.row.agent, &record.key)? {
            return Ok(()); // counted by a session that was pruned
        }
        if let Some(n) = self.seen_by_proxy(priced)? {
            self.tx.add_record_alias(&self.row.agent, kind, &record.key, n)?;
            self.tx.set_seen(n, Seen::Both)?;
            self.touch(self.row.n);
            return Ok(());
        }
        self.add(priced, None)
    }

    /// The record that the proxy has made of the same thing under another key.
    fn seen_by_proxy(&self, priced: &Priced) -> Result<Option<i64>, Error> {
        let record = &priced.record;
        let by = Timestamp(record.at.0.saturating_add(ROUNDING_MS));
        Ok(match &record.fact {
            Fact::Usage(usage) => self.tx.loose_call(self.row.n, &usage.tokens, by)?,
            Fact::Error(error) => {
                let from = Timestamp(record.at.0.saturating_sub(REPORTED_WITHIN_MS));
                self.tx.unreported_error(self.row.n, error.status, from, by)?
            }
            Fact::Tool(_) | Fact::Prompt => None,
        })
    }

    /// A record that is known under none of its keys.
    pub(super) fn add(&mut self, priced: &Priced, proxy: Option<&ProxyColumns>) -> Result<(), Error> {
        permit(self.row)?;
        let record = &priced.record;
        let n = self.tx.insert_record(&self.row.agent, self.row.n, priced)?;
        if let Some(columns) = proxy {
            self.tx.set_proxy_columns(n, Seen::Proxy, columns)?;
            self.tx.set_source(n, Source::Proxy)?;
        }
        let kind = RecordKind::of(&record.fact);
        let event = match kind {
            RecordKind::Usage => EventType::Usage,
            RecordKind::Tool => EventType::Tool,
            RecordKind::Prompt => EventType::Prompt,
            RecordKind::Error => EventType::Error,
        };
        let id = keyed_id(&self.row.agent, event, &record.key);
        let event = EventRow::new(self.row.n, id, event, self.row.opening, record.at);
        self.tx.append_event(EventRow { record: Some(n), ..event })?;
        let mut first_changes = 0;
        if let Fact::Tool(tool) = &record.fact
            && tool.ok
            && matches!(tool.kind, ToolKind::Write | ToolKind::Edit)
        {
            for file in tool.file.iter().chain(&tool.further) {
                first_changes += i64::from(self.tx.note_changed_file(self.row.n, file)?);
            }
        }
        count(self.changes.entry(self.row.n).or_default(), priced, first_changes);
        self.counts.added += 1;
        self.last = self.last.max(Some(record.at));
        Ok(())
    }

    /// A record of the agent's file that is known already.
    fn revise(&mut self, stored: &StoredRecord, priced: &Priced) -> Result<(), Error> {
        if stored.seen == Seen::Proxy {
            self.tx.set_seen(stored.n, Seen::Both)?;
            self.touch(stored.session);
        }
        let Fact::Usage(usage) = &priced.record.fact else { return Ok(()) };
        if !usage.tokens.supersedes(&stored.tokens) {
            return Ok(());
        }
        self.improve(stored, priced, Source::Transcript)?;
        Ok(self.tx.revise_event_of_record(stored.n)?)
    }

    /// A record that is known already, seen by the proxy.
    pub(super) fn sight(
        &mut self,
        stored: &StoredRecord,
        priced: &Priced,
        columns: &ProxyColumns,
    ) -> Result<(), Error> {
        let mut changed = false;
        if stored.seen == Seen::Transcript {
            self.tx.set_proxy_columns(stored.n, Seen::Both, columns)?;
            self.touch(stored.session);
            changed = true;
        }
        if let Fact::Usage(usage) = &priced.record.fact {
            let better = usage.tokens.supersedes(&stored.tokens);
            let as_good = !stored.tokens.supersedes(&usage.tokens);
            if better || as_good && stored.source == Source::Transcript {
                self.improve(stored, priced, Source::Proxy)?;
                changed = true;
            }
        }
        if changed {
            self.tx.revise_event_of_record(stored.n)?;
        }
        Ok(())
    }

    /// The same call with better numbers.
    fn improve(&mut self, stored: &StoredRecord, priced: &Priced, source: Source) -> Result<(), Error> {
        let Fact::Usage(usage) = &priced.record.fact else { return Ok(()) };
        self.tx.revise_usage(stored.n, usage, priced, source)?;
        let sums = self.changes.entry(stored.session).or_default();
        sums.calls.subtract(&CallSums::of(&stored.tokens, stored.cost));
        sums.calls.add(&CallSums::of(&usage.tokens, priced.cost));
        self.counts.revised += 1;
        Ok(())
    }

    /// Something of a session has changed that is in no sum: its END is made again all the same.
    fn touch(&mut self, session: i64) {
        self.changes.entry(session).or_default();
    }

    /// Writes the sums, and amends the END of every session concerned that has ended.
    pub(super) fn settle(self) -> Result<WriteCounts, Error> {
        for (session, more) in &self.changes {
            self.tx.add_totals(*session, more)?;
            let Some(row) = self.tx.session_number(*session)? else { continue };
            if row.phase == Phase::Closed {
                amend_end(self.tx, &row)?;
                self.tx.set_phase(row.n, State::of_row(&row)?.parts())?;
            }
        }
        Ok(self.counts)
    }
}

/// Only a session that is bound has a file to read.
fn permit(row: &SessionRow) -> Result<(), Error> {
    State::of_row(row)?.step(Move::Learn).map(drop).map_err(|source| {
        tracing::warn!(session = %row.id, "refused: {source}");
        Error::Illegal { session: row.id, source }
    })
}

fn count(sums: &mut Sums, priced: &Priced, first_changes: i64) {
    match &priced.record.fact {
        Fact::Usage(usage) => sums.calls.add(&CallSums::of(&usage.tokens, priced.cost)),
        Fact::Tool(tool) => {
            sums.add_tool(tool.ok, tool.lines_added, tool.lines_removed);
            sums.files_changed += first_changes;
        }
        Fact::Prompt => sums.prompts += 1,
        Fact::Error(_) => sums.api_errors += 1,
    }
}
