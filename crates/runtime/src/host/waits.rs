//! Clients that wait for a moment of a session, each until its time is up.

use std::time::{Duration, Instant};

use crate::live::events::{Cursor, Event, EventLog, NoCursor};
use crate::remote::protocol::{WaitAnswer, WaitRequest};
use types::{Activity, LiveState, Moment, RunId, SessionId, Timestamp};

/// Clients that may wait at once. Each is a connection of its own, so this bounds memory and nothing else.
const WAITING: usize = 256;
/// The most that a client may ask a host to wait.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// The waiting clients of one session. `C` names a client.
#[derive(Debug)]
pub struct Waits<C> {
    waiting: Vec<Waiting<C>>,
}

#[derive(Debug)]
struct Waiting<C> {
    client: C,
    until: Vec<Moment>,
    cursor: Option<Timestamp>,
    /// It wants to know when the agent does something else than this.
    unlike: Option<Activity>,
    deadline: Instant,
}

/// What is known at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Present<'a> {
    pub now: Instant,
    pub wall: Timestamp,
    pub log: &'a EventLog,
    pub state: &'a LiveState,
    pub run: RunId,
    pub session: Option<SessionId>,
}

/// Why nobody can wait like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    #[error(transparent)]
    Cursor(#[from] NoCursor),
    #[error("{WAITING} clients wait for this session already")]
    TooMany,
}

impl<C> Default for Waits<C> {
    fn default() -> Self {
        Self { waiting: Vec::new() }
    }
}

impl<C: Clone + PartialEq> Waits<C> {
    /// Takes a client in; [`answers`](Self::answers) has its answer, perhaps at once.
    pub fn add(&mut self, client: C, request: &WaitRequest, now: &Present<'_>) -> Result<(), WaitError> {
        if self.waiting.len() >= WAITING {
            return Err(WaitError::TooMany);
        }
        let cursor = request.cursor.as_deref().map(str::parse::<Cursor>).transpose()?;
        self.waiting.push(Waiting {
            client,
            until: request.until.clone(),
            cursor: cursor.map(|cursor| cursor.of(now.run)),
            unlike: request.unlike,
            deadline: now.now + Duration::from_millis(request.timeout_ms).min(LONGEST_WAIT),
        });
        Ok(())
    }

    /// The answers that are due now. To be called whenever the log may have grown, and at [`deadline`](Self::deadline).
    pub fn answers(&mut self, now: &Present<'_>) -> Vec<(C, WaitAnswer)> {
        let mut answers = Vec::new();
        self.waiting.retain(|waiting| {
            let event = now.log.answer(waiting.cursor, &waiting.until, now.wall, now.state);
            let changed = waiting.unlike.is_some_and(|before| before != now.state.is);
            if event.is_none() && !changed && now.now < waiting.deadline {
                return true;
            }
            answers.push((waiting.client.clone(), answer(event, waiting.cursor, now)));
            false
        });
        answers
    }

    /// When the time of the first one is up.
    pub fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.deadline).min()
    }

    /// A client has gone.
    pub fn forget(&mut self, client: &C) {
        self.waiting.retain(|waiting| waiting.client != *client);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// `pending` leaves the cursor where it was, or before everything that is still to come.
fn answer(event: Option<Event>, cursor: Option<Timestamp>, now: &Present<'_>) -> WaitAnswer {
    let at = event.map_or_else(|| cursor.unwrap_or_else(|| now.log.last()), |event| event.at);
    let state = event.map(|event| now.log.state_with(&event, now.state));
    WaitAnswer {
        result: event.map(|event| event.moment),
        session: now.session,
        state: state.unwrap_or_else(|| now.state.clone()),
        cursor: Cursor::at(at).to_string(),
        answer_missing: event.is_some_and(|event| event.answer_missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::live::{TurnKind, TurnMark};
    use types::{Ids, RandomIds};

    fn request(cursor: Option<&str>, timeout_ms: u64) -> WaitRequest {
        WaitRequest {
            until: vec![Moment::TurnEnd],
            cursor: cursor.map(str::to_owned),
            timeout_ms,
            unlike: None,
        }
    }

    #[test]
    fn a_client_is_answered_by_an_event_or_told_that_its_time_is_up() {
        let (start, run) = (Instant::now(), RandomIds.run());
        let state =
            LiveState { is: Activity::Working, since: Timestamp(0), why: String::new(), source: None };
        let mut log = EventLog::default();
        let mut waits = Waits::<u8>::default();
        let present = |log: &'_ EventLog, ms: u64| -> (Instant, Timestamp, EventLog) {
            (start + Duration::from_millis(ms), Timestamp(1000).after(Duration::from_millis(ms)), log.clone())
        };
        let answers = |waits: &mut Waits<u8>, log: &EventLog, ms: u64| {
            let (now, wall, log) = present(log, ms);
            waits.answers(&Present { now, wall, log: &log, state: &state, run, session: None })
        };
        let add = |waits: &mut Waits<u8>, log: &EventLog, client, request: &WaitRequest| {
            let (now, wall, log) = present(log, 0);
            waits.add(client, request, &Present { now, wall, log: &log, state: &state, run, session: None })
        };
        add(&mut waits, &log, 1, &request(None, 500)).unwrap();
        add(&mut waits, &log, 2, &request(Some("900"), 5000)).unwrap();
        add(&mut waits, &log, 3, &request(Some("2000"), 5000)).unwrap();
        add(&mut waits, &log, 4, &request(None, 5000)).unwrap();
        assert!(matches!(add(&mut waits, &log, 5, &request(Some("x"), 1)), Err(WaitError::Cursor(_))));
        waits.forget(&4);
        assert_eq!(answers(&mut waits, &log, 0), []);
        assert_eq!(waits.deadline(), Some(start + Duration::from_millis(500)));
        let late = answers(&mut waits, &log, 500);
        assert_eq!(late.len(), 1);
        assert_eq!((late[0].0, late[0].1.result, late[0].1.cursor.as_str()), (1, None, "0"));

        log.mark(Timestamp(1600), &TurnMark { at: None, kind: TurnKind::Prompt(String::new()) });
        log.mark(Timestamp(1700), &TurnMark { at: None, kind: TurnKind::Ended });
        let woken = answers(&mut waits, &log, 700);
        assert_eq!(woken.len(), 1);
        assert_eq!((woken[0].0, woken[0].1.result), (2, Some(Moment::TurnEnd)));
        assert_eq!(woken[0].1.cursor, "1700");
        let late = answers(&mut waits, &log, 5000);
        assert_eq!((late[0].0, late[0].1.result, late[0].1.cursor.as_str()), (3, None, "2000"));
        assert!(waits.is_empty());
    }

    #[test]
    fn a_client_may_wait_for_another_state() {
        let (log, run, start) = (EventLog::default(), RandomIds.run(), Instant::now());
        let mut waits = Waits::<u8>::default();
        let state = |is| LiveState { is, since: Timestamp(0), why: String::new(), source: None };
        let [idle, working] = [Activity::Idle, Activity::Working].map(state);
        let present =
            |state| Present { now: start, wall: Timestamp(9), log: &log, state, run, session: None };
        let asked = WaitRequest { unlike: Some(Activity::Idle), ..request(Some("0"), 5000) };
        waits.add(1, &asked, &present(&idle)).unwrap();
        waits.add(2, &request(Some("0"), 5000), &present(&idle)).unwrap();
        assert_eq!(waits.answers(&present(&idle)), []);
        let answers = waits.answers(&present(&working));
        assert_eq!(answers.len(), 1, "the other waits for moments alone");
        let (client, answer) = &answers[0];
        assert_eq!((*client, answer.result, answer.state.is), (1, None, Activity::Working));
    }

    #[test]
    fn a_bounded_number_of_clients_waits() {
        let (log, run) = (EventLog::default(), RandomIds.run());
        let state =
            LiveState { is: Activity::Unknown, since: Timestamp(0), why: String::new(), source: None };
        let present =
            Present { now: Instant::now(), wall: Timestamp(0), log: &log, state: &state, run, session: None };
        let mut waits = Waits::default();
        for client in 0..WAITING {
            waits.add(client, &request(None, 1), &present).unwrap();
        }
        assert_eq!(waits.add(0, &request(None, 1), &present), Err(WaitError::TooMany));
    }
}
