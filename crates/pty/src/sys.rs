//! The system calls that no crate wraps the way a transparent wrapper needs them, and all of codemie's `unsafe`.
//!
//! Promises: the program starts with exactly the signal dispositions, signal mask and descriptors that codemie was
//! started with; nothing is allocated between `fork` and `exec`.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::process::Pid as RustixPid;
use types::Pid;

mod device;
mod signal;

pub use device::{packet_mode, show_as, terminal_device, type_into};
use signal::set_mask;
pub use signal::{
    Caught, Sender, catch, clear_line_before_dying, continue_parent, die_of, hold_signals, ignore,
    real_time_signals, release_signals, request_end, requested_grace, set_default, signal_group,
    signal_own_group, signal_process, stop_self, stop_waking, wake_through, watch_group_leader,
};

// ---------------------------------------------------------------------------------------------------------------
// Inherited from the caller

/// Bit n-1: signal n was ignored. Bits 0..3 of `CLOSED`: that standard descriptor was closed.
static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Runs before Rust's runtime, which sets SIGPIPE to ignored and opens `/dev/null` on closed standard descriptors:
/// afterwards it could not be known what the caller had set.
#[used]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".init_array"))]
static SNAPSHOT: extern "C" fn() = snapshot;

extern "C" fn snapshot() {
    let mut ignored = 0;
    let mut blocked = 0;
    for signal in signals() {
        if disposition(signal).is_some_and(|action| action.sa_sigaction == libc::SIG_IGN) {
            ignored |= bit(signal);
        }
    }
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: a null new mask only reads; `mask` is written before it is read.
    if unsafe { libc::sigprocmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr()) } == 0 {
        for signal in signals() {
            // SAFETY: `mask` was filled by sigprocmask just above.
            if unsafe { libc::sigismember(mask.as_ptr(), signal) } == 1 {
                blocked |= bit(signal);
            }
        }
    }
    let mut closed = 0;
    for fd in 0..3 {
        // SAFETY: F_GETFD on any number is harmless.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            closed |= 1 << fd;
        }
    }
    IGNORED.store(ignored, Ordering::Relaxed);
    BLOCKED.store(blocked, Ordering::Relaxed);
    CLOSED.store(closed, Ordering::Relaxed);
}

/// Every signal a program can have a disposition for; 32 and 33 belong to the C library.
fn signals() -> impl Iterator<Item = c_int> {
    (1..=64).filter(|signal| !matches!(*signal, 32 | 33))
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

fn disposition(signal: c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only reads.
    (unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) } == 0)
        // SAFETY: zeroed is a valid sigaction, and sigaction filled it.
        .then(|| unsafe { action.assume_init() })
}

/// Was this signal ignored when codemie was started (`nohup`, a background job of a plain shell)?
pub fn was_ignored(signal: c_int) -> bool {
    IGNORED.load(Ordering::Relaxed) & bit(signal) != 0
}

/// Was this standard descriptor closed when codemie was started?
pub fn was_closed(fd: RawFd) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << fd) != 0
}

// ---------------------------------------------------------------------------------------------------------------
// Memory

/// One heap for all threads. The tracker's own would grow page by page, a system call each; there is no contention to
/// avoid, for the pump does not allocate.
pub fn share_one_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt only sets a limit.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Fork and exec

/// What to run, with everything allocated beforehand.
#[derive(Debug)]
pub struct Image {
    program: CString,
    argv: Arguments,
    env: Arguments,
}

/// C strings and the null-terminated array that exec wants of them.
#[derive(Debug)]
struct Arguments {
    /// What the pointers point into; a vector may move, the strings do not.
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Arguments {
    fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect();
        Self { _strings: strings, pointers }
    }
}

impl Image {
    /// `program` is a path, or a name to be looked up on `PATH` as the shell would.
    pub fn new<'a>(
        program: &OsStr,
        argv: impl IntoIterator<Item = &'a OsStr>,
        env: Vec<CString>,
    ) -> io::Result<Self> {
        let argv = argv.into_iter().map(c_string).collect::<io::Result<_>>()?;
        Ok(Self { program: c_string(program)?, argv: Arguments::new(argv), env: Arguments::new(env) })
    }

    /// Becomes the program, with the signals and standard descriptors codemie was started with. Returns only on failure.
    pub fn exec(&self) -> io::Error {
        restore_inherited();
        // SAFETY: both arrays are null-terminated and point into `self`. `environ` is replaced because execvp, unlike
        // execve, also starts scripts without a `#!` line, as every shell does; it writes to neither.
        unsafe {
            environ = self.env.pointers.as_ptr().cast_mut();
            libc::execvp(self.program.as_ptr(), self.argv.pointers.as_ptr());
        }
        io::Error::last_os_error()
    }
}

/// Becomes the program; if that fails, reports the error through `failure` and ends. A forked child's last act.
pub fn exec_or_report(image: &Image, mut failure: &UnixStream) -> ! {
    let errno = image.exec().raw_os_error().unwrap_or(0);
    let _ = failure.write_all(&errno.to_le_bytes());
    exit_child(127)
}

/// Waits until the child has become the program, which closes its end, or has reported why not.
pub fn exec_failure(mut failure: &UnixStream) -> Option<c_int> {
    let mut errno = [0; 4];
    failure.read_exact(&mut errno).ok().map(|()| c_int::from_le_bytes(errno))
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(io::Error::other)
}

fn restore_inherited() {
    let ignored = IGNORED.load(Ordering::Relaxed);
    for signal in signals().filter(|signal| !matches!(*signal, libc::SIGKILL | libc::SIGSTOP)) {
        let _ = if ignored & bit(signal) == 0 { set_default(signal) } else { ignore(signal) };
    }
    for fd in (0..3).filter(|fd| was_closed(*fd)) {
        // SAFETY: it stands on the /dev/null that Rust's runtime put there.
        unsafe { libc::close(fd) };
    }
    set_mask(BLOCKED.load(Ordering::Relaxed));
}

unsafe extern "C" {
    static mut environ: *mut *const c_char;
}

/// The environment as it is, entry by entry: duplicates, order and entries without `=` included.
pub fn environment() -> Vec<CString> {
    let mut entries = Vec::with_capacity(64);
    // SAFETY: `environ` is null or a null-terminated array of C strings; nothing in codemie changes the environment.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            entries.push(CStr::from_ptr(*entry).to_owned());
            entry = entry.add(1);
        }
    }
    entries
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    Parent(Pid),
    Child,
}

/// Forks. Called while this process has one thread, so that the child may do anything; the one exception, falling back
/// from an inner terminal, does nothing in the child but exec, without allocating.
pub fn fork() -> io::Result<Forked> {
    // SAFETY: with one thread no lock can be held by a thread that is missing in the child; see above for the exception.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(Pid(pid))),
    }
}

/// Ends a forked child without running anything of the parent's.
pub fn exit_child(code: c_int) -> ! {
    // SAFETY: _exit never returns and runs no destructors.
    unsafe { libc::_exit(code) }
}

/// Leaves the caller's session, terminal and descriptors, but for `keep`.
pub fn leave_session(keep: &[BorrowedFd<'_>]) {
    let _ = rustix::process::setsid();
    #[expect(clippy::disallowed_methods, reason = "the system's own device")]
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        for fd in 0..3 {
            let _ = replace(fd, null.as_fd());
        }
    }
    let mut keep: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).collect();
    close_all_but(&mut keep);
}

// ---------------------------------------------------------------------------------------------------------------
// Descriptors

/// A second descriptor, closed on exec, for a number that someone else owns.
pub fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC on any number either fails or returns a new descriptor that nothing else owns.
    unsafe {
        match libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) {
            -1 => Err(io::Error::last_os_error()),
            new => Ok(OwnedFd::from_raw_fd(new)),
        }
    }
}

/// Puts `from` in the place of the descriptor `to`.
pub fn replace(to: RawFd, from: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: dup2 on numbers; the caller means to replace `to`.
    if unsafe { libc::dup2(from.as_raw_fd(), to) } == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Closes a number that belongs to the process this one was forked from, or that nothing in this program made.
pub fn close(fd: RawFd) {
    // SAFETY: a forked child never runs its parent's destructors, and an inherited descriptor has none.
    unsafe { libc::close(fd) };
}

/// Closes what we inherited and the program has inherited from us: a wrapper that kept it would hold pipes open after the
/// program has closed them. Whatever is closed on exec anyway is our own.
pub fn close_inherited() {
    for fd in inherited() {
        close(fd);
    }
}

/// The descriptors from 3 on that our caller handed down. A descriptor without `FD_CLOEXEC` was made by nothing in this
/// program, so nobody here owns it.
pub fn inherited() -> Vec<RawFd> {
    let Ok(entries) = std::fs::read_dir("/dev/fd") else { return Vec::new() };
    let open = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    open.filter(|fd| {
        // SAFETY: F_GETFD on any number is harmless.
        let flags = unsafe { libc::fcntl(*fd, libc::F_GETFD) };
        *fd >= 3 && flags != -1 && flags & libc::FD_CLOEXEC == 0
    })
    .collect()
}

/// Closes every descriptor from 3 on but `keep`: for a process that needs nothing else.
pub fn close_all_but(keep: &mut [RawFd]) {
    keep.sort_unstable();
    let mut from = 3;
    for &fd in keep.iter().filter(|fd| **fd >= 3) {
        if fd > from {
            close_range(from, fd - 1);
        }
        from = fd + 1;
    }
    close_range(from, RawFd::MAX);
}

#[cfg(target_os = "linux")]
fn close_range(first: RawFd, last: RawFd) {
    let (Ok(first), Ok(last)) = (libc::c_uint::try_from(first), libc::c_uint::try_from(last)) else { return };
    // SAFETY: the caller keeps what it owns out of the range. Kernels before 5.9 answer ENOSYS: then nothing is
    // closed, and the program's pipes end with the run instead of a moment earlier.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

#[cfg(not(target_os = "linux"))]
fn close_range(first: RawFd, last: RawFd) {
    // SAFETY: closing numbers that are not open is harmless; the caller keeps what it owns out of the range.
    unsafe {
        let limit = libc::getdtablesize();
        (first..=last.min(limit)).for_each(|fd| {
            libc::close(fd);
        });
    }
}

/// Our process group; `None` if its leader is outside of this pid namespace, where the kernel answers 0. (rustix's `getpgrp`
/// and `getsid` panic then.)
pub fn own_group() -> Option<RustixPid> {
    // SAFETY: no memory is touched.
    RustixPid::from_raw(unsafe { libc::getpgrp() })
}

/// The leader of a process's session; `None` if it is outside of this pid namespace, or there is no such process.
pub fn session_leader(pid: types::Pid) -> Option<types::Pid> {
    // SAFETY: no memory is touched.
    Some(types::Pid(unsafe { libc::getsid(pid.0) })).filter(|leader| pid.0 > 0 && leader.0 > 0)
}

/// The process at the other end of a Unix socket, as the kernel noted it when the connection was made; `None` where it cannot be
/// seen from here.
#[cfg(target_os = "linux")]
pub fn peer_process(socket: &std::os::unix::net::UnixStream) -> Option<types::Pid> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
    // SAFETY: `credentials` has the size that `length` names. (rustix's form has no value for a peer outside of this pid
    // namespace, whose number is 0.)
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    Some(types::Pid(credentials.pid)).filter(|pid| answer == 0 && pid.0 > 0)
}

/// Elsewhere nobody asks.
#[cfg(not(target_os = "linux"))]
pub fn peer_process(_: &std::os::unix::net::UnixStream) -> Option<types::Pid> {
    None
}

/// The user at the other end of a Unix socket, as the kernel noted it when the connection was made.
pub fn peer_user(socket: &std::os::unix::net::UnixStream) -> io::Result<u32> {
    use std::os::fd::AsRawFd;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let mut peer = MaybeUninit::<libc::ucred>::uninit();
        let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
        let (socket, length) = (socket.as_raw_fd(), &raw mut length);
        // SAFETY: the kernel writes at most `length` bytes into `peer`, and all of it when it succeeds.
        unsafe {
            match libc::getsockopt(
                socket,
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                peer.as_mut_ptr().cast(),
                length,
            ) {
                0 => Ok(peer.assume_init().uid),
                _ => Err(io::Error::last_os_error()),
            }
        }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let (mut user, mut group) = (0, 0);
        // SAFETY: both are written before they are read.
        match unsafe { libc::getpeereid(socket.as_raw_fd(), &raw mut user, &raw mut group) } {
            0 => Ok(user),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Starts a program that shares nothing with us: a session of its own, no terminal, no descriptor, the root as its folder, and
/// another parent, because nothing here would ever wait for it.
pub fn spawn_detached(command: &mut Command, stdin: Stdio, stdout: Stdio) -> io::Result<()> {
    command.stdin(stdin).stdout(stdout).stderr(Stdio::null()).current_dir("/");
    // SAFETY: setsid, fork, _exit and close_range, or fcntl, are async-signal-safe, and nothing is allocated.
    unsafe {
        command.pre_exec(|| {
            match libc::fork() {
                -1 => return Err(io::Error::last_os_error()),
                0 => {}
                _ => libc::_exit(0),
            }
            if libc::setsid() == -1 {
                return Err(io::Error::last_os_error());
            }
            close_on_exec_from(3);
            Ok(())
        });
    }
    // The one between, which is gone at once.
    command.spawn()?.wait().map(drop)
}

/// Not closed at once: through one of them the parent learns that exec failed.
fn close_on_exec_from(first: RawFd) {
    #[cfg(target_os = "linux")]
    {
        const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
        // SAFETY: only a flag is set. Kernels before 5.11 refuse, and the loop below does it.
        let done = unsafe { libc::syscall(libc::SYS_close_range, first, RawFd::MAX, CLOSE_RANGE_CLOEXEC) };
        if done == 0 {
            return;
        }
    }
    // SAFETY: setting a flag on any number is harmless.
    unsafe {
        let limit = libc::sysconf(libc::_SC_OPEN_MAX).clamp(0, 65_536);
        for fd in first..RawFd::try_from(limit).unwrap_or(1024) {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// select(2) over descriptors below `FD_SETSIZE`; ours are opened first and stay low.
#[cfg(any(target_os = "macos", feature = "portable"))]
pub fn select<'a>(
    wanted: impl Iterator<Item = (BorrowedFd<'a>, bool, bool, bool)> + Clone,
    timeout: Option<std::time::Duration>,
    ready: &mut [(bool, bool)],
) -> io::Result<()> {
    // SAFETY: zeroed fd_sets are empty sets; only numbers below FD_SETSIZE are put in.
    unsafe {
        let mut reading: libc::fd_set = MaybeUninit::zeroed().assume_init();
        let mut writing: libc::fd_set = MaybeUninit::zeroed().assume_init();
        let mut urgent: libc::fd_set = MaybeUninit::zeroed().assume_init();
        let mut highest = -1;
        for (fd, read, write, report) in wanted.clone() {
            let fd = fd.as_raw_fd();
            if usize::try_from(fd).map_or(true, |fd| fd >= libc::FD_SETSIZE) {
                return Err(io::Error::from_raw_os_error(libc::EMFILE));
            }
            if read {
                libc::FD_SET(fd, &raw mut reading);
            }
            if write {
                libc::FD_SET(fd, &raw mut writing);
            }
            if report {
                libc::FD_SET(fd, &raw mut urgent);
            }
            highest = highest.max(fd);
        }
        let mut time = timeout.map(|time| libc::timeval {
            tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            // An i32 on macOS and an i64 on Linux; there are less than a million.
            tv_usec: i32::try_from(time.subsec_micros()).unwrap_or(0).into(),
        });
        let time = time.as_mut().map_or(ptr::null_mut(), |time| &raw mut *time);
        if libc::select(highest + 1, &raw mut reading, &raw mut writing, &raw mut urgent, time) == -1 {
            return Err(io::Error::last_os_error());
        }
        for ((fd, ..), ready) in wanted.zip(ready) {
            let fd = fd.as_raw_fd();
            let reported = libc::FD_ISSET(fd, &raw const urgent);
            let readable = reported || libc::FD_ISSET(fd, &raw const reading);
            *ready = (readable, libc::FD_ISSET(fd, &raw const writing));
        }
    }
    Ok(())
}
