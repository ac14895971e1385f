//! A session as its events describe it: the stored state, and the values that follow from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::numbers::Numbers;
use crate::seqs::Seqs;
use types::Event;
use types::Timestamp;
use types::event::{Attributes, Bound, End, Field, Start, Text, keep};
use types::{Link, Status};

/// The latest value that events reported, and the event and revision it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound(serialize = "T: Field"))]
pub struct Latest<T> {
    pub seq: i64,
    pub rev: i64,
    pub time: Timestamp,
    /// Stored as `said` in the JSON of a session.
    #[serde(rename = "said", serialize_with = "keep")]
    pub value: T,
}

/// The latest START, bound and END.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Life {
    pub agent: String,
    pub machine: Option<String>,
    pub user: Option<String>,
    /// The first START's `seq` and time.
    pub first_start: Option<(i64, Timestamp)>,
    /// The last of each.
    pub start: Option<Latest<Start>>,
    pub bound: Option<Latest<Bound>>,
    pub end: Option<Latest<End>>,
    /// How many STARTs there are.
    pub starts: u32,
}

/// What the sums over all sessions are split by, besides day and model. Empty for unknown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dimensions {
    pub agent: String,
    pub project: String,
    pub user: String,
}

/// A session, everything added up.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    pub id: String,
    /// The owner's number in this database: of the token that reported the session first.
    pub owner: i64,
    pub life: Life,
    pub seqs: Seqs,
    /// The earliest and the latest time of any event of it, even of one that was revised since.
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// When its last event arrived.
    pub received_at: Timestamp,
    pub numbers: Numbers,
    /// Models without a price, with the number of their calls.
    pub unpriced: BTreeMap<String, i64>,
}

impl Session {
    pub fn begin(owner: i64, event: &Event) -> Self {
        Self {
            id: event.session.to_string(),
            owner,
            life: Life {
                agent: event.agent.to_string(),
                machine: event.machine.as_deref().map(str::to_owned),
                user: event.user.as_deref().map(str::to_owned),
                ..Life::default()
            },
            seqs: Seqs::default(),
            first_at: event.time,
            last_at: event.time,
            received_at: Timestamp::default(),
            numbers: Numbers::default(),
            unpriced: BTreeMap::new(),
        }
    }

    /// Counts calls of a model without a price, or takes them back.
    pub fn count_unpriced(&mut self, model: &str, calls: i64) {
        let count = self.unpriced.entry(model.to_owned()).or_default();
        *count += calls;
        if *count == 0 {
            self.unpriced.remove(model);
        }
    }

    /// Widens the time of the session by an event. True if that changed it. Without its START a session began with its
    /// earliest event.
    pub fn include_time(&mut self, time: Timestamp) -> bool {
        let before = (self.first_at, self.last_at);
        self.first_at = self.first_at.min(time);
        self.last_at = self.last_at.max(time);
        before != (self.first_at, self.last_at)
    }

    /// Takes over a START, bound or END; `first` unless it is a revision. True if that changed the session.
    pub fn apply(&mut self, event: &Event, first: bool) -> bool {
        let life = &mut self.life;
        match &event.attributes {
            Attributes::Start(start) => {
                life.starts += u32::from(first);
                if life.first_start.is_none_or(|(seq, _)| event.seq <= seq) {
                    life.first_start = Some((event.seq, event.time));
                }
                if supersede(&mut life.start, event, start) {
                    life.agent = event.agent.to_string();
                    life.machine = event.machine.as_deref().map(str::to_owned);
                    life.user = event.user.as_deref().map(str::to_owned);
                }
                true
            }
            Attributes::Bound(bound) => supersede(&mut life.bound, event, bound),
            Attributes::End(end) => {
                supersede(&mut life.end, event, &**end);
                true
            }
            _ => false,
        }
    }

    pub fn started_at(&self) -> Timestamp {
        self.life.first_start.map_or(self.first_at, |(_, time)| time)
    }

    pub fn dimensions(&self) -> Dimensions {
        Dimensions {
            agent: self.life.agent.clone(),
            project: self.project().unwrap_or_default().to_owned(),
            user: self.life.user.clone().unwrap_or_default(),
        }
    }

    fn start(&self) -> Option<&Start> {
        self.life.start.as_ref().map(|latest| &latest.value)
    }

    /// Its name, or its id as long as no START has come.
    pub fn name(&self) -> &str {
        self.start().and_then(|start| start.name.as_deref()).unwrap_or(&self.id)
    }

    pub fn project(&self) -> Option<&str> {
        self.start()?.project.as_deref()
    }

    pub fn repository(&self) -> Option<&str> {
        self.start()?.repository.as_deref()
    }

    pub fn branch(&self) -> Option<&str> {
        self.start()?.branch.as_deref()
    }

    pub fn group(&self) -> Option<&str> {
        self.start()?.group.as_deref()
    }

    pub fn tags(&self) -> &[Text] {
        self.start().map_or(&[], |start| &start.tags)
    }

    pub fn parent(&self) -> Option<&str> {
        self.start()?.parent_session_id.as_deref()
    }

    pub fn transitioned_from(&self) -> Option<&str> {
        self.start()?.transitioned_from.as_deref()
    }

    pub fn transitioned_to(&self) -> Option<&str> {
        self.ending()?.value.transitioned_to.as_deref()
    }

    pub fn agent_session(&self) -> Option<&str> {
        self.life.bound.as_ref().map(|latest| &*latest.value.agent_session_id)
    }

    /// The END of its last opening; `None` while that goes on.
    pub fn ending(&self) -> Option<&Latest<End>> {
        let opened = self.life.start.as_ref().map_or(0, |start| start.seq);
        self.life.end.as_ref().filter(|end| end.seq > opened)
    }

    pub fn status(&self) -> Status {
        self.ending().map_or(Status::Active, |end| end.value.status)
    }

    pub fn link(&self) -> Link {
        match (&self.life.bound, self.ending()) {
            (Some(_), _) => Link::Matched,
            (None, None) => Link::Pending,
            (None, Some(_)) => Link::Failed,
        }
    }

    /// How long it was open, all openings together; one that goes on counts until `now`.
    pub fn duration_ms(&self, now: Timestamp) -> i64 {
        let before = self.life.end.as_ref().map_or(0, |end| end.value.duration_ms.get());
        if self.ending().is_some() {
            return before;
        }
        let opened = self.life.start.as_ref().map_or(self.first_at, |start| start.time);
        before.saturating_add(i64::try_from(now.since(opened).as_millis()).unwrap_or(i64::MAX))
    }

    /// The highest `seq` that is known to exist, received or named by an END.
    pub fn highest_seq(&self) -> i64 {
        self.seqs.highest().max(self.last_seq())
    }

    /// The highest `seq` that an END has named.
    fn last_seq(&self) -> i64 {
        self.life.end.as_ref().map_or(0, |end| end.value.last_seq.0)
    }

    pub fn missing_seq(&self) -> Vec<(i64, i64)> {
        self.seqs.missing(self.last_seq())
    }

    pub fn missing_count(&self) -> i64 {
        self.seqs.missing_count(self.last_seq())
    }

    /// START, END and every `seq` are there.
    pub fn complete(&self) -> bool {
        self.life.start.is_some() && self.ending().is_some() && self.missing_count() == 0
    }

    /// The text that a search looks through, in lower case.
    pub fn search_text(&self) -> String {
        let mut text = self.name().to_owned();
        let words = [self.project(), self.repository(), self.branch(), self.group(), self.agent_session()];
        let who = [Some(&*self.life.agent), self.life.user.as_deref(), Some(&*self.id)];
        for word in words.into_iter().chain(who).flatten().chain(self.tags().iter().map(|tag| &**tag)) {
            text.push('\n');
            text.push_str(word);
        }
        text.to_lowercase()
    }

    /// Its tags in lower case, each between two line ends.
    pub fn tag_lines(&self) -> String {
        self.tags().iter().fold("\n".to_owned(), |lines, tag| lines + &tag.to_lowercase() + "\n")
    }
}

/// The higher `seq` wins, then the higher `rev`.
fn supersede<T: Clone>(latest: &mut Option<Latest<T>>, event: &Event, value: &T) -> bool {
    if latest.as_ref().is_some_and(|known| (known.seq, known.rev) >= (event.seq, event.rev)) {
        return false;
    }
    *latest = Some(Latest { seq: event.seq, rev: event.rev, time: event.time, value: value.clone() });
    true
}
