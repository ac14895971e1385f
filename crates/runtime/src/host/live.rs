//! The session as the server knows it while it runs: its state, texts on their way to it, clients that wait for something.
//!
//! Everything here is driven by the server's loop: it reports what happened, calls [`LiveSession::step`], and calls again by the
//! time that [`LiveSession::due`] names.

use std::time::{Duration, Instant};

use super::answers::{AnswerProgress, Answers};
use super::send::Situation;
use super::sends::{Sends, Submitted};
use super::waits::{Present, Waits};
use crate::launch::Origin;
use crate::live::events::EventLog;
use crate::live::{Sources, TurnFeed, decide, is_blank};
use crate::remote::protocol::{AnswerRequest, Dialog, FromHost, Refused, SendRequest, WaitRequest};
use crate::track::RunNews;
use crate::track::notify::{Notice, Notifier};
use agents::Agent;
use agents::live::{Published, ScreenReading, TurnKind};
use os::clock::{Clock, SystemClock};
use pty::process::SystemProcesses;
use pty::screen::Screen;
use types::{Activity, Delivery, LiveState, Moment, Pid, RunId, SessionId, Timestamp};

/// A screen is read when the agent has paused for this long: half a painted one would be misread, and reading every chunk of a
/// flood would cost more than parsing it.
const SETTLED: Duration = Duration::from_millis(20);
/// And after this long however it goes on.
const READ_AT_LEAST: Duration = Duration::from_millis(150);

/// How long a session may be idle, how long it may be idle while nobody is attached or waits, and how long it may run at all;
/// `None`: for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub idle: Option<Duration>,
    pub unneeded: Option<Duration>,
    pub total: Option<Duration>,
}

/// Who and what a session is, before anything is known of what it does.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) agent: Option<&'static dyn Agent>,
    pub(super) run: RunId,
    pub(super) session: SessionId,
    /// The environment that the agent was started in: where its files are.
    pub(super) origin: Origin,
    pub(super) limits: Limits,
    pub(super) notifier: Notifier,
    /// Whether the terminals of viewers are to show notices.
    pub(super) osc9: bool,
    /// A first prompt stands in the agent's arguments.
    pub(super) prompted: bool,
}

pub(super) struct LiveSession {
    subject: Subject,
    pid: Option<Pid>,
    begun: (Instant, Timestamp),
    news: Option<RunNews>,
    /// The tracker has looked since the agent's files were read here.
    news_unread: bool,
    turns: Option<TurnFeed>,
    published: Option<Published>,
    reading: ScreenReading,
    bracketed_paste: bool,
    /// The first output that is not read yet, and the latest.
    unread_output: Option<(Instant, Instant)>,
    last_output: Option<Instant>,
    viewer_keys: u64,
    /// When somebody was attached or waited, or a text was on its way, last.
    needed_at: Timestamp,
    ended: bool,
    state: LiveState,
    log: EventLog,
    /// The last moment that the user was notified of.
    notified: Timestamp,
    sends: Sends<u64>,
    answers: Answers<u64>,
    waits: Waits<u64>,
    /// When something is to be done though nothing happens.
    again: Option<Instant>,
}

/// What is to be done now.
#[derive(Debug, Default)]
pub(super) struct LiveStep {
    /// To be typed, as one piece.
    pub(super) keys: Vec<u8>,
    pub(super) answers: Vec<(u64, FromHost)>,
    /// For the terminals of viewers, between two sequences of the program's.
    pub(super) notices: Vec<u8>,
    /// A limit is reached.
    pub(super) limit: Option<&'static str>,
}

impl LiveSession {
    pub(super) fn new(subject: Subject) -> Self {
        let now = SystemClock.now();
        let state = decide(&Sources { blank: true, started: Some(now), ..Sources::default() }, now);
        let mut log = subject.agent.map_or_else(|| EventLog::of_agent(false), EventLog::of);
        if subject.prompted {
            log.give(now);
        }
        Self {
            answers: Answers::of_run(subject.run),
            turns: subject.agent.map(|agent| TurnFeed::of_new_run(agent, now)),
            subject,
            pid: None,
            begun: (Instant::now(), now),
            news: None,
            news_unread: false,
            published: None,
            reading: ScreenReading::default(),
            bracketed_paste: false,
            unread_output: None,
            last_output: None,
            viewer_keys: 0,
            needed_at: now,
            ended: false,
            state,
            log,
            notified: now,
            sends: Sends::default(),
            waits: Waits::default(),
            again: None,
        }
    }

    pub(super) fn session(&self) -> SessionId {
        self.news.as_ref().map_or(self.subject.session, |news| news.session)
    }

    /// The session's name when the run came to it; empty before its START.
    pub(super) fn name(&self) -> &str {
        self.news.as_ref().map_or("", |news| news.name.as_str())
    }

    pub(super) fn started(&mut self, pid: Pid) {
        self.pid = Some(pid);
        self.news_unread = true;
    }

    pub(super) fn tracked(&mut self, news: RunNews) {
        self.news = Some(news);
        self.news_unread = true;
    }

    pub(super) fn ended(&mut self) {
        self.ended = true;
    }

    pub(super) fn output_came(&mut self, now: Instant) {
        self.last_output = Some(now);
        let first = self.unread_output.map_or(now, |(first, _)| first);
        self.unread_output = Some((first, now));
    }

    pub(super) fn viewer_typed(&mut self) {
        self.viewer_keys += 1;
    }

    /// Whether the keys of viewers are to wait for a moment, so that they do not get into a text.
    pub(super) fn holds_keys(&self, now: Instant) -> bool {
        self.sends.holds_keys(now)
    }

    /// Whether a text or a choice is on its way.
    pub(super) fn has_sends(&self) -> bool {
        !self.sends.is_empty() || self.has_answer()
    }

    /// Whether a choice is on its way.
    pub(super) fn has_answer(&self) -> bool {
        !self.answers.is_empty()
    }

    pub(super) fn forget(&mut self, client: u64) {
        self.sends.forget(&client);
        self.answers.forget(&client);
        self.waits.forget(&client);
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.again
    }

    /// The state at this moment, read from the screen as it is now.
    pub(super) fn state(&mut self, screen: &Screen) -> LiveState {
        self.read_screen(screen);
        self.observe();
        self.state.clone()
    }

    /// What the agent asks at this moment.
    pub(super) fn dialog(&mut self, screen: &Screen) -> Option<Dialog> {
        let state = self.state(screen);
        let asks = matches!(state.is, Activity::NeedsInput | Activity::Dialog);
        asks.then(|| self.answers.dialog(&self.reading)).flatten()
    }

    pub(super) fn send(&mut self, client: u64, request: &SendRequest, unwritten: usize) -> Option<FromHost> {
        let submitted =
            self.with_situation(Instant::now(), unwritten, |sends, now| sends.submit(client, request, now));
        match submitted {
            Submitted::Taken => None,
            Submitted::Answered(answer) => Some(FromHost::Sent(answer)),
            Submitted::Refused(message) => Some(FromHost::Refused(Refused { message })),
        }
    }

    /// A choice for the dialog; `None`: the answer comes later.
    pub(super) fn answer(&mut self, client: u64, request: &AnswerRequest) -> Option<FromHost> {
        let mut answers = std::mem::replace(&mut self.answers, Answers::of_run(self.subject.run));
        let answered = answers.submit(client, request, &self.situation(Instant::now(), 0));
        self.answers = answers;
        answered.map(FromHost::Sent)
    }

    pub(super) fn wait(&mut self, client: u64, request: &WaitRequest) -> Option<FromHost> {
        let waits = std::mem::take(&mut self.waits);
        let mut waits = waits;
        let added = waits.add(client, request, &self.present(Instant::now()));
        self.waits = waits;
        added.err().map(|error| FromHost::Refused(Refused { message: error.to_string() }))
    }

    /// Looks at what has changed, types what is due, answers the clients that can be answered. `unwritten`: bytes that were typed and
    /// that the program has not taken yet. `attached`: somebody looks at the session.
    pub(super) fn step(
        &mut self,
        now: Instant,
        screen: &Screen,
        unwritten: usize,
        attached: bool,
    ) -> LiveStep {
        let mut step = LiveStep::default();
        let mut again: Vec<Instant> = Vec::new();
        if let Some((first, latest)) = self.unread_output {
            let at = (latest + SETTLED).min(first + READ_AT_LEAST);
            if at <= now { self.read_screen(screen) } else { again.push(at) }
        }
        if std::mem::take(&mut self.news_unread) {
            self.read_files();
        }
        self.observe();
        let progress = self.with_situation(now, unwritten, |sends, situation| sends.step(situation));
        if progress.submits {
            self.log.ask(SystemClock.now(), &self.state);
            // What ended before this text is no answer to it.
            self.sends.begin_after(self.log.last());
        }
        step.keys = progress.typed;
        let answering = self.step_answer(now, unwritten);
        step.keys.extend(answering.typed);
        step.answers.extend(answering.answer.map(|(client, answer)| (client, FromHost::Sent(answer))));
        again.extend(answering.again);
        step.answers
            .extend(progress.answers.into_iter().map(|(client, answer)| (client, FromHost::Sent(answer))));
        again.extend(progress.again);
        step.answers.extend(self.answer_waits(now));
        again.extend(self.waits.deadline());
        step.notices = self.notify();
        let wall = SystemClock.now();
        let needed = attached || self.has_sends() || !self.waits.is_empty();
        if needed {
            self.needed_at = wall;
        }
        again.extend(self.log.due().map(|at| now + at.since(wall)));
        let (limit, at) = self.limit(now, wall);
        step.limit = limit;
        again.extend(at);
        self.again = again.into_iter().min();
        step
    }

    /// The agent has ended and everything is recorded: the answers that are left to give.
    pub(super) fn last_answers(&mut self) -> Vec<(u64, FromHost)> {
        self.read_files(); // what the agent wrote last may be an answer
        self.log.exit(SystemClock.now());
        let now = Instant::now();
        let progress = self.with_situation(now, 0, |sends, situation| sends.step(situation));
        let mut answers: Vec<(u64, FromHost)> =
            progress.answers.into_iter().map(|(client, answer)| (client, FromHost::Sent(answer))).collect();
        let answering = self.step_answer(now, 0).answer;
        answers.extend(answering.map(|(client, answer)| (client, FromHost::Sent(answer))));
        answers.extend(self.answer_waits(now));
        self.notify();
        answers
    }

    fn step_answer(&mut self, now: Instant, unwritten: usize) -> AnswerProgress<u64> {
        let unread = self.unread_output.is_some();
        let mut answers = std::mem::replace(&mut self.answers, Answers::of_run(self.subject.run));
        let progress = answers.step(&self.situation(now, unwritten), unread);
        self.answers = answers;
        if progress.answer.as_ref().is_some_and(|(_, answer)| answer.result == Delivery::Accepted) {
            // The next question may be worded like this one.
            self.log.forget_question();
        }
        progress
    }

    /// Notifies the user of what has happened since the last time. Returns what viewers' terminals are to show.
    fn notify(&mut self) -> Vec<u8> {
        let moments: Vec<_> = self.log.after(self.notified).collect();
        let Some(last) = moments.last() else { return Vec::new() };
        self.notified = last.at;
        let name = self.name();
        let agent = self.subject.agent.map_or("", |agent| agent.name());
        let mut shown = Vec::new();
        for event in &moments {
            let state = self.log.state_with(event, &self.state);
            let mut notice = Notice::of(event.moment, self.session(), name, agent, &state);
            if event.moment == Moment::Exit {
                (notice.state, notice.why) = ("", "its agent has ended");
            }
            self.subject.notifier.run(&notice);
            if self.subject.osc9 {
                shown.extend(notice.osc9());
            }
        }
        shown
    }

    fn read_screen(&mut self, screen: &Screen) {
        self.unread_output = None;
        if let Some(agent) = self.subject.agent {
            let view = screen.view();
            self.bracketed_paste = view.bracketed_paste;
            self.reading = agent.read_screen(&view);
            self.answers.note(&self.reading);
        }
    }

    fn read_files(&mut self) {
        let (Some(agent), Some(pid)) = (self.subject.agent, self.pid) else { return };
        let origin = &self.subject.origin;
        self.published = agent.published(&|name| origin.var(name), pid, &SystemProcesses);
        let file = self.news.as_ref().and_then(|news| news.file.as_deref());
        let Some(turns) = &mut self.turns else { return };
        // A file that cannot be read now is read with the next news.
        for mark in turns.look(file, SystemClock.now(), &mut self.log).unwrap_or_default() {
            if let TurnKind::Prompt(text) = &mark.kind {
                self.sends.note_prompt(text);
            }
        }
    }

    fn observe(&mut self) {
        let now = SystemClock.now();
        let sources = Sources {
            published: self.published.as_ref(),
            screen: self.subject.agent.is_some().then_some(&self.reading),
            blank: is_blank(self.subject.agent.is_some(), self.pid.is_some(), self.last_output.is_some()),
            turn: self.turns.as_ref().and_then(TurnFeed::last),
            started: Some(self.begun.1),
            before: Some(&self.state),
        };
        self.state = decide(&sources, now);
        if self.subject.agent.is_some() {
            self.log.observe(now, &self.state);
        }
    }

    fn with_situation<T>(
        &mut self,
        now: Instant,
        unwritten: usize,
        act: impl FnOnce(&mut Sends<u64>, &Situation<'_>) -> T,
    ) -> T {
        let mut sends = std::mem::take(&mut self.sends);
        let result = act(&mut sends, &self.situation(now, unwritten));
        self.sends = sends;
        result
    }

    fn situation(&self, now: Instant, unwritten: usize) -> Situation<'_> {
        Situation {
            now,
            state: &self.state,
            reading: &self.reading,
            bracketed_paste: self.bracketed_paste,
            quiet_for: now.saturating_duration_since(self.last_output.unwrap_or(self.begun.0)),
            unwritten,
            screen_is_known: self.subject.agent.is_some(),
            prompts_are_read: self.turns.is_some(),
            viewer_keys: self.viewer_keys,
            ended: self.ended,
            session: Some(self.session()),
            last_event: self.log.last(),
        }
    }

    fn present(&self, now: Instant) -> Present<'_> {
        Present {
            now,
            wall: SystemClock.now(),
            log: &self.log,
            state: &self.state,
            run: self.subject.run,
            session: Some(self.session()),
        }
    }

    fn answer_waits(&mut self, now: Instant) -> Vec<(u64, FromHost)> {
        let mut waits = std::mem::take(&mut self.waits);
        let answers = waits.answers(&self.present(now));
        self.waits = waits;
        answers.into_iter().map(|(client, answer)| (client, FromHost::Waited(answer))).collect()
    }

    /// Whether a limit is reached, and when to ask again.
    fn limit(&self, now: Instant, wall: Timestamp) -> (Option<&'static str>, Option<Instant>) {
        let Limits { idle, unneeded, total } = self.subject.limits;
        let reached = |spent: Duration, limit: Option<Duration>| limit.is_some_and(|limit| spent >= limit);
        let running = now.saturating_duration_since(self.begun.0);
        if reached(running, total) {
            return (Some("host.totalLimit is reached"), None);
        }
        // A conversation that is continued may have been idle for long before this run.
        let idle_for =
            (self.state.is == Activity::Idle).then(|| wall.since(self.state.since.max(self.begun.1)));
        if idle_for.is_some_and(|spent| reached(spent, idle)) {
            return (Some("host.idleLimit is reached"), None);
        }
        let unneeded_for = idle_for.map(|spent| spent.min(wall.since(self.needed_at)));
        if unneeded_for.is_some_and(|spent| reached(spent, unneeded)) {
            return (Some("mcp.idleLimit is reached"), None);
        }
        let ends = total.map(|limit| self.begun.0 + limit);
        let idles = [(idle, idle_for), (unneeded, unneeded_for)]
            .into_iter()
            .filter_map(|(limit, spent)| Some(now + limit?.saturating_sub(spent?)));
        (None, ends.into_iter().chain(idles).min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Ids, RandomIds};

    const LIMIT: Duration = Duration::from_mins(10);

    fn live(limits: Limits) -> LiveSession {
        LiveSession::new(Subject {
            agent: None,
            run: RandomIds.run(),
            session: RandomIds.session(),
            origin: Origin::given([], "/".into()),
            limits,
            notifier: Notifier::default(),
            osc9: false,
            prompted: false,
        })
    }

    #[test]
    fn session_that_nobody_needs_reaches_its_limit_in_idle_alone() {
        for is in Activity::ALL.iter().copied() {
            let mut live = live(Limits { unneeded: Some(LIMIT), ..Limits::default() });
            let (steady, begun) = live.begun;
            live.state = LiveState { is, since: begun, why: String::new(), source: None };
            let at = |after: Duration| (steady + after, begun.after(after));
            let limit = |live: &LiveSession, after| {
                let (now, wall) = at(after);
                live.limit(now, wall)
            };
            let reached = limit(&live, LIMIT).0;
            assert_eq!(reached, (is == Activity::Idle).then_some("mcp.idleLimit is reached"), "{is}");
            let before = limit(&live, LIMIT / 2);
            assert_eq!(before, (None, (is == Activity::Idle).then_some(steady + LIMIT)), "{is}");
            // Somebody was attached, or waited, until then.
            live.needed_at = begun.after(LIMIT / 2);
            assert_eq!(limit(&live, LIMIT).0, None, "{is}");
            assert_eq!(limit(&live, LIMIT * 3 / 2).0, reached, "{is}");
        }
    }

    #[test]
    fn whoever_is_attached_or_waits_is_noted() {
        let screen = Screen::new(pty::PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 }, 0);
        let wait = WaitRequest { until: vec![Moment::Exit], cursor: None, timeout_ms: 60_000, unlike: None };
        for (attached, waits, needed) in [(false, false, false), (true, false, true), (false, true, true)] {
            let mut live = live(Limits::default());
            live.needed_at = Timestamp(0);
            if waits {
                assert_eq!(live.wait(1, &wait), None);
            }
            live.step(Instant::now(), &screen, 0, attached);
            assert_eq!(live.needed_at != Timestamp(0), needed, "attached {attached}, waits {waits}");
        }
    }
}
