//! Following one run of Gemini CLI by what it writes: the log of what was typed in the folder, and the conversations' files.
//!
//! All its processes in a folder write to the same places and none signs, so everything seen goes to the correlator together
//! with who can have made it ([`super::others`]).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::evidence::{self, LogReader, Told};
use super::files::{self, GeminiFiles};
use super::lines::GeminiLines;
use super::others;
use crate::agent::trail::{Seen, Trail};
use crate::clock::{Clock, SystemClock};
use crate::file::Stamp;
use crate::meter::line::Lines;
use crate::process::{ProcessId, Processes};
use crate::session::correlate::{Maker, Signal, Trace};
use crate::session::id::AgentSessionId;

/// What is read of a file in one look. A longer line is a replay, which tells nothing here.
const CHUNK: u64 = 4 * 1024 * 1024;

/// A log longer than this is not looked at: it holds every prompt ever typed in a folder, and is read whole.
const MAX_LOG: u64 = 64 * 1024 * 1024;

/// A file this young at the first look may have begun after our process.
const JUST_BEGUN: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct GeminiTrail {
    files: GeminiFiles,
    /// Where the run works, as the agent sees it.
    folder: PathBuf,
    /// What belongs to that folder, once the agent has been there.
    project: Option<PathBuf>,
    /// What was there before us has been noted.
    stock_taken: bool,
    log: LogReader,
    log_stamp: Option<Stamp>,
    chats: BTreeMap<PathBuf, Chat>,
    /// The conversation whose files were asked for last, for its sub-agents' folder.
    followed: Option<AgentSessionId>,
}

/// One conversation's file.
#[derive(Debug, Default)]
struct Chat {
    id: Option<AgentSessionId>,
    /// Everything before it has been looked at.
    offset: u64,
    inside_long_line: bool,
}

impl GeminiTrail {
    pub(crate) fn new(files: GeminiFiles, folder: &Path) -> Self {
        Self {
            files,
            folder: fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()),
            project: None,
            stock_taken: false,
            log: LogReader::default(),
            log_stamp: None,
            chats: BTreeMap::new(),
            followed: None,
        }
    }

    fn chats_folder(&self) -> Option<PathBuf> {
        self.project.as_ref().map(|project| project.join("chats"))
    }

    /// Notes what is there already, so that only what comes after counts as new.
    fn take_stock(&mut self, seen: &mut Vec<Told>) {
        self.stock_taken = true;
        let Some(project) = &self.project else { return };
        if let Ok(log) = fs::read(project.join("logs.json")) {
            let _ = self.log.read(&log);
            self.log_stamp = Stamp::of(&project.join("logs.json"));
        }
        let now = SystemClock.now();
        for path in files::main_files(&project.join("chats")).unwrap_or_default() {
            let Ok(meta) = fs::metadata(&path) else { continue };
            let header = files::header(&path);
            if let Some(header) = header.as_ref().filter(|header| now.since(header.at) < JUST_BEGUN) {
                seen.push(Told::Header { id: header.session.clone(), at: header.at });
            }
            let id = header.map(|header| header.session);
            self.chats.insert(path, Chat { id, offset: meta.len(), inside_long_line: false });
        }
    }

    fn look_at_log(&mut self, seen: &mut Seen) {
        let Some(path) = self.project.as_ref().map(|project| project.join("logs.json")) else { return };
        let now = Stamp::of(&path);
        if now == self.log_stamp || now.is_some_and(|now| now.length > MAX_LOG) {
            return;
        }
        match fs::read(&path).map_err(|_| evidence::Torn).and_then(|log| self.log.read(&log)) {
            Ok(entries) => {
                self.log_stamp = now;
                let typed = entries.into_iter().map(|entry| {
                    Signal::Trace(Trace::Typed { under: entry.under, at: entry.at, what: entry.what })
                });
                seen.signals.extend(typed);
            }
            Err(evidence::Torn) => seen.torn |= now.is_some(),
        }
    }

    /// What the files tell that is new, each with its file's conversation.
    fn look_at_chats(&mut self) -> Vec<(AgentSessionId, Told, bool)> {
        let paths = self.chats_folder().and_then(|chats| files::main_files(&chats).ok()).unwrap_or_default();
        self.chats.retain(|path, _| paths.contains(path));
        let mut all = Vec::new();
        for path in paths {
            let ids: Vec<AgentSessionId> = self.chats.values().filter_map(|chat| chat.id.clone()).collect();
            let chat = self.chats.entry(path.clone()).or_default();
            for told in chat.read(&path).unwrap_or_default() {
                // A header of a conversation that has a file is a stub beside it or a second header inside of it.
                let known = matches!(&told, Told::Header { id, .. } if ids.contains(id) || chat.id.is_some());
                if let Told::Header { id, .. } = &told {
                    chat.id = Some(id.clone());
                }
                if let Some(id) = &chat.id {
                    all.push((id.clone(), told, known));
                }
            }
        }
        all
    }

    /// A run that went elsewhere by itself (`--worktree`) is followed to where its first conversation is.
    fn follow_to(&mut self, file: &Path) {
        let project = file.parent().and_then(Path::parent).map(Path::to_owned);
        if self.project.is_none() || self.chats.is_empty() {
            self.folder = self.files.folder_of(file).unwrap_or_else(|| self.folder.clone());
            self.project = project;
        }
    }
}

impl Chat {
    /// What the lines since the last look tell. A torn one waits.
    fn read(&mut self, path: &Path) -> std::io::Result<Vec<Told>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        if length < self.offset {
            (self.offset, self.inside_long_line) = (length, false); // rewritten; nobody began anything
        }
        if length == self.offset {
            return Ok(Vec::new());
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(CHUNK).read_to_end(&mut bytes)?;
        let Some(last) = memchr::memrchr(b'\n', &bytes) else {
            if bytes.len() as u64 == CHUNK {
                self.offset += CHUNK;
                self.inside_long_line = true;
            }
            return Ok(Vec::new());
        };
        self.offset += last as u64 + 1;
        let mut lines = bytes[..last].split(|byte| *byte == b'\n');
        if std::mem::take(&mut self.inside_long_line) {
            lines.next();
        }
        Ok(lines.filter_map(evidence::told).collect())
    }
}

impl Trail for GeminiTrail {
    fn watched(&self) -> Vec<PathBuf> {
        let Some(project) = &self.project else {
            return vec![self.files.root().to_owned(), self.files.projects()];
        };
        let chats = project.join("chats");
        let subagents = self.followed.as_ref().map(|id| files::subagent_folder(&chats, id));
        [project.clone(), chats].into_iter().chain(subagents).collect()
    }

    fn look(&mut self, agent: ProcessId, processes: &dyn Processes) -> Seen {
        let mut seen = Seen::default();
        if self.project.is_none() {
            self.project = self.files.project(&self.folder);
        }
        let mut told = Vec::new();
        if !self.stock_taken {
            let mut headers = Vec::new();
            self.take_stock(&mut headers);
            told.extend(headers.into_iter().filter_map(|header| match &header {
                Told::Header { id, .. } => Some((id.clone(), header, false)),
                _ => None,
            }));
        }
        // The agent logs a command before it makes a file, so files first: then the line of every file seen is there.
        told.extend(self.look_at_chats());
        self.look_at_log(&mut seen);
        let mut maker: Option<Maker> = None;
        let mut made_by = || *maker.get_or_insert_with(|| others::maker(agent.pid, &self.folder, processes));
        for (id, told, known) in told {
            match told {
                Told::Header { id, at } => {
                    seen.signals.push(Signal::Trace(Trace::Begun { id, at, known, maker: made_by() }));
                }
                Told::Entered(id) => {
                    seen.signals.push(Signal::Trace(Trace::Entered { id, maker: made_by() }));
                }
                Told::Said { at, words } => {
                    let said = |words| Signal::Trace(Trace::Said { id: id.clone(), at, words });
                    seen.signals.extend(words.into_iter().map(said));
                }
            }
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
        let chats = mains.first().and_then(|main| main.parent()).map(Path::to_owned).or(self.chats_folder());
        let subagents = chats.map(|chats| files::subagents(&chats, id)).unwrap_or_default();
        mains.into_iter().chain(subagents).collect()
    }

    fn lines(&self, state: Option<&str>) -> Box<dyn Lines + Send> {
        Box::new(GeminiLines::new(state))
    }
}
