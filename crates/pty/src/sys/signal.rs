//! Signals: who sent one, catching, blocking and sending them.

use std::ffi::c_int;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use super::{bit, signals};
use types::Pid;

/// Who sent a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The terminal's ^C and its hang-up, which reach a whole process group; timers; faults.
    Kernel,
    /// This very process.
    Ourselves,
    /// A shell's `kill %1` and timeout(1) address our process group, which the program has left for a group of its own.
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
        // is at one place for all of these; a timer's number there is no process's pid.
        unsafe {
            if (*info).si_code > 0 {
                return Self::Kernel;
            }
            #[cfg(target_os = "linux")]
            if (*info).si_code == libc::SI_QUEUE
                && let Some(grace) = decode_grace((*info).si_value().sival_ptr as usize)
            {
                GRACE.store(grace, Ordering::Relaxed);
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

/// Goes with a SIGTERM from one codemie to another: the program is to be gone soon. Where an address has more than 32 bits, the
/// milliseconds it has for that stand above these.
#[cfg(target_os = "linux")]
const END_SOON: usize = 0x636f_6465;

/// The milliseconds of the last request; 0: it named none.
static GRACE: AtomicU32 = AtomicU32::new(0);

#[cfg(target_os = "linux")]
fn encode_grace(grace: Duration) -> usize {
    let millis = u32::try_from(grace.as_millis()).unwrap_or(u32::MAX).max(1);
    // Earlier builds know only the bare mark, and give ten seconds.
    if grace == Duration::from_secs(10) {
        END_SOON
    } else {
        (millis as usize).checked_shl(32).unwrap_or(0) | END_SOON
    }
}

/// `None`: it is no request of ours.
#[cfg(target_os = "linux")]
fn decode_grace(value: usize) -> Option<u32> {
    let millis = u32::try_from(value.checked_shr(32).unwrap_or(0)).unwrap_or(u32::MAX);
    (value & 0xffff_ffff == END_SOON).then_some(millis)
}

/// How long the program may take, as the codemie that asked has it.
pub fn requested_grace() -> Option<Duration> {
    let millis = GRACE.load(Ordering::Relaxed);
    (millis != 0).then(|| Duration::from_millis(millis.into()))
}

/// Asks another codemie to end its program, by force after `grace`. `still_it` is asked once the process of that pid cannot become
/// another one unnoticed. False if nobody was asked.
#[cfg(target_os = "linux")]
pub fn request_end(wrapper: Pid, grace: Duration, still_it: impl FnOnce() -> bool) -> bool {
    use rustix::process::{Pid as RustixPid, PidfdFlags, pidfd_open};
    let Some(pid) = RustixPid::from_raw(wrapper.0).filter(|_| wrapper.0 > 1) else { return false };
    let descriptor = pidfd_open(pid, PidfdFlags::empty());
    if !still_it() {
        return false;
    }
    let value = ptr::without_provenance_mut(encode_grace(grace));
    if let Ok(descriptor) = descriptor {
        return queue_term(&descriptor, value);
    }
    // Before Linux 5.3, or forbidden.
    let value = libc::sigval { sival_ptr: value };
    // SAFETY: sigqueue has no memory effects; the value is a number.
    unsafe { libc::sigqueue(wrapper.0, libc::SIGTERM, value) == 0 }
}

#[cfg(not(target_os = "linux"))]
pub fn request_end(wrapper: Pid, _grace: Duration, still_it: impl FnOnce() -> bool) -> bool {
    let asks = still_it();
    if asks {
        signal_process(wrapper, libc::SIGTERM);
    }
    asks
}

/// What sigqueue(3) sends, but to the process behind a descriptor.
#[cfg(target_os = "linux")]
fn queue_term(process: &OwnedFd, value: *mut libc::c_void) -> bool {
    /// `siginfo_t` of a queued signal.
    #[repr(C)]
    struct Queued {
        head: [c_int; 3],
        sender: Sender,
    }
    #[repr(C)]
    struct Sender {
        pid: libc::pid_t,
        uid: libc::uid_t,
        value: *mut libc::c_void,
    }
    const { assert!(size_of::<Queued>() <= size_of::<libc::siginfo_t>()) };
    // SAFETY: zeroed is a valid siginfo_t; the parts of a queued signal lie in it as the kernel's headers have them, and the kernel
    // only reads it.
    unsafe {
        let sender = Sender { pid: libc::getpid(), uid: libc::getuid(), value };
        let queued = Queued { head: [libc::SIGTERM, 0, libc::SI_QUEUE], sender };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        ptr::copy_nonoverlapping(
            (&raw const queued).cast::<u8>(),
            info.as_mut_ptr().cast::<u8>(),
            size_of::<Queued>(),
        );
        let descriptor = process.as_raw_fd();
        libc::syscall(libc::SYS_pidfd_send_signal, descriptor, libc::SIGTERM, info.as_ptr(), 0) == 0
    }
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

/// Sets the descriptor that `on_signal` writes to. It must stay open and be non-blocking for as long as handlers are installed.
pub fn wake_through(fd: BorrowedFd<'_>) {
    WAKE.store(fd.as_raw_fd(), Ordering::Relaxed);
}

/// The descriptor is about to be closed.
pub fn stop_waking(fd: BorrowedFd<'_>) {
    let _ = WAKE.compare_exchange(fd.as_raw_fd(), -1, Ordering::Relaxed, Ordering::Relaxed);
}

/// The signals without a meaning of their own.
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

/// Reports the signal through the wake pipe from now on.
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

pub(super) fn set_mask(blocked: u64) {
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

/// The first process of our group, which the shell waits for, as something that becomes readable when it ends. `None` if that
/// is ourselves, or if it cannot be watched here.
#[cfg(target_os = "linux")]
pub fn watch_group_leader() -> Option<OwnedFd> {
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    let leader = super::own_group().filter(|leader| *leader != getpid())?;
    pidfd_open(leader, PidfdFlags::empty()).ok()
}

#[cfg(not(target_os = "linux"))]
pub fn watch_group_leader() -> Option<OwnedFd> {
    None
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sender_is_decoded_as_it_was_encoded() {
        for sender in Sender::ALL {
            assert_eq!(Sender::decode(sender.encode()), sender);
        }
        assert_eq!(Sender::decode(u8::MAX), Sender::Process);
    }

    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    #[test]
    fn a_request_carries_its_grace_and_ten_seconds_are_understood_by_earlier_builds() {
        for (grace, decoded) in [
            (Duration::from_secs(10), 0),
            (Duration::from_millis(2500), 2500),
            (Duration::ZERO, 1),
            (Duration::from_secs(u64::MAX), u32::MAX),
        ] {
            assert_eq!(decode_grace(encode_grace(grace)), Some(decoded), "{grace:?}");
        }
        assert_eq!(encode_grace(Duration::from_secs(10)), END_SOON);
        assert_eq!(decode_grace(7), None);
    }
}
