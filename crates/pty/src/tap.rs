//! A copy of what passes through the pump, for observers beside it.
//!
//! Promises: a tap never holds a byte back and never waits. An observer that lags loses output, and learns how much and where.
//! A tap without an output side costs one comparison per chunk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use memchr::{memchr, memmem};

/// The pump's side.
pub struct Tap {
    enter: Box<dyn Fn()>,
    output: Option<OutputTap>,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("output", &self.output).finish_non_exhaustive()
    }
}

impl Tap {
    /// `enter` is called when the user pressed Enter: look now instead of a moment later. A hint, never evidence; it must not
    /// wait.
    pub fn new(enter: impl Fn() + 'static) -> Self {
        Self { enter: Box::new(enter), output: None }
    }

    /// Offers the program's output, too.
    #[must_use]
    pub fn with_output(self, output: OutputTap) -> Self {
        Self { output: Some(output), ..self }
    }

    /// Called with every chunk on its way to the program, after it was written.
    pub(crate) fn input(&self, bytes: &[u8]) {
        if presses_enter(bytes) {
            (self.enter)();
        }
    }

    /// Called with output that the front end has taken.
    pub(crate) fn output(&self, bytes: &[u8]) {
        if let Some(output) = &self.output {
            output.offer(bytes);
        }
    }
}

/// A carriage return, or Enter as the kitty keyboard protocol spells it (`CSI 13 u`, perhaps with an event type).
fn presses_enter(bytes: &[u8]) -> bool {
    memchr(b'\r', bytes).is_some() || memmem::find(bytes, b"\x1b[13").is_some()
}

/// How often the pump tries again when the reader is just exchanging buffers. That takes it some ten instructions; one that
/// was put to sleep in between is not waited for, and loses the chunk.
const TRIES: usize = 100;

/// Output between pump and reader. A loss is before or behind the bytes, never between them.
#[derive(Debug, Default)]
struct Collected {
    lost_before: u64,
    bytes: Vec<u8>,
    /// From the first loss on nothing is added until the reader has taken the bytes.
    lost_after: u64,
    ended: bool,
}

impl Collected {
    /// Keeps what fits and counts the rest. Returns whether the reader has to be notified.
    fn add(&mut self, missed: u64, bytes: &[u8]) -> bool {
        let was_empty = self.bytes.is_empty() && self.lost_before == 0;
        if self.bytes.is_empty() && self.lost_after == 0 {
            self.lost_before += missed;
        } else {
            self.lost_after += missed;
        }
        // Never more than the capacity: the pump does not allocate.
        let room = if self.lost_after == 0 { self.bytes.capacity() - self.bytes.len() } else { 0 };
        let (kept, lost) = bytes.split_at(room.min(bytes.len()));
        self.bytes.extend_from_slice(kept);
        self.lost_after += lost.len() as u64;
        was_empty
    }
}

/// Makes both ends of an output tap that keeps at most `capacity` bytes for its reader.
///
/// `notify` is called by the pump when there is output again after the reader had taken everything, and at the end. It must
/// not wait.
pub fn output_tap(capacity: usize, notify: impl Fn() + 'static) -> (OutputTap, OutputReader) {
    let collected = Collected { bytes: Vec::with_capacity(capacity), ..Collected::default() };
    let shared = Arc::new(Mutex::new(collected));
    let taken = Vec::with_capacity(capacity);
    let tap =
        OutputTap { shared: Arc::clone(&shared), notify: Box::new(notify), missed: std::cell::Cell::new(0) };
    (tap, OutputReader { shared, taken })
}

/// Collects output for an [`OutputReader`].
pub struct OutputTap {
    shared: Arc<Mutex<Collected>>,
    notify: Box<dyn Fn()>,
    /// Lost, and not yet counted where the reader sees it.
    missed: std::cell::Cell<u64>,
}

impl std::fmt::Debug for OutputTap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputTap").field("missed", &self.missed).finish_non_exhaustive()
    }
}

impl OutputTap {
    fn offer(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let Some(mut collected) = self.try_lock() else {
            self.missed.set(self.missed.get() + bytes.len() as u64);
            return;
        };
        let notify = collected.add(self.missed.take(), bytes);
        drop(collected);
        if notify {
            (self.notify)();
        }
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Collected>> {
        for _ in 0..TRIES {
            match self.shared.try_lock() {
                Ok(collected) => return Some(collected),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        None
    }
}

impl Drop for OutputTap {
    /// The program has ended, and nothing else is left to be done: here it may wait for the lock.
    fn drop(&mut self) {
        let mut collected = lock(&self.shared);
        collected.add(self.missed.take(), &[]);
        collected.ended = true;
        drop(collected);
        (self.notify)();
    }
}

/// The observer's end of an output tap.
#[derive(Debug)]
pub struct OutputReader {
    shared: Arc<Mutex<Collected>>,
    taken: Vec<u8>,
}

/// Output in the order in which the front end took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output<'a> {
    /// So many bytes that came before `bytes` were dropped, because the reader lagged.
    pub lost: u64,
    pub bytes: &'a [u8],
    /// Nothing comes after this.
    pub ended: bool,
}

impl OutputReader {
    /// Takes everything that has come since the last call, perhaps nothing. Does not wait for more.
    pub fn take(&mut self) -> Output<'_> {
        self.taken.clear();
        let mut collected = lock(&self.shared);
        std::mem::swap(&mut collected.bytes, &mut self.taken);
        let lost = collected.lost_before;
        collected.lost_before = std::mem::take(&mut collected.lost_after);
        let ended = collected.ended && collected.lost_before == 0;
        drop(collected);
        Output { lost, bytes: &self.taken, ended }
    }
}

fn lock(shared: &Mutex<Collected>) -> MutexGuard<'_, Collected> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn enter_is_noticed_in_every_encoding() {
        for (bytes, expected) in [
            (&b"a"[..], false),
            (b"\r", true),
            (b"/clear\r", true),
            (b"\n", false),
            (b"\x1b[13u", true),
            (b"\x1b[13;1:1u", true),
            (b"\x1b[A", false),
            (b"\xff\xfe", false),
        ] {
            assert_eq!(presses_enter(bytes), expected, "{bytes:?}");
        }
    }

    fn output(lost: u64, bytes: &str, ended: bool) -> Output<'_> {
        Output { lost, bytes: bytes.as_bytes(), ended }
    }

    #[test]
    fn output_is_taken_in_order_and_the_reader_notified_once_per_take() {
        let notified = Rc::new(Cell::new(0));
        let count = Rc::clone(&notified);
        let (tap, mut reader) = output_tap(16, move || count.set(count.get() + 1));
        assert_eq!(reader.take(), output(0, "", false));
        tap.offer(b"one ");
        tap.offer(b"two");
        assert_eq!(notified.get(), 1);
        assert_eq!(reader.take(), output(0, "one two", false));
        tap.offer(b"three");
        assert_eq!(notified.get(), 2);
        drop(tap);
        assert_eq!(notified.get(), 3);
        assert_eq!(reader.take(), output(0, "three", true));
        assert_eq!(reader.take(), output(0, "", true));
    }

    #[test]
    fn a_lagging_reader_learns_how_much_it_lost_and_where() {
        let (tap, mut reader) = output_tap(4, || {});
        tap.offer(b"abcdef");
        tap.offer(b"g");
        assert_eq!(reader.take(), output(0, "abcd", false));
        tap.offer(b"hi");
        assert_eq!(reader.take(), output(3, "hi", false));
        tap.offer(b"jklmno");
        drop(tap);
        assert_eq!(reader.take(), output(0, "jklm", false), "a loss is still to be reported");
        assert_eq!(reader.take(), output(2, "", true));
    }

    #[test]
    fn the_pump_never_waits_for_a_reader_in_the_middle_of_a_take() {
        let (tap, mut reader) = output_tap(16, || {});
        tap.offer(b"a");
        let shared = Arc::clone(&tap.shared);
        let held = shared.lock().unwrap();
        tap.offer(b"lost");
        drop(held);
        tap.offer(b"also lost");
        assert_eq!(reader.take(), output(0, "a", false));
        tap.offer(b"b");
        assert_eq!(reader.take(), output(13, "b", false));
    }

    #[test]
    fn collecting_output_never_grows_the_buffers() {
        let (tap, mut reader) = output_tap(100, || {});
        let capacity = lock(&tap.shared).bytes.capacity();
        for _ in 0..10 {
            tap.offer(&[b'x'; 70]);
            tap.offer(&[b'x'; 70]);
            assert_eq!(lock(&tap.shared).bytes.capacity(), capacity);
            reader.take();
        }
    }
}
