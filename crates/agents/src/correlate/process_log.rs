//! Agents whose processes each write a log of their own (Copilot CLI): it says which conversation is in front, at every change. A
//! process may hold several conversations open at once, so that one is held or written to proves nothing.

use super::core::{Context, Rules, RunState};
use super::registry::transition_kind;
use super::signal::Signal;
use types::{EvidenceKind, Timestamp};

#[derive(Debug, Default)]
pub(super) struct ProcessLogRules;

impl Rules for ProcessLogRules {
    fn feed(&mut self, context: &mut Context<'_>, signal: Signal) {
        let Signal::Front { id, file } = signal else { return };
        if context.run.is_in(&id) {
            return context.accept("log", &id.0, "confirms the conversation bound");
        }
        let Some(since) = context.run.current_since() else {
            context.accept("log", &id.0, "this very process has it in front");
            return self.bind(context, id, EvidenceKind::Log);
        };
        let (kind, why) = transition_kind(file, since);
        context.accept("log", &id.0, why);
        self.transition(context, kind, Some(id), EvidenceKind::Log);
    }

    fn decide(&mut self, _: &mut Context<'_>) {}

    fn wake_at(&self, _: &RunState, _: Timestamp) -> Option<Timestamp> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Beginning, Correlator, Decision, Method};
    use super::*;
    use types::{AgentSessionId, Pid, ProcessId, StartTime, TransitionKind};

    /// `/new` leaves a conversation open: that it goes on, or comes back, is told by the log alone.
    #[test]
    fn the_conversation_in_front_is_the_one_the_run_is_in() {
        let agent = ProcessId { pid: Pid(10), start: StartTime(1) };
        let mut correlator = Correlator::new(Method::ProcessLog, agent, Timestamp(0));
        let id = |name: &str| AgentSessionId(name.to_owned());
        let spoken = Beginning::Spoken { copied: false };
        let changed = |kind, to: &str| Decision::Transition {
            kind,
            to: Some(AgentSessionId(to.to_owned())),
            evidence: EvidenceKind::Log,
        };
        for (at, front, file, expected) in [
            (1, "a", Beginning::Absent, Some(Decision::Bind { id: id("a"), evidence: EvidenceKind::Log })),
            (2, "a", spoken, None),
            (3, "b", Beginning::Absent, Some(changed(TransitionKind::Clear, "b"))),
            (4, "a", spoken, Some(changed(TransitionKind::Switch, "a"))),
            (5, "c", Beginning::Spoken { copied: true }, Some(changed(TransitionKind::Switch, "c"))),
        ] {
            let conclusion = correlator.feed(Timestamp(at), Signal::Front { id: id(front), file });
            assert_eq!(conclusion.decisions, expected.into_iter().collect::<Vec<_>>(), "{front} at {at}");
            assert_eq!(conclusion.evidence.len(), 1);
        }
        let held = Signal::Held { id: id("b"), thread: super::super::Thread::Fresh };
        assert!(correlator.feed(Timestamp(6), held).decisions.is_empty(), "one that is only held");
    }
}
