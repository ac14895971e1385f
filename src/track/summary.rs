//! What the tracker reports to the wrapper at the end of a run.

use crate::budget::Standing;
use crate::forward::Sender;
use crate::session::{self, record::record};
use crate::store::Store;
use wire::{PicoDollars, SessionId, SessionRecord, Timestamp};

#[derive(Debug, Default)]
pub struct Summary {
    /// The session the run ended in.
    pub session: Option<SessionRecord>,
    /// `None`: the run had only that session.
    pub run_total: Option<RunTotal>,
    /// The budgets that the session counts towards and that are used by 80 % or more.
    pub budgets: Vec<Standing>,
    /// What broke in codemie itself, in one line.
    pub problem: Option<String>,
    /// Everything is committed; not everything may have been sent.
    pub sender: Option<Sender>,
}

/// All sessions of a run, and what they cost together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTotal {
    pub sessions: usize,
    pub cost: PicoDollars,
}

pub(super) fn record_of(
    store: &mut Store,
    session: SessionId,
    at: Timestamp,
) -> Result<SessionRecord, session::Error> {
    store.read(|view| {
        let row = view.session(session)?.ok_or(session::Error::NoSession(session))?;
        Ok(record(view, &row, at)?)
    })
}

/// The total of a run that had more than one session.
pub(super) fn run_total(
    store: &mut Store,
    sessions: &[SessionId],
) -> Result<Option<RunTotal>, session::Error> {
    let cost = store.read(|view| {
        let mut sum = 0_i64;
        for session in sessions {
            if let Some(row) = view.session(*session)? {
                sum = sum.saturating_add(view.totals(row.n)?.cost.0);
            }
        }
        Ok::<_, session::Error>(PicoDollars(sum))
    })?;
    Ok((sessions.len() > 1).then_some(RunTotal { sessions: sessions.len(), cost }))
}
