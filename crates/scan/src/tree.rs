//! The files that exist now, and what that means for the known ones.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, openat, statat};

use super::call::FileNo;
use super::hash::{CheapMap, CheapSet};
use super::index::{FileFacts, FileStamp, Index};
use super::strings::StringId;
use agents::meter::rows::RowStatus;
use agents::{Agent, SessionFile, Var};
use os::file::FileId;

/// A file on the disk.
#[derive(Debug)]
pub(super) struct FoundFile {
    /// Its agent's place in the list of agents.
    pub(super) agent: usize,
    pub(super) file: SessionFile,
    pub(super) id: FileId,
    pub(super) stamp: FileStamp,
    /// When a conversation that is no file came into being; of a file that is asked for when it is needed.
    born: Option<i64>,
}

/// All files of all agents, and the folders they were looked for in.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) found: Vec<FoundFile>,
    pub(super) roots: Vec<PathBuf>,
    /// Folders that could not be listed.
    pub(super) refused: Vec<String>,
}

/// A share of the work: files, or a folder to be listed first.
enum Part {
    Files(usize, Vec<SessionFile>),
    Folder(usize, PathBuf),
}

/// Files that are looked at by one thread in one go.
const SHARE: usize = 256;

impl Tree {
    /// Lists all files of all agents and looks at each, on several threads: this is all that a scan with nothing to read does.
    pub(super) fn look(agents: &[&'static dyn Agent], var: Var<'_>, threads: usize) -> Self {
        let mut tree = Self::default();
        let mut parts = Vec::new();
        for (number, agent) in agents.iter().enumerate() {
            tree.roots.extend(agent.session_roots(var));
            let mut listed = agent.session_files(var);
            while !listed.files.is_empty() {
                let rest = listed.files.split_off(SHARE.min(listed.files.len()));
                parts.push(Part::Files(number, std::mem::replace(&mut listed.files, rest)));
            }
            parts.extend(listed.folders.into_iter().map(|folder| Part::Folder(number, folder)));
            tree.refused.extend(listed.refused);
        }
        let threads = threads.min(parts.len());
        let parts = Mutex::new(parts.into_iter());
        let work = || {
            let mut share = Self::default();
            while let Some(part) = next(&parts) {
                let (agent, files) = match part {
                    Part::Files(agent, files) => (agent, files),
                    Part::Folder(agent, folder) => {
                        let listed = agents[agent].session_files_in(&folder);
                        share.refused.extend(listed.refused);
                        (agent, listed.files)
                    }
                };
                look_at(agent, agents[agent], files, &mut share.found);
            }
            share
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            for share in std::iter::once(own).chain(others.into_iter().filter_map(|other| other.join().ok()))
            {
                tree.found.extend(share.found);
                tree.refused.extend(share.refused);
            }
        });
        // Links can lead to one file by two names, or by two ways.
        let mut met: CheapSet<FileId> = CheapSet::default();
        met.reserve(tree.found.len());
        tree.found.retain(|found| met.insert(found.id));
        tree
    }
}

fn next(parts: &Mutex<std::vec::IntoIter<Part>>) -> Option<Part> {
    parts.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// Looks at each file. One that is gone again is left out.
fn look_at(agent: usize, of: &dyn Agent, files: Vec<SessionFile>, found: &mut Vec<FoundFile>) {
    found.reserve(files.len());
    let mut open: Option<(Vec<u8>, OwnedFd)> = None;
    let mut files = files.into_iter().peekable();
    while let Some(file) = files.next() {
        if let Some(status) = of.form(&file.path).status(&file.path) {
            found.extend(status.ok().map(|status| FoundFile::of_rows(agent, file, &status)));
            continue;
        }
        // Where several lie in one folder, its path is resolved once.
        let (folder, name) = split(&file.path);
        if open.as_ref().is_none_or(|(path, _)| path != folder) {
            let several = files.peek().is_some_and(|next| split(&next.path).0 == folder);
            open = several.then(|| folder_at(folder)).flatten();
        }
        let stat = match &open {
            Some((_, folder)) => statat(folder, name, AtFlags::empty()),
            None => statat(CWD, &file.path, AtFlags::empty()),
        };
        if let Some(stat) = stat.ok().filter(|stat| FileType::from_raw_mode(stat.st_mode).is_file()) {
            found.push(FoundFile::new(agent, file, &stat));
        }
    }
}

fn split(path: &Path) -> (&[u8], &[u8]) {
    let path = path.as_os_str().as_bytes();
    memchr::memrchr(b'/', path).map_or((&[], path), |at| (&path[..at], &path[at + 1..]))
}

fn folder_at(path: &[u8]) -> Option<(Vec<u8>, OwnedFd)> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).ok().map(|folder| (path.to_owned(), folder))
}

impl FoundFile {
    #[expect(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "systems differ in the widths of these"
    )]
    fn new(agent: usize, file: SessionFile, stat: &Stat) -> Self {
        let at = |seconds: i64, nanoseconds: i64| {
            seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
        };
        let part = |nanoseconds| i64::try_from(nanoseconds).unwrap_or(0);
        Self {
            agent,
            file,
            id: FileId { device: stat.st_dev as u64, inode: stat.st_ino as u64 },
            stamp: FileStamp {
                size: u64::try_from(stat.st_size).unwrap_or(0),
                modified: at(i64::from(stat.st_mtime), part(stat.st_mtime_nsec)),
                changed: at(i64::from(stat.st_ctime), part(stat.st_ctime_nsec)),
            },
            born: None,
        }
    }

    fn of_rows(agent: usize, file: SessionFile, status: &RowStatus) -> Self {
        let stamp = FileStamp { size: status.end, modified: status.changed, changed: status.changed };
        Self { agent, file, id: status.id, stamp, born: Some(status.born) }
    }

    /// When it came into being, in nanoseconds since 1970.
    pub(super) fn born(&self) -> i64 {
        self.born.unwrap_or_else(|| born(&self.file.path))
    }
}

/// When a file came into being, in nanoseconds since 1970. Where the file system does not record it, or a copy was given
/// the times of its original, the time of the last change comes in its place.
fn born(path: &Path) -> i64 {
    let nanoseconds = |at: SystemTime| {
        let since = at.duration_since(UNIX_EPOCH).ok()?;
        i64::try_from(since.as_nanos()).ok()
    };
    let Ok(meta) = fs::metadata(path) else { return i64::MAX };
    [meta.created(), meta.modified()].into_iter().flatten().filter_map(nanoseconds).min().unwrap_or(i64::MAX)
}

/// What to do with the files that were found.
#[derive(Debug, Default)]
pub(super) struct ReadPlan {
    /// Places in the tree, and the number that each file has or gets.
    pub(super) to_read: Vec<(usize, FileNo)>,
    /// Something in the index changed, whether anything is read or not.
    pub(super) changed: bool,
    /// Files that are there now.
    pub(super) listed: Vec<FileNo>,
}

/// Finds the known entry of every file. Updates paths, and which files are closed and in view; gives new files their
/// numbers, with nothing read of them yet.
pub(super) fn plan(index: &mut Index, tree: &Tree, agents: &[StringId]) -> ReadPlan {
    let mut plan = ReadPlan::default();
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
        let number = if let Some(number) = number {
            let Some(file) = &mut index.files[number as usize] else { continue };
            if file.path.as_os_str() != found.file.path.as_os_str() {
                file.path.clone_from(&found.file.path);
                plan.changed = true;
            }
            if file.stamp != found.stamp {
                plan.to_read.push((place, number));
            }
            number
        } else {
            let conversation = found.file.conversation.as_ref().map_or("", |id| &id.0);
            let facts =
                Some(FileFacts::fresh(agents[found.agent], found, index.strings.number(conversation)));
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
        // A file that is gone was deleted, or another is in its place: its history stays. A file elsewhere belongs to another
        // environment that is not asked for now; it may still exist.
        let here = listed || tree.roots.iter().any(|root| file.path.starts_with(root));
        let closed = file.closed || (!listed && here && (paths.contains(&*file.path) || !file.path.exists()));
        if (file.in_view, file.closed) != (here, closed) {
            (file.in_view, file.closed) = (here, closed);
            plan.changed = true;
        }
    }
    plan
}

/// Whether the file with this number is the one found, as far as can be known without opening it: a deleted file's inode is
/// given to the next, which belongs to another conversation.
fn same(index: &Index, number: FileNo, found: &FoundFile) -> bool {
    index.file(number).is_some_and(|file| {
        file.path.as_os_str() == found.file.path.as_os_str()
            || found.file.conversation.as_ref().is_none_or(|id| id.0 == index.strings.text(file.conversation))
    })
}

impl FileFacts {
    fn fresh(agent: StringId, found: &FoundFile, conversation: StringId) -> Self {
        Self {
            agent,
            path: found.file.path.clone(),
            id: found.id,
            stamp: FileStamp::default(),
            position: None,
            state: None,
            conversation,
            born: found.born(),
            last: None,
            project: StringId::NONE,
            repository: StringId::NONE,
            branch: StringId::NONE,
            version: StringId::NONE,
            unreadable: 0,
            closed: false,
            in_view: true,
        }
    }
}

/// An error if no file at all could be looked at.
pub(super) fn first_refusal(tree: &Tree) -> io::Result<()> {
    match tree.refused.first() {
        Some(refusal) if tree.found.is_empty() => Err(io::Error::other(refusal.clone())),
        _ => Ok(()),
    }
}
