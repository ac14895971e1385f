//! Sessions: lists of them, and one with everything around it.

use super::super::model::{
    Counted, Cursor, ModelRow, Order, Page, Session, SessionDetail, SessionFilter, SessionPage, Stretch,
    TimelineEvent, TimelinePage, TimelinePlace, ToolNumbers, ToolRow,
};
use super::super::sql::{self, Columns, Query, int, numbers, session_columns, text, time};
use super::super::storage::Error;
use super::chain::chain;
use super::{Database, limit_to, numbers_summed};
use wire::Attributes;
use wire::EventKind;
use wire::PicoDollars;
use wire::Timestamp;

const CHILDREN: i64 = 100;
/// Of the sessions that are found, so many are looked at more closely.
const FOUND: usize = 2000;

pub(super) async fn list<D: Database>(
    database: &D,
    filter: SessionFilter,
    page: Page,
) -> Result<SessionPage, Error> {
    let (limit, order) = (page.limit.clamp(1, Page::MOST), filter.order);
    let mut sessions =
        if let Some(sessions) = found(database, &filter, page.after.as_ref(), limit + 1).await? {
            sessions
        } else {
            let query = listed::<D>(filter, page.after, limit + 1, Matching::Each);
            database.fetch(query, sql::session).await?
        };
    let more = sessions.len() > limit;
    sessions.truncate(limit);
    let next = sessions.last().filter(|_| more).map(|last| Cursor::after(last, order));
    Ok(SessionPage { sessions, next })
}

/// The page, if the first of the sessions in which the words and the tag are found tell. All short rows are looked at
/// before, and few long ones after; a database by itself would read every long one.
async fn found<D: Database>(
    database: &D,
    filter: &SessionFilter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Option<Vec<Session>>, Error> {
    let rank_by = match filter.order {
        Order::Newest if filter.tag.is_none() && filter.search.is_none() => return Ok(None),
        Order::Newest => "w.started_at",
        Order::Dearest => "w.cost",
    };
    let mut query = Query::new(format!("SELECT w.session, {rank_by} FROM session_list w WHERE true"));
    match_words::<D>(&mut query, filter);
    query.and("w.started_at >=", filter.since);
    query.and("w.started_at <", filter.until);
    query.and(&format!("{rank_by} <="), after.map(|cursor| cursor.rank));
    query.push(&format!(" ORDER BY {rank_by} DESC LIMIT {FOUND}"));
    let found = database.fetch(query, |row| Ok((int(row, 0)?, int(row, 1)?))).await?;
    // Those behind the last were left off, and perhaps some beside it.
    let left_off = found.last().filter(|_| found.len() == FOUND).map(|(_, rank)| *rank);
    let numbers: Vec<_> = found.into_iter().map(|(number, _)| number).collect();
    let query = listed::<D>(filter.clone(), after.cloned(), limit, Matching::These(&numbers));
    let sessions = database.fetch(query, sql::session).await?;
    let before = |rank| sessions.iter().all(|session| Cursor::after(session, filter.order).rank > rank);
    let certain = left_off.is_none_or(|rank| sessions.len() == limit && before(rank));
    Ok(certain.then_some(sessions))
}

/// How many there are, as far as anybody wants to know.
pub(super) async fn count<D: Database>(
    database: &D,
    filter: SessionFilter,
    most: i64,
) -> Result<Counted, Error> {
    let mut query = Query::new(format!(
        "SELECT count(*), {}, {} FROM (SELECT s.cost, s.cost_carried, s.unpriced_calls FROM session s WHERE true",
        D::DIALECT.money_sum(""),
        D::DIALECT.sum("unpriced_calls")
    ));
    restrict::<D>(&mut query, filter, Matching::Each);
    query.push(&format!(" LIMIT {most}) counted"));
    Ok(database.fetch(query, counted).await?.pop().unwrap_or_default())
}

fn counted(row: &dyn Columns) -> Result<Counted, Error> {
    let cost_usd = row.float(1)?.unwrap_or(0.0) / 1e12;
    Ok(Counted { sessions: int(row, 0)?, cost_usd, unpriced_calls: int(row, 2)? })
}

pub(super) async fn by_ids<D: Database>(database: &D, ids: Vec<String>) -> Result<Vec<Session>, Error> {
    let mut sessions = Vec::with_capacity(ids.len());
    for ids in ids.chunks(Page::MOST) {
        let mut query = all();
        let ids = query.bind(ids.to_vec());
        query.push(&format!(" AND {}", D::DIALECT.among("s.id", &ids)));
        sessions.extend(database.fetch(query, sql::session).await?);
    }
    Ok(sessions)
}

pub(super) async fn detail<D: Database>(database: &D, id: String) -> Result<Option<SessionDetail>, Error> {
    let Some(session) = by_id(database, &id).await? else { return Ok(None) };
    let mut query = Query::new(format!(
        "SELECT d.model, {} FROM session_day d JOIN session s ON s.n = d.session WHERE d.model <> ''",
        numbers_summed(D::DIALECT, "d.")
    ));
    query.and_equal("s.id", Some(&*id));
    query.push(" GROUP BY d.model ORDER BY d.model");
    let mut models = database.fetch(query, model_row).await?;
    models.retain(|row| !row.numbers.is_zero());
    let mut query = Query::new(
        "SELECT t.tool, t.kind, t.calls, t.errors, t.lines_added, t.lines_removed
         FROM session_tool t JOIN session s ON s.n = t.session WHERE t.calls > 0",
    );
    query.and_equal("s.id", Some(&*id));
    query.push(" ORDER BY t.calls DESC, t.tool, t.kind");
    let tools = database.fetch(query, tool_row).await?;
    let openings = openings(database, &id).await?;
    let parent = match session.parent() {
        Some(parent) => by_id(database, parent).await?,
        None => None,
    };
    let mut query = all();
    query.and_equal("s.parent", Some(&*id));
    query.push(&format!(" ORDER BY s.started_at DESC, s.id DESC LIMIT {CHILDREN}"));
    let children = database.fetch(query, sql::session).await?;
    let chain = chain(database, &session).await?;
    Ok(Some(SessionDetail { session, models, tools, openings, chain, parent, children }))
}

/// A session's STARTs, bounds and ENDs.
pub(super) async fn openings<D: Database>(database: &D, id: &str) -> Result<Vec<TimelineEvent>, Error> {
    let mut query =
        Query::new(format!("{EVENTS} AND e.kind IN ('session.start', 'session.bound', 'session.end')"));
    query.and_equal("s.id", Some(id));
    query.push(" ORDER BY e.seq, e.id LIMIT 1000");
    database.fetch(query, timeline_event).await
}

/// What [`timeline_event`] reads.
const EVENTS: &str = "SELECT e.seq, e.rev, e.kind, e.time, e.attributes
     FROM event e JOIN session s ON s.n = e.session WHERE true";

/// Two events may have the same `seq`; their ids say which comes first.
pub(super) async fn timeline<D: Database>(
    database: &D,
    id: String,
    after: TimelinePlace,
    limit: usize,
) -> Result<TimelinePage, Error> {
    let limit = limit.max(1);
    let shown = D::DIALECT.shown_id("e.id");
    let mut query = Query::new(EVENTS.replacen("e.attributes", &format!("e.attributes, {shown}"), 1));
    query.and_equal("s.id", Some(id));
    match after.id {
        None => query.and("e.seq >", Some(after.seq)),
        Some(id) => {
            let (seq, id) = (query.bind(after.seq), query.bind(id.simple().to_string()));
            query.push(&format!(" AND (e.seq, e.id) > ({seq}, {})", D::DIALECT.given_id(&id)));
        }
    }
    query.push(" ORDER BY e.seq, e.id");
    limit_to(&mut query, limit + 1);
    let mut rows = database.fetch(query, |row| Ok((timeline_event(row)?, text(row, 5)?))).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|(event, id)| match id.parse() {
        Ok(id) => Ok(TimelinePlace { seq: event.seq, id: Some(id) }),
        Err(error) => Err(Error::Damaged(format!("an event's id: {error}"))),
    });
    let next = next.transpose()?;
    Ok(TimelinePage { events: rows.into_iter().map(|(event, _)| event).collect(), next })
}

pub(super) async fn course<D: Database>(
    database: &D,
    id: String,
    from: Timestamp,
    to: Timestamp,
    parts: usize,
) -> Result<Vec<Stretch>, Error> {
    let parts = i64::try_from(parts.max(1)).unwrap_or(1);
    let (cost, failed) =
        (D::DIALECT.json_number("e.attributes", "costUsd"), D::DIALECT.json_false("e.attributes", "ok"));
    let mut query = Query::default();
    let (from, length) = (query.bind(from.0), query.bind(to.0.saturating_sub(from.0).max(1)));
    query.push(&format!(
        "SELECT CASE WHEN e.time <= {from} THEN 0 WHEN e.time - {from} >= {length} THEN {parts} - 1
             ELSE (e.time - {from}) * {parts} / {length} END AS part,
           max(e.time), sum(CASE WHEN e.kind = 'prompt' THEN 1 ELSE 0 END),
           sum(CASE WHEN e.kind = 'usage' THEN 1 ELSE 0 END), sum(CASE WHEN e.kind = 'usage' THEN {cost} END),
           sum(CASE WHEN e.kind = 'tool' THEN 1 ELSE 0 END),
           sum(CASE WHEN e.kind = 'tool' AND {failed} THEN 1 ELSE 0 END),
           sum(CASE WHEN e.kind = 'error' THEN 1 ELSE 0 END)
         FROM event e JOIN session s ON s.n = e.session WHERE e.kind IN ('prompt', 'usage', 'tool', 'error')"
    ));
    query.and_equal("s.id", Some(id));
    query.push(" GROUP BY part ORDER BY part");
    database.fetch(query, stretch).await
}

fn stretch(row: &dyn Columns) -> Result<Stretch, Error> {
    let failed = int(row, 6)?;
    Ok(Stretch {
        until: time(row, 1)?,
        prompts: int(row, 2)?,
        calls: int(row, 3)?,
        cost: PicoDollars::from_dollars(row.float(4)?.unwrap_or(0.0)),
        tools: int(row, 5)? - failed,
        errors: failed + int(row, 7)?,
    })
}

/// All sessions, for conditions to follow.
pub(super) fn all() -> Query {
    Query::new(format!("SELECT {} FROM session s WHERE true", session_columns()))
}

pub(super) async fn by_id<D: Database>(database: &D, id: &str) -> Result<Option<Session>, Error> {
    let mut query = all();
    query.and_equal("s.id", Some(id));
    Ok(database.fetch(query, sql::session).await?.pop())
}

/// How sessions are told that have the words or the tag that are looked for.
#[derive(Clone, Copy, Debug)]
enum Matching<'a> {
    /// Each is looked at.
    Each,
    /// Found before, by their numbers.
    These(&'a [i64]),
}

fn listed<D: Database>(
    filter: SessionFilter,
    after: Option<Cursor>,
    limit: usize,
    matching: Matching<'_>,
) -> Query {
    let (mut query, order) = (all(), filter.order);
    restrict::<D>(&mut query, filter, matching);
    let rank_by = match order {
        Order::Newest => "s.started_at",
        Order::Dearest => "s.cost",
    };
    if let Some(Cursor { rank, id }) = after {
        let (rank, id) = (query.bind(rank), query.bind(id));
        query.push(&format!(" AND ({rank_by}, s.id) < ({rank}, {id})"));
    }
    query.push(&format!(" ORDER BY {rank_by} DESC, s.id DESC"));
    limit_to(&mut query, limit);
    query
}

fn restrict<D: Database>(query: &mut Query, filter: SessionFilter, matching: Matching<'_>) {
    match matching {
        Matching::These(numbers) => {
            let numbers = query.bind(numbers.to_vec());
            query.push(&format!(" AND {}", D::DIALECT.among("s.n", &numbers)));
        }
        Matching::Each if filter.tag.is_some() || filter.search.is_some() => {
            query.push(" AND EXISTS (SELECT 1 FROM session_list w WHERE w.session = s.n");
            match_words::<D>(query, &filter);
            query.push(")");
        }
        Matching::Each => {}
    }
    let equal = [
        ("s.agent", filter.agent),
        ("s.project", filter.project),
        ("s.branch", filter.branch),
        ("s.user_name", filter.user),
        ("s.machine", filter.machine),
        ("s.status", filter.status.map(|status| status.as_str().to_owned())),
    ];
    for (column, value) in equal {
        // Few have gaps, and those are found by an index of their own.
        let column = if filter.gaps { D::DIALECT.not_by(column) } else { column.to_owned() };
        query.and_equal(&column, value);
    }
    query.and("s.agent <>", filter.without_agent);
    query.and("s.started_at >=", filter.since);
    query.and("s.started_at <", filter.until);
    if filter.gaps {
        query.push(" AND s.missing > 0");
    }
    if let Some(model) = filter.model {
        let model = query.bind(model);
        query.push(&format!(
            " AND EXISTS (SELECT 1 FROM session_day d WHERE d.session = s.n AND d.model = {model} AND d.api_calls > 0)"
        ));
    }
}

fn match_words<D: Database>(query: &mut Query, filter: &SessionFilter) {
    let parts = [
        ("w.tags", filter.tag.as_ref().map(|tag| format!("\n{}\n", tag.to_lowercase()))),
        ("w.words", filter.search.as_ref().map(|words| words.to_lowercase())),
    ];
    for (column, part) in parts {
        if let Some(part) = part {
            let part = query.bind(part);
            query.push(&format!(" AND {}", D::DIALECT.contains(column, &part)));
        }
    }
}

fn model_row(row: &dyn Columns) -> Result<ModelRow, Error> {
    Ok(ModelRow { model: text(row, 0)?, numbers: numbers(row, 1)? })
}

fn tool_row(row: &dyn Columns) -> Result<ToolRow, Error> {
    let numbers = ToolNumbers {
        calls: int(row, 2)?,
        errors: int(row, 3)?,
        lines_added: int(row, 4)?,
        lines_removed: int(row, 5)?,
    };
    Ok(ToolRow { name: text(row, 0)?, kind: text(row, 1)?, numbers })
}

fn timeline_event(row: &dyn Columns) -> Result<TimelineEvent, Error> {
    let kind = text(row, 2)?;
    // What an earlier version took in and this one would not is shown by its type alone.
    let attributes = Attributes::kept(&kind, &text(row, 4)?).or_else(|_| Attributes::other(&kind));
    Ok(TimelineEvent {
        seq: int(row, 0)?,
        rev: int(row, 1)?,
        kind: EventKind::named(&kind),
        time: time(row, 3)?,
        attributes: attributes.map_err(|error| Error::Damaged(format!("an event: {error}")))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::Sqlite;
    use wire::Status;

    #[test]
    fn sessions_with_gaps_are_found_by_their_index_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backend.db");
        Sqlite::open(&path).unwrap();
        let conn = rusqlite::Connection::open(&path).unwrap();
        let text = |text: &str| Some(text.to_owned());
        let gaps = || SessionFilter { gaps: true, ..SessionFilter::default() };
        let after = Cursor { rank: 1, id: "x".to_owned() };
        for (filter, after) in [
            (gaps(), None),
            (gaps(), Some(after)),
            (SessionFilter { agent: text("claude"), status: Some(Status::Failed), ..gaps() }, None),
            (SessionFilter { project: text("x"), since: Some(Timestamp(1)), ..gaps() }, None),
            (SessionFilter { machine: text("x"), user: text("x"), branch: text("x"), ..gaps() }, None),
            (SessionFilter { model: text("x"), ..gaps() }, None),
        ] {
            let query = listed::<Sqlite>(filter.clone(), after, 10, Matching::Each);
            let sql = format!("EXPLAIN QUERY PLAN {}", query.sql.replace('$', "?"));
            let mut statement = conn.prepare(&sql).unwrap();
            let steps = statement
                .query_map(rusqlite::params_from_iter(query.values), |row| row.get::<_, String>(3))
                .unwrap();
            let plan = steps.map(Result::unwrap).collect::<Vec<_>>().join("; ");
            assert!(plan.contains(" s USING INDEX session_gaps_by_start"), "{filter:?}: {plan}");
            assert!(!plan.contains("ORDER BY"), "{filter:?}: {plan}");
        }
    }
}
