//! The time that a run reads, handed in so that tests can move it.

use std::time::{Duration, Instant};

use os::clock::{Clock, SystemClock};
use types::Timestamp;

/// One reading of both clocks: the wall's for what is stored, the steady one for timers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) wall: Timestamp,
    pub(super) steady: Instant,
}

impl Moment {
    /// The steady time that a later time of the wall clock stands for.
    pub(super) fn steady_at(self, wall: Timestamp) -> Instant {
        self.steady + wall.since(self.wall)
    }
}

pub(super) trait RunClock: Send {
    fn now(&self) -> Moment;
    fn sleep(&self, time: Duration);
}

/// The machine's own clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct SystemClocks;

impl RunClock for SystemClocks {
    fn now(&self) -> Moment {
        Moment { wall: SystemClock.now(), steady: Instant::now() }
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

#[cfg(test)]
pub(super) mod testing {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Stands still unless it is moved. All its clones are one clock.
    #[derive(Clone, Debug)]
    pub(in super::super) struct ManualClock(Arc<Mutex<Moment>>);

    impl ManualClock {
        pub(in super::super) fn new() -> Self {
            Self(Arc::new(Mutex::new(SystemClocks.now())))
        }

        pub(in super::super) fn advance(&self, time: Duration) {
            let mut now = self.0.lock().unwrap();
            *now = Moment { wall: now.wall.after(time), steady: now.steady + time };
        }
    }

    impl RunClock for ManualClock {
        fn now(&self) -> Moment {
            *self.0.lock().unwrap()
        }

        fn sleep(&self, time: Duration) {
            self.advance(time);
        }
    }
}
