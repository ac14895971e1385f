//! Sums: by a key, and per day.

use std::ops::Range;

use super::{SqlDatabase, fetch, limit_to, numbers_summed};
use crate::model::{By, Day, Month, SeriesRow, UsageFilter, UsagePage, UsageRow, UsageSums};
use crate::numbers::Numbers;
use crate::sql::{Columns, Dialect, Query, day, numbers, text};
use crate::storage::Error;

pub(super) async fn page(
    database: &dyn SqlDatabase,
    by: By,
    filter: UsageFilter,
    wanted: Range<usize>,
) -> Result<UsagePage, Error> {
    let limit = wanted.len();
    let mut query = grouped(database.dialect(), by, filter);
    limit_to(&mut query, limit.saturating_add(1));
    if wanted.start > 0 {
        let start = query.bind(i64::try_from(wanted.start).unwrap_or(i64::MAX));
        query.push(&format!(" OFFSET {start}"));
    }
    let mut rows = fetch(database, query, usage_row).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    if by == By::Day {
        rows.reverse();
        for row in &mut rows {
            row.key =
                row.key.parse().map_or_else(|_| std::mem::take(&mut row.key), |day| Day(day).to_string());
        }
    }
    Ok(UsagePage { rows, more })
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
    let source = source(filter.branch.is_some());
    let mut query = Query::new(format!(
        "SELECT d.day AS day, {key} AS key, {}, {} AS spent FROM {source}",
        numbers_summed(database.dialect(), "d."),
        database.dialect().money_sum("d.")
    ));
    each_day(&mut query, filter.since, filter.until);
    restrict(&mut query, filter, by == By::Model);
    query.push(" GROUP BY 1, 2 ORDER BY 1, 2");
    let mut rows = fetch(database, query, series_row).await?;
    rows.retain(|row| row.sums != UsageSums::default());
    Ok(rows)
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

fn grouped(dialect: Dialect, by: By, filter: UsageFilter) -> Query {
    let by_session = matches!(by, By::Session | By::Branch) || filter.branch.is_some();
    let source = source(by_session);
    let (key, id) = (column(by), if by == By::Session { "d.id" } else { "NULL" });
    let key = if by == By::Day { format!("CAST({key} AS text)") } else { key.to_owned() };
    let mut query = Query::new(format!(
        "SELECT {key} AS key, CASE WHEN min(d.agent) = max(d.agent) THEN min(d.agent) END AS agent, {id} AS session_id,
           {}, {} AS unpriced_models, {} AS spent
         FROM {source}",
        numbers_summed(dialect, "d."),
        dialect.distinct("d.model", "d.unpriced_calls > 0"),
        dialect.money_sum("d."),
    ));
    if by_session || by == By::Day {
        each_day(&mut query, filter.since, filter.until);
    } else {
        together(&mut query, filter.since, filter.until);
    }
    restrict(&mut query, filter, by == By::Model);
    let (group, order) = match by {
        By::Day => ("d.day", "d.day DESC"),
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
fn sums(row: &dyn Columns) -> Result<UsageSums, Error> {
    let counts = Numbers { cost: 0, ..numbers(row)? };
    Ok(UsageSums { counts, cost_usd: row.float("spent")?.unwrap_or(0.0) / 1e12 })
}

fn usage_row(row: &dyn Columns) -> Result<UsageRow, Error> {
    let unpriced = text(row, "unpriced_models")?;
    Ok(UsageRow {
        key: text(row, "key")?,
        agent: row.text("agent")?,
        session_id: row.text("session_id")?,
        sums: sums(row)?,
        unpriced_models: serde_json::from_str(&unpriced).unwrap_or_default(),
    })
}

fn series_row(row: &dyn Columns) -> Result<SeriesRow, Error> {
    Ok(SeriesRow { day: day(row, "day")?, key: text(row, "key")?, sums: sums(row)? })
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

    /// The rows that a query chooses among those of three months, every day and month, in the order of time.
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
