//! Whether this node can take events in: judged by the last batches, or by a small write if none has come lately. Load
//! balancers ask every second, and several at once; the database is asked once for all of them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::storage::Storage;

/// How long a result holds before the database is asked again.
const VALID_FOR: Duration = Duration::from_secs(1);
/// How long a batch that found the disk full counts, though a small write may still find room. Then it is tried again: a
/// node that reports itself unfit gets no events, and would never recover.
const UNFIT_FOR: Duration = Duration::from_secs(10);
/// A load balancer waits no longer.
const READY_TIMEOUT: Duration = Duration::from_secs(4);

type Readiness = Result<(), &'static str>;

/// The last result, and until when it holds.
#[derive(Debug, Default)]
struct LastCheck(Option<(Readiness, Instant)>);

impl LastCheck {
    fn at(&self, now: Instant) -> Option<Readiness> {
        self.0.filter(|(_, until)| now < *until).map(|(result, _)| result)
    }

    /// Takes over the result of a batch. One that was not answered proves little: others may hold a lock.
    fn batch(&mut self, result: Result<(), &reader::Error>, now: Instant) {
        match result {
            Ok(()) => self.0 = Some((Ok(()), now + VALID_FOR)),
            Err(error @ (reader::Error::Full(_) | reader::Error::ReadOnly(_))) => {
                self.0 = Some((Err(reason(error)), now + UNFIT_FOR));
            }
            Err(_) => {}
        }
    }
}

/// The check that every request shares.
#[derive(Debug, Default)]
pub(super) struct ReadinessCheck {
    last: Mutex<LastCheck>,
    asking: tokio::sync::Mutex<()>,
}

impl ReadinessCheck {
    fn last(&self) -> MutexGuard<'_, LastCheck> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn batch(&self, result: Result<(), &reader::Error>) {
        self.last().batch(result, Instant::now());
    }

    /// Whether events can be taken in, or why not.
    pub(super) async fn ask(&self, storage: &dyn Storage) -> Readiness {
        if let Some(result) = self.last().at(Instant::now()) {
            return result;
        }
        let _one_at_a_time = self.asking.lock().await;
        if let Some(result) = self.last().at(Instant::now()) {
            return result;
        }
        let result = match tokio::time::timeout(READY_TIMEOUT, storage.ready()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                tracing::error!(%error, "no events can be taken in");
                Err(reason(&error))
            }
            Err(_) => Err(SILENT),
        };
        self.last().0 = Some((result, Instant::now() + VALID_FOR));
        result
    }
}

const SILENT: &str = "the database does not answer";

/// In words that do not reveal where the database is: everybody may ask.
pub(super) fn reason(error: &reader::Error) -> &'static str {
    match error {
        reader::Error::Full(_) => "the disk of the database is full",
        reader::Error::ReadOnly(_) => "the database cannot be written to",
        _ => SILENT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_a_batch_holds_for_a_while() {
        let (mut last, start) = (LastCheck::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(last.at(start), None);
        last.batch(Ok(()), start);
        assert_eq!((last.at(start), last.at(after(1))), (Some(Ok(())), None));
        last.batch(Err(&reader::Error::Unavailable(String::new())), start);
        assert_eq!(last.at(start), Some(Ok(())), "one that waited for a lock proves nothing");
        last.batch(Err(&reader::Error::Full(String::new())), start);
        assert_eq!(last.at(after(9)), Some(Err("the disk of the database is full")));
        assert_eq!(last.at(after(10)), None, "then it is tried again");
        last.batch(Err(&reader::Error::ReadOnly(String::new())), start);
        assert_eq!(last.at(start), Some(Err("the database cannot be written to")));
        last.batch(Ok(()), after(2));
        assert_eq!(last.at(after(2)), Some(Ok(())), "a batch that arrived is the best proof");
    }
}
