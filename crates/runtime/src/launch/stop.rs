//! The end of a run that somebody else started: its agent, everything the agent started, and its wrapper or host.
//!
//! A host is asked over its socket and ends its tree itself; that it is gone is proved by its answer alone, so the tree is watched
//! meanwhile, and what a host leaves that ends without an answer is ended here. The wrapper of a terminal, and a host that does not answer (stopped,
//! hung, of an unknown build), is asked by a marked TERM; what is there afterwards is ended by signals. Only processes that were
//! seen below the wrapper are ended, by pid and start time, and none that the agent shares with its other sessions.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use crate::remote::protocol::{FromHost, StopAnswer, StopRequest, ToHost};
use crate::remote::{Connection, RemoteError, address};
use crate::track;
use agents::registry;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use pty::process;
use pty::process::tree::{self, Excluded, Tree};
use pty::process::{Processes, SystemProcesses};
use store::{BootAndPidNs, RunRow, Store};
use types::{Pid, ProcessId};

/// How long the agent has by default. Claude was measured at 2.6 s while it streams.
pub const GRACE: Duration = Duration::from_secs(10);

/// How long a host may take to kill what is left, and to verify that it is gone.
const KILLING: Duration = Duration::from_secs(5);

/// How long a wrapper whose agent has ended may take to store the END and to go. It waits two seconds for the store.
const CLOSING: Duration = Duration::from_secs(5);

/// How long leftovers of a run whose wrapper has gone may take: they had the grace of the agent already.
const LEFTOVERS: Duration = Duration::from_secs(1);

const POLL: Duration = Duration::from_millis(20);

/// Why a run cannot be stopped from here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotStop {
    #[error("it runs in another container that shares codemie's home; stop it there")]
    Elsewhere,
    #[error(
        "it goes on in a background process of the agent's own (pid {0}); end it with the agent's commands"
    )]
    AgentsOwn(Pid),
    #[error("its host refuses: {0}")]
    Refused(String),
}

/// Whether a run's wrapper is a process that can be seen from here, and lives.
pub fn lives_here(run: &RunRow, here: &BootAndPidNs, processes: &dyn Processes) -> bool {
    run.realm == *here && processes.alive(run.wrapper)
}

/// Whether it may live where it cannot be seen.
pub fn lives_elsewhere(run: &RunRow, here: &BootAndPidNs) -> bool {
    run.realm.boot == here.boot && run.realm.pids != here.pids
}

/// Stops a run of the agent called `agent` and waits until everything is gone. Returns what survived, as people know it.
pub fn stop(home: &Home, run: &RunRow, agent: &str, grace: Duration) -> Result<Vec<String>, CannotStop> {
    let here = BootAndPidNs::here();
    let elsewhere = lives_elsewhere(run, &here);
    if !elsewhere && !lives_here(run, &here, &SystemProcesses) {
        return Ok(Vec::new());
    }
    if run.is_agents_own() {
        return Err(CannotStop::AgentsOwn(run.wrapper.pid));
    }
    let excluded = is_shared(agent);
    // The command that stops its own session must not end itself before it has done its work.
    let own = Pid(i32::try_from(std::process::id()).unwrap_or(0));
    let mut seen = if elsewhere { None } else { Some(tree_of(home, run.wrapper, &excluded).sparing(own)) };
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask_host(home, run, grace));
        while let Some(tree) = seen.as_mut().filter(|_| !asking.is_finished()) {
            std::thread::sleep(POLL);
            tree.look(&SystemProcesses, &excluded);
        }
        asking.join().unwrap_or(Answer::None)
    });
    let ended = matches!(answer, Answer::Ended);
    match answer {
        Answer::Stopped(survivors) if elsewhere || gone_within(run.wrapper, CLOSING) => return Ok(survivors),
        Answer::Refused(why) => return Err(CannotStop::Refused(why)),
        Answer::Stopped(_) | Answer::Ended | Answer::None => {}
    }
    let Some(mut tree) = seen else { return Err(CannotStop::Elsewhere) };
    pty::ask_to_end(run.wrapper, grace);
    tree::signal(run.wrapper, &SystemProcesses, tree::CONTINUE);
    let wrapper_gone = gone_within(run.wrapper, grace + CLOSING);
    if !wrapper_gone {
        tree = tree.with_root();
    }
    // It may not have said how the run ended, and cannot any more.
    if ended || !wrapper_gone {
        track::note_stopped(home, run.id, SystemClock.now());
    }
    let survivors = tree::end(&mut tree, &SystemProcesses, &excluded, LEFTOVERS);
    Ok(survivors.iter().map(ToString::to_string).collect())
}

/// Recognises processes that no session ends, by their command lines: daemons that the agent shares between its sessions, and
/// codemie's own that work for the whole home.
pub fn is_shared(agent: &str) -> impl Fn(&[OsString]) -> bool + use<> {
    let agent = registry::by_name(agent);
    move |command| process::is_detached(command) || agent.is_some_and(|agent| agent.is_shared_daemon(command))
}

/// Everything that a wrapper or host has started, as it is now, without what is shared and without other sessions in the background:
/// those were started from inside this one and are to outlive it.
pub fn tree_of(home: &Home, wrapper: ProcessId, excluded: Excluded<'_>) -> Tree {
    let mut tree = Tree::rooted(wrapper).leaving(other_hosts(home, wrapper));
    tree.look(&SystemProcesses, excluded);
    tree
}

/// The hosts of other sessions. Where the store cannot be read there are none.
fn other_hosts(home: &Home, wrapper: ProcessId) -> Vec<ProcessId> {
    let runs = Store::open(home, SystemClock.now()).and_then(|mut store| store.read(|view| view.live_runs()));
    let here = BootAndPidNs::here();
    let hosts = runs.unwrap_or_default().into_iter().filter(|run| {
        run.wrapper != wrapper && address::exists(home, run.id) && lives_here(run, &here, &SystemProcesses)
    });
    hosts.map(|run| run.wrapper).collect()
}

enum Answer {
    Stopped(Vec<String>),
    Refused(String),
    /// It has ended without an answer: by itself just then, or it was killed. Nothing is proved by that.
    Ended,
    /// There is no host, or it does not answer.
    None,
}

fn ask_host(home: &Home, run: &RunRow, grace: Duration) -> Answer {
    let request =
        ToHost::Stop(StopRequest { grace_ms: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX) });
    let asked = Connection::open(home, run.id).and_then(|mut host| host.ask(&request, grace + KILLING));
    match asked {
        Ok(FromHost::Stopped(StopAnswer { survivors })) => Answer::Stopped(survivors),
        Err(RemoteError::Closed) => Answer::Ended,
        Err(RemoteError::Refused(why)) => Answer::Refused(why),
        Ok(_) | Err(_) => Answer::None,
    }
}

/// Waits until a process has ended; false if it has not by then.
pub(super) fn gone_within(process: ProcessId, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while SystemProcesses.alive(process) {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::remote::frames::{Frame, Frames};
    use crate::remote::protocol::Welcome;
    use store::EnvSnapshot;
    use types::{Ids, RandomIds, StartTime, Timestamp};

    fn shell(script: &str) -> Child {
        let mut child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        child
    }

    fn run_of(wrapper: ProcessId) -> RunRow {
        RunRow {
            n: 1,
            id: RandomIds.run(),
            realm: BootAndPidNs::here(),
            wrapper,
            agent: None,
            started_at: Timestamp(0),
            ended_at: None,
            session: None,
            surroundings: EnvSnapshot::default(),
            proxied: false,
        }
    }

    fn process(child: &Child) -> ProcessId {
        SystemProcesses.identify(Pid(i32::try_from(child.id()).unwrap())).unwrap()
    }

    /// Reaps it when it ends: a zombie of ours would never count as gone to the one who stops it.
    fn reaped(mut child: Child) -> std::thread::JoinHandle<()> {
        std::thread::spawn(move || drop(child.wait()))
    }

    #[test]
    fn a_wrapper_without_a_socket_is_asked_and_its_leftovers_are_ended() {
        let home = tempfile::tempdir().unwrap();
        let home = Home::at(home.path());
        let child = shell("trap 'exit 0' TERM; setsid sleep 600 & echo ready; while :; do sleep 0.01; done");
        let wrapper = process(&child);
        let tree = Tree::of(wrapper, &SystemProcesses);
        let waiting = reaped(child);
        assert_eq!(stop(&home, &run_of(wrapper), "claude", GRACE), Ok(Vec::new()));
        assert_eq!(tree.living(&SystemProcesses), [], "the one in a session of its own as well");
        waiting.join().unwrap();
    }

    #[test]
    fn a_wrapper_that_hangs_or_is_stopped_is_killed_and_noted_as_stopped() {
        let home = tempfile::tempdir().unwrap();
        let home = Home::at(home.path());
        let child = shell("trap '' TERM; echo ready; kill -STOP $$; while :; do sleep 600; done");
        let wrapper = process(&child);
        let run = run_of(wrapper);
        // A socket that nobody answers on.
        let listener = address::bind(&home, run.id).unwrap();
        drop(listener);
        let waiting = reaped(child);
        assert_eq!(stop(&home, &run, "claude", Duration::from_millis(50)), Ok(Vec::new()));
        assert!(!SystemProcesses.alive(wrapper));
        assert!(home.run().join(format!("ended/{}.json", run.id)).exists());
        waiting.join().unwrap();
    }

    /// Plays the host up to the request that follows the greeting.
    fn request(listener: &UnixListener) -> (UnixStream, ToHost) {
        let (mut stream, _) = listener.accept().unwrap();
        let mut frames = Frames::default();
        loop {
            let mut bytes = [0; 1024];
            let count = stream.read(&mut bytes).unwrap();
            frames.add(&bytes[..count]);
            while let Some(message) = frames.take_next::<ToHost>().unwrap() {
                if !matches!(message, ToHost::Hello(_)) {
                    return (stream, message);
                }
                stream.write_all(&FromHost::Welcome(Welcome::default()).to_bytes()).unwrap();
            }
        }
    }

    #[test]
    fn what_a_host_leaves_that_is_killed_while_it_stops_is_ended_and_noted_as_stopped() {
        let home = tempfile::tempdir().unwrap();
        let home = Home::at(home.path());
        let child = shell("setsid sh -c 'trap \"\" TERM; sleep 600; :' & echo ready; exec sleep 600");
        let wrapper = process(&child);
        let run = run_of(wrapper);
        let listener = address::bind(&home, run.id).unwrap();
        let host = std::thread::spawn(move || {
            let (stream, _) = request(&listener);
            let tree = Tree::of(wrapper, &SystemProcesses);
            let mut child = child;
            child.kill().unwrap();
            child.wait().unwrap();
            drop(stream);
            tree
        });
        assert_eq!(stop(&home, &run, "claude", Duration::from_millis(50)), Ok(Vec::new()));
        let tree = host.join().unwrap();
        assert_eq!(tree.living(&SystemProcesses), [], "also what ignores TERM");
        assert!(home.run().join(format!("ended/{}.json", run.id)).exists());
    }

    #[test]
    fn a_host_is_asked_and_its_answer_is_passed_on() {
        let home = tempfile::tempdir().unwrap();
        let home = Home::at(home.path());
        let child = shell("echo ready; exec sleep 600");
        let wrapper = process(&child);
        let run = run_of(wrapper);
        let listener = address::bind(&home, run.id).unwrap();
        let host = std::thread::spawn(move || {
            let (mut stream, asked) = request(&listener);
            let mut child = child;
            child.kill().unwrap();
            child.wait().unwrap();
            let answer = StopAnswer { survivors: vec!["sleep (pid 7)".into()] };
            stream.write_all(&FromHost::Stopped(answer).to_bytes()).unwrap();
            asked
        });
        assert_eq!(stop(&home, &run, "codex", Duration::from_secs(2)), Ok(vec!["sleep (pid 7)".into()]));
        assert_eq!(host.join().unwrap(), ToHost::Stop(StopRequest { grace_ms: 2000 }));
    }

    #[test]
    fn a_run_that_is_gone_or_cannot_be_seen_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let home = Home::at(home.path());
        let child = shell("echo ready; exec sleep 600");
        let wrapper = process(&child);
        let reused = run_of(ProcessId { start: StartTime(wrapper.start.0 + 1), ..wrapper });
        assert_eq!(stop(&home, &reused, "claude", GRACE), Ok(Vec::new()));
        let rebooted = RunRow {
            realm: BootAndPidNs { boot: "another".into(), ..BootAndPidNs::here() },
            ..run_of(wrapper)
        };
        assert_eq!(stop(&home, &rebooted, "claude", GRACE), Ok(Vec::new()));
        let container = RunRow {
            realm: BootAndPidNs { pids: "another".into(), ..BootAndPidNs::here() },
            ..run_of(wrapper)
        };
        assert_eq!(stop(&home, &container, "claude", GRACE), Err(CannotStop::Elsewhere));
        let of_the_agent = RunRow { agent: Some(wrapper.pid), ..run_of(wrapper) };
        assert_eq!(stop(&home, &of_the_agent, "claude", GRACE), Err(CannotStop::AgentsOwn(wrapper.pid)));
        assert!(SystemProcesses.alive(wrapper));
        let mut child = child;
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
