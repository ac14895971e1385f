//! Old stores in the folder where an agent is started. No user asked for their import, so it must not disturb anything: a
//! detached process imports them piece by piece, notes with each piece how far it is, and pauses after each piece for as
//! long as the piece took.
//!
//! A place is read once, ever. How far a file has been read counts as long as it is the same file (device, inode, length,
//! time of change); one that could not be read is not looked at again until it has changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Error, ImportReport, Pacing, Source, files_of, import_file};
use crate::{Store, Tx, View, old};
use types::Timestamp;

/// Many thousand sessions of an old store.
const MAX_FOUND: u64 = 16 << 20;

/// The longest pause after a transaction that had to wait long itself.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// The store's note of a place that has been read.
const READ: &str = "read";

fn key(place: &Path) -> String {
    format!("old-store:{}", place.display())
}

/// The store's note of a file that is being read, or cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    identity: String,
    /// How many of its entries are taken in; `None`: it cannot be read.
    done: Option<u64>,
}

impl Mark {
    fn parse(text: &str) -> Option<Self> {
        let (identity, done) = text.split_once(' ')?;
        let done = if done == "refused" { None } else { Some(done.parse().ok()?) };
        Some(Self { identity: identity.to_owned(), done })
    }

    fn text(&self) -> String {
        let done = self.done.map_or("refused".to_owned(), |done| done.to_string());
        format!("{} {done}", self.identity)
    }
}

fn identity(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    Some(format!("{}:{}:{}:{}.{}", meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))
}

/// The places where something is left to be read, each with how far it was read before.
fn waiting(view: &View<'_>, user_home: &Path, cwd: &Path) -> Result<Vec<(PathBuf, u64)>, Error> {
    let mut waiting = Vec::new();
    for place in old::places(user_home, cwd) {
        let Some(identity) = identity(&place) else { continue };
        let noted = view.setting(&key(&place))?;
        let mark = noted.as_deref().and_then(Mark::parse).filter(|mark| mark.identity == identity);
        match (noted.as_deref(), mark) {
            (Some(READ), _) | (_, Some(Mark { done: None, .. })) => {}
            (_, Some(Mark { done: Some(done), .. })) => waiting.push((place, done)),
            (_, None) => waiting.push((place, 0)),
        }
    }
    Ok(waiting)
}

/// A folder that we make ourselves, where an earlier tool may have had one: there is nothing of that tool's in it.
pub(in crate::session) fn expect_nothing(tx: &Tx<'_>, folder: &Path) -> Result<(), Error> {
    Ok(tx.set_setting(&key(folder), READ)?)
}

/// Whether there is something to take in. Costs a look at a few paths and as many queries.
pub fn is_something(store: &mut Store, user_home: &Path, cwd: &Path) -> Result<bool, Error> {
    store.read(|view| Ok(!waiting(view, user_home, cwd)?.is_empty()))
}

/// Imports what is found until `deadline`; the next call continues from there.
pub fn take_in(
    store: &mut Store,
    user_home: &Path,
    cwd: &Path,
    at: Timestamp,
    deadline: Option<Instant>,
) -> Result<ImportReport, Error> {
    let mut report = ImportReport::default();
    for (place, done) in store.read(|view| waiting(view, user_home, cwd))? {
        let Some(identity) = identity(&place) else { continue };
        let mut paced = Paced { key: key(&place), identity, deadline, since: Instant::now() };
        let through = if place.is_dir() && place.starts_with(user_home.join(".codemie")) {
            take_in_folder(store, &place, at, &mut paced, &mut report)?
        } else {
            // A folder where a file is expected is refused like anything else that is no regular file.
            let before = report.passed_over.len();
            let through = match Source::found(&place, MAX_FOUND) {
                Ok(source) => import_file(store, &source, at, done, &mut paced, &mut report)?,
                Err(error) => {
                    report.pass_over(&place, error.to_string());
                    true
                }
            };
            if report.passed_over.len() > before {
                let refused = Mark { identity: paced.identity, done: None }.text();
                store.write(|tx| tx.set_setting(&paced.key, &refused))?;
                continue;
            }
            through
        };
        if !through {
            break;
        }
        store.write(|tx| tx.set_setting(&paced.key, READ))?;
    }
    Ok(report)
}

/// A folder with a file for each session. Sessions imported before are recognised by their entries in the store, so no other
/// note of how far the import is.
fn take_in_folder(
    store: &mut Store,
    place: &Path,
    at: Timestamp,
    paced: &mut Paced,
    report: &mut ImportReport,
) -> Result<bool, Error> {
    let files = match files_of(place) {
        Ok(files) => files,
        Err(error) => {
            report.pass_over(place, error.to_string());
            return Ok(true);
        }
    };
    for file in files {
        match Source::found(&file, MAX_FOUND) {
            Ok(source) => {
                if !import_file(store, &source, at, 0, paced, report)? {
                    return Ok(false);
                }
            }
            Err(error) => report.pass_over(&file, error.to_string()),
        }
        if !paced.may_continue() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Piece by piece, leaving the store to others for as long as each piece took.
struct Paced {
    key: String,
    identity: String,
    deadline: Option<Instant>,
    since: Instant,
}

impl Pacing for Paced {
    fn note(&self, tx: &Tx<'_>, done: u64) -> Result<(), Error> {
        let mark = Mark { identity: self.identity.clone(), done: Some(done) };
        Ok(tx.set_setting(&self.key, &mark.text())?)
    }

    fn may_continue(&mut self) -> bool {
        let Some(deadline) = self.deadline else { return true };
        std::thread::sleep(self.since.elapsed().min(LONGEST_PAUSE));
        self.since = Instant::now();
        self.since < deadline
    }
}
