//! Traces in, decisions out. A step is a time in ms, a trace in words, and the decisions that must follow.

use super::super::Method;
use super::super::tests::{AGENT, Run, assigned_by, id, run_by};
use super::*;

fn run() -> Run {
    run_by(Method::Folder)
}

fn assigned() -> Run {
    assigned_by(Method::Folder)
}

/// - `clear WHO AT`, `prompt WHO AT TEXT`: typed by the process whose first conversation is WHO
/// - `begun ID AT MAKER`: a new file; `stub ID AT MAKER`: a header of an older conversation
/// - `entered ID MAKER`, `written ID AT TEXT`, `tick`, `assigned ID`
fn signal(text: &str) -> Signal {
    let words: Vec<&str> = text.split(' ').collect();
    let at = |n: usize| Timestamp(words[n].parse().unwrap());
    let maker = |n: usize| match words[n] {
        "ours" => Maker::Ours,
        "settled" => Maker::Settled,
        "anybody" => Maker::Anybody,
        other => panic!("{other}"),
    };
    let typed = |what| Trace::Typed { under: id(words[1]), at: at(2), what };
    let trace = match words[0] {
        "tick" => return Signal::Tick,
        "assigned" => return Signal::Assigned(id(words[1])),
        "clear" => typed(Typed::Clear),
        "prompt" => typed(Typed::Prompt(TextFingerprint::of(words[3]))),
        "begun" => Trace::Begun { id: id(words[1]), at: at(2), known: false, maker: maker(3) },
        "stub" => Trace::Begun { id: id(words[1]), at: at(2), known: true, maker: maker(3) },
        "entered" => Trace::Entered { id: id(words[1]), maker: maker(2) },
        "written" => Trace::Prompted { id: id(words[1]), at: at(2), text: TextFingerprint::of(words[3]) },
        other => panic!("{other}"),
    };
    Signal::Trace(trace)
}

type Step = (i64, &'static str, &'static [&'static str]);

fn play(mut run: Run, steps: &[Step]) {
    for (number, (now, text, expected)) in steps.iter().enumerate() {
        assert_eq!(run.feed(*now, signal(text)), *expected, "step {number}: {text} at {now}");
    }
}

const NONE: &[&str] = &[];

/// Gemini up to 0.33: the first `/clear` goes on under the same id, and a file begins with the first prompt, however late.
#[test]
fn a_clear_that_goes_on_under_the_same_id_is_none() {
    play(
        assigned(),
        &[
            (910, "begun a 900 ours", NONE),
            (911, "prompt a 890 one", NONE),
            (950, "written a 900 one", NONE),
            (1001, "clear a 1000", NONE),
            (5001, "prompt a 5000 two", NONE),
            (5050, "written a 5040 two", NONE),
            // Or in another file of that id, when a minute has passed.
            (70_000, "stub a 69990 ours", NONE),
            (80_000, "clear a 79990", NONE),
            (200_010, "begun b 200000 ours", NONE),
            (200_011, "prompt a 199990 three", NONE),
            (200_012, "written b 200000 three", &["clear to b log"]),
            (300_000, "tick", NONE),
        ],
    );
}

#[test]
fn alone_in_the_folder_a_clear_is_known_with_its_file() {
    play(
        assigned(),
        &[
            (10, "begun a 5 ours", NONE),
            (900, "prompt a 890 one", NONE),
            (950, "written a 940 one", NONE),
            (1001, "clear a 1000", NONE),
            (1040, "begun b 1035 ours", &["clear to b log"]),
            // It logs under its first conversation for good.
            (2001, "clear a 2000", NONE),
            (2040, "begun c 2035 ours", &["clear to c log"]),
            (9000, "tick", NONE),
        ],
    );
}

#[test]
fn two_clears_seen_in_one_look_are_two_conversations() {
    play(
        assigned(),
        &[
            (1000, "clear a 900", NONE),
            (1000, "clear a 950", NONE),
            (1000, "begun b 910 ours", &["clear to b log"]),
            (1000, "begun c 960 ours", &["clear to c log"]),
        ],
    );
}

#[test]
fn a_command_that_no_file_follows_cleared_nothing() {
    // Typed in shell mode it is only text.
    play(
        assigned(),
        &[
            (1000, "clear a 1000", NONE),
            (5000, "prompt a 5000 on", NONE),
            (5100, "written a 5090 on", NONE),
            (6000, "clear a 6000", NONE),
            (6040, "begun b 6035 ours", &["clear to b log"]),
        ],
    );
    // And one that waited for too long.
    play(
        assigned(),
        &[(1000, "clear a 1000", NONE), (90_000, "tick", NONE), (90_001, "begun b 90000 settled", NONE)],
    );
}

#[test]
fn the_first_conversation_without_an_id_is_certain_only_when_alone() {
    play(
        run(),
        &[
            (900, "begun a 890 ours", &["bind a log"]),
            (1000, "clear a 999", NONE),
            (1001, "begun b 1000 ours", &["clear to b log"]),
        ],
    );
    play(
        run(),
        &[(900, "begun a 890 settled", NONE), (2900, "begun b 2890 anybody", NONE), (90_000, "tick", NONE)],
    );
    play(run(), &[(900, "begun a -5 ours", NONE)]); // before our start
    play(run(), &[(900, "entered a ours", NONE)]); // a fresh run goes on with nothing
    // What others type is nothing to a run that is nobody yet.
    play(
        run(),
        &[
            (900, "begun a 890 anybody", NONE),
            (1000, "prompt a 1000 one", NONE),
            (1100, "written a 1090 one", NONE),
        ],
    );
}

#[test]
fn a_run_that_continues_is_in_what_was_gone_on_with() {
    let continuing = || run().continuing();
    play(continuing(), &[(900, "stub o 890 ours", &["bind o log"]), (910, "entered o ours", NONE)]);
    play(continuing(), &[(900, "entered o ours", &["bind o log"])]);
    play(continuing(), &[(900, "stub o 890 anybody", NONE), (910, "entered o settled", NONE)]);
    // There was nothing to go on with.
    play(continuing(), &[(900, "begun n 890 ours", &["bind n log"])]);
}

#[test]
fn two_that_clear_at_once_are_ambiguous_until_a_prompt_decides() {
    play(
        assigned(),
        &[
            (1001, "clear a 1000", NONE),
            (1001, "clear z 1000", NONE),
            (1040, "begun b 1035 anybody", &["clear to ? log", "ambiguous b"]),
            (1045, "begun c 1041 anybody", &["ambiguous b c"]),
            (9000, "tick", NONE),
            (9001, "prompt z 9000 theirs", NONE),
            (9101, "written b 9100 theirs", NONE),
            (9201, "prompt a 9200 ours", NONE),
            (9301, "written c 9300 ours", &["bind c log"]),
            (9400, "clear a 9400", NONE),
            (9440, "begun d 9435 ours", &["clear to d log"]),
        ],
    );
}

#[test]
fn a_text_that_both_typed_decides_nothing() {
    play(
        assigned(),
        &[
            (1001, "clear a 1000", NONE),
            (1001, "clear z 1000", NONE),
            (1040, "begun b 1035 settled", &["clear to ? log", "ambiguous b"]),
            (1041, "begun c 1036 settled", &["ambiguous b c"]),
            (2000, "prompt a 2000 same", NONE),
            (2000, "prompt z 2000 same", NONE),
            (2100, "written b 2090 same", NONE),
            (2100, "written c 2095 same", NONE),
            (3000, "prompt a 3000 more", NONE),
            (3100, "written b 3090 more", &["bind b log"]),
        ],
    );
}

#[test]
fn with_others_about_the_only_file_settles_and_a_second_one_does_not() {
    play(
        assigned(),
        &[
            (1001, "clear a 1000", NONE),
            (1040, "begun b 1035 settled", &["clear to ? log"]),
            (1900, "tick", NONE),
            (2040, "tick", &["bind b log"]),
        ],
    );
    play(
        assigned(),
        &[
            (1001, "clear a 1000", NONE),
            (1040, "begun b 1035 settled", &["clear to ? log"]),
            (1500, "begun c 1490 settled", &["ambiguous b c"]),
            (9000, "tick", NONE),
        ],
    );
    let mut waiting = assigned();
    waiting.feed(1001, signal("clear a 1000"));
    waiting.feed(1040, signal("begun b 1035 settled"));
    assert_eq!(waiting.0.wake_at(Timestamp(1041)), Some(Timestamp(2040)));
}

#[test]
fn what_another_process_cleared_is_not_ours() {
    play(
        assigned(),
        &[
            (1001, "clear z 1000", NONE),
            (1040, "begun b 1035 settled", NONE),
            (5000, "clear a 5000", NONE),
            (5040, "begun c 5035 settled", &["clear to ? log"]),
            (6040, "tick", &["bind c log"]),
        ],
    );
}

#[test]
fn a_clear_whose_line_was_lost_comes_out_with_the_next_prompt() {
    play(
        assigned(),
        &[
            (1001, "clear z 1000", NONE), // theirs overwrote ours
            (1040, "begun b 1035 settled", NONE),
            (1041, "begun c 1036 settled", NONE),
            (9000, "prompt a 9000 ours", NONE),
            (9100, "written b 9090 ours", &["clear to b log"]),
        ],
    );
}

#[test]
fn going_on_with_an_existing_conversation_is_a_switch() {
    play(
        assigned(),
        &[(1000, "prompt a 1000 /resume", NONE), (5000, "entered o ours", &["switch to o log"])],
    );
    // Not alone: the prompt decides.
    play(
        assigned(),
        &[
            (5000, "entered o settled", NONE),
            (6000, "prompt a 6000 there", NONE),
            (6100, "written o 6090 there", &["switch to o log"]),
            // And back.
            (7000, "prompt a 7000 back", NONE),
            (7100, "written a 7090 back", &["switch to a log"]),
        ],
    );
    play(assigned(), &[(5000, "entered a ours", NONE)]); // compressed
    // From a conversation that is still open.
    play(
        assigned(),
        &[
            (1001, "clear a 1000", NONE),
            (1040, "begun b 1035 anybody", &["clear to ? log", "ambiguous b"]),
            (6000, "prompt a 6000 there", NONE),
            (6100, "written o 6090 there", &["switch to o log"]),
        ],
    );
}

#[test]
fn an_agent_started_again_within_the_run_goes_by_a_new_name() {
    play(
        assigned(),
        &[
            (1000, "begun b 990 ours", NONE),
            (2000, "tick", &["clear to b log"]),
            (3000, "clear a 3000", NONE), // nobody goes by that name any more
            (3040, "begun x 3035 settled", NONE),
            (5000, "clear b 5000", NONE),
            (5040, "begun c 5035 ours", &["clear to c log"]),
        ],
    );
}

#[test]
fn a_name_that_two_processes_go_by_decides_nothing() {
    play(
        run(),
        &[
            (0, "assigned a", &["bind a assigned"]),
            (900, "stub a 890 settled", NONE),   // our own
            (5000, "stub a 4990 anybody", NONE), // another that resumes it
            (6000, "clear a 6000", NONE),
            (6040, "begun b 6035 anybody", NONE),
            (7000, "prompt a 7000 who", NONE),
            (7100, "written b 7090 who", NONE),
        ],
    );
}

#[test]
fn memory_is_bounded() {
    let mut state = RunState::new(AGENT, Timestamp(0));
    let mut folder = FolderRules::default();
    folder.assigned(&mut Context::new(Timestamp(0), &mut state), id("a"));
    for n in 0..1000_i64 {
        let mut context = Context::new(Timestamp(n), &mut state);
        for text in
            [format!("prompt z {n} w{n}"), format!("written y {n} v{n}"), format!("begun f{n} {n} settled")]
        {
            folder.feed(&mut context, signal(&text));
        }
    }
    assert!(folder.typed.len() <= MAX_REMEMBERED && folder.written.len() <= MAX_REMEMBERED);
    assert_eq!(folder.files.len(), MAX_REMEMBERED);
}
