//! The routes that read: sessions, usage, health, counters.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode, header};
use jiff::tz::TimeZone;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::Backend;
use super::answer::Refusal;
use super::record::Record;
use format::since::Since;
use reader::{
    By, Cursor, Day, Order, Page, SessionFilter, TimelineEvent, TimelinePosition, UsageFilter, UsageRow,
    UsageSums,
};
use types::{Filter, Span, Status};

type Shared = State<Arc<Backend>>;

/// The number of sessions, rows or events without a `limit`.
pub(super) const DEFAULT_SESSIONS: usize = 50;
pub(super) const DEFAULT_ROWS: usize = 1000;
/// The highest `limit` for rows or events.
pub(super) const MAX_ROWS: usize = 10_000;

/// The query of an address; an unknown name in it is an error.
pub(super) struct StrictQuery<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for StrictQuery<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        // No database text holds NUL, so nothing can be found by it.
        if parts.uri.query().is_some_and(|query| query.contains("%00")) {
            return Err(Refusal::BadRequest("a parameter contains NUL".to_owned()));
        }
        let query = Query::try_from_uri(&parts.uri);
        query.map(|Query(query)| Self(query)).map_err(|error| Refusal::BadRequest(error.body_text()))
    }
}

/// An empty parameter is one that was not given, as a form sends it.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}

fn moment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Since>, D::Error> {
    given(deserializer)?.map(|text| text.parse().map_err(D::Error::custom)).transpose()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionsQuery {
    #[serde(default, deserialize_with = "given")]
    agent: Option<String>,
    #[serde(default, deserialize_with = "given")]
    project: Option<String>,
    #[serde(default, deserialize_with = "given")]
    branch: Option<String>,
    #[serde(default, deserialize_with = "given")]
    user: Option<String>,
    #[serde(default, deserialize_with = "given")]
    machine: Option<String>,
    #[serde(default, deserialize_with = "given")]
    model: Option<String>,
    #[serde(default, deserialize_with = "given")]
    search: Option<String>,
    #[serde(default, deserialize_with = "given")]
    group: Option<String>,
    status: Option<Status>,
    #[serde(default, deserialize_with = "moment")]
    since: Option<Since>,
    #[serde(default, deserialize_with = "moment")]
    until: Option<Since>,
    #[serde(default)]
    gaps: bool,
    #[serde(default, deserialize_with = "given")]
    cursor: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct SessionsAnswer {
    sessions: Vec<Record>,
    /// To be given as `cursor` for the next page.
    next: Option<String>,
}

/// A number of things asked for, or the reason why not.
fn limit(asked: Option<usize>, otherwise: usize, most: usize) -> Result<usize, Refusal> {
    match asked {
        None => Ok(otherwise),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(_) => Err(Refusal::BadRequest(format!("limit is between 1 and {most}"))),
    }
}

pub(super) async fn sessions(
    State(backend): Shared,
    StrictQuery(query): StrictQuery<SessionsQuery>,
) -> Result<Json<SessionsAnswer>, Refusal> {
    let now = backend.clock.now();
    let cursor: Option<Cursor> = query
        .cursor
        .map(|cursor| cursor.parse())
        .transpose()
        .and_then(|cursor: Option<Cursor>| Cursor::fitting(cursor, Order::NEWEST))
        .map_err(|error| Refusal::BadRequest(format!("cursor: {error}")))?;
    let page = Page { after: cursor, limit: limit(query.limit, DEFAULT_SESSIONS, Page::MOST)? };
    let at = |moment: Option<Since>| moment.map(|moment| moment.before(now, &TimeZone::UTC));
    let filter = Filter {
        agent: query.agent,
        project: query.project,
        branch: query.branch,
        user: query.user,
        machine: query.machine,
        model: query.model,
        group: query.group,
        status: query.status,
        span: Span { since: at(query.since), until: at(query.until) },
        words: query.search.filter(|words| !words.is_empty()).into_iter().collect(),
        ..Filter::default()
    };
    let asked = SessionFilter { gaps: query.gaps, ..filter.into() };
    let page = backend.storage.sessions(asked, page).await?;
    let sessions = page.sessions.iter().map(|session| Record::of(session, now)).collect();
    Ok(Json(SessionsAnswer { sessions, next: page.next.map(|next| next.to_string()) }))
}

/// An id from the path; no session has one with NUL.
fn checked(id: String) -> Result<String, Refusal> {
    if id.contains('\0') { Err(Refusal::NotFound("session")) } else { Ok(id) }
}

pub(super) async fn session(State(backend): Shared, Path(id): Path<String>) -> Result<Json<Record>, Refusal> {
    let found = backend.storage.sessions_by_id(vec![checked(id)?]).await?.pop();
    let session = found.ok_or(Refusal::NotFound("session"))?;
    Ok(Json(Record::of(&session, backend.clock.now())))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TimelineQuery {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
pub(super) struct TimelineAnswer {
    events: Vec<TimelineEvent>,
    /// To be given as `after` for the next page.
    next: Option<String>,
}

pub(super) async fn timeline(
    State(backend): Shared,
    Path(id): Path<String>,
    StrictQuery(query): StrictQuery<TimelineQuery>,
) -> Result<Json<TimelineAnswer>, Refusal> {
    let (id, limit) = (checked(id)?, limit(query.limit, DEFAULT_ROWS, MAX_ROWS)?);
    let after: Option<TimelinePosition> = query
        .after
        .map(|after| after.parse())
        .transpose()
        .map_err(|error| Refusal::BadRequest(format!("after: {error}")))?;
    if backend.storage.sessions_by_id(vec![id.clone()]).await?.is_empty() {
        return Err(Refusal::NotFound("session"));
    }
    let page = backend.storage.timeline(&id, after.unwrap_or_default(), limit).await?;
    Ok(Json(TimelineAnswer { events: page.events, next: page.next.map(|next| next.to_string()) }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageQuery {
    by: Option<By>,
    #[serde(default, deserialize_with = "given")]
    agent: Option<String>,
    #[serde(default, deserialize_with = "given")]
    model: Option<String>,
    #[serde(default, deserialize_with = "given")]
    project: Option<String>,
    #[serde(default, deserialize_with = "given")]
    branch: Option<String>,
    #[serde(default, deserialize_with = "given")]
    user: Option<String>,
    #[serde(default, deserialize_with = "moment")]
    since: Option<Since>,
    #[serde(default, deserialize_with = "moment")]
    until: Option<Since>,
    #[serde(default, deserialize_with = "given")]
    timezone: Option<String>,
    limit: Option<usize>,
    /// How many rows were given before.
    cursor: Option<u32>,
}

pub(super) async fn usage(
    State(backend): Shared,
    StrictQuery(query): StrictQuery<UsageQuery>,
) -> Result<Json<Value>, Refusal> {
    let now = backend.clock.now();
    let zone = match &query.timezone {
        Some(name) => os::zone::of_name(name).ok_or(Refusal::NotFound("time zone"))?,
        None => backend.zone.clone(),
    };
    let day = |moment: Option<Since>| moment.map(|moment| Day::of_in(moment.before(now, &zone), &zone));
    let filter = Filter {
        agent: query.agent,
        model: query.model,
        project: query.project,
        branch: query.branch,
        user: query.user,
        span: Day::span_in(day(query.since), day(query.until), &zone),
        ..Filter::default()
    };
    let of_model = filter.model.is_some();
    let filter = UsageFilter { filter, zone };
    let (by, limit) = (query.by.unwrap_or(By::Day), limit(query.limit, DEFAULT_ROWS, MAX_ROWS)?);
    // The total covers everything, not only the rows of this page; agents are few.
    let all = backend.storage.usage(By::Agent, filter.clone(), 0..MAX_ROWS).await?;
    let before = usize::try_from(query.cursor.unwrap_or(0)).unwrap_or(usize::MAX);
    let page = backend.storage.usage(by, filter, before..before.saturating_add(limit)).await?;
    let mut total = UsageRow::default();
    for row in &all.rows {
        total.sums.add(&row.sums);
        total.unpriced_models.extend(row.unpriced_models.iter().cloned());
    }
    total.unpriced_models.sort();
    total.unpriced_models.dedup();
    let rows: Vec<Value> = page.rows.iter().map(|row| usage_row(row, by == By::Model || of_model)).collect();
    let total = sums(&total.sums, &total.unpriced_models, of_model);
    let next = page.more.then(|| (before + limit).to_string());
    Ok(Json(json!({"by": by, "rows": rows, "more": page.more, "next": next, "total": total})))
}

fn usage_row(row: &UsageRow, of_model: bool) -> Value {
    let mut row_json = sums(&row.sums, &row.unpriced_models, of_model);
    row_json["key"] = json!(row.key);
    row_json["agent"] = json!(row.agent);
    if let Some(id) = &row.session_id {
        row_json["sessionId"] = json!(id);
    }
    row_json
}

/// The numbers that belong to no model: in the sums of one model they are not known.
pub(super) const OF_NO_MODEL: [&str; 7] =
    ["sessions", "prompts", "toolCalls", "toolErrors", "linesAdded", "linesRemoved", "apiErrors"];

/// With the names of `codemie usage --json`.
fn sums(sums: &UsageSums, unpriced_models: &[String], of_model: bool) -> Value {
    let counts = &sums.counts;
    let mut sums_json = json!({
        "sessions": counts.sessions,
        "apiCalls": counts.api_calls,
        "inputTokens": counts.input,
        "outputTokens": counts.output,
        "cacheReadTokens": counts.cache_read,
        "cacheWriteTokens": counts.cache_write,
        "reasoningTokens": counts.reasoning,
        "costUsd": (sums.cost_usd * 1e12).round() / 1e12, // sums of floats are a little beside it
        "unpricedModels": unpriced_models,
        "prompts": counts.prompts,
        "toolCalls": counts.tool_calls,
        "toolErrors": counts.tool_errors,
        "linesAdded": counts.lines_added,
        "linesRemoved": counts.lines_removed,
        "apiErrors": counts.api_errors,
    });
    for name in OF_NO_MODEL.into_iter().filter(|_| of_model) {
        sums_json[name] = Value::Null;
    }
    sums_json
}

pub(super) async fn healthz(State(backend): Shared) -> (StatusCode, Json<Value>) {
    match backend.health.ask(&*backend.storage).await {
        Ok(()) => (StatusCode::OK, Json(json!({"status": "ok"}))),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": reason}))),
    }
}

const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) async fn metrics(State(backend): Shared) -> ([(HeaderName, &'static str); 1], String) {
    let health = backend.storage.health(0).await.ok();
    let spending = backend.spending.series(&*backend.storage).await.unwrap_or_default();
    ([(header::CONTENT_TYPE, EXPOSITION)], backend.metrics.text(health.as_ref(), &spending))
}
