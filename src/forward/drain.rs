//! The loop that empties the outbox into one sink: lease, durable, send, note what was said.
//!
//! A step does one thing and says what came of it; whoever drives it ([`super::sender`], [`super::rest`], `codemie sync`)
//! decides how long to go on. Everything that must survive is in the store before and after each request, so a process
//! may be killed anywhere in here.

use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

use super::ask::ask;
use super::backoff;
use super::batch::Size;
use super::decide::Verdict;
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
pub enum Mode {
    Usual,
    /// Somebody waits: our own backoff is passed over, the receiver's own wish is not.
    Pressing,
}

/// What a step came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Some events are done with: go on.
    Moved(Moved),
    Rest(Rest),
}

/// Why there is nothing more to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing is left to be sent now. Something may be due later by itself.
    Empty {
        due: Option<Timestamp>,
    },
    Paused(String),
    /// Nothing until then.
    Waits {
        until: Timestamp,
        why: String,
    },
    /// Another process is at it.
    Held {
        until: Timestamp,
    },
    /// Another address was configured since, or other credentials than those that were refused: what waits is for them.
    Replaced,
}

/// What became of events that are done with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pub delivered: usize,
    /// For good: dead letters.
    pub refused: usize,
    /// Of what counts as delivered the receiver did not take all, without naming what.
    pub partly: bool,
}

impl Moved {
    /// Of a batch that was answered.
    pub(super) fn of(events: &[Outgoing], rejected: &[(Uuid, String)]) -> Self {
        let refused = events.iter().filter(|event| rejected.iter().any(|(id, _)| *id == event.id)).count();
        Self { delivered: events.len() - refused, refused, partly: false }
    }

    pub fn add(&mut self, more: Self) {
        self.delivered += more.delivered;
        self.refused += more.refused;
        self.partly |= more.partly;
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
    mode: Mode,
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
        mode: Mode,
    ) -> Self {
        Self {
            home: home.clone(),
            store,
            size: Size::new(sink.most()),
            sink,
            target,
            ca_file: ca_file.cloned(),
            http: None,
            holder: lease::holder(),
            holding: false,
            plain: false,
            mode,
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
    pub async fn run(&mut self, clock: &dyn Clock) -> Result<Rest, Error> {
        loop {
            if let Step::Rest(rest) = self.step(clock).await? {
                return Ok(rest);
            }
        }
    }

    /// Whether a request that is cut off may count twice there.
    pub fn must_finish(&self) -> bool {
        self.sink.once()
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
    pub async fn step(&mut self, clock: &dyn Clock) -> Result<Step, Error> {
        let step = self.attempt(clock).await;
        if self.holding && !matches!(step, Ok(Step::Moved(_))) {
            self.release()?;
            let name = self.sink.name();
            // Whoever committed between our look and this was told that the lease is held, and relies on its holder.
            if matches!(step, Ok(Step::Rest(Rest::Empty { .. })))
                && self.store.read(|view| view.is_behind(name))?
            {
                return Ok(Step::Moved(Moved::default()));
            }
        }
        step
    }

    /// Writes, unless another address was configured meanwhile: what the old one answered means nothing to it.
    fn write_as_ours(
        &mut self,
        work: impl FnOnce(&Tx<'_>) -> Result<(), Error>,
        then: Step,
    ) -> Result<Step, Error> {
        let (name, target) = (self.sink.name(), &self.target);
        self.store.write(|tx| match tx.sink(name)? {
            Some(row) if row.is_at(target) => work(tx).map(|()| then),
            _ => Ok(Step::Rest(Rest::Replaced)),
        })
    }

    async fn attempt(&mut self, clock: &dyn Clock) -> Result<Step, Error> {
        let (name, now) = (self.sink.name(), clock.now());
        let found = self.store.read(|view| match view.sink(name)? {
            Some(row) => view.something_waits(&row).map(|waits| Some((row, waits))),
            None => Ok(None),
        })?;
        let Some((row, true)) = found else { return Ok(Step::Rest(Rest::Empty { due: None })) };
        if row.is_retired() {
            return Ok(Step::Rest(Rest::Paused("is not set up any more".to_owned())));
        }
        if !row.is_at(&self.target) {
            return Ok(Step::Rest(Rest::Replaced));
        }
        if let Some(why) = &row.paused {
            return Ok(Step::Rest(Rest::Paused(why.clone())));
        }
        if let Some(wait) = keep_still(&row, now, self.mode) {
            let why = row.trouble.clone().unwrap_or_default();
            return Ok(Step::Rest(Rest::Waits { until: now.after(wait), why }));
        }
        let holder = self.holder.clone();
        self.holding = self.store.write(|tx| match tx.sink(name)? {
            Some(row) => lease::take(tx, &row, &holder, now),
            None => Ok(false),
        })?;
        if !self.holding {
            let again = if self.mode == Mode::Pressing { ASK_AGAIN_PRESSING } else { ASK_AGAIN };
            return Ok(Step::Rest(Rest::Held { until: now.after(again) }));
        }
        let durable = self.store.make_durable()?;
        let (sink, size) = (&*self.sink, self.size);
        match self.store.read(|view| plan(view, sink, size, durable, now))? {
            Work::Nothing { due } => Ok(Step::Rest(Rest::Empty { due })),
            Work::Pass { past, deferred } => {
                self.store.write(|tx| {
                    for (event, why) in &deferred {
                        tx.put_letter(name, event, Fate::Deferred, why, now)?;
                    }
                    tx.pass(name, past.from, past.to)
                })?;
                Ok(Step::Moved(Moved::default()))
            }
            Work::Send(sending) => {
                let sent = self.send(&sending, clock).await;
                let Sent { told, .. } = sent;
                if told > sending.told
                    && self.sink.once()
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
        let not_sent = |error: super::http::Error| Verdict::Later { why: error.to_string(), asked: None };
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
                Verdict::Partly(why) => {
                    untaken = Some(why);
                    told += 1;
                }
                Verdict::Unserved(why) => {
                    untaken = Some(format!("takes nothing at {}: {why}", request.url.path()));
                }
                verdict => return Sent { verdict, told, untaken },
            }
        }
        let verdict = match &untaken {
            Some(why) if told == 0 => Verdict::Refuse(why.clone()),
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
    ) -> Result<Step, Error> {
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
            Verdict::Halve(_) | Verdict::Isolate(_) if self.size.halve(count) => {
                Ok(Step::Moved(Moved::default()))
            }
            Verdict::Identity(why) if self.plain => self.bury(sending, &why, now),
            Verdict::Identity(_) => {
                self.plain = true;
                Ok(Step::Moved(Moved::default()))
            }
            Verdict::Halve(why)
            | Verdict::Isolate(why)
            | Verdict::Refuse(why)
            | Verdict::Partly(why)
            | Verdict::Unserved(why) => self.bury(sending, &why, now),
            Verdict::Pause(why) => {
                tracing::warn!(sink = name, "delivery pauses: {why}");
                let (target, paused) = (self.target.clone(), Step::Rest(Rest::Paused(why.clone())));
                self.store.write(|tx| match tx.sink(name)? {
                    // Credentials that somebody else has may be good.
                    Some(row) if row.leads_to(&target) => tx.pause(name, Some(&why)).map(|()| paused),
                    _ => Ok(Step::Rest(Rest::Replaced)),
                })
            }
            Verdict::Later { why, asked } => {
                // A connection that failed is not tried again.
                self.http = None;
                let asked_until = asked.map(|asked| now.after(asked));
                if self.mode == Mode::Pressing {
                    let until = now.after(asked.unwrap_or_default().max(PRESSING));
                    let then = Step::Rest(Rest::Waits { until, why: why.clone() });
                    return self.write_as_ours(|tx| tx.note_trouble(name, asked_until, &why), then);
                }
                let failures = failures.saturating_add(1);
                let wait = backoff::jittered(failures).max(asked.unwrap_or_default());
                let until = now.after(wait);
                tracing::info!(sink = name, failures, "not delivered, again in {wait:.0?}: {why}");
                let then = Step::Rest(Rest::Waits { until, why: why.clone() });
                self.write_as_ours(|tx| tx.set_backoff(name, failures, until, asked_until, &why), then)
            }
        }
    }

    /// Refused for good: kept where it can be seen and sent again, and the rest goes on.
    fn bury(&mut self, sending: &Sending, why: &str, now: Timestamp) -> Result<Step, Error> {
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
    ) -> Result<Step, Error> {
        let (name, once) = (self.sink.name(), self.sink.once());
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
        let partly = matches!(done, Done::Arrived { untaken: Some(_) });
        self.write_as_ours(note, Step::Moved(Moved { partly, ..Moved::of(&sending.events, rejected) }))
    }
}

/// How long nothing may be sent yet.
pub(super) fn keep_still(row: &SinkRow, now: Timestamp, mode: Mode) -> Option<Duration> {
    let asked = backoff::left(row.asked_until, now, backoff::LONGEST_ASKED);
    let wait = match mode {
        Mode::Pressing => asked,
        Mode::Usual => backoff::left(row.retry_at, now, backoff::LONGEST).max(asked),
    };
    (!wait.is_zero()).then_some(wait)
}
