//! What moves the bytes of an HTTP/1.1 connection to the API.
//!
//! Normally whoever waits for the answer does it, in its own task: what has come is read, handed over and written in one turn. With a
//! task for each end, every event of an answer took a turn of both, and the writes of a burst had to wait for these turns to be made
//! together.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

type Connection = Pin<Box<dyn Future<Output = Result<(), hyper::Error>> + Send>>;

/// Dropped, it closes the connection.
pub(crate) struct Driver {
    place: Place,
    signal: Arc<Signal>,
}

enum Place {
    /// Moves when it is polled.
    Here(Connection),
    Apart(AbortHandle),
    Ended,
}

impl Driver {
    pub fn new(connection: impl Future<Output = Result<(), hyper::Error>> + Send + 'static) -> Self {
        Self { place: Place::Here(Box::pin(connection)), signal: Arc::new(Signal::new()) }
    }

    /// Reads and writes what can be read and written now. The caller's task is woken when there is more.
    pub fn advance(&mut self, cx: &Context<'_>) {
        let Place::Here(connection) = &mut self.place else { return };
        let waker = self.signal.leads_to(cx.waker());
        if let Poll::Ready(ended) = connection.as_mut().poll(&mut Context::from_waker(&waker)) {
            report(ended);
            self.place = Place::Ended;
        }
    }

    /// Advances, and then takes what the connection has handed over.
    ///
    /// Both happen in one task, which polls again after whatever it took. To be woken by the handing over as well, or by the room that
    /// the taking made, would only have it polled once more in vain, for each event of an answer.
    pub fn advance_and_take<T>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.advance(cx);
        if !matches!(self.place, Place::Here(_)) {
            return take(cx);
        }
        self.signal.hold_back();
        let taken = take(&mut Context::from_waker(Waker::noop()));
        if self.signal.let_go() && taken.is_pending() {
            cx.waker().wake_by_ref();
        }
        taken
    }

    /// Gives it a task of its own, for a connection that has to move although nobody can read the answer now.
    pub fn set_apart(&mut self) {
        match (std::mem::replace(&mut self.place, Place::Ended), Handle::try_current()) {
            (Place::Here(connection), Ok(runtime)) => {
                // Nothing keeps the agent's task that it woke until now.
                self.signal.leads_to(Waker::noop());
                let task = runtime.spawn(async { report(connection.await) });
                self.place = Place::Apart(task.abort_handle());
            }
            (place, _) => self.place = place,
        }
    }

    /// It goes on by itself until its end.
    pub fn detach(mut self) {
        self.set_apart();
        self.place = Place::Ended;
    }
}

fn report(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "connection to the API ended");
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Place::Apart(task) = &self.place {
            task.abort();
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::Here(_) => "here",
            Place::Apart(_) => "apart",
            Place::Ended => "ended",
        };
        f.debug_tuple("Driver").field(&place).finish()
    }
}

/// Wakes the task that the connection is moved by now.
struct Signal(Mutex<Woken>);

struct Woken {
    task: Waker,
    is_held_back: bool,
    /// Somebody called meanwhile.
    is_called: bool,
}

impl Signal {
    fn new() -> Self {
        Self(Mutex::new(Woken { task: Waker::noop().clone(), is_held_back: false, is_called: false }))
    }

    fn leads_to(self: &Arc<Self>, task: &Waker) -> Waker {
        self.lock().task.clone_from(task);
        Waker::from(self.clone())
    }

    fn hold_back(&self) {
        self.lock().is_held_back = true;
    }

    /// Whether anybody called since it was held back.
    fn let_go(&self) -> bool {
        let mut woken = self.lock();
        woken.is_held_back = false;
        std::mem::take(&mut woken.is_called)
    }

    fn lock(&self) -> MutexGuard<'_, Woken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut woken = self.lock();
        if woken.is_held_back {
            woken.is_called = true;
            return;
        }
        let task = woken.task.clone();
        drop(woken);
        task.wake();
    }
}
