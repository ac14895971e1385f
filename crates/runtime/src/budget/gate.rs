//! The gate of a proxy: asks for each call whether an enforced budget lets it go.
//!
//! Without an enforced budget a call costs one `stat` of the settings, and no store is opened. A store that does not answer in time
//! admits the call: this is logged once.
//!
//! A call that has to wait ([`Admission::Waits`]) asks again whenever one of this proxy's calls is over, and every [`NEXT_LOOK`] for
//! the sake of other proxies. It blocks nothing but its own request, and gives its place up when that is dropped.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::tz::TimeZone;
use os::clock::{Clock, SystemClock};
use pricing::PriceList;
use pty::process::{Processes, SystemProcesses};
use relay::{Gate, Refusal, Request, Verdict};
use tokio::sync::Notify;
use types::{AgentSessionId, Ids, PicoDollars, Pid, RandomIds, RunId, Timestamp};

use super::{Admission, AskedCall, Budget, CurrentBudgets, Guard};
use os::home::Home;
use store::{self, BootAndPidNs, Store};

/// How long a call waits for the store. An answer takes less than a millisecond; a store that needs longer is in trouble, and that
/// is no reason to keep an agent waiting.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often a call that waits looks for the end of calls that another proxy passes on: that is only seen in the store.
const NEXT_LOOK: Duration = Duration::from_millis(250);

/// Who makes a call, by what its request says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub agent: String,
    pub conversation: Option<AgentSessionId>,
}

/// `None`: a request of nobody known, which no budget counts.
pub type CallerOf = Box<dyn Fn(&Request) -> Option<Caller> + Send + Sync>;

/// Asks the budgets for the calls of one proxy.
#[derive(Clone)]
pub struct BudgetGate(Arc<GateState>);

struct GateState {
    home: Home,
    run: Option<RunId>,
    caller: CallerOf,
    guard: Guard,
    zone: TimeZone,
    budgets: Mutex<CurrentBudgets>,
    /// Opened with the first call that an enforced budget counts.
    store: Mutex<Option<Store>>,
    /// Reservations by the number of their request. A connection by WebSocket has one after the other under one number.
    open: Mutex<HashMap<u64, VecDeque<String>>>,
    /// A call is over, and what it had reserved is given back.
    settled: Notify,
    reported: AtomicBool,
}

/// A call that is asked for. Until it is answered it belongs to its request: dropped before, it leaves nothing in the store.
struct Question {
    state: Arc<GateState>,
    request: Arc<Request>,
    /// Names the reservation.
    call: String,
    since: Timestamp,
    abandoned: Arc<AtomicBool>,
    answered: bool,
}

impl std::fmt::Debug for BudgetGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BudgetGate").field("run", &self.0.run).finish_non_exhaustive()
    }
}

impl BudgetGate {
    /// `run` is `None` for a proxy that serves no run.
    pub fn new(home: &Home, run: Option<RunId>, caller: CallerOf) -> Self {
        let pid = Pid(i32::try_from(std::process::id()).unwrap_or(0));
        // A process that cannot see itself has reservations that nobody counts: its calls are checked all the same.
        let owner = SystemProcesses.identify(pid);
        let owner = owner.unwrap_or(types::ProcessId { pid, start: types::StartTime(0) });
        Self(Arc::new(GateState {
            home: home.clone(),
            run,
            caller,
            guard: Guard { owner, realm: BootAndPidNs::here() },
            zone: os::zone::local(),
            budgets: Mutex::new(CurrentBudgets::of(home)),
            store: Mutex::default(),
            open: Mutex::default(),
            settled: Notify::new(),
            reported: AtomicBool::new(false),
        }))
    }

    /// The call of a request is over. Where it cost something, the reservation counts with that until the call is stored under
    /// its key, so that it counts once at every moment; else it is given back. Waits for nothing.
    pub fn call_over(&self, number: u64, spent: Option<(String, PicoDollars)>) {
        let Some(call) = self.take(number) else { return };
        let state = Arc::clone(&self.0);
        in_background(move || state.settle(&call, spent.as_ref()));
    }

    /// Whether something is reserved for a request: if not, its cost need not be known.
    pub fn holds(&self, number: u64) -> bool {
        locked(&self.0.open).contains_key(&number)
    }

    /// What calls cost, as of the last call that was asked for.
    pub fn prices(&self) -> PriceList {
        locked(&self.0.budgets).prices().clone()
    }

    fn take(&self, number: u64) -> Option<String> {
        let mut open = locked(&self.0.open);
        let calls = open.get_mut(&number)?;
        let call = calls.pop_front();
        if calls.is_empty() {
            open.remove(&number);
        }
        call
    }
}

impl Gate for BudgetGate {
    fn is_limiting(&self) -> bool {
        locked(&self.0.budgets).look(SystemClock.now()).iter().any(|budget| budget.enforce)
    }

    fn admit<'a>(&'a self, request: &'a Request) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        if !self.is_limiting() {
            return Box::pin(std::future::ready(Verdict::Go));
        }
        Box::pin(Question::new(&self.0, request).answer())
    }
}

impl Question {
    fn new(state: &Arc<GateState>, request: &Request) -> Self {
        Self {
            state: Arc::clone(state),
            request: Arc::new(request.clone()),
            call: RandomIds.uuid().to_string(),
            since: SystemClock.now(),
            abandoned: Arc::default(),
            answered: false,
        }
    }

    async fn answer(mut self) -> Verdict {
        let state = Arc::clone(&self.state);
        loop {
            // From before the store is asked: whatever is over after that wakes us.
            let mut settled = std::pin::pin!(state.settled.notified());
            settled.as_mut().enable();
            match self.ask_once().await {
                Ok(Some(verdict)) => {
                    self.answered = true;
                    return verdict;
                }
                Ok(None) => drop(tokio::time::timeout(NEXT_LOOK, settled).await),
                Err(why) => return state.admitted_unasked(&why),
            }
        }
    }

    /// `None`: it has to wait.
    async fn ask_once(&self) -> Result<Option<Verdict>, String> {
        let (state, request, abandoned) =
            (Arc::clone(&self.state), Arc::clone(&self.request), Arc::clone(&self.abandoned));
        let (call, since) = (self.call.clone(), self.since);
        // On a thread of its own: who calls may stand in the body, which may be long.
        let asked = tokio::task::spawn_blocking(move || state.ask(&request, &call, since, &abandoned));
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(Ok(verdict))) => Ok(verdict),
            Ok(Ok(Err(error))) => Err(error.to_string()),
            Ok(Err(_)) => Err("the question broke off".to_owned()),
            Err(_) => Err("the store does not answer".to_owned()),
        }
    }
}

impl Drop for Question {
    /// The agent has given its request up, or the store does not answer: nothing else would give the reservation or the place back.
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        {
            // Together with what `ask` does under this lock: the call is either noted here, or given up there.
            let mut open = locked(&self.state.open);
            self.abandoned.store(true, Ordering::Relaxed);
            if let Some(calls) = open.get_mut(&self.request.number) {
                calls.retain(|call| *call != self.call);
                if calls.is_empty() {
                    open.remove(&self.request.number);
                }
            }
        }
        let (state, call) = (Arc::clone(&self.state), std::mem::take(&mut self.call));
        in_background(move || state.settle(&call, None));
    }
}

/// Where there is a runtime; else here.
fn in_background(work: impl FnOnce() + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}

impl GateState {
    /// `None`: there is no enforced budget.
    fn enforced(&self) -> Option<(Vec<Budget>, PriceList)> {
        let mut current = locked(&self.budgets);
        let all = current.look(SystemClock.now());
        if !all.iter().any(|budget| budget.enforce) {
            return None;
        }
        let enforced = all.iter().filter(|budget| budget.enforce).cloned().collect();
        Some((enforced, current.prices().clone()))
    }

    /// `None`: the call has to wait.
    fn ask(
        &self,
        request: &Request,
        call: &str,
        since: Timestamp,
        abandoned: &AtomicBool,
    ) -> Result<Option<Verdict>, store::Error> {
        // Looked at anew each time: a call that waits may be let go by a change of the settings.
        let Some((budgets, prices)) = self.enforced() else { return Ok(Some(Verdict::Go)) };
        let Some(Caller { agent, conversation }) = (self.caller)(request) else {
            return Ok(Some(Verdict::Go));
        };
        let (path, body) = (&request.path, request.body.as_deref());
        let conversation = conversation.as_ref();
        let asked = AskedCall { call, agent: &agent, run: self.run, conversation, path, body, since };
        let now = SystemClock.now();
        let mut store = locked(&self.store);
        let store = match &mut *store {
            Some(store) => store,
            empty => empty.insert(Store::open(&self.home, now)?),
        };
        let admission = store.write(|tx| {
            let admission =
                self.guard.admit(tx, &budgets, &prices, &asked, &SystemProcesses, now, &self.zone)?;
            let mut open = locked(&self.open);
            // The call has gone without an answer: nothing would give the reservation back.
            if abandoned.load(Ordering::Relaxed) {
                tx.release_budget(call)?;
            } else if matches!(admission, Admission::Held(_)) {
                open.entry(request.number).or_default().push_back(call.to_owned());
            }
            Ok::<_, store::Error>(admission)
        })?;
        Ok(match admission {
            Admission::Free | Admission::Held(_) => Some(Verdict::Go),
            Admission::Waits => None,
            Admission::Refused(refused) => {
                let message = refused.message(now, &self.zone);
                tracing::info!(%agent, "refused: {message}");
                Some(Verdict::Refuse(Refusal { message, retry_after: refused.retry_after(now) }))
            }
        })
    }

    /// What cannot be written is given up with this process, or after an hour.
    fn settle(&self, call: &str, spent: Option<&(String, PicoDollars)>) {
        let settled = match &mut *locked(&self.store) {
            Some(store) => store.write(|tx| match spent {
                Some((key, cost)) => tx.keep_budget_hold(call, key, *cost, SystemClock.now()),
                None => tx.release_budget(call),
            }),
            None => Ok(()),
        };
        if let Err(error) = settled {
            tracing::warn!("a reservation was not given back: {error}");
        }
        self.settled.notify_waiters();
    }

    /// Nothing of ours keeps an agent from its work.
    fn admitted_unasked(&self, why: &str) -> Verdict {
        if !self.reported.swap(true, Ordering::Relaxed) {
            tracing::warn!("budgets are not enforced for now: {why}");
        }
        Verdict::Go
    }
}

/// A panic while it was held leaves nothing half done that matters here.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
