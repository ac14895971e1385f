//! Chains: the sessions that follow one another by a `/clear` or a switch.
//!
//! A session describes its last opening only. Where one that was opened again came from, or went to, before that is found
//! in the events of its earlier openings.

use std::collections::HashSet;

use super::sessions::{all, by_id, openings};
use super::{SqlDatabase, fetch};
use crate::sql::{self, Query, text};
use reader::Error;
use reader::{Session, TimelineEvent};
use types::Attributes;

/// A chain longer than this, to either side, is cut.
const CHAIN: usize = 50;

/// Where a session came from and went to, by the last opening that reports it.
#[derive(Debug, Default, PartialEq, Eq)]
struct ChainLinks {
    from: Option<String>,
    to: Option<String>,
}

impl ChainLinks {
    async fn of(database: &dyn SqlDatabase, session: &Session) -> Result<Self, Error> {
        let last = Self {
            from: session.transitioned_from().map(str::to_owned),
            to: session.transitioned_to().map(str::to_owned),
        };
        if session.life.starts < 2 || (last.from.is_some() && last.to.is_some()) {
            return Ok(last);
        }
        let earlier = Self::of_openings(&openings(database, &session.id).await?);
        Ok(Self { from: last.from.or(earlier.from), to: last.to.or(earlier.to) })
    }

    fn of_openings(openings: &[TimelineEvent]) -> Self {
        let mut links = Self::default();
        for event in openings {
            let (reported, end) = match &event.attributes {
                Attributes::Start(start) => (&start.transitioned_from, &mut links.from),
                Attributes::End(end) => (&end.transitioned_to, &mut links.to),
                _ => continue,
            };
            if let Some(reported) = reported {
                *end = Some(reported.to_string());
            }
        }
        links
    }
}

/// Back and forth along the transitions. A switch back makes a ring of it, which is walked once.
pub(super) async fn chain(database: &dyn SqlDatabase, session: &Session) -> Result<Vec<Session>, Error> {
    let mut seen = HashSet::from([session.id.clone()]);
    let mut chain = Vec::new();
    let mut at = session.clone();
    while chain.len() < CHAIN
        && let Some(from) = ChainLinks::of(database, &at).await?.from
        && seen.insert(from.clone())
        && let Some(earlier) = by_id(database, &from).await?
    {
        chain.push(earlier.clone());
        at = earlier;
    }
    chain.reverse();
    chain.push(session.clone());
    at = session.clone();
    for _ in 0..CHAIN {
        let Some(later) = successor(database, &at).await? else { break };
        if !seen.insert(later.id.clone()) {
            break;
        }
        chain.push(later.clone());
        at = later;
    }
    Ok(chain)
}

/// The session that follows this one; found by its START if this one's END has not come.
async fn successor(database: &dyn SqlDatabase, session: &Session) -> Result<Option<Session>, Error> {
    if let Some(next) = ChainLinks::of(database, session).await?.to {
        return by_id(database, &next).await;
    }
    let mut query = all();
    query.and_equal("s.transitioned_from", Some(&*session.id));
    query.push(" ORDER BY s.started_at DESC, s.id DESC LIMIT 1");
    Ok(fetch(database, query, sql::session).await?.pop())
}

/// The sessions that another one follows, and the reopened ones whose events report a transition.
pub(super) async fn chained(
    database: &dyn SqlDatabase,
    ids: Vec<String>,
    reopened: Vec<String>,
) -> Result<Vec<String>, Error> {
    let mut chained = Vec::new();
    if !ids.is_empty() {
        let mut query = Query::new("SELECT DISTINCT s.transitioned_from AS id FROM session s WHERE true");
        let ids = query.bind(ids);
        query.push(&format!(" AND {}", database.dialect().among("s.transitioned_from", &ids)));
        chained = fetch(database, query, |row| text(row, "id")).await?;
    }
    if !reopened.is_empty() {
        let mut query = Query::new(
            "SELECT DISTINCT s.id AS id FROM session s JOIN event e ON e.session = s.n
             WHERE e.kind IN ('session.start', 'session.end')",
        );
        let reopened = query.bind(reopened);
        query.push(&format!(" AND {}", database.dialect().among("s.id", &reopened)));
        let reported = [r#""transitionedFrom":""#, r#""transitionedTo":""#].map(|field| {
            let field = query.bind(field);
            database.dialect().contains("e.attributes", &field)
        });
        query.push(&format!(" AND ({})", reported.join(" OR ")));
        chained.extend(fetch(database, query, |row| text(row, "id")).await?);
    }
    Ok(chained)
}
