//! What may leave the machine of names that somebody else chose freely: an agent, a model, a tool server, an imported file.
//!
//! A plain name is sent as it is, to the letter. Of anything else (a path, words, a command line) a fixed word or a hash is sent,
//! the same each time, so that receivers can still count and distinguish them. Event ids are made of the keys as they are.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Deref;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::event::{Attributes, Dimension, Key, LONGEST_LIST, Text, fit};
use crate::hex::hex;

/// Sent in place of a text that is not a plain name.
const OTHER: &str = "other";
/// No tool or version has a longer name; a longer text may be anything.
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

/// Stands in the store before the last part of a path that an agent has for a model's or a tool's name. Nothing that begins with
/// it is plain.
pub const FILE_MARK: &str = "…/";

/// How files with a model in them end. Such a name is a file's, also without its folder.
const MODEL_FILES: [&str; 10] =
    [".gguf", ".ggml", ".safetensors", ".llamafile", ".onnx", ".mlmodel", ".pt", ".pth", ".ckpt", ".bin"];

/// A model. Vendors put theirs in front with a slash; a place on a disk begins with one, or with a dot or a tilde, and nothing of it
/// is sent, as of no file.
pub fn model(text: &str) -> Cow<'_, str> {
    // `<synthetic>` is what Claude Code calls its own messages.
    let bare = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')).unwrap_or(text);
    // `[1m]` is Claude Code's mark of a long context.
    let plain = |text: &str| text.len() <= LONGEST_MODEL && text.split('/').all(|part| is_part(part, "[]#"));
    let lower = bare.to_ascii_lowercase();
    let is_file = MODEL_FILES.iter().any(|end| lower.ends_with(end));
    Cow::Borrowed(if text.is_empty() || plain(bare) && !is_file { text } else { OTHER })
}

/// An id of an agent's own: of a message, a tool call, a conversation.
pub fn key(text: &str) -> Cow<'_, str> {
    // The key of a Gemini tool call is two ids with a slash between; a path would have a dot, more slashes, or no digits before
    // the slash.
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

/// `owner/name`; `None` for any other form, because it would reveal where the repository is.
pub fn repository(text: &str) -> Option<&str> {
    let (owner, name) = text.split_once('/')?;
    let part = |text: &str| !text.is_empty() && !text.contains(|c: char| c == '/' || c.is_whitespace());
    (part(owner) && part(name)).then_some(text)
}

/// The extension of a file in lower case. Something long or odd after the last dot is not an extension but part of the name.
pub fn extension(file: &str) -> Option<String> {
    let name = file.rsplit(['/', '\\']).next()?;
    let (stem, extension) = name.rsplit_once('.')?;
    (!stem.is_empty()).then(|| bare_extension(extension))?
}

fn bare_extension(extension: &str) -> Option<String> {
    let plain = (1..=10).contains(&extension.len()) && extension.chars().all(|c| c.is_ascii_alphanumeric());
    plain.then(|| extension.to_ascii_lowercase())
}

/// The first digits of a commit's hash.
fn is_commit(text: &str) -> bool {
    // Only zeros stand for a branch without any commit yet.
    text.len() == 12
        && text.bytes().all(|digit| digit.is_ascii_hexdigit())
        && text.bytes().any(|digit| digit != b'0')
}

/// Attributes of an event as they may be sent: nothing but what their structs declare, and of freely chosen names the plain ones.
/// Of a type that only a newer codemie knows, numbers and plain names are sent.
pub fn publish(attributes: &mut Attributes) {
    let each_key = |own: &mut Key| replace(own.0.as_mut(), key, |plain| plain);
    match attributes {
        Attributes::Start(start) => {
            replace(start.agent_version.as_mut(), name, Text::cut);
            replace(start.project.as_mut(), folder, Dimension::cut);
            start.repository.take_if(|text| repository(text).is_none());
        }
        Attributes::Bound(bound) => replace([&mut bound.agent_session_id], key, Text::cut),
        Attributes::Usage(usage) => {
            each_key(&mut usage.key);
            replace([&mut usage.model], model, Dimension::cut);
            usage.head.take_if(|head| !is_commit(head));
        }
        Attributes::Tool(tool) => {
            each_key(&mut tool.key);
            replace([&mut tool.name], name, Text::cut);
            let extension = tool.file_extension.take();
            tool.file_extension = extension.and_then(|text| bare_extension(&text)).map(Text::cut);
        }
        Attributes::Prompt(prompt) => each_key(&mut prompt.key),
        Attributes::Error(error) => {
            each_key(&mut error.key);
            replace(error.kind.as_mut(), category, Text::cut);
        }
        Attributes::Quota(quota) => replace([&mut quota.provider, &mut quota.window], name, Text::cut),
        Attributes::End(end) => {
            let Some(totals) = &mut end.totals else { return };
            totals.unpriced_models.0.truncate(LONGEST_LIST);
            replace(&mut totals.unpriced_models.0, model, |plain| plain);
            // Several may be called the same now.
            let mut sent = BTreeSet::new();
            totals.unpriced_models.0.retain(|name| sent.insert(name.clone()));
            for (name, count) in std::mem::take(&mut totals.unpriced_calls.0) {
                let sum = totals.unpriced_calls.0.entry(model(&name).into_owned()).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        Attributes::Other(other) => {
            keep_plain(&mut other.fields);
            fit(&mut other.fields);
        }
    }
}

/// Replaces each text by its plain form, where that differs.
fn replace<'a, T: Deref<Target = str> + 'a>(
    texts: impl IntoIterator<Item = &'a mut T>,
    plain: fn(&str) -> Cow<'_, str>,
    made: fn(String) -> T,
) {
    for text in texts {
        let sent = plain(text);
        if *sent != **text {
            *text = made(sent.into_owned());
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
    use crate::{EventKind, EventType};

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
            ("…/canary", "other"),
            ("C:\\canary", "other"),
        ] {
            assert_eq!(name(tool), sent, "{tool:?}");
        }
        assert_eq!(name(&"x".repeat(129)), "other");
    }

    #[test]
    fn models_keep_their_vendors_and_files_are_not_named() {
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
            ("/home/dev/m.gguf", "other"),
            ("./canary/m.gguf", "other"),
            ("x//canary/m", "other"),
            ("C:\\canary\\m", "other"),
            ("canary.gguf", "other"),
            ("…/canary", "other"),
            ("models/canary-7b.Q4_K_M.GGUF", "other"),
            ("models/gemini-2.5-pro", "models/gemini-2.5-pro"),
            ("canary words", "other"),
            ("/canary words", "other"),
        ] {
            assert_eq!(model(given), sent, "{given:?}");
        }
    }

    #[test]
    fn every_model_with_a_price_is_sent_by_its_name() {
        let table = include_str!("../../pricing/src/prices.tsv");
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

    /// Attributes as they stand in the store, and as they are sent.
    fn sent(kind: impl Into<EventKind>, written: &Value) -> Value {
        let mut attributes = Attributes::written(kind.into(), &written.to_string());
        publish(&mut attributes);
        serde_json::to_value(&attributes).unwrap()
    }

    /// Every field of one is in the other, and what else is there is empty.
    fn assert_sent(kind: EventType, written: &Value, expected: &Value) {
        let mut sent = sent(kind, written);
        for (name, value) in expected.as_object().unwrap() {
            let found = sent.as_object_mut().unwrap().remove(name);
            match (value, &found) {
                (Value::Object(fields), Some(found)) => {
                    assert!(fields.iter().all(|(name, value)| &found[name] == value), "{kind} {found}");
                }
                _ => assert_eq!(found.as_ref(), Some(value), "{kind} {name}"),
            }
        }
        let empty = [json!(null), json!(0), json!(false), json!([])];
        assert!(sent.as_object().unwrap().values().all(|value| empty.contains(value)), "{kind} {sent}");
    }

    #[test]
    fn ordinary_attributes_stay_to_the_letter() {
        let start = json!({"name": "fix auth", "reason": "startup", "agentVersion": "2.1.197", "project": "my widgets",
            "repository": "acme/widgets", "branch": "feature/x", "tags": ["a b"], "group": null});
        let end = json!({"status": "completed", "lastSeq": 4,
            "totals": {"unpricedModels": ["claude-next-9"], "costUsd": 0.5}});
        for (kind, attributes) in [
            (EventType::Start, start),
            (EventType::Bound, json!({"agentSessionId": "7a276c6b-d81e", "evidence": "assigned"})),
            (EventType::End, end),
            (EventType::Tool, json!({"key": "t1", "name": "Edit", "kind": "edit", "fileExtension": "rs"})),
            (EventType::Error, json!({"key": "e1", "status": 400, "kind": "authentication_failed"})),
        ] {
            assert_sent(kind, &attributes, &attributes);
        }
    }

    #[test]
    fn texts_of_an_imported_file_are_not_sent() {
        for (kind, written, expected) in [
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
                json!({"key": "a canary", "name": "canary words", "kind": "my canary", "fileExtension": "canary words"}),
                json!({"key": key("a canary"), "name": "other", "kind": null, "fileExtension": null}),
            ),
            (
                EventType::End,
                json!({"status": "failed", "lastSeq": 1,
                    "totals": {"unpricedModels": ["a canary", "/canary"], "unpricedCalls": {"a canary": 2, "/canary": 1}, "prompt": "canary"}}),
                json!({"status": "failed", "lastSeq": 1,
                    "totals": {"unpricedModels": ["other"], "unpricedCalls": {"other": 3}}}),
            ),
        ] {
            assert_sent(kind, &written, &expected);
            assert!(!sent(kind, &written).to_string().contains("canary"));
        }
    }

    #[test]
    fn only_the_category_of_an_error_is_sent() {
        for (kind, sent) in [
            ("authentication_failed", "authentication_failed"),
            ("unknown", "unknown"),
            ("", "other"),
            ("cannot read /home/dev/plan", "other"),
            ("my-secret", "other"),
        ] {
            assert_eq!(category(kind), sent);
        }
    }

    #[test]
    fn only_the_extension_of_a_file_is_sent() {
        let table = [
            ("/a/b.rs", Some("rs")),
            ("b.TAR", Some("tar")),
            ("/a.b/c", None),
            ("/a/.env", None),
            ("/a/plan.of-the-coup", None),
            ("/a/x.averylongextension", None),
            ("C:\\a\\b.cs", Some("cs")),
            ("x.", None),
            ("", None),
        ];
        for (file, expected) in table {
            assert_eq!(extension(file).as_deref(), expected, "{file}");
        }
    }

    #[test]
    fn an_unknown_type_sends_only_numbers_and_plain_names() {
        let written =
            json!({"n": 3, "ok": true, "window": "5h", "words": "a canary", "deep": [{"at": "/canary"}]});
        let expected = json!({"n": 3, "ok": true, "window": "5h", "words": null, "deep": [{"at": null}]});
        assert_eq!(sent(EventKind::named("forecast"), &written), expected);
    }
}
