//! Following one run by what its agent writes: the registry, the history, new session files.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::files::{self, RegistryFiles};
use super::head::last_prompt_since;
use super::{MAX_ENTRY, RegistryFormat};
use crate::correlate::{Beginning, Maker, Method, NewSessionFile, RegistryEntry, Signal};
use crate::kit::neighbours::{Neighbourhood, Neighbours};
use crate::kit::new_lines::NewLines;
use crate::kit::read_stamps::ReadStamps;
use crate::meter::line::Lines;
use crate::observe::{Observation, Observer};
use os::clock::{Clock, SystemClock};
use os::file::{TICK, modified, open_regular, read_at_most};
use os::watch::WatchScope;
use pty::process::Processes;
use types::AgentSessionId;
use types::Timestamp;
use types::{Pid, ProcessId};

/// How much of a file's end is searched for the last prompt.
const TAIL_BYTES: u64 = 256 * 1024;

/// Beside a job that is a copy of a conversation: the original.
const ORIGINAL: &str = "parent-transcript.jsonl";

/// How many older conversations are looked at for one that is continued without being named. Why so few: each is looked at with
/// every look until the run is bound, and the one that is continued is mostly the latest.
const LATEST: usize = 64;

#[derive(Debug)]
pub struct RegistryObserver {
    format: &'static RegistryFormat,
    files: RegistryFiles,
    /// Before the agent was started.
    prepared: Timestamp,
    /// Where the run began; the real path, once stock was taken.
    folder: PathBuf,
    stock_taken: bool,
    /// The project folders this run has been in; `/cd` adds to them.
    projects: BTreeSet<PathBuf>,
    /// The one it is in.
    project: PathBuf,
    registry: ReadStamps,
    /// The agent's own process, once it has registered: the one codemie started, or one that a launcher started.
    proper: Option<ProcessId>,
    /// Registered processes that are none of ours: who started a process does not change, and to find out means to look at all
    /// its ancestors.
    strangers: HashSet<ProcessId>,
    /// Entries of living processes of other runs, which follow them: an entry is rewritten several times a turn, and every run of a
    /// folder would read every other's each time.
    followed_by_others: HashMap<PathBuf, ProcessId>,
    /// The conversation that its entry named last.
    registered_as: Option<AgentSessionId>,
    /// Its entry is rewritten with every `/clear`.
    names_clears: bool,
    history_read: NewLines,
    /// A conversation that was handed to the background service, and when, until its job is found.
    given: Option<(AgentSessionId, Timestamp)>,
    /// How each session file in the project folders began when last seen; `None`: it was there before us, or is none.
    known: BTreeMap<PathBuf, Option<Beginning>>,
    /// The latest session files from before the run, and whether a process has continued them since.
    entered: BTreeMap<PathBuf, bool>,
    /// Sub-agents' files beside the sessions, begun since, and their conversation as soon as they name it.
    beside: BTreeMap<PathBuf, Option<AgentSessionId>>,
    folders: ReadStamps,
    /// Where the current conversation's files were found.
    found: Option<(AgentSessionId, Vec<PathBuf>)>,
    neighbourhood: Neighbourhood,
}

impl RegistryObserver {
    pub fn new(format: &'static RegistryFormat, files: RegistryFiles, folder: &Path) -> Self {
        Self {
            format,
            files,
            prepared: SystemClock.now(),
            folder: folder.to_owned(),
            stock_taken: false,
            projects: BTreeSet::new(),
            project: PathBuf::new(),
            registry: ReadStamps::default(),
            proper: None,
            strangers: HashSet::new(),
            followed_by_others: HashMap::new(),
            registered_as: None,
            names_clears: false,
            history_read: NewLines::default(),
            given: None,
            known: BTreeMap::new(),
            entered: BTreeMap::new(),
            beside: BTreeMap::new(),
            folders: ReadStamps::default(),
            found: None,
            neighbourhood: Neighbourhood::of(format.program),
        }
    }

    /// Notes the existing files, so that only later ones count as new. Done with the first look, off the way to exec: the agent
    /// needs a hundred times as long before it writes anything.
    fn take_stock(&mut self) {
        if std::mem::replace(&mut self.stock_taken, true) {
            return;
        }
        self.folder = fs::canonicalize(&self.folder).unwrap_or_else(|_| self.folder.clone());
        let project = self.files.project(&self.folder);
        let there = files::in_project(&project);
        self.entered = latest(&there).into_iter().map(|path| (path, false)).collect();
        self.known = there.into_iter().map(|path| (path, None)).collect();
        self.history_read = self.history().map(|file| NewLines::behind(&file)).unwrap_or_default();
        self.work_in(project);
    }

    fn history(&self) -> Option<PathBuf> {
        self.format.history.as_ref().map(|history| self.files.root().join(history.file))
    }

    fn jobs(&self) -> Option<PathBuf> {
        self.format.background.as_ref().map(|service| self.files.root().join(service.jobs))
    }

    fn work_in(&mut self, project: PathBuf) {
        if self.project != project {
            self.found = None; // which of several files comes first depends on it
            self.projects.insert(project.clone());
            self.project = project;
        }
    }

    fn look_at_registry(&mut self, agent: ProcessId, processes: &dyn Processes, seen: &mut Observation) {
        let Ok(entries) = fs::read_dir(self.files.registry()) else { return };
        let paths = entries.flatten().map(|entry| entry.path());
        let paths: BTreeSet<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect();
        self.registry.retain(|path| paths.contains(path));
        self.followed_by_others.retain(|path, _| paths.contains(path));
        self.read_entries(paths, agent, processes, seen);
    }

    fn read_entries(
        &mut self,
        paths: impl IntoIterator<Item = PathBuf>,
        agent: ProcessId,
        processes: &dyn Processes,
        seen: &mut Observation,
    ) {
        let mut read = Vec::new();
        for path in paths {
            let Some(stamp) = self.registry.due(&path) else { continue };
            let others = self.followed_by_others.get(&path).filter(|_| self.names_clears);
            if others.is_some_and(|process| processes.alive(*process)) {
                self.registry.note(&path, stamp, true, SystemClock.now(), &mut Observation::default());
                continue;
            }
            let entry = read_at_most(&path, MAX_ENTRY).ok().and_then(|bytes| self.format.entry(&bytes).ok());
            self.registry.note(&path, stamp, entry.is_some(), SystemClock.now(), seen);
            read.extend(entry);
        }
        // Ours first: the entries of others only narrow down the possibilities that it leaves.
        read.sort_by_key(|entry| entry.pid != agent.pid);
        for entry in read {
            self.registered(entry, agent, processes, seen);
        }
    }

    fn registered(
        &mut self,
        entry: RegistryEntry,
        agent: ProcessId,
        processes: &dyn Processes,
        seen: &mut Observation,
    ) {
        let process = processes.identify(entry.pid);
        if self.proper.is_none() && self.is_below(agent, entry.pid, process, processes) {
            // The first of ours to register is the agent; what registers below it later was started by it.
            self.proper = process.filter(|process| entry.why_not_of(*process, self.prepared).is_none());
            seen.adopted = self.proper.filter(|proper| *proper != agent);
        }
        let ours = self.proper.is_some_and(|proper| proper.pid == entry.pid);
        if !ours && entry.start.is_none_or(|start| process.map(|process| process.start) != Some(start)) {
            return; // left behind by a process that was killed
        }
        if ours {
            self.names_clears = entry.version.as_deref().is_some_and(self.format.keeps_entry);
            seen.version = entry.version.clone().or(seen.version.take());
            if let Some(cwd) = &entry.cwd {
                self.work_in(self.files.project(Path::new(cwd)));
                seen.folder = Some(PathBuf::from(cwd));
            }
        } else if entry.background {
            let copied = self.copied_from(&entry.session).map(|from| (from, true));
            let origin = copied.or_else(|| resumed_by(entry.pid, processes).map(|from| (from, false)));
            if let (Some((from, forked)), Some(process)) = (origin, process) {
                let (to, begun_at) = (entry.session.clone(), entry.started_at);
                seen.signals.push(Signal::Background { from, to, process, forked, begun_at });
            }
        }
        if let (false, false, Some(process)) = (ours, entry.background, process) {
            self.followed_by_others.insert(self.files.registry_entry(entry.pid), process);
        }
        // How the file begins matters only for a change of our own; status changes come by several times a turn.
        let file = if ours && self.registered_as.as_ref() != Some(&entry.session) {
            self.registered_as = Some(entry.session.clone());
            self.beginning(&entry.session)
        } else {
            Beginning::Absent
        };
        seen.signals.push(Signal::Registry { entry, file });
    }

    /// Whether a registered process is the one codemie started, or below it.
    fn is_below(
        &mut self,
        agent: ProcessId,
        pid: Pid,
        process: Option<ProcessId>,
        processes: &dyn Processes,
    ) -> bool {
        if process.is_some_and(|process| self.strangers.contains(&process)) {
            return false;
        }
        let is_below = pid == agent.pid || processes.descends(pid, agent.pid);
        self.strangers.extend(process.filter(|_| !is_below));
        is_below
    }

    /// The conversation that `/fork` made this one a copy of: it keeps the original beside the job.
    fn copied_from(&self, id: &AgentSessionId) -> Option<AgentSessionId> {
        let job = id.0.get(..8).filter(|_| id.is_plain())?;
        self.format.head_of(&self.jobs()?.join(job).join(ORIGINAL))?.session
    }

    fn beginning(&self, id: &AgentSessionId) -> Beginning {
        match self.session_files(id).first() {
            Some(path) => self.format.head_of(path).map_or(Beginning::Absent, |head| head.beginning),
            None => Beginning::Absent,
        }
    }

    /// The files of a conversation, that in the agent's present project first.
    fn session_files(&self, id: &AgentSessionId) -> Vec<PathBuf> {
        let mut found = self.files.find_session(id).unwrap_or_default();
        found.sort_by_key(|path| path.parent() != Some(&self.project));
        found
    }

    fn look_at_history(&mut self, seen: &mut Observation) {
        let (Some(history), Some(path)) = (&self.format.history, self.history()) else { return };
        let new = self.history_read.read(&path);
        for line in new.split(|byte| *byte == b'\n') {
            let Some(entry) = (history.entry)(line) else { continue };
            // Only the last prompt, and only if it was typed in our own conversation: a user who types on has not left it.
            if self.is_in(&entry.session) {
                let given = self.format.background.as_ref().filter(|service| (service.given)(line));
                self.given = given.map(|_| (entry.session.clone(), entry.at));
            }
            seen.signals.push(Signal::History(entry));
        }
    }

    /// Whether our process is in this conversation, as far as its registry entry shows.
    fn is_in(&self, session: &AgentSessionId) -> bool {
        let found = self.found.as_ref().map(|(id, _)| id);
        self.registered_as.as_ref().or(found) == Some(session)
    }

    /// The job that our conversation became, if only one can be it. The service starts a process for it only when it has work, so
    /// that none may ever register. The command ends our process: as long as that lives, no job is ours.
    fn look_at_jobs(&mut self, agent: ProcessId, processes: &dyn Processes, seen: &mut Observation) {
        let (Some((from, since)), Some(service)) = (&self.given, &self.format.background) else { return };
        if processes.alive(self.proper.unwrap_or(agent)) {
            return;
        }
        // A fork is a job of its own beside a conversation that goes on.
        let begun = service.jobs_in(&self.files, |job| !job.join(ORIGINAL).exists()).filter(|job| {
            job.created >= *since && *from != job.session && Path::new(&job.cwd) == self.folder
        });
        if let [job] = &begun.collect::<Vec<_>>()[..] {
            let (from, to) = (from.clone(), job.session.clone());
            self.given = None;
            seen.signals.push(Signal::HandedOver { from, to });
        }
    }

    /// Where the file of the conversation that our process registered is or will be.
    fn own_files(&self) -> Vec<PathBuf> {
        let name = self.registered_as.as_ref().map(|id| format!("{id}.jsonl"));
        name.into_iter()
            .flat_map(|name| self.projects.iter().map(move |project| project.join(&name)))
            .collect()
    }

    fn look_at_projects(&mut self, agent: ProcessId, processes: &dyn Processes, seen: &mut Observation) {
        for project in self.projects.clone() {
            if let Some(stamp) = self.folders.due(&project) {
                for path in files::in_project(&project) {
                    self.take_up(path);
                }
                self.folders.note(&project, stamp, true, SystemClock.now(), seen);
            }
        }
        for (path, whose) in self.beside.iter_mut().filter(|(_, whose)| whose.is_none()) {
            *whose = self.format.head_of(path).and_then(|head| head.session);
        }
        // Where our process names its conversation itself, the files of other runs are no evidence.
        let own = self.own_entry().map(|_| self.own_files());
        self.look_at_beginnings(own.as_deref(), agent, processes, seen);
    }

    /// The registry entry of our process, if its version keeps the conversation in it up to date.
    fn own_entry(&self) -> Option<PathBuf> {
        let own = self.proper.filter(|_| self.names_clears)?;
        Some(self.files.registry_entry(own.pid)).filter(|entry| entry.is_file())
    }

    /// Looks at the beginnings of files whose beginning is not known yet: of `only` these, or of all known files. In the latter case
    /// also looks for older conversations that a process continues.
    fn look_at_beginnings(
        &mut self,
        only: Option<&[PathBuf]>,
        agent: ProcessId,
        processes: &dyn Processes,
        seen: &mut Observation,
    ) {
        // Where our process registers, that says more than who else is here.
        let unregistered = self.proper.is_none();
        let mut neighbours: Option<Neighbours> = None;
        let mut maker = |at: Option<Timestamp>, cwd: Option<&str>| {
            // Two folders may have one project folder; of a process in the other one nothing is known.
            let here = cwd.is_some_and(|cwd| Path::new(cwd) == self.folder);
            let at = at.filter(|_| here)?;
            let look = || self.neighbourhood.look(agent.pid, &self.folder, processes);
            Some(neighbours.get_or_insert_with(look).maker(at))
        };
        // Up to 2.1.75 what registers under a fresh id stays there, although it continues another conversation.
        let placeholder =
            |id: &AgentSessionId| self.files.find_session(id).is_ok_and(|found| found.is_empty());
        if only.is_none() && self.found.is_none() && self.registered_as.as_ref().is_none_or(placeholder) {
            for (path, entered) in &mut self.entered {
                let Some(id) = files::session_id(path).filter(|_| !*entered) else { continue };
                if let Some((at, cwd)) = continued_since(self.format, path, self.prepared) {
                    *entered = true;
                    let maker = maker(Some(at), cwd.as_deref()).unwrap_or(Maker::Anybody);
                    seen.signals.push(Signal::Continued { id, maker });
                }
            }
        }
        for (path, known) in &mut self.known {
            // Once it is known how a file begins, that does not change.
            let Some(Beginning::Absent | Beginning::Silent) = known else { continue };
            if only.is_some_and(|only| !only.contains(path)) {
                continue;
            }
            let (Some(id), Some(head)) = (files::session_id(path), self.format.head_of(path)) else {
                continue;
            };
            if *known != Some(head.beginning) {
                *known = Some(head.beginning);
                let session = head.session.filter(|session| *session != id);
                if let Some(session) = session.filter(|_| head.beginning != Beginning::Silent) {
                    // 1.0.123 continues a conversation in a file of another name.
                    self.beside.insert(path.clone(), Some(session.clone()));
                    let maker = maker(begun_at(path, head.at), head.cwd.as_deref());
                    let maker = maker.filter(|_| unregistered).unwrap_or(Maker::Anybody);
                    seen.signals.push(Signal::Continued { id: session, maker });
                    continue;
                }
                let maker = unregistered
                    .then(|| maker(begun_at(path, head.at), head.cwd.as_deref()))
                    .map(|maker| maker.unwrap_or(Maker::Anybody));
                let follows = head.prompt.filter(|_| matches!(head.beginning, Beginning::Cleared { .. }));
                let follows = follows.and_then(|prompt| {
                    let (current, paths) = self.found.as_ref()?;
                    paths.iter().any(|path| holds_prompt(path, &prompt)).then(|| current.clone())
                });
                let (cwd, beginning) = (head.cwd, head.beginning);
                let file = NewSessionFile { id, cwd, beginning, maker, follows };
                seen.signals.push(Signal::NewFile(file));
            }
        }
    }

    /// A file of a project folder, unless it is known.
    fn take_up(&mut self, path: PathBuf) {
        if self.known.contains_key(&path) {
            return;
        }
        let id = files::session_id(&path);
        if id.is_none() {
            self.beside.insert(path.clone(), None);
        } else if self.found.as_ref().is_some_and(|(found, _)| Some(found) == id.as_ref()) {
            self.found = None; // a further file of the conversation
        }
        self.known.insert(path, id.map(|_| Beginning::Absent));
    }
}

impl Observer for RegistryObserver {
    fn method(&self) -> Method {
        Method::Registry
    }

    fn watched(&self) -> Vec<PathBuf> {
        let mut watched = vec![self.files.root().to_owned(), self.files.registry(), self.files.projects()];
        watched.extend(self.projects.iter().cloned());
        for file in self.found.iter().flat_map(|(_, files)| files) {
            watched.extend(file.parent().map(Path::to_owned));
            watched.push(file.with_extension(""));
            watched.extend(self.format.layout.subagent_folder(file));
        }
        watched.extend(self.watch_scope().into_iter().flat_map(|scope| scope.own));
        watched
    }

    /// A process that registers names its conversation in its own entry, before any other file does. Older versions do not after a
    /// `/clear`: there it may be any file of the folder.
    ///
    /// Of the shared folders only the registry holds news of others that can concern us: a new entry may be the process in
    /// which the background service goes on with our conversation. Lines of the history are typed, so they come with an Enter,
    /// after which there are looks; and these versions keep sub-agents' files below the conversation's own folder.
    fn watch_scope(&self) -> Option<WatchScope> {
        let (process, id) = (self.proper.filter(|_| self.names_clears)?, self.registered_as.as_ref()?);
        let mut own = vec![self.files.registry_entry(process.pid)];
        own.extend(self.own_files());
        own.extend(self.projects.iter().map(|project| project.join(&id.0)));
        for file in self.found.iter().flat_map(|(_, files)| files) {
            own.extend([file.clone(), file.with_extension("")]);
        }
        own.extend(
            self.beside.iter().filter(|(_, whose)| whose.as_ref() == Some(id)).map(|(file, _)| file.clone()),
        );
        let mut ignored = vec![self.files.root().to_owned(), self.files.projects()];
        ignored.extend(self.projects.iter().cloned());
        let shared = ignored.iter().cloned().chain([self.files.registry()]).collect();
        Some(WatchScope { own, shared, ignored })
    }

    fn look(&mut self, agent: ProcessId, processes: &dyn Processes) -> Observation {
        self.take_stock();
        let mut seen = Observation::default();
        self.look_at_registry(agent, processes, &mut seen);
        self.look_at_history(&mut seen);
        self.look_at_jobs(agent, processes, &mut seen);
        self.look_at_projects(agent, processes, &mut seen);
        seen
    }

    fn look_at_own(&mut self, agent: ProcessId, processes: &dyn Processes) -> Observation {
        // Without its entry it has ended, or is no longer what we took it for.
        let Some(entry) = self.own_entry() else { return self.look(agent, processes) };
        let mut seen = Observation::default();
        self.read_entries([entry], agent, processes, &mut seen);
        self.look_at_history(&mut seen);
        self.look_at_jobs(agent, processes, &mut seen);
        let own = self.own_files();
        for path in own.iter().filter(|path| path.is_file()) {
            self.take_up(path.clone());
        }
        self.look_at_beginnings(Some(&own), agent, processes, &mut seen);
        seen
    }

    fn files(&mut self, id: &AgentSessionId) -> Vec<PathBuf> {
        let still_there =
            |(known, paths): &&(_, Vec<PathBuf>)| known == id && paths.iter().all(|path| path.exists());
        let mains = match self.found.as_ref().filter(still_there) {
            Some((_, paths)) => paths.clone(),
            None => self.session_files(id),
        };
        if mains.is_empty() {
            return mains;
        }
        self.found = Some((id.clone(), mains.clone()));
        let beside = self.beside.iter().filter(|(_, whose)| whose.as_ref() == Some(id));
        let all = mains.into_iter().flat_map(|main| {
            let subagents = self.format.layout.subagents(&main);
            std::iter::once(main).chain(subagents)
        });
        all.chain(beside.map(|(path, _)| path.clone())).collect()
    }

    fn lines(&self, state: Option<&str>) -> Box<dyn Lines + Send> {
        (self.format.lines)(state)
    }
}

/// The most recently written of these files.
fn latest(files: &[PathBuf]) -> Vec<PathBuf> {
    let written = |path: &PathBuf| fs::metadata(path).map_or(Timestamp(0), |meta| modified(&meta));
    let mut files: Vec<_> = files.iter().map(|path| (written(path), path.clone())).collect();
    files.sort();
    files.into_iter().rev().take(LATEST).map(|(_, path)| path).collect()
}

/// When a conversation began in a file: at its deciding line, or with the file if its lines are copies of older ones. The
/// file itself may exist long before.
fn begun_at(path: &Path, deciding_line: Option<Timestamp>) -> Option<Timestamp> {
    let born = fs::metadata(path).and_then(|meta| meta.created()).map(Timestamp::from);
    born.ok().max(deciding_line)
}

/// The end of a file that was written to since a time.
fn tail_since(path: &Path, since: Timestamp) -> Option<Vec<u8>> {
    let meta = fs::metadata(path).ok()?;
    if modified(&meta).after(TICK) < since {
        return None;
    }
    let mut file = open_regular(path).ok()?;
    file.seek(SeekFrom::Start(meta.len().saturating_sub(TAIL_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The time of the last prompt that an older conversation got after `since`, and its folder.
fn continued_since(
    format: &RegistryFormat,
    path: &Path,
    since: Timestamp,
) -> Option<(Timestamp, Option<String>)> {
    let at = last_prompt_since(&tail_since(path, since)?, since)?;
    Some((at, format.head_of(path).and_then(|head| head.cwd)))
}

/// Whether the end of the file holds a prompt of this id.
fn holds_prompt(path: &Path, prompt: &str) -> bool {
    let mark = format!("\"promptId\":\"{prompt}\"");
    let tail = tail_since(path, Timestamp(0));
    tail.is_some_and(|bytes| memchr::memmem::find(&bytes, mark.as_bytes()).is_some())
}

/// The conversation that a background process continues: `--resume OLD` or `--resume …/OLD.jsonl`.
fn resumed_by(pid: Pid, processes: &dyn Processes) -> Option<AgentSessionId> {
    let mut command = processes.command(pid).into_iter();
    command.find(|word| word == "--resume")?;
    let value = PathBuf::from(command.next()?);
    files::session_id(&value).or_else(|| Some(AgentSessionId(value.to_str()?.to_owned())))
}

#[cfg(test)]
#[path = "observer_tests.rs"]
mod tests;
