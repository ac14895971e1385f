//! The real agents through codemie in a terminal: painted, answered, resized, suspended and resumed, left, and the
//! terminal as it was before; and in pipes, byte for byte what the bare agent writes.
//!
//! One run of each agent goes through all of it, because starting one takes seconds.

use rustix::process::Signal;

use crate::support::agents::Agent;
use crate::support::fake_api::{Status, Vendor};
use crate::support::pty::{Start, View};
use crate::support::run::AgentRun;
use crate::support::stage::{Form, Stage};

#[test]
fn claude_in_a_terminal() {
    in_a_terminal(Agent::Claude, Vendor::Anthropic);
}

#[test]
fn codex_in_a_terminal() {
    in_a_terminal(Agent::Codex, Vendor::OpenAi);
}

#[test]
fn gemini_in_a_terminal() {
    in_a_terminal(Agent::Gemini, Vendor::Google);
}

fn in_a_terminal(agent: Agent, vendor: Vendor) {
    let Some(stage) = Stage::set() else { return };
    let run = AgentRun::in_shell(&stage, agent);
    let shell = run.terminal.pid();
    let before = run.terminal.modes();
    run.type_command_line(&[]);

    // Gemini takes ^Z for "undo" once something was typed; Codex paints late when it is stopped while it starts.
    let suspend_first = agent == Agent::Gemini;
    let there_and_back = || {
        suspend(&run);
        assert_eq!(run.terminal.modes(), before, "the shell got another terminal than it had");
        assert_eq!(run.terminal.foreground(), shell);
        let mark = run.terminal.type_line("fg");
        // What was painted before is still on the screen; this says that the agent has taken the terminal again.
        let mark = run.terminal.wait_after(mark, "\x1b[?2004h");
        // Codex then throws away what was typed meanwhile, and paints after that.
        if agent == Agent::Codex {
            run.terminal.wait_after(mark, "Ask Codex");
        }
        run.wait_ready();
    };
    if suspend_first {
        there_and_back();
    }
    let first = run.prompt("say something");
    assert_eq!((first.vendor, first.status), (vendor, Status::Complete));
    // Larger, because a smaller screen also cuts what was painted before.
    run.terminal.resize(48, 140);
    run.wait_for("a picture of the new size", |agent, view| fills(agent, view, 48, 140));
    if !suspend_first {
        there_and_back();
    }
    let second = run.prompt("say more");
    assert_eq!(second.session, first.session);

    let mark = run.terminal.mark();
    run.command(run.exit_command());
    let mark = run.terminal.wait_prompt(mark);
    assert_eq!(run.terminal.modes(), before, "the terminal's modes were not put back");
    run.terminal.wait_for("everything the agent switched on to be off", |view| leftovers(view).is_empty());
    run.terminal.type_line("echo code=$?.");
    run.terminal.wait_after(mark, "code=0.");
    assert_eq!(stage.home.residents(), [shell], "somebody is left behind");
    assert_eq!(stage.api.log().strangers, [""; 0]);
}

/// Presses ^Z and waits for the shell. Gemini wants the key twice.
fn suspend(run: &AgentRun<'_>) {
    let mark = run.terminal.mark();
    run.terminal.send("\x1a");
    if run.agent == Agent::Gemini {
        run.terminal.wait_text("again to suspend");
        run.terminal.send("\x1a");
    }
    run.terminal.wait_prompt(mark);
}

/// Whether the agent has painted for a terminal of this size.
fn fills(agent: Agent, view: &mut View<'_>, rows: usize, columns: usize) -> bool {
    let text = view.text();
    match agent {
        Agent::Claude | Agent::Gemini => text.lines().any(|row| row == "─".repeat(columns)),
        // It paints no rule, but keeps its line at the foot of the screen.
        Agent::Codex => {
            text.lines().position(|row| row.starts_with("› Ask")).is_some_and(|row| row + 6 > rows)
        }
    }
}

/// What is still switched on in the terminal.
fn leftovers(view: &mut View<'_>) -> Vec<&'static str> {
    let count = |needle: &[u8]| memchr::memmem::find_iter(view.bytes, needle).count();
    // A push of keyboard flags that was not popped; the agents pop with and without a count.
    let pushed = count(b"\x1b[>1u") + count(b"\x1b[>7u");
    let keyboard = pushed > count(b"\x1b[<u") + count(b"\x1b[<1u");
    let screen = view.screen();
    [
        (keyboard, "keyboard flags"),
        (screen.alternate_screen(), "alternate screen"),
        (screen.bracketed_paste(), "bracketed paste"),
        (screen.hide_cursor(), "hidden cursor"),
        (screen.application_cursor(), "application cursor keys"),
        (screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None, "mouse"),
    ]
    .into_iter()
    .filter_map(|(on, name)| on.then_some(name))
    .collect()
}

/// Claude ends by itself with 143, Codex dies of the signal, Gemini, once the signal reaches more than its launcher, with 0.
#[test]
fn a_signal_ends_the_agents() {
    let Some(stage) = Stage::set() else { return };
    let fresh = Start::new(["true"]).spawn();
    fresh.wait_exit();
    let before = fresh.modes();
    for (agent, code) in [(Agent::Claude, 143), (Agent::Codex, 143), (Agent::Gemini, 0)] {
        let run = AgentRun::start(&stage, agent, &[]);
        run.signal(Signal::TERM);
        assert_eq!(run.terminal.wait_exit().shell_code(), code, "{}", agent.name());
        assert_eq!(run.terminal.modes(), before, "{}", agent.name());
        run.terminal
            .wait_for("everything the agent switched on to be off", |view| leftovers(view).is_empty());
        assert_eq!(stage.home.residents(), [0; 0], "{} left somebody behind", agent.name());
    }
}

/// Each with a home and an API of its own, so that both get the same answers.
#[test]
fn piped_agents_write_the_same_bytes() {
    let Some(stage) = Stage::set() else { return };
    for (agent, arguments, input) in [
        (Agent::Claude, &["-p", "say something"][..], ""),
        (Agent::Claude, &["-p"], "say something from stdin [run echo hi]"),
        (Agent::Claude, &["-p", "fail [error 400]"], ""),
        (Agent::Claude, &["-p", "--output-format", "nonsense", "x"], ""),
        (Agent::Codex, &["exec", "say something"], ""),
        (Agent::Codex, &["exec", "fail [error 400]"], ""),
        (Agent::Gemini, &["-p", "say something"], ""),
        (Agent::Gemini, &["-p", "fail [error 400]"], ""),
    ] {
        let (bare, wrapped) = (stage.another(), stage.another());
        let expected = bare.pipe(agent, Form::Bare, arguments, input);
        let got = wrapped.pipe(agent, Form::under_test(), arguments, input);
        let case = format!("{} {arguments:?}", agent.name());
        assert_eq!(
            String::from_utf8_lossy(&got.stdout),
            String::from_utf8_lossy(&expected.stdout),
            "{case}: {}",
            String::from_utf8_lossy(&got.stderr)
        );
        assert_eq!(got.status.code(), expected.status.code(), "{case}");
        let (got, expected) = (wrapped.api.log(), bare.api.log());
        assert_eq!(got.calls.len(), expected.calls.len(), "{case}:\n{got}\n{expected}");
    }
}
