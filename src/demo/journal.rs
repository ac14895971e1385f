//! The files of the scripted agent, in the format of Claude Code 2.1: session files, the registry entry of its process and
//! the history of typed prompts.
//!
//! It writes the way Claude Code does: whole lines appended in one go, the registry rewritten in place, no session file
//! before the first prompt.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::script::{self, Call, MODEL, Tool};
use agents::claude::FORMAT;
use agents::kit::registry::RegistryFiles;
use os::clock::{Clock, SystemClock};
use os::file::create_private;
use os::file::{open_regular_with, read_at_most, text_at_most};
use pty::process::{Processes, SystemProcesses};
use types::Timestamp;
use types::{AgentSessionId, Ids, RandomIds};
use types::{Pid, ProcessId};

#[derive(Debug)]
pub(super) struct Journal {
    files: RegistryFiles,
    /// The real path, as Claude Code resolves links first.
    cwd: PathBuf,
    process: ProcessId,
    started_at: Timestamp,
    session: AgentSessionId,
    /// The line that the next one answers.
    parent: Option<String>,
    /// The common fields of a turn's lines.
    prompt: String,
    last_prompt: Option<&'static str>,
}

impl Journal {
    /// Registers this process as being in `session`.
    pub(super) fn open(files: RegistryFiles, cwd: PathBuf, session: AgentSessionId) -> io::Result<Self> {
        let me = Pid(i32::try_from(std::process::id()).unwrap_or(0));
        let process = SystemProcesses.identify(me).ok_or_else(|| io::Error::other("who am I?"))?;
        create_private(&files.registry())?;
        create_private(&files.project(&cwd))?;
        sweep(&files.registry());
        let journal = Self {
            files,
            cwd,
            process,
            started_at: SystemClock.now(),
            session,
            parent: None,
            prompt: fresh(),
            last_prompt: None,
        };
        journal.register("idle")?;
        Ok(journal)
    }

    pub(super) fn session(&self) -> &AgentSessionId {
        &self.session
    }

    fn register(&self, status: &str) -> io::Result<()> {
        let now = SystemClock.now().0;
        let entry = json!({
            "pid": self.process.pid,
            "sessionId": self.session,
            "cwd": self.cwd,
            "startedAt": self.started_at,
            "procStart": self.process.start.0.to_string(),
            "version": env!("CARGO_PKG_VERSION"),
            "peerProtocol": 1,
            "kind": "interactive",
            "entrypoint": "cli",
            "name": script::PROJECT,
            "nameSource": "derived",
            "status": status,
            "updatedAt": now,
            "statusUpdatedAt": now,
        });
        fs::write(self.files.registry_entry(self.process.pid), entry.to_string())
    }

    /// The user typed a prompt and pressed Enter.
    pub(super) fn prompted(&mut self, text: &'static str) -> io::Result<()> {
        self.typed(text)?;
        self.register("busy")?;
        self.prompt = fresh();
        self.last_prompt = Some(text);
        let line = self.line(json!({
            "type": "user",
            "promptId": self.prompt,
            "message": {"role": "user", "content": text},
            "permissionMode": "default",
            "origin": {"kind": "human"},
            "promptSource": "typed",
        }));
        let mode = json!({"type": "mode", "mode": "normal", "sessionId": self.session});
        if self.file().exists() { self.append(&[line]) } else { self.append(&[mode, line]) }
    }

    /// The model answered: one line per block, each with the whole usage.
    pub(super) fn answered(&mut self, call: &Call) -> io::Result<Option<ToolUse>> {
        let (message, request) = (tagged("msg"), tagged("req"));
        let used = call.tool.as_ref().map(|_| tagged("toolu"));
        let text = (!call.text.is_empty()).then(|| json!({"type": "text", "text": call.text}));
        let tool = call.tool.as_ref().zip(used.as_ref()).map(
            |(tool, id)| json!({"type": "tool_use", "id": id, "name": tool.name(), "input": self.input(tool)}),
        );
        let stop = if tool.is_some() { "tool_use" } else { "end_turn" };
        let lines: Vec<Value> = text
            .into_iter()
            .chain(tool)
            .map(|block| {
                self.line(json!({
                    "type": "assistant",
                    "message": {
                        "id": message, "type": "message", "role": "assistant", "model": MODEL, "content": [block],
                        "stop_reason": stop, "stop_sequence": null, "usage": usage(call),
                    },
                    "requestId": request,
                }))
            })
            .collect();
        self.append(&lines)?;
        Ok(used.zip(self.parent.clone()).map(|(id, line)| ToolUse { id, line }))
    }

    fn input(&self, tool: &Tool) -> Value {
        let path = self.cwd.join(tool.file());
        match tool {
            Tool::Write { content, .. } => json!({"file_path": path, "content": content}),
            Tool::Edit { patch, .. } => json!({
                "replace_all": false, "file_path": path,
                "old_string": script::original(patch), "new_string": script::patched(patch),
            }),
            Tool::Read { .. } => json!({"file_path": path}),
        }
    }

    /// Carries out the tool call, in the demonstration's own folder, and writes its result.
    pub(super) fn used(&mut self, tool: &Tool, used: &ToolUse) -> io::Result<()> {
        let path = self.cwd.join(tool.file());
        let (content, result) = match tool {
            Tool::Write { content, .. } => {
                fs::write(&path, content)?;
                let result = json!({
                    "type": "create", "filePath": path, "content": content, "structuredPatch": [],
                    "originalFile": null, "userModified": false,
                });
                (format!("File created successfully at: {}", path.display()), result)
            }
            Tool::Edit { line, patch, .. } => {
                let (old, new) = (script::original(patch), script::patched(patch));
                fs::write(&path, &new)?;
                let result = json!({
                    "filePath": path, "oldString": old, "newString": new, "originalFile": old,
                    "structuredPatch": [{
                        "oldStart": line, "oldLines": old.lines().count(),
                        "newStart": line, "newLines": new.lines().count(), "lines": patch,
                    }],
                    "userModified": false, "replaceAll": false,
                });
                (format!("The file {} has been updated successfully.", path.display()), result)
            }
            Tool::Read { .. } => {
                let content = text_at_most(&path, u64::MAX)?;
                let lines = content.lines().count();
                let result = json!({"type": "text", "file": {
                    "filePath": path, "content": content, "numLines": lines, "startLine": 1, "totalLines": lines,
                }});
                (content, result)
            }
        };
        let line = self.line(json!({
            "type": "user",
            "promptId": self.prompt,
            "message": {"role": "user", "content": [
                {"tool_use_id": used.id, "type": "tool_result", "content": content},
            ]},
            "toolUseResult": result,
            "sourceToolAssistantUUID": used.line,
        }));
        self.append(&[line])
    }

    /// The turn is over.
    pub(super) fn idle(&self) -> io::Result<()> {
        self.register("idle")
    }

    /// `/clear`: the old file stays as it is, the registry names a new conversation, and its file begins with the command.
    pub(super) fn cleared(&mut self) -> io::Result<()> {
        self.typed("/clear")?;
        self.session = AgentSessionId(fresh());
        self.register("idle")?;
        self.parent = None;
        self.prompt = fresh();
        let user = |content: &str, meta: bool, prompt: &str| json!({"type": "user", "promptId": prompt, "message": {"role": "user", "content": content}, "isMeta": meta});
        let prompt = self.prompt.clone();
        let command = "<command-name>/clear</command-name>\n            <command-message>clear</command-message>\n            \
                       <command-args></command-args>";
        let lines = [
            json!({"type": "mode", "mode": "normal", "sessionId": self.session}),
            self.line(user(
                "<local-command-caveat>A local command follows.</local-command-caveat>",
                true,
                &prompt,
            )),
            self.line(user(command, false, &prompt)),
            self.line(json!({
                "type": "system", "subtype": "local_command", "level": "info",
                "content": "<local-command-stdout></local-command-stdout>",
            })),
        ];
        self.append(&lines)
    }

    /// A clean end: the last line, and no registry entry any more.
    pub(super) fn close(self) -> io::Result<()> {
        if let Some(prompt) = self.last_prompt {
            let line = json!({
                "type": "last-prompt", "lastPrompt": prompt, "leafUuid": self.parent, "sessionId": self.session,
            });
            self.append(&[line])?;
        }
        fs::remove_file(self.files.registry_entry(self.process.pid))
    }

    fn typed(&self, text: &str) -> io::Result<()> {
        let line = json!({
            "display": text, "pastedContents": {}, "timestamp": SystemClock.now(), "project": self.cwd,
            "sessionId": self.session,
        });
        append(&self.files.root().join("history.jsonl"), &[line])
    }

    fn file(&self) -> PathBuf {
        self.files.session_file(&self.cwd, &self.session)
    }

    fn append(&self, lines: &[Value]) -> io::Result<()> {
        append(&self.file(), lines)
    }

    /// Completes a line of the conversation and makes it the one to be answered next.
    fn line(&mut self, mut line: Value) -> Value {
        let id = fresh();
        let frame = json!({
            "parentUuid": self.parent.replace(id.clone()),
            "isSidechain": false,
            "uuid": id,
            "timestamp": SystemClock.now().to_string(),
            "userType": "external",
            "entrypoint": "cli",
            "cwd": self.cwd,
            "sessionId": self.session,
            "version": env!("CARGO_PKG_VERSION"),
        });
        if let (Value::Object(line), Value::Object(frame)) = (&mut line, frame) {
            line.extend(frame);
        }
        line
    }
}

/// A tool call that waits for its result.
#[derive(Debug)]
pub(super) struct ToolUse {
    id: String,
    line: String,
}

fn usage(call: &Call) -> Value {
    let tokens = &call.tokens;
    json!({
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": tokens.cache_write(),
        "cache_read_input_tokens": tokens.cache_read,
        "output_tokens": tokens.output,
        "cache_creation": {
            "ephemeral_1h_input_tokens": tokens.cache_write_1h,
            "ephemeral_5m_input_tokens": tokens.cache_write_5m,
        },
        "service_tier": "standard",
        "speed": "standard",
    })
}

fn append(path: &Path, lines: &[Value]) -> io::Result<()> {
    let text: String = lines.iter().flat_map(|line| [line.to_string(), "\n".to_owned()]).collect();
    open_regular_with(OpenOptions::new().append(true).create(true).mode(0o600), path)?
        .write_all(text.as_bytes())
}

/// Takes out the entries of processes that were killed, as Claude Code does when it starts.
fn sweep(registry: &Path) {
    for path in fs::read_dir(registry).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let entry = read_at_most(&path, 64 << 10).ok().and_then(|bytes| FORMAT.entry(&bytes).ok());
        if entry.is_some_and(|entry| SystemProcesses.start_time(entry.pid) != entry.start) {
            let _ = fs::remove_file(path);
        }
    }
}

fn fresh() -> String {
    RandomIds.uuid().to_string()
}

fn tagged(kind: &str) -> String {
    format!("{kind}_demo{}", RandomIds.uuid().simple())
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::claude::lines::ClaudeLines;
    use agents::correlate::Beginning;
    use agents::meter::line::{Lines, ParsedLines};
    use agents::meter::record::Fact;
    use types::Tokens;

    /// Plays the whole script without a stage; the conversations' files in their order.
    fn written(folder: &Path) -> Vec<PathBuf> {
        let cwd = folder.join("project");
        fs::create_dir(&cwd).unwrap();
        let mut journal = Journal::open(
            RegistryFiles::at(agents::claude::files::LAYOUT, folder.join("root")),
            cwd,
            AgentSessionId(fresh()),
        )
        .unwrap();
        let mut files = Vec::new();
        for (at, conversation) in script::SCRIPT.iter().enumerate() {
            if at > 0 {
                journal.cleared().unwrap();
            }
            for turn in conversation.turns {
                journal.prompted(turn.prompt).unwrap();
                for call in turn.calls {
                    let used = journal.answered(call).unwrap();
                    if let Some((tool, used)) = call.tool.as_ref().zip(used) {
                        journal.used(tool, &used).unwrap();
                    }
                }
                journal.idle().unwrap();
            }
            files.push(journal.file());
        }
        journal.close().unwrap();
        files
    }

    #[test]
    fn the_files_hold_the_calls_of_the_script() {
        let folder = tempfile::tempdir().unwrap();
        for (file, conversation) in written(folder.path()).iter().zip(&script::SCRIPT) {
            let (mut lines, mut parsed) = (ClaudeLines::new(None), ParsedLines::default());
            for line in fs::read(file).unwrap().split_inclusive(|byte| *byte == b'\n') {
                lines.read(line, &mut parsed).unwrap();
            }
            let mut calls: Vec<(String, Tokens)> = Vec::new();
            let (mut prompts, mut tools, mut changed) = (0, Vec::new(), (0, 0));
            for record in parsed.records {
                match record.fact {
                    Fact::Usage(usage) => calls.push((record.key, usage.tokens)),
                    Fact::Prompt => prompts += 1,
                    Fact::Tool(tool) => {
                        changed = (changed.0 + tool.lines_added, changed.1 + tool.lines_removed);
                        assert!(tool.ok && tool.file.is_some(), "{tool:?}");
                        tools.push(tool.name);
                    }
                    Fact::Error(error) => panic!("{error:?}"),
                }
            }
            calls.dedup(); // one line per block
            let expected: Vec<Tokens> = conversation.calls().map(|call| call.tokens).collect();
            assert_eq!(calls.into_iter().map(|(_, tokens)| tokens).collect::<Vec<_>>(), expected);
            assert_eq!(prompts, conversation.turns.len());
            let expected: Vec<&str> =
                conversation.calls().filter_map(|call| call.tool.as_ref()).map(Tool::name).collect();
            assert_eq!(tools, expected);
            assert_eq!(changed, if tools == ["Write", "Edit"] { (5, 1) } else { (0, 0) });
        }
    }

    #[test]
    fn a_clear_is_recognised_and_no_registry_entry_stays() {
        let folder = tempfile::tempdir().unwrap();
        let files = written(folder.path());
        let beginnings: Vec<Beginning> =
            files.iter().map(|file| FORMAT.head(&fs::read(file).unwrap()).beginning).collect();
        assert!(
            matches!(beginnings[..], [Beginning::Spoken { copied: false }, Beginning::Cleared { .. }]),
            "{beginnings:?}"
        );
        assert_eq!(fs::read_dir(folder.path().join("root/sessions")).unwrap().count(), 0);
        let history = fs::read_to_string(folder.path().join("root/history.jsonl")).unwrap();
        let may_clear: Vec<bool> = history
            .lines()
            .map(|line| agents::claude::evidence::history_line(line.as_bytes()).unwrap().may_clear)
            .collect();
        assert_eq!(may_clear, [false, false, true, false]);
    }

    #[test]
    fn registry_entries_of_ended_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let start = SystemProcesses.start_time(Pid(me)).unwrap().0;
        for (name, start) in [("old", start + 1), ("mine", start)] {
            let entry = json!({"pid": me, "sessionId": name, "procStart": start.to_string()});
            fs::write(folder.path().join(name), entry.to_string()).unwrap();
        }
        sweep(folder.path());
        assert!(!folder.path().join("old").exists() && folder.path().join("mine").exists());
    }
}
