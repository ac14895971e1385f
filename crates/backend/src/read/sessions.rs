//! Sessions: lists of them, and one with everything around it.

use super::chain::chain;
use super::{SqlDatabase, fetch, limit_to};
use crate::sql::{self, Columns, Dialect, Query, int, numbers, session_columns, text, time};
use reader::Error;
use reader::{
    ActivityBucket, Counted, Cursor, ModelRow, Order, OrderBy, OrderKey, Page, Session, SessionDetail,
    SessionFilter, SessionPage, TimelineEvent, TimelinePage, TimelinePosition, ToolNumbers, ToolRow,
};
use types::Attributes;
use types::EventKind;
use types::{Filter, PicoDollars, Status, Timestamp};

const CHILDREN: i64 = 100;
/// The most sessions with the search text that are read in full.
const FOUND: usize = 2000;

pub(super) async fn list(
    database: &dyn SqlDatabase,
    filter: SessionFilter,
    page: Page,
) -> Result<SessionPage, Error> {
    let (limit, order) = (page.limit.clamp(1, Page::MOST), filter.order);
    let mut sessions =
        if let Some(sessions) = found(database, &filter, page.after.as_ref(), limit + 1).await? {
            sessions
        } else {
            let query = listed(database.dialect(), &filter, page.after, limit + 1, Matching::Each);
            fetch(database, query, sql::session).await?
        };
    let more = sessions.len() > limit;
    sessions.truncate(limit);
    let next = sessions.last().filter(|_| more).map(|last| Cursor::after(last, order));
    Ok(SessionPage { sessions, next })
}

/// The page, if the first sessions with the search text and the tag are enough for it. All short rows are looked at before,
/// and few long ones after; a database by itself would read every long one.
async fn found(
    database: &dyn SqlDatabase,
    filter: &SessionFilter,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Option<Vec<Session>>, Error> {
    let Order { by, descending } = filter.order;
    let rank_by = match by {
        OrderBy::Started if filter.looks_at_words() => "w.started_at",
        OrderBy::Cost => "w.cost",
        _ => return Ok(None),
    };
    let (direction, not_before) = if descending { ("DESC", "<=") } else { ("ASC", ">=") };
    let mut query = Query::new(format!(
        "SELECT w.session AS session, {rank_by} AS ordered_by FROM session_list w WHERE true"
    ));
    match_words(database.dialect(), &mut query, filter);
    query.and("w.started_at >=", filter.filter.span.since);
    query.and("w.started_at <", filter.filter.span.until);
    query.and(&format!("{rank_by} {not_before}"), after.and_then(Cursor::number));
    query.push(&format!(" ORDER BY {rank_by} {direction} LIMIT {FOUND}"));
    let found = fetch(database, query, |row| Ok((int(row, "session")?, int(row, "ordered_by")?))).await?;
    // Sessions behind the last one were left off, and perhaps some of the same rank.
    let left_off = found.last().filter(|_| found.len() == FOUND).map(|(_, rank)| *rank);
    let numbers: Vec<_> = found.into_iter().map(|(number, _)| number).collect();
    let query = listed(database.dialect(), filter, after.cloned(), limit, Matching::These(&numbers));
    let sessions = fetch(database, query, sql::session).await?;
    let before = |rank: i64| {
        let ranks = sessions.iter().filter_map(|session| Cursor::after(session, filter.order).number());
        ranks.into_iter().all(|found| if descending { found > rank } else { found < rank })
    };
    let certain = left_off.is_none_or(|rank| sessions.len() == limit && before(rank));
    Ok(certain.then_some(sessions))
}

/// How many there are, counted no further than `most`.
pub(super) async fn count(
    database: &dyn SqlDatabase,
    filter: SessionFilter,
    most: i64,
) -> Result<Counted, Error> {
    let dialect = database.dialect();
    let mut query = Query::new(format!(
        "SELECT count(*) AS sessions, {} AS spent, {} AS unpriced_calls FROM (SELECT s.cost, s.cost_carried, s.unpriced_calls FROM session s WHERE true",
        database.dialect().money_sum(""),
        database.dialect().sum("unpriced_calls")
    ));
    restrict(dialect, &mut query, &filter, Matching::Each);
    query.push(&format!(" LIMIT {most}) counted"));
    Ok(fetch(database, query, counted).await?.pop().unwrap_or_default())
}

fn counted(row: &dyn Columns) -> Result<Counted, Error> {
    let cost_usd = row.float("spent")?.unwrap_or(0.0) / 1e12;
    Ok(Counted { sessions: int(row, "sessions")?, cost_usd, unpriced_calls: int(row, "unpriced_calls")? })
}

pub(super) async fn by_ids(database: &dyn SqlDatabase, ids: Vec<String>) -> Result<Vec<Session>, Error> {
    let mut sessions = Vec::with_capacity(ids.len());
    for ids in ids.chunks(Page::MOST) {
        let mut query = all();
        let ids = query.bind(ids.to_vec());
        query.push(&format!(" AND {}", database.dialect().among("s.id", &ids)));
        sessions.extend(fetch(database, query, sql::session).await?);
    }
    Ok(sessions)
}

/// What a session used of each model. Its quarters are added up here: their money may need more than 64 bits.
async fn models(database: &dyn SqlDatabase, id: &str) -> Result<Vec<ModelRow>, Error> {
    let mut query = Query::new(format!(
        "SELECT d.model AS model, {} FROM session_quarter d JOIN session s ON s.n = d.session WHERE d.model <> ''",
        sql::number_columns("d.{} AS {}")
    ));
    query.and_equal("s.id", Some(id));
    query.push(" ORDER BY d.model");
    let mut models: Vec<ModelRow> = Vec::new();
    for row in fetch(database, query, model_row).await? {
        match models.last_mut() {
            Some(last) if last.model == row.model => last.numbers.add(&row.numbers),
            _ => models.push(row),
        }
    }
    models.retain(|row| !row.numbers.is_zero());
    Ok(models)
}

pub(super) async fn detail(database: &dyn SqlDatabase, id: String) -> Result<Option<SessionDetail>, Error> {
    let Some(session) = by_id(database, &id).await? else { return Ok(None) };
    let models = models(database, &id).await?;
    let mut query = Query::new(
        "SELECT t.tool AS tool, t.kind AS kind, t.calls AS calls, t.errors AS errors, t.lines_added AS lines_added,
           t.lines_removed AS lines_removed
         FROM session_tool t JOIN session s ON s.n = t.session WHERE t.calls > 0",
    );
    query.and_equal("s.id", Some(&*id));
    query.push(" ORDER BY t.calls DESC, t.tool, t.kind");
    let tools = fetch(database, query, tool_row).await?;
    let openings = openings(database, &id).await?;
    let parent = match session.parent() {
        Some(parent) => by_id(database, parent).await?,
        None => None,
    };
    let mut query = all();
    query.and_equal("s.parent", Some(&*id));
    query.push(&format!(" ORDER BY s.started_at DESC, s.id DESC LIMIT {CHILDREN}"));
    let children = fetch(database, query, sql::session).await?;
    let chain = chain(database, &session).await?;
    Ok(Some(SessionDetail { session, models, tools, openings, chain, parent, children }))
}

/// A session's STARTs, bounds and ENDs.
pub(super) async fn openings(database: &dyn SqlDatabase, id: &str) -> Result<Vec<TimelineEvent>, Error> {
    let mut query = Query::new(events(""));
    query.push(" AND e.kind IN ('session.start', 'session.bound', 'session.end')");
    query.and_equal("s.id", Some(id));
    query.push(" ORDER BY e.seq, e.id LIMIT 1000");
    fetch(database, query, timeline_event).await
}

/// The events of sessions, for conditions to follow, with the columns that [`timeline_event`] reads and `more`.
fn events(more: &str) -> String {
    format!(
        "SELECT e.seq AS seq, e.rev AS rev, e.kind AS kind, e.time AS time, e.attributes AS attributes{more}
         FROM event e JOIN session s ON s.n = e.session WHERE true"
    )
}

/// Two events may have the same `seq`; their ids order them.
pub(super) async fn timeline(
    database: &dyn SqlDatabase,
    id: String,
    after: TimelinePosition,
    limit: usize,
) -> Result<TimelinePage, Error> {
    let limit = limit.max(1);
    let shown = database.dialect().shown_id("e.id");
    let mut query = Query::new(events(&format!(", {shown} AS event_id")));
    query.and_equal("s.id", Some(id));
    match after.id {
        None => query.and("e.seq >", Some(after.seq)),
        Some(id) => {
            let (seq, id) = (query.bind(after.seq), query.bind(id.simple().to_string()));
            query.push(&format!(" AND (e.seq, e.id) > ({seq}, {})", database.dialect().given_id(&id)));
        }
    }
    query.push(" ORDER BY e.seq, e.id");
    limit_to(&mut query, limit + 1);
    let mut rows = fetch(database, query, |row| Ok((timeline_event(row)?, text(row, "event_id")?))).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|(event, id)| match id.parse() {
        Ok(id) => Ok(TimelinePosition { seq: event.seq, id: Some(id) }),
        Err(error) => Err(Error::Damaged(format!("an event's id: {error}"))),
    });
    let next = next.transpose()?;
    Ok(TimelinePage { events: rows.into_iter().map(|(event, _)| event).collect(), next })
}

pub(super) async fn activity(
    database: &dyn SqlDatabase,
    id: String,
    from: Timestamp,
    to: Timestamp,
    parts: usize,
) -> Result<Vec<ActivityBucket>, Error> {
    let parts = i64::try_from(parts.max(1)).unwrap_or(1);
    let (cost, failed) = (
        database.dialect().json_number("e.attributes", "costUsd"),
        database.dialect().json_false("e.attributes", "ok"),
    );
    let mut query = Query::default();
    let (from, length) = (query.bind(from.0), query.bind(to.0.saturating_sub(from.0).max(1)));
    query.push(&format!(
        "SELECT CASE WHEN e.time <= {from} THEN 0 WHEN e.time - {from} >= {length} THEN {parts} - 1
             ELSE (e.time - {from}) * {parts} / {length} END AS part,
           max(e.time) AS until,
           sum(CASE WHEN e.kind = 'prompt' THEN 1 ELSE 0 END) AS prompts,
           sum(CASE WHEN e.kind = 'usage' THEN 1 ELSE 0 END) AS calls,
           sum(CASE WHEN e.kind = 'usage' THEN {cost} END) AS dollars,
           sum(CASE WHEN e.kind = 'tool' THEN 1 ELSE 0 END) AS tools,
           sum(CASE WHEN e.kind = 'tool' AND {failed} THEN 1 ELSE 0 END) AS failed_tools,
           sum(CASE WHEN e.kind = 'error' THEN 1 ELSE 0 END) AS api_errors
         FROM event e JOIN session s ON s.n = e.session WHERE e.kind IN ('prompt', 'usage', 'tool', 'error')"
    ));
    query.and_equal("s.id", Some(id));
    query.push(" GROUP BY part ORDER BY part");
    fetch(database, query, activity_bucket).await
}

fn activity_bucket(row: &dyn Columns) -> Result<ActivityBucket, Error> {
    let failed = int(row, "failed_tools")?;
    Ok(ActivityBucket {
        until: time(row, "until")?,
        prompts: int(row, "prompts")?,
        calls: int(row, "calls")?,
        cost: PicoDollars::from_dollars(row.float("dollars")?.unwrap_or(0.0)),
        tools: int(row, "tools")? - failed,
        errors: failed + int(row, "api_errors")?,
    })
}

/// All sessions, for conditions to follow.
pub(super) fn all() -> Query {
    Query::new(format!("SELECT {} FROM session s WHERE true", session_columns()))
}

pub(super) async fn by_id(database: &dyn SqlDatabase, id: &str) -> Result<Option<Session>, Error> {
    let mut query = all();
    query.and_equal("s.id", Some(id));
    Ok(fetch(database, query, sql::session).await?.pop())
}

/// How the search text and the tag of a filter are applied.
#[derive(Clone, Copy, Debug)]
enum Matching<'a> {
    /// Every session is looked at.
    Each,
    /// The sessions were found before; these are their numbers.
    These(&'a [i64]),
}

fn listed(
    dialect: Dialect,
    filter: &SessionFilter,
    after: Option<Cursor>,
    limit: usize,
    matching: Matching<'_>,
) -> Query {
    let (mut query, order) = (all(), filter.order);
    restrict(dialect, &mut query, filter, matching);
    let (direction, beyond) = if order.descending { ("DESC", "<") } else { ("ASC", ">") };
    let Some(key) = order_key(dialect, &mut query, order.by) else {
        if let Some(Cursor { started_at, id, .. }) = after {
            let (start, id) = (query.bind(started_at), query.bind(id));
            query.push(&format!(" AND (s.started_at, s.id) {beyond} ({start}, {id})"));
        }
        query.push(&format!(" ORDER BY s.started_at {direction}, s.id {direction}"));
        limit_to(&mut query, limit);
        return query;
    };
    if let Some(Cursor { key: Some(at), started_at, id }) = after {
        let at = match at {
            OrderKey::Number(number) => query.bind(number),
            OrderKey::Text(text) => query.bind(text),
        };
        let (start, id) = (query.bind(started_at), query.bind(id));
        query.push(&format!(
            " AND ({key} {beyond} {at} OR ({key} = {at} AND (s.started_at, s.id) < ({start}, {id})))"
        ));
    }
    // Whichever way round: of the same value the newest is first.
    query.push(&format!(" ORDER BY {key} {direction}, s.started_at DESC, s.id DESC"));
    limit_to(&mut query, limit);
    query
}

/// The value of a session that a list is ordered by, as [`OrderKey`] has it; `None` for the start, which is in every order.
fn order_key(dialect: Dialect, query: &mut Query, by: OrderBy) -> Option<String> {
    Some(match by {
        OrderBy::Started => return None,
        // The words that a session is searched by begin with its name.
        OrderBy::Name => {
            let name = dialect.first_line("w.words");
            format!("(SELECT {name} FROM session_list w WHERE w.session = s.n)")
        }
        OrderBy::Agent => "s.agent".to_owned(),
        OrderBy::Project => "coalesce(s.project, '')".to_owned(),
        OrderBy::User => "coalesce(s.user_name, '')".to_owned(),
        OrderBy::Status => "s.status".to_owned(),
        OrderBy::Duration(now) => {
            let (closed, now) = (dialect.closed_duration("s.life"), query.bind(now));
            format!(
                "({closed} + CASE WHEN s.status = 'active' AND s.started_at < {now} THEN {now} - s.started_at ELSE 0 END)"
            )
        }
        OrderBy::Tokens => dialect.bounded_sum(&["s.input", "s.output", "s.cache_read", "s.cache_write"]),
        OrderBy::Cost => "s.cost".to_owned(),
    })
}

fn restrict(dialect: Dialect, query: &mut Query, asked: &SessionFilter, matching: Matching<'_>) {
    match matching {
        Matching::These(numbers) => {
            let numbers = query.bind(numbers.to_vec());
            query.push(&format!(" AND {}", dialect.among("s.n", &numbers)));
        }
        Matching::Each if asked.looks_at_words() => {
            query.push(" AND EXISTS (SELECT 1 FROM session_list w WHERE w.session = s.n");
            match_words(dialect, query, asked);
            query.push(")");
        }
        Matching::Each => {}
    }
    // Tags, group and words are matched in short rows, by `match_words`.
    let Filter {
        agent,
        without_agent,
        project,
        branch,
        user,
        machine,
        model,
        tag: _,
        group: _,
        status,
        span,
        words: _,
    } = &asked.filter;
    let equal = [
        ("s.agent", agent.as_deref()),
        ("s.project", project.as_deref()),
        ("s.branch", branch.as_deref()),
        ("s.user_name", user.as_deref()),
        ("s.machine", machine.as_deref()),
        ("s.status", status.map(Status::as_str)),
    ];
    for (column, value) in equal {
        // Few have gaps, and those are found by an index of their own.
        let column = if asked.gaps { dialect.not_by(column) } else { column.to_owned() };
        query.and_equal(&column, value);
    }
    query.and("s.agent <>", without_agent.as_deref());
    query.and("s.started_at >=", span.since);
    query.and("s.started_at <", span.until);
    if asked.gaps {
        query.push(" AND s.missing > 0");
    }
    if let Some(model) = model {
        let model = query.bind(model.as_str());
        query.push(&format!(
            " AND EXISTS (SELECT 1 FROM session_quarter d WHERE d.session = s.n AND d.model = {model} AND d.api_calls > 0)"
        ));
    }
}

fn match_words(dialect: Dialect, query: &mut Query, asked: &SessionFilter) {
    let Filter { tag, group, words, .. } = &asked.filter;
    if let Some(tag) = tag {
        let tag = query.bind(format!("\n{}\n", tag.to_lowercase()));
        query.push(&format!(" AND {}", dialect.contains("w.tags", &tag)));
    }
    if !words.is_empty() {
        let contained = words.iter().map(|word| {
            let word = query.bind(word.to_lowercase());
            dialect.contains("w.words", &word)
        });
        let found = contained.collect::<Vec<_>>().join(" AND ");
        if asked.also.is_empty() {
            query.push(&format!(" AND {found}"));
        } else {
            let also = query.bind(asked.also.clone());
            let also = dialect.among("t.id", &also);
            query.push(&format!(" AND ({found} OR w.session IN (SELECT t.n FROM session t WHERE {also}))"));
        }
    }
    query.and_equal("w.grp", group.as_deref());
}

fn model_row(row: &dyn Columns) -> Result<ModelRow, Error> {
    Ok(ModelRow { model: text(row, "model")?, numbers: numbers(row)? })
}

fn tool_row(row: &dyn Columns) -> Result<ToolRow, Error> {
    let numbers = ToolNumbers {
        calls: int(row, "calls")?,
        errors: int(row, "errors")?,
        lines_added: int(row, "lines_added")?,
        lines_removed: int(row, "lines_removed")?,
    };
    Ok(ToolRow { name: text(row, "tool")?, kind: text(row, "kind")?, numbers })
}

fn timeline_event(row: &dyn Columns) -> Result<TimelineEvent, Error> {
    let kind = text(row, "kind")?;
    // An event that an earlier version accepted and this one would not is shown by its type alone.
    let attributes = Attributes::kept(&kind, &text(row, "attributes")?).or_else(|_| Attributes::other(&kind));
    Ok(TimelineEvent {
        seq: int(row, "seq")?,
        rev: int(row, "rev")?,
        kind: EventKind::named(&kind),
        time: time(row, "time")?,
        attributes: attributes.map_err(|error| Error::Damaged(format!("an event: {error}")))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::Sqlite;
    use types::Span;

    #[test]
    fn sessions_with_gaps_are_found_by_their_index_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("backend.db");
        Sqlite::open(&path).unwrap();
        let conn = rusqlite::Connection::open(&path).unwrap();
        let text = |text: &str| Some(text.to_owned());
        let all = Filter::default;
        let after = Cursor { key: None, started_at: 1, id: "x".to_owned() };
        for (filter, after) in [
            (all(), None),
            (all(), Some(after)),
            (Filter { agent: text("claude"), status: Some(Status::Failed), ..all() }, None),
            (Filter { project: text("x"), span: Span::since(Timestamp(1)), ..all() }, None),
            (Filter { machine: text("x"), user: text("x"), branch: text("x"), ..all() }, None),
            (Filter { model: text("x"), ..all() }, None),
        ] {
            let gaps = SessionFilter { gaps: true, ..filter.clone().into() };
            let query = listed(Dialect::Sqlite, &gaps, after, 10, Matching::Each);
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
