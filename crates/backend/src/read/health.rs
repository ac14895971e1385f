//! The state of delivery, and the values to filter by.

use super::{SqlDatabase, fetch, limit_to};
use crate::sql::{self, Columns, Query, int, session_columns, text, time};
use reader::Error;
use reader::{Facets, Health, Origin, Page};

pub(super) async fn health(database: &dyn SqlDatabase, limit: usize) -> Result<Health, Error> {
    let mut query = Query::new(format!("SELECT {} FROM session s WHERE s.missing > 0", session_columns()));
    query.push(" ORDER BY s.received_at DESC");
    limit_to(&mut query, limit.min(Page::MOST));
    let gaps = fetch(database, query, sql::session).await?;
    let origins = Query::new(
        "SELECT machine, user_name, first_received_at, last_received_at, events FROM origin
         ORDER BY last_received_at DESC LIMIT 1000",
    );
    let origins = fetch(database, origins, origin_row).await?;
    let mut counts = [0; 3];
    for (count, sql) in counts.iter_mut().zip([
        "SELECT count(*) AS sessions FROM session WHERE missing > 0",
        "SELECT count(*) AS sessions FROM session",
        "SELECT count(*) AS sessions FROM session WHERE status = 'active'",
    ]) {
        *count =
            fetch(database, Query::new(sql), |row| int(row, "sessions")).await?.first().copied().unwrap_or(0);
    }
    let [gap_count, sessions, active] = counts;
    Ok(Health { gaps, gap_count, origins, sessions, active })
}

pub(super) async fn facets(database: &dyn SqlDatabase) -> Result<Facets, Error> {
    let mut lists: [Vec<String>; 4] = Default::default();
    let places = [("session", "agent"), ("daily", "model"), ("session", "project"), ("session", "user_name")];
    for (list, (table, column)) in lists.iter_mut().zip(places) {
        *list = fetch(database, Query::new(different(table, column)), |row| text(row, "value")).await?;
    }
    let [agents, models, projects, users] = lists;
    Ok(Facets { agents, models, projects, users })
}

/// The different values of a column that has an index: one look-up per value instead of all rows.
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

fn origin_row(row: &dyn Columns) -> Result<Origin, Error> {
    Ok(Origin {
        machine: row.text("machine")?.filter(|machine| !machine.is_empty()),
        user: row.text("user_name")?.filter(|user| !user.is_empty()),
        first_received_at: time(row, "first_received_at")?,
        last_received_at: time(row, "last_received_at")?,
        events: int(row, "events")?,
    })
}
