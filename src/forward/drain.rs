//! The loop that empties the outbox into one sink: lease, durable, send, note what was said.
//!
//! A step does one thing and says what came of it; whoever drives it ([`super::sender`], [`super::rest`], `codemie sync`)
//! decides how long to go on. Everything that must survive is in the store before and after each request, so a process
//! may be killed anywhere in here.

use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

use super::answer::Verdict;
use super::ask::ask;
use super::backoff;
use super::batch::Size;
use super::http::Http;
use super::lease;
use super::plan::{Sending, Span, Work, plan};
use super::rest::is_idle;
use super::sink::Sink;
use crate::home::Home;
use crate::session::publish::publish;
use crate::store::{Error, Fate, Fingerprint, Outgoing, SinkCount, SinkRow, Store, Tx};
use system::clock::Clock;
use wire::Timestamp;

/// How often a held lease is asked for again; its holder sends what is ours as well, so only one who waits is in a hurry.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const ASK_AGAIN_PRESSING: Duration = Duration::from_millis(100);
/// How often something that somebody is waiting for is tried again.
const PRESSING: Duration = Duration::from_millis(500);

/// How much of what was agreed with a receiver counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    Background,
    /// Somebody waits: our own backoff is passed over, the receiver's own wish is not.
    Interactive,
}

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Some events are done with: go on.
    Advanced(DeliveryCount),
    Idle(Idle),
}

/// Why there is nothing more to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Nothing is left to be sent now. Something may be due later by itself.
    Empty {
        due: Option<Timestamp>,
    },
    Paused(String),
    /// Nothing until then.
    Waiting {
        until: Timestamp,
        why: String,
    },
    /// Another process is at it.
    LeaseHeld {
        until: Timestamp,
    },
    /// Another address was configured since, or other credentials than those that were refused: what waits is for them.
    Reconfigured,
}

/// What became of events that are done with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCount {
    pub delivered: usize,
    /// For good: dead letters.
    pub refused: usize,
    /// Of what counts as delivered the receiver did not take all, without naming what.
    pub incomplete: bool,
}

impl DeliveryCount {
    /// Of a batch that was answered.
    pub(super) fn of(events: &[Outgoing], rejected: &[(Uuid, String)]) -> Self {
        let refused = events.iter().filter(|event| rejected.iter().any(|(id, _)| *id == event.id)).count();
        Self { delivered: events.len() - refused, refused, incomplete: false }
    }

    pub fn add(&mut self, more: Self) {
        self.delivered += more.delivered;
        self.refused += more.refused;
        self.incomplete |= more.incomplete;
    }
}

/// One sink, its connection, and what is known of what it takes.
#[expect(missing_debug_implementations, reason = "a sink has nothing to show")]
pub struct Drain {
    home: Home,
    store: Store,
    sink: Box<dyn Sink>,
    /// Where it sends, and as whom.
    target: Fingerprint,
    ca_file: Option<PathBuf>,
    http: Option<Http>,
    holder: String,
    holding: bool,
    size: Size,
    /// The receiver takes nothing compressed.
    plain: bool,
    pace: Pace,
}

/// What came of the requests.
struct Sent {
    verdict: Verdict,
    /// How many are accepted now.
    told: usize,
    /// What the receiver did not take of those, without naming it.
    untaken: Option<String>,
}

/// How a batch is done with.
#[derive(Clone, Copy)]
enum Done<'a> {
    Arrived { untaken: Option<&'a str> },
    Buried,
}

impl Drain {
    pub fn new(
        home: &Home,
        store: Store,
        sink: Box<dyn Sink>,
        target: Fingerprint,
        ca_file: Option<&PathBuf>,
        pace: Pace,
    ) -> Self {
        Self {
            home: home.clone(),
            store,
            size: Size::new(sink.max_batch()),
            sink,
            target,
            ca_file: ca_file.cloned(),
            http: None,
            holder: lease::holder(),
            holding: false,
            plain: false,
            pace,
        }
    }

    pub fn name(&self) -> &'static str {
        self.sink.name()
    }

    /// Whether the receiver would take events; `Err` says what keeps it from that.
    pub async fn ask(&self, patience: Duration) -> Result<(), String> {
        ask(&*self.sink, self.ca_file.as_ref(), patience).await
    }

    /// Steps until there is nothing more to do now; why that is.
    pub async fn run(&mut self, clock: &dyn Clock) -> Result<Idle, Error> {
        loop {
            if let Progress::Idle(rest) = self.step(clock).await? {
                return Ok(rest);
            }
        }
    }

    /// Whether a request that is cut off may count twice there.
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

    /// Whether something has come that can be sent now, and nobody sends. What is deferred is no reason to go on.
    pub fn is_wanted(&mut self, now: Timestamp) -> Result<bool, Error> {
        let (name, target) = (self.sink.name(), &self.target);
        self.store.read(|view| match view.sink(name)? {
            Some(row) if row.leads_to(target) && is_idle(&row, now) => view.is_behind(name),
            _ => Ok(false),
        })
    }

    /// Gives up the right to send: a step was broken off.
    pub fn release(&mut self) -> Result<(), Error> {
        let (name, holder) = (self.sink.name(), &self.holder);
        self.holding = false;
        self.store.write(|tx| tx.release(name, holder))
    }

    /// The published records of ended sessions say that they were delivered. Nothing depends on it. After every batch,
    /// because it happens under the write lock, which nobody is to have for long.
    fn publish(&mut self, now: Timestamp) {
        if let Err(error) = publish(&mut self.store, &self.home, now) {
            tracing::warn!("not published: {error}");
        }
    }

    /// One batch at most.
    pub async fn step(&mut self, clock: &dyn Clock) -> Result<Progress, Error> {
        let step = self.attempt(clock).await;
        if self.holding && !matches!(step, Ok(Progress::Advanced(_))) {
            self.release()?;
            let name = self.sink.name();
            // Whoever committed between our look and this was told that the lease is held, and relies on its holder.
            if matches!(step, Ok(Progress::Idle(Idle::Empty { .. })))
                && self.store.read(|view| view.is_behind(name))?
            {
                return Ok(Progress::Advanced(DeliveryCount::default()));
            }
        }
        step
    }

    /// Writes, unless another address was configured meanwhile: what the old one answered means nothing to it.
    fn write_as_ours(
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

    async fn attempt(&mut self, clock: &dyn Clock) -> Result<Progress, Error> {
        let (name, now) = (self.sink.name(), clock.now());
        let found = self.store.read(|view| match view.sink(name)? {
            Some(row) => view.something_waits(&row).map(|waits| Some((row, waits))),
            None => Ok(None),
        })?;
        let Some((row, true)) = found else { return Ok(Progress::Idle(Idle::Empty { due: None })) };
        if row.is_retired() {
            return Ok(Progress::Idle(Idle::Paused("is not set up any more".to_owned())));
        }
        if !row.is_at(&self.target) {
            return Ok(Progress::Idle(Idle::Reconfigured));
        }
        if let Some(why) = &row.paused {
            return Ok(Progress::Idle(Idle::Paused(why.clone())));
        }
        if let Some(wait) = keep_still(&row, now, self.pace) {
            let why = row.trouble.clone().unwrap_or_default();
            return Ok(Progress::Idle(Idle::Waiting { until: now.after(wait), why }));
        }
        let holder = self.holder.clone();
        self.holding = self.store.write(|tx| match tx.sink(name)? {
            Some(row) => lease::take(tx, &row, &holder, now),
            None => Ok(false),
        })?;
        if !self.holding {
            let again = if self.pace == Pace::Interactive { ASK_AGAIN_PRESSING } else { ASK_AGAIN };
            return Ok(Progress::Idle(Idle::LeaseHeld { until: now.after(again) }));
        }
        let durable = self.store.make_durable()?;
        let (sink, size) = (&*self.sink, self.size);
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
            Work::Send(sending) => {
                let sent = self.send(&sending, clock).await;
                let Sent { told, .. } = sent;
                if told > sending.told
                    && self.sink.counts_duplicates()
                    && !matches!(sent.verdict, Verdict::Accepted { .. })
                {
                    self.store.write(|tx| {
                        sending.events.iter().try_for_each(|event| tx.note_told(name, event, told))
                    })?;
                }
                self.note(&sending, sent, row.failures, clock.now())
            }
        }
    }

    /// Posts what tells the events; the first that is not accepted decides.
    async fn send(&mut self, sending: &Sending, clock: &dyn Clock) -> Sent {
        let not_sent =
            |error: super::http::Error| Verdict::Unconfirmed { why: error.to_string(), retry_after: None };
        let mut told = sending.told;
        let http =
            match self.http.take().map_or_else(|| Http::new(self.sink.url(), self.ca_file.as_ref()), Ok) {
                Ok(http) => self.http.insert(http),
                Err(error) => return Sent { verdict: not_sent(error), told, untaken: None },
            };
        let (mut rejected, mut untaken) = (Vec::new(), None);
        for request in &sending.requests[sending.told.min(sending.requests.len())..] {
            let verdict = match http.post(request, self.plain, clock.now()).await {
                Ok(answer) => self.sink.judge(&sending.events, request, &answer),
                Err(error) => not_sent(error),
            };
            match verdict {
                Verdict::Accepted { rejected: more } => {
                    rejected.extend(more);
                    told += 1;
                }
                Verdict::PartlyAccepted(why) => {
                    untaken = Some(why);
                    told += 1;
                }
                Verdict::NotServed(why) => {
                    untaken = Some(format!("takes nothing at {}: {why}", request.url.path()));
                }
                verdict => return Sent { verdict, told, untaken },
            }
        }
        let verdict = match &untaken {
            Some(why) if told == 0 => Verdict::AllRefused(why.clone()),
            _ => Verdict::Accepted { rejected },
        };
        Sent { verdict, told, untaken }
    }

    /// Puts down what became of it.
    fn note(
        &mut self,
        sending: &Sending,
        Sent { verdict, untaken, .. }: Sent,
        failures: i64,
        now: Timestamp,
    ) -> Result<Progress, Error> {
        let name = self.sink.name();
        let count = sending.events.len();
        match verdict {
            Verdict::Accepted { rejected } => {
                self.size.grow();
                if let Some(why) = &untaken {
                    tracing::warn!(sink = name, "it {why}");
                }
                let done = Done::Arrived { untaken: untaken.as_deref() };
                let step = self.settle(sending, &rejected, done, now)?;
                self.publish(now);
                tracing::debug!(sink = name, events = count, rejected = rejected.len(), "delivered");
                Ok(step)
            }
            Verdict::TooLarge(_) | Verdict::SomeRefused(_) if self.size.halve(count) => {
                Ok(Progress::Advanced(DeliveryCount::default()))
            }
            Verdict::EncodingRefused(why) if self.plain => self.bury(sending, &why, now),
            Verdict::EncodingRefused(_) => {
                self.plain = true;
                Ok(Progress::Advanced(DeliveryCount::default()))
            }
            Verdict::TooLarge(why)
            | Verdict::SomeRefused(why)
            | Verdict::AllRefused(why)
            | Verdict::PartlyAccepted(why)
            | Verdict::NotServed(why) => self.bury(sending, &why, now),
            Verdict::CredentialsRefused(why) => {
                tracing::warn!(sink = name, "delivery pauses: {why}");
                let (target, paused) = (self.target.clone(), Progress::Idle(Idle::Paused(why.clone())));
                self.store.write(|tx| match tx.sink(name)? {
                    // Credentials that somebody else has may be good.
                    Some(row) if row.leads_to(&target) => tx.pause(name, Some(&why)).map(|()| paused),
                    _ => Ok(Progress::Idle(Idle::Reconfigured)),
                })
            }
            Verdict::Unconfirmed { why, retry_after } => {
                // A connection that failed is not tried again.
                self.http = None;
                let asked_until = retry_after.map(|wait| now.after(wait));
                if self.pace == Pace::Interactive {
                    let until = now.after(retry_after.unwrap_or_default().max(PRESSING));
                    let then = Progress::Idle(Idle::Waiting { until, why: why.clone() });
                    return self.write_as_ours(|tx| tx.note_trouble(name, asked_until, &why), then);
                }
                let failures = failures.saturating_add(1);
                let wait = backoff::delay(failures, chance()).max(retry_after.unwrap_or_default());
                let until = now.after(wait);
                tracing::info!(sink = name, failures, "not delivered, again in {wait:.0?}: {why}");
                let then = Progress::Idle(Idle::Waiting { until, why: why.clone() });
                self.write_as_ours(|tx| tx.set_backoff(name, failures, until, asked_until, &why), then)
            }
        }
    }

    /// Refused for good: kept where it can be seen and sent again, and the rest goes on.
    fn bury(&mut self, sending: &Sending, why: &str, now: Timestamp) -> Result<Progress, Error> {
        tracing::warn!(sink = self.sink.name(), events = sending.events.len(), "dead letters: {why}");
        let all: Vec<_> = sending.events.iter().map(|event| (event.id, why.to_owned())).collect();
        self.settle(sending, &all, Done::Buried, now)
    }

    fn settle(
        &mut self,
        sending: &Sending,
        rejected: &[(Uuid, String)],
        done: Done<'_>,
        now: Timestamp,
    ) -> Result<Progress, Error> {
        let (name, once) = (self.sink.name(), self.sink.counts_duplicates());
        let note = |tx: &Tx<'_>| {
            for event in &sending.events {
                match rejected.iter().find(|(id, _)| *id == event.id) {
                    Some((_, why)) => tx.put_letter(name, event, Fate::Dead, why, now)?,
                    None if once => tx.put_letter(name, event, Fate::Done, "", now)?,
                    None => tx.drop_letter(name, event)?,
                }
            }
            if let Some(Span { from, to }) = sending.past {
                tx.pass(name, from, to)?;
            }
            if let Done::Arrived { untaken } = done {
                tx.delivered(name, &sending.events, now)?;
                if let Some(why) = untaken {
                    tx.note_trouble(name, None, why)?;
                }
            }
            Ok(())
        };
        let incomplete = matches!(done, Done::Arrived { untaken: Some(_) });
        self.write_as_ours(
            note,
            Progress::Advanced(DeliveryCount { incomplete, ..DeliveryCount::of(&sending.events, rejected) }),
        )
    }
}

/// How long nothing may be sent yet.
pub(super) fn keep_still(row: &SinkRow, now: Timestamp, pace: Pace) -> Option<Duration> {
    let asked = backoff::left(row.asked_until, now, backoff::LONGEST_ASKED);
    let wait = match pace {
        Pace::Interactive => asked,
        Pace::Background => backoff::left(row.retry_at, now, backoff::LONGEST).max(asked),
    };
    (!wait.is_zero()).then_some(wait)
}

/// A number in 0..1 for jitter.
fn chance() -> f64 {
    let bits = Uuid::new_v4().as_u128() & u128::from(u32::MAX);
    f64::from(u32::try_from(bits).unwrap_or(0)) / f64::from(u32::MAX)
}
