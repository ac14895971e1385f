//! `POST /v1/events`: read the body within limits, unpack it, check it, take it in, answer after the commit.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::Backend;
use super::answer::Refusal;
use crate::event::Batch;
use crate::limits;
use crate::storage::Ingested;
use crate::unpack::{BadBody, Encoding};
use reader::token::Owner;
use server::TooSlow;

pub(super) async fn events(
    State(backend): State<Arc<Backend>>,
    Extension(owner): Extension<Owner>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Ingested>, Refusal> {
    let encoding = match headers.get(header::CONTENT_ENCODING) {
        Some(name) => name.to_str().ok().and_then(Encoding::named).ok_or(Refusal::UnknownEncoding)?,
        None => Encoding::Identity,
    };
    let (body, mut room) = read(&backend, &headers, body).await?;
    let begun = Instant::now();
    let bodies = backend.bodies.clone();
    // Unpacking and parsing take milliseconds, which others on this thread would wait for.
    let batch = tokio::task::spawn_blocking(move || {
        let more = |bytes| match bodies.clone().try_acquire_many_owned(kib(bytes)) {
            Ok(more) => {
                room.merge(more);
                true
            }
            Err(_) => false,
        };
        let content = encoding.unpack(body, more)?;
        Ok::<_, Refusal>((Batch::parse(&content)?, room))
    });
    let (Batch { events, mut rejected }, _room) = batch.await.map_err(|_| Refusal::Broken)??;
    let nothing = events.is_empty();
    let outcome = backend.storage.ingest(&owner, events, backend.clock.now()).await;
    if !nothing {
        backend.health.batch(outcome.as_ref().map(drop));
    }
    let mut ingested = outcome?;
    rejected.append(&mut ingested.rejected);
    ingested.rejected = rejected;
    backend.metrics.ingested(&ingested, begun.elapsed());
    if !ingested.rejected.is_empty() {
        tracing::warn!(
            count = ingested.rejected.len(),
            first = ingested.rejected[0].error,
            "events rejected"
        );
    }
    Ok(Json(ingested))
}

/// Most bodies are shorter.
const AT_FIRST: usize = 64 * 1024;

/// The body, and the memory reserved for it until the batch is committed.
async fn read(
    backend: &Backend,
    headers: &HeaderMap,
    mut body: Body,
) -> Result<(Vec<u8>, OwnedSemaphorePermit), Refusal> {
    let too_large = || Refusal::TooLarge(format!("the body is larger than {} MiB", limits::BODY >> 20));
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let length: usize = length.unwrap_or(limits::BODY);
    if length > limits::BODY {
        return Err(too_large());
    }
    let no_room = || Refusal::from(BadBody::NoRoom);
    // The rest is reserved as its bytes come: a client that only announces many takes nothing from others.
    let mut reserved = length.min(AT_FIRST);
    let room = timeout(server::limits::SILENCE, backend.bodies.clone().acquire_many_owned(kib(reserved)));
    let mut room = room.await.ok().and_then(Result::ok).ok_or_else(no_room)?;
    let mut content = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let cut = || Refusal::BadRequest("the body was cut off".to_owned());
            if TooSlow::caused(&error) { Refusal::TooSlow } else { cut() }
        })?;
        if let Some(data) = frame.data_ref() {
            if content.len() + data.len() > limits::BODY {
                return Err(too_large());
            }
            content.extend_from_slice(data);
            if content.len() > reserved {
                let more = kib(content.len() - reserved);
                room.merge(backend.bodies.clone().try_acquire_many_owned(more).map_err(|_| no_room())?);
                reserved = content.len();
            }
        }
    }
    Ok((content, room))
}

/// Rounded up.
fn kib(bytes: usize) -> u32 {
    u32::try_from((bytes >> 10) + 1).unwrap_or(u32::MAX)
}
