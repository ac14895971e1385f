//! Runs the user's `notify.command` when a session ends a turn, asks something, or ends, when a budget is nearly spent, and when a
//! session shows signs of having run away.
//!
//! Promises: nothing waits for the command. A bounded number of them runs at once, each for a bounded time, without a terminal on
//! its descriptors; what does not fit is left out and logged.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::live::events::EventLog;
use crate::live::{UnhostedSession, UnhostedWatch};
use config::Notify;
use os::home::own_var;
use pty::process::SystemProcesses;
use store::EnvSnapshot;
use types::{LiveState, Moment, SessionId, Timestamp};

/// Commands that run at once. A person reads one after the other; more is a loop.
const AT_ONCE: usize = 4;
/// How long one may take.
const LONGEST: Duration = Duration::from_mins(1);
const PACE: Duration = Duration::from_millis(50);
/// What a terminal shows of a message is far less.
const LONGEST_MESSAGE: usize = 200;

/// Events that are no moments of a session: nothing waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alarm {
    /// A budget that the session counts towards is nearly or wholly spent.
    Budget,
    /// The session shows a sign of having run away.
    Runaway,
}

impl Alarm {
    fn as_str(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::Runaway => "runaway",
        }
    }
}

/// Something that the user wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice<'a> {
    pub moment: Moment,
    pub session: SessionId,
    pub name: &'a str,
    pub agent: &'a str,
    /// In the words of the record's `state`; empty once the session has ended.
    pub state: &'a str,
    pub why: &'a str,
}

impl<'a> Notice<'a> {
    /// Of a session that runs.
    pub fn of(
        moment: Moment,
        session: SessionId,
        name: &'a str,
        agent: &'a str,
        state: &'a LiveState,
    ) -> Self {
        Self { moment, session, name, agent, state: state.is.as_str(), why: &state.why }
    }

    fn variables(&self) -> [(&'static str, String); 6] {
        [
            ("CODEMIE_NOTIFY_EVENT", self.moment.as_str().to_owned()),
            ("CODEMIE_NOTIFY_SESSION_ID", self.session.to_string()),
            ("CODEMIE_NOTIFY_NAME", self.name.to_owned()),
            ("CODEMIE_NOTIFY_AGENT", self.agent.to_owned()),
            ("CODEMIE_NOTIFY_STATE", self.state.to_owned()),
            // What an agent shows can hold anything but the end of a C string.
            ("CODEMIE_NOTIFY_WHY", self.why.replace('\0', " ")),
        ]
    }

    /// The same for a terminal (OSC 9), which shows it to its user. To be written only where no sequence and no letter of the
    /// program's own is cut in two.
    pub fn osc9(&self) -> Vec<u8> {
        let what = match self.moment {
            Moment::TurnEnd => "has finished its turn",
            Moment::NeedsInput => "needs input",
            Moment::Exit => "has ended",
        };
        let why = if self.moment == Moment::NeedsInput { format!(": {}", self.why) } else { String::new() };
        // Some terminals take a message that begins with a digit and a semicolon for a command of their own.
        let message: String = format!("{} {what}{why}", self.name)
            .chars()
            .map(|letter| if letter.is_control() || letter == ';' { ' ' } else { letter })
            .take(LONGEST_MESSAGE)
            .collect();
        format!("\x1b]9;{message}\x1b\\").into_bytes()
    }
}

/// Runs the command of the settings; by default there is none.
#[derive(Clone, Debug, Default)]
pub struct Notifier {
    command: Vec<String>,
    running: Arc<AtomicUsize>,
}

impl Notifier {
    pub fn of(config: &Notify) -> Self {
        Self { command: config.command.clone(), running: Arc::default() }
    }

    pub fn is_off(&self) -> bool {
        self.command.is_empty()
    }

    /// Starts the command and returns. Its end is waited for by a thread of its own.
    pub fn run(&self, notice: &Notice<'_>) {
        self.start(notice.moment.as_str(), notice.variables());
    }

    pub(super) fn run_for(&self, alarm: Alarm, session: SessionId, name: &str, agent: &str, why: &str) {
        let event = ("CODEMIE_NOTIFY_EVENT", alarm.as_str().to_owned());
        let [_, rest @ ..] =
            Notice { moment: Moment::Exit, session, name, agent, state: "", why }.variables();
        self.start(alarm.as_str(), [event].into_iter().chain(rest));
    }

    fn start(&self, event: &str, variables: impl IntoIterator<Item = (&'static str, String)>) {
        let Some((program, args)) = self.command.split_first() else { return };
        if self.running.fetch_add(1, Ordering::Relaxed) >= AT_ONCE {
            self.running.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(event, "not notified: {AT_ONCE} commands are still running");
            return;
        }
        let mut command = Command::new(program);
        command
            .args(args)
            .envs(variables)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What the user types to stop the agent is not meant for it.
            .process_group(0);
        // Started here and not by the thread: this process may end before a thread gets to it.
        let started = command.spawn().and_then(|child| {
            let running = Arc::clone(&self.running);
            pty::without_signals(|| {
                thread::Builder::new().name("notify".into()).spawn(move || {
                    see_through(child);
                    running.fetch_sub(1, Ordering::Relaxed);
                })
            })
        });
        if let Err(error) = started {
            self.running.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!("notify.command was not started: {error}");
        }
    }
}

/// Waits for the command, so that it does not stay behind as a zombie, and ends one that hangs.
fn see_through(mut child: Child) {
    let deadline = Instant::now() + LONGEST;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return,
            Ok(None) if Instant::now() < deadline => thread::sleep(PACE),
            Ok(None) => {
                tracing::warn!("notify.command takes longer than {} s and is ended", LONGEST.as_secs());
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            Err(error) => return tracing::warn!("notify.command was not waited for: {error}"),
        }
    }
}

/// Follows the session of a run without a host, and notifies its user.
#[derive(Debug, Default)]
pub(super) struct RunNotices {
    notifier: Notifier,
    watch: Option<UnhostedWatch>,
    /// The last moment that was reported.
    reported: Option<Timestamp>,
}

/// The session as the tracker knows it.
pub(super) struct Noticed<'a> {
    pub(super) session: UnhostedSession<'a>,
    pub(super) id: SessionId,
    pub(super) surroundings: &'a EnvSnapshot,
}

impl RunNotices {
    pub(super) fn of(notifier: Notifier) -> Self {
        Self { notifier, ..Self::default() }
    }

    pub(super) fn is_off(&self) -> bool {
        self.notifier.is_off()
    }

    /// Looks at the session, and notifies of what happened since the last look. `name` is asked for only then.
    pub(super) fn look(&mut self, seen: &Noticed<'_>, now: Timestamp, name: impl FnOnce() -> String) {
        if self.is_off() {
            return;
        }
        let agent = seen.session.agent;
        let watch = self.watch.get_or_insert_with(|| UnhostedWatch::of(agent));
        let var = |name: &str| seen.surroundings.get(name).unwrap_or_else(|| own_var(name));
        let state = watch.look(&seen.session, &var, &SystemProcesses, now).clone();
        // What happened before this run is no news.
        let reported = *self.reported.get_or_insert_with(|| watch.log().last());
        let moments: Vec<_> = watch.log().after(reported).collect();
        let Some(last) = moments.last() else { return };
        self.reported = Some(last.at);
        let name = name();
        for event in &moments {
            let state = watch.log().state_with(event, &state);
            self.notifier.run(&Notice::of(event.moment, seen.id, &name, agent.name(), &state));
        }
    }

    /// The session has ended.
    pub(super) fn exit(&self, session: SessionId, name: &str, agent: &str, why: &str) {
        self.notifier.run(&Notice { moment: Moment::Exit, session, name, agent, state: "", why });
    }

    /// When to look again, even if nothing changes.
    pub(super) fn due(&self) -> Option<Timestamp> {
        self.watch.as_ref().map(UnhostedWatch::log).and_then(EventLog::due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use types::{Ids, RandomIds};

    fn notice<'a>(session: SessionId, name: &'a str, why: &'a str) -> Notice<'a> {
        Notice { moment: Moment::NeedsInput, session, name, agent: "claude", state: "needs-input", why }
    }

    fn await_that(mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !done() {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn the_command_gets_everything_in_its_environment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notices");
        let script = "printf '%s|' \"$CODEMIE_NOTIFY_EVENT\" \"$CODEMIE_NOTIFY_SESSION_ID\" \"$CODEMIE_NOTIFY_NAME\" \
                      \"$CODEMIE_NOTIFY_AGENT\" \"$CODEMIE_NOTIFY_STATE\" \"$CODEMIE_NOTIFY_WHY\" > \"$0.new\" && mv \"$0.new\" \"$0\"";
        let command = ["sh", "-c", script, file.to_str().unwrap()].map(str::to_owned).to_vec();
        let notifier = Notifier::of(&Notify { command, osc9: false });
        let session = RandomIds.session();
        notifier.run(&notice(session, "fix-auth", "may it run `ls`?\0"));
        await_that(|| file.exists());
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text, format!("needs-input|{session}|fix-auth|claude|needs-input|may it run `ls`? |"));
        await_that(|| notifier.running.load(Ordering::Relaxed) == 0);
        for (alarm, event, why) in [
            (Alarm::Budget, "budget", "day: $16.20 of $20.00 (81 %)"),
            (Alarm::Runaway, "runaway", "Bash failed 6 times in a row"),
        ] {
            fs::remove_file(&file).unwrap();
            notifier.run_for(alarm, session, "fix-auth", "claude", why);
            await_that(|| file.exists());
            let text = fs::read_to_string(&file).unwrap();
            assert_eq!(text, format!("{event}|{session}|fix-auth|claude||{why}|"));
        }
    }

    #[test]
    fn a_bounded_number_runs_at_once_and_a_missing_command_harms_nobody() {
        let notifier = |command: &[&str]| {
            let command = command.iter().map(|word| (*word).to_owned()).collect();
            Notifier::of(&Notify { command, osc9: false })
        };
        let (session, waiting) = (RandomIds.session(), tempfile::tempdir().unwrap());
        let gate = waiting.path().join("gate");
        let script = "until [ -e \"$0\" ]; do sleep 0.01; done";
        let slow = notifier(&["sh", "-c", script, gate.to_str().unwrap()]);
        for _ in 0..10 {
            slow.run(&notice(session, "a", "b"));
        }
        assert_eq!(slow.running.load(Ordering::Relaxed), AT_ONCE);
        fs::write(&gate, "").unwrap();
        await_that(|| slow.running.load(Ordering::Relaxed) == 0);
        let missing = notifier(&["/nonexistent/program"]);
        missing.run(&notice(session, "a", "b"));
        assert_eq!(missing.running.load(Ordering::Relaxed), 0);
        assert!(Notifier::default().is_off());
        Notifier::default().run(&notice(session, "a", "b"));
    }

    #[test]
    fn a_message_for_a_terminal_is_one_harmless_sequence() {
        let session = RandomIds.session();
        let bytes = notice(session, "fix\x1b]0;x\x07", "a;b\u{9c}").osc9();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text, "\x1b]9;fix ]0 x  needs input: a b \x1b\\");
        assert!(notice(session, &"x".repeat(5000), "").osc9().len() < 300);
    }
}
