//! Sums by conversation, model and day, from which every table of `usage` is made: an unchanged tree is answered without
//! looking at a single call.
//!
//! It also decides the owner of a call: no file if a session of the store owns it; else the file that was born first, then
//! the one with the smaller conversation id; copies count only where there are nothing but copies.

use std::collections::HashMap;

use super::call::{STORE, Sighting};
use super::days::Days;
use super::hash::CheapMap;
use super::index::{FileFacts, Index};
use super::merge::Group;
use super::strings::{StringId, StringTable};
use super::sums::DailySum;
use os::calendar::LocalClock;
use pricing::{PriceList, Prices};
use types::Span;
use types::Timestamp;
use usage::{DatedSums, Owner, Portion, Spending};

type SumKey = (StringId, StringId, StringId, i32);

/// By which times calls are added up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Times<'a> {
    Days(&'a Days),
    /// Of an hour, each as one clock shows it.
    Quarters(&'a LocalClock),
}

impl Times<'_> {
    fn number(self, at: Timestamp) -> i32 {
        match self {
            Self::Days(days) => days.number(at),
            Self::Quarters(clock) => clock.quarter(at),
        }
    }
}

/// Adds calls up.
#[derive(Debug)]
pub(super) struct Rollup<'a> {
    files: &'a [Option<FileFacts>],
    strings: &'a StringTable,
    times: Times<'a>,
    /// Other calls are left out.
    span: Span,
    list: &'a PriceList,
    prices: CheapMap<u32, Option<Prices>>,
    sums: CheapMap<SumKey, DatedSums>,
}

impl<'a> Rollup<'a> {
    pub(super) fn new(
        files: &'a [Option<FileFacts>],
        strings: &'a StringTable,
        times: Times<'a>,
        list: &'a PriceList,
        span: Span,
    ) -> Self {
        Self { files, strings, times, span, list, prices: CheapMap::default(), sums: CheapMap::default() }
    }

    pub(super) fn add(&mut self, group: &Group<'_>) {
        let Some((file, sighting)) = owned(group, self.files, self.strings) else { return };
        if !self.span.holds(sighting.at) {
            return;
        }
        let (strings, list) = (self.strings, self.list);
        let prices =
            self.prices.entry(sighting.model.0).or_insert_with(|| list.of(strings.text(sighting.model)));
        let cost = prices.as_ref().and_then(|prices| prices.cost(&sighting.tokens, sighting.tier));
        let place = (file.agent, file.conversation, sighting.model, self.times.number(sighting.at));
        self.sums.entry(place).or_default().add(&DatedSums::of(sighting.at, &sighting.tokens, cost));
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

/// Whether the roll-ups alone give the sums of a span: no day of a conversation has calls inside and outside of it.
pub(super) fn suffice(daily: &[DailySum], span: Span) -> bool {
    let cut = |at: Option<Timestamp>, entry: &DailySum| {
        at.is_some_and(|at| entry.sums.first < at && entry.sums.last >= at)
    };
    daily.iter().all(|entry| !cut(span.since, entry) && !cut(span.until, entry))
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

/// The sums with their texts, as every table of `usage` is made of.
pub(super) fn spending(index: &Index, daily: &[DailySum], grain: i32) -> Spending {
    let strings = &index.strings;
    let conversations = Conversations::of(index);
    let mut spending = Spending::default();
    let mut owners: CheapMap<(StringId, StringId), u32> = CheapMap::default();
    let mut models: CheapMap<StringId, u32> = CheapMap::default();
    for entry in daily {
        let owner = *owners.entry((entry.agent, entry.conversation)).or_insert_with(|| {
            let file = conversations.get(entry.agent, entry.conversation);
            let fact = |fact: fn(&FileFacts) -> StringId| strings.some(fact(file?)).map(str::to_owned);
            spending.owners.push(Owner {
                agent: strings.text(entry.agent).to_owned(),
                conversation: Some(strings.text(entry.conversation).to_owned()),
                session: None,
                project: fact(|file| file.project),
                repository: fact(|file| file.repository),
                folder: None,
                branch: fact(|file| file.branch),
            });
            number(spending.owners.len())
        });
        let model = *models.entry(entry.model).or_insert_with(|| {
            spending.models.push(strings.text(entry.model).to_owned());
            number(spending.models.len())
        });
        let quarter = entry.day.saturating_mul(grain);
        spending.portions.push(Portion { owner, model, place: None, quarter, sums: entry.sums });
    }
    spending
}

/// Of the last in a list of this length.
fn number(length: usize) -> u32 {
    u32::try_from(length - 1).unwrap_or(u32::MAX)
}
