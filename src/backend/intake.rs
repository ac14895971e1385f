//! One batch on its way into a storage: what to ask the storage, in which order, and what to write in the end.
//!
//! ```text
//! Intake::new(batch) · sessions() ── the storage loads and locks these ── load(…) · receive()
//! events() ── the storage adds those it does not have ── settle(at, known) · changes, daily(…) ── it writes
//! ```

use std::collections::{BTreeMap, HashMap};

use super::attributes::{Attributes, Text};
use super::event::Event;
use super::fold::{Change, Daily, Known, Plan};
use super::model::{Day, Session, Touched};
use super::numbers::Numbers;
use super::storage::Ingested;
use crate::clock::Timestamp;

#[derive(Debug)]
pub struct Intake {
    plan: Plan,
    now: Timestamp,
    /// By id, so that every node locks sessions in the same order.
    changes: BTreeMap<String, Change>,
    outcome: Ingested,
    /// New events by who sent them; those heard of without anything new, too.
    origins: BTreeMap<(String, String), i64>,
}

impl Intake {
    pub fn new(batch: Vec<Event>, now: Timestamp) -> Self {
        Self {
            plan: Plan::new(batch),
            now,
            changes: BTreeMap::new(),
            outcome: Ingested::default(),
            origins: BTreeMap::new(),
        }
    }

    /// The sessions that the storage must load, sorted by id.
    pub fn sessions(&self) -> Vec<String> {
        self.plan.sessions().into_iter().map(str::to_owned).collect()
    }

    /// Takes the sessions that are there; the others begin now. Then notes what arrived; events that must not be stored
    /// leave the plan.
    pub fn load(&mut self, stored: Vec<Session>) {
        let changes = &mut self.changes;
        changes.extend(stored.into_iter().map(|session| (session.id.clone(), Change::of(session))));
        let outcome = &mut self.outcome;
        let mut receive = |event: &Event| {
            if !changes.contains_key(&*event.session) {
                changes.insert(event.session.to_string(), Change::begin(event));
            }
            let change = changes.get_mut(&*event.session);
            match change.map_or(Ok(()), |change| change.receive(event)) {
                Ok(()) => true,
                Err(rejected) => {
                    outcome.rejected.push(rejected);
                    false
                }
            }
        };
        self.plan.events.retain(&mut receive);
        self.plan.repeats.retain(receive);
        outcome.duplicates += self.plan.repeats.len();
        for change in self.changes.values_mut() {
            change.session.received_at = self.now;
        }
    }

    /// The events to store, sorted by id, each id once.
    pub fn events(&self) -> &[Event] {
        &self.plan.events
    }

    /// Says what the storage knew of the event at this place of [`Intake::events`].
    pub fn settle(&mut self, at: usize, known: &Known) {
        let event = &self.plan.events[at];
        let text = |text: &Option<Text>| text.as_deref().unwrap_or_default().to_owned();
        let origin = self.origins.entry((text(&event.machine), text(&event.user))).or_default();
        *origin += i64::from(*known == Known::Fresh);
        if *known == Known::Already {
            self.outcome.duplicates += 1;
            return;
        }
        self.outcome.accepted += 1;
        if let Some(change) = self.changes.get_mut(&*event.session) {
            change.apply(event, known);
        }
    }

    /// Sessions to write, sorted by id.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.values().filter(|change| change.changed)
    }

    /// The differences to the sums over all sessions; `before` gives the days of those that move.
    pub fn daily(&self, before: &HashMap<String, Vec<(Day, String, Numbers)>>) -> Daily {
        let mut daily = Daily::default();
        for (id, change) in self.changes.iter().filter(|(_, change)| change.changed) {
            daily.add(change, before.get(id).map_or(&[], Vec::as_slice));
        }
        daily.0.retain(|_, numbers| !numbers.is_zero());
        daily
    }

    /// Machine and user (empty for unknown) with the number of events that were new.
    pub fn origins(&self) -> impl Iterator<Item = (&str, &str, i64)> {
        self.origins.iter().map(|((machine, user), count)| (&**machine, &**user, *count))
    }

    pub fn finish(self) -> (Ingested, Vec<Touched>) {
        let touched = self
            .changes
            .into_iter()
            .filter_map(|(session, change)| change.latest.map(|latest| Touched { session, latest }));
        (self.outcome, touched.collect())
    }
}

/// What a storage has under an event's id.
#[derive(Clone, Debug)]
pub struct Stored {
    pub same_session: bool,
    pub rev: i64,
    pub kind: String,
    pub time: Timestamp,
    pub attributes: String,
}

impl Stored {
    /// What that makes of the event that came.
    pub fn against(self, event: &Event) -> Known {
        let kind = event.kind();
        if !self.same_session || self.rev >= event.rev || self.kind != kind.as_str() {
            return Known::Already;
        }
        match Attributes::parse(kind, &self.attributes) {
            Ok(attributes) => Known::Revised { time: self.time, attributes },
            // What we wrote ourselves can be read; if somebody changed it, it is better left alone.
            Err(_) => Known::Already,
        }
    }
}
