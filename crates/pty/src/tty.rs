//! The user's terminal as a device: a descriptor of our own, raw mode that is always undone, its size.
//!
//! Promises: the user's descriptors 0, 1 and 2 are never made non-blocking (the shell shares them); the settings are
//! changed only while we are the terminal's foreground job; no query is ever sent to the terminal.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use portable_pty::PtySize;
use rustix::fs::{Mode, OFlags, open};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, QueueSelector, Termios, tcflush, tcgetattr, tcgetpgrp,
    tcgetwinsize, tcsetattr,
};

use super::front_end::Foreground;
use super::sys;

/// The terminal on stdin and stdout, re-opened.
#[derive(Debug)]
pub struct Tty {
    fd: Arc<OwnedFd>,
}

impl Tty {
    /// `None` unless stdin and stdout are one and the same terminal, we are its foreground job, and it can be
    /// re-opened. In every other case the program is better served by the descriptors themselves.
    pub fn on_stdio() -> Option<Self> {
        let device = sys::terminal_device(stdin().as_raw_fd())?;
        if sys::terminal_device(stdout().as_raw_fd()) != Some(device) {
            return None;
        }
        let fd = candidates().find_map(|path| {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let fd = open(path, flags, Mode::empty()).ok()?;
            (sys::terminal_device(fd.as_raw_fd()) == Some(device)).then_some(fd)
        })?;
        let tty = Self { fd: Arc::new(fd) };
        (tty.foreground() != Foreground::AnotherJob).then_some(tty)
    }

    /// A terminal that is not our controlling one has no jobs: then nobody else is in the foreground.
    pub fn foreground(&self) -> Foreground {
        match tcgetpgrp(&*self.fd) {
            Ok(group) if Some(group) == sys::own_group() => Foreground::Ours,
            Ok(_) => Foreground::AnotherJob,
            Err(_) => Foreground::Uncontested,
        }
    }

    /// Every descriptor that the program would inherit and that is this terminal: standard input and output, perhaps
    /// others (`2>&1`, `3<&0`).
    pub fn inherited(&self) -> Vec<RawFd> {
        let device = sys::terminal_device(self.fd.as_raw_fd());
        let is_this = |fd: &RawFd| sys::terminal_device(*fd) == device;
        (0..3).chain(sys::inherited()).filter(is_this).collect()
    }

    /// Drops what is written and has not reached the screen, as the kernel does at ^C.
    pub fn drop_output(&self) {
        let _ = tcflush(&*self.fd, QueueSelector::OFlush);
    }

    pub fn settings(&self) -> io::Result<Termios> {
        Ok(tcgetattr(&*self.fd)?)
    }

    pub fn size(&self) -> io::Result<PtySize> {
        let size = tcgetwinsize(&*self.fd)?;
        Ok(PtySize {
            rows: size.ws_row,
            cols: size.ws_col,
            pixel_width: size.ws_xpixel,
            pixel_height: size.ws_ypixel,
        })
    }

    /// Switches to raw mode until the guard goes. Output already on its way is let out first; typed-ahead input is kept.
    pub fn raw(&self) -> io::Result<RawGuard> {
        let saved = tcgetattr(&*self.fd)?;
        let guard = RawGuard { fd: Arc::clone(&self.fd), saved: saved.clone() };
        remember(Some((Arc::clone(&self.fd), saved.clone())));
        let mut raw = saved;
        raw.make_raw();
        tcsetattr(&*self.fd, OptionalActions::Drain, &raw)?;
        Ok(guard)
    }
}

impl AsFd for Tty {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// By name first; the descriptor's own link serves where `/dev/pts` is not mounted. (macOS: kqueue and poll refuse
/// `/dev/tty`, but not the real name.)
fn candidates() -> impl Iterator<Item = PathBuf> {
    let named = rustix::termios::ttyname(stdin(), Vec::new())
        .ok()
        .map(|name| PathBuf::from(String::from_utf8_lossy(name.as_bytes()).into_owned()));
    named.into_iter().chain(["/proc/self/fd/0", "/dev/tty"].map(PathBuf::from))
}

/// Gives the terminal its settings back when dropped.
#[derive(Debug)]
pub struct RawGuard {
    fd: Arc<OwnedFd>,
    saved: Termios,
}

impl RawGuard {
    /// Is the terminal still raw? A shell that took it while we were stopped has put its own settings on it.
    pub fn holds(&self) -> bool {
        tcgetattr(&*self.fd).is_ok_and(|now| is_raw(&now))
    }

    /// Gives the terminal its settings back although another job may have it by now: unless that has put its own on it.
    pub fn leave(self) {
        if let Ok(now) = tcgetattr(&*self.fd)
            && is_raw(&now)
            && !now.output_modes.contains(OutputModes::OPOST)
        {
            let _ = tcsetattr(&*self.fd, OptionalActions::Now, &self.saved);
        }
    }

    /// The settings that will be restored.
    pub fn saved(&self) -> &Termios {
        &self.saved
    }
}

pub fn is_raw(settings: &Termios) -> bool {
    !settings.local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
}

/// For the monitor of a wrapper that was killed: restores the terminal's settings, if it is still raw.
pub fn restore_after_kill(fd: impl AsFd, saved: &Termios) {
    if tcgetattr(&fd).is_ok_and(|now| is_raw(&now)) {
        let _ = tcsetattr(&fd, OptionalActions::Now, saved);
    }
}

impl Drop for RawGuard {
    fn drop(&mut self) {
        remember(None);
        give_back(self.fd.as_fd(), &self.saved);
    }
}

/// The settings that a panic has to restore. One terminal per process.
static IN_RAW_MODE: Mutex<Option<(Arc<OwnedFd>, Termios)>> = Mutex::new(None);

fn remember(state: Option<(Arc<OwnedFd>, Termios)>) {
    if let Ok(mut slot) = IN_RAW_MODE.lock() {
        *slot = state;
    }
}

/// For the panic hook: restores the terminal before the message is printed.
pub fn restore_after_panic() {
    if let Ok(mut slot) = IN_RAW_MODE.try_lock()
        && let Some((fd, saved)) = slot.take()
    {
        give_back(fd.as_fd(), &saved);
    }
}

fn give_back(fd: BorrowedFd<'_>, saved: &Termios) {
    // Not in the foreground: the settings on the terminal are somebody else's now.
    if tcgetpgrp(fd).map_or(true, |foreground| Some(foreground) == sys::own_group()) {
        let _ = tcsetattr(fd, OptionalActions::Drain, saved);
    }
}
