//! What files there are now, and what that means for those known already.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::call::FileNo;
use super::hash::CheapMap;
use super::index::{FileFacts, Index};
use super::words::Word;
use crate::agent::{Agent, SessionFile, Var};
use crate::file::FileId;

/// A file on the disk.
#[derive(Debug)]
pub(super) struct Found {
    /// Its agent's place in the list of agents.
    pub(super) agent: usize,
    pub(super) file: SessionFile,
    pub(super) id: FileId,
    pub(super) size: u64,
    pub(super) modified: i64,
    pub(super) born: i64,
}

/// All files of all agents, and the folders they were looked for in.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) found: Vec<Found>,
    pub(super) roots: Vec<PathBuf>,
    /// Folders that could not be looked into.
    pub(super) refused: Vec<String>,
}

/// Files below which a second thread is not worth starting to look at them.
const MANY: usize = 512;

impl Tree {
    pub(super) fn look(agents: &[&'static dyn Agent], var: Var<'_>, threads: usize) -> Self {
        let mut tree = Self::default();
        let mut named = Vec::new();
        for (number, agent) in agents.iter().enumerate() {
            tree.roots.extend(agent.session_roots(var));
            match agent.session_files(var) {
                Ok(files) => named.extend(files.into_iter().map(|file| (number, file))),
                Err(error) => tree.refused.push(format!("{}: {error}", agent.name())),
            }
        }
        let threads = if named.len() < MANY { 1 } else { threads };
        let share = named.len().div_ceil(threads).max(1);
        let mut shares = Vec::new();
        while !named.is_empty() {
            let rest = named.split_off(share.min(named.len()));
            shares.push(std::mem::replace(&mut named, rest));
        }
        tree.found = std::thread::scope(|scope| {
            let mut shares = shares.into_iter();
            let own = shares.next();
            let others: Vec<_> = shares.map(|share| scope.spawn(|| looked_at(share))).collect();
            let mut found = own.map(looked_at).unwrap_or_default();
            for other in others {
                found.extend(other.join().unwrap_or_default());
            }
            found
        });
        // Links can lead to one file by two names, or by two ways.
        let mut met = HashSet::with_capacity(tree.found.len());
        tree.found.retain(|found| met.insert(found.id));
        tree
    }
}

/// A file that is gone again is not there.
fn looked_at(files: Vec<(usize, SessionFile)>) -> Vec<Found> {
    files
        .into_iter()
        .filter_map(|(agent, file)| {
            let meta = fs::metadata(&file.path).ok().filter(Metadata::is_file)?;
            let modified = meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec());
            let id = FileId { device: meta.dev(), inode: meta.ino() };
            Some(Found { agent, file, id, size: meta.len(), modified, born: born(&meta).min(modified) })
        })
        .collect()
}

/// Where the file system does not tell, the time of the last change comes in its place.
fn born(meta: &Metadata) -> i64 {
    let since = meta.created().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| i64::try_from(since.as_nanos()).ok()).unwrap_or(i64::MAX)
}

/// What is to be done with what was found.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Places in the tree, and the number that each file has or gets.
    pub(super) to_read: Vec<(usize, FileNo)>,
    /// Something in the index changed, whether anything is read or not.
    pub(super) changed: bool,
    /// Files that are there now.
    pub(super) listed: Vec<FileNo>,
}

/// Finds for every file what is known of it. Brings names, what is closed, and what is in view up to date; gives new files
/// their numbers, with nothing read of them yet.
pub(super) fn plan(index: &mut Index, tree: &Tree, agents: &[Word]) -> Plan {
    let mut plan = Plan::default();
    let mut known: CheapMap<FileId, FileNo> = CheapMap::default();
    for (number, file) in index.files.iter().enumerate() {
        if let Some(file) = file.as_ref().filter(|file| !file.closed) {
            known.insert(file.id, FileNo::try_from(number).unwrap_or(FileNo::MAX));
        }
    }
    let mut listed = vec![false; index.files.len()];
    let mut free = (0..index.files.len()).filter(|&number| index.files[number].is_none()).collect::<Vec<_>>();
    for (place, found) in tree.found.iter().enumerate() {
        let number = known.get(&found.id).copied().filter(|&number| same(index, number, found));
        let number = match number {
            Some(number) => {
                let Some(file) = &mut index.files[number as usize] else { continue };
                if file.path.as_os_str() != found.file.path.as_os_str() {
                    file.path.clone_from(&found.file.path);
                    plan.changed = true;
                }
                if (file.size, file.modified) != (found.size, found.modified) {
                    plan.to_read.push((place, number));
                }
                number
            }
            None => {
                let conversation = found.file.conversation.as_ref().map_or("", |id| &id.0);
                let facts =
                    Some(FileFacts::fresh(agents[found.agent], found, index.words.number(conversation)));
                let number = free.pop().unwrap_or(index.files.len());
                if number == index.files.len() {
                    index.files.push(facts);
                    listed.push(false);
                } else {
                    index.files[number] = facts;
                }
                let number = FileNo::try_from(number).unwrap_or(FileNo::MAX);
                plan.to_read.push((place, number));
                number
            }
        };
        listed[number as usize] = true;
        plan.listed.push(number);
    }
    let paths: HashSet<&Path> =
        if listed.iter().zip(&index.files).any(|(&listed, file)| !listed && file.is_some()) {
            tree.found.iter().map(|found| &*found.file.path).collect()
        } else {
            HashSet::new()
        };
    for (file, listed) in index.files.iter_mut().zip(listed) {
        let Some(file) = file else { continue };
        // What was there and is gone was deleted, or another stands in its place: its history stays. What lies elsewhere
        // is of another environment and not asked for now; it may be there still.
        let here = listed || tree.roots.iter().any(|root| file.path.starts_with(root));
        let closed = file.closed || (!listed && here && (paths.contains(&*file.path) || !file.path.exists()));
        if (file.in_view, file.closed) != (here, closed) {
            (file.in_view, file.closed) = (here, closed);
            plan.changed = true;
        }
    }
    plan
}

/// Whether the file with this number is the one found, as far as can be told without opening it: a deleted file's inode is
/// given to the next, which is another conversation's.
fn same(index: &Index, number: FileNo, found: &Found) -> bool {
    index.file(number).is_some_and(|file| {
        file.path.as_os_str() == found.file.path.as_os_str()
            || found.file.conversation.as_ref().is_none_or(|id| id.0 == index.words.text(file.conversation))
    })
}

impl FileFacts {
    fn fresh(agent: Word, found: &Found, conversation: Word) -> Self {
        Self {
            agent,
            path: found.file.path.clone(),
            id: found.id,
            size: 0,
            modified: 0,
            position: None,
            state: None,
            conversation,
            born: found.born,
            last: None,
            project: Word::NONE,
            repository: Word::NONE,
            branch: Word::NONE,
            version: Word::NONE,
            unreadable: 0,
            closed: false,
            in_view: true,
        }
    }
}

/// Whether anything stands in the way of looking at the files at all.
pub(super) fn first_refusal(tree: &Tree) -> io::Result<()> {
    match tree.refused.first() {
        Some(refusal) if tree.found.is_empty() => Err(io::Error::other(refusal.clone())),
        _ => Ok(()),
    }
}
