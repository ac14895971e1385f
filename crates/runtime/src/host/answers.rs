//! A choice on its way into an agent's dialog: whether it is still that dialog, when to type, and what proves that it was taken.
//!
//! A state machine without I/O and without a clock, like that of a text ([`super::send`]).
//!
//! Promises: a key is typed only while the dialog with the wanted hash is on the screen, everything that the agent wrote has been
//! read, and nobody typed just before. One choice is on its way at a time, and into one dialog a choice is typed once. `accepted`
//! is answered when the dialog has left the screen, `rejected` only if no choice was made, `unknown` in every other case.

use std::time::{Duration, Instant};

use super::send::{Situation, answer};
use crate::remote::protocol::{AnswerRequest, Dialog, SendAnswer};
use agents::dialog::{ChoiceKeys, ScreenDialog};
use agents::live::{ScreenReading, Shown};
use types::{Delivery, RunId, SessionId, Timestamp};

/// How long the dialog must stand unchanged, with no key of a viewer's, before a key is typed. Agents paint some hundred
/// milliseconds before they read keys, and what a viewer has just typed shows by then.
const STABLE: Duration = Duration::from_millis(250);
/// How long another screen must be seen before it is a reason to reject: half a painted dialog looks like another one.
const ANOTHER: Duration = Duration::from_millis(300);
/// How long the dialog must be gone after a choice was typed, so that a repaint is not taken for it.
const GONE: Duration = Duration::from_millis(100);
/// How long a screen may take to come to rest.
const REST_WITHIN: Duration = Duration::from_secs(5);
/// How long an agent may take to take a choice, and to move its mark.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// What a step leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerProgress<C> {
    /// Bytes to type, as one piece.
    pub typed: Vec<u8>,
    pub answer: Option<(C, SendAnswer)>,
    /// When to call again, even if nothing changes.
    pub again: Option<Instant>,
}

/// The choices that clients make in the dialogs of one session. `C` names a client.
#[derive(Debug)]
pub struct Answers<C> {
    run: RunId,
    /// Counts dialogs that have left the screen, so that a hash stands for one of several that look the same.
    occasion: u64,
    /// A dialog was on the screen when it was read last.
    stands: bool,
    asked: Option<Asked<C>>,
    /// The dialog into which a choice was typed of which nothing is proved.
    unproven: Option<String>,
}

#[derive(Debug)]
struct Asked<C> {
    client: C,
    request: AnswerRequest,
    since: Instant,
    /// The dialog that is seen, and since when.
    seen: (Option<String>, Instant),
    /// The count of viewers' keys, and when it was last another one or a key of ours moved the mark.
    keys: (u64, Instant),
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// No choice was made. With the choice that was marked before an arrow was typed.
    Waiting { moved_from: Option<u32> },
    /// The choice was typed.
    Typed { at: Instant, session: Option<SessionId>, cursor: Timestamp },
}

enum Step {
    Wait(Instant),
    Type(Vec<u8>),
    Done(SendAnswer),
}

impl<C: Clone + PartialEq> Answers<C> {
    pub fn of_run(run: RunId) -> Self {
        Self { run, occasion: 0, stands: false, asked: None, unproven: None }
    }

    /// The dialog as clients get it.
    pub fn dialog(&self, reading: &ScreenReading) -> Option<Dialog> {
        let dialog = reading.dialog.as_ref()?;
        let (text, choices) = (dialog.text.clone(), dialog.choices.clone());
        Some(Dialog { hash: self.hash(dialog), text, choices })
    }

    fn hash(&self, dialog: &ScreenDialog) -> String {
        dialog.hash(&format!("{} {}", self.run, self.occasion))
    }

    /// The screen was read.
    pub fn note(&mut self, reading: &ScreenReading) {
        if reading.dialog.is_some() {
            self.stands = true;
        } else if self.stands && matches!(reading.shown, Some(Shown::Quiet | Shown::Working(_))) {
            // (A screen that shows nothing known may be half a painted one.)
            self.next_occasion();
        }
    }

    fn next_occasion(&mut self) {
        self.stands = false;
        self.occasion += 1;
    }

    /// Takes a choice; its answer comes from [`Self::step`], unless there is one at once.
    pub fn submit(&mut self, client: C, request: &AnswerRequest, now: &Situation<'_>) -> Option<SendAnswer> {
        let refused = |why: &str| Some(rejected(now, why));
        if !now.screen_is_known {
            return refused("codemie cannot read the dialogs of this program; attach and answer there");
        }
        if self.asked.is_some() {
            return refused("another choice is on its way into this session's dialog; nothing was typed");
        }
        if self.unproven.as_ref() == Some(&request.dialog) {
            return refused(
                "a choice was typed into this dialog before, and nothing proved that it was taken; nothing was typed again; attach \
                 to see what the agent shows",
            );
        }
        self.asked = Some(Asked {
            client,
            request: request.clone(),
            since: now.now,
            seen: (now.reading.dialog.as_ref().map(|dialog| self.hash(dialog)), now.now),
            keys: (now.viewer_keys, now.now),
            phase: Phase::Waiting { moved_from: None },
        });
        None
    }

    /// Whether a choice is on its way.
    pub fn is_empty(&self) -> bool {
        self.asked.is_none()
    }

    /// A client has gone. Its choice goes with it, unless it was typed.
    pub fn forget(&mut self, client: &C) {
        let drops =
            |asked: &mut Asked<C>| asked.client == *client && matches!(asked.phase, Phase::Waiting { .. });
        self.asked.take_if(|asked| drops(asked));
    }

    /// `unread`: output of the agent has come that the reading does not show yet.
    pub fn step(&mut self, now: &Situation<'_>, unread: bool) -> AnswerProgress<C> {
        let mut progress = AnswerProgress { typed: Vec::new(), answer: None, again: None };
        let hash = now.reading.dialog.as_ref().map(|dialog| self.hash(dialog));
        let Some(asked) = &mut self.asked else { return progress };
        asked.look(hash, now);
        match asked.step(now, unread) {
            Step::Wait(until) => progress.again = Some(until.max(now.now + Duration::from_millis(1))),
            Step::Type(bytes) => {
                progress.typed = bytes;
                progress.again = Some(now.now + Duration::from_millis(10));
            }
            Step::Done(answer) => {
                let Some(asked) = self.asked.take() else { return progress };
                match answer.result {
                    Delivery::Unknown => self.unproven = Some(asked.request.dialog),
                    Delivery::Rejected => {}
                    Delivery::Accepted | Delivery::Queued | Delivery::TurnStarted => {
                        // (Unless the screen has shown it already.)
                        if self.stands {
                            self.next_occasion();
                        }
                    }
                }
                progress.answer = Some((asked.client, answer));
            }
        }
        progress
    }
}

impl<C> Asked<C> {
    fn look(&mut self, hash: Option<String>, now: &Situation<'_>) {
        if self.seen.0 != hash {
            self.seen = (hash, now.now);
        }
        if self.keys.0 != now.viewer_keys {
            self.keys = (now.viewer_keys, now.now);
        }
    }

    fn step(&mut self, now: &Situation<'_>, unread: bool) -> Step {
        match self.phase {
            Phase::Waiting { moved_from } => self.wait_for_dialog(now, unread, moved_from),
            Phase::Typed { at, session, cursor } => {
                let (result, why) = match self.proof(now, unread, at) {
                    Ok(proof) => proof,
                    Err(until) => return Step::Wait(until),
                };
                Step::Done(answer(result, why, session, cursor))
            }
        }
    }

    fn wait_for_dialog(&mut self, now: &Situation<'_>, unread: bool, moved_from: Option<u32>) -> Step {
        let reject = |why: &str| Step::Done(rejected(now, why));
        if now.ended {
            return reject("the agent has ended");
        }
        let deadline = self.since + REST_WITHIN;
        if now.now >= deadline {
            return reject("the screen did not come to rest in time; no choice was made");
        }
        let settles = |needed: Duration| self.seen.1.max(self.keys.1) + needed;
        let is_wanted = self.seen.0.as_ref() == Some(&self.request.dialog);
        let at = settles(if is_wanted { STABLE } else { ANOTHER });
        if now.now < at || unread || now.unwritten > 0 {
            // (Output that is unread is read by its own time.)
            return Step::Wait(if now.now < at { at.min(deadline) } else { deadline });
        }
        let dialog = match (&self.seen.0, &now.reading.dialog) {
            (Some(_), Some(dialog)) if is_wanted => dialog,
            (Some(hash), _) => {
                return reject(&format!(
                    "the agent asks something else now (dialog {hash}); nothing was typed"
                ));
            }
            (None, _) => return reject("the dialog is not on the screen any more; nothing was typed"),
        };
        let wanted = self.request.choice;
        if !dialog.choices.iter().any(|choice| choice.number == wanted) {
            return reject(&no_such_choice(wanted, dialog));
        }
        match (dialog.keys, dialog.marked) {
            (ChoiceKeys::Digit, _) => self.type_choice(now, wanted.to_string().into_bytes()),
            (ChoiceKeys::Arrows, Some(marked)) if marked == wanted => self.type_choice(now, b"\r".to_vec()),
            (ChoiceKeys::Arrows, Some(marked)) => {
                if moved_from == Some(marked) {
                    return Step::Wait(deadline);
                }
                self.phase = Phase::Waiting { moved_from: Some(marked) };
                self.keys.1 = now.now;
                Step::Type(if wanted > marked { b"\x1b[B".to_vec() } else { b"\x1b[A".to_vec() })
            }
            (ChoiceKeys::Arrows, None) => reject("none of the choices is marked; attach and answer there"),
        }
    }

    fn type_choice(&mut self, now: &Situation<'_>, keys: Vec<u8>) -> Step {
        self.phase = Phase::Typed { at: now.now, session: now.session, cursor: now.last_event };
        Step::Type(keys)
    }

    /// What has become of the choice; until when to wait if that is not known yet.
    fn proof(
        &self,
        now: &Situation<'_>,
        unread: bool,
        typed: Instant,
    ) -> Result<(Delivery, &'static str), Instant> {
        let stands = self.seen.0.as_ref() == Some(&self.request.dialog);
        if now.ended {
            return Ok((Delivery::Unknown, "the choice was typed, and the agent has ended"));
        }
        let gone = self.seen.1.max(typed) + GONE;
        if !stands && !unread && now.now >= gone {
            return Ok(match self.seen.0 {
                None => (Delivery::Accepted, "the dialog has left the screen"),
                Some(_) => (Delivery::Accepted, "the agent has taken the choice and asks something else now"),
            });
        }
        let until = typed + TAKEN_WITHIN;
        if now.now >= until {
            let why = "the choice was typed, and the dialog is still on the screen; it is not typed again";
            return Ok((Delivery::Unknown, why));
        }
        Err(if stands || now.now >= gone { until } else { gone.min(until) })
    }
}

fn no_such_choice(wanted: u32, dialog: &ScreenDialog) -> String {
    match (dialog.choices.first(), dialog.choices.last()) {
        (Some(first), Some(last)) => {
            let (first, last) = (first.number, last.number);
            format!(
                "{wanted} is none of the dialog's choices, which are {first} to {last}; nothing was typed"
            )
        }
        _ => "this dialog has no choices that can be made by a number; attach and answer there".to_owned(),
    }
}

fn rejected(now: &Situation<'_>, why: &str) -> SendAnswer {
    answer(Delivery::Rejected, why, now.session, now.last_event)
}

#[cfg(test)]
#[path = "answers_tests.rs"]
mod tests;
