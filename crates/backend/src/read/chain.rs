//! Along the transitions: the sessions that came of one another by a `/clear` or a switch.
//!
//! A session tells of its last opening only. One that was opened again by itself says nothing of where it came from, or went
//! to, before: that stands in the events of its earlier openings.

use std::collections::HashSet;

use super::super::model::{Session, TimelineEvent};
use super::super::sql::{self, Query, text};
use super::super::storage::Error;
use super::Database;
use super::sessions::{all, by_id, openings};
use wire::Attributes;

/// A chain longer than this, to either side, is cut.
const CHAIN: usize = 50;

/// Where a session came from and went to, by the last openings that tell.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ends {
    from: Option<String>,
    to: Option<String>,
}

impl Ends {
    async fn of<D: Database>(database: &D, session: &Session) -> Result<Self, Error> {
        let last = Self {
            from: session.transitioned_from().map(str::to_owned),
            to: session.transitioned_to().map(str::to_owned),
        };
        if session.life.starts < 2 || (last.from.is_some() && last.to.is_some()) {
            return Ok(last);
        }
        let told = Self::told(&openings(database, &session.id).await?);
        Ok(Self { from: last.from.or(told.from), to: last.to.or(told.to) })
    }

    fn told(openings: &[TimelineEvent]) -> Self {
        let mut ends = Self::default();
        for event in openings {
            let (told, end) = match &event.attributes {
                Attributes::Start(start) => (&start.transitioned_from, &mut ends.from),
                Attributes::End(end) => (&end.transitioned_to, &mut ends.to),
                _ => continue,
            };
            if let Some(told) = told {
                *end = Some(told.to_string());
            }
        }
        ends
    }
}

/// Back and forth along the transitions. A switch back makes a ring of it, which is walked once.
pub(super) async fn chain<D: Database>(database: &D, session: &Session) -> Result<Vec<Session>, Error> {
    let mut seen = HashSet::from([session.id.clone()]);
    let mut chain = Vec::new();
    let mut at = session.clone();
    while chain.len() < CHAIN
        && let Some(from) = Ends::of(database, &at).await?.from
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

/// The session that was opened out of this one, as that one tells if this one's END has not come.
async fn successor<D: Database>(database: &D, session: &Session) -> Result<Option<Session>, Error> {
    if let Some(next) = Ends::of(database, session).await?.to {
        return by_id(database, &next).await;
    }
    let mut query = all();
    query.and_equal("s.transitioned_from", Some(&*session.id));
    query.push(" ORDER BY s.started_at DESC, s.id DESC LIMIT 1");
    Ok(database.fetch(query, sql::session).await?.pop())
}

/// Those that another session was opened out of, and of those that were opened again whose events tell a transition.
pub(super) async fn chained<D: Database>(
    database: &D,
    ids: Vec<String>,
    reopened: Vec<String>,
) -> Result<Vec<String>, Error> {
    let mut chained = Vec::new();
    if !ids.is_empty() {
        let mut query = Query::new("SELECT DISTINCT s.transitioned_from FROM session s WHERE true");
        let ids = query.bind(ids);
        query.push(&format!(" AND {}", D::DIALECT.among("s.transitioned_from", &ids)));
        chained = database.fetch(query, |row| text(row, 0)).await?;
    }
    if !reopened.is_empty() {
        let mut query = Query::new(
            "SELECT DISTINCT s.id FROM session s JOIN event e ON e.session = s.n
             WHERE e.kind IN ('session.start', 'session.end')",
        );
        let reopened = query.bind(reopened);
        query.push(&format!(" AND {}", D::DIALECT.among("s.id", &reopened)));
        let told = [r#""transitionedFrom":""#, r#""transitionedTo":""#].map(|field| {
            let field = query.bind(field);
            D::DIALECT.contains("e.attributes", &field)
        });
        query.push(&format!(" AND ({})", told.join(" OR ")));
        chained.extend(database.fetch(query, |row| text(row, 0)).await?);
    }
    Ok(chained)
}
