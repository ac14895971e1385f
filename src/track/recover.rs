//! What vanished without ending is read to its end and ended, by whichever codemie command comes next.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Follower;
use crate::agent;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::home::Home;
use crate::process::SystemProcesses;
use crate::session::{self, publish::publish};
use crate::store::{Realm, SessionRow, Store};

/// Ends every session whose run is gone. Costs one query when there is none.
pub fn recover(store: &mut Store, home: &Home) -> Result<(), session::Error> {
    let now = SystemClock.now();
    let ended = session::recover::recover(store, &SystemProcesses, &Realm::here(), now, read_to_end)?;
    if !ended.is_empty() {
        publish(store, home, now)?;
    }
    Ok(())
}

/// Meters what is left of a session's files, and says when they last grew.
fn read_to_end(store: &mut Store, session: &SessionRow) -> Option<Timestamp> {
    let conversation = session.agent_session.as_ref()?;
    let var = |name: &str| std::env::var_os(name);
    let mut trail = agent::by_name(&session.agent)?.trail(&var, &session.place.cwd)?;
    // The file as it was bound comes first: this command's environment may point the agent elsewhere.
    let mut files = trail.files(conversation);
    if let Some(file) = session.agent_session_file.as_ref().filter(|file| file.exists())
        && !files.contains(file)
    {
        files.insert(0, file.clone());
    }
    let now = SystemClock.now();
    if let Err(error) = Follower::default().read(store, now, session.id, &*trail, &files) {
        tracing::warn!(session = %session.id, "not read to its end: {error}");
    }
    files.iter().filter_map(|file| modified(file)).max()
}

fn modified(file: &Path) -> Option<Timestamp> {
    let meta = std::fs::metadata(file).ok()?;
    Some(Timestamp(meta.mtime().saturating_mul(1000).saturating_add(meta.mtime_nsec() / 1_000_000)))
}
