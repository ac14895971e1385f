//! What a request of Codex says of itself.
//!
//! `session-id` is the conversation, as the rollouts of all its threads have it; `thread-id` the thread that asks, which is
//! another one for a sub-agent. What for stands in `x-codex-turn-metadata`. On a WebSocket the headers are those of its
//! handshake, which is a prewarming for all that follows: there each message has the same fields in `client_metadata`, and they
//! count. Recorded from 0.166.0 (`tests/fixtures/proxy`).
//!
//! A title is asked for in a thread with a session of its own, which no file has. It names no conversation, then: it belongs to
//! the run.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use types::{AgentSessionId, CallKind};

use super::shape::Text;
use crate::CallIdentity;
use crate::proxied::{header, id};

const TURN_METADATA: &str = "x-codex-turn-metadata";

pub(super) fn identify(request: &relay::Request) -> CallIdentity {
    let body = request.body.as_deref().and_then(|body| serde_json::from_slice::<Body>(body).ok());
    let client = body.as_ref().and_then(|body| body.client_metadata.as_ref());
    let turn = client.and_then(|client| client.turn.0.as_deref()).or_else(|| header(request, TURN_METADATA));
    let turn = turn.and_then(|text| serde_json::from_str::<Turn>(text).ok()).unwrap_or_default();
    let field = |in_body: Option<&Text<'_>>, in_turn: &Text<'_>, names: &[&str]| {
        let text = in_body.and_then(|text| text.0.as_deref()).or(in_turn.0.as_deref());
        text.or_else(|| names.iter().find_map(|name| header(request, name))).and_then(id)
    };
    // Older versions spell it with an underscore, and name no thread beside it.
    let session =
        field(client.map(|client| &client.session_id), &turn.session_id, &["session-id", "session_id"]);
    let thread = field(client.map(|client| &client.thread_id), &turn.thread_id, &["thread-id"]);
    let helper = field(client.map(|client| &client.subagent), &Text::default(), &["x-openai-subagent"]);
    let is_title = turn.thread_source.0.as_deref() == Some("thread_title");
    let subagent = thread.filter(|thread| session.as_ref().is_some_and(|session| session != thread));
    let kind = kind(&turn, is_title, subagent.is_some() || helper.is_some(), body.as_ref());
    CallIdentity {
        conversation: session.filter(|_| !is_title).map(AgentSessionId),
        subagent,
        kind,
        attempt: 1,
    }
}

fn kind(turn: &Turn, is_title: bool, is_helper: bool, body: Option<&Body>) -> CallKind {
    match turn.request_kind.0.as_deref() {
        _ if is_title => CallKind::Title,
        Some("compaction" | "compact") => CallKind::Compact,
        Some("turn") if is_helper => CallKind::Subagent,
        Some("turn") => CallKind::Main,
        // Versions without the metadata: what is certain by itself.
        None if body.is_some_and(Body::compacts) => CallKind::Compact,
        None if is_helper => CallKind::Subagent,
        None if body.is_some_and(|body| !body.tools.is_empty() && body.generate != Some(false)) => {
            CallKind::Main
        }
        // `prewarm`, what later versions name, and what says nothing of itself.
        _ => CallKind::Other,
    }
}

#[derive(Debug, Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    client_metadata: Option<ClientMetadata<'a>>,
    #[serde(borrow, default)]
    input: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Vec<&'a RawValue>,
    /// `false`: nothing is to be answered, the API only reads ahead.
    #[serde(default)]
    generate: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct ClientMetadata<'a> {
    #[serde(borrow, default)]
    session_id: Text<'a>,
    #[serde(borrow, default)]
    thread_id: Text<'a>,
    #[serde(borrow, default, rename = "x-openai-subagent")]
    subagent: Text<'a>,
    #[serde(borrow, default, rename = "x-codex-turn-metadata")]
    turn: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct Turn<'a> {
    #[serde(borrow, default)]
    session_id: Text<'a>,
    #[serde(borrow, default)]
    thread_id: Text<'a>,
    /// `user`, `subagent`, `thread_title`, or the value of `exec --thread-source`.
    #[serde(borrow, default)]
    thread_source: Text<'a>,
    /// `prewarm`, `turn`, `compaction`.
    #[serde(borrow, default)]
    request_kind: Text<'a>,
}

#[derive(Debug, Deserialize)]
struct InputItem<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    content: Vec<InputText<'a>>,
}

#[derive(Debug, Deserialize)]
struct InputText<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
}

impl Body<'_> {
    /// The last item asks for a summary: of the API, or of the model in words.
    fn compacts(&self) -> bool {
        let last = self.input.last().and_then(|raw| serde_json::from_str::<InputItem>(raw.get()).ok());
        last.is_some_and(|item| {
            item.kind.0.as_deref() == Some("compaction_trigger")
                || item.content.iter().any(|part| {
                    part.text.as_deref().is_some_and(|text| {
                        text.starts_with("You are performing a CONTEXT CHECKPOINT COMPACTION")
                    })
                })
        })
    }
}
