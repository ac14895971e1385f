//! The live page's stream: rows of HTML as server-sent events.
//!
//! | event | data | the page |
//! |---|---|---|
//! | `reset` | – | forgets what runs: all of it follows |
//! | `running` | a row | puts or replaces it among what runs |
//! | `gone` | a session's id | takes it away there |
//! | `told` | a row | puts it on top of what happened |
//!
//! The storage says which sessions something happened in; what happened is seen by comparing. So nothing is told twice, and
//! whoever was too slow to hear of everything gets all of it anew.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::Dashboard;
use super::frame::Frame;
use super::live::{running_row, told_row};
use super::routes::cookies;
use crate::backend::limits;
use crate::backend::model::Session;
use crate::backend::storage::Error;
use crate::clock::Timestamp;
use crate::session::state::{EventType, Status};

/// Events on their way to one browser. One that does not read makes the sender wait, not the memory grow.
const QUEUE: usize = 64;
/// What comes within this time is told together: a busy backend is not asked for every event.
const TOGETHER: Duration = Duration::from_millis(150);
/// So often a quiet line is written to, so that proxies keep it and a dead one is found out.
const ALIVE: Duration = Duration::from_secs(15);
/// What happened longer ago is no news when it arrives: a machine sends its history.
const NEWS_MS: i64 = 600_000;

pub(super) async fn events(State(dashboard): State<Arc<Dashboard>>, headers: HeaderMap) -> Response {
    let Ok(seat) = dashboard.seats.clone().try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many live pages are open\n").into_response();
    };
    let (sender, mut receiver) = mpsc::channel(QUEUE);
    let mut closing = dashboard.closing.clone();
    let cookies = cookies(&headers).to_owned();
    tokio::spawn(async move {
        let _seat = seat;
        let over = async { drop(closing.wait_for(|closing| *closing).await) };
        tokio::select! {
            outcome = follow(&dashboard, &cookies, &sender) => match outcome {
                Err(Over::Storage(error)) => tracing::warn!(%error, "a live page lost its database"),
                Ok(()) | Err(Over::Left | Over::Refused) => {}
            },
            () = sender.closed() => {}
            () = over => {}
            // The browser comes again by itself.
            () = tokio::time::sleep(limits::WATCH) => {}
        }
    });
    let rows = stream::poll_fn(move |context| {
        receiver.poll_recv(context).map(|event| event.map(Ok::<_, Infallible>))
    });
    Sse::new(rows).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
}

/// Why nothing more is told.
enum Over {
    /// The browser went away.
    Left,
    /// Its pass is no longer good.
    Refused,
    Storage(Error),
}

impl From<Error> for Over {
    fn from(error: Error) -> Self {
        Self::Storage(error)
    }
}

async fn follow(dashboard: &Dashboard, cookies: &str, sender: &mpsc::Sender<Event>) -> Result<(), Over> {
    let mut touched = dashboard.reader.live();
    let mut known = Known::default();
    loop {
        // Asked after having begun to listen: what happens in between comes again, not never.
        tell(sender, Event::default().event("reset").data("")).await?;
        for session in dashboard.running().await?.iter().rev() {
            known.news(session, dashboard.now().at);
            tell(sender, row("running", &running_row(&dashboard.frame(), session).0)).await?;
        }
        loop {
            let mut ids: Vec<String> = match touched.recv().await {
                Ok(batch) => batch.iter().map(|touched| touched.session.clone()).collect(),
                Err(RecvError::Lagged(_)) => break,
                Err(RecvError::Closed) => return Ok(()),
            };
            tokio::time::sleep(TOGETHER).await;
            // What was missed is found out again by the next look.
            while let Ok(batch) = touched.try_recv() {
                ids.extend(batch.iter().map(|touched| touched.session.clone()));
            }
            ids.sort_unstable();
            ids.dedup();
            if !dashboard.gate.admits(cookies, dashboard.now().at).await? {
                return Err(Over::Refused);
            }
            show(dashboard, sender, &mut known, ids).await?;
        }
    }
}

async fn show(
    dashboard: &Dashboard,
    sender: &mpsc::Sender<Event>,
    known: &mut Known,
    ids: Vec<String>,
) -> Result<(), Over> {
    let frame: Frame = dashboard.frame();
    let mut sessions = dashboard.reader.sessions_by_id(ids).await?;
    // The page puts each on top of the one before.
    sessions.sort_by_key(|session| (session.last_at, session.started_at()));
    for session in &sessions {
        for news in known.news(session, frame.now.at) {
            tell(sender, row("told", &told_row(&frame, session, news).0)).await?;
        }
        let event = if session.status() == Status::Active {
            row("running", &running_row(&frame, session).0)
        } else {
            row("gone", &session.id)
        };
        tell(sender, event).await?;
    }
    Ok(())
}

async fn tell(sender: &mpsc::Sender<Event>, event: Event) -> Result<(), Over> {
    sender.send(event).await.map_err(|_| Over::Left)
}

/// A row never holds a line break of its own, but a session may be called anything.
fn row(kind: &str, data: &str) -> Event {
    Event::default().event(kind).data(data.replace(['\r', '\n'], " "))
}

/// What each session was seen to have said: the `seq`s of its last START and END.
#[derive(Debug, Default)]
struct Known(HashMap<String, (i64, i64)>);

/// Sessions remembered; beyond them it begins anew, and a line may come twice.
const REMEMBERED: usize = 10_000;

impl Known {
    /// What happened in a session since it was looked at last.
    fn news(&mut self, session: &Session, now: Timestamp) -> Vec<EventType> {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        let (start, end) = (session.life.start.as_ref(), session.ending());
        let said = (start.map_or(0, |start| start.seq), end.map_or(0, |end| end.seq));
        let before = self.0.insert(session.id.clone(), said).unwrap_or_default();
        let recent = |time: Timestamp| now.0 - time.0 < NEWS_MS;
        let mut news = Vec::new();
        if said.0 > before.0 && start.is_some_and(|start| recent(start.time)) {
            news.push(EventType::Start);
        }
        if said.1 > before.1 && end.is_some_and(|end| recent(end.time)) {
            news.push(EventType::End);
        }
        news
    }
}
