//! What is open now: connections and exchanges. Cheap to ask, from any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts of one listener. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Activity(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicUsize,
    exchanges: AtomicUsize,
    idle: Notify,
}

impl Activity {
    /// Connections of agents, idle ones and WebSockets too.
    pub fn connections(&self) -> usize {
        self.0.connections.load(Ordering::Relaxed)
    }

    /// Requests whose answer is not over, and open WebSockets.
    pub fn exchanges(&self) -> usize {
        self.0.exchanges.load(Ordering::Relaxed)
    }

    /// Until no exchange is open.
    pub async fn until_idle(&self) {
        loop {
            let notified = self.0.idle.notified();
            if self.exchanges() == 0 {
                return;
            }
            notified.await;
        }
    }

    pub(crate) fn connection(&self) -> Open {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
        Open { counts: self.0.clone(), what: What::Connection }
    }

    pub(crate) fn exchange(&self) -> Open {
        self.0.exchanges.fetch_add(1, Ordering::Relaxed);
        Open { counts: self.0.clone(), what: What::Exchange }
    }
}

/// Counted as long as it lives.
#[derive(Debug)]
pub(crate) struct Open {
    counts: Arc<Counts>,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Connection,
    Exchange,
}

impl Drop for Open {
    fn drop(&mut self) {
        match self.what {
            What::Connection => {
                self.counts.connections.fetch_sub(1, Ordering::Relaxed);
            }
            What::Exchange => {
                if self.counts.exchanges.fetch_sub(1, Ordering::Relaxed) == 1 {
                    self.counts.idle.notify_waiters();
                }
            }
        }
    }
}
