//! `GET /v1/live`: sessions as they change, as server-sent events.
//!
//! A message is a whole record, so a client that missed some is right again with the next. Changes within a moment are one message.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, error::TryRecvError};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Backend;
use super::answer::Refusal;
use super::record::Record;
use super::routes::TokenName;
use crate::limits::WatcherSlot;
use crate::metrics::Watching;
use reader::Touched;
use types::EventType;

/// Changes within this time are sent together.
const GATHER: Duration = Duration::from_millis(100);
/// How often a quiet stream is written to, so that proxies keep it and a dead one is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) async fn live(
    State(backend): State<Arc<Backend>>,
    Extension(TokenName(token)): Extension<TokenName>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let slot = backend.watchers.take(&token);
    let slot = slot.ok_or(Refusal::Busy("too many watch already; try again"))?;
    let watcher = Watcher {
        feed: backend.storage.live(),
        closing: backend.closing.clone(),
        until: Instant::now() + server::limits::WATCH,
        headers,
        _counted: backend.metrics.watch(),
        _slot: slot,
        backend,
    };
    let hello =
        stream::once(async { Ok(Event::default().comment("watching").retry(Duration::from_secs(3))) });
    let changes = stream::unfold(watcher, |mut watcher| async {
        let events = watcher.next().await?;
        Some((stream::iter(events.into_iter().map(Ok)), watcher))
    });
    Ok(Sse::new(hello.chain(changes.flatten())).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

struct Watcher {
    backend: Arc<Backend>,
    feed: Receiver<Arc<[Touched]>>,
    closing: watch::Receiver<bool>,
    until: Instant,
    /// With the token, which is checked again before anything is sent.
    headers: HeaderMap,
    _counted: Watching,
    _slot: WatcherSlot,
}

impl Watcher {
    /// The next changes; `None` when the stream ends.
    async fn next(&mut self) -> Option<Vec<Event>> {
        let mut touched: BTreeMap<String, EventType> = BTreeMap::new();
        tokio::select! {
            received = self.feed.recv() => match received {
                Ok(some) => add(&mut touched, &some),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            },
            _ = self.closing.wait_for(|closing| *closing) => return None,
            () = tokio::time::sleep_until(self.until) => return None,
        }
        tokio::time::sleep(GATHER).await;
        loop {
            match self.feed.try_recv() {
                Ok(some) => add(&mut touched, &some),
                Err(TryRecvError::Lagged(_)) => {}
                Err(_) => break,
            }
        }
        if matches!(self.backend.tokens.of(&self.headers).await, Err(Refusal::NoToken)) {
            return None;
        }
        let (storage, now) = (&self.backend.storage, self.backend.clock.now());
        // A database that does not answer is no reason to end the stream: the session's next change sends the whole record.
        let sessions = storage.sessions_by_id(touched.keys().cloned().collect()).await.unwrap_or_default();
        let events = sessions.iter().filter_map(|session| {
            let latest = touched.get(&session.id).copied();
            let record = Record::of(session, now);
            let message = json!({"time": now, "event": latest, "session": record});
            Event::default().event("session").json_data(message).ok()
        });
        Some(events.collect())
    }
}

fn add(touched: &mut BTreeMap<String, EventType>, some: &[Touched]) {
    touched.extend(some.iter().map(|touched| (touched.session.clone(), touched.latest)));
}
