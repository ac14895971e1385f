//! The scripted agent's terminal: frames out, time, and the one key it listens to.
//!
//! It behaves as full-screen programs do: raw mode and the alternate screen, both given back however it ends.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Signal, getpid, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use super::frame::{Scene, frame};
use format::output::Style;

const CONTROL_C: u8 = 3;

const ENTER: &str = "\x1b[?1049h\x1b[2J";
const LEAVE: &str = "\x1b[?1049l";
/// Around a frame, so that it appears at once.
const BEGIN: &str = "\x1b[?2026h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?2026l";

/// Why the play ends early.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stop {
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Io(#[from] io::Error),
}

pub(super) struct Stage {
    /// `None`: standard input is not a terminal.
    saved: Option<Termios>,
    style: Style,
    /// Nobody watches: pauses are left out.
    swift: bool,
    /// When the last pause ends. On a slow machine the time for drawing is subtracted from the next pause.
    due: Instant,
}

impl Stage {
    pub(super) fn enter(swift: bool) -> io::Result<Self> {
        let saved = tcgetattr(stdin()).ok();
        if let Some(saved) = &saved {
            let mut raw = saved.clone();
            raw.make_raw();
            tcsetattr(stdin(), OptionalActions::Drain, &raw)?;
        }
        let stage = Self { saved, style: Style::of_stdout(), swift, due: Instant::now() };
        write(ENTER)?;
        Ok(stage)
    }

    pub(super) fn draw(&self, scene: &Scene) -> Result<(), Stop> {
        let size = tcgetwinsize(stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row, size.ws_col));
        let frame = frame(scene, rows.into(), Style { columns: columns.into(), ..self.style });
        let picture: Vec<String> = frame.rows.iter().map(|row| format!("{row}\x1b[K")).collect();
        let (row, column) = frame.cursor;
        let text = format!("{BEGIN}\x1b[H{}\x1b[{row};{column}H{END}", picture.join("\r\n"));
        Ok(write(&text)?)
    }

    /// Pauses, unless nobody watches; ends the play if the user pressed ^C.
    pub(super) fn pause(&mut self, time: Duration) -> Result<(), Stop> {
        self.due = if self.swift { Instant::now() } else { self.due + time };
        loop {
            let left = self.due.saturating_duration_since(Instant::now());
            if Self::key_within(left)? {
                let mut keys = [0; 64];
                let count = rustix::io::read(stdin(), &mut keys).map_err(io::Error::from)?;
                if count == 0 {
                    // The terminal is gone, and its signal is on the way: it ends us as usual.
                    let _ = kill_process(getpid(), Signal::HUP);
                }
                if count == 0 || keys[..count].contains(&CONTROL_C) {
                    return Err(Stop::Interrupted);
                }
            } else {
                return Ok(());
            }
        }
    }

    fn key_within(time: Duration) -> io::Result<bool> {
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&stdin(), PollFlags::IN)], Some(&time)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false), // a resize: the next frame has the new size
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = write(LEAVE);
        if let Some(saved) = &self.saved {
            let _ = tcsetattr(stdin(), OptionalActions::Drain, saved);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

// A terminal of our own for the wrapper, where the user has none.

const SIZE: Winsize = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };

/// Runs the command to its end on a terminal that nobody sees. Its standard error stays ours, for messages.
///
/// The command is to call [`take_terminal`]: then our own end, however it comes, hangs up on it.
pub fn in_outer_terminal(command: &mut Command) -> io::Result<ExitStatus> {
    let (near, far) = pair()?;
    command.stdin(far.try_clone()?).stdout(far);
    let child = command.spawn();
    // The command's copies of the far side would keep the terminal open for ever.
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    let mut child = child?;
    let mut near = File::from(near);
    let mut unseen = [0; 4096];
    // Linux ends a terminal that nobody holds any more with an error.
    while near.read(&mut unseen).is_ok_and(|count| count > 0) {}
    child.wait()
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    fcntl_setfd(&near, FdFlags::CLOEXEC)?;
    grantpt(&near)?;
    unlockpt(&near)?;
    let name = ptsname(&near, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let far = open(OsStr::from_bytes(name.as_bytes()), flags, Mode::empty())?;
    tcsetwinsize(&far, SIZE)?;
    Ok((near, far))
}

/// Makes the terminal on standard input that of a session of our own.
pub fn take_terminal() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
}
