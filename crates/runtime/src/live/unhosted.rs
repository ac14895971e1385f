//! A running session without a host, followed: its state, and its moments as they come.

use std::path::Path;

use super::events::EventLog;
use super::{Sources, TurnFeed, Turns, decide};
use agents::live::TurnMark;
use agents::{Agent, Var};
use pty::process::Processes;
use types::{Activity, AgentSessionId, LiveState, Pid, StateSource, Timestamp};

/// Follows a session by what its agent publishes and by the file of its conversation.
#[derive(Debug)]
pub struct UnhostedWatch {
    feed: TurnFeed,
    log: EventLog,
    state: Option<LiveState>,
}

impl UnhostedWatch {
    pub fn of(agent: &'static dyn Agent) -> Self {
        Self { feed: TurnFeed::of(agent), log: EventLog::of(agent), state: None }
    }

    /// Looks at everything once, and returns the state.
    pub fn look(
        &mut self,
        session: &UnhostedSession<'_>,
        var: Var<'_>,
        processes: &dyn Processes,
        now: Timestamp,
    ) -> &LiveState {
        let Self { feed, log, state } = self;
        let mut last_mark = |file: Option<&std::path::Path>| {
            // A file that cannot be read now is read with the next look.
            let _ = feed.look(file, now, log);
            feed.last().cloned()
        };
        let seen = state_by(session, &mut last_mark, state.as_ref(), var, processes, now);
        log.observe(now, &seen);
        state.insert(seen)
    }

    /// The session has ended.
    pub fn exit(&mut self, now: Timestamp) {
        self.log.exit(now);
    }

    pub fn log(&self) -> &EventLog {
        &self.log
    }

    pub fn state(&self) -> Option<&LiveState> {
        self.state.as_ref()
    }
}

// The state of a session that no host serves, because it runs in somebody's terminal: from what the agent publishes and from the
// end of its conversation, without its screen.

/// A running session without a host.
#[derive(Clone, Copy, Debug)]
pub struct UnhostedSession<'a> {
    pub agent: &'static dyn Agent,
    /// The process that codemie started; `None` where it is not started yet.
    pub pid: Option<Pid>,
    pub conversation: Option<&'a AgentSessionId>,
    pub file: Option<&'a Path>,
    pub started: Timestamp,
}

/// What it does now. A file that cannot be read shows nothing, and is no sign of anything.
pub fn state_from_files(
    session: &UnhostedSession<'_>,
    var: Var<'_>,
    processes: &dyn Processes,
    now: Timestamp,
) -> LiveState {
    let mut turns = Turns::of(session.agent);
    let mut last_mark = |file: Option<&Path>| {
        let _ = turns.look(file);
        turns.last().cloned()
    };
    state_by(session, &mut last_mark, None, var, processes, now)
}

/// The same, where somebody else follows the marks of its turns. `last_mark` is given the file that it is to be found in.
pub(super) fn state_by(
    session: &UnhostedSession<'_>,
    last_mark: &mut dyn FnMut(Option<&Path>) -> Option<TurnMark>,
    before: Option<&LiveState>,
    var: Var<'_>,
    processes: &dyn Processes,
    now: Timestamp,
) -> LiveState {
    let unknown = |why: &str, since| LiveState {
        is: Activity::Unknown,
        since,
        why: why.to_owned(),
        source: Some(StateSource::Process),
    };
    let Some(pid) = session.pid else {
        return unknown("the process of its agent is not known", session.started);
    };
    if processes.start_time(pid).is_none() {
        return unknown("the process of its agent is gone", now);
    }
    let published = session.agent.published(var, pid, processes);
    let in_another = published
        .as_ref()
        .and_then(|published| published.conversation.as_ref())
        .zip(session.conversation)
        .is_some_and(|(published, bound)| published != bound);
    // The end of a conversation that the agent has left says nothing about it.
    let turn = last_mark(session.file.filter(|_| !in_another));
    let sources = Sources {
        published: published.as_ref(),
        turn: turn.as_ref(),
        started: Some(session.started),
        before,
        ..Sources::default()
    };
    decide(&sources, now)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;

    use super::*;
    use agents::claude::Claude;
    use types::StartTime;

    struct Only(Pid);

    impl Processes for Only {
        fn start_time(&self, pid: Pid) -> Option<StartTime> {
            (pid == self.0).then_some(StartTime(7))
        }

        fn parent(&self, _: Pid) -> Option<Pid> {
            None
        }
    }

    #[test]
    fn the_registry_decides_and_the_session_file_dates_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().as_os_str().to_owned();
        let var =
            move |name: &str| -> Option<OsString> { (name == "CLAUDE_CONFIG_DIR").then(|| root.clone()) };
        let file = folder.path().join("c.jsonl");
        let conversation = AgentSessionId("c".into());
        let session = UnhostedSession {
            agent: &Claude,
            pid: Some(Pid(10)),
            conversation: Some(&conversation),
            file: Some(&file),
            started: Timestamp(1),
        };
        let state = |session: &UnhostedSession<'_>| {
            state_from_files(session, &var, &Only(Pid(10)), Timestamp::parse("2026-11-17T11:00:00Z").unwrap())
        };
        let unknown = state(&session);
        assert_eq!((unknown.is, unknown.source), (Activity::Unknown, None));
        let prompt = r#"{"type":"user","timestamp":"2026-11-17T10:00:00.000Z","message":{"role":"user","content":"hi"}}"#;
        fs::write(&file, format!("{prompt}\n")).unwrap();
        let working = state(&session);
        assert_eq!((working.is, working.source), (Activity::Working, Some(StateSource::SessionFile)));
        fs::create_dir(folder.path().join("sessions")).unwrap();
        let entry = |session: &str, status: &str| {
            let text = format!(
                r#"{{"pid":10,"procStart":"7","sessionId":"{session}","statusUpdatedAt":5,{status}}}"#
            );
            fs::write(folder.path().join("sessions/10.json"), text).unwrap();
        };
        entry("c", r#""status":"waiting","waitingFor":"permission prompt""#);
        let waiting = state(&session);
        assert_eq!((waiting.is, waiting.since), (Activity::NeedsInput, Timestamp(5)));
        entry("c", r#""status":"idle""#);
        assert_eq!(state(&session).is, Activity::Working, "the prompt is later");
        entry("d", r#""status":"idle""#);
        assert_eq!(state(&session).is, Activity::Idle, "the prompt is in a conversation that was left");
        let gone = state(&UnhostedSession { pid: Some(Pid(11)), ..session });
        assert_eq!((gone.is, gone.source), (Activity::Unknown, Some(StateSource::Process)));
        assert_eq!(state(&UnhostedSession { pid: None, ..session }).is, Activity::Unknown);
    }
}
