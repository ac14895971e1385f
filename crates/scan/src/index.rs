//! The index of the cache: how far every file has been read, the roll-ups, and what they were made of.
//!
//! One file, replaced as a whole. It names the file of calls it belongs to. An index that cannot be read, is of another
//! version or has a wrong sum counts as absent: the next scan reads everything again.

use std::ffi::OsStr;
#[cfg(test)]
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::bytes::{Bytes, put, put_bytes, put_signed};
use super::call::FileNo;
use super::hash::{CheapMap, CheapSet, hash};
use super::strings::{StringId, StringTable};
use super::sums::DailySum;
use agents::meter::tail::Position;
use os::file::{FileId, read_at_most};

/// Raised whenever the notation changes: an older index counts as absent.
const FORMAT: u64 = 2;

/// Raised whenever a reader of lines gives other records than before: every existing file is read once more, and the calls
/// of deleted ones are kept.
/// 2: Codex up to 0.65, and the copied lines in its forks; Gemini's documents.
/// 3: Codex's flex and ultrafast tiers.
const READERS: u64 = 3;

const MAGIC: &[u8] = b"codemie scan\n";

/// One file of an agent's, as it was when it was last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileFacts {
    pub(super) agent: StringId,
    pub(super) path: PathBuf,
    pub(super) id: FileId,
    pub(super) stamp: FileStamp,
    /// `None`: nothing of it was read.
    pub(super) position: Option<Position>,
    pub(super) state: Option<String>,
    pub(super) conversation: StringId,
    /// When it came into being, as far as the file system records it, in nanoseconds since 1970.
    pub(super) born: i64,
    /// Time of the last call in it, in milliseconds.
    pub(super) last: Option<i64>,
    pub(super) project: StringId,
    pub(super) repository: StringId,
    pub(super) branch: StringId,
    pub(super) version: StringId,
    pub(super) unreadable: u64,
    /// It is deleted, or another is in its place: there will be no further calls.
    pub(super) closed: bool,
    /// Its calls are in the roll-ups.
    pub(super) in_view: bool,
}

/// By what a changed file is recognised. A file can be overwritten in its length and get its old time back; the time of the
/// last change of its inode cannot be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FileStamp {
    pub(super) size: u64,
    /// Both in nanoseconds since 1970.
    pub(super) modified: i64,
    pub(super) changed: i64,
}

/// The inputs of the roll-ups besides the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Basis {
    pub(super) store: [i64; 5],
    pub(super) prices: u32,
    pub(super) days: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// Name, length and sum of the file of calls; none before the first call was found.
    pub(super) calls: Option<(String, u64, u64)>,
    pub(super) strings: StringTable,
    /// By number; a number without a file is free.
    pub(super) files: Vec<Option<FileFacts>>,
    pub(super) basis: Basis,
    pub(super) daily: Vec<DailySum>,
    /// Files that an earlier reader read, to be read once more. Not saved.
    pub(super) outdated: Vec<FileNo>,
}

impl Index {
    /// The outdated files that were read again since: the calls that the earlier reader found in them do not count.
    pub(super) fn reread(&self) -> CheapSet<FileNo> {
        if self.outdated.is_empty() {
            return CheapSet::default();
        }
        let live = self.files.iter().flatten().filter(|file| !file.closed);
        let live: CheapMap<FileId, &Path> = live.map(|file| (file.id, &*file.path)).collect();
        let again = |old: &FileFacts| live.get(&old.id) == Some(&&*old.path);
        let outdated = self.outdated.iter().copied();
        outdated.filter(|&number| self.file(number).is_some_and(again)).collect()
    }

    pub(super) fn file(&self, number: FileNo) -> Option<&FileFacts> {
        self.files.get(number as usize)?.as_ref()
    }

    /// `None`: there is no usable one.
    pub(super) fn load(path: &Path) -> Option<Self> {
        let bytes = read_at_most(path, u64::MAX).ok()?;
        let index = Self::read(&bytes);
        if index.is_none() {
            tracing::warn!("{}: not a cache of this version, or damaged; it is rebuilt", path.display());
        }
        index
    }

    /// As if it had been written before the readers of lines were changed.
    #[cfg(test)]
    pub(super) fn save_as_before(&self, path: &Path) -> io::Result<()> {
        fs::write(path, self.written_by(READERS - 1))
    }

    /// Replaces the file, whole or not at all.
    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut draft = tempfile::NamedTempFile::new_in(folder)?;
        io::Write::write_all(&mut draft, &self.written())?;
        draft.persist(path)?;
        Ok(())
    }

    fn written(&self) -> Vec<u8> {
        self.written_by(READERS)
    }

    fn written_by(&self, readers: u64) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put(&mut out, FORMAT);
        put(&mut out, readers);
        put(&mut out, u64::from(self.calls.is_some()));
        if let Some((name, length, sum)) = &self.calls {
            put_bytes(&mut out, name.as_bytes());
            put(&mut out, *length);
            put(&mut out, *sum);
        }
        let Basis { store, prices, days } = &self.basis;
        for &number in store {
            put_signed(&mut out, number);
        }
        put(&mut out, u64::from(*prices));
        put(&mut out, *days);
        put(&mut out, self.strings.len() as u64);
        self.strings.iter().for_each(|text| put_bytes(&mut out, text.as_bytes()));
        put(&mut out, self.files.len() as u64);
        for file in &self.files {
            put(&mut out, u64::from(file.is_some()));
            if let Some(file) = file {
                file.write(&mut out);
            }
        }
        put(&mut out, self.daily.len() as u64);
        self.daily.iter().for_each(|entry| entry.write(&mut out));
        let sum = hash(0, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<8>()?;
        let mut rest = Bytes(body);
        if rest.take(MAGIC.len())? != MAGIC
            || rest.number()? != FORMAT
            || hash(0, body) != u64::from_le_bytes(*sum)
        {
            return None;
        }
        let readers = rest.number()?;
        let calls = match rest.number()? {
            0 => None,
            _ => Some((rest.text()?.to_owned(), rest.number()?, rest.number()?)),
        };
        let mut store = [0; 5];
        for number in &mut store {
            *number = rest.signed()?;
        }
        let basis = Basis { store, prices: rest.small()?, days: rest.number()? };
        let count = rest.number()?;
        let mut strings = StringTable::with_capacity(rest.room(count));
        for _ in 1..count {
            strings.number(rest.text()?);
        }
        let mut files: Vec<Option<FileFacts>> = (0..rest.number()?)
            .map(|_| match rest.number()? {
                0 => Some(None),
                _ => FileFacts::read(&mut rest).map(Some),
            })
            .collect::<Option<_>>()?;
        let daily = (0..rest.number()?).map(|_| DailySum::read(&mut rest)).collect::<Option<_>>()?;
        let mut outdated = Vec::new();
        if readers != READERS {
            for (number, file) in files.iter_mut().enumerate() {
                if let Some(file) = file.as_mut().filter(|file| !file.closed) {
                    file.closed = true;
                    outdated.extend(FileNo::try_from(number));
                }
            }
        }
        rest.0.is_empty().then_some(Self { calls, strings, files, basis, daily, outdated })
    }
}

impl FileFacts {
    /// A file was there when its last line was written: one that claims to be younger was copied to where it is.
    pub(super) fn birth(&self) -> i64 {
        self.last.map_or(self.born, |last| self.born.min(last.saturating_mul(1_000_000)))
    }

    fn write(&self, out: &mut Vec<u8>) {
        put(out, u64::from(self.agent.0));
        put_bytes(out, self.path.as_os_str().as_bytes());
        put(out, self.id.device);
        put(out, self.id.inode);
        put(out, self.stamp.size);
        put_signed(out, self.stamp.modified);
        // Close to it, so this is short.
        put_signed(out, self.stamp.changed.wrapping_sub(self.stamp.modified));
        put(out, u64::from(self.position.is_some()));
        if let Some(position) = &self.position {
            position.encode().into_iter().for_each(|number| put(out, number));
        }
        put(out, u64::from(self.state.is_some()));
        if let Some(state) = &self.state {
            put_bytes(out, state.as_bytes());
        }
        put_signed(out, self.born);
        put(out, u64::from(self.last.is_some()));
        if let Some(last) = self.last {
            put_signed(out, last);
        }
        for string in [self.conversation, self.project, self.repository, self.branch, self.version] {
            put(out, u64::from(string.0));
        }
        put(out, self.unreadable);
        put(out, u64::from(self.closed) << 1 | u64::from(self.in_view));
    }

    fn read(from: &mut Bytes<'_>) -> Option<Self> {
        let agent = StringId(from.small()?);
        let path = PathBuf::from(OsStr::from_bytes(from.bytes()?));
        let id = FileId { device: from.number()?, inode: from.number()? };
        let (size, modified) = (from.number()?, from.signed()?);
        let stamp = FileStamp { size, modified, changed: modified.wrapping_add(from.signed()?) };
        let position = match from.number()? {
            0 => None,
            _ => Some(Position::decode(id, [from.number()?, from.number()?, from.number()?])),
        };
        let state = match from.number()? {
            0 => None,
            _ => Some(from.text()?.to_owned()),
        };
        let born = from.signed()?;
        let last = match from.number()? {
            0 => None,
            _ => Some(from.signed()?),
        };
        let mut strings = [StringId::NONE; 5];
        for string in &mut strings {
            *string = StringId(from.small()?);
        }
        let [conversation, project, repository, branch, version] = strings;
        let unreadable = from.number()?;
        let flags = from.number()?;
        Some(Self {
            agent,
            path,
            id,
            stamp,
            position,
            state,
            conversation,
            born,
            last,
            project,
            repository,
            branch,
            version,
            unreadable,
            closed: flags & 2 != 0,
            in_view: flags & 1 != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::CallSums;
    use types::{PicoDollars, Timestamp};
    use usage::DatedSums;

    fn index() -> Index {
        let mut strings = StringTable::default();
        let agent = strings.number("claude");
        let id = FileId { device: 1, inode: u64::MAX };
        let file = FileFacts {
            agent,
            path: OsStr::from_bytes(b"/p/\xff.jsonl").into(),
            id,
            stamp: FileStamp { size: 7, modified: -1, changed: i64::MIN },
            position: Some(Position::decode(id, [5, u64::MAX, 1])),
            state: Some("é".into()),
            conversation: strings.number("c"),
            born: i64::MIN,
            last: Some(-7),
            project: StringId::NONE,
            repository: StringId::NONE,
            branch: strings.number("main"),
            version: StringId::NONE,
            unreadable: 3,
            closed: true,
            in_view: true,
        };
        let fresh = FileFacts { position: None, state: None, last: None, closed: false, ..file.clone() };
        let sums = DatedSums {
            calls: CallSums { api_calls: 1, cost: PicoDollars(i64::MAX), ..CallSums::default() },
            first: Timestamp(-5),
            ..DatedSums::default()
        };
        Index {
            outdated: Vec::new(),
            calls: Some(("calls-1".into(), 9, 10)),
            strings,
            files: vec![Some(file), None, Some(fresh)],
            basis: Basis { store: [1, -2, 3, 4, 5], prices: 1, days: u64::MAX },
            daily: vec![DailySum { agent, conversation: agent, model: StringId::NONE, day: -3, sums }],
        }
    }

    #[test]
    fn a_saved_index_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        assert!(Index::load(&path).is_none());
        for index in [index(), Index::default()] {
            index.save(&path).unwrap();
            let loaded = Index::load(&path).unwrap();
            assert_eq!(loaded.files, index.files);
            assert_eq!((loaded.calls, loaded.basis, loaded.daily), (index.calls, index.basis, index.daily));
            assert!(loaded.strings.iter().eq(index.strings.iter()));
        }
    }

    #[test]
    fn a_damaged_index_is_not_loaded() {
        let whole = index().written();
        assert!(Index::read(&whole).is_some());
        for at in 0..whole.len() {
            assert!(Index::read(&whole[..at]).is_none(), "cut at {at}");
            let mut changed = whole.clone();
            changed[at] ^= 0x20;
            assert!(Index::read(&changed).is_none(), "changed at {at}");
        }
    }
}
