//! Running a program on an inner terminal: the pump between the user's terminal and the PTY, and everything that can
//! happen while it runs.
//!
//! One loop waits for four things: the user's terminal, the PTY, signals, and the monitor's reports. Each direction has one
//! bounded buffer that is filled only when it is empty, so a slow side holds the other back and memory stays flat.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use libc::c_int;
use rustix::stdio::stderr;

use super::buffer::{Buffer, Filled, LONG_READ};
use super::inner::Inner;
use super::modes::Modes;
use super::monitor::{Continue, Monitor, Outer, Report};
use super::signals::{Signals, forwarded};
use super::sys::{self, Caught, Image};
use super::tap::Tap;
use super::tty::{RawGuard, Tty};
use super::wait::{Watch, wait};
use super::{Companion, Ended, Ending, Started};
use crate::process::Pid;

/// How long an agent that was asked to end (TERM, HUP) may take. Claude was measured at 2.6 s while it streams.
const GRACE: Duration = Duration::from_secs(10);

/// A terminal that takes nothing (flow control, a frozen window) keeps a stop, or an end that somebody asked for, waiting
/// for this long, and no longer. The agent's own end waits for the terminal as its last write would have.
const IMPATIENT: Duration = Duration::from_secs(1);

/// How often a job in the background looks whether it is in the foreground again: `fg` of a running job tells nobody.
const BACKGROUND: Duration = Duration::from_millis(500);

/// More than a PTY holds: what comes after that was written after the agent's end, or its stop.
const LAST_BYTES: usize = 128 * 1024;

/// Chunks of a flood that are passed on before the loop looks at anything else: 64 KiB, a millisecond's worth.
const CHUNKS_AT_ONCE: usize = 16;

/// A program on the inner terminal, started but not yet pumped.
#[derive(Debug)]
pub struct Wrapped {
    tty: Tty,
    raw: Option<RawGuard>,
    /// `None` once the user's terminal is gone and the agent's was hung up.
    inner: Option<Inner>,
    monitor: Monitor,
    signals: Signals,
    to_agent: Buffer,
    to_tty: Buffer,
    modes: Modes,
    tap: Option<Tap>,
    agent: Option<Pid>,
    /// Signals for the agent that came before it had begun.
    early: Vec<Caught>,
    /// The user's terminal is there.
    tty_open: bool,
    kill_at: Option<Instant>,
    asked_to_end: bool,
    /// The monitor could not even begin, and why.
    unable: Option<c_int>,
    ending: Option<Ending>,
}

impl Wrapped {
    /// Starts the program. An error means that nothing was started and the terminal is as it was.
    pub fn start(tty: Tty, image: &Image) -> io::Result<Self> {
        let size = tty.size()?;
        let (inner, far) = Inner::open(size, &tty.settings()?)?;
        let on_terminal = [true, true, tty.is(stderr())];
        // From here to the installed handlers a signal would kill us with the terminal in raw mode.
        sys::hold_signals();
        let started = Self::start_held(tty, inner, far, image, on_terminal);
        sys::release_signals();
        started
    }

    fn start_held(
        tty: Tty,
        inner: Inner,
        far: std::os::fd::OwnedFd,
        image: &Image,
        on_terminal: [bool; 3],
    ) -> io::Result<Self> {
        let mut signals = Signals::prepare()?;
        signals.catch(forwarded().chain([libc::SIGWINCH, libc::SIGTSTP, libc::SIGCONT, libc::SIGCHLD]))?;
        // Settings are changed from the background only after a look, and then must not stop us half way.
        sys::ignore(libc::SIGTTOU)?;
        // Raw before the agent can ask the terminal anything: the answers must not be echoed.
        let raw = tty.raw()?;
        let [near, pty] = inner.descriptors();
        let [reader, writer] = signals.descriptors();
        let outer = Outer { tty: tty.as_fd(), saved: raw.saved() };
        let monitor = Monitor::start(far, image, on_terminal, outer, &[near, pty, reader, writer])?;
        Ok(Self {
            tty,
            raw: Some(raw),
            inner: Some(inner),
            monitor,
            signals,
            to_agent: Buffer::default(),
            to_tty: Buffer::default(),
            modes: Modes::default(),
            tap: None,
            agent: None,
            early: Vec::new(),
            tty_open: true,
            kill_at: None,
            asked_to_end: false,
            unable: None,
            ending: None,
        })
    }

    /// Passes bytes until the program has ended and its last output is on the terminal, then gives the terminal back.
    ///
    /// An error means that nothing was started; `companion` was told of a fork at most.
    pub fn run(mut self, companion: &mut dyn Companion) -> io::Result<Ended> {
        companion.forked();
        let mut told = false;
        while self.ending.is_none() {
            if self.step().is_err() {
                // Waiting itself fails: nothing can be passed on any more, and nobody may be left behind.
                self.signal_agent(libc::SIGKILL);
                self.ended(Ending::Killed(libc::SIGKILL));
            }
            if let (Some(agent), false) = (self.agent, told) {
                told = true;
                self.tap = companion.started(Started { agent });
            }
        }
        match self.unable {
            None => Ok(self.finish()),
            Some(errno) => {
                self.finish();
                Err(io::Error::from_raw_os_error(errno))
            }
        }
    }

    fn step(&mut self) -> io::Result<()> {
        let raw = self.raw.is_some();
        let in_background = self.tty_open && !raw;
        let timeout = self.kill_at.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout =
            if in_background { Some(timeout.unwrap_or(BACKGROUND).min(BACKGROUND)) } else { timeout };
        let mut watches = [
            Watch::new(self.signals.as_fd(), true, false),
            Watch::new(self.monitor.as_fd(), true, false),
            match &self.inner {
                Some(inner) => Watch::new(inner.as_fd(), self.to_tty.is_empty(), !self.to_agent.is_empty()),
                None => Watch::new(self.monitor.as_fd(), false, false),
            },
            Watch::new(
                self.tty.as_fd(),
                self.tty_open && raw && self.to_agent.is_empty(),
                self.tty_open && !self.to_tty.is_empty(),
            ),
        ];
        wait(&mut watches, timeout)?;
        let [signals, monitor, inner, tty] = watches.map(|watch| (watch.readable, watch.writable));
        // Signals first: a new size must not be overtaken by a key typed after it.
        if signals.0 {
            while let Some(caught) = self.signals.next() {
                self.on_signal(caught);
            }
        }
        if inner.1 {
            self.write_agent();
        }
        if tty.1 {
            self.write_tty();
        }
        if inner.0 {
            self.follow_output();
        }
        if tty.0 {
            self.read_tty();
        }
        if monitor.0 {
            self.on_reports();
        }
        if in_background && self.raw.is_none() && self.agent.is_some() && self.tty.is_foreground() {
            self.continued();
        }
        if self.kill_at.is_some_and(|at| Instant::now() >= at) {
            self.signal_agent(libc::SIGKILL);
            self.kill_at = None;
        }
        Ok(())
    }

    fn read_tty(&mut self) {
        match self.to_agent.fill(&self.tty) {
            Ok(Filled::Some) => {
                self.write_agent();
                if let Some(tap) = &self.tap {
                    tap.input(self.to_agent.filled());
                }
            }
            Ok(Filled::Nothing) => {}
            Ok(Filled::Gone) | Err(_) => self.hang_up(),
        }
    }

    fn write_agent(&mut self) {
        let written = self.inner.as_ref().map(|inner| self.to_agent.drain(inner));
        if !matches!(written, Some(Ok(()))) {
            self.to_agent.clear(); // nobody is left to read it
        }
    }

    /// Passes output on, chunk by chunk, as long as it comes quickly and the terminal takes it. The bound lets a flood
    /// not drown keys and signals.
    fn follow_output(&mut self) {
        for _ in 0..CHUNKS_AT_ONCE {
            let more = self.read_agent() == Filled::Some && self.to_tty.filled().len() >= LONG_READ;
            if !more || !self.to_tty.is_empty() {
                break;
            }
        }
    }

    fn read_agent(&mut self) -> Filled {
        let Some(inner) = &self.inner else { return Filled::Gone };
        let filled = self.to_tty.fill(inner).unwrap_or(Filled::Gone);
        match filled {
            Filled::Some => {
                self.write_tty();
                self.modes.feed(self.to_tty.filled());
            }
            Filled::Nothing => {}
            // Nobody has the far side open. The monitor does as long as it lives, so its last report is near.
            Filled::Gone => self.inner = None,
        }
        filled
    }

    fn write_tty(&mut self) {
        if !self.tty_open {
            self.to_tty.clear();
        } else if self.to_tty.drain(&self.tty).is_err() {
            self.to_tty.clear();
            self.hang_up();
        }
    }

    /// The user's terminal is gone: so is the agent's, and it hears of it as it would have without us.
    fn hang_up(&mut self) {
        self.tty_open = false;
        self.inner = None;
        if !sys::was_ignored(libc::SIGHUP) {
            self.on_signal(Caught { signal: libc::SIGHUP, by_process: false });
        }
    }

    fn on_signal(&mut self, caught: Caught) {
        match caught.signal {
            libc::SIGWINCH => self.follow_size(),
            // We were stopped from outside and are back, perhaps in another place.
            libc::SIGCONT => self.continued(),
            _ if self.agent.is_none() => self.early.push(caught),
            libc::SIGTERM | libc::SIGHUP => self.end_agent(caught.signal),
            libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP => self.signal_agent(caught.signal),
            libc::SIGCHLD => {}
            other => {
                if let Some(agent) = self.agent {
                    sys::signal_process(agent, other);
                }
            }
        }
    }

    fn on_reports(&mut self) {
        loop {
            match self.monitor.report() {
                Ok(Some(Report::Started(pid))) => {
                    self.agent = Some(pid);
                    sys::close_inherited();
                    for caught in std::mem::take(&mut self.early) {
                        self.on_signal(caught);
                    }
                }
                Ok(Some(Report::NotStarted(errno))) => self.ending = Some(Ending::NotStarted(errno)),
                Ok(Some(Report::Unable(errno))) => {
                    self.unable = Some(errno);
                    return self.ended(Ending::NotStarted(errno));
                }
                Ok(Some(Report::Stopped(signal))) => self.suspend(signal),
                Ok(Some(Report::Exited(code))) => return self.ended(Ending::Exited(code)),
                Ok(Some(Report::Killed(signal))) => return self.ended(Ending::Killed(signal)),
                Ok(None) => return,
                // Somebody killed the monitor. The kernel has hung up on the agent; nobody can know how it ends.
                Err(_) => {
                    self.signal_agent(libc::SIGKILL);
                    return self.ended(Ending::Killed(libc::SIGKILL));
                }
            }
        }
    }

    fn ended(&mut self, ending: Ending) {
        // An exec that failed is followed by an exit that says less.
        self.ending.get_or_insert(ending);
    }

    fn signal_agent(&self, signal: c_int) {
        if let Some(agent) = self.agent {
            sys::signal_group(agent, signal);
            if signal != libc::SIGTSTP {
                sys::signal_group(agent, libc::SIGCONT);
            }
        }
    }

    fn end_agent(&mut self, signal: c_int) {
        self.signal_agent(signal);
        self.asked_to_end = true;
        self.kill_at.get_or_insert_with(|| Instant::now() + GRACE);
    }

    fn follow_size(&mut self) {
        if let (Ok(size), Some(inner)) = (self.tty.size(), &mut self.inner) {
            let _ = inner.resize(size);
        }
    }

    /// The agent has stopped: show what it said, give the terminal back, stop as well; and when we are continued,
    /// continue it.
    fn suspend(&mut self, signal: c_int) {
        self.flush(Some(IMPATIENT));
        let background_stop = matches!(signal, libc::SIGTTIN | libc::SIGTTOU);
        if !(background_stop && self.tty.is_foreground()) {
            self.raw = None;
            stop_as(signal);
        }
        let in_foreground = self.take_terminal();
        // Still in the background and not stopped: our group is orphaned and cannot be. The agent must not stop
        // again and again, so it is left waiting for input that does not come.
        let never_stopped = background_stop && !in_foreground;
        self.monitor.resume(Continue { in_foreground: in_foreground || never_stopped });
        for caught in std::mem::take(&mut self.early) {
            self.on_signal(caught);
        }
    }

    /// We may have been stopped from outside, without a word to the agent, and have come back to another place.
    fn continued(&mut self) {
        if self.tty.is_foreground() && self.raw.as_ref().is_some_and(RawGuard::holds) {
            return self.follow_size();
        }
        self.raw = None;
        let in_foreground = self.take_terminal();
        if self.agent.is_some() {
            self.monitor.resume(Continue { in_foreground });
        }
    }

    /// Raw mode and the present size, if the terminal is ours. The settings found now are the ones to give back.
    fn take_terminal(&mut self) -> bool {
        let in_foreground = self.tty.is_foreground();
        if in_foreground && self.raw.is_none() {
            self.raw = self.tty.raw().ok();
        }
        self.follow_size();
        in_foreground
    }

    /// Everything the agent has written so far goes to the terminal, for as long as may be waited.
    fn flush(&mut self, limit: Option<Duration>) {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut passed = 0;
        while passed < LAST_BYTES {
            while !self.to_tty.is_empty() && self.tty_open {
                let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                if left.is_some_and(|left| left.is_zero()) || self.interrupted() {
                    return;
                }
                let mut watches = [
                    Watch::new(self.tty.as_fd(), false, true),
                    Watch::new(self.signals.as_fd(), true, false),
                ];
                if wait(&mut watches, left).is_err() {
                    return;
                }
                self.write_tty();
            }
            if !self.tty_open || self.read_agent() != Filled::Some {
                return;
            }
            passed += self.to_tty.filled().len();
        }
    }

    /// Did somebody ask us to end while we wait for the terminal?
    fn interrupted(&mut self) -> bool {
        while let Some(caught) = self.signals.next() {
            match caught.signal {
                libc::SIGTERM | libc::SIGHUP | libc::SIGINT | libc::SIGQUIT => {
                    self.early.push(caught);
                    return true;
                }
                _ => self.on_signal(caught),
            }
        }
        false
    }

    fn finish(mut self) -> Ended {
        let ending = self.ending.unwrap_or(Ending::Exited(0));
        let hurried = self.asked_to_end || matches!(ending, Ending::Killed(_));
        self.flush(hurried.then_some(IMPATIENT));
        // A program that ends well leaves the terminal as it wants it.
        let undo = match ending {
            Ending::Killed(_) => self.modes.undo(true),
            _ if self.asked_to_end => self.modes.undo(true),
            Ending::Exited(0) => Vec::new(),
            _ => self.modes.undo(false),
        };
        if self.tty_open && self.raw.is_some() && !undo.is_empty() {
            let _ = rustix::io::write(&self.tty, &undo);
        }
        self.raw = None;
        self.monitor.reap();
        Ended { ending, asked: self.asked_to_end, agent: self.agent }
    }
}

/// Stops this process the way the agent was stopped. The gentle stops go to our whole group, because the shell waits
/// for all of it (`sh -c 'codemie claude'`), and are dropped by the kernel if nobody could ever continue us.
fn stop_as(signal: c_int) {
    if signal == libc::SIGSTOP {
        return sys::stop_self();
    }
    let _ = sys::set_default(signal);
    sys::signal_own_group(signal);
    let _ = match signal {
        libc::SIGTSTP if sys::was_ignored(signal) => sys::ignore(signal),
        libc::SIGTSTP => sys::catch(signal),
        libc::SIGTTOU => sys::ignore(signal),
        _ => Ok(()),
    };
}
