//! Continuing a conversation: whether it can be, with which arguments of the agent, who writes to it, and their end.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::conflict::{Conflict, Holder, OnConflict, decide};
use super::stop;
use super::stop::CannotStop;
use crate::remote::address;
use agents::live::Writer;
use agents::{Agent, Conversation, Invocation, Var, registry};
use os::clock::{Clock, SystemClock};
use os::home::Home;
use pty::process::{Processes, SystemProcesses, tree};
use store::session::lifecycle::ConversationStart;
use store::{BootAndPidNs, RunRow, Store};
use types::{AgentSessionId, Pid, ProcessId};

/// How long after the end of everybody who wrote to it a conversation may seem to be in use: registries and locks are removed by
/// processes that are about to go.
const FREE_TIMEOUT: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(50);

/// A session that is to be continued, or a conversation that codemie never wrapped.
#[derive(Clone, Debug)]
pub struct Resumable {
    pub name: String,
    pub agent: String,
    pub conversation: Option<AgentSessionId>,
    pub folder: Option<PathBuf>,
    /// The session's number in the store; `None` for a conversation that codemie never wrapped.
    pub session: Option<i64>,
    /// The runs that are in it by the store.
    pub runs: Vec<RunRow>,
}

/// Why a session cannot be continued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotResumable {
    #[error("{name} ran {program}, which is no agent; there is no conversation to continue")]
    NoAgent { name: String, program: String },
    #[error(
        "{name} was never bound to a conversation of {agent}; there is nothing to continue (`codemie explain` shows why)"
    )]
    NoConversation { name: String, agent: String },
    #[error(
        "{name} has the conversation id {id:?}, which {agent} would not take for one; it cannot be continued"
    )]
    OddId { name: String, agent: String, id: String },
    #[error("codemie does not know how {agent} continues a conversation")]
    NoArguments { agent: String },
}

impl Resumable {
    /// The agent and its conversation.
    pub fn target(&self) -> Result<(&'static dyn Agent, &AgentSessionId), NotResumable> {
        let (name, agent) = (self.name.clone(), self.agent.clone());
        let Some(known) = registry::by_name(&self.agent) else {
            return Err(NotResumable::NoAgent { name, program: agent });
        };
        match &self.conversation {
            None => Err(NotResumable::NoConversation { name, agent }),
            Some(id) if !id.is_plain() => Err(NotResumable::OddId { name, agent, id: id.0.clone() }),
            Some(id) => Ok((known, id)),
        }
    }

    /// Everybody who writes to the conversation now: runs of codemie's first, then processes that it does not run.
    pub fn holders(&self, home: &Home, var: Var<'_>, processes: &dyn Processes) -> Vec<Holder> {
        let here = BootAndPidNs::here();
        let of_run = |run: &RunRow| {
            if stop::lives_elsewhere(run, &here) {
                return Some(Holder::Elsewhere { run: run.id });
            }
            if !stop::lives_here(run, &here, processes) {
                return None;
            }
            if run.is_agents_own() {
                let ProcessId { pid, start } = run.wrapper;
                let what = format!("a background process of the agent's own (pid {pid})");
                return Some(Holder::Service(Writer { pid, start, what, background: true, folder: None }));
            }
            let (run, wrapper) = (run.id, run.wrapper);
            Some(if address::exists(home, run) {
                Holder::Background { run, wrapper }
            } else {
                Holder::Foreground { run, wrapper, terminal: processes.terminal(wrapper.pid) }
            })
        };
        let mut holders: Vec<Holder> = self.runs.iter().filter_map(of_run).collect();
        let living = self.runs.iter().filter(|run| stop::lives_here(run, &here, processes));
        let known: Vec<Pid> = living.map(|run| run.wrapper.pid).collect();
        let Ok((agent, conversation)) = self.target() else { return holders };
        for writer in agent.writers(var, conversation, processes) {
            let of_ours = |wrapper: &Pid| writer.pid == *wrapper || processes.descends(writer.pid, *wrapper);
            if !known.iter().any(of_ours) {
                holders.push(if writer.background { Holder::Service(writer) } else { Holder::Bare(writer) });
            }
        }
        holders
    }

    /// Looks up the runs that are in it by now. The store is closed again: no connection may live through a fork.
    pub fn refresh(&mut self, home: &Home) -> Result<(), store::Error> {
        let mut store = Store::open(home, SystemClock.now())?;
        store.read(|view| {
            // One that codemie never wrapped may have been adopted meanwhile.
            if let (None, Some(conversation)) = (self.session, &self.conversation) {
                let mut adopted = view.sessions_of_agent_session(&conversation.0)?.into_iter();
                self.session = adopted.find(|row| row.agent == self.agent).map(|row| row.n);
            }
            self.runs =
                self.session.map(|session| view.live_runs_in(session)).transpose()?.unwrap_or_default();
            Ok(())
        })
    }
}

/// Whether this process runs below one of them: it cannot end it and go on.
pub fn is_inside(holders: &[Holder], processes: &dyn Processes) -> bool {
    let own = Pid(i32::try_from(std::process::id()).unwrap_or(0));
    holders.iter().filter_map(Holder::process).any(|holder| processes.descends(own, holder.pid))
}

/// The agent's arguments that continue a conversation, or a copy of it.
pub fn arguments(
    agent: &dyn Agent,
    conversation: &AgentSessionId,
    fork: bool,
    further: &[OsString],
) -> Result<Vec<OsString>, NotResumable> {
    let line = agent.resume(conversation, fork);
    let mut line = line.ok_or_else(|| NotResumable::NoArguments { agent: agent.name().to_owned() })?;
    line.extend(further.iter().cloned());
    Ok(line)
}

/// Why a conversation could not be taken over.
#[derive(Debug, thiserror::Error)]
pub enum NotTakenOver {
    #[error("{name} runs {holder} and did not end; end it by hand and try again")]
    StillRunning { name: String, holder: Holder },
    #[error("{name} could not be taken over: {why}")]
    CannotStop { name: String, why: CannotStop },
    /// Somebody else has begun meanwhile.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Ends everybody who writes to a conversation, and waits until it is free: by the store and by the agent's own records.
pub fn take_over(
    wanted: &mut Resumable,
    holders: &[Holder],
    home: &Home,
    var: Var<'_>,
) -> Result<(), NotTakenOver> {
    // All at once: the launcher of Gemini CLI ends only with the process it has started.
    for holder in holders {
        if let Holder::Bare(writer) = holder {
            tree::signal(writer.process(), &SystemProcesses, tree::TERMINATE);
            tree::signal(writer.process(), &SystemProcesses, tree::CONTINUE);
        }
    }
    for holder in holders {
        if !end(wanted, holder, home)? {
            return Err(NotTakenOver::StillRunning { name: wanted.name.clone(), holder: holder.clone() });
        }
    }
    let deadline = Instant::now() + FREE_TIMEOUT;
    loop {
        wanted.refresh(home)?;
        let left = wanted.holders(home, var, &SystemProcesses);
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            decide(OnConflict::Fail, &wanted.name, left, false)?;
        }
        std::thread::sleep(POLL);
    }
}

/// Ends one of them; false if it is still there. A process that codemie does not run has been asked, and is never forced.
fn end(wanted: &Resumable, holder: &Holder, home: &Home) -> Result<bool, NotTakenOver> {
    match holder {
        Holder::Background { run, .. } | Holder::Foreground { run, .. } => {
            let Some(run) = wanted.runs.iter().find(|row| row.id == *run) else { return Ok(true) };
            let survivors = stop::stop(home, run, &wanted.agent, stop::GRACE)
                .map_err(|why| NotTakenOver::CannotStop { name: wanted.name.clone(), why })?;
            Ok(survivors.is_empty())
        }
        Holder::Bare(writer) => Ok(stop::gone_within(writer.process(), stop::GRACE)),
        Holder::Elsewhere { .. } | Holder::Service(_) => Ok(false),
    }
}

// Which conversation the agent's arguments continue, and what that means for the session's life.

/// `assigned`: codemie put the conversation's id into the arguments.
pub(super) fn conversation(invocation: &Invocation, assigned: bool) -> ConversationStart {
    match &invocation.session {
        // Beside a flag that codemie does not know, even a fresh conversation is not certain.
        Conversation::Fresh if !assigned && !invocation.injectable => ConversationStart::Unsure,
        Conversation::Fresh | Conversation::Chosen(_) => ConversationStart::Fresh,
        Conversation::Named(id) => ConversationStart::Named(id.clone()),
        Conversation::Continue | Conversation::Picker => ConversationStart::Unnamed,
        Conversation::Fork { .. } | Conversation::Unknown => ConversationStart::Unsure,
    }
}

/// The id that the user chose for a conversation that is new, or a new copy.
pub(super) fn chosen(invocation: &Invocation) -> Option<AgentSessionId> {
    match &invocation.session {
        Conversation::Chosen(id) | Conversation::Fork { to: Some(id), .. } => Some(id.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::process_table::ProcessTable;
    use store::EnvSnapshot;
    use types::{Ids, RandomIds, StartTime, Timestamp};

    fn resumable(agent: &str, conversation: Option<&str>) -> Resumable {
        Resumable {
            name: "fix-auth".into(),
            agent: agent.into(),
            conversation: conversation.map(|id| AgentSessionId(id.into())),
            folder: None,
            session: None,
            runs: Vec::new(),
        }
    }

    #[test]
    fn only_a_known_conversation_of_an_agent_is_continued() {
        let id = "7a276c6b-0000-4000-8000-000000000003";
        for (agent, conversation, expected) in [
            ("claude", Some(id), None),
            ("make", None, Some("is no agent")),
            ("claude", None, Some("never bound")),
            ("claude", Some("--help me"), Some("cannot be continued")),
        ] {
            let wanted = resumable(agent, conversation);
            let refused = wanted.target().err().map(|error| error.to_string());
            match (&refused, expected) {
                (None, None) => {}
                (Some(refused), Some(expected)) => assert!(refused.contains(expected), "{refused}"),
                _ => panic!("{agent} {conversation:?}: {refused:?}"),
            }
        }
    }

    /// A folder of Claude's with registered processes.
    struct Scene {
        folder: tempfile::TempDir,
        wanted: Resumable,
    }

    const ID: &str = "7a276c6b-0000-4000-8000-000000000003";

    impl Scene {
        fn new(registered: &[(i32, &str)], runs: &[(i32, BootAndPidNs)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(folder.path().join("claude/sessions")).unwrap();
            for (pid, kind) in registered {
                let entry = format!(r#"{{"pid":{pid},"sessionId":"{ID}","procStart":"7","kind":"{kind}"}}"#);
                std::fs::write(folder.path().join(format!("claude/sessions/{pid}.json")), entry).unwrap();
            }
            let run = |(pid, realm): &(i32, BootAndPidNs)| RunRow {
                n: i64::from(*pid),
                id: RandomIds.run(),
                realm: realm.clone(),
                wrapper: ProcessId { pid: Pid(*pid), start: StartTime(7) },
                agent: None,
                started_at: Timestamp(0),
                ended_at: None,
                session: None,
                surroundings: EnvSnapshot::default(),
                proxied: false,
            };
            let runs = runs.iter().map(run).collect();
            Self { folder, wanted: Resumable { runs, ..resumable("claude", Some(ID)) } }
        }

        fn home(&self) -> Home {
            Home::at(self.folder.path().join("home"))
        }

        fn holders(&self, processes: &ProcessTable) -> Vec<String> {
            let claude = self.folder.path().join("claude").into_os_string();
            let var = |name: &str| (name == "CLAUDE_CONFIG_DIR").then(|| claude.clone());
            let holders = self.wanted.holders(&self.home(), &var, processes);
            holders.iter().map(ToString::to_string).collect()
        }
    }

    #[test]
    fn everybody_who_writes_to_a_conversation_is_found_once() {
        let here = BootAndPidNs::here;
        let mut table = ProcessTable::new(&[
            (10, 7, "codemie"),
            (11, 7, "claude"),
            (20, 7, "codemie"),
            (30, 7, "claude"),
            (40, 7, "claude"),
        ]);
        table.adopt(11, 10);
        let registered = [(11, "interactive"), (30, "interactive"), (40, "bg")];
        let scene = Scene::new(&registered, &[(10, here()), (20, here()), (99, here())]);
        let host = address::bind(&scene.home(), scene.wanted.runs[1].id).unwrap();
        assert_eq!(
            scene.holders(&table),
            [
                "in the foreground (pid 10)",
                "in the background (pid 20)",
                "without codemie: claude (pid 30)",
                "in a background process of Claude Code (pid 40)",
            ],
            "11 is what the first of them runs, and the wrapper 99 is gone"
        );
        drop(host);
        let mut forked = Scene::new(&registered, &[(40, here())]);
        forked.wanted.runs[0].agent = Some(Pid(40));
        let seen = forked.holders(&table);
        assert_eq!(seen.iter().filter(|holder| holder.contains("pid 40")).count(), 1, "{seen:?}");
        assert!(seen[0].starts_with("in a background process of the agent's own"), "{seen:?}");
        assert_eq!(Scene::new(&registered, &[]).holders(&ProcessTable::new(&[])), [""; 0]);
    }

    #[test]
    fn a_run_of_another_container_may_live_and_one_of_another_boot_does_not() {
        let table = ProcessTable::new(&[(10, 7, "codemie")]);
        let container = BootAndPidNs { pids: "another".into(), ..BootAndPidNs::here() };
        let rebooted = BootAndPidNs { boot: "another".into(), ..BootAndPidNs::here() };
        let holders = Scene::new(&[], &[(10, container)]).holders(&table);
        assert_eq!(holders, ["in another container that shares codemie's home"]);
        assert_eq!(Scene::new(&[], &[(10, rebooted)]).holders(&table), [""; 0]);
    }

    #[test]
    fn a_bare_agent_is_asked_to_end_and_one_that_stays_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let start = |script: &str| {
            let mut shell = std::process::Command::new("sh");
            let mut child = shell.args(["-c", script]).stdout(std::process::Stdio::piped()).spawn().unwrap();
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
            child
        };
        let bare = |child: &std::process::Child| {
            let pid = Pid(i32::try_from(child.id()).unwrap());
            let start = SystemProcesses.start_time(pid).unwrap();
            Holder::Bare(Writer { pid, start, what: "claude".into(), background: false, folder: None })
        };
        let mut polite = start("echo; kill -STOP $$; exec sleep 600");
        let holder = bare(&polite);
        let waiting = std::thread::spawn(move || polite.wait());
        take_over(&mut resumable("claude", Some(ID)), &[holder], &home, &|_| None).unwrap();
        waiting.join().unwrap().unwrap();
        // Another process has the pid by now: it is not asked.
        let mut stranger = start("echo; exec sleep 600");
        let Holder::Bare(writer) = bare(&stranger) else { unreachable!() };
        let before = Holder::Bare(Writer { start: StartTime(writer.start.0 - 1), ..writer });
        take_over(&mut resumable("claude", Some(ID)), &[before], &home, &|_| None).unwrap();
        assert_eq!(stranger.try_wait().unwrap(), None);
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        let service = Holder::Elsewhere { run: RandomIds.run() };
        let refused = take_over(&mut resumable("claude", Some(ID)), &[service], &home, &|_| None);
        assert!(matches!(refused, Err(NotTakenOver::StillRunning { .. })), "{refused:?}");
    }

    #[test]
    fn the_arguments_of_the_user_follow_those_of_the_agent() {
        let id = AgentSessionId("7a276c6b".into());
        let agent = registry::called("claude").unwrap();
        for (fork, expected) in
            [(false, "--resume 7a276c6b -p hi"), (true, "--resume 7a276c6b --fork-session -p hi")]
        {
            let line = arguments(agent, &id, fork, &["-p".into(), "hi".into()]).unwrap();
            let line: Vec<&str> = line.iter().map(|arg| arg.to_str().unwrap()).collect();
            assert_eq!(line.join(" "), expected);
        }
    }
}

#[cfg(test)]
mod continuation_tests {
    use super::*;
    use agents::InvocationKind;

    fn invocation(session: Conversation, injectable: bool) -> Invocation {
        Invocation {
            kind: InvocationKind::Interactive,
            session,
            injectable,
            persistent: true,
            prompts: false,
        }
    }

    fn id() -> AgentSessionId {
        AgentSessionId("22222222-2222-4222-8222-222222222222".into())
    }

    #[test]
    fn an_id_the_user_chose_counts_like_one_of_ours() {
        for (session, expected) in [
            (Conversation::Chosen(id()), Some(id())),
            (Conversation::Fork { from: None, to: Some(id()) }, Some(id())),
            (Conversation::Fork { from: Some(id()), to: None }, None),
            (Conversation::Named(id()), None),
            (Conversation::Fresh, None),
        ] {
            let invocation = invocation(session, false);
            assert_eq!(chosen(&invocation), expected, "{invocation:?}");
        }
    }

    #[test]
    fn a_conversation_is_fresh_only_where_the_arguments_leave_no_doubt() {
        for (session, injectable, assigned, expected) in [
            (Conversation::Fresh, true, true, ConversationStart::Fresh),
            (Conversation::Fresh, true, false, ConversationStart::Fresh),
            (Conversation::Fresh, false, false, ConversationStart::Unsure),
            (Conversation::Chosen(id()), false, false, ConversationStart::Fresh),
            (Conversation::Named(id()), false, false, ConversationStart::Named(id())),
            (Conversation::Continue, false, false, ConversationStart::Unnamed),
            (Conversation::Picker, false, false, ConversationStart::Unnamed),
            (Conversation::Fork { from: None, to: None }, false, false, ConversationStart::Unsure),
            (Conversation::Unknown, false, false, ConversationStart::Unsure),
        ] {
            let invocation = invocation(session, injectable);
            assert_eq!(conversation(&invocation, assigned), expected, "{invocation:?} {assigned}");
        }
    }
}
