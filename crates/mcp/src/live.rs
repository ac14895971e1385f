//! Running sessions as the tools need them: starting, speaking, waiting, ending.
//!
//! [`HostedSessions`] asks the hosts of background sessions over their sockets and starts new ones with this very binary. Tests
//! have sessions of their own.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use os::clock::{Clock, SystemClock};
use os::home::Home;
use report::find::LiveTarget;
use report::wait::{WaitError, WaitFor, Waited, wait};
use runtime::launch::Origin;
use runtime::launch::{RUN_VARIABLE, SESSION_VARIABLE};
use runtime::remote::protocol::{
    AnswerRequest, FromHost, ScreenText, SendAnswer, SendRequest, StopAnswer, StopRequest, ToHost,
};
use runtime::remote::send::answer;
use runtime::remote::send::{Recipient, SendError, send};
use runtime::remote::{Connection, RemoteError};
use store::Store;
use types::{LiveState, RunId, SessionId};

/// A launcher answers once its agent runs and the session is in the store: milliseconds, and up to 30 s where that is locked. One
/// that takes longer hangs.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(45);
const LAUNCH_POLL: Duration = Duration::from_millis(5);

/// A complaint of the launcher is a line or two.
const MAX_OUTPUT: u64 = 16 * 1024;

/// A command line of codemie that starts a session in the background and prints its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchLine {
    /// What follows `codemie`.
    pub args: Vec<OsString>,
    pub folder: PathBuf,
    /// The run that the new session is started from. What the environment says about that is no evidence.
    pub parent: Option<RunId>,
}

/// Why a session was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchFailure {
    #[error("{0}")]
    Refused(String),
    /// The launcher was started and gave no answer, so the session may exist.
    #[error("{0}")]
    Unknown(String),
}

/// Sessions that run now.
pub trait LiveSessions: Send + Sync {
    fn launch(&self, line: &LaunchLine) -> Result<SessionId, LaunchFailure>;

    fn state(&self, run: RunId) -> Result<LiveState, RemoteError>;

    fn screen(&self, run: RunId) -> Result<ScreenText, RemoteError>;

    /// Once for each key, across hosts, servers and crashes.
    fn send(&self, to: Recipient, request: &SendRequest) -> Result<SendAnswer, SendError>;

    fn answer(&self, to: Recipient, request: &AnswerRequest) -> Result<SendAnswer, RemoteError>;

    /// Also for a session in somebody's terminal, by its files.
    fn wait(&self, targets: &[LiveTarget], wanted: &WaitFor) -> Result<Waited, WaitError>;

    fn stop(&self, run: RunId, request: StopRequest) -> Result<StopAnswer, RemoteError>;
}

/// The background sessions of this machine.
#[derive(Clone, Debug)]
pub struct HostedSessions {
    pub home: Home,
    pub origin: Origin,
}

impl HostedSessions {
    fn ask(&self, run: RunId, question: &ToHost, further: Duration) -> Result<FromHost, RemoteError> {
        Connection::open(&self.home, run)?.ask(question, further)
    }
}

/// The answer of the right kind. Any other is a host that speaks another language.
macro_rules! answer {
    ($answer:expr, $kind:ident) => {
        match $answer? {
            FromHost::$kind(answer) => Ok(answer),
            _ => Err(RemoteError::Closed),
        }
    };
}

impl LiveSessions for HostedSessions {
    fn launch(&self, line: &LaunchLine) -> Result<SessionId, LaunchFailure> {
        let refused = |error: io::Error| LaunchFailure::Refused(format!("cannot start codemie: {error}"));
        let program = std::env::current_exe().map_err(refused)?;
        let mut command = Command::new(program);
        command.args(&line.args).current_dir(&line.folder).env("CODEMIE_HOME", self.home.path());
        command.env_remove(RUN_VARIABLE).env_remove(SESSION_VARIABLE);
        if let Some(parent) = line.parent {
            command.env(RUN_VARIABLE, parent.to_string());
        }
        run_launcher(command)
    }

    fn state(&self, run: RunId) -> Result<LiveState, RemoteError> {
        answer!(self.ask(run, &ToHost::State, Duration::ZERO), State)
    }

    fn screen(&self, run: RunId) -> Result<ScreenText, RemoteError> {
        answer!(self.ask(run, &ToHost::Screen, Duration::ZERO), Screen)
    }

    fn send(&self, to: Recipient, request: &SendRequest) -> Result<SendAnswer, SendError> {
        // A connection of its own: other calls must not wait for this one.
        let mut store = Store::open(&self.home, SystemClock.now())?;
        send(&self.home, &mut store, to, request, SystemClock.now())
    }

    fn answer(&self, to: Recipient, request: &AnswerRequest) -> Result<SendAnswer, RemoteError> {
        answer(&self.home, to, request, SystemClock.now())
    }

    fn wait(&self, targets: &[LiveTarget], wanted: &WaitFor) -> Result<Waited, WaitError> {
        let mut store = Store::open(&self.home, SystemClock.now())?;
        wait(&self.home, &mut store, &self.origin, targets, wanted)
    }

    fn stop(&self, run: RunId, request: StopRequest) -> Result<StopAnswer, RemoteError> {
        // After the grace comes KILL, and the look whether everything is gone.
        let further = Duration::from_millis(request.grace_ms) + Duration::from_secs(5);
        answer!(self.ask(run, &ToHost::Stop(request), further), Stopped)
    }
}

/// Runs a launcher to its end. Its output goes to files, not to pipes: the host it leaves behind may keep them open.
fn run_launcher(mut command: Command) -> Result<SessionId, LaunchFailure> {
    let refused = |error: io::Error| LaunchFailure::Refused(format!("cannot start codemie: {error}"));
    let (mut out, mut err) = (tempfile::tempfile().map_err(refused)?, tempfile::tempfile().map_err(refused)?);
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone().map_err(refused)?)
        .stderr(err.try_clone().map_err(refused)?);
    let child = command.spawn().map_err(refused)?;
    let status = await_exit(child)
        .map_err(|error| LaunchFailure::Unknown(format!("the start was not answered: {error}")))?;
    let (id, complaint) = (text(&mut out), text(&mut err));
    if let (true, Ok(session)) = (status.success(), id.trim().parse()) {
        return Ok(session);
    }
    let complaint = complaint.trim().trim_start_matches("codemie: ");
    let complaint = if complaint.is_empty() { "codemie gave no reason" } else { complaint };
    Err(LaunchFailure::Refused(format!("{complaint} ({status})")))
}

fn await_exit(mut child: Child) -> io::Result<ExitStatus> {
    let deadline = Instant::now() + LAUNCH_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            // It is left alone: it may yet succeed, and the caller looks for its session.
            return Err(io::Error::new(io::ErrorKind::TimedOut, "codemie did not answer in time"));
        }
        std::thread::sleep(LAUNCH_POLL);
    }
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(MAX_OUTPUT).read_to_end(&mut bytes));
    if let Err(error) = read {
        tracing::warn!("what a launcher printed was not read: {error}");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched(script: &str) -> Result<SessionId, LaunchFailure> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run_launcher(command)
    }

    #[test]
    fn a_launcher_prints_the_session_or_a_reason() {
        let id = "01a1e2f3-0000-4000-8000-000000000001";
        assert_eq!(launched(&format!("echo {id}")).unwrap(), id.parse().unwrap());
        for (script, expected) in [
            (
                "echo 'codemie: claude: command not found' >&2; exit 127",
                "claude: command not found (exit status: 127)",
            ),
            ("echo nonsense", "gave no reason"),
            (&format!("echo {id}; exit 1"), "exit status: 1"),
        ] {
            match launched(script) {
                Err(LaunchFailure::Refused(message)) => assert!(message.contains(expected), "{message}"),
                other => panic!("{script}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_process_that_a_launcher_leaves_behind_keeps_nobody_waiting() {
        let begun = Instant::now();
        let id = launched("sleep 5 & echo 01a1e2f3-0000-4000-8000-000000000001");
        assert!(id.is_ok() && begun.elapsed() < Duration::from_secs(4));
    }
}
