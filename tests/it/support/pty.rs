//! A terminal for tests: starts a command in a fresh PTY, types into it, reads everything, and waits for what it should see.
//!
//! The command is the leader of its own session and the PTY its controlling terminal. One thread serves the master side: it
//! reads all output, and writes what is typed as fast as the PTY takes it, so `send` never blocks. Waiting is on a condition
//! variable, never a poll; the timeout only bounds a failure, which panics with the screen. Dropping the terminal kills
//! every process that came out of the command.
#![allow(unsafe_code, reason = "pre_exec: the child must become session leader between fork and exec")]

use super::answers::Answers;
use super::processes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::pty::OpenptFlags;
use rustix::termios::{self, Termios, Winsize};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Only bounds failures, so it is far above what a loaded machine needs.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// The prompt of [`Start::shell`].
pub(crate) const PROMPT: &str = "ready> ";

/// What to start, and in what terminal.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: Option<PathBuf>,
    size: Winsize,
    answers: bool,
    timeout: Duration,
}

impl Start {
    /// A command with `PATH` and `TERM` in its environment and nothing else, in a terminal of 80×24 cells of 9×18 pixels.
    pub(crate) fn new<I>(argv: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let path = std::env::var_os("PATH").unwrap();
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: vec![("PATH".into(), path), ("TERM".into(), "xterm-256color".into())],
            cwd: None,
            size: Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 720, ws_ypixel: 432 },
            answers: false,
            timeout: TIMEOUT,
        }
    }

    /// An interactive shell with job control, whose prompt is [`PROMPT`].
    ///
    /// dash rather than bash, because bash puts its own terminal modes back when a job stops and so hides a job that left
    /// them raw.
    pub(crate) fn shell() -> Self {
        Self::new(["dash", "-i"]).env("PS1", PROMPT)
    }

    pub(crate) fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        let name = name.into();
        self.env.retain(|(known, _)| *known != name);
        self.env.push((name, value.into()));
        self
    }

    /// Nothing in the environment but what `env` adds from here on.
    pub(crate) fn env_clear(mut self) -> Self {
        self.env.clear();
        self
    }

    pub(crate) fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = Some(dir.into());
        self
    }

    pub(crate) fn size(mut self, rows: u16, cols: u16) -> Self {
        self.size = cells(rows, cols);
        self
    }

    /// Answer terminal queries as a modern terminal would (see [`super::answers`]).
    pub(crate) fn answers(mut self) -> Self {
        self.answers = true;
        self
    }

    pub(crate) fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(crate) fn spawn(self) -> Terminal {
        Terminal::spawn(&self)
    }
}

fn cells(rows: u16, cols: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: cols, ws_xpixel: cols * 9, ws_ypixel: rows * 18 }
}

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    /// What a shell makes of it: 128+n for a signal, which is also what a wrapper has to exit with.
    pub(crate) fn shell_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        status.code().map_or_else(|| Self::Signal(status.signal().unwrap()), Self::Code)
    }
}

/// All that the terminal has got so far.
pub(crate) struct View<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) exit: Option<Exit>,
    /// Typed bytes that the PTY has not taken yet.
    pub(crate) unsent: usize,
    screen: &'a mut ScreenModel,
}

impl View<'_> {
    pub(crate) fn screen(&mut self) -> &vt100::Screen {
        self.screen.catch_up(self.bytes);
        self.screen.parser.screen()
    }

    /// The screen as text, one line per row.
    pub(crate) fn text(&mut self) -> String {
        self.screen().contents()
    }
}

/// Reads the output only when asked, so that a flood costs nothing to a test that looks at bytes.
struct ScreenModel {
    parser: vt100::Parser<Answers>,
    parsed: usize,
}

impl ScreenModel {
    fn catch_up(&mut self, bytes: &[u8]) {
        self.parser.process(&bytes[self.parsed..]);
        self.parsed = bytes.len();
    }
}

struct State {
    bytes: Vec<u8>,
    screen: ScreenModel,
    outgoing: VecDeque<u8>,
    stalled: bool,
    /// Set by the thread that waits for the command; `exit` follows when the output before it has been read.
    reaped: Option<Exit>,
    exit: Option<Exit>,
    closing: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    master: OwnedFd,
    wake: OwnedFd,
}

impl Shared {
    /// A failed assertion in a waiting test poisons the lock; the state itself is sound.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn wake(&self) {
        // A full pipe wakes just as well.
        let _ = rustix::io::write(&self.wake, b"w");
    }
}

/// A running command and the terminal it runs in.
pub(crate) struct Terminal {
    shared: Arc<Shared>,
    /// Kept open, so that the terminal outlives the command and its modes can be read afterwards.
    slave: OwnedFd,
    pid: i32,
    timeout: Duration,
    threads: Vec<JoinHandle<()>>,
}

impl Terminal {
    fn spawn(start: &Start) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags).unwrap();
        rustix::pty::grantpt(&master).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).unwrap();
        termios::tcsetwinsize(&slave, start.size).unwrap();

        // A description of its own for the command: flags it sets on it must not reach the descriptor kept here.
        let stdio = rustix::pty::ioctl_tiocgptpeer(&master, flags).unwrap();
        let mut child = command(start, stdio)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {:?}: {error}", start.argv));
        let pid = i32::try_from(child.id()).unwrap();

        let (woken, wake) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK)
                .unwrap();
        let shared =
            Arc::new(Shared { state: Mutex::new(State::new(start)), changed: Condvar::new(), master, wake });
        let (serving, reaping) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            thread::spawn(move || serve(&serving, &woken)),
            thread::spawn(move || {
                let exit = child.wait().unwrap().into();
                reaping.lock().reaped = Some(exit);
                reaping.wake();
            }),
        ];
        Self { shared, slave, pid, timeout: start.timeout, threads }
    }

    /// The pid of the command, which is also its session.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Types the bytes; returns at once, they go out as fast as the PTY takes them.
    pub(crate) fn send(&self, bytes: impl AsRef<[u8]>) {
        self.shared.lock().outgoing.extend(bytes.as_ref());
        self.shared.wake();
    }

    /// Types a line and Enter. Returns the mark from before, for [`Self::wait_after`].
    pub(crate) fn type_line(&self, line: impl AsRef<OsStr>) -> usize {
        let mark = self.mark();
        let mut bytes = line.as_ref().as_encoded_bytes().to_vec();
        bytes.push(b'\r');
        self.send(bytes);
        mark
    }

    /// How many bytes have arrived.
    pub(crate) fn mark(&self) -> usize {
        self.shared.lock().bytes.len()
    }

    /// All bytes that have arrived.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.shared.lock().bytes.clone()
    }

    /// The screen as text.
    pub(crate) fn text(&self) -> String {
        self.shared.lock().view().text()
    }

    /// Waits until `condition` holds; panics with the screen when it does not within the timeout.
    pub(crate) fn wait_for(&self, what: &str, condition: impl FnMut(&mut View<'_>) -> bool) {
        self.wait_within(self.timeout, what, condition);
    }

    pub(crate) fn wait_within(
        &self,
        timeout: Duration,
        what: &str,
        mut condition: impl FnMut(&mut View<'_>) -> bool,
    ) {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.lock();
        while !condition(&mut state.view()) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let picture = state.picture();
                drop(state);
                panic!("waited {timeout:?} in vain for {what}\n{picture}");
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .0;
        }
    }

    /// Waits for `needle` in the bytes after `mark`; returns the mark right behind it.
    pub(crate) fn wait_after(&self, mark: usize, needle: impl AsRef<[u8]>) -> usize {
        let needle = needle.as_ref();
        let mut end = 0;
        self.wait_for(&format!("{:?} in the output", needle.escape_ascii().to_string()), |view| {
            let found = memchr::memmem::find(&view.bytes[mark..], needle);
            end = found.map_or(0, |at| mark + at + needle.len());
            found.is_some()
        });
        end
    }

    /// Waits until the screen shows `text`.
    pub(crate) fn wait_text(&self, text: &str) {
        self.wait_for(&format!("{text:?} on the screen"), |view| view.text().contains(text));
    }

    /// Waits for the prompt of [`Start::shell`] after `mark`.
    pub(crate) fn wait_prompt(&self, mark: usize) -> usize {
        self.wait_after(mark, PROMPT)
    }

    /// Waits until the PTY has taken all that was typed.
    pub(crate) fn wait_sent(&self) {
        self.wait_for("all typed bytes to be taken", |view| view.unsent == 0);
    }

    /// Waits until the command has ended and all it wrote before has been read.
    pub(crate) fn wait_exit(&self) -> Exit {
        let mut exit = None;
        self.wait_for("the command to end", |view| {
            exit = view.exit;
            exit.is_some()
        });
        exit.unwrap()
    }

    /// Stops reading: the terminal of a user who holds the scroll bar.
    pub(crate) fn stall(&self) {
        self.shared.lock().stalled = true;
        self.shared.wake();
    }

    pub(crate) fn unstall(&self) {
        self.shared.lock().stalled = false;
        self.shared.wake();
    }

    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        let mut state = self.shared.lock();
        let State { bytes, screen, .. } = &mut *state;
        screen.catch_up(bytes);
        screen.parser.set_size(nonzero(rows), nonzero(cols));
        termios::tcsetwinsize(&self.shared.master, cells(rows, cols)).unwrap();
    }

    pub(crate) fn winsize(&self) -> Winsize {
        termios::tcgetwinsize(&self.slave).unwrap()
    }

    pub(crate) fn termios(&self) -> Termios {
        termios::tcgetattr(&self.slave).unwrap()
    }

    /// Every mode and control character in a form that can be compared and read in a failure.
    pub(crate) fn modes(&self) -> String {
        format!("{:#?}", self.termios())
    }

    /// The process group in the foreground of the terminal.
    pub(crate) fn foreground(&self) -> i32 {
        termios::tcgetpgrp(&self.shared.master).unwrap().as_raw_nonzero().get()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        processes::kill_family(self.pid);
        self.shared.lock().closing = true;
        self.shared.wake();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl State {
    fn new(start: &Start) -> Self {
        let answers = Answers { enabled: start.answers, ..Answers::default() };
        let parser = vt100::Parser::new_with_callbacks(
            nonzero(start.size.ws_row),
            nonzero(start.size.ws_col),
            0,
            answers,
        );
        Self {
            bytes: Vec::new(),
            screen: ScreenModel { parser, parsed: 0 },
            outgoing: VecDeque::new(),
            stalled: false,
            reaped: None,
            exit: None,
            closing: false,
        }
    }

    fn view(&mut self) -> View<'_> {
        View { bytes: &self.bytes, exit: self.exit, unsent: self.outgoing.len(), screen: &mut self.screen }
    }

    fn take_in(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.screen.parser.callbacks().enabled {
            self.screen.catch_up(&self.bytes);
            self.outgoing.extend(self.screen.parser.callbacks_mut().replies.drain(..));
        }
    }

    /// For the message of a failed wait.
    fn picture(&mut self) -> String {
        let text = self.view().text();
        let tail = &self.bytes[self.bytes.len().saturating_sub(1000)..];
        let tail = tail.escape_ascii();
        let (exit, count, unsent) = (self.exit, self.bytes.len(), self.outgoing.len());
        format!(
            "--- screen\n{text}\n--- last of {count} bytes\n{tail}\n--- exit {exit:?}, {unsent} typed bytes not taken"
        )
    }
}

fn nonzero(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).unwrap()
}

fn command(start: &Start, stdio: OwnedFd) -> Command {
    let mut command = Command::new(&start.argv[0]);
    command.args(&start.argv[1..]).env_clear().envs(start.env.iter().cloned());
    if let Some(dir) = &start.cwd {
        command.current_dir(dir);
    }
    command.stdin(Stdio::from(stdio.try_clone().unwrap()));
    command.stdout(Stdio::from(stdio.try_clone().unwrap()));
    command.stderr(Stdio::from(stdio));
    // SAFETY: only async-signal-safe system calls, no allocation.
    unsafe { command.pre_exec(become_session_leader) };
    command
}

fn become_session_leader() -> std::io::Result<()> {
    // What the test runner ignores (nohup, a CI's supervisor) must not reach the command.
    for signal in [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGCHLD,
    ] {
        // SAFETY: resets a disposition in a process with one thread.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    rustix::process::setsid()?;
    rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
    Ok(())
}

/// The terminal's own thread: reads output unless stalled, writes what is typed, publishes the exit after the last output.
fn serve(shared: &Shared, woken: &OwnedFd) {
    loop {
        let (stalled, typing, reaped) = {
            let state = shared.lock();
            if state.closing {
                return;
            }
            (state.stalled, !state.outgoing.is_empty(), state.reaped.filter(|_| state.exit.is_none()))
        };
        if !stalled {
            read_available(shared);
        }
        if reaped.is_some() {
            shared.lock().exit = reaped;
            shared.changed.notify_all();
        }
        if typing {
            write_typed(shared);
        }
        wait_for_work(shared, woken);
    }
}

/// Reads until nothing is left. A read of a PTY first brings in what the other side has written, so this is exact.
fn read_available(shared: &Shared) {
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = retry_on_intr(|| rustix::io::read(&shared.master, &mut chunk[..])) {
        let mut state = shared.lock();
        state.take_in(&chunk[..count]);
        shared.changed.notify_all();
        if state.stalled || state.closing {
            return;
        }
    }
}

fn write_typed(shared: &Shared) {
    let mut state = shared.lock();
    let next = state.outgoing.as_slices().0;
    if let Ok(count) = rustix::io::write(&shared.master, next) {
        state.outgoing.drain(..count);
        shared.changed.notify_all();
    }
}

fn wait_for_work(shared: &Shared, woken: &OwnedFd) {
    let mut interest = PollFlags::empty();
    {
        let state = shared.lock();
        interest.set(PollFlags::IN, !state.stalled);
        interest.set(PollFlags::OUT, !state.outgoing.is_empty());
    }
    let mut waits =
        [PollFd::new(woken, PollFlags::IN), PollFd::from_borrowed_fd(shared.master.as_fd(), interest)];
    let _ = poll(&mut waits, None);
    if !waits[0].revents().is_empty() {
        let _ = rustix::io::read(woken, &mut [0; 64]);
    }
}
