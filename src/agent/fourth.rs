//! A fourth agent, to show what one takes: this file, and one line in the registry.
//!
//! The scribe keeps its files in the folder it works in. `.scribe/at-PID` holds the start time of its process and the
//! conversation it is in, `.scribe/ID.talk` the conversation: `u KEY MS TEXT` is a prompt, `a KEY MS INPUT OUTPUT TEXT` an answer.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::trail::{Seen, Trail};
use super::transcript::{Item, Reader, Said};
use super::{Agent, Conversation, Invocation, Kind, SessionFile, SessionFiles, Var};
use crate::clock::Timestamp;
use crate::meter::line::{Harvest, Lines, Unreadable};
use crate::meter::record::{Fact, Record, Tokens, Usage};
use crate::meter::tier::Tier;
use crate::process::{ProcessId, Processes, StartTime};
use crate::session::correlate::{Beginning, RegistryEntry, Signal};
use crate::session::id::AgentSessionId;

#[derive(Debug)]
pub(super) struct Scribe;

impl Agent for Scribe {
    fn name(&self) -> &'static str {
        "scribe"
    }

    fn classify(&self, _: &[OsString]) -> Invocation {
        Invocation {
            kind: Kind::Interactive,
            session: Conversation::Fresh,
            injectable: false,
            persistent: true,
        }
    }

    fn session_files(&self, var: Var<'_>) -> SessionFiles {
        let home = PathBuf::from(var("SCRIBE_HOME").unwrap_or_default());
        let files = fs::read_dir(home.join(".scribe")).into_iter().flatten().flatten();
        let talks = files
            .map(|entry| entry.path())
            .filter_map(|path| Some(SessionFile { conversation: Some(conversation(&path)?), path }));
        SessionFiles { files: talks.collect(), ..SessionFiles::default() }
    }

    fn session_roots(&self, var: Var<'_>) -> Vec<PathBuf> {
        vec![PathBuf::from(var("SCRIBE_HOME").unwrap_or_default()).join(".scribe")]
    }

    fn usage_lines(&self, _: Option<&str>) -> Option<Box<dyn Lines + Send>> {
        Some(Box::new(Talk))
    }

    fn transcript(&self) -> Option<Reader> {
        Some(Reader::Lines(|line| {
            said(line).map(|(_, at, said, _)| Item { at: Some(at), said }).into_iter().collect()
        }))
    }

    fn trail(&self, _: Var<'_>, folder: &Path) -> Option<Box<dyn Trail>> {
        Some(Box::new(Following { folder: folder.join(".scribe") }))
    }
}

fn conversation(path: &Path) -> Option<AgentSessionId> {
    path.file_name()?.to_str()?.strip_suffix(".talk").map(|id| AgentSessionId(id.to_owned()))
}

struct Following {
    folder: PathBuf,
}

impl Trail for Following {
    fn watched(&self) -> Vec<PathBuf> {
        vec![self.folder.clone()]
    }

    fn look(&mut self, agent: ProcessId, _: &dyn Processes) -> Seen {
        let note = fs::read_to_string(self.folder.join(format!("at-{}", agent.pid))).unwrap_or_default();
        let Some((start, id)) = note.trim().split_once(' ') else { return Seen::default() };
        let session = AgentSessionId(id.to_owned());
        let file = self.folder.join(format!("{id}.talk"));
        let entry = RegistryEntry {
            pid: agent.pid,
            start: start.parse().ok().map(StartTime),
            started_at: None,
            session,
            cwd: None,
            version: Some("7.0".to_owned()),
            background: false,
        };
        let file = if file.exists() { Beginning::Silent } else { Beginning::Absent };
        let version = entry.version.clone();
        Seen { signals: vec![Signal::Registry { entry, file }], version, ..Seen::default() }
    }

    fn files(&mut self, id: &AgentSessionId) -> Vec<PathBuf> {
        let file = self.folder.join(format!("{id}.talk"));
        file.exists().then_some(file).into_iter().collect()
    }

    fn lines(&self, _: Option<&str>) -> Box<dyn Lines + Send> {
        Box::new(Talk)
    }
}

struct Talk;

impl Lines for Talk {
    fn read(&mut self, line: &[u8], into: &mut Harvest) -> Result<(), Unreadable> {
        let (key, at, _, fact) = said(line).ok_or(Unreadable::Shape("not a line of the scribe's"))?;
        into.records.push(Record { key, at, copied: false, subagent: None, fact });
        Ok(())
    }

    fn state(&self) -> Option<String> {
        None
    }

    fn forget(&mut self) {}
}

fn said(line: &[u8]) -> Option<(String, Timestamp, Said, Fact)> {
    let line = std::str::from_utf8(line).ok()?.trim_end();
    let mut words = line.splitn(4, ' ');
    let (kind, key) = (words.next()?, words.next()?.to_owned());
    let at = Timestamp(words.next()?.parse().ok()?);
    let rest = words.next()?;
    if kind == "u" {
        return Some((key, at, Said::User(rest.to_owned()), Fact::Prompt));
    }
    let mut words = rest.splitn(3, ' ');
    let mut number = || words.next()?.parse().ok();
    let tokens = Tokens { input: number()?, output: number()?, ..Tokens::default() };
    let usage = Usage { model: "gpt-5".to_owned(), tokens, tier: Tier::Standard, request_id: None };
    Some((key, at, Said::Assistant(words.next()?.to_owned()), Fact::Usage(usage)))
}

mod tests {
    use std::process::{Child, Command};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::agent::{by_name, transcript};
    use crate::clock::{Clock, SystemClock};
    use crate::home::Home;
    use crate::process::{Pid, SystemProcesses};
    use crate::session::id::{Ids, RandomIds};
    use crate::session::lifecycle;
    use crate::session::record::{SessionRecord, record};
    use crate::session::state::{EndReason, Status};
    use crate::store::{Filter, Store};
    use crate::terminal::{Ended, Ending};
    use crate::track::{Plan, Tracker, recover, version};

    /// A run of the scribe: a process that does nothing, and the files it would have written.
    struct Desk {
        home: Home,
        folder: PathBuf,
        process: Child,
        changes: Receiver<()>,
        _watch: crate::track::Watch,
        _temporary: tempfile::TempDir,
    }

    impl Desk {
        fn set() -> Self {
            let temporary = tempfile::tempdir().unwrap();
            let folder = temporary.path().join("project");
            fs::create_dir_all(folder.join(".scribe")).unwrap();
            let home = Home::at(temporary.path().join("home"));
            crate::home::create_private(&home.published_sessions()).unwrap();
            let (changed, changes) = channel();
            let mut watch = crate::track::Watch::new(move |_| {
                let _ = changed.send(());
            });
            watch.set([home.published_sessions()], None);
            let process = Command::new("sleep").arg("1000").spawn().unwrap();
            Self { home, folder, process, changes, _watch: watch, _temporary: temporary }
        }

        fn pid(&self) -> Pid {
            Pid(i32::try_from(self.process.id()).unwrap())
        }

        fn start(&self) -> Tracker {
            let var = |_: &str| None;
            let plan = Plan {
                home: self.home.clone(),
                begun_at: SystemClock.now(),
                run: RandomIds.run(),
                session: RandomIds.session(),
                agent: "scribe".into(),
                trail: Scribe.trail(&var, &self.folder),
                version: None,
                binary: None::<version::Identity>,
                conversation: lifecycle::Conversation::Fresh,
                assigned: None,
                folder: self.folder.clone(),
                surroundings: crate::store::Surroundings::default(),
                name: Some("letter".into()),
                tags: Vec::new(),
                group: None,
                parent: None,
                notes: Vec::new(),
                summary: true,
                sinks: None,
                sinks_now: |_| None,
                log_level: None,
            };
            let tracker = Tracker::prepare(plan);
            tracker.begin(self.pid());
            tracker
        }

        /// The agent says where it is.
        fn be_in(&self, id: &str) {
            let start = SystemProcesses.identify(self.pid()).unwrap().start.0;
            fs::write(self.folder.join(format!(".scribe/at-{}", self.pid())), format!("{start} {id}\n"))
                .unwrap();
        }

        fn write(&self, id: &str, lines: &str) {
            fs::write(self.folder.join(format!(".scribe/{id}.talk")), lines).unwrap();
        }

        fn records(&self) -> Vec<SessionRecord> {
            let mut store = Store::open(&self.home, SystemClock.now()).unwrap();
            let read = |view: &crate::store::View<'_>| -> Result<Vec<SessionRecord>, crate::store::Error> {
                let rows = view.list(&Filter::default())?;
                rows.iter().rev().map(|row| record(view, row, SystemClock.now())).collect()
            };
            store.read(read).unwrap()
        }

        fn wait(&self, what: &str, is: impl Fn(&[SessionRecord]) -> bool) {
            let deadline = Instant::now() + Duration::from_mins(1);
            while !is(&self.records()) {
                assert!(Instant::now() < deadline, "waited in vain for {what}: {:#?}", self.records());
                // A session's numbers change without its file being published anew.
                let _ = self.changes.recv_timeout(Duration::from_millis(200));
            }
        }
    }

    impl Drop for Desk {
        fn drop(&mut self) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    /// The conversation, as any command finds and reads it.
    fn view(session: &SessionRecord) -> Vec<Said> {
        let file = fs::File::open(session.correlation.agent_session_file.as_ref().unwrap()).unwrap();
        let reader = by_name(&session.agent).and_then(Agent::transcript).unwrap();
        transcript::last(&file, 1000, reader).unwrap().items.into_iter().map(|item| item.said).collect()
    }

    fn now() -> i64 {
        SystemClock.now().0
    }

    #[test]
    fn a_fourth_agent_is_one_file_and_one_line() {
        let desk = Desk::set();
        let tracker = desk.start();
        desk.wait("the session", |records| records.len() == 1);
        desk.be_in("one");
        desk.wait("the binding", |records| records[0].correlation.agent_session_id.is_some());
        desk.write("one", &format!("u p1 {0} Dear Ada\na m1 {0} 10 20 I remain\n", now()));
        desk.wait("the numbers", |records| records[0].usage.api_calls == 1);
        desk.be_in("two");
        desk.wait("the next session", |records| records.len() == 2);
        desk.write("two", &format!("u p2 {0} Dear Bob\na m2 {0} 1 2 Yours\nnonsense\n", now()));
        desk.wait("its numbers", |records| records[1].usage.api_calls == 1);
        let ended = Ended { ending: Ending::Exited(3), asked: false, agent: Some(desk.pid()) };
        let summary = tracker.finish(ended, SystemClock.now(), Duration::from_mins(1));
        assert_eq!(summary.problem, None);

        let [one, two] = <[SessionRecord; 2]>::try_from(desk.records()).unwrap();
        assert_eq!(
            (one.name.as_str(), one.agent.as_str(), one.agent_version.as_deref()),
            ("letter", "scribe", Some("7.0"))
        );
        assert_eq!((one.status, one.end_reason), (Status::Completed, Some(EndReason::Clear)));
        assert_eq!((one.usage.prompts, one.usage.input_tokens, one.usage.output_tokens), (1, 10, 20));
        assert!(one.usage.cost_usd > 0.0);
        assert_eq!(
            (one.transitioned_to.as_ref(), two.transitioned_from.as_ref()),
            (Some(&two.session_id), Some(&one.session_id))
        );
        assert_eq!((two.status, two.exit_code), (Status::Failed, Some(3)));
        assert_eq!((two.usage.api_calls, two.usage.input_tokens), (1, 1));
        assert_eq!(view(&one), [Said::User("Dear Ada".into()), Said::Assistant("I remain".into())]);
    }

    #[test]
    fn what_vanished_is_recovered() {
        let desk = Desk::set();
        // A run whose wrapper is no more: it noted where it was, and no END.
        let mut store = Store::open(&desk.home, SystemClock.now()).unwrap();
        let dead = ProcessId { pid: Pid(i32::MAX), start: StartTime(1) };
        let begin = lifecycle::Begin {
            run: crate::store::NewRun {
                id: RandomIds.run(),
                realm: crate::store::Realm::here(),
                wrapper: dead,
            },
            agent: "scribe".into(),
            agent_version: None,
            place: crate::store::Place {
                cwd: desk.folder.clone(),
                project: None,
                repository: None,
                branch: None,
            },
            conversation: lifecycle::Conversation::Fresh,
            name: None,
            tags: Vec::new(),
            group: None,
            parent: None,
        };
        let binding = lifecycle::Binding {
            agent_session: AgentSessionId("one".into()),
            file: None,
            evidence: crate::session::state::EvidenceKind::Registry,
        };
        let start = |tx: &crate::store::Tx<'_>| {
            let started = lifecycle::start(tx, SystemClock.now(), &RandomIds, &begin)?;
            lifecycle::bind(tx, SystemClock.now(), &RandomIds, started.session, &binding).map(drop)
        };
        store.write(start).unwrap();
        desk.write("one", &format!("a m1 {} 10 20 I remain\n", now()));
        recover(&mut store, &desk.home).unwrap();
        let records = desk.records();
        assert_eq!((records[0].status, records[0].end_reason), (Status::Interrupted, Some(EndReason::Crash)));
        assert_eq!(records[0].usage.output_tokens, 20);
    }

    #[test]
    fn its_files_can_be_scanned() {
        let desk = Desk::set();
        desk.write("one", "a m1 1 10 20 I remain\nu p1 2 Dear\n");
        let home = desk.folder.clone();
        let var = move |name: &str| (name == "SCRIBE_HOME").then(|| home.clone().into_os_string());
        let files = Scribe.session_files(&var).files;
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].conversation, Some(AgentSessionId("one".into())));
        assert!(files[0].path.starts_with(&Scribe.session_roots(&var)[0]));
        let (mut lines, mut harvest) = (Scribe.usage_lines(None).unwrap(), Harvest::default());
        for line in
            fs::read(&files[0].path).unwrap().split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
        {
            lines.read(line, &mut harvest).unwrap();
        }
        assert_eq!(harvest.records.len(), 2);
        assert_eq!(by_name("scribe").map(Agent::name), Some("scribe"));
    }
}
