//! Four runs at once, and one budget that all of them keep to.

use std::process::Command;

use serde_json::Value;

use super::scene::{Scene, ScriptedRun, await_some, call};
use super::{conversation, ok};
use crate::support::fake_api::Status;
use crate::support::pty::{Exit, Start};

const RUNS: u32 = 4;
const BUDGET: f64 = 0.10;
/// Far more calls than the budget allows; bounds failures only.
const MOST_CALLS: usize = 400;

fn succeed(scene: &Scene, arguments: &[&str]) {
    let output = scene.codemie(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// Calls until it is refused; the refusal.
fn call_until_refused(address: &str, n: usize) -> String {
    for _ in 0..MOST_CALLS {
        let (status, body) = call(address, &conversation(n), "hello").unwrap();
        let body = String::from_utf8_lossy(&body).into_owned();
        match status {
            // What was begun is never cut.
            200 => assert!(body.contains("message_stop"), "{body}"),
            429 => return body,
            other => panic!("{other} {body}"),
        }
    }
    panic!("never refused");
}

#[test]
fn four_runs_at_once_keep_to_one_budget_and_go_on_when_it_is_raised() {
    let scene = Scene::set();
    succeed(&scene, &["budget", "set", "day", "0.10", "--enforce"]);
    let runs: Vec<ScriptedRun> =
        (0..RUNS as usize).map(|n| scene.start(&format!("run{n}"), &conversation(n), &[])).collect();
    let addresses: Vec<String> = runs.iter().map(ScriptedRun::address).collect();
    let refusals: Vec<String> = std::thread::scope(|scope| {
        let started: Vec<_> = addresses
            .iter()
            .enumerate()
            .map(|(n, address)| scope.spawn(move || call_until_refused(address, n)))
            .collect();
        started.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for refusal in &refusals {
        let answer: Value = serde_json::from_str(refusal).unwrap_or_else(|_| panic!("{refusal}"));
        assert_eq!(answer["type"], "error", "the API's own form: {refusal}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("codemie budget raise day"), "{message}");
    }
    // What was refused never reached the API, and what reached it is counted.
    let answered = scene.api.log().calls.iter().filter(|call| call.status == Status::Complete).count();
    let answered = u32::try_from(answered).unwrap();
    let total = await_some("all calls in the store", || {
        let usage = scene.json(&["usage", "--by", "session", "--json"]);
        let counted = usage["total"]["apiCalls"].as_u64()?;
        (counted == u64::from(answered)).then(|| usage["total"].clone())
    });
    let spent = total["costUsd"].as_f64().unwrap();
    let average = spent / f64::from(answered);
    eprintln!(
        "{answered} calls, ${spent:.4} of ${BUDGET:.2}: {:.1} calls beyond the budget",
        (spent - BUDGET).max(0.0) / average
    );
    assert!(answered > RUNS, "{total}");
    // Every call costs about the same.
    assert!(spent < BUDGET + average * 1.5, "{total}");
    let shown = scene.json(&["budget", "show", "--json"]);
    assert!((shown[0]["spentUsd"].as_f64().unwrap() - spent).abs() < 1e-9, "{shown} {total}");

    // By a person, in a terminal of their own.
    let raise = scene.codemie(&["budget", "raise", "day", "1"]);
    let apart = Command::new("setsid")
        .arg("--wait")
        .arg(raise.get_program())
        .args(raise.get_args())
        .env_clear()
        .env("CODEMIE_HOME", scene.codemie_home())
        .output()
        .unwrap();
    assert!(
        !apart.status.success() && String::from_utf8_lossy(&apart.stderr).contains("a terminal of their own"),
        "{apart:?}"
    );
    assert_eq!(Start::of(&raise).spawn().wait_exit(), Exit::Code(0));
    for (n, address) in addresses.iter().enumerate() {
        ok(address, &conversation(n));
    }
    for run in runs {
        assert!(run.end().status.success());
    }
    scene.wait_gone();
}
