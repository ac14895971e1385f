//! What running sessions do now.
//!
//! A host knows it of the session it serves; of one in somebody's terminal the agent's files show it. Promises: hosts are asked
//! all at once, and one that does not answer in time is done without; sessions that have ended cost nothing.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use agents::registry;
use os::home::Home;
use pty::process::SystemProcesses;
use runtime::launch::Origin;
use runtime::live::{UnhostedSession, state_from_files};
use runtime::remote::protocol::{FromHost, ToHost};
use runtime::remote::{Connection, address};
use store::{self, View};
use types::{Activity, AgentSessionId, LiveState, Pid, RunId, SessionRecord, Timestamp};

/// How long all hosts together may take. They answer from memory, within a millisecond; this bounds one that is stopped.
const HOSTS_TIMEOUT: Duration = Duration::from_millis(300);

/// A session that runs, as far as its state depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningSession {
    agent: String,
    run: Option<RunId>,
    pid: Option<Pid>,
    conversation: Option<AgentSessionId>,
    file: Option<PathBuf>,
    started: Timestamp,
}

impl RunningSession {
    /// `None` for one that has ended.
    pub fn of(record: &SessionRecord) -> Option<Self> {
        let correlation = &record.correlation;
        record.end_time.is_none().then(|| Self {
            agent: record.agent.clone(),
            run: record.run_id,
            pid: record.pid,
            conversation: correlation.agent_session_id.clone(),
            file: correlation.agent_session_file.as_ref().map(PathBuf::from),
            started: record.start_time,
        })
    }

    /// Those with these numbers in the store, in the same order.
    pub fn numbered(view: &View<'_>, numbers: &[i64]) -> Result<Vec<Option<Self>>, store::Error> {
        let rows = numbers.iter().map(|n| view.session_number(*n)).collect::<Result<Vec<_>, _>>()?;
        let known: Vec<_> = rows.iter().flatten().cloned().collect();
        let runs = view.processes_of(&known)?;
        let running = rows.into_iter().map(|row| {
            let row = row.filter(|row| row.ended_at.is_none())?;
            let run = row.run.and_then(|run| runs.get(&run));
            Some(Self {
                agent: row.agent,
                run: run.map(|run| run.id),
                pid: run.and_then(|run| run.agent),
                conversation: row.agent_session,
                file: row.agent_session_file,
                started: row.started_at,
            })
        });
        Ok(running.collect())
    }

    /// The run it is in.
    pub fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Where a change shows that it may do something else now; nothing for a program that is no agent. The agent's own files are
    /// sought from `origin`.
    pub fn watched(&self, origin: &Origin, folder: &Path) -> Vec<PathBuf> {
        let var = |name: &str| origin.var(name);
        let observer = registry::by_name(&self.agent).and_then(|agent| agent.observer(&var, folder));
        let of_agent = observer.map(|observer| observer.watched()).unwrap_or_default();
        of_agent.into_iter().chain(self.file.clone()).collect()
    }

    fn state_in_files(&self, origin: &Origin, now: Timestamp) -> LiveState {
        let Some(agent) = registry::by_name(&self.agent) else {
            let why = format!("{} is no agent: only it knows what it does", self.agent);
            return LiveState { is: Activity::Unknown, since: self.started, why, source: None };
        };
        let session = UnhostedSession {
            agent,
            pid: self.pid,
            conversation: self.conversation.as_ref(),
            file: self.file.as_deref(),
            started: self.started,
        };
        state_from_files(&session, &|name| origin.var(name), &SystemProcesses, now)
    }
}

/// Whose sessions are asked about, from where and when.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub home: &'a Home,
    pub origin: &'a Origin,
    pub now: Timestamp,
}

impl Asked<'_> {
    /// Adds the states of those that run.
    pub fn fill(&self, records: &mut [SessionRecord]) {
        let sessions: Vec<_> = records.iter().map(RunningSession::of).collect();
        for (record, state) in records.iter_mut().zip(self.states(&sessions)) {
            record.state = state;
        }
    }

    /// The states of these, in the same order; `None` for those that have ended.
    pub fn states(&self, sessions: &[Option<RunningSession>]) -> Vec<Option<LiveState>> {
        let running = |session: &Option<RunningSession>| {
            session.as_ref().map(|session| (session.clone(), session.run.and_then(|run| self.ask(run))))
        };
        // All are asked before the first answer is waited for.
        let asked: Vec<_> = sessions.iter().map(running).collect();
        let deadline = Instant::now() + HOSTS_TIMEOUT;
        let state = |(session, answer): (RunningSession, Option<Receiver<LiveState>>)| {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = answer.and_then(|answer| answer.recv_timeout(left).ok());
            answer.unwrap_or_else(|| session.state_in_files(self.origin, self.now))
        };
        asked.into_iter().map(|asked| asked.map(state)).collect()
    }

    /// Asks the host of a run in a thread of its own, which may stay behind: even connecting to a host that is stopped can block.
    /// `None`: it has none.
    fn ask(&self, run: RunId) -> Option<Receiver<LiveState>> {
        if !address::exists(self.home, run) {
            return None;
        }
        let (answered, answer) = channel();
        let home = self.home.clone();
        let asking = thread::Builder::new().name("state".to_owned()).spawn(move || {
            let state = Connection::open(&home, run)
                .and_then(|mut connection| connection.ask(&ToHost::State, Duration::ZERO));
            if let Ok(FromHost::State(state)) = state {
                let _ = answered.send(state);
            }
        });
        asking.ok().map(|_| answer)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;
    use runtime::remote::address::bind;
    use runtime::remote::frames::{Frame, Frames};
    use runtime::remote::protocol::Welcome;
    use types::StateSource;

    fn session(run: Option<RunId>) -> RunningSession {
        RunningSession {
            agent: "claude".into(),
            run,
            pid: None,
            conversation: None,
            file: None,
            started: Timestamp(1),
        }
    }

    /// Answers one client as a host does.
    fn serve(listener: &UnixListener, state: &LiveState) {
        let (mut stream, _) = listener.accept().unwrap();
        let mut frames = Frames::default();
        let mut bytes = [0; 1024];
        loop {
            while let Some(message) = frames.take_next::<ToHost>().unwrap() {
                let answer = match message {
                    ToHost::State => FromHost::State(state.clone()),
                    _ => FromHost::Welcome(Welcome::default()),
                };
                stream.write_all(&answer.to_bytes()).unwrap();
            }
            match stream.read(&mut bytes).unwrap() {
                0 => return,
                count => frames.add(&bytes[..count]),
            }
        }
    }

    #[test]
    fn hosts_are_asked_and_a_silent_one_is_done_without() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let run = |n: u128| RunId(uuid::Uuid::from_u128(n));
        let working = LiveState {
            is: Activity::Working,
            since: Timestamp(5),
            why: "an answer streams".into(),
            source: Some(StateSource::Screen),
        };
        let (good, silent) = (bind(&home, run(1)).unwrap(), bind(&home, run(2)).unwrap());
        let expected = working.clone();
        let serving = thread::spawn(move || serve(&good, &working));
        let origin = Origin::given([], "/".into());
        let asked = Asked { home: &home, origin: &origin, now: Timestamp(9) };
        let began = Instant::now();
        let [quiet, served, gone, none] =
            [Some(run(2)), Some(run(1)), Some(run(3)), None].map(|run| Some(session(run)));
        let sessions = [quiet, served, None, gone, none];
        let states = asked.states(&sessions);
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        assert_eq!(states[1].as_ref(), Some(&expected));
        assert_eq!(states[2], None);
        for at in [0, 3, 4] {
            assert_eq!(states[at].as_ref().map(|state| state.is), Some(Activity::Unknown), "{at}");
        }
        drop(silent);
        serving.join().unwrap();
    }
}
