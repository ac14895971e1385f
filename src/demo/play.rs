//! The scripted agent itself, behind `codemie demo-agent`: plays the script, shows it on the stage and writes it into the
//! journal. It needs no input; ^C ends it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::frame::{Message, Scene};
use super::journal::Journal;
use super::script::{self, Call, SCRIPT, Tool};
use super::stage::{Stage, Stop};
use agents::demo::Demo;
use format::output::Colour;
use os::file::read_at_most;
use os::home::Home;
use types::AgentSessionId;
use types::SessionRecord;

/// The exit code that a shell gives a program that ^C ended.
const INTERRUPTED: u8 = 130;

/// The whole play takes a little more than five seconds.
const KEY: Duration = Duration::from_millis(10);
const BEFORE_ENTER: Duration = Duration::from_millis(120);
const WORD: Duration = Duration::from_millis(22);
const SPIN: Duration = Duration::from_millis(50);
const SPINS: usize = 5;
const TO_READ: Duration = Duration::from_millis(200);

/// How long to wait until codemie has noticed a step. Only a broken tracker lets this time pass.
const NOTICED: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(5);

/// Begins the play as conversation `first`. `record` is the file in which codemie publishes the session's record, if there is one.
pub fn play(
    home: &Home,
    first: AgentSessionId,
    record: Option<PathBuf>,
    swift: bool,
) -> anyhow::Result<ExitCode> {
    let cwd = std::env::current_dir().and_then(|cwd| cwd.canonicalize()).context("no folder to work in")?;
    let journal =
        Journal::open(Demo::files(home), cwd, first).context("cannot write the demonstration's files")?;
    let mut player =
        Player { stage: Stage::enter(swift)?, journal, record, scene: Scene::default(), step: 0 };
    let played = player.play();
    let Player { stage, journal, .. } = player;
    drop(stage);
    journal.close().context("cannot write the demonstration's files")?;
    match played {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Stop::Interrupted) => Ok(ExitCode::from(INTERRUPTED)),
        Err(Stop::Io(error)) => Err(error.into()),
    }
}

struct Player {
    stage: Stage,
    journal: Journal,
    record: Option<PathBuf>,
    scene: Scene,
    step: usize,
}

impl Player {
    fn play(&mut self) -> Result<(), Stop> {
        self.show(TO_READ)?;
        let mine = self.journal.session().clone();
        self.wait_until_noticed(|record| record.correlation.agent_session_id.as_ref() == Some(&mine))?;
        for (at, conversation) in SCRIPT.iter().enumerate() {
            if at > 0 {
                self.clear()?;
            }
            for turn in conversation.turns {
                self.type_in(turn.prompt)?;
                self.journal.prompted(turn.prompt)?;
                self.scene.messages.push(Message::Prompt(turn.prompt.to_owned()));
                for call in turn.calls {
                    self.answer(call)?;
                }
                self.journal.idle()?;
                self.show(TO_READ)?;
            }
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), Stop> {
        self.type_in("/clear")?;
        self.journal.cleared()?;
        self.scene.tokens = 0;
        self.scene.messages =
            vec![Message::Note("/clear: a new conversation, the old one forgotten".to_owned())];
        self.show(TO_READ)?;
        self.wait_until_noticed(|record| record.transitioned_to.is_some())
    }

    fn answer(&mut self, call: &Call) -> Result<(), Stop> {
        for _ in 0..SPINS {
            self.step += 1;
            self.scene.busy = Some(self.step);
            self.show(SPIN)?;
        }
        self.scene.busy = None;
        if !call.text.is_empty() {
            self.stream(call.text)?;
        }
        let used = self.journal.answered(call)?;
        self.scene.tokens += call.tokens.total();
        if let (Some(tool), Some(used)) = (&call.tool, used) {
            self.journal.used(tool, &used)?;
            let called = format!("{}({})", tool.name(), tool.file());
            self.scene.messages.push(Message::Tool(called, outcome(tool)));
            self.show(TO_READ)?;
        }
        self.show(Duration::ZERO)
    }

    /// Text arrives word by word.
    fn stream(&mut self, text: &str) -> Result<(), Stop> {
        self.scene.messages.push(Message::Answer(String::new()));
        let ends = text.match_indices(' ').map(|(at, _)| at).chain([text.len()]);
        for end in ends {
            if let Some(Message::Answer(shown)) = self.scene.messages.last_mut() {
                text[..end].clone_into(shown);
            }
            self.show(WORD)?;
        }
        Ok(())
    }

    /// The user's text appears as if typed, and Enter is pressed.
    fn type_in(&mut self, text: &str) -> Result<(), Stop> {
        for letter in text.chars() {
            self.scene.typed.push(letter);
            self.show(KEY)?;
        }
        self.show(BEFORE_ENTER)?;
        self.scene.typed.clear();
        Ok(())
    }

    fn show(&mut self, time: Duration) -> Result<(), Stop> {
        self.stage.draw(&self.scene)?;
        self.stage.pause(time)
    }

    /// A person leaves codemie seconds between two steps; the script would leave it microseconds, in which no change can be
    /// noticed.
    fn wait_until_noticed(&mut self, noticed: impl Fn(&SessionRecord) -> bool) -> Result<(), Stop> {
        let Some(path) = &self.record else { return Ok(()) };
        let deadline = Instant::now() + NOTICED;
        let seen = || {
            let text = read_at_most(path, u64::MAX).ok()?;
            serde_json::from_slice::<SessionRecord>(&text).ok()
        };
        while Instant::now() < deadline && !seen().is_some_and(|record| noticed(&record)) {
            self.stage.pause(Duration::ZERO)?;
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }
}

/// The shown result of a tool.
fn outcome(tool: &Tool) -> Vec<(String, Colour)> {
    let faint = |text: String| (text, Colour::Faint);
    match tool {
        Tool::Write { content, .. } => vec![faint(format!("{} lines written", content.lines().count()))],
        Tool::Edit { patch, .. } => {
            let changed = |sign| patch.iter().filter(|line| line.starts_with(sign)).count();
            let summary = format!("{} lines added, {} removed", changed('+'), changed('-'));
            let shown = patch.iter().filter_map(|line| {
                let colour = match line.as_bytes().first()? {
                    b'+' => Colour::Good,
                    b'-' => Colour::Bad,
                    _ => return None,
                };
                let (sign, text) = line.split_at(1);
                Some((format!("{sign} {text}"), colour))
            });
            std::iter::once(faint(summary)).chain(shown).collect()
        }
        Tool::Read { .. } => vec![faint(format!("{} lines read", script::GREETING.lines().count() + 1))],
    }
}
