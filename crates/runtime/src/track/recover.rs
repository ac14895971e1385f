//! Runs that vanished without an END: their sessions are read to the end and ended, by whichever codemie command comes next.

use std::cell::LazyCell;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pricing::PriceList;

use super::exit_note;
use super::follow::{Follower, News, read_title};
use crate::remote::address;
use agents::Observer;
use agents::registry;
use config::prices::price_list;
use os::clock::{Clock, SystemClock};
use os::file::modified;
use os::home::{Home, own_var};
use pty::process::{Processes, SystemProcesses};
use store::session::{self, publish::publish};
use store::{self, BootAndPidNs, RunRow, SessionRow, Store, View};
use types::{Pid, Timestamp};

/// How long after a session was broken off its files are looked at. Codex and Gemini are started by a launcher: where that is
/// killed, the agent itself may live on and answer what it was asked.
const AFTERWARDS: Duration = Duration::from_hours(1);

/// The same for one that was given to the agent's background service, which goes on with it whenever somebody asks. Why 30 days:
/// Claude Code deletes its files then.
const IN_BACKGROUND: Duration = Duration::from_hours(30 * 24);

/// A socket of a run that the store does not know may be that of a host that has just begun. After this long it is not: it stays
/// only if somebody listens there, as a host does whose store was set aside.
const UNKNOWN_SOCKET: Duration = Duration::from_hours(24);

/// Ends every session whose run is gone. Costs two queries and three listings when there is none.
pub fn recover(store: &mut Store, home: &Home) -> Result<(), session::Error> {
    // Without a free descriptor no process can be looked up, and every run would look gone, our own among them.
    if SystemProcesses.start_time(Pid(std::process::id().cast_signed())).is_none() {
        tracing::warn!("processes cannot be looked up now: no run is taken for gone");
        return Ok(());
    }
    let now = SystemClock.now();
    // Before sessions are ended: their ENDs count them.
    let left = session::journal::take_in(store, home, now)?;
    let noted = |run: &RunRow| exit_note::find(home, run.id);
    // Looked up when something is to be read, which is rare.
    let prices = LazyCell::new(|| Arc::new(price_list(&home.config_file())));
    let to_end = |store: &mut Store, run: &RunRow, session: &SessionRow| {
        read_to_end(store, run, session, || Arc::clone(&prices))
    };
    let ended =
        session::recover::recover(store, &SystemProcesses, &BootAndPidNs::here(), now, noted, to_end)?;
    store.read(|view| {
        exit_note::sweep(home, view, now)?;
        remove_sockets(home, view, now)
    })?;
    if read_afterwards(store, now, to_end)? || !ended.is_empty() || left > 0 {
        publish(store, home, now)?;
    }
    Ok(())
}

/// Removes the sockets of hosts that are gone. Nothing is asked of a process and none is touched: a host that lives keeps its own,
/// also one that is stopped or does not answer, and one whose START is not stored yet.
fn remove_sockets(home: &Home, view: &View<'_>, now: Timestamp) -> Result<(), store::Error> {
    let here = BootAndPidNs::here();
    address::sweep(home, |run, socket| {
        let made = || fs::symlink_metadata(socket).map(|meta| modified(&meta));
        Ok(match view.run(run)? {
            Some(row) => session::recover::gone(&row, &SystemProcesses, &here),
            None => {
                made().is_ok_and(|made| now.since(made) > UNKNOWN_SOCKET) && !address::is_served(home, run)
            }
        })
    })
}

/// Reads lines that were written after such a session had ended, and amends its END. Returns whether there were any.
fn read_afterwards(
    store: &mut Store,
    now: Timestamp,
    to_end: impl Fn(&mut Store, &RunRow, &SessionRow) -> Result<Option<Timestamp>, session::Error>,
) -> Result<bool, session::Error> {
    let ago =
        |time: Duration| Timestamp(now.0.saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)));
    let mut grown = false;
    for session in store.read(|view| view.broken_off_since(ago(AFTERWARDS), ago(IN_BACKGROUND)))? {
        let Some(run) = session.run.map(|run| store.read(|view| view.run_number(run))).transpose()?.flatten()
        else {
            continue;
        };
        let Some((_, files)) = files_of(&run, &session) else { continue };
        let written = files.iter().filter_map(|file| Some(modified(&fs::metadata(file).ok()?))).max();
        if written > session.ended_at {
            to_end(store, &run, &session)?;
            grown = true;
        }
    }
    Ok(grown)
}

/// Meters a session's files from where the last reader stopped, and returns when they last grew. An error if that is to be done
/// another time.
fn read_to_end(
    store: &mut Store,
    run: &RunRow,
    session: &SessionRow,
    prices: impl FnOnce() -> Arc<PriceList>,
) -> Result<Option<Timestamp>, session::Error> {
    let Some((mut observer, files)) = files_of(run, session) else { return Ok(None) };
    let now = SystemClock.now();
    let read =
        Follower::pricing(prices()).read(store, now, session.id, &*observer, &files, &mut News::default());
    let title = |store: &mut Store, observer: &mut dyn Observer| match &session.agent_session {
        Some(conversation) => read_title(store, session.id, observer, conversation),
        None => Ok(()),
    };
    match read.and_then(|()| title(store, &mut *observer)) {
        Err(error) if error.may_pass() => return Err(error),
        Err(error) => tracing::warn!(session = %session.id, "not read to its end: {error}"),
        Ok(()) => {}
    }
    Ok(files.iter().filter_map(|file| Some(modified(&fs::metadata(file).ok()?))).max())
}

fn files_of(run: &RunRow, session: &SessionRow) -> Option<(Box<dyn Observer>, Vec<PathBuf>)> {
    let conversation = session.agent_session.as_ref()?;
    // This command's environment may point the agent elsewhere.
    let var = |name: &str| run.surroundings.get(name).unwrap_or_else(|| own_var(name));
    let mut observer = registry::by_name(&session.agent)?.observer(&var, &session.workspace.cwd)?;
    let mut files = observer.files(conversation);
    // The file as it was bound, if the agent's folder has been moved since.
    if let Some(file) = session.agent_session_file.as_ref().filter(|file| file.is_file())
        && !files.contains(file)
    {
        files.insert(0, file.clone());
    }
    Some((observer, files))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;

    use super::*;
    use pty::process::Processes;
    use store::session::lifecycle::{self, Binding, ConversationStart, RunStart, Transition};
    use store::{EnvSnapshot, NewRun, Workspace};
    use types::EvidenceKind;
    use types::TransitionKind;
    use types::{AgentSessionId, Ids, RandomIds, RunId, SessionId};
    use types::{Pid, ProcessId, StartTime};

    fn answer(key: &str) -> String {
        let usage = r#"{"input_tokens":1,"output_tokens":2}"#;
        format!(
            r#"{{"type":"assistant","uuid":"{key}","timestamp":"{}","message":{{"id":"{key}","model":"claude-opus-4-8","usage":{usage}}}}}"#,
            SystemClock.now()
        ) + "\n"
    }

    /// A run of Claude whose files are where only its own environment says, killed soon after a `/clear`.
    struct Killed {
        home: Home,
        store: Store,
        one: SessionId,
        two: SessionId,
        project: PathBuf,
        _temporary: tempfile::TempDir,
    }

    fn begin(id: RunId, wrapper: ProcessId, cwd: PathBuf) -> RunStart {
        RunStart {
            run: NewRun { id, realm: BootAndPidNs::here(), wrapper, proxied: false },
            agent: "claude".into(),
            local_only: false,
            agent_version: None,
            workspace: Workspace { cwd, ..Workspace::default() },
            conversation: ConversationStart::Fresh,
            name: None,
            tags: Vec::new(),
            group: None,
            parent: None,
        }
    }

    fn killed() -> Killed {
        let temporary = tempfile::tempdir().unwrap();
        let (root, cwd) = (temporary.path().join("elsewhere"), temporary.path().join("project"));
        let project = root.join("projects/-project");
        fs::create_dir_all(project.join("one/subagents")).unwrap();
        let home = Home::at(temporary.path().join("home"));
        let mut store = Store::open(&home, SystemClock.now()).unwrap();
        let id = RandomIds.run();
        let begin = begin(id, ProcessId { pid: Pid(i32::MAX), start: StartTime(1) }, cwd);
        let mut surroundings = EnvSnapshot::default();
        surroundings.note("CLAUDE_CONFIG_DIR", Some(root.as_os_str()));
        let binding = |id: &str| Binding {
            agent_session: AgentSessionId(id.into()),
            file: None,
            evidence: EvidenceKind::Registry,
        };
        let clear =
            Transition { kind: TransitionKind::Clear, binding: Some(binding("two")), workspace: None };
        let (one, two) = store
            .write(|tx| {
                let now = SystemClock.now();
                let first = lifecycle::start(tx, now, &RandomIds, &begin)?.session;
                tx.set_surroundings(id, &surroundings)?;
                lifecycle::bind(tx, now, &RandomIds, first, &binding("one"))?;
                let result = lifecycle::transition(tx, now, &RandomIds, id, &clear)?;
                Ok::<_, session::Error>((first, result.new.session))
            })
            .unwrap();
        fs::write(project.join("one.jsonl"), answer("msg_1")).unwrap();
        fs::write(project.join("one/subagents/agent-a1.jsonl"), answer("msg_2")).unwrap();
        fs::write(project.join("two.jsonl"), answer("msg_3")).unwrap();
        Killed { home, store, one, two, project, _temporary: temporary }
    }

    impl Killed {
        /// Calls, and whether it has ended.
        fn recorded(&mut self) -> [(i64, bool); 2] {
            [self.one, self.two].map(|id| {
                let row = self.store.read(|view| view.session(id)).unwrap().unwrap();
                let totals = self.store.read(|view| view.totals(row.n)).unwrap();
                (totals.calls.api_calls, row.ended_at.is_some())
            })
        }
    }

    #[test]
    fn the_last_lines_are_found_where_the_run_looked() {
        let mut killed = killed();
        recover(&mut killed.store, &killed.home).unwrap();
        assert_eq!(killed.recorded(), [(2, true), (1, true)]);
        store::session::testing::check(killed.store.sql());
    }

    #[test]
    fn sockets_of_hosts_that_are_gone_are_removed_and_those_of_the_living_stay() {
        let mut killed = killed();
        let dead = killed.store.read(|view| view.live_runs()).unwrap()[0].id;
        let mut host = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid(i32::try_from(host.id()).unwrap());
        // A host that is stopped does not answer, and lives.
        let wrapper = SystemProcesses.identify(pid).unwrap();
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid.0).unwrap(),
            rustix::process::Signal::STOP,
        )
        .unwrap();
        let living = RandomIds.run();
        let begin = begin(living, wrapper, PathBuf::new());
        let session =
            killed.store.write(|tx| lifecycle::start(tx, SystemClock.now(), &RandomIds, &begin)).unwrap();
        let starting = RandomIds.run();
        let sockets = [dead, living, starting].map(|run| address::bind(&killed.home, run).unwrap());
        recover(&mut killed.store, &killed.home).unwrap();
        let there = [dead, living, starting].map(|run| address::exists(&killed.home, run));
        assert_eq!(there, [false, true, true]);
        let row = killed.store.read(|view| view.session(session.session)).unwrap().unwrap();
        assert_eq!(row.ended_at, None);
        assert!(SystemProcesses.alive(wrapper), "nothing was done to it");
        let tomorrow = Timestamp(SystemClock.now().0 + 25 * 3_600_000);
        let later = |killed: &mut Killed| {
            killed.store.read(|view| remove_sockets(&killed.home, view, tomorrow)).unwrap();
            address::exists(&killed.home, starting)
        };
        assert!(later(&mut killed), "unknown for a day, and it lives");
        drop(sockets);
        assert!(!later(&mut killed), "nobody listens any more");
        host.kill().unwrap();
        host.wait().unwrap();
        recover(&mut killed.store, &killed.home).unwrap();
        assert!(!address::exists(&killed.home, living));
    }

    /// Its launcher was killed, the agent itself was not.
    #[test]
    fn lines_written_after_a_run_was_ended_are_counted() {
        let mut killed = killed();
        recover(&mut killed.store, &killed.home).unwrap();
        let file = killed.project.join("two.jsonl");
        fs::write(&file, answer("msg_3") + &answer("msg_4")).unwrap();
        let now = u64::try_from(SystemClock.now().0).unwrap();
        let later = std::time::UNIX_EPOCH + Duration::from_millis(now + 1_000);
        fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
        for _ in 0..2 {
            recover(&mut killed.store, &killed.home).unwrap();
            assert_eq!(killed.recorded(), [(2, true), (2, true)]);
        }
        store::session::testing::check(killed.store.sql());
    }

    #[test]
    fn lines_that_a_locked_store_does_not_take_are_left_to_the_next_command() {
        let mut killed = killed();
        let other = Store::open(&killed.home, SystemClock.now()).unwrap();
        other.sql().execute_batch("BEGIN IMMEDIATE").unwrap();
        killed.store.sql().busy_timeout(Duration::ZERO).unwrap();
        let now = SystemClock.now();
        let mut other = Some(other);
        session::recover::recover(
            &mut killed.store,
            &SystemProcesses,
            &BootAndPidNs::here(),
            now,
            |_| None,
            |store, run, row| {
                let read = read_to_end(store, run, row, Arc::default);
                other = None; // the END would find it free
                read
            },
        )
        .unwrap_err();
        assert_eq!(killed.recorded(), [(0, true), (0, false)]);
        recover(&mut killed.store, &killed.home).unwrap();
        assert_eq!(killed.recorded(), [(2, true), (1, true)]);
    }

    #[test]
    fn an_unset_variable_is_not_one_that_nobody_asked_for() {
        let mut noted = EnvSnapshot::default();
        noted.note("CODEX_HOME", None);
        noted.note("HOME", Some(OsStr::new("/home/dev")));
        assert_eq!(noted.get("CODEX_HOME"), Some(None));
        assert_eq!(noted.get("HOME"), Some(Some("/home/dev".into())));
        assert_eq!(noted.get("OTHER"), None);
    }
}
