//! Anthropic's Messages API, as Claude Code speaks it.

use serde_json::{Value, json};

use super::dialect::{Answer, Dialect, Question};
use super::log::{Kind, Spent, Vendor};
use super::script::Tool;
use crate::support::http::Request;

pub(super) fn question(request: &Request) -> Question {
    let body = &request.body;
    let (prompt, turn) = last_prompt(body);
    let subagent = request.header("x-claude-code-agent-id").map(str::to_owned);
    let kind = match &subagent {
        _ if prompt.starts_with("<session>") => Kind::Title,
        _ if prompt.contains("Your task is to create a detailed summary") => Kind::Compact,
        Some(_) => Kind::Subagent,
        // What 2.0 asks in the name of each of its sub-agents when it starts.
        None if prompt == WARM_UP => Kind::Subagent,
        None if body["tools"].as_array().is_none_or(Vec::is_empty) => Kind::Side,
        None => Kind::Main,
    };
    Question {
        vendor: Vendor::Anthropic,
        kind,
        session: request.header("x-claude-code-session-id").map(str::to_owned).or_else(|| session_of(body)),
        subagent,
        model: body["model"].as_str().unwrap_or_default().to_owned(),
        prompt,
        turn,
        stream: body["stream"] == true,
        compacts: false,
        schema: body["output_config"]["format"].get("schema").cloned(),
    }
}

pub(crate) const WARM_UP: &str = "Warmup";

/// Older versions send their session's id in the body alone, at the end of the user's.
fn session_of(body: &Value) -> Option<String> {
    let user = body["metadata"]["user_id"].as_str()?;
    user.rsplit_once("session_").map(|(_, session)| session.to_owned())
}

/// The user's last words, and how many answers came after them. What the agent itself adds to a user message
/// (reminders, tool results) is not the user's.
fn last_prompt(body: &Value) -> (String, usize) {
    let mut turn = 0;
    for message in body["messages"].as_array().into_iter().flatten().rev() {
        match message["role"].as_str() {
            Some("assistant") => turn += 1,
            Some("user") => {
                let texts: Vec<&str> = match &message["content"] {
                    Value::String(text) => vec![text],
                    blocks => {
                        blocks.as_array().into_iter().flatten().filter_map(|b| b["text"].as_str()).collect()
                    }
                };
                let own =
                    texts.into_iter().rev().find(|text| !text.trim_start().starts_with("<system-reminder>"));
                if let Some(text) = own {
                    return (text.to_owned(), turn);
                }
            }
            _ => {}
        }
    }
    (String::new(), turn)
}

pub(super) struct Claude(pub(super) Answer);

impl Claude {
    fn usage(&self) -> Value {
        let spent = self.spent();
        json!({
            "input_tokens": spent.input,
            "cache_creation_input_tokens": spent.cache_write,
            "cache_read_input_tokens": spent.cache_read,
            "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": spent.cache_write - 60},
            "output_tokens": spent.output,
            "service_tier": "standard",
        })
    }

    fn stop_reason(&self) -> &'static str {
        if self.0.tools.is_empty() { "end_turn" } else { "tool_use" }
    }

    fn message(&self, content: &Value, stop: Option<&str>, usage: &Value) -> Value {
        json!({"id": self.0.id, "type": "message", "role": "assistant", "model": self.0.model, "content": content,
               "stop_reason": stop, "stop_sequence": null, "usage": usage})
    }

    fn tools(&self) -> Vec<Value> {
        let tools = self.0.tools.iter().enumerate();
        tools
            .map(|(at, tool)| {
                let (name, input) = tool_use(tool);
                json!({"type": "tool_use", "id": format!("toolu_{}_{at}", self.0.id), "name": name, "input": input})
            })
            .collect()
    }
}

impl Dialect for Claude {
    fn named_events(&self) -> bool {
        true
    }

    fn opening(&self) -> Vec<Value> {
        // As the real API does: input is known at the start, output only at the end.
        let mut usage = self.usage();
        usage["output_tokens"] = json!(1);
        vec![
            json!({"type": "message_start", "message": self.message(&json!([]), None, &usage)}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ]
    }

    fn piece(&self, text: &str) -> Value {
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
    }

    fn closing(&self) -> Vec<Value> {
        let mut events = vec![json!({"type": "content_block_stop", "index": 0})];
        for (at, mut tool) in self.tools().into_iter().enumerate() {
            let index = at + 1;
            let input = std::mem::replace(&mut tool["input"], json!({})).to_string();
            let delta = json!({"type": "input_json_delta", "partial_json": input});
            events.push(json!({"type": "content_block_start", "index": index, "content_block": tool}));
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        let delta = json!({"stop_reason": self.stop_reason(), "stop_sequence": null});
        events.push(json!({"type": "message_delta", "delta": delta, "usage": self.usage()}));
        events.push(json!({"type": "message_stop"}));
        events
    }

    fn whole(&self) -> Value {
        let mut content = vec![json!({"type": "text", "text": self.0.text})];
        content.extend(self.tools());
        self.message(&json!(content), Some(self.stop_reason()), &self.usage())
    }

    fn spent(&self) -> Spent {
        let n = self.0.n;
        Spent {
            calls: 1,
            input: 10 + n,
            cache_write: 100 + n,
            cache_read: 1000 + n,
            output: 20 + n,
            reasoning: 0,
        }
    }

    fn spent_at_first(&self) -> Spent {
        Spent { output: 1, ..self.spent() }
    }
}

fn tool_use(tool: &Tool) -> (&str, Value) {
    match tool {
        Tool::Run(command) => ("Bash", json!({"command": command, "description": "Run a command"})),
        Tool::Write(file) => ("Write", json!({"file_path": file, "content": "one\ntwo\nthree\n"})),
        Tool::Edit(file) => ("Edit", json!({"file_path": file, "old_string": "two", "new_string": "2\n2b"})),
        Tool::Subagent(prompt) => (
            "Agent",
            json!({"description": "Do a part", "subagent_type": "general-purpose", "prompt": prompt}),
        ),
        Tool::Named(name, input) => (name, input.clone()),
        Tool::Search(_) => unreachable!("only Codex searches for tools"),
    }
}
