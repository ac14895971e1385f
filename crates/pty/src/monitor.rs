//! The process between wrapper and program: session leader of the inner terminal.
//!
//! A program that stops itself is stopped only if its process group has a parent in the same session; as session leader
//! of a PTY it would have none, the kernel would drop the signal, and the terminal would be dead. The monitor is that
//! parent. It starts the program in a process group of its own, reports its stops and its end, and continues it on
//! request. If the wrapper vanishes, it ends the program.

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use libc::c_int;
use rustix::process::{Pid as RustixPid, WaitOptions, setpgid, setsid, waitpid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::front_end::SavedTerminal;
use super::signals::Signals;
use super::sys;
use super::sys::{Forked, Image};
use super::tty;
use super::wait::{Watch, wait};
use types::Pid;

/// How long a program whose wrapper was killed may take to end by itself. Claude needs up to 2.6 s when it is
/// interrupted while it streams.
const ORPHAN_GRACE: Duration = Duration::from_secs(4);

/// A message from the monitor to the wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    Started(Pid),
    /// The program could not be started, with the system's error number.
    NotStarted(c_int),
    /// The monitor itself could not begin; nothing was started.
    Unable(c_int),
    Stopped(c_int),
    Exited(c_int),
    Killed(c_int),
}

/// A message from the wrapper to the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continue {
    pub in_foreground: bool,
}

const MESSAGE: usize = 5;

impl Report {
    fn encode(self) -> [u8; MESSAGE] {
        let (kind, value) = match self {
            Self::Started(pid) => (b's', pid.0),
            Self::NotStarted(errno) => (b'n', errno),
            Self::Unable(errno) => (b'u', errno),
            Self::Stopped(signal) => (b't', signal),
            Self::Exited(code) => (b'e', code),
            Self::Killed(signal) => (b'k', signal),
        };
        let mut message = [kind; MESSAGE];
        message[1..].copy_from_slice(&value.to_le_bytes());
        message
    }

    fn decode(message: [u8; MESSAGE]) -> Option<Self> {
        let [kind, value @ ..] = message;
        let value = c_int::from_le_bytes(value);
        Some(match kind {
            b's' => Self::Started(Pid(value)),
            b'n' => Self::NotStarted(value),
            b'u' => Self::Unable(value),
            b't' => Self::Stopped(value),
            b'e' => Self::Exited(value),
            b'k' => Self::Killed(value),
            _ => return None,
        })
    }
}

/// The wrapper's end of the conversation.
#[derive(Debug)]
pub struct Monitor {
    pid: Pid,
    line: UnixStream,
}

impl Monitor {
    /// Forks the monitor, which starts the program on `far` in the place of the descriptors `on_terminal`
    /// (the others it inherits). `ours` are the wrapper's own descriptors, which the monitor has no use for. All signals
    /// must be held; the monitor releases them for itself.
    pub fn start(
        far: OwnedFd,
        image: &Image,
        on_terminal: &[RawFd],
        saved: Option<SavedTerminal<'_>>,
        ours: &[RawFd],
    ) -> io::Result<Self> {
        let (line, theirs) = UnixStream::pair()?;
        match sys::fork()? {
            Forked::Parent(pid) => {
                drop(far);
                line.set_nonblocking(true)?;
                Ok(Self { pid, line })
            }
            Forked::Child => {
                drop(line);
                for fd in ours {
                    sys::close(*fd);
                }
                match spawn(&far, image, on_terminal) {
                    Ok(program) => {
                        let _ = oversee(&far, &theirs, program, saved);
                    }
                    Err(error) => send(&theirs, Report::Unable(error.raw_os_error().unwrap_or(0))),
                }
                sys::exit_child(0)
            }
        }
    }

    /// The next report, if one is there. `Err` when the monitor is gone.
    pub fn report(&mut self) -> io::Result<Option<Report>> {
        let mut message = [0; MESSAGE];
        loop {
            match self.line.read(&mut message) {
                // The messages are far smaller than a socket's buffer: they are written and read whole.
                Ok(MESSAGE) => return Ok(Report::decode(message)),
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub fn resume(&mut self, request: Continue) {
        let _ = self.line.write_all(&[u8::from(request.in_foreground)]);
    }

    /// Lets the monitor go, and waits until it has.
    pub fn reap(self) {
        drop(self.line);
        while let Err(rustix::io::Errno::INTR) =
            waitpid(RustixPid::from_raw(self.pid.0), WaitOptions::empty())
        {}
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

/// The program's process, and the socket on which it reports that it could not become the program.
struct Spawned {
    pid: Pid,
    failure: UnixStream,
    signals: Signals,
}

fn spawn(far: &OwnedFd, image: &Image, on_terminal: &[RawFd]) -> io::Result<Spawned> {
    setsid()?;
    rustix::process::ioctl_tiocsctty(far)?;
    let (failure, theirs) = UnixStream::pair()?;
    let signals = Signals::prepare()?;
    match sys::fork()? {
        Forked::Child => become_program(far, &theirs, image, on_terminal),
        Forked::Parent(pid) => Ok(Spawned { pid, failure, signals }),
    }
}

/// The rest of the monitor's life.
fn oversee(
    far: &OwnedFd,
    line: &UnixStream,
    spawned: Spawned,
    saved: Option<SavedTerminal<'_>>,
) -> io::Result<()> {
    let Spawned { pid: program, failure, mut signals } = spawned;
    listen(&mut signals)?;
    let group = RustixPid::from_raw(program.0);
    let _ = setpgid(group, group); // the child does it, too; either may be first
    let mut overseer = Overseer { far, line, program, saved, signals, stopped: Cell::new(false) };
    overseer.report(match sys::exec_failure(&failure) {
        None => Report::Started(program),
        Some(errno) => Report::NotStarted(errno),
    });
    drop(failure);
    let [reader, writer] = overseer.signals.descriptors();
    let tty = saved.map_or(-1, |saved| saved.tty.as_raw_fd());
    sys::close_all_but(&mut [far.as_raw_fd(), line.as_raw_fd(), tty, reader, writer]);
    overseer.run()
}

/// Whatever ends the wrapper must not end the monitor before it has seen the program's end.
fn listen(signals: &mut Signals) -> io::Result<()> {
    for signal in (1..32).chain(sys::real_time_signals()) {
        if !matches!(signal, libc::SIGKILL | libc::SIGSTOP | libc::SIGCHLD | libc::SIGSEGV | libc::SIGBUS) {
            let _ = sys::ignore(signal);
        }
    }
    signals.catch([libc::SIGCHLD])?;
    sys::release_signals();
    Ok(())
}

/// Makes our process group the foreground one of a terminal.
fn bring_own_group_to_front(terminal: BorrowedFd<'_>) {
    if let Some(group) = sys::own_group() {
        let _ = tcsetpgrp(terminal, group);
    }
}

fn become_program(far: &OwnedFd, failure: &UnixStream, image: &Image, on_terminal: &[RawFd]) -> ! {
    let _ = setpgid(None, None);
    // Signals are still held, so taking the terminal from the background does not stop us.
    bring_own_group_to_front(far.as_fd());
    for fd in on_terminal {
        let _ = sys::replace(*fd, far.as_fd());
    }
    sys::exec_or_report(image, failure)
}

fn send(mut line: &UnixStream, report: Report) {
    let _ = line.write_all(&report.encode());
}

struct Overseer<'a> {
    far: &'a OwnedFd,
    line: &'a UnixStream,
    program: Pid,
    saved: Option<SavedTerminal<'a>>,
    signals: Signals,
    /// The last report was a stop.
    stopped: Cell<bool>,
}

impl Overseer<'_> {
    fn report(&self, report: Report) {
        send(self.line, report);
    }

    fn run(&mut self) -> io::Result<()> {
        let mut kill_at = None;
        loop {
            if self.program_has_ended()? {
                return Ok(());
            }
            let timeout = kill_at.map(|at: Instant| at.saturating_duration_since(Instant::now()));
            let orphaned = kill_at.is_some();
            let mut watches = [
                Watch::new(self.signals.as_fd(), true, false),
                Watch::new(self.line.as_fd(), !orphaned, false),
            ];
            wait(&mut watches, timeout)?;
            let requested = watches[1].readable;
            while self.signals.next().is_some() {}
            if requested && !self.carry_out_request() {
                if let Some(saved) = self.saved {
                    tty::restore_after_kill(saved.tty, saved.settings);
                }
                self.end_program(libc::SIGHUP);
                kill_at = Some(Instant::now() + ORPHAN_GRACE);
            }
            if kill_at.is_some_and(|at| Instant::now() >= at) {
                self.end_program(libc::SIGKILL);
                kill_at = Some(Instant::now() + ORPHAN_GRACE);
            }
        }
    }

    /// Reports the program's stops and its end; true when it has ended.
    fn program_has_ended(&self) -> io::Result<bool> {
        let pid = RustixPid::from_raw(self.program.0);
        while let Some((_, status)) = waitpid(pid, WaitOptions::NOHANG | WaitOptions::UNTRACED)? {
            let end = if let Some(signal) = status.stopping_signal() {
                self.stopped.set(true);
                self.report(Report::Stopped(signal));
                continue;
            } else if let Some(signal) = status.terminating_signal() {
                Report::Killed(signal)
            } else {
                Report::Exited(status.exit_status().unwrap_or(0))
            };
            // Leaving as session leader hangs up on the foreground group: let that be us alone, so that what the
            // program left running in its group runs on, as it would without us.
            bring_own_group_to_front(self.far.as_fd());
            self.report(end);
            if self.stopped.get() {
                // The wrapper has stopped with it, and the shell would never learn that the job is over.
                sys::continue_parent();
            }
            // With its session's leader the inner terminal loses what nobody has read, and the wrapper wants that.
            let mut line = self.line;
            while !matches!(line.read(&mut [0]), Ok(0) | Err(_)) {}
            return Ok(true);
        }
        Ok(false)
    }

    /// Carries out the wrapper's request; false when the wrapper is gone.
    fn carry_out_request(&mut self) -> bool {
        let mut request = [0];
        match self.line.read(&mut request) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            // ECONNRESET: it ended without reading our last report.
            Err(_) => return false,
        }
        let foreground = if request[0] == 0 { sys::own_group() } else { RustixPid::from_raw(self.program.0) };
        if let Some(group) = foreground {
            let _ = tcsetpgrp(self.far, group);
        }
        self.stopped.set(false);
        sys::signal_group(self.program, libc::SIGCONT);
        true
    }

    fn end_program(&self, signal: c_int) {
        let foreground = tcgetpgrp(self.far).ok().filter(|group| Some(*group) != sys::own_group());
        let foreground = foreground.map(|group| Pid(group.as_raw_nonzero().get()));
        for group in
            [Some(self.program), foreground.filter(|group| *group != self.program)].into_iter().flatten()
        {
            sys::signal_group(group, signal);
            sys::signal_group(group, libc::SIGCONT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_report_is_decoded_as_it_was_encoded() {
        for report in [
            Report::Started(Pid(i32::MAX)),
            Report::NotStarted(libc::ENOENT),
            Report::Unable(libc::EMFILE),
            Report::Stopped(libc::SIGTSTP),
            Report::Exited(255),
            Report::Killed(libc::SIGKILL),
        ] {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        assert_eq!(Report::decode(*b"?\0\0\0\0"), None);
    }
}
