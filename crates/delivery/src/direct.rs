//! Sending events that stand in no outbox (foreign conversations, the demonstration) to our own backend. There is no cursor:
//! the caller sends them whole again next time, and the backend knows them by their ids.

use std::time::Instant;

use super::answer::Verdict;
use super::answer::{INTERACTIVE_RETRY, Packing};
use super::http::{self, Http};
use super::native::Native;
use super::plan;
use super::sender::DeliveryCount;
use super::sink::Sink;
use os::clock::{Clock, SystemClock};
use store::Outgoing;

/// Posts events in batches until all are sent or the deadline has passed. `Err` says why some are not sent.
pub async fn post(
    sink: &Native,
    http: &Http,
    events: &[Outgoing],
    deadline: Instant,
) -> Result<DeliveryCount, String> {
    let (mut count, mut packing, mut pending) =
        (DeliveryCount::default(), Packing::new(sink.max_batch()), events);
    while !pending.is_empty() {
        let part = &pending[..pending.len().min(packing.size.events())];
        let part = &part[..plan::fits(part)];
        let request = sink.request(part);
        let verdict = match http.post(&request, packing.uncompressed, SystemClock.now()).await {
            Ok(answer) => sink.judge(part, &request, &answer),
            Err(error @ http::Error::Certificates { .. }) => return Err(error.to_string()),
            Err(error) => Verdict::Unconfirmed { why: error.to_string(), retry_after: None },
        };
        if packing.adapt(&verdict, part.len()) {
            continue;
        }
        match verdict {
            Verdict::Accepted { rejected } => {
                count.add(DeliveryCount::of(part, &rejected));
                pending = &pending[part.len()..];
            }
            // It is a single event, since the batch cannot be halved.
            Verdict::TooLarge(_) | Verdict::SomeRefused(_) => {
                count.refused += part.len();
                pending = &pending[part.len()..];
            }
            Verdict::EncodingRefused(why)
            | Verdict::AllRefused(why)
            | Verdict::PartlyAccepted(why)
            | Verdict::NotServed(why)
            | Verdict::CredentialsRefused(why) => return Err(why),
            Verdict::Unconfirmed { why, retry_after } => {
                let wake = Instant::now() + retry_after.unwrap_or_default().max(INTERACTIVE_RETRY);
                if wake >= deadline {
                    return Err(why);
                }
                tokio::time::sleep_until(wake.into()).await;
            }
        }
    }
    Ok(count)
}
