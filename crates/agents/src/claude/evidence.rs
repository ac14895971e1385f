//! Evidence that Claude Code leaves beside its conversations: the state in a registry entry, the history of typed prompts, the
//! jobs of its background service, and how a session file begins. Bytes in, facts out.

use std::borrow::Cow;

use serde::Deserialize;

use super::shape::{self, Content, Line, Message, Text};
use crate::correlate::{Beginning, HistoryEntry};
use crate::kit::loose::Loose;
use crate::kit::registry::{Job, Torn};
use crate::live::PublishedStatus;
use types::AgentSessionId;
use types::Timestamp;

/// What the entry of a process says of its state: `sessions/<pid>.json`. `None` where it says nothing (print mode) or something
/// that is not known here.
pub fn registry_status(bytes: &[u8]) -> Result<Option<(PublishedStatus, Option<Timestamp>)>, Torn> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Entry<'a> {
        #[serde(borrow, default)]
        status: Text<'a>,
        #[serde(borrow, default)]
        waiting_for: Text<'a>,
        #[serde(default)]
        status_updated_at: Loose<u64>,
    }
    let entry: Entry = serde_json::from_slice(bytes).map_err(|_| Torn)?;
    let status = match (entry.status.0.as_deref(), entry.waiting_for.0.as_deref()) {
        // `shell`: the turn is over, and a command that it started goes on in the background.
        (Some("idle" | "shell"), _) => PublishedStatus::Idle,
        (Some("busy"), _) => PublishedStatus::Busy,
        // A menu that the user has opened, as opposed to a question of a turn.
        (Some("waiting"), Some(what @ "dialog open")) => PublishedStatus::Dialog(what.to_owned()),
        (Some("waiting"), what) => PublishedStatus::Waiting(what.unwrap_or("input needed").to_owned()),
        _ => return Ok(None),
    };
    let since = entry.status_updated_at.0.and_then(|at| i64::try_from(at).ok()).map(Timestamp);
    Ok(Some((status, since)))
}

/// Parses a job's state; `None` for one that is half written.
pub fn job(bytes: &[u8]) -> Option<Job> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct State {
        session_id: String,
        cwd: String,
        created_at: String,
        #[serde(default, rename = "state")]
        phase: String,
    }
    let state: State = serde_json::from_slice(bytes).ok()?;
    let created = Timestamp::parse(&state.created_at)?;
    let over = matches!(state.phase.as_str(), "done" | "failed" | "stopped");
    Some(Job { session: AgentSessionId(state.session_id), cwd: state.cwd, created, over })
}

/// Whether a line of `history.jsonl` gives its conversation to the background service.
pub fn gives_to_background(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Entry<'a> {
        #[serde(borrow)]
        display: Cow<'a, str>,
    }
    let entry: Option<Entry> = serde_json::from_slice(line).ok();
    entry.is_some_and(|entry| matches!(entry.display.split_whitespace().next(), Some("/background" | "/bg")))
}

/// Parses one line of `history.jsonl`; `None` for one without a session (older versions) or a broken one.
pub fn history_line(line: &[u8]) -> Option<HistoryEntry> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Entry<'a> {
        #[serde(borrow)]
        display: Cow<'a, str>,
        timestamp: i64,
        #[serde(borrow, default)]
        project: Text<'a>,
        #[serde(borrow)]
        session_id: Cow<'a, str>,
    }
    let entry: Entry = serde_json::from_slice(line).ok()?;
    Some(HistoryEntry {
        session: AgentSessionId(entry.session_id.into_owned()),
        at: Timestamp(entry.timestamp),
        project: entry.project.0.map(Cow::into_owned),
        may_clear: may_clear(&entry.display),
    })
}

/// Whether a typed prompt may have begun a new conversation. The agent's menu matches loosely (`/cl`, `/clearx`, `/CLEAR`),
/// so every command may, except those that are another command by their full name.
fn may_clear(typed: &str) -> bool {
    const OTHERS: &[&str] = &[
        "/add-dir",
        "/agents",
        "/background",
        "/bashes",
        "/branch",
        "/bug",
        "/cd",
        "/compact",
        "/config",
        "/context",
        "/cost",
        "/diff",
        "/doctor",
        "/effort",
        "/exit",
        "/export",
        "/fast",
        "/feedback",
        "/fork",
        "/help",
        "/hooks",
        "/ide",
        "/init",
        "/keybindings",
        "/login",
        "/logout",
        "/mcp",
        "/memory",
        "/mobile",
        "/model",
        "/permissions",
        "/plan",
        "/plugin",
        "/quit",
        "/recap",
        "/release-notes",
        "/rename",
        "/resume",
        "/review",
        "/rewind",
        "/skills",
        "/stats",
        "/status",
        "/statusline",
        "/tasks",
        "/theme",
        "/usage",
        "/vim",
    ];
    let word = typed.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    // A leading space makes it text for the model.
    typed.starts_with('/') && !OTHERS.contains(&word.as_str())
}

/// How the file begins, if this line decides it.
pub(super) fn beginning(line: &Line<'_>) -> Option<Beginning> {
    let kind = line.kind.0.as_deref()?;
    if line.is_copied() {
        return Some(Beginning::Spoken { copied: true });
    }
    if kind == "assistant" {
        return Some(Beginning::Spoken { copied: false });
    }
    if kind != "user" || line.is_meta.0 == Some(true) {
        return None;
    }
    let message: Message = serde_json::from_str(line.message?.get()).ok()?;
    let cleared = matches!(Content::of(message.content),
        Some(Content::Text(text)) if shape::begins(text, "<command-name>/clear</command-name>"));
    Some(match line.at() {
        Some(at) if cleared => Beginning::Cleared { at },
        _ => Beginning::Spoken { copied: false },
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::claude::FORMAT;
    use crate::correlate::RegistryEntry;
    use crate::kit::registry::HEAD_BYTES;
    use types::{Pid, StartTime};

    #[test]
    fn a_registry_entry_is_read_and_a_torn_one_is_read_again() {
        let text = br#"{"pid":30185,"sessionId":"3a8a7365","cwd":"/home/dev/project","startedAt":1794787572577,"procStart":"290970","version":"2.1.197","peerProtocol":1,"kind":"interactive","entrypoint":"cli","status":"waiting","waitingFor":"permission prompt"}"#;
        let entry = FORMAT.entry(text).unwrap();
        assert_eq!(entry.pid, Pid(30185));
        assert_eq!(entry.start, Some(StartTime(290_970)));
        assert_eq!(entry.session, AgentSessionId("3a8a7365".into()));
        assert_eq!(
            (entry.cwd.as_deref(), entry.version.as_deref()),
            (Some("/home/dev/project"), Some("2.1.197"))
        );
        assert!(!entry.background);
        for end in 0..text.len() {
            assert_eq!(FORMAT.entry(&text[..end]), Err(Torn), "{end} bytes");
        }
        let bare = FORMAT.entry(br#"{"pid":1,"sessionId":"x","procStart":null,"kind":"bg"}"#).unwrap();
        assert_eq!((bare.start, bare.started_at, bare.background), (None, None, true));
    }

    #[test]
    fn the_status_of_a_process_is_read() {
        use PublishedStatus::{Busy, Dialog, Idle, Waiting};
        for (entry, expected) in [
            (r#"{"status":"idle","statusUpdatedAt":5}"#, Some((Idle, Some(Timestamp(5))))),
            (r#"{"status":"shell","statusUpdatedAt":5}"#, Some((Idle, Some(Timestamp(5))))),
            (r#"{"status":"busy"}"#, Some((Busy, None))),
            (
                r#"{"status":"waiting","waitingFor":"permission prompt"}"#,
                Some((Waiting("permission prompt".into()), None)),
            ),
            (r#"{"status":"waiting"}"#, Some((Waiting("input needed".into()), None))),
            (
                r#"{"status":"waiting","waitingFor":"dialog open"}"#,
                Some((Dialog("dialog open".into()), None)),
            ),
            (r#"{"status":"dreaming"}"#, None),
            ("{}", None),
        ] {
            assert_eq!(registry_status(entry.as_bytes()), Ok(expected), "{entry}");
        }
        assert_eq!(registry_status(b""), Err(Torn));
    }

    #[test]
    fn recorded_registries_and_histories_are_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/claude");
        let snapshots: serde_json::Value =
            serde_json::from_slice(&std::fs::read(root.join("03-clear/registry.json")).unwrap()).unwrap();
        let entries: Vec<RegistryEntry> = snapshots
            .as_array()
            .unwrap()
            .iter()
            .map(|snapshot| FORMAT.entry(snapshot["content"].to_string().as_bytes()).unwrap())
            .collect();
        assert_eq!(entries.len(), 5);
        assert!(
            entries.iter().all(|entry| entry.pid == Pid(17558) && entry.start == Some(StartTime(269_779)))
        );
        let history = std::fs::read(root.join("03-clear/history.jsonl")).unwrap();
        let lines: Vec<HistoryEntry> =
            history.split(|&byte| byte == b'\n').filter_map(history_line).collect();
        assert_eq!(lines.len(), 8);
        let cleared: Vec<&AgentSessionId> =
            lines.iter().filter(|line| line.may_clear).map(|line| &line.session).collect();
        assert_eq!(cleared, [&entries[0].session, &entries[2].session, &entries[3].session]);
        assert_eq!(lines[0].project.as_deref(), Some("/home/dev/project"));
    }

    #[test]
    fn a_job_names_its_conversation() {
        let state = br#"{"state":"working","sessionId":"88ac1b88","cwd":"/p","createdAt":"2026-11-17T09:55:24.405Z"}"#;
        let job_ = job(state).unwrap();
        assert_eq!((job_.session.0.as_str(), job_.cwd.as_str(), job_.over), ("88ac1b88", "/p", false));
        assert_eq!(job_.created, Timestamp::parse("2026-11-17T09:55:24.405Z").unwrap());
        for end in 0..state.len() {
            assert_eq!(job(&state[..end]), None, "{end} bytes");
        }
        for (typed, gives) in
            [("/background", true), ("/bg now", true), ("background", false), ("/bgx", false)]
        {
            let line = format!(r#"{{"display":"{typed}","timestamp":1,"sessionId":"a"}}"#);
            assert_eq!(gives_to_background(line.as_bytes()), gives, "{typed}");
        }
    }

    #[test]
    fn commands_that_may_clear_are_recognised() {
        for typed in [
            "/clear",
            "/clear nightly fix",
            "/reset",
            "/new",
            "/cl",
            "/clearx",
            "/CLEAR",
            "/clear ",
            "/my-command",
        ] {
            assert!(may_clear(typed), "{typed}");
        }
        for typed in [" /clear", "please do /clear now", "/exit", "/compact", "/Resume x", "", "clear"] {
            assert!(!may_clear(typed), "{typed}");
        }
        for broken in [
            &b""[..],
            b"{",
            br#"{"display":"x","timestamp":1}"#,
            br#"{"display":7,"timestamp":1,"sessionId":"x"}"#,
        ] {
            assert_eq!(history_line(broken), None);
        }
    }

    #[test]
    fn recorded_files_begin_as_expected() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/claude");
        let project = "projects/-home-dev-project";
        let spoken = Beginning::Spoken { copied: false };
        let cleared = Beginning::Cleared { at: Timestamp::parse("2026-11-16T00:02:47.836Z").unwrap() };
        for (file, beginning) in [
            (format!("01-plain/{project}/01000000-0000-4000-8000-000000000001.jsonl"), spoken),
            (format!("03-clear/{project}/4b53ca41-3374-4ace-a8a7-cce49511d241.jsonl"), cleared),
            (
                format!("05-resume-fork-branch-rewind/{project}/05000000-0000-4000-8000-00000000f05c.jsonl"),
                spoken,
            ),
            (
                format!("05-resume-fork-branch-rewind/{project}/30374d2a-265c-4426-ad8b-cb9209a4e41c.jsonl"),
                Beginning::Spoken { copied: true },
            ),
            (format!("09-print/{project}/09000000-0000-4000-8000-000000000009.jsonl"), spoken),
        ] {
            let bytes = std::fs::read(folder.join(&file)).unwrap();
            let head = FORMAT.head(&bytes);
            assert_eq!(head.beginning, beginning, "{file}");
            assert!(file.contains(&head.session.unwrap().0), "{file}");
            assert_eq!(head.cwd.as_deref(), Some("/home/dev/project"), "{file}");
        }
    }

    #[test]
    fn a_file_grows_from_silent_to_cleared() {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/claude/03-clear/projects");
        let bytes =
            std::fs::read(folder.join("-home-dev-project/93979bdb-a691-4733-b68d-056fecc880fb.jsonl"))
                .unwrap();
        let mut changes = Vec::new();
        for end in 0..=bytes.len() {
            let beginning = FORMAT.head(&bytes[..end]).beginning;
            if changes.last() != Some(&beginning) {
                changes.push(beginning);
            }
        }
        assert_eq!(changes.len(), 2, "{changes:?}");
        assert_eq!(changes[0], Beginning::Silent);
        assert!(matches!(changes[1], Beginning::Cleared { .. }));
    }

    #[test]
    fn unusual_beginnings_are_classified() {
        let spoken = Beginning::Spoken { copied: false };
        for (bytes, beginning) in [
            (&b""[..], Beginning::Silent),
            (b"rubbish\n{\"type\":\"mode\"}\n", Beginning::Silent),
            (b"{\"type\":\"assistant\"}\n", spoken),
            (
                b"{\"type\":\"user\",\"message\":{\"content\":\"<command-name>/clear</command-name>\"}}\n",
                spoken,
            ), // no time
            (b"{\"type\":\"user\",\"message\":{\"content\":\"about /clear\"}}\n", spoken),
            (b"{\"type\":\"system\",\"forkedFrom\":{}}\n", Beginning::Spoken { copied: true }),
        ] {
            assert_eq!(FORMAT.head(bytes).beginning, beginning, "{}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(
            FORMAT.head(&vec![b'x'; HEAD_BYTES]).beginning,
            spoken,
            "a first line longer than the head"
        );
    }
}
