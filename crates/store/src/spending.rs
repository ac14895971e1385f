//! The calls in the store, added up as every table of `usage` needs them.

use std::collections::HashMap;
use std::path::PathBuf;

use rusqlite::{Row, params};

use super::row::read_row;
use super::{Error, View};
use agents::meter::record::LONGEST_KEY;
use os::calendar::LocalClock;
use types::row::RowColumns;
use types::{PicoDollars, Span, Timestamp, Tokens, row};
use usage::{DatedSums, Owner, OwnerSession, PlaceOf, Spending, SpendingBuilder, SpentCall, index};

row! {
    /// A call as the database holds it; model, branch and head follow in the SELECT.
    struct StoredCall from "r" {
        session: i64,
        at: Timestamp,
        cost: Option<PicoDollars>,
        tokens: Tokens [row],
    }
}

row! {
    /// A session that is here, with what it may be counted for.
    struct OwnerRow from "s" {
        n: i64,
        id: String,
        shown: String = "ifnull(s.former_id, s.id)",
        name: String,
        agent: String,
        agent_session: Option<String>,
        started_at: Timestamp,
        project: Option<String>,
        repository: Option<String>,
        branch: Option<String>,
        group: Option<String> = "s.grp",
        /// Where it worked.
        folder: Option<String> = "s.cwd",
        local_only: bool,
        /// The session before it when it was first opened. Later openings may lead back.
        came_from: Option<String> = "o.transitioned_from",
        /// The session that it was started from inside of.
        parent: Option<String> = "p.id",
        /// JSON.
        tags: String = "'[]'",
    }
}

row! {
    /// The same of one that was pruned.
    struct PrunedOwnerRow from "s" {
        row: OwnerRow = "s.n, s.id, s.id, s.name, s.agent, s.agent_session, s.started_at, s.project, s.repository, s.branch, s.grp, NULL, 0, s.transitioned_from, NULL, s.tags" [row],
    }
}

impl OwnerRow {
    fn owner(self, tags: Vec<String>) -> Owner {
        Owner {
            agent: self.agent,
            conversation: self.agent_session,
            session: Some(OwnerSession {
                chain: self.id.clone(),
                root: self.id,
                id: self.shown,
                name: self.name,
                started_at: self.started_at,
                group: self.group,
                tags,
                local_only: self.local_only,
            }),
            project: self.project,
            repository: self.repository,
            branch: self.branch,
            folder: self.folder.map(PathBuf::from),
        }
    }
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
        let mut adder = SpendingBuilder::default();
        let (owners, here, pruned) = self.owners()?;
        adder.spending.owners = owners;
        let records = "r.branch, r.head FROM record r WHERE r.kind = 'usage' AND";
        let pruned_calls = "NULL, NULL FROM pruned_call r WHERE";
        for (calls, numbers) in [(records, here), (pruned_calls, pruned)] {
            // Without bounds the table is read as it lies; by time it would be read row by row.
            let within = if span.is_everything() { "1 OR ?1 = ?2" } else { "r.at >= ?1 AND r.at < ?2" };
            let since = span.since.unwrap_or(Timestamp(i64::MIN));
            let until = span.until.unwrap_or(Timestamp(i64::MAX));
            let sql = format!("SELECT {}, r.model, {calls} ({within})", StoredCall::COLUMNS);
            self.each(&sql, params![since, until], |row| {
                let call: StoredCall = read_row(row)?;
                let Some(&owner) = numbers.get(&call.session) else { return Ok(()) };
                let text = |index: usize| -> rusqlite::Result<Option<&str>> {
                    Ok(row.get_ref(StoredCall::WIDTH + index)?.as_str_or_null()?)
                };
                let model = text(0)?.unwrap_or_default();
                let place = match &mut place_of {
                    Some(place_of) => {
                        let (branch, head) = (text(1)?, text(2)?);
                        let owner = &adder.spending.owners[owner as usize];
                        Some(place_of(&SpentCall { owner, at: call.at, branch, head }))
                    }
                    None => None,
                };
                let sums = DatedSums::of(call.at, &call.tokens, call.cost);
                adder.add(owner, model, place, clock.quarter(call.at), &sums);
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
            let (session, tag): (i64, String) = read_row(row)?;
            tags.entry(session).or_default().push(tag);
            Ok(())
        })?;
        // By id: the id that is shown, and where it was come to from.
        let mut known: Links = HashMap::new();
        // The same for the session that it was started from inside of.
        let mut parents: Links = HashMap::new();
        let mut here = HashMap::new();
        let from = "FROM session s LEFT JOIN opening o ON o.session = s.n AND o.number = 1
                    LEFT JOIN session p ON p.n = s.parent";
        self.each(&OwnerRow::select(from), [], |row| {
            let mut row: OwnerRow = read_row(row)?;
            known.insert(row.id.clone(), (row.shown.clone(), row.came_from.take()));
            parents.insert(row.id.clone(), (row.shown.clone(), row.parent.take()));
            if !row.local_only {
                here.insert(row.n, index(owners.len()));
            }
            let tags = tags.remove(&row.n).unwrap_or_default();
            owners.push(row.owner(tags));
            Ok(())
        })?;
        let mut pruned = HashMap::new();
        self.each(&PrunedOwnerRow::select("FROM pruned_session s"), [], |row| {
            let PrunedOwnerRow { mut row } = read_row(row)?;
            known.entry(row.id.clone()).or_insert((row.shown.clone(), row.came_from.take()));
            pruned.insert(row.n, index(owners.len()));
            let tags = serde_json::from_str(&row.tags).unwrap_or_default();
            owners.push(row.owner(tags));
            Ok(())
        })?;
        for owner in &mut owners {
            if let Some(session) = &mut owner.session {
                session.chain = first_of(&session.chain, &known);
                session.root = first_of(&session.root, &parents);
            }
        }
        Ok((owners, here, pruned))
    }

    /// Hands out the rows of a query, which may be many.
    pub(super) fn each(
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
            |row| read_row::<(i64, i64, i64, i64, i64)>(row).map(Into::into),
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
}
