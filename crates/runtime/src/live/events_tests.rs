//! Sequences of states and marks, and the moments that follow from them.

use super::*;
use Activity::{Dialog, Idle, NeedsInput, Starting, Unknown, Working};
use StateSource::{Registry, Screen};
use types::{Ids, RandomIds};

const START: Timestamp = Timestamp(1_768_135_000_000);

fn at(ms: i64) -> Timestamp {
    Timestamp(START.0 + ms)
}

fn state(is: Activity, source: StateSource, since: Timestamp) -> LiveState {
    LiveState { is, since, why: format!("it is {is}"), source: Some(source) }
}

fn prompt() -> TurnMark {
    TurnMark { at: None, kind: TurnKind::Prompt("do it".into()) }
}

fn ended() -> TurnMark {
    TurnMark { at: None, kind: TurnKind::Ended }
}

#[derive(Clone, Debug)]
enum Seen {
    /// A state from a source, since then.
    State(Activity, StateSource, i64),
    Mark(TurnMark),
    Ask,
    Exit,
}

/// A mark with a time of its own.
fn dated(kind: TurnKind, ms: i64) -> TurnMark {
    TurnMark { at: Some(at(ms)), kind }
}

/// Everything is seen at its time; states again every 50 ms, as a host does that has something to do.
fn log_of(seen: &[(i64, Seen)], end: i64) -> EventLog {
    log_from(EventLog::default(), seen, end)
}

fn log_from(mut log: EventLog, seen: &[(i64, Seen)], end: i64) -> EventLog {
    let mut present = state(Unknown, Screen, at(0));
    for now in 0..=end {
        for (_, seen) in seen.iter().filter(|(time, _)| *time == now) {
            match seen {
                Seen::State(is, source, since) => {
                    present = state(*is, *source, at(*since));
                    log.observe(at(now), &present);
                }
                Seen::Mark(mark) => log.mark(at(now), mark),
                Seen::Ask => log.ask(at(now), &present),
                Seen::Exit => log.exit(at(now)),
            }
        }
        if now % 50 == 0 {
            log.observe(at(now), &present);
        }
    }
    log
}

fn moments(log: &EventLog) -> Vec<(i64, Moment)> {
    log.after(Timestamp(0)).map(|event| (event.at.0 - START.0, event.moment)).collect()
}

#[test]
fn states_and_marks_become_moments() {
    use Moment as M;
    use Seen::{Ask, Exit, Mark, State};
    type Case = (&'static str, Vec<(i64, Seen)>, Vec<(i64, Moment)>);
    let cases: Vec<Case> = vec![
        (
            "nothing was ever asked",
            vec![(0, State(Starting, Screen, 0)), (500, State(Idle, Screen, 500))],
            vec![],
        ),
        (
            "a turn by the registry",
            vec![
                (0, State(Idle, Registry, 0)),
                (100, State(Working, Registry, 100)),
                (900, State(Idle, Registry, 900)),
            ],
            vec![(900, M::TurnEnd)],
        ),
        (
            "a turn by the screen alone ends when idleness lasts",
            vec![(100, State(Working, Screen, 100)), (900, State(Idle, Screen, 900))],
            vec![(1300, M::TurnEnd)],
        ),
        (
            "gaps of an animation end nothing",
            vec![
                (100, State(Working, Screen, 100)),
                (300, State(Idle, Screen, 300)),
                (500, State(Working, Screen, 500)),
                (700, State(Idle, Screen, 700)),
                (900, State(Working, Screen, 900)),
                (1500, State(Idle, Screen, 1500)),
            ],
            vec![(1900, M::TurnEnd)],
        ),
        (
            "a turn by its marks, too short to be seen",
            vec![(0, State(Idle, Screen, 0)), (100, Mark(prompt())), (130, Mark(ended()))],
            vec![(130, M::TurnEnd)],
        ),
        (
            "the screen shows work for a while after the mark",
            vec![
                (100, Mark(prompt())),
                (120, State(Working, Screen, 120)),
                (1000, Mark(ended())),
                (1400, State(Idle, Screen, 1400)),
                (1500, State(Working, Screen, 1500)),
                (1700, State(Idle, Screen, 1700)),
            ],
            vec![(1000, M::TurnEnd)],
        ),
        (
            "idle by the registry before the mark is written, once",
            vec![
                (100, Mark(prompt())),
                (110, State(Working, Registry, 110)),
                (1000, State(Idle, Registry, 1000)),
                (1100, Mark(ended())),
            ],
            vec![(1100, M::TurnEnd)],
        ),
        (
            "idleness from before the prompt does not end its turn",
            vec![
                (0, State(Idle, Registry, 0)),
                (100, Mark(prompt())),
                (110, State(Idle, Registry, 0)),
                (400, State(Working, Registry, 400)),
                (900, State(Idle, Registry, 900)),
            ],
            vec![(2900, M::TurnEnd)],
        ),
        (
            "a command without any work is over after a while",
            vec![(0, State(Idle, Registry, 0)), (100, Mark(prompt()))],
            vec![(2100, M::TurnEnd)],
        ),
        (
            "work without marks between marked turns, long and short",
            vec![
                (100, Mark(prompt())),
                (200, Mark(ended())),
                (300, State(Idle, Screen, 300)),
                (400, State(Working, Screen, 400)),
                (600, State(Idle, Screen, 600)),
                (1000, State(Working, Screen, 1000)),
                (3000, State(Idle, Screen, 3000)),
            ],
            vec![(200, M::TurnEnd), (5000, M::TurnEnd)],
        ),
        (
            "a question in a turn, its answer, another one",
            vec![
                (100, State(Working, Screen, 100)),
                (500, State(NeedsInput, Screen, 500)),
                (900, State(Working, Screen, 900)),
                (1000, State(NeedsInput, Registry, 1000)),
                (1500, State(Working, Screen, 1500)),
                (2000, State(Idle, Registry, 2000)),
            ],
            vec![(700, M::NeedsInput), (1000, M::NeedsInput), (2000, M::TurnEnd)],
        ),
        (
            "a question that is lost from sight for a moment is one question",
            vec![
                (100, State(NeedsInput, Screen, 100)),
                (500, State(Unknown, Screen, 500)),
                (700, State(NeedsInput, Screen, 700)),
            ],
            vec![(300, M::NeedsInput)],
        ),
        (
            "a dialog at the start is a question and no turn",
            vec![(100, State(Dialog, Screen, 100)), (900, State(Idle, Screen, 900))],
            vec![(300, M::NeedsInput)],
        ),
        (
            "half a painted screen is no question",
            vec![(100, State(Dialog, Screen, 100)), (200, State(Starting, Screen, 200))],
            vec![],
        ),
        (
            "what was asked before belongs before what is asked now",
            vec![
                (100, State(Working, Screen, 100)),
                (900, State(Idle, Screen, 900)),
                (1000, Ask),
                (1100, State(Working, Screen, 1100)),
                (2000, State(Idle, Registry, 2000)),
            ],
            vec![(1000, M::TurnEnd), (2000, M::TurnEnd)],
        ),
        (
            "the exit, once",
            vec![(100, State(Working, Screen, 100)), (300, Exit), (400, Exit)],
            vec![(300, M::Exit)],
        ),
        (
            "two moments at one time",
            vec![(100, Mark(prompt())), (100, Mark(ended())), (100, Exit)],
            vec![(100, M::TurnEnd), (101, M::Exit)],
        ),
    ];
    for (what, seen, expected) in cases {
        assert_eq!(moments(&log_of(&seen, 5000)), expected, "{what}");
    }
}

#[test]
fn without_a_cursor_what_holds_now_is_the_answer() {
    use Moment as M;
    use Seen::{Ask, Exit, Mark, State};
    type Case<'a> = (&'a str, Vec<(i64, Seen)>, Activity, &'a [Moment], Option<(i64, Moment)>);
    let turn = vec![(100, Mark(prompt())), (200, Mark(ended())), (210, State(Idle, Registry, 210))];
    let with = |more: &[(i64, Seen)]| [turn.clone(), more.to_vec()].concat();
    let cases: Vec<Case<'_>> = vec![
        ("idle, nothing was ever asked", vec![(0, State(Idle, Registry, 0))], Idle, &[], None),
        ("idle after a turn", turn.clone(), Idle, &[], Some((200, M::TurnEnd))),
        ("idle after a turn, for something else", turn.clone(), Idle, &[M::NeedsInput, M::Exit], None),
        ("not known to be idle after a turn", turn.clone(), Unknown, &[], None),
        ("a text was submitted just now", with(&[(900, Ask)]), Idle, &[], None),
        ("the next turn goes on", with(&[(500, Mark(prompt()))]), Working, &[], None),
        (
            "a question stands there",
            with(&[(500, State(NeedsInput, Registry, 500))]),
            NeedsInput,
            &[],
            Some((500, M::NeedsInput)),
        ),
        (
            "a question stands there, for something else",
            with(&[(500, State(NeedsInput, Registry, 500))]),
            NeedsInput,
            &[M::TurnEnd],
            None,
        ),
        ("an exit answers everything", with(&[(500, Exit)]), Unknown, &[M::TurnEnd], Some((500, M::Exit))),
    ];
    for (what, seen, is, until, expected) in cases {
        let log = log_of(&seen, 1000);
        let event = log.answer(None, until, at(1000), &state(is, Registry, at(0)));
        assert_eq!(event.map(|event| (event.at.0 - START.0, event.moment)), expected, "{what}");
    }
    let log = log_of(&with(&[(900, Ask)]), 7000);
    assert!(
        log.answer(None, &[], at(7000), &state(Idle, Registry, at(0))).is_some(),
        "no turn ever came of it"
    );
}

#[test]
fn with_a_cursor_only_what_came_after_it_is_the_answer() {
    use Moment as M;
    let seen = [
        (100, Seen::Mark(prompt())),
        (200, Seen::Mark(ended())),
        (300, Seen::State(NeedsInput, Registry, 300)),
        (400, Seen::State(Working, Registry, 400)),
        (500, Seen::Mark(ended())),
        (600, Seen::State(NeedsInput, Registry, 600)),
    ];
    let log = log_of(&seen, 1000);
    let after = |cursor, until: &[Moment]| {
        let event = log.answer(Some(at(cursor)), until, at(1000), &state(NeedsInput, Registry, at(600)));
        event.map(|event| (event.at.0 - START.0, event.moment))
    };
    assert_eq!(after(0, &[]), Some((200, M::TurnEnd)));
    assert_eq!(after(200, &[]), Some((500, M::TurnEnd)), "the first question was answered long ago");
    assert_eq!(after(500, &[]), Some((600, M::NeedsInput)));
    assert_eq!(after(0, &[M::NeedsInput]), Some((600, M::NeedsInput)));
    assert_eq!(after(600, &[]), None);
    let mut log = log;
    log.exit(at(2000));
    let unknown = state(Unknown, Screen, at(0));
    let answer = |cursor| log.answer(Some(at(cursor)), &[], at(3000), &unknown).map(|event| event.moment);
    assert_eq!([answer(200), answer(900), answer(2000)], [Some(M::TurnEnd), Some(M::Exit), Some(M::Exit)]);
}

#[test]
fn the_end_of_a_turn_before_a_restart_is_found_by_a_cursor_from_before_it() {
    let mut log = EventLog::default();
    log.begin_with(&TurnMark { at: Some(at(700)), kind: TurnKind::Ended });
    let idle = state(Idle, Registry, at(5000));
    let answer = |cursor| log.answer(Some(at(cursor)), &[], at(9000), &idle).map(|event| event.moment);
    assert_eq!([answer(600), answer(700)], [Some(Moment::TurnEnd), None]);
    let mut log = EventLog::default();
    log.begin_with(&TurnMark { at: Some(at(700)), kind: TurnKind::Goes });
    log.observe(at(9000), &idle);
    log.observe(at(11_000), &idle);
    assert_eq!(moments(&log), [(11_000, Moment::TurnEnd)], "it broke off, and the agent is idle now");
}

/// The ends of turns, each with whether its answer is missing.
fn ends(log: &EventLog) -> Vec<(i64, bool)> {
    let ends = log.after(Timestamp(0)).filter(|event| event.moment == Moment::TurnEnd);
    ends.map(|event| (event.at.0 - START.0, event.answer_missing)).collect()
}

#[test]
fn a_turn_ends_when_its_answer_can_be_read_or_is_given_up() {
    use Seen::{Ask, Mark, State};
    use TurnKind::{Ended, Goes, Prompt, Speaks};
    type Case = (&'static str, Vec<(i64, Seen)>, Vec<(i64, bool)>);
    let prompt = || Prompt("do it".into());
    let worked = vec![(100, State(Working, Registry, 100)), (1000, State(Idle, Registry, 1000))];
    let with = |more: &[(i64, Seen)]| [worked.clone(), more.to_vec()].concat();
    let cases: Vec<Case> = vec![
        (
            "prompt and answer are written when the agent is idle already",
            with(&[(1300, Mark(dated(prompt(), 90))), (1300, Mark(dated(Ended, 990)))]),
            vec![(1300, false)],
        ),
        (
            "the answer is not the last one",
            with(&[
                (1100, Mark(dated(prompt(), 90))),
                (1200, Mark(dated(Goes, 800))),
                (1400, Mark(dated(Ended, 990))),
            ]),
            vec![(1400, false)],
        ),
        ("nothing is ever written", worked.clone(), vec![(3000, true)]),
        ("only the prompt is written", with(&[(1300, Mark(dated(prompt(), 90)))]), vec![(3000, true)]),
        (
            "the answer comes too late, and is no second turn",
            with(&[
                (3500, Mark(dated(prompt(), 90))),
                (3500, Mark(dated(Goes, 500))),
                (3500, Mark(dated(Ended, 990))),
                (3600, Mark(dated(Ended, 995))),
            ]),
            vec![(3000, false)],
        ),
        (
            "the answer comes in the middle of the next turn, which it does not end",
            with(&[
                (3200, State(Working, Registry, 3200)),
                (3500, Mark(dated(prompt(), 90))),
                (3500, Mark(dated(Ended, 990))),
                (4000, Mark(dated(Ended, 4000))),
            ]),
            vec![(3000, false), (4000, false)],
        ),
        (
            "a file that does not say which text is the last",
            with(&[(900, Mark(dated(prompt(), 90))), (950, Mark(dated(Speaks, 900)))]),
            vec![(1000, false)],
        ),
        (
            "an answer that stands before its prompt",
            with(&[(1050, Mark(dated(Ended, 990))), (1060, Mark(dated(prompt(), 90)))]),
            vec![(1050, false)],
        ),
        (
            "the next text is submitted before the answer is there",
            with(&[(1500, Ask), (1600, Mark(dated(Ended, 990)))]),
            vec![(1500, false)],
        ),
    ];
    for (what, seen, expected) in cases {
        assert_eq!(ends(&log_from(EventLog::of_agent(true), &seen, 6000)), expected, "{what}");
    }
    assert_eq!(ends(&log_of(&worked, 6000)), [(1000, false)], "an agent that marks no turns");
}

/// Qwen Code's lines come late, Claude's do not.
#[test]
fn an_answer_is_waited_for_as_long_as_the_agent_may_take() {
    use Seen::{Mark, State};
    let idle = [(100, State(Working, Registry, 100)), (1000, State(Idle, Registry, 1000))];
    let answered = [&idle[..], &[(7000, Mark(dated(TurnKind::Ended, 990)))]].concat();
    let ends = |agent: &dyn Agent, seen: &[(i64, Seen)]| ends(&log_from(EventLog::of(agent), seen, 12_000));
    assert_eq!(ends(&agents::claude::Claude, &answered), [(3000, false)], "given up at 3000, amended later");
    assert_eq!(ends(&agents::qwen::Qwen, &answered), [(7000, false)]);
    assert_eq!(ends(&agents::qwen::Qwen, &idle), [(11_000, true)], "one that was cancelled has none");
}

#[test]
fn without_a_cursor_a_missing_answer_is_reported_as_long_as_it_is_missing() {
    use Seen::{Mark, State};
    let mut seen = vec![(100, State(Working, Registry, 100)), (1000, State(Idle, Registry, 1000))];
    let idle = state(Idle, Registry, at(1000));
    let missing = |seen: &[(i64, Seen)]| {
        let log = log_from(EventLog::of_agent(true), seen, 6000);
        log.answer(None, &[], at(6000), &idle).map(|event| event.answer_missing)
    };
    assert_eq!(missing(&seen), Some(true));
    seen.push((4000, Mark(dated(TurnKind::Ended, 990))));
    assert_eq!(missing(&seen), Some(false));
}

#[test]
fn a_prompt_given_at_the_start_is_a_turn_that_has_not_ended() {
    use Seen::{Ask, Mark, State};
    let resumed = || {
        let mut log = EventLog::of_agent(true);
        log.give(at(0));
        log.begin_with(&dated(TurnKind::Ended, -5000));
        log
    };
    let holds = |log: &EventLog, now| {
        log.answer(None, &[], at(now), &state(Idle, Registry, at(50))).map(|event| event.at.0 - START.0)
    };
    let idle = (50, State(Idle, Registry, 50));
    let log = log_from(resumed(), std::slice::from_ref(&idle), 10_000);
    assert_eq!(holds(&log, 10_000), None, "it is not taken yet");
    let log = log_from(resumed(), &[idle.clone(), (500, Ask)], 10_000);
    assert_eq!(ends(&log), [(-5000, false)], "another text comes behind it");
    let log = log_from(resumed(), std::slice::from_ref(&idle), 21_000);
    assert_eq!(ends(&log), [(-5000, false), (20_050, true)], "nothing ever came of it");
    let taken = [
        idle,
        (3000, Mark(dated(TurnKind::Prompt("go on".into()), 3000))),
        (4000, Mark(dated(TurnKind::Ended, 4000))),
    ];
    let log = log_from(resumed(), &taken, 5000);
    assert_eq!((ends(&log), holds(&log, 5000)), (vec![(-5000, false), (4000, false)], Some(4000)));
    let after = log.answer(Some(at(0)), &[], at(5000), &state(Working, Screen, at(0)));
    assert_eq!(after.map(|event| event.at), Some(at(4000)), "from the beginning of the run on");
    // Its conversation may be found later than its start.
    let mut log = EventLog::of_agent(true);
    log.give(at(0));
    log.enter(Some(&dated(TurnKind::Ended, -5000)));
    log.observe(at(50), &state(Idle, Registry, at(50)));
    assert_eq!(holds(&log, 100), None);
}

#[test]
fn a_turn_goes_on_in_the_file_that_appears_for_it() {
    let working = state(Working, Registry, at(100));
    let begun = |log: &mut EventLog| {
        log.observe(at(100), &working);
        log.enter(None);
        log.observe(at(200), &state(Idle, Registry, at(200)));
        log.observe(at(2200), &state(Idle, Registry, at(200)));
    };
    let mut log = EventLog::of_agent(true);
    begun(&mut log);
    assert_eq!(ends(&log), [(2200, true)]);
    let mut log = EventLog::of_agent(true);
    log.observe(at(100), &working);
    log.leave();
    log.enter(None);
    log.observe(at(200), &state(Idle, Registry, at(200)));
    log.observe(at(2200), &state(Idle, Registry, at(200)));
    assert_eq!(ends(&log), [], "a turn of a conversation that was left");
}

#[test]
fn the_state_agrees_with_the_moment_it_is_reported_with() {
    use Moment as M;
    let log = log_of(&[(100, Seen::State(NeedsInput, Registry, 100))], 200);
    for (moment, seen, expected) in [
        (M::TurnEnd, Working, Idle),
        (M::TurnEnd, Starting, Idle),
        (M::TurnEnd, Idle, Idle),
        (M::TurnEnd, Unknown, Unknown),
        (M::TurnEnd, Dialog, Dialog),
        (M::NeedsInput, Unknown, NeedsInput),
        (M::NeedsInput, Dialog, Dialog),
        (M::Exit, Unknown, Unknown),
    ] {
        let reported = log.state_with(&Event::new(at(150), moment), &state(seen, Screen, at(10)));
        assert_eq!(reported.is, expected, "{moment} {seen}");
        if seen == expected {
            assert_eq!(reported, state(seen, Screen, at(10)));
        }
    }
}

#[test]
fn times_rise_though_the_clock_is_set_back_and_the_log_stays_small() {
    let mut log = EventLog::default();
    for turn in 0..3000 {
        let now = at(if turn % 2 == 0 { turn } else { -turn });
        log.mark(now, &prompt());
        log.mark(now, &ended());
    }
    let times: Vec<i64> = log.after(Timestamp(0)).map(|event| event.at.0).collect();
    assert_eq!(times.len(), KEPT);
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(log.last().0, times[KEPT - 1]);
}

#[test]
fn a_look_is_due_when_time_alone_decides() {
    let mut log = EventLog::default();
    log.observe(at(0), &state(Working, Screen, at(0)));
    assert_eq!(log.due(), None);
    log.observe(at(100), &state(Idle, Screen, at(100)));
    assert_eq!(log.due(), Some(at(100).after(IDLE_LASTS)));
    log.observe(at(500), &state(Idle, Screen, at(100)));
    assert_eq!((log.due(), moments(&log)), (None, vec![(500, Moment::TurnEnd)]));
}

#[test]
fn a_cursor_is_a_text_with_a_place_for_each_run() {
    let [one, two] = [RandomIds.run(), RandomIds.run()];
    let cursor = Cursor::at(at(0)).with(one, at(500));
    let back: Cursor = cursor.to_string().parse().unwrap();
    assert_eq!(back, cursor);
    assert_eq!((back.of(one), back.of(two)), (at(500), at(0)));
    assert_eq!("1768135000000".parse(), Ok(Cursor::at(START)));
    for text in ["", "x", "1,", "1,a", "1,a.b", "1 "] {
        assert!(text.parse::<Cursor>().is_err(), "{text:?}");
    }
}
