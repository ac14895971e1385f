//! The session that a process runs inside of, after any number of `/clear`s.

use store::session::lineage::Lineage;
use store::{self, Realm, SessionRow, View};

/// The run knows the session it is in now; the variables of its processes name the one it began with.
pub fn current(view: &View<'_>, lineage: &Lineage) -> Result<Option<SessionRow>, store::Error> {
    let live = view.live_runs()?;
    lineage.enclosing(&live, &Realm::here()).map(|run| view.current(run.id)).transpose().map(Option::flatten)
}
