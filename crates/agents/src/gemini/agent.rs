//! Gemini CLI as an [`Agent`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::files::{self, GeminiFiles};
use super::lines::GeminiLines;
use super::observer::GeminiObserver;
use super::{invocation, version, view};
use crate::UnwrappedConversation;
use crate::meter::form::Form;
use crate::meter::line::Lines;
use crate::{
    Agent, ConversationFiles, FileOwner, Injection, Invocation, Launch, LaunchStart, Observe, Observer,
    Remark, SessionFile, SessionFiles, Var, kit, transcript,
};
use types::AgentSessionId;

#[derive(Debug)]
pub struct Gemini;

impl Agent for Gemini {
    fn name(&self) -> &'static str {
        "gemini"
    }

    fn product(&self) -> &'static str {
        "Gemini CLI"
    }

    fn provider(&self) -> Option<&'static str> {
        Some("gcp.gemini")
    }
}

impl Launch for Gemini {
    fn classify(&self, args: &[OsString]) -> Invocation {
        invocation::classify(args)
    }

    /// Its files hold no version, but its package does.
    fn installed_version(&self, program: &Path) -> Option<String> {
        kit::version::of_package(program, "@google/gemini-cli")
    }

    fn inject(&self, start: &LaunchStart<'_>) -> Option<Injection> {
        let wanted = start.invocation.injectable && start.version.is_some_and(version::takes_session_id);
        wanted.then(|| Injection::session_id(start.fresh))
    }

    /// A changed setting or a login makes it restart with the same arguments. The file of an empty conversation is removed by
    /// then, so one that exists holds messages.
    fn refused_its_id(&self, code: u8, id: &AgentSessionId, var: Var<'_>) -> bool {
        const FATAL_INPUT: u8 = 42;
        code == FATAL_INPUT && GeminiFiles::from_env(var).is_some_and(|files| !files.find(id).is_empty())
    }

    fn resume(&self, conversation: &AgentSessionId, fork: bool) -> Option<Vec<OsString>> {
        // It has no copies.
        (!fork).then(|| vec!["--resume".into(), OsString::from(&conversation.0)])
    }

    fn remarks(
        &self,
        _var: Var<'_>,
        version: Option<&str>,
        inject: bool,
        _embedded: bool,
        _marks: bool,
    ) -> Vec<Remark> {
        const NONE: &str = "its sessions get no id of codemie's: which one is whose is certain only while no other runs in the folder";
        let mut remarks = vec![match version {
            _ if !inject => Remark::advice(NONE, "run: codemie config set agent.gemini.inject true"),
            Some(version) if version::takes_session_id(version) => {
                Remark::fine("its sessions get an id of codemie's, by --session-id")
            }
            Some(version) => Remark::advice(
                format!("{NONE}; version {version} does not take one"),
                "update gemini, if there is a newer one",
            ),
            None => Remark::advice(
                format!("{NONE}; nothing is added while its version is not known"),
                "let agent.gemini.path name the program itself instead of what looks for it",
            ),
        }];
        if version.is_some_and(version::keeps_its_first_id) {
            remarks.push(Remark::advice(
                "the first /clear of a run goes on under the same id, often in the same file: codemie sees no clear then, and counts \
                 both under one session",
                "update gemini, if there is a newer one",
            ));
        }
        remarks
    }
}

impl ConversationFiles for Gemini {
    fn conversations(&self, var: Var<'_>, wanted: &str) -> Vec<UnwrappedConversation> {
        let Some(files) = GeminiFiles::from_env(var) else { return Vec::new() };
        let mut conversations: Vec<UnwrappedConversation> = files
            .all_main()
            .unwrap_or_default()
            .into_iter()
            .filter(|path| files::may_be_of(path, wanted))
            .filter_map(|file| {
                let header = files::header(&file)?;
                header.session.0.starts_with(wanted).then(|| UnwrappedConversation {
                    agent: self.name().to_owned(),
                    agent_session: header.session,
                    cwd: files.folder_of(&file),
                    file,
                })
            })
            .collect();
        // A resumed conversation has stubs beside its file; the file is the oldest, and names begin with the time.
        conversations.sort_by(|a, b| (&a.agent_session, &a.file).cmp(&(&b.agent_session, &b.file)));
        conversations.dedup_by(|a, b| a.agent_session == b.agent_session);
        conversations
    }

    fn form(&self, file: &Path) -> Form {
        files::form(file)
    }

    fn session_files(&self, var: Var<'_>) -> SessionFiles {
        GeminiFiles::from_env(var).map(|files| files.all()).unwrap_or_default()
    }

    fn session_roots(&self, var: Var<'_>) -> Vec<PathBuf> {
        GeminiFiles::from_env(var).map(|files| files.projects()).into_iter().collect()
    }

    fn owner(&self, var: Var<'_>, file: &SessionFile) -> Option<FileOwner> {
        let header = || files::header(&file.path).map(|header| header.session);
        let conversation = file.conversation.clone().or_else(header)?;
        let folder = GeminiFiles::from_env(var)?.folder_of(&file.path);
        Some(FileOwner { conversation, folder, subagent: file.conversation.is_some() })
    }

    fn usage_lines(&self, state: Option<&str>) -> Option<Box<dyn Lines + Send>> {
        Some(Box::new(GeminiLines::usage_only(state)))
    }

    fn transcript(&self) -> Option<transcript::Reader> {
        Some(transcript::Reader::Journal(view::entry))
    }
}

impl Observe for Gemini {
    fn observer(&self, var: Var<'_>, folder: &Path) -> Option<Box<dyn Observer>> {
        Some(Box::new(GeminiObserver::new(GeminiFiles::from_env(var)?, folder)))
    }
}
