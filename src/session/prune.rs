//! Old sessions leave the store. The agents' own files are not touched.

use super::{Error, publish};
use crate::clock::Timestamp;
use crate::home::Home;
use crate::store::{SessionRow, Store};

/// What would go, or went: sessions (of one agent, if it is named) that ended before `before` and that every sink has all of.
pub fn prune(
    store: &mut Store,
    home: &Home,
    before: Timestamp,
    agent: Option<&str>,
    dry_run: bool,
) -> Result<Vec<SessionRow>, Error> {
    let mut rows = store.read(|view| view.prunable(before))?;
    rows.retain(|row| agent.is_none_or(|agent| row.agent == agent));
    if dry_run {
        return Ok(rows);
    }
    // One at a time: nobody who starts an agent meanwhile waits for more than one.
    let mut failed = None;
    rows.retain(|row| {
        let gone = failed.is_none() && {
            let outcome = store.write(|tx| {
                // Re-opened since it was looked at: stays.
                let still = tx
                    .session_number(row.n)?
                    .is_some_and(|now| now.ended_at == row.ended_at && !now.is_active());
                if still {
                    tx.delete_session(row.n)?;
                }
                Ok::<_, Error>(still)
            });
            outcome.unwrap_or_else(|error| {
                failed = Some(error);
                false
            })
        };
        if gone {
            publish::withdraw(home, row);
        }
        gone
    });
    failed.map_or(Ok(rows), Err)
}
