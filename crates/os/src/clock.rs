//! Time as a value that can be handed in, so that tests can set the clock back.

use std::time::SystemTime;

use types::Timestamp;

/// Where the time comes from.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The machine's wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }
}
