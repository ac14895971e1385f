//! The loop that empties the outbox into one sink: take the lease, make durable, send, record the answers.
//!
//! [`Drain::step`] sends one batch at most and reports its [`Progress`]; its driver ([`super::sender`], [`super::detached`],
//! `codemie sync`) decides how long to go on. What to send is decided in [`super::plan`], what follows from the answers by
//! [`super::answer::consequence`]; here both meet store and network.
//!
//! Promise: the process may be killed anywhere in here. Everything that must survive is in the store before and after each
//! request.

use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

use super::answer::Verdict;
use super::answer::{Circumstances, Consequence, Packing, Verdicts, consequence};
use super::configured::Sinks;
use super::http::ask;
use super::http::{self, Http};
use super::lease;
use super::plan::{PlannedBatch, Span, Work, obstacle, plan, wait_left};
use super::sender::{DeliveryCount, Idle, Pace, Progress};
use super::sink::Sink;
use os::clock::{Clock, SystemClock};
use os::home::Home;
use store::session::publish::publish;
use store::{Error, Fate, Fingerprint, SinkCount, SinkRow, Store, Tx};
use types::Timestamp;

/// How often a lease held elsewhere is tried for again. Its holder sends our events as well, so only somebody who waits is
/// in a hurry.
const LEASE_RETRY: Duration = Duration::from_secs(1);
const LEASE_RETRY_INTERACTIVE: Duration = Duration::from_millis(100);

/// One sink, its connection, and how requests to it are packed.
#[expect(missing_debug_implementations, reason = "a sink has nothing to show")]
pub struct Drain {
    home: Home,
    store: Store,
    sink: Box<dyn Sink>,
    /// The address and credentials that this loop sends with.
    target: Fingerprint,
    ca_file: Option<PathBuf>,
    http: Option<Http>,
    /// Our name in the lease.
    holder: String,
    holding: bool,
    packing: Packing,
    pace: Pace,
}

/// How a batch is finished.
#[derive(Clone, Copy)]
enum Finish<'a> {
    Arrived { untaken: Option<&'a str> },
    Buried,
}

impl Drain {
    /// A loop for each configured receiver.
    pub fn open_all(sinks: &Sinks, pace: Pace) -> Result<Vec<Self>, Error> {
        let now = SystemClock.now();
        let mut store = Store::open(&sinks.home, now)?;
        let targets = sinks.targets();
        let open = |sink: Box<dyn Sink>| {
            let target = targets.iter().find(|target| target.name == sink.name());
            Ok(Self {
                home: sinks.home.clone(),
                store: Store::open(&sinks.home, now)?,
                packing: Packing::new(sink.max_batch()),
                sink,
                target: target.map(|target| target.fingerprint.clone()).unwrap_or_default(),
                ca_file: sinks.delivery.ca_file.clone(),
                http: None,
                holder: lease::holder(),
                holding: false,
                pace,
            })
        };
        sinks.open(&mut store)?.into_iter().map(open).collect()
    }

    pub fn name(&self) -> &'static str {
        self.sink.name()
    }

    /// Whether the receiver would accept events; `Err` says why not.
    pub async fn ask(&self, timeout: Duration) -> Result<(), String> {
        ask(&*self.sink, self.ca_file.as_ref(), timeout).await
    }

    /// Whether no step may be broken off, because the receiver may then count a request twice.
    pub fn must_finish(&self) -> bool {
        self.sink.counts_duplicates()
    }

    pub fn count(&mut self) -> Result<SinkCount, Error> {
        let name = self.sink.name();
        self.store.read(|view| match view.sink(name)? {
            Some(row) => view.sink_count(&row),
            None => Ok(SinkCount::default()),
        })
    }

    /// Whether events have come that can be sent now and that nobody is sending. Deferred events do not count.
    pub fn is_wanted(&mut self, now: Timestamp) -> Result<bool, Error> {
        let (name, target) = (self.sink.name(), &self.target);
        self.store.read(|view| match view.sink(name)? {
            Some(row) if row.leads_to(target) && is_unattended(&row, now) => view.is_behind(name),
            _ => Ok(false),
        })
    }

    /// Takes steps until there is nothing to do now.
    pub async fn run(&mut self, clock: &dyn Clock) -> Result<Idle, Error> {
        loop {
            if let Progress::Idle(idle) = self.step(clock).await? {
                return Ok(idle);
            }
        }
    }

    /// Sends one batch at most. The lease is kept only while there is progress.
    pub async fn step(&mut self, clock: &dyn Clock) -> Result<Progress, Error> {
        let progress = self.attempt(clock).await;
        if self.holding && !matches!(progress, Ok(Progress::Advanced(_))) {
            self.release()?;
            let name = self.sink.name();
            // A process that committed after our last look saw the lease held, and relies on us to send its events.
            if matches!(progress, Ok(Progress::Idle(Idle::Empty { .. })))
                && self.store.read(|view| view.is_behind(name))?
            {
                return Ok(Progress::Advanced(DeliveryCount::default()));
            }
        }
        progress
    }

    /// Gives the lease back. Drivers call it after breaking a step off.
    pub fn release(&mut self) -> Result<(), Error> {
        let (name, holder) = (self.sink.name(), &self.holder);
        self.holding = false;
        self.store.write(|tx| tx.release(name, holder))
    }

    async fn attempt(&mut self, clock: &dyn Clock) -> Result<Progress, Error> {
        let (name, now) = (self.sink.name(), clock.now());
        let found = self.store.read(|view| match view.sink(name)? {
            Some(row) => view.something_waits(&row).map(|waits| Some((row, waits))),
            None => Ok(None),
        })?;
        let Some((row, true)) = found else { return Ok(Progress::Idle(Idle::Empty { due: None })) };
        if let Some(idle) = obstacle(&row, &self.target, self.pace, now) {
            return Ok(Progress::Idle(idle));
        }
        if !self.take_lease(now)? {
            let wait = match self.pace {
                Pace::Interactive => LEASE_RETRY_INTERACTIVE,
                Pace::Background => LEASE_RETRY,
            };
            return Ok(Progress::Idle(Idle::LeaseHeld { until: now.after(wait) }));
        }
        let durable = self.store.make_durable()?;
        let (sink, size) = (&*self.sink, self.packing.size);
        match self.store.read(|view| plan(view, sink, size, durable, now))? {
            Work::Nothing { due } => Ok(Progress::Idle(Idle::Empty { due })),
            Work::Pass { past, deferred } => {
                self.store.write(|tx| {
                    for (event, why) in &deferred {
                        tx.put_letter(name, event, Fate::Deferred, why, now)?;
                    }
                    tx.pass(name, past.from, past.to)
                })?;
                Ok(Progress::Advanced(DeliveryCount::default()))
            }
            Work::Send(batch) => self.deliver(&batch, row.failures, clock).await,
        }
    }

    fn take_lease(&mut self, now: Timestamp) -> Result<bool, Error> {
        let (name, holder) = (self.sink.name(), &self.holder);
        self.holding = self.store.write(|tx| match tx.sink(name)? {
            Some(row) => lease::take(tx, &row, holder, now),
            None => Ok(false),
        })?;
        Ok(self.holding)
    }

    /// Sends a batch and records what follows from the answers.
    async fn deliver(
        &mut self,
        batch: &PlannedBatch,
        failures: i64,
        clock: &dyn Clock,
    ) -> Result<Progress, Error> {
        let (verdict, verdicts) = self.post(batch, clock).await;
        let accepted = verdicts.accepted;
        if accepted > batch.accepted_before
            && self.sink.counts_duplicates()
            && !matches!(verdict, Verdict::Accepted { .. })
        {
            let name = self.sink.name();
            self.store.write(|tx| {
                batch.events.iter().try_for_each(|event| tx.note_accepted(name, event, accepted))
            })?;
        }
        let at = Circumstances { pace: self.pace, failures, chance: fastrand::f64(), now: clock.now() };
        let what = consequence(verdict, batch.events.len(), &mut self.packing, at);
        self.record(batch, what, verdicts.untaken.as_deref(), at.now)
    }

    /// Posts the requests of a batch; the first verdict other than an acceptance is that of the batch.
    async fn post(&mut self, batch: &PlannedBatch, clock: &dyn Clock) -> (Verdict, Verdicts) {
        let not_sent =
            |error: http::Error| Verdict::Unconfirmed { why: error.to_string(), retry_after: None };
        let mut verdicts = Verdicts::after(batch.accepted_before);
        let http =
            match self.http.take().map_or_else(|| Http::new(self.sink.url(), self.ca_file.as_ref()), Ok) {
                Ok(http) => self.http.insert(http),
                Err(error) => return (not_sent(error), verdicts),
            };
        for request in batch.requests.iter().skip(batch.accepted_before) {
            let verdict = match http.post(request, self.packing.uncompressed, clock.now()).await {
                Ok(answer) => self.sink.judge(&batch.events, request, &answer),
                Err(error) => not_sent(error),
            };
            if let Some(verdict) = verdicts.add(request.url.path(), verdict) {
                return (verdict, verdicts);
            }
        }
        (verdicts.conclude(), verdicts)
    }

    fn record(
        &mut self,
        batch: &PlannedBatch,
        consequence: Consequence,
        untaken: Option<&str>,
        now: Timestamp,
    ) -> Result<Progress, Error> {
        let name = self.sink.name();
        match consequence {
            Consequence::Finish { rejected } => {
                if let Some(why) = untaken {
                    tracing::warn!(sink = name, "it {why}");
                }
                let progress = self.finish(batch, &rejected, Finish::Arrived { untaken }, now)?;
                self.publish(now);
                let events = batch.events.len();
                tracing::debug!(sink = name, events, rejected = rejected.len(), "delivered");
                Ok(progress)
            }
            Consequence::Resend => Ok(Progress::Advanced(DeliveryCount::default())),
            Consequence::Bury(why) => {
                tracing::warn!(sink = name, events = batch.events.len(), "dead letters: {why}");
                let all: Vec<_> = batch.events.iter().map(|event| (event.id, why.clone())).collect();
                self.finish(batch, &all, Finish::Buried, now)
            }
            Consequence::Pause(why) => self.pause(why),
            Consequence::Retry { why, until, asked_until, failures } => {
                // A connection that failed is not used again.
                self.http = None;
                let idle = Progress::Idle(Idle::Waiting { until, why: why.clone() });
                let Some(failures) = failures else {
                    return self.write_unless_moved(|tx| tx.note_trouble(name, asked_until, &why), idle);
                };
                let wait = until.since(now);
                tracing::info!(sink = name, failures, "not delivered, again in {wait:.0?}: {why}");
                self.write_unless_moved(|tx| tx.set_backoff(name, failures, until, asked_until, &why), idle)
            }
        }
    }

    /// Records that a batch is finished: its rejected events become dead letters, the cursor moves past all.
    fn finish(
        &mut self,
        batch: &PlannedBatch,
        rejected: &[(Uuid, String)],
        how: Finish<'_>,
        now: Timestamp,
    ) -> Result<Progress, Error> {
        let (name, never_again) = (self.sink.name(), self.sink.counts_duplicates());
        let note = |tx: &Tx<'_>| {
            for event in &batch.events {
                match rejected.iter().find(|(id, _)| *id == event.id) {
                    Some((_, why)) => tx.put_letter(name, event, Fate::Dead, why, now)?,
                    None if never_again => tx.put_letter(name, event, Fate::Done, "", now)?,
                    None => tx.drop_letter(name, event)?,
                }
            }
            if let Some(Span { from, to }) = batch.past {
                tx.pass(name, from, to)?;
            }
            if let Finish::Arrived { untaken } = how {
                tx.delivered(name, &batch.events, now)?;
                if let Some(why) = untaken {
                    tx.note_trouble(name, None, why)?;
                }
            }
            Ok(())
        };
        let incomplete = matches!(how, Finish::Arrived { untaken: Some(_) });
        let count = DeliveryCount { incomplete, ..DeliveryCount::of(&batch.events, rejected) };
        self.write_unless_moved(note, Progress::Advanced(count))
    }

    /// Pauses the receiver, if the refused credentials are still the configured ones: those of another process may be good.
    fn pause(&mut self, why: String) -> Result<Progress, Error> {
        let (name, target) = (self.sink.name(), &self.target);
        tracing::warn!(sink = name, "delivery pauses: {why}");
        self.store.write(|tx| match tx.sink(name)? {
            Some(row) if row.leads_to(target) => {
                tx.pause(name, Some(&why)).map(|()| Progress::Idle(Idle::Paused(why)))
            }
            _ => Ok(Progress::Idle(Idle::Reconfigured)),
        })
    }

    /// Writes, unless another address was configured meanwhile: the old receiver's answer means nothing to the new one.
    fn write_unless_moved(
        &mut self,
        work: impl FnOnce(&Tx<'_>) -> Result<(), Error>,
        then: Progress,
    ) -> Result<Progress, Error> {
        let (name, target) = (self.sink.name(), &self.target);
        self.store.write(|tx| match tx.sink(name)? {
            Some(row) if row.is_at(target) => work(tx).map(|()| then),
            _ => Ok(Progress::Idle(Idle::Reconfigured)),
        })
    }

    /// Updates the published records of ended sessions, which show what was delivered. Nothing depends on it. It happens
    /// after every batch because it needs the write lock, which nobody is to hold for long.
    fn publish(&mut self, now: Timestamp) {
        if let Err(error) = publish(&mut self.store, &self.home, now) {
            tracing::warn!("not published: {error}");
        }
    }
}

/// Whether events may be sent to this receiver now and no process is doing so.
pub(super) fn is_unattended(row: &SinkRow, now: Timestamp) -> bool {
    row.paused.is_none() && wait_left(row, Pace::Background, now).is_none() && !lease::is_held(row, now)
}
