//! Running a program without an inner terminal: it gets our own descriptors, and we stay beside it until it ends.
//!
//! This is the path for pipes and for whatever the inner terminal cannot serve. Wrapper and program share a process group, so
//! the shell's job control and the terminal's ^C reach both without our help.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::process::{Pid as RustixPid, WaitOptions, waitpid};

use super::signals::{FORWARDED, Signals};
use super::sys::{self, Caught, Forked, Image};
use super::wait::{Watch, wait};
use super::{Ended, Ending, Started};
use crate::process::Pid;

/// Starts the program and waits for its end.
pub fn run(image: &Image, started: impl FnOnce(Started)) -> io::Result<Ended> {
    let (failure, theirs) = UnixStream::pair()?;
    let signals = Signals::prepare()?;
    sys::hold_signals();
    let agent = match sys::fork() {
        Ok(Forked::Parent(pid)) => pid,
        Ok(Forked::Child) => become_agent(image, &theirs),
        Err(error) => {
            sys::release_signals();
            return Err(error);
        }
    };
    drop(theirs);
    let caught =
        signals.catch(&[FORWARDED.as_slice(), &[libc::SIGTSTP, libc::SIGCONT, libc::SIGCHLD]].concat());
    sys::release_signals();
    caught?;
    let mut companion = Companion { agent, signals, asked: false };
    let_go_of_descriptors();
    // Waits until the program has started: then the descriptor is closed by its exec.
    if let Some(errno) = sys::exec_failure(&failure) {
        reap(agent);
        return Ok(Ended { ending: Ending::NotStarted(errno), asked: false, agent: None });
    }
    started(Started { agent });
    let ending = companion.stay()?;
    Ok(Ended { ending, asked: companion.asked, agent: Some(agent) })
}

fn become_agent(image: &Image, failure: &UnixStream) -> ! {
    // Killing us is killing the program: nobody is left behind.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    sys::exec_or_tell(image, failure)
}

/// A pipe ends when its last holder lets go, so we hold none of the program's. Standard error stays, for our own words.
fn let_go_of_descriptors() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        for fd in 0..2 {
            let _ = sys::replace(fd, null.as_fd());
        }
    }
    sys::close_inherited();
}

fn reap(agent: Pid) {
    while let Err(rustix::io::Errno::INTR) = waitpid(RustixPid::from_raw(agent.0), WaitOptions::empty()) {}
}

struct Companion {
    agent: Pid,
    signals: Signals,
    asked: bool,
}

impl Companion {
    fn stay(&mut self) -> io::Result<Ending> {
        loop {
            if let Some(ending) = self.look()? {
                return Ok(ending);
            }
            wait(&mut [Watch::new(self.signals.as_fd(), true, false)], None)?;
            while let Some(caught) = self.signals.next() {
                self.pass_on(caught);
            }
        }
    }

    fn look(&self) -> io::Result<Option<Ending>> {
        let pid = RustixPid::from_raw(self.agent.0);
        while let Some((_, status)) = waitpid(pid, WaitOptions::NOHANG | WaitOptions::UNTRACED)? {
            if status.stopping_signal().is_some() {
                // It stopped, by itself or with the whole job; the shell waits for us.
                sys::stop_self();
                sys::signal_process(self.agent, libc::SIGCONT);
            } else if let Some(signal) = status.terminating_signal() {
                return Ok(Some(Ending::Killed(signal)));
            } else {
                return Ok(Some(Ending::Exited(status.exit_status().unwrap_or(0))));
            }
        }
        Ok(None)
    }

    fn pass_on(&mut self, caught: Caught) {
        self.asked |= matches!(caught.signal, libc::SIGTERM | libc::SIGHUP);
        // What the terminal sent, it sent to the whole group.
        if caught.by_process && caught.signal != libc::SIGCHLD {
            sys::signal_process(self.agent, caught.signal);
        }
    }
}
