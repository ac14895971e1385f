//! The queue of pending writes of a run, and the store it goes to.
//!
//! Promises: writes are carried out in order. One that the store refuses (it is full, or locked for long) is kept and tried
//! again before any later one, because the correlator has moved on and will not decide it twice. What broke is reported in the
//! end, once, and only if it did not work out after all.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agents::correlate::{Conclusion, Decision};
use delivery::{Hint, Sender, Sinks, Target, register};
use os::home::Home;
use store::{SinkRow, Store, session};
use types::{Evidence, SessionId, Timestamp};

/// How often a store that was busy or full is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct WriteQueue {
    /// `None` until the START is committed.
    store: Option<Store>,
    pending: VecDeque<PendingWrite>,
    /// When to try the store again, after it was busy or full.
    retry_at: Option<Instant>,
    /// The first thing of ours that broke for good.
    problem: Option<String>,
    /// The store's last refusal of a write that is tried again. Nothing is lost if it succeeds in the end.
    refusal: Option<String>,
    /// Whether there was a refusal in this look.
    refused: bool,
    receivers: Receivers,
}

impl WriteQueue {
    /// The START is committed.
    pub(super) fn open(&mut self, store: Store, receivers: Receivers) {
        self.store = Some(store);
        self.receivers = receivers;
        self.retry_at = None;
        self.refusal = None;
    }

    /// There is no START: a busy store is tried again, and what is broken is reported in the end.
    pub(super) fn not_opened(&mut self, now: Instant, error: &session::Error) {
        self.retry_at = error.may_pass().then(|| now + RETRY);
        self.refusal = Some(format!("this session is not recorded: {error}"));
    }

    pub(super) fn is_open(&self) -> bool {
        self.store.is_some()
    }

    /// Why there will be no START: what is not busy or full is not tried again.
    pub(super) fn refused_for_good(&self) -> Option<&str> {
        self.refusal.as_deref().filter(|_| self.store.is_none() && self.retry_at.is_none())
    }

    /// Whether it is time to try again to open the store.
    pub(super) fn may_open(&self, now: Instant) -> bool {
        self.store.is_none() && self.retry_at.is_some_and(|at| now >= at)
    }

    pub(super) fn store(&mut self) -> Option<&mut Store> {
        self.store.as_mut()
    }

    pub(super) fn begin_look(&mut self) {
        self.retry_at = None;
        self.refused = false;
    }

    /// A look in which nothing was refused has made up for the refusals before it.
    pub(super) fn end_look(&mut self) {
        if self.store.is_some() && !self.refused {
            self.refusal = None;
        }
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// The end has come: what waits for the store is tried now.
    pub(super) fn retry_now(&mut self, now: Instant) {
        self.retry_at = self.retry_at.map(|_| now);
    }

    /// Whether a write waits. What is read now may be of a conversation that the store does not know yet.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(super) fn pending(&self) -> Option<&PendingWrite> {
        self.pending.front()
    }

    pub(super) fn push(&mut self, writes: impl IntoIterator<Item = PendingWrite>) {
        self.pending.extend(writes);
    }

    /// The next write to be carried out, if there is a store.
    pub(super) fn next(&mut self) -> Option<PendingWrite> {
        self.store.as_ref()?;
        self.pending.pop_front()
    }

    /// A write failed. One that the store refused stays the next, and nothing is written before [`WriteQueue::next`] is asked
    /// again; any other is given up. Returns whether to go on with the next.
    pub(super) fn write_failed(
        &mut self,
        now: Instant,
        session: SessionId,
        write: PendingWrite,
        error: &session::Error,
    ) -> bool {
        self.failed(now, session, error);
        let refused = matches!(error, session::Error::Store(_));
        if refused {
            self.pending.push_front(write);
        }
        !refused
    }

    /// Notes an error. One of the store means that the write is tried again; any other would only be repeated, and is reported.
    pub(super) fn failed(&mut self, now: Instant, session: SessionId, error: &session::Error) {
        let text = error.to_string();
        if let session::Error::Store(_) = error {
            if self.refusal.as_ref() != Some(&text) {
                tracing::error!(%session, "{error}");
            }
            self.refusal = Some(text);
            self.refused = true;
            self.retry_at = Some(now + RETRY);
        } else {
            tracing::error!(%session, "{error}");
            self.report(text);
        }
    }

    /// Something of ours broke for good: reported in the end, if it is the first.
    pub(super) fn report(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    /// Wakes the sender: a session began, is known, or ended.
    pub(super) fn send_now(&mut self, home: &Home, sinks: fn(&Home) -> Option<Sinks>) {
        self.wake_sender(Hint::Now, home, sinks);
    }

    /// Wakes the sender: something was metered.
    pub(super) fn send_soon(&mut self, home: &Home, sinks: fn(&Home) -> Option<Sinks>) {
        self.wake_sender(Hint::Soon, home, sinks);
    }

    fn wake_sender(&mut self, hint: Hint, home: &Home, sinks: fn(&Home) -> Option<Sinks>) {
        if let Some(store) = &mut self.store {
            self.receivers.follow(store, home, sinks);
        }
        self.receivers.wake(hint);
    }

    /// Ends the queue: returns the problem to report, if there is one, and the sender, which may still be sending.
    pub(super) fn close(mut self) -> (Option<String>, Option<Sender>) {
        // Closing the last connection would move the log into the database, which waits for the disk; that is left to a
        // moment when nobody waits for us.
        std::mem::forget(self.store.take());
        (self.refusal.or(self.problem), self.receivers.into_sender())
    }

    #[cfg(test)]
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}

// What a run has to write to the store, in order.

/// One write, and when it was due: that is its time, however late the store takes it.
#[derive(Clone, Debug)]
pub(super) struct PendingWrite {
    pub(super) at: Timestamp,
    pub(super) content: WriteContent,
}

#[derive(Clone, Debug)]
pub(super) enum WriteContent {
    /// For `explain`.
    Evidence(Evidence),
    Decision {
        decision: Decision,
        /// Where the agent worked.
        folder: PathBuf,
    },
    /// The agent went to another folder and took the conversation along: there it is to be resumed.
    Moved(PathBuf),
    /// The agent's version became known.
    Version(String),
}

impl PendingWrite {
    /// A conclusion, in the order in which it is to be written.
    pub(super) fn of(at: Timestamp, conclusion: Conclusion, folder: &Path) -> Vec<Self> {
        let evidence = conclusion.evidence.into_iter().map(WriteContent::Evidence);
        let decisions = conclusion
            .decisions
            .into_iter()
            .map(|decision| WriteContent::Decision { decision, folder: folder.to_owned() });
        evidence.chain(decisions).map(|content| Self { at, content }).collect()
    }

    /// Whether it leads to another conversation.
    pub(super) fn is_transition(&self) -> bool {
        matches!(&self.content, WriteContent::Decision { decision: Decision::Transition { .. }, .. })
    }
}

// Where the events of a run are sent: receivers may be set up, moved or taken away while the agent runs, and the store shows
// it.

#[derive(Debug, Default)]
pub(super) struct Receivers {
    /// The receivers that the store names, as last seen.
    named: Vec<Receiver>,
    /// The targets that the sender has.
    targets: Vec<Target>,
    /// Runs beside us, where there is somewhere to send to.
    sender: Option<Sender>,
}

impl Receivers {
    /// Starts to send to the targets that were settled with the START; the store named `rows` then.
    pub(super) fn begin(sinks: Option<Sinks>, targets: Vec<Target>, rows: &[SinkRow]) -> Self {
        Self { named: receivers(rows), targets, sender: sinks.and_then(Sender::start) }
    }

    /// Sends to others from here on, if the store names others and the settings do so as well.
    pub(super) fn follow(&mut self, store: &mut Store, home: &Home, configured: fn(&Home) -> Option<Sinks>) {
        let Ok(rows) = store.read(|view| view.sinks()) else { return };
        let (named, retired) = (receivers(&rows), rows.iter().any(SinkRow::is_retired));
        if named == self.named {
            return;
        }
        self.named = named;
        let sinks = configured(home);
        let targets = sinks.as_ref().map(Sinks::targets).unwrap_or_default();
        if targets == self.targets {
            // Taken out of the configuration elsewhere, but this run has it from its environment.
            if retired {
                let _ = store.write(|tx| register(tx, &targets)); // or with the next call
            }
        } else {
            self.targets = targets;
            // The one before sends what it is at, and ends.
            self.sender = sinks.and_then(Sender::start);
        }
    }

    pub(super) fn wake(&self, hint: Hint) {
        if let Some(sender) = &self.sender {
            sender.hint(hint);
        }
    }

    /// Gives the sender to the caller, which waits until all is sent.
    pub(super) fn into_sender(self) -> Option<Sender> {
        self.sender
    }
}

/// A sink's name, and what stands for its address and for who sends there.
type Receiver = (String, Option<String>, Option<String>);

fn receivers(rows: &[SinkRow]) -> Vec<Receiver> {
    rows.iter().map(|row| (row.name.clone(), row.address.clone(), row.credentials.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::write_queue::WriteContent;
    use super::*;
    use store::Error;
    use types::{Ids, RandomIds, Timestamp};

    fn version(name: &str) -> PendingWrite {
        PendingWrite { at: Timestamp(0), content: WriteContent::Version(name.to_owned()) }
    }

    fn name(write: &PendingWrite) -> String {
        let WriteContent::Version(name) = &write.content else { unreachable!() };
        name.clone()
    }

    fn open(queue: &mut WriteQueue) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&Home::at(folder.path().join("home")), Timestamp(0)).unwrap();
        queue.open(store, Receivers::default());
        folder
    }

    fn full() -> session::Error {
        session::Error::Store(Error::Full)
    }

    fn busy() -> session::Error {
        session::Error::Store(Error::Busy)
    }

    /// An error that will not be better next time.
    fn wrong() -> session::Error {
        session::Error::NoRun(RandomIds.run())
    }

    /// Tries the pending writes as a look does, and fails those named. Returns the writes tried, in order.
    fn work_off(
        queue: &mut WriteQueue,
        now: Instant,
        fails: &[(&str, fn() -> session::Error)],
    ) -> Vec<String> {
        let (mut tried, session) = (Vec::new(), RandomIds.session());
        while let Some(write) = queue.next() {
            let name = name(&write);
            tried.push(name.clone());
            if let Some((_, error)) = fails.iter().find(|(failing, _)| *failing == name)
                && !queue.write_failed(now, session, write, &error())
            {
                break;
            }
        }
        tried
    }

    #[test]
    fn a_refused_write_is_tried_again_before_any_later_one() {
        type Look = (&'static [(&'static str, fn() -> session::Error)], &'static [&'static str], bool);
        let cases: &[(&str, &[Look])] = &[
            ("all are taken", &[(&[], &["a", "b", "c"], false)]),
            ("the first is refused", &[(&[("a", full)], &["a"], true), (&[], &["a", "b", "c"], false)]),
            ("one in between is refused", &[(&[("b", busy)], &["a", "b"], true), (&[], &["b", "c"], false)]),
            (
                "one is refused again and again",
                &[
                    (&[("b", busy)], &["a", "b"], true),
                    (&[("b", full)], &["b"], true),
                    (&[], &["b", "c"], false),
                ],
            ),
            ("one that will not be better is given up", &[(&[("b", wrong)], &["a", "b", "c"], false)]),
        ];
        for (what, looks) in cases {
            let (mut queue, now) = (WriteQueue::default(), Instant::now());
            let _folder = open(&mut queue);
            queue.push(["a", "b", "c"].map(version));
            for (fails, tried, waiting) in *looks {
                queue.begin_look();
                assert_eq!(work_off(&mut queue, now, fails), *tried, "{what}");
                assert_eq!(queue.is_waiting(), *waiting, "{what}");
                assert_eq!(queue.retry_at(), waiting.then_some(now + RETRY), "{what}");
                queue.end_look();
                assert_eq!(queue.refusal().is_some(), *waiting, "{what}");
            }
        }
    }

    #[test]
    fn nothing_is_written_without_a_store() {
        let (mut queue, now) = (WriteQueue::default(), Instant::now());
        queue.push([version("a")]);
        assert!(queue.next().is_none() && queue.is_waiting());
        queue.not_opened(now, &busy());
        assert_eq!([now, now + RETRY].map(|now| queue.may_open(now)), [false, true]);
        queue.retry_now(now);
        assert!(queue.may_open(now), "at the end of the run");
        let _folder = open(&mut queue);
        assert!(!queue.may_open(now + RETRY));
        assert_eq!(work_off(&mut queue, now, &[]), ["a"]);
    }

    #[test]
    fn a_store_that_is_broken_is_not_tried_again() {
        let (mut queue, now) = (WriteQueue::default(), Instant::now());
        queue.not_opened(now, &session::Error::Store(Error::Newer { found: 9, known: 8 }));
        queue.retry_now(now);
        assert!(!queue.may_open(now + RETRY));
        assert!(queue.close().0.is_some_and(|problem| problem.starts_with("this session is not recorded")));
    }

    #[test]
    fn a_refusal_is_reported_unless_it_worked_out_and_a_problem_always() {
        let cases: &[(&str, &[Option<session::Error>], Option<&str>)] = &[
            ("nothing failed", &[None], None),
            ("refused, then taken", &[Some(full()), None], None),
            ("refused last", &[None, Some(full())], Some("the disk is full")),
            ("broken once", &[Some(wrong()), None], Some("no run")),
            ("broken, then refused", &[Some(wrong()), Some(busy())], Some("stayed locked")),
        ];
        for (what, looks, expected) in cases {
            let mut queue = WriteQueue::default();
            let _folder = open(&mut queue);
            for error in *looks {
                queue.begin_look();
                if let Some(error) = error {
                    queue.failed(Instant::now(), RandomIds.session(), error);
                }
                queue.end_look();
            }
            let problem = queue.close().0;
            assert_eq!(problem.is_some(), expected.is_some(), "{what}: {problem:?}");
            assert!(problem.unwrap_or_default().contains(expected.unwrap_or_default()), "{what}");
        }
    }
}
