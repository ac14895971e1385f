//! The changes that a batch of events makes to a session and to the sums. Pure, and the same for every storage.
//!
//! The order in which events arrive does not matter. Of several STARTs the one with the highest `seq` describes the
//! session, of several revisions the highest `rev`; numbers are added when an event is new and corrected by the
//! difference when it is revised. The `seq` and the time of an event count for the session that reports it, even if the
//! event is a duplicate, or belongs to another session.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::admit::Refused;
use crate::slot::{SumRow, rows_of};
use reader::{Dimensions, Numbers, Quarter, Session, ToolNumbers};
use types::Attributes;
use types::Event;
use types::EventType;
use types::Timestamp;
use types::ToolKind;

/// How an event relates to the stored one of the same id.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one per event of a batch, and a box for each would cost more than the room"
)]
pub enum Arrival {
    /// There was none: it is stored now.
    New,
    /// It replaces this lower revision, which the same session reported before.
    Revised { time: Timestamp, attributes: Attributes },
    /// The same or a higher revision is stored, or it belongs to another session.
    Duplicate,
}

/// One batch, put in order: of an id that comes twice the highest revision, sorted by id, so that two nodes that store the same
/// events at once wait for each other instead of each for the other.
#[derive(Debug, Default)]
pub struct BatchPlan {
    pub events: Vec<Event>,
    /// Further events with an id that is in `events`: received, nothing more.
    pub repeats: Vec<Event>,
}

impl BatchPlan {
    pub fn new(batch: Vec<Event>) -> Self {
        let mut highest: HashMap<Uuid, usize> = HashMap::with_capacity(batch.len());
        for (at, event) in batch.iter().enumerate() {
            let best = highest.entry(event.id).or_insert(at);
            let (first, this) = (&batch[*best], event);
            // An event of another session never replaces the first one.
            if this.session == first.session && this.rev > first.rev {
                *best = at;
            }
        }
        let mut plan = Self { events: Vec::with_capacity(highest.len()), repeats: Vec::new() };
        for (at, event) in batch.into_iter().enumerate() {
            let list = if highest[&event.id] == at { &mut plan.events } else { &mut plan.repeats };
            list.push(event);
        }
        plan.events.sort_unstable_by_key(|event| event.id);
        plan
    }
}

/// A session while a batch is taken in.
#[derive(Clone, Debug)]
pub struct SessionChange {
    pub session: Session,
    /// What it counted under before; `None` if it is new.
    pub was: Option<Dimensions>,
    /// By quarter of an hour and model.
    pub slots: BTreeMap<(Quarter, String), Numbers>,
    pub tools: BTreeMap<(String, &'static str), ToolNumbers>,
    /// START, bound or END changed, or it began earlier than was known.
    pub life_changed: bool,
    /// Anything at all changed.
    pub changed: bool,
    /// The latest event, for live feeds.
    pub latest: Option<EventType>,
}

impl SessionChange {
    /// A session as it is stored.
    pub fn of(session: Session) -> Self {
        let was = Some(session.dimensions());
        Self::new(session, was)
    }

    /// One that this event is the first to report.
    pub fn begin(owner: i64, event: &Event) -> Self {
        let mut change = Self::new(Session::begin(owner, event), None);
        change.changed = true;
        change.life_changed = true;
        // Every session counts once, in the quarter it began in as far as is known.
        change.count(Quarter::of(change.session.started_at()), Numbers { sessions: 1, ..Numbers::default() });
        change
    }

    fn new(session: Session, was: Option<Dimensions>) -> Self {
        Self {
            session,
            was,
            slots: BTreeMap::new(),
            tools: BTreeMap::new(),
            life_changed: false,
            changed: false,
            latest: None,
        }
    }

    /// Notes that an event arrived, and when it happened. An error means that it must not be stored, and that nothing was
    /// noted.
    pub fn receive(&mut self, event: &Event) -> Result<(), Refused> {
        if !self.session.seqs.contains(event.seq) {
            if !self.session.seqs.insert(event.seq) {
                return Err(Refused::TooManyHoles);
            }
            self.changed = true;
        }
        self.changed |= self.update(|session| session.include_time(event.time));
        Ok(())
    }

    /// Takes in an event that was received and stored.
    pub fn apply(&mut self, event: &Event, arrival: &Arrival) {
        let replaced = match arrival {
            Arrival::Duplicate => return,
            Arrival::New => None,
            Arrival::Revised { time, attributes } => Some((*time, attributes)),
        };
        self.changed = true;
        self.latest = event.kind().known().or(self.latest);
        self.life_changed |= self.update(|session| session.apply(event, replaced.is_none()));
        if let Some((time, attributes)) = replaced {
            self.add(time, attributes, false);
        }
        self.add(event.time, &event.attributes, true);
    }

    /// Changes the session, and returns what the change returns. If it turns out to have begun in another quarter, it
    /// counts there.
    fn update(&mut self, change: impl FnOnce(&mut Session) -> bool) -> bool {
        let began = self.session.started_at();
        let changed = change(&mut self.session);
        let begins = self.session.started_at();
        self.life_changed |= began != begins;
        if Quarter::of(began) != Quarter::of(begins) {
            let one = Numbers { sessions: 1, ..Numbers::default() };
            self.take_back(Quarter::of(began), one);
            self.count(Quarter::of(begins), one);
        }
        changed
    }

    fn add(&mut self, time: Timestamp, attributes: &Attributes, new: bool) {
        let (model, numbers) = Numbers::of_event(attributes);
        if !numbers.is_zero() {
            let sums = self.slots.entry((Quarter::of(time), model.to_owned())).or_default();
            if new {
                sums.add(&numbers);
            } else {
                sums.subtract(&numbers);
            }
            let total = &mut self.session.numbers;
            if new { total.add(&numbers) } else { total.subtract(&numbers) }
        }
        if numbers.unpriced_calls != 0 {
            self.session.count_unpriced(model, if new { 1 } else { -1 });
        }
        if let Attributes::Tool(tool) = attributes {
            let kind = tool.kind.map_or("", ToolKind::as_str);
            let sums = self.tools.entry((tool.name.to_string(), kind)).or_default();
            let one = ToolNumbers::of(tool);
            if new { sums.add(&one) } else { sums.subtract(&one) }
        }
    }

    fn count(&mut self, quarter: Quarter, numbers: Numbers) {
        self.slots.entry((quarter, String::new())).or_default().add(&numbers);
        self.session.numbers.add(&numbers);
    }

    fn take_back(&mut self, quarter: Quarter, numbers: Numbers) {
        self.slots.entry((quarter, String::new())).or_default().subtract(&numbers);
        self.session.numbers.subtract(&numbers);
    }

    /// Whether what it has counted so far must be moved to other dimensions: the storage reads its quarters for that,
    /// as they were before this batch.
    pub fn moves(&self) -> bool {
        self.was.as_ref().is_some_and(|was| *was != self.session.dimensions())
    }
}

/// One row of the sums over all sessions: of a quarter, a day or a month.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DailyKey {
    pub row: SumRow,
    pub model: String,
    pub dimensions: Dimensions,
}

/// The differences that a batch makes to the sums over all sessions.
#[derive(Debug, Default)]
pub struct Daily(pub BTreeMap<DailyKey, Numbers>);

impl Daily {
    /// `before`: the session's quarters as they were, if it [moves](SessionChange::moves); else nothing.
    pub fn add(&mut self, change: &SessionChange, before: &[(Quarter, String, Numbers)]) {
        let now = change.session.dimensions();
        for ((quarter, model), numbers) in &change.slots {
            for row in rows_of(*quarter) {
                self.entry(row, model, &now).add(numbers);
            }
        }
        let Some(was) = change.was.as_ref().filter(|_| change.moves()) else { return };
        for (quarter, model, numbers) in before {
            for row in rows_of(*quarter) {
                self.entry(row, model, was).subtract(numbers);
                self.entry(row, model, &now).add(numbers);
            }
        }
    }

    fn entry(&mut self, row: SumRow, model: &str, dimensions: &Dimensions) -> &mut Numbers {
        let key = DailyKey { row, model: model.to_owned(), dimensions: dimensions.clone() };
        self.0.entry(key).or_default()
    }
}
