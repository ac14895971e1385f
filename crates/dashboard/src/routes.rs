//! The pages at their addresses: check who asks, ask the read model, render the page.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::FormRejection;
use axum::extract::{DefaultBodyLimit, Form, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde::Deserialize;

use super::filter::{FilterParameters, PageFilter, Range, Stack, encoded};
use super::frame::{Deployment, Frame, HistoryView, empty};
use super::gate::{Gate, cookies};
use super::harmless::harmless;
use super::local_facts::{Conversation, History, Outbox, Titles};
use super::login::{self, GOOD_FOR_MS, safe_target};
use super::model::{Listing, Overview, SessionView};
use super::sort::Sort;
use super::text::Now;
use super::{Dashboard, assets, csv, health, live, overview, session, sessions, stream, turns};
use reader::{By, Counted, Cursor, Page, SessionDetail, SessionFilter, TimelinePosition, UsageFilter};
use reader::{Error, Reader};
use server::Peer;
use server::TooSlow;
use types::{Filter, Status};

/// The bytes of a login: a token and where to go after it.
const FORM: usize = 4 << 10;
/// Rows of the table of sessions.
const ROWS: usize = 50;
/// Events of one session on its page; a note says if there are more.
const EVENTS: usize = 5000;
/// Into so many parts the time of a session is cut that has more: each some pixels of a chart.
const PARTS: usize = 240;
/// Sessions on the live page: running, and recent.
const RUNNING: usize = 200;
const RECENT: usize = 30;
/// Agents whose sums are added up.
const AGENTS: usize = 10_000;
/// Models and projects on the overview, where all are asked for.
const ALL_ROWS: usize = 1000;
/// People named on the overview; more are only counted up to this.
const PEOPLE: usize = 200;

/// Content of this server alone, nothing inline, never in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

type Shared = State<Arc<Dashboard>>;

/// All pages. Every answer has the headers that keep a browser from doing more than showing it.
pub fn router(dashboard: Dashboard) -> Router {
    let dashboard = Arc::new(dashboard);
    let inside = Router::new()
        .route("/", get(overview_page))
        .route("/sessions", get(sessions_page))
        .route("/sessions/{id}", get(session_page))
        .route("/live", get(live_page))
        .route("/live/events", get(stream::events))
        .route("/health", get(health_page))
        .route("/csv/{table}", get(csv::download))
        .route_layer(middleware::from_fn_with_state(dashboard.clone(), guard));
    Router::new()
        .merge(inside)
        .route("/login", get(login_page).post(log_in).layer(DefaultBodyLimit::max(FORM)))
        .route("/logout", post(log_out))
        .route("/enter", get(enter))
        .route("/favicon.ico", get(|| async { assets::icon() }))
        .route("/static/{file}", get(|uri: Uri| async move { assets::serve(uri.path()) }))
        .fallback(no_page)
        .layer(middleware::map_response(harden))
        .with_state(dashboard)
}

async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Pages with numbers of people's work stay in no cache.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Lets requests with a pass through, and sends all others to the login.
async fn guard(State(dashboard): Shared, request: Request, next: Next) -> Result<Response, Failure> {
    if dashboard.gate.admits(cookies(request.headers()), dashboard.now().at).await? {
        if let Some(peer) = request.extensions().get::<Peer>() {
            peer.mark_authenticated();
        }
        return Ok(next.run(request).await);
    }
    let wants_page = request.method() == Method::GET && request.uri().path() != "/live/events";
    if !wants_page {
        return Ok((StatusCode::UNAUTHORIZED, "log in first\n").into_response());
    }
    let asked = request.uri().path_and_query().map_or("/", |asked| asked.as_str());
    // After a link from another site the browser keeps the cookie back until a page of ours asks.
    if request.headers().get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        return Ok(page(&login::onward(safe_target(asked))).into_response());
    }
    let login = if asked == "/" { "/login".to_owned() } else { format!("/login?next={}", encoded(asked)) };
    Ok(Redirect::to(&login).into_response())
}

async fn overview_page(
    State(dashboard): Shared,
    Query(given): Query<FilterParameters>,
) -> Result<Html<String>, Failure> {
    let (mut frame, filter) = (dashboard.frame(), given.filter(Range::Days(30))?);
    frame.enter_zone(&filter)?;
    let Some(reader) = &dashboard.source(&mut frame, &filter).await? else {
        return Ok(page(&overview::page(&frame, &filter, &Overview::default())));
    };
    let (today, now) = (frame.now.today(), &frame.now);
    let facets = reader.facets().await?;
    let usage = filter.usage(now, &facets);
    let of = |by, limit| reader.usage(by, usage.clone(), 0..limit);
    let sums = async |filter: Option<UsageFilter>| match filter {
        Some(filter) => reader.usage(By::Agent, filter, 0..AGENTS).await.map(|page| Some(page.rows)),
        None => Ok(None),
    };
    let with_model = async || match filter.chosen.model {
        Some(_) => reader.count_sessions(filter.sessions(now, &facets), sessions::COUNTED).await.map(Some),
        _ => Ok(None),
    };
    let before = filter.before(today).map(|before| before.usage(now, &facets));
    let demo = usage.filter.without_agent.is_some().then(|| filter.only_demo().usage(now, &facets));
    // Side by side: with many sessions each of them is work for a core.
    let rows = if filter.all_rows { ALL_ROWS } else { overview::BARS + 1 };
    let stacked = async {
        match filter.stack {
            Stack::Agent => Ok(Vec::new()),
            stack => reader.series(stack.by(), usage.clone()).await,
        }
    };
    let (days, stacked, hours, models, projects, users, before, demo, with_model) = tokio::try_join!(
        reader.series(By::Agent, usage.clone()),
        stacked,
        reader.hours(usage.clone()),
        of(By::Model, rows),
        of(By::Project, rows),
        of(By::User, PEOPLE),
        sums(before),
        sums(demo),
        with_model(),
    )?;
    let (models, projects, users) = (models.rows, projects.rows, users.rows);
    let (before, demo_left_out) =
        (before.map(|rows| Overview::added(&rows)), demo.is_some_and(|rows| !rows.is_empty()));
    let view =
        Overview { facets, days, stacked, hours, models, projects, users, before, with_model, demo_left_out };
    Ok(page(&overview::page(&frame, &filter, &view)))
}

async fn sessions_page(
    State(dashboard): Shared,
    Query(given): Query<FilterParameters>,
) -> Result<Html<String>, Failure> {
    let (mut frame, filter) = (dashboard.frame(), given.filter(Range::All)?);
    frame.enter_zone(&filter)?;
    let after = filter.after.as_deref().map(str::parse::<Cursor>).transpose();
    let after = after
        .and_then(|after| Cursor::fitting(after, filter.order(frame.now.at)))
        .map_err(|error| Failure::BadParameter(format!("{error}")))?;
    let Some(reader) = &dashboard.source(&mut frame, &filter).await? else {
        return Ok(page(&sessions::page(&frame, &filter, &Listing::default())));
    };
    let (today, now) = (frame.now.today(), &frame.now);
    let facets = reader.facets().await?;
    let asked = SessionFilter { also: dashboard.titled(&filter).await?, ..filter.sessions(now, &facets) };
    let first = after.is_none();
    let demo = async {
        match asked.filter.without_agent {
            Some(_) => reader.count_sessions(filter.only_demo().sessions(now, &facets), 1).await,
            None => Ok(Counted::default()),
        }
    };
    let all = async {
        if !filter.countable(today) {
            return Ok(None); // there is no index: every session would be looked at
        }
        reader.count_sessions(asked.clone(), sessions::COUNTED).await.map(Some)
    };
    let wanted = Page { after, limit: ROWS };
    let (listing, demo, all) = tokio::try_join!(reader.sessions(asked.clone(), wanted), demo, all)?;
    let demo_left_out = demo.sessions > 0;
    let total = if first && listing.next.is_none() { Some(Counted::of(&listing.sessions)) } else { all };
    let (ids, reopened) = sessions::unlinked(&listing.sessions);
    let chained = reader.chained(ids, reopened).await?.into_iter().collect();
    frame.titles = dashboard.titles(&listing.sessions).await?;
    let view = Listing { facets, page: listing, total, chained, demo_left_out };
    Ok(page(&sessions::page(&frame, &filter, &view)))
}

/// The parameters of a page that has no filter.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SortParameters {
    sort: String,
    order: String,
}

async fn session_page(
    State(dashboard): Shared,
    Path(id): Path<String>,
    Query(given): Query<SortParameters>,
) -> Result<Response, Failure> {
    let sort = Sort::parse(&given.sort, &given.order)?;
    let mut frame = dashboard.frame();
    // No database is asked for an id with NUL; not every one could be.
    let found = if id.contains('\0') { None } else { dashboard.session(&id).await? };
    let Some((reader, detail)) = found else {
        return Ok((StatusCode::NOT_FOUND, page(&session::absent(&frame, &id))).into_response());
    };
    let around =
        [&detail.session].into_iter().chain(&detail.chain).chain(&detail.parent).chain(&detail.children);
    frame.titles = dashboard.titles(around).await?;
    let mut timeline = reader.timeline(&id, TimelinePosition::default(), EVENTS).await?;
    turns::order(&mut timeline.events);
    let activity = if timeline.next.is_some() {
        let (from, to) = session::span(&detail.session, frame.now.at);
        Some(reader.activity(&id, from, to, PARTS).await?)
    } else {
        None
    };
    let view = SessionView { detail, events: timeline.events, activity };
    Ok(page(&session::page(&frame, &view, sort)).into_response())
}

async fn live_page(State(dashboard): Shared) -> Result<Html<String>, Failure> {
    let running = dashboard.running().await?;
    let recent = dashboard.reader.sessions(SessionFilter::default(), Page::first(RECENT)).await?;
    let mut frame = dashboard.frame();
    frame.titles = dashboard.titles(running.iter().chain(&recent.sessions)).await?;
    Ok(page(&live::page(&frame, &running, &recent.sessions)))
}

async fn health_page(
    State(dashboard): Shared,
    Query(given): Query<SortParameters>,
) -> Result<Html<String>, Failure> {
    let sort = Sort::parse(&given.sort, &given.order)?;
    let (health, outbox) = tokio::try_join!(dashboard.reader.health(health::GAPS), dashboard.outbox())?;
    Ok(page(&health::page(&dashboard.frame(), &health, outbox.as_deref(), sort)))
}

/// Browsers get a page, programs one line.
async fn no_page(headers: HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepts.contains("text/html") {
        Failure::Absent.into_response()
    } else {
        (StatusCode::NOT_FOUND, "there is nothing at this address\n").into_response()
    }
}

#[derive(Deserialize)]
struct Target {
    #[serde(default)]
    next: String,
}

async fn login_page(
    State(dashboard): Shared,
    headers: HeaderMap,
    Query(target): Query<Target>,
) -> Result<Response, Failure> {
    let next = safe_target(&target.next);
    if dashboard.gate.admits(cookies(&headers), dashboard.now().at).await? {
        return Ok(Redirect::to(next).into_response());
    }
    Ok(match &dashboard.local {
        None => page(&login::page(next, false)).into_response(),
        Some(facts) => (StatusCode::UNAUTHORIZED, page(&login::closed(facts.command()))).into_response(),
    })
}

#[derive(Deserialize)]
struct Login {
    token: String,
    #[serde(default)]
    next: String,
}

async fn log_in(
    State(dashboard): Shared,
    headers: HeaderMap,
    form: Result<Form<Login>, FormRejection>,
) -> Result<Response, Failure> {
    own_form(&headers)?;
    let Form(form) = form?;
    let next = safe_target(&form.next);
    if matches!(dashboard.gate, Gate::Tokens(_))
        && let Some(cookie) = dashboard.pass(&headers, &form.token).await?
    {
        return Ok(([(header::SET_COOKIE, cookie)], Redirect::to(next)).into_response());
    }
    tracing::warn!("a login with a token that may not read");
    Ok((StatusCode::UNAUTHORIZED, page(&login::page(next, true))).into_response())
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

/// The address that `codemie dashboard` prints. The code is gone from the address bar before a page is shown.
async fn enter(
    State(dashboard): Shared,
    headers: HeaderMap,
    Query(given): Query<Code>,
) -> Result<Response, Failure> {
    if matches!(dashboard.gate, Gate::Once(_))
        && let Some(cookie) = dashboard.pass(&headers, &given.code).await?
    {
        return Ok(([(header::SET_COOKIE, cookie)], page(&login::onward("/"))).into_response());
    }
    // A browser that is logged in and comes back by the old address.
    Ok(Redirect::to(if dashboard.gate.admits(cookies(&headers), dashboard.now().at).await? {
        "/"
    } else {
        "/login"
    })
    .into_response())
}

/// Removes the cookie from this browser, and ends every copy of it.
async fn log_out(State(dashboard): Shared, headers: HeaderMap) -> Result<Response, Failure> {
    own_form(&headers)?;
    dashboard.gate.close(cookies(&headers), dashboard.now().at).await?;
    let cookie = format!("{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict", dashboard.gate.cookie_name());
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/login")).into_response())
}

/// Refuses a form of another site, which browsers mark as such.
fn own_form(headers: &HeaderMap) -> Result<(), Failure> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let foreign = match (text(&HeaderName::from_static("sec-fetch-site")), text(&header::ORIGIN)) {
        (Some(site), _) => !matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => origin.split_once("://").map(|(_, host)| host) != text(&header::HOST),
        (None, None) => false,
    };
    if foreign { Err(Failure::Foreign) } else { Ok(()) }
}

impl Dashboard {
    pub(super) fn now(&self) -> Now {
        Now { at: self.clock.now(), zone: self.zone.clone() }
    }

    pub(super) fn frame(&self) -> Frame {
        let deployment =
            if matches!(self.gate, Gate::Once(_)) { Deployment::Local } else { Deployment::Backend };
        let (zone_name, titles) = (self.zone_name.clone(), Titles::default());
        let history = HistoryView::None;
        Frame { now: self.now(), zone_name, deployment, agents: self.agents, titles, history }
    }

    pub(super) async fn running(&self) -> Result<Vec<reader::Session>, Error> {
        let filter = Filter { status: Some(Status::Active), ..Filter::default() };
        Ok(self.reader.sessions(filter.into(), Page::first(RUNNING)).await?.sessions)
    }

    /// What a page with this filter reads; `None` if that is not known yet. Notes on the frame which it is.
    pub(super) async fn source(
        &self,
        frame: &mut Frame,
        filter: &PageFilter,
    ) -> Result<Option<Arc<dyn Reader>>, Error> {
        let Some(facts) = self.local.clone().filter(|facts| facts.has_history()) else {
            return Ok(Some(self.reader.clone()));
        };
        if !filter.history {
            frame.history = HistoryView::Offered;
            return Ok(Some(self.reader.clone()));
        }
        let Some(History { reader, state }) = aside(move || facts.history()).await? else {
            return Ok(Some(self.reader.clone()));
        };
        frame.history =
            if reader.is_some() { HistoryView::Shown(state) } else { HistoryView::Awaited(state) };
        Ok(reader)
    }

    /// A session, and where it is from: one that never ran through codemie is in the history alone.
    async fn session(&self, id: &str) -> Result<Option<(Arc<dyn Reader>, SessionDetail)>, Error> {
        if let Some(detail) = self.reader.session(id).await? {
            return Ok(Some((self.reader.clone(), detail)));
        }
        let Some(facts) = self.local.clone().filter(|facts| facts.has_history()) else { return Ok(None) };
        let history = aside(move || facts.history()).await?;
        let Some(reader) = history.and_then(|history| history.reader) else { return Ok(None) };
        Ok(reader.session(id).await?.map(|detail| (reader, detail)))
    }

    async fn outbox(&self) -> Result<Option<Vec<Outbox>>, Error> {
        let Some(facts) = self.local.clone() else { return Ok(None) };
        aside(move || facts.outbox()).await
    }

    /// What these sessions are about, as far as this machine knows.
    pub(super) async fn titles<'a>(
        &self,
        sessions: impl IntoIterator<Item = &'a reader::Session>,
    ) -> Result<Titles, Error> {
        let Some(facts) = self.local.clone() else { return Ok(Titles::default()) };
        let sessions: Vec<_> = sessions.into_iter().map(Conversation::of).collect();
        aside(move || facts.titles(&sessions)).await
    }

    /// The sessions whose title has the words that a filter asks for.
    pub(super) async fn titled(&self, filter: &PageFilter) -> Result<Vec<String>, Error> {
        let (Some(facts), Some(text)) = (self.local.clone(), filter.search().map(str::to_owned)) else {
            return Ok(Vec::new());
        };
        let history = filter.history;
        aside(move || facts.titled(&text, history)).await
    }

    /// The cookie for a secret that may read.
    async fn pass(&self, headers: &HeaderMap, secret: &str) -> Result<Option<String>, Error> {
        let Some(pass) = self.gate.open(secret, self.now().at).await? else { return Ok(None) };
        // Behind a proxy that speaks TLS the cookie must never travel without it.
        let proxied = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
        let (name, secure) = (self.gate.cookie_name(), if proxied { "; Secure" } else { "" });
        let seconds = GOOD_FOR_MS / 1000;
        Ok(Some(format!(
            "{name}={}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}",
            pass.to_cookie()
        )))
    }
}

/// On a thread that may be kept waiting.
async fn aside<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(ask).await.map_err(|error| Error::Failed(error.to_string()))
}

fn page(markup: &Markup) -> Html<String> {
    Html(harmless(markup))
}

/// Why there is no page.
#[derive(Debug)]
pub(super) enum Failure {
    BadParameter(String),
    Foreign,
    /// The history is being read for the first time.
    HistoryAwaited,
    Form(FormRejection),
    Absent,
    Storage(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Storage(error)
    }
}

impl From<FormRejection> for Failure {
    fn from(rejection: FormRejection) -> Self {
        Self::Form(rejection)
    }
}

impl From<super::filter::BadParameter> for Failure {
    fn from(bad: super::filter::BadParameter) -> Self {
        Self::BadParameter(bad.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (status, what, next) = match self {
            Self::BadParameter(error) => (StatusCode::BAD_REQUEST, "This address makes no sense", error),
            Self::Foreign => (
                StatusCode::FORBIDDEN,
                "This came from another site",
                "Open the page itself and try again.".to_owned(),
            ),
            Self::HistoryAwaited => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The history is still being read",
                "Ask again in a moment.".to_owned(),
            ),
            Self::Form(rejection) => {
                let slow = TooSlow::caused(&rejection);
                let status = if slow { StatusCode::REQUEST_TIMEOUT } else { rejection.status() };
                (status, "This form did not arrive whole", "Open the page itself and try again.".to_owned())
            }
            Self::Absent => (
                StatusCode::NOT_FOUND,
                "There is no such page",
                "Nothing of the dashboard is at this address.".to_owned(),
            ),
            Self::Storage(error) => {
                tracing::error!(%error, "a page could not be made");
                let next = "Load the page again in a moment; the server's log tells more.".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, "The database does not answer", next)
            }
        };
        let content = html! { div.panel { (empty(what, &html! { (next) " " a href="/" { "Overview" } })) } };
        (status, page(&super::frame::outside_page(what, &content))).into_response()
    }
}
