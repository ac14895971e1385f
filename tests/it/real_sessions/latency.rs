//! How long after the agent's own switch a transition is committed, here and at a backend on loopback.
//!
//! The agent's switch is when it rewrote its registry entry (Claude Code), or took the lock of the new conversation (Codex).
//! The published file of the new session is written right after the commit. Both times are the kernel's, of files, noted at
//! the first sight of each. The backend is the real one; what it has committed is known when its answer comes through the
//! relay before it. Nothing is asserted of the time: machines differ; each transition must arrive.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use notify::RecommendedWatcher;
use os::clock::{Clock, SystemClock};
use serde_json::Value;

use super::scene::{Scene, watch};
use crate::support::agents::Agent;
use crate::support::pty::Exit;
use crate::support::receiver::{Received, Receiver, Reply};
use crate::support::served::Served;

/// When each conversation was first named in a file of a folder.
struct Sightings {
    seen: Arc<Mutex<BTreeMap<String, SystemTime>>>,
    _watcher: RecommendedWatcher,
}

impl Sightings {
    /// `named` says which conversation a file of the folder names, if it does.
    fn of(folder: &Path, named: impl Fn(&Path) -> Option<String> + Send + 'static) -> Self {
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let noted = Arc::clone(&seen);
        let watcher = watch(folder, move |paths| {
            for path in paths {
                // Half written, or renamed since: there will be another event.
                let modified = fs::metadata(path).and_then(|meta| meta.modified());
                if let (Some(id), Ok(at)) = (named(path), modified) {
                    noted.lock().unwrap().entry(id).or_insert(at);
                }
            }
        });
        Self { seen, _watcher: watcher }
    }

    fn at(&self, id: &str) -> SystemTime {
        *self.seen.lock().unwrap().get(id).unwrap_or_else(|| panic!("{id} was never seen"))
    }
}

/// When the backend had committed each session's START and END.
#[derive(Default)]
struct Arrivals(Mutex<BTreeMap<(String, String), SystemTime>>);

impl Arrivals {
    fn note(&self, received: &Received) {
        let now = UNIX_EPOCH + Duration::from_millis(u64::try_from(SystemClock.now().0).unwrap());
        let events: Vec<Value> = serde_json::from_slice(&received.body).unwrap();
        let word = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
        for event in events {
            let key = (word(&event, "sessionId"), word(&event, "type"));
            self.0.lock().unwrap().entry(key).or_insert(now);
        }
    }

    fn at(&self, session: &str, kind: &str) -> SystemTime {
        let arrivals = self.0.lock().unwrap();
        let at = arrivals.get(&(session.to_owned(), kind.to_owned()));
        *at.unwrap_or_else(|| panic!("the {kind} of {session} never arrived"))
    }
}

/// What stands at a place of a JSON file.
fn at_pointer(pointer: &'static str) -> impl Fn(&Path) -> Option<String> {
    move |path| {
        let json: Value = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        json.pointer(pointer)?.as_str().map(str::to_owned)
    }
}

#[test]
fn from_switch_to_transition() {
    let Some(scene) = Scene::set(Agent::Claude) else { return };
    measure(&scene, ".claude/sessions", at_pointer("/sessionId"));
}

#[test]
fn from_lock_to_transition() {
    let Some(scene) = Scene::set(Agent::Codex) else { return };
    let locked = |path: &Path| Some(path.file_name()?.to_str()?.strip_suffix(".lock")?.to_owned());
    measure(&scene, ".codex/thread-writer-locks", locked);
}

/// `switched` says which conversation a file of `folder` names when the agent goes over to it.
fn measure(scene: &Scene, folder: &str, switched: impl Fn(&Path) -> Option<String> + Send + 'static) {
    let arrivals = Arc::<Arrivals>::default();
    let noted = Arc::clone(&arrivals);
    let storage = tempfile::tempdir().unwrap();
    let backend = Served::start(&format!("sqlite:{}", storage.path().join("backend.db").display()));
    let (address, token) = (backend.url(), backend.token("ingest"));
    let relay = Receiver::start(move |received| {
        let reply = received.relay(&address);
        if matches!(reply, Reply::Status(200, _)) {
            noted.note(received);
        }
        reply
    });
    scene.configure(&format!(
        "backend.url = '{}'\nbackend.token = '{token}'\nsync.exitTimeout = '30s'\n",
        relay.url()
    ));
    let transitions = if std::env::var_os("CODEMIE_TEST_FULL").is_some() { 30 } else { 8 };
    let run = scene.start(&[]);
    run.prompt("one");
    let switches = Sightings::of(&scene.stage.home.path().join(folder), switched);
    let published = Sightings::of(&scene.published_sessions(), at_pointer("/correlation/agentSessionId"));
    for _ in 0..transitions {
        run.clear();
    }
    assert_eq!(run.exit(), Exit::Code(0));

    let recorded = scene.recorded();
    assert_eq!(recorded.len(), transitions + 1);
    // The agent's own end, too, is told as one and as no return to an earlier conversation.
    assert!(recorded.iter().all(|session| session.openings.len() == 1), "{}", scene.picture());
    let (mut begun, mut told, mut arrived) = (Vec::new(), Vec::new(), Vec::new());
    for session in &recorded[1..] {
        let id = &session.record.correlation.agent_session_id.as_ref().unwrap().0;
        let switched = switches.at(id);
        let start = Duration::from_millis(u64::try_from(session.record.start_time.0).unwrap());
        begun.push((UNIX_EPOCH + start).duration_since(switched).unwrap_or_default());
        told.push(published.at(id).duration_since(switched).unwrap_or_default());
        let left = session.record.transitioned_from.as_ref().unwrap();
        let both =
            arrivals.at(&session.record.session_id, "session.start").max(arrivals.at(left, "session.end"));
        arrived.push(both.duration_since(switched).unwrap_or_default());
    }
    println!("{transitions} times from the agent's switch");
    report("to the transition's own time", &begun);
    report("to the published file", &told);
    report("to END and START committed at a backend on loopback", &arrived);
}

fn report(what: &str, times: &[Duration]) {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let part = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100) - 1];
    let slowest = times.iter().position(|&time| time == part(100)).unwrap() + 1;
    println!("  {what}: p50 {:?}, p95 {:?}, max {:?} (number {slowest})", part(50), part(95), part(100));
}
