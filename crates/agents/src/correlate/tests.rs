//! A run in short form for the tests of all methods, and the rules that hold for each of them.

use super::*;
use types::EvidenceVerdict;
use types::{Pid, StartTime};

pub(super) const AGENT: ProcessId = ProcessId { pid: Pid(100), start: StartTime(7) };

pub(super) const NOTHING: [&str; 0] = [];

/// A scenario starts at 0 ms. Ids are single letters.
pub(super) struct Run(pub(super) Correlator);

pub(super) fn id(name: &str) -> AgentSessionId {
    AgentSessionId(name.to_owned())
}

pub(super) fn run_by(method: Method) -> Run {
    Run(Correlator::new(method, AGENT, Timestamp(0)))
}

/// A run bound to conversation `a` by assignment.
pub(super) fn assigned_by(method: Method) -> Run {
    let mut run = run_by(method);
    assert_eq!(run.feed(0, Signal::Assigned(id("a"))), ["bind a assigned"]);
    run
}

impl Run {
    pub(super) fn continuing(self) -> Self {
        Self(self.0.continuing())
    }

    pub(super) fn feed(&mut self, now: i64, signal: Signal) -> Vec<String> {
        self.0.feed(Timestamp(now), signal).decisions.iter().map(shown).collect()
    }

    /// Where each piece of evidence came from, whether it was accepted, and its detail.
    pub(super) fn explained(&mut self, now: i64, signal: Signal) -> Vec<(String, bool, String)> {
        let evidence = self.0.feed(Timestamp(now), signal).evidence;
        evidence
            .into_iter()
            .map(|seen| (seen.source, seen.verdict == EvidenceVerdict::Accepted, seen.detail))
            .collect()
    }
}

/// `bind a assigned`, `clear to b registry`, `switch to ? log`, `ambiguous a b`, `forked to f in 300`.
pub(super) fn shown(decision: &Decision) -> String {
    match decision {
        Decision::Bind { id, evidence } => format!("bind {id} {evidence}"),
        Decision::Transition { kind, to, evidence } => {
            let to = to.as_ref().map_or("?", |id| &id.0);
            format!("{kind} to {to} {evidence}")
        }
        Decision::Forked(fork) => format!("forked to {} in {}", fork.to, fork.process.pid),
        Decision::Ambiguous { candidates } => {
            let names: Vec<&str> = candidates.iter().map(|id| id.0.as_str()).collect();
            format!("ambiguous {}", names.join(" "))
        }
    }
}

const METHODS: [Method; 3] = [Method::Registry, Method::Held, Method::Folder];

#[test]
fn whatever_the_method_an_assigned_id_binds_once() {
    for method in METHODS {
        let mut run = assigned_by(method);
        assert_eq!(run.feed(1, Signal::Assigned(id("z"))), NOTHING, "{method:?}");
        assert_eq!(run.0.current(), Some(&id("a")));
        assert_eq!(run.0.wake_at(Timestamp(1)), None);
    }
}

#[test]
fn a_method_heeds_its_own_evidence_alone() {
    let registry = Signal::Continued { id: id("b"), maker: Maker::Ours };
    let held = Signal::Held { id: id("b"), thread: Thread::Fresh };
    let trace =
        Signal::Trace(Trace::Begun { id: id("b"), at: Timestamp(5), known: false, maker: Maker::Ours });
    let own = [(Method::Registry, registry), (Method::Held, held), (Method::Folder, trace)];
    for method in METHODS {
        for (its, signal) in &own {
            let decided = run_by(method).continuing().feed(10, signal.clone());
            assert_eq!(!decided.is_empty(), method == *its, "{method:?} fed {signal:?}");
        }
    }
}
