//! The shape of the lines in a session file, as far as it is read here. Borrowed from the line; unknown fields are
//! ignored.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::kit::loose::Loose;

/// A text of the line itself, copied only where it holds escapes.
pub(super) type Text<'a> = Loose<Cow<'a, str>>;

/// One line: a header (`sessionId`), a message (`id`), a change (`$set`) or a rewind (`$rewindTo`). The messages inside of
/// a change are of the same shape.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line<'a> {
    #[serde(borrow, default)]
    pub(super) session_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) start_time: Text<'a>,
    /// `main` or `subagent`.
    #[serde(borrow, default)]
    pub(super) kind: Text<'a>,
    /// In the header of a file made from an older one.
    #[serde(borrow, default)]
    pub(super) messages: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default, rename = "$set")]
    pub(super) set: Option<Set<'a>>,
    #[serde(borrow, default, rename = "$rewindTo")]
    pub(super) rewind_to: Text<'a>,
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) timestamp: Text<'a>,
    /// `user`, `gemini`, `info`, `warning`, `error`.
    #[serde(borrow, default, rename = "type")]
    pub(super) speaker: Text<'a>,
    #[serde(borrow, default)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) display_content: Option<&'a RawValue>,
    /// In the header of a file made from an older one, or in a document of an older version.
    #[serde(borrow, default)]
    pub(super) summary: Text<'a>,
    #[serde(borrow, default)]
    pub(super) model: Text<'a>,
    #[serde(default)]
    pub(super) tokens: Option<Tokens>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Set<'a> {
    #[serde(borrow, default)]
    pub(super) session_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) summary: Text<'a>,
    #[serde(borrow, default)]
    pub(super) messages: Option<Vec<&'a RawValue>>,
}

/// Counts are read strictly: one of another type makes the line unreadable, which is reported, instead of a zero, which would not be.
#[derive(Debug, Deserialize)]
pub(super) struct Tokens {
    #[serde(default)]
    pub(super) input: Option<u64>,
    #[serde(default)]
    pub(super) output: Option<u64>,
    #[serde(default)]
    pub(super) cached: Option<u64>,
    #[serde(default)]
    pub(super) thoughts: Option<u64>,
    #[serde(default)]
    pub(super) tool: Option<u64>,
}

/// The texts of a message, one after the other: it is a text itself, one part, or a list of parts. Thoughts,
/// and the questions and answers of tools, are not text.
pub(super) fn texts(content: &RawValue) -> Vec<String> {
    #[derive(Deserialize)]
    struct Part<'a> {
        #[serde(borrow, default)]
        text: Text<'a>,
        #[serde(default)]
        thought: Loose<bool>,
    }
    let text_of = |part: Part| part.text.0.filter(|_| part.thought.0 != Some(true)).map(Cow::into_owned);
    match content.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str(content.get()).into_iter().collect(),
        Some(b'[') => {
            let parts: Vec<&RawValue> = serde_json::from_str(content.get()).unwrap_or_default();
            let part = |raw: &RawValue| match raw.get().as_bytes().first() {
                Some(b'"') => serde_json::from_str(raw.get()).ok(),
                _ => serde_json::from_str(raw.get()).ok().and_then(text_of),
            };
            parts.into_iter().filter_map(part).collect()
        }
        Some(b'{') => serde_json::from_str(content.get()).ok().and_then(text_of).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The program's own commands, which older versions recorded like prompts. A text that only resembles one goes to the model.
fn is_command(text: &str) -> bool {
    const COMMANDS: &str = " about agents auth bug chat clear commands compact compress copy corgi dir directory docs editor \
        exit extensions help hooks ide mcp memory model new permissions plan policies privacy profile quit restore resume \
        rewind settings setup-github shells shortcuts skills stats summarize terminal-setup theme tools upgrade vim ";
    let word = text.split_whitespace().next().and_then(|word| word.strip_prefix('/'));
    word.is_some_and(|word| !word.is_empty() && COMMANDS.contains(&format!(" {word} ")))
}

/// Context that the program itself puts before the conversation.
pub(super) fn is_context(text: &str) -> bool {
    text.starts_with("<session_context>") || text.starts_with("<hook_context>")
}

impl Line<'_> {
    pub(super) fn is_from(&self, speaker: &str) -> bool {
        self.speaker.0.as_deref() == Some(speaker)
    }

    /// The text that the user submitted, in a `user` message; `None` where the program wrote it: context, the answers of
    /// tools, the output of a `!` command, the editor's state.
    pub(super) fn prompt(&self) -> Option<String> {
        const NOT_TYPED: [&str; 4] = [
            "I ran the following shell command:",
            "Here is the user's editor context",
            "Here is a summary of changes in the user's editor context",
            "System: Please continue.",
        ];
        let texts = texts(self.content.filter(|_| self.is_from("user"))?);
        if texts.first().is_some_and(|text| is_context(text.trim_start())) {
            return None;
        }
        let text = texts.concat();
        let begin = text.trim_start();
        let typed =
            !begin.is_empty() && !is_command(begin) && !NOT_TYPED.iter().any(|mark| begin.starts_with(mark));
        typed.then_some(text)
    }
}
