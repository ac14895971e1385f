//! Everything that is decided before a program starts: which binary, with which arguments and environment, and how it is
//! followed.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::injection::{Call, Changes};
use super::proxy_setup::{ProxyRequest, ProxySetup};
use super::{LaunchRequest, LaunchTarget, Origin, lineage, note, receivers, resume};
use crate::shim;
use crate::shim::resolve::Depth;
use crate::shim::resolve::NotFound;
use crate::track::notify::Notifier;
use crate::track::{Plan, version};
use agents::{Agent, Assigned, Invocation, InvocationKind, Observer};
use config::{AgentConfig, Config};
use delivery::Sinks;
use os::clock::Clock;
use os::home::Home;
use pty::ProgramSpec;
use store::EnvSnapshot;
use store::session::lifecycle::ConversationStart;
use types::Evidence;
use types::{AgentSessionId, Ids};

const BYPASS_VARIABLE: &str = "CODEMIE_BYPASS";

/// Clock, ids and installed programs: all that a launch needs besides variables and folder.
#[expect(missing_debug_implementations, reason = "traits without anything to show")]
#[derive(Clone, Copy)]
pub struct World<'a> {
    pub clock: &'a dyn Clock,
    pub ids: &'a dyn Ids,
    pub binaries: &'a dyn Binaries,
}

/// The agents' programs on a machine.
pub trait Binaries {
    /// The real binary of an agent: its variable, then the configured path, then PATH.
    fn find(&self, agent: &str, configured: Option<&Path>, origin: &Origin) -> Result<PathBuf, NotFound>;

    /// The error for a call that keeps coming back to codemie.
    fn stopped_loop(&self, agent: &str, origin: &Origin) -> NotFound;

    /// What is known of a binary without starting it.
    fn installed(&self, agent: &dyn Agent, program: &Path, home: Option<&Home>) -> Installed;
}

/// What is known of an agent's binary before it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    pub version: Option<String>,
    /// For remembering the version, once the agent has reported it.
    pub identity: Option<version::BinaryIdentity>,
}

/// The agents' programs on this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemBinaries;

impl Binaries for SystemBinaries {
    fn find(&self, agent: &str, configured: Option<&Path>, origin: &Origin) -> Result<PathBuf, NotFound> {
        shim::real_binary(agent, configured, &|name| origin.var(name), origin.other_folder())
    }

    fn stopped_loop(&self, agent: &str, origin: &Origin) -> NotFound {
        shim::stopped_loop(agent, &|name| origin.var(name), origin.other_folder())
    }

    fn installed(&self, agent: &dyn Agent, program: &Path, home: Option<&Home>) -> Installed {
        let identity = version::BinaryIdentity::of(agent.name(), program);
        let recalled = || version::recall(home?, agent.name(), identity.as_ref()?);
        Installed { version: agent.installed_version(program).or_else(recalled), identity }
    }
}

/// A program that is ready to be started.
#[expect(missing_debug_implementations, reason = "a plan has nothing to show")]
pub enum Prepared {
    /// No conversation, or the user wants no codemie: to be executed in our place.
    Execute(ProgramSpec),
    Wrap {
        launch: ProgramSpec,
        /// `None` without a home folder: nothing is recorded.
        plan: Option<Box<Plan>>,
        /// The id that codemie chose for the conversation, if it is an interactive one.
        assigned: Option<AssignedId>,
        /// Why nothing may name its conversations.
        unnamed: Option<&'static str>,
        proxy_setup: ProxySetup,
    },
}

/// The id that an agent was given for its session.
#[derive(Clone, Debug)]
pub struct AssignedId {
    pub agent: &'static dyn Agent,
    pub id: AgentSessionId,
}

pub fn prepare(
    request: LaunchRequest,
    origin: &Origin,
    home: Option<&Home>,
    config: &Config,
    world: World<'_>,
) -> Result<Prepared, NotFound> {
    let LaunchRequest { target, args, labels, session, summary, proxy } = request;
    let (run, session) = (world.ids.run(), session.unwrap_or_else(|| world.ids.session()));
    let bypass = origin.var(BYPASS_VARIABLE).is_some_and(|value| value == "1");
    let mut start = match &target {
        LaunchTarget::Command(command) if bypass => {
            return Ok(Prepared::Execute(Start::of_command(command, args).launch));
        }
        LaunchTarget::Command(command) => {
            Start { proxy_setup: ProxySetup::of_other(proxy, &target), ..Start::of_command(command, args) }
        }
        LaunchTarget::Agent(agent) => {
            let agent_config = config.agent(agent.name());
            let call = located(*agent, args, &agent_config, origin, world)?;
            if bypass || call.kind() == InvocationKind::NotAConversation {
                return Ok(Prepared::Execute(call.launch));
            }
            let proxy_setup = |args: &[OsString], version: Option<&str>| {
                // Only the proxy can refuse a call, so a budget that is enforced asks for it.
                let limited = config.budgets.iter().any(|budget| budget.may_refuse(agent.name()));
                if !proxy && !config.proxy.enabled && !limited {
                    return ProxySetup::Off;
                }
                let request = ProxyRequest { agent: *agent, args, version, run, session };
                ProxySetup::of(&request, origin, home, config, world.ids)
            };
            Start::of_agent(call, &agent_config, origin, home, world, &proxy_setup)
        }
    };
    let (proxy_setup, unnamed) = (std::mem::take(&mut start.proxy_setup), start.unnamed);
    let assigned = start.agent.as_ref().filter(|agent| agent.interactive);
    let assigned =
        assigned.and_then(|start| Some(AssignedId { agent: start.agent, id: start.assigned_id()?.clone() }));
    let Some(home) = home else {
        return Ok(Prepared::Wrap { launch: start.launch, plan: None, assigned, unnamed, proxy_setup });
    };
    let folder = origin.folder();
    let FollowPlan { observer, conversation, chosen, surroundings } = FollowPlan::of(&start, origin, &folder);
    let prompted = start.agent.as_ref().is_some_and(|start| start.prompted);
    let (given, installed) =
        start.agent.map_or_else(Default::default, |start| (start.assigned_id().cloned(), start.installed));
    let plan = Plan {
        summary,
        begun_at: world.clock.now(),
        run,
        session,
        agent: target.name(),
        local_only: false,
        proxied: matches!(proxy_setup, ProxySetup::Through(_)),
        observer,
        version: installed.version,
        binary: installed.identity,
        assigned: given.or(chosen),
        conversation,
        prompted,
        folder,
        surroundings,
        name: labels.name,
        tags: labels.tags,
        group: labels.group,
        lineage: lineage(origin),
        notes: start.notes,
        log_level: Some(config.log_level.clone()),
        sinks: Sinks::of(home, &config.delivery),
        sinks_now: receivers,
        on_news: None,
        notifier: Notifier::of(&config.notify),
        home: home.clone(),
    };
    Ok(Prepared::Wrap { launch: start.launch, plan: Some(Box::new(plan)), assigned, unnamed, proxy_setup })
}

/// An agent's binary, and the call that was made of it.
struct Located {
    agent: &'static dyn Agent,
    program: PathBuf,
    invocation: Invocation,
    depth: Depth,
    /// With the arguments as they came.
    launch: ProgramSpec,
}

impl Located {
    fn kind(&self) -> InvocationKind {
        self.invocation.kind
    }
}

fn located(
    agent: &'static dyn Agent,
    args: Vec<OsString>,
    config: &AgentConfig,
    origin: &Origin,
    world: World<'_>,
) -> Result<Located, NotFound> {
    let depth = Depth::arriving(origin.var(shim::resolve::VARIABLE).as_deref(), agent.name(), &args);
    if depth.exhausted() {
        return Err(world.binaries.stopped_loop(agent.name(), origin));
    }
    let program = world.binaries.find(agent.name(), config.path.as_deref(), origin)?;
    let launch = ProgramSpec {
        arg0: arg0(agent, &program),
        set: vec![counted(depth, agent, &args)],
        program: program.clone().into_os_string(),
        args,
        remove: Vec::new(),
    };
    Ok(Located { agent, program, invocation: agent.classify(&launch.args), depth, launch })
}

/// The loop counter for a program that is started with `args`.
fn counted(depth: Depth, agent: &dyn Agent, args: &[OsString]) -> (OsString, OsString) {
    (OsString::from(shim::resolve::VARIABLE), depth.leaving(agent.name(), args))
}

/// The name the program is called by. A shim manager behind us decides by that name which agent it is; a binary with another
/// file name is called by its path.
fn arg0(agent: &dyn Agent, program: &Path) -> OsString {
    if program.file_name().is_some_and(|file| file == agent.name()) {
        agent.name().into()
    } else {
        PathBuf::from(program).into_os_string()
    }
}

/// A program with everything it is started with.
struct Start {
    launch: ProgramSpec,
    conversation: ConversationStart,
    agent: Option<AgentStart>,
    notes: Vec<Evidence>,
    /// Why nothing may name its conversations.
    unnamed: Option<&'static str>,
    proxy_setup: ProxySetup,
}

struct AgentStart {
    agent: &'static dyn Agent,
    /// By its arguments.
    interactive: bool,
    /// A first prompt stands in its arguments.
    prompted: bool,
    /// What we gave its session.
    assigned: Option<Assigned>,
    /// The id the user chose.
    chosen: Option<AgentSessionId>,
    installed: Installed,
}

impl AgentStart {
    /// The id we chose for its session.
    fn assigned_id(&self) -> Option<&AgentSessionId> {
        match self.assigned.as_ref()? {
            Assigned::Id(id) => Some(id),
            Assigned::File(_) => None,
        }
    }
}

impl Start {
    fn of_command(command: &OsString, args: Vec<OsString>) -> Self {
        let launch = ProgramSpec {
            program: command.clone(),
            arg0: command.clone(),
            args,
            set: Vec::new(),
            remove: Vec::new(),
        };
        Self {
            launch,
            conversation: ConversationStart::Fresh,
            agent: None,
            notes: Vec::new(),
            unnamed: None,
            proxy_setup: ProxySetup::Off,
        }
    }

    fn of_agent(
        located: Located,
        config: &AgentConfig,
        origin: &Origin,
        home: Option<&Home>,
        world: World<'_>,
        proxy_setup: &dyn Fn(&[OsString], Option<&str>) -> ProxySetup,
    ) -> Self {
        let Located { agent, program, invocation, depth, mut launch } = located;
        let now = world.clock.now();
        let installed = world.binaries.installed(agent, &program, home);
        let version = installed.version.as_deref();
        let folder = &origin.folder();
        let call = Call { agent, args: &launch.args, invocation: &invocation, version, config, folder };
        let mut changes = Changes::of(&call, &|name| origin.var(name), world.ids);
        let proxy_setup = proxy_setup(&launch.args, version);
        changes.add_detour(&proxy_setup);
        if !changes.args.is_empty() {
            launch.args.splice(0..0, changes.args);
            launch.set = vec![counted(depth, agent, &launch.args)];
        }
        let unnamed = agent.unnamed(&invocation, &launch.args, version);
        changes.notes.extend(unnamed.map(|why| ("arguments", why.to_owned())));
        launch.set.extend(changes.set);
        launch.remove = changes.remove;
        Self {
            launch,
            conversation: resume::conversation(&invocation, changes.assigned.is_some()),
            agent: Some(AgentStart {
                agent,
                interactive: invocation.kind == InvocationKind::Interactive,
                prompted: invocation.prompts,
                assigned: changes.assigned,
                chosen: resume::chosen(&invocation),
                installed,
            }),
            notes: changes.notes.into_iter().map(|(source, detail)| note(now, source, detail)).collect(),
            unnamed,
            proxy_setup,
        }
    }
}

/// How a program is followed.
struct FollowPlan {
    observer: Option<Box<dyn Observer>>,
    conversation: ConversationStart,
    /// The id the user chose, if it is free.
    chosen: Option<AgentSessionId>,
    surroundings: EnvSnapshot,
}

impl FollowPlan {
    fn of(start: &Start, origin: &Origin, folder: &Path) -> Self {
        let mut conversation = start.conversation.clone();
        let surroundings = RefCell::new(EnvSnapshot::default());
        let Some(AgentStart { agent, chosen, assigned, .. }) = &start.agent else {
            return Self {
                observer: None,
                conversation,
                chosen: None,
                surroundings: surroundings.into_inner(),
            };
        };
        // As the agent will see it. But a mark of another run means nothing here.
        let mark = agent.mark(uuid::Uuid::nil()).map(|(name, _)| name);
        let var = |name: &str| {
            let set = start.launch.set.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone());
            let value = set.or_else(|| origin.var(name).filter(|_| mark != Some(name)));
            surroundings.borrow_mut().note(name, value.as_deref());
            value
        };
        let mut observer = agent.observer(&var, folder);
        if let (Some(observer), Some(Assigned::File(file))) = (&mut observer, assigned) {
            observer.assign(file);
        }
        let mut chosen = chosen.clone();
        // An id that is taken is refused by the agent; should it continue there all the same, its own files show it.
        if chosen.as_ref().zip(observer.as_mut()).is_some_and(|(id, observer)| !observer.files(id).is_empty())
        {
            chosen = None;
            conversation = ConversationStart::Unsure;
        }
        Self { observer, conversation, chosen, surroundings: surroundings.into_inner() }
    }
}

#[cfg(test)]
mod tests;
