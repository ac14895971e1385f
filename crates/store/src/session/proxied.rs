//! Calls that the proxy saw become records of their sessions, or wait until their sessions are known.
//!
//! A call belongs to the session that is bound to the conversation its request names. Where it names none, it belongs to the
//! session that its run was in when the call began. Until there is such a session, and it is bound, the call waits in the store:
//! nothing is lost when a process is killed in between. A conversation that never becomes a session keeps its calls there; they
//! are counted nowhere.
//!
//! A call is reconciled with the transcript's record of it ([`super::absorb`]), whichever came first:
//! - A call with usage is one record. Given twice, it changes nothing.
//! - A call that was broken off keeps its last numbers and is marked. One that was broken off before any number is a call of no
//!   tokens: the API may have charged for it, and nobody knows what.
//! - Each failed call is an error. The transcript reports the last failure of several attempts: that one is the same error.
//! - A call whose usage could not be read, or not all of it, is marked. It is a call with the numbers that could be read; without
//!   any it is none of its own, for the transcript may have it, and nothing would join the two.
//! - A call with neither usage nor error (`count_tokens`) is nothing.

use super::Error;
use super::absorb::{REPORTED_WITHIN_MS, ROUNDING_MS, RecordWriter};
use super::lifecycle::NOTICED_WITHIN_MS;
use crate::proxied::WaitingCall;
use crate::{Priced, ProxyColumns, RecordKind, SessionRow, StoredRecord, Tx};
use agents::meter::proxied::ProxiedCall;
use agents::meter::record::{ApiError, Fact, Record, Usage};
use pricing::tier::Tier;
use types::{Link, PicoDollars, RunId, SessionId, Timestamp, Tokens};

/// The model of a call that was broken off before the API named one.
const UNKNOWN_MODEL: &str = "unknown";

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is a record of this session, from now on or already.
    Recorded(SessionId),
    /// Its session is not known yet.
    Waiting,
    /// A session that was pruned has counted it.
    Pruned,
    /// It is neither usage nor an error, or cannot have been meant.
    Nothing,
}

/// What becomes of a call that began so shortly ago that its run may have gone to another conversation unnoticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecentCallPolicy {
    Wait,
    Take,
}

/// Takes in a call that is over. `at`: the time now.
pub fn take(tx: &Tx<'_>, at: Timestamp, call: &ProxiedCall) -> Result<Fate, Error> {
    if call.unread {
        tx.note_unread_usage(call)?;
    }
    let Some(facts) = Facts::of(tx, call) else { return Ok(Fate::Nothing) };
    if let Some(owner) = facts.owner(tx, call)? {
        return facts.store(tx, &owner, call);
    }
    if facts.usage.is_some() && tx.is_pruned_call(&call.agent, &call.key)? {
        return Ok(Fate::Pruned);
    }
    if let Some(session) = session_of(tx, at, call, RecentCallPolicy::Wait)? {
        return facts.store(tx, &session, call);
    }
    let waiting = tx.waiting_call(&call.agent, &call.key)?;
    if waiting.is_none_or(|waiting| supersedes(call, &waiting.call)) {
        tx.keep_waiting(call)?;
    }
    Ok(Fate::Waiting)
}

/// The waiting calls of a session become its records. Returns how many.
pub fn assign_waiting(tx: &Tx<'_>, at: Timestamp, session: SessionId) -> Result<usize, Error> {
    let row = tx.session(session)?.ok_or(Error::NoSession(session))?;
    assign(tx, at, row.n, RecentCallPolicy::Wait)
}

/// The same for the session that a run is in. Returns how many, and whether calls of that run still wait that name no
/// conversation.
pub fn assign_waiting_of_run(tx: &Tx<'_>, at: Timestamp, run: RunId) -> Result<(usize, bool), Error> {
    let assigned = match tx.current(run)? {
        Some(session) => assign(tx, at, session.n, RecentCallPolicy::Wait)?,
        None => 0,
    };
    Ok((assigned, tx.has_waiting_calls(run)?))
}

/// Whether a record counts what this call of the proxy cost: its own, or the transcript's that it will be joined with as soon as
/// it is certain which session it belongs to.
pub fn is_counted(tx: &Tx<'_>, agent: &str, key: &str) -> Result<bool, crate::Error> {
    if tx.stored_record(agent, RecordKind::Usage, key)?.is_some() || tx.is_pruned_call(agent, key)? {
        return Ok(true);
    }
    let Some(WaitingCall { call, .. }) = tx.waiting_call(agent, key)? else { return Ok(false) };
    let (Some(usage), Some(run), true) = (&call.usage, call.run, ProxyColumns::of(&call).loose) else {
        return Ok(false);
    };
    let Some(run) = tx.run(run)? else { return Ok(false) };
    let Some(session) = stayed_in(tx, run.n, &call)? else { return Ok(false) };
    let from = Timestamp(call.at.0.saturating_sub(ROUNDING_MS));
    tx.unseen_call(session.n, &usage.tokens, from).map(|found| found.is_some())
}

pub(super) fn assign(
    tx: &Tx<'_>,
    at: Timestamp,
    session: i64,
    policy: RecentCallPolicy,
) -> Result<usize, Error> {
    let Some(row) = tx.session_number(session)?.filter(|row| row.link == Link::Matched) else { return Ok(0) };
    let mut waiting = match &row.agent_session {
        Some(conversation) => tx.waiting_calls(&row.agent, conversation)?,
        None => Vec::new(),
    };
    waiting.extend(tx.waiting_calls_of_runs(row.n)?);
    let mut assigned = 0;
    for waiting in waiting {
        let call = &waiting.call;
        // Without an owner by its key, or with one: `take` decides by the same rules.
        let Some(facts) = Facts::of(tx, call) else {
            tx.stop_waiting(waiting.n)?;
            continue;
        };
        let owner = match facts.owner(tx, call)? {
            Some(owner) => Some(owner),
            None if facts.usage.is_some() && tx.is_pruned_call(&call.agent, &call.key)? => {
                tx.stop_waiting(waiting.n)?;
                continue;
            }
            None => session_of(tx, at, call, policy)?,
        };
        if let Some(owner) = owner {
            facts.store(tx, &owner, call)?;
            tx.stop_waiting(waiting.n)?;
            assigned += 1;
        }
    }
    Ok(assigned)
}

/// The session that a call belongs to, if it is known and can take records.
fn session_of(
    tx: &Tx<'_>,
    at: Timestamp,
    call: &ProxiedCall,
    policy: RecentCallPolicy,
) -> Result<Option<SessionRow>, Error> {
    let session = match (&call.conversation, call.run) {
        (Some(conversation), _) => tx.session_by_agent_session(&call.agent, conversation)?,
        (None, Some(run)) => {
            let Some(run) = tx.run(run)? else { return Ok(None) };
            let young = at.0.saturating_sub(call.at.0) < NOTICED_WITHIN_MS;
            if young && policy == RecentCallPolicy::Wait && run.ended_at.is_none() {
                return Ok(None);
            }
            stayed_in(tx, run.n, call)?
        }
        (None, None) => None,
    };
    let Some(session) =
        session.filter(|session| session.link == Link::Matched && session.agent == call.agent)
    else {
        return Ok(None);
    };
    // A conversation that was adopted is a session without the calls made before, unless this very run was led here.
    let older = session.owns_from.is_some_and(|from| call.at < from);
    if older && !call.run.map_or(Ok(false), |run| tx.has_stayed(run, session.n))? {
        return Ok(None);
    }
    // Nothing of an imported session is sent until it is opened again.
    if session.imported_from.is_some() && tx.keeps_back(session.n)? {
        return Ok(None);
    }
    Ok(Some(session))
}

/// The session that a run was in when a call began. One that began shortly before a transition was noticed is the new session's,
/// unless the old one's transcript has it.
fn stayed_in(tx: &Tx<'_>, run: i64, call: &ProxiedCall) -> Result<Option<SessionRow>, crate::Error> {
    let noticed = tx.stayed_in(run, call.at, NOTICED_WITHIN_MS)?;
    let before =
        tx.stayed_in(run, call.at, 0)?.filter(|before| Some(before.n) != noticed.as_ref().map(|row| row.n));
    if let (Some(before), Some(usage)) = (before, &call.usage) {
        let from = Timestamp(call.at.0.saturating_sub(ROUNDING_MS));
        if tx.unseen_call(before.n, &usage.tokens, from)?.is_some() {
            return Ok(Some(before));
        }
    }
    Ok(noticed)
}

/// Whether the same call was reported with better numbers.
fn supersedes(call: &ProxiedCall, earlier: &ProxiedCall) -> bool {
    match (&call.usage, &earlier.usage) {
        (Some(now), Some(before)) => now.tokens.supersedes(&before.tokens),
        (now, before) => now.is_some() && before.is_none(),
    }
}

/// A call as the records it makes.
struct Facts {
    columns: ProxyColumns,
    usage: Option<Priced>,
    error: Option<Priced>,
}

impl Facts {
    /// `None` for what is neither, and for what no agent can have meant.
    fn of(tx: &Tx<'_>, call: &ProxiedCall) -> Option<Self> {
        let record = |fact| {
            let (key, subagent) = (call.key.clone(), call.subagent.clone());
            let mut record = Record { key, at: call.at, copied: false, subagent, fact };
            record.strip_paths();
            Some(record).filter(Record::is_plausible)
        };
        let usage = match &call.usage {
            Some(usage) => record(Fact::Usage(usage.clone())).map(|record| tx.priced(record)),
            None if call.aborted && call.error.is_none() => record(Fact::Usage(Usage {
                model: UNKNOWN_MODEL.to_owned(),
                tokens: Tokens::default(),
                tier: Tier::Standard,
                request_id: None,
            }))
            .map(|record| Priced { record, cost: Some(PicoDollars(0)), prices: None }),
            None => None,
        };
        let error = call.error.clone().and_then(|error| record(Fact::Error(error)));
        let error = error.map(|record| Priced { record, cost: None, prices: None });
        let any = usage.is_some() || error.is_some();
        any.then(|| Self { columns: ProxyColumns::of(call), usage, error })
    }

    /// The session that has the call already.
    fn owner(&self, tx: &Tx<'_>, call: &ProxiedCall) -> Result<Option<SessionRow>, Error> {
        let kind = if self.usage.is_some() { RecordKind::Usage } else { RecordKind::Error };
        let stored = tx.stored_record(&call.agent, kind, &call.key)?;
        Ok(stored.map(|stored| tx.session_number(stored.session)).transpose()?.flatten())
    }

    fn store(&self, tx: &Tx<'_>, session: &SessionRow, call: &ProxiedCall) -> Result<Fate, Error> {
        let mut writer = RecordWriter::of(tx, session);
        if let Some(usage) = &self.usage {
            match stored_call(tx, session, call, usage)? {
                Some(stored) => writer.sight(&stored, usage, &self.columns)?,
                None => writer.add(usage, Some(&self.columns))?,
            }
        }
        if let Some(error) = &self.error {
            match stored_error(tx, session, call, error)? {
                Some(stored) => writer.sight(&stored, error, &self.columns)?,
                None if session.link == Link::Matched => writer.add(error, Some(&self.columns))?,
                // An imported session may own the call and never have been bound: it takes nothing new.
                None => {}
            }
        }
        writer.settle()?;
        Ok(Fate::Recorded(session.id))
    }
}

/// The record that is the same call: by its key, else by its tokens.
fn stored_call(
    tx: &Tx<'_>,
    session: &SessionRow,
    call: &ProxiedCall,
    priced: &Priced,
) -> Result<Option<StoredRecord>, Error> {
    let known = tx.stored_record(&call.agent, RecordKind::Usage, &call.key)?;
    let (None, Fact::Usage(usage), true) = (&known, &priced.record.fact, ProxyColumns::of(call).loose) else {
        return Ok(known);
    };
    let from = Timestamp(call.at.0.saturating_sub(ROUNDING_MS));
    let Some(n) = tx.unseen_call(session.n, &usage.tokens, from)? else { return Ok(None) };
    tx.add_record_alias(&call.agent, RecordKind::Usage, &call.key, n)?;
    Ok(tx.stored_record_number(n)?)
}

/// The record that is the same error: by its key, else the transcript's of the same status, written right after it.
fn stored_error(
    tx: &Tx<'_>,
    session: &SessionRow,
    call: &ProxiedCall,
    priced: &Priced,
) -> Result<Option<StoredRecord>, Error> {
    let known = tx.stored_record(&call.agent, RecordKind::Error, &call.key)?;
    let (None, Fact::Error(ApiError { status, .. })) = (&known, &priced.record.fact) else {
        return Ok(known);
    };
    let ended = call.at.0.saturating_add(i64::try_from(call.latency_ms).unwrap_or(i64::MAX));
    let from = Timestamp(ended.saturating_sub(ROUNDING_MS));
    let by = Timestamp(ended.saturating_add(REPORTED_WITHIN_MS));
    let Some(n) = tx.unseen_error(session.n, *status, from, by)? else { return Ok(None) };
    tx.add_record_alias(&call.agent, RecordKind::Error, &call.key, n)?;
    Ok(tx.stored_record_number(n)?)
}
