//! Sums: by a key, and per day.
//!
//! Days are those of the filter's zone. Sums over all sessions are kept by quarters of an hour, by days and by months of UTC
//! ([`covering`]); a zone's days are those of UTC with the quarters at their ends moved ([`moved`]). Sums of single sessions
//! are kept by quarters alone.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{SqlDatabase, fetch, limit_to, numbers_summed};
use crate::slot::{QUARTERS, RowRange, covering, moved, quarters_of};
use crate::sql::{Columns, Dialect, Query, day, int, numbers, text};
use reader::Error;
use reader::Numbers;
use reader::{
    By, Day, HourRow, Quarter, SeriesRow, SpendingKey, SpendingRow, UsageFilter, UsagePage, UsageRow,
    UsageSums,
};
use types::Filter;

pub(super) async fn page(
    database: &dyn SqlDatabase,
    by: By,
    filter: UsageFilter,
    wanted: Range<usize>,
) -> Result<UsagePage, Error> {
    if by == By::Day {
        return days(database, filter, wanted).await;
    }
    let limit = wanted.len();
    let mut query = grouped(database.dialect(), by, &filter);
    limit_to(&mut query, limit.saturating_add(1));
    if wanted.start > 0 {
        let start = query.bind(i64::try_from(wanted.start).unwrap_or(i64::MAX));
        query.push(&format!(" OFFSET {start}"));
    }
    let mut rows = fetch(database, query, usage_row).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    Ok(UsagePage { rows, more })
}

/// The newest days, given in order.
async fn days(
    database: &dyn SqlDatabase,
    filter: UsageFilter,
    wanted: Range<usize>,
) -> Result<UsagePage, Error> {
    let of_agents = series(database, By::Agent, filter.clone()).await?;
    let of_models = series(database, By::Model, filter).await?;
    Ok(UsagePage::of_days(of_agents, of_models, wanted))
}

pub(super) async fn series(
    database: &dyn SqlDatabase,
    by: By,
    filter: UsageFilter,
) -> Result<Vec<SeriesRow>, Error> {
    let key = match by {
        By::Agent | By::Model | By::Project | By::User => column(by),
        By::Day | By::Session | By::Branch => "''",
    };
    let parts = if filter.filter.branch.is_some() {
        of_sessions(database, key, by, &filter).await?
    } else {
        of_all(database, key, by, &filter).await?
    };
    let (since, until) = filter.days();
    Ok(SeriesRow::summed(parts, since, until))
}

/// Sums over all sessions: the days of UTC, then what the zone moves from one to another.
async fn of_all(
    database: &dyn SqlDatabase,
    key: &str,
    by: By,
    filter: &UsageFilter,
) -> Result<Vec<SeriesRow>, Error> {
    let sums = |dialect: Dialect| {
        format!("{key} AS key, {}, {} AS spent", numbers_summed(dialect, "d."), dialect.money_sum("d."))
    };
    let dialect = database.dialect();
    // A zone's day begins in this day of UTC, or in the one before or after it.
    let (since, until) = filter.days();
    let (since, until) = (since.map(|Day(day)| Day(day - 1)), until.map(|Day(day)| Day(day + 1)));
    let mut query = Query::new(format!("SELECT d.day AS day, {} FROM daily d WHERE true", sums(dialect)));
    query.and("d.day >=", Some(since.unwrap_or(Day(0)).max(Day(0))));
    query.and("d.day <", Some(QUARTERS));
    query.and("d.day <=", until);
    restrict(&mut query, &filter.filter, by == By::Model);
    query.push(" GROUP BY 1, 2 ORDER BY 1, 2");
    let mut rows = fetch(database, query, series_row).await?;
    let (Some(first), Some(last)) = (rows.first().map(|row| row.day), rows.last().map(|row| row.day)) else {
        return Ok(rows);
    };
    let moves = moved(&filter.zone, first, last);
    if moves.is_empty() {
        return Ok(rows);
    }
    let mut query = Query::default();
    let first = query.bind(moves.iter().map(|moved| moved.quarters.first).collect::<Vec<_>>());
    let last = query.bind(moves.iter().map(|moved| moved.quarters.last).collect::<Vec<_>>());
    // The few ranges are gone through, and each is looked up: SQLite does so because of CROSS.
    query.push(&format!(
        "SELECT r.lo AS day, {} FROM {} CROSS JOIN daily d WHERE d.day >= r.lo AND d.day <= r.hi",
        sums(dialect),
        dialect.ranges(&first, &last)
    ));
    restrict(&mut query, &filter.filter, by == By::Model);
    query.push(" GROUP BY 1, 2");
    let quarters =
        fetch(database, query, |row| Ok((int(row, "day")?, text(row, "key")?, sums_of(row)?))).await?;
    let by_row: BTreeMap<i64, (Day, Day)> =
        moves.iter().map(|moved| (moved.quarters.first, (moved.from, moved.to))).collect();
    for (row, key, sums) in quarters {
        let Some((from, to)) = by_row.get(&row) else { continue };
        rows.push(SeriesRow { day: *from, key: key.clone(), sums: sums.negated() });
        rows.push(SeriesRow { day: *to, key, sums });
    }
    Ok(rows)
}

/// Sums of the sessions of a branch, quarter by quarter.
async fn of_sessions(
    database: &dyn SqlDatabase,
    key: &str,
    by: By,
    filter: &UsageFilter,
) -> Result<Vec<SeriesRow>, Error> {
    let mut query = Query::new(format!(
        "SELECT d.quarter AS quarter, {key} AS key, {}, {} AS spent FROM {OF_SESSIONS}",
        numbers_summed(database.dialect(), "d."),
        database.dialect().money_sum("d.")
    ));
    within_quarters(&mut query, filter);
    restrict(&mut query, &filter.filter, by == By::Model);
    query.push(" GROUP BY 1, 2 ORDER BY 1, 2");
    let rows =
        fetch(database, query, |row| Ok((int(row, "quarter")?, text(row, "key")?, sums_of(row)?))).await?;
    let of_day = |quarter| Day::of_in(Quarter(quarter).start(), &filter.zone);
    Ok(rows.into_iter().map(|(quarter, key, sums)| SeriesRow { day: of_day(quarter), key, sums }).collect())
}

/// Sums by the hour of the week in the filter's zone.
pub(super) async fn hours(database: &dyn SqlDatabase, filter: UsageFilter) -> Result<Vec<HourRow>, Error> {
    let (from, to) = quarters_of(&filter);
    let mut query = Query::new(format!(
        "SELECT d.day AS row, {}, {} AS spent FROM daily d WHERE true",
        numbers_summed(database.dialect(), "d."),
        database.dialect().money_sum("d.")
    ));
    query.and("d.day >=", Some(QUARTERS + from.map_or(0, |from| from.0.max(0))));
    query.and("d.day <", to.map(|to| QUARTERS + to.0.max(0)));
    restrict(&mut query, &filter.filter, false);
    query.push(" GROUP BY 1");
    let rows =
        fetch(database, query, |row| Ok((Quarter(int(row, "row")? - QUARTERS), sums_of(row)?))).await?;
    Ok(HourRow::summed(rows, &filter.zone))
}

/// Sums of all time by agent, model and project, the most expensive first.
pub(super) async fn spending(database: &dyn SqlDatabase) -> Result<Vec<SpendingRow>, Error> {
    let dialect = database.dialect();
    let mut query = Query::new(format!(
        "SELECT d.agent AS agent, d.model AS model, d.project AS project, {}, {} AS spent FROM daily d WHERE true",
        numbers_summed(dialect, "d."),
        dialect.money_sum("d.")
    ));
    within_rows(&mut query, &UsageFilter::default());
    restrict(&mut query, &Filter::default(), true);
    query.push(" GROUP BY 1, 2, 3 ORDER BY spent DESC, 1, 2, 3");
    let rows = fetch(database, query, |row| {
        let key = SpendingKey {
            agent: text(row, "agent")?,
            model: text(row, "model")?,
            project: text(row, "project")?,
        };
        Ok(SpendingRow { key, sums: sums_of(row)?.exact() })
    });
    Ok(rows.await?.into_iter().filter(|row| row.sums != UsageSums::default()).collect())
}

/// The sums over all sessions know no branch and no session; for those the quarters of each session are added up.
const OF_SESSIONS: &str = "(SELECT d.*, s.agent, s.project, s.user_name, s.branch, s.id, s.agent_session
    FROM session_quarter d JOIN session s ON s.n = d.session) d WHERE true";

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

fn restrict(query: &mut Query, filter: &Filter, only_models: bool) {
    // Sums do not know the rest; the span is a condition on days.
    let Filter {
        agent,
        without_agent,
        project,
        branch,
        user,
        machine: _,
        model,
        tag: _,
        group: _,
        status: _,
        span: _,
        words: _,
    } = filter;
    query.and_equal("d.agent", agent.as_deref());
    query.and_equal("d.model", model.as_deref());
    query.and_equal("d.project", project.as_deref());
    query.and_equal("d.branch", branch.as_deref());
    query.and_equal("d.user_name", user.as_deref());
    query.and("d.agent <>", without_agent.as_deref());
    if only_models {
        query.push(" AND d.model <> ''");
    }
}

/// Of the sums of sessions those within the filter's days.
fn within_quarters(query: &mut Query, filter: &UsageFilter) {
    let (from, to) = quarters_of(filter);
    query.and("d.quarter >=", from.map(|Quarter(quarter)| quarter));
    query.and("d.quarter <", to.map(|Quarter(quarter)| quarter));
}

/// Of the sums over all sessions those that make up the filter's days.
fn within_rows(query: &mut Query, filter: &UsageFilter) {
    let (from, to) = quarters_of(filter);
    let mut parts = Vec::new();
    for RowRange { first, last } in covering(from, to) {
        let (first, last) = (query.bind(first), query.bind(last));
        parts.push(format!("d.day BETWEEN {first} AND {last}"));
    }
    let chosen = if parts.is_empty() { "false".to_owned() } else { parts.join(" OR ") };
    query.push(&format!(" AND ({chosen})"));
}

fn grouped(dialect: Dialect, by: By, filter: &UsageFilter) -> Query {
    let by_session = matches!(by, By::Session | By::Branch) || filter.filter.branch.is_some();
    let source = if by_session { OF_SESSIONS } else { "daily d WHERE true" };
    let (key, id) = (column(by), if by == By::Session { "d.id" } else { "NULL" });
    let mut query = Query::new(format!(
        "SELECT {key} AS key, CASE WHEN min(d.agent) = max(d.agent) THEN min(d.agent) END AS agent, {id} AS session_id,
           {}, {} AS unpriced_models, {} AS spent
         FROM {source}",
        numbers_summed(dialect, "d."),
        dialect.distinct("d.model", "d.unpriced_calls > 0"),
        dialect.money_sum("d."),
    ));
    if by_session {
        within_quarters(&mut query, filter);
    } else {
        within_rows(&mut query, filter);
    }
    restrict(&mut query, &filter.filter, by == By::Model);
    let (group, order) = match by {
        // Several sessions may have one agent session.
        By::Session => ("d.session, d.agent_session, d.id", "spent DESC, 1, d.id"),
        _ => ("1", "spent DESC, 1"),
    };
    // A session that moved to another project leaves zeros behind.
    let any: Vec<_> = Numbers::COLUMNS.iter().map(|sum| dialect.any_sum(&format!("d.{sum}"))).collect();
    query.push(&format!(" GROUP BY {group} HAVING {} ORDER BY {order}", any.join(" OR ")));
    query
}

/// The sums of a row. Their money may need more than 64 bits, and has the column `spent` of its own.
fn sums_of(row: &dyn Columns) -> Result<UsageSums, Error> {
    let counts = Numbers { cost: 0, ..numbers(row)? };
    Ok(UsageSums { counts, cost_usd: row.float("spent")?.unwrap_or(0.0) / 1e12 })
}

fn usage_row(row: &dyn Columns) -> Result<UsageRow, Error> {
    let unpriced = text(row, "unpriced_models")?;
    Ok(UsageRow {
        key: text(row, "key")?,
        agent: row.text("agent")?,
        session_id: row.text("session_id")?,
        sums: sums_of(row)?,
        unpriced_models: serde_json::from_str(&unpriced).unwrap_or_default(),
    })
}

fn series_row(row: &dyn Columns) -> Result<SeriesRow, Error> {
    Ok(SeriesRow { day: day(row, "day")?, key: text(row, "key")?, sums: sums_of(row)? })
}
