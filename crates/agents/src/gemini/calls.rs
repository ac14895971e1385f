//! What a request of Gemini CLI says of itself.
//!
//! Nothing in it names the conversation or the sub-agent (0.61.0, all headers and bodies searched): a call belongs to the run.
//! What it is for shows in the form that the answer must have, in the tools, and in the system's instruction. A router, a
//! compression, a sub-agent and the conversation were recorded (`tests/fixtures/proxy`); the check who speaks next, the one
//! for loops and the summary of an old session were read in the program.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use types::CallKind;

use crate::CallIdentity;

pub(super) fn identify(request: &relay::Request) -> CallIdentity {
    let body = request.body.as_deref().and_then(|body| serde_json::from_slice::<Body>(body).ok());
    let kind = body.map_or(CallKind::Other, |body| body.kind());
    CallIdentity { kind, ..CallIdentity::default() }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow, default)]
    contents: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    system_instruction: Option<Parts<'a>>,
    #[serde(borrow, default)]
    tools: Vec<Tool<'a>>,
    #[serde(borrow, default)]
    generation_config: Option<GenerationConfig<'a>>,
}

#[derive(Debug, Deserialize)]
struct Parts<'a> {
    #[serde(borrow, default)]
    parts: Vec<Part<'a>>,
}

#[derive(Debug, Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool<'a> {
    #[serde(borrow, default)]
    function_declarations: Vec<Function<'a>>,
}

#[derive(Debug, Deserialize)]
struct Function<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    #[serde(borrow, default)]
    response_json_schema: Option<Schema<'a>>,
    #[serde(borrow, default)]
    response_schema: Option<Schema<'a>>,
}

#[derive(Debug, Deserialize)]
struct Schema<'a> {
    #[serde(borrow, default)]
    properties: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

impl Body<'_> {
    fn kind(&self) -> CallKind {
        if self.tools.iter().any(|tool| !tool.function_declarations.is_empty()) {
            // How a sub-agent ends. The conversation has no such tool.
            return if self.declares("complete_task") { CallKind::Subagent } else { CallKind::Main };
        }
        let asks_for =
            |field: &str| self.schema().is_some_and(|schema| schema.properties.contains_key(field));
        if asks_for("complexity_score") || asks_for("model_choice") {
            CallKind::Router
        } else if asks_for("next_speaker") || asks_for("unproductive_state_confidence") {
            CallKind::Classifier
        } else if self.distils_history() {
            CallKind::Compact
        } else if self.asks_for_a_title() {
            CallKind::Title
        } else {
            CallKind::Other
        }
    }

    fn schema(&self) -> Option<&Schema<'_>> {
        let config = self.generation_config.as_ref()?;
        config.response_json_schema.as_ref().or(config.response_schema.as_ref())
    }

    fn declares(&self, name: &str) -> bool {
        let functions = self.tools.iter().flat_map(|tool| &tool.function_declarations);
        functions.into_iter().any(|function| function.name.as_deref() == Some(name))
    }

    fn distils_history(&self) -> bool {
        let parts = self.system_instruction.iter().flat_map(|instruction| &instruction.parts);
        parts
            .into_iter()
            .any(|part| part.text.as_deref().is_some_and(|text| text.contains("<state_snapshot>")))
    }

    fn asks_for_a_title(&self) -> bool {
        let last = self.contents.last().and_then(|raw| serde_json::from_str::<Parts>(raw.get()).ok());
        last.is_some_and(|last| {
            let mut texts = last.parts.iter().filter_map(|part| part.text.as_deref());
            texts.any(|text| {
                text.starts_with("Summarize the user's primary intent or goal in this conversation")
            })
        })
    }
}
