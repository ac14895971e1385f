//! What a request of Qwen Code says of itself.
//!
//! Nothing in it names the conversation (0.24.4, headers and bodies searched): a call belongs to the run. What it is for shows in
//! the system's instruction and in the last message, as recorded from the program.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use types::CallKind;

use crate::CallIdentity;

pub(super) fn identify(request: &relay::Request) -> CallIdentity {
    let body = request.body.as_deref().and_then(|body| serde_json::from_slice::<Body>(body).ok());
    CallIdentity { kind: body.map_or(CallKind::Other, |body| body.kind()), ..CallIdentity::default() }
}

#[derive(Debug, Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    messages: Vec<Message<'a>>,
    #[serde(default)]
    tools: Vec<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    role: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

impl Message<'_> {
    fn texts(&self) -> Vec<Cow<'_, str>> {
        let Some(content) = self.content.map(RawValue::get) else { return Vec::new() };
        let parts = || serde_json::from_str::<Vec<Part>>(content).unwrap_or_default();
        serde_json::from_str(content)
            .map_or_else(|_| parts().into_iter().map(|part| part.text).collect(), |text| vec![text])
    }

    fn begins(&self, mark: &str) -> bool {
        self.texts().iter().any(|text| text.trim_start().starts_with(mark))
    }
}

impl Body<'_> {
    fn kind(&self) -> CallKind {
        let instructed = |mark: &str| {
            self.messages.first().is_some_and(|first| first.role == "system" && first.begins(mark))
        };
        if instructed("You are a security classifier") {
            CallKind::Classifier
        } else if instructed("You are now acting as the managed memory extraction subagent")
            || instructed("You are a general-purpose subagent")
        {
            CallKind::Subagent
        } else if self.messages.last().is_some_and(|last| last.begins("[SUGGESTION MODE:")) {
            CallKind::Other
        } else if self.summarises() {
            CallKind::Compact
        } else if self.tools.is_empty() {
            CallKind::Other
        } else {
            CallKind::Main
        }
    }

    fn summarises(&self) -> bool {
        self.messages
            .iter()
            .filter(|message| message.role == "system")
            .any(|message| message.texts().iter().any(|text| text.contains("<state_snapshot>")))
    }
}
