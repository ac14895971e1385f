//! One batch on its way into a storage: the questions to the storage, in their order, and the changes to write.
//!
//! ```text
//! Intake::new(batch) · sessions(), far_revisions() ── the storage loads and locks these ── load(found)
//! events() ── the storage adds those it does not have ── settle(at, arrival) · changes, daily(…) ── it writes
//! ```

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::admit::{self, Refused};
use super::event::Rejected;
use super::fold::{Arrival, BatchPlan, Daily, SessionChange};
use super::storage::Ingested;
use reader::{Numbers, Quarter};
use reader::{Session, Touched};
use types::Attributes;
use types::Event;
use types::Timestamp;

#[derive(Debug)]
pub struct Intake {
    /// As it came, until it is decided which events are taken in.
    batch: Vec<Event>,
    plan: BatchPlan,
    now: Timestamp,
    /// By id, so that every node locks sessions in the same order.
    changes: BTreeMap<String, SessionChange>,
    result: Ingested,
    /// Events that must not be stored.
    refused: Vec<Event>,
    /// The number of new events by machine and user, senders of duplicates included.
    origins: BTreeMap<(String, String), i64>,
}

/// The state of the storage before it takes a batch in.
#[derive(Debug, Default)]
pub struct Found {
    /// The number of the owner that brings the batch.
    pub owner: i64,
    /// The stored ones of [`Intake::sessions`], of any owner.
    pub sessions: Vec<Session>,
    /// The stored revisions of [`Intake::far_revisions`], with the id of the session they belong to.
    pub revisions: HashMap<Uuid, (String, i64)>,
}

impl Intake {
    pub fn new(batch: Vec<Event>, now: Timestamp) -> Self {
        Self {
            batch,
            plan: BatchPlan::default(),
            now,
            changes: BTreeMap::new(),
            result: Ingested::default(),
            refused: Vec::new(),
            origins: BTreeMap::new(),
        }
    }

    /// The same batch from the start, after a failed try.
    #[must_use]
    pub fn again(self) -> Self {
        // The events that were kept for their ids come first, as they must.
        let batch =
            self.plan.events.into_iter().chain(self.plan.repeats).chain(self.refused).chain(self.batch);
        Self::new(batch.collect(), self.now)
    }

    /// The sessions that the storage must load, sorted by id.
    pub fn sessions(&self) -> Vec<String> {
        let mut ids: Vec<&str> = self.batch.iter().map(|event| &*event.session).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(str::to_owned).collect()
    }

    /// The events whose stored revision decides whether they are taken in. Nearly always none.
    pub fn far_revisions(&self) -> Vec<Uuid> {
        self.batch.iter().filter(|event| event.rev > admit::JUMP).map(|event| event.id).collect()
    }

    /// Takes over the stored sessions; the others begin now. Then notes what arrived, and plans what is to be stored.
    /// Events that may not be taken in change nothing.
    pub fn load(&mut self, found: Found) {
        let Found { owner, sessions, revisions } = found;
        self.changes
            .extend(sessions.into_iter().map(|session| (session.id.clone(), SessionChange::of(session))));
        let batch = std::mem::take(&mut self.batch);
        // In the order of `seq`, not of arrival: a batch makes no jumps that it fills itself.
        let mut order: Vec<usize> = (0..batch.len()).collect();
        order.sort_by(|one, other| {
            let (one, other) = (&batch[*one], &batch[*other]);
            (&*one.session, one.seq).cmp(&(&*other.session, other.seq))
        });
        let mut refused: Vec<Option<Refused>> = vec![None; batch.len()];
        for at in order {
            refused[at] = self.receive(owner, &batch[at], &revisions).err();
        }
        let mut taken = Vec::with_capacity(batch.len());
        for (event, refused) in batch.into_iter().zip(refused) {
            match refused {
                None => taken.push(event),
                Some(why) => {
                    let rejected = Rejected { id: Some(event.id.to_string()), error: why.to_string() };
                    self.result.rejected.push(rejected);
                    self.refused.push(event);
                }
            }
        }
        self.plan = BatchPlan::new(taken);
        self.result.duplicates += self.plan.repeats.len();
        for change in self.changes.values_mut() {
            change.session.received_at = self.now;
        }
    }

    /// Notes that an event arrived, if it may be taken in.
    fn receive(
        &mut self,
        owner: i64,
        event: &Event,
        revisions: &HashMap<Uuid, (String, i64)>,
    ) -> Result<(), Refused> {
        let stored = revisions.get(&event.id).filter(|(session, _)| **session == *event.session);
        let admit = |change: &SessionChange| {
            admit::owner(owner, &change.session)?;
            admit::revision(event.rev, stored.map(|(_, rev)| *rev))?;
            admit::sequence(event, &change.session)
        };
        if let Some(change) = self.changes.get_mut(&*event.session) {
            admit(change)?;
            return change.receive(event);
        }
        let mut change = SessionChange::begin(owner, event);
        admit(&change)?;
        change.receive(event)?;
        self.changes.insert(event.session.to_string(), change);
        Ok(())
    }

    /// The events to store, sorted by id, each id once.
    pub fn events(&self) -> &[Event] {
        &self.plan.events
    }

    /// Takes over how the event at this index of [`Intake::events`] relates to the stored one.
    pub fn settle(&mut self, at: usize, arrival: &Arrival) {
        let event = &self.plan.events[at];
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let origin = (text(event.machine.as_deref()), text(event.user.as_deref()));
        let origin = self.origins.entry(origin).or_default();
        *origin += i64::from(*arrival == Arrival::New);
        if *arrival == Arrival::Duplicate {
            self.result.duplicates += 1;
            return;
        }
        self.result.accepted += 1;
        if let Some(change) = self.changes.get_mut(&*event.session) {
            change.apply(event, arrival);
        }
    }

    /// Sessions to write, sorted by id.
    pub fn changes(&self) -> impl Iterator<Item = &SessionChange> {
        self.changes.values().filter(|change| change.changed)
    }

    /// The differences to the sums over all sessions; `before` has the days of the sessions that move.
    pub fn daily(&self, before: &HashMap<String, Vec<(Quarter, String, Numbers)>>) -> Daily {
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
        (self.result, touched.collect())
    }
}

/// The stored event of the same id.
#[derive(Clone, Debug)]
pub struct StoredEvent {
    pub same_session: bool,
    pub rev: i64,
    pub kind: String,
    pub time: Timestamp,
    pub attributes: String,
}

impl StoredEvent {
    /// How the event that came relates to it.
    pub fn against(self, event: &Event) -> Arrival {
        if !self.same_session || self.rev >= event.rev || self.kind != event.kind().as_str() {
            return Arrival::Duplicate;
        }
        match Attributes::kept(&self.kind, &self.attributes) {
            Ok(attributes) => Arrival::Revised { time: self.time, attributes },
            // What this program wrote can be read; what something else changed is better left alone.
            Err(_) => Arrival::Duplicate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn prompt(id: u128, rev: i64, session: &str, seq: i64) -> Event {
        let event = json!({"id": Uuid::from_u128(id), "rev": rev, "type": "prompt", "sessionId": session, "seq": seq,
            "time": "2026-11-16T00:00:00Z", "agent": "claude", "attributes": {}});
        Event::parse(&event.to_string()).unwrap()
    }

    /// The events and the result for an empty storage.
    fn settle_all(intake: &mut Intake) -> (Vec<Event>, Ingested) {
        intake.load(Found::default());
        for at in 0..intake.events().len() {
            intake.settle(at, &Arrival::New);
        }
        (intake.events().to_vec(), intake.result.clone())
    }

    #[test]
    fn a_second_try_is_like_the_first() {
        // One id twice, under two sessions, and one that tears its session into more pieces than are kept.
        let mut batch =
            vec![prompt(2, 0, "a", 1), prompt(2, 5, "b", 1), prompt(2, 1, "a", 1), prompt(1, 0, "b", 9)];
        batch.extend(
            (0..4100).map(|number| prompt(10 + number, 0, "c", 2 + 2 * i64::try_from(number).unwrap())),
        );
        let mut intake = Intake::new(batch, Timestamp(1));
        let first = settle_all(&mut intake);
        assert_eq!((first.1.accepted, first.1.duplicates, first.1.rejected.len()), (4098, 2, 4));
        let mut intake = intake.again();
        let mut second = settle_all(&mut intake);
        assert_eq!(second, first);
        second = settle_all(&mut intake.again());
        assert_eq!(second, first);
    }
}
