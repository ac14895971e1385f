//! What a run looks at, and when: the agent's observer, the watches on its files, the timers, and the polling net below them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::timers::RunClock;
use super::timers::{Scope, Timers, Wake};
use agents::correlate::Method;
use agents::{Observation, Observer};
use os::watch::Watch;
use pty::process::Processes;
use types::{AgentSessionId, ProcessId};

/// The safety net where changes are reported, and the pace where they are not.
const SLOW: Duration = Duration::from_secs(5);
const POLLING: Duration = Duration::from_millis(500);
/// A run without an observer has nothing to look at.
const NEVER: Duration = Duration::from_hours(1);
/// How soon something half written is looked at again.
const TORN: Duration = Duration::from_millis(5);

pub(super) struct Watcher {
    /// `None` for a program that is no agent.
    observer: Option<Box<dyn Observer>>,
    /// `None`: changes are not reported, or not yet.
    watch: Option<Watch>,
    timers: Timers,
}

impl Watcher {
    pub(super) fn new(observer: Option<Box<dyn Observer>>) -> Self {
        Self { observer, watch: None, timers: Timers::default() }
    }

    pub(super) fn has_observer(&self) -> bool {
        self.observer.is_some()
    }

    /// How the agent's conversations are found; `None` for a program that is no agent.
    pub(super) fn method(&self) -> Option<Method> {
        self.observer.as_ref().map(|observer| observer.method())
    }

    /// Changes of what the observer names are reported from the next look on.
    pub(super) fn watch_by(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// How much the look that is due has to see.
    pub(super) fn scope(&self, now: Instant) -> Scope {
        self.timers.scope(now, self.watch.as_ref().is_some_and(Watch::works), SLOW)
    }

    pub(super) fn begin_look(&mut self, now: Instant, scope: Scope) {
        if let (Scope::Everything, Some(watch)) = (scope, &self.watch) {
            watch.begin_look();
        }
        self.timers.begin_look(now, scope);
    }

    /// Asks the observer what it sees now, and plans the further looks that it asks for.
    pub(super) fn look(
        &mut self,
        clock: &dyn RunClock,
        agent: Option<ProcessId>,
        processes: &dyn Processes,
        scope: Scope,
    ) -> Option<Observation> {
        self.timers.drop_past(clock.now().steady);
        let observer = self.observer.as_mut()?;
        let seen = match scope {
            Scope::Everything => observer.look(agent?, processes),
            Scope::OwnFiles => observer.look_at_own(agent?, processes),
        };
        let now = clock.now().steady;
        if seen.torn {
            self.timers.look_at(now + TORN);
        }
        if let Some(delay) = seen.again {
            self.timers.look_at(now + delay);
        }
        Some(seen)
    }

    /// Watches the paths that the observer names by now.
    pub(super) fn end_look(&mut self, now: Instant) {
        if let (Some(watch), Some(observer)) = (&mut self.watch, &self.observer)
            && watch.set(observer.watched(), observer.watch_scope())
        {
            self.timers.look_soon(now);
        }
    }

    /// Whether it is a reason to look now.
    pub(super) fn heeds(&mut self, wake: Wake, now: Instant) -> bool {
        self.timers.heeds(wake, now)
    }

    /// How long to sleep if nothing happens and there is no `other` reason to look.
    pub(super) fn sleep(&self, now: Instant, other: impl IntoIterator<Item = Instant>) -> Duration {
        let net = match (&self.watch, &self.observer) {
            (_, None) => NEVER,
            (Some(watch), _) if watch.works() => SLOW,
            _ => POLLING,
        };
        self.timers.sleep(now, net, other)
    }

    pub(super) fn observer(&mut self) -> Option<&mut (dyn Observer + 'static)> {
        self.observer.as_deref_mut()
    }

    /// The conversation's own file.
    pub(super) fn file(&mut self, id: &AgentSessionId) -> Option<PathBuf> {
        self.observer.as_mut()?.files(id).into_iter().next()
    }
}

#[cfg(test)]
mod tests {
    use super::super::timers::testing::ManualClock;
    use super::*;
    use agents::meter::line::Lines;
    use pty::process::SystemProcesses;
    use types::{Pid, StartTime};

    /// An observer that asks for the same further look each time.
    #[derive(Clone, Copy)]
    struct Asking {
        torn: bool,
        again: Option<Duration>,
    }

    impl Observer for Asking {
        fn method(&self) -> Method {
            Method::Registry
        }

        fn watched(&self) -> Vec<PathBuf> {
            Vec::new()
        }

        fn look(&mut self, _: ProcessId, _: &dyn Processes) -> Observation {
            Observation { torn: self.torn, again: self.again, ..Observation::default() }
        }

        fn files(&mut self, _: &AgentSessionId) -> Vec<PathBuf> {
            Vec::new()
        }

        fn lines(&self, _: Option<&str>) -> Box<dyn Lines + Send> {
            unreachable!("nothing is read")
        }
    }

    #[test]
    fn without_reports_the_files_are_polled_and_a_trail_may_ask_for_an_earlier_look() {
        let asking = |torn, again| Some(Asking { torn, again });
        let soon = Some(Duration::from_millis(70));
        for (what, observer, expected) in [
            ("no agent", None, NEVER),
            ("nothing asked for", asking(false, None), POLLING),
            ("half written", asking(true, None), TORN),
            ("asked for", asking(false, soon), Duration::from_millis(70)),
            ("half written and asked for", asking(true, soon), TORN),
            ("asked for later than the net", asking(false, Some(Duration::from_secs(9))), POLLING),
        ] {
            let clock = ManualClock::new();
            let mut watcher = Watcher::new(observer.map(|observer| Box::new(observer) as _));
            let agent = ProcessId { pid: Pid(1), start: StartTime(1) };
            watcher.begin_look(clock.now().steady, Scope::Everything);
            watcher.look(&clock, Some(agent), &SystemProcesses, Scope::Everything);
            assert_eq!(watcher.sleep(clock.now().steady, []), expected, "{what}");
        }
    }

    #[test]
    fn where_all_changes_are_reported_the_net_is_slow() {
        let watch = Watch::new(|_| ());
        let works = watch.works();
        let mut watcher = Watcher::new(Some(Box::new(Asking { torn: false, again: None })));
        watcher.watch_by(watch);
        // There may be no inotify instance left on this machine.
        assert_eq!(watcher.sleep(Instant::now(), []), if works { SLOW } else { POLLING });
    }
}
