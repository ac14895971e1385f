//! Following one run of Gemini CLI by the files it writes: the folder's log of typed prompts, and the conversations.
//!
//! All its processes in a folder write to the same files without naming themselves, so every trace goes to the correlator
//! together with the processes that can have made it ([`crate::kit::neighbours`]).

use std::collections::HashSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::evidence::{self, LineEvidence, LogReader};
use super::files::{self, GeminiFiles};
use super::lines::GeminiLines;
use crate::correlate::{Method, Signal, Trace};
use crate::kit::neighbours::{Neighbourhood, Neighbours, Program};
use crate::kit::read_stamps::ReadStamps;
use crate::meter::document::{MAX_DOCUMENT, Unread, each_element};
use crate::meter::form::Form;
use crate::meter::line::Lines;
use crate::observe::{Observation, Observer};
use os::clock::{Clock, SystemClock};
use os::file::{Stamp, TICK, head, modified, open_regular};
use pty::process::Processes;
use types::AgentSessionId;
use types::ProcessId;
use types::Timestamp;

/// Bytes read of a file in one look. A longer line is a replay, which is no evidence.
const CHUNK: u64 = 4 * 1024 * 1024;

/// A log longer than this is ignored: it holds every prompt ever typed in a folder, and is read whole.
const MAX_LOG: u64 = 64 * 1024 * 1024;

/// How often, and for how long after the start, the first file of a folder is looked for: it may begin before its folder can
/// be watched, and its maker is known only for a second.
const EARLY: Duration = Duration::from_millis(500);
const EARLY_FOR: Duration = Duration::from_mins(1);

pub(super) static PROGRAM: Program = Program { names: &["gemini"], folders: &["/gemini-cli/"] };

#[derive(Debug)]
pub struct GeminiObserver {
    files: GeminiFiles,
    /// Where the run works, as the agent sees it.
    folder: PathBuf,
    /// The agent's own folders for that folder, once it has run there.
    agent_folders: Vec<AgentFolder>,
    /// Before the agent was started: older traces are not new.
    prepared: Timestamp,
    log_stamps: ReadStamps,
    chats: BTreeMap<PathBuf, Chat>,
    /// The conversations of files that were removed.
    removed: BTreeMap<PathBuf, AgentSessionId>,
    /// The conversation whose files were asked for last, for its sub-agents' folder.
    followed: Option<AgentSessionId>,
    neighbourhood: Neighbourhood,
}

/// A folder of the agent's own, for one working folder.
#[derive(Debug)]
struct AgentFolder {
    path: PathBuf,
    log: LogReader,
    /// The log was too long, and that was reported.
    log_passed_over: bool,
}

impl AgentFolder {
    fn chats(&self) -> PathBuf {
        self.path.join("chats")
    }
}

/// One conversation's file.
#[derive(Debug, Default)]
struct Chat {
    id: Option<AgentSessionId>,
    /// Of one that is a document.
    document: DocumentProgress,
    /// Everything before it has been read.
    offset: u64,
    inside_long_line: bool,
}

/// How far a document has been read.
#[derive(Debug, Default)]
struct DocumentProgress {
    /// As it was then; `None`: it is to be read.
    stamp: Option<Stamp>,
    /// It was there before the run.
    old: bool,
    /// Messages up to this time are not new.
    until: Timestamp,
}

/// One piece of evidence in a file.
#[derive(Debug)]
struct NewEvidence {
    /// The conversation of that file.
    id: AgentSessionId,
    evidence: LineEvidence,
    /// A header, but not the first of its conversation.
    known: bool,
    /// When it was written, or earlier.
    at: Timestamp,
}

impl GeminiObserver {
    pub fn new(files: GeminiFiles, folder: &Path) -> Self {
        let prepared = SystemClock.now();
        Self {
            files,
            folder: fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()),
            agent_folders: Vec::new(),
            prepared,
            log_stamps: ReadStamps::default(),
            chats: BTreeMap::new(),
            removed: BTreeMap::new(),
            followed: None,
            neighbourhood: Neighbourhood::of(&PROGRAM),
        }
    }

    /// The agent makes them when it runs in the folder. Which one a process writes to depends on its version.
    fn find_agent_folders(&mut self) {
        let hashed = self.files.hashed(&self.folder);
        let (mut by_hash, mut by_name) = (false, false);
        for folder in &self.agent_folders {
            by_hash |= folder.path == hashed;
            by_name |= folder.path != hashed;
        }
        if !by_name && let Some(named) = self.files.project(&self.folder) {
            self.add_agent_folder(named);
        }
        if !by_hash && hashed.is_dir() {
            self.add_agent_folder(hashed);
        }
    }

    fn add_agent_folder(&mut self, path: PathBuf) {
        self.agent_folders.push(AgentFolder {
            path,
            log: LogReader::since(self.prepared),
            log_passed_over: false,
        });
    }

    fn look_at_logs(&mut self, seen: &mut Observation) {
        for folder in &mut self.agent_folders {
            let path = folder.path.join("logs.json");
            let Some(stamp) = self.log_stamps.due(&path) else { continue };
            if stamp.length > MAX_LOG {
                if !std::mem::replace(&mut folder.log_passed_over, true) {
                    seen.signals.push(Signal::Trace(Trace::LogTooLong));
                }
                continue;
            }
            let entries = head(&path, MAX_LOG).ok().and_then(|bytes| folder.log.read(&bytes).ok());
            self.log_stamps.note(&path, stamp, entries.is_some(), SystemClock.now(), seen);
            let typed = entries.into_iter().flatten().map(|entry| {
                Signal::Trace(Trace::Typed { under: entry.under, at: entry.at, what: entry.what })
            });
            seen.signals.extend(typed);
        }
    }

    /// The conversations' files; `None` where a folder cannot be listed now.
    fn paths(&self) -> Option<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for folder in &self.agent_folders {
            paths.extend(files::main_files(&folder.chats()).ok()?);
        }
        paths.sort();
        Some(paths)
    }

    /// New evidence in the files. A folder that cannot be listed now counts as unchanged.
    fn look_at_chats(&mut self, seen: &mut Observation) -> Vec<NewEvidence> {
        let Some(paths) = self.paths() else { return Vec::new() };
        for (path, chat) in self.chats.extract_if(.., |path, _| paths.binary_search(path).is_err()) {
            self.removed.extend(chat.id.map(|id| (path, id)));
        }
        let mut ids: HashSet<AgentSessionId> =
            self.chats.values().filter_map(|chat| chat.id.clone()).collect();
        let mut all = Vec::new();
        for path in paths {
            let chat = match self.chats.entry(path.clone()) {
                Entry::Occupied(chat) => chat.into_mut(),
                Entry::Vacant(place) => {
                    let mut chat = Chat::first_met(&path, self.prepared);
                    // Written again, perhaps without a header.
                    chat.id = chat.id.or_else(|| self.removed.remove(&path));
                    ids.extend(chat.id.clone());
                    place.insert(chat)
                }
            };
            let (lines, written) = match chat.read(&path) {
                Ok(read) => read,
                Err(error) => {
                    seen.torn |= error.kind() == io::ErrorKind::UnexpectedEof;
                    continue;
                }
            };
            let prompts = lines.iter().filter_map(|evidence| match evidence {
                LineEvidence::Prompt { at, .. } => Some(*at),
                _ => None,
            });
            let earliest = prompts.fold(written, Timestamp::min);
            for evidence in lines {
                // A header of a conversation that has a file is a stub beside it or a second header inside of it.
                let mut known = false;
                let mut at = earliest;
                if let LineEvidence::Header { id, at: begun } = &evidence {
                    known = chat.id.is_some() || ids.contains(id);
                    at = *begun;
                    ids.insert(id.clone());
                    chat.id = Some(id.clone());
                }
                if let Some(id) = &chat.id {
                    all.push(NewEvidence { id: id.clone(), evidence, known, at });
                }
            }
        }
        all
    }

    /// A run that moved to another folder by itself (`--worktree`) is followed to its first conversation.
    fn follow_to(&mut self, file: &Path) {
        let Some(path) = file.parent().and_then(Path::parent).map(Path::to_owned) else { return };
        if self.agent_folders.is_empty() || self.chats.is_empty() {
            self.folder = self.files.folder_of(file).unwrap_or_else(|| self.folder.clone());
            self.agent_folders.retain(|folder| folder.path == path);
            if self.agent_folders.is_empty() {
                self.add_agent_folder(path);
            }
        }
    }
}

impl Chat {
    /// The content of a file that began before the run, or was last written before it, is not new.
    fn first_met(path: &Path, prepared: Timestamp) -> Self {
        let Some(header) = files::header(path) else {
            let old = fs::metadata(path).is_ok_and(|meta| prepared.since(modified(&meta)) > TICK);
            return if old { Self::at_its_end(path, None, prepared) } else { Self::default() };
        };
        if header.at < prepared {
            Self::at_its_end(path, Some(header.session), prepared)
        } else {
            Self::default()
        }
    }

    fn at_its_end(path: &Path, id: Option<AgentSessionId>, prepared: Timestamp) -> Self {
        let offset = fs::metadata(path).map_or(0, |meta| meta.len());
        let document = DocumentProgress { stamp: None, old: true, until: prepared };
        Self { id, document, offset, inside_long_line: false }
    }

    /// The same for a document, which is read whole when it has changed. One that is being written ends unexpectedly.
    fn read_document(&mut self, path: &Path) -> io::Result<(Vec<LineEvidence>, Timestamp)> {
        let file = open_regular(path)?;
        let meta = file.metadata()?;
        let written = modified(&meta);
        let stamp = Stamp::of(path);
        if meta.len() > MAX_DOCUMENT || stamp.is_some() && stamp == self.document.stamp {
            return Ok((Vec::new(), written));
        }
        let mut evidence = Vec::new();
        each_element(file, files::MESSAGES, &mut |element| evidence.extend(evidence::line_evidence(element)))
            .map_err(|unread| match unread {
                Unread::Torn => io::ErrorKind::UnexpectedEof.into(),
                Unread::Broken => io::ErrorKind::InvalidData.into(),
                Unread::Io(error) => error,
            })?;
        self.document.stamp = stamp.filter(|stamp| stamp.is_settled(SystemClock.now()));
        let (id, until) = (self.id.clone(), self.document.until);
        evidence.retain(|evidence| match evidence {
            LineEvidence::Header { .. } => id.is_none(),
            LineEvidence::Prompt { at, .. } => *at > until,
            LineEvidence::Entered(_) => false,
        });
        let prompts = evidence.iter().filter_map(|evidence| match evidence {
            LineEvidence::Prompt { at, .. } => Some(*at),
            _ => None,
        });
        if let Some(last) = prompts.max() {
            self.document.until = last;
            // Nothing in a document marks that a process continues it, but a new prompt in it shows that.
            if let Some(id) = id.filter(|_| std::mem::take(&mut self.document.old)) {
                evidence.insert(0, LineEvidence::Entered(id));
            }
        }
        Ok((evidence, written))
    }

    /// The evidence in the lines since the last look, and when the file was written last. A torn line waits.
    fn read(&mut self, path: &Path) -> io::Result<(Vec<LineEvidence>, Timestamp)> {
        if files::is_document(path) {
            return self.read_document(path);
        }
        let meta = fs::metadata(path)?;
        let (length, written) = (meta.len(), modified(&meta));
        if length < self.offset {
            (self.offset, self.inside_long_line) = (length, false); // rewritten; no conversation began
        }
        if length == self.offset {
            return Ok((Vec::new(), written));
        }
        let mut file = open_regular(path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(CHUNK).read_to_end(&mut bytes)?;
        let Some(last) = memchr::memrchr(b'\n', &bytes) else {
            if bytes.len() as u64 == CHUNK {
                self.offset += CHUNK;
                self.inside_long_line = true;
            }
            return Ok((Vec::new(), written));
        };
        self.offset += last as u64 + 1;
        let mut lines = bytes[..last].split(|byte| *byte == b'\n');
        if std::mem::take(&mut self.inside_long_line) {
            lines.next();
        }
        Ok((lines.filter_map(evidence::line_evidence).collect(), written))
    }
}

impl Observer for GeminiObserver {
    fn method(&self) -> Method {
        Method::Folder
    }

    fn watched(&self) -> Vec<PathBuf> {
        if self.agent_folders.is_empty() {
            return vec![self.files.root().to_owned(), self.files.projects()];
        }
        let mut watched = vec![self.files.projects()];
        for folder in &self.agent_folders {
            let chats = folder.chats();
            watched.extend(self.followed.as_ref().map(|id| files::subagent_folder(&chats, id)));
            watched.extend([folder.path.clone(), chats]);
        }
        watched
    }

    fn look(&mut self, agent: ProcessId, processes: &dyn Processes) -> Observation {
        let mut seen = Observation::default();
        self.find_agent_folders();
        // The agent logs a command before it makes a file, so files are read first: then the log holds the line of every file seen.
        let news = self.look_at_chats(&mut seen);
        self.look_at_logs(&mut seen);
        let mut neighbours: Option<Neighbours> = None;
        let mut made_by = |at: Timestamp| {
            neighbours
                .get_or_insert_with(|| self.neighbourhood.look(agent.pid, &self.folder, processes))
                .maker(at)
        };
        for NewEvidence { id, evidence, known, at } in news {
            match evidence {
                LineEvidence::Header { id, at } => {
                    let maker = made_by(at);
                    seen.signals.push(Signal::Trace(Trace::Begun { id, at, known, maker }));
                }
                LineEvidence::Entered(id) => {
                    seen.signals.push(Signal::Trace(Trace::Entered { id, maker: made_by(at) }));
                }
                LineEvidence::Prompt { at, forms } => {
                    let trace = |text| Signal::Trace(Trace::Prompted { id: id.clone(), at, text });
                    seen.signals.extend(forms.into_iter().map(trace));
                }
            }
        }
        if self.chats.is_empty() && SystemClock.now().since(self.prepared) < EARLY_FOR {
            seen.look_again(EARLY);
        }
        seen
    }

    fn files(&mut self, id: &AgentSessionId) -> Vec<PathBuf> {
        self.followed = Some(id.clone());
        let known = self.chats.iter().filter(|(path, chat)| chat.id.as_ref() == Some(id) && path.exists());
        let mut mains: Vec<PathBuf> = known.map(|(path, _)| path.clone()).collect();
        if mains.is_empty() {
            mains = self.files.find(id);
            if let Some(file) = mains.first() {
                self.follow_to(&file.clone());
            }
        }
        let chats: Vec<PathBuf> = match mains.first().and_then(|main| main.parent()) {
            Some(chats) => vec![chats.to_owned()],
            None => self.agent_folders.iter().map(AgentFolder::chats).collect(),
        };
        let subagents = chats.iter().flat_map(|chats| files::subagents(chats, id));
        mains.into_iter().chain(subagents).collect()
    }

    fn form(&self, file: &Path) -> Form {
        files::form(file)
    }

    fn lines(&self, state: Option<&str>) -> Box<dyn Lines + Send> {
        Box::new(GeminiLines::new(state))
    }
}

#[cfg(test)]
#[path = "observer_tests.rs"]
mod tests;
