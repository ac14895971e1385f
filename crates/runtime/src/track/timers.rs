//! When the next look is due. Pure: the time is handed in.

use std::time::{Duration, Instant};

use os::clock::{Clock, SystemClock};
use types::Timestamp;

/// Looks after an Enter, for what no file change announces (a folder that is not there yet, a network file system).
const AFTER_ENTER: [Duration; 4] = [
    Duration::from_millis(30),
    Duration::from_millis(120),
    Duration::from_millis(300),
    Duration::from_millis(700),
];
/// The least time between two looks that changes of files ask for: where much is written at once, by fifty agents that start
/// together, one look sees many changes.
const PACE: Duration = Duration::from_millis(20);
/// How soon the changes of other runs are looked at. They can only narrow down what this run's own files leave open.
const OF_OTHERS: Duration = Duration::from_millis(500);
/// The shortest sleep, so that a timer that is due does not turn the loop into a busy one.
const LEAST_SLEEP: Duration = Duration::from_millis(1);

/// Why the tracker wakes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// The user pressed Enter.
    Enter,
    /// Something changed: files, or the end has come.
    Look,
    /// Another run changed something.
    Others,
}

/// How much a look sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Everything,
    /// The files that this run alone changes.
    OwnFiles,
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    looks: Vec<Instant>,
    looked_at: Option<Instant>,
    /// The last look at everything.
    looked_at_all: Option<Instant>,
    /// When to look at what other runs have changed.
    others_due_at: Option<Instant>,
}

impl Timers {
    /// How much the next look has to see: everything, if changes are not `reported`, if another run has changed something, or
    /// if the last look at everything is as long ago as the `net` allows.
    pub(super) fn scope(&self, now: Instant, reported: bool, net: Duration) -> Scope {
        let due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        let long_ago = self.looked_at_all.is_none_or(|at| now >= at + net);
        if !reported || long_ago || due(self.others_due_at) { Scope::Everything } else { Scope::OwnFiles }
    }

    pub(super) fn begin_look(&mut self, now: Instant, scope: Scope) {
        self.looked_at = Some(now);
        if scope == Scope::Everything {
            self.looked_at_all = Some(now);
            self.others_due_at = None;
        }
    }

    /// A path is watched from now on that was not before: it may have changed in between.
    pub(super) fn look_soon(&mut self, now: Instant) {
        self.look_at(now + PACE);
    }

    /// Drops looks that were due by now: the present look serves for them.
    pub(super) fn drop_past(&mut self, now: Instant) {
        self.looks.retain(|at| *at > now);
    }

    pub(super) fn look_at(&mut self, at: Instant) {
        if !self.looks.contains(&at) {
            self.looks.push(at);
        }
    }

    /// Whether it is a reason to look now; otherwise a later look is planned for it.
    pub(super) fn heeds(&mut self, wake: Wake, now: Instant) -> bool {
        let at = match wake {
            Wake::Enter => {
                self.looks = AFTER_ENTER.iter().map(|delay| now + *delay).collect();
                return true;
            }
            Wake::Look => self.looked_at.map_or(now, |at| at + PACE),
            Wake::Others => {
                self.others_due_at.get_or_insert(now + OF_OTHERS);
                return false;
            }
        };
        if at > now {
            self.look_at(at);
        }
        at <= now
    }

    /// How long to sleep if nothing happens: until the first of the planned looks and the `other` reasons to look, at most
    /// `net`.
    pub(super) fn sleep(
        &self,
        now: Instant,
        net: Duration,
        other: impl IntoIterator<Item = Instant>,
    ) -> Duration {
        let due = self.looks.iter().copied().chain(self.others_due_at).chain(other);
        due.map(|at| at.saturating_duration_since(now)).fold(net, Duration::min).max(LEAST_SLEEP)
    }
}

// The time that a run reads, handed in so that tests can move it.

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
mod tests {
    use super::*;

    const NET: Duration = Duration::from_secs(5);

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// The last look was at 0 ms. Wakes with their times; which of them are looked at at once; then the time and how long the
    /// sleep is.
    #[test]
    fn the_next_look_is_due_by_the_nearest_reason() {
        use Wake::{Enter, Look, Others};
        type Case = (&'static str, &'static [(u64, Wake)], &'static [bool], u64, u64);
        let cases: &[Case] = &[
            ("nothing happened", &[], &[], 100, 5000),
            ("a change long after the last look", &[(300, Look)], &[true], 300, 5000),
            ("a change right after a look", &[(5, Look)], &[false], 5, 15),
            ("many changes right after a look", &[(5, Look), (6, Look), (7, Look)], &[false; 3], 7, 13),
            ("a change exactly a pace after", &[(20, Look)], &[true], 20, 5000),
            ("another run's change", &[(300, Others)], &[false], 300, 500),
            ("another run's, then our own", &[(5, Others), (6, Look)], &[false; 2], 6, 14),
            ("an Enter", &[(300, Enter)], &[true], 300, 30),
            ("an Enter, its first look past", &[(300, Enter)], &[true], 331, 89),
            ("an Enter, all its looks past", &[(300, Enter)], &[true], 1001, 5000),
            (
                "a later Enter replaces the looks of the first",
                &[(300, Enter), (400, Enter)],
                &[true; 2],
                421,
                9,
            ),
        ];
        for (what, wakes, heeded, now, sleep) in cases {
            let start = Instant::now();
            let mut timers = Timers::default();
            timers.begin_look(start, Scope::Everything);
            let heeds: Vec<bool> =
                wakes.iter().map(|(at, wake)| timers.heeds(*wake, start + ms(*at))).collect();
            assert_eq!(heeds, *heeded, "{what}");
            timers.drop_past(start + ms(*now));
            assert_eq!(timers.sleep(start + ms(*now), NET, []), ms(*sleep), "{what}");
        }
    }

    #[test]
    fn changes_of_other_runs_ask_for_a_look_at_everything_and_own_ones_do_not() {
        let start = Instant::now();
        let at = |count| start + ms(count);
        let mut timers = Timers::default();
        assert_eq!(timers.scope(start, true, NET), Scope::Everything, "the first look");
        timers.begin_look(start, Scope::Everything);
        assert_eq!(timers.scope(start, false, NET), Scope::Everything, "changes are not reported");
        timers.heeds(Wake::Look, at(30));
        timers.heeds(Wake::Enter, at(40));
        assert_eq!(timers.scope(at(100), true, NET), Scope::OwnFiles);
        assert!(!timers.heeds(Wake::Others, at(100)), "it can wait");
        timers.heeds(Wake::Others, at(300));
        assert_eq!(timers.scope(at(599), true, NET), Scope::OwnFiles);
        assert_eq!(
            timers.scope(at(600), true, NET),
            Scope::Everything,
            "half a second after the first of them"
        );
        timers.begin_look(at(600), Scope::OwnFiles);
        assert_eq!(timers.scope(at(601), true, NET), Scope::Everything, "that look did not see it");
        timers.begin_look(at(602), Scope::Everything);
        assert_eq!(timers.scope(at(700), true, NET), Scope::OwnFiles, "one look is enough for all of them");
        assert_eq!(timers.scope(at(602) + NET, true, NET), Scope::Everything, "whatever is reported");
    }

    #[test]
    fn the_first_change_is_looked_at_at_once() {
        assert!(Timers::default().heeds(Wake::Look, Instant::now()));
    }

    #[test]
    fn other_reasons_shorten_the_sleep_and_one_that_is_due_does_not_spin() {
        let (timers, now) = (Timers::default(), Instant::now());
        assert_eq!(timers.sleep(now, NET, [now + ms(70), now + ms(2000)]), ms(70));
        assert_eq!(timers.sleep(now, NET, [now + ms(9000)]), NET);
        assert_eq!(timers.sleep(now + ms(10), NET, [now]), LEAST_SLEEP);
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
