//! What vanished without ending is read to its end and ended, by whichever codemie command comes next.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Follower;
use crate::agent;
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::home::Home;
use crate::process::SystemProcesses;
use crate::session::{self, publish::publish};
use crate::store::{Realm, RunRow, SessionRow, Store};

/// Ends every session whose run is gone. Costs one query when there is none.
pub fn recover(store: &mut Store, home: &Home) -> Result<(), session::Error> {
    let now = SystemClock.now();
    let ended = session::recover::recover(store, &SystemProcesses, &Realm::here(), now, read_to_end)?;
    if !ended.is_empty() {
        publish(store, home, now)?;
    }
    Ok(())
}

/// Meters what is left of a session's files, and says when they last grew.
fn read_to_end(store: &mut Store, run: &RunRow, session: &SessionRow) -> Option<Timestamp> {
    let conversation = session.agent_session.as_ref()?;
    // This command's environment may point the agent elsewhere.
    let var = |name: &str| run.surroundings.get(name).unwrap_or_else(|| std::env::var_os(name));
    let mut trail = agent::by_name(&session.agent)?.trail(&var, &session.place.cwd)?;
    // The file as it was bound comes first: the agent's folder may have been moved.
    let mut files = trail.files(conversation);
    if let Some(file) = session.agent_session_file.as_ref().filter(|file| file.exists())
        && !files.contains(file)
    {
        files.insert(0, file.clone());
    }
    let now = SystemClock.now();
    if let Err(error) = Follower::default().read(store, now, session.id, &*trail, &files) {
        tracing::warn!(session = %session.id, "not read to its end: {error}");
    }
    files.iter().filter_map(|file| modified(file)).max()
}

fn modified(file: &Path) -> Option<Timestamp> {
    let meta = std::fs::metadata(file).ok()?;
    Some(Timestamp(meta.mtime().saturating_mul(1000).saturating_add(meta.mtime_nsec() / 1_000_000)))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;

    use super::*;
    use crate::process::{Pid, ProcessId, StartTime};
    use crate::session::id::{AgentSessionId, Ids, RandomIds};
    use crate::session::lifecycle::{self, Begin, Binding, Conversation, Passage, To};
    use crate::session::state::EvidenceKind;
    use crate::store::{NewRun, Place, Surroundings};

    fn answer(key: &str) -> String {
        let usage = r#"{"input_tokens":1,"output_tokens":2}"#;
        format!(
            r#"{{"type":"assistant","uuid":"{key}","timestamp":"{}","message":{{"id":"{key}","model":"claude-opus-4-8","usage":{usage}}}}}"#,
            SystemClock.now()
        ) + "\n"
    }

    /// A run of Claude whose files are where only its own environment says, killed soon after a `/clear`.
    #[test]
    fn what_was_written_last_is_found_where_the_run_looked() {
        let temporary = tempfile::tempdir().unwrap();
        let (root, cwd) = (temporary.path().join("elsewhere"), temporary.path().join("project"));
        let project = root.join("projects/-project");
        fs::create_dir_all(project.join("one/subagents")).unwrap();
        let home = Home::at(temporary.path().join("home"));
        let mut store = Store::open(&home, SystemClock.now()).unwrap();
        let id = RandomIds.run();
        let begin = Begin {
            run: NewRun {
                id,
                realm: Realm::here(),
                wrapper: ProcessId { pid: Pid(i32::MAX), start: StartTime(1) },
            },
            agent: "claude".into(),
            agent_version: None,
            place: Place { cwd, ..Place::default() },
            conversation: Conversation::Fresh,
            name: None,
            tags: Vec::new(),
            group: None,
            parent: None,
        };
        let mut surroundings = Surroundings::default();
        surroundings.note("CLAUDE_CONFIG_DIR", Some(root.as_os_str()));
        let binding = |id: &str| Binding {
            agent_session: AgentSessionId(id.into()),
            file: None,
            evidence: EvidenceKind::Registry,
        };
        let clear = Passage { to: To::Clear, binding: Some(binding("two")), place: None };
        let (one, two) = store
            .write(|tx| {
                let now = SystemClock.now();
                let first = lifecycle::start(tx, now, &RandomIds, &begin)?.session;
                tx.set_surroundings(id, &surroundings)?;
                lifecycle::bind(tx, now, &RandomIds, first, &binding("one"))?;
                let passed = lifecycle::transition(tx, now, &RandomIds, id, &clear)?;
                Ok::<_, session::Error>((first, passed.new.session))
            })
            .unwrap();
        fs::write(project.join("one.jsonl"), answer("msg_1")).unwrap();
        fs::write(project.join("one/subagents/agent-a1.jsonl"), answer("msg_2")).unwrap();
        fs::write(project.join("two.jsonl"), answer("msg_3")).unwrap();
        recover(&mut store, &home).unwrap();
        let calls = |id| {
            let row = store.read(|view| view.session(id)).unwrap().unwrap();
            store.read(|view| view.totals(row.n)).unwrap().api_calls
        };
        assert_eq!([one, two].map(calls), [2, 1]);
        crate::session::tests::check(store.sql());
    }

    #[test]
    fn surroundings_know_what_was_unset_from_what_nobody_asked() {
        let mut noted = Surroundings::default();
        noted.note("CODEX_HOME", None);
        noted.note("HOME", Some(OsStr::new("/home/dev")));
        assert_eq!(noted.get("CODEX_HOME"), Some(None));
        assert_eq!(noted.get("HOME"), Some(Some("/home/dev".into())));
        assert_eq!(noted.get("OTHER"), None);
    }
}
