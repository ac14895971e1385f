//! The system calls that no crate wraps the way a transparent wrapper needs them, and all of codemie's `unsafe`.
//!
//! Promises: the agent starts with exactly the signal dispositions, signal mask and descriptors that codemie was
//! started with; nothing is allocated between `fork` and `exec`.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering};

use crate::process::Pid;

mod device;

pub use device::{packet_mode, show_as, terminal_device, type_into};

// ---------------------------------------------------------------------------------------------------------------
// What we were started with

/// Bit n-1: signal n was ignored. Bits 0..3 of `CLOSED`: that standard descriptor was closed.
static IGNORED: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Runs before Rust's runtime, which sets SIGPIPE to ignored and opens `/dev/null` on closed standard descriptors:
/// afterwards nobody could tell what the caller had asked for.
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
// Signals

/// Who sent a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The terminal's ^C and its hang-up, which reach a whole process group; timers; faults.
    Kernel,
    /// This very process.
    Ourselves,
    /// A shell's `kill %1` and timeout(1) address our process group, which the program left for one of its own.
    Parent,
    /// Another process, most likely by our pid.
    Process,
    /// Another codemie, which was asked to end this run.
    Codemie,
}

impl Sender {
    const ALL: [Self; 5] = [Self::Kernel, Self::Ourselves, Self::Parent, Self::Process, Self::Codemie];

    /// As noted by the signal handler.
    pub fn decode(note: u8) -> Self {
        Self::ALL.get(usize::from(note)).copied().unwrap_or(Self::Process)
    }

    fn encode(self) -> u8 {
        self as u8
    }

    /// # Safety
    /// `info` is what the kernel gave to a signal handler.
    unsafe fn of(info: *const libc::siginfo_t) -> Self {
        // SAFETY: as promised. A positive code is the kernel's, kill(2) and friends have zero or less. The sender's pid
        // stands at one place for all of these; a timer's number there is nobody's pid.
        unsafe {
            if (*info).si_code > 0 {
                return Self::Kernel;
            }
            #[cfg(target_os = "linux")]
            if (*info).si_code == libc::SI_QUEUE && (*info).si_value().sival_ptr as usize == END_SOON {
                return Self::Codemie;
            }
            match (*info).si_pid() {
                pid if pid == libc::getpid() => Self::Ourselves,
                pid if pid == libc::getppid() => Self::Parent,
                _ => Self::Process,
            }
        }
    }
}

/// Goes with a SIGTERM from one codemie to another: the program is to be gone soon.
#[cfg(target_os = "linux")]
const END_SOON: usize = 0x636f_6465;

/// Asks another codemie to end its program, by force if need be.
pub fn order_end(wrapper: Pid) {
    #[cfg(target_os = "linux")]
    // SAFETY: sigqueue has no memory effects; the value is a number.
    unsafe {
        let value = libc::sigval { sival_ptr: ptr::without_provenance_mut(END_SOON) };
        libc::sigqueue(wrapper.0, libc::SIGTERM, value);
    }
    #[cfg(not(target_os = "linux"))]
    signal_process(wrapper, libc::SIGTERM);
}

/// A signal that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    pub signal: c_int,
    pub sender: Sender,
}

static WAKE: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo to an SA_SIGINFO handler.
    let sender = unsafe { Sender::of(info) };
    if sender == Sender::Kernel && is_fault(signal) {
        // A fault of our own: the instruction is tried again, and then the default action ends us.
        let _ = set_default(signal);
        return;
    }
    let note = [u8::try_from(signal).unwrap_or(0), sender.encode()];
    // SAFETY: write(2) is async-signal-safe; errno is put back because the interrupted code may be about to read it.
    unsafe {
        let errno = errno_location();
        let saved = *errno;
        libc::write(WAKE.load(Ordering::Relaxed), note.as_ptr().cast(), note.len());
        *errno = saved;
    }
}

#[cfg(target_os = "linux")]
unsafe fn errno_location() -> *mut c_int {
    // SAFETY: always valid for the calling thread.
    unsafe { libc::__errno_location() }
}

#[cfg(not(target_os = "linux"))]
unsafe fn errno_location() -> *mut c_int {
    // SAFETY: always valid for the calling thread.
    unsafe { libc::__error() }
}

/// Tells `on_signal` where to write. The descriptor must stay open and be non-blocking for as long as handlers are installed.
pub fn wake_through(fd: BorrowedFd<'_>) {
    WAKE.store(fd.as_raw_fd(), Ordering::Relaxed);
}

/// The descriptor is about to be closed.
pub fn stop_waking(fd: BorrowedFd<'_>) {
    let _ = WAKE.compare_exchange(fd.as_raw_fd(), -1, Ordering::Relaxed, Ordering::Relaxed);
}

/// The signals that mean what their sender wants them to.
#[cfg(target_os = "linux")]
pub fn real_time_signals() -> std::ops::RangeInclusive<c_int> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

#[cfg(not(target_os = "linux"))]
pub fn real_time_signals() -> std::ops::RangeInclusive<c_int> {
    1..=0
}

/// Comes from the kernel when an instruction fails.
fn is_fault(signal: c_int) -> bool {
    matches!(
        signal,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP | libc::SIGSYS
    )
}

/// Has the signal reported through the wake pipe.
pub fn catch(signal: c_int) -> io::Result<()> {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
    // A read of the terminal from the background raises SIGTTIN; restarted, it would raise it for ever.
    let restart = if signal == libc::SIGTTIN { 0 } else { libc::SA_RESTART };
    set_action(signal, handler as usize, libc::SA_SIGINFO | libc::SA_ONSTACK | restart)
}

/// Ends this process by the signal, without a core: the program that died of it has left one. Returns only where the
/// kernel does not let us, as in the first process of a container.
pub fn die_of(signal: c_int) {
    // SAFETY: none of these has memory effects.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        // Where a program collects the cores the limit does not count.
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_DUMPABLE, 0);
    }
    let _ = set_default(signal);
    release_signals();
    // SAFETY: as above.
    unsafe { libc::kill(libc::getpid(), signal) };
}

extern "C" fn clear_line_and_die(signal: c_int) {
    const CLEAR: &[u8] = b"\r\x1b[K";
    // SAFETY: both calls are async-signal-safe. The default is back already (SA_RESETHAND); it comes when we return.
    unsafe {
        libc::write(libc::STDERR_FILENO, CLEAR.as_ptr().cast(), CLEAR.len());
        libc::raise(signal);
    }
}

/// The signal ends the process as ever, but the line the cursor of standard error is on is cleared first.
pub fn clear_line_before_dying(signal: c_int) -> io::Result<()> {
    let handler: extern "C" fn(c_int) = clear_line_and_die;
    set_action(signal, handler as usize, libc::SA_RESETHAND)
}

pub fn ignore(signal: c_int) -> io::Result<()> {
    set_action(signal, libc::SIG_IGN, 0)
}

pub fn set_default(signal: c_int) -> io::Result<()> {
    set_action(signal, libc::SIG_DFL, 0)
}

fn set_action(signal: c_int, handler: usize, flags: c_int) -> io::Result<()> {
    // SAFETY: a zeroed sigaction is valid; the handler is a constant or one of ours, which are async-signal-safe.
    let result = unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Blocks all signals for the calling thread, while the process is between two states. A thread made meanwhile never
/// takes one.
pub fn hold_signals() {
    // SAFETY: plain set operations on a local.
    unsafe {
        let mut all: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

/// Lets every signal through to the calling thread.
pub fn release_signals() {
    set_mask(0);
}

fn set_mask(blocked: u64) {
    // SAFETY: plain set operations on a local.
    unsafe {
        let mut mask: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut mask);
        for signal in signals().filter(|signal| blocked & bit(*signal) != 0) {
            libc::sigaddset(&raw mut mask, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, ptr::null_mut());
    }
}

/// Sends a signal to every process of our own group, ourselves included.
pub fn signal_own_group(signal: c_int) {
    // SAFETY: kill(0, …) has no memory effects.
    unsafe { libc::kill(0, signal) };
}

/// Are we the first process of our group, as a shell with job control makes it? Otherwise whoever is waits for us.
pub fn leads_own_group() -> bool {
    // SAFETY: neither call has memory effects.
    unsafe { libc::getpgrp() == libc::getpid() }
}

/// Sends a signal to one process.
pub fn signal_process(pid: Pid, signal: c_int) {
    if pid.0 > 0 {
        // SAFETY: kill has no memory effects.
        unsafe { libc::kill(pid.0, signal) };
    }
}

/// Sends a signal to a process group.
pub fn signal_group(pgid: Pid, signal: c_int) {
    // 1 would mean "everybody".
    if pgid.0 > 1 {
        // SAFETY: kill has no memory effects.
        unsafe { libc::kill(-pgid.0, signal) };
    }
}

/// Continues the process that started this one.
pub fn continue_parent() {
    // SAFETY: neither call has memory effects.
    unsafe { libc::kill(libc::getppid(), libc::SIGCONT) };
}

pub fn stop_self() {
    // SAFETY: raise has no memory effects.
    unsafe { libc::raise(libc::SIGSTOP) };
}

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

/// Becomes the program; if that fails, tells why through `failure` and ends. A forked child's last act.
pub fn exec_or_tell(image: &Image, mut failure: &UnixStream) -> ! {
    let errno = image.exec().raw_os_error().unwrap_or(0);
    let _ = failure.write_all(&errno.to_le_bytes());
    exit_child(127)
}

/// Waits until the child has become the program, which closes its end, or has told why not.
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
    // SAFETY: a forked child never runs the destructors of what its parent owns, and what was inherited has none.
    unsafe { libc::close(fd) };
}

/// Closes what we inherited and the agent has inherited from us: a wrapper that kept it would hold pipes open after the
/// agent has closed them. Whatever is closed on exec anyway is our own.
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
    // closed, and the agent's pipes end with the run instead of a moment earlier.
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

/// Starts a program that has nothing of ours: a session of its own, no terminal, no descriptor, the root for a folder, and
/// another parent: nobody here would ever wait for it.
pub fn spawn_apart(command: &mut Command) -> io::Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
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

/// Not closed at once: one of them tells the parent that exec failed.
fn close_on_exec_from(first: RawFd) {
    #[cfg(target_os = "linux")]
    {
        const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
        // SAFETY: only a flag is set. Kernels before 5.11 say no, and the loop below does it.
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
    wanted: impl Iterator<Item = (BorrowedFd<'a>, bool, bool)> + Clone,
    timeout: Option<std::time::Duration>,
    ready: &mut [(bool, bool)],
) -> io::Result<()> {
    // SAFETY: zeroed fd_sets are empty sets; only numbers below FD_SETSIZE are put in.
    unsafe {
        let mut reading: libc::fd_set = MaybeUninit::zeroed().assume_init();
        let mut writing: libc::fd_set = MaybeUninit::zeroed().assume_init();
        let mut highest = -1;
        for (fd, read, write) in wanted.clone() {
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
            highest = highest.max(fd);
        }
        let mut time = timeout.map(|time| libc::timeval {
            tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_usec: time.subsec_micros().into(),
        });
        let time = time.as_mut().map_or(ptr::null_mut(), |time| &raw mut *time);
        if libc::select(highest + 1, &raw mut reading, &raw mut writing, ptr::null_mut(), time) == -1 {
            return Err(io::Error::last_os_error());
        }
        for ((fd, ..), ready) in wanted.zip(ready) {
            let fd = fd.as_raw_fd();
            *ready = (libc::FD_ISSET(fd, &raw const reading), libc::FD_ISSET(fd, &raw const writing));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_survive_the_pipe() {
        for sender in Sender::ALL {
            assert_eq!(Sender::decode(sender.encode()), sender);
        }
        assert_eq!(Sender::decode(u8::MAX), Sender::Process);
    }
}
