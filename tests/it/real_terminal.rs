//! The real agents through codemie in a terminal: painted, answered, resized, suspended and resumed, left, and the
//! terminal as it was before; and in pipes, byte for byte what the bare agent writes.
//!
//! One run of each agent goes through all of it, because starting one takes seconds.

use rustix::process::Signal;

use crate::support::agents::{Agent, in_full_form};
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

#[test]
fn qwen_in_a_terminal() {
    if in_full_form() {
        in_a_terminal(Agent::Qwen, Vendor::OpenAiChat);
    }
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
    // Qwen Code cannot be suspended: it takes ^Z for "undo" always.
    let suspends = agent != Agent::Qwen;
    if suspends && suspend_first {
        there_and_back();
    }
    let first = run.prompt("say something");
    assert_eq!((first.vendor, first.status), (vendor, Status::Complete));
    // Larger, because a smaller screen also cuts what was painted before.
    run.terminal.resize(48, 140);
    run.wait_for("a picture of the new size", |agent, view| fills(agent, view, 48, 140));
    if suspends && !suspend_first {
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
        Agent::Claude | Agent::Gemini | Agent::Qwen => text.lines().any(|row| row == "─".repeat(columns)),
        // It paints no rule, but keeps its line at the foot of the screen.
        Agent::Codex => {
            text.lines().position(|row| row.starts_with("› Ask")).is_some_and(|row| row + 6 > rows)
        }
    }
}

/// What is still switched on in the terminal.
fn leftovers(view: &mut View<'_>) -> Vec<&'static str> {
    let keyboard = keyboard_flags(view.bytes) > 0;
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

#[test]
fn a_signal_ends_qwen() {
    if in_full_form() {
        end_by_signal(&[(Agent::Qwen, 143)]);
    }
}

/// How many pushes of keyboard flags were not popped; the agents pop with and without a count. The alternate screen has flags of its
/// own, which do not count where it has been left: Qwen Code pushes some there and never pops them.
fn keyboard_flags(bytes: &[u8]) -> usize {
    let marks: [(&[u8], fn(&mut usize, &mut bool)); 6] = [
        (b"\x1b[>1u", |flags, alternate| *flags += usize::from(!*alternate)),
        (b"\x1b[>7u", |flags, alternate| *flags += usize::from(!*alternate)),
        (b"\x1b[<u", |flags, alternate| *flags = flags.saturating_sub(usize::from(!*alternate))),
        (b"\x1b[<1u", |flags, alternate| *flags = flags.saturating_sub(usize::from(!*alternate))),
        (b"\x1b[?1049h", |_, alternate| *alternate = true),
        (b"\x1b[?1049l", |_, alternate| *alternate = false),
    ];
    let (mut flags, mut alternate) = (0, false);
    for at in memchr::memchr_iter(b'\x1b', bytes) {
        for (mark, apply) in &marks {
            if bytes[at..].starts_with(mark) {
                apply(&mut flags, &mut alternate);
            }
        }
    }
    flags
}

#[test]
fn keyboard_flags_that_stay_are_counted() {
    for (bytes, count) in [
        (&b"\x1b[>1u text \x1b[>7u"[..], 2),
        (b"\x1b[>1u\x1b[>7u\x1b[<u\x1b[<1u", 0),
        (b"\x1b[>1u\x1b[?1049h\x1b[>1u\x1b[?1049l\x1b[<u", 0),
        (b"\x1b[>1u\x1b[?1049h\x1b[>1u\x1b[<u\x1b[?1049l", 1),
    ] {
        assert_eq!(keyboard_flags(bytes), count, "{}", bytes.escape_ascii());
    }
}

/// Claude ends by itself with 143, Codex dies of the signal, Gemini, once the signal reaches more than its launcher, with 0.
#[test]
fn a_signal_ends_the_agents() {
    end_by_signal(&[(Agent::Claude, 143), (Agent::Codex, 143), (Agent::Gemini, 0)]);
}

fn end_by_signal(codes: &[(Agent, i32)]) {
    let Some(stage) = Stage::set() else { return };
    let fresh = Start::new(["true"]).spawn();
    fresh.wait_exit();
    let before = fresh.modes();
    for &(agent, code) in codes {
        let run = AgentRun::start(&stage, agent, &[]);
        run.signal(Signal::TERM);
        assert_eq!(run.terminal.wait_exit().shell_code(), code, "{}", agent.name());
        assert_eq!(run.terminal.modes(), before, "{}", agent.name());
        run.terminal
            .wait_for("everything the agent switched on to be off", |view| leftovers(view).is_empty());
        assert_eq!(stage.home.residents(), [0; 0], "{} left somebody behind", agent.name());
    }
}

#[test]
fn piped_qwen_writes_the_same_bytes() {
    if in_full_form() {
        write_the_same_bytes(&[
            (Agent::Qwen, &["-p", "say something"], ""),
            (Agent::Qwen, &["-p", "fail [error 400]"], ""),
        ]);
    }
}

#[test]
fn piped_agents_write_the_same_bytes() {
    write_the_same_bytes(&[
        (Agent::Claude, &["-p", "say something"], ""),
        (Agent::Claude, &["-p"], "say something from stdin [run echo hi]"),
        (Agent::Claude, &["-p", "fail [error 400]"], ""),
        (Agent::Claude, &["-p", "--output-format", "nonsense", "x"], ""),
        (Agent::Codex, &["exec", "say something"], ""),
        (Agent::Codex, &["exec", "fail [error 400]"], ""),
        (Agent::Gemini, &["-p", "say something"], ""),
        (Agent::Gemini, &["-p", "fail [error 400]"], ""),
    ]);
}

/// Each with a home and an API of its own, so that both get the same answers.
fn write_the_same_bytes(cases: &[(Agent, &[&str], &str)]) {
    let Some(stage) = Stage::set() else { return };
    for &(agent, arguments, input) in cases {
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
