//! Running a program on an inner terminal: the pump between a front end and the PTY, and everything that can happen while
//! it runs.
//!
//! One loop waits for four things: the front end, the PTY, signals, and the monitor's reports. Each direction has one bounded
//! buffer that is filled only when it is empty, so a slow side holds the other back and memory stays flat.

mod finish;
mod interrupts;
mod jobs;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use libc::c_int;
use rustix::termios::Termios;

use super::buffer::{Buffer, Filled, LONG_READ};
use super::front_end::{Foreground, FrontEnd, Input};
use super::inner::Inner;
use super::interrupt::{Interrupt, Stale};
use super::modes::Modes;
use super::monitor::{Monitor, Report};
use super::signals::{Signals, forwarded};
use super::sys;
use super::sys::{Caught, Image, Sender};
use super::tap::Tap;
use super::wait::{Watch, wait};
use super::{Observer, ProgramEnd, ProgramExit, ProgramStarted};
use types::Pid;

/// How long a program may take to end when another codemie wants it gone and names no time. Claude was measured at 2.6 s while it streams. No
/// other TERM or HUP has a deadline: a bare program may take its time, or survive.
const GRACE: Duration = Duration::from_secs(10);

/// A terminal that takes nothing (flow control, a frozen window) keeps a stop, or an end that somebody asked for, waiting
/// for this long, and no longer. The program's own end waits for the terminal as its last write would have.
const IMPATIENT: Duration = Duration::from_secs(1);

/// How often a job in the background checks whether it is in the foreground again: `fg` of a running job sends no signal.
const BACKGROUND: Duration = Duration::from_millis(500);

/// More than a PTY holds: output beyond that was written after the program's end, or its stop.
const LAST_BYTES: usize = 128 * 1024;

/// Chunks of a flood, of 4 KiB each, that are passed on before the loop checks anything else. A key waits for that much
/// output and no more; with 16 of them it took three times as long to be shown (p50 1.1 ms against 0.35).
const CHUNKS_AT_ONCE: usize = 2;

/// A program on the inner terminal, started but not yet pumped.
#[derive(Debug)]
pub struct Pump<'a, F> {
    front: &'a mut F,
    /// `None` once the front end is gone and the program's terminal was hung up.
    inner: Option<Inner>,
    monitor: Monitor,
    signals: Signals,
    to_program: Buffer,
    to_front: Buffer,
    modes: Modes,
    tap: Option<Tap>,
    program: Option<Pid>,
    /// Signals for the program that came before it had begun.
    early: Vec<Caught>,
    /// The front end is there.
    front_open: bool,
    /// A key was passed on that becomes a signal, and the kernel has not reported that yet.
    interrupt: Option<(Interrupt, Instant)>,
    /// Output to be dropped, from before an interrupt.
    stale: Option<Stale>,
    /// Another process sent SIGTTIN: the stop that follows is intended.
    stop_wanted: bool,
    kill_at: Option<Instant>,
    asked_to_end: bool,
    /// Another codemie asked.
    stopped: bool,
    /// Something was typed in this run.
    typed: bool,
    /// The process that the shell waits for, once it got a signal of a key's from us: readable when it has ended.
    leader: Option<OwnedFd>,
    /// Our own group got a signal of a key's from us.
    group_signalled: bool,
    /// Why the monitor could not even begin.
    unable: Option<c_int>,
    exit: Option<ProgramExit>,
}

impl<'a, F: FrontEnd> Pump<'a, F> {
    /// Starts the program. An error means that nothing was started and the front end is as it was.
    pub fn start(front: &'a mut F, image: &Image) -> io::Result<Self> {
        let settings = front.settings()?;
        let (inner, far) = Inner::open(front.size()?, settings.as_ref())?;
        // From here to the installed handlers a signal would kill us with the terminal in raw mode.
        sys::hold_signals();
        let started = Self::start_held(front, &inner, far, image, settings.as_ref());
        if started.is_err() {
            front.release();
        }
        sys::release_signals();
        let (monitor, signals, typed) = started?;
        Ok(Self {
            front,
            inner: Some(inner),
            monitor,
            signals,
            to_program: Buffer::default(),
            to_front: Buffer::default(),
            modes: Modes::default(),
            tap: None,
            program: None,
            early: Vec::new(),
            front_open: true,
            interrupt: None,
            stale: None,
            stop_wanted: false,
            typed,
            leader: None,
            group_signalled: false,
            kill_at: None,
            asked_to_end: false,
            stopped: false,
            unable: None,
            exit: None,
        })
    }

    /// Takes the front end and forks, with all signals held. Also returns whether there was typed-ahead input.
    fn start_held(
        front: &mut F,
        inner: &Inner,
        far: OwnedFd,
        image: &Image,
        settings: Option<&Termios>,
    ) -> io::Result<(Monitor, Signals, bool)> {
        let mut signals = Signals::prepare()?;
        let own = [libc::SIGWINCH, libc::SIGTSTP, libc::SIGTTIN, libc::SIGCONT, libc::SIGCHLD];
        signals.catch(forwarded().chain(own))?;
        // Settings are changed only after the foreground was checked; losing it in between must not stop us half way.
        sys::ignore(libc::SIGTTOU)?;
        let ahead = front.prepare()?;
        if let Some(settings) = settings
            && !ahead.is_empty()
        {
            ahead.put_into(far.as_fd(), inner.as_fd(), settings)?;
        }
        let [near, pty] = inner.descriptors();
        let [reader, writer] = signals.descriptors();
        let ours = [near, pty, reader, writer];
        let monitor =
            Monitor::start(far, image, &front.replaced_descriptors(), front.saved_terminal(), &ours)?;
        Ok((monitor, signals, !ahead.is_empty()))
    }

    /// Passes bytes until the program has ended and its last output is on the terminal, then gives the terminal back.
    ///
    /// An error means that nothing was started; `observer` has seen a fork at most.
    pub fn run(mut self, observer: &mut dyn Observer) -> io::Result<ProgramEnd> {
        self.tap = observer.forked();
        let mut reported = false;
        while self.exit.is_none() {
            if self.step().is_err() {
                // Waiting itself fails: nothing can be passed on any more, and no process may be left behind.
                self.kill_program();
                self.ended(ProgramExit::Killed(libc::SIGKILL));
            }
            if let (Some(program), false) = (self.program, reported) {
                reported = true;
                observer.started(ProgramStarted { pid: program });
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
        let held = self.front.is_held();
        let in_background = self.front_open && !held;
        let timeout = self.kill_at.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout =
            if in_background { Some(timeout.unwrap_or(BACKGROUND).min(BACKGROUND)) } else { timeout };
        // A ^C typed before the program runs would reach nobody.
        let reads = self.front_open && held && self.to_program.is_empty() && self.program.is_some();
        let writes = self.front_open && !self.to_front.is_empty();
        let unused = || Watch::new(self.monitor.as_fd(), false, false);
        let mut watches = [
            Watch::new(self.signals.as_fd(), true, false),
            Watch::new(self.monitor.as_fd(), true, false),
            self.inner.as_ref().map_or_else(unused, |inner| {
                Watch::new(inner.as_fd(), self.to_front.is_empty(), !self.to_program.is_empty())
                    .or_report(self.expects_report())
            }),
            self.front.input().map_or_else(unused, |input| Watch::new(input, reads, false)),
            self.front.output().map_or_else(unused, |output| Watch::new(output, false, writes)),
            self.leader.as_ref().map_or_else(unused, |leader| Watch::new(leader.as_fd(), true, false)),
        ];
        wait(&mut watches, timeout)?;
        let [signals, monitor, inner, input, output, leader] =
            watches.map(|watch| (watch.readable, watch.writable));
        if leader.0 {
            self.on_leader_gone();
        }
        // Signals first: a new size must not be overtaken by a key typed after it.
        if signals.0 {
            while let Some(caught) = self.signals.next() {
                self.on_signal(caught);
            }
        }
        // The end before a key: input that the program can no longer read is for the shell.
        if monitor.0 {
            self.on_reports();
        }
        if inner.1 {
            self.write_program();
        }
        if input.0 && self.exit.is_none() {
            self.read_front();
        }
        if output.1 {
            self.write_front();
        }
        if inner.0 && self.to_front.is_empty() {
            self.follow_output();
        } else if inner.0 {
            self.read_report();
        }
        if in_background && !self.front.is_held() && self.program.is_some() && self.in_foreground() {
            self.continued();
        }
        if self.kill_at.is_some_and(|at| Instant::now() >= at) {
            self.kill_program();
            self.kill_at = None;
        }
        Ok(())
    }

    fn read_front(&mut self) {
        loop {
            match self.to_program.fill_from(self.front) {
                Input::Bytes(_) => return self.pass_input(),
                Input::Resized => {
                    self.follow_size();
                }
                Input::Nothing => return,
                Input::Gone => return self.hang_up(),
            }
        }
    }

    fn pass_input(&mut self) {
        self.typed = true;
        let interrupt = self.interrupt_typed();
        self.write_program();
        if let Some(interrupt) = interrupt {
            self.on_interrupt(interrupt);
        }
        if let Some(tap) = &self.tap {
            tap.input(self.to_program.filled());
        }
    }

    fn write_program(&mut self) {
        let written = self.inner.as_ref().map(|inner| self.to_program.drain(inner));
        if !matches!(written, Some(Ok(()))) {
            self.to_program.clear(); // there is no reader any more
        }
    }

    /// Passes output on, chunk by chunk, as long as it comes quickly and the terminal takes it. The bound lets a flood
    /// not drown keys and signals.
    fn follow_output(&mut self) {
        for _ in 0..CHUNKS_AT_ONCE {
            let more = match self.read_program() {
                Filled::Some => self.to_front.filled().len() >= LONG_READ,
                Filled::Control(_) => true,
                Filled::Nothing | Filled::Gone => false,
            };
            if !more || !self.to_front.is_empty() {
                break;
            }
        }
    }

    fn read_program(&mut self) -> Filled {
        let Some(inner) = &self.inner else { return Filled::Gone };
        let filled = if inner.packets { self.to_front.fill_packet(inner) } else { self.to_front.fill(inner) };
        let filled = filled.unwrap_or(Filled::Gone);
        match filled {
            Filled::Some => {
                if let Some(stale) = &mut self.stale {
                    self.to_front.skip(stale.count(self.to_front.filled()));
                    self.stale = self.stale.filter(|stale| !stale.is_over());
                }
                self.write_front();
                self.modes.feed(self.to_front.filled());
            }
            Filled::Nothing => {}
            Filled::Control(flags) => self.on_flushed(flags),
            // Nobody has the far side open. The monitor does as long as it lives, so its last report is near.
            Filled::Gone => self.inner = None,
        }
        filled
    }

    fn write_front(&mut self) {
        if !self.front_open {
            self.to_front.clear();
            return;
        }
        let Ok(written) = self.to_front.drain_into(self.front) else {
            self.to_front.clear();
            return self.hang_up();
        };
        if let Some(tap) = &self.tap {
            tap.output(written);
        }
        if self.front.output().is_none() {
            self.to_front.clear();
        }
    }

    /// The front end is gone: so is the program's terminal, and it gets the hang-up that it would have got without us.
    fn hang_up(&mut self) {
        self.front_open = false;
        self.inner = None;
        if !sys::was_ignored(libc::SIGHUP) {
            self.on_signal(Caught { signal: libc::SIGHUP, sender: Sender::Kernel });
        }
    }

    fn on_signal(&mut self, caught: Caught) {
        match caught.signal {
            // What we send to our whole group is not meant for us.
            _ if caught.sender == Sender::Ourselves => {}
            libc::SIGWINCH => {
                // The kernel sends one for each change. One from a process is meant for the program.
                if !self.follow_size() && caught.sender != Sender::Kernel {
                    self.signal_program(caught);
                }
            }
            // We were stopped from outside and are continued, perhaps in the background or with another size.
            libc::SIGCONT => self.continued(),
            // We have read the terminal from the background.
            libc::SIGTTIN if caught.sender == Sender::Kernel => self.stop_in_background(),
            libc::SIGCHLD => {}
            _ if self.program.is_none() => self.early.push(caught),
            _ => {
                self.asked_to_end |= matches!(caught.signal, libc::SIGTERM | libc::SIGHUP);
                self.stop_wanted |= caught.signal == libc::SIGTTIN;
                self.signal_program(caught);
                if caught.sender == Sender::Codemie {
                    self.stopped = true;
                    let grace = sys::requested_grace().unwrap_or(GRACE);
                    self.kill_at.get_or_insert_with(|| Instant::now() + grace);
                }
            }
        }
    }

    fn on_reports(&mut self) {
        loop {
            match self.monitor.report() {
                Ok(Some(Report::Started(pid))) => {
                    self.program = Some(pid);
                    sys::close_inherited();
                    for caught in std::mem::take(&mut self.early) {
                        self.on_signal(caught);
                    }
                }
                Ok(Some(Report::NotStarted(errno))) => self.exit = Some(ProgramExit::NotStarted(errno)),
                Ok(Some(Report::Unable(errno))) => {
                    self.unable = Some(errno);
                    return self.ended(ProgramExit::NotStarted(errno));
                }
                Ok(Some(Report::Stopped(signal))) => self.suspend(signal),
                Ok(Some(Report::Exited(code))) => return self.ended(ProgramExit::Exited(code)),
                Ok(Some(Report::Killed(signal))) => return self.ended(ProgramExit::Killed(signal)),
                Ok(None) => return,
                // Somebody killed the monitor. The kernel has hung up on the program; nobody can know how it ends.
                Err(_) => {
                    self.kill_program();
                    return self.ended(ProgramExit::Killed(libc::SIGKILL));
                }
            }
        }
    }

    fn ended(&mut self, exit: ProgramExit) {
        // A failed exec is followed by an exit, which carries less information.
        self.exit.get_or_insert(exit);
    }

    /// Passes a signal on. One that was sent to our process group goes to the program's; one that was sent to our pid goes to
    /// the program alone.
    fn signal_program(&self, caught: Caught) {
        let Some(program) = self.program else { return };
        let for_group = matches!(
            caught.signal,
            libc::SIGTERM | libc::SIGHUP | libc::SIGINT | libc::SIGQUIT | libc::SIGTSTP
        );
        if for_group && caught.sender != Sender::Process {
            sys::signal_group(program, caught.signal);
        } else {
            sys::signal_process(program, caught.signal);
        }
        // A hang-up reaches stopped processes, too, and so must a request to end.
        if caught.signal == libc::SIGHUP || caught.sender == Sender::Codemie {
            sys::signal_group(program, libc::SIGCONT);
        }
    }

    fn kill_program(&self) {
        if let Some(program) = self.program {
            sys::signal_group(program, libc::SIGKILL);
        }
    }

    /// The inner terminal gets the size of the front end; false if it had it.
    fn follow_size(&mut self) -> bool {
        match (self.front.size(), &mut self.inner) {
            (Ok(size), Some(inner)) => inner.resize(size),
            _ => false,
        }
    }

    /// Is no other job in the front end's foreground?
    fn in_foreground(&self) -> bool {
        self.front.foreground() != Foreground::AnotherJob
    }
}
