//! One session and what is around it. What lists do not need is read here: its events and its tools.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use delivery::foreign::{life, session_id};
use reader::{
    ActivityBucket, Error, ModelRow, Numbers, Session, SessionDetail, TimelineEvent, TimelinePage,
    TimelinePosition, ToolNumbers, ToolRow,
};
use scan::ForeignSessions;
use store::Store;
use types::event::{Attributes, Cost};
use types::{Event, EventType, PicoDollars, Timestamp, ToolKind, redact};

use super::entry::Entry;
use super::index::Index;
use super::unavailable;

/// A chain longer than this, to either side, is cut.
const CHAIN: usize = 50;
/// Sessions started from inside one that are shown.
const CHILDREN: usize = 100;
/// Events of its life that are shown.
const OPENINGS: usize = 1000;

/// Where sessions' events are read from.
pub(super) struct Sources<'a> {
    pub store: &'a Mutex<Store>,
    /// The calls of conversations that never ran through codemie, where they are among the sessions.
    pub foreign: Option<&'a Mutex<ForeignSessions>>,
}

impl Sources<'_> {
    /// A session's events beyond a `seq`, in order.
    fn events(&self, entry: &Entry, seq: i64, limit: usize) -> Result<Vec<Event>, Error> {
        let Some(number) = entry.number else { return self.foreign_events(entry, seq, limit) };
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let events = store.read(|view| view.events_beyond(number, seq, limit)).map_err(unavailable)?;
        Ok(events.into_iter().map(|outgoing| outgoing.event).collect())
    }

    fn foreign_events(&self, entry: &Entry, seq: i64, limit: usize) -> Result<Vec<Event>, Error> {
        let Some(foreign) = self.foreign else { return Ok(Vec::new()) };
        let foreign = foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = foreign.calls_of(|session| session_id(session).to_string() == entry.session.id);
        let Some((session, calls)) = found.next().transpose().map_err(unavailable)? else {
            return Ok(Vec::new());
        };
        let events = life(session, &calls).into_iter().map(|outgoing| outgoing.event);
        Ok(events.filter(|event| event.seq > seq).take(limit).collect())
    }

    /// The events of a session that come of no record, in the order of `seq`.
    fn events_without_record(&self, entry: &Entry) -> Result<Vec<Event>, Error> {
        let Some(number) = entry.number else { return self.foreign_events(entry, 0, usize::MAX) };
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let whose = store::Whose::Session(number);
        let mut events = Vec::new();
        let read = store
            .read(|view| view.each_event_without_record(whose, |_, outgoing, _| events.push(outgoing.event)));
        read.map_err(unavailable)?;
        events.sort_by_key(|event| event.seq);
        Ok(events)
    }

    /// The most called first.
    fn tools(&self, entry: &Entry) -> Result<Vec<ToolRow>, Error> {
        let Some(number) = entry.number else { return Ok(Vec::new()) };
        let counts = {
            let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
            store.read(|view| view.tool_counts(number)).map_err(unavailable)?
        };
        let mut tools: BTreeMap<(String, &str), ToolNumbers> = BTreeMap::new();
        for count in counts {
            let key = (redact::name(&count.name).into_owned(), count.kind.map_or("", ToolKind::as_str));
            tools.entry(key).or_default().add(&ToolNumbers {
                calls: count.calls,
                errors: count.errors,
                lines_added: count.lines_added,
                lines_removed: count.lines_removed,
            });
        }
        let rows =
            tools.into_iter().map(|((name, kind), numbers)| ToolRow { name, kind: kind.to_owned(), numbers });
        let mut rows: Vec<ToolRow> = rows.collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.numbers.calls));
        Ok(rows)
    }
}

fn find<'a>(indexes: &'a [Arc<Index>], id: &str) -> Option<&'a Arc<Entry>> {
    indexes.iter().find_map(|index| index.get(id))
}

pub(super) fn detail(
    indexes: &[Arc<Index>],
    sources: &Sources<'_>,
    id: &str,
) -> Result<Option<SessionDetail>, Error> {
    let Some(entry) = find(indexes, id) else { return Ok(None) };
    let openings = sources.events_without_record(entry)?.into_iter().filter(|event| {
        let kind = event.event_type();
        matches!(kind, Some(EventType::Start | EventType::Bound | EventType::End))
    });
    let parent = entry.session.parent().and_then(|parent| find(indexes, parent));
    let all = indexes.iter().flat_map(|index| index.entries());
    let children = all.map(|entry| &entry.session).filter(|session| session.parent() == Some(id));
    let mut children: Vec<&Session> = children.collect();
    children.sort_by_key(|session| std::cmp::Reverse((session.started_at(), &session.id)));
    Ok(Some(SessionDetail {
        session: entry.session.clone(),
        models: models(entry),
        tools: sources.tools(entry)?,
        openings: openings.take(OPENINGS).map(shown).collect(),
        chain: chain(indexes, entry),
        parent: parent.map(|parent| parent.session.clone()),
        children: children.into_iter().take(CHILDREN).cloned().collect(),
    }))
}

/// What a session used of each model, in the order of their names.
fn models(entry: &Entry) -> Vec<ModelRow> {
    let mut models: BTreeMap<&str, Numbers> = BTreeMap::new();
    for slot in entry.slots.iter().filter(|slot| !slot.model.is_empty()) {
        models.entry(&slot.model).or_default().add(&slot.numbers);
    }
    let used = models.into_iter().filter(|(_, numbers)| !numbers.is_zero());
    used.map(|(model, numbers)| ModelRow { model: model.to_owned(), numbers }).collect()
}

/// The sessions that follow one another by a `/clear` or a switch, back and forth from this one. A switch back makes a ring of
/// them, which is walked once.
fn chain(indexes: &[Arc<Index>], entry: &Arc<Entry>) -> Vec<Session> {
    let mut seen = HashSet::from([&*entry.session.id]);
    let (mut chain, mut at) = (Vec::new(), entry);
    while chain.len() < CHAIN
        && let Some(from) = &at.came_from
        && seen.insert(from)
        && let Some(earlier) = find(indexes, from)
    {
        chain.push(earlier.session.clone());
        at = earlier;
    }
    chain.reverse();
    chain.push(entry.session.clone());
    at = entry;
    for _ in 0..CHAIN {
        let Some(later) = successor(indexes, at) else { break };
        if !seen.insert(&later.session.id) {
            break;
        }
        chain.push(later.session.clone());
        at = later;
    }
    chain
}

/// The session that follows this one; found by its START if this one's END has not come.
fn successor<'a>(indexes: &'a [Arc<Index>], entry: &Entry) -> Option<&'a Arc<Entry>> {
    if let Some(next) = &entry.went_to {
        return find(indexes, next);
    }
    let id = &*entry.session.id;
    let all = indexes.iter().flat_map(|index| index.entries());
    let followers = all.filter(|other| other.session.transitioned_from() == Some(id));
    followers.max_by_key(|other| (other.session.started_at(), &other.session.id))
}

pub(super) fn timeline(
    indexes: &[Arc<Index>],
    sources: &Sources<'_>,
    id: &str,
    after: TimelinePosition,
    limit: usize,
) -> Result<TimelinePage, Error> {
    let Some(entry) = find(indexes, id) else { return Ok(TimelinePage { events: Vec::new(), next: None }) };
    let limit = limit.max(1);
    // No two events of a session have the same `seq` here.
    let mut events = sources.events(entry, after.seq, limit.saturating_add(1))?;
    let more = events.len() > limit;
    events.truncate(limit);
    let last = events.last().filter(|_| more);
    let next = last.map(|event| TimelinePosition { seq: event.seq, id: Some(event.id) });
    Ok(TimelinePage { events: events.into_iter().map(shown).collect(), next })
}

fn shown(event: Event) -> TimelineEvent {
    TimelineEvent {
        seq: event.seq,
        rev: event.rev,
        kind: event.kind(),
        time: event.time,
        attributes: event.attributes,
    }
}

pub(super) fn activity(
    indexes: &[Arc<Index>],
    sources: &Sources<'_>,
    id: &str,
    (from, to): (Timestamp, Timestamp),
    parts: usize,
) -> Result<Vec<ActivityBucket>, Error> {
    let Some(entry) = find(indexes, id) else { return Ok(Vec::new()) };
    let parts = i64::try_from(parts.max(1)).unwrap_or(1);
    let length = to.0.saturating_sub(from.0).max(1);
    let mut buckets: BTreeMap<i64, ActivityBucket> = BTreeMap::new();
    for event in sources.events(entry, 0, usize::MAX)? {
        let part = match event.time.0.saturating_sub(from.0) {
            ..=0 => 0,
            since if since >= length => parts - 1,
            since => since.saturating_mul(parts) / length,
        };
        let one = match &event.attributes {
            Attributes::Prompt(_) => ActivityBucket { prompts: 1, ..ActivityBucket::default() },
            Attributes::Usage(usage) => {
                let cost = usage.cost_usd.map_or(PicoDollars::default(), |Cost(cost)| cost);
                ActivityBucket { calls: 1, cost, ..ActivityBucket::default() }
            }
            Attributes::Tool(tool) if tool.ok == Some(false) => {
                ActivityBucket { errors: 1, ..ActivityBucket::default() }
            }
            Attributes::Tool(_) => ActivityBucket { tools: 1, ..ActivityBucket::default() },
            Attributes::Error(_) => ActivityBucket { errors: 1, ..ActivityBucket::default() },
            _ => continue,
        };
        let bucket = buckets.entry(part).or_default();
        bucket.until = bucket.until.max(event.time);
        bucket.prompts += one.prompts;
        bucket.calls += one.calls;
        bucket.cost = PicoDollars(bucket.cost.0.saturating_add(one.cost.0));
        bucket.tools += one.tools;
        bucket.errors += one.errors;
    }
    Ok(buckets.into_values().collect())
}
