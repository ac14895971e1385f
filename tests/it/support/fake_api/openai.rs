//! OpenAI's Responses API, as Codex speaks it.

use serde_json::{Value, json};

use super::dialect::{Answer, Dialect, Question};
use super::log::{Kind, Spent, Vendor};
use super::script::Tool;
use crate::support::http::Request;

pub(super) fn question(request: &Request) -> Question {
    let body = &request.body;
    let (prompt, turn) = last_prompt(body);
    // Older versions spell it with an underscore and name no thread beside it.
    let session = request.header("session-id").or_else(|| request.header("session_id")).map(str::to_owned);
    let thread = request.header("thread-id").map(str::to_owned).or_else(|| session.clone());
    // With the built-in provider the vendor compacts; with another one the agent asks for a summary.
    let last = body["input"].as_array().and_then(|items| items.last());
    let compacts = last.is_some_and(|item| item["type"] == "compaction_trigger");
    let kind = if compacts || prompt.contains("CONTEXT CHECKPOINT COMPACTION") {
        Kind::Compact
    } else if thread != session && body["input"].to_string().contains("side conversation") {
        // An aside that no file keeps.
        Kind::Side
    } else if thread != session {
        Kind::Subagent
    } else if body["text"]["format"]["type"] == "json_schema" {
        Kind::Title
    } else {
        Kind::Main
    };
    Question {
        vendor: Vendor::OpenAi,
        kind,
        subagent: thread.filter(|thread| Some(thread) != session.as_ref()),
        session,
        model: body["model"].as_str().unwrap_or_default().to_owned(),
        prompt,
        turn,
        stream: body["stream"] == true,
        compacts,
        schema: body["text"]["format"].get("schema").cloned(),
    }
}

/// The user's last words, and how many answers came after them: each answer of ours begins with a message. One that only
/// looked for a tool does not count, the call that wants the tool is still to come.
fn last_prompt(body: &Value) -> (String, usize) {
    let (mut turn, mut searches) = (0_usize, 0);
    for item in body["input"].as_array().into_iter().flatten().rev() {
        match (item["type"].as_str(), item["role"].as_str()) {
            (Some("tool_search_call"), _) => searches += 1,
            (Some("message"), Some("assistant")) => turn += 1,
            (Some("message"), Some("user")) => {
                let texts = item["content"].as_array().into_iter().flatten();
                let text: String = texts.filter_map(|part| part["text"].as_str()).collect();
                return (text, turn.saturating_sub(searches));
            }
            _ => {}
        }
    }
    (String::new(), turn)
}

/// Codex shows the model most of its tools only when it searches for them.
pub(super) fn knows_subagents(body: &Value) -> bool {
    body["input"].as_array().into_iter().flatten().any(|item| item["type"] == "tool_search_output")
}

pub(super) struct Codex(pub(super) Answer);

impl Codex {
    fn message(&self) -> Value {
        json!({"type": "message", "id": format!("msg_{}", self.0.id), "role": "assistant",
               "content": [{"type": "output_text", "text": self.0.text, "annotations": []}]})
    }

    fn output(&self) -> Vec<Value> {
        if self.0.compacts {
            let item = json!({"type": "compaction", "id": format!("cmp_{}", self.0.id), "encrypted_content": "c2VjcmV0"});
            return vec![item];
        }
        let tools = self.0.tools.iter().enumerate();
        let calls = tools.map(|(at, tool)| tool_call(tool, &format!("call_{}_{at}", self.0.id)));
        std::iter::once(self.message()).chain(calls).collect()
    }

    fn response(&self) -> Value {
        let n = self.0.n;
        // The vendor's input includes what was cached, its output the reasoning.
        let (input, output) = (2000 + 10 * n, 100 + n);
        json!({"id": self.0.id, "object": "response", "model": self.0.model, "output": self.output(), "usage": {
            "input_tokens": input,
            "input_tokens_details": {"cached_tokens": 500 + n, "cache_write_tokens": 50 + n},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": 10 + n},
            "total_tokens": input + output,
        }})
    }
}

impl Dialect for Codex {
    fn named_events(&self) -> bool {
        true
    }

    fn opening(&self) -> Vec<Value> {
        let created = json!({"type": "response.created", "response": {"id": self.0.id}});
        if self.0.compacts {
            return vec![created];
        }
        let mut message = self.message();
        message["content"] = json!([]);
        vec![created, json!({"type": "response.output_item.added", "output_index": 0, "item": message})]
    }

    fn piece(&self, text: &str) -> Value {
        if self.0.compacts {
            return json!({"type": "response.in_progress", "response": {"id": self.0.id}});
        }
        let item = format!("msg_{}", self.0.id);
        json!({"type": "response.output_text.delta", "item_id": item, "output_index": 0, "content_index": 0, "delta": text})
    }

    fn closing(&self) -> Vec<Value> {
        let items = self.output().into_iter().enumerate();
        let mut events: Vec<Value> = items
            .map(|(at, item)| json!({"type": "response.output_item.done", "output_index": at, "item": item}))
            .collect();
        events.push(json!({"type": "response.completed", "response": self.response()}));
        events
    }

    fn whole(&self) -> Value {
        self.response()
    }

    fn spent(&self) -> Spent {
        let n = self.0.n;
        let (cache_read, cache_write) = (500 + n, 50 + n);
        Spent {
            calls: 1,
            input: 2000 + 10 * n - cache_read - cache_write,
            cache_read,
            cache_write,
            output: 100 + n,
            reasoning: 10 + n,
        }
    }
}

fn tool_call(tool: &Tool, call: &str) -> Value {
    let function = |name: &str, arguments: &Value| {
        json!({"type": "function_call", "id": format!("fc_{call}"), "call_id": call, "name": name,
               "arguments": arguments.to_string(), "status": "completed"})
    };
    let patch = |text: String| {
        let input = format!("*** Begin Patch\n{text}\n*** End Patch");
        json!({"type": "custom_tool_call", "id": format!("ctc_{call}"), "call_id": call, "name": "apply_patch",
               "input": input, "status": "completed"})
    };
    match tool {
        Tool::Run(command) => function("exec_command", &json!({"cmd": command})),
        Tool::Write(file) => patch(format!("*** Add File: {file}\n+one\n+two\n+three")),
        Tool::Edit(file) => patch(format!("*** Update File: {file}\n@@\n one\n-two\n+2\n+2b\n three")),
        Tool::Subagent(prompt) => {
            let mut call = function("spawn_agent", &json!({"message": prompt}));
            call["namespace"] = json!("multi_agent_v1");
            call
        }
        Tool::Search(query) => {
            json!({"type": "tool_search_call", "id": format!("tsc_{call}"), "call_id": call, "status": "completed",
                   "execution": "client", "arguments": {"query": query, "limit": 8}})
        }
        Tool::Named(name, input) => function(name, input),
    }
}
