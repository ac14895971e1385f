//! A run of Claude Code as its files show it, step by step.

use std::ffi::OsString;
use std::fs::File;
use std::time::UNIX_EPOCH;

use super::*;
use crate::claude::FORMAT;
use crate::claude::files::LAYOUT;
use crate::process_table::ProcessTable;
use pty::process::Running;
use types::StartTime;

const LAUNCHER: ProcessId = ProcessId { pid: Pid(10), start: StartTime(1) };
const CHILD: ProcessId = ProcessId { pid: Pid(11), start: StartTime(2) };

/// A launcher and its child.
struct Family {
    ended: bool,
    recognised: bool,
}

impl Processes for Family {
    fn start_time(&self, pid: Pid) -> Option<StartTime> {
        let mut living = [LAUNCHER, CHILD].into_iter().filter(|_| !self.ended);
        living.find(|process| process.pid == pid).map(|process| process.start)
    }

    fn parent(&self, pid: Pid) -> Option<Pid> {
        (pid == CHILD.pid).then_some(LAUNCHER.pid)
    }

    fn running(&self, _: &dyn Fn(&[OsString]) -> bool) -> Option<Vec<Running>> {
        let ours = ProcessTable::new(&[(LAUNCHER.pid.0, LAUNCHER.start.0, "claude")]);
        ours.running(&|_| self.recognised && !self.ended)
    }
}

struct Stage {
    root: tempfile::TempDir,
    observer: RegistryObserver,
    ended: bool,
    /// Our own process is recognised as the agent's.
    recognised: bool,
}

impl Stage {
    fn set() -> Self {
        let root = tempfile::tempdir().unwrap();
        let files = RegistryFiles::at(LAYOUT, root.path());
        fs::create_dir(files.registry()).unwrap();
        let observer = RegistryObserver::new(&FORMAT, files, Path::new("/b"));
        Self { root, observer, ended: false, recognised: true }
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Changed long ago.
    fn put_old(&self, name: &str, text: &str) {
        File::open(self.put(name, text)).unwrap().set_modified(UNIX_EPOCH).unwrap();
    }

    fn processes(&self) -> Family {
        Family { ended: self.ended, recognised: self.recognised }
    }

    fn look(&mut self) -> Observation {
        self.observer.look(LAUNCHER, &self.processes())
    }

    fn look_at_own(&mut self) -> Observation {
        self.observer.look_at_own(LAUNCHER, &self.processes())
    }

    /// The conversations that the registry is reported to name, by pid.
    fn registered(&mut self) -> Vec<(i32, String)> {
        named(&self.look())
    }

    fn files(&mut self, id: &str) -> Vec<String> {
        let root = self.root.path().join("projects");
        let files = self.observer.files(&AgentSessionId(id.to_owned()));
        files.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned()).collect()
    }
}

fn named(seen: &Observation) -> Vec<(i32, String)> {
    let named = seen.signals.iter().filter_map(|signal| match signal {
        Signal::Registry { entry, .. } => Some((entry.pid.0, entry.session.0.clone())),
        _ => None,
    });
    named.collect()
}

fn entry(process: ProcessId, session: &str, more: &str) -> String {
    let (pid, start) = (process.pid, process.start.0);
    format!(r#"{{"pid":{pid},"sessionId":"{session}","procStart":"{start}"{more}}}"#)
}

#[test]
fn an_entry_that_stays_unreadable_is_left_alone_until_it_changes() {
    for broken in ["", "{}", "{\"pid\":11", "not of this agent"] {
        let mut stage = Stage::set();
        stage.put_old("sessions/11.json", broken);
        let torn: Vec<bool> = (0..5).map(|_| stage.look().torn).collect();
        assert_eq!(torn, [true, true, false, false, false], "{broken:?}");
        stage.put_old("sessions/11.json", &entry(CHILD, "a", ""));
        assert_eq!(stage.registered(), [(11, "a".to_owned())]);
        assert_eq!(stage.registered(), []);
    }
}

#[test]
fn an_entry_left_behind_does_not_take_the_place_of_the_agent() {
    let mut stage = Stage::set();
    let killed = ProcessId { start: StartTime(77), ..LAUNCHER };
    stage.put("sessions/10.json", &entry(killed, "old", ""));
    let seen = stage.look();
    assert_eq!((seen.signals, seen.adopted), (vec![], None));
    stage.put("sessions/11.json", &entry(CHILD, "a", r#","version":"2.1.197""#));
    let seen = stage.look();
    assert_eq!((seen.adopted, seen.version.as_deref()), (Some(CHILD), Some("2.1.197")));
}

#[test]
fn all_files_of_a_conversation_are_followed_that_of_the_present_project_first() {
    let mut stage = Stage::set();
    stage.put("projects/-a/x.jsonl", "");
    stage.put("projects/-a/x/subagents/agent-1.jsonl", "");
    stage.put("projects/-c/y.jsonl", "");
    stage.look();
    assert_eq!(stage.files("x"), ["-a/x.jsonl", "-a/x/subagents/agent-1.jsonl"]);
    stage.put("projects/-b/x.jsonl", "");
    stage.put("projects/-b/x/subagents/team/agent-2.jsonl", "");
    stage.look();
    let here = ["-b/x.jsonl", "-b/x/subagents/team/agent-2.jsonl"];
    let there = ["-a/x.jsonl", "-a/x/subagents/agent-1.jsonl"];
    assert_eq!(stage.files("x"), [here, there].concat());
    assert!(stage.observer.watched().contains(&stage.root.path().join("projects/-a/x/subagents")));
    stage.put("sessions/11.json", &entry(CHILD, "x", r#","cwd":"/a""#));
    stage.look();
    assert_eq!(stage.files("x"), [there, here].concat(), "/cd");
}

#[test]
fn sub_agents_beside_the_sessions_belong_to_the_session_in_their_lines() {
    let line =
        |session: &str| format!("{{\"type\":\"user\",\"sessionId\":\"{session}\",\"isSidechain\":true}}\n");
    let mut stage = Stage::set();
    stage.put("projects/-b/x.jsonl", "");
    stage.put("projects/-b/agent-before.jsonl", &line("x"));
    stage.look();
    assert_eq!(stage.files("x"), ["-b/x.jsonl"]);
    stage.put("projects/-b/agent-1.jsonl", &line("x"));
    stage.put("projects/-b/agent-2.jsonl", &line("y"));
    stage.put("projects/-b/agent-3.jsonl", &line("x")[..9]);
    stage.look();
    assert_eq!(stage.files("x"), ["-b/x.jsonl", "-b/agent-1.jsonl"]);
    stage.put("projects/-b/agent-3.jsonl", &line("x"));
    stage.look();
    assert_eq!(stage.files("x"), ["-b/x.jsonl", "-b/agent-1.jsonl", "-b/agent-3.jsonl"]);
}

#[test]
fn a_process_that_registered_knows_its_own_files_from_those_of_others() {
    let mut stage = Stage::set();
    stage.put("projects/-b/other.jsonl", "");
    stage.look();
    assert_eq!(stage.observer.watch_scope(), None, "the run of the next change is not known yet");
    stage.put("sessions/11.json", &entry(CHILD, "x", r#","cwd":"/b","version":"2.1.100""#));
    stage.look();
    assert_eq!(stage.observer.watch_scope(), None, "its entry stays as it is after a clear");
    stage.put("sessions/11.json", &entry(CHILD, "x", r#","cwd":"/b","version":"2.1.197""#));
    stage.look();
    let is_own = |stage: &Stage, name: &str| {
        let path = stage.root.path().join(name);
        stage.observer.watch_scope().unwrap().own.iter().any(|own| path.starts_with(own))
    };
    for (name, own) in [
        ("sessions/11.json", true),
        ("sessions/12.json", false),
        ("history.jsonl", false),
        ("projects/-b/x.jsonl", true),
        ("projects/-b/x/subagents/agent-1.jsonl", true),
        ("projects/-b/other.jsonl", false),
        ("projects/-c/x.jsonl", false),
    ] {
        assert_eq!(is_own(&stage, name), own, "{name}");
    }
    stage.put("projects/-c/x.jsonl", "");
    stage.files("x");
    assert!(is_own(&stage, "projects/-c/x.jsonl") && is_own(&stage, "projects/-c/x/subagents/agent-2.jsonl"));
    stage.put("sessions/11.json", &entry(CHILD, "y", r#","cwd":"/b","version":"2.1.197""#));
    stage.look();
    assert!(is_own(&stage, "projects/-b/y.jsonl") && !is_own(&stage, "projects/-b/x.jsonl"), "/clear");
}

#[test]
fn a_look_at_its_own_files_reads_no_file_of_another_run() {
    let mut stage = Stage::set();
    let version = r#","cwd":"/b","version":"2.1.197""#;
    stage.put("sessions/11.json", &entry(CHILD, "x", version));
    stage.look();
    stage.put("sessions/10.json", &entry(LAUNCHER, "other", version));
    stage.put("projects/-b/other.jsonl", &asked("other", "hello"));
    stage.put("sessions/11.json", &entry(CHILD, "y", version));
    stage.put("projects/-b/y.jsonl", &asked("y", "hello"));
    let seen = stage.look_at_own();
    assert_eq!(named(&seen), [(11, "y".to_owned())]);
    assert_eq!(new_files(seen), [("y".to_owned(), None, None)]);
    let seen = stage.look();
    assert!(named(&seen).contains(&(10, "other".to_owned())), "the next look at everything sees it");
    assert_eq!(new_files(seen), [], "its registry says what our process is in");
    stage.put("sessions/10.json", &entry(LAUNCHER, "another", version));
    assert!(!named(&stage.look()).iter().any(|(pid, _)| *pid == 10), "nor is the other followed from here");
    stage.put("sessions/9.json", r#"{"pid":9,"sessionId":"of the dead","procStart":"5"}"#);
    assert!(!named(&stage.look()).iter().any(|(pid, _)| *pid == 9));
    fs::remove_file(stage.root.path().join("sessions/11.json")).unwrap();
    let seen = stage.look_at_own();
    assert_eq!(new_files(seen), [("other".to_owned(), None, None)], "without its entry every file counts");
}

#[test]
fn what_is_its_own_is_watched_by_itself_in_folders_that_all_write_to() {
    let mut stage = Stage::set();
    stage.put("sessions/11.json", &entry(CHILD, "x", r#","cwd":"/b","version":"2.1.197""#));
    stage.look();
    let (watched, scope) = (stage.observer.watched(), stage.observer.watch_scope().unwrap());
    for own in &scope.own {
        assert!(watched.contains(own), "{}", own.display());
    }
    let at = |name: &str| stage.root.path().join(name);
    for (folder, shared, ignored) in
        [("", true, true), ("sessions", true, false), ("projects", true, true), ("projects/-b", true, true)]
    {
        let folder = if folder.is_empty() { stage.root.path().to_owned() } else { at(folder) };
        let found = (scope.shared.contains(&folder), scope.ignored.contains(&folder));
        assert_eq!(found, (shared, ignored), "{}", folder.display());
    }
}

#[test]
fn pipes_in_place_of_files_hide_no_entry_of_the_registry() {
    let mut stage = Stage::set();
    for name in ["history.jsonl", "projects/-b/7a276c6b-d81e-4b1f-9c9e-000000000001.jsonl", "sessions/9.json"]
    {
        let path = stage.root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        os::file::make_pipe(&path).unwrap();
    }
    stage.put("sessions/10.json", &entry(LAUNCHER, "one", ""));
    assert_eq!(stage.registered(), [(10, "one".to_owned())]);
}

fn asked(session: &str, words: &str) -> String {
    let at = SystemClock.now();
    format!(
        r#"{{"type":"user","sessionId":"{session}","cwd":"/b","timestamp":"{at}","promptId":"p1","message":{{"content":"{words}"}}}}"#
    ) + "\n"
}

const CLEAR: &str = "<command-name>/clear</command-name>";

/// A new file, who can have made it, and the conversation it follows.
fn new_files(seen: Observation) -> Vec<(String, Option<Maker>, Option<String>)> {
    let signals = seen.signals.into_iter();
    let files = signals.filter_map(|signal| match signal {
        Signal::NewFile(file) => Some((file.id.0, file.maker, file.follows.map(|id| id.0))),
        _ => None,
    });
    files.collect()
}

#[test]
fn where_no_process_registers_neighbours_decide() {
    let mut stage = Stage::set();
    stage.put("projects/-b/old.jsonl", &asked("old", "hi"));
    stage.look();
    stage.put("projects/-b/new.jsonl", &asked("new", CLEAR));
    assert_eq!(new_files(stage.look()), [("new".to_owned(), Some(Maker::Ours), None)]);
    let registered = entry(LAUNCHER, "new", "");
    stage.put("sessions/10.json", &registered);
    stage.look();
    stage.put("projects/-b/later.jsonl", &asked("later", CLEAR));
    assert_eq!(new_files(stage.look()), [("later".to_owned(), None, None)], "its registry decides");
}

#[test]
fn a_file_is_nobodys_where_our_own_process_is_not_recognised() {
    let mut stage = Stage::set();
    stage.recognised = false;
    stage.look();
    stage.put("projects/-b/new.jsonl", &asked("new", "hi"));
    assert_eq!(new_files(stage.look()), [("new".to_owned(), Some(Maker::Unrecognised), None)]);
}

#[test]
fn a_clear_has_the_id_of_the_prompt_before_it() {
    let mut stage = Stage::set();
    stage.put("projects/-b/a.jsonl", &asked("a", "hi"));
    stage.look();
    stage.files("a");
    stage.put("projects/-b/b.jsonl", &asked("b", CLEAR));
    assert_eq!(new_files(stage.look()), [("b".to_owned(), Some(Maker::Ours), Some("a".to_owned()))]);
}

/// 1.0.123 goes on with a conversation in a file of another name.
#[test]
fn a_file_whose_lines_are_of_another_conversation_is_counted_there() {
    let mut stage = Stage::set();
    stage.put("projects/-b/a.jsonl", &asked("a", "hi"));
    stage.look();
    stage.put("projects/-b/other.jsonl", &asked("a", "again"));
    let signals = stage.look().signals;
    let gone_on = Signal::Continued { id: AgentSessionId("a".into()), maker: Maker::Ours };
    assert!(signals.contains(&gone_on), "{signals:?}");
    assert_eq!(stage.files("a"), ["-b/a.jsonl", "-b/other.jsonl"]);
}

fn typed(session: &str, text: &str) -> String {
    let now = SystemClock.now();
    format!(r#"{{"display":"{text}","timestamp":{},"project":"/b","sessionId":"{session}"}}"#, now.0) + "\n"
}

fn job(session: &str, cwd: &str) -> String {
    format!(r#"{{"sessionId":"{session}","cwd":"{cwd}","createdAt":"{}"}}"#, SystemClock.now())
}

fn handed_over(seen: Observation) -> Option<(String, String)> {
    seen.signals.into_iter().find_map(|signal| match signal {
        Signal::HandedOver { from, to } => Some((from.0, to.0)),
        _ => None,
    })
}

#[test]
fn a_conversation_given_to_the_background_is_followed_to_its_only_job() {
    let mut stage = Stage::set();
    stage.put("sessions/10.json", &entry(LAUNCHER, "a", ""));
    stage.look();
    stage.put("history.jsonl", &typed("a", "/background"));
    stage.put("jobs/1/state.json", &job("elsewhere", "/c"));
    stage.put("jobs/2/state.json", &job("b", "/b"));
    stage.put("jobs/3/state.json", &job("fork", "/b"));
    stage.put("jobs/3/parent-transcript.jsonl", "");
    assert_eq!(handed_over(stage.look()), None, "the command ends the process");
    stage.ended = true;
    assert_eq!(handed_over(stage.look()), Some(("a".to_owned(), "b".to_owned())));
    assert_eq!(handed_over(stage.look()), None, "news once");
}

#[test]
fn a_job_is_ours_only_after_the_last_command_of_our_own_conversation() {
    for history in [typed("other", "/background"), typed("a", "/background") + &typed("a", "go on")] {
        let mut stage = Stage::set();
        stage.put("sessions/10.json", &entry(LAUNCHER, "a", ""));
        stage.look();
        stage.put("history.jsonl", &history);
        stage.put("jobs/2/state.json", &job("b", "/b"));
        stage.look();
        stage.ended = true;
        assert_eq!(handed_over(stage.look()), None, "{history}");
    }
}

#[test]
fn the_command_line_of_a_background_process_names_the_conversation_it_continues() {
    struct Command(&'static [&'static str]);
    impl Processes for Command {
        fn start_time(&self, _: Pid) -> Option<StartTime> {
            None
        }
        fn parent(&self, _: Pid) -> Option<Pid> {
            None
        }
        fn command(&self, pid: Pid) -> Vec<OsString> {
            assert_eq!(pid, CHILD.pid);
            self.0.iter().map(OsString::from).collect()
        }
    }
    const ID: &str = "96909672-6f11-47d5-8ee4-141db9e43317";
    const FILE: &str = "/home/dev/.claude/projects/-p/96909672-6f11-47d5-8ee4-141db9e43317.jsonl";
    for (command, expected) in [
        (&["claude", "--bg", "--resume", ID][..], Some(ID)),
        (&["claude", "--resume", FILE, "--bg"], Some(ID)),
        (&["claude", "--resume"], None),
        (&["claude", ID], None),
        (&[], None),
    ] {
        let resumed = resumed_by(CHILD.pid, &Command(command));
        assert_eq!(resumed, expected.map(|id| AgentSessionId(id.into())), "{command:?}");
    }
}
