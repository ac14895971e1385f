//! Registry entries, log lines and files in, decisions out.

use super::super::tests::{AGENT, NOTHING, Run, assigned_by, id, run_by, shown};
use super::super::{Correlator, Method};
use super::*;
use types::EvidenceVerdict;
use types::StartTime;

const FOLDER: &str = "/home/dev/project";

fn run() -> Run {
    run_by(Method::Registry)
}

fn assigned() -> Run {
    assigned_by(Method::Registry)
}

fn entry(pid: i32, session: &str) -> RegistryEntry {
    RegistryEntry {
        pid: Pid(pid),
        start: Some(StartTime(7)),
        started_at: Some(Timestamp(5)),
        session: id(session),
        cwd: Some(FOLDER.to_owned()),
        version: Some("2.1.197".to_owned()),
        background: false,
    }
}

fn new_file(name: &str, cwd: Option<&str>, beginning: Beginning) -> Signal {
    let cwd = cwd.map(str::to_owned);
    Signal::NewFile(NewSessionFile { id: id(name), cwd, beginning, maker: None, follows: None })
}

impl Run {
    fn registry(&mut self, now: i64, session: &str, file: Beginning) -> Vec<String> {
        self.feed(now, Signal::Registry { entry: entry(100, session), file })
    }

    fn other_process(&mut self, now: i64, pid: i32, session: &str) -> Vec<String> {
        self.feed(now, Signal::Registry { entry: entry(pid, session), file: Beginning::Absent })
    }

    fn typed(&mut self, now: i64, session: &str, may_clear: bool) -> Vec<String> {
        let project = Some(FOLDER.to_owned());
        self.feed(
            now,
            Signal::History(HistoryEntry { session: id(session), at: Timestamp(now), project, may_clear }),
        )
    }

    fn cleared_file(&mut self, now: i64, name: &str, at: i64) -> Vec<String> {
        let beginning = Beginning::Cleared { at: Timestamp(at) };
        self.feed(now, new_file(name, Some(FOLDER), beginning))
    }

    fn tick(&mut self, now: i64) -> Vec<String> {
        self.feed(now, Signal::Tick)
    }
}

const SPOKEN: Beginning = Beginning::Spoken { copied: false };
const COPIED: Beginning = Beginning::Spoken { copied: true };

#[test]
fn assigned_binds_at_once_and_the_registry_confirms() {
    let mut run = assigned();
    assert_eq!(run.registry(900, "a", Beginning::Absent), NOTHING);
    assert_eq!(run.registry(5000, "a", SPOKEN), NOTHING);
    assert_eq!(run.0.current(), Some(&id("a")));
    assert_eq!(run.feed(6000, Signal::Assigned(id("z"))), NOTHING, "only the start assigns");
}

#[test]
fn without_assignment_the_registry_binds() {
    for file in
        [Beginning::Absent, Beginning::Silent, SPOKEN, COPIED, Beginning::Cleared { at: Timestamp(-9) }]
    {
        assert_eq!(run().registry(900, "a", file), ["bind a registry"]);
    }
}

#[test]
fn a_run_that_continues_is_bound_to_a_conversation_that_has_a_file() {
    let continuing = || run().continuing();
    let mut found = continuing();
    assert_eq!(found.registry(900, "fresh", Beginning::Absent), NOTHING);
    assert_eq!(found.registry(901, "fresh", Beginning::Absent), NOTHING);
    assert_eq!(found.registry(1400, "a", SPOKEN), ["bind a registry"]);
    assert_eq!(found.registry(9000, "b", Beginning::Absent), ["clear to b registry"], "then as any other");

    let mut nothing_to_continue = continuing();
    assert_eq!(nothing_to_continue.registry(900, "fresh", Beginning::Absent), NOTHING);
    let file = |id_: &str| new_file(id_, None, Beginning::Silent);
    assert_eq!(nothing_to_continue.feed(1000, file("another's")), NOTHING);
    assert_eq!(nothing_to_continue.feed(2000, file("fresh")), ["bind fresh registry"]);
    assert_eq!(nothing_to_continue.registry(2100, "fresh", Beginning::Absent), NOTHING);
    assert_eq!(nothing_to_continue.registry(9000, "b", Beginning::Absent), ["clear to b registry"]);
}

#[test]
fn a_change_of_the_registry_is_a_clear_or_a_switch_by_how_the_file_begins() {
    for (file, decision) in [
        (Beginning::Absent, "clear to b registry"),
        (Beginning::Silent, "clear to b registry"),
        (Beginning::Cleared { at: Timestamp(9_990) }, "clear to b registry"),
        (Beginning::Cleared { at: Timestamp(-2_000) }, "clear to b registry"), // within the slack
        (Beginning::Cleared { at: Timestamp(-2_001) }, "switch to b registry"), // resumed, once begun by a clear
        (SPOKEN, "switch to b registry"),
        (COPIED, "switch to b registry"),
    ] {
        let mut run = assigned();
        run.registry(900, "a", Beginning::Absent);
        assert_eq!(run.registry(10_000, "b", file), [decision], "{file:?}");
        assert_eq!(run.registry(10_001, "b", file), NOTHING, "decided once");
        assert_eq!(run.0.current(), Some(&id("b")));
    }
}

#[test]
fn ten_clears_and_back_to_the_first_conversation() {
    let mut run = assigned();
    run.registry(900, "a", Beginning::Absent);
    for n in 0..10_i64 {
        let decision = run.registry(1000 + n, &format!("s{n}"), Beginning::Absent);
        assert_eq!(decision, [format!("clear to s{n} registry")]);
    }
    assert_eq!(run.registry(2000, "a", SPOKEN), ["switch to a registry"]);
    assert_eq!(
        run.registry(3000, "s3", Beginning::Cleared { at: Timestamp(-5000) }),
        ["switch to s3 registry"]
    );
    assert_eq!(run.registry(4000, "a", SPOKEN), ["switch to a registry"]);
}

#[test]
fn an_entry_that_is_not_of_this_very_process_is_rejected() {
    for (start, started_at, accepted) in [
        (Some(7), None, true),
        (Some(7), Some(-5), true), // the start time is the proof, clocks may be set back
        (Some(8), Some(5), false),
        (None, Some(0), true),
        (None, Some(-1), false),
        (None, None, false),
    ] {
        let mut run = run();
        let entry = RegistryEntry {
            start: start.map(StartTime),
            started_at: started_at.map(Timestamp),
            ..entry(100, "a")
        };
        let conclusion = run.0.feed(Timestamp(900), Signal::Registry { entry, file: SPOKEN });
        assert_eq!(!conclusion.decisions.is_empty(), accepted, "{start:?} {started_at:?}");
        assert_eq!(conclusion.evidence.len(), 1);
        assert_eq!(conclusion.evidence[0].verdict == EvidenceVerdict::Accepted, accepted);
    }
}

#[test]
fn other_processes_do_not_concern_us() {
    let mut run = assigned();
    assert_eq!(run.other_process(100, 200, "b"), NOTHING);
    assert_eq!(run.other_process(200, 200, "c"), NOTHING);
    let file = new_file("e", Some(FOLDER), SPOKEN);
    assert_eq!(run.feed(400, file), NOTHING, "the newest file of the folder is no evidence");
    assert_eq!(run.tick(9000), NOTHING);
}

#[test]
fn a_stale_registry_is_overruled_by_the_log() {
    let mut run = assigned();
    run.registry(900, "a", Beginning::Absent);
    assert_eq!(run.typed(10_000, "a", true), NOTHING, "a command alone ends nothing");
    assert_eq!(run.0.wake_at(Timestamp(10_000)), None);
    assert_eq!(run.cleared_file(10_400, "b", 10_003), NOTHING);
    assert_eq!(run.0.wake_at(Timestamp(10_400)), Some(Timestamp(11_400)));
    assert_eq!(run.tick(11_399), NOTHING);
    assert_eq!(run.tick(11_400), ["clear to b log"]);
    assert_eq!(run.0.wake_at(Timestamp(11_400)), None);
    assert_eq!(run.registry(12_000, "a", SPOKEN), NOTHING, "it still names the old one");
    // The next clear is typed in b.
    run.typed(20_000, "b", true);
    run.cleared_file(20_300, "c", 20_005);
    assert_eq!(run.tick(21_300), ["clear to c log"]);
}

#[test]
fn without_any_registry_the_log_suffices_and_a_late_first_entry_is_stale() {
    let mut run = assigned();
    run.typed(1000, "a", true);
    run.cleared_file(1300, "b", 1010);
    assert_eq!(run.tick(2300), ["clear to b log"]);
    assert_eq!(run.registry(2500, "a", SPOKEN), NOTHING);
    assert_eq!(run.registry(2600, "c", Beginning::Absent), ["clear to c registry"], "a change is news");
}

#[test]
fn the_registry_is_faster_and_the_log_then_adds_nothing() {
    let mut run = assigned();
    run.registry(900, "a", Beginning::Absent);
    run.typed(1000, "a", true);
    assert_eq!(run.registry(1080, "b", Beginning::Absent), ["clear to b registry"]);
    assert_eq!(run.cleared_file(1300, "b", 1003), NOTHING);
    assert_eq!(run.tick(9000), NOTHING);
}

#[test]
fn a_queued_clear_waits_for_its_file_and_a_refused_one_for_ever() {
    let mut run = assigned();
    run.typed(1000, "a", true); // queued during an answer
    assert_eq!(run.typed(2000, "a", false), NOTHING); // typed while it still waits
    run.cleared_file(5800, "b", 5400);
    assert_eq!(run.tick(6800), ["clear to b log"]);

    let mut run = assigned();
    run.typed(1000, "a", true); // `/some-command`, which did not clear
    run.typed(8000, "a", false); // later than the clear below: we were still in `a`
    run.cleared_file(7000, "b", 6500);
    assert_eq!(run.tick(9000), NOTHING);
}

#[test]
fn a_clear_from_before_the_command_or_elsewhere_is_not_ours() {
    for (what, cwd, at) in [
        ("before the command", FOLDER, 900),
        ("before this process", FOLDER, -1),
        ("in another folder", "/home/dev/other", 1003),
    ] {
        let mut run = assigned();
        run.typed(1000, "a", true);
        let beginning = Beginning::Cleared { at: Timestamp(at) };
        run.feed(1300, new_file("b", Some(cwd), beginning));
        assert_eq!(run.tick(9000), NOTHING, "{what}");
    }
    let mut run = assigned();
    run.cleared_file(1300, "b", 1003);
    assert_eq!(run.tick(9000), NOTHING, "no command of ours");
    run.typed(10_000, "x", true);
    assert_eq!(run.tick(11_000), NOTHING, "somebody else's");
}

#[test]
fn a_file_is_considered_once_its_beginning_is_readable() {
    let mut run = assigned();
    run.typed(1000, "a", true);
    let silent = new_file("b", None, Beginning::Silent);
    assert_eq!(run.feed(1200, silent), NOTHING);
    assert_eq!(run.tick(3000), NOTHING);
    run.cleared_file(3100, "b", 1003);
    assert_eq!(run.tick(4100), ["clear to b log"]);
}

#[test]
fn three_clears_in_a_row_are_followed_one_by_one() {
    let mut run = assigned();
    for (command, file, at) in [("a", "b", 1000), ("b", "c", 1400), ("c", "d", 1800)] {
        run.typed(at, command, true);
        run.cleared_file(at + 300, file, at + 5);
    }
    assert_eq!(run.tick(9000), ["clear to b log", "clear to c log", "clear to d log"]);
}

/// Two wrappers, one folder, the same millisecond, no registry.
fn two_at_once() -> Run {
    let mut run = assigned();
    run.typed(1000, "a", true);
    run.typed(1000, "x", true);
    run.cleared_file(1300, "b", 1003);
    assert_eq!(run.tick(2300), NOTHING, "one file, two who may have made it: wait");
    run.cleared_file(2400, "y", 1003);
    assert_eq!(run.tick(3400), ["clear to ? log", "ambiguous b y"]);
    assert_eq!(run.0.current(), None);
    run
}

#[test]
fn two_that_clear_at_once_are_ambiguous_until_one_file_is_claimed() {
    let mut run = two_at_once();
    assert_eq!(run.tick(9000), NOTHING);
    assert_eq!(run.typed(9100, "y", false), NOTHING, "a prompt in one of them does not say whose it is");
    assert_eq!(run.other_process(9200, 200, "y"), ["bind b log"]);

    let mut run = two_at_once();
    assert_eq!(run.registry(9000, "y", Beginning::Absent), ["bind y registry"], "our own entry, late");
    assert_eq!(run.tick(9001), NOTHING);
}

#[test]
fn three_at_once_are_narrowed_down() {
    let mut run = assigned();
    for session in ["a", "x", "z"] {
        run.typed(1000, session, true);
    }
    for file in ["b", "y", "w"] {
        run.cleared_file(1300, file, 1003);
    }
    assert_eq!(run.tick(2300), ["clear to ? log", "ambiguous b y w"]);
    assert_eq!(run.other_process(3000, 200, "y"), ["ambiguous b w"]);
    assert_eq!(run.other_process(3001, 300, "w"), ["bind b log"]);
}

#[test]
fn two_at_once_with_a_registry_are_not_ambiguous_at_all() {
    let mut run = assigned();
    run.registry(900, "a", Beginning::Absent);
    run.typed(1000, "a", true);
    run.typed(1000, "x", true);
    assert_eq!(run.other_process(1050, 200, "y"), NOTHING);
    assert_eq!(run.registry(1080, "b", Beginning::Absent), ["clear to b registry"]);
    run.cleared_file(1300, "b", 1003);
    run.cleared_file(1300, "y", 1003);
    assert_eq!(run.tick(9000), NOTHING);
}

#[test]
fn a_rival_whose_own_entry_shows_where_it_went_is_none() {
    // The other process has a working registry, ours has not.
    let both_clear = |run: &mut Run| {
        run.typed(1000, "a", true);
        run.typed(1000, "x", true);
        run.cleared_file(1300, "b", 1003);
        run.other_process(1350, 200, "y");
        run.cleared_file(1400, "y", 1003);
    };
    let mut run = assigned();
    run.other_process(500, 200, "x");
    both_clear(&mut run);
    assert_eq!(run.tick(9000), ["clear to b log"]);

    let mut run = assigned();
    both_clear(&mut run);
    assert_eq!(run.tick(9000), NOTHING, "nobody saw that y was x: x may have made b");
    assert_eq!(run.typed(9500, "x", false), ["clear to b log"], "x goes on in x");
}

#[test]
fn the_log_of_a_shared_conversation_decides_nothing() {
    let mut run = assigned();
    run.other_process(500, 200, "a");
    let conclusion = run.0.feed(
        Timestamp(1000),
        Signal::History(HistoryEntry {
            session: id("a"),
            at: Timestamp(1000),
            project: None,
            may_clear: true,
        }),
    );
    assert_eq!(conclusion.evidence[0].verdict, EvidenceVerdict::Rejected);
    run.cleared_file(1300, "b", 1003);
    assert_eq!(run.tick(9000), NOTHING);
    run.other_process(9100, 200, "b");
    assert_eq!(run.tick(9200), NOTHING, "it was the other one");
}

#[test]
fn the_agents_view_takes_a_conversation_into_the_background() {
    let mut run = assigned();
    run.registry(900, "a", Beginning::Absent);
    let process = ProcessId { pid: Pid(300), start: StartTime(7) };
    let foreign = Signal::Background { from: id("x"), to: id("y"), process, forked: false, begun_at: None };
    assert_eq!(run.feed(1000, foreign), NOTHING);
    let ours = Signal::Background { from: id("a"), to: id("b"), process, forked: false, begun_at: None };
    assert_eq!(run.feed(1000, ours), ["switch to b registry"]);
    assert_eq!(run.other_process(1100, 300, "b"), NOTHING);
    assert_eq!(run.registry(1200, "a", SPOKEN), NOTHING, "the old process has nothing new to say");
    assert_eq!(run.other_process(2000, 300, "c"), ["clear to c registry"], "the new one is ours now");
}

#[test]
fn a_launcher_that_is_a_script_hands_over_to_another_process() {
    let mut run = run();
    run.0.adopt(ProcessId { pid: Pid(101), start: StartTime(7) });
    assert_eq!(run.other_process(900, 101, "a"), ["bind a registry"]);
}

#[test]
fn every_signal_that_decides_or_is_rejected_is_explained() {
    let mut run = run();
    let first = run.explained(0, Signal::Assigned(id("a")));
    assert_eq!(first, [("assigned".into(), true, "a: the id stands in the arguments".into())]);
    let entry = |session: &str| Signal::Registry { entry: entry(100, session), file: Beginning::Absent };
    for (now, signal, source, accepted, value) in [
        (900, entry("a"), "registry", true, "a by pid 100: "),
        (1000, new_file("n", None, SPOKEN), "file", false, "n: "),
        (2000, entry("b"), "registry", true, "b by pid 100: "),
    ] {
        let explained = run.explained(now, signal);
        let [(from, verdict, detail)] = &explained[..] else { panic!("{explained:?}") };
        assert_eq!((from.as_str(), *verdict), (source, accepted), "{detail}");
        assert!(detail.starts_with(value) && detail.len() > value.len(), "{detail}");
    }
}

fn resuming() -> Run {
    let mut run = Run(Correlator::new(Method::Registry, AGENT, Timestamp(0)).resuming());
    assert_eq!(run.feed(0, Signal::Assigned(id("a"))), ["bind a assigned"]);
    run
}

/// Claude Code 2.1.100 with `--resume a`: it registers under a fresh id and 0.7 s later under that of the conversation.
#[test]
fn resume_id_with_placeholder_registers_no_clear() {
    let mut run = resuming();
    assert_eq!(run.registry(1000, "fresh", Beginning::Absent), NOTHING);
    assert_eq!(run.registry(1010, "fresh", Beginning::Absent), NOTHING);
    assert_eq!(run.registry(1700, "a", SPOKEN), NOTHING);
    assert_eq!(run.0.current(), Some(&id("a")));
    assert_eq!(run.registry(9000, "b", Beginning::Absent), ["clear to b registry"], "then as any other");
}

#[test]
fn a_resumed_conversation_that_registers_at_once_is_cleared_as_any_other() {
    let mut run = resuming();
    assert_eq!(run.registry(1000, "a", SPOKEN), NOTHING);
    assert_eq!(run.registry(9000, "b", Beginning::Absent), ["clear to b registry"]);
    let mut run = resuming();
    assert_eq!(run.registry(1000, "other", SPOKEN), ["switch to other registry"], "one that exists is none");
    assert_eq!(run.registry(9000, "b", Beginning::Absent), ["clear to b registry"]);
}

#[test]
fn a_placeholder_in_which_something_is_said_is_where_the_run_is() {
    for (beginning, expected) in [
        (Beginning::Silent, None),
        (Beginning::Cleared { at: Timestamp(3000) }, Some("clear to fresh registry")),
        (SPOKEN, Some("switch to fresh registry")),
    ] {
        let mut run = resuming();
        run.registry(1000, "fresh", Beginning::Absent);
        let decided = run.feed(3100, new_file("fresh", Some(FOLDER), beginning));
        assert_eq!(decided, expected.into_iter().collect::<Vec<_>>(), "{beginning:?}");
    }
}

fn made_by(maker: Maker, name: &str, beginning: Beginning) -> Signal {
    let Signal::NewFile(file) = new_file(name, Some(FOLDER), beginning) else { unreachable!() };
    Signal::NewFile(NewSessionFile { maker: Some(maker), ..file })
}

/// Versions before the registry: who else is in the folder decides.
#[test]
fn without_a_registry_a_file_is_ours_if_nobody_else_can_have_made_it() {
    let cleared = Beginning::Cleared { at: Timestamp(5000) };
    let earlier = Beginning::Cleared { at: Timestamp(-1) };
    let fresh = run as fn() -> Run;
    let continuing = || run().continuing();
    let table: &[(&str, fn() -> Run, Maker, Beginning, &[&str])] = &[
        ("first file", fresh, Maker::Ours, SPOKEN, &["bind n log"]),
        ("first file, others about", fresh, Maker::Settled, SPOKEN, &["ambiguous n"]),
        ("first file, others start", fresh, Maker::Anybody, SPOKEN, &["ambiguous n"]),
        ("first file, continued in a copy", continuing, Maker::Ours, COPIED, &["bind n log"]),
        ("cleared", assigned, Maker::Ours, cleared, &["clear to n log"]),
        ("cleared, others about", assigned, Maker::Settled, cleared, &[]),
        ("cleared before our start", assigned, Maker::Ours, earlier, &[]),
        ("a further file", assigned, Maker::Ours, SPOKEN, &[]),
        ("resumed in a copy", resuming, Maker::Ours, SPOKEN, &["switch to n log"]),
        ("resumed in a copy, others about", resuming, Maker::Settled, SPOKEN, &[]),
        ("resumed and cleared", resuming, Maker::Ours, cleared, &["clear to n log"]),
    ];
    for (what, begin, maker, beginning, expected) in table {
        let mut run = begin();
        let conclusion = run.0.feed(Timestamp(5100), made_by(*maker, "n", *beginning));
        assert_eq!(conclusion.decisions.iter().map(shown).collect::<Vec<_>>(), *expected, "{what}");
        assert_eq!(conclusion.evidence.len(), 1, "{what}: every file is explained");
    }
}

#[test]
fn without_a_registry_clears_follow_each_other() {
    let mut run = assigned();
    for (at, name) in [(1000, "b"), (2000, "c"), (3000, "d")] {
        let file = made_by(Maker::Ours, name, Beginning::Cleared { at: Timestamp(at) });
        assert_eq!(run.feed(at + 5, file), [format!("clear to {name} log")]);
    }
}

#[test]
fn without_a_registry_a_continued_conversation_is_the_one_continued() {
    let continuing = || run().continuing();
    let continued = |maker| Signal::Continued { id: id("o"), maker };
    assert_eq!(continuing().feed(900, continued(Maker::Ours)), ["bind o log"]);
    assert_eq!(continuing().feed(900, continued(Maker::Settled)), ["ambiguous o"]);
    assert_eq!(run().feed(900, continued(Maker::Ours)), NOTHING, "a new conversation was asked for");
    assert_eq!(assigned().feed(900, continued(Maker::Ours)), NOTHING);
}

/// Two that clear at once in one folder, where the clear bears the id of the last prompt before it.
#[test]
fn a_clear_that_bears_the_id_of_a_prompt_of_ours_is_ours() {
    let mut run = assigned();
    run.registry(900, "a", Beginning::Absent);
    run.typed(1000, "a", true);
    run.typed(1000, "x", true);
    let after = |name: &str, follows: Option<&str>| {
        let Signal::NewFile(file) = new_file(name, Some(FOLDER), Beginning::Cleared { at: Timestamp(1003) })
        else {
            unreachable!()
        };
        Signal::NewFile(NewSessionFile { follows: follows.map(id), ..file })
    };
    assert_eq!(run.feed(1300, after("y", None)), NOTHING);
    assert_eq!(run.feed(1300, after("b", Some("a"))), ["clear to b log"], "it names our conversation alone");
    assert_eq!(run.tick(9000), NOTHING);
}

#[test]
fn a_fork_goes_on_beside_the_conversation_and_is_decided_once() {
    let mut run = assigned();
    run.registry(900, "a", Beginning::Absent);
    let process = ProcessId { pid: Pid(300), start: StartTime(7) };
    let fork = |from: &str| Signal::Background {
        from: id(from),
        to: id("f"),
        process,
        forked: true,
        begun_at: Some(Timestamp(950)),
    };
    assert_eq!(run.feed(1000, fork("x")), NOTHING, "of another conversation");
    assert_eq!(run.feed(1000, fork("a")), ["forked to f in 300"]);
    assert_eq!(run.other_process(1000, 300, "f"), NOTHING);
    assert_eq!(run.feed(2000, fork("a")), NOTHING, "decided once");
    assert_eq!(run.0.current(), Some(&id("a")), "the terminal stays");
    assert_eq!(run.registry(3000, "b", Beginning::Absent), ["clear to b registry"]);
}

#[test]
fn a_conversation_given_to_the_background_is_a_switch() {
    let mut run = assigned();
    run.registry(900, "a", Beginning::Absent);
    assert_eq!(run.feed(1000, Signal::HandedOver { from: id("x"), to: id("y") }), NOTHING);
    assert_eq!(run.feed(1000, Signal::HandedOver { from: id("a"), to: id("b") }), ["switch to b log"]);
    assert_eq!(run.feed(1100, Signal::HandedOver { from: id("a"), to: id("b") }), NOTHING);
}
