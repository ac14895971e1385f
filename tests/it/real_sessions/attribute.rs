//! Where a call was made, as far as the agents' files know better than what was sent.
//!
//! Gemini and Qwen Code send no id of their conversation along. Which conversation a call was made in stands in the agent's own
//! files: by the answer's text or the ids of its tool calls, which no other answer has (Gemini), or by the answer's id (Qwen Code).

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::fake_api::{Call, CallLog, Kind, WARM_UP};

/// Gives every call that a session file below the folder holds its conversation.
pub(super) fn by_files(log: &mut CallLog, folder: &Path) {
    let answers = answers(folder);
    for call in log.calls.iter_mut().filter(|call| matches!(call.kind, Kind::Main | Kind::Subagent)) {
        call.session = answers.iter().find(|answer| answer.is_of(call)).map(|answer| answer.session.clone());
    }
}

/// Gives every call the conversation in whose file Qwen Code wrote its answer's id. A fork holds copies of such lines.
pub(super) fn by_answer_ids(log: &mut CallLog, projects: &Path) {
    let mut conversations = HashMap::new();
    for project in fs::read_dir(projects).into_iter().flatten().flatten() {
        for chat in fs::read_dir(project.path().join("chats")).into_iter().flatten().flatten() {
            let (path, conversation) = (chat.path(), chat.path().with_extension(""));
            let Some(conversation) = conversation.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            for line in lines(&path).into_iter().flatten() {
                let event = &line["systemPayload"]["uiEvent"];
                let answered =
                    event["event.name"] == "qwen-code.api_response" && line["forkedFrom"].is_null();
                if let Some(id) = event["response_id"].as_str().filter(|_| answered) {
                    conversations.insert(id.to_owned(), conversation.to_owned());
                }
            }
        }
    }
    for call in &mut log.calls {
        call.session = conversations.get(&call.id).cloned();
    }
}

/// What Claude Code 2.0 asks before anybody has spoken it writes to the conversation it has found by then, or not at all.
pub(super) fn warm_ups(log: &mut CallLog, projects: &Path) {
    for call in log.calls.iter_mut().filter(|call| call.prompt == WARM_UP) {
        match holder(projects, &call.id) {
            Some(session) => call.session = Some(session),
            None => call.kind = Kind::Side,
        }
    }
}

/// The conversation whose file holds an answer.
fn holder(folder: &Path, answer: &str) -> Option<String> {
    fs::read_dir(folder).into_iter().flatten().flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return holder(&path, answer);
        }
        let text = fs::read_to_string(&path).ok()?;
        text.contains(&format!("\"{answer}\"")).then_some(())?;
        let name = path.file_stem()?.to_str()?;
        // What was begun before the agent had found the conversation it resumes stays with the id it began with.
        let line: Value = serde_json::from_str(text.lines().next()?).ok()?;
        let session = if name.starts_with("agent-") { line["sessionId"].as_str()? } else { name };
        Some(session.to_owned())
    })
}

struct Answer {
    /// The root's, for a sub-agent.
    session: String,
    text: String,
    tools: Vec<String>,
}

impl Answer {
    fn is_of(&self, call: &Call) -> bool {
        match &call.text {
            Some(text) => self.text == *text || self.text.ends_with(&format!(" {text}")),
            None => self.tools.iter().any(|tool| tool.contains(&call.id)),
        }
    }
}

/// The answers with tokens, as they were first written: what is written again for another conversation has none.
fn answers(folder: &Path) -> Vec<Answer> {
    let mut answers = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            answers.extend(self::answers(&path));
        } else if let Some(lines) = lines(&path) {
            let Some(header) = lines.first() else { continue };
            let root = path.parent().and_then(Path::file_name).unwrap().to_str().unwrap();
            let session =
                if header["kind"] == "subagent" { root } else { header["sessionId"].as_str().unwrap() };
            let spoken = lines.iter().filter(|line| line["type"] == "gemini" && line["tokens"].is_object());
            answers.extend(spoken.map(|line| {
                Answer {
                    session: session.to_owned(),
                    text: line["content"].as_str().unwrap_or_default().to_owned(),
                    tools: line["toolCalls"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|tool| tool["id"].to_string())
                        .collect(),
                }
            }));
        }
    }
    answers
}

/// The header and the messages: lines, or in older versions one document.
fn lines(path: &Path) -> Option<Vec<Value>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    match path.extension()?.to_str()? {
        "jsonl" => Some(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
        "json" => {
            let mut document: Value = serde_json::from_str(&text).ok()?;
            let messages = document.get_mut("messages")?.as_array_mut()?.split_off(0);
            Some(std::iter::once(document).chain(messages).collect())
        }
        _ => None,
    }
}
