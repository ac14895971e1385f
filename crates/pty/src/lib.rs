//! The terminal crate: runs a program so that neither it nor the terminal can notice codemie between them.
//!
//! Knows nothing of agents and sessions. It reports when the program has started and how it ended, and offers a tap on input
//! and output. The other side of the program's terminal is a [`FrontEnd`]: the user's terminal, or any other.
//!
//! ```text
//! sys                              system calls, and all of codemie's `unsafe`
//! process, signals, wait, tty      processes by pid and start time; signals as bytes; poll or select; the terminal as a device
//! inner, monitor                   the inner PTY, and the process that is its session leader
//! front_end                        where input comes from and output goes; the user's terminal: raw mode, foreground, stops
//! pump, buffer                     one loop over front end, PTY, signals and the monitor's reports; bytes of one direction
//! interrupt, typed_ahead, modes    keys that become signals; input from before the start; what is undone at the end
//! tap                              a copy for observers: they may lag, and then lose output and learn how much
//! plain                            a program without an inner terminal
//! screen, chord, viewer, handoff   a screen model and key frames; the terminal of whoever attaches, or that is handed to a host
//! ```
//!
//! Constraints:
//! - Nothing between a key and its echo allocates, or waits for anything but the front end and the PTY. Output is read at most two
//!   chunks of 4 KiB at a time: with 16 a key took three times as long to be shown.
//! - Every byte, signal, stop, size and exit status is the bare program's; raw mode, modes and descriptors are given back.
//! - No thread exists before the monitor is forked.
//!
//! Decisions and measurements: docs/design/01-monitor.md to 05-terminal-hand-off.md, 26-known-differences.md.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::time::Duration;

use libc::c_int;

use process::{Processes, SystemProcesses};
use types::{Pid, ProcessId};

mod buffer;
pub mod chord;
pub mod front_end;
pub mod handoff;
mod inner;
mod interrupt;
pub mod modes;
mod monitor;
mod plain;
pub mod process;
mod pump;
pub mod screen;
mod signals;
mod sys;
pub mod tap;
mod tty;
mod typed_ahead;
pub mod viewer;
mod wait;

pub use front_end::{FrontEnd, Input};
pub use portable_pty::PtySize;
pub use tap::Tap;
pub use tty::restore_after_panic;
pub use typed_ahead::TypedAhead;
pub use viewer::Viewer;

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSpec {
    /// A path, or a name to be found on `PATH`.
    pub program: OsString,
    /// What the program sees as its own name.
    pub arg0: OsString,
    pub args: Vec<OsString>,
    /// Variables to add or replace.
    pub set: Vec<(OsString, OsString)>,
    /// Variables to take away.
    pub remove: Vec<OsString>,
}

/// The program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramStarted {
    pub pid: Pid,
}

/// What the caller does beside the program.
pub trait Observer {
    /// The program's process was forked. From here on there may be threads. The tap, which is fed only where there is an
    /// inner terminal, sees everything from the first byte on.
    fn forked(&mut self) -> Option<Tap>;

    /// The program runs. Called once.
    fn started(&mut self, program: ProgramStarted);
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramExit {
    Exited(c_int),
    Killed(c_int),
    /// It never ran; with the system's error number.
    NotStarted(c_int),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramEnd {
    pub exit: ProgramExit,
    /// It was asked to end before, by a signal to us (TERM, HUP) or because its front end is gone.
    pub asked: bool,
    /// It was another codemie that asked, to stop the session.
    pub stopped: bool,
    /// `None` when it never ran.
    pub pid: Option<Pid>,
}

impl ProgramExit {
    /// The signal it died of.
    pub fn signal(self) -> Option<c_int> {
        match self {
            Self::Killed(signal) => Some(signal),
            Self::Exited(_) | Self::NotStarted(_) => None,
        }
    }

    /// The exit code as a shell reports it.
    pub fn code(self) -> u8 {
        let code = match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => 128 + signal,
            Self::NotStarted(libc::ENOENT | libc::ENOTDIR) => 127,
            Self::NotStarted(_) => 126,
        };
        u8::try_from(code & 0xff).unwrap_or(u8::MAX)
    }
}

/// Replaces this process by the program. Returns only on failure.
pub fn exec(spec: &ProgramSpec) -> io::Error {
    match image(spec) {
        Ok(image) => image.exec(),
        Err(error) => error,
    }
}

/// Runs the program to its end, on an inner terminal if we are on one. No thread may exist before
/// `observer` is called.
///
/// An error means that nothing was started.
pub fn run(spec: &ProgramSpec, observer: &mut dyn Observer) -> io::Result<ProgramEnd> {
    let image = image(spec)?;
    let observer = &mut Titled { spec, observer };
    if let Some(tty) = tty::Tty::on_stdio() {
        let mut terminal = front_end::UserTerminal::new(tty);
        // Without an inner terminal (no PTY left, too few descriptors) the program can still have the real one.
        let end = pump::Pump::start(&mut terminal, &image).and_then(|pump| pump.run(observer));
        if let Ok(end) = end {
            return Ok(end);
        }
    }
    // Not even that: then without us.
    plain::run(&image, observer).map_err(|_| image.exec())
}

/// Runs the program to its end on an inner terminal whose other side is `front`. No thread may exist before
/// `observer` is called; signals sent to this process are passed on to the program meanwhile.
///
/// An error means that nothing was started.
pub fn run_on(
    front: &mut impl FrontEnd,
    spec: &ProgramSpec,
    observer: &mut dyn Observer,
) -> io::Result<ProgramEnd> {
    pump::Pump::start(front, &image(spec)?)?.run(observer)
}

/// Shows this process under the program's command line from the moment it runs: tmux and others name a window after its
/// foreground job, and that is us.
struct Titled<'a> {
    spec: &'a ProgramSpec,
    observer: &'a mut dyn Observer,
}

impl Observer for Titled<'_> {
    fn forked(&mut self) -> Option<Tap> {
        self.observer.forked()
    }

    fn started(&mut self, program: ProgramStarted) {
        self.observer.started(program);
        let ProgramSpec { arg0, args, .. } = self.spec;
        let arguments: Vec<&OsStr> = std::iter::once(arg0).chain(args).map(OsString::as_os_str).collect();
        sys::show_as(&arguments);
    }
}

fn image(spec: &ProgramSpec) -> io::Result<sys::Image> {
    let argv = std::iter::once(spec.arg0.as_os_str()).chain(spec.args.iter().map(OsString::as_os_str));
    sys::Image::new(&spec.program, argv, changed(sys::environment(), spec)?)
}

/// The caller's environment, entry by entry as it is, but for the spec's changes.
fn changed(mut env: Vec<CString>, spec: &ProgramSpec) -> io::Result<Vec<CString>> {
    let names = spec.set.iter().map(|(name, _)| name).chain(&spec.remove);
    for name in names {
        env.retain(|entry| entry_name(entry) != name.as_bytes());
    }
    for (name, value) in &spec.set {
        let entry = [name.as_bytes(), b"=", value.as_bytes()].concat();
        env.push(CString::new(entry).map_err(io::Error::other)?);
    }
    Ok(env)
}

fn entry_name(entry: &CString) -> &[u8] {
    let bytes = entry.as_bytes();
    memchr::memchr(b'=', bytes).map_or(bytes, |at| &bytes[..at])
}

/// Does something while no signal can reach the calling thread. A thread that is started here never takes one.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    sys::share_one_heap();
    sys::hold_signals();
    let result = work();
    sys::release_signals();
    result
}

/// Starts a program that goes on without us and shares nothing with us but the environment.
pub fn spawn_detached(command: &mut std::process::Command) -> io::Result<()> {
    sys::spawn_detached(command, Stdio::null(), Stdio::null())
}

/// The same for a program that is handed two descriptors, as its standard input and its standard output.
pub fn spawn_detached_with(
    command: &mut std::process::Command,
    stdin: OwnedFd,
    stdout: OwnedFd,
) -> io::Result<()> {
    sys::spawn_detached(command, stdin.into(), stdout.into())
}

/// Which of the two a process is after [`fork_detached`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    Launcher,
    /// In a session of its own, without a terminal, with `/dev/null` on the standard descriptors and nothing else open but what
    /// was kept.
    Host,
}

/// Forks a process that goes on without us. No thread may exist.
pub fn fork_detached(keep: &[std::os::fd::BorrowedFd<'_>]) -> io::Result<Detached> {
    Ok(match sys::fork()? {
        sys::Forked::Parent(_) => Detached::Launcher,
        sys::Forked::Child => {
            sys::leave_session(keep);
            Detached::Host
        }
    })
}

/// Ends a host without running anything that its launcher had set up.
pub fn exit_host(code: u8) -> ! {
    sys::exit_child(code.into())
}

/// The user of the process at the other end of a socket.
pub fn peer_user(socket: &std::os::unix::net::UnixStream) -> io::Result<u32> {
    sys::peer_user(socket)
}

/// The process at the other end of a Unix socket; `None` where it cannot be seen from here.
pub fn peer_process(socket: &std::os::unix::net::UnixStream) -> Option<Pid> {
    sys::peer_process(socket)
}

/// The user this process runs as.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Are we on a terminal that a program could be wrapped on?
pub fn on_terminal() -> bool {
    tty::Tty::on_stdio().is_some()
}

/// The size of the terminal on standard output.
pub fn size_of_stdout() -> io::Result<PtySize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout())?;
    Ok(PtySize {
        rows: size.ws_row,
        cols: size.ws_col,
        pixel_width: size.ws_xpixel,
        pixel_height: size.ws_ypixel,
    })
}

/// Has another wrapper end its program, by force after `grace`. False if that wrapper is no more.
pub fn ask_to_end(wrapper: ProcessId, grace: Duration) -> bool {
    sys::request_end(wrapper.pid, grace, || SystemProcesses.alive(wrapper))
}

/// Has this very wrapper end its program, by force after `grace`. Works without a free descriptor, too.
pub fn end_own_program(grace: Duration) -> bool {
    let own = Pid(std::process::id().cast_signed());
    sys::request_end(own, grace, || true)
}

/// Ends this process as the program ended, so that a shell sees the same: by its signal. Returns if it cannot.
pub fn die_of(signal: c_int) {
    sys::die_of(signal);
}

/// Is this descriptor of ours a terminal? Decides whether to draw on it.
pub fn is_terminal(fd: &impl std::os::fd::AsFd) -> bool {
    rustix::termios::isatty(fd)
}

/// While a line on standard error is redrawn: ^C clears it before it ends us.
pub fn clear_line_on_interrupt() {
    if !sys::was_ignored(libc::SIGINT) {
        let _ = sys::clear_line_before_dying(libc::SIGINT);
    }
}

/// While another program has the terminal and its keys: ^C is for that one.
pub fn ignore_interrupt() {
    let _ = sys::ignore(libc::SIGINT);
}

/// The line is no longer drawn: ^C ends us as by default.
pub fn restore_sigint() {
    if !sys::was_ignored(libc::SIGINT) {
        let _ = sys::set_default(libc::SIGINT);
    }
}

/// Does the name hold a path, so that `PATH` is not searched?
pub fn is_path(name: &OsStr) -> bool {
    name.as_bytes().contains(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_the_shell() {
        for (exit, code) in [
            (ProgramExit::Exited(0), 0),
            (ProgramExit::Exited(255), 255),
            (ProgramExit::Killed(libc::SIGTERM), 143),
            (ProgramExit::Killed(libc::SIGKILL), 137),
            (ProgramExit::NotStarted(libc::ENOENT), 127),
            (ProgramExit::NotStarted(libc::ENOTDIR), 127),
            (ProgramExit::NotStarted(libc::EACCES), 126),
            (ProgramExit::NotStarted(libc::ENOEXEC), 126),
        ] {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }

    #[test]
    fn only_the_named_variables_change() {
        let entries = ["A=1", "B=2=3", "NOEQUALS", "A=again", "AB=4"];
        let env = entries.iter().map(|entry| CString::new(*entry).unwrap()).collect();
        let spec = ProgramSpec {
            program: "x".into(),
            arg0: "x".into(),
            args: vec![],
            set: vec![("A".into(), "new".into())],
            remove: vec!["NOEQUALS".into(), "ABSENT".into()],
        };
        let env = changed(env, &spec).unwrap();
        let expected = ["B=2=3", "AB=4", "A=new"].map(|entry| CString::new(entry).unwrap());
        assert_eq!(env, expected);
    }
}
