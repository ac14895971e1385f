//! The live page's stream: rows of HTML as server-sent events.
//!
//! | event | data | the page |
//! |---|---|---|
//! | `reset` | a list of rows | shows these as what runs, and is up to date |
//! | `running` | a row | puts or replaces it among what runs |
//! | `gone` | a session's id | takes it away there |
//! | `told` | a row | puts it on top of what happened |
//!
//! The storage says which sessions something happened in; what happened is seen by comparing. So nothing is told twice, and
//! whoever was too slow to hear of everything is told anew what runs.

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
use super::live::{running_row, told_row};
use super::routes::cookies;
use crate::limits;
use crate::model::{Session, Touched};
use crate::storage::Error;
use wire::Timestamp;
use wire::{EventType, Status};

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
    // Listened to before anything is asked: what happens in between comes again, not never.
    let mut touched = dashboard.reader.live();
    let mut known = Known::default();
    let mut heard = Heard { missed: true, ..Heard::default() };
    loop {
        if !dashboard.gate.admits(cookies, dashboard.now().at).await? {
            return Err(Over::Refused);
        }
        show(dashboard, sender, &mut known, heard.sessions).await?;
        if heard.missed {
            reset(dashboard, sender, &mut known).await?;
        }
        let Some(next) = hear(&mut touched).await else { return Ok(()) };
        heard = next;
    }
}

/// What the storage has told of since it was listened to last.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    /// Each once.
    sessions: Vec<String>,
    /// It told of more than it keeps for those who are slow.
    missed: bool,
}

/// Waits until something happens, and a moment longer. `None` when nothing will any more.
async fn hear(touched: &mut Receiver<Arc<[Touched]>>) -> Option<Heard> {
    let (mut ids, mut missed) = (BTreeSet::new(), false);
    let mut add = |batch: &[Touched]| ids.extend(batch.iter().map(|touched| touched.session.clone()));
    match touched.recv().await {
        Ok(batch) => add(&batch),
        Err(RecvError::Lagged(_)) => missed = true,
        Err(RecvError::Closed) => return None,
    }
    tokio::time::sleep(TOGETHER).await;
    loop {
        match touched.try_recv() {
            Ok(batch) => add(&batch),
            // Said once, in place of what is lost; the rest follows.
            Err(TryRecvError::Lagged(_)) => missed = true,
            Err(TryRecvError::Empty | TryRecvError::Closed) => break,
        }
    }
    Some(Heard { sessions: ids.into_iter().collect(), missed })
}

/// All that runs, as one event: the page is never empty in between.
async fn reset(dashboard: &Dashboard, sender: &mpsc::Sender<Event>, known: &mut Known) -> Result<(), Over> {
    let (frame, running) = (dashboard.frame(), dashboard.running().await?);
    for session in &running {
        known.news(session, frame.now.at);
    }
    // As a list, since browsers take no notice of an event without data.
    let list = html! { ul { @for session in &running { (running_row(&frame, session)) } } };
    tell(sender, row("reset", &list.0)).await
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

/// Rows never hold a line break of their own, but a session may be called anything.
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::broadcast;

    #[tokio::test]
    async fn what_was_missed_is_noticed_whenever_that_was() {
        let (feed, mut slow) = broadcast::channel::<Arc<[Touched]>>(2);
        let tell = |id: &str| {
            let touched = Touched { session: id.to_owned(), latest: EventType::End };
            feed.send(Arc::from([touched])).unwrap();
        };
        let heard = |ids: &[&str], missed| {
            Some(Heard { sessions: ids.iter().map(|&id| id.to_owned()).collect(), missed })
        };
        // Before it listens.
        for id in ["a", "b", "c"] {
            tell(id);
        }
        assert_eq!(hear(&mut slow).await, heard(&["b", "c"], true));
        // While it gathers: the first is heard of, the second is lost.
        tell("a");
        let while_it_gathers = async {
            tokio::time::sleep(TOGETHER / 3).await;
            for id in ["b", "d", "c"] {
                tell(id);
            }
        };
        let (told, ()) = tokio::join!(hear(&mut slow), while_it_gathers);
        assert_eq!(told, heard(&["a", "c", "d"], true));
        tell("a");
        tell("a");
        assert_eq!(hear(&mut slow).await, heard(&["a"], false));
        drop(feed);
        assert_eq!(hear(&mut slow).await, None);
    }
}
