//! One batch on its way into a storage: what to ask the storage, in which order, and what to write in the end.
//!
//! ```text
//! Intake::new(batch) · sessions(), far_revisions() ── the storage loads and locks these ── load(found)
//! events() ── the storage adds those it does not have ── settle(at, known) · changes, daily(…) ── it writes
//! ```

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::admit::{self, Refused};
use super::event::Rejected;
use super::fold::{Change, Daily, Known, Plan};
use super::model::{Day, Session, Touched};
use super::numbers::Numbers;
use super::storage::Ingested;
use wire::Attributes;
use wire::Event;
use wire::Timestamp;

#[derive(Debug)]
pub struct Intake {
    /// As it came, until it is known what may be taken in.
    batch: Vec<Event>,
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

/// What a storage knows before it takes a batch in.
#[derive(Debug, Default)]
pub struct Found {
    /// The number of the owner that brings the batch.
    pub owner: i64,
    /// Those of [`Intake::sessions`] that are there, whoever owns them.
    pub sessions: Vec<Session>,
    /// The stored revisions of [`Intake::far_revisions`], with the id of the session they belong to.
    pub revisions: HashMap<Uuid, (String, i64)>,
}

impl Intake {
    pub fn new(batch: Vec<Event>, now: Timestamp) -> Self {
        Self {
            batch,
            plan: Plan::default(),
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

    /// Takes the sessions that are there; the others begin now. Then notes what arrived, and plans what is to be stored.
    /// Events that may not be taken in change nothing.
    pub fn load(&mut self, found: Found) {
        let Found { owner, sessions, revisions } = found;
        self.changes.extend(sessions.into_iter().map(|session| (session.id.clone(), Change::of(session))));
        let batch = std::mem::take(&mut self.batch);
        // In the order of `seq`, whatever order they came in: a batch makes no jumps that it fills itself.
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
                    self.outcome.rejected.push(rejected);
                    self.refused.push(event);
                }
            }
        }
        self.plan = Plan::new(taken);
        self.outcome.duplicates += self.plan.repeats.len();
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
        let admit = |change: &Change| {
            admit::owner(owner, &change.session)?;
            admit::revision(event.rev, stored.map(|(_, rev)| *rev))?;
            admit::place(event, &change.session)
        };
        if let Some(change) = self.changes.get_mut(&*event.session) {
            admit(change)?;
            return change.receive(event);
        }
        let mut change = Change::begin(owner, event);
        admit(&change)?;
        change.receive(event)?;
        self.changes.insert(event.session.to_string(), change);
        Ok(())
    }

    /// The events to store, sorted by id, each id once.
    pub fn events(&self) -> &[Event] {
        &self.plan.events
    }

    /// Says what the storage knew of the event at this place of [`Intake::events`].
    pub fn settle(&mut self, at: usize, known: &Known) {
        let event = &self.plan.events[at];
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let origin = (text(event.machine.as_deref()), text(event.user.as_deref()));
        let origin = self.origins.entry(origin).or_default();
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
        if !self.same_session || self.rev >= event.rev || self.kind != event.kind().as_str() {
            return Known::Already;
        }
        match Attributes::kept(&self.kind, &self.attributes) {
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

    fn prompt(id: u128, rev: i64, session: &str, seq: i64) -> Event {
        let event = json!({"id": Uuid::from_u128(id), "rev": rev, "type": "prompt", "sessionId": session, "seq": seq,
            "time": "2026-11-16T00:00:00Z", "agent": "claude", "attributes": {}});
        Event::parse(&event.to_string()).unwrap()
    }

    /// What a storage that has nothing is asked to do.
    fn told(intake: &mut Intake) -> (Vec<Event>, Ingested) {
        intake.load(Found::default());
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
