//! A terminal for tests: starts a command in a fresh PTY, types into it, reads everything, and waits for what it should see.
//!
//! The command is the leader of its own session and the PTY its controlling terminal. One thread serves the master side: it
//! reads all output, and writes what is typed as fast as the PTY takes it, so `send` never blocks. Waiting is on a condition
//! variable, never a poll; the timeout only bounds a failure, which panics with the screen. Dropping the terminal kills
//! every process that came out of the command.
mod child;
mod master;

pub(crate) use self::master::View;
use self::master::{Shared, State, nonzero, serve};
use super::processes;
use rustix::pty::OpenptFlags;
use rustix::termios::{self, Termios, Winsize};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
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
    modes: fn(&mut Termios),
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
            modes: |_| {},
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

    /// A command that was prepared for a start without a terminal.
    pub(crate) fn of(command: &std::process::Command) -> Self {
        let argv = std::iter::once(command.get_program()).chain(command.get_args());
        let mut start = Self::new(argv).size(24, 200);
        for (name, value) in command.get_envs() {
            start = start.env(name, value.unwrap_or_default());
        }
        start.cwd = command.get_current_dir().map(PathBuf::from);
        start
    }

    /// The same surroundings for another command.
    pub(crate) fn argv(mut self, argv: Vec<OsString>) -> Self {
        self.argv = argv;
        self
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

    /// Changes the terminal's modes before the command starts.
    pub(crate) fn modes(mut self, change: fn(&mut Termios)) -> Self {
        self.modes = change;
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

/// A running command and the terminal it runs in.
pub(crate) struct Terminal {
    shared: Arc<Shared>,
    /// `None` after the terminal was hung up.
    master: Option<Arc<OwnedFd>>,
    /// Kept open, so that the terminal outlives the command and its modes can be read afterwards.
    slave: OwnedFd,
    first_modes: String,
    pid: i32,
    timeout: Duration,
    serving: Option<JoinHandle<()>>,
    reaping: Option<JoinHandle<()>>,
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
        let mut modes = termios::tcgetattr(&slave).unwrap();
        (start.modes)(&mut modes);
        termios::tcsetattr(&slave, termios::OptionalActions::Now, &modes).unwrap();

        // A description of its own for the command: flags it sets on it must not reach the descriptor kept here.
        let stdio = rustix::pty::ioctl_tiocgptpeer(&master, flags).unwrap();
        let mut child = child::command(start, stdio)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {:?}: {error}", start.argv));
        let pid = i32::try_from(child.id()).unwrap();

        let (woken, wake) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK)
                .unwrap();
        let shared = Arc::new(Shared { state: Mutex::new(State::new(start)), changed: Condvar::new(), wake });
        let master = Arc::new(master);
        let (served, serving) = (Arc::clone(&master), Arc::clone(&shared));
        let serving = thread::spawn(move || serve(&serving, &served, &woken));
        let reaping = Arc::clone(&shared);
        let reaping = thread::spawn(move || reaping.reaped(child.wait().unwrap().into()));
        Self {
            shared,
            master: Some(master),
            slave,
            first_modes: format!("{modes:#?}"),
            pid,
            timeout: start.timeout,
            serving: Some(serving),
            reaping: Some(reaping),
        }
    }

    /// The pid of the command, which is also its session.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
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

    /// Waits until `condition` holds; panics with the screen when it does not within the timeout, or when the command has
    /// ended and so nothing more can come.
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
            if left.is_zero() || state.exit.is_some() {
                let picture = state.picture();
                drop(state);
                panic!("waited {:?} in vain for {what}\n{picture}", timeout.saturating_sub(left));
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether `condition` comes to hold within the time.
    pub(crate) fn holds_within(
        &self,
        timeout: Duration,
        mut condition: impl FnMut(&mut View<'_>) -> bool,
    ) -> bool {
        let state = self.shared.lock();
        let waited =
            self.shared.changed.wait_timeout_while(state, timeout, |state| !condition(&mut state.view()));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
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

    /// Waits for a number that begins at `mark` and ends before `end`; returns it and the mark behind `end`.
    pub(crate) fn number_after(&self, mark: usize, end: &str) -> (i32, usize) {
        let after = self.wait_after(mark, end);
        let text = String::from_utf8_lossy(&self.bytes()[mark..after - end.len()]).into_owned();
        (text.parse().unwrap_or_else(|_| panic!("{text:?} is no number")), after)
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
        self.stall_at(0);
    }

    /// Stops reading once that many bytes have arrived in all.
    pub(crate) fn stall_at(&self, count: usize) {
        self.shared.lock().stall_at = count;
        self.shared.wake();
    }

    pub(crate) fn unstall(&self) {
        self.stall_at(usize::MAX);
    }

    /// Takes the terminal away: the user closed the window.
    pub(crate) fn hang_up(&mut self) {
        self.shared.lock().closing = true;
        self.shared.wake();
        if let Some(serving) = self.serving.take() {
            serving.join().unwrap();
        }
        self.master = None;
    }

    fn master(&self) -> &OwnedFd {
        self.master.as_ref().unwrap()
    }

    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        let mut state = self.shared.lock();
        let State { bytes, screen, .. } = &mut *state;
        screen.catch_up(bytes);
        screen.parser.set_size(nonzero(rows), nonzero(cols));
        termios::tcsetwinsize(self.master(), cells(rows, cols)).unwrap();
    }

    pub(crate) fn termios(&self) -> Termios {
        termios::tcgetattr(&self.slave).unwrap()
    }

    /// Every mode and control character in a form that can be compared and read in a failure.
    pub(crate) fn modes(&self) -> String {
        format!("{:#?}", self.termios())
    }

    /// The modes from before the command was started.
    pub(crate) fn first_modes(&self) -> &str {
        &self.first_modes
    }

    /// The process group in the foreground of the terminal.
    pub(crate) fn foreground(&self) -> i32 {
        termios::tcgetpgrp(self.master()).unwrap().as_raw_nonzero().get()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        processes::kill_family(self.pid);
        self.hang_up();
        if let Some(reaping) = self.reaping.take() {
            let _ = reaping.join();
        }
    }
}
