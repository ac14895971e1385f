//! From arguments and an environment to a started agent.
//!
//! What is decided (execute or wrap, what is added to the agent, which conversation it continues, what to do about a session
//! that runs) is pure: variables and folder come from an [`Origin`], time, ids and installed programs from a [`World`]. So a
//! background host can launch for another folder and environment than its own, with a session id that its caller chose.
//!
//! `prepare` decides all of it, with `injection` (what is added to the agent) and `proxy_setup` (whether its calls go through a proxy);
//! `run` carries it out. `resume` and `conflict` come before a launch that continues a session; `stop` ends one.
//!
//! This is the hot path from argv0 to exec. Nothing here may keep the agent from running: what codemie cannot do it leaves
//! out, and reports after the agent has ended.

pub mod conflict;
mod injection;
mod origin;
mod prepare;
pub mod proxy_setup;
pub mod resume;
mod run;
pub mod stop;

use std::ffi::OsString;

use agents::Agent;
use agents::registry;
pub use origin::Origin;
pub use origin::{receivers, settings};
pub use prepare::{AssignedId, Binaries, Installed, Prepared, SystemBinaries, World, prepare};
pub use proxy_setup::{ProxySetup, Through};
use pty::process::SystemProcesses;
pub use run::{RunResult, execute, restart_without_id, wrap, wrap_on};
use store::session::lineage::Lineage;
use store::session::names::{self, NameError};
use types::{Evidence, EvidenceVerdict};
use types::{Pid, RunId, SessionId, Timestamp};

/// The run that a program was started in, as the agent's process sees it.
pub const RUN_VARIABLE: &str = "CODEMIE_RUN_ID";
/// The first session of that run.
pub const SESSION_VARIABLE: &str = "CODEMIE_SESSION_ID";

/// The program to launch.
#[derive(Clone, Debug)]
pub enum LaunchTarget {
    Agent(&'static dyn Agent),
    Command(OsString),
}

impl LaunchTarget {
    /// The program's name, in records and messages.
    pub fn name(&self) -> String {
        match self {
            Self::Agent(agent) => agent.name().to_owned(),
            Self::Command(command) => {
                let name = std::path::Path::new(command).file_name().unwrap_or(command);
                name.to_string_lossy().into_owned()
            }
        }
    }
}

/// Name, tags and group that the user gives a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    pub name: Option<String>,
    pub tags: Vec<String>,
    pub group: Option<String>,
}

impl Labels {
    /// Refuses what the store would refuse, before the agent starts. Spaces around a label are dropped.
    pub fn checked(name: Option<&str>, tags: &[String], group: Option<&str>) -> Result<Self, NameError> {
        let owned = |text: &str| text.to_owned();
        Ok(Self {
            name: name.map(names::check).transpose()?.map(owned),
            tags: tags.iter().map(|tag| names::check_tag(tag).map(owned)).collect::<Result<_, _>>()?,
            group: group.map(names::check_group).transpose()?.map(owned),
        })
    }
}

/// One launch, as its caller asks for it.
#[derive(Clone, Debug)]
pub struct LaunchRequest {
    pub target: LaunchTarget,
    pub args: Vec<OsString>,
    pub labels: Labels,
    /// The id of the session, where the caller has announced it already; else one is made.
    pub session: Option<SessionId>,
    /// Whether the tracker collects what the closing line says.
    pub summary: bool,
    /// Its calls are to go through the proxy, whatever the settings say.
    pub proxy: bool,
}

/// The run that the variables name. They are inherited, also through an agent's daemon from another session's: which run a
/// process is inside of is known by its [`lineage`].
pub fn named_run(origin: &Origin) -> Option<RunId> {
    origin.var(RUN_VARIABLE)?.to_str()?.parse().ok()
}

/// Where this process comes from.
pub fn lineage(origin: &Origin) -> Lineage {
    let own = Pid(std::process::id().cast_signed());
    Lineage::of(own, named_run(origin), &SystemProcesses, &is_shared_daemon)
}

/// Whether the process is one that an agent shares between its sessions.
pub fn is_shared_daemon(command: &[OsString]) -> bool {
    registry::AGENTS.iter().any(|agent| agent.is_shared_daemon(command))
}

/// Something codemie did to the agent, for `explain`.
pub fn note(at: Timestamp, source: &str, detail: String) -> Evidence {
    Evidence {
        at,
        source: source.to_owned(),
        verdict: EvidenceVerdict::Noted,
        agent_session_id: None,
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_the_store_would_refuse_are_refused_before_the_start() {
        let tag = |tag: &str| vec![tag.to_owned()];
        let kept = Labels::checked(Some(" fix "), &tag("ui "), Some("team")).unwrap();
        let expected = Labels { name: Some("fix".into()), tags: tag("ui"), group: Some("team".into()) };
        assert_eq!(kept, expected);
        for (name, tags, group) in [
            (Some(""), vec![], None),
            (Some("-x"), vec![], None),
            (Some("a/b"), vec![], None),
            (None, tag("a\nb"), None),
            (None, tag(" "), None),
            (None, vec![], Some("-g")),
        ] {
            assert!(Labels::checked(name, &tags, group).is_err(), "{name:?} {tags:?} {group:?}");
        }
        assert_eq!(Labels::checked(None, &[], None).unwrap(), Labels::default());
    }

    #[test]
    fn a_program_is_named_by_its_file() {
        for (command, name) in
            [("make", "make"), ("/usr/bin/make", "make"), ("./run.sh", "run.sh"), ("/", "/")]
        {
            assert_eq!(LaunchTarget::Command(command.into()).name(), name);
        }
    }

    #[test]
    fn a_run_is_nested_only_by_a_valid_id() {
        let of = |value: &str| named_run(&Origin::given([(RUN_VARIABLE.into(), value.into())], "/".into()));
        let id = "00000000-0000-4000-8000-000000000009";
        assert_eq!(of(id), Some(id.parse().unwrap()));
        assert_eq!(of(""), None);
        assert_eq!(of("x"), None);
        assert_eq!(named_run(&Origin::given([], "/".into())), None);
    }
}
