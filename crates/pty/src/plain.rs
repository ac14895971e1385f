//! Running a program without an inner terminal: it gets our own descriptors, and we wait beside it until it ends.
//!
//! This is the path for pipes and for whatever the inner terminal cannot serve. Wrapper and program share a process group, so
//! the shell's job control and the terminal's ^C reach both without our help.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::process::{Pid as RustixPid, WaitOptions, WaitStatus, waitpid};

use super::signals::{Signals, forwarded};
use super::sys;
use super::sys::{Caught, Forked, Image, Sender};
use super::wait::{Watch, wait};
use super::{Observer, ProgramEnd, ProgramExit, ProgramStarted};
use types::Pid;

/// Starts the program and waits for its end.
pub fn run(image: &Image, observer: &mut dyn Observer) -> io::Result<ProgramEnd> {
    let (failure, theirs) = UnixStream::pair()?;
    let mut signals = Signals::prepare()?;
    sys::hold_signals();
    let own = [libc::SIGWINCH, libc::SIGTSTP, libc::SIGTTIN, libc::SIGCHLD];
    // Before the fork: an error after it would find the program running.
    if let Err(error) = signals.catch(forwarded().chain(own)) {
        sys::release_signals();
        return Err(error);
    }
    let program = match sys::fork() {
        Ok(Forked::Parent(pid)) => pid,
        Ok(Forked::Child) => become_program(image, &theirs),
        Err(error) => {
            sys::release_signals();
            return Err(error);
        }
    };
    drop(theirs);
    sys::release_signals();
    let mut watch = Watcher { program, signals, asked: false, stopped: false };
    close_descriptors();
    // There is nothing to tap: the program has our own descriptors.
    observer.forked();
    // Waits until the program has started: then the descriptor is closed by its exec.
    if let Some(errno) = sys::exec_failure(&failure) {
        reap(program);
        let exit = ProgramExit::NotStarted(errno);
        return Ok(ProgramEnd { exit, asked: false, stopped: false, pid: None });
    }
    observer.started(ProgramStarted { pid: program });
    let exit = watch.wait_for_end();
    Ok(ProgramEnd { exit, asked: watch.asked, stopped: watch.stopped, pid: Some(program) })
}

fn become_program(image: &Image, failure: &UnixStream) -> ! {
    // Killing us is killing the program: no process is left behind.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    sys::exec_or_report(image, failure)
}

/// A pipe ends when its last holder closes it, so we keep none of the program's. Standard error stays, for our own messages.
fn close_descriptors() {
    #[expect(clippy::disallowed_methods, reason = "the system's own device")]
    let null = File::options().read(true).write(true).open("/dev/null");
    if let Ok(null) = null {
        for fd in 0..2 {
            let _ = sys::replace(fd, null.as_fd());
        }
    }
    sys::close_inherited();
}

fn reap(program: Pid) -> ProgramExit {
    loop {
        match waitpid(RustixPid::from_raw(program.0), WaitOptions::empty()) {
            Ok(Some((_, status))) => return exit(status),
            Err(rustix::io::Errno::INTR) => {}
            _ => return ProgramExit::Exited(1),
        }
    }
}

fn exit(status: WaitStatus) -> ProgramExit {
    match status.terminating_signal() {
        Some(signal) => ProgramExit::Killed(signal),
        None => ProgramExit::Exited(status.exit_status().unwrap_or(1)),
    }
}

struct Watcher {
    program: Pid,
    signals: Signals,
    asked: bool,
    stopped: bool,
}

impl Watcher {
    fn wait_for_end(&mut self) -> ProgramExit {
        loop {
            match self.poll_program() {
                Ok(Some(exit)) => return exit,
                // Its status was collected elsewhere: all that is known is that it has ended.
                Err(_) => return ProgramExit::Exited(1),
                Ok(None) => {}
            }
            if wait(&mut [Watch::new(self.signals.as_fd(), true, false)], None).is_err() {
                return reap(self.program);
            }
            while let Some(caught) = self.signals.next() {
                self.pass_on(caught);
            }
        }
    }

    fn poll_program(&self) -> io::Result<Option<ProgramExit>> {
        let pid = RustixPid::from_raw(self.program.0);
        while let Some((_, status)) = waitpid(pid, WaitOptions::NOHANG | WaitOptions::UNTRACED)? {
            if status.stopping_signal().is_some() {
                // It stopped, by itself or with the whole job; the shell waits for us.
                sys::stop_self();
                sys::signal_process(self.program, libc::SIGCONT);
            } else {
                return Ok(Some(exit(status)));
            }
        }
        Ok(None)
    }

    fn pass_on(&mut self, caught: Caught) {
        self.asked |= matches!(caught.signal, libc::SIGTERM | libc::SIGHUP);
        self.stopped |= caught.sender == Sender::Codemie;
        // The terminal sends to the whole group, so the program has it already.
        let ours = matches!(caught.sender, Sender::Kernel | Sender::Ourselves);
        if !ours && caught.signal != libc::SIGCHLD {
            sys::signal_process(self.program, caught.signal);
        }
    }
}
