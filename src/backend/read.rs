//! The read model over SQL, the same for both databases.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::broadcast;

use super::attributes::Attributes;
use super::model::{
    By, Cursor, Day, Facets, Health, ModelRow, Month, Order, Origin, Page, SeriesRow, Session, SessionDetail,
    SessionFilter, SessionPage, Sums, TimelineEvent, ToolNumbers, ToolRow, Touched, UsageFilter, UsageRow,
};
use super::numbers::Numbers;
use super::sql::{
    self, Columns, Decode, Dialect, Query, day, int, number_columns, numbers, session_columns, text, time,
};
use super::storage::{Answer, Error, Reader};
use crate::session::state::{EventType, Status};

/// A chain longer than this, to either side, is cut.
const CHAIN: usize = 50;
const CHILDREN: i64 = 100;

/// What differs between the databases when reading.
pub trait Database: Send + Sync {
    const DIALECT: Dialect;

    fn fetch<T: Send + 'static>(
        &self,
        query: Query,
        decode: Decode<T>,
    ) -> impl Future<Output = Result<Vec<T>, Error>> + Send;

    fn listen(&self) -> broadcast::Receiver<Arc<[Touched]>>;
}

impl<D: Database> Reader for D {
    fn sessions(&self, filter: SessionFilter, page: Page) -> Answer<'_, SessionPage> {
        Box::pin(async move {
            let (limit, order) = (page.limit.clamp(1, Page::MOST), filter.order);
            let mut sessions = self.fetch(list::<D>(filter, page.after, limit + 1), sql::session).await?;
            let more = sessions.len() > limit;
            sessions.truncate(limit);
            let next = sessions.last().filter(|_| more).map(|last| Cursor::after(last, order));
            Ok(SessionPage { sessions, next })
        })
    }

    fn count_sessions(&self, filter: SessionFilter, most: i64) -> Answer<'_, i64> {
        let mut query = Query::new("SELECT count(*) FROM (SELECT 1 FROM session s WHERE true");
        matching::<D>(&mut query, filter);
        query.push(&format!(" LIMIT {most}) counted"));
        Box::pin(async move { Ok(self.fetch(query, |row| int(row, 0)).await?.pop().unwrap_or(0)) })
    }

    fn session(&self, id: &str) -> Answer<'_, Option<SessionDetail>> {
        let id = id.to_owned();
        Box::pin(async move {
            let Some(session) = by_id(self, &id).await? else { return Ok(None) };
            let mut query = Query::new(format!(
                "SELECT d.model, {} FROM session_day d JOIN session s ON s.n = d.session WHERE d.model <> ''",
                numbers_summed(D::DIALECT, "d.")
            ));
            query.and_equal("s.id", Some(&*id));
            query.push(" GROUP BY d.model ORDER BY d.model");
            let mut models = self.fetch(query, model_row).await?;
            models.retain(|row| !row.numbers.is_zero());
            let mut query = Query::new(
                "SELECT t.tool, t.kind, t.calls, t.errors, t.lines_added, t.lines_removed
                 FROM session_tool t JOIN session s ON s.n = t.session WHERE t.calls > 0",
            );
            query.and_equal("s.id", Some(&*id));
            query.push(" ORDER BY t.calls DESC, t.tool, t.kind");
            let tools = self.fetch(query, tool_row).await?;
            let mut query = Query::new(
                "SELECT e.seq, e.rev, e.kind, e.time, e.attributes FROM event e JOIN session s ON s.n = e.session
                 WHERE e.kind IN ('session.start', 'session.bound', 'session.end')",
            );
            query.and_equal("s.id", Some(&*id));
            query.push(" ORDER BY e.seq LIMIT 1000");
            let openings = self.fetch(query, timeline_event).await?;
            let parent = match session.parent() {
                Some(parent) => by_id(self, parent).await?,
                None => None,
            };
            let mut query = Query::new(format!("SELECT {} FROM session s WHERE true", session_columns()));
            query.and_equal("s.parent", Some(&*id));
            query.push(&format!(" ORDER BY s.started_at DESC, s.id DESC LIMIT {CHILDREN}"));
            let children = self.fetch(query, sql::session).await?;
            let chain = chain(self, &session).await?;
            Ok(Some(SessionDetail { session, models, tools, openings, chain, parent, children }))
        })
    }

    fn sessions_by_id(&self, ids: Vec<String>) -> Answer<'_, Vec<Session>> {
        Box::pin(async move {
            let mut sessions = Vec::with_capacity(ids.len());
            for ids in ids.chunks(Page::MOST) {
                let mut query = Query::default();
                let names: Vec<_> = ids.iter().map(|id| query.bind(&**id)).collect();
                query.sql = format!(
                    "SELECT {} FROM session s WHERE s.id IN ({})",
                    session_columns(),
                    names.join(", ")
                );
                sessions.extend(self.fetch(query, sql::session).await?);
            }
            Ok(sessions)
        })
    }

    fn timeline(&self, id: &str, after: i64, limit: usize) -> Answer<'_, Vec<TimelineEvent>> {
        let mut query = Query::new(
            "SELECT e.seq, e.rev, e.kind, e.time, e.attributes
             FROM event e JOIN session s ON s.n = e.session WHERE true",
        );
        query.and_equal("s.id", Some(id));
        query.and("e.seq >", Some(after));
        query.push(" ORDER BY e.seq");
        limit_to(&mut query, limit);
        Box::pin(self.fetch(query, timeline_event))
    }

    fn usage(&self, by: By, filter: UsageFilter, limit: usize) -> Answer<'_, Vec<UsageRow>> {
        let query = usage::<D>(by, filter, limit);
        Box::pin(async move {
            let mut rows = self.fetch(query, usage_row).await?;
            rows.retain(|row| row.sums != Sums::default());
            if by == By::Day {
                for row in &mut rows {
                    row.key = row
                        .key
                        .parse()
                        .map_or_else(|_| std::mem::take(&mut row.key), |day| Day(day).to_string());
                }
            }
            Ok(rows)
        })
    }

    fn series(&self, by: By, filter: UsageFilter) -> Answer<'_, Vec<SeriesRow>> {
        let key = match by {
            By::Agent | By::Model | By::Project | By::User => column(by),
            By::Day | By::Session | By::Branch => "''",
        };
        let source = source(filter.branch.is_some());
        let mut query = Query::new(format!(
            "SELECT d.day, {key}, {}, {} FROM {source}",
            numbers_summed(D::DIALECT, "d."),
            D::DIALECT.float_sum("d.cost")
        ));
        each_day(&mut query, filter.since, filter.until);
        restrict(&mut query, filter, by == By::Model);
        query.push(" GROUP BY 1, 2 ORDER BY 1, 2");
        Box::pin(async move {
            let mut rows = self.fetch(query, series_row).await?;
            rows.retain(|row| row.sums != Sums::default());
            Ok(rows)
        })
    }

    fn health(&self, limit: usize) -> Answer<'_, Health> {
        Box::pin(async move {
            let mut query =
                Query::new(format!("SELECT {} FROM session s WHERE s.missing > 0", session_columns()));
            query.push(" ORDER BY s.received_at DESC");
            limit_to(&mut query, limit.min(Page::MOST));
            let gaps = self.fetch(query, sql::session).await?;
            let origins = Query::new(
                "SELECT machine, user_name, first_received_at, last_received_at, events FROM origin
                 ORDER BY last_received_at DESC LIMIT 1000",
            );
            let origins = self.fetch(origins, origin_row).await?;
            let mut counts = [0; 3];
            for (count, sql) in counts.iter_mut().zip([
                "SELECT count(*) FROM session WHERE missing > 0",
                "SELECT count(*) FROM session",
                "SELECT count(*) FROM session WHERE status = 'active'",
            ]) {
                *count = self.fetch(Query::new(sql), |row| int(row, 0)).await?.first().copied().unwrap_or(0);
            }
            let [gap_count, sessions, active] = counts;
            Ok(Health { gaps, gap_count, origins, sessions, active })
        })
    }

    fn facets(&self) -> Answer<'_, Facets> {
        Box::pin(async move {
            let mut lists: [Vec<String>; 4] = Default::default();
            let places =
                [("session", "agent"), ("daily", "model"), ("session", "project"), ("session", "user_name")];
            for (list, (table, column)) in lists.iter_mut().zip(places) {
                *list = self.fetch(Query::new(different(table, column)), |row| text(row, 0)).await?;
            }
            let [agents, models, projects, users] = lists;
            Ok(Facets { agents, models, projects, users })
        })
    }

    fn live(&self) -> broadcast::Receiver<Arc<[Touched]>> {
        self.listen()
    }
}

/// The different values of a column that has an index: from one to the next, a look each, instead of all rows.
fn different(table: &str, column: &str) -> String {
    format!(
        "WITH RECURSIVE seen(value) AS (
           SELECT min({column}) FROM {table} WHERE {column} > ''
           UNION ALL
           SELECT (SELECT min(t.{column}) FROM {table} t WHERE t.{column} > seen.value) FROM seen
           WHERE seen.value IS NOT NULL)
         SELECT value FROM seen WHERE value IS NOT NULL LIMIT 1000"
    )
}

async fn by_id<D: Database>(database: &D, id: &str) -> Result<Option<Session>, Error> {
    let mut query = Query::new(format!("SELECT {} FROM session s WHERE true", session_columns()));
    query.and_equal("s.id", Some(id));
    Ok(database.fetch(query, sql::session).await?.pop())
}

/// The session that was opened out of this one, as that one tells: this one's END may not have come.
async fn successor<D: Database>(database: &D, session: &Session) -> Result<Option<Session>, Error> {
    if let Some(next) = session.transitioned_to() {
        return by_id(database, next).await;
    }
    let mut query = Query::new(format!("SELECT {} FROM session s WHERE true", session_columns()));
    query.and_equal("s.transitioned_from", Some(&*session.id));
    query.push(" ORDER BY s.started_at DESC, s.id DESC LIMIT 1");
    Ok(database.fetch(query, sql::session).await?.pop())
}

/// Back and forth along the transitions. A switch back makes a ring of it, which is walked once.
async fn chain<D: Database>(database: &D, session: &Session) -> Result<Vec<Session>, Error> {
    let mut seen = HashSet::from([session.id.clone()]);
    let mut chain = Vec::new();
    let mut at = session.clone();
    while chain.len() < CHAIN
        && let Some(from) = at.transitioned_from()
        && seen.insert(from.to_owned())
        && let Some(earlier) = by_id(database, from).await?
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

fn list<D: Database>(filter: SessionFilter, after: Option<Cursor>, limit: usize) -> Query {
    let order = filter.order;
    let mut query = Query::new(format!("SELECT {} FROM session s WHERE true", session_columns()));
    matching::<D>(&mut query, filter);
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

fn matching<D: Database>(query: &mut Query, filter: SessionFilter) {
    query.and_equal("s.agent", filter.agent);
    query.and_equal("s.project", filter.project);
    query.and_equal("s.branch", filter.branch);
    query.and_equal("s.user_name", filter.user);
    query.and_equal("s.machine", filter.machine);
    query.and_equal("s.status", filter.status.map(Status::as_str));
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
    if let Some(tag) = filter.tag {
        // What is searched through ends with the id and the tags, a line each.
        let tags = format!("substr(s.search, {}) || '\n'", D::DIALECT.position("s.search", "lower(s.id)"));
        let tag = query.bind(format!("\n{}\n", tag.to_lowercase()));
        query.push(&format!(" AND {}", D::DIALECT.contains(&tags, &tag)));
    }
    if let Some(words) = filter.search.filter(|words| !words.is_empty()) {
        let words = query.bind(words.to_lowercase());
        query.push(&format!(" AND {}", D::DIALECT.contains("s.search", &words)));
    }
}

fn limit_to(query: &mut Query, limit: usize) {
    let limit = query.bind(i64::try_from(limit).unwrap_or(i64::MAX));
    query.push(&format!(" LIMIT {limit}"));
}

/// The sums over all sessions know no branch and no session; for those the days of each session are added up.
fn source(by_session: bool) -> &'static str {
    if by_session {
        "(SELECT d.*, s.agent, s.project, s.user_name, s.branch, s.id, s.agent_session
          FROM session_day d JOIN session s ON s.n = d.session) d WHERE true"
    } else {
        "daily d WHERE true"
    }
}

fn column(by: By) -> &'static str {
    match by {
        By::Day => "d.day",
        By::Session => "coalesce(d.agent_session, d.id)",
        By::Model => "d.model",
        By::Project => "d.project",
        By::Agent => "d.agent",
        By::Branch => "d.branch",
        By::User => "d.user_name",
    }
}

fn restrict(query: &mut Query, filter: UsageFilter, only_models: bool) {
    query.and_equal("d.agent", filter.agent);
    query.and_equal("d.model", filter.model);
    query.and_equal("d.project", filter.project);
    query.and_equal("d.branch", filter.branch);
    query.and_equal("d.user_name", filter.user);
    query.and("d.agent <>", filter.without_agent);
    if only_models {
        query.push(" AND d.model <> ''");
    }
}

/// Only these days, each by itself.
fn each_day(query: &mut Query, since: Option<Day>, until: Option<Day>) {
    query.and("d.day >=", Some(since.unwrap_or(Day(0))));
    query.and("d.day <=", until);
}

/// These days taken together: whole months where the span has them, and the days before and after them.
fn together(query: &mut Query, since: Option<Day>, until: Option<Day>) {
    let first = since.map(|day| {
        let month = Month::of(day);
        if month.first_day() == day { month } else { Month(month.0 + 1) }
    });
    // The day after the last one begins the first month that is not whole.
    let after = until.map(|Day(day)| Month::of(Day(day.saturating_add(1))));
    if let (Some(first), Some(after)) = (first, after)
        && first >= after
    {
        return each_day(query, since, until);
    }
    let mut parts = vec!["d.day < 0".to_owned()];
    if let Some(first) = first {
        let row = query.bind(first.row());
        parts[0] += " AND d.day <= ";
        parts[0] += &row;
    }
    if let Some(after) = after {
        let row = query.bind(after.row());
        parts[0] += " AND d.day > ";
        parts[0] += &row;
    }
    if let (Some(since), Some(first)) = (since, first) {
        let (since, first) = (query.bind(since), query.bind(first.first_day()));
        parts.push(format!("d.day >= {since} AND d.day < {first}"));
    }
    if let (Some(until), Some(after)) = (until, after) {
        let (after, until) = (query.bind(after.first_day()), query.bind(until));
        parts.push(format!("d.day >= {after} AND d.day <= {until}"));
    }
    query.push(&format!(" AND (({}))", parts.join(") OR (")));
}

fn numbers_summed(dialect: Dialect, table: &str) -> String {
    let columns: Vec<_> =
        Numbers::COLUMNS.iter().map(|column| dialect.sum(&format!("{table}{column}"))).collect();
    columns.join(", ")
}

fn usage<D: Database>(by: By, filter: UsageFilter, limit: usize) -> Query {
    let by_session = matches!(by, By::Session | By::Branch) || filter.branch.is_some();
    let source = source(by_session);
    let (key, id) = (column(by), if by == By::Session { "d.id" } else { "NULL" });
    let key = if by == By::Day { format!("CAST({key} AS text)") } else { key.to_owned() };
    let mut query = Query::new(format!(
        "SELECT {key}, CASE WHEN min(d.agent) = max(d.agent) THEN min(d.agent) END, {id}, {}, {}, {} AS dollars
         FROM {source}",
        numbers_summed(D::DIALECT, "d."),
        D::DIALECT.distinct("d.model", "d.unpriced_calls > 0"),
        D::DIALECT.float_sum("d.cost"),
    ));
    if by_session || by == By::Day {
        each_day(&mut query, filter.since, filter.until);
    } else {
        together(&mut query, filter.since, filter.until);
    }
    restrict(&mut query, filter, by == By::Model);
    query.push(match by {
        By::Day => " GROUP BY d.day ORDER BY d.day",
        By::Session => " GROUP BY d.session, d.agent_session, d.id ORDER BY dollars DESC, 1",
        _ => " GROUP BY 1 ORDER BY dollars DESC, 1",
    });
    limit_to(&mut query, limit);
    query
}

/// The columns of a grouped row from `at` on: numbers, then what `skip` columns further on is the cost.
fn sums(row: &dyn Columns, at: usize, cost: usize) -> Result<Sums, Error> {
    let counts = Numbers { cost: 0, ..numbers(row, at)? };
    Ok(Sums { counts, cost_usd: row.float(cost)?.unwrap_or(0.0) / 1e12 })
}

fn usage_row(row: &dyn Columns) -> Result<UsageRow, Error> {
    let models = 3 + Numbers::COUNT;
    let unpriced = row.text(models)?.unwrap_or_default();
    Ok(UsageRow {
        key: text(row, 0)?,
        agent: row.text(1)?,
        session_id: row.text(2)?,
        sums: sums(row, 3, models + 1)?,
        unpriced_models: serde_json::from_str(&unpriced).unwrap_or_default(),
    })
}

fn series_row(row: &dyn Columns) -> Result<SeriesRow, Error> {
    Ok(SeriesRow { day: day(row, 0)?, key: text(row, 1)?, sums: sums(row, 2, 2 + Numbers::COUNT)? })
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
    let kind = EventType::parse(&kind).ok_or_else(|| Error::Damaged(format!("an event of type {kind}")))?;
    let attributes = Attributes::parse(kind, &text(row, 4)?);
    Ok(TimelineEvent {
        seq: int(row, 0)?,
        rev: int(row, 1)?,
        kind,
        time: time(row, 3)?,
        attributes: attributes.map_err(|error| Error::Damaged(format!("an event: {error}")))?,
    })
}

fn origin_row(row: &dyn Columns) -> Result<Origin, Error> {
    Ok(Origin {
        machine: row.text(0)?.filter(|machine| !machine.is_empty()),
        user: row.text(1)?.filter(|user| !user.is_empty()),
        first_received_at: time(row, 2)?,
        last_received_at: time(row, 3)?,
        events: int(row, 4)?,
    })
}

/// `{}` per column of the numbers, for the writers.
pub(super) fn number_assignments(table: &str) -> String {
    number_columns(&format!("{{}} = {table}.{{}} + excluded.{{}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_time_is_whole_months_and_the_days_around_them() {
        let day =
            |text: &str| Some(text).filter(|text| !text.is_empty()).map(|text| Day::parse(text).unwrap());
        for (since, until, rows) in [
            ("", "", &["month 2026-09", "month 2026-10", "month 2026-11"][..]),
            ("2026-10-01", "", &["month 2026-10", "month 2026-11"]),
            ("2026-09-29", "", &["2026-09-29", "2026-09-30", "month 2026-10", "month 2026-11"]),
            ("", "2026-10-31", &["month 2026-09", "month 2026-10"]),
            ("2026-09-30", "2026-11-01", &["2026-09-30", "month 2026-10", "2026-11-01"]),
            ("2026-10-02", "2026-10-03", &["2026-10-02", "2026-10-03"]),
            ("2026-10-01", "2026-10-31", &["month 2026-10"]),
            ("2026-10-30", "2026-11-01", &["2026-10-30", "2026-10-31", "2026-11-01"]),
        ] {
            let mut query = Query::new("SELECT d.day FROM d WHERE true");
            together(&mut query, day(since), day(until));
            assert_eq!(chosen(&query), rows, "{since} to {until}: {}", query.sql);
        }
    }

    /// What a query chooses among the rows of three months, each day and month there, in the order of time.
    fn chosen(query: &Query) -> Vec<String> {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE d (day INTEGER)").unwrap();
        let (first, last) = (Day::parse("2026-09-01").unwrap(), Day::parse("2026-11-16").unwrap());
        for day in first.0..=last.0 {
            for Day(row) in Day(day).rows() {
                conn.execute(
                    "INSERT INTO d SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM d WHERE day = ?1)",
                    [row],
                )
                .unwrap();
            }
        }
        let mut statement = conn.prepare(&query.sql.replace('$', "?")).unwrap();
        let found =
            statement.query_map(rusqlite::params_from_iter(query.values.clone()), |row| row.get(0)).unwrap();
        let mut found: Vec<(i32, String)> = found
            .map(|row| match row.unwrap() {
                day @ 0.. => (day, Day(day).to_string()),
                row => {
                    let first = Month(-1 - row).first_day();
                    (first.0, format!("month {}", &first.to_string()[..7]))
                }
            })
            .collect();
        found.sort();
        found.into_iter().map(|(_, text)| text).collect()
    }
}
