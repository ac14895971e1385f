//! The core that all methods share: where a run is, what one signal leads to, and the form that the rules of a method have.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::decision::{Conclusion, Decision};
use super::signal::Signal;
use types::{AgentSessionId, EvidenceKind, Pid, ProcessId, Timestamp, TransitionKind};

/// How long after a file's first sight the log alone may decide. Why 1 s: log and file go through separate write queues,
/// and files were seen up to 0.6 s after the command; a rival's log line must be here before we take its file for ours.
pub const SETTLE: Duration = Duration::from_secs(1);

/// Conversations with a command, and new files, that are remembered; the oldest go first. More than ever clear at once.
pub(super) const MAX_REMEMBERED: usize = 64;

/// Whether the arguments go on with an existing conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Resumes {
    #[default]
    Nothing,
    /// With the one they name.
    Named,
    /// With one that the agent or its user chooses (`--continue`, the picker at the start).
    Unnamed,
}

/// Where a run is, as far as the evidence goes.
#[derive(Debug)]
pub(super) struct RunState {
    /// The agent's process, and those that took over from it.
    pub(super) processes: Vec<ProcessId>,
    pub(super) spawned_at: Timestamp,
    pub(super) resumes: Resumes,
    current: Option<CurrentConversation>,
    /// Conversations this run was in before.
    departed: BTreeSet<AgentSessionId>,
    /// After a transition to an unknown conversation: the ones of which it is one.
    pub(super) candidates: Vec<AgentSessionId>,
    /// Conversations in which a process called the API, as far as they were judged.
    called: BTreeSet<(AgentSessionId, Pid)>,
}

#[derive(Clone, Debug)]
struct CurrentConversation {
    id: AgentSessionId,
    since: Timestamp,
}

impl RunState {
    pub(super) fn new(agent: ProcessId, spawned_at: Timestamp) -> Self {
        Self {
            processes: vec![agent],
            spawned_at,
            resumes: Resumes::Nothing,
            current: None,
            departed: BTreeSet::new(),
            candidates: Vec::new(),
            called: BTreeSet::new(),
        }
    }

    /// A further process is this run's agent. What was judged of its calls is judged again.
    pub(super) fn adopt(&mut self, process: ProcessId) {
        self.processes.push(process);
        self.called.retain(|(_, pid)| *pid != process.pid);
    }

    pub(super) fn current(&self) -> Option<&AgentSessionId> {
        self.current.as_ref().map(|current| &current.id)
    }

    /// Since when the run is in the current conversation.
    pub(super) fn current_since(&self) -> Option<Timestamp> {
        self.current.as_ref().map(|current| current.since)
    }

    pub(super) fn is_in(&self, id: &AgentSessionId) -> bool {
        self.current() == Some(id)
    }

    pub(super) fn has_departed(&self, id: &AgentSessionId) -> bool {
        self.departed.contains(id)
    }

    /// Whether the run was never in any conversation yet.
    pub(super) fn is_unbound(&self) -> bool {
        self.current.is_none() && self.departed.is_empty()
    }

    /// The process of this run with that pid, if it is one of ours.
    pub(super) fn process(&self, pid: Pid) -> Option<ProcessId> {
        self.processes.iter().find(|process| process.pid == pid).copied()
    }

    fn depart(&mut self) {
        self.departed.extend(self.current.take().map(|current| current.id));
    }

    fn enter(&mut self, now: Timestamp, id: AgentSessionId) {
        self.candidates.clear();
        self.departed.remove(&id);
        self.current = Some(CurrentConversation { id, since: now });
    }
}

/// One signal being judged: the time, the run, and the conclusion so far.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) now: Timestamp,
    pub(super) run: &'a mut RunState,
    pub(super) conclusion: Conclusion,
}

impl<'a> Context<'a> {
    pub(super) fn new(now: Timestamp, run: &'a mut RunState) -> Self {
        Self { now, run, conclusion: Conclusion::default() }
    }

    /// Keeps a piece of evidence for `explain`, with the verdict and its reason.
    pub(super) fn explain(&mut self, source: &str, value: &str, accepted: bool, why: &str) {
        self.conclusion.explain(self.now, source, value, accepted, why);
    }

    pub(super) fn accept(&mut self, source: &str, value: &str, why: &str) {
        self.explain(source, value, true, why);
    }

    pub(super) fn reject(&mut self, source: &str, value: &str, why: &str) {
        self.explain(source, value, false, why);
    }

    fn bind(&mut self, id: AgentSessionId, evidence: EvidenceKind) {
        self.run.enter(self.now, id.clone());
        self.conclusion.decisions.push(Decision::Bind { id, evidence });
    }

    fn transition(&mut self, kind: TransitionKind, to: Option<AgentSessionId>, evidence: EvidenceKind) {
        self.run.depart();
        if let Some(id) = &to {
            self.run.enter(self.now, id.clone());
        }
        self.conclusion.decisions.push(Decision::Transition { kind, to, evidence });
    }

    pub(super) fn decide(&mut self, decision: Decision) {
        self.conclusion.decisions.push(decision);
    }
}

/// The rules of one method, with the state they need. Signals of other methods change nothing.
pub(super) trait Rules: fmt::Debug + Send {
    fn feed(&mut self, context: &mut Context<'_>, signal: Signal);

    /// The run is in this conversation from now on.
    fn entered(&mut self, _id: &AgentSessionId) {}

    /// The run is over with this conversation.
    fn departed(&mut self, _id: &AgentSessionId) {}

    /// An id that stands in the arguments binds a run that was nowhere yet.
    fn assigned(&mut self, context: &mut Context<'_>, id: AgentSessionId) {
        let first = context.run.is_unbound();
        let why =
            if first { "the id stands in the arguments" } else { "the run is already in a conversation" };
        context.explain("assigned", &id.0, first, why);
        if first {
            self.bind(context, id, EvidenceKind::Assigned);
        }
    }

    /// One of our processes asks the model in a conversation. That decides where the run is while nobody else knows.
    fn called(&mut self, context: &mut Context<'_>, id: AgentSessionId, pid: Pid) {
        let run = &mut *context.run;
        let is_ours = run.process(pid).is_some();
        let is_known = run.current.is_some() || run.has_departed(&id);
        if is_ours && is_known || !run.called.insert((id.clone(), pid)) {
            return;
        }
        let why_not = if !is_ours {
            Some("the process that calls the API is not the agent's own")
        } else if !run.candidates.is_empty() && !run.candidates.contains(&id) {
            Some("none of the conversations that may have followed")
        } else {
            None
        };
        let value = format!("{id} by pid {pid}");
        if let Some(why) = why_not {
            return context.reject("proxy", &value, why);
        }
        context.accept("proxy", &value, "this very process calls the API in this conversation");
        self.bind(context, id, EvidenceKind::Registry);
    }

    /// The conversation the run is in became known.
    fn bind(&mut self, context: &mut Context<'_>, id: AgentSessionId, evidence: EvidenceKind) {
        self.entered(&id);
        context.bind(id, evidence);
    }

    /// From the current conversation to another. `to` is `None` while nobody knows which one followed.
    fn transition(
        &mut self,
        context: &mut Context<'_>,
        kind: TransitionKind,
        to: Option<AgentSessionId>,
        evidence: EvidenceKind,
    ) {
        if let Some(current) = context.run.current() {
            self.departed(current);
        }
        if let Some(id) = &to {
            self.entered(id);
        }
        context.transition(kind, to, evidence);
    }

    /// What follows by now from all that was seen; called after each signal.
    fn decide(&mut self, context: &mut Context<'_>);

    /// When, after `now`, [`Rules::decide`] may come to something by itself.
    fn wake_at(&self, run: &RunState, now: Timestamp) -> Option<Timestamp>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::EvidenceVerdict;
    use types::StartTime;

    const AGENT: ProcessId = ProcessId { pid: Pid(100), start: StartTime(7) };

    fn id(name: &str) -> AgentSessionId {
        AgentSessionId(name.to_owned())
    }

    /// Notes what the core calls.
    #[derive(Debug, Default)]
    struct Noted(Vec<String>);

    impl Rules for Noted {
        fn feed(&mut self, _: &mut Context<'_>, _: Signal) {}

        fn entered(&mut self, id: &AgentSessionId) {
            self.0.push(format!("entered {id}"));
        }

        fn departed(&mut self, id: &AgentSessionId) {
            self.0.push(format!("departed {id}"));
        }

        fn decide(&mut self, _: &mut Context<'_>) {}

        fn wake_at(&self, _: &RunState, _: Timestamp) -> Option<Timestamp> {
            None
        }
    }

    #[test]
    fn only_a_run_that_was_nowhere_is_assigned_a_conversation() {
        let mut run = RunState::new(AGENT, Timestamp(0));
        let mut context = Context::new(Timestamp(5), &mut run);
        let mut rules = Noted::default();
        rules.assigned(&mut context, id("a"));
        rules.assigned(&mut context, id("b"));
        rules.transition(&mut context, TransitionKind::Clear, None, EvidenceKind::Log);
        rules.assigned(&mut context, id("c")); // it has been somewhere
        assert_eq!(rules.0, ["entered a", "departed a"]);
        let verdicts: Vec<_> = context.conclusion.evidence.iter().map(|seen| seen.verdict).collect();
        assert_eq!(
            verdicts,
            [EvidenceVerdict::Accepted, EvidenceVerdict::Rejected, EvidenceVerdict::Rejected]
        );
        assert_eq!(run.current(), None);
    }

    #[test]
    fn a_conversation_is_departed_until_the_run_comes_back() {
        let mut run = RunState::new(AGENT, Timestamp(0));
        let mut context = Context::new(Timestamp(5), &mut run);
        context.bind(id("a"), EvidenceKind::Registry);
        context.transition(TransitionKind::Clear, Some(id("b")), EvidenceKind::Registry);
        assert!(context.run.has_departed(&id("a")) && context.run.is_in(&id("b")));
        context.now = Timestamp(9);
        context.transition(TransitionKind::Switch, Some(id("a")), EvidenceKind::Registry);
        assert!(!context.run.has_departed(&id("a")) && context.run.has_departed(&id("b")));
        assert_eq!(run.current_since(), Some(Timestamp(9)));
    }

    #[test]
    fn candidates_are_forgotten_with_the_conversation_that_is_found() {
        let mut run = RunState::new(AGENT, Timestamp(0));
        let mut context = Context::new(Timestamp(5), &mut run);
        context.bind(id("a"), EvidenceKind::Registry);
        context.transition(TransitionKind::Clear, None, EvidenceKind::Log);
        context.run.candidates = vec![id("b"), id("c")];
        context.bind(id("c"), EvidenceKind::Log);
        assert!(run.candidates.is_empty());
    }
    #[test]
    fn a_call_decides_only_where_the_run_is_nowhere_and_only_for_its_own_process() {
        let own = AGENT.pid;
        let call = |context: &mut Context<'_>, name: &str, pid| {
            Noted::default().called(context, id(name), pid);
            let verdicts = context.conclusion.evidence.drain(..).map(|seen| seen.verdict);
            (verdicts.collect::<Vec<_>>(), context.run.current().map(|id| id.0.clone()))
        };
        let (accepted, rejected) = (vec![EvidenceVerdict::Accepted], vec![EvidenceVerdict::Rejected]);
        let mut run = RunState::new(AGENT, Timestamp(0));
        let mut context = Context::new(Timestamp(5), &mut run);
        assert_eq!(call(&mut context, "nested", Pid(4711)), (rejected.clone(), None));
        assert_eq!(call(&mut context, "nested", Pid(4711)), (vec![], None), "it is explained once");
        assert_eq!(call(&mut context, "a", own), (accepted.clone(), Some("a".to_owned())));
        assert_eq!(call(&mut context, "b", own), (vec![], Some("a".to_owned())), "the run is in one already");
        assert_eq!(call(&mut context, "other", Pid(12)), (rejected.clone(), Some("a".to_owned())));
        // After a clear to one of two.
        context.transition(TransitionKind::Clear, None, EvidenceKind::Log);
        context.run.candidates = vec![id("c"), id("d")];
        assert_eq!(call(&mut context, "a", own), (vec![], None), "a call of the conversation that was left");
        assert_eq!(call(&mut context, "e", own), (rejected.clone(), None));
        assert_eq!(call(&mut context, "d", Pid(101)), (rejected, None), "of a process that nobody knows");
        context.run.adopt(ProcessId { pid: Pid(101), start: StartTime(9) });
        assert_eq!(call(&mut context, "d", Pid(101)), (accepted, Some("d".to_owned())));
        assert!(context.run.candidates.is_empty());
    }
}
