//! The numbers of the tables as files of comma-separated values.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::Dashboard;
use super::filter::{FilterParameters, Range};
use super::routes::Failure;
use super::sort::Sort;
use super::table::{SortValue, first};
use super::text::without_date;
use reader::{By, Page, Session, SessionFilter, UsageRow};

/// Rows of one file; more would be asked for by the API.
const ROWS: usize = 10_000;

/// `/csv/day`, `/csv/model`, …: usage by that, or `/csv/sessions`, under the filter of the address.
pub(super) async fn download(
    State(dashboard): State<Arc<Dashboard>>,
    Path(table): Path<String>,
    Query(given): Query<FilterParameters>,
) -> Result<Response, Failure> {
    let sessions = table == "sessions";
    let filter = given.filter(if sessions { Range::All } else { Range::Days(30) })?;
    let mut frame = dashboard.frame();
    frame.enter_zone(&filter)?;
    let Some(reader) = dashboard.source(&mut frame, &filter).await? else {
        return Err(Failure::HistoryAwaited);
    };
    let facets = reader.facets().await?;
    let text = if sessions {
        let also = dashboard.titled(&filter).await?;
        let asked = SessionFilter { also, ..filter.sessions(&frame.now, &facets) };
        let mut rows = Vec::new();
        let mut page = Page::first(Page::MOST);
        while rows.len() < ROWS {
            let more = reader.sessions(asked.clone(), page).await?;
            rows.extend(more.sessions);
            let Some(next) = more.next else { break };
            page = Page { after: Some(next), limit: Page::MOST };
        }
        of_sessions(&rows)
    } else {
        let by = By::parse(&table).ok_or(Failure::Absent)?;
        let usage = filter.usage(&frame.now, &facets);
        let mut rows = reader.usage(by, usage, 0..ROWS).await?.rows;
        order(&mut rows, filter.sort.filter(|sort| sort.table == table));
        of_usage(by, &rows)
    };
    let name = format!("attachment; filename=\"codemie-{table}.csv\"");
    Ok((
        [(header::CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()), (header::CONTENT_DISPOSITION, name)],
        text,
    )
        .into_response())
}

/// Puts rows in the order in which the page shows them.
fn order(rows: &mut [UsageRow], asked: Option<Sort>) {
    let Some(Sort { column, descending, .. }) = asked else { return };
    let value = |UsageRow { key, sums, .. }: &UsageRow| -> SortValue {
        let counts = &sums.counts;
        match column {
            "name" => without_date(key).into(),
            "sessions" => counts.sessions.into(),
            "calls" => counts.api_calls.into(),
            "input" => counts.input.into(),
            "cacheRead" => counts.cache_read.into(),
            "cacheWrite" => counts.cache_write.into(),
            "output" => counts.output.into(),
            _ => sums.cost_usd.into(),
        }
    };
    rows.sort_by(|one, two| first(Some(&value(one)), Some(&value(two)), descending));
}

fn of_usage(by: By, rows: &[UsageRow]) -> String {
    let mut text = format!(
        "{by},sessions,apiCalls,inputTokens,cacheReadTokens,cacheWriteTokens,outputTokens,reasoningTokens,costUsd,unpricedCalls\n"
    );
    for row in rows {
        let counts = &row.sums.counts;
        // Sessions belong to no model: under one they are not known.
        let sessions = if by == By::Model { String::new() } else { counts.sessions.to_string() };
        let _ = writeln!(
            text,
            "{},{sessions},{},{},{},{},{},{},{},{}",
            field(&row.key),
            counts.api_calls,
            counts.input,
            counts.cache_read,
            counts.cache_write,
            counts.output,
            counts.reasoning,
            row.sums.cost_usd,
            counts.unpriced_calls
        );
    }
    text
}

fn of_sessions(rows: &[Session]) -> String {
    let mut text =
        "sessionId,name,agent,project,branch,user,status,startTime,apiCalls,tokens,costUsd,unpricedCalls\n"
            .to_owned();
    for session in rows {
        let numbers = &session.numbers;
        let fields = [
            &*session.id,
            session.name(),
            &session.life.agent,
            session.project().unwrap_or_default(),
            session.branch().unwrap_or_default(),
            session.life.user.as_deref().unwrap_or_default(),
            session.status().as_str(),
        ];
        let fields: Vec<String> = fields.into_iter().map(field).collect();
        let _ = writeln!(
            text,
            "{},{},{},{},{},{}",
            fields.join(","),
            session.started_at(),
            numbers.api_calls,
            numbers.tokens(),
            numbers.dollars(),
            numbers.unpriced_calls
        );
    }
    text
}

/// A value as RFC 4180 writes it. One that a spreadsheet would take for a formula is made a plain text by a quote before it.
fn field(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_and_no_formula_stays_one() {
        for (value, written) in [
            ("plain", "plain"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"no\"", "\"say \"\"no\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "'=1+1"),
            ("@x,y", "\"'@x,y\""),
        ] {
            assert_eq!(field(value), written);
        }
    }
}
