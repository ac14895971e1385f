//! Many runs in one folder, one after the other and at once.

use std::collections::BTreeSet;
use std::thread;

use super::scene::Scene;
use crate::support::agents::Agent;
use crate::support::pty::Exit;
use crate::support::stage::Form;

on_both_versions!(two_that_clear_at_once, piped_as_if_bare);

fn two_that_clear_at_once(scene: &Scene) {
    two_clear(scene, "assigned", "registry");
}

/// Two runs of the scene's agent, each bound by `evidence` before and after.
pub(super) fn two_clear_at_once(scene: &Scene, evidence: &str) {
    two_clear(scene, evidence, evidence);
}

pub(super) fn two_clear(scene: &Scene, evidence: &str, after: &str) {
    // One after the other: two Codexes that set up their databases at once find them damaged.
    let pair = [scene.start(&[]), scene.start(&[])];
    for (run, name) in pair.iter().zip(["left", "right"]) {
        run.prompt(name);
    }
    let before = pair.each_ref().map(|run| run.session());
    for run in &pair {
        run.type_text("/clear");
    }
    for run in &pair {
        run.enter();
    }
    for (run, before) in pair.iter().zip(&before) {
        run.moves_from(before, |_| {});
    }
    for (run, name) in pair.iter().zip(["left again", "right again"]) {
        run.prompt(name);
    }
    for run in &pair {
        assert_eq!(run.exit(), Exit::Code(0));
    }
    // Which of two began first is their affair.
    let first = scene.recorded()[0].record.session_id == before[0].session_id;
    let third = scene.recorded()[2].record.transitioned_from.as_ref() == Some(&before[0].session_id);
    let side = |left: bool| if left { "left" } else { "right" };
    let letter = |left: bool, one: &'static str, other: &'static str| if left { one } else { other };
    let (c, d) = (letter(first == third, "C", "D"), letter(first == third, "D", "C"));
    let (a, b) = (letter(first == third, "A", "B"), letter(first == third, "B", "A"));
    scene.expect(&[
        &format!("A startup by {evidence} [{}] clear -> {c}", side(first)),
        &format!("B startup by {evidence} [{}] clear -> {d}", side(!first)),
        &format!("C clear from {a} by {after} [{} again] exit 0", side(third)),
        &format!("D clear from {b} by {after} [{} again] exit 0", side(!third)),
    ]);
}

fn piped_as_if_bare(scene: &Scene) {
    let bare = scene.stage.another();
    let expected = bare.pipe(Agent::Claude, Form::Bare, &["-p"], "say something");
    let got = scene.print(&["-p"], "say something");
    assert_eq!(String::from_utf8_lossy(&got.stdout), String::from_utf8_lossy(&expected.stdout));
    assert_eq!(String::from_utf8_lossy(&got.stderr), String::from_utf8_lossy(&expected.stderr));
    assert_eq!(got.status, expected.status);
    scene.expect(&["A startup by assigned [say something] exit 0"]);
}

#[test]
fn twenty_runs() {
    let Some(scene) = Scene::set(Agent::Claude) else { return };
    let print = |n: usize| {
        let out = scene.print(&["-p", &format!("number {n}")], "");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    (0..10).for_each(print);
    thread::scope(|scope| {
        for n in 10..20 {
            scope.spawn(move || print(n));
        }
    });
    let log = scene.stage.api.log();
    let recorded = scene.recorded();
    assert_eq!((recorded.len(), log.sessions().len()), (20, 20));
    let story: Vec<String> = super::story::story(&recorded, &log);
    let asked: BTreeSet<&str> = story.iter().map(|line| line.split(['[', ']']).nth(1).unwrap()).collect();
    assert_eq!(asked.len(), 20, "{story:#?}");
    let lines: Vec<&str> = story.iter().map(String::as_str).collect();
    for line in &lines {
        assert!(line.contains(" startup by ") && line.ends_with("] exit 0"), "{story:#?}");
    }
    // All the rest: distinct conversations, all matched, tokens to the last.
    scene.expect(&lines);
}
