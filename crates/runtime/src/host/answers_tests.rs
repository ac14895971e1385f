//! Choices over made-up screens, in steps of 10 ms.

use super::*;
use agents::live::Composer;
use types::{Activity, LiveState, StateSource};

const ASKED: &[&str] = &[" Bash command", "   touch made.txt", " Proceed?", " ❯ 1. Yes", "   2. No"];
const UNNUMBERED: &[&str] = &[" Trust it?", "", " ❯ No, exit", "   Yes, I trust it"];
const UNNUMBERED_MOVED: &[&str] = &[" Trust it?", "", "   No, exit", " ❯ Yes, I trust it"];

fn dialog(rows: &[&str]) -> ScreenReading {
    let dialog = ScreenDialog::read(rows, &['❯']);
    let dialog =
        if dialog.choices.is_empty() { ScreenDialog::read_unnumbered(rows, &['❯']) } else { dialog };
    ScreenReading {
        shown: Some(Shown::NeedsInput("permission".into())),
        dialog: Some(dialog),
        ..ScreenReading::default()
    }
}

fn composer() -> ScreenReading {
    ScreenReading {
        shown: Some(Shown::Quiet),
        composer: Some(Composer::default()),
        ..ScreenReading::default()
    }
}

/// A session whose screen a test makes up.
struct Table {
    start: Instant,
    now: u64,
    state: LiveState,
    reading: ScreenReading,
    viewer_keys: u64,
    unread: bool,
    ended: bool,
    answers: Answers<u8>,
    typed: Vec<Vec<u8>>,
}

impl Table {
    fn showing(reading: ScreenReading) -> Self {
        let state = LiveState {
            is: Activity::NeedsInput,
            since: Timestamp(0),
            why: "permission".into(),
            source: Some(StateSource::Screen),
        };
        let mut table = Self {
            start: Instant::now(),
            now: 0,
            state,
            reading: ScreenReading::default(),
            viewer_keys: 0,
            unread: false,
            ended: false,
            answers: Answers::of_run(RunId(uuid::Uuid::nil())),
            typed: Vec::new(),
        };
        table.show(reading);
        table
    }

    fn show(&mut self, reading: ScreenReading) {
        self.answers.note(&reading);
        self.reading = reading;
    }

    fn hash(&self) -> String {
        self.answers.dialog(&self.reading).unwrap().hash
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Answers<u8>, &Situation<'_>) -> T) -> T {
        let situation = Situation {
            now: self.start + Duration::from_millis(self.now),
            state: &self.state,
            reading: &self.reading,
            bracketed_paste: true,
            quiet_for: Duration::ZERO,
            unwritten: 0,
            screen_is_known: true,
            prompts_are_read: true,
            viewer_keys: self.viewer_keys,
            ended: self.ended,
            session: None,
            last_event: Timestamp(7),
        };
        act(&mut self.answers, &situation)
    }

    fn submit(&mut self, client: u8, dialog: &str, choice: u32) -> Option<Delivery> {
        let request = AnswerRequest { dialog: dialog.to_owned(), choice };
        self.with(|answers, now| answers.submit(client, &request, now)).map(|answer| answer.result)
    }

    /// Steps for a while, or until there is an answer.
    fn run(&mut self, ms: u64) -> Option<(u8, SendAnswer)> {
        for _ in 0..ms / 10 {
            self.now += 10;
            let unread = self.unread;
            let progress = self.with(|answers, now| answers.step(now, unread));
            if !progress.typed.is_empty() {
                self.typed.push(progress.typed);
            }
            if progress.answer.is_some() {
                return progress.answer;
            }
        }
        None
    }

    fn result(&mut self, ms: u64) -> Option<(u8, Delivery)> {
        self.run(ms).map(|(client, answer)| (client, answer.result))
    }
}

#[test]
fn a_choice_is_typed_and_accepted_when_the_dialog_is_gone() {
    let mut table = Table::showing(dialog(ASKED));
    let hash = table.hash();
    assert_eq!(table.submit(1, &hash, 2), None);
    assert_eq!(table.result(1000), None);
    assert_eq!(table.typed, [b"2".to_vec()]);
    table.show(composer());
    assert_eq!(table.result(1000), Some((1, Delivery::Accepted)));
    assert!(table.answers.is_empty());
}

#[test]
fn a_hash_of_another_dialog_is_rejected_and_nothing_is_typed() {
    let mut table = Table::showing(dialog(ASKED));
    let hash = table.hash();
    let other: Vec<&str> =
        ASKED.iter().map(|row| if row.contains("touch") { "   rm -rf made.txt" } else { *row }).collect();
    table.show(dialog(&other));
    assert_eq!(table.submit(1, &hash, 1), None);
    let (_, answer) = table.run(1000).unwrap();
    assert_eq!(answer.result, Delivery::Rejected);
    assert!(answer.why.contains(&table.hash()), "{}", answer.why);
    assert_eq!(table.typed, [b""; 0]);
}

#[test]
fn a_dialog_that_is_gone_is_not_answered() {
    for gone in [composer(), ScreenReading::default()] {
        let mut table = Table::showing(dialog(ASKED));
        let hash = table.hash();
        assert_eq!(table.submit(1, &hash, 1), None);
        assert_eq!(table.result(100), None);
        // It goes while the choice waits for the screen to rest.
        table.show(gone);
        assert_eq!(table.result(1000), Some((1, Delivery::Rejected)));
        assert_eq!(table.typed, [b""; 0]);
    }
}

#[test]
fn half_a_painted_screen_is_no_reason_to_reject() {
    let mut table = Table::showing(dialog(ASKED));
    let hash = table.hash();
    table.submit(1, &hash, 1);
    table.show(dialog(&ASKED[1..]));
    assert_eq!(table.result(100), None);
    table.show(dialog(ASKED));
    assert_eq!(table.result(400), None);
    assert_eq!(table.typed, [b"1".to_vec()]);
}

#[test]
fn of_two_choices_at_once_one_is_typed() {
    let mut table = Table::showing(dialog(ASKED));
    let hash = table.hash();
    assert_eq!(table.submit(1, &hash, 1), None);
    assert_eq!(table.submit(2, &hash, 2), Some(Delivery::Rejected));
    assert_eq!(table.result(400), None);
    assert_eq!(table.submit(3, &hash, 2), Some(Delivery::Rejected), "also after it was typed");
    table.show(composer());
    assert_eq!(table.result(1000), Some((1, Delivery::Accepted)));
    // The same words again are another dialog.
    table.show(dialog(ASKED));
    assert_ne!(table.hash(), hash);
    assert_eq!(table.submit(4, &hash, 2), None);
    assert_eq!(table.result(1000), Some((4, Delivery::Rejected)));
    assert_eq!(table.typed, [b"1".to_vec()]);
}

#[test]
fn a_dialog_that_follows_at_once_in_the_same_words_is_another_one() {
    let other = [" Edit file", " Proceed?", " ❯ 1. Yes", "   2. No"];
    let mut table = Table::showing(dialog(ASKED));
    let hash = table.hash();
    table.submit(1, &hash, 1);
    table.result(400);
    table.show(dialog(&other));
    assert_eq!(table.result(1000), Some((1, Delivery::Accepted)));
    table.show(dialog(ASKED));
    assert_ne!(table.hash(), hash);
}

#[test]
fn the_hash_stays_while_the_dialog_stands() {
    let mut table = Table::showing(dialog(ASKED));
    let hash = table.hash();
    table.show(ScreenReading::default());
    table.show(dialog(&[" Bash command", "   touch made.txt", " Proceed?", "   1. Yes", " ❯ 2. No"]));
    assert_eq!(table.hash(), hash);
    table.show(ScreenReading { shown: Some(Shown::Working("x".into())), ..ScreenReading::default() });
    table.show(dialog(ASKED));
    assert_ne!(table.hash(), hash, "it has worked in between");
}

#[test]
fn nothing_is_typed_while_output_is_unread_or_a_viewer_types() {
    let mut table = Table::showing(dialog(ASKED));
    let hash = table.hash();
    table.submit(1, &hash, 1);
    table.unread = true;
    assert_eq!(table.result(1000), None);
    assert_eq!(table.typed, [b""; 0]);
    table.unread = false;
    for _ in 0..10 {
        table.viewer_keys += 1;
        assert_eq!(table.result(100), None);
    }
    assert_eq!(table.typed, [b""; 0]);
    assert_eq!(table.result(300), None);
    assert_eq!(table.typed, [b"1".to_vec()]);
}

#[test]
fn a_screen_that_never_rests_is_given_up() {
    let mut table = Table::showing(dialog(ASKED));
    let hash = table.hash();
    table.submit(1, &hash, 1);
    table.unread = true;
    assert_eq!(table.result(6000), Some((1, Delivery::Rejected)));
    assert_eq!(table.typed, [b""; 0]);
}

#[test]
fn a_choice_that_nothing_proves_is_unknown_and_is_not_typed_again() {
    let mut table = Table::showing(dialog(ASKED));
    let hash = table.hash();
    table.submit(1, &hash, 1);
    assert_eq!(table.result(10_000), Some((1, Delivery::Unknown)));
    assert_eq!(table.submit(2, &hash, 1), Some(Delivery::Rejected));
    assert_eq!(table.typed, [b"1".to_vec()]);

    let mut ends = Table::showing(dialog(ASKED));
    let hash = ends.hash();
    ends.submit(1, &hash, 1);
    ends.result(400);
    ends.ended = true;
    assert_eq!(ends.result(100), Some((1, Delivery::Unknown)));
}

#[test]
fn a_choice_that_the_dialog_does_not_have_is_rejected() {
    for (rows, choice) in [(ASKED, 3), (ASKED, 0), (&[" A menu", " Esc to close"], 1)] {
        let mut table = Table::showing(dialog(rows));
        let hash = table.hash();
        assert_eq!(table.submit(1, &hash, choice), None);
        assert_eq!(table.result(1000), Some((1, Delivery::Rejected)));
        assert_eq!(table.typed, [b""; 0]);
    }
}

#[test]
fn where_choices_have_no_numbers_the_mark_is_moved_and_seen_there_first() {
    let mut table = Table::showing(dialog(UNNUMBERED));
    let hash = table.hash();
    table.submit(1, &hash, 2);
    assert_eq!(table.result(1000), None);
    assert_eq!(table.typed, [b"\x1b[B".to_vec()], "the mark has not moved yet");
    table.show(dialog(UNNUMBERED_MOVED));
    assert_eq!(table.result(1000), None);
    assert_eq!(table.typed, [b"\x1b[B".to_vec(), b"\r".to_vec()]);
    table.show(composer());
    assert_eq!(table.result(1000), Some((1, Delivery::Accepted)));

    let mut still = Table::showing(dialog(UNNUMBERED));
    let hash = still.hash();
    still.submit(1, &hash, 2);
    assert_eq!(still.result(10_000), Some((1, Delivery::Rejected)));
    assert_eq!(still.typed, [b"\x1b[B".to_vec()]);
}

#[test]
fn a_choice_of_a_client_that_left_is_dropped_unless_it_was_typed() {
    let mut table = Table::showing(dialog(ASKED));
    let hash = table.hash();
    table.submit(1, &hash, 1);
    table.answers.forget(&1);
    assert!(table.answers.is_empty());
    table.submit(1, &hash, 1);
    table.result(400);
    table.answers.forget(&1);
    assert_eq!(table.submit(2, &hash, 1), Some(Delivery::Rejected));
    assert_eq!(table.typed, [b"1".to_vec()]);
}
