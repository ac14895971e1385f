//! The ledger: what becomes of a call once it is over. Beside the bytes, never in their way.
//!
//! A call is handed over through a bounded queue to a thread of its own, which asks the agent what the request says of itself, and
//! stores the call. A store that is locked, full or read-only keeps nobody waiting: calls are kept here, up to a bound, and tried
//! again. Before all that the call is appended to a journal ([`journal`]), with what its headers say: a worker that is killed leaves
//! it to the next one.

use std::collections::{HashSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use relay::{Call, CallEnd, Observer, Peer, Transport};

use super::settings::{ProxySettings, RouteSettings};
use super::standalone::{NamelessRuns, SOON, ServedSessions, counted_under};
use agents::meter::proxied::ProxiedCall;
use agents::meter::quota::QuotaReport;
use agents::meter::record::{ApiError, Usage};
use agents::registry;
use agents::{Agent, CallIdentity, Repeats};
use config::Config;
use os::clock::{Clock, SystemClock};
use os::home::{Home, own_var};
use pty::process::{Processes, SystemProcesses};
use store::session::journal::{self, CallJournal};
use store::session::proxied::{self, Fate};
use store::session::{publish, quota};
use store::{Store, Tx};
use types::event::Source;
use types::{AgentSessionId, CallKind, Pid, RandomIds, RunId, SessionId, Timestamp, Utilization};
use types::{Evidence, EvidenceVerdict};

/// Calls on their way to the thread. Each may hold its request's body until it has been looked at.
const QUEUE: usize = 256;

/// Calls that wait for the store. A day of one busy agent; beyond that the oldest are dropped, and it is logged.
const MOST_PENDING: usize = 20_000;

/// Calls that are stored in one transaction.
const BATCH: usize = 64;

/// How often a store that refuses is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// When calls are looked at again that name no conversation: shortly after it is certain which session their run was in (half a
/// second, `NOTICED_WITHIN_MS` of the store); then seldom, for a run that is bound late or never.
const FIRST_PAUSE: Duration = Duration::from_millis(550);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How long the last calls of a worker have.
const LAST: Duration = Duration::from_secs(10);

/// The observer's end, and the thread behind it.
#[derive(Debug)]
pub(super) struct Ledger {
    queue: Mutex<Option<SyncSender<EndedCall>>>,
    /// Calls that found the queue full, converted at once.
    overflow: Arc<Mutex<Vec<Entry>>>,
    mapper: Arc<CallMapper>,
    /// `None` where it cannot be written: calls that are over are then safe when they are stored.
    journal: Option<Arc<CallJournal>>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// A call on its way to the thread.
#[derive(Debug)]
struct EndedCall {
    call: Call,
    journaled: bool,
}

impl Ledger {
    pub(super) fn open(settings: &ProxySettings) -> std::io::Result<Arc<Self>> {
        let (queue, calls) = sync_channel(QUEUE);
        let overflow = Arc::<Mutex<Vec<Entry>>>::default();
        let nameless = NamelessRuns::of(settings, &RandomIds);
        let mapper = Arc::new(CallMapper {
            run: settings.run,
            routes: settings.routes.clone(),
            nameless: nameless.clone(),
            repeats: Mutex::default(),
        });
        let is_left = journal::is_any(&settings.home());
        let journal = CallJournal::begin(&settings.home(), &RandomIds)
            .inspect_err(|error| tracing::warn!("calls that are over are not written to a journal: {error}"));
        let journal = journal.ok().map(Arc::new);
        let own = SystemProcesses.identify(Pid(std::process::id().cast_signed()));
        let served = own.filter(|_| settings.run.is_none());
        let served = served.map(|own| ServedSessions::new(settings.home(), own, nameless));
        let mut writer = CallWriter::new(settings.home(), settings.run, served, journal.clone());
        let (spilled, own) = (Arc::clone(&overflow), Arc::clone(&mapper));
        let thread = std::thread::Builder::new().name("ledger".into()).spawn(move || {
            if is_left {
                writer.take_in_left();
            }
            writer.keep(&calls, &own, &spilled);
        })?;
        Ok(Arc::new(Self {
            queue: Mutex::new(Some(queue)),
            overflow,
            mapper,
            journal,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// Stores what is still here, within a bound.
    pub(super) fn close(&self) {
        drop(lock(&self.queue).take());
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

impl Observer for Ledger {
    fn ended(&self, mut call: Call) {
        let journaled = self.append(&mut call);
        let refused = match &*lock(&self.queue) {
            Some(queue) => queue.try_send(EndedCall { call, journaled }),
            None => return,
        };
        if let Err(TrySendError::Full(call) | TrySendError::Disconnected(call)) = refused {
            let call = self.mapper.entry(call);
            let mut overflow = lock(&self.overflow);
            if overflow.len() < MOST_PENDING {
                overflow.extend(call);
            }
        }
    }
}

impl Ledger {
    /// Some microseconds: the body, which may say more, is left to the thread.
    fn append(&self, call: &mut Call) -> bool {
        let Some(journal) = &self.journal else { return false };
        let body = call.request.body.take();
        let outline = self.mapper.agent_of(call).map(|(route, agent)| {
            let identity = agent.identify(&call.request);
            self.mapper.call(route, agent, identity, call)
        });
        call.request.body = body;
        outline.is_some_and(|outline| journal.append(&outline))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call that is over, and the limits that its answer reported.
#[derive(Debug)]
struct Entry {
    call: ProxiedCall,
    quotas: Vec<QuotaReport>,
    journaled: bool,
    peer: Peer,
}

/// Turns calls into entries.
#[derive(Debug)]
struct CallMapper {
    run: Option<RunId>,
    routes: Vec<RouteSettings>,
    nameless: NamelessRuns,
    /// Agents do not say that they try again.
    repeats: Mutex<Repeats>,
}

impl CallMapper {
    /// `None` for what is no call of a model.
    fn agent_of(&self, call: &Call) -> Option<(&RouteSettings, &'static dyn Agent)> {
        let route = self.routes.iter().find(|route| route.name == call.request.route)?;
        let agent = registry::by_name(&route.agent)?;
        let is_call =
            call.request.api.is_some() && call.end != CallEnd::Refused && !asks_for_plain_requests(call);
        is_call.then_some((route, agent))
    }

    fn call(
        &self,
        route: &RouteSettings,
        agent: &dyn Agent,
        identity: CallIdentity,
        call: &Call,
    ) -> ProxiedCall {
        let nameless = self.nameless.run_of(&route.name).filter(|_| identity.conversation.is_none());
        let counted_under =
            counted_under(route, self.run.is_some(), identity.conversation.as_ref()).to_owned();
        let call = proxied_call(agent, self.run.or(nameless), identity, call);
        ProxiedCall { agent: counted_under, ..call }
    }

    fn entry(&self, EndedCall { call, journaled }: EndedCall) -> Option<Entry> {
        let (route, agent) = self.agent_of(&call)?;
        let identity = agent.identify(&call.request);
        let attempt = lock(&self.repeats).attempt(&identity, &call.request);
        let quotas = call.quotas.iter().filter_map(report_of).collect();
        let peer = call.request.peer;
        let call = self.call(route, agent, CallIdentity { attempt, ..identity }, &call);
        Some(Entry { call, quotas, journaled, peer })
    }
}

/// Whether it is the handshake of a WebSocket that was answered 426. Nothing was asked of a model yet: the agent asks by a plain
/// request next, and that one is the call.
fn asks_for_plain_requests(call: &Call) -> bool {
    call.transport == Transport::WebSocket && call.status == Some(UPGRADE_REQUIRED)
}

const UPGRADE_REQUIRED: u16 = 426;

/// A limit as it is stored.
fn report_of(quota: &relay::Quota) -> Option<QuotaReport> {
    Some(QuotaReport {
        provider: quota.provider.to_owned(),
        window: quota.window.clone(),
        utilization: Utilization::of(quota.utilization)?,
        resets_at: quota.resets_at,
        source: Source::Proxy,
    })
}

/// A call as it is stored.
fn proxied_call(agent: &dyn Agent, run: Option<RunId>, identity: CallIdentity, call: &Call) -> ProxiedCall {
    let CallIdentity { conversation, subagent, kind, attempt } = identity;
    let &Call { ref request, status, end, latency_ms, ttft_ms, ref request_id, ref metered, .. } = call;
    let is_refusal = status.is_some_and(|status| status >= 400);
    let error = if is_refusal || metered.error.is_some() || end == CallEnd::NotConnected {
        let kind = metered.error.clone().unwrap_or_else(|| match end {
            CallEnd::NotConnected => "not_connected".to_owned(),
            _ => "http_error".to_owned(),
        });
        Some(ApiError { status, kind })
    } else {
        None
    };
    let unread = metered.unread.filter(|_| !is_refusal);
    if let Some(why) = unread {
        tracing::warn!(agent = agent.name(), ?why, "the usage of a call could not be read in full");
    }
    // Agents hang up on a refusal, because its status is all they need: nothing was broken off.
    let broken = !is_refusal && matches!(end, CallEnd::ClientGone | CallEnd::UpstreamGone);
    let usage = metered.tokens.map(|tokens| Usage {
        model: metered.model.clone().unwrap_or_default(),
        tokens,
        tier: metered.tier,
        request_id: request_id.clone(),
    });
    let keyed = metered.response_id.is_some() && agent.keys_by_answer(None);
    // A call without any id is known by its run, its number and its time: nothing else names it.
    let own = || {
        format!("{}-{}-{}", run.map(|run| run.to_string()).unwrap_or_default(), request.number, request.at.0)
    };
    ProxiedCall {
        key: metered.response_id.clone().or_else(|| request_id.clone()).unwrap_or_else(own),
        keyed,
        at: request.at,
        agent: agent.name().to_owned(),
        run,
        conversation,
        subagent,
        kind,
        latency_ms,
        ttft_ms,
        aborted: broken && !metered.finished,
        attempt,
        billing: request.billing,
        usage,
        error,
        unread: unread.is_some(),
    }
}

/// The thread's own: the store, and what waits for it.
struct CallWriter {
    home: Home,
    run: Option<RunId>,
    /// Of a proxy that stands alone.
    served: Option<ServedSessions>,
    journal: Option<Arc<CallJournal>>,
    store: Option<Store>,
    pending: VecDeque<Entry>,
    /// Conversations that are noted as evidence already.
    noted: HashSet<AgentSessionId>,
    /// Conversations, each with a process that called the API in it, that are noted.
    callers: HashSet<(AgentSessionId, Pid)>,
    refused: bool,
    /// Something was stored that is not published.
    changed: bool,
    published_at: Option<Instant>,
    /// Calls of the run wait that name no conversation: when they are looked at next, and after which pause.
    unassigned: Option<(Instant, Duration)>,
}

impl CallWriter {
    fn new(
        home: Home,
        run: Option<RunId>,
        served: Option<ServedSessions>,
        journal: Option<Arc<CallJournal>>,
    ) -> Self {
        Self {
            home,
            run,
            served,
            journal,
            store: None,
            pending: VecDeque::new(),
            noted: HashSet::new(),
            callers: HashSet::new(),
            refused: false,
            changed: false,
            published_at: None,
            unassigned: None,
        }
    }

    fn keep(&mut self, calls: &Receiver<EndedCall>, mapper: &CallMapper, overflow: &Mutex<Vec<Entry>>) {
        loop {
            let next = match self.next_look() {
                Some(pause) => calls.recv_timeout(pause),
                // While nothing waits, nothing wakes this thread.
                None => calls.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let over = matches!(next, Err(RecvTimeoutError::Disconnected));
            self.add(next.ok().and_then(|call| mapper.entry(call)));
            // Not waited for. Calls that come while a batch is written are the next one.
            while let Ok(call) = calls.try_recv() {
                self.add(mapper.entry(call));
            }
            for call in std::mem::take(&mut *lock(overflow)) {
                self.add(Some(call));
            }
            self.store();
            if over {
                return self.finish();
            }
            self.assign_waiting();
            self.look_at_served();
        }
    }

    fn next_look(&self) -> Option<Duration> {
        if !self.pending.is_empty() {
            return Some(RETRY);
        }
        if let Some((due, _)) = self.unassigned {
            return Some(due.saturating_duration_since(Instant::now()));
        }
        let served = self.served.as_ref()?;
        if self.changed { Some(SOON) } else { served.next_look(SystemClock.now()) }
    }

    /// Calls that name no conversation belong to the session that their run was in, which is certain a moment later, or once the
    /// session is bound.
    fn assign_waiting(&mut self) {
        let Some((_, pause)) = self.unassigned.take_if(|(due, _)| *due <= Instant::now()) else { return };
        let (Some(run), Some(store)) = (self.run, &mut self.store) else { return };
        let now = SystemClock.now();
        let left = match store.write(|tx| proxied::assign_waiting_of_run(tx, now, run)) {
            Ok((assigned, left)) => {
                self.changed |= assigned > 0;
                left
            }
            Err(error) => {
                tracing::warn!("calls that the proxy saw wait for their session: {error}");
                true
            }
        };
        let pause = (pause * 2).min(LONGEST_PAUSE);
        self.unassigned = left.then(|| (Instant::now() + pause, pause));
    }

    /// Beside a run, its tracker looks after sessions, and publishes and sends what changed in them.
    fn look_at_served(&mut self) {
        let (Some(served), Some(store)) = (&mut self.served, &mut self.store) else { return };
        match served.look(store, SystemClock.now()) {
            Ok(changed) => self.changed |= changed,
            Err(error) => tracing::warn!("calls that the proxy saw wait for their sessions: {error}"),
        }
        if self.published_at.is_none_or(|at| at.elapsed() >= SOON) {
            self.publish();
            self.published_at = Some(Instant::now());
        }
    }

    fn add(&mut self, entry: Option<Entry>) {
        self.pending.extend(entry);
        if self.pending.len() > MOST_PENDING {
            let dropped = self.pending.pop_front();
            self.leave_journal(dropped.iter());
            tracing::error!("a call that the proxy saw is lost: the store has refused too many");
        }
    }

    fn finish(&mut self) {
        let until = Instant::now() + LAST;
        while !self.pending.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(200));
            self.store();
        }
        if !self.pending.is_empty() {
            tracing::error!("{} calls that the proxy saw are not stored", self.pending.len());
        }
        if let (Some(served), Some(store)) = (&self.served, &mut self.store)
            && let Err(error) = served.end(store, SystemClock.now())
        {
            tracing::warn!("sessions of the proxy are left to the next command to end: {error}");
        }
        self.publish();
    }

    /// The wrapper may have gone before the last calls were stored: nobody else would publish and send what they changed.
    fn publish(&mut self) {
        let Some(store) = self.store.as_mut().filter(|_| self.changed) else { return };
        if let Err(error) = publish::publish(store, &self.home, SystemClock.now()) {
            tracing::warn!("records of sessions are not published: {error}");
        }
        let config = Config::load(Some(&self.home.config_file()), own_var, registry::names());
        if config.delivery.any() {
            delivery::spawn_delivery(&self.home);
        }
        self.changed = false;
    }

    /// Calls of a worker before this one, which was killed. Where the store refuses, the next command takes them in.
    fn take_in_left(&mut self) {
        let now = SystemClock.now();
        let opened = Store::open(&self.home, now).map_err(store::session::Error::from);
        let taken = opened.and_then(|mut store| {
            let taken = journal::take_in(&mut store, &self.home, now)?;
            self.store = Some(store);
            Ok(taken)
        });
        match taken {
            Ok(0) => {}
            Ok(count) => {
                tracing::warn!("{count} calls of a worker that was killed are taken in");
                self.changed = true;
            }
            Err(error) => tracing::warn!("calls of a worker that was killed wait for the store: {error}"),
        }
    }

    fn leave_journal<'a>(&self, entries: impl Iterator<Item = &'a Entry>) {
        if let Some(journal) = &self.journal {
            journal.stored(entries.filter(|entry| entry.journaled).count());
        }
    }

    fn store(&mut self) {
        while !self.pending.is_empty() {
            if let Err(why) = self.store_batch() {
                if !std::mem::replace(&mut self.refused, true) {
                    tracing::warn!("calls that the proxy saw wait for the store: {why}");
                }
                return;
            }
            self.refused = false;
        }
    }

    fn store_batch(&mut self) -> Result<(), String> {
        let now = SystemClock.now();
        let store = match &mut self.store {
            Some(store) => store,
            none => none.insert(Store::open(&self.home, now).map_err(|error| error.to_string())?),
        };
        let batch: Vec<&Entry> = self.pending.iter().take(BATCH).collect();
        let (run, noted, served) = (self.run, &self.noted, &self.served);
        let (mut callers, mut fates) = (Vec::new(), Vec::new());
        let written: Result<Vec<AgentSessionId>, store::session::Error> = store.write(|tx| {
            let mut newly = Vec::new();
            for Entry { call, quotas, peer, .. } in &batch {
                if let Some(served) = served {
                    served.open_for(tx, call)?;
                }
                let fate = proxied::take(tx, now, call)?;
                fates.push(fate);
                for report in quotas {
                    match fate {
                        Fate::Recorded(session) => quota::take(tx, call.at, session, report)?,
                        _ => quota::take_unowned(tx, call.at, &call.agent, report)?,
                    }
                }
                if let (Some(conversation), Fate::Recorded(session), Some(run)) =
                    (&call.conversation, fate, run)
                    && !noted.contains(conversation)
                    && !newly.contains(conversation)
                {
                    note(tx, session, run, call.at, conversation)?;
                    newly.push(conversation.clone());
                }
                if let (Some(conversation), Some(run)) = (&call.conversation, run)
                    && call.kind == CallKind::Main
                    && call.subagent.is_none()
                    && is_elsewhere(tx, run, fate)?
                {
                    callers.push((conversation.clone(), *peer));
                }
            }
            Ok(newly)
        });
        let count = batch.len();
        match written {
            Ok(newly) => {
                self.noted.extend(newly);
                let stored: Vec<Entry> = self.pending.drain(..count).collect();
                let unassigned = stored
                    .iter()
                    .zip(&fates)
                    .any(|(entry, fate)| entry.call.conversation.is_none() && *fate == Fate::Waiting);
                if let Some(served) = &mut self.served {
                    for (entry, fate) in stored.iter().zip(fates) {
                        served.taken(&entry.call, fate, now);
                    }
                }
                self.leave_journal(stored.iter());
                self.changed = true;
                if unassigned && self.run.is_some() {
                    self.unassigned = Some((Instant::now() + FIRST_PAUSE, FIRST_PAUSE));
                }
                self.note_callers(callers);
                Ok(())
            }
            Err(error) => {
                // A store that was replaced or damaged is opened anew.
                self.store = None;
                Err(error.to_string())
            }
        }
    }
}

/// Whether a call is of a conversation that its run was not in yet, as far as is known.
fn is_elsewhere(tx: &Tx<'_>, run: RunId, fate: Fate) -> Result<bool, store::session::Error> {
    Ok(match fate {
        Fate::Waiting => true,
        Fate::Recorded(session) => match tx.session(session)? {
            Some(session) => !tx.has_stayed(run, session.n)?,
            None => false,
        },
        Fate::Pruned | Fate::Nothing => false,
    })
}

impl CallWriter {
    /// Who has called the API in conversations that the run was not in yet: the run's tracker may know the process.
    fn note_callers(&mut self, callers: Vec<(AgentSessionId, Peer)>) {
        let (Some(run), Some(store)) = (self.run, &mut self.store) else { return };
        for (conversation, peer) in callers {
            // `None` where the connection is closed by now: the next call has one.
            let Some(pid) = peer.process() else { continue };
            if self.callers.contains(&(conversation.clone(), pid)) {
                continue;
            }
            let noted: Result<bool, store::Error> = store.write(|tx| tx.note_caller(run, &conversation, pid));
            match noted {
                Ok(true) => {
                    self.callers.insert((conversation, pid));
                }
                Ok(false) => {} // the run is not in the store yet
                Err(error) => tracing::warn!("a caller is not noted: {error}"),
            }
        }
    }
}

/// What the request's own headers named is evidence, too.
fn note(
    tx: &Tx<'_>,
    session: SessionId,
    run: RunId,
    at: Timestamp,
    conversation: &AgentSessionId,
) -> Result<(), store::session::Error> {
    let evidence = Evidence {
        at,
        source: "proxy".to_owned(),
        verdict: EvidenceVerdict::Noted,
        agent_session_id: Some(conversation.clone()),
        detail: "a call that went through the proxy names this conversation".to_owned(),
    };
    Ok(tx.note_evidence(session, run, &evidence)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use relay::{Api, Metered, Request};
    use types::Tokens;

    fn ended(status: Option<u16>, end: CallEnd, metered: Metered) -> ProxiedCall {
        let call = call(Transport::Http, status, end, metered);
        proxied_call(registry::by_name("claude").unwrap(), None, CallIdentity::default(), &call)
    }

    fn call(transport: Transport, status: Option<u16>, end: CallEnd, metered: Metered) -> Call {
        let request = Request {
            number: 7,
            route: String::new(),
            peer: Peer::default(),
            at: Timestamp(1_794_819_900_000),
            method: "POST".parse().unwrap(),
            path: "/v1/messages".into(),
            headers: relay_headers(),
            api: Some(Api::Messages),
            billing: Some(types::Billing::Api),
            body: None,
        };
        Call {
            request,
            transport,
            status,
            end,
            latency_ms: 12,
            ttft_ms: None,
            request_id: Some("req_1".into()),
            metered,
            quotas: Vec::new(),
        }
    }

    fn relay_headers() -> reqwest::header::HeaderMap {
        reqwest::header::HeaderMap::new()
    }

    #[test]
    fn a_call_is_keyed_by_its_answer_and_marked_by_its_end() {
        let answered = || Metered {
            response_id: Some("msg_1".into()),
            model: Some("claude-opus-4-8".into()),
            tokens: Some(Tokens::default()),
            ..Metered::default()
        };
        let whole = ended(Some(200), CallEnd::Complete, Metered { finished: true, ..answered() });
        assert_eq!((&*whole.key, whole.keyed, whole.aborted), ("msg_1", true, false));
        assert!(whole.usage.is_some() && whole.error.is_none());
        let given_up = ended(Some(200), CallEnd::ClientGone, answered());
        assert!(given_up.aborted && given_up.usage.is_some() && given_up.error.is_none());
        let read_to_its_end = ended(Some(200), CallEnd::ClientGone, Metered { finished: true, ..answered() });
        assert!(!read_to_its_end.aborted, "an agent that hangs up after the last event has the whole answer");
        let refused = ended(
            Some(529),
            CallEnd::Complete,
            Metered { error: Some("overloaded_error".into()), ..Metered::default() },
        );
        assert_eq!((&*refused.key, refused.keyed), ("req_1", false));
        assert_eq!(refused.error, Some(ApiError { status: Some(529), kind: "overloaded_error".into() }));
        let hung_up_on = ended(Some(500), CallEnd::ClientGone, Metered::default());
        assert!(hung_up_on.error.is_some() && !hung_up_on.aborted, "an error that was not read to its end");
        let unreachable = ended(Some(502), CallEnd::NotConnected, Metered::default());
        assert_eq!(unreachable.error.map(|error| error.kind).as_deref(), Some("not_connected"));
    }

    #[test]
    fn a_call_whose_usage_could_not_be_read_is_marked() {
        let half = || Metered {
            response_id: Some("msg_1".into()),
            tokens: Some(Tokens { input: 7, ..Tokens::default() }),
            unread: Some(relay::Unread::Number),
            ..Metered::default()
        };
        let marked = ended(Some(200), CallEnd::Complete, half());
        assert!(marked.unread && marked.usage.is_some_and(|usage| usage.tokens.input == 7));
        assert!(!ended(Some(500), CallEnd::Complete, half()).unread, "an error reports no usage");
        let whole = Metered { unread: None, ..half() };
        assert!(!ended(Some(200), CallEnd::Complete, whole).unread);
    }

    #[test]
    fn a_websocket_that_is_answered_with_upgrade_required_is_no_call() {
        let route = RouteSettings {
            name: String::new(),
            agent: "codex".to_owned(),
            upstream: "http://127.0.0.1".to_owned(),
            auth: None,
            headers: Vec::new(),
        };
        let mapper = CallMapper {
            run: None,
            routes: vec![route],
            nameless: NamelessRuns::default(),
            repeats: Mutex::default(),
        };
        for (transport, status, end, is_call) in [
            (Transport::WebSocket, 426, CallEnd::Complete, false),
            (Transport::WebSocket, 426, CallEnd::NotConnected, false),
            (Transport::WebSocket, 401, CallEnd::Complete, true),
            (Transport::Http, 426, CallEnd::Complete, true),
        ] {
            let call = call(transport, Some(status), end, Metered::default());
            let entry = mapper.entry(EndedCall { call, journaled: false });
            assert_eq!(entry.is_some(), is_call, "{transport:?} {status} {end:?}");
        }
    }
}
