//! From the readings of all sources to one state. Pure.
//!
//! What each source can prove:
//!
//! - A question or dialog **on the screen** is there at this moment: the host has drawn every byte that the agent wrote. A
//!   published status or a file is written beside it, earlier or later. So a question on the screen wins over everything.
//! - Signs of work on the screen or in a control sequence are there at this moment, too. No composer and no absence of signs
//!   proves anything: agents redraw in pieces, and a version may show its work in a way that is not known here.
//! - The **published** status is the agent's own word for its whole state, with the time of its last change. It lags behind the
//!   screen by the time it takes to write a file, and stays behind for ever where the agent cannot write it any more.
//! - The **conversation's file** proves that a turn began or ended, with its time. It is silent about questions, about commands
//!   that are no prompts, and about the next turn until its prompt is written. So the end of a turn proves idleness only
//!   together with a screen that shows the composer and no work.
//! - **Silence** proves nothing: an agent may think, wait for its API or run a tool for as long as it likes.

use agents::live::{Published, PublishedStatus, ScreenReading, Shown, TurnKind, TurnMark};
use types::{Activity, LiveState, StateSource, Timestamp};

/// What is known of a session, each from its own source.
#[derive(Clone, Debug, Default)]
pub struct Sources<'a> {
    pub published: Option<&'a Published>,
    /// `None` for a session whose screen nobody keeps: one in another terminal.
    pub screen: Option<&'a ScreenReading>,
    /// It is an agent that has written nothing to its screen yet, or another program that is not there yet ([`is_blank`]).
    pub blank: bool,
    /// The last mark in the conversation's file.
    pub turn: Option<&'a TurnMark>,
    /// When the agent was started.
    pub started: Option<Timestamp>,
    /// What was decided last time, so that a state without a time of its own keeps the time when it was first seen.
    pub before: Option<&'a LiveState>,
}

/// Whether nothing has come of a start yet. An agent draws its screen first. A program that is no agent may be silent for as
/// long as it lives, so it has come when its process has.
pub fn is_blank(is_agent: bool, has_process: bool, has_written: bool) -> bool {
    !has_written && (is_agent || !has_process)
}

pub fn decide(sources: &Sources<'_>, now: Timestamp) -> LiveState {
    let found = question(sources).or_else(|| work(sources)).or_else(|| idleness(sources));
    let found = found.unwrap_or_else(|| neither(sources));
    let first_seen = sources.before.filter(|before| before.is == found.is).map(|before| before.since);
    LiveState {
        is: found.is,
        since: found.since.or(first_seen).unwrap_or(now).min(now),
        why: found.why,
        source: found.source,
    }
}

/// A state, and the time of its source where it has one.
struct Finding {
    is: Activity,
    since: Option<Timestamp>,
    why: String,
    source: Option<StateSource>,
}

impl Finding {
    fn new(is: Activity, source: StateSource, why: impl Into<String>) -> Self {
        Self { is, since: None, why: why.into(), source: Some(source) }
    }

    fn unknown(why: &str) -> Self {
        Self { is: Activity::Unknown, since: None, why: why.to_owned(), source: None }
    }

    fn since(self, since: Option<Timestamp>) -> Self {
        Self { since: since.or(self.since), ..self }
    }
}

/// What the screen shows, and what the agent reports by a control sequence, in this order.
fn seen<'a>(sources: &Sources<'a>) -> impl Iterator<Item = (&'a Shown, StateSource)> {
    let shown = sources.screen.and_then(|screen| screen.shown.as_ref());
    let reported = sources.screen.and_then(|screen| screen.reported.as_ref());
    let both = [(shown, StateSource::Screen), (reported, StateSource::Sequence)];
    both.into_iter().filter_map(|(shown, source)| Some((shown?, source)))
}

/// It waits for the user.
fn question(sources: &Sources<'_>) -> Option<Finding> {
    let asked = |(shown, source): (&Shown, StateSource)| match shown {
        Shown::Dialog(why) => Some(Finding::new(Activity::Dialog, source, why.clone())),
        Shown::NeedsInput(why) => Some(Finding::new(Activity::NeedsInput, source, why.clone())),
        Shown::Working(_) | Shown::Quiet => None,
    };
    let seen = seen(sources).find_map(asked);
    // An agent that calls itself waiting is believed even if the screen shows signs of work: the question may be one that is
    // not known here, drawn over or beside them.
    let published = sources.published.and_then(|published| {
        let (is, why) = match &published.status {
            PublishedStatus::Waiting(what) => (Activity::NeedsInput, what),
            PublishedStatus::Dialog(what) => (Activity::Dialog, what),
            PublishedStatus::Idle | PublishedStatus::Busy => return None,
        };
        Some(Finding::new(is, StateSource::Registry, why.clone()).since(published.since))
    });
    match (seen, published) {
        // The screen says more exactly what is asked, the agent since when.
        (Some(seen), Some(published)) if seen.is == published.is => Some(seen.since(published.since)),
        (seen, published) => seen.or(published),
    }
}

fn work(sources: &Sources<'_>) -> Option<Finding> {
    let working = |(shown, source): (&Shown, StateSource)| match shown {
        Shown::Working(why) => Some(Finding::new(Activity::Working, source, why.clone())),
        _ => None,
    };
    let seen = seen(sources).find_map(working);
    let busy = sources.published.filter(|published| published.status == PublishedStatus::Busy);
    let published = busy.map(|published| {
        let why = seen.as_ref().map_or("it reports that it is busy", |seen| &seen.why);
        Finding::new(Activity::Working, StateSource::Registry, why).since(published.since)
    });
    published.or(seen)
}

/// Proof that the last turn is over and the next prompt can be typed. Signs of work have been looked for before.
fn idleness(sources: &Sources<'_>) -> Option<Finding> {
    if let Some(published) = sources.published.filter(|published| published.status == PublishedStatus::Idle)
        && !goes_on_after(sources.turn, published.since)
    {
        let found = Finding::new(Activity::Idle, StateSource::Registry, "it reports that it is idle");
        return Some(found.since(published.since));
    }
    let reported = sources.screen.and_then(|screen| screen.reported.as_ref());
    let ended = sources.turn.filter(|turn| turn.kind == TurnKind::Ended);
    let ended_at = ended.and_then(|turn| turn.at);
    if reported == Some(&Shown::Quiet) {
        let found = Finding::new(Activity::Idle, StateSource::Sequence, "it reports that it is idle");
        return Some(found.since(ended_at));
    }
    let quiet = sources.screen.is_some_and(|screen| screen.shown == Some(Shown::Quiet));
    if quiet && ended.is_some() {
        let why = "the last turn has ended, and the prompt is free";
        return Some(Finding::new(Activity::Idle, StateSource::SessionFile, why).since(ended_at));
    }
    None
}

/// Whether the file shows a turn that goes on after that time: then a status of that time is out of date.
fn goes_on_after(turn: Option<&TurnMark>, status_since: Option<Timestamp>) -> bool {
    let goes_on = turn.filter(|turn| turn.kind != TurnKind::Ended);
    goes_on.and_then(|turn| turn.at).zip(status_since).is_some_and(|(turn, status)| turn > status)
}

/// Nothing proves a question, work or idleness.
fn neither(sources: &Sources<'_>) -> Finding {
    if sources.screen.is_none()
        && let Some(turn) = sources.turn
    {
        return turn_alone(turn);
    }
    if sources.blank && sources.turn.is_none() {
        let why = "it was started and has shown nothing yet";
        return Finding::new(Activity::Starting, StateSource::Process, why).since(sources.started);
    }
    let goes_on = sources.turn.is_some_and(|turn| turn.kind != TurnKind::Ended);
    let shown = sources.screen.and_then(|screen| screen.shown.as_ref());
    Finding::unknown(match (sources.screen, shown) {
        (None, _) => "nothing shows what it does",
        (Some(_), Some(_)) if goes_on => "its last turn has no end, and the screen shows no work",
        (Some(_), Some(_)) => "nothing shows that its last turn is over",
        (Some(_), None) => "the screen shows nothing that is known here",
    })
}

/// What the conversation's file alone can prove.
fn turn_alone(turn: &TurnMark) -> Finding {
    match turn.kind {
        // An agent asks for permission only after an answer, so nothing but work can come between.
        TurnKind::Prompt(_) => {
            let why = "a prompt has been submitted, and no answer is there yet";
            Finding::new(Activity::Working, StateSource::SessionFile, why).since(turn.at)
        }
        TurnKind::Goes | TurnKind::Speaks => {
            Finding::unknown("in the middle of a turn it works or asks something").since(turn.at)
        }
        TurnKind::Ended => {
            Finding::unknown("its last turn has ended; nobody here sees whether it does anything else")
                .since(turn.at)
        }
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
