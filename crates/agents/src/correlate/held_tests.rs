//! Held and marked conversations in, decisions out.

use super::super::Method;
use super::super::tests::{Run, id, run_by};
use super::*;

fn run() -> Run {
    run_by(Method::Held)
}

fn held(name: &str, thread: Thread) -> Signal {
    Signal::Held { id: id(name), thread }
}

fn marked(name: &str, thread: Thread) -> Signal {
    Signal::Marked { id: id(name), thread }
}

fn turns(names: &[&str]) -> Signal {
    Signal::Turns(names.iter().map(|name| id(name)).collect())
}

/// Decisions with their time: `1000 bind a registry`, `1075 clear to b registry`.
fn play(mut run: Run, signals: Vec<(i64, Signal)>) -> Vec<String> {
    let feed =
        |(at, signal)| run.feed(at, signal).into_iter().map(move |decision| format!("{at} {decision}"));
    signals.into_iter().flat_map(feed).collect()
}

const FORK: Thread = Thread::Continued { forked: true };
const RESUMED: Thread = Thread::Continued { forked: false };

#[test]
fn a_conversation_newly_held_is_a_clear_a_switch_or_a_sub_agents() {
    use Signal::Tick;
    use Thread::{Fresh, Helper, Unwritten};
    let cases: Vec<(&str, Vec<(i64, Signal)>, &[&str])> = vec![
        (
            "no file until the first prompt",
            vec![(10, held("a", Unwritten)), (99, Tick)],
            &["10 bind a registry"],
        ),
        (
            "cleared before the first prompt",
            vec![(10, held("a", Unwritten)), (200, held("b", Unwritten)), (274, Tick), (275, Tick)],
            &["10 bind a registry", "275 clear to b registry"],
        ),
        (
            "the first prompt after a clear comes before the next look",
            vec![(10, held("a", Fresh)), (200, held("b", Fresh))],
            &["10 bind a registry", "200 clear to b registry"],
        ),
        (
            "a fork's file comes a moment after its lock",
            vec![(10, held("a", Fresh)), (200, held("b", Unwritten)), (215, held("b", FORK)), (275, Tick)],
            &["10 bind a registry", "215 switch to b registry"],
        ),
        (
            "a sub-agent, in a turn",
            vec![
                (10, held("a", Unwritten)),
                (20, turns(&["a"])),
                (200, held("s", Unwritten)),
                (900, Tick),
                (901, held("s", Helper)),
                (950, turns(&["a", "s"])),
                (960, turns(&[])),
                (2000, Tick),
            ],
            &["10 bind a registry"],
        ),
        (
            "a review, whose turn is not reported in time",
            vec![(10, held("a", Fresh)), (200, held("s", Unwritten)), (212, held("s", Helper)), (2000, Tick)],
            &["10 bind a registry"],
        ),
        (
            "a clear right behind a turn whose end is reported late",
            vec![
                (10, held("a", Fresh)),
                (20, turns(&["a"])),
                (200, held("b", Unwritten)),
                (300, Tick),
                (310, turns(&[])),
            ],
            &["10 bind a registry", "310 clear to b registry"],
        ),
        (
            "a sub-agent given up before it has a file",
            vec![
                (10, held("a", Fresh)),
                (20, turns(&["a"])),
                (200, held("s", Unwritten)),
                (300, Signal::Released(id("s"))),
                (310, turns(&[])),
                (2000, Tick),
            ],
            &["10 bind a registry"],
        ),
        (
            "a clear that the agent's death came before",
            vec![
                (10, held("a", Fresh)),
                (200, held("b", Unwritten)),
                (250, Signal::Released(id("b"))),
                (2000, Tick),
            ],
            &["10 bind a registry"],
        ),
        (
            "a clear while a sub-agent works on",
            vec![
                (10, held("a", Fresh)),
                (20, turns(&["s"])),
                (200, held("b", Unwritten)),
                (1199, Tick),
                (1200, Tick),
            ],
            &["10 bind a registry", "1200 clear to b registry"],
        ),
        (
            "a sub-agent's sub-agent, outside of our own turns",
            vec![
                (10, held("a", Fresh)),
                (20, turns(&["s"])),
                (200, held("t", Unwritten)),
                (290, held("t", Helper)),
                (1500, Tick),
            ],
            &["10 bind a registry"],
        ),
        (
            "back to a conversation of this run, and on",
            vec![
                (10, held("a", Fresh)),
                (200, held("b", Fresh)),
                (400, held("a", RESUMED)),
                (500, held("c", FORK)),
            ],
            &[
                "10 bind a registry",
                "200 clear to b registry",
                "400 switch to a registry",
                "500 switch to c registry",
            ],
        ),
        (
            "two clears before anybody looks",
            vec![
                (10, held("a", Fresh)),
                (200, held("b", Unwritten)),
                (200, held("c", Unwritten)),
                (275, Tick),
            ],
            &["10 bind a registry", "275 clear to b registry", "275 clear to c registry"],
        ),
        (
            "resumed by its id",
            vec![
                (5, Signal::Assigned(id("a"))),
                (10, held("a", RESUMED)),
                (300, held("b", Unwritten)),
                (400, Tick),
            ],
            &["5 bind a assigned", "400 clear to b registry"],
        ),
        (
            "known by the mark alone",
            vec![
                (10, marked("a", Fresh)),
                (20, marked("s", Helper)),
                (200, marked("b", Fresh)),
                (300, marked("a", Fresh)),
                (400, marked("c", FORK)),
            ],
            &["10 bind a log", "200 clear to b log", "400 switch to c log"],
        ),
        (
            "an agent started inside bears the same mark",
            vec![
                (10, marked("a", Fresh)),
                (20, turns(&["a"])),
                (30, marked("x", Fresh)),
                (40, turns(&[])),
                (2000, Tick),
            ],
            &["10 bind a log"],
        ),
        (
            "known by both",
            vec![(10, held("a", Unwritten)), (20, marked("a", Fresh)), (30, held("a", Fresh)), (200, Tick)],
            &["10 bind a registry"],
        ),
    ];
    for (what, signals, expected) in cases {
        assert_eq!(play(run(), signals), expected, "{what}");
    }
}

#[test]
fn a_run_that_continues_is_in_the_conversation_it_holds() {
    for thread in [RESUMED, Thread::Unwritten] {
        let decided = play(run().continuing(), vec![(10, held("a", thread))]);
        assert_eq!(decided, ["10 bind a registry"], "also where the user chose to begin a new one");
    }
}

#[test]
fn waiting_ends_when_something_can_be_decided() {
    let mut run = run();
    let mut feed = |at, signal| {
        run.feed(at, signal);
        run.0.wake_at(Timestamp(at))
    };
    assert_eq!(feed(10, held("a", Thread::Fresh)), None);
    assert_eq!(feed(200, held("b", Thread::Unwritten)), Some(Timestamp(275)));
    assert_eq!(feed(210, turns(&["a"])), None, "only its file can tell");
    assert_eq!(feed(220, turns(&["s"])), Some(Timestamp(1200)));
    assert_eq!(feed(230, turns(&[])), Some(Timestamp(275)));
    assert_eq!(feed(275, Signal::Tick), None);
}

#[test]
fn every_signal_that_is_news_is_explained() {
    let mut run = run();
    let mut why = |at, signal| -> Vec<(bool, String)> {
        let explained = run.explained(at, signal);
        explained.into_iter().map(|(_, accepted, detail)| (accepted, detail)).collect()
    };
    let seen = |accepted, detail: &str| [(accepted, detail.to_owned())];
    assert_eq!(why(10, held("a", Thread::Unwritten)), seen(true, "a: held by this very process"));
    assert_eq!(why(20, held("a", Thread::Fresh)), [], "no news");
    assert_eq!(
        why(30, held("s", Thread::Helper)),
        seen(false, "s: held by this very process, but it is a sub-agent's")
    );
    assert_eq!(why(40, held("b", Thread::Unwritten)), []);
    let cleared = "b: held by this very process since, and nothing is written in it";
    assert_eq!(why(200, Signal::Tick), seen(true, cleared));
    assert_eq!(why(210, held("c", Thread::Unwritten)), []);
    let given_up = "c: given up before anything was written in it";
    assert_eq!(why(220, Signal::Released(id("c"))), seen(false, given_up));
    assert_eq!(why(230, Signal::Released(id("b"))), [], "it is bound; exec gives up with the last answer");
}
