//! A real agent in a terminal, driven as a person drives it: type, see it on the screen, Enter, see the answer.
//!
//! ```ignore
//! let Some(stage) = Stage::set() else { return };
//! let claude = AgentRun::start(&stage, Agent::Claude, &[]);
//! let first = claude.prompt("hello");
//! claude.clear();
//! let second = claude.prompt("again");
//! assert_ne!(first.session, second.session);
//! assert_eq!(claude.exit(), Exit::Code(0));
//! ```

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::agents::Agent;
use super::fake_api::{Call, CallLog, Kind, Status};
use super::processes;
use super::pty::{Exit, Start, Terminal, View};
use super::screen::{busy, composer, menu_choice, unspaced};
use super::stage::{Form, Stage, TIMEOUT};

/// An Enter on the heels of typed text is taken for part of a paste, and nothing on the screen tells when that is over
/// (Gemini: 30 ms, Codex: 120 ms).
const NO_PASTE: Duration = Duration::from_millis(150);

/// How long an agent may take to empty its line after an Enter, or to show what is typed; it takes some 50 ms.
const ENTER_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct AgentRun<'a> {
    pub(crate) terminal: Terminal,
    pub(crate) agent: Agent,
    pub(crate) stage: &'a Stage,
}

impl<'a> AgentRun<'a> {
    /// Starts the agent through codemie and waits for its prompt.
    pub(crate) fn start(stage: &'a Stage, agent: Agent, arguments: &[&str]) -> Self {
        let run = Self::launch(stage, agent, arguments);
        run.wait_ready();
        run
    }

    /// Starts the agent through codemie; it has painted nothing yet.
    pub(crate) fn launch(stage: &'a Stage, agent: Agent, arguments: &[&str]) -> Self {
        let argv = stage.argv(agent, Form::under_test(), arguments);
        Self { terminal: stage.prepare(Start::new(argv)).spawn(), agent, stage }
    }

    /// Starts a shell with job control; [`Self::type_command_line`] starts the agent in it.
    pub(crate) fn in_shell(stage: &'a Stage, agent: Agent) -> Self {
        let terminal = stage.prepare(Start::shell()).env("PS1", super::pty::PROMPT).spawn();
        terminal.wait_prompt(0);
        Self { terminal, agent, stage }
    }

    /// Types the command line that starts the agent and waits for the agent's prompt.
    pub(crate) fn type_command_line(&self, arguments: &[&str]) {
        let argv = self.stage.argv(self.agent, Form::under_test(), arguments);
        let words: Vec<String> = argv.iter().map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        self.terminal.type_line(words.join(" "));
        self.wait_ready();
    }

    /// Waits until the agent takes keys: its line is painted, empty, and it is not at work.
    pub(crate) fn wait_ready(&self) {
        self.wait_for("an empty prompt", |agent, view| {
            composer(agent, &view.text()).is_some_and(|text| text.is_empty()) && !busy(agent, view)
        });
    }

    pub(crate) fn wait_for(&self, what: &str, mut condition: impl FnMut(Agent, &mut View<'_>) -> bool) {
        let what = format!("{what} of {}; the API's log:\n{}", self.agent.name(), self.stage.api.log());
        self.terminal.wait_for(&what, |view| condition(self.agent, view));
    }

    /// Types text and waits until the agent's line shows it, but presses no Enter.
    pub(crate) fn type_text(&self, text: &str) {
        // The first key may open a menu, and Claude loses keys that come while it does.
        let menu = self.agent == Agent::Claude && text.starts_with('/');
        if menu {
            self.terminal.send("/");
            self.wait_composer("/");
        }
        self.terminal.send(&text[usize::from(menu)..]);
        self.wake_if_asleep(text);
        self.wait_composer(text);
    }

    /// Codex, bare as well as wrapped, lets what is typed right after `fg` lie in the terminal until a further key comes (about one
    /// time in a hundred on a busy machine): its new reader waits for news of bytes that were there before it. A person's next
    /// letter wakes it. Here it is the key that moves the cursor right, which at the end of the line does nothing; visibly.
    fn wake_if_asleep(&self, text: &str) {
        let shown = |view: &mut View<'_>| composer(self.agent, &view.text()) == Some(unspaced(text));
        if self.agent == Agent::Codex && !self.terminal.holds_within(ENTER_TIMEOUT, shown) {
            println!("another key pressed: Codex did not read {text:?}");
            self.terminal.send("\x1b[C");
        }
    }

    /// Waits until the agent's line shows this.
    pub(crate) fn wait_composer(&self, text: &str) {
        self.wait_for(&format!("{text:?} in the line"), |agent, view| {
            composer(agent, &view.text()) == Some(unspaced(text))
        });
    }

    pub(crate) fn enter(&self) {
        thread::sleep(NO_PASTE);
        self.terminal.send("\r");
    }

    /// Puts a prompt, and waits until its last answer is on the screen and the agent is ready again. Returns that call.
    pub(crate) fn prompt(&self, text: &str) -> Call {
        let since = self.ask(text);
        let answer = self.wait_answer(text, since);
        let shown = answer.text.clone().unwrap();
        self.wait_for(&format!("the answer {shown:?}"), |_, view| view.text().contains(&shown));
        self.wait_ready();
        answer
    }

    /// Puts a prompt and does not wait for an answer. Returns how many calls the API had seen before.
    pub(crate) fn ask(&self, text: &str) -> usize {
        let since = self.stage.api.log().calls.len();
        self.type_text(text);
        self.enter();
        self.enter_again_if_ignored(text, since);
        since
    }

    /// Gemini takes text before it takes an Enter while it loads a conversation (`--resume`), and its line looks the same; or it
    /// takes the Enter, and gives the text back into its line. One more Enter, visibly; an Enter in an empty line does nothing.
    fn enter_again_if_ignored(&self, text: &str, since: usize) {
        let in_line = |view: &mut View<'_>| composer(self.agent, &view.text()) == Some(unspaced(text));
        let mut tries = 0;
        while self.agent == Agent::Gemini && tries < 4 {
            let asked = |_: &mut View<'_>| self.stage.api.log().calls.len() > since;
            let taken = self.terminal.holds_within(ENTER_TIMEOUT, |view| !in_line(view));
            if taken && !self.terminal.holds_within(ENTER_TIMEOUT, |view| asked(view) || in_line(view)) {
                return; // it asks nobody, as for a command
            }
            if taken && self.stage.api.log().calls.len() > since {
                return;
            }
            tries += 1;
            println!("Enter pressed again: Gemini ignored the first one after {text:?}");
            self.enter();
        }
    }

    /// Waits for the API to finish the last answer to a prompt put after its first `since` calls.
    pub(crate) fn wait_answer(&self, text: &str, since: usize) -> Call {
        self.wait_call(&format!("a whole answer to {text:?}"), since, |call| {
            call.kind == Kind::Main
                && call.status == Status::Complete
                && call.text.is_some()
                && call.prompt.contains(text.trim())
        })
    }

    /// Waits for a call like this after the API's first `since`.
    pub(crate) fn wait_call(&self, what: &str, since: usize, matches: impl Fn(&Call) -> bool) -> Call {
        let find = |log: &CallLog| log.calls[since..].iter().find(|call| matches(call)).cloned();
        self.stage.api.wait_for(TIMEOUT, find).unwrap_or_else(|| {
            let (log, screen) = (self.stage.api.log(), self.terminal.text());
            panic!("the API never saw {what}; its log:\n{log}--- screen\n{screen}")
        })
    }

    /// Types a slash command, waits until the menu would take it, and presses Enter.
    pub(crate) fn command(&self, text: &str) {
        let name = text.trim_start_matches('/').split_whitespace().next().unwrap_or_default().to_owned();
        self.command_as(text, &name);
    }

    /// The same for text for which the menu offers a command of another name (`/cl`, `/reset`).
    pub(crate) fn command_as(&self, text: &str, name: &str) {
        self.type_text(text);
        // With arguments behind the name the menu is closed.
        if !text.trim_start().contains(' ') {
            self.wait_menu(name);
        }
        self.enter();
    }

    /// Waits until the menu would take this command.
    pub(crate) fn wait_menu(&self, name: &str) {
        self.wait_for(&format!("{name:?} in the menu"), |agent, view| {
            menu_choice(agent, &view.text()).as_deref() == Some(name)
        });
    }

    /// Types `/clear` and waits until nothing of the old conversation's answers is on the screen.
    pub(crate) fn clear(&self) {
        self.command("/clear");
        self.wait_for("an empty screen", |_, view| !view.text().contains("pong-"));
        self.wait_ready();
    }

    /// Leaves by the agent's own command and waits for the end.
    pub(crate) fn exit(&self) -> Exit {
        self.command(self.exit_command());
        self.terminal.wait_exit()
    }

    pub(crate) fn exit_command(&self) -> &'static str {
        if self.agent == Agent::Claude { "/exit" } else { "/quit" }
    }

    /// Sends a signal to the process in the terminal: the wrapper, where there is one.
    pub(crate) fn signal(&self, signal: Signal) {
        processes::signal(self.terminal.pid(), signal);
    }
}
