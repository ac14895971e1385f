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
    /// Those that must not be stored.
    refused: Vec<Event>,
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
            refused: Vec::new(),
            origins: BTreeMap::new(),
        }
    }

    /// The same batch from the start, after a try that came to nothing.
    #[must_use]
    pub fn again(self) -> Self {
        // Those that stand for their id come first, as they must.
        let batch = self.plan.events.into_iter().chain(self.refused).chain(self.plan.repeats);
        Self::new(batch.collect(), self.now)
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
        let mut refuse = |event: &mut Event| {
            if !changes.contains_key(&*event.session) {
                changes.insert(event.session.to_string(), Change::begin(event));
            }
            let change = changes.get_mut(&*event.session);
            match change.map_or(Ok(()), |change| change.receive(event)) {
                Ok(()) => false,
                Err(rejected) => {
                    outcome.rejected.push(rejected);
                    true
                }
            }
        };
        self.refused.extend(self.plan.events.extract_if(.., &mut refuse));
        self.refused.extend(self.plan.repeats.extract_if(.., refuse));
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use uuid::Uuid;

    fn prompt(id: u128, rev: i64, session: &str, seq: i64) -> Event {
        let event = json!({"id": Uuid::from_u128(id), "rev": rev, "type": "prompt", "sessionId": session, "seq": seq,
            "time": "2026-11-16T00:00:00Z", "agent": "claude", "attributes": {}});
        Event::parse(&event.to_string()).unwrap()
    }

    /// What a storage that has nothing is asked to do.
    fn told(intake: &mut Intake) -> (Vec<Event>, Ingested) {
        intake.load(Vec::new());
        for at in 0..intake.events().len() {
            intake.settle(at, &Known::Fresh);
        }
        (intake.events().to_vec(), intake.outcome.clone())
    }

    #[test]
    fn a_second_try_is_like_the_first() {
        // Told twice, under two sessions, and one that tears its session into more pieces than are kept.
        let mut batch =
            vec![prompt(2, 0, "a", 1), prompt(2, 5, "b", 1), prompt(2, 1, "a", 1), prompt(1, 0, "b", 9)];
        batch.extend(
            (0..4100).map(|number| prompt(10 + number, 0, "c", 2 + 2 * i64::try_from(number).unwrap())),
        );
        let mut intake = Intake::new(batch, Timestamp(1));
        let first = told(&mut intake);
        assert_eq!((first.1.accepted, first.1.duplicates, first.1.rejected.len()), (4098, 2, 4));
        let mut intake = intake.again();
        let mut second = told(&mut intake);
        assert_eq!(second, first);
        second = told(&mut intake.again());
        assert_eq!(second, first);
    }
}
