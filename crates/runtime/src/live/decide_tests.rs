use super::*;

const NOW: Timestamp = Timestamp(1_000);

fn published(status: PublishedStatus, since: i64) -> Published {
    Published { status, since: Some(Timestamp(since)), conversation: None }
}

fn screen(shown: Option<Shown>, reported: Option<Shown>) -> ScreenReading {
    ScreenReading { shown, reported, ..ScreenReading::default() }
}

fn turn(kind: TurnKind, at: i64) -> TurnMark {
    TurnMark { at: Some(Timestamp(at)), kind }
}

fn permission() -> Shown {
    Shown::NeedsInput("permission to run a command".into())
}

fn spinner() -> Shown {
    Shown::Working("an answer streams".into())
}

fn prompt() -> TurnKind {
    TurnKind::Prompt("hello".into())
}

/// What is given, what it must be, from which source and since when.
type Row = (
    &'static str,
    Option<Published>,
    Option<ScreenReading>,
    Option<TurnMark>,
    (Activity, Option<StateSource>, i64),
);

#[test]
fn each_source_proves_what_it_can() {
    use Activity::{Dialog, Idle, NeedsInput, Starting, Unknown, Working};
    use PublishedStatus as Status;
    use StateSource::{Process, Registry, Screen, Sequence, SessionFile};
    let quiet = || Some(Shown::Quiet);
    let rows: Vec<Row> = vec![
        ("nothing", None, None, None, (Unknown, None, 1_000)),
        ("an unknown screen", None, Some(screen(None, None)), None, (Unknown, None, 1_000)),
        // Idleness needs proof.
        ("the composer alone", None, Some(screen(quiet(), None)), None, (Unknown, None, 1_000)),
        ("the file alone", None, None, Some(turn(TurnKind::Ended, 5)), (Unknown, None, 5)),
        (
            "the end of the turn and the composer",
            None,
            Some(screen(quiet(), None)),
            Some(turn(TurnKind::Ended, 5)),
            (Idle, Some(SessionFile), 5),
        ),
        (
            "the end of the turn and an unknown screen",
            None,
            Some(screen(None, None)),
            Some(turn(TurnKind::Ended, 5)),
            (Unknown, None, 1_000),
        ),
        ("the agent's word", Some(published(Status::Idle, 7)), None, None, (Idle, Some(Registry), 7)),
        (
            "the agent's word by a sequence",
            None,
            Some(screen(None, quiet())),
            Some(turn(TurnKind::Ended, 5)),
            (Idle, Some(Sequence), 5),
        ),
        (
            "the agent's word from before the last prompt",
            Some(published(Status::Idle, 7)),
            None,
            Some(turn(prompt(), 8)),
            (Working, Some(SessionFile), 8),
        ),
        (
            "the same with a screen",
            Some(published(Status::Idle, 7)),
            Some(screen(quiet(), None)),
            Some(turn(prompt(), 8)),
            (Unknown, None, 1_000),
        ),
        (
            "a prompt that was taken back",
            Some(published(Status::Idle, 9)),
            Some(screen(quiet(), None)),
            Some(turn(prompt(), 8)),
            (Idle, Some(Registry), 9),
        ),
        // Work on the screen is there now; a status may lag behind.
        (
            "work, and a status from before it",
            Some(published(Status::Idle, 7)),
            Some(screen(Some(spinner()), None)),
            Some(turn(TurnKind::Ended, 6)),
            (Working, Some(Screen), 1_000),
        ),
        (
            "work reported by a sequence behind a quiet screen",
            None,
            Some(screen(quiet(), Some(spinner()))),
            Some(turn(TurnKind::Ended, 6)),
            (Working, Some(Sequence), 1_000),
        ),
        (
            "a busy agent behind a quiet screen",
            Some(published(Status::Busy, 7)),
            Some(screen(quiet(), None)),
            Some(turn(TurnKind::Ended, 6)),
            (Working, Some(Registry), 7),
        ),
        ("a submitted prompt", None, None, Some(turn(prompt(), 8)), (Working, Some(SessionFile), 8)),
        ("the middle of a turn", None, None, Some(turn(TurnKind::Goes, 8)), (Unknown, None, 8)),
        (
            "the middle of a turn behind a quiet screen",
            None,
            Some(screen(quiet(), None)),
            Some(turn(TurnKind::Goes, 8)),
            (Unknown, None, 1_000),
        ),
        // Questions win.
        (
            "a question and an older status",
            Some(published(Status::Busy, 7)),
            Some(screen(Some(permission()), None)),
            Some(turn(TurnKind::Goes, 8)),
            (NeedsInput, Some(Screen), 1_000),
        ),
        (
            "a question that the agent confirms",
            Some(published(Status::Waiting("permission prompt".into()), 7)),
            Some(screen(Some(permission()), Some(spinner()))),
            None,
            (NeedsInput, Some(Screen), 7),
        ),
        (
            "a question that the screen's reader does not know",
            Some(published(Status::Waiting("input needed".into()), 7)),
            Some(screen(Some(spinner()), None)),
            None,
            (NeedsInput, Some(Registry), 7),
        ),
        (
            "a question reported by a sequence",
            None,
            Some(screen(Some(spinner()), Some(permission()))),
            None,
            (NeedsInput, Some(Sequence), 1_000),
        ),
        (
            "a dialog, and a status from before it",
            Some(published(Status::Idle, 7)),
            Some(screen(Some(Shown::Dialog("a menu".into())), None)),
            None,
            (Dialog, Some(Screen), 1_000),
        ),
        (
            "a dialog that only the agent knows of",
            Some(published(Status::Dialog("dialog open".into()), 7)),
            Some(screen(None, None)),
            None,
            (Dialog, Some(Registry), 7),
        ),
        // No status is from the future: clocks differ.
        (
            "a status of tomorrow",
            Some(published(Status::Idle, 9_000)),
            None,
            None,
            (Idle, Some(Registry), 1_000),
        ),
    ];
    for (what, published, screen, turn, expected) in rows {
        let sources = Sources {
            published: published.as_ref(),
            screen: screen.as_ref(),
            turn: turn.as_ref(),
            started: Some(Timestamp(1)),
            ..Sources::default()
        };
        let state = decide(&sources, NOW);
        assert_eq!((state.is, state.source, state.since.0), expected, "{what}: {state:?}");
        assert!(!state.why.is_empty());
    }
    let blank = screen(None, None);
    let sources =
        Sources { screen: Some(&blank), blank: true, started: Some(Timestamp(1)), ..Sources::default() };
    let state = decide(&sources, NOW);
    assert_eq!((state.is, state.source, state.since), (Starting, Some(Process), Timestamp(1)));
}

#[test]
fn a_state_without_a_time_of_its_own_keeps_the_time_it_was_first_seen() {
    let reading = screen(Some(permission()), None);
    let first = decide(&Sources { screen: Some(&reading), ..Sources::default() }, Timestamp(10));
    let sources = Sources { screen: Some(&reading), before: Some(&first), ..Sources::default() };
    assert_eq!(decide(&sources, NOW).since, Timestamp(10));
    let reading = screen(Some(spinner()), None);
    let sources = Sources { screen: Some(&reading), before: Some(&first), ..Sources::default() };
    assert_eq!(decide(&sources, NOW).since, NOW, "another state");
}

#[test]
fn the_reason_of_a_question_is_the_screens_own() {
    let reading = screen(Some(permission()), None);
    let waiting = published(PublishedStatus::Waiting("permission prompt".into()), 7);
    let sources = Sources { published: Some(&waiting), screen: Some(&reading), ..Sources::default() };
    assert_eq!(decide(&sources, NOW).why, "permission to run a command");
}

#[test]
fn a_silent_program_that_is_no_agent_starts_only_until_its_process_is_there() {
    for (is_agent, has_process, has_written, blank) in [
        (true, false, false, true),
        (true, true, false, true),
        (true, true, true, false),
        (false, false, false, true),
        (false, true, false, false),
        (false, true, true, false),
    ] {
        assert_eq!(is_blank(is_agent, has_process, has_written), blank, "{is_agent} {has_process}");
    }
}
