//! All sessions of one kind in memory, and the sums over them by quarter of an hour: what lists and sums are answered from.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use reader::{
    By, Day, Dimensions, Facets, HourRow, Numbers, Quarter, SeriesRow, Session, SpendingKey, SpendingRow,
    UsageFilter, UsagePage, UsageRow, UsageSums,
};

use super::entry::Entry;
use types::Filter;

/// Values that are offered to filter by.
const OFFERED: usize = 1000;

/// Sessions by their ids, and what they count for together. To clone it copies no session.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    entries: HashMap<Arc<str>, Arc<Entry>>,
    /// The ids of the store's sessions by their numbers.
    ids: HashMap<i64, Arc<str>>,
    /// What sums are split by; a key's number is its place.
    keys: Vec<Arc<SumKey>>,
    key_numbers: HashMap<Arc<SumKey>, usize>,
    /// By quarter, and then by the number of the key.
    sums: BTreeMap<Quarter, BTreeMap<usize, Numbers>>,
    /// How many sessions have them.
    dimensions: BTreeMap<Dimensions, usize>,
    models: BTreeMap<Arc<str>, usize>,
    /// How many sessions came from the one with this id.
    followed: BTreeMap<String, usize>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SumKey {
    agent: String,
    project: String,
    user: String,
    model: Arc<str>,
}

/// Whether a session comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Added,
    Removed,
}

impl Index {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn get(&self, id: &str) -> Option<&Arc<Entry>> {
        self.entries.get(id)
    }

    /// The id of a session of the store.
    pub fn id(&self, number: i64) -> Option<&Arc<str>> {
        self.ids.get(&number)
    }

    pub fn numbers(&self) -> impl Iterator<Item = i64> {
        self.ids.keys().copied()
    }

    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values()
    }

    /// Whether a session came from this one.
    pub fn is_followed(&self, id: &str) -> bool {
        self.followed.contains_key(id)
    }

    /// Adds a session, in the place of the one with its id, and of the one with its number: a store gives the number of a session
    /// that was pruned to another one, and an import gives a session that it replaces another number.
    pub fn put(&mut self, entry: Arc<Entry>) {
        let id: Arc<str> = entry.session.id.as_str().into();
        if let Some(number) = entry.number {
            if self.ids.get(&number).is_some_and(|known| *known != id) {
                self.remove(number);
            }
            self.ids.insert(number, id.clone());
        }
        self.count(&entry, Change::Added);
        let number = entry.number;
        if let Some(before) = self.entries.insert(id, entry) {
            self.count(&before, Change::Removed);
            if let Some(former) = before.number.filter(|former| Some(*former) != number) {
                self.ids.remove(&former);
            }
        }
    }

    pub fn remove(&mut self, number: i64) {
        if let Some(id) = self.ids.remove(&number)
            && let Some(entry) = self.entries.remove(&id)
        {
            self.count(&entry, Change::Removed);
        }
    }

    fn count(&mut self, entry: &Entry, change: Change) {
        let dimensions = entry.session.dimensions();
        let mut of_models: Vec<(&Arc<str>, usize)> = Vec::new();
        for slot in &entry.slots {
            let known = of_models.iter().find(|(model, _)| **model == slot.model).map(|(_, number)| *number);
            let number = known.unwrap_or_else(|| self.key_number(&dimensions, &slot.model));
            if known.is_none() {
                of_models.push((&slot.model, number));
            }
            let of_quarter = self.sums.entry(slot.quarter).or_default();
            let sums = of_quarter.entry(number).or_default();
            match change {
                Change::Added => sums.add(&slot.numbers),
                Change::Removed => sums.subtract(&slot.numbers),
            }
            if sums.is_zero() {
                of_quarter.remove(&number);
            }
        }
        for (model, _) in of_models {
            tally(&mut self.models, model.clone(), change);
        }
        tally(&mut self.dimensions, dimensions, change);
        if let Some(from) = entry.session.transitioned_from() {
            tally(&mut self.followed, from.to_owned(), change);
        }
    }

    fn key_number(&mut self, dimensions: &Dimensions, model: &Arc<str>) -> usize {
        let Dimensions { agent, project, user } = dimensions.clone();
        let key = SumKey { agent, project, user, model: model.clone() };
        if let Some(number) = self.key_numbers.get(&key) {
            return *number;
        }
        let key = Arc::new(key);
        self.keys.push(key.clone());
        self.key_numbers.insert(key, self.keys.len() - 1);
        self.keys.len() - 1
    }
}

fn tally<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K, change: Change) {
    let count = match (change, counts.get(&key).copied().unwrap_or(0)) {
        (Change::Added, count) => count + 1,
        (Change::Removed, count) => count.saturating_sub(1),
    };
    if count == 0 {
        counts.remove(&key);
    } else {
        counts.insert(key, count);
    }
}

/// A part of the sums that are asked for.
#[derive(Debug)]
struct SumPart<'a, P> {
    period: P,
    agent: &'a str,
    project: &'a str,
    user: &'a str,
    model: &'a str,
    branch: &'a str,
    /// Where sums of single sessions are asked for.
    session: Option<&'a Session>,
    numbers: Numbers,
}

impl<P> SumPart<'_, P> {
    fn passes(&self, by: By, filter: &Filter) -> bool {
        let is =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
        is(&filter.agent, self.agent)
            && is(&filter.model, self.model)
            && is(&filter.project, self.project)
            && is(&filter.branch, self.branch)
            && is(&filter.user, self.user)
            && filter.without_agent.as_deref().is_none_or(|without| without != self.agent)
            && !(by == By::Model && self.model.is_empty())
    }

    fn key(&self, by: By) -> &str {
        match by {
            By::Day => "",
            By::Session => self.session.map_or("", |session| session.agent_session().unwrap_or(&session.id)),
            By::Model => self.model,
            By::Project => self.project,
            By::Agent => self.agent,
            By::Branch => self.branch,
            By::User => self.user,
        }
    }
}

/// Whether the sums over all sessions do not know what is asked for.
fn needs_sessions(by: By, filter: &UsageFilter) -> bool {
    matches!(by, By::Session | By::Branch) || filter.filter.branch.is_some()
}

/// The sums that pass a filter, by period, by what they are split by, and where it is needed by session.
fn parts<'a, P: Copy + PartialEq>(
    indexes: &'a [Arc<Index>],
    by: By,
    filter: &UsageFilter,
    period: impl Fn(Quarter) -> P,
) -> Vec<SumPart<'a, P>> {
    let (first, last) = filter.days();
    let (from, to) = Quarter::of_days(first, last, &filter.zone);
    let (from, to) = (from.unwrap_or(Quarter(i64::MIN)), to.unwrap_or(Quarter(i64::MAX)));
    let mut parts = Vec::new();
    for index in indexes {
        if needs_sessions(by, filter) {
            index.parts_of_sessions(from..to, &period, &mut parts);
        } else if from < to {
            index.parts_of_all(from..to, by, filter, &period, &mut parts);
        }
    }
    parts.retain(|part| part.passes(by, &filter.filter));
    parts
}

impl Index {
    /// Of the sums over all sessions. Periods follow one another, so those of one are added up before the next begins.
    fn parts_of_all<'a, P: Copy + PartialEq>(
        &'a self,
        span: Range<Quarter>,
        by: By,
        filter: &UsageFilter,
        period: impl Fn(Quarter) -> P,
        parts: &mut Vec<SumPart<'a, P>>,
    ) {
        let part = |number: usize, period: P, numbers: Numbers| {
            let SumKey { agent, project, user, model } = &*self.keys[number];
            SumPart { period, agent, project, user, model, branch: "", session: None, numbers }
        };
        let Some((first, _)) = self.sums.first_key_value() else { return };
        let keys = 0..self.keys.len();
        let wanted: Vec<bool> = keys
            .map(|number| part(number, period(*first), Numbers::default()).passes(by, &filter.filter))
            .collect();
        let mut current: Option<P> = None;
        let mut sums: BTreeMap<usize, Numbers> = BTreeMap::new();
        let mut close = |period: Option<P>, sums: &mut BTreeMap<usize, Numbers>| {
            let Some(period) = period else { return };
            parts.extend(std::mem::take(sums).into_iter().map(|(number, sum)| part(number, period, sum)));
        };
        for (quarter, of_quarter) in self.sums.range(span) {
            let period = period(*quarter);
            if current != Some(period) {
                close(current.replace(period), &mut sums);
            }
            for (number, numbers) in of_quarter.iter().filter(|(number, _)| wanted[**number]) {
                sums.entry(*number).or_default().add(numbers);
            }
        }
        close(current, &mut sums);
    }

    fn parts_of_sessions<'a, P: Copy + PartialEq>(
        &'a self,
        span: Range<Quarter>,
        period: impl Fn(Quarter) -> P,
        parts: &mut Vec<SumPart<'a, P>>,
    ) {
        for entry in self.entries() {
            let (session, first) = (&entry.session, parts.len());
            for slot in entry.slots.iter().filter(|slot| span.contains(&slot.quarter)) {
                let (period, model) = (period(slot.quarter), &*slot.model);
                let known =
                    parts[first..].iter_mut().find(|part| part.period == period && part.model == model);
                if let Some(known) = known {
                    known.numbers.add(&slot.numbers);
                    continue;
                }
                parts.push(SumPart {
                    period,
                    agent: &session.life.agent,
                    project: session.project().unwrap_or_default(),
                    user: session.life.user.as_deref().unwrap_or_default(),
                    model,
                    branch: session.branch().unwrap_or_default(),
                    session: Some(session),
                    numbers: slot.numbers,
                });
            }
        }
    }
}

/// Everything that has one key.
#[derive(Debug, Default)]
struct Group<'a> {
    agents: BTreeSet<&'a str>,
    unpriced_models: BTreeSet<&'a str>,
    numbers: Numbers,
}

pub(super) fn usage(indexes: &[Arc<Index>], by: By, filter: &UsageFilter, wanted: Range<usize>) -> UsagePage {
    if by == By::Day {
        return UsagePage::of_days(
            series(indexes, By::Agent, filter),
            series(indexes, By::Model, filter),
            wanted,
        );
    }
    let found = parts(indexes, by, filter, |_| ());
    let mut groups: HashMap<(&str, Option<&str>), Group<'_>> = HashMap::new();
    for part in found.iter().filter(|part| !part.numbers.is_zero()) {
        let session = part.session.filter(|_| by == By::Session).map(|session| &*session.id);
        let group = groups.entry((part.key(by), session)).or_default();
        group.agents.insert(part.agent);
        if part.numbers.unpriced_calls > 0 {
            group.unpriced_models.insert(part.model);
        }
        group.numbers.add(&part.numbers);
    }
    let mut groups: Vec<_> = groups.into_iter().filter(|(_, group)| !group.numbers.is_zero()).collect();
    groups.sort_by(|(key, group), (other_key, other)| {
        other.numbers.pico_dollars().cmp(&group.numbers.pico_dollars()).then_with(|| key.cmp(other_key))
    });
    let more = groups.len() > wanted.end;
    let rows =
        groups.into_iter().skip(wanted.start).take(wanted.len()).map(|((key, session), group)| UsageRow {
            key: key.to_owned(),
            agent: group.agents.first().filter(|_| group.agents.len() == 1).map(|agent| (*agent).to_owned()),
            session_id: session.map(str::to_owned),
            sums: UsageSums::of(&group.numbers),
            unpriced_models: group.unpriced_models.into_iter().map(str::to_owned).collect(),
        });
    UsagePage { rows: rows.collect(), more }
}

pub(super) fn series(indexes: &[Arc<Index>], by: By, filter: &UsageFilter) -> Vec<SeriesRow> {
    let split = if matches!(by, By::Session | By::Branch) { By::Day } else { by };
    let zone = &filter.zone;
    let days = parts(indexes, split, filter, |quarter| Day::of_in(quarter.start(), zone));
    let rows = days.iter().map(|part| SeriesRow {
        day: part.period,
        key: part.key(split).to_owned(),
        sums: UsageSums::of(&part.numbers),
    });
    let (first, last) = filter.days();
    SeriesRow::summed(rows, first, last)
}

pub(super) fn hours(indexes: &[Arc<Index>], filter: &UsageFilter) -> Vec<HourRow> {
    let quarters = parts(indexes, By::Day, filter, |quarter| quarter);
    HourRow::summed(quarters.iter().map(|part| (part.period, UsageSums::of(&part.numbers))), &filter.zone)
}

pub(super) fn spending(indexes: &[Arc<Index>]) -> Vec<SpendingRow> {
    let mut sums: BTreeMap<SpendingKey, Numbers> = BTreeMap::new();
    for part in parts(indexes, By::Model, &UsageFilter::default(), |_| ()) {
        let SumPart { agent, model, project, .. } = part;
        let [agent, model, project] = [agent, model, project].map(str::to_owned);
        sums.entry(SpendingKey { agent, model, project }).or_default().add(&part.numbers);
    }
    let mut rows: Vec<_> = sums.into_iter().filter(|(_, numbers)| !numbers.is_zero()).collect();
    rows.sort_by_key(|(_, numbers)| std::cmp::Reverse(numbers.pico_dollars()));
    rows.into_iter().map(|(key, numbers)| SpendingRow { key, sums: UsageSums::of(&numbers) }).collect()
}

pub(super) fn facets(indexes: &[Arc<Index>]) -> Facets {
    let offered = |values: BTreeSet<&str>| {
        let known = values.into_iter().filter(|value| !value.is_empty()).take(OFFERED);
        known.map(str::to_owned).collect()
    };
    let dimensions = || indexes.iter().flat_map(|index| index.dimensions.keys());
    Facets {
        agents: offered(dimensions().map(|dimensions| &*dimensions.agent).collect()),
        models: offered(indexes.iter().flat_map(|index| index.models.keys()).map(|model| &**model).collect()),
        projects: offered(dimensions().map(|dimensions| &*dimensions.project).collect()),
        users: offered(dimensions().map(|dimensions| &*dimensions.user).collect()),
    }
}
