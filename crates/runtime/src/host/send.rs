//! One text on its way to an agent: when to type it, when to press Enter, and what proves that it arrived.
//!
//! A state machine without I/O and without a clock. The owner of the PTY calls [`Sending::step`] with the present [`Situation`]
//! whenever something may have changed, types the bytes of [`Step::Type`], and calls again by [`Step::Wait`]'s time.
//!
//! Promises: the text is typed at most once. Enter is pressed only while the text is seen in the composer and nothing covers
//! it, and a second time only while the text is still seen there. `accepted`, `queued` and `turn_started` are answered on proof
//! alone, `rejected` only while Enter was never pressed, and `unknown` in every other case.

use std::time::{Duration, Instant};

use crate::live::events::Cursor;
use crate::remote::protocol::SendAnswer;
use crate::remote::send;
use agents::live::{ScreenReading, Shown};
use types::{Activity, Delivery, LiveState, SessionId, Timestamp};

/// How long a composer must look the same before it is typed into. Agents paint it some hundred milliseconds before they read
/// keys, and paint it again until then.
const STABLE: Duration = Duration::from_millis(250);
/// The same where nothing proves that the agent is idle or at work.
const STABLE_UNPROVEN: Duration = Duration::from_secs(1);
/// A composer that looks the same for this long is ready although the agent goes on writing (a clock, an animation).
const STABLE_THOUGH_LOUD: Duration = Duration::from_secs(3);
/// No output for this long: the agent has finished painting.
const QUIET: Duration = Duration::from_millis(100);
/// How long a dialog must be seen before it is a reason to reject: half a painted screen can look like one.
const BLOCKED: Duration = Duration::from_millis(300);
/// How long somebody's text must stand unchanged in the composer before it is a reason to reject.
const OCCUPIED: Duration = Duration::from_secs(1);
/// How long the text must stand unchanged in the composer before Enter is pressed. Gemini takes an Enter within 40 ms behind a
/// paste for a line end, and Codex one that comes at once behind text that was typed.
const SHOWN: Duration = Duration::from_millis(200);
/// How long an empty composer must be seen after Enter, so that a repaint is not taken for it.
const GONE: Duration = Duration::from_millis(100);
/// After how long Enter is pressed once more while the text still stands there. (Gemini ignores Enter while it loads a
/// conversation.)
const PRESS_AGAIN: Duration = Duration::from_millis(1200);
const PRESSES: u8 = 2;
/// How long the conversation's file may take to show a prompt that has left the composer. Measured: Codex 45 to 280 ms, Claude
/// 155 to 614 ms, Gemini 110 to 600 ms. (Gemini takes 30 s for 100 kB in one line; that is answered with `accepted`.)
const FILE: Duration = Duration::from_secs(3);
/// The same where the agent is busy. Claude and Gemini write the prompt only when its turn comes; Codex takes it into the
/// present one at once.
const FILE_WHEN_BUSY: Duration = Duration::from_millis(600);
/// What was typed is seen through for at least this long, even if the caller's time is up.
const SEE_THROUGH: Duration = Duration::from_secs(5);
/// For how long after a paste the keys of viewers are held, so that they do not get into the text.
const HOLD_KEYS: Duration = Duration::from_secs(3);

/// What is known at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    pub now: Instant,
    pub state: &'a LiveState,
    pub reading: &'a ScreenReading,
    /// The agent asked for pastes to be marked.
    pub bracketed_paste: bool,
    /// For how long the agent has written nothing.
    pub quiet_for: Duration,
    /// Bytes that were to be typed and that the program has not taken yet.
    pub unwritten: usize,
    /// Whether codemie can read the screens of this program at all.
    pub screen_is_known: bool,
    /// Whether the prompts of this agent's conversations are read from a file as they come ([`Sending::note_prompt`]).
    pub prompts_are_read: bool,
    /// Counts the keys of viewers that reached the agent.
    pub viewer_keys: u64,
    /// The agent's process has ended.
    pub ended: bool,
    /// The session the run is in.
    pub session: Option<SessionId>,
    /// The time of the last event ([`crate::live::events::EventLog::last`]).
    pub last_event: Timestamp,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Call again when something changes, or then.
    Wait(Instant),
    /// Type these bytes, as one piece, and call again.
    Type(Vec<u8>),
    Done(SendAnswer),
}

/// One text on its way.
#[derive(Clone, Debug)]
pub struct Sending {
    text: String,
    deadline: Instant,
    phase: Phase,
    view: Option<View>,
    /// The text stands in the conversation's file.
    in_file: bool,
}

/// What matters of a screen, and since when it is so.
#[derive(Clone, Debug)]
struct View {
    since: Instant,
    composer: Option<String>,
    blocked_by: Option<String>,
    viewer_keys: u64,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Nothing was typed.
    Waiting,
    Typed {
        at: Instant,
        viewer_keys: u64,
    },
    Entered(Entered),
}

#[derive(Clone, Debug)]
struct Entered {
    /// When Enter was pressed last.
    at: Instant,
    presses: u8,
    /// What stood in the composer before Enter was pressed.
    shown: String,
    busy: bool,
    viewer_keys: u64,
    session: Option<SessionId>,
    cursor: Timestamp,
    /// When the text was seen to be gone from the composer, and how.
    gone: Option<(Instant, &'static str)>,
}

impl Sending {
    /// `text` as [`send::prepare`] leaves it.
    pub fn new(text: String, deadline: Instant) -> Self {
        Self { text, deadline, phase: Phase::Waiting, view: None, in_file: false }
    }

    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether anything was typed: it cannot be taken back from here on.
    pub fn has_typed(&self) -> bool {
        !matches!(self.phase, Phase::Waiting)
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether Enter was pressed: from here on the text may have been submitted.
    pub fn has_pressed_enter(&self) -> bool {
        matches!(self.phase, Phase::Entered(_))
    }

    /// Moments up to this time came before Enter was pressed.
    pub fn begin_after(&mut self, time: Timestamp) {
        if let Phase::Entered(entered) = &mut self.phase {
            entered.cursor = entered.cursor.max(time);
        }
    }

    /// Whether the keys of viewers are to wait, so that they do not get between the text and its Enter.
    pub fn holds_keys(&self, now: Instant) -> bool {
        matches!(self.phase, Phase::Typed { at, .. } if now.saturating_duration_since(at) < HOLD_KEYS)
    }

    /// A prompt has appeared in the conversation's file.
    pub fn note_prompt(&mut self, prompt: &str) {
        if self.has_pressed_enter() && is_same_prompt(&self.text, prompt) {
            self.in_file = true;
        }
    }

    pub fn step(&mut self, now: &Situation<'_>) -> Step {
        self.look(now);
        let step = match &self.phase {
            Phase::Waiting => self.wait_for_composer(now),
            Phase::Typed { at, viewer_keys } => self.wait_for_text(now, *at, *viewer_keys),
            Phase::Entered(entered) => self.wait_for_proof(now, entered.clone()),
        };
        if let Step::Wait(until) = step {
            // A time that is over would make the caller spin.
            return Step::Wait(until.max(now.now + Duration::from_millis(1)));
        }
        step
    }

    /// Notes the screen, and since when it is like this.
    fn look(&mut self, now: &Situation<'_>) {
        let composer = now.reading.composer.as_ref().map(|composer| composer.text.clone());
        let blocked_by = blocked_by(now);
        let same = self.view.as_ref().is_some_and(|view| {
            view.composer == composer
                && view.blocked_by.is_some() == blocked_by.is_some()
                && view.viewer_keys == now.viewer_keys
        });
        if !same {
            self.view = Some(View { since: now.now, composer, blocked_by, viewer_keys: now.viewer_keys });
        }
    }

    /// For how long the screen has been as it is.
    fn unchanged(&self, now: &Situation<'_>) -> Duration {
        self.view.as_ref().map_or(Duration::ZERO, |view| now.now.saturating_duration_since(view.since))
    }

    fn composer(&self) -> Option<&str> {
        self.view.as_ref()?.composer.as_deref()
    }

    fn blocked(&self) -> Option<&str> {
        self.view.as_ref()?.blocked_by.as_deref()
    }

    fn wait_for_composer(&mut self, now: &Situation<'_>) -> Step {
        if now.ended {
            return rejected(now, "the agent ended before anything was typed");
        }
        if !now.screen_is_known {
            return rejected(now, "codemie does not know where this program takes prompts; attach and type");
        }
        let unchanged = self.unchanged(now);
        let check = |needed: Duration| now.now + needed.saturating_sub(unchanged);
        let next = match (self.blocked(), self.composer()) {
            (Some(why), _) if unchanged >= BLOCKED => {
                let session = now.session.map_or_else(|| "SESSION".to_owned(), |session| session.to_string());
                let why = format!(
                    "the text would answer what the agent asks ({why}); answer it first: `codemie answer {session}` shows the \
                     choices, or attach"
                );
                return rejected(now, &why);
            }
            (Some(_), _) => check(BLOCKED),
            (None, Some("")) => match readiness(now) {
                Some((stable, quiet)) => {
                    let painted = unchanged >= stable && now.quiet_for >= quiet;
                    if painted || unchanged >= STABLE_THOUGH_LOUD {
                        return self.type_text(now);
                    }
                    let painted_at = check(stable).max(now.now + quiet.saturating_sub(now.quiet_for));
                    painted_at.min(check(STABLE_THOUGH_LOUD))
                }
                None => self.deadline,
            },
            (None, Some(_)) if unchanged >= OCCUPIED => {
                let why = "another text stands in the composer; attach and send or remove it first";
                return rejected(now, why);
            }
            (None, Some(_)) => check(OCCUPIED),
            (None, None) => self.deadline,
        };
        if now.now >= self.deadline {
            let why = format!(
                "the agent was not ready for a prompt in time ({}: {}); nothing was typed",
                now.state.is, now.state.why
            );
            return rejected(now, &why);
        }
        Step::Wait(next.min(self.deadline))
    }

    fn type_text(&mut self, now: &Situation<'_>) -> Step {
        let bytes = if now.bracketed_paste {
            [b"\x1b[200~", self.text.as_bytes(), b"\x1b[201~"].concat()
        } else if self.text.contains(['\n', '\t']) {
            let why = "the agent takes no pastes (it has not switched bracketed paste on), and line ends and tabs would act as \
                       keys; send one line without tabs";
            return rejected(now, why);
        } else {
            self.text.as_bytes().to_vec()
        };
        self.phase = Phase::Typed { at: now.now, viewer_keys: now.viewer_keys };
        Step::Type(bytes)
    }

    fn wait_for_text(&mut self, now: &Situation<'_>, at: Instant, viewer_keys: u64) -> Step {
        if now.ended {
            return rejected(now, "the agent ended before Enter was pressed");
        }
        if now.viewer_keys != viewer_keys {
            let why = "somebody typed into the session at the same time; the text was typed and Enter was not pressed";
            return unknown(now, why);
        }
        let unchanged = self.unchanged(now);
        let is_shown = self.composer().is_some_and(|text| !text.is_empty()) && self.blocked().is_none();
        if is_shown && now.unwritten == 0 {
            let busy = now.state.is == Activity::Working;
            let painted = busy || now.quiet_for >= QUIET || unchanged >= STABLE_UNPROVEN;
            if unchanged >= SHOWN && painted {
                return self.press_enter(now, busy);
            }
        }
        if now.now >= self.until_seen_through(at) {
            let why = match self.blocked() {
                Some(why) => format!(
                    "the text was typed, and then the agent asked something ({why}); Enter was not pressed, because it would \
                     have answered that"
                ),
                None if is_shown => {
                    "the text stands in the composer, and Enter was not pressed yet".to_owned()
                }
                None => {
                    "the text was typed and did not appear in the composer; Enter was not pressed".to_owned()
                }
            };
            return unknown(now, &why);
        }
        let next = if is_shown {
            now.now + SHOWN.saturating_sub(unchanged).max(QUIET.saturating_sub(now.quiet_for))
        } else {
            self.until_seen_through(at)
        };
        Step::Wait(next.min(self.until_seen_through(at)))
    }

    fn press_enter(&mut self, now: &Situation<'_>, busy: bool) -> Step {
        let shown = self.composer().unwrap_or_default().to_owned();
        self.phase = Phase::Entered(Entered {
            at: now.now,
            presses: 1,
            shown,
            busy,
            viewer_keys: now.viewer_keys,
            session: now.session,
            cursor: now.last_event,
            gone: None,
        });
        Step::Type(b"\r".to_vec())
    }

    fn wait_for_proof(&mut self, now: &Situation<'_>, mut entered: Entered) -> Step {
        if self.in_file {
            return entered.answer(Delivery::TurnStarted, "the prompt stands in the conversation's file");
        }
        if entered.gone.is_none() {
            entered.gone = self.left_composer(now, &entered).map(|how| (now.now, how));
        }
        if let Some((at, how)) = entered.gone {
            let further = if entered.busy { FILE_WHEN_BUSY } else { FILE };
            let until = at + further;
            if !now.prompts_are_read || self.is_command() || now.now >= until || now.ended {
                return if entered.busy {
                    entered.answer(
                        Delivery::Queued,
                        "the agent is busy and has taken the text: it comes next, or within the present turn",
                    )
                } else {
                    entered.answer(Delivery::Accepted, how)
                };
            }
            self.phase = Phase::Entered(entered);
            return Step::Wait(until);
        }
        if now.ended {
            return entered.answer(
                Delivery::Unknown,
                "the agent ended after Enter was pressed and before anything proved that the text arrived",
            );
        }
        let until = self.until_seen_through(entered.at);
        let again = entered.at + PRESS_AGAIN;
        let stands = self.still_stands(&entered) && now.viewer_keys == entered.viewer_keys;
        if stands && entered.presses < PRESSES {
            let unchanged = self.unchanged(now);
            if now.now >= again && unchanged >= SHOWN {
                entered.presses += 1;
                entered.at = now.now;
                // An agent that was busy at the first Enter need not be busy any more.
                entered.busy = now.state.is == Activity::Working;
                self.phase = Phase::Entered(entered);
                return Step::Type(b"\r".to_vec());
            }
            let next = again.max(now.now + SHOWN.saturating_sub(unchanged));
            self.phase = Phase::Entered(entered);
            return Step::Wait(next);
        }
        if now.now >= until {
            let why = if now.viewer_keys != entered.viewer_keys {
                "somebody typed into the session at the same time, and nothing proves that the text arrived"
            } else if stands {
                "the text still stands in the composer, though Enter was pressed twice"
            } else {
                "Enter was pressed, and nothing proves that the text arrived"
            };
            return entered.answer(Delivery::Unknown, why);
        }
        let next = now.now + GONE.saturating_sub(self.unchanged(now));
        self.phase = Phase::Entered(entered);
        Step::Wait(if next > now.now { next.min(until) } else { until })
    }

    /// How the text is seen to be gone from the composer. While a viewer types that proves nothing: the viewer may have removed it.
    fn left_composer(&self, now: &Situation<'_>, entered: &Entered) -> Option<&'static str> {
        if self.unchanged(now) < GONE || now.viewer_keys != entered.viewer_keys {
            return None;
        }
        match (self.composer(), self.blocked()) {
            (Some(""), None) => Some("the text has left the composer"),
            // A command of the agent's own that opens a menu.
            (None, Some(_)) if self.is_command() && !entered.busy => {
                Some("the command has left the composer, and the agent shows a dialog")
            }
            _ => None,
        }
    }

    /// Whether the text stands in the composer as it did before Enter, but for line ends that Enter made.
    fn still_stands(&self, entered: &Entered) -> bool {
        self.blocked().is_none()
            && self.composer().is_some_and(|text| !text.is_empty() && words(text).eq(words(&entered.shown)))
    }

    /// A command of the agent's own: what it does need not become a prompt in a file.
    fn is_command(&self) -> bool {
        self.text.starts_with('/') && !self.text.contains('\n')
    }

    fn until_seen_through(&self, typed: Instant) -> Instant {
        self.deadline.max(typed + SEE_THROUGH)
    }
}

impl Entered {
    fn answer(&self, result: Delivery, why: &str) -> Step {
        Step::Done(SendAnswer {
            result,
            why: why.to_owned(),
            session: self.session,
            cursor: Cursor::at(self.cursor).to_string(),
        })
    }
}

/// How long an empty composer must have been unchanged, and the output quiet, before it is typed into; `None`: not yet at all.
fn readiness(now: &Situation<'_>) -> Option<(Duration, Duration)> {
    match now.state.is {
        // Its animation never rests.
        Activity::Working => Some((STABLE, Duration::ZERO)),
        Activity::Idle => Some((STABLE, QUIET)),
        Activity::Starting => None,
        Activity::Unknown | Activity::Dialog | Activity::NeedsInput => Some((STABLE_UNPROVEN, QUIET)),
    }
}

/// What the agent asks, if a text would answer it.
fn blocked_by(now: &Situation<'_>) -> Option<String> {
    match (&now.reading.shown, now.state.is) {
        (Some(Shown::Dialog(what) | Shown::NeedsInput(what)), _) => Some(what.clone()),
        (_, Activity::Dialog | Activity::NeedsInput) => Some(now.state.why.clone()),
        _ => None,
    }
}

fn rejected(now: &Situation<'_>, why: &str) -> Step {
    done(now, Delivery::Rejected, why)
}

fn unknown(now: &Situation<'_>, why: &str) -> Step {
    done(now, Delivery::Unknown, why)
}

fn done(now: &Situation<'_>, result: Delivery, why: &str) -> Step {
    Step::Done(answer(result, why, now.session, now.last_event))
}

pub(super) fn answer(
    result: Delivery,
    why: &str,
    session: Option<SessionId>,
    last_event: Timestamp,
) -> SendAnswer {
    SendAnswer { result, why: why.to_owned(), session, cursor: Cursor::at(last_event).to_string() }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_whitespace()
}

/// Whether a prompt in a file is this text. Agents trim it, write line ends their own way, make four blanks of a tab (Claude),
/// and put texts that waited together into one prompt (Gemini).
pub(super) fn is_same_prompt(text: &str, prompt: &str) -> bool {
    /// A text shorter than this may stand in another prompt by chance.
    const LONG_ENOUGH: usize = 24;
    let (text, prompt): (Vec<&str>, Vec<&str>) = (words(text).collect(), words(prompt).collect());
    if text == prompt {
        return true;
    }
    let letters: usize = text.iter().map(|word| word.len()).sum();
    letters >= LONG_ENOUGH && prompt.windows(text.len()).any(|part| part == text)
}

/// Why a text is not taken at all.
pub(super) fn refusal(error: &send::TextError, now: &Situation<'_>) -> SendAnswer {
    answer(Delivery::Rejected, &error.to_string(), now.session, now.last_event)
}

#[cfg(test)]
#[path = "send_tests.rs"]
mod tests;
