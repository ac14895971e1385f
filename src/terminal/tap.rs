//! Copies of what passes, for those who watch. A watcher that lags loses copies, and is told how many; it can never
//! hold a byte back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memchr::{memchr, memmem};

/// What a watcher is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The user pressed Enter: look now instead of a moment later. A hint, never evidence.
    Enter,
    /// The agent wrote this, and the terminal has it already.
    Output(Box<[u8]>),
}

/// One watcher's end, held by the pump.
pub struct Tap {
    offer: Box<dyn Fn(Notice) -> Taken>,
    wants_output: bool,
    lost: Arc<AtomicU64>,
}

/// What became of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Yes,
    /// The watcher's queue is full.
    Lost,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Tap {
    /// `offer` puts a notice into the watcher's bounded queue and never waits; what does not fit is counted in `lost`.
    pub fn new(wants_output: bool, offer: impl Fn(Notice) -> Taken + 'static) -> Self {
        Self { offer: Box::new(offer), wants_output, lost: Arc::default() }
    }

    /// How many notices the watcher was too slow for.
    pub fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }

    /// Called with every chunk on its way to the agent, after it was written.
    pub fn input(&self, bytes: &[u8]) {
        if presses_enter(bytes) {
            self.send(Notice::Enter);
        }
    }

    /// Called with every chunk on its way to the terminal, after it was written.
    pub fn output(&self, bytes: &[u8]) {
        if self.wants_output {
            self.send(Notice::Output(bytes.into()));
        }
    }

    fn send(&self, notice: Notice) {
        if (self.offer)(notice) == Taken::Lost {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A carriage return, or Enter as the kitty keyboard protocol spells it (`CSI 13 u`, perhaps with an event type).
fn presses_enter(bytes: &[u8]) -> bool {
    memchr(b'\r', bytes).is_some() || memmem::find(bytes, b"\x1b[13").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn enter_is_noticed_however_it_is_spelled() {
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

    #[test]
    fn a_watcher_that_lags_loses_copies_and_knows_how_many() {
        let (sender, receiver) = sync_channel(2);
        let tap = Tap::new(true, move |notice| match sender.try_send(notice) {
            Ok(()) => Taken::Yes,
            Err(_) => Taken::Lost,
        });
        for chunk in [&b"one"[..], b"two", b"three", b"four"] {
            tap.output(chunk);
        }
        assert_eq!(tap.lost().load(Ordering::Relaxed), 2);
        let seen: Vec<_> = receiver.try_iter().collect();
        assert_eq!(seen, [Notice::Output(b"one"[..].into()), Notice::Output(b"two"[..].into())]);
    }
}
