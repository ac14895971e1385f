//! A run of Gemini CLI as its folder shows it, step by step.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;

use super::*;
use crate::correlate::{Maker, TextFingerprint, Typed};
use crate::process_table::ProcessTable;
use pty::process::Running;
use types::{Pid, StartTime};

const AGENT: ProcessId = ProcessId { pid: Pid(10), start: StartTime(1) };

/// No neighbours; our own process is recognised or not.
struct Alone {
    recognised: bool,
}

impl Processes for Alone {
    fn start_time(&self, _: Pid) -> Option<StartTime> {
        None
    }

    fn parent(&self, _: Pid) -> Option<Pid> {
        None
    }

    fn running(&self, _: &dyn Fn(&[OsString]) -> bool) -> Option<Vec<Running>> {
        let ours = ProcessTable::new(&[(AGENT.pid.0, AGENT.start.0, "gemini")]);
        ours.running(&|_| self.recognised)
    }
}

struct Stage {
    home: tempfile::TempDir,
    observer: GeminiObserver,
    now: Timestamp,
}

impl Stage {
    /// A run that was prepared a minute ago, in a folder that is no project yet.
    fn set() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir_all(home.path().join("tmp/p/chats")).unwrap();
        let mut observer = GeminiObserver::new(GeminiFiles::at(home.path()), Path::new("/nowhere/p"));
        let now = SystemClock.now();
        observer.prepared = Timestamp(now.0 - 60_000);
        Self { home, observer, now }
    }

    fn in_a_project() -> Self {
        let stage = Self::set();
        stage.make_project();
        stage
    }

    fn make_project(&self) {
        fs::write(self.home.path().join("projects.json"), r#"{"projects":{"/nowhere/p":"p"}}"#).unwrap();
    }

    fn ago(&self, millis: i64) -> Timestamp {
        Timestamp(self.now.0 - millis)
    }

    /// Just now, however long the machine takes until the next look.
    fn just(&self) -> Timestamp {
        self.ago(-60_000)
    }

    fn chat(&self, id: &str, lines: &[String]) {
        let path = self.home.path().join(format!("tmp/p/chats/session-2026-11-16T00-00-{id}.jsonl"));
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        file.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + self.just().since(Timestamp(0))).unwrap();
    }

    /// An old log of typed prompts.
    fn log(&self, text: &str) -> PathBuf {
        let path = self.home.path().join("tmp/p/logs.json");
        fs::write(&path, text).unwrap();
        File::open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        path
    }

    fn look(&mut self) -> Observation {
        self.observer.look(AGENT, &Alone { recognised: true })
    }

    fn traces(&mut self) -> Vec<Trace> {
        let signals = self.look().signals.into_iter();
        let traces = signals.map(|signal| match signal {
            Signal::Trace(trace) => trace,
            other => panic!("{other:?}"),
        });
        traces.collect()
    }
}

fn id(text: &str) -> AgentSessionId {
    AgentSessionId(text.to_owned())
}

fn header(id: &str, at: Timestamp) -> String {
    format!(r#"{{"sessionId":"{id}","projectHash":"h","startTime":"{at}","kind":"main"}}"#)
}

fn entered(id: &str) -> String {
    format!(r#"{{"$set":{{"sessionId":"{id}"}}}}"#)
}

fn message(text: &str, at: Timestamp) -> String {
    format!(r#"{{"id":"m","timestamp":"{at}","type":"user","content":[{{"text":"{text}"}}]}}"#)
}

#[test]
fn an_older_file_may_belong_to_a_process_that_ended() {
    let mut stage = Stage::in_a_project();
    let (just, before) = (stage.just(), stage.ago(5_000));
    stage.chat("aaaaaaaa", &[header("aaaaaaaa", just)]);
    stage.chat("bbbbbbbb", &[header("bbbbbbbb", before)]);
    let begun = |name, at, maker| Trace::Begun { id: id(name), at, known: false, maker };
    let expected = [begun("aaaaaaaa", just, Maker::Ours), begun("bbbbbbbb", before, Maker::Anybody)];
    assert_eq!(stage.traces(), expected);
    let gone_on = |maker| Trace::Entered { id: id("aaaaaaaa"), maker };
    stage.chat("aaaaaaaa", &[entered("aaaaaaaa")]);
    assert_eq!(stage.traces(), [gone_on(Maker::Ours)]);
    stage.chat("aaaaaaaa", &[entered("aaaaaaaa"), message("hi", before)]);
    let hi = Trace::Prompted { id: id("aaaaaaaa"), at: before, text: TextFingerprint::of("hi") };
    assert_eq!(stage.traces(), [gone_on(Maker::Anybody), hi], "its prompt shows that it is older");
}

#[test]
fn a_file_is_nobodys_where_our_own_process_is_not_recognised() {
    let mut stage = Stage::in_a_project();
    let just = stage.just();
    stage.chat("aaaaaaaa", &[header("aaaaaaaa", just)]);
    let signals = stage.observer.look(AGENT, &Alone { recognised: false }).signals;
    let begun = Trace::Begun { id: id("aaaaaaaa"), at: just, known: false, maker: Maker::Unrecognised };
    assert_eq!(signals, [Signal::Trace(begun)]);
}

#[test]
fn files_from_before_the_run_are_never_new() {
    let mut stage = Stage::set();
    let old = [header("oooooooo", stage.ago(120_000)), entered("oooooooo"), message("x", stage.ago(120_000))];
    stage.chat("oooooooo", &old);
    assert_eq!(stage.traces(), [], "the files of the folder are not known yet");
    stage.make_project();
    assert_eq!(stage.traces(), []);
    // The folder cannot be listed for a moment: a link to itself.
    let [chats, away] = ["tmp/p/chats", "tmp/p/away"].map(|name| stage.home.path().join(name));
    fs::rename(&chats, &away).unwrap();
    std::os::unix::fs::symlink("chats", &chats).unwrap();
    stage.observer.prepared = Timestamp(0); // so that everything would be new if it were found again
    assert_eq!(stage.traces(), []);
    fs::remove_file(&chats).unwrap();
    fs::rename(&away, &chats).unwrap();
    assert_eq!(stage.traces(), []);
    stage.chat("oooooooo", &[entered("oooooooo")]);
    assert_eq!(stage.traces(), [Trace::Entered { id: id("oooooooo"), maker: Maker::Ours }]);
    // A second header, in a file of its own or in the same one, is no beginning.
    let just = stage.just();
    stage.chat("oooooooo", &[header("oooooooo", just)]);
    stage.chat("pppppppp", &[header("oooooooo", just)]);
    let again = Trace::Begun { id: id("oooooooo"), at: just, known: true, maker: Maker::Ours };
    assert_eq!(stage.traces(), [again.clone(), again]);
}

#[test]
fn a_log_that_stays_broken_is_left_alone_and_read_when_it_is_whole() {
    let mut stage = Stage::in_a_project();
    stage.log("[{");
    let torn: Vec<bool> = (0..5).map(|_| stage.look().torn).collect();
    assert_eq!(torn, [true, true, false, false, false]);
    let line = |message: &str, at: Timestamp| {
        format!(r#"{{"sessionId":"a","messageId":0,"type":"user","message":"{message}","timestamp":"{at}"}}"#)
    };
    let (long_ago, at) = (stage.ago(120_000), stage.ago(1_000));
    stage.log(&format!("[{},{}]", line("before us", long_ago), line("/clear", at)));
    assert_eq!(stage.traces(), [Trace::Typed { under: id("a"), at, what: Typed::Clear }]);
    let log = stage.log("");
    File::options().write(true).open(log).unwrap().set_len(MAX_LOG + 1).unwrap();
    assert_eq!(stage.traces(), [Trace::LogTooLong]);
    assert_eq!(stage.traces(), [], "reported once");
}

fn document(id: &str, at: Timestamp, messages: &[String]) -> String {
    format!(
        "{{\n  \"sessionId\": \"{id}\",\n  \"startTime\": \"{at}\",\n  \"messages\": [{}]\n}}",
        messages.join(",").replace("\":", "\": ")
    )
}

/// Versions up to 0.35 rewrite one document per conversation, up to 0.27 in a folder named by a hash.
#[test]
fn documents_are_evidence_of_beginnings_and_prompts_once() {
    let mut stage = Stage::set();
    let (just, before) = (stage.just(), stage.ago(120_000));
    let hashed = stage.observer.files.hashed(Path::new("/nowhere/p"));
    let chats = hashed.join("chats");
    let write = |id: &str, text: &str| {
        let path = chats.join(format!("session-2026-11-16T00-00-{id}.json"));
        fs::create_dir_all(&chats).unwrap();
        fs::write(&path, text).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH + SystemClock.now().since(Timestamp(0)))
            .unwrap();
        path
    };
    write("oooooooo", &document("oooooooo", before, &[message("old", before)]));
    assert_eq!(stage.traces(), [], "messages from before are not new");
    write("aaaaaaaa", &document("aaaaaaaa", just, &[message("one", just)]));
    let prompt_in =
        |name: &str, text: &str, at| Trace::Prompted { id: id(name), at, text: TextFingerprint::of(text) };
    let begun = Trace::Begun { id: id("aaaaaaaa"), at: just, known: false, maker: Maker::Ours };
    assert_eq!(stage.traces(), [begun, prompt_in("aaaaaaaa", "one", just)]);
    assert_eq!(stage.traces(), [], "reported once");
    let later = Timestamp(just.0 + 1000);
    let whole = document("aaaaaaaa", just, &[message("one", just), message("two", later)]);
    write("aaaaaaaa", &whole[..whole.len() - 9]);
    let seen = stage.look();
    assert!(seen.torn && seen.signals.is_empty(), "half of it waits");
    let path = write("aaaaaaaa", &whole);
    assert_eq!(stage.traces(), [prompt_in("aaaaaaaa", "two", later)]);
    assert_eq!(stage.observer.files(&id("aaaaaaaa")), std::slice::from_ref(&path));
    assert!(matches!(stage.observer.form(&path), Form::Document { list: "messages" }));
    // An old one is continued.
    write("oooooooo", &document("oooooooo", before, &[message("old", before), message("three", just)]));
    let gone_on = Trace::Entered { id: id("oooooooo"), maker: Maker::Ours };
    assert_eq!(stage.traces(), [gone_on, prompt_in("oooooooo", "three", just)]);
}
