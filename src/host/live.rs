//! The session as the server knows it while it runs: its state, texts on their way to it, clients that wait for something.

use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::home::Home;
use crate::launch::Origin;
use crate::live::{Sources, decide};
use crate::remote::protocol::{FromHost, SendRequest, WaitRequest};
use crate::track::RunNews;
use system::clock::{Clock, SystemClock};
use terminal::screen::Screen;
use wire::{LiveState, Pid, SessionId};

/// How long a session may be idle, and how long it may run at all; `None`: for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub idle: Option<Duration>,
    pub total: Option<Duration>,
}

pub(super) struct LiveSession {
    agent: Option<&'static dyn Agent>,
    session: SessionId,
    origin: Origin,
    limits: Limits,
    home: Home,
    pid: Option<Pid>,
    news: Option<RunNews>,
}

/// What is to be done now.
#[derive(Debug, Default)]
pub(super) struct LiveStep {
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) answers: Vec<(u64, FromHost)>,
    /// A limit is reached.
    pub(super) limit: Option<&'static str>,
}

impl LiveSession {
    pub(super) fn new(
        agent: Option<&'static dyn Agent>,
        session: SessionId,
        origin: Origin,
        limits: Limits,
        home: Home,
    ) -> Self {
        Self { agent, session, origin, limits, home, pid: None, news: None }
    }

    pub(super) fn session(&self) -> Option<SessionId> {
        Some(self.session)
    }

    pub(super) fn started(&mut self, pid: Pid) {
        self.pid = Some(pid);
    }

    pub(super) fn tracked(&mut self, news: RunNews) {
        self.session = news.session;
        self.news = Some(news);
    }

    pub(super) fn ended(&mut self) {}

    pub(super) fn output_came(&mut self, _now: Instant) {}

    pub(super) fn viewer_typed(&mut self, _now: Instant) {}

    pub(super) fn due(&self, _now: Instant) -> Option<Instant> {
        None
    }

    pub(super) fn state(&mut self, screen: &Screen) -> LiveState {
        let reading = self.agent.map(|agent| agent.read_screen(&screen.view()));
        decide(&Sources { screen: reading.as_ref(), ..Sources::default() }, SystemClock.now())
    }

    pub(super) fn send(&mut self, _client: u64, _request: SendRequest) {}

    pub(super) fn wait(&mut self, _client: u64, _request: WaitRequest) {}

    pub(super) fn last_answers(&mut self) -> Vec<(u64, FromHost)> {
        Vec::new()
    }

    pub(super) fn step(&mut self, _now: Instant, _screen: &Screen) -> LiveStep {
        LiveStep::default()
    }
}
