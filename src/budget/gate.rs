//! The gate of a proxy: asks for each call whether an enforced budget lets it go.
//!
//! Without an enforced budget a call costs one `stat` of the settings, and no store is opened. A store that does not answer in time
//! admits the call: this is logged once.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::tz::TimeZone;
use prices::PriceList;
use relay::{Gate, Refusal, Request, Verdict};
use system::clock::{Clock, SystemClock};
use terminal::process::{Processes, SystemProcesses};
use wire::{AgentSessionId, Ids, PicoDollars, Pid, RandomIds, RunId};

use super::{Admission, AskedCall, Budget, CurrentBudgets, Guard};
use crate::home::Home;
use crate::store::{self, Realm, Store};

/// How long a call waits for the store. An answer takes less than a millisecond; a store that needs longer is in trouble, and that
/// is no reason to keep an agent waiting.
const PATIENCE: Duration = Duration::from_secs(1);

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
    reported: AtomicBool,
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
        let owner = owner.unwrap_or(wire::ProcessId { pid, start: wire::StartTime(0) });
        Self(Arc::new(GateState {
            home: home.clone(),
            run,
            caller,
            guard: Guard { owner, realm: Realm::here() },
            zone: system::zone::local(),
            budgets: Mutex::new(CurrentBudgets::of(home)),
            store: Mutex::default(),
            open: Mutex::default(),
            reported: AtomicBool::new(false),
        }))
    }

    /// The call of a request is over. Where it cost something, the reservation counts with that until the call is stored under
    /// its key, so that it counts once at every moment; else it is given back. Waits for nothing.
    pub fn call_over(&self, number: u64, spent: Option<(String, PicoDollars)>) {
        let Some(call) = self.take(number) else { return };
        let state = Arc::clone(&self.0);
        let settle = move || state.settle(&call, spent.as_ref());
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(settle)),
            Err(_) => settle(),
        }
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
        let Some((budgets, prices)) = self.0.enforced() else {
            return Box::pin(std::future::ready(Verdict::Go));
        };
        Box::pin(async move {
            // On a thread of its own: who calls may stand in the body, which may be long.
            let (state, request) = (Arc::clone(&self.0), request.clone());
            let abandoned = Arc::new(AtomicBool::new(false));
            let given_up = Arc::clone(&abandoned);
            let asked = tokio::task::spawn_blocking(move || {
                let Some(caller) = (state.caller)(&request) else { return Ok(Verdict::Go) };
                let body = request.body.as_deref().unwrap_or_default();
                state.ask(&budgets, &prices, request.number, &caller, &request.path, body, &given_up)
            });
            match tokio::time::timeout(PATIENCE, asked).await {
                Ok(Ok(Ok(verdict))) => verdict,
                Ok(Ok(Err(error))) => self.0.admitted_unasked(&error.to_string()),
                Ok(Err(_)) => self.0.admitted_unasked("the question broke off"),
                Err(_) => {
                    abandoned.store(true, Ordering::Relaxed);
                    self.0.admitted_unasked("the store does not answer")
                }
            }
        })
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

    #[expect(clippy::too_many_arguments, reason = "one step of a call, not an interface")]
    fn ask(
        &self,
        budgets: &[Budget],
        prices: &PriceList,
        number: u64,
        caller: &Caller,
        path: &str,
        body: &[u8],
        abandoned: &AtomicBool,
    ) -> Result<Verdict, store::Error> {
        let now = SystemClock.now();
        let call = RandomIds.uuid().to_string();
        let Caller { agent, conversation } = caller;
        let asked =
            AskedCall { call: &call, agent, run: self.run, conversation: conversation.as_ref(), path, body };
        let mut store = locked(&self.store);
        let store = match &mut *store {
            Some(store) => store,
            empty => empty.insert(Store::open(&self.home, now)?),
        };
        let admission = store.write(|tx| {
            let admission =
                self.guard.admit(tx, budgets, prices, &asked, &SystemProcesses, now, &self.zone)?;
            // The call has gone without an answer: nothing would give the reservation back.
            if abandoned.load(Ordering::Relaxed) {
                tx.release_budget(&call)?;
            } else if matches!(admission, Admission::Held(_)) {
                locked(&self.open).entry(number).or_default().push_back(call.clone());
            }
            Ok::<_, store::Error>(admission)
        })?;
        Ok(match admission {
            Admission::Free | Admission::Held(_) => Verdict::Go,
            Admission::Refused(refused) => {
                let message = refused.message(now, &self.zone);
                tracing::info!(%agent, "refused: {message}");
                Verdict::Refuse(Refusal { message, retry_after: refused.retry_after(now) })
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
