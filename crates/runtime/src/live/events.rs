//! The moments of a session that somebody may wait for: a turn's end, a question, the exit.
//!
//! They are made from what is seen one after the other: live states, and the marks of turns in the conversation's file.
//!
//! - A turn begins with a prompt in the file, with work that is seen, or with a question in the middle of it.
//! - It ends when its answer can be read, and once. Where the file marks turns, that is its mark there: an agent may report that
//!   it is idle before the file has the answer, so idleness alone ends such a turn only after a while, and the answer is then
//!   missing. Lines of it that come even later belong to it and begin no second turn; neither does a screen that still shows work
//!   for a moment. Where only the screen shows idleness, it must last, because an animation has gaps.
//! - A prompt that was given in the arguments of the agent is a turn from the start of the run on.
//! - A question is a permission or a choice in the middle of a turn, and also a dialog before a conversation can go on: whoever
//!   waits for such a session would wait for ever. It counts as long as it stands there.
//!
//! Times rise strictly, so one number is a place in the log. They are wall-clock milliseconds: such a cursor means the same to
//! another host, after a restart, and after a `/clear`.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use agents::Agent;
use agents::live::{TurnKind, TurnMark};
use types::{Activity, LiveState, Moment, RunId, StateSource, Timestamp};

/// Moments that are kept. A client that comes back after more of them has missed the oldest ones.
const KEPT: usize = 1000;
/// How long the screen alone must show idleness before a turn is over. The longest gap seen in an animation is shorter.
const IDLE_LASTS: Duration = Duration::from_millis(400);
/// How long idleness from before a turn must go on before that turn is taken for one without work (a command of the agent's
/// own).
const STALE_IDLE_LASTS: Duration = Duration::from_secs(2);
/// How long an agent must be idle before its answer is given up. It was measured to stand in the file 70 to 90 ms after Claude
/// reported that it was idle, with eight agents on two cores.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long an agent must be idle before a prompt of its arguments is given up of which nothing was seen: it is a command of the
/// agent's own, or was not taken. Agents that start all at once have been idle for seconds before they took theirs.
const GIVEN_WITHIN: Duration = Duration::from_secs(20);
/// How long work must be seen after a turn's mark in the file before it is another turn, and not the rest of a picture.
const WORK_LASTS: Duration = Duration::from_millis(1500);
/// How long a question must be seen on a screen: half a painted screen can look like one.
const QUESTION_LASTS: Duration = Duration::from_millis(200);
/// How long a turn is expected after a text was submitted.
const EXPECTED: Duration = Duration::from_secs(5);

/// One moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Timestamp,
    pub moment: Moment,
    /// The turn has ended, and its answer cannot be read.
    pub answer_missing: bool,
}

impl Event {
    pub fn new(at: Timestamp, moment: Moment) -> Self {
        Self { at, moment, answer_missing: false }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// Nothing was ever asked here.
    #[default]
    None,
    /// Since then.
    Open(Timestamp),
    Ended(Timestamp),
}

/// A question that is seen.
#[derive(Clone, Debug)]
struct Question {
    is: Activity,
    why: String,
    since: Timestamp,
    /// It has become an event.
    event: Option<Timestamp>,
}

/// The moments of one run, the latest last.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    events: VecDeque<Event>,
    last: Timestamp,
    turn: Turn,
    /// The conversation's file marks turns.
    marked: bool,
    /// The agent's own time in which an answer may still come, where it is longer than [`ANSWER_WITHIN`].
    answers_within: Duration,
    /// Nothing was seen yet of the open turn, whose prompt stands in the agent's arguments.
    given: bool,
    /// The last mark of the open turn is a text of the agent's.
    has_spoken: bool,
    /// The time of the latest mark that ended a turn.
    end_mark: Option<Timestamp>,
    /// When a turn ended whose answer was missing. Marks from before that time are of that turn.
    unanswered: Option<Timestamp>,
    idle_since: Option<Timestamp>,
    work_since: Option<Timestamp>,
    question: Option<Question>,
    /// When a text was submitted whose turn has not begun yet.
    asked: Option<Timestamp>,
    exited: Option<Timestamp>,
    /// When it is to be looked at again though nothing changed.
    due: Option<Timestamp>,
}

impl EventLog {
    pub fn of(agent: &dyn Agent) -> Self {
        Self { answers_within: agent.answers_within(), ..Self::of_agent(agent.marks_turns()) }
    }

    /// Of an agent whose conversations mark turns, or do not.
    pub fn of_agent(marks_turns: bool) -> Self {
        Self { marked: marks_turns, ..Self::default() }
    }

    /// The agent was started with a prompt in its arguments.
    pub fn give(&mut self, now: Timestamp) {
        (self.given, self.turn) = (true, Turn::Open(now));
    }

    /// The last mark of a conversation that was there before this log. Its end is at its own time, so that a cursor from before
    /// a restart finds it.
    pub fn begin_with(&mut self, mark: &TurnMark) {
        self.marked = true;
        let at = mark.at.unwrap_or_default();
        let turn = match mark.kind {
            TurnKind::Prompt(_) | TurnKind::Goes | TurnKind::Speaks => Turn::Open(at),
            TurnKind::Ended => {
                self.end_mark = mark.at;
                Turn::Ended(self.push(at, Moment::TurnEnd))
            }
        };
        if !self.given {
            self.turn = turn;
        }
    }

    /// The run has left its conversation. Whatever it was in the middle of is over without an end of its own.
    pub fn leave(&mut self) {
        (self.idle_since, self.work_since, self.end_mark) = (None, None, None);
        if !self.given {
            self.turn = Turn::None;
        }
    }

    /// The run is in a conversation whose file has appeared; with the last mark that it had before. A turn that was seen to begin
    /// before the file was there goes on in it.
    pub fn enter(&mut self, mark: Option<&TurnMark>) {
        self.turn = match (self.turn, mark.map(|mark| &mark.kind)) {
            (Turn::None, Some(TurnKind::Ended)) => Turn::Ended(self.last),
            (Turn::Ended(_), Some(TurnKind::Prompt(_) | TurnKind::Goes | TurnKind::Speaks)) => Turn::None,
            (turn, _) => turn,
        };
    }

    /// A mark that has just appeared in the conversation's file.
    pub fn mark(&mut self, now: Timestamp, mark: &TurnMark) {
        self.marked = true;
        let ends = mark.kind == TurnKind::Ended;
        let before = |time: Option<Timestamp>| mark.at.zip(time).is_some_and(|(at, time)| at < time);
        if before(self.unanswered) {
            if ends {
                self.answer_has_come();
            }
        } else if ends {
            self.end_mark = self.end_mark.max(mark.at);
            if !matches!(self.turn, Turn::Ended(_)) {
                self.end_turn(now, false);
            }
        } else if !before(self.end_mark) {
            // (Lines are not always written in the order of what they describe: an answer may stand before its prompt.)
            self.open_turn(now);
            self.has_spoken = mark.kind == TurnKind::Speaks;
        }
    }

    /// The answer that was missing when its turn ended stands in the file after all.
    fn answer_has_come(&mut self) {
        let unanswered = self.unanswered;
        if let Some(event) = self.events.iter_mut().rfind(|event| Some(event.at) == unanswered) {
            event.answer_missing = false;
        }
    }

    /// The state at this moment.
    pub fn observe(&mut self, now: Timestamp, state: &LiveState) {
        self.due = None;
        match state.is {
            Activity::Working => self.observe_work(now, state),
            Activity::Idle => self.observe_idle(now, state),
            Activity::NeedsInput => {
                self.open_turn(now);
                self.observe_question(now, state);
            }
            Activity::Dialog => self.observe_question(now, state),
            Activity::Starting => self.question = None,
            // It proves nothing, neither that a question was answered.
            Activity::Unknown => self.idle_since = None,
        }
    }

    fn observe_work(&mut self, now: Timestamp, state: &LiveState) {
        (self.idle_since, self.question) = (None, None);
        let ended = match self.turn {
            Turn::Open(_) => return,
            Turn::None => return self.open_turn(now),
            Turn::Ended(at) => at,
        };
        let published = state.source == Some(StateSource::Registry) && state.since > ended;
        let since = *self.work_since.get_or_insert(now);
        if !self.marked || published || now.since(since) >= WORK_LASTS {
            self.open_turn(now);
        } else {
            self.look_again(since.after(WORK_LASTS));
        }
    }

    fn observe_idle(&mut self, now: Timestamp, state: &LiveState) {
        (self.work_since, self.question) = (None, None);
        let Turn::Open(opened) = self.turn else { return };
        let since = *self.idle_since.get_or_insert(now);
        let stale = state.since <= opened;
        let proven = match state.source {
            _ if self.given => GIVEN_WITHIN,
            _ if stale => STALE_IDLE_LASTS,
            Some(StateSource::Registry | StateSource::SessionFile | StateSource::Sequence) => Duration::ZERO,
            Some(StateSource::Screen | StateSource::Process) | None => IDLE_LASTS,
        };
        let missing = self.marked && !self.has_spoken;
        let lasts = if missing { proven.max(ANSWER_WITHIN).max(self.answers_within) } else { proven };
        if now.since(since) >= lasts {
            self.end_turn(now, missing);
        } else {
            self.look_again(since.after(lasts));
        }
    }

    fn observe_question(&mut self, now: Timestamp, state: &LiveState) {
        (self.idle_since, self.work_since) = (None, None);
        let same = |question: &Question| question.is == state.is && question.why == state.why;
        if !self.question.as_ref().is_some_and(same) {
            let why = state.why.clone();
            self.question = Some(Question { is: state.is, why, since: now, event: None });
        }
        let Some(question) = &self.question else { return };
        if question.event.is_some() {
            return;
        }
        let lasts = if state.source == Some(StateSource::Registry) { Duration::ZERO } else { QUESTION_LASTS };
        if now.since(question.since) < lasts {
            return self.look_again(question.since.after(lasts));
        }
        let at = self.push(now, Moment::NeedsInput);
        if let Some(question) = &mut self.question {
            question.event = Some(at);
        }
    }

    /// A text is about to be submitted. What is seen of the turn before it belongs before it: its end is not waited for any
    /// longer if the agent seems idle.
    pub fn ask(&mut self, now: Timestamp, state: &LiveState) {
        if matches!(self.turn, Turn::Open(_)) && state.is == Activity::Idle && !self.given {
            self.end_turn(now, self.marked && !self.has_spoken);
        }
        self.asked = Some(now);
    }

    /// The question was answered. One that follows at once is another moment, though it is worded like this one.
    pub fn forget_question(&mut self) {
        self.question = None;
    }

    /// The agent's process has ended.
    pub fn exit(&mut self, now: Timestamp) {
        if self.exited.is_none() {
            self.exited = Some(self.push(now, Moment::Exit));
        }
    }

    /// When [`observe`](Self::observe) is to be called again, even if nothing changes.
    pub fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// The time of the last moment: a cursor after everything that is known.
    pub fn last(&self) -> Timestamp {
        self.last
    }

    /// Moments after a time, oldest first.
    pub fn after(&self, time: Timestamp) -> impl Iterator<Item = Event> {
        self.events.iter().copied().filter(move |event| event.at > time)
    }

    /// The answer to somebody who waits for one of `until` (empty: any moment); `None`: not yet.
    ///
    /// With a cursor only what came after it counts; without one what holds now. A turn has ended "now" if one ever did, the
    /// agent is idle, and nothing was asked since. An agent that was never asked anything has ended no turn: its first prompt,
    /// given at its start, may be about to begin one, and must not be taken for answered. A question counts as long as it
    /// stands there. An exit answers everything, since nothing can follow it.
    pub fn answer(
        &self,
        cursor: Option<Timestamp>,
        until: &[Moment],
        now: Timestamp,
        state: &LiveState,
    ) -> Option<Event> {
        if let Some(at) = self.exited {
            let before = cursor.and_then(|cursor| self.first_after(cursor, until));
            return Some(before.unwrap_or(Event::new(at, Moment::Exit)));
        }
        match cursor {
            Some(cursor) => self.first_after(cursor, until),
            None => self.holding(until, now, state),
        }
    }

    fn first_after(&self, cursor: Timestamp, until: &[Moment]) -> Option<Event> {
        self.after(cursor).find(|event| {
            wanted(until, event.moment)
                && (event.moment != Moment::NeedsInput || self.standing_question() == Some(event.at))
        })
    }

    fn standing_question(&self) -> Option<Timestamp> {
        self.question.as_ref().and_then(|question| question.event)
    }

    fn holding(&self, until: &[Moment], now: Timestamp, state: &LiveState) -> Option<Event> {
        if let Some(at) = self.standing_question().filter(|_| wanted(until, Moment::NeedsInput)) {
            return Some(Event::new(at, Moment::NeedsInput));
        }
        let expected = self.asked.is_some_and(|asked| now.since(asked) < EXPECTED);
        match self.turn {
            Turn::Ended(at) if state.is == Activity::Idle && !expected && wanted(until, Moment::TurnEnd) => {
                let known =
                    self.events.iter().rfind(|event| event.at == at && event.moment == Moment::TurnEnd);
                Some(known.copied().unwrap_or(Event::new(at, Moment::TurnEnd)))
            }
            _ => None,
        }
    }

    /// The state to be reported with a moment, which agrees with it: what is seen may be of a moment before or after. `seen`: the
    /// state as it is now.
    pub fn state_with(&self, event: &Event, seen: &LiveState) -> LiveState {
        let asks = |state: &LiveState| matches!(state.is, Activity::NeedsInput | Activity::Dialog);
        match (event.moment, &self.question) {
            (Moment::TurnEnd, _) if matches!(seen.is, Activity::Working | Activity::Starting) => LiveState {
                is: Activity::Idle,
                since: event.at,
                why: "its turn has ended".to_owned(),
                source: Some(StateSource::SessionFile),
            },
            (Moment::NeedsInput, Some(question)) if !asks(seen) => LiveState {
                is: question.is,
                since: question.since,
                why: question.why.clone(),
                source: seen.source,
            },
            _ => seen.clone(),
        }
    }

    fn open_turn(&mut self, now: Timestamp) {
        (self.asked, self.work_since) = (None, None);
        if self.given || !matches!(self.turn, Turn::Open(_)) {
            (self.idle_since, self.given, self.has_spoken) = (None, false, false);
            self.turn = Turn::Open(now);
        }
    }

    fn end_turn(&mut self, now: Timestamp, answer_missing: bool) {
        (self.idle_since, self.work_since, self.given) = (None, None, false);
        let at = self.push(now, Moment::TurnEnd);
        self.turn = Turn::Ended(at);
        self.unanswered = answer_missing.then_some(at);
        if let Some(event) = self.events.back_mut() {
            event.answer_missing = answer_missing;
        }
    }

    fn push(&mut self, now: Timestamp, moment: Moment) -> Timestamp {
        let at = now.max(self.last.after(Duration::from_millis(1)));
        self.last = at;
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back(Event::new(at, moment));
        at
    }

    fn look_again(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

fn wanted(until: &[Moment], moment: Moment) -> bool {
    until.is_empty() || until.contains(&moment)
}

/// A place in the logs of one or several runs, as `wait` gives and takes it. Opaque to everybody else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The place in the log of any run that has none of its own.
    base: Timestamp,
    /// By the beginning of the run's id.
    of_runs: BTreeMap<String, Timestamp>,
}

/// A text that is no cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no cursor; give the one that the last `wait` or `send` printed, unchanged")]
pub struct NoCursor(pub String);

impl Cursor {
    pub fn at(time: Timestamp) -> Self {
        Self { base: time, of_runs: BTreeMap::new() }
    }

    /// Its place in the log of a run.
    pub fn of(&self, run: RunId) -> Timestamp {
        self.of_runs.get(&short(run)).copied().unwrap_or(self.base)
    }

    /// The same, with a place of its own for a run.
    #[must_use]
    pub fn with(mut self, run: RunId, time: Timestamp) -> Self {
        self.of_runs.insert(short(run), time);
        self
    }
}

fn short(run: RunId) -> String {
    run.to_string().chars().take(8).collect()
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.base.0)?;
        self.of_runs.iter().try_for_each(|(run, time)| write!(f, ",{run}.{}", time.0))
    }
}

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let parse = || {
            let mut parts = text.split(',');
            let mut cursor = Self::at(Timestamp(parts.next()?.parse().ok()?));
            for part in parts {
                let (run, time) = part.split_once('.')?;
                cursor.of_runs.insert(run.to_owned(), Timestamp(time.parse().ok()?));
            }
            Some(cursor)
        };
        parse().ok_or_else(|| NoCursor(text.to_owned()))
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
