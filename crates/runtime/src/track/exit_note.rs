//! How the agent of a run ended, in a small file (`run/ended/<run id>.json`) until the END is in the store.
//!
//! The shell waits two seconds for a store that somebody else keeps locked, and the wrapper may be killed meanwhile. The exit
//! status is known to nobody else, so it is written down the moment the agent has ended; whichever codemie command recovers
//! the run ends it as the agent really ended, not as a crash.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use os::file::create_private;
use os::file::{entries, modified, read_at_most};
use os::home::Home;
use store::session::state::{Ending, Exit};
use store::{Error, View};
use types::EndReason;
use types::RunId;
use types::Timestamp;

/// More than such a note ever holds.
const MAX_NOTE: u64 = 4096;

/// A run that the store does not know may be about to be stored. After this long it is not.
const FORGOTTEN: Duration = Duration::from_hours(24);

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ExitNote {
    reason: EndReason,
    code: Option<i32>,
    signal: Option<i32>,
    at: Timestamp,
}

fn folder(home: &Home) -> PathBuf {
    home.run().join("ended")
}

fn path(home: &Home, run: RunId) -> PathBuf {
    folder(home).join(format!("{run}.json"))
}

/// Writes the note, whole or not at all, readable by its owner alone. Without one a late END becomes a crash, as it would
/// for a wrapper that was killed together with its agent.
pub(super) fn leave(home: &Home, run: RunId, ending: Ending, at: Timestamp) {
    let (code, signal) = match ending.exit {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    let note = ExitNote { reason: ending.reason, code, signal, at };
    let write = || {
        create_private(&folder(home))?;
        let mut file = tempfile::NamedTempFile::new_in(folder(home))?;
        file.write_all(&serde_json::to_vec(&note)?)?;
        file.persist(path(home, run)).map_err(|error| error.error)
    };
    if let Err(error) = write() {
        tracing::warn!(%run, "how the agent ended could not be noted: {error}");
    }
}

/// The content of a run's note. Anything else than a readable note of the end of a process is no note: programs that run
/// inside the agent can write here, too.
pub(super) fn find(home: &Home, run: RunId) -> Option<(Ending, Timestamp)> {
    let note: ExitNote = serde_json::from_slice(&read_at_most(&path(home, run), MAX_NOTE).ok()?).ok()?;
    let exit = match (note.code, note.signal) {
        (Some(code), None) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        _ => return None,
    };
    let ends_a_process = match note.reason {
        EndReason::Exit => matches!(exit, Exit::Code(_)),
        EndReason::Signal | EndReason::Stopped => true,
        EndReason::Clear | EndReason::Switch | EndReason::Crash => false,
    };
    ends_a_process.then_some((Ending { reason: note.reason, exit: Some(exit) }, note.at))
}

/// The END is in the store.
pub(super) fn remove(home: &Home, run: RunId) {
    let _ = fs::remove_file(path(home, run)); // one that stays is swept by the next recovery
}

/// Removes the notes of runs that have ended in the store, and those that nobody will ask for. Costs one listing of a folder
/// that is empty nearly always.
pub(super) fn sweep(home: &Home, view: &View<'_>, now: Timestamp) -> Result<(), Error> {
    for file in entries(&folder(home)).unwrap_or_default() {
        let run = file.file_stem().and_then(|stem| stem.to_str()?.parse::<RunId>().ok());
        let row = run.map(|run| view.run(run)).transpose()?.flatten();
        let done = match row {
            Some(row) => row.ended_at.is_some(),
            None => fs::metadata(&file).is_ok_and(|meta| now.since(modified(&meta)) > FORGOTTEN),
        };
        if done {
            let _ = fs::remove_file(&file);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use types::{Ids, RandomIds};

    #[test]
    fn a_note_gives_back_every_kind_of_ending() {
        let temporary = tempfile::tempdir().unwrap();
        let home = Home::at(temporary.path().join("home"));
        for ending in [
            Ending::exited(Exit::Code(3)),
            Ending::exited(Exit::Signal(11)),
            Ending::asked(Exit::Code(0)),
            Ending::asked(Exit::Signal(15)),
            Ending::stopped(Exit::Code(143)),
        ] {
            let run = RandomIds.run();
            assert_eq!(find(&home, run), None);
            leave(&home, run, ending, Timestamp(7));
            assert_eq!(find(&home, run), Some((ending, Timestamp(7))));
            assert_eq!(fs::metadata(path(&home, run)).unwrap().permissions().mode() & 0o777, 0o600);
            remove(&home, run);
            assert_eq!(find(&home, run), None);
        }
    }

    #[test]
    fn a_pipe_or_garbage_in_place_of_a_note_is_no_note() {
        let temporary = tempfile::tempdir().unwrap();
        let home = Home::at(temporary.path().join("home"));
        create_private(&folder(&home)).unwrap();
        let (pipe, garbage, long) = (RandomIds.run(), RandomIds.run(), RandomIds.run());
        rustix::fs::mkfifoat(rustix::fs::CWD, path(&home, pipe), rustix::fs::Mode::RUSR).unwrap();
        fs::write(path(&home, garbage), "{}").unwrap();
        fs::write(path(&home, long), " ".repeat(5000)).unwrap();
        for run in [pipe, garbage, long] {
            assert_eq!(find(&home, run), None);
        }
    }

    #[test]
    fn a_note_of_anything_but_the_end_of_a_process_is_no_note() {
        let temporary = tempfile::tempdir().unwrap();
        let home = Home::at(temporary.path().join("home"));
        create_private(&folder(&home)).unwrap();
        for text in [
            r#"{"reason":"clear","code":0,"signal":null,"at":7}"#,
            r#"{"reason":"crash","code":0,"signal":null,"at":7}"#,
            r#"{"reason":"exit","code":null,"signal":9,"at":7}"#,
            r#"{"reason":"exit","code":0,"signal":9,"at":7}"#,
            r#"{"reason":"exit","code":null,"signal":null,"at":7}"#,
        ] {
            let run = RandomIds.run();
            fs::write(path(&home, run), text).unwrap();
            assert_eq!(find(&home, run), None, "{text}");
        }
    }
}
