//! What a person sees after the start of a real agent: the screen once nothing changes in it any more, bare and through codemie.

use std::time::Duration;

use crate::support::agents::{Agent, in_full_form};
use crate::support::pty::Start;
use crate::support::run::AgentRun;
use crate::support::stage::{Form, Stage};

/// How long a screen stays the same before it counts as settled. Codex shows its warnings within a second of its prompt; hints
/// that take turns on a timer come later, so the long form looks for the time in which a person would see one.
fn quiet_time() -> Duration {
    let full = std::env::var_os("CODEMIE_TEST_FULL").is_some();
    Duration::from_secs(if full { 30 } else { 3 })
}

/// A screen that changes more often than this never settles.
const CHANGES: usize = 100;

#[test]
fn claude_starts_with_the_same_screen() {
    starts_with_the_same_screen(Agent::Claude, &|_, bare| bare);
}

#[test]
fn gemini_starts_with_the_same_screen() {
    starts_with_the_same_screen(Agent::Gemini, &|_, bare| bare);
}

#[test]
fn qwen_starts_with_the_same_screen() {
    if in_full_form() {
        starts_with_the_same_screen(Agent::Qwen, &|_, bare| bare);
    }
}

/// The known difference: up to 0.166.0 Codex offers its list of agents only as a client of its shared server. 0.169.0 has one in
/// its own process.
#[test]
fn codex_starts_with_the_same_screen_but_for_the_list_of_agents() {
    starts_with_the_same_screen(Agent::Codex, &|stage, bare| {
        assert!(bare.contains("← for agents"), "bare Codex is no client of its server:\n{bare}");
        let in_own_process = stage.home.version(Agent::Codex) >= (0, 169, 0);
        if in_own_process { bare } else { bare.replace("← for agents · ", "") }
    });
}

/// `expected`: what codemie is known to make of the bare agent's screen.
fn starts_with_the_same_screen(agent: Agent, expected: &dyn Fn(&Stage, String) -> String) {
    let Some(stage) = Stage::set() else { return };
    // Each with a home of its own: agents note how often they were started.
    let bare = stage.another();
    let shown_bare = settled(&bare, agent, vec![bare.home.program(agent).into()]);
    let shown = settled(&stage, agent, stage.argv(agent, Form::Wrapped, &[""; 0]));
    assert_eq!(shown, expected(&stage, shown_bare), "{} through codemie, and bare", agent.name());
}

fn settled(stage: &Stage, agent: Agent, argv: Vec<std::ffi::OsString>) -> String {
    let run = AgentRun { terminal: stage.prepare(Start::new(argv)).spawn(), agent, stage };
    run.wait_ready();
    for _ in 0..CHANGES {
        let shown = masked(stage, &run.terminal.text());
        if !run.terminal.holds_within(quiet_time(), |view| masked(stage, &view.text()) != shown) {
            return shown;
        }
    }
    panic!("the screen of {} never settles:\n{}", agent.name(), run.terminal.text());
}

/// Without what differs between two starts of the same program: the name of the home.
fn masked(stage: &Stage, screen: &str) -> String {
    let home = stage.home.path().file_name().unwrap().to_str().unwrap();
    screen.replace(home, "HOME")
}
