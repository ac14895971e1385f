//! What the vendors' protocols have in common: a question, and an answer of some text followed by tool calls.

use serde_json::{Map, Value, json};

use super::log::{Kind, Spent, Vendor};
use super::script::Tool;
use super::{anthropic, chat, google, openai};
use crate::support::http::Request;

/// A model call as the agent asked it.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) vendor: Vendor,
    pub(super) kind: Kind,
    pub(super) session: Option<String>,
    pub(super) subagent: Option<String>,
    pub(super) model: String,
    pub(super) prompt: String,
    pub(super) turn: usize,
    pub(super) stream: bool,
    /// The vendor itself is to compact the conversation.
    pub(super) compacts: bool,
    /// The shape the answer must have, when the agent asks for JSON.
    pub(super) schema: Option<Value>,
}

impl Question {
    /// `None`: no model call.
    pub(super) fn of(request: &Request) -> Option<Self> {
        if request.method != "POST" {
            return None;
        }
        match request.path() {
            "/v1/messages" => Some(anthropic::question(request)),
            "/v1/responses" => Some(openai::question(request)),
            "/v1/chat/completions" => Some(chat::question(request)),
            path if path.ends_with(":streamGenerateContent") || path.ends_with(":generateContent") => {
                Some(google::question(request))
            }
            _ => None,
        }
    }
}

/// One answer: its number, from which its tokens follow, its id and its content.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) n: u64,
    pub(super) id: String,
    pub(super) model: String,
    pub(super) text: String,
    pub(super) tools: Vec<Tool>,
    /// The vendor itself is to compact the conversation: the answer is one item that says so.
    pub(super) compacts: bool,
}

/// An answer in a vendor's words.
pub(super) trait Dialect {
    /// Whether events carry their type in a line of their own.
    fn named_events(&self) -> bool;
    /// The events before the text.
    fn opening(&self) -> Vec<Value>;
    fn piece(&self, text: &str) -> Value;
    /// The rest of the stream: the end of the text, the tool calls, what it cost.
    fn closing(&self) -> Vec<Value>;
    /// What a whole stream ends with, behind its events, where that is no event.
    fn last_data(&self) -> Option<&'static str> {
        None
    }
    /// The same answer, not streamed.
    fn whole(&self) -> Value;
    fn spent(&self) -> Spent;
    /// What the opening tells of the cost.
    fn spent_at_first(&self) -> Spent {
        Spent { calls: 1, ..Spent::default() }
    }
}

pub(super) fn dialect(vendor: Vendor, answer: Answer) -> Box<dyn Dialect> {
    match vendor {
        Vendor::Anthropic => Box::new(anthropic::Claude(answer)),
        Vendor::OpenAi => Box::new(openai::Codex(answer)),
        Vendor::OpenAiChat => Box::new(chat::ChatCompletion(answer)),
        Vendor::Google => Box::new(google::Gemini(answer)),
    }
}

/// How a vendor says no.
pub(super) fn refusal(vendor: Vendor, status: u16) -> Value {
    let message = format!("refused with {status} as the prompt asked");
    match vendor {
        Vendor::Anthropic => {
            let kind = match status {
                401 => "authentication_error",
                429 => "rate_limit_error",
                529 => "overloaded_error",
                400..500 => "invalid_request_error",
                _ => "api_error",
            };
            json!({"type": "error", "error": {"type": kind, "message": message}})
        }
        Vendor::OpenAi | Vendor::OpenAiChat => {
            json!({"error": {"type": "invalid_request_error", "message": message}})
        }
        Vendor::Google => {
            json!({"error": {"code": status, "message": message, "status": "INVALID_ARGUMENT"}})
        }
    }
}

/// The smallest object that satisfies a JSON schema, its texts being `text`.
pub(super) fn fill(schema: &Value, text: &str) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    match schema["type"].as_str().unwrap_or("string").to_ascii_lowercase().as_str() {
        "object" => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            let filled = properties.map(|(name, schema)| (name.clone(), fill(schema, text)));
            Value::Object(filled.collect::<Map<_, _>>())
        }
        "array" => json!([]),
        "integer" | "number" => json!(1),
        "boolean" => json!(false),
        _ => json!(text),
    }
}

#[test]
fn a_schema_is_filled() {
    let schema = json!({"type": "OBJECT", "properties": {
        "score": {"type": "INTEGER"}, "why": {"type": "STRING"}, "who": {"type": "string", "enum": ["user", "model"]}}});
    assert_eq!(fill(&schema, "pong-1"), json!({"score": 1, "why": "pong-1", "who": "user"}));
}
