//! What calls used and cost, added up finely enough that every table of `usage` is made of it.

use std::collections::HashMap;
use std::path::PathBuf;

use rusqlite::{Row, params};

use super::{Error, View};
use agents::meter::record::LONGEST_KEY;
use os::calendar::LocalClock;
use types::{PicoDollars, Timestamp};

/// From a moment up to another, which is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

impl Span {
    pub fn since(at: Timestamp) -> Self {
        Self { since: Some(at), until: None }
    }

    pub fn holds(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }

    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }
}

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
    pub sums: CallSums,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSums {
    pub calls: i64,
    /// Calls without a price.
    pub unpriced: i64,
    pub input: i64,
    pub output: i64,
    pub cache_read: i64,
    pub cache_write: i64,
    pub reasoning: i64,
    pub cost: PicoDollars,
    /// Time of the first call and the last.
    pub first: Timestamp,
    pub last: Timestamp,
}

impl Default for CallSums {
    fn default() -> Self {
        Self {
            calls: 0,
            unpriced: 0,
            input: 0,
            output: 0,
            cache_read: 0,
            cache_write: 0,
            reasoning: 0,
            cost: PicoDollars(0),
            first: Timestamp(i64::MAX),
            last: Timestamp(i64::MIN),
        }
    }
}

impl CallSums {
    pub fn add(&mut self, more: &Self) {
        for (sum, more) in [
            (&mut self.calls, more.calls),
            (&mut self.unpriced, more.unpriced),
            (&mut self.input, more.input),
            (&mut self.output, more.output),
            (&mut self.cache_read, more.cache_read),
            (&mut self.cache_write, more.cache_write),
            (&mut self.reasoning, more.reasoning),
            (&mut self.cost.0, more.cost.0),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.first = self.first.min(more.first);
        self.last = self.last.max(more.last);
    }

    /// Everything billed.
    pub fn tokens(&self) -> i64 {
        [self.input, self.output, self.cache_read, self.cache_write].into_iter().fold(0, i64::saturating_add)
    }
}

/// A call as the database holds it.
fn read_call(row: &Row<'_>, first: usize) -> rusqlite::Result<CallSums> {
    let number = |index: usize| row.get::<_, Option<i64>>(first + index).map(Option::unwrap_or_default);
    let (at, cost): (Timestamp, Option<PicoDollars>) = (row.get(first)?, row.get(first + 1)?);
    Ok(CallSums {
        calls: 1,
        unpriced: i64::from(cost.is_none()),
        input: number(2)?,
        output: number(3)?,
        cache_read: number(4)?,
        cache_write: number(5)?.saturating_add(number(6)?),
        reasoning: number(7)?,
        cost: cost.unwrap_or_default(),
        first: at,
        last: at,
    })
}

const CALL: &str =
    "r.at, r.cost, r.input, r.output, r.cache_read, r.cache_write_5m, r.cache_write_1h, r.reasoning";

/// Spending as it grows.
#[derive(Default)]
struct Adder {
    spending: Spending,
    models: HashMap<String, u32>,
    places: HashMap<Place, u32>,
    portions: HashMap<(u32, u32, Option<u32>, i32), usize>,
}

impl Adder {
    fn add(&mut self, owner: u32, model: &str, place: Option<Place>, quarter: i32, call: &CallSums) {
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
            portions.push(Portion { owner, model, place, quarter, sums: CallSums::default() });
            portions.len() - 1
        });
        portions[at].sums.add(call);
    }
}

pub(crate) fn index(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

impl View<'_> {
    /// The calls of all sessions within a span, those of pruned ones included; local ones, the demonstration's, are left out.
    pub fn spending(&self, clock: &LocalClock, span: Span) -> Result<Spending, Error> {
        self.spending_by_place(clock, span, None)
    }

    /// The same by place, which `place_of` finds for each call; of pruned ones none is known.
    pub fn spending_by_place(
        &self,
        clock: &LocalClock,
        span: Span,
        mut place_of: Option<PlaceOf<'_>>,
    ) -> Result<Spending, Error> {
        let mut adder = Adder::default();
        let (owners, here, pruned) = self.owners()?;
        adder.spending.owners = owners;
        let records = "r.branch, r.head FROM record r WHERE r.kind = 'usage' AND";
        let pruned_calls = "NULL, NULL FROM pruned_call r WHERE";
        for (calls, numbers) in [(records, here), (pruned_calls, pruned)] {
            // Without bounds the table is read as it lies; by time it would be read row by row.
            let within = if span.is_everything() { "1 OR ?1 = ?2" } else { "r.at >= ?1 AND r.at < ?2" };
            let since = span.since.unwrap_or(Timestamp(i64::MIN));
            let until = span.until.unwrap_or(Timestamp(i64::MAX));
            let sql = format!("SELECT r.session, r.model, {CALL}, {calls} ({within})");
            self.each(&sql, params![since, until], |row| {
                let Some(&owner) = numbers.get(&row.get::<_, i64>(0)?) else { return Ok(()) };
                let call = read_call(row, 2)?;
                let model = row.get_ref(1)?.as_str_or_null()?.unwrap_or_default();
                let place = match &mut place_of {
                    Some(place_of) => {
                        let [branch, head] =
                            [row.get_ref(10)?.as_str_or_null()?, row.get_ref(11)?.as_str_or_null()?];
                        let owner = &adder.spending.owners[owner as usize];
                        Some(place_of(&SpentCall { owner, at: call.first, branch, head }))
                    }
                    None => None,
                };
                adder.add(owner, model, place, clock.quarter(call.first), &call);
                Ok(())
            })?;
        }
        Ok(adder.spending)
    }

    /// All sessions; and where those that are counted stand in the list, by their numbers: here, and pruned.
    fn owners(&self) -> Result<(Vec<Owner>, HashMap<i64, u32>, HashMap<i64, u32>), Error> {
        let mut owners = Vec::new();
        let mut tags: HashMap<i64, Vec<String>> = HashMap::new();
        self.each("SELECT session, tag FROM tag ORDER BY session, tag", [], |row| {
            tags.entry(row.get(0)?).or_default().push(row.get(1)?);
            Ok(())
        })?;
        // By id: the id that is shown, and where it was come to from when it was first opened. Later openings may lead back.
        let mut known: Links = HashMap::new();
        // The same for the session that it was started from inside of.
        let mut parents: Links = HashMap::new();
        let mut here = HashMap::new();
        self.each(
            "SELECT s.n, s.id, ifnull(s.former_id, s.id), s.name, s.agent, s.agent_session, s.started_at, s.project,
               s.repository, s.branch, s.grp, s.cwd, s.local_only, o.transitioned_from, p.id
             FROM session s LEFT JOIN opening o ON o.session = s.n AND o.number = 1 LEFT JOIN session p ON p.n = s.parent",
            [],
            |row| {
                let n: i64 = row.get(0)?;
                let owner = read_owner(row, row.get(11)?, row.get(12)?, tags.remove(&n).unwrap_or_default())?;
                known.insert(row.get(1)?, (row.get(2)?, row.get(13)?));
                parents.insert(row.get(1)?, (row.get(2)?, row.get(14)?));
                if owner.session.as_ref().is_some_and(|session| !session.local_only) {
                    here.insert(n, index(owners.len()));
                }
                owners.push(owner);
                Ok(())
            },
        )?;
        let mut pruned = HashMap::new();
        self.each(
            "SELECT n, id, id, name, agent, agent_session, started_at, project, repository, branch, grp, tags,
               transitioned_from
             FROM pruned_session",
            [],
            |row| {
                let tags: String = row.get(11)?;
                let owner = read_owner(row, None, false, serde_json::from_str(&tags).unwrap_or_default())?;
                known.entry(row.get(1)?).or_insert((row.get(2)?, row.get(12)?));
                pruned.insert(row.get::<_, i64>(0)?, index(owners.len()));
                owners.push(owner);
                Ok(())
            },
        )?;
        for owner in &mut owners {
            if let Some(session) = &mut owner.session {
                session.chain = first_of(&session.chain, &known);
                session.root = first_of(&session.root, &parents);
            }
        }
        Ok((owners, here, pruned))
    }

    /// Hands out the rows of a query, which may be many.
    fn each(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        mut each: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        let read = || {
            let mut statement = self.conn.prepare_cached(sql)?;
            let mut rows = statement.query(params)?;
            while let Some(row) = rows.next()? {
                each(row)?;
            }
            Ok(())
        };
        self.noted(read())
    }

    /// Changes whenever a call gets an owner here or loses it: numbers that rise with every record, and what shows that a
    /// session was deleted, or deleted and another one made in its place.
    pub fn owned_calls_mark(&self) -> Result<[i64; 5], Error> {
        self.one(
            "SELECT count(*), ifnull(sum(n), 0), ifnull(sum(started_at), 0),
               (SELECT ifnull(max(n), 0) FROM record) + (SELECT ifnull(max(n), 0) FROM record_alias), (SELECT change FROM outbox)
             FROM session",
            [],
            |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]),
        )
    }

    /// Hands out agent and key of every call that has an owner here, or had one that was pruned. A key that no line is read
    /// with any more, but once was, is nobody's.
    pub fn each_owned_call(&self, mut each: impl FnMut(&str, &str)) -> Result<(), Error> {
        let owned =
            "SELECT agent, key FROM record WHERE kind = 'usage' UNION ALL SELECT agent, key FROM pruned_call
             UNION ALL SELECT agent, key FROM record_alias WHERE kind = 'usage'
             UNION ALL SELECT agent, key FROM pruned_alias";
        self.each(owned, [], |row| {
            let (agent, key) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            if key.len() <= LONGEST_KEY {
                each(agent, key);
            }
            Ok(())
        })
    }
}

/// Columns 1 to 10; where it worked is known of those that are still here.
fn read_owner(
    row: &Row<'_>,
    folder: Option<String>,
    local_only: bool,
    tags: Vec<String>,
) -> rusqlite::Result<Owner> {
    Ok(Owner {
        agent: row.get(4)?,
        conversation: row.get(5)?,
        session: Some(OwnerSession {
            id: row.get(2)?,
            name: row.get(3)?,
            started_at: row.get(6)?,
            group: row.get(10)?,
            tags,
            chain: row.get(1)?,
            root: row.get(1)?,
            local_only,
        }),
        project: row.get(7)?,
        repository: row.get(8)?,
        branch: row.get(9)?,
        folder: folder.map(PathBuf::from),
    })
}

/// By the id of a session: the id that is shown, and the session before it or above it.
type Links = HashMap<String, (String, Option<String>)>;

/// The first session on the way back from `id`, as far as sessions are known.
fn first_of(id: &str, known: &Links) -> String {
    let mut first = id;
    // A chain is not longer than there are sessions; a damaged one may lead in a circle.
    for _ in 0..known.len() {
        let Some((_, Some(before))) = known.get(first) else { break };
        if !known.contains_key(before) {
            break;
        }
        first = before;
    }
    known.get(first).map_or(first, |(shown, _)| shown).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_its_first_session_known() {
        let session =
            |id: &str, from: Option<&str>| (id.to_owned(), (format!("{id}-shown"), from.map(str::to_owned)));
        let known = HashMap::from([
            session("a", None),
            session("b", Some("a")),
            session("c", Some("b")),
            session("later", Some("deleted")),
            session("x", Some("y")),
            session("y", Some("x")),
        ]);
        for (id, first) in [("a", "a"), ("b", "a"), ("c", "a"), ("later", "later")] {
            assert_eq!(first_of(id, &known), format!("{first}-shown"));
        }
        assert!(first_of("x", &known).ends_with("-shown"), "a circle ends");
    }

    #[test]
    fn a_span_holds_its_beginning_and_not_its_end() {
        let span = Span { since: Some(Timestamp(5)), until: Some(Timestamp(7)) };
        assert_eq!([4, 5, 6, 7].map(|at| span.holds(Timestamp(at))), [false, true, true, false]);
        assert!(Span::default().holds(Timestamp(i64::MIN)) && Span::default().is_everything());
    }
}
