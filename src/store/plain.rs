//! What may leave the machine of names that somebody else chose freely: an agent, a model, a tool server, an imported file.
//!
//! A plain name is sent as it is, to the letter. Of anything else (a path, words, a command line) a fixed word or a hash is sent,
//! the same each time, so that receivers go on counting and telling apart. Event ids are made of the keys as they are.

use std::borrow::Cow;

use serde_json::Value;
use sha2::{Digest, Sha256};

use wire::EventType;
use wire::hex::hex;

/// Sent in place of a name that is none.
const OTHER: &str = "other";
/// No tool or version is called anything longer; what is may be a text.
const LONGEST_NAME: usize = 128;
/// A cloud's name for a model has some hundred characters.
const LONGEST_MODEL: usize = 256;
const LONGEST_KEY: usize = 200;

fn is_part(text: &str, also: &str) -> bool {
    let plain = |letter: char| letter.is_alphanumeric() || "_-.:@+".contains(letter) || also.contains(letter);
    text.starts_with(|first: char| first.is_alphanumeric() || "_@".contains(first)) && text.chars().all(plain)
}

/// A tool, a version, an agent. `Bash(cat /etc/passwd)`, as rules are written, is `Bash`.
pub fn name(text: &str) -> Cow<'_, str> {
    let begin = text.split_once('(').map_or(text, |(begin, _)| begin.trim_end_matches(' '));
    if begin.is_empty() {
        return Cow::Borrowed(if text.is_empty() { "" } else { OTHER });
    }
    let plain = begin.len() <= LONGEST_NAME && is_part(begin, "");
    Cow::Borrowed(if plain { begin } else { OTHER })
}

/// A model. Vendors put theirs in front with a slash; a place on a disk begins with one, or with a dot or a tilde.
pub fn model(text: &str) -> Cow<'_, str> {
    // `<synthetic>` is what Claude Code calls its own messages.
    let bare = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text);
    // `[1m]` is Claude Code's mark of a long context.
    let plain = |text: &str| text.len() <= LONGEST_MODEL && text.split('/').all(|part| is_part(part, "[]#"));
    if text.is_empty() || plain(bare) {
        return Cow::Borrowed(text);
    }
    let last = text.rsplit(['/', '\\']).next().unwrap_or_default();
    Cow::Borrowed(if plain(last) { last } else { OTHER })
}

/// An id of an agent's own: of a message, a tool call, a conversation.
pub fn key(text: &str) -> Cow<'_, str> {
    // Gemini's tool calls are told apart by two ids with a slash between; a path would have a dot, more slashes, or none of the
    // digits of an id in front.
    let is_id = |id: &str| id.len() >= 8 && id.contains(|letter: char| letter.is_ascii_digit());
    let plain = match text.split_once('/') {
        None => text.is_empty() || is_part(text, ""),
        Some((first, second)) => {
            is_id(first) && is_part(first, "") && is_part(second, "") && !text.contains(['.', '@'])
        }
    };
    if plain && text.len() <= LONGEST_KEY {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("sha256-{}", hex(&Sha256::digest(text.as_bytes())[..16])))
}

/// The name of a category, as the agents write it beside their own words; whatever does not look like one is `other`.
pub fn category(kind: &str) -> Cow<'_, str> {
    let plain = (1..=40).contains(&kind.len()) && kind.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    Cow::Borrowed(if plain { kind } else { OTHER })
}

/// The folder's own name, without the folders it lies in.
pub fn folder(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text.rsplit(['/', '\\']).find(|part| !part.is_empty()).unwrap_or_default())
}

/// `owner/name`; nothing else says which repository it is without saying where.
pub fn repository(text: &str) -> Option<&str> {
    let (owner, name) = text.split_once('/')?;
    let part = |text: &str| !text.is_empty() && !text.contains(|c: char| c == '/' || c.is_whitespace());
    (part(owner) && part(name)).then_some(text)
}

/// What an event of each type describes. Anything else that stands in one came with an imported file.
const FIELDS: [(EventType, &[&str]); 7] = [
    (
        EventType::Start,
        &[
            "name",
            "reason",
            "agentVersion",
            "wrapperVersion",
            "project",
            "repository",
            "branch",
            "transitionedFrom",
            "parentSessionId",
            "tags",
            "group",
        ],
    ),
    (EventType::Bound, &["agentSessionId", "evidence"]),
    (
        EventType::Usage,
        &[
            "key",
            "model",
            "inputTokens",
            "outputTokens",
            "cacheReadTokens",
            "cacheWriteTokens",
            "reasoningTokens",
            "costUsd",
            "subagent",
            "source",
            "latencyMs",
            "ttftMs",
        ],
    ),
    (EventType::Tool, &["key", "name", "ok", "kind", "fileExtension", "linesAdded", "linesRemoved"]),
    (EventType::Prompt, &["key"]),
    (EventType::Error, &["key", "status", "kind"]),
    (
        EventType::End,
        &["status", "endReason", "exitCode", "durationMs", "transitionedTo", "totals", "lastSeq"],
    ),
];

/// Attributes of an event as they may be sent. Those that codemie wrote itself may have come from an imported file.
/// Of a type that only a newer codemie knows, numbers and plain names are sent.
pub fn publish(kind: Option<EventType>, attributes: &mut Value) {
    let Some(kind) = kind else { return keep_plain(attributes) };
    if let Value::Object(fields) = attributes {
        fields.retain(|name, _| {
            FIELDS.iter().any(|(of, fields)| *of == kind && fields.contains(&name.as_str()))
        });
    }
    let mut each = |field: &str, plain: &dyn Fn(&str) -> Option<String>| {
        if let Some(value) = attributes.get_mut(field)
            && let Some(text) = value.as_str()
        {
            match plain(text) {
                Some(plain) if plain == text => {}
                plain => *value = plain.map_or(Value::Null, Value::String),
            }
        }
    };
    let some = |plain: fn(&str) -> Cow<'_, str>| move |text: &str| Some(plain(text).into_owned());
    match kind {
        EventType::Usage => {
            each("key", &some(key));
            each("model", &some(model));
        }
        EventType::Tool => {
            each("key", &some(key));
            each("name", &some(name));
            each("kind", &some(category));
            each("fileExtension", &|text| super::outgoing::extension(&format!("x.{text}")));
        }
        EventType::Prompt => each("key", &some(key)),
        EventType::Error => {
            each("key", &some(key));
            each("kind", &some(category));
        }
        EventType::Start => {
            each("agentVersion", &some(name));
            each("project", &some(folder));
            each("repository", &|text| repository(text).map(str::to_owned));
        }
        EventType::Bound => each("agentSessionId", &some(key)),
        EventType::End => {
            let models = attributes.pointer_mut("/totals/unpricedModels").and_then(Value::as_array_mut);
            for name in models.into_iter().flatten() {
                if let Some(text) = name.as_str() {
                    *name = Value::from(model(text));
                }
            }
            if let Some(Value::Object(calls)) = attributes.pointer_mut("/totals/unpricedCalls") {
                let named = std::mem::take(calls).into_iter();
                calls.extend(named.map(|(name, count)| (model(&name).into_owned(), count)));
            }
        }
    }
}

/// Empties every text that is no plain name, at any depth.
fn keep_plain(value: &mut Value) {
    match value {
        Value::String(text) if key(text) != *text => *value = Value::Null,
        Value::Array(items) => items.iter_mut().for_each(keep_plain),
        Value::Object(fields) => fields.values_mut().for_each(keep_plain),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_leave_by_plain_names() {
        for (tool, sent) in [
            ("Bash", "Bash"),
            ("mcp__claude_ai_Gmail__search-threads", "mcp__claude_ai_Gmail__search-threads"),
            ("server.tool:v2", "server.tool:v2"),
            ("检索", "检索"),
            ("2.1.197 (Claude Code)", "2.1.197"),
            ("0.166.0-alpha.1+build", "0.166.0-alpha.1+build"),
            ("", ""),
            ("Bash(cat /home/dev/canary)", "Bash"),
            ("mcp__/home/dev/canary", "other"),
            ("cat canary", "other"),
            ("canary\n", "other"),
            ("-rf", "other"),
            ("(canary)", "other"),
            ("~/canary", "other"),
            ("C:\\canary", "other"),
        ] {
            assert_eq!(name(tool), sent, "{tool:?}");
        }
        assert_eq!(name(&"x".repeat(129)), "other");
    }

    #[test]
    fn models_keep_their_vendors_and_lose_their_folders() {
        for (given, sent) in [
            ("claude-opus-4-8", "claude-opus-4-8"),
            ("<synthetic>", "<synthetic>"),
            ("anthropic/claude-opus-4-8", "anthropic/claude-opus-4-8"),
            ("us.anthropic.claude-sonnet-4-5-v2:0", "us.anthropic.claude-sonnet-4-5-v2:0"),
            (
                "arn:aws:bedrock:us-east-1:1:inference-profile/us.x",
                "arn:aws:bedrock:us-east-1:1:inference-profile/us.x",
            ),
            ("@cf/meta/llama-3", "@cf/meta/llama-3"),
            ("qwen2.5-coder:7b", "qwen2.5-coder:7b"),
            ("claude-sonnet-4-5-20250929[1m]", "claude-sonnet-4-5-20250929[1m]"),
            ("", ""),
            ("/home/dev/m.gguf", "m.gguf"),
            ("./canary/m.gguf", "m.gguf"),
            ("x//canary/m", "m"),
            ("canary words", "other"),
            ("/canary words", "other"),
        ] {
            assert_eq!(model(given), sent, "{given:?}");
        }
    }

    #[test]
    fn every_model_with_a_price_is_sent_by_its_name() {
        let table = include_str!("../../crates/prices/src/prices.tsv");
        let models: Vec<&str> = table.lines().filter_map(|line| line.split('\t').next()).collect();
        assert!(models.len() > 50);
        for given in models {
            assert_eq!(model(given), given);
        }
    }

    #[test]
    fn keys_of_agents_stay_and_others_become_a_hash() {
        for plain in [
            "",
            "msg_01AbC",
            "7a276c6b-d81e-4b1f-9c9e-000000000001",
            "019a-thread:12",
            "resp_0a1b2c3d",
            "chatcmpl-1",
            "7a276c6b-d81e-4b1f-9c9e-000000000001/read_file-1763300000000-0a1b",
        ] {
            assert_eq!(key(plain), plain);
        }
        let mut hashes = Vec::new();
        for path in [
            "/home/dev/canary",
            "msg_1/home/dev/canary",
            "src/canary.rs",
            "a canary",
            "~canary",
            "C:\\canary",
        ] {
            let sent = key(path);
            assert!(sent.starts_with("sha256-") && sent.len() == 39, "{path}: {sent}");
            assert_eq!(sent, key(path), "the same each time");
            hashes.push(sent.into_owned());
        }
        hashes.dedup();
        assert_eq!(hashes.len(), 6);
        assert!(key(&"x".repeat(201)).starts_with("sha256-"));
    }

    #[test]
    fn ordinary_attributes_stay_to_the_letter() {
        let start = json!({"name": "fix auth", "reason": "startup", "agentVersion": "2.1.197", "project": "my widgets",
            "repository": "acme/widgets", "branch": "feature/x", "tags": ["a b"], "group": null});
        let end =
            json!({"status": "completed", "totals": {"unpricedModels": ["claude-next-9"], "costUsd": 0.5}});
        for (kind, attributes) in [
            (EventType::Start, start),
            (EventType::Bound, json!({"agentSessionId": "7a276c6b-d81e", "evidence": "assigned"})),
            (EventType::End, end),
            (EventType::Tool, json!({"key": "t1", "name": "Edit", "kind": "edit", "fileExtension": "rs"})),
            (EventType::Error, json!({"key": "e1", "status": 400, "kind": "authentication_failed"})),
        ] {
            let mut sent = attributes.clone();
            publish(Some(kind), &mut sent);
            assert_eq!(sent.to_string(), attributes.to_string());
        }
    }

    #[test]
    fn what_an_imported_file_wrote_into_an_event_does_not_leave() {
        for (kind, attributes, sent) in [
            (
                EventType::Start,
                json!({"agentVersion": "2 of /canary", "project": "/home/canary/p", "repository": "/srv/canary/x", "prompt": "canary"}),
                json!({"agentVersion": "other", "project": "p", "repository": null}),
            ),
            (
                EventType::Bound,
                json!({"agentSessionId": "/canary"}),
                json!({"agentSessionId": key("/canary")}),
            ),
            (
                EventType::Tool,
                json!({"name": "canary words", "kind": "my canary", "fileExtension": "canary words"}),
                json!({"name": "other", "kind": "other", "fileExtension": null}),
            ),
            (
                EventType::End,
                json!({"totals": {"unpricedModels": ["a canary"], "unpricedCalls": {"a canary": 2}}}),
                json!({"totals": {"unpricedModels": ["other"], "unpricedCalls": {"other": 2}}}),
            ),
        ] {
            let mut attributes = attributes;
            publish(Some(kind), &mut attributes);
            assert_eq!(attributes, sent);
        }
    }

    #[test]
    fn of_a_type_unknown_here_only_numbers_and_plain_names_are_sent() {
        let mut attributes =
            json!({"n": 3, "ok": true, "window": "5h", "words": "a canary", "deep": [{"at": "/canary"}]});
        publish(None, &mut attributes);
        let sent = json!({"n": 3, "ok": true, "window": "5h", "words": null, "deep": [{"at": null}]});
        assert_eq!(attributes, sent);
    }
}
