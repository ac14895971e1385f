//! The command in its PTY: leader of a session of its own, with the PTY as its controlling terminal.
#![allow(unsafe_code, reason = "pre_exec: what makes a session leader happens between fork and exec")]

use super::Start;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

pub(super) fn command(start: &Start, stdio: OwnedFd) -> Command {
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
    // What the test runner's own surroundings ignore or left open (nohup, a CI's supervisor) must not reach the command.
    for signal in 1..=64 {
        // SAFETY: resets a disposition in a process with one thread; numbers that cannot be reset are refused.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: marks descriptors, closes none before exec. An old kernel without the call refuses it.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    rustix::process::setsid()?;
    rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
    Ok(())
}
