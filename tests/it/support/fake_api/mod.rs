//! A model API for tests: what Claude Code, Codex, Gemini CLI and Qwen Code need of their vendors, on loopback, in threads of the
//! test process. Prompts steer it (`script`); every call costs numbers of its own, so that a wrong sum shows; its log is
//! the truth.

mod anthropic;
mod chat;
mod dialect;
mod google;
mod log;
mod openai;
mod script;

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};

use serde_json::{Value, json};

pub(crate) use self::anthropic::WARM_UP;
use self::dialect::{Answer, Dialect, Question, dialect, fill, refusal};
pub(crate) use self::log::{Call, CallLog, Kind, Spent, Status, Vendor};
use self::script::{Script, Tool};
use crate::support::http::{Events, Request, respond};

/// How often a stream that is held back looks whether the agent has hung up.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct FakeApi {
    port: u16,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified of every change of the state.
    changed: Condvar,
    /// Keeps the ids of two servers apart.
    server: u64,
}

#[derive(Debug, Default)]
struct State {
    log: CallLog,
    /// How often each question was put, by session, prompt and turn: what `[error 529 x2]` counts.
    tries: HashMap<(Option<String>, String, usize), usize>,
    open_gates: HashSet<String>,
    stopping: bool,
}

impl FakeApi {
    pub(crate) fn start() -> Self {
        static SERVERS: AtomicU64 = AtomicU64::new(1);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port on loopback");
        let port = listener.local_addr().expect("its number").port();
        let shared =
            Arc::new(Shared { server: SERVERS.fetch_add(1, Ordering::Relaxed), ..Shared::default() });
        let accepting = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    if shared.state().stopping {
                        return;
                    }
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || shared.serve(stream));
                }
            }
        });
        Self { port, shared, accepting: Some(accepting) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The log as it stands.
    pub(crate) fn log(&self) -> CallLog {
        self.shared.state().log.clone()
    }

    /// Waits until the log shows it; `None` when it does not in time.
    pub(crate) fn wait_for<T>(
        &self,
        timeout: Duration,
        mut find: impl FnMut(&CallLog) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + timeout;
        let mut state = self.shared.state();
        loop {
            let found = find(&state.log);
            let left = deadline.saturating_duration_since(Instant::now());
            if found.is_some() || left.is_zero() {
                return found;
            }
            state = self.shared.wait(state, left);
        }
    }

    /// Lets the answers to `[hold NAME]` go on, now and from now on.
    pub(crate) fn release(&self, gate: &str) {
        self.shared.state().open_gates.insert(gate.to_owned());
        self.shared.changed.notify_all();
    }
}

impl Drop for FakeApi {
    fn drop(&mut self) {
        self.shared.state().stopping = true;
        self.shared.changed.notify_all();
        // `accept` has no other way to learn of it than one more connection.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
        self.accepting.take().map(JoinHandle::join);
    }
}

/// How an answer ended.
enum AnswerEnd {
    /// With this status, which the log notes.
    Logged(Status),
    /// The server is stopping.
    Stopping,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, timeout: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, timeout).unwrap_or_else(PoisonError::into_inner).0
    }

    fn serve(&self, mut stream: TcpStream) {
        let Ok(Some(request)) = Request::read(&stream) else { return };
        if let Some(question) = Question::of(&request) {
            self.answer(&mut stream, &question, &request);
            return;
        }
        let (status, body) = match (request.method.as_str(), request.path()) {
            ("HEAD", _) => (200, json!(null)),
            // A WebSocket is asked for, and refused in the way that the agent takes as an answer at once.
            ("GET", "/v1/responses") => (426, json!({"error": {"message": "no WebSocket here"}})),
            ("GET", "/v1/models") => (200, json!({"object": "list", "data": [], "models": []})),
            ("POST", "/v1/messages/count_tokens") => (200, json!({"input_tokens": 7})),
            ("POST", path) if path.ends_with(":countTokens") => (200, json!({"totalTokens": 7})),
            (method, _) => {
                self.state().log.strangers.push(format!("{method} {}", request.target));
                self.changed.notify_all();
                (404, json!({"error": {"message": "no such endpoint"}}))
            }
        };
        // An agent that hung up has no use for the answer.
        let _ = respond(&mut stream, status, &body);
    }

    fn answer(&self, stream: &mut TcpStream, question: &Question, request: &Request) {
        // Titles, routing and the like repeat the user's prompt: its marks are not meant for them.
        let steered = matches!(question.kind, Kind::Main | Kind::Subagent);
        let script = match question.kind {
            _ if steered => Script::parse(&question.prompt),
            // What is typed behind `/compact` stands in its prompt, between many other things in brackets.
            Kind::Compact => Script { hold: Script::parse(&question.prompt).hold, ..Script::default() },
            _ => Script::default(),
        };
        let (at, tried) = self.enter(question, request);
        let n = at as u64 + 1;
        let tools = tools(question, &script, &request.body, n);
        let text = if !tools.is_empty() {
            format!("doing-{n}")
        } else if let Some(schema) = &question.schema {
            fill(schema, &format!("pong-{n}")).to_string()
        } else {
            script.say.clone().unwrap_or_else(|| format!("pong-{n}"))
        };
        let id = format!("fake{}x{n:04}", self.server);
        let last = tools.is_empty();
        let answer = Answer {
            n,
            id: id.clone(),
            model: question.model.clone(),
            text: text.clone(),
            tools,
            compacts: question.compacts,
        };
        let answer = dialect(question.vendor, answer);
        {
            let call = &mut self.state().log.calls[at];
            call.id = id;
            call.text = last.then(|| text.clone());
        }
        let refused = script.error.filter(|&(_, times)| tried < times).map(|(status, _)| status);
        let end = match refused {
            Some(status) => respond(stream, status, &refusal(question.vendor, status))
                .map(|()| AnswerEnd::Logged(Status::Refused(status))),
            None if !question.stream => {
                respond(stream, 200, &answer.whole()).map(|()| AnswerEnd::Logged(Status::Complete))
            }
            None => {
                let script = if last { script } else { Script { cut: script.cut, ..Script::default() } };
                self.stream(stream, &*answer, &text, &script, tried)
            }
        };
        let status = match end {
            Ok(AnswerEnd::Logged(status)) => status,
            Ok(AnswerEnd::Stopping) => return,
            Err(_) => Status::Aborted,
        };
        let mut state = self.state();
        let call = &mut state.log.calls[at];
        call.status = status;
        if status == Status::Complete {
            call.spent = answer.spent();
        }
        call.told = match status {
            Status::Complete => answer.spent(),
            Status::Cut | Status::Aborted => answer.spent_at_first(),
            Status::Refused(_) | Status::Streaming => Spent::default(),
        };
        drop(state);
        self.changed.notify_all();
    }

    /// Enters the question in the log: its place there, and how often it was put before.
    fn enter(&self, question: &Question, request: &Request) -> (usize, usize) {
        let mut state = self.state();
        let at = state.log.calls.len();
        let same = (question.session.clone(), question.prompt.clone(), question.turn);
        let tries = state.tries.entry(same).or_default();
        let tried = mem::replace(tries, *tries + 1);
        state.log.calls.push(Call {
            n: at as u64 + 1,
            vendor: question.vendor,
            kind: question.kind,
            session: question.session.clone(),
            subagent: question.subagent.clone(),
            model: question.model.clone(),
            prompt: question.prompt.clone(),
            turn: question.turn,
            status: Status::Streaming,
            text: None,
            id: String::new(),
            spent: Spent::default(),
            told: Spent::default(),
            head: request.head.clone(),
            body: request.body.clone(),
        });
        drop(state);
        self.changed.notify_all();
        (at, tried)
    }

    fn stream(
        &self,
        stream: &mut TcpStream,
        answer: &dyn Dialect,
        text: &str,
        script: &Script,
        tried: usize,
    ) -> io::Result<AnswerEnd> {
        let mut events = Events::begin(stream, answer.named_events())?;
        answer.opening().iter().try_for_each(|event| events.send(event))?;
        if let Some(slow) = script.slow {
            const PIECES: u32 = 10;
            for _ in 0..PIECES {
                events.send(&answer.piece(". "))?;
                let until = Instant::now() + slow / PIECES;
                if let Some(end) = self.pause(&events, |_| Instant::now() >= until) {
                    return Ok(end);
                }
            }
        }
        if let Some(gate) = &script.hold {
            events.send(&answer.piece("held "))?;
            if let Some(end) = self.pause(&events, |state| state.open_gates.contains(gate)) {
                return Ok(end);
            }
        }
        events.send(&answer.piece(text))?;
        if tried < script.cut {
            return Ok(AnswerEnd::Logged(Status::Cut));
        }
        answer.closing().iter().try_for_each(|event| events.send(event))?;
        answer.last_data().map_or(Ok(()), |data| events.send_data(data))?;
        // Codex hangs up as soon as it has read the last event.
        let _ = events.finish();
        Ok(AnswerEnd::Logged(Status::Complete))
    }

    /// Holds a stream back until `over`; says how it ended when the agent hung up or the server stops before.
    fn pause(&self, events: &Events<'_>, over: impl Fn(&State) -> bool) -> Option<AnswerEnd> {
        let mut state = self.state();
        loop {
            if state.stopping {
                return Some(AnswerEnd::Stopping);
            }
            if over(&state) {
                return None;
            }
            state = self.wait(state, LOOK);
            if events.hung_up() {
                return Some(AnswerEnd::Logged(Status::Aborted));
            }
        }
    }
}

/// The tool calls of this turn, with what the agents need besides.
fn tools(question: &Question, script: &Script, body: &Value, n: u64) -> Vec<Tool> {
    let tools = script.turns.get(question.turn).cloned().unwrap_or_default();
    match question.vendor {
        // A sub-agent of Gemini's is done when it says so by a tool.
        Vendor::Google if tools.is_empty() && question.kind == Kind::Subagent => {
            let result = json!({"result": {"response": format!("pong-{n}")}});
            vec![Tool::Named("complete_task".to_owned(), result)]
        }
        Vendor::OpenAi
            if tools.iter().any(|tool| matches!(tool, Tool::Subagent(_)))
                && !openai::knows_subagents(body) =>
        {
            vec![Tool::Search("spawn agent")]
        }
        _ => tools,
    }
}
