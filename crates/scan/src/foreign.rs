//! Calls that no session of the store owns, as sessions with their calls: for a backfill.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;

use pricing::PriceList;

use super::call::Sighting;
use super::merge::merge;
use super::rollup::{Conversations, owned};
use super::run::SortedRun;
use super::strings::StringId;
use super::{Error, Scanned, Scanner, readers};

use agents::meter::record::{Fact, Record, Usage};
use store::{Priced, View};
use types::AgentSessionId;
use types::Span;
use usage::DatedSums;

/// Calls handed out from one pass over all of them. Why 50,000: some ten megabytes, and a gigabyte of sessions needs eight
/// passes.
const AT_ONCE: i64 = 50_000;

/// A conversation with the calls that no session of the store owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignSession {
    pub agent: String,
    pub conversation: AgentSessionId,
    pub project: Option<String>,
    pub repository: Option<String>,
    pub branch: Option<String>,
    pub version: Option<String>,
    /// One of its files: the oldest that names its project, if one does.
    pub file: PathBuf,
    /// Of these calls. Their tokens grow also while a call is still being written.
    pub sums: DatedSums,
    /// The models that were called, and those among them that have no price, both in the order of the alphabet.
    pub models: BTreeSet<String>,
    pub unpriced_models: BTreeSet<String>,
}

/// All foreign conversations of one scan. Holds no lock and no view of the store: its content is as of the scan.
#[derive(Debug)]
pub struct ForeignSessions {
    scanned: Scanned,
    prices: PriceList,
    owned: Vec<SortedRun>,
    /// The keys of the sessions, in the same order.
    keys: Vec<(StringId, StringId)>,
    pub sessions: Vec<ForeignSession>,
}

impl Scanner<'_> {
    /// Scans, and gives the calls that no session of the store owns.
    pub fn foreign(&self, store: Option<&View<'_>>) -> Result<ForeignSessions, Error> {
        let mut scanned = self.scan(store, Span::default())?;
        let owned = scanned.owned(&self.folder, store)?;
        let strings = &scanned.index.strings;
        let known = Conversations::of(&scanned.index);
        let mut sessions: HashMap<(StringId, StringId), ForeignSession> = HashMap::new();
        for entry in &scanned.daily {
            let file = known.get(entry.agent, entry.conversation);
            let fact = |id: Option<StringId>| strings.some(id?).map(str::to_owned);
            let session =
                sessions.entry((entry.agent, entry.conversation)).or_insert_with(|| ForeignSession {
                    agent: strings.text(entry.agent).to_owned(),
                    conversation: AgentSessionId(strings.text(entry.conversation).to_owned()),
                    project: fact(file.map(|file| file.project)),
                    repository: fact(file.map(|file| file.repository)),
                    branch: fact(file.map(|file| file.branch)),
                    version: fact(file.map(|file| file.version)),
                    file: file.map_or_else(PathBuf::new, |file| file.path.clone()),
                    sums: DatedSums::default(),
                    models: BTreeSet::new(),
                    unpriced_models: BTreeSet::new(),
                });
            session.sums.add(&entry.sums);
            let model = strings.text(entry.model);
            if !session.models.contains(model) {
                session.models.insert(model.to_owned());
            }
            if entry.sums.unpriced > 0 && !session.unpriced_models.contains(model) {
                session.unpriced_models.insert(model.to_owned());
            }
        }
        let mut sessions: Vec<_> = sessions.into_iter().collect();
        sessions.sort_by(|(_, a), (_, b)| {
            (a.sums.first, &a.agent, &a.conversation).cmp(&(b.sums.first, &b.agent, &b.conversation))
        });
        let (keys, sessions) = sessions.into_iter().unzip();
        Ok(ForeignSessions { scanned, prices: self.prices.clone(), owned, keys, sessions })
    }
}

impl ForeignSessions {
    /// Every session with its calls, those in the order of their times, priced as the meter prices them.
    pub fn calls(&self) -> ForeignCalls<'_> {
        self.calls_of(|_| true)
    }

    /// The same of these sessions alone.
    pub fn calls_of(&self, wanted: impl Fn(&ForeignSession) -> bool) -> ForeignCalls<'_> {
        let wanted = (0..self.sessions.len()).filter(|at| wanted(&self.sessions[*at])).collect();
        ForeignCalls { foreign: self, wanted, next: 0, ready: Vec::new().into_iter() }
    }

    /// The calls of the first of these sessions, as many sessions as fit.
    fn some(&self, wanted: &[usize]) -> io::Result<Vec<Vec<Priced>>> {
        let mut sum = 0;
        let fitting = wanted.iter().take_while(|at| {
            let calls = self.sessions[**at].sums.calls.api_calls;
            let fits = sum == 0 || sum + calls <= AT_ONCE;
            sum += calls;
            fits
        });
        let places: HashMap<(StringId, StringId), usize> =
            fitting.map(|at| self.keys[*at]).zip(0..).collect();
        let mut calls: Vec<Vec<Priced>> = vec![Vec::new(); places.len()];
        let index = &self.scanned.index;
        merge(readers(&self.scanned.calls, &self.owned), |group| {
            if let Some((file, sighting)) = owned(group, &index.files, &index.strings)
                && let Some(&place) = places.get(&(file.agent, file.conversation))
            {
                calls[place].push(self.priced(group.key, &sighting));
            }
            Ok(())
        })?;
        for calls in &mut calls {
            calls.sort_by(|a, b| (a.record.at, &a.record.key).cmp(&(b.record.at, &b.record.key)));
        }
        Ok(calls)
    }

    fn priced(&self, key: &[u8], sighting: &Sighting) -> Priced {
        let strings = &self.scanned.index.strings;
        let usage = Usage {
            model: strings.text(sighting.model).to_owned(),
            tokens: sighting.tokens,
            tier: sighting.tier,
            request_id: None,
        };
        let record = Record {
            key: String::from_utf8_lossy(key).into_owned(),
            at: sighting.at,
            copied: sighting.copied,
            subagent: strings.some(sighting.subagent).map(str::to_owned),
            fact: Fact::Usage(usage),
        };
        Priced::by(&self.prices, record)
    }
}

/// The foreign sessions one by one, each with its calls. Memory holds the calls of some sessions at a time.
#[derive(Debug)]
pub struct ForeignCalls<'a> {
    foreign: &'a ForeignSessions,
    /// Places in the list of sessions.
    wanted: Vec<usize>,
    next: usize,
    ready: std::vec::IntoIter<Vec<Priced>>,
}

impl<'a> Iterator for ForeignCalls<'a> {
    type Item = io::Result<(&'a ForeignSession, Vec<Priced>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let session = &self.foreign.sessions[*self.wanted.get(self.next)?];
        let calls = match self.ready.next() {
            Some(calls) => calls,
            None => match self.foreign.some(&self.wanted[self.next..]) {
                Ok(ready) => {
                    self.ready = ready.into_iter();
                    self.ready.next()?
                }
                Err(error) => {
                    self.next = self.wanted.len();
                    return Some(Err(error));
                }
            },
        };
        self.next += 1;
        Some(Ok((session, calls)))
    }
}
