//! `codemie claude …`, `codemie run -- …`, and a shim called by the agent's name: run it, wrapped.
//!
//! This is the hot path from argv0 to exec. Nothing here may keep the agent from running: what codemie cannot do it
//! leaves out, and says so after the agent has ended.

mod closing;

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::damage;
use super::open::receivers;
use crate::agent::{Agent, Conversation as Asked, Invocation, Kind};
use crate::cli::{RunOptions, Target};
use crate::config::{AgentConfig, Config};
use crate::forward::{self, Sinks};
use crate::home::Home;
use crate::output::Style;
use crate::registry;
use crate::session::lifecycle::Conversation;
use crate::shim::{self, depth::Depth};
use crate::store::{Evidence, Surroundings, Verdict};
use crate::track::{Plan, Summary, Tracker, version};
use closing::Added;
use system::clock::{Clock, SystemClock};
use terminal::{Observer, ProgramEnd, ProgramExit, ProgramSpec, ProgramStarted, Tap};
use wire::Timestamp;
use wire::{AgentSessionId, Ids, RandomIds, RunId};

/// How long the shell waits for the END to be stored. A commit takes a millisecond; this bounds a database that somebody
/// else keeps locked.
const PATIENCE: Duration = Duration::from_secs(2);

/// The run that a program was started in, as the agent's process sees it.
pub const RUN_VARIABLE: &str = "CODEMIE_RUN_ID";
/// The first session of that run.
pub const SESSION_VARIABLE: &str = "CODEMIE_SESSION_ID";

/// Said in the end where there is nowhere to record anything.
const NO_HOME: &str = "this session is not recorded: set HOME or CODEMIE_HOME";

/// From us to ourselves: no id is to be given.
const ANEW_VARIABLE: &str = "CODEMIE_STARTED_ANEW";

/// How the run went: the exit code, and what to say on standard error now that the terminal is the user's again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub code: u8,
    /// The program died of this signal, and so must we.
    pub signal: Option<i32>,
    pub message: Option<String>,
}

impl Outcome {
    fn failed(code: u8, message: String) -> Self {
        Self { code, signal: None, message: Some(message) }
    }

    fn say(&mut self, line: String) {
        self.message = Some(match self.message.take() {
            Some(message) => format!("{message}\n{line}"),
            None => line,
        });
    }
}

pub fn run(options: &RunOptions, target: &Target, args: Vec<OsString>) -> Outcome {
    // Once the program runs, the program's own stand in their place.
    let command_line: Vec<OsString> = std::env::args_os().collect();
    let home = Home::from_env(|name| std::env::var_os(name));
    let file = home.as_ref().map(Home::config_file);
    let config = Config::load(file.as_deref(), |name| std::env::var_os(name), registry::names());
    let prepared = match target {
        Target::Agent(agent) => match prepare_agent(*agent, args, &config.agent(agent.name()), home.as_ref())
        {
            Ok(prepared) => prepared,
            Err(outcome) => return outcome,
        },
        Target::Command(command) => Prepared::command(command, args),
    };
    let place = home.clone();
    let speak = !(options.quiet || config.quiet) && all_terminals();
    let given = prepared.agent.as_ref().and_then(|run| Some((run.agent, run.assigned.clone()?)));
    let talks = prepared.interactive && all_terminals();
    let (launch, plan) = prepared.plan(home, target, options, &config, speak);
    let begun_at = plan.as_ref().map(|plan| plan.begun_at);
    let (mut outcome, summary) = wrap(launch, plan);
    if let Some((agent, id)) = given.filter(|_| talks)
        && agent.refused_its_id(outcome.code, &id, &|name| std::env::var_os(name))
    {
        start_anew(command_line);
    }
    if let Some(session) = summary.session {
        let added = place.as_ref().zip(begun_at).and_then(|(home, at)| Added::by_run(home, &session, at));
        outcome.say(closing::line(&session, summary.together, added, Style::of_stdout().columns));
    }
    let sinks = place.as_ref().filter(|_| speak).and_then(|home| Sinks::of(home, &config.delivery));
    if let Some(line) = sinks.and_then(|sinks| closing::paused(&sinks, SystemClock.now())) {
        outcome.say(line);
    }
    let mut problems = config.problems;
    problems.extend(summary.problem);
    problems.extend(place.is_none().then(|| NO_HOME.to_owned()));
    if options.quiet || config.quiet {
        return outcome;
    }
    problems.extend(place.as_ref().and_then(damage::untold));
    if !problems.is_empty() {
        outcome.say(format!("codemie: {}", problems.join("; ")));
    }
    outcome
}

/// The same command line once more, without an id for the agent's session. Returns only if that fails.
fn start_anew(command_line: Vec<OsString>) {
    let mut args = command_line.into_iter();
    let (Some(arg0), Ok(program)) = (args.next(), std::env::current_exe()) else { return };
    let error = terminal::exec(&ProgramSpec {
        program: program.into_os_string(),
        arg0,
        args: args.collect(),
        set: vec![(ANEW_VARIABLE.into(), "1".into())],
        remove: Vec::new(),
    });
    tracing::error!("the agent was not started anew: {error}");
}

/// Runs what was prepared to its end, followed by a tracker where there is a plan.
pub(super) fn wrap(mut launch: ProgramSpec, mut plan: Option<Plan>) -> (Outcome, Summary) {
    if let Some(plan) = &mut plan {
        plan.notes.push(note(
            plan.begun_at,
            "environment",
            format!("added: {SESSION_VARIABLE} {RUN_VARIABLE}"),
        ));
        launch.set.push((SESSION_VARIABLE.into(), plan.session.to_string().into()));
        launch.set.push((RUN_VARIABLE.into(), plan.run.to_string().into()));
    }
    let home = plan.as_ref().map(|plan| plan.home.clone());
    let mut beside = Beside { plan, tracker: None };
    let ended = terminal::run(&launch, &mut beside);
    let ended_at = SystemClock.now();
    let (outcome, ended) = match ended {
        // What never ran was no session.
        Ok(ProgramEnd { exit: ProgramExit::NotStarted(errno), .. }) => {
            return (cannot_run(&launch, errno), Summary::default());
        }
        Ok(ended) => {
            let (code, signal) = (ended.exit.code(), ended.exit.signal());
            (Outcome { code, signal, message: None }, ended)
        }
        Err(error) => {
            let message = format!("codemie: cannot start {}: {error}", launch.program.display());
            return (Outcome::failed(126, message), Summary::default());
        }
    };
    let finish = |tracker: Tracker| tracker.finish(ended, ended_at, PATIENCE);
    let mut summary = beside.tracker.map_or_else(Summary::default, finish);
    if let (Some(sender), Some(home)) = (summary.sender.take(), home)
        && sender.finish()
    {
        forward::spawn_delivery(&home);
    }
    (outcome, summary)
}

/// The tracker beside the program: it gets ready while the program starts.
struct Beside {
    plan: Option<Plan>,
    tracker: Option<Tracker>,
}

impl Observer for Beside {
    fn forked(&mut self) -> Option<Tap> {
        if let Some(plan) = self.plan.take() {
            self.tracker = Some(Tracker::prepare(plan));
        }
        self.tracker.as_ref().map(Tracker::tap)
    }

    fn started(&mut self, program: ProgramStarted) {
        if let Some(tracker) = &self.tracker {
            tracker.begin(program.pid);
        }
    }
}

/// Everything decided before the launch.
struct Prepared {
    launch: ProgramSpec,
    /// By its arguments.
    interactive: bool,
    conversation: Conversation,
    agent: Option<AgentRun>,
    notes: Vec<Evidence>,
}

struct AgentRun {
    agent: &'static dyn Agent,
    /// The id we chose for its session.
    assigned: Option<AgentSessionId>,
    /// The id the user chose.
    chosen: Option<AgentSessionId>,
    version: Option<String>,
    binary: Option<version::Identity>,
}

impl Prepared {
    fn command(command: &OsString, args: Vec<OsString>) -> Self {
        let launch = ProgramSpec {
            program: command.clone(),
            arg0: command.clone(),
            args,
            set: Vec::new(),
            remove: Vec::new(),
        };
        let conversation = Conversation::Fresh;
        Self { launch, interactive: false, conversation, agent: None, notes: Vec::new() }
    }

    fn plan(
        self,
        home: Option<Home>,
        target: &Target,
        options: &RunOptions,
        config: &Config,
        speak: bool,
    ) -> (ProgramSpec, Option<Plan>) {
        let Some(home) = home else { return (self.launch, None) };
        let folder = std::env::current_dir().unwrap_or_default();
        // As the agent will see it; but a mark that is not this run's own tells nothing.
        let mark =
            self.agent.as_ref().and_then(|run| run.agent.mark(uuid::Uuid::nil())).map(|(name, _)| name);
        let surroundings = RefCell::new(Surroundings::default());
        let var = |name: &str| {
            let set = self.launch.set.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone());
            let value = set.or_else(|| std::env::var_os(name).filter(|_| mark != Some(name)));
            surroundings.borrow_mut().note(name, value.as_deref());
            value
        };
        let mut trail = self.agent.as_ref().and_then(|run| run.agent.trail(&var, &folder));
        let mut conversation = self.conversation;
        let mut chosen = self.agent.as_ref().and_then(|run| run.chosen.clone());
        // An id that is taken is refused by the agent; should it go on there all the same, it says so itself.
        if chosen.as_ref().zip(trail.as_mut()).is_some_and(|(id, trail)| !trail.files(id).is_empty()) {
            chosen = None;
            conversation = Conversation::Unsure;
        }
        let plan = Plan {
            summary: speak,
            begun_at: SystemClock.now(),
            run: RandomIds.run(),
            session: RandomIds.session(),
            agent: target.name(),
            local_only: false,
            trail,
            version: self.agent.as_ref().and_then(|run| run.version.clone()),
            binary: self.agent.as_ref().and_then(|run| run.binary.clone()),
            assigned: self.agent.as_ref().and_then(|run| run.assigned.clone()).or(chosen),
            conversation,
            folder,
            surroundings: surroundings.into_inner(),
            name: options.name.clone(),
            tags: options.tag.clone(),
            group: options.group.clone(),
            parent: enclosing_run(),
            notes: self.notes,
            log_level: Some(config.log_level.clone()),
            sinks: Sinks::of(&home, &config.delivery),
            sinks_now: receivers,
            home,
        };
        (self.launch, Some(plan))
    }
}

/// The run that we ourselves were started in.
pub(super) fn enclosing_run() -> Option<RunId> {
    std::env::var_os(RUN_VARIABLE)?.to_str()?.parse().ok()
}

/// Where the agent is and what it is told. Whatever is no conversation is executed here and now.
fn prepare_agent(
    agent: &'static dyn Agent,
    args: Vec<OsString>,
    config: &AgentConfig,
    home: Option<&Home>,
) -> Result<Prepared, Outcome> {
    let depth = Depth::arriving(std::env::var_os(shim::depth::VARIABLE).as_deref(), agent.name(), &args);
    if depth.exhausted() {
        let stopped = shim::stopped_loop(agent.name());
        return Err(Outcome::failed(stopped.exit_code(), format!("codemie: {stopped}")));
    }
    let program = shim::real_binary(agent.name(), config.path.as_deref())
        .map_err(|error| Outcome::failed(error.exit_code(), format!("codemie: {error}")))?;
    let invocation = agent.classify(&args);
    let counted =
        |args: &[OsString]| (OsString::from(shim::depth::VARIABLE), depth.leaving(agent.name(), args));
    let mut launch = ProgramSpec {
        arg0: arg0(agent, &program),
        set: vec![counted(&args)],
        program: program.clone().into_os_string(),
        args,
        remove: Vec::new(),
    };
    if bypassed() || invocation.kind == Kind::NotAConversation {
        let error = terminal::exec(&launch);
        let errno = error.raw_os_error().unwrap_or(0);
        return Err(cannot_run(&launch, errno));
    }

    let now = SystemClock.now();
    let binary = version::Identity::of(agent.name(), &program);
    let recalled = || version::recall(home?, agent.name(), binary.as_ref()?);
    let version = agent.installed_version(&program).or_else(recalled);
    let mut notes = Vec::new();
    let mut assigned = None;
    if config.inject {
        let var = |name: &str| std::env::var_os(name);
        let taken: Vec<&str> =
            agent.nesting_variables().iter().copied().filter(|name| var(name).is_some()).collect();
        if !taken.is_empty() {
            notes.push(note(now, "environment", format!("taken away: {}", taken.join(" "))));
        }
        launch.remove = taken.iter().map(OsString::from).collect();
        let anew = var(ANEW_VARIABLE).is_some();
        let injection = if anew {
            notes.push(note(
                now,
                "arguments",
                "none added: the agent was started anew and refused its id".into(),
            ));
            launch.remove.push(ANEW_VARIABLE.into());
            None
        } else {
            agent.inject(&invocation, &launch.args, version.as_deref(), RandomIds.uuid(), &var)
        };
        if injection.is_none() && version.is_none() && invocation.injectable && !anew {
            let why = "none added: its version is not known yet; `codemie doctor` asks it".to_owned();
            notes.push(note(now, "arguments", why));
        }
        if let Some(injection) = injection {
            notes.push(note(now, "arguments", format!("added: {}", shown(&injection.args))));
            launch.args.splice(0..0, injection.args);
            launch.set = vec![counted(&launch.args)];
            assigned = injection.assigned;
        }
        if let Some((name, value)) = agent.mark(RandomIds.uuid()).filter(|_| config.marks) {
            notes.push(note(now, "environment", format!("added: {name}={value}")));
            launch.set.push((name.into(), value.into()));
        }
    }
    Ok(Prepared {
        launch,
        interactive: invocation.kind == Kind::Interactive,
        conversation: conversation(&invocation, assigned.is_some()),
        agent: Some(AgentRun { agent, assigned, chosen: chosen(&invocation), version, binary }),
        notes,
    })
}

/// A shim manager behind us goes by the name it is called by; a path given outright is its own name.
fn arg0(agent: &dyn Agent, program: &Path) -> OsString {
    if program.file_name().is_some_and(|file| file == agent.name()) {
        agent.name().into()
    } else {
        PathBuf::from(program).into_os_string()
    }
}

pub(super) fn note(at: Timestamp, source: &str, detail: String) -> Evidence {
    Evidence { at, source: source.to_owned(), verdict: Verdict::Noted, agent_session_id: None, detail }
}

fn shown(args: &[OsString]) -> String {
    args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// What the arguments mean for the session's life.
fn conversation(invocation: &Invocation, assigned: bool) -> Conversation {
    match &invocation.session {
        // Beside a flag nobody here knows, even that is not certain.
        Asked::Fresh if !assigned && !invocation.injectable => Conversation::Unsure,
        Asked::Fresh | Asked::Chosen(_) => Conversation::Fresh,
        Asked::Named(id) => Conversation::Named(id.clone()),
        Asked::Continue | Asked::Picker => Conversation::Unnamed,
        Asked::Fork { .. } | Asked::Unknown => Conversation::Unsure,
    }
}

/// The id that the user chose for a conversation that is new, or a new copy.
fn chosen(invocation: &Invocation) -> Option<AgentSessionId> {
    match &invocation.session {
        Asked::Chosen(id) | Asked::Fork { to: Some(id), .. } => Some(id.clone()),
        _ => None,
    }
}

fn bypassed() -> bool {
    std::env::var_os("CODEMIE_BYPASS").is_some_and(|value| value == "1")
}

fn all_terminals() -> bool {
    use std::io::{stderr, stdin, stdout};
    terminal::is_terminal(&stdin()) && terminal::is_terminal(&stdout()) && terminal::is_terminal(&stderr())
}

fn cannot_run(launch: &ProgramSpec, errno: i32) -> Outcome {
    let name = launch.program.to_string_lossy();
    let sought = !terminal::is_path(&launch.program);
    // One folder on PATH that may not be searched is a refusal to execvp; to a shell, and so here, it holds nothing.
    let unseen = errno == libc::EACCES && sought && !shim::is_on_path(&name);
    let errno = if unseen { libc::ENOENT } else { errno };
    let why = if errno == libc::ENOENT && sought {
        "command not found".to_owned()
    } else {
        std::io::Error::from_raw_os_error(errno).to_string()
    };
    Outcome::failed(ProgramExit::NotStarted(errno).code(), format!("codemie: {name}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_the_user_chose_is_as_good_as_ours() {
        let id = || AgentSessionId("22222222-2222-4222-8222-222222222222".into());
        let table = [
            (Asked::Chosen(id()), Some(id())),
            (Asked::Fork { from: None, to: Some(id()) }, Some(id())),
            (Asked::Fork { from: Some(id()), to: None }, None),
            (Asked::Named(id()), None),
            (Asked::Fresh, None),
        ];
        for (session, expected) in table {
            let invocation =
                Invocation { kind: Kind::Interactive, session, injectable: false, persistent: true };
            assert_eq!(chosen(&invocation), expected, "{invocation:?}");
        }
    }
}
