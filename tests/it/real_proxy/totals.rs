//! Tokens per session: titles, compactions, routers, repeated and aborted calls included.

use std::collections::BTreeMap;

use crate::support::agents::Agent;
use crate::support::fake_api::{Call, Kind, Spent, Status};
use crate::support::pty::Exit;
use crate::support::run::AgentRun;
use crate::support::stage::Stage;
use types::Coverage;

use super::{aborted, await_total, billed, built_in_codex, configure, spent, told};

#[test]
fn claude_calls_are_all_counted() {
    let Some(stage) = Stage::set() else { return };
    configure(&stage, "");
    claude(&stage);
}

#[test]
fn claude_2_1_325_calls_are_all_counted() {
    let Some(stage) = Stage::set_version(Agent::Claude, "2.1.325") else { return };
    configure(&stage, "");
    claude(&stage);
}

/// Begins an answer and stops it in the middle. Codex shows that it is at work only until the answer's first words have come.
fn break_off(run: &AgentRun, at_work: &str) {
    const PROMPT: &str = "stop [hold never]";
    let since = run.ask(PROMPT);
    run.wait_call("the answer begun", since, |call| call.prompt.contains("stop"));
    run.wait_for("the agent at work", |_, view| {
        let text = view.text();
        text.contains(at_work) || text.rsplit(PROMPT).next().is_some_and(|answer| answer.contains("held"))
    });
    run.terminal.send("\x1b");
    run.wait_call("the agent hang up", since, |call| call.status == Status::Aborted);
    if run.agent == Agent::Qwen {
        // It gives the prompt back to be changed.
        run.wait_composer(PROMPT);
        run.terminal.send("\x15");
    }
    run.wait_ready();
}

fn claude(stage: &Stage) {
    let claude = AgentRun::start(stage, Agent::Claude, &[]);
    claude.prompt("first [together [run echo a] [run echo b]]");
    claude.command("/compact");
    claude.wait_call("a compaction", 0, |call| call.kind == Kind::Compact && call.status == Status::Complete);
    claude.wait_ready();
    claude.prompt("again [error 529 x1]");
    claude.clear();
    claude.prompt("second [subagent count things [run echo sub]]");
    break_off(&claude, "esc to interrupt");
    assert_eq!(claude.exit(), Exit::Code(0));

    let log = stage.api.log();
    let records = await_total(stage, Agent::Claude, told(&log), &log);
    assert_eq!(aborted(stage, Agent::Claude), 1, "\n{log}");
    let bills = billed(stage, Agent::Claude);
    for session in log.sessions() {
        let expected = log.of_session(&session).map(|call| call.told).sum();
        let record = &records[&session];
        assert_eq!(spent(record), expected, "{session}\n{log}");
        assert_eq!(record.usage.coverage, Coverage::Complete, "{session}\n{log}");
        // What the transcript holds is what a run without the proxy counts (`real_sessions`); all else only the proxy saw. An
        // answer that was broken off stands in the transcripts of newer versions, with its last numbers.
        let missed = log.of_session(&session).filter(|call| !call.recorded() && call.told.calls > 0);
        assert!(missed.count() > 0, "{session}\n{log}");
        let parts = [false, true].map(|aborted| {
            let holds = |call: &&Call| call.recorded() || aborted && call.status == Status::Aborted;
            let (held, missed): (Vec<_>, Vec<_>) = log.of_session(&session).partition(holds);
            [held, missed].map(|calls| {
                let sum: Spent = calls.into_iter().map(|call| call.told).sum();
                Spent { reasoning: 0, ..sum }
            })
        });
        assert!(parts.contains(&bills[&session]), "{session}: {:?}, not {parts:?}\n{log}", bills[&session]);
    }
}

#[test]
fn codex_calls_are_all_counted() {
    let Some(stage) = Stage::set() else { return };
    configure(&stage, "");
    built_in_codex(&stage);
    let codex = AgentRun::start(&stage, Agent::Codex, &[]);
    codex.prompt("first [run echo a] [write notes.txt]");
    codex.command("/compact");
    codex.wait_call("a compaction", 0, |call| call.kind == Kind::Compact && call.status == Status::Complete);
    codex.wait_ready();
    codex.prompt("again [error 500 x1]");
    codex.clear();
    codex.prompt("second [subagent say hello]");
    codex
        .wait_call("the sub-agent's answer", 0, |c| c.kind == Kind::Subagent && c.status == Status::Complete);
    codex.wait_ready();
    break_off(&codex, "esc to interrupt");
    assert_eq!(codex.exit(), Exit::Code(0));

    let log = stage.api.log();
    let records = await_total(&stage, Agent::Codex, told(&log), &log);
    assert_eq!(aborted(&stage, Agent::Codex), 1, "\n{log}");
    // A title is asked for in a hidden thread of its own: it belongs to the conversation that it names.
    let (mut current, mut sums) = (String::new(), BTreeMap::<String, Spent>::new());
    for call in &log.calls {
        if call.kind != Kind::Title {
            current = call.session.clone().unwrap();
        }
        *sums.entry(current.clone()).or_default() += call.told;
    }
    for (session, expected) in sums {
        assert_eq!(spent(&records[&session]), expected, "{session}\n{log}");
        assert_eq!(records[&session].usage.coverage, Coverage::Complete, "{session}\n{log}");
    }
}

/// What it suggests to type next, too, which it writes nowhere.
#[test]
fn qwen_calls_are_all_counted() {
    let Some(stage) = Stage::set() else { return };
    configure(&stage, "");
    let qwen = AgentRun::start(&stage, Agent::Qwen, &["--yolo"]);
    qwen.prompt("first [run echo a]");
    qwen.clear();
    qwen.prompt("second");
    let since = stage.api.log().calls.len();
    qwen.prompt("third");
    qwen.wait_call("a suggestion", since, |call| {
        call.kind == Kind::Suggestion && call.status == Status::Complete
    });
    break_off(&qwen, "esc to cancel");
    assert_eq!(qwen.exit(), Exit::Code(0));

    let log = stage.api.log();
    let records = await_total(&stage, Agent::Qwen, told(&log), &log);
    assert!(records.values().all(|record| record.usage.coverage == Coverage::Complete), "{records:?}\n{log}");
    // What a run without the proxy counts (`real_sessions`), and what only the proxy saw.
    let bills = billed(&stage, Agent::Qwen);
    let (held, missed): (Vec<_>, Vec<_>) = log.calls.iter().partition(|call| call.recorded());
    for (at, calls) in [held, missed].into_iter().enumerate() {
        let expected: Spent = calls.into_iter().map(|call| call.told).sum();
        let billed: Spent = bills.values().map(|bill| bill[at]).sum();
        assert_eq!(billed, Spent { reasoning: 0, ..expected }, "part {at} of {bills:?}\n{log}");
    }
}

#[test]
fn gemini_calls_are_all_counted() {
    let Some(stage) = Stage::set() else { return };
    configure(&stage, "");
    let gemini = AgentRun::start(&stage, Agent::Gemini, &["--approval-mode", "yolo"]);
    gemini.prompt("first [run echo a]");
    gemini.clear();
    gemini.prompt("second [subagent say hello]");
    break_off(&gemini, "esc to cancel");
    assert_eq!(gemini.exit(), Exit::Code(0));

    let log = stage.api.log();
    let records = await_total(&stage, Agent::Gemini, told(&log), &log);
    assert_eq!(aborted(&stage, Agent::Gemini), 1, "\n{log}");
    assert!(log.calls.iter().any(|call| call.kind == Kind::Router), "\n{log}");
    assert!(records.values().all(|record| record.usage.coverage == Coverage::Complete), "{records:?}\n{log}");
}
