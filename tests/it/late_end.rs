//! The agent's exit status survives a store that is locked when the agent ends, and the wrapper's own death.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use os::clock::{Clock, SystemClock};
use rusqlite::Connection;
use serde_json::Value;

use crate::sandbox::{Sandbox, output_of};
use crate::support::scripted::await_some;

/// Bounds failures only.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A home in which programs end while somebody else has the store.
struct Scene {
    sandbox: Sandbox,
}

impl Scene {
    fn new() -> Self {
        Self { sandbox: Sandbox::new() }
    }

    fn database(&self) -> PathBuf {
        self.sandbox.path(".codemie/codemie.db")
    }

    /// A wrapped program that ends as the script says, once it has read a line.
    fn start(&self, script: &str) -> Child {
        let mut command: Command = self.sandbox.codemie(&["run", "--", "sh", "-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn await_sessions(&self, count: i64) {
        await_some("the START of every run", || {
            let conn = Connection::open(self.database()).ok()?;
            let found: i64 = conn.query_row("SELECT count(*) FROM session", [], |row| row.get(0)).ok()?;
            (found == count).then_some(())
        });
    }

    fn lock(&self) -> Connection {
        let conn = Connection::open(self.database()).unwrap();
        conn.busy_timeout(TIMEOUT).unwrap();
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        conn
    }

    fn notes(&self) -> Vec<PathBuf> {
        let notes = std::fs::read_dir(self.sandbox.path(".codemie/run/ended"));
        let notes = notes.into_iter().flatten().map(|entry| entry.unwrap().path());
        notes.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
    }

    fn listed(&self) -> Vec<Value> {
        let output = output_of(&mut self.sandbox.codemie(&["list", "--json"]));
        assert_eq!(output.code, Some(0), "{output:?}");
        serde_json::from_str(&output.out).unwrap()
    }
}

fn go_on(child: &mut Child) {
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
}

#[test]
fn exit_code_survives_a_store_locked_at_the_end() {
    let scene = Scene::new();
    let mut child = scene.start("read line; exit 3");
    scene.await_sessions(1);
    let lock = scene.lock();
    let before = SystemClock.now();
    go_on(&mut child);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    drop(lock);
    let after = SystemClock.now();
    let [record] = &scene.listed()[..] else { panic!("one session") };
    assert_eq!((&record["status"], &record["endReason"]), (&"failed".into(), &"exit".into()), "{record}");
    assert_eq!((&record["exitCode"], &record["signal"]), (&3.into(), &Value::Null));
    let ended = record["endTime"].as_i64().unwrap();
    assert!(before.0 <= ended && ended <= after.0, "{} {ended} {}", before.0, after.0);
    assert_eq!(scene.notes(), Vec::<PathBuf>::new(), "the note is gone with the END");
}

#[test]
fn signal_survives_a_wrapper_killed_while_the_store_is_locked() {
    let scene = Scene::new();
    let mut child = scene.start("read line; kill -USR1 $$");
    scene.await_sessions(1);
    let lock = scene.lock();
    go_on(&mut child);
    await_some("the note of how it ended", || (!scene.notes().is_empty()).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    drop(lock);
    let [record] = &scene.listed()[..] else { panic!("one session") };
    assert_eq!((&record["status"], &record["endReason"]), (&"failed".into(), &"signal".into()), "{record}");
    assert_eq!((&record["exitCode"], &record["signal"]), (&Value::Null, &10.into()));
    assert_eq!(scene.notes(), Vec::<PathBuf>::new());
}

#[test]
fn exit_codes_of_many_wrappers_survive_a_store_locked_at_their_end() {
    const WRAPPERS: i64 = 20;
    let scene = Scene::new();
    let mut children: Vec<Child> =
        (0..WRAPPERS).map(|n| scene.start(&format!("read line; exit {}", n % 2 * 3))).collect();
    scene.await_sessions(WRAPPERS);
    let lock = scene.lock();
    children.iter_mut().for_each(go_on);
    for child in &mut children {
        child.wait().unwrap();
    }
    drop(lock);
    let listed = scene.listed();
    let ended = |status: &str, code: i64| {
        listed
            .iter()
            .filter(|record| {
                record["status"] == status && record["endReason"] == "exit" && record["exitCode"] == code
            })
            .count()
    };
    assert_eq!((ended("completed", 0), ended("failed", 3)), (10, 10), "{listed:#?}");
    assert_eq!(scene.notes(), Vec::<PathBuf>::new());
}
