//! Terminal requests that no crate offers, and the command line under which listings show this process.

use std::ffi::OsStr;
use std::io;
#[cfg(not(target_os = "linux"))]
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt;
#[cfg(target_os = "linux")]
use std::ptr;

/// Which terminal a descriptor is, by the device itself: `/dev/tty` and `/dev/pts/3` may be one. `None` for anything else.
#[cfg(target_os = "linux")]
pub fn terminal_device(fd: RawFd) -> Option<u64> {
    let mut device: libc::c_uint = 0;
    // SAFETY: the request writes one unsigned int, and only if the descriptor is a terminal.
    (unsafe { libc::ioctl(fd, libc::TIOCGDEV, &raw mut device) } == 0).then_some(u64::from(device))
}

#[cfg(not(target_os = "linux"))]
pub fn terminal_device(fd: RawFd) -> Option<u64> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: isatty and fstat accept any number; zeroed is a valid stat.
    unsafe {
        let terminal = libc::isatty(fd) == 1 && libc::fstat(fd, stat.as_mut_ptr()) == 0;
        terminal.then(|| u64::try_from(stat.assume_init().st_rdev).unwrap_or(0))
    }
}

/// Switches packet mode on: reads of a PTY's master begin with a byte that reports flushed queues. False where there is no
/// such mode.
pub fn packet_mode(master: BorrowedFd<'_>) -> bool {
    #[cfg(target_os = "linux")]
    {
        let on: libc::c_int = 1;
        // SAFETY: the request reads one int.
        unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCPKT, &raw const on) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = master;
        false
    }
}

/// Puts a byte into a terminal's input, as if it was typed. Kernels may refuse it to everybody but root.
pub fn type_into(tty: BorrowedFd<'_>, byte: u8) -> io::Result<()> {
    // SAFETY: the request reads one byte.
    match unsafe { libc::ioctl(tty.as_raw_fd(), libc::TIOCSTI, &raw const byte) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives this process the program's command line, as far as there is room in place of our own: that is what listings show, and
/// tmux as the name of a window. The short name stays ours: by that one `pkill -x` and `killall` find processes, and a signal
/// sent so would reach the program twice.
#[cfg(target_os = "linux")]
pub fn show_as(arguments: &[&OsStr]) {
    let Some((start, room)) = own_arguments() else { return };
    let mut line: Vec<u8> =
        arguments.iter().flat_map(|argument| [argument.as_bytes(), b"\0"].concat()).collect();
    line.resize(room, 0);
    line[room - 1] = 0;
    // SAFETY: the kernel reports that our arguments are there; nothing reads them any more, and they are ours to change.
    unsafe { ptr::copy_nonoverlapping(line.as_ptr(), start, room) };
}

#[cfg(not(target_os = "linux"))]
pub fn show_as(_arguments: &[&OsStr]) {}

/// Address and length of our arguments in memory.
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "the kernel's own file: nobody else can put anything there")]
fn own_arguments() -> Option<(*mut u8, usize)> {
    let stat = std::fs::read("/proc/self/stat").ok()?;
    // The name is in parentheses and may hold anything. Fields 48 and 49 are begin and end.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace().skip(45).map(str::parse::<usize>);
    let (start, end) = (fields.next()?.ok()?, fields.next()?.ok()?);
    let room = end.checked_sub(start).filter(|room| *room > 0 && start > 0)?;
    Some((ptr::with_exposed_provenance_mut(start), room))
}
