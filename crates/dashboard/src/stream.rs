//! The live page's stream: rows of HTML as server-sent events.
//!
//! | event | data | the page |
//! |---|---|---|
//! | `reset` | a list of rows | shows these as the running sessions, and is up to date |
//! | `running` | a row | adds or replaces it among the running sessions |
//! | `gone` | a session's id | removes it there |
//! | `told` | a row | adds it on top of the feed |
//!
//! The storage reports which sessions changed; what changed is found by comparing. So nothing is sent twice, and a browser
//! that was too slow for all changes gets the list of running sessions again.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use maud::html;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::mpsc;

use super::Dashboard;
use super::frame::Frame;
use super::gate::cookies;
use super::harmless::harmless;
use super::live::{event_row, running_row};
use reader::Error;
use reader::{Session, Touched};
use server::limits;
use types::Timestamp;
use types::{EventType, Status};

/// Events on their way to one browser. One that does not read makes the sender wait, not the memory grow.
const QUEUE: usize = 64;
/// Changes within this time are sent together: a busy backend is not asked for every event.
const GATHER: Duration = Duration::from_millis(150);
/// How often a quiet stream is written to, so that proxies keep it and a dead one is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// An older event is no news when it arrives: a machine may send its history.
const NEWS_MS: i64 = 600_000;

pub(super) async fn events(State(dashboard): State<Arc<Dashboard>>, headers: HeaderMap) -> Response {
    let Ok(slot) = dashboard.streams.clone().try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many live pages are open\n").into_response();
    };
    let (sender, mut receiver) = mpsc::channel(QUEUE);
    let mut closing = dashboard.closing.clone();
    let cookies = cookies(&headers).to_owned();
    tokio::spawn(async move {
        let _slot = slot;
        let over = async { drop(closing.wait_for(|closing| *closing).await) };
        tokio::select! {
            outcome = follow(&dashboard, &cookies, &sender) => match outcome {
                Err(Ended::Storage(error)) => tracing::warn!(%error, "a live page lost its database"),
                Ok(()) | Err(Ended::Closed | Ended::LoggedOut) => {}
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
    Sse::new(rows).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// Why a stream ended.
enum Ended {
    /// The browser closed it.
    Closed,
    /// Its cookie is no longer good.
    LoggedOut,
    Storage(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Storage(error)
    }
}

async fn follow(dashboard: &Dashboard, cookies: &str, sender: &mpsc::Sender<Event>) -> Result<(), Ended> {
    // Subscribed before the first query: a change in between comes twice, not never.
    let mut touched = dashboard.reader.live();
    let mut seen = SeenOpenings::default();
    let mut changes = Changes { missed: true, ..Changes::default() };
    loop {
        if !dashboard.gate.admits(cookies, dashboard.now().at).await? {
            return Err(Ended::LoggedOut);
        }
        show(dashboard, sender, &mut seen, changes.sessions).await?;
        if changes.missed {
            reset(dashboard, sender, &mut seen).await?;
        }
        let Some(next) = next_changes(&mut touched).await else { return Ok(()) };
        changes = next;
    }
}

/// The sessions that changed since the last call.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    /// Each once.
    sessions: Vec<String>,
    /// There were more than the storage keeps for a slow reader.
    missed: bool,
}

/// Waits for a change, and a moment longer for further ones. `None` once the storage is closed.
async fn next_changes(touched: &mut Receiver<Arc<[Touched]>>) -> Option<Changes> {
    let (mut ids, mut missed) = (BTreeSet::new(), false);
    let mut add = |batch: &[Touched]| ids.extend(batch.iter().map(|touched| touched.session.clone()));
    match touched.recv().await {
        Ok(batch) => add(&batch),
        Err(RecvError::Lagged(_)) => missed = true,
        Err(RecvError::Closed) => return None,
    }
    tokio::time::sleep(GATHER).await;
    loop {
        match touched.try_recv() {
            Ok(batch) => add(&batch),
            // Reported once, in place of the lost ones; the others follow.
            Err(TryRecvError::Lagged(_)) => missed = true,
            Err(TryRecvError::Empty | TryRecvError::Closed) => break,
        }
    }
    Some(Changes { sessions: ids.into_iter().collect(), missed })
}

/// All running sessions as one event, so that the page is never empty in between.
async fn reset(
    dashboard: &Dashboard,
    sender: &mpsc::Sender<Event>,
    seen: &mut SeenOpenings,
) -> Result<(), Ended> {
    let (mut frame, running) = (dashboard.frame(), dashboard.running().await?);
    frame.titles = dashboard.titles(&running).await?;
    for session in &running {
        seen.news(session, frame.now.at);
    }
    // As a list, since browsers take no notice of an event without data.
    let list = html! { ul { @for session in &running { (running_row(&frame, session)) } } };
    send(sender, row("reset", &harmless(&list))).await
}

async fn show(
    dashboard: &Dashboard,
    sender: &mpsc::Sender<Event>,
    seen: &mut SeenOpenings,
    ids: Vec<String>,
) -> Result<(), Ended> {
    let mut frame: Frame = dashboard.frame();
    let mut sessions = dashboard.reader.sessions_by_id(ids).await?;
    frame.titles = dashboard.titles(&sessions).await?;
    // The page puts each on top of the one before.
    sessions.sort_by_key(|session| (session.last_at, session.started_at()));
    for session in &sessions {
        for news in seen.news(session, frame.now.at) {
            send(sender, row("told", &harmless(&event_row(&frame, session, news)))).await?;
        }
        let event = if session.status() == Status::Active {
            row("running", &harmless(&running_row(&frame, session)))
        } else {
            row("gone", &session.id)
        };
        send(sender, event).await?;
    }
    Ok(())
}

async fn send(sender: &mpsc::Sender<Event>, event: Event) -> Result<(), Ended> {
    sender.send(event).await.map_err(|_| Ended::Closed)
}

/// Rows never hold a line break of their own, but a session may be called anything.
fn row(kind: &str, data: &str) -> Event {
    Event::default().event(kind).data(data.replace(['\r', '\n'], " "))
}

/// The `seq`s of the last START and END of each session that were sent.
#[derive(Debug, Default)]
struct SeenOpenings(HashMap<String, (i64, i64)>);

/// Sessions remembered; beyond them it starts again, and a row may come twice.
const REMEMBERED: usize = 10_000;

impl SeenOpenings {
    /// The START and END of a session that were not sent yet.
    fn news(&mut self, session: &Session, now: Timestamp) -> Vec<EventType> {
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        let (start, end) = (session.life.start.as_ref(), session.ending());
        let latest = (start.map_or(0, |start| start.seq), end.map_or(0, |end| end.seq));
        let before = self.0.insert(session.id.clone(), latest).unwrap_or_default();
        let recent = |time: Timestamp| now.0 - time.0 < NEWS_MS;
        let mut news = Vec::new();
        if latest.0 > before.0 && start.is_some_and(|start| recent(start.time)) {
            news.push(EventType::Start);
        }
        if latest.1 > before.1 && end.is_some_and(|end| recent(end.time)) {
            news.push(EventType::End);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::broadcast;

    #[tokio::test]
    async fn missed_changes_are_noticed_before_and_while_gathering() {
        let (feed, mut slow) = broadcast::channel::<Arc<[Touched]>>(2);
        let touch = |id: &str| {
            let touched = Touched { session: id.to_owned(), latest: EventType::End };
            feed.send(Arc::from([touched])).unwrap();
        };
        let changes = |ids: &[&str], missed| {
            Some(Changes { sessions: ids.iter().map(|&id| id.to_owned()).collect(), missed })
        };
        // Before it is read.
        for id in ["a", "b", "c"] {
            touch(id);
        }
        assert_eq!(next_changes(&mut slow).await, changes(&["b", "c"], true));
        // While it gathers: the first arrives, the second is lost.
        touch("a");
        let while_it_gathers = async {
            tokio::time::sleep(GATHER / 3).await;
            for id in ["b", "d", "c"] {
                touch(id);
            }
        };
        let (gathered, ()) = tokio::join!(next_changes(&mut slow), while_it_gathers);
        assert_eq!(gathered, changes(&["a", "c", "d"], true));
        touch("a");
        touch("a");
        assert_eq!(next_changes(&mut slow).await, changes(&["a"], false));
        drop(feed);
        assert_eq!(next_changes(&mut slow).await, None);
    }
}
