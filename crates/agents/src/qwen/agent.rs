//! Qwen Code as an [`Agent`].

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::lines::QwenLines;
use super::{calls, invocation, lines, route, screen, view};
use crate::kit::neighbours::Program;
use crate::kit::registry::{self, Layout, RegistryAgent, RegistryFormat};
use crate::kit::version::{major_and_minor, of_package};
use crate::live::{ScreenReading, TurnMark, Writer};
use crate::{
    Agent, CallIdentity, Conversation, Injection, Invocation, Launch, LaunchStart, Live, Proxied, ProxyRoute,
    ProxyStart, Remark, Var, transcript,
};
use pty::process::Processes;
use pty::screen::ScreenView;
use types::AgentSessionId;

#[derive(Debug)]
pub struct Qwen;

pub(super) static LAYOUT: Layout = Layout {
    variable: Some("QWEN_HOME"),
    folder: ".qwen",
    projects_variable: Some("QWEN_RUNTIME_DIR"),
    sessions: Some("chats"),
    // Their calls stand in the conversation's own file.
    subagents: None,
};

/// The launcher starts a process that starts the agent: `node qwen`, `node --expose-gc …/qwen-code/cli.js`, and that once more.
static PROGRAM: Program = Program { names: &["qwen"], folders: &["/qwen-code/"] };

pub(super) static FORMAT: RegistryFormat = RegistryFormat {
    program: &PROGRAM,
    layout: &LAYOUT,
    version_field: "qwenVersion",
    keeps_entry: |_| true,
    beginning: lines::beginning,
    lines: |_| Box::new(QwenLines::default()),
    usage_lines: || Box::new(QwenLines::usage_only()),
    reader: transcript::Reader::Lines(view::items),
    history: None,
    background: None,
};

/// The first version that was measured to name its files by `--session-id`, and to keep a registry.
const FIRST_WITH_SESSION_ID: (u64, u64) = (0, 24);

/// A new major version is a new program.
fn takes_session_id(version: &str) -> bool {
    major_and_minor(version)
        .is_some_and(|numbers| numbers.0 == FIRST_WITH_SESSION_ID.0 && numbers >= FIRST_WITH_SESSION_ID)
}

impl Agent for Qwen {
    fn name(&self) -> &'static str {
        "qwen"
    }

    fn product(&self) -> &'static str {
        "Qwen Code"
    }
}

impl RegistryAgent for Qwen {
    const FORMAT: &'static RegistryFormat = &FORMAT;
}

impl Launch for Qwen {
    fn classify(&self, args: &[OsString]) -> Invocation {
        invocation::classify(args)
    }

    /// Its shell tool sets them for what it starts (read in the program).
    fn nesting_variables(&self) -> &'static [&'static str] {
        &["QWEN_CODE_SESSION_ID", "QWEN_CODE_PROJECT_DIR"]
    }

    fn installed_version(&self, program: &Path) -> Option<String> {
        of_package(program, "@qwen-code/qwen-code")
    }

    fn inject(&self, start: &LaunchStart<'_>) -> Option<Injection> {
        let invocation = start.invocation;
        let wanted =
            invocation.injectable && invocation.persistent && invocation.session == Conversation::Fresh;
        let takes = start.version.is_some_and(takes_session_id);
        (wanted && takes).then(|| Injection::session_id(start.fresh))
    }

    fn resume(&self, conversation: &AgentSessionId, fork: bool) -> Option<Vec<OsString>> {
        let mut args = vec!["--resume".into(), OsString::from(&conversation.0)];
        args.extend(fork.then(|| "--fork-session".into()));
        Some(args)
    }

    fn remarks(
        &self,
        _var: Var<'_>,
        version: Option<&str>,
        _inject: bool,
        _embedded: bool,
        _marks: bool,
    ) -> Vec<Remark> {
        let untried = version.filter(|version| !takes_session_id(version)).map(|version| {
            let what = format!("version {version} was not tried: its sessions get no id of codemie's");
            Remark::advice(what, "use 0.24 or a later 0.x")
        });
        let unwritten = "it writes down no calls for suggestions and for the classifier of its auto mode";
        let unwritten = Remark::fine(format!("{unwritten}: only the proxy counts those"));
        untried.into_iter().chain([unwritten]).collect()
    }
}

impl Live for Qwen {
    fn read_screen(&self, screen: &ScreenView) -> ScreenReading {
        screen::read(screen)
    }

    fn read_turn(&self, line: &[u8]) -> Option<TurnMark> {
        lines::read_turn(line)
    }

    fn marks_turns(&self) -> bool {
        true
    }

    /// It has each line flushed to the disk before it writes the next one: with eight at once on a busy disk the answer came more than
    /// two seconds after the title was that of an idle agent.
    fn answers_within(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// With `=`, because a text may begin with a dash.
    fn prompt_arguments(&self, prompt: &str) -> Option<Vec<OsString>> {
        (!prompt.trim().is_empty()).then(|| vec![format!("--prompt-interactive={prompt}").into()])
    }

    fn writers(&self, var: Var<'_>, conversation: &AgentSessionId, processes: &dyn Processes) -> Vec<Writer> {
        registry::writers(self, var, conversation, processes)
    }
}

impl Proxied for Qwen {
    fn proxy_route(&self, start: &ProxyStart<'_>) -> ProxyRoute {
        route::route(start)
    }

    fn identify(&self, request: &relay::Request) -> CallIdentity {
        calls::identify(request)
    }

    /// Its lines have ids of their own, which copies keep.
    fn keys_by_answer(&self, _version: Option<&str>) -> bool {
        false
    }
}
