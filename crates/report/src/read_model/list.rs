//! Lists of sessions: which, in which order, from where on.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use reader::{Counted, Cursor, Numbers, Order, OrderBy, OrderKey, Page, Session, SessionFilter, SessionPage};

use super::entry::Entry;
use super::index::Index;
use types::Span;

/// A filter, prepared to be held against many sessions.
struct Wanted {
    filter: SessionFilter,
    /// In lower case.
    words: Vec<String>,
    tag: Option<String>,
    also: HashSet<String>,
}

/// A value is looked up only where it is asked for: most of a session is never touched.
fn is<'a>(wanted: Option<&str>, value: impl FnOnce() -> Option<&'a str>) -> bool {
    wanted.is_none_or(|wanted| value() == Some(wanted))
}

impl Wanted {
    fn new(mut filter: SessionFilter) -> Self {
        Self {
            words: filter.filter.words.iter().map(|word| word.to_lowercase()).collect(),
            tag: filter.filter.tag.as_deref().map(|tag| format!("\n{}\n", tag.to_lowercase())),
            also: std::mem::take(&mut filter.also).into_iter().collect(),
            filter,
        }
    }

    fn takes(&self, entry: &Entry) -> bool {
        let Self { filter: SessionFilter { filter, gaps, .. }, words, tag, also } = self;
        let Entry { session, words: known, tags, slots, .. } = entry;
        let life = &session.life;
        let Span { since, until } = filter.span;
        is(filter.agent.as_deref(), || Some(&life.agent))
            && filter.without_agent.as_ref().is_none_or(|without| *without != life.agent)
            && is(filter.project.as_deref(), || session.project())
            && is(filter.branch.as_deref(), || session.branch())
            && is(filter.user.as_deref(), || life.user.as_deref())
            && is(filter.machine.as_deref(), || life.machine.as_deref())
            && is(filter.group.as_deref(), || Some(session.group().unwrap_or_default()))
            && filter.status.is_none_or(|status| status == session.status())
            && since.is_none_or(|since| session.started_at() >= since)
            && until.is_none_or(|until| session.started_at() < until)
            && (!gaps || session.missing_count() > 0)
            && tag.as_ref().is_none_or(|tag| tags.contains(tag))
            && (words.iter().all(|word| known.contains(word)) || also.contains(&session.id))
            && filter.model.as_deref().is_none_or(|model| {
                slots.iter().any(|slot| *slot.model == *model && slot.numbers.api_calls > 0)
            })
    }
}

fn matching(indexes: &[Arc<Index>], filter: SessionFilter) -> impl Iterator<Item = &Session> {
    let wanted = Wanted::new(filter);
    let entries = indexes.iter().flat_map(|index| index.entries());
    entries.filter(move |entry| wanted.takes(entry)).map(|entry| &entry.session)
}

/// Where a session stands in a list.
#[derive(Clone, Debug)]
struct Place<'a> {
    key: Option<OrderKey>,
    started_at: i64,
    id: &'a str,
}

impl<'a> Place<'a> {
    fn of(session: &'a Session, by: OrderBy) -> Self {
        Self { key: OrderKey::of(session, by), started_at: session.started_at().0, id: &session.id }
    }

    fn after(cursor: &'a Cursor) -> Self {
        Self { key: cursor.key.clone(), started_at: cursor.started_at, id: &cursor.id }
    }

    fn cmp(&self, other: &Self, order: Order) -> Ordering {
        let directed = |ordering: Ordering| if order.descending { ordering.reverse() } else { ordering };
        let by_start = (self.started_at, self.id).cmp(&(other.started_at, other.id));
        match order.by {
            OrderBy::Started => directed(by_start),
            // Whichever way round: of the same value the newest is first.
            _ => directed(self.key.cmp(&other.key)).then(by_start.reverse()),
        }
    }
}

pub(super) fn sessions(indexes: &[Arc<Index>], filter: SessionFilter, page: &Page) -> SessionPage {
    let (limit, order) = (page.limit.clamp(1, Page::MOST), filter.order);
    let after = page.after.as_ref().map(Place::after);
    let found = matching(indexes, filter).map(|session| (Place::of(session, order.by), session));
    let beyond = |place: &Place<'_>| after.as_ref().is_none_or(|after| place.cmp(after, order).is_gt());
    let mut found: Vec<_> = found.filter(|(place, _)| beyond(place)).collect();
    let more = found.len() > limit;
    if more {
        found.select_nth_unstable_by(limit, |(place, _), (other, _)| place.cmp(other, order));
        found.truncate(limit);
    }
    found.sort_unstable_by(|(place, _), (other, _)| place.cmp(other, order));
    let sessions: Vec<Session> = found.into_iter().map(|(_, session)| session.clone()).collect();
    let next = sessions.last().filter(|_| more).map(|last| Cursor::after(last, order));
    SessionPage { sessions, next }
}

/// How many there are, counted no further than `most`.
pub(super) fn count(indexes: &[Arc<Index>], filter: SessionFilter, most: i64) -> Counted {
    let most = usize::try_from(most).unwrap_or(0);
    let mut sums = Numbers::default();
    for session in matching(indexes, filter).take(most) {
        sums.add(&session.numbers);
    }
    Counted { sessions: sums.sessions, cost_usd: sums.dollars(), unpriced_calls: sums.unpriced_calls }
}

/// Sessions of these ids that another one came from, and those of `reopened` with an opening that reports a transition.
pub(super) fn chained(indexes: &[Arc<Index>], ids: Vec<String>, reopened: Vec<String>) -> Vec<String> {
    let followed = |id: &String| indexes.iter().any(|index| index.is_followed(id));
    let mut chained: HashSet<String> = ids.into_iter().filter(followed).collect();
    let linked = |id: &String| {
        let entry = indexes.iter().find_map(|index| index.get(id));
        entry.is_some_and(|entry| entry.came_from.is_some() || entry.went_to.is_some())
    };
    chained.extend(reopened.into_iter().filter(linked));
    chained.into_iter().collect()
}
