//! Claude Code as an [`Agent`].

use std::ffi::OsString;
use std::path::Path;

use super::lines::ClaudeLines;
use super::{evidence, files, invocation, live, screen, version, view};
use crate::kit::neighbours::Program;
use crate::kit::registry::{self, BackgroundService, History, RegistryAgent, RegistryFiles, RegistryFormat};
use crate::live::{Published, ScreenReading, TurnMark, Writer};
use crate::{Agent, Conversation, Injection, Invocation, Launch, LaunchStart, Live, Remark, Var, transcript};
use os::file::read_at_most;
use pty::process::Processes;
use pty::screen::ScreenView;
use types::{AgentSessionId, Pid};

#[derive(Debug)]
pub struct Claude;

/// The agent keeps much in its configuration, but it is read on the way to exec.
const MAX_CONFIG: u64 = 64 << 20;

impl Agent for Claude {
    fn name(&self) -> &'static str {
        "claude"
    }

    fn product(&self) -> &'static str {
        "Claude Code"
    }

    fn status_line_settings(&self, var: Var<'_>) -> Option<String> {
        let folder = var("CLAUDE_CONFIG_DIR").filter(|folder| !folder.is_empty());
        let chosen = folder.map(|folder| Path::new(&folder).join("settings.json").display().to_string());
        Some(chosen.unwrap_or_else(|| "~/.claude/settings.json".to_owned()))
    }

    fn provider(&self) -> Option<&'static str> {
        Some("anthropic")
    }
}

impl Launch for Claude {
    fn classify(&self, args: &[OsString]) -> Invocation {
        invocation::classify(args)
    }

    /// With the first of them inherited, the agent writes no session file and registers nowhere.
    fn nesting_variables(&self) -> &'static [&'static str] {
        &["CLAUDE_CODE_CHILD_SESSION", "CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_ENTRYPOINT"]
    }

    fn installed_version(&self, program: &Path) -> Option<String> {
        version::installed(program)
    }

    fn inject(&self, start: &LaunchStart<'_>) -> Option<Injection> {
        let LaunchStart { invocation, args, version, var, .. } = *start;
        let wanted =
            invocation.injectable && invocation.persistent && invocation.session == Conversation::Fresh;
        if !wanted || !version.is_some_and(version::takes_session_id) {
            return None;
        }
        if invocation::agents_view_possible(args) {
            let config = read_at_most(
                &files::global_config(&RegistryFiles::from_env(files::LAYOUT, var)?),
                MAX_CONFIG,
            )
            .unwrap_or_default();
            if invocation::defaults_to_agents_view(&config) {
                return None;
            }
        }
        Some(Injection::session_id(start.fresh))
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
        let older = version.filter(|version| version::lacks_registry(version));
        let remark = older.map(|version| {
            let what = format!("version {version} does not say which conversation a process is in: while another one runs in the same folder, a /clear may not be seen");
            Remark::advice(what, "update claude, if there is a newer one; `codemie explain SESSION` shows what was not certain")
        });
        remark.into_iter().collect()
    }
}

impl RegistryAgent for Claude {
    const FORMAT: &'static RegistryFormat = &FORMAT;
}

pub static FORMAT: RegistryFormat = RegistryFormat {
    program: &PROGRAM,
    layout: files::LAYOUT,
    version_field: "version",
    keeps_entry: |version| !version::lacks_registry(version),
    beginning: evidence::beginning,
    lines: |state| Box::new(ClaudeLines::new(state)),
    usage_lines: || Box::new(ClaudeLines::usage_only()),
    reader: transcript::Reader::Threads(view::thread),
    history: Some(History { file: "history.jsonl", entry: evidence::history_line }),
    background: Some(BackgroundService {
        jobs: "jobs",
        job: evidence::job,
        given: evidence::gives_to_background,
    }),
};

/// Older versions are scripts that call their process `claude`.
pub(super) static PROGRAM: Program = Program {
    names: &["claude", "claude.exe"],
    folders: &["/claude-code/", "/claude-agent-sdk/", "/claude/versions/"],
};

impl Live for Claude {
    fn read_screen(&self, screen: &ScreenView) -> ScreenReading {
        screen::read(screen)
    }

    fn read_turn(&self, line: &[u8]) -> Option<TurnMark> {
        live::read_turn(line)
    }

    fn marks_turns(&self) -> bool {
        true
    }

    fn published(&self, var: Var<'_>, pid: Pid, processes: &dyn Processes) -> Option<Published> {
        live::published(&RegistryFiles::from_env(files::LAYOUT, var)?, pid, processes)
    }

    fn prompt_arguments(&self, prompt: &str) -> Option<Vec<OsString>> {
        live::prompt_arguments(prompt)
    }

    fn is_shared_daemon(&self, command: &[OsString]) -> bool {
        live::is_shared_daemon(command)
    }

    fn writers(&self, var: Var<'_>, conversation: &AgentSessionId, processes: &dyn Processes) -> Vec<Writer> {
        registry::writers(self, var, conversation, processes)
    }
}
