//! Old sessions leave the store; what they used stays counted. So do calls of the proxy that became no session's, and old limits. The agents' own files are not touched.

use super::{Error, publish};
use crate::{SessionRow, Store};
use os::home::Home;
use types::Timestamp;

/// Removes sessions (of one agent, if it is named) that ended before `before`, and returns them; with `dry_run` they are only
/// returned. A session with events that a sink has not received, or has refused, stays until the sink is forgotten.
pub fn prune(
    store: &mut Store,
    home: &Home,
    before: Timestamp,
    agent: Option<&str>,
    dry_run: bool,
) -> Result<Vec<SessionRow>, Error> {
    let mut rows = store.read(|view| view.prunable(before, None))?;
    rows.retain(|row| agent.is_none_or(|agent| row.agent == agent));
    if dry_run {
        return Ok(rows);
    }
    store.write(|tx| tx.prune_waiting(before, agent))?;
    // One at a time: an agent that is started meanwhile waits for one removal at most.
    let mut gone = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(row) = remove(store, row.n, before)? {
            publish::withdraw(home, &row);
            gone.push(row);
        }
    }
    Ok(gone)
}

/// `None` if it stays, because meanwhile it was opened again or has got events that are pending for a sink.
pub(super) fn remove(
    store: &mut Store,
    session: i64,
    before: Timestamp,
) -> Result<Option<SessionRow>, Error> {
    store.write(|tx| {
        let row = tx.prunable(before, Some(session))?.pop();
        if let Some(row) = &row {
            tx.keep_calls(row)?;
            tx.delete_session(session)?;
        }
        Ok(row)
    })
}
