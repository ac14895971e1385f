//! What passes, for whoever watches. A watcher that lags misses something; it can never hold a byte back.

use memchr::{memchr, memmem};

/// The watcher's end, held by the pump.
pub struct Tap {
    enter: Box<dyn Fn()>,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").finish_non_exhaustive()
    }
}

impl Tap {
    /// `enter` says that the user pressed Enter: look now instead of a moment later. A hint, never evidence; it must not wait.
    pub fn new(enter: impl Fn() + 'static) -> Self {
        Self { enter: Box::new(enter) }
    }

    /// Called with every chunk on its way to the agent, after it was written.
    pub fn input(&self, bytes: &[u8]) {
        if presses_enter(bytes) {
            (self.enter)();
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
}
