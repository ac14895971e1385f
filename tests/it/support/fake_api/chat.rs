//! OpenAI's Chat Completions API, as Qwen Code speaks it. Nothing in it names the agent's session.

use serde_json::{Value, json};

use super::dialect::{Answer, Dialect, Question};
use super::log::{Kind, Spent, Vendor};
use super::script::Tool;
use crate::support::http::Request;

pub(super) fn question(request: &Request) -> Question {
    let body = &request.body;
    let (prompt, turn) = last_prompt(body);
    let instructions = body["messages"].as_array().and_then(|messages| messages.first());
    let instructions = instructions.filter(|first| first["role"] == "system").map(text).unwrap_or_default();
    let has_tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
    let kind = if prompt.starts_with("[SUGGESTION MODE:") {
        Kind::Suggestion
    } else if instructions.starts_with("You are now acting as the managed memory extraction subagent")
        || instructions.starts_with("You are a general-purpose subagent")
    {
        Kind::Subagent
    } else if instructions.contains("<state_snapshot>") {
        Kind::Compact
    } else if has_tools {
        Kind::Main
    } else {
        Kind::Side
    };
    Question {
        vendor: Vendor::OpenAiChat,
        kind,
        session: None,
        subagent: None,
        model: body["model"].as_str().unwrap_or_default().to_owned(),
        prompt,
        turn,
        stream: body["stream"] == true,
        compacts: false,
        schema: None,
    }
}

/// The text of a message, which is one string or parts of which the last text counts.
fn text(message: &Value) -> &str {
    let parts = || message["content"].as_array().into_iter().flatten();
    let last = || parts().rev().find_map(|part| part["text"].as_str());
    message["content"].as_str().or_else(last).unwrap_or_default()
}

/// The user's last words, and how many answers came after them. What the agent itself adds (reminders before the user's words,
/// notifications of what a background task came to) is not the user's.
fn last_prompt(body: &Value) -> (String, usize) {
    let mut turn = 0;
    for message in body["messages"].as_array().into_iter().flatten().rev() {
        match message["role"].as_str() {
            Some("assistant") => turn += 1,
            Some("user") => {
                let own = without_reminders(text(message));
                if !own.is_empty() && !own.starts_with("<task-notification>") {
                    return (own.to_owned(), turn);
                }
            }
            _ => {}
        }
    }
    (String::new(), turn)
}

fn without_reminders(text: &str) -> &str {
    let mut rest = text;
    while let Some((_, after)) = rest
        .trim_start()
        .strip_prefix("<system-reminder>")
        .and_then(|reminder| reminder.split_once("</system-reminder>"))
    {
        rest = after.trim_start_matches('\n');
    }
    rest
}

pub(super) struct ChatCompletion(pub(super) Answer);

impl ChatCompletion {
    fn chunk(&self, delta: &Value, finish: Option<&str>) -> Value {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        self.envelope("chat.completion.chunk", &json!([choice]))
    }

    fn envelope(&self, object: &str, choices: &Value) -> Value {
        json!({"id": self.0.id, "object": object, "created": 1_700_000_000, "model": self.0.model, "choices": choices})
    }

    fn tool_calls(&self) -> Vec<Value> {
        let tools = self.0.tools.iter().enumerate();
        tools
            .map(|(at, tool)| {
                let (name, arguments) = function(tool);
                let function = json!({"name": name, "arguments": arguments.to_string()});
                json!({"index": at, "id": format!("call_{}_{at}", self.0.id), "type": "function", "function": function})
            })
            .collect()
    }

    fn finish_reason(&self) -> &'static str {
        if self.0.tools.is_empty() { "stop" } else { "tool_calls" }
    }

    /// The prompt includes what was cached, the completion what was thought.
    fn usage(&self) -> Value {
        let n = self.0.n;
        let (prompt, completion) = (1000 + 10 * n, 100 + n);
        json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
               "prompt_tokens_details": {"cached_tokens": 500 + n},
               "completion_tokens_details": {"reasoning_tokens": 10 + n}})
    }
}

impl Dialect for ChatCompletion {
    fn named_events(&self) -> bool {
        false
    }

    fn last_data(&self) -> Option<&'static str> {
        Some("[DONE]")
    }

    fn opening(&self) -> Vec<Value> {
        vec![self.chunk(&json!({"role": "assistant", "content": ""}), None)]
    }

    fn piece(&self, text: &str) -> Value {
        self.chunk(&json!({"content": text}), None)
    }

    fn closing(&self) -> Vec<Value> {
        let mut events = Vec::new();
        let calls = self.tool_calls();
        if !calls.is_empty() {
            events.push(self.chunk(&json!({"tool_calls": calls}), None));
        }
        events.push(self.chunk(&json!({}), Some(self.finish_reason())));
        // As the real API does where it is asked for it: in an event of its own, with no choice.
        let mut last = self.envelope("chat.completion.chunk", &json!([]));
        last["usage"] = self.usage();
        events.push(last);
        events
    }

    fn whole(&self) -> Value {
        let mut message = json!({"role": "assistant", "content": self.0.text});
        let calls = self.tool_calls();
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let choice = json!({"index": 0, "message": message, "finish_reason": self.finish_reason()});
        let mut whole = self.envelope("chat.completion", &json!([choice]));
        whole["usage"] = self.usage();
        whole
    }

    fn spent(&self) -> Spent {
        let n = self.0.n;
        Spent {
            calls: 1,
            input: (1000 + 10 * n) - (500 + n),
            cache_read: 500 + n,
            cache_write: 0,
            output: 100 + n,
            reasoning: 10 + n,
        }
    }
}

fn function(tool: &Tool) -> (&str, Value) {
    match tool {
        Tool::Run(command) => ("run_shell_command", json!({"command": command, "is_background": false})),
        Tool::Write(file) => ("write_file", json!({"file_path": file, "content": "one\ntwo\nthree\n"})),
        Tool::Edit(file) => ("edit", json!({"file_path": file, "old_string": "two", "new_string": "2\n2b"})),
        Tool::Subagent(prompt) => (
            "agent",
            json!({"description": "Do a part", "subagent_type": "general-purpose", "prompt": prompt}),
        ),
        Tool::Named(name, input) => (name, input.clone()),
        Tool::Search(_) => unreachable!("only Codex searches for tools"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(messages: &Value) -> (String, usize) {
        last_prompt(&json!({"messages": messages}))
    }

    #[test]
    fn the_prompt_is_what_a_person_typed() {
        let user = |text: &str| json!({"role": "user", "content": [{"type": "text", "text": text}]});
        let (answer, result) =
            (json!({"role": "assistant", "content": "x"}), json!({"role": "tool", "content": "y"}));
        let notice = "<task-notification>\n<status>completed</status>\n</task-notification>";
        for (messages, prompt, turn) in [
            (json!([user("one")]), "one", 0),
            (json!([user("one"), answer, result]), "one", 1),
            (json!([user("one"), answer, user(notice)]), "one", 1),
            (json!([user("one"), answer, user("<system-reminder>\na\n</system-reminder>\n\ntwo")]), "two", 0),
            (json!([user("one"), answer, user("<system-reminder>\na\n</system-reminder>")]), "one", 1),
            (json!([{"role": "user", "content": " plain"}]), " plain", 0),
            (json!([]), "", 0),
        ] {
            assert_eq!(asked(&messages), (prompt.to_owned(), turn), "{messages}");
        }
    }
}
