//! Google's Generative Language API, as Gemini CLI speaks it. Nothing in it names the agent's session.

use serde_json::{Value, json};

use super::dialect::{Answer, Dialect, Question};
use super::log::{Kind, Spent, Vendor};
use super::script::Tool;
use crate::support::http::Request;

pub(super) fn question(request: &Request) -> Question {
    let body = &request.body;
    let (prompt, turn) = last_prompt(body);
    let system = body["systemInstruction"]["parts"][0]["text"].as_str().unwrap_or_default();
    let kind = if system.contains("Task Routing AI") {
        Kind::Router
    } else if system.contains("compress") && !has_tools(body) {
        Kind::Compact
    } else if declares(body, "complete_task") {
        Kind::Subagent
    } else if has_tools(body) {
        Kind::Main
    } else {
        Kind::Side
    };
    let model = request.path().rsplit('/').next().and_then(|last| last.split(':').next()).unwrap_or_default();
    Question {
        vendor: Vendor::Google,
        kind,
        session: None,
        subagent: None,
        model: model.to_owned(),
        prompt,
        turn,
        stream: request.path().ends_with(":streamGenerateContent"),
        compacts: false,
        schema: body["generationConfig"].get("responseJsonSchema").cloned(),
    }
}

fn functions(body: &Value) -> impl Iterator<Item = &Value> {
    let tools = body["tools"].as_array().into_iter().flatten();
    tools.filter_map(|tool| tool["functionDeclarations"].as_array()).flatten()
}

fn has_tools(body: &Value) -> bool {
    functions(body).next().is_some()
}

fn declares(body: &Value, name: &str) -> bool {
    functions(body).any(|function| function["name"] == name)
}

/// The user's last words, and how many answers came after them. The context that the agent sets before them shares
/// their message, so the last text part counts.
fn last_prompt(body: &Value) -> (String, usize) {
    let mut turn = 0;
    for content in body["contents"].as_array().into_iter().flatten().rev() {
        if content["role"] == "model" {
            turn += 1;
        } else if let Some(text) =
            content["parts"].as_array().into_iter().flatten().rev().find_map(|part| part["text"].as_str())
        {
            return (text.to_owned(), turn);
        }
    }
    (String::new(), turn)
}

pub(super) struct Gemini(pub(super) Answer);

impl Gemini {
    fn chunk(&self, parts: &Value, end: bool) -> Value {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        let mut chunk = json!({"modelVersion": self.0.model, "responseId": self.0.id});
        // Every chunk says what is known by then.
        chunk["usageMetadata"] = if end { self.usage() } else { self.usage_at_first() };
        if end {
            candidate["finishReason"] = json!("STOP");
        }
        chunk["candidates"] = json!([candidate]);
        chunk
    }

    fn calls(&self) -> Vec<Value> {
        let tools = self.0.tools.iter().enumerate();
        tools
            .map(|(at, tool)| {
                let (name, args) = function_call(tool);
                json!({"functionCall": {"id": format!("call_{}_{at}", self.0.id), "name": name, "args": args}})
            })
            .collect()
    }

    fn usage(&self) -> Value {
        let n = self.0.n;
        // Input includes what was cached; output excludes thoughts and the tools' prompts.
        let (input, output, thoughts, tools) = (1000 + 10 * n, 100 + n, 10 + n, 1 + n);
        json!({"promptTokenCount": input, "candidatesTokenCount": output, "cachedContentTokenCount": 500 + n,
               "thoughtsTokenCount": thoughts, "toolUsePromptTokenCount": tools,
               "totalTokenCount": input + output + thoughts + tools})
    }

    fn usage_at_first(&self) -> Value {
        let n = self.0.n;
        let input = 1000 + 10 * n;
        json!({"promptTokenCount": input, "cachedContentTokenCount": 500 + n, "totalTokenCount": input})
    }
}

impl Dialect for Gemini {
    fn named_events(&self) -> bool {
        false
    }

    fn opening(&self) -> Vec<Value> {
        Vec::new()
    }

    fn piece(&self, text: &str) -> Value {
        self.chunk(&json!([{"text": text}]), false)
    }

    fn closing(&self) -> Vec<Value> {
        let mut parts = self.calls();
        if parts.is_empty() {
            parts.push(json!({"text": ""}));
        }
        vec![self.chunk(&json!(parts), true)]
    }

    fn whole(&self) -> Value {
        let mut parts = vec![json!({"text": self.0.text})];
        parts.extend(self.calls());
        self.chunk(&json!(parts), true)
    }

    fn spent(&self) -> Spent {
        let n = self.0.n;
        Spent {
            calls: 1,
            input: (1000 + 10 * n) - (500 + n) + (1 + n),
            cache_read: 500 + n,
            cache_write: 0,
            output: (100 + n) + (10 + n),
            reasoning: 10 + n,
        }
    }

    fn spent_at_first(&self) -> Spent {
        let n = self.0.n;
        Spent { calls: 1, input: (1000 + 10 * n) - (500 + n), cache_read: 500 + n, ..Spent::default() }
    }
}

fn function_call(tool: &Tool) -> (&str, Value) {
    match tool {
        Tool::Run(command) => ("run_shell_command", json!({"command": command})),
        Tool::Write(file) => ("write_file", json!({"file_path": file, "content": "one\ntwo\nthree\n"})),
        Tool::Edit(file) => (
            "replace",
            json!({"file_path": file, "instruction": "edit", "old_string": "two", "new_string": "2\n2b"}),
        ),
        Tool::Subagent(prompt) => ("invoke_agent", json!({"agent_name": "generalist", "prompt": prompt})),
        Tool::Named(name, input) => (name, input.clone()),
        Tool::Search(_) => unreachable!("only Codex searches for tools"),
    }
}
