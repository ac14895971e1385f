//! What the next step of a sink's loop does. The decisions are pure: [`obstacle`] says whether anything may be sent now,
//! [`due_letters`] and [`Window::select`] which events. [`plan`] reads the store for them.

use std::io;
use std::time::Duration;

use super::answer;
use super::http::Request;
use super::sender::{Idle, Pace};
use super::sink::{Due, Sink, Triage};
use store::{Error, Fate, Fingerprint, Outgoing, SinkRow, UndeliveredEvent, View};
use types::Timestamp;

/// What keeps a step from sending anything to the receiver at `target`, whatever is pending.
pub(super) fn obstacle(row: &SinkRow, target: &Fingerprint, pace: Pace, now: Timestamp) -> Option<Idle> {
    if row.is_retired() {
        return Some(Idle::Paused("is not set up any more".to_owned()));
    }
    if !row.is_at(target) {
        return Some(Idle::Reconfigured);
    }
    if let Some(why) = &row.paused {
        return Some(Idle::Paused(why.clone()));
    }
    let wait = wait_left(row, pace, now)?;
    Some(Idle::Waiting { until: now.after(wait), why: row.trouble.clone().unwrap_or_default() })
}

/// How long nothing may be sent yet; `None` if it may be now.
pub(super) fn wait_left(row: &SinkRow, pace: Pace, now: Timestamp) -> Option<Duration> {
    let asked = answer::left(row.asked_until, now, answer::LONGEST_ASKED);
    let wait = match pace {
        Pace::Interactive => asked,
        Pace::Background => answer::left(row.retry_at, now, answer::LONGEST).max(asked),
    };
    (!wait.is_zero()).then_some(wait)
}

/// The work of one step.
pub(super) enum Work {
    /// Nothing; a deferred event may be due later.
    Nothing {
        due: Option<Timestamp>,
    },
    /// Nothing to send, but the cursor can move.
    Pass {
        past: Span,
        deferred: Vec<(Outgoing, &'static str)>,
    },
    Send(PlannedBatch),
}

/// The part of the outbox that the cursor passes in a step.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) from: i64,
    pub(super) to: i64,
}

pub(super) struct PlannedBatch {
    pub(super) events: Vec<Outgoing>,
    /// What the cursor passes with them; `None` for letters, which it has passed before.
    pub(super) past: Option<Span>,
    pub(super) requests: Vec<Request>,
    /// How many of the requests were accepted in earlier attempts, by a receiver that counts duplicates.
    pub(super) accepted_before: usize,
}

/// Letters that are due come first, then what the cursor has not passed. Nothing beyond `durable` is sent.
pub(super) fn plan(
    view: &View<'_>,
    sink: &dyn Sink,
    size: Size,
    durable: i64,
    now: Timestamp,
) -> Result<Work, Error> {
    let name = sink.name();
    let Some(row) = view.sink(name)? else { return Ok(Work::Nothing { due: None }) };
    let letters = view.letters(name, Fate::Deferred, durable, MAX_EVENTS)?;
    let (letters, due) = due_letters(letters, size.events(), |letter| sink.due(view, letter, now))?;
    if let Some(UndeliveredEvent { accepted: accepted_before, .. }) = letters.last() {
        let accepted_before = *accepted_before;
        let mut events: Vec<Outgoing> = letters.into_iter().map(|letter| letter.event).collect();
        events.truncate(fits(&events));
        let requests = sink.requests(view, &events)?;
        return Ok(Work::Send(PlannedBatch { events, past: None, requests, accepted_before }));
    }
    // Deferring costs no request, so as many events as possible are taken, however few the receiver takes at once.
    let limit = if sink.counts_duplicates() { MAX_EVENTS } else { size.events() };
    let window = Window { cursor: row.cursor, durable, limit };
    let events = view.outgoing(row.since, row.cursor, durable, limit)?;
    let events = events.into_iter().map(|event| (event.change.unwrap_or(row.cursor), event)).collect();
    let from = row.cursor;
    Ok(match window.select(events, |event| sink.triage(view, event), fits)? {
        Selection::Nothing => Work::Nothing { due },
        Selection::Pass { to, deferred } => Work::Pass { past: Span { from, to }, deferred },
        Selection::Send { to, events } => {
            let requests = sink.requests(view, &events)?;
            let past = Some(Span { from, to });
            Work::Send(PlannedBatch { events, past, requests, accepted_before: 0 })
        }
    })
}

/// Up to `most` letters that are due, and if there are none, when the first will be. Asks for no more than it needs: an
/// answer costs queries.
fn due_letters<T>(
    letters: Vec<T>,
    most: usize,
    mut when: impl FnMut(&T) -> Result<Due, Error>,
) -> Result<(Vec<T>, Option<Timestamp>), Error> {
    let (mut due, mut next) = (Vec::new(), None);
    for letter in letters {
        if due.len() == most {
            break;
        }
        match when(&letter)? {
            Due::Now => due.push(letter),
            Due::Unknown => {}
            Due::At(at) => next = Some(next.map_or(at, |next: Timestamp| next.min(at))),
        }
    }
    Ok((due, next))
}

/// The part of the outbox that a step looks at.
#[derive(Clone, Copy)]
struct Window {
    cursor: i64,
    /// The last change that survives a power cut.
    durable: i64,
    /// The largest number of events that was asked for.
    limit: usize,
}

/// What a step does with its window: the cursor comes to `to`.
#[derive(Debug, PartialEq, Eq)]
enum Selection<T> {
    Nothing,
    Pass { to: i64, deferred: Vec<(T, &'static str)> },
    Send { to: i64, events: Vec<T> },
}

impl Window {
    /// Takes events, each with its change, from the window's beginning. A step sends or defers, never both: it ends before
    /// the first event that needs the other, so that a failed request leaves no letter behind.
    fn select<T>(
        self,
        events: Vec<(i64, T)>,
        mut triage: impl FnMut(&T) -> Result<Triage, Error>,
        fits: impl FnOnce(&[T]) -> usize,
    ) -> Result<Selection<T>, Error> {
        // A window that is not full reaches to the end, whatever the last events were.
        let whole = match events.last() {
            Some((last, _)) if events.len() >= self.limit => *last,
            last => last.map_or(self.durable, |(last, _)| self.durable.max(*last)),
        };
        if whole <= self.cursor {
            return Ok(Selection::Nothing);
        }
        let (mut to, mut before) = (whole, self.cursor);
        let (mut changes, mut sends, mut deferred) = (Vec::new(), Vec::new(), Vec::new());
        for (change, event) in events {
            match triage(&event)? {
                Triage::Send if deferred.is_empty() => {
                    changes.push(change);
                    sends.push(event);
                }
                Triage::Defer(why) if sends.is_empty() => deferred.push((event, why)),
                Triage::Skip => {}
                Triage::Send | Triage::Defer(_) => {
                    to = before;
                    break;
                }
            }
            before = change;
        }
        if sends.is_empty() {
            return Ok(Selection::Pass { to, deferred });
        }
        let fitting = fits(&sends);
        if fitting < sends.len() {
            to = changes[..fitting].last().copied().unwrap_or(self.cursor);
            sends.truncate(fitting);
        }
        Ok(Selection::Send { to, events: sends })
    }
}

// How many events go into one request: by number, by size, and by what the receiver accepts. Pure.

/// Events in one request; the receiver's transaction stays short.
pub const MAX_EVENTS: usize = 500;
/// Bytes in one request before compression, well below what a proxy on the way lets through.
pub const MAX_BYTES: usize = 512 * 1024;

/// How many events the receiver accepts in one request, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    now: usize,
    most: usize,
}

impl Size {
    pub fn new(most: usize) -> Self {
        Self { now: most.max(1), most: most.max(1) }
    }

    pub fn events(self) -> usize {
        self.now
    }

    /// `sent` events were too many. False if it was one event, which cannot be halved.
    pub fn halve(&mut self, sent: usize) -> bool {
        self.now = (sent / 2).max(1);
        sent > 1
    }

    /// The last request was accepted: the next may hold twice as many.
    pub fn grow(&mut self) {
        self.now = self.now.saturating_mul(2).min(self.most);
    }
}

/// How many of the events, given by their lengths, go into one request: at least one.
pub fn cut(lengths: impl IntoIterator<Item = usize>) -> usize {
    let mut bytes = 0_usize;
    let fits = lengths.into_iter().take_while(|length| {
        bytes = bytes.saturating_add(*length);
        bytes <= MAX_BYTES
    });
    fits.count().max(1)
}

/// How many of these events one request may hold. What stands around an event's attributes takes some 300 bytes.
pub fn fits(events: &[Outgoing]) -> usize {
    cut(events.iter().map(|event| length(&event.attributes) + 300)).min(events.len())
}

/// How long the attributes are as JSON.
fn length(attributes: &types::Attributes) -> usize {
    struct Counted(usize);

    impl io::Write for Counted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut counted = Counted(0);
    // Texts and numbers always have a JSON form, and counting cannot fail.
    let _ = serde_json::to_writer(&mut counted, attributes);
    counted.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obstacle_is_the_first_reason_not_to_send() {
        let target = Fingerprint { address: "a".into(), credentials: "c".into() };
        let ready =
            SinkRow { address: Some("a".into()), credentials: Some("c".into()), ..SinkRow::default() };
        let until = |ms| Some(Timestamp(ms));
        let waiting = |ms| Some(Idle::Waiting { until: Timestamp(ms), why: "answered 500".into() });
        let failed = SinkRow { trouble: Some("answered 500".into()), retry_at: until(800), ..ready.clone() };
        let asked = SinkRow { asked_until: until(900), ..failed.clone() };
        let paused = SinkRow { paused: Some("refused".into()), ..asked.clone() };
        let others_credentials = SinkRow { credentials: Some("d".into()), ..ready.clone() };
        let retired = SinkRow { credentials: None, ..paused.clone() };
        let moved = SinkRow { address: Some("b".into()), ..paused.clone() };
        for (case, row, background, interactive) in [
            ("ready", ready, None, None),
            ("others' credentials", others_credentials, None, None),
            ("failed", failed, waiting(800), None),
            ("asked to wait", asked, waiting(900), waiting(900)),
            ("paused", paused, Some(Idle::Paused("refused".into())), Some(Idle::Paused("refused".into()))),
            ("moved", moved, Some(Idle::Reconfigured), Some(Idle::Reconfigured)),
            (
                "retired",
                retired,
                Some(Idle::Paused("is not set up any more".into())),
                Some(Idle::Paused("is not set up any more".into())),
            ),
        ] {
            for (pace, expected) in [(Pace::Background, background), (Pace::Interactive, interactive)] {
                assert_eq!(obstacle(&row, &target, pace, Timestamp(500)), expected, "{case}, {pace:?}");
            }
        }
    }

    #[test]
    fn letters_are_taken_up_to_the_limit_and_the_next_due_time_is_kept() {
        let at = |ms| Due::At(Timestamp(ms));
        for (letters, most, expected, next) in [
            (vec![], 5, vec![], None),
            (vec![Due::Now, at(7), Due::Now], 5, vec![0, 2], Some(7)),
            (vec![Due::Now, Due::Now, Due::Now], 2, vec![0, 1], None),
            (vec![Due::Unknown, at(9), at(7), at(8)], 5, vec![], Some(7)),
            (vec![Due::Unknown], 5, vec![], None),
        ] {
            let numbered: Vec<usize> = (0..letters.len()).collect();
            let found = due_letters(numbered, most, |n| Ok(letters[*n])).unwrap();
            assert_eq!(found, (expected, next.map(Timestamp)), "{letters:?}");
        }
    }

    #[test]
    fn no_more_letters_are_asked_about_than_are_sent() {
        let mut asked = 0;
        let mut when = |_: &i32| {
            asked += 1;
            Ok(Due::Now)
        };
        due_letters((0..500).collect(), 1, &mut when).unwrap();
        assert_eq!(asked, 1);
    }

    /// Each event is a letter of `events` with its change from 11 on: sent, deferred or skipped.
    fn select(window: Window, events: &str, fits: usize) -> Selection<char> {
        let events: Vec<(i64, char)> = (11..).zip(events.chars()).collect();
        let triage = |event: &char| {
            Ok(match event {
                's' => Triage::Send,
                'd' => Triage::Defer("later"),
                _ => Triage::Skip,
            })
        };
        window.select(events, triage, |sends| fits.min(sends.len())).unwrap()
    }

    #[test]
    fn a_step_sends_or_defers_from_the_beginning_of_its_window() {
        let window = Window { cursor: 10, durable: 20, limit: 5 };
        let send = |to, count| Selection::Send { to, events: vec!['s'; count] };
        let pass = |to, count| Selection::Pass { to, deferred: vec![('d', "later"); count] };
        for (events, fits, expected) in [
            ("", 9, pass(20, 0)),
            ("s", 9, send(20, 1)),
            ("sssss", 9, send(15, 5)),
            ("sssss", 3, send(13, 3)),
            ("sss", 2, send(12, 2)),
            ("xsxs", 1, send(12, 1)),
            ("xx", 9, pass(20, 0)),
            ("xxxxx", 9, pass(15, 0)),
            ("ddxdd", 9, pass(15, 4)),
            ("dd", 9, pass(20, 2)),
            ("sds", 9, send(11, 1)),
            ("sxds", 9, send(12, 1)),
            ("dxss", 9, pass(12, 1)),
        ] {
            assert_eq!(select(window, events, fits), expected, "{events:?}, {fits} fit");
        }
    }

    #[test]
    fn nothing_is_selected_at_the_end_of_the_outbox() {
        let at_the_end = Window { cursor: 20, durable: 20, limit: 5 };
        assert_eq!(select(at_the_end, "", 9), Selection::Nothing);
        let not_durable_yet = Window { cursor: 20, durable: 15, limit: 5 };
        assert_eq!(select(not_durable_yet, "", 9), Selection::Nothing);
    }
}

#[cfg(test)]
mod batch_tests {
    use super::*;

    #[test]
    fn size_halves_down_to_one_and_grows_back() {
        let mut size = Size::new(500);
        let mut seen = Vec::new();
        let mut sent = 500;
        while size.halve(sent) {
            sent = size.events();
            seen.push(sent);
        }
        assert_eq!(seen, [250, 125, 62, 31, 15, 7, 3, 1]);
        assert_eq!(size.events(), 1);
        for expected in [2, 4, 8, 16, 32, 64, 128, 256, 500, 500] {
            size.grow();
            assert_eq!(size.events(), expected);
        }
    }

    #[test]
    fn request_is_bounded_by_bytes_but_never_empty() {
        for (lengths, expected) in [
            (vec![], 1),
            (vec![10, 10], 2),
            (vec![MAX_BYTES, 1], 1),
            (vec![MAX_BYTES + 1, 1], 1),
            (vec![MAX_BYTES / 2, MAX_BYTES / 2, 1], 2),
            (vec![usize::MAX, usize::MAX], 1),
        ] {
            assert_eq!(cut(lengths.clone()), expected, "{lengths:?}");
        }
    }
}
