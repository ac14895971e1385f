//! Whether this node can take events in, as far as is known: from the last batches, and from a small write where none has
//! come lately. Balancers ask every second, and several at once; the database is asked once for all of them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::storage::{self, Storage};

/// So long nobody asks the database again.
const KNOWN_FOR: Duration = Duration::from_secs(1);
/// So long a batch that found the disk full counts, though a small write may still find room. Then it is tried again: a node
/// that gets no events because it calls itself unfit would never learn better.
const UNFIT_FOR: Duration = Duration::from_secs(10);
/// Longer than that a balancer does not wait.
const PATIENCE: Duration = Duration::from_secs(4);

type Outcome = Result<(), &'static str>;

/// What is known, and until when.
#[derive(Debug, Default)]
struct Known(Option<(Outcome, Instant)>);

impl Known {
    fn at(&self, now: Instant) -> Option<Outcome> {
        self.0.filter(|(_, until)| now < *until).map(|(outcome, _)| outcome)
    }

    /// What became of a batch. That the database did not answer one batch proves little: others may hold a lock.
    fn batch(&mut self, outcome: Result<(), &storage::Error>, now: Instant) {
        match outcome {
            Ok(()) => self.0 = Some((Ok(()), now + KNOWN_FOR)),
            Err(error @ (storage::Error::Full(_) | storage::Error::ReadOnly(_))) => {
                self.0 = Some((Err(reason(error)), now + UNFIT_FOR));
            }
            Err(_) => {}
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Health {
    known: Mutex<Known>,
    asking: tokio::sync::Mutex<()>,
}

impl Health {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn batch(&self, outcome: Result<(), &storage::Error>) {
        self.known().batch(outcome, Instant::now());
    }

    /// Whether events can be taken in, or why not.
    pub(super) async fn ask(&self, storage: &dyn Storage) -> Outcome {
        if let Some(outcome) = self.known().at(Instant::now()) {
            return outcome;
        }
        let _one_at_a_time = self.asking.lock().await;
        if let Some(outcome) = self.known().at(Instant::now()) {
            return outcome;
        }
        let outcome = match tokio::time::timeout(PATIENCE, storage.ready()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                tracing::error!(%error, "no events can be taken in");
                Err(reason(&error))
            }
            Err(_) => Err(SILENT),
        };
        self.known().0 = Some((outcome, Instant::now() + KNOWN_FOR));
        outcome
    }
}

const SILENT: &str = "the database does not answer";

/// In words that say nothing of where the database is: everybody may ask.
pub(super) fn reason(error: &storage::Error) -> &'static str {
    match error {
        storage::Error::Full(_) => "the disk of the database is full",
        storage::Error::ReadOnly(_) => "the database cannot be written to",
        _ => SILENT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_a_batch_is_known_for_a_while() {
        let (mut known, start) = (Known::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(known.at(start), None);
        known.batch(Ok(()), start);
        assert_eq!((known.at(start), known.at(after(1))), (Some(Ok(())), None));
        known.batch(Err(&storage::Error::Unavailable(String::new())), start);
        assert_eq!(known.at(start), Some(Ok(())), "one that waited for a lock proves nothing");
        known.batch(Err(&storage::Error::Full(String::new())), start);
        assert_eq!(known.at(after(9)), Some(Err("the disk of the database is full")));
        assert_eq!(known.at(after(10)), None, "then it is tried again");
        known.batch(Err(&storage::Error::ReadOnly(String::new())), start);
        assert_eq!(known.at(start), Some(Err("the database cannot be written to")));
        known.batch(Ok(()), after(2));
        assert_eq!(known.at(after(2)), Some(Ok(())), "a batch that arrived is the best proof");
    }
}
