//! What is known of each version of Claude Code, scenario by scenario: all of it, or less, and then `explain` says why. Never a
//! wrong number, never an event of something that did not happen.

use std::fmt::Write;

use types::SessionRecord;
use types::Status;

use super::scene::Scene;
use super::story::{Recorded, spent, story};
use crate::support::agents::Agent;
use crate::support::pty::Exit;
use crate::support::run::AgentRun;

macro_rules! versions {
    ($($(#[$attribute:meta])* $name:ident: $version:literal, $expected:expr;)+) => {$(
        $(#[$attribute])*
        #[test]
        fn $name() {
            row($version, $expected);
        }
    )+};
}

/// What a cell must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    All,
    /// Less, and this is what `explain` says of it.
    Less(&'static str),
}

use Known::{All, Less};

const WHOSE: &str = "begins with a clear that may be ours";
/// Who went on with a conversation is certain only if it was seen within a second.
const WHO: &str = "gone on with, but another process";
const LONG: [Known; 5] = [All; 5];
const NO_REGISTRY: [Known; 5] = [All, All, Less(WHO), All, Less(WHOSE)];

// In the order of SCENARIOS.
versions! {
    #[ignore = "an older version; tests/run.sh --full runs it"]
    claude_1_0_123: "1.0.123", NO_REGISTRY;
    #[ignore = "an older version; tests/run.sh --full runs it"]
    claude_2_0_22: "2.0.22", NO_REGISTRY;
    #[ignore = "an older version; tests/run.sh --full runs it"]
    claude_2_0_74: "2.0.74", NO_REGISTRY;
    #[ignore = "an older version; tests/run.sh --full runs it"]
    claude_2_1_100: "2.1.100", LONG;
    #[ignore = "an older version; tests/run.sh --full runs it"]
    claude_2_1_259: "2.1.259", LONG;
    #[ignore = "every scenario of it is a test of its own; tests/run.sh --full runs it"]
    claude_2_1_325: "2.1.325", LONG;
}

/// The usual version, which may be whatever is newest.
#[test]
#[ignore = "every scenario of it is a test of its own; tests/run.sh --full runs it"]
fn usual() {
    table("usual", || Scene::set(Agent::Claude), LONG);
}

fn row(version: &str, expected: [Known; 5]) {
    table(version, || Scene::set_version(Agent::Claude, version), expected);
}

type Scenario = fn(&Scene) -> Vec<String>;

/// Each plays on a stage of its own and returns the story of all that happened.
const SCENARIOS: [(&str, Scenario); 5] = [
    ("prompts and /clear", cleared),
    ("--resume ID", resumed),
    ("--continue", continued),
    ("-p", printed),
    ("two at once", two_at_once),
];

fn table(version: &str, set: impl Fn() -> Option<Scene>, expected: [Known; 5]) {
    let mut table = format!("{version:<8}");
    for ((name, play), expected) in SCENARIOS.iter().zip(expected) {
        let Some(scene) = set() else { return };
        let truth = play(&scene);
        let known = judge(&scene, &truth);
        let shown = if known { "right" } else { "less, and says so" };
        write!(table, " | {name}: {shown}").unwrap();
        match expected {
            All => assert!(known, "{version}, {name}: {truth:#?}\n{}", scene.picture()),
            Less(why) => {
                // Less is what is expected; if all is known, the better.
                let told = scene.recorded().iter().any(|session| {
                    scene.evidence(&session.record).iter().any(|evidence| evidence.detail.contains(why))
                });
                assert!(known || told, "{version}, {name} does not say {why:?}: {}", scene.picture());
            }
        }
    }
    println!("{table}");
}

/// Whether all of what happened is known. What is known is right in any case, or this fails.
fn judge(scene: &Scene, truth: &[String]) -> bool {
    let (recorded, log) = (scene.recorded(), scene.log());
    let mut whole = true;
    for Recorded { record, .. } in &recorded {
        assert_ne!(record.status, Status::Active, "{}", scene.picture());
        if let Some(id) = &record.correlation.agent_session_id {
            let (ours, theirs) = (spent(record), log.recorded(&id.0));
            whole &= ours == theirs;
            assert!(ours.calls <= theirs.calls, "{}: {}", record.session_id, scene.picture());
        } else {
            assert_eq!(record.usage.api_calls, 0, "{}", scene.picture());
        }
    }
    let mut conversations: Vec<_> =
        recorded.iter().filter_map(|session| session.record.correlation.agent_session_id.clone()).collect();
    let bound = conversations.len();
    conversations.sort();
    conversations.dedup();
    assert_eq!(conversations.len(), bound, "one session, one conversation: {}", scene.picture());
    // By which evidence is not of interest here.
    let story: Vec<String> = story(&recorded, &log).iter().map(|line| without_evidence(line)).collect();
    assert!(story.len() <= truth.len(), "more happened than did: {truth:#?}\n{}", scene.picture());
    let mut sorted = (story, truth.to_vec());
    sorted.0.sort();
    sorted.1.sort();
    whole && sorted.0 == sorted.1
}

fn without_evidence(line: &str) -> String {
    ["assigned", "registry", "log"]
        .iter()
        .fold(line.to_owned(), |line, kind| line.replace(&format!(" by {kind}"), ""))
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

fn cleared(scene: &Scene) -> Vec<String> {
    let claude = scene.start(&[]);
    claude.prompt("one");
    claude.prompt("two");
    claude.clear();
    claude.prompt("three");
    claude.clear();
    claude.prompt("four");
    assert_eq!(claude.exit(), Exit::Code(0));
    lines(&[
        "A startup [one | two] clear -> B",
        "B clear from A [three] clear -> C",
        "C clear from B [four] exit 0",
    ])
}

/// One prompt in a run that has ended.
fn began(scene: &Scene) -> String {
    let claude = scene.start(&[]);
    let id = claude.prompt("one").session.unwrap();
    assert_eq!(claude.exit(), Exit::Code(0));
    id
}

fn resumed(scene: &Scene) -> Vec<String> {
    let id = began(scene);
    let claude = scene.start(&["--resume", &id]);
    claude.prompt("two");
    // 2.1.100 may write nothing of a new conversation before its first prompt, after a resume.
    AgentRun::clear(&claude);
    claude.prompt("three");
    assert_eq!(claude.exit(), Exit::Code(0));
    lines(&["A startup+resume [one | two] clear -> B", "B clear from A [three] exit 0"])
}

fn continued(scene: &Scene) -> Vec<String> {
    began(scene);
    let claude = scene.start(&["--continue"]);
    claude.prompt("two");
    // Whether codemie has seen it or not.
    AgentRun::clear(&claude);
    claude.prompt("three");
    assert_eq!(claude.exit(), Exit::Code(0));
    lines(&["A startup+resume [one | two] clear -> B", "B clear from A [three] exit 0"])
}

fn printed(scene: &Scene) -> Vec<String> {
    for prompt in ["one", "two"] {
        let out = scene.print(&["-p", prompt], "");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    lines(&["A startup [one] exit 0", "B startup [two] exit 0"])
}

/// Two runs in one folder that clear at the same moment. Which of them is which letter is their affair.
fn two_at_once(scene: &Scene) -> Vec<String> {
    let pair = [scene.start(&[]), scene.start(&[])];
    for (run, name) in pair.iter().zip(["left", "right"]) {
        run.prompt(name);
    }
    for run in &pair {
        run.type_text("/clear");
    }
    for run in &pair {
        run.enter();
    }
    for run in &pair {
        run.wait_for("an empty screen", |_, view| !view.text().contains("pong-"));
        run.wait_ready();
    }
    for (run, name) in pair.iter().zip(["left again", "right again"]) {
        run.prompt(name);
    }
    for run in &pair {
        assert_eq!(run.exit(), Exit::Code(0));
    }
    let recorded = scene.recorded();
    let records: Vec<&SessionRecord> = recorded.iter().map(|session| &session.record).collect();
    let log = scene.log();
    let said = |record: &SessionRecord, name: &str| {
        let id = record.correlation.agent_session_id.as_ref();
        id.is_some_and(|id| log.of_session(&id.0).any(|call| call.prompt.trim() == name))
    };
    let letter = |name: &str, otherwise: char| {
        let at = records.iter().position(|record| said(record, name));
        at.map_or(otherwise, |at| char::from(b'A' + u8::try_from(at).unwrap()))
    };
    let (left, right) = (letter("left", 'A'), letter("right", 'B'));
    let (left_again, right_again) = (letter("left again", 'C'), letter("right again", 'D'));
    vec![
        format!("{left} startup [left] clear -> {left_again}"),
        format!("{right} startup [right] clear -> {right_again}"),
        format!("{left_again} clear from {left} [left again] exit 0"),
        format!("{right_again} clear from {right} [right again] exit 0"),
    ]
}
