//! Sums by conversation, model and day, from which every table of `usage` is made: an unchanged tree is answered without
//! looking at a single call.
//!
//! Here it is decided whose a call is: not a file's if a session of the store owns it; else the file's that was born first,
//! then the one with the smaller conversation; a copy is asked only where there is nothing but copies.

use std::collections::{BTreeMap, HashMap};

use super::call::{STORE, Told};
use super::days::{self, Days};
use super::hash::CheapMap;
use super::index::{FileFacts, Index};
use super::merge::Group;
use super::words::{Word, Words};
use crate::store::{By, UsageRow};
use prices::Prices;
use wire::PicoDollars;
use wire::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) agent: Word,
    pub(super) conversation: Word,
    pub(super) model: Word,
    pub(super) day: i32,
    pub(super) sums: Sums,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) calls: i64,
    /// Calls without a price.
    pub(super) unpriced: i64,
    pub(super) input: i64,
    pub(super) output: i64,
    pub(super) cache_read: i64,
    pub(super) cache_write: i64,
    pub(super) reasoning: i64,
    pub(super) cost: i64,
    /// Time of the first call and the last, in milliseconds.
    pub(super) first: i64,
    pub(super) last: i64,
}

type Place = (Word, Word, Word, i32);

/// Adds calls up.
#[derive(Debug)]
pub(super) struct Rollup<'a> {
    files: &'a [Option<FileFacts>],
    words: &'a Words,
    days: &'a Days,
    /// Calls before are left out.
    since: Option<Timestamp>,
    prices: CheapMap<u32, Option<Prices>>,
    sums: CheapMap<Place, Sums>,
}

impl<'a> Rollup<'a> {
    pub(super) fn new(
        files: &'a [Option<FileFacts>],
        words: &'a Words,
        days: &'a Days,
        since: Option<Timestamp>,
    ) -> Self {
        Self { files, words, days, since, prices: CheapMap::default(), sums: CheapMap::default() }
    }

    pub(super) fn add(&mut self, group: &Group<'_>) {
        let Some((file, told)) = owned(group, self.files, self.words) else { return };
        if self.since.is_some_and(|since| told.at < since) {
            return;
        }
        let words = self.words;
        let prices = self.prices.entry(told.model.0).or_insert_with(|| Prices::of(words.text(told.model)));
        let cost = prices.as_ref().and_then(|prices| prices.cost(&told.tokens, told.tier));
        let place = (file.agent, file.conversation, told.model, self.days.number(told.at));
        let none = Sums { first: i64::MAX, last: i64::MIN, ..Sums::default() };
        self.sums.entry(place).or_insert(none).add(&told, cost);
    }

    /// In an order that is always the same.
    pub(super) fn cells(self) -> Vec<Cell> {
        let mut cells: Vec<_> = self
            .sums
            .into_iter()
            .map(|((agent, conversation, model, day), sums)| Cell { agent, conversation, model, day, sums })
            .collect();
        cells.sort_unstable_by_key(|cell| (cell.day, cell.agent, cell.conversation, cell.model));
        cells
    }
}

/// Whose a call is among the files in view, and what is told of it; `None`: nobody's here.
pub(super) fn owned<'a>(
    group: &Group<'_>,
    files: &'a [Option<FileFacts>],
    words: &Words,
) -> Option<(&'a FileFacts, Told)> {
    // The store's is the highest number.
    if group.told.last()?.file == STORE {
        return None;
    }
    let seen = || {
        group.told.iter().filter_map(|told| {
            let file = files.get(told.file as usize)?.as_ref()?;
            file.in_view.then_some((file, told))
        })
    };
    let mut views = seen();
    let first = views.next()?;
    let owner = views.fold(first, |owner, other| {
        let rank = |(file, told): (&FileFacts, &Told)| (told.copied, file.birth());
        let id = |file: &FileFacts| words.text(file.conversation);
        if (rank(other), id(other.0)) < (rank(owner), id(owner.0)) { other } else { owner }
    });
    let mut told = *owner.1;
    for (_, other) in seen() {
        told.revise(other);
    }
    Some((owner.0, told))
}

impl Sums {
    fn add(&mut self, told: &Told, cost: Option<PicoDollars>) {
        let add = |sum: &mut i64, count: u64| {
            *sum = sum.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
        };
        let tokens = &told.tokens;
        self.calls += 1;
        self.unpriced += i64::from(cost.is_none());
        add(&mut self.input, tokens.input);
        add(&mut self.output, tokens.output);
        add(&mut self.cache_read, tokens.cache_read);
        add(&mut self.cache_write, tokens.cache_write());
        add(&mut self.reasoning, tokens.reasoning);
        self.cost = self.cost.saturating_add(cost.unwrap_or_default().0);
        self.first = self.first.min(told.at.0);
        self.last = self.last.max(told.at.0);
    }
}

/// Whether the roll-ups alone tell what came since: no day of a conversation has calls before and after.
pub(super) fn tell(cells: &[Cell], since: Timestamp) -> bool {
    cells.iter().all(|cell| cell.sums.first >= since.0 || cell.sums.last < since.0)
}

/// What the conversations are, as their files tell: the oldest file in view that knows.
#[derive(Debug)]
pub(super) struct Conversations<'a>(HashMap<(Word, Word), &'a FileFacts>);

impl<'a> Conversations<'a> {
    pub(super) fn of(index: &'a Index) -> Self {
        let mut known: HashMap<_, &FileFacts> = HashMap::new();
        for file in index.files.iter().flatten().filter(|file| file.in_view) {
            let rank = |file: &FileFacts| (file.project == Word::NONE, file.birth());
            let entry = known.entry((file.agent, file.conversation)).or_insert(file);
            if rank(file) < rank(entry) {
                *entry = file;
            }
        }
        Self(known)
    }

    pub(super) fn get(&self, agent: Word, conversation: Word) -> Option<&'a FileFacts> {
        self.0.get(&(agent, conversation)).copied()
    }
}

/// The table that is asked for.
pub(super) fn rows(index: &Index, cells: &[Cell], by: By) -> Vec<UsageRow> {
    let words = &index.words;
    let conversations =
        matches!(by, By::Session | By::Project | By::Branch).then(|| Conversations::of(index));
    let fact = |cell: &Cell, fact: fn(&FileFacts) -> Word| {
        let file =
            conversations.as_ref().and_then(|known| known.get(cell.agent, cell.conversation)).map(fact);
        file.unwrap_or_default()
    };
    // What makes a row, as numbers; the texts are looked up once per row.
    let mut rows: BTreeMap<(Word, i32, Word), UsageRow> = BTreeMap::new();
    for cell in cells {
        let key = match by {
            By::Day => (Word::NONE, cell.day, Word::NONE),
            // Two agents' conversations are two, even under one id.
            By::Session => (cell.conversation, 0, cell.agent),
            By::Model => (cell.model, 0, Word::NONE),
            By::Project => (fact(cell, |file| file.project), 0, Word::NONE),
            By::Agent => (cell.agent, 0, Word::NONE),
            By::Branch => (fact(cell, |file| file.branch), 0, Word::NONE),
        };
        let agent = words.text(cell.agent);
        let row = rows.entry(key).or_insert_with(|| UsageRow {
            key: match by {
                By::Day => days::name(cell.day),
                By::Project | By::Branch => words.some(key.0).unwrap_or("(none)").to_owned(),
                By::Session | By::Model | By::Agent => words.text(key.0).to_owned(),
            },
            agent: Some(agent.to_owned()),
            first_at: Timestamp(cell.sums.first),
            foreign: true,
            project: words.some(fact(cell, |file| file.project)).map(str::to_owned),
            ..UsageRow::default()
        });
        let sums = &cell.sums;
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
        let model = words.text(cell.model);
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
