//! The limits of one client of a backend: constants, each with its reason. Only the rate is set by the operator.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A body as it comes. A batch of 500 events is a tenth of a megabyte, compressed far less.
pub const BODY: usize = 8 << 20;
/// A body unpacked. Ten thousand events are four megabytes.
pub const UNPACKED: usize = 32 << 20;
/// All bodies that are being read or taken in together, as they came and unpacked. What is made of one while it is
/// taken in is a few times its size at most.
pub const ALL_BODIES: usize = 256 << 20;
/// Live feeds open at once.
pub const WATCHERS: usize = 256;
/// Of those with one token. A person has some tabs and machines; four tokens in a loop leave none, one leaves most.
pub const WATCHERS_PER_TOKEN: usize = 64;

/// Requests per second and token: a node takes in fewer batches than that.
pub const RATE: u32 = 500;
/// As many seconds' worth may come at once.
const BURST: f64 = 2.0;
/// Names of tokens that are remembered; beyond that the fullest buckets are forgotten, which costs nothing.
const REMEMBERED: usize = 10_000;

/// A bucket per token: it fills with time and every request takes one out.
#[derive(Debug)]
pub struct Rates {
    per_second: f64,
    buckets: Mutex<HashMap<String, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Rates {
    pub fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second.max(1)), buckets: Mutex::default() }
    }

    /// Takes one; if there is none, the time after which there will be.
    pub fn take(&self, token: &str, now: Instant) -> Result<(), Duration> {
        let full = self.per_second * BURST;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= REMEMBERED && !buckets.contains_key(token) {
            buckets.retain(|_, bucket| now.saturating_duration_since(bucket.at).as_secs_f64() < BURST);
        }
        let bucket = buckets.entry(token.to_owned()).or_insert(Bucket { left: full, at: now });
        let filled = now.saturating_duration_since(bucket.at).as_secs_f64() * self.per_second;
        bucket.left = (bucket.left + filled).min(full);
        bucket.at = now;
        if bucket.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.left) / self.per_second));
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

/// Who has live feeds open, by the names of their tokens.
#[derive(Debug, Default)]
pub struct Watchers(Mutex<HashMap<String, usize>>);

/// An open live feed; its place is free again when this is dropped.
#[derive(Debug)]
pub struct WatcherSlot {
    watchers: Arc<Watchers>,
    token: String,
}

impl Watchers {
    /// `None`: there are as many as there may be, in all or with this token.
    pub fn take(self: &Arc<Self>, token: &str) -> Option<WatcherSlot> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.get(token).copied().unwrap_or(0);
        if own >= WATCHERS_PER_TOKEN || open.values().sum::<usize>() >= WATCHERS {
            return None;
        }
        open.insert(token.to_owned(), own + 1);
        Some(WatcherSlot { watchers: Arc::clone(self), token: token.to_owned() })
    }
}

impl Drop for WatcherSlot {
    fn drop(&mut self) {
        let mut open = self.watchers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = open.get(&self.token).map_or(0, |own| own.saturating_sub(1));
        if left == 0 {
            open.remove(&self.token);
        } else {
            open.insert(self.token.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_takes_a_part_of_the_live_feeds_and_gives_them_back() {
        let watchers = Arc::<Watchers>::default();
        let take = |token: &str, count: usize| -> Vec<WatcherSlot> {
            (0..count).map_while(|_| watchers.take(token)).collect()
        };
        let mut greedy = take("a", WATCHERS);
        assert_eq!(greedy.len(), WATCHERS_PER_TOKEN);
        assert!(watchers.take("b").is_some(), "others have theirs");
        greedy.pop();
        assert!(watchers.take("a").is_some());
        drop(greedy);
        let all: Vec<_> = (0..WATCHERS).flat_map(|n| take(&n.to_string(), 1)).collect();
        assert!(watchers.take("a").is_none(), "as many as there may be in all");
        drop(all);
        assert!(watchers.0.lock().unwrap().is_empty());
    }

    #[test]
    fn a_token_has_its_burst_then_its_rate_and_others_have_theirs() {
        let (rates, start) = (Rates::new(10), Instant::now());
        for _ in 0..20 {
            assert_eq!(rates.take("a", start), Ok(()));
        }
        let wait = rates.take("a", start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert_eq!(rates.take("b", start), Ok(()), "another's bucket is full");
        assert!(rates.take("a", start + wait / 2).is_err());
        assert_eq!(rates.take("a", start + wait), Ok(()));
        assert!(rates.take("a", start + wait).is_err());
        // Never more than the burst, however long nothing came.
        let later = start + Duration::from_hours(1);
        assert_eq!((0..40).filter(|_| rates.take("a", later).is_ok()).count(), 20);
    }
}
