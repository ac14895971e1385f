//! Claude Code as an [`Agent`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::files::{self, ClaudeFiles};
use super::lines::ClaudeLines;
use super::observer::ClaudeObserver;
use super::{invocation, live, screen, version, view, writers};
use crate::UnwrappedConversation;
use crate::live::{Published, ScreenReading, TurnMark, Writer};
use crate::meter::line::Lines;
use crate::{
    Agent, Conversation, ConversationFiles, FileOwner, Injection, Invocation, Launch, Live, Observe,
    Observer, Remark, SessionFile, SessionFiles, Var, transcript,
};
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

    fn inject(
        &self,
        invocation: &Invocation,
        args: &[OsString],
        version: Option<&str>,
        fresh: Uuid,
        var: Var<'_>,
    ) -> Option<Injection> {
        let wanted =
            invocation.injectable && invocation.persistent && invocation.session == Conversation::Fresh;
        if !wanted || !version.is_some_and(version::takes_session_id) {
            return None;
        }
        if invocation::agents_view_possible(args) {
            let config =
                read_at_most(ClaudeFiles::from_env(var)?.global_config(), MAX_CONFIG).unwrap_or_default();
            if invocation::defaults_to_agents_view(&config) {
                return None;
            }
        }
        let id = fresh.to_string();
        Some(Injection {
            args: vec!["--session-id".into(), id.clone().into()],
            assigned: Some(AgentSessionId(id)),
        })
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

impl ConversationFiles for Claude {
    fn conversations(&self, var: Var<'_>, wanted: &str) -> Vec<UnwrappedConversation> {
        let found = ClaudeFiles::from_env(var).map(|files| files.session_files()).unwrap_or_default();
        let mut conversations: Vec<UnwrappedConversation> = found
            .files
            .into_iter()
            .filter_map(|file| Some((files::session_id(&file.path)?, file.path)))
            .filter(|(id, _)| id.0.starts_with(wanted))
            .map(|(agent_session, file)| UnwrappedConversation {
                agent: self.name().to_owned(),
                agent_session,
                cwd: view::folder(&file),
                file,
            })
            .collect();
        // Two projects can hold copies of one conversation.
        conversations.sort_by(|a, b| (&a.agent_session, &a.file).cmp(&(&b.agent_session, &b.file)));
        conversations.dedup_by(|a, b| a.agent_session == b.agent_session);
        conversations
    }

    fn session_files(&self, var: Var<'_>) -> SessionFiles {
        ClaudeFiles::from_env(var).map(|files| files.project_folders()).unwrap_or_default()
    }

    fn session_files_in(&self, folder: &Path) -> SessionFiles {
        files::files_of_project(folder)
    }

    fn session_roots(&self, var: Var<'_>) -> Vec<PathBuf> {
        ClaudeFiles::from_env(var).map(|files| files.projects()).into_iter().collect()
    }

    fn owner(&self, _: Var<'_>, file: &SessionFile) -> Option<FileOwner> {
        let own = files::session_id(&file.path);
        let subagent = own.is_none() || own != file.conversation;
        let named = || view::conversation(&file.path);
        let conversation = file.conversation.clone().or_else(named)?;
        Some(FileOwner { conversation, folder: view::folder(&file.path), subagent })
    }

    /// Only tool calls stay open from one line to the next, so answered calls need no state.
    fn usage_lines(&self, _state: Option<&str>) -> Option<Box<dyn Lines + Send>> {
        Some(Box::new(ClaudeLines::usage_only()))
    }

    fn transcript(&self) -> Option<transcript::Reader> {
        Some(transcript::Reader::Threads(view::thread))
    }
}

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
        live::published(&ClaudeFiles::from_env(var)?, pid, processes)
    }

    fn prompt_arguments(&self, prompt: &str) -> Option<Vec<OsString>> {
        live::prompt_arguments(prompt)
    }

    fn is_shared_daemon(&self, command: &[OsString]) -> bool {
        live::is_shared_daemon(command)
    }

    fn writers(&self, var: Var<'_>, conversation: &AgentSessionId, processes: &dyn Processes) -> Vec<Writer> {
        writers::writers(var, conversation, processes)
    }
}

impl Observe for Claude {
    fn observer(&self, var: Var<'_>, folder: &Path) -> Option<Box<dyn Observer>> {
        Some(Box::new(ClaudeObserver::new(ClaudeFiles::from_env(var)?, folder)))
    }
}
