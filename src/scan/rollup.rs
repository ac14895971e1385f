//! Sums by conversation, model and day, from which every table of `usage` is made: an unchanged tree is answered without
//! looking at a single call.
//!
//! It also decides the owner of a call: no file if a session of the store owns it; else the file that was born first, then
//! the one with the smaller conversation id; copies count only where there are nothing but copies.

use std::collections::{BTreeMap, HashMap};

use super::call::{STORE, Sighting};
use super::days::{self, Days};
use super::hash::CheapMap;
use super::index::{FileFacts, Index};
use super::merge::Group;
use super::strings::{StringId, StringTable};
use super::sums::{CallSums, DailySum};
use crate::store::{By, UsageRow};
use prices::Prices;
use wire::Timestamp;

type SumKey = (StringId, StringId, StringId, i32);

/// Adds calls up.
#[derive(Debug)]
pub(super) struct Rollup<'a> {
    files: &'a [Option<FileFacts>],
    strings: &'a StringTable,
    days: &'a Days,
    /// Earlier calls are left out.
    since: Option<Timestamp>,
    prices: CheapMap<u32, Option<Prices>>,
    sums: CheapMap<SumKey, CallSums>,
}

impl<'a> Rollup<'a> {
    pub(super) fn new(
        files: &'a [Option<FileFacts>],
        strings: &'a StringTable,
        days: &'a Days,
        since: Option<Timestamp>,
    ) -> Self {
        Self { files, strings, days, since, prices: CheapMap::default(), sums: CheapMap::default() }
    }

    pub(super) fn add(&mut self, group: &Group<'_>) {
        let Some((file, sighting)) = owned(group, self.files, self.strings) else { return };
        if self.since.is_some_and(|since| sighting.at < since) {
            return;
        }
        let strings = self.strings;
        let prices =
            self.prices.entry(sighting.model.0).or_insert_with(|| Prices::of(strings.text(sighting.model)));
        let cost = prices.as_ref().and_then(|prices| prices.cost(&sighting.tokens, sighting.tier));
        let place = (file.agent, file.conversation, sighting.model, self.days.number(sighting.at));
        let none = CallSums { first: i64::MAX, last: i64::MIN, ..CallSums::default() };
        self.sums.entry(place).or_insert(none).add(&sighting, cost);
    }

    /// In a stable order.
    pub(super) fn daily(self) -> Vec<DailySum> {
        let mut daily: Vec<_> = self
            .sums
            .into_iter()
            .map(|((agent, conversation, model, day), sums)| DailySum {
                agent,
                conversation,
                model,
                day,
                sums,
            })
            .collect();
        daily.sort_unstable_by_key(|entry| (entry.day, entry.agent, entry.conversation, entry.model));
        daily
    }
}

/// The owner of a call among the files in view, and the call itself; `None`: no file here owns it.
pub(super) fn owned<'a>(
    group: &Group<'_>,
    files: &'a [Option<FileFacts>],
    strings: &StringTable,
) -> Option<(&'a FileFacts, Sighting)> {
    // The store's is the highest number.
    if group.sightings.last()?.file == STORE {
        return None;
    }
    let seen = || {
        group.sightings.iter().filter_map(|sighting| {
            let file = files.get(sighting.file as usize)?.as_ref()?;
            file.in_view.then_some((file, sighting))
        })
    };
    let mut views = seen();
    let first = views.next()?;
    let owner = views.fold(first, |owner, other| {
        let rank = |(file, sighting): (&FileFacts, &Sighting)| (sighting.copied, file.birth());
        let id = |file: &FileFacts| strings.text(file.conversation);
        if (rank(other), id(other.0)) < (rank(owner), id(owner.0)) { other } else { owner }
    });
    let mut sighting = *owner.1;
    for (_, other) in seen() {
        sighting.revise(other);
    }
    Some((owner.0, sighting))
}

/// Whether the roll-ups alone give the sums since that time: no day of a conversation has calls before and after it.
pub(super) fn suffice(daily: &[DailySum], since: Timestamp) -> bool {
    daily.iter().all(|entry| entry.sums.first >= since.0 || entry.sums.last < since.0)
}

/// The conversations, each with its oldest file in view that names a project.
#[derive(Debug)]
pub(super) struct Conversations<'a>(HashMap<(StringId, StringId), &'a FileFacts>);

impl<'a> Conversations<'a> {
    pub(super) fn of(index: &'a Index) -> Self {
        let mut known: HashMap<_, &FileFacts> = HashMap::new();
        for file in index.files.iter().flatten().filter(|file| file.in_view) {
            let rank = |file: &FileFacts| (file.project == StringId::NONE, file.birth());
            let entry = known.entry((file.agent, file.conversation)).or_insert(file);
            if rank(file) < rank(entry) {
                *entry = file;
            }
        }
        Self(known)
    }

    pub(super) fn get(&self, agent: StringId, conversation: StringId) -> Option<&'a FileFacts> {
        self.0.get(&(agent, conversation)).copied()
    }
}

/// The table that is asked for.
pub(super) fn rows(index: &Index, daily: &[DailySum], by: By) -> Vec<UsageRow> {
    let strings = &index.strings;
    let conversations =
        matches!(by, By::Session | By::Project | By::Branch).then(|| Conversations::of(index));
    let fact = |entry: &DailySum, fact: fn(&FileFacts) -> StringId| {
        let file =
            conversations.as_ref().and_then(|known| known.get(entry.agent, entry.conversation)).map(fact);
        file.unwrap_or_default()
    };
    // Keys of rows are numbers; the texts are looked up once per row.
    let mut rows: BTreeMap<(StringId, i32, StringId), UsageRow> = BTreeMap::new();
    for entry in daily {
        let key = match by {
            By::Day => (StringId::NONE, entry.day, StringId::NONE),
            // Two agents' conversations are two, even under one id.
            By::Session => (entry.conversation, 0, entry.agent),
            By::Model => (entry.model, 0, StringId::NONE),
            By::Project => (fact(entry, |file| file.project), 0, StringId::NONE),
            By::Agent => (entry.agent, 0, StringId::NONE),
            By::Branch => (fact(entry, |file| file.branch), 0, StringId::NONE),
        };
        let agent = strings.text(entry.agent);
        let row = rows.entry(key).or_insert_with(|| UsageRow {
            key: match by {
                By::Day => days::name(entry.day),
                By::Project | By::Branch => strings.some(key.0).unwrap_or("(none)").to_owned(),
                By::Session | By::Model | By::Agent => strings.text(key.0).to_owned(),
            },
            agent: Some(agent.to_owned()),
            first_at: Timestamp(entry.sums.first),
            foreign: true,
            project: strings.some(fact(entry, |file| file.project)).map(str::to_owned),
            ..UsageRow::default()
        });
        let sums = &entry.sums;
        for (total, more) in [
            (&mut row.api_calls, sums.calls),
            (&mut row.input, sums.input),
            (&mut row.output, sums.output),
            (&mut row.cache_read, sums.cache_read),
            (&mut row.cache_write, sums.cache_write),
            (&mut row.reasoning, sums.reasoning),
            (&mut row.cost.0, sums.cost),
        ] {
            *total = total.saturating_add(more);
        }
        row.first_at = row.first_at.min(Timestamp(sums.first));
        if row.agent.as_deref() != Some(agent) {
            row.agent = None;
        }
        let model = strings.text(entry.model);
        if sums.unpriced > 0 {
            if !row.unpriced_models.iter().any(|known| known == model) {
                row.unpriced_models.push(model.to_owned());
            }
            if Prices::of(model).is_some() {
                *row.unpriced_calls.entry(model.to_owned()).or_default() += sums.unpriced;
            }
        }
    }
    rows.into_values().collect()
}
