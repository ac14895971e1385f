//! What a request of Claude Code says of itself.
//!
//! Every request names its conversation (`X-Claude-Code-Session-Id`), those of sub-agents theirs. What a request is for stands
//! in `x-claude-code-request-class`, which 2.1.325 sends to an address that it takes for Anthropic's own: `main`, `subagent`,
//! `workflow`, `compaction`, `auxiliary` (a title, a classifier, a recap), and `side_reply`, which was not seen. Without the
//! header, and for what `auxiliary` means, the shape of the request decides. Its marks were recorded from 2.1.197 and 2.1.325
//! (`tests/fixtures/proxy`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use types::{AgentSessionId, CallKind};

use super::shape::Content;
use crate::CallIdentity;
use crate::proxied::{header, id};

pub(super) fn identify(request: &relay::Request) -> CallIdentity {
    let body = request.body.as_deref().and_then(|body| serde_json::from_slice::<Body>(body).ok());
    let session = header(request, "x-claude-code-session-id").map(str::to_owned);
    let session = session.or_else(|| body.as_ref().and_then(Body::session));
    let subagent = header(request, "x-claude-code-agent-id").and_then(id);
    let class = header(request, "x-claude-code-request-class");
    let kind = kind(class, subagent.is_some(), body.as_ref());
    // Its own retries were seen to repeat a zero; other programs on the same library count here.
    let retries = header(request, "x-stainless-retry-count").and_then(|count| count.parse::<u32>().ok());
    CallIdentity {
        conversation: session.as_deref().and_then(id).map(AgentSessionId),
        subagent,
        kind,
        attempt: retries.unwrap_or(0).saturating_add(1),
    }
}

fn kind(class: Option<&str>, is_subagent: bool, body: Option<&Body>) -> CallKind {
    let aside = || body.and_then(Body::aside);
    match class {
        Some("main") => CallKind::Main,
        Some("subagent" | "workflow") => CallKind::Subagent,
        Some("compaction") => CallKind::Compact,
        Some("auxiliary" | "side_reply") => aside().unwrap_or(CallKind::Other),
        _ => aside().unwrap_or_else(|| {
            let has_tools = body.is_some_and(|body| !body.tools.is_empty());
            match (is_subagent, has_tools) {
                (true, _) => CallKind::Subagent,
                (false, true) => CallKind::Main,
                (false, false) => CallKind::Other,
            }
        }),
    }
}

#[derive(Debug, Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    system: Option<&'a RawValue>,
    #[serde(borrow, default)]
    messages: Vec<&'a RawValue>,
    #[serde(default)]
    tools: Vec<IgnoredAny>,
    #[serde(borrow, default)]
    output_config: Option<OutputConfig<'a>>,
    #[serde(borrow, default)]
    metadata: Option<Metadata<'a>>,
}

#[derive(Debug, Deserialize)]
struct OutputConfig<'a> {
    #[serde(borrow, default)]
    format: Option<Format<'a>>,
}

#[derive(Debug, Deserialize)]
struct Format<'a> {
    #[serde(borrow, default)]
    schema: Option<Schema<'a>>,
}

#[derive(Debug, Deserialize)]
struct Schema<'a> {
    #[serde(borrow, default)]
    properties: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    user_id: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
struct UserId {
    session_id: String,
}

#[derive(Debug, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

impl Body<'_> {
    /// Versions before the header name it at the end of the user's id; later ones in a document there.
    fn session(&self) -> Option<String> {
        let user = self.metadata.as_ref()?.user_id.as_deref()?;
        match serde_json::from_str::<UserId>(user) {
            Ok(user) => Some(user.session_id),
            Err(_) => user.rsplit_once("_session_").map(|(_, session)| session.to_owned()),
        }
    }

    /// What a request beside the conversation is for, by its marks; `None`: it has none of them.
    fn aside(&self) -> Option<CallKind> {
        if self.tools.is_empty() {
            if self.asks_for_a_name() {
                return Some(CallKind::Title);
            }
            return self.is_by_security_monitor().then_some(CallKind::Classifier);
        }
        let text = self.last_texts();
        let begins = |mark: &str| text.iter().any(|text| text.starts_with(mark));
        let summary = "Your task is to create a detailed summary of the";
        let summarises =
            |text: &String| text.starts_with("CRITICAL: Respond with TEXT ONLY") && text.contains(summary);
        if begins(summary) || text.iter().any(summarises) {
            return Some(CallKind::Compact);
        }
        // A question beside the conversation (`/btw`), a recap for a user who was away, a suggestion for the next prompt: the
        // conversation's tools come along for the sake of the cache. The last was read in the program, not seen.
        let asides = [
            "<system-reminder>This is a side question from the user.",
            "The user stepped away and is coming back.",
            "[SUGGESTION MODE:",
        ];
        asides.iter().any(|mark| begins(mark)).then_some(CallKind::Other)
    }

    /// The answer is to be a document with nothing but a `title`, or a `name` (`/rename`).
    fn asks_for_a_name(&self) -> bool {
        let format = self.output_config.as_ref().and_then(|config| config.format.as_ref());
        let properties = format.and_then(|format| format.schema.as_ref()).map(|schema| &schema.properties);
        properties.is_some_and(|properties| {
            properties.len() == 1 && properties.keys().all(|name| name == "title" || name == "name")
        })
    }

    /// Auto mode asks whether a tool may run.
    fn is_by_security_monitor(&self) -> bool {
        let texts = self.system.and_then(|system| Content::of(Some(system))).map(texts).unwrap_or_default();
        texts
            .iter()
            .any(|text| text.starts_with("You are a security monitor for autonomous AI coding agents"))
    }

    fn last_texts(&self) -> Vec<String> {
        let message = self.messages.last().and_then(|raw| serde_json::from_str::<Message>(raw.get()).ok());
        message.and_then(|message| Content::of(message.content)).map(texts).unwrap_or_default()
    }
}

fn texts(content: Content<'_>) -> Vec<String> {
    let text = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).ok();
    match content {
        Content::Text(raw) => text(raw).into_iter().collect(),
        Content::Blocks(blocks) => blocks.iter().filter_map(|block| block.text.and_then(text)).collect(),
    }
}
