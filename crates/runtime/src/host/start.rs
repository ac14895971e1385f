//! From a launcher to a host: the fork, the answer, and the run itself.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::front_end::front_end;
use super::live::{Limits, LiveSession, Subject};
use super::notes::{Note, Reporter, notes};
use super::server::{Parts, Server};
use super::stop::Stopping;
use crate::launch::{self, Origin, RunResult};
use crate::proxy::Companion;
use crate::remote::address;
use crate::remote::protocol::Size;
use crate::track::{Plan, RunNews};
use agents::Agent;
use pty::process::{Processes, SystemProcesses, tree};
use pty::{Observer, ProgramSpec, ProgramStarted, Tap};
use types::{Pid, SessionId};

/// Exit code: nothing was started, or what was is ended again.
const NOT_STARTED: u8 = 126;

/// Exit code: something may have been started, and it is not known yet.
const NOT_KNOWN_YET: u8 = 5;

/// What a host must be able to open: its terminal, its sockets, the store, the log, watches, `/proc`, and some clients. Twenty were the
/// fewest with which one could do everything; with three fewer it started its program and then found neither store nor process.
const SPARE_DESCRIPTORS: usize = 32;

/// How long a launcher waits for its host. An agent starts in milliseconds; a store that somebody keeps locked delays the START.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The same while the tree is being ended: the grace that was asked for, and the time to kill what is left.
const STOP_TIMEOUT: Duration = Duration::from_mins(5);

/// How long the store has to take the START: as long as one write waits for others, and a little more. A session that it has not
/// taken by then is known to nobody and found by no command, so its program is ended.
const STORE_TIMEOUT: Duration = Duration::from_secs(12);

/// The grace of that program: it has only just begun. With [`STORE_TIMEOUT`] well below [`START_TIMEOUT`].
pub(super) const END_GRACE: Duration = Duration::from_secs(3);

/// How long the server has to serve its clients' last frames after the run.
const SERVER_TIMEOUT: Duration = Duration::from_secs(3);

/// A program that is ready to be run in the background.
#[expect(missing_debug_implementations, reason = "a plan has nothing to show")]
pub struct Detached {
    pub launch: ProgramSpec,
    pub plan: Plan,
    pub origin: Origin,
    pub agent: Option<&'static dyn Agent>,
    pub size: Size,
    pub limits: Limits,
    /// Whether the terminals of viewers are to show notices.
    pub osc9: bool,
    pub companion: Option<Companion>,
}

/// Why nothing runs in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotDetached {
    /// The exit code, as for a run in the foreground.
    pub code: u8,
    pub message: String,
}

type Answer = Result<SessionId, NotDetached>;

/// Runs it in a process of its own and returns its session once it runs. No thread may exist yet.
///
/// In the host itself this never returns.
pub fn detach(program: Detached) -> Answer {
    let failed = |error: io::Error| NotDetached {
        code: NOT_STARTED,
        message: format!("codemie: cannot start a background process: {error}"),
    };
    let (near, far) = UnixStream::pair().map_err(failed)?;
    spare_descriptors(&near).map_err(|error| NotDetached {
        code: NOT_STARTED,
        message: format!(
            "codemie: nothing is started in the background: fewer than {SPARE_DESCRIPTORS} further files can be opened ({error}); raise the limit (`ulimit -n`)"
        ),
    })?;
    let mut keep = vec![near.as_fd(), far.as_fd()];
    keep.extend(program.companion.as_ref().map(Companion::descriptor));
    match pty::fork_detached(&keep).map_err(failed)? {
        pty::Detached::Launcher => {
            drop(far);
            await_answer(near)
        }
        pty::Detached::Host => {
            drop(near);
            let code = host(program, &Launcher::new(far));
            pty::exit_host(code)
        }
    }
}

/// Whether a host can open what it needs.
fn spare_descriptors(any: &UnixStream) -> io::Result<()> {
    (0..SPARE_DESCRIPTORS).map(|_| any.try_clone()).collect::<io::Result<Vec<_>>>().map(drop)
}

fn await_answer(mut near: UnixStream) -> Answer {
    let (mut answer, mut ended) = (Vec::new(), false);
    let _ = near.set_read_timeout(Some(START_TIMEOUT));
    let mut bytes = [0; 4096];
    while !answer.ends_with(b"\n") {
        match near.read(&mut bytes) {
            Ok(0) => {
                ended = true;
                break;
            }
            Ok(count) => answer.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    serde_json::from_slice(&answer).unwrap_or_else(|_| {
        let (code, message) = if ended {
            (NOT_STARTED, "codemie: the background process ended before it could answer; see the log")
        } else {
            (NOT_KNOWN_YET, "codemie: the background process has not answered yet; `codemie list --active` shows its session")
        };
        Err(NotDetached { code, message: message.to_owned() })
    })
}

/// Answers the launcher, once: when the session can be found and attached to, or when it is known that it never will be. A
/// launcher that is gone is no reason to stop.
#[derive(Clone, Debug)]
struct Launcher(Arc<Mutex<Unanswered>>);

#[derive(Debug)]
struct Unanswered {
    stream: Option<UnixStream>,
    /// The session, once it is in the store.
    recorded: Option<SessionId>,
    /// The server listens, or there will be none.
    served: bool,
    /// Its thread was started.
    has_server: bool,
    /// The session is not recorded, for this reason, and its program is being ended.
    given_up: Option<String>,
}

impl Launcher {
    fn new(stream: UnixStream) -> Self {
        Self(Arc::new(Mutex::new(Unanswered {
            stream: Some(stream),
            recorded: None,
            served: false,
            has_server: false,
            given_up: None,
        })))
    }

    fn recorded(&self, session: SessionId) {
        self.note(|unanswered| unanswered.recorded = Some(session));
    }

    fn served(&self) {
        self.note(|unanswered| unanswered.served = true);
    }

    fn note(&self, change: impl FnOnce(&mut Unanswered)) {
        let mut unanswered = self.locked();
        change(&mut unanswered);
        let ready = unanswered.recorded.filter(|_| unanswered.served && unanswered.given_up.is_none());
        drop(unanswered);
        if let Some(session) = ready {
            self.answer(&Ok(session));
        }
    }

    /// Gives up a session that is not recorded. Returns whether its program is to be ended: not where it is recorded after all,
    /// nor a second time.
    fn give_up(&self, why: &str) -> bool {
        let mut unanswered = self.locked();
        let first = unanswered.recorded.is_none() && unanswered.given_up.is_none();
        if first {
            unanswered.given_up = Some(why.to_owned());
        }
        first
    }

    /// The answer at the end of the run, for a launcher that still waits: its session, if anybody can find it.
    fn last_answer(&self, result: RunResult, started: bool) -> Answer {
        let unanswered = self.locked();
        match (&unanswered.given_up, unanswered.recorded) {
            (None, Some(session)) => Ok(session),
            _ if !started => {
                Err(NotDetached { code: result.code, message: result.message.unwrap_or_default() })
            }
            (Some(why), _) => Err(not_recorded(&format!("{why}, so its program was ended"))),
            (None, None) => Err(not_recorded(&format!(
                "its program has ended already, with code {}, and no session of it was recorded",
                result.code
            ))),
        }
    }

    fn locked(&self) -> MutexGuard<'_, Unanswered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, answer: &Answer) {
        let launcher = self.locked().stream.take();
        if let Some(mut launcher) = launcher {
            let mut bytes = serde_json::to_vec(answer).unwrap_or_default();
            bytes.push(b'\n');
            let _ = launcher.write_all(&bytes);
        }
    }
}

fn not_recorded(why: &str) -> NotDetached {
    let message =
        format!("codemie: nothing runs in the background: {why}; `codemie doctor` shows what is wrong");
    NotDetached { code: NOT_STARTED, message }
}

/// Ends a program whose session nobody would find again.
#[derive(Clone, Debug)]
struct Unrecorded {
    launcher: Launcher,
    reporter: Reporter,
}

impl Unrecorded {
    fn end(&self, why: &str) {
        if !self.launcher.give_up(why) {
            return;
        }
        tracing::error!("the program is ended: {why}");
        // The server ends the whole tree, as far as processes can be looked up, which takes a descriptor. Else the program alone is
        // ended, as by a signal. Not besides: a host whose program has just ended by itself would die of that signal.
        self.reporter.report(Note::NotRecorded);
        let server_ends_it =
            self.launcher.locked().has_server && SystemProcesses.identify(own_pid()).is_some();
        if !server_ends_it {
            pty::end_own_program(END_GRACE);
        }
    }

    /// Ends it unless it is recorded in time.
    fn watch(self) {
        let unrecorded = self.clone();
        let later = move || {
            std::thread::sleep(STORE_TIMEOUT);
            let seconds = STORE_TIMEOUT.as_secs();
            unrecorded.end(&format!("the database did not take the session within {seconds} s"));
        };
        let watched =
            pty::without_signals(|| std::thread::Builder::new().name("unrecorded".into()).spawn(later));
        if let Err(error) = watched {
            self.end(&format!("no thread can be started to record the session: {error}"));
        }
    }
}

/// The whole life of a host.
fn host(program: Detached, launcher: &Launcher) -> u8 {
    let Detached { mut launch, mut plan, origin, agent, size, limits, osc9, companion } = program;
    // The host notifies, because it sees the screen; the tracker would do so a second time.
    let notifier = std::mem::take(&mut plan.notifier);
    let (home, run, session) = (plan.home.clone(), plan.run, plan.session);
    let unable =
        |error: io::Error| Err(NotDetached { code: NOT_STARTED, message: format!("codemie: {error}") });
    let (front, pump, reporter, notes) = match notes().and_then(|(reporter, notes)| {
        let (front, pump) = front_end(size, reporter.clone())?;
        Ok((front, pump, reporter, notes))
    }) {
        Ok(ends) => ends,
        Err(error) => {
            launcher.answer(&unable(error));
            return NOT_STARTED;
        }
    };
    if !tree::adopt_orphans() {
        tracing::debug!("orphans below this host go to the first process");
    }
    as_in_a_plain_terminal(&mut launch);
    let unrecorded = Unrecorded { launcher: launcher.clone(), reporter: reporter.clone() };
    plan.on_news = Some(on_news(unrecorded.clone(), reporter.clone()));
    let (origin_of_agent, prompted) = (origin.clone(), plan.prompted);
    let live = LiveSession::new(Subject {
        agent,
        run,
        session,
        origin: origin_of_agent,
        limits,
        notifier,
        osc9,
        prompted,
    });
    let stopped = Arc::<AtomicBool>::default();
    let own = SystemProcesses.identify(own_pid());
    let stopping = Stopping::new(home.clone(), plan.agent.clone(), own, Arc::clone(&stopped));
    let listening = launcher.clone();
    let start = move |reporter: Reporter| {
        let listener = address::bind(&home, run).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener =
            listener.inspect_err(|error| tracing::error!("nobody can attach to this session: {error}")).ok();
        listening.served();
        Server::new(Parts { home, run, listener, pump, notes, reporter, size, live, stopping }).serve();
    };
    let mut beside = Beside {
        start: Some(Box::new(start)),
        reporter: reporter.clone(),
        served: None,
        started: false,
        unrecorded,
    };
    let mut front = front;
    let (result, _) = launch::wrap_on(launch, Some(plan), companion, &origin, |spec, tracker| {
        let mut ended = pty::run_on(&mut front, spec, &mut Both { tracker, beside: &mut beside })?;
        ended.stopped |= stopped.load(Ordering::Relaxed);
        reporter.report(Note::Ended(ended.exit.code()));
        Ok(ended)
    });
    let code = result.code;
    launcher.answer(&launcher.last_answer(result, beside.started));
    reporter.report(Note::Finished);
    if let Some(served) = beside.served {
        let timeout = if stopped.load(Ordering::Relaxed) { STOP_TIMEOUT } else { SERVER_TIMEOUT };
        let _ = served.recv_timeout(timeout);
    }
    code
}

/// Notes for the launcher whether the session is in the store, and hands everything on to the server.
fn on_news(unrecorded: Unrecorded, reporter: Reporter) -> Box<dyn Fn(RunNews) + Send> {
    Box::new(move |news: RunNews| {
        if news.recorded {
            unrecorded.launcher.recorded(news.session);
        } else if let Some(why) = &news.refused {
            unrecorded.end(why);
        }
        reporter.report(Note::News(news));
    })
}

fn own_pid() -> Pid {
    Pid(std::process::id().cast_signed())
}

/// What runs beside the program: the server's thread.
struct Beside {
    start: Option<Box<dyn FnOnce(Reporter) + Send>>,
    reporter: Reporter,
    /// Disconnected when the server has ended.
    served: Option<Receiver<()>>,
    started: bool,
    unrecorded: Unrecorded,
}

impl Beside {
    fn begin(&mut self) {
        let Some(start) = self.start.take() else { return };
        let (serving, served) = channel();
        let reporter = self.reporter.clone();
        let thread = pty::without_signals(|| {
            std::thread::Builder::new().name("server".into()).spawn(move || {
                start(reporter);
                drop::<Sender<()>>(serving);
            })
        });
        match thread {
            Ok(_) => {
                self.unrecorded.launcher.note(|unanswered| unanswered.has_server = true);
                self.served = Some(served);
            }
            Err(error) => {
                tracing::error!("no thread for the host's server: {error}");
                self.unrecorded.launcher.served();
            }
        }
    }
}

/// The tracker and the server observe the program together.
struct Both<'a> {
    tracker: &'a mut dyn Observer,
    beside: &'a mut Beside,
}

impl Observer for Both<'_> {
    fn forked(&mut self) -> Option<Tap> {
        let tap = self.tracker.forked();
        self.beside.begin();
        tap
    }

    fn started(&mut self, program: ProgramStarted) {
        self.beside.started = true;
        self.beside.reporter.report(Note::Started(program.pid));
        self.tracker.started(program);
        self.beside.unrecorded.clone().watch();
    }
}

/// The terminal of a background session is the host's, whatever the launcher was started on: its viewers come from other ones.
/// So it is announced as the plainest terminal that has all the colours, and what names the launcher's is taken away, as
/// terminal multiplexers do.
fn as_in_a_plain_terminal(launch: &mut ProgramSpec) {
    for (name, value) in [("TERM", "xterm-256color"), ("COLORTERM", "truecolor")] {
        launch.set.retain(|(set, _)| set != name);
        launch.set.push((name.into(), value.into()));
    }
    let named = [
        "TERM_PROGRAM",
        "TERM_PROGRAM_VERSION",
        "KITTY_WINDOW_ID",
        "WEZTERM_PANE",
        "GHOSTTY_RESOURCES_DIR",
        "ITERM_SESSION_ID",
        "VTE_VERSION",
        "WT_SESSION",
        "TMUX",
        "TMUX_PANE",
        "STY",
        "COLUMNS",
        "LINES",
        "WINDOWID",
    ];
    launch.remove.extend(named.map(Into::into));
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// Of the two that have to happen, either may be the first.
    #[test]
    fn launcher_is_answered_when_the_session_is_recorded_and_served() {
        let session = SessionId(uuid::Uuid::from_u128(7));
        let steps: [fn(&Launcher, SessionId); 2] =
            [|launcher, session| launcher.recorded(session), |launcher, _| launcher.served()];
        for order in [[0, 1], [1, 0]] {
            let (mut near, far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let launcher = Launcher::new(far);
            steps[order[0]](&launcher, session);
            assert_eq!(near.read(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock, "{order:?}");
            steps[order[1]](&launcher, session);
            let mut answer = String::new();
            near.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(&session.to_string()), "{order:?}: {answer}");
            launcher.answer(&Ok(session));
        }
    }
}
