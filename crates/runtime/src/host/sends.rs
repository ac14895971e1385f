//! The texts that clients send to one session: one at a time, in the order in which they came, a bounded number.
//!
//! A text under an idempotency key is typed once in the life of a host: who asks again joins the text that is on its way, or
//! gets the answer that was given. A rejected text was not submitted, so its key is free again. (Beyond the life of a host, keys
//! are remembered in the store, by the clients.)

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::send::{Sending, Situation, Step, answer, is_same_prompt, refusal};
use crate::remote::protocol::{SendAnswer, SendRequest};
use crate::remote::send;
use crate::remote::send::SendError;
use store::REMEMBERED;
use types::{Delivery, Timestamp};

/// Texts that may wait behind the one that is on its way.
const WAITING: usize = 32;
/// Answers that are remembered by their keys.
const ANSWERS: usize = 1024;
/// The most that a caller may ask a host to wait.
const LONGEST_WAIT: Duration = Duration::from_mins(10);

/// What becomes of a request at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// The answer comes later, from [`Sends::step`].
    Taken,
    Answered(SendAnswer),
    /// One key for two texts.
    Refused(String),
}

/// What a step of all texts leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress<C> {
    /// Bytes to type, as one piece.
    pub typed: Vec<u8>,
    pub answers: Vec<(C, SendAnswer)>,
    /// When to call again, even if nothing changes.
    pub again: Option<Instant>,
    /// Enter is among the bytes: a turn is about to be asked for.
    pub submits: bool,
}

/// The texts of one session. `C` names a client.
#[derive(Debug)]
pub struct Sends<C> {
    /// The first one is on its way.
    queue: VecDeque<Entry<C>>,
    answers: VecDeque<Remembered>,
    /// Texts that were submitted, and whose prompts are still to appear in the file.
    owed: VecDeque<(String, Instant)>,
}

#[derive(Debug)]
struct Entry<C> {
    sending: Sending,
    key: Option<Key>,
    clients: Vec<C>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    key: String,
    content: String,
}

#[derive(Debug)]
struct Remembered {
    key: Key,
    answer: SendAnswer,
    at: Instant,
}

impl<C> Default for Sends<C> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), answers: VecDeque::new(), owed: VecDeque::new() }
    }
}

impl<C: Clone + PartialEq> Sends<C> {
    pub fn submit(&mut self, client: C, request: &SendRequest, now: &Situation<'_>) -> Submitted {
        let text = match send::prepare(&request.text) {
            Ok(text) => text,
            Err(error) => return Submitted::Answered(refusal(&error, now)),
        };
        let key = request
            .idempotency_key
            .as_ref()
            .map(|key| Key { key: key.clone(), content: send::fingerprint(&text) });
        if let Some(key) = &key {
            match self.earlier(key, now.now) {
                Some(Earlier::Answer(answer)) => return Submitted::Answered(answer),
                Some(Earlier::OnItsWay(at)) => {
                    if let Some(entry) = self.queue.get_mut(at) {
                        entry.clients.push(client);
                    }
                    return Submitted::Taken;
                }
                Some(Earlier::OtherText) => {
                    return Submitted::Refused(SendError::OtherText(key.key.clone()).to_string());
                }
                None => {}
            }
        }
        if self.queue.len() > WAITING {
            let why = format!("{WAITING} texts wait already; wait for their answers first");
            return Submitted::Answered(answer(Delivery::Rejected, &why, now.session, now.last_event));
        }
        let wait = Duration::from_millis(request.timeout_ms).min(LONGEST_WAIT);
        let sending = Sending::new(text, now.now + wait);
        self.queue.push_back(Entry { sending, key, clients: vec![client] });
        Submitted::Taken
    }

    fn earlier(&mut self, key: &Key, now: Instant) -> Option<Earlier> {
        self.answers.retain(|answer| now.saturating_duration_since(answer.at) < REMEMBERED);
        let on_its_way = |entry: &Entry<C>| entry.key.as_ref().is_some_and(|known| known.key == key.key);
        if let Some(at) = self.queue.iter().position(on_its_way) {
            let same = self.queue.get(at).is_some_and(|entry| entry.key.as_ref() == Some(key));
            return Some(if same { Earlier::OnItsWay(at) } else { Earlier::OtherText });
        }
        let known = self.answers.iter().find(|answer| answer.key.key == key.key)?;
        Some(if known.key == *key { Earlier::Answer(known.answer.clone()) } else { Earlier::OtherText })
    }

    /// Goes on with the first text; texts whose time is up while they wait are rejected.
    pub fn step(&mut self, now: &Situation<'_>) -> Progress<C> {
        let mut progress = Progress { typed: Vec::new(), answers: Vec::new(), again: None, submits: false };
        while let Some(first) = self.queue.front_mut() {
            match first.sending.step(now) {
                Step::Wait(until) => {
                    progress.again = Some(until);
                    break;
                }
                Step::Type(bytes) => {
                    progress.typed = bytes;
                    progress.submits = first.sending.has_pressed_enter();
                    progress.again = Some(now.now + Duration::from_millis(10));
                    break;
                }
                Step::Done(answer) => {
                    if let Some(entry) = self.queue.pop_front() {
                        self.expect_prompt(&entry.sending, &answer, now.now);
                        self.remember(entry.key, &answer, now.now);
                        progress
                            .answers
                            .extend(entry.clients.into_iter().map(|client| (client, answer.clone())));
                    }
                }
            }
        }
        self.reject_overdue(now, &mut progress);
        progress
    }

    fn reject_overdue(&mut self, now: &Situation<'_>, progress: &mut Progress<C>) {
        let overdue = |entry: &Entry<C>| entry.sending.deadline() <= now.now && !entry.sending.has_typed();
        let mut at = 1;
        while let Some(entry) = self.queue.get(at) {
            if !overdue(entry) {
                let deadline = entry.sending.deadline();
                progress.again = Some(progress.again.map_or(deadline, |again| again.min(deadline)));
                at += 1;
                continue;
            }
            let why = "other texts were still on their way to the agent; nothing was typed";
            let answer = answer(Delivery::Rejected, why, now.session, now.last_event);
            let clients = self.queue.remove(at).map(|entry| entry.clients).unwrap_or_default();
            progress.answers.extend(clients.into_iter().map(|client| (client, answer.clone())));
        }
    }

    fn remember(&mut self, key: Option<Key>, answer: &SendAnswer, now: Instant) {
        let Some(key) = key.filter(|_| answer.result != Delivery::Rejected) else { return };
        if self.answers.len() == ANSWERS {
            self.answers.pop_front();
        }
        self.answers.push_back(Remembered { key, answer: answer.clone(), at: now });
    }

    /// A client has gone. A text of nobody else's of which nothing was typed goes with it.
    pub fn forget(&mut self, client: &C) {
        for entry in &mut self.queue {
            entry.clients.retain(|known| known != client);
        }
        self.queue.retain(|entry| !entry.clients.is_empty() || entry.sending.has_typed());
    }

    /// A text that the agent has, perhaps in its queue: the prompt that appears for it is no proof of an equal one sent later.
    fn expect_prompt(&mut self, sending: &Sending, answer: &SendAnswer, now: Instant) {
        self.owed.retain(|(_, since)| now.saturating_duration_since(*since) < LONGEST_WAIT);
        let proven = matches!(answer.result, Delivery::TurnStarted | Delivery::Rejected);
        if sending.has_pressed_enter() && !proven && self.owed.len() < ANSWERS {
            self.owed.push_back((sending.text().to_owned(), now));
        }
    }

    /// A prompt has appeared in the conversation's file.
    pub fn note_prompt(&mut self, prompt: &str) {
        if let Some(at) = self.owed.iter().position(|(text, _)| is_same_prompt(text, prompt)) {
            self.owed.remove(at);
            return;
        }
        if let Some(first) = self.queue.front_mut() {
            first.sending.note_prompt(prompt);
        }
    }

    /// Enter of the first text has just been pressed, and everything up to this time came before it.
    pub fn begin_after(&mut self, time: Timestamp) {
        if let Some(first) = self.queue.front_mut() {
            first.sending.begin_after(time);
        }
    }

    /// Whether the keys of viewers are to wait for a moment.
    pub fn holds_keys(&self, now: Instant) -> bool {
        self.queue.front().is_some_and(|first| first.sending.holds_keys(now))
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

enum Earlier {
    OnItsWay(usize),
    Answer(SendAnswer),
    OtherText,
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::live::{Composer, ScreenReading, Shown};
    use types::{Activity, LiveState};

    /// An agent that is idle; what stands in its composer is what was typed.
    struct Desk {
        start: Instant,
        now: u64,
        state: LiveState,
        reading: ScreenReading,
        sends: Sends<u8>,
        typed: Vec<String>,
        prompts_are_read: bool,
    }

    impl Desk {
        fn new() -> Self {
            let state =
                LiveState { is: Activity::Idle, since: Timestamp(0), why: String::new(), source: None };
            let reading = ScreenReading {
                shown: Some(Shown::Quiet),
                reported: None,
                composer: Some(Composer::default()),
                dialog: None,
            };
            let start = Instant::now();
            Self {
                start,
                now: 0,
                state,
                reading,
                sends: Sends::default(),
                typed: Vec::new(),
                prompts_are_read: false,
            }
        }

        fn with<T>(&mut self, act: impl FnOnce(&mut Sends<u8>, &Situation<'_>) -> T) -> T {
            let situation = Situation {
                now: self.start + Duration::from_millis(self.now),
                state: &self.state,
                reading: &self.reading,
                bracketed_paste: true,
                quiet_for: Duration::from_secs(1),
                unwritten: 0,
                screen_is_known: true,
                prompts_are_read: self.prompts_are_read,
                viewer_keys: 0,
                ended: false,
                session: None,
                last_event: Timestamp(1),
            };
            act(&mut self.sends, &situation)
        }

        fn submit(&mut self, client: u8, text: &str, key: Option<&str>, timeout_ms: u64) -> Submitted {
            let request =
                SendRequest { text: text.into(), idempotency_key: key.map(str::to_owned), timeout_ms };
            self.with(|sends, now| sends.submit(client, &request, now))
        }

        /// Runs until Enter was pressed for so many texts, the last of which has no answer yet.
        fn run_to_enter(&mut self, texts: usize) {
            let is_empty = |desk: &Self| desk.reading.composer == Some(Composer::default());
            while self.typed.len() < texts || !is_empty(self) {
                assert_eq!(self.run(10), []);
            }
        }

        /// Runs for a while, and returns the answers.
        fn run(&mut self, ms: u64) -> Vec<(u8, Delivery)> {
            let mut answers = Vec::new();
            for _ in 0..ms / 10 {
                self.now += 10;
                let progress = self.with(|sends, now| sends.step(now));
                answers.extend(progress.answers.iter().map(|(client, answer)| (*client, answer.result)));
                let typed = String::from_utf8(progress.typed).unwrap();
                if typed == "\r" {
                    assert!(progress.submits);
                    self.reading.composer = Some(Composer::default());
                } else if !typed.is_empty() {
                    let text = typed.trim_start_matches("\x1b[200~").trim_end_matches("\x1b[201~");
                    self.reading.composer = Some(Composer { text: text.to_owned() });
                    self.typed.push(text.to_owned());
                }
            }
            answers
        }
    }

    #[test]
    fn the_prompt_of_an_earlier_text_is_no_proof_of_an_equal_one() {
        let mut desk = Desk::new();
        desk.prompts_are_read = true;
        desk.state.is = Activity::Working;
        desk.reading.shown = Some(Shown::Working(String::new()));
        desk.submit(1, "go on", None, 60_000);
        assert_eq!(desk.run(20_000), [(1, Delivery::Queued)]);
        desk.submit(2, "go on", None, 60_000);
        desk.run_to_enter(2);
        desk.sends.note_prompt("go on");
        assert_eq!(desk.run(20_000), [(2, Delivery::Queued)], "the first one's");
        desk.submit(3, "go on", None, 60_000);
        desk.run_to_enter(3);
        desk.sends.note_prompt("go on");
        desk.sends.note_prompt("go on");
        assert_eq!(desk.run(20_000), [(3, Delivery::TurnStarted)], "its own");
    }

    #[test]
    fn texts_go_one_at_a_time_in_their_order() {
        let mut desk = Desk::new();
        for (client, text) in [(1, "one"), (2, "two"), (3, "three")] {
            assert_eq!(desk.submit(client, text, None, 60_000), Submitted::Taken);
        }
        let answers = desk.run(10_000);
        assert_eq!(answers, [1, 2, 3].map(|client| (client, Delivery::Accepted)));
        assert_eq!(desk.typed, ["one", "two", "three"]);
        assert!(desk.sends.is_empty());
    }

    #[test]
    fn a_key_stands_for_one_text_that_is_typed_once() {
        let mut desk = Desk::new();
        assert_eq!(desk.submit(1, "one", Some("k"), 60_000), Submitted::Taken);
        assert_eq!(desk.submit(2, "one", Some("k"), 60_000), Submitted::Taken, "joins the first");
        assert!(matches!(desk.submit(3, "two", Some("k"), 60_000), Submitted::Refused(_)));
        assert_eq!(desk.run(5000), [(1, Delivery::Accepted), (2, Delivery::Accepted)]);
        let again = desk.submit(4, "one\n", Some("k"), 60_000);
        assert!(matches!(again, Submitted::Answered(answer) if answer.result == Delivery::Accepted));
        assert!(matches!(desk.submit(5, "two", Some("k"), 60_000), Submitted::Refused(_)));
        assert_eq!(desk.typed, ["one"]);
        desk.now += u64::try_from(REMEMBERED.as_millis()).unwrap();
        assert_eq!(desk.submit(6, "two", Some("k"), 60_000), Submitted::Taken, "forgotten after a day");
    }

    #[test]
    fn a_rejected_text_leaves_its_key_free() {
        let mut desk = Desk::new();
        desk.state.is = Activity::Dialog;
        desk.submit(1, "one", Some("k"), 60_000);
        assert_eq!(desk.run(1000), [(1, Delivery::Rejected)]);
        desk.state.is = Activity::Idle;
        assert_eq!(desk.submit(1, "one", Some("k"), 60_000), Submitted::Taken);
        assert_eq!(desk.run(5000), [(1, Delivery::Accepted)]);
    }

    #[test]
    fn bad_texts_and_too_many_are_rejected_at_once() {
        let mut desk = Desk::new();
        let rejected = |submitted| {
            matches!(submitted, Submitted::Answered(SendAnswer { result: Delivery::Rejected, .. }))
        };
        assert!(rejected(desk.submit(1, "\x1b[A", None, 1)));
        assert!(rejected(desk.submit(1, "", None, 1)));
        for client in 0..=32 {
            assert_eq!(desk.submit(client, "x", None, 60_000), Submitted::Taken);
        }
        assert!(rejected(desk.submit(99, "x", None, 60_000)));
    }

    #[test]
    fn a_text_whose_time_is_up_while_it_waits_is_rejected() {
        let mut desk = Desk::new();
        desk.reading.composer = None;
        desk.submit(1, "one", None, 5000);
        desk.submit(2, "two", None, 1000);
        assert_eq!(desk.run(2000), [(2, Delivery::Rejected)]);
        assert_eq!(desk.run(4000), [(1, Delivery::Rejected)]);
    }

    #[test]
    fn texts_of_clients_that_left_are_dropped_unless_they_were_typed() {
        let mut desk = Desk::new();
        desk.submit(1, "one", None, 60_000);
        desk.submit(2, "two", None, 60_000);
        desk.run(400);
        assert_eq!(desk.typed, ["one"]);
        desk.sends.forget(&1);
        desk.sends.forget(&2);
        assert_eq!(desk.run(5000), []);
        assert_eq!(desk.typed, ["one"]);
        assert!(desk.sends.is_empty());
    }
}
