//! An agent for tests alone, to show what a further one takes: this file, and one line in the registry. Its conversations
//! are rows of one database, so that it also shows that nothing above `meter::form` expects files of lines.
//!
//! The scribe keeps everything in `.scribe` of the folder it works in. `at-PID` holds the start time of its process and the
//! conversation it is in. `talk.db` holds the conversations: a row is a prompt (`u KEY MS TEXT`) or an answer
//! (`a KEY MS INPUT OUTPUT TEXT`). `talk.db/ID` names one of them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::live::{TurnKind, TurnMark};
use super::observe::{Observation, Observer};
use super::transcript::{Item, ItemKind, Reader};
use super::{
    Agent, Conversation, ConversationFiles, Invocation, InvocationKind, Launch, Live, Observe, Proxied,
    SessionFile, SessionFiles, Var,
};
use crate::correlate::{Beginning, Method, RegistryEntry, Signal};
use crate::meter::form::Form;
use crate::meter::line::{Lines, ParsedLines, Unreadable};
use crate::meter::record::{Fact, Record, Usage};
use crate::meter::rows::{RowSource, RowStatus, Rows, part_of};
use os::file::FileId;
use pricing::tier::Tier;
use pty::process::Processes;
use types::AgentSessionId;
use types::Timestamp;
use types::Tokens;
use types::{ProcessId, StartTime};

#[derive(Debug)]
pub struct Scribe;

impl Agent for Scribe {
    fn name(&self) -> &'static str {
        "scribe"
    }

    fn product(&self) -> &'static str {
        "the scribe"
    }
}

impl Launch for Scribe {
    fn classify(&self, _: &[OsString]) -> Invocation {
        Invocation {
            kind: InvocationKind::Interactive,
            session: Conversation::Fresh,
            injectable: false,
            persistent: true,
            prompts: false,
        }
    }
}

impl ConversationFiles for Scribe {
    fn session_files(&self, var: Var<'_>) -> SessionFiles {
        let database = database(&home(var));
        let files = conversations(&database)
            .unwrap_or_default()
            .into_iter()
            .map(|id| SessionFile { path: database.join(&id), conversation: Some(AgentSessionId(id)) });
        SessionFiles { files: files.collect(), ..SessionFiles::default() }
    }

    fn session_roots(&self, var: Var<'_>) -> Vec<PathBuf> {
        vec![database(&home(var))]
    }

    fn form(&self, _: &Path) -> Form {
        Form::Rows(&TalkRows)
    }

    fn usage_lines(&self, _: Option<&str>) -> Option<Box<dyn Lines + Send>> {
        Some(Box::new(TalkLines))
    }

    fn transcript(&self) -> Option<Reader> {
        Some(Reader::Lines(|row| {
            parse(row).map(|(_, at, kind, _)| Item { at: Some(at), kind }).into_iter().collect()
        }))
    }
}

impl Proxied for Scribe {}

impl Live for Scribe {
    fn read_turn(&self, row: &[u8]) -> Option<TurnMark> {
        let (_, at, item, _) = parse(row)?;
        let kind = if let ItemKind::User(text) = item { TurnKind::Prompt(text) } else { TurnKind::Ended };
        Some(TurnMark { at: Some(at), kind })
    }

    fn marks_turns(&self) -> bool {
        true
    }
}

impl Observe for Scribe {
    fn observer(&self, _: Var<'_>, folder: &Path) -> Option<Box<dyn Observer>> {
        Some(Box::new(ScribeObserver { folder: folder.to_owned() }))
    }
}

fn home(var: Var<'_>) -> PathBuf {
    PathBuf::from(var("SCRIBE_HOME").unwrap_or_default())
}

pub fn database(folder: &Path) -> PathBuf {
    folder.join(".scribe/talk.db")
}

fn open(database: &Path) -> io::Result<Connection> {
    fs::metadata(database)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(database, flags).map_err(io::Error::other)
}

fn conversations(database: &Path) -> io::Result<Vec<String>> {
    let database = open(database)?;
    let mut ids = database.prepare("SELECT DISTINCT conversation FROM talk").map_err(io::Error::other)?;
    let ids = ids.query_map([], |row| row.get(0)).map_err(io::Error::other)?;
    ids.collect::<Result<_, _>>().map_err(io::Error::other)
}

struct ScribeObserver {
    folder: PathBuf,
}

impl Observer for ScribeObserver {
    fn method(&self) -> Method {
        Method::Registry
    }

    fn watched(&self) -> Vec<PathBuf> {
        vec![self.folder.join(".scribe")]
    }

    fn look(&mut self, agent: ProcessId, _: &dyn Processes) -> Observation {
        let note = self.folder.join(format!(".scribe/at-{}", agent.pid));
        let note = fs::read_to_string(note).unwrap_or_default();
        let Some((start, id)) = note.trim().split_once(' ') else { return Observation::default() };
        let session = AgentSessionId(id.to_owned());
        let exists = !self.files(&session).is_empty();
        let entry = RegistryEntry {
            pid: agent.pid,
            start: start.parse().ok().map(StartTime),
            started_at: None,
            session,
            cwd: None,
            version: Some("7.0".to_owned()),
            background: false,
        };
        let file = if exists { Beginning::Silent } else { Beginning::Absent };
        let version = entry.version.clone();
        Observation { signals: vec![Signal::Registry { entry, file }], version, ..Observation::default() }
    }

    fn files(&mut self, id: &AgentSessionId) -> Vec<PathBuf> {
        let path = database(&self.folder).join(&id.0);
        TalkRows.open(&path).is_ok().then_some(path).into_iter().collect()
    }

    fn form(&self, path: &Path) -> Form {
        Scribe.form(path)
    }

    fn lines(&self, _: Option<&str>) -> Box<dyn Lines + Send> {
        Box::new(TalkLines)
    }
}

#[derive(Debug)]
struct TalkRows;

impl Rows for TalkRows {
    fn open(&self, path: &Path) -> io::Result<Box<dyn RowSource>> {
        let (Some(file), Some(id)) = (path.parent(), path.file_name().and_then(|id| id.to_str())) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let (meta, conversation) = (fs::metadata(file)?, id.to_owned());
        let id = part_of(FileId { device: meta.dev(), inode: meta.ino() }, id.as_bytes());
        let talk = OpenTalk { database: open(file)?, id, conversation };
        if talk.status()?.end == 0 { Err(io::ErrorKind::NotFound.into()) } else { Ok(Box::new(talk)) }
    }
}

#[derive(Debug)]
struct OpenTalk {
    database: Connection,
    id: FileId,
    conversation: String,
}

impl RowSource for OpenTalk {
    fn status(&self) -> io::Result<RowStatus> {
        let sql = "SELECT coalesce(max(number), 0), coalesce(max(at), 0), coalesce(min(at), 0)
                   FROM talk WHERE conversation = ?1";
        let status = self.database.query_row(sql, [&self.conversation], |row| {
            let end: i64 = row.get(0)?;
            Ok(RowStatus { id: self.id, end: end.cast_unsigned(), changed: row.get(1)?, born: row.get(2)? })
        });
        status.map_err(io::Error::other)
    }

    fn read(&self, after: u64, each: &mut dyn FnMut(u64, &[u8]) -> bool) -> io::Result<()> {
        let sql = "SELECT number, row FROM talk WHERE conversation = ?1 AND number > ?2 ORDER BY number";
        let mut rows = self.database.prepare(sql).map_err(io::Error::other)?;
        let mut rows = rows.query((&self.conversation, after.cast_signed())).map_err(io::Error::other)?;
        while let Some(row) = rows.next().map_err(io::Error::other)? {
            let number: i64 = row.get(0).map_err(io::Error::other)?;
            let text: String = row.get(1).map_err(io::Error::other)?;
            if !each(number.cast_unsigned(), text.as_bytes()) {
                break;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub struct TalkLines;

/// Begins the line that names a conversation, in a file of the courier's.
pub(crate) const HEADING: &str = "# ";

impl Lines for TalkLines {
    fn read(&mut self, row: &[u8], into: &mut ParsedLines) -> Result<(), Unreadable> {
        if row.starts_with(HEADING.as_bytes()) {
            return Ok(());
        }
        let (key, at, _, fact) = parse(row).ok_or(Unreadable::Shape("not a row of the scribe's"))?;
        into.records.push(Record { key, at, copied: false, subagent: None, fact });
        Ok(())
    }
}

fn parse(row: &[u8]) -> Option<(String, Timestamp, ItemKind, Fact)> {
    let mut words = std::str::from_utf8(row).ok()?.splitn(4, ' ');
    let (kind, key) = (words.next()?, words.next()?.to_owned());
    let at = Timestamp(words.next()?.parse().ok()?);
    let rest = words.next()?;
    if kind == "u" {
        return Some((key, at, ItemKind::User(rest.to_owned()), Fact::Prompt));
    }
    let mut words = rest.splitn(3, ' ');
    let mut number = || words.next()?.parse().ok();
    let tokens = Tokens { input: number()?, output: number()?, ..Tokens::default() };
    let usage = Usage { model: "gpt-5".to_owned(), tokens, tier: Tier::Standard, request_id: None };
    Some((key, at, ItemKind::Assistant(words.next()?.to_owned()), Fact::Usage(usage)))
}

/// Adds rows to a conversation of the scribe that works in `folder`; returns what names it.
#[allow(clippy::unwrap_used, reason = "for tests alone")]
pub fn write_rows(folder: &Path, id: &str, rows: &[impl AsRef<str>]) -> PathBuf {
    let path = database(folder);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let database = Connection::open(&path).unwrap();
    database
        .execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE IF NOT EXISTS talk
                 (number INTEGER PRIMARY KEY AUTOINCREMENT, conversation, at INTEGER, row)",
        )
        .unwrap();
    for row in rows.iter().map(AsRef::as_ref) {
        let at = row.split(' ').nth(2).and_then(|at| at.parse::<i64>().ok());
        let sql = "INSERT INTO talk (conversation, at, row) VALUES (?1, ?2 * 1000000, ?3)";
        database.execute(sql, (id, at, row)).unwrap();
    }
    path.join(id)
}
