//! Which run a process is inside of.
//!
//! A process is inside of a run if one of its ancestors is the run's wrapper, by pid and start time. Its variables are no
//! evidence: an agent's own daemon hands down those of whatever session started it, to workers of any other. They decide only
//! where processes cannot: between two runs of one wrapper, and from another pid namespace (an agent's sandbox, a container),
//! from which no ancestor beyond the namespace's first process can be seen.

use std::ffi::OsString;

use super::approval::Approver;
use crate::{BootAndPidNs, RunRow};
use pty::process::Processes;
use types::{Pid, ProcessId, RunId};

/// No chain of processes is longer.
const LONGEST_CHAIN: usize = 64;

/// Where a process comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// From the nearest on up.
    ancestors: Vec<ProcessId>,
    /// What its variables name.
    named: Option<RunId>,
    /// An agent's shared daemon is among its ancestors: everything above, and every variable, is the daemon's.
    of_a_daemon: bool,
}

impl Lineage {
    /// Of the process `own`, whose variables name `named`.
    pub fn of(
        own: Pid,
        named: Option<RunId>,
        processes: &dyn Processes,
        is_daemon: &dyn Fn(&[OsString]) -> bool,
    ) -> Self {
        let mut lineage = Self { named, ..Self::default() };
        lineage.climb(processes.parent(own), processes, is_daemon);
        // One whose parents have ended (`nohup tool &`) still has the session leader that all of them had: below a wrapper
        // that is its monitor. Daemons leave the session.
        if !lineage.of_a_daemon {
            lineage.climb(
                processes.session_leader(own).filter(|leader| *leader != own),
                processes,
                is_daemon,
            );
        }
        lineage
    }

    fn climb(
        &mut self,
        from: Option<Pid>,
        processes: &dyn Processes,
        is_daemon: &dyn Fn(&[OsString]) -> bool,
    ) {
        let mut next = from;
        while let Some(pid) = next.filter(|pid| pid.0 > 1)
            && self.ancestors.len() < LONGEST_CHAIN
            && !self.ancestors.iter().any(|known| known.pid == pid)
        {
            if is_daemon(&processes.command(pid)) {
                self.of_a_daemon = true;
                return;
            }
            let Some((process, parent)) = processes.identify_with_parent(pid) else { return };
            self.ancestors.push(process);
            next = Some(parent);
        }
    }

    /// What the variables name, right or wrong.
    pub fn named(&self) -> Option<RunId> {
        self.named
    }

    /// Who this is where a choice is to be made for a session. More than elsewhere a variable counts here: it alone shows where a
    /// process comes from that left its parents and their terminal, and to refuse too much does no harm.
    pub fn approver(&self, live: &[RunRow], here: &BootAndPidNs) -> Approver {
        if self.of_a_daemon {
            return Approver::OfADaemon;
        }
        let named = || live.iter().find(|run| Some(run.id) == self.named);
        self.enclosing(live, here).or_else(named).map_or(Approver::Outside, |run| Approver::Inside(run.id))
    }

    /// The run, among those that have not ended.
    pub fn enclosing<'a>(&self, live: &'a [RunRow], here: &BootAndPidNs) -> Option<&'a RunRow> {
        for ancestor in &self.ancestors {
            let mut of_ancestor = live.iter().filter(|run| run.wrapper == *ancestor && run.realm == *here);
            let first = of_ancestor.clone().next();
            let named = of_ancestor.find(|run| Some(run.id) == self.named);
            if let Some(run) = named.or(first) {
                return Some(run);
            }
        }
        let is_elsewhere = |run: &&RunRow| run.realm.boot == here.boot && run.realm.pids != here.pids;
        let named = live.iter().find(|run| Some(run.id) == self.named).filter(is_elsewhere);
        named.filter(|_| !self.of_a_daemon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::lifecycle::ConversationStart;
    use crate::session::testing::World;
    use types::StartTime;

    /// Pid, parent, start time, session leader, the first word of its command.
    type Row = (i32, i32, u64, i32, &'static str);

    struct Table(&'static [Row]);

    impl Table {
        fn row(&self, pid: Pid) -> Option<Row> {
            self.0.iter().copied().find(|row| row.0 == pid.0)
        }
    }

    impl Processes for Table {
        fn start_time(&self, pid: Pid) -> Option<StartTime> {
            self.row(pid).map(|row| StartTime(row.2))
        }

        fn parent(&self, pid: Pid) -> Option<Pid> {
            self.row(pid).map(|row| Pid(row.1))
        }

        fn session_leader(&self, pid: Pid) -> Option<Pid> {
            self.row(pid).map(|row| Pid(row.3))
        }

        fn command(&self, pid: Pid) -> Vec<OsString> {
            self.row(pid).map(|row| row.4.into()).into_iter().collect()
        }
    }

    fn run(n: i64, pid: i32, start: u64, realm: BootAndPidNs) -> RunRow {
        let mut world = World::new();
        let (_, _) = world.start(ConversationStart::Fresh);
        let row = world.store.read(|view| view.live_runs()).unwrap().remove(0);
        let id: RunId = format!("00000000-0000-4000-8000-{n:012}").parse().unwrap();
        RunRow { n, id, wrapper: ProcessId { pid: Pid(pid), start: StartTime(start) }, realm, ..row }
    }

    fn here() -> BootAndPidNs {
        BootAndPidNs { boot: "boot".into(), pids: "here".into() }
    }

    fn sandbox() -> BootAndPidNs {
        BootAndPidNs { boot: "boot".into(), pids: "sandbox".into() }
    }

    /// Wrapper 10 with its monitor 11 and agent 12; a nested wrapper 20 with 21 and 22. 30 is a pid that was used again.
    /// 60 is a daemon that agent 12 started, 61 its worker. 70 is a tool whose parents have ended.
    const PROCESSES: Table = Table(&[
        (10, 1, 100, 1, "wrapper"),
        (11, 10, 110, 11, "monitor"),
        (12, 11, 120, 11, "agent"),
        (20, 12, 200, 11, "wrapper"),
        (21, 20, 210, 21, "monitor"),
        (22, 21, 220, 21, "agent"),
        (30, 22, 300, 21, "sh"),
        (31, 30, 310, 21, "tool"),
        (60, 12, 600, 60, "daemon"),
        (61, 60, 610, 60, "worker"),
        (70, 1, 700, 21, "tool"),
        (80, 1, 800, 80, "stranger"),
    ]);

    #[test]
    fn the_nearest_wrapper_above_decides_and_variables_do_not() {
        let runs = [run(1, 10, 100, here()), run(2, 20, 200, here()), run(3, 30, 999, here())];
        let is_daemon = |command: &[OsString]| command.first().is_some_and(|name| name == "daemon");
        let enclosing = |own: i32, named: Option<RunId>, here: &BootAndPidNs| {
            let lineage = Lineage::of(Pid(own), named, &PROCESSES, &is_daemon);
            lineage.enclosing(&runs, here).map(|run| run.n)
        };
        for (own, expected, why) in [
            (31, Some(2), "a tool of the nested agent"),
            (20, Some(1), "a wrapper is inside the outer run, not inside its own"),
            (10, None, "the outermost wrapper"),
            (70, Some(2), "its parents have ended, its session has not"),
            (61, None, "a daemon's worker: whoever started the daemon"),
            (80, None, "a stranger"),
            (99, None, "a process that is gone"),
        ] {
            for named in [None, Some(runs[0].id), Some(runs[2].id)] {
                assert_eq!(enclosing(own, named, &here()), expected, "{why}, {named:?}");
            }
        }
        // From another pid namespace, where nothing above can be seen, there are the variables alone.
        assert_eq!(enclosing(80, Some(runs[1].id), &sandbox()), Some(2));
        assert_eq!(enclosing(61, Some(runs[1].id), &sandbox()), None, "unless a daemon handed them down");
        assert_eq!(enclosing(80, None, &sandbox()), None);
        let other_boot = BootAndPidNs { boot: "another".into(), ..sandbox() };
        assert_eq!(enclosing(80, Some(runs[1].id), &other_boot), None);
    }

    #[test]
    fn an_approver_is_known_by_its_variable_too_and_a_daemons_worker_is_nobody() {
        let runs = [run(1, 10, 100, here()), run(2, 20, 200, here())];
        let is_daemon = |command: &[OsString]| command.first().is_some_and(|name| name == "daemon");
        for (own, named, expected) in [
            (31, None, Approver::Inside(runs[1].id)),
            (31, Some(runs[0].id), Approver::Inside(runs[1].id)),
            (80, None, Approver::Outside),
            (80, Some(runs[0].id), Approver::Inside(runs[0].id)),
            (61, None, Approver::OfADaemon),
            (61, Some(runs[0].id), Approver::OfADaemon),
        ] {
            let lineage = Lineage::of(Pid(own), named, &PROCESSES, &is_daemon);
            assert_eq!(lineage.approver(&runs, &here()), expected, "{own} {named:?}");
        }
    }

    #[test]
    fn variables_choose_between_runs_of_one_wrapper() {
        let runs = [run(1, 10, 100, here()), run(2, 10, 100, here())];
        for (named, expected) in [(None, 1), (Some(runs[1].id), 2)] {
            let lineage = Lineage::of(Pid(12), named, &PROCESSES, &|_| false);
            assert_eq!(lineage.enclosing(&runs, &here()).map(|run| run.n), Some(expected));
        }
    }
}
