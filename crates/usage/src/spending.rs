//! What calls used and cost, added up finely enough that every table of `usage` is made of it.

use std::collections::HashMap;
use std::path::PathBuf;

use types::{CallSums, PicoDollars, Timestamp, Tokens, is_unattributed};

/// Calls, added up by owner, model, local quarter of an hour and place. The texts stand beside the numbers, once each.
#[derive(Clone, Debug, Default)]
pub struct Spending {
    /// Also those that called nothing.
    pub owners: Vec<Owner>,
    pub models: Vec<String>,
    pub places: Vec<Place>,
    pub portions: Vec<Portion>,
    /// What is known of the commits that places name.
    pub commits: HashMap<String, CommitFacts>,
}

/// A commit as its repository on this machine has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitFacts {
    /// The first line of its message; `None` where git does not give it.
    pub subject: Option<String>,
    pub at: Option<Timestamp>,
}

/// What made calls: a session, or a conversation that never was one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    pub agent: String,
    /// The agent's own session id.
    pub conversation: Option<String>,
    /// `None`: a scan found it.
    pub session: Option<OwnerSession>,
    pub project: Option<String>,
    pub repository: Option<String>,
    pub folder: Option<PathBuf>,
    pub branch: Option<String>,
}

impl Owner {
    /// Whether its calls name no conversation: they are one row, not sessions. Such have no project, which tells them from a
    /// session that somebody has named and tagged alike.
    pub fn is_unattributed(&self) -> bool {
        let session = self.session.as_ref().filter(|_| self.project.is_none());
        session.is_some_and(|session| is_unattributed(&self.agent, &session.name, &session.tags))
    }
}

/// The facts about a session that only codemie knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerSession {
    /// As people and scripts see it.
    pub id: String,
    pub name: String,
    pub started_at: Timestamp,
    pub group: Option<String>,
    pub tags: Vec<String>,
    /// The id of the first session of its chain of `/clear`s.
    pub chain: String,
    /// The id of the session at the top of those that started each other; its own where nobody started it.
    pub root: String,
    /// The demonstration, which is not counted.
    pub local_only: bool,
}

/// Where in its repository a call was made, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    pub branch: Option<String>,
    pub commit: Option<String>,
}

/// A call, as far as its place can be known by.
#[derive(Debug)]
pub struct SpentCall<'a> {
    pub owner: &'a Owner,
    pub at: Timestamp,
    /// What was checked out.
    pub branch: Option<&'a str>,
    pub head: Option<&'a str>,
}

pub type PlaceOf<'a> = &'a mut dyn FnMut(&SpentCall<'_>) -> Place;

/// Its numbers are places in the lists of [`Spending`]. A sum by whole days has the first quarter of the day as its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    pub owner: u32,
    pub model: u32,
    pub place: Option<u32>,
    pub quarter: i32,
    pub sums: DatedSums,
}

/// Sums of calls, and when they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatedSums {
    pub calls: CallSums,
    /// Calls without a price.
    pub unpriced: i64,
    /// Time of the first call and the last.
    pub first: Timestamp,
    pub last: Timestamp,
}

impl Default for DatedSums {
    fn default() -> Self {
        let (first, last) = (Timestamp(i64::MAX), Timestamp(i64::MIN));
        Self { calls: CallSums::default(), unpriced: 0, first, last }
    }
}

impl DatedSums {
    /// One call.
    pub fn of(at: Timestamp, tokens: &Tokens, cost: Option<PicoDollars>) -> Self {
        let calls = CallSums::of(tokens, cost);
        Self { calls, unpriced: i64::from(cost.is_none()), first: at, last: at }
    }

    pub fn add(&mut self, more: &Self) {
        self.calls.add(&more.calls);
        self.unpriced = self.unpriced.saturating_add(more.unpriced);
        self.first = self.first.min(more.first);
        self.last = self.last.max(more.last);
    }
}

/// Spending as it grows.
#[derive(Debug, Default)]
pub struct SpendingBuilder {
    pub spending: Spending,
    models: HashMap<String, u32>,
    places: HashMap<Place, u32>,
    portions: HashMap<(u32, u32, Option<u32>, i32), usize>,
}

impl SpendingBuilder {
    pub fn add(&mut self, owner: u32, model: &str, place: Option<Place>, quarter: i32, call: &DatedSums) {
        let model = if let Some(&known) = self.models.get(model) {
            known
        } else {
            let number = index(self.spending.models.len());
            self.spending.models.push(model.to_owned());
            self.models.insert(model.to_owned(), number);
            number
        };
        let (known, list) = (&mut self.places, &mut self.spending.places);
        let place = place.map(|place| {
            *known.entry(place).or_insert_with_key(|place| {
                list.push(place.clone());
                index(list.len() - 1)
            })
        });
        let portions = &mut self.spending.portions;
        let at = *self.portions.entry((owner, model, place, quarter)).or_insert_with(|| {
            portions.push(Portion { owner, model, place, quarter, sums: DatedSums::default() });
            portions.len() - 1
        });
        portions[at].sums.add(call);
    }
}

pub fn index(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
