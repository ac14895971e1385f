//! Codex as an [`Agent`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use uuid::Uuid;

use super::files::{self, CodexFiles};
use super::head::Head;
use super::lines::CodexLines;
use super::observer::CodexObserver;
use super::version::{takes_config_flag, takes_no_daemon};
use super::{invocation, view};
use crate::UnwrappedConversation;
use crate::meter::line::Lines;
use crate::meter::title::Title;
use crate::{
    Agent, ConversationFiles, FileOwner, Invocation, InvocationKind, Launch, Observe, Observer, Remark,
    SessionFile, SessionFiles, Var, kit, transcript,
};
use os::file::read_at_most;
use pty::process::{Processes, SystemProcesses};
use types::AgentSessionId;
use types::Pid;

#[derive(Debug)]
pub struct Codex;

/// Keeps the interactive program in its own process, and shows nothing: with any `-c` it warns at every start that a setting
/// keeps it from its shared server, unless this stands beside it.
const NO_DAEMON: [&str; 1] = ["--no-daemon"];

/// For versions that do not take `--no-daemon`: a setting that changes nothing. It notes that the user knows of the migration of
/// a model called `codemie`. Any `-c` keeps the interactive program in its own process. Why this one: its table is a map of names,
/// so that no version finds it unknown (`--strict-config` neither), and an entry in a map replaces nothing that the user has set.
const HARMLESS: [&str; 2] = ["-c", "notice.model_migrations.codemie=codemie"];

/// What is not known of a client of the shared server. It was looked for in 0.166.0 and 0.169.0: the client holds no lock and no
/// rollout and names no thread in its log; the kernel names the two ends of the socket, but the server numbers its connections and
/// writes no process beside a number; and its protocol lists threads without their clients. Two terminals may also share a thread.
const UNNAMED: &str = "nothing keeps it out of its shared background server, and nothing there names the conversations of one terminal";

/// The agent's name for itself in its files and towards the vendor. Because of the vendor it is left alone unless asked for.
const ORIGINATOR: &str = "CODEX_INTERNAL_ORIGINATOR_OVERRIDE";

/// The prefix of our own originators.
const MARK: &str = "codemie-";

impl Agent for Codex {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn product(&self) -> &'static str {
        "OpenAI Codex"
    }

    fn provider(&self) -> Option<&'static str> {
        Some("openai")
    }
}

impl Launch for Codex {
    fn classify(&self, args: &[OsString]) -> Invocation {
        invocation::classify(args)
    }

    fn installed_version(&self, program: &Path) -> Option<String> {
        kit::version::of_package(program, "@openai/codex")
    }

    /// Without them, the interactive program is only a client of a shared background server: that one writes the
    /// files, keeps the environment of its own start, and no process of this run holds a file open. `exec` never is a client.
    fn embed(
        &self,
        invocation: &Invocation,
        args: &[OsString],
        version: Option<&str>,
    ) -> Option<Vec<OsString>> {
        let wanted = invocation.injectable && invocation.kind == InvocationKind::Interactive;
        let added = embedding(version?).filter(|_| wanted && !invocation::decides_where(args))?;
        Some(added.iter().map(OsString::from).collect())
    }

    fn unnamed(
        &self,
        invocation: &Invocation,
        args: &[OsString],
        version: Option<&str>,
    ) -> Option<&'static str> {
        let interactive = invocation.kind == InvocationKind::Interactive;
        let has_server = version.is_none_or(takes_no_daemon);
        (interactive && has_server && invocation::may_be_client(args)).then_some(UNNAMED)
    }

    fn mark(&self, run: Uuid) -> Option<(&'static str, String)> {
        Some((ORIGINATOR, format!("{MARK}{}", run.simple())))
    }

    fn resume(&self, conversation: &AgentSessionId, fork: bool) -> Option<Vec<OsString>> {
        let verb = if fork { "fork" } else { "resume" };
        Some(vec![verb.into(), OsString::from(&conversation.0)])
    }

    fn remarks(
        &self,
        var: Var<'_>,
        version: Option<&str>,
        inject: bool,
        embedded: bool,
        marks: bool,
    ) -> Vec<Remark> {
        const CLIENT: &str =
            "becomes a client of its shared background server, where its sessions cannot be told apart";
        let mut remarks = vec![match version.map(|version| (version, embedding(version))) {
            _ if !inject => Remark::advice(
                CLIENT,
                "run: codemie config set agent.codex.inject true, or give codex --no-daemon yourself",
            ),
            _ if !embedded => Remark::advice(
                CLIENT,
                "as agent.codex.embedded asks for. To have them followed and metered, run: codemie config set agent.codex.embedded true",
            ),
            Some((_, Some(added))) => {
                Remark::fine(format!("runs in its own process, by {}", added.join(" ")))
            }
            Some((version, None)) => {
                Remark::fine(format!("runs as it is: nothing is added to version {version}"))
            }
            None => Remark::advice(
                format!("{CLIENT}: nothing is added while its version is not known"),
                "let agent.codex.path name the program itself instead of what looks for it, or give codex --no-daemon yourself",
            ),
        }];
        if let Some(pid) = CodexFiles::from_env(var).and_then(|files| daemon(&files, &SystemProcesses)) {
            remarks.push(Remark::advice(
                format!("its shared background server runs as pid {pid}, with the environment of the process that started it"),
                "nothing to do: codemie keeps out of it. To end it, run: codex app-server daemon stop",
            ));
        }
        if marks {
            remarks.push(Remark::advice(
                format!("sends an originator of codemie's to the vendor, by {ORIGINATOR}"),
                "to stop that, run: codemie config set agent.codex.originator false",
            ));
        }
        remarks
    }
}

impl ConversationFiles for Codex {
    fn conversations(&self, var: Var<'_>, wanted: &str) -> Vec<UnwrappedConversation> {
        let found = self.session_files(var).files.into_iter().map(|file| file.path);
        let named = found.filter_map(|file| Some((files::thread_of(&file)?, file)));
        named
            .filter(|(thread, _)| thread.0.starts_with(wanted))
            .filter_map(|(agent_session, file)| {
                let head = Head::read(&file).filter(|head| !head.helper)?;
                Some(UnwrappedConversation {
                    agent: self.name().to_owned(),
                    agent_session,
                    cwd: head.cwd,
                    file,
                })
            })
            .collect()
    }

    fn session_files(&self, var: Var<'_>) -> SessionFiles {
        CodexFiles::from_env(var).map(|files| files.all()).unwrap_or_default()
    }

    fn session_roots(&self, var: Var<'_>) -> Vec<PathBuf> {
        let files = CodexFiles::from_env(var);
        files.map(|files| vec![files.sessions(), files.archived()]).unwrap_or_default()
    }

    fn owner(&self, _: Var<'_>, file: &SessionFile) -> Option<FileOwner> {
        let head = Head::read(&file.path)?;
        Some(FileOwner { conversation: head.root, folder: head.cwd, subagent: head.helper })
    }

    fn usage_lines(&self, state: Option<&str>) -> Option<Box<dyn Lines + Send>> {
        Some(Box::new(CodexLines::usage_only(state)))
    }

    fn title(&self, var: Var<'_>, id: &AgentSessionId) -> Option<Title> {
        CodexFiles::from_env(var)?.name_of(id)
    }

    fn transcript(&self) -> Option<transcript::Reader> {
        Some(transcript::Reader::Lines(view::items))
    }
}

impl Observe for Codex {
    fn observer(&self, var: Var<'_>, _folder: &Path) -> Option<Box<dyn Observer>> {
        let mark = var(ORIGINATOR).and_then(|mark| mark.into_string().ok());
        let mark = mark.filter(|mark| mark.starts_with(MARK));
        Some(Box::new(CodexObserver::new(CodexFiles::from_env(var)?, mark)))
    }
}

/// The arguments that keep this version in its own process, in the quietest way it takes.
fn embedding(version: &str) -> Option<&'static [&'static str]> {
    if takes_no_daemon(version) { Some(&NO_DAEMON) } else { takes_config_flag(version).then_some(&HARMLESS) }
}

/// The shared background server, if it runs: its note stays behind when it is killed.
pub(super) fn daemon(files: &CodexFiles, processes: &dyn Processes) -> Option<Pid> {
    #[derive(Deserialize)]
    struct Note {
        pid: i32,
        #[serde(rename = "processIdentity")]
        identity: Option<Identity>,
    }
    #[derive(Deserialize)]
    struct Identity {
        #[serde(rename = "startTicks")]
        start_ticks: Option<u64>,
    }
    let note: Note = serde_json::from_slice(&read_at_most(&files.daemon_note(), 64 << 10).ok()?).ok()?;
    let start = processes.start_time(Pid(note.pid))?;
    let noted = note.identity.and_then(|identity| identity.start_ticks);
    // Where its start is not noted in our unit, a process of its pid must suffice.
    (noted.is_none() || noted == Some(start.0)).then_some(Pid(note.pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use types::StartTime;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn embedded(line: &str, version: Option<&str>) -> Option<String> {
        let args = words(line);
        let added = Codex.embed(&Codex.classify(&args), &args, version)?;
        Some(added.join(OsStr::new(" ")).into_string().unwrap())
    }

    #[test]
    fn the_quietest_way_into_its_own_process_is_added_where_it_makes_a_difference() {
        for line in ["", "hello", "resume --last", "fork", "-m gpt-6 hello", "--strict-config"] {
            assert_eq!(embedded(line, None), None, "codex {line} of a version that nobody knows");
            assert_eq!(embedded(line, Some("0.166.0")).as_deref(), Some("--no-daemon"), "codex {line}");
            let older = embedded(line, Some("0.155.1"));
            assert_eq!(older.as_deref(), Some("-c notice.model_migrations.codemie=codemie"), "codex {line}");
            assert_eq!(embedded(line, Some("0.1.2504301751")), None, "codex {line} before it was rewritten");
        }
        for line in [
            "exec hello",
            "e hello",
            "review",
            "--brand-new hello",
            "-c a=b",
            "--no-daemon",
            "--remote ws://x resume",
        ] {
            assert_eq!(embedded(line, Some("0.166.0")), None, "codex {line}");
        }
    }

    #[test]
    fn a_client_of_the_server_is_known_to_have_no_name() {
        for (line, version, unnamed) in [
            ("", Some("0.166.0"), true),
            ("resume --last", None, true),
            ("--remote ws://x", Some("0.166.0"), true),
            ("--remote ws://x -c a=b", Some("0.166.0"), true),
            ("--no-daemon", Some("0.166.0"), false),
            ("-c a=b", None, false),
            ("exec hello", Some("0.166.0"), false),
            ("", Some("0.155.1"), false),
        ] {
            let args = words(line);
            let why = Codex.unnamed(&Codex.classify(&args), &args, version);
            assert_eq!(why.is_some(), unnamed, "codex {line} of {version:?}");
        }
    }

    #[test]
    fn the_doctor_reports_the_setting_that_a_run_adds() {
        for (version, inject, allowed, fine) in [
            (Some("0.166.0"), true, true, true),
            (Some("0.155.1"), true, true, true),
            (Some("0.166.0"), true, false, false),
            (Some("0.166.0"), false, true, false),
            (None, true, true, false),
            (None, false, true, false),
        ] {
            let remarks = Codex.remarks(&|_| None, version, inject, allowed, false);
            assert_eq!(remarks.len(), 1);
            let added = embedded("", version).filter(|_| inject && allowed);
            let by = added.map(|added| format!("runs in its own process, by {added}"));
            assert_eq!(by.as_ref() == Some(&remarks[0].what), fine, "{version:?} {inject} {allowed}");
            assert_eq!(remarks[0].advice.is_none(), fine, "{version:?} {inject} {allowed}");
        }
    }

    #[test]
    fn the_shared_server_is_known_by_more_than_its_pid() {
        struct One;
        impl Processes for One {
            fn start_time(&self, pid: Pid) -> Option<StartTime> {
                (pid == Pid(42)).then_some(StartTime(7))
            }
            fn parent(&self, _: Pid) -> Option<Pid> {
                None
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let files = CodexFiles::at(folder.path());
        assert_eq!(daemon(&files, &One), None);
        std::fs::create_dir_all(files.daemon_note().parent().unwrap()).unwrap();
        for (note, expected) in [
            (r#"{"pid":42,"processIdentity":{"bootId":"x","startTicks":7}}"#, Some(Pid(42))),
            (r#"{"pid":42,"processIdentity":{"startTicks":8}}"#, None),
            (r#"{"pid":42}"#, Some(Pid(42))),
            (r#"{"pid":43}"#, None),
            ("", None),
        ] {
            std::fs::write(files.daemon_note(), note).unwrap();
            assert_eq!(daemon(&files, &One), expected, "{note}");
        }
    }

    #[test]
    fn foreign_conversations_are_found_and_sub_agents_are_none() {
        let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/codex/subagent");
        let var = |name: &str| (name == "CODEX_HOME").then(|| home.clone().into_os_string());
        let found = Codex.conversations(&var, "01a1e192");
        let found: Vec<_> =
            found.iter().map(|foreign| (foreign.agent_session.0.as_str(), foreign.cwd.as_deref())).collect();
        assert_eq!(found, [("01a1e192-0e13-7430-b5f7-b22ee1e9c164", Some(Path::new("/home/dev/project")))]);
        assert_eq!(Codex.session_files(&var).files.len(), 2);
        assert!(Codex.conversations(&var, "7").is_empty());
    }
}
