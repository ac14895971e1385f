//! Gemini CLI. Flags and subcommands as `gemini --help` of 0.61.0 lists them.

use std::ffi::OsString;

use super::args::{self, Arity, Flag, Item, flag};
use super::{Agent, Conversation, Invocation, Kind};
use crate::session::id::AgentSessionId;

#[derive(Debug)]
pub(super) struct Gemini;

static FLAGS: [Flag; 29] = [
    flag(&["--debug", "-d"], Arity::None),
    flag(&["--model", "-m"], Arity::One),
    flag(&["--prompt", "-p"], Arity::One),
    flag(&["--prompt-interactive", "-i"], Arity::One),
    flag(&["--skip-trust"], Arity::None),
    flag(&["--worktree", "-w"], Arity::Optional),
    flag(&["--sandbox", "-s"], Arity::None),
    flag(&["--yolo", "-y"], Arity::None),
    flag(&["--approval-mode"], Arity::One),
    flag(&["--policy"], Arity::Many),
    flag(&["--admin-policy"], Arity::Many),
    flag(&["--acp"], Arity::None),
    flag(&["--experimental-acp"], Arity::None),
    flag(&["--allowed-mcp-server-names"], Arity::Many),
    flag(&["--allowed-tools"], Arity::Many),
    flag(&["--extensions", "-e"], Arity::Many),
    flag(&["--list-extensions", "-l"], Arity::None),
    flag(&["--resume", "-r"], Arity::Optional),
    flag(&["--session-file"], Arity::One),
    flag(&["--session-id"], Arity::One),
    flag(&["--list-sessions"], Arity::None),
    flag(&["--delete-session"], Arity::One),
    flag(&["--include-directories"], Arity::Many),
    flag(&["--screen-reader"], Arity::None),
    flag(&["--output-format", "-o"], Arity::One),
    flag(&["--raw-output"], Arity::None),
    flag(&["--accept-raw-output-risk"], Arity::None),
    flag(&["--version", "-v"], Arity::None),
    flag(&["--help", "-h"], Arity::None),
];

const MANAGEMENT: [&str; 8] = ["mcp", "extensions", "extension", "skills", "skill", "hooks", "hook", "gemma"];

/// Flags that print or change something and leave.
const LEAVING: [&str; 5] =
    ["--version", "--help", "--list-extensions", "--list-sessions", "--delete-session"];

impl Agent for Gemini {
    fn name(&self) -> &'static str {
        "gemini"
    }

    fn provider(&self) -> Option<&'static str> {
        Some("gcp.gemini")
    }

    fn classify(&self, args: &[OsString]) -> Invocation {
        let items = args::read(args, &FLAGS);
        let value = |name: &str| {
            items.iter().find_map(|item| match item {
                Item::Flag(known, value) if *known == name => Some(*value),
                _ => None,
            })
        };
        let given = |name: &str| value(name).is_some();
        let first = items.iter().find_map(|item| match item {
            Item::Operand(word) => std::str::from_utf8(word).ok(),
            _ => None,
        });
        if LEAVING.into_iter().any(given) || first.is_some_and(|word| MANAGEMENT.contains(&word)) {
            return Invocation::not_a_conversation();
        }
        let id = |text: &[u8]| AgentSessionId(String::from_utf8_lossy(text).into_owned());
        let session = match (value("--resume"), value("--session-id")) {
            (None, None) if given("--session-file") => Conversation::Unknown,
            (None, None) => Conversation::Fresh,
            (None, Some(Some(chosen))) => Conversation::Chosen(id(chosen)),
            // A number is a place in a list, not an id.
            (Some(Some(named)), None) if named.len() >= 8 => Conversation::Named(id(named)),
            (Some(_), None) => Conversation::Continue,
            _ => Conversation::Unknown,
        };
        let print = ["--prompt", "--acp", "--experimental-acp"].into_iter().any(given);
        Invocation {
            kind: if print { Kind::Print } else { Kind::Interactive },
            injectable: session == Conversation::Fresh && !items.contains(&Item::Unknown),
            session,
            persistent: true,
        }
    }

    fn resume(&self, conversation: &AgentSessionId, fork: bool) -> Option<Vec<OsString>> {
        // It has no copies.
        (!fork).then(|| vec!["--resume".into(), OsString::from(&conversation.0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(line: &str) -> Invocation {
        Gemini.classify(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn conversations_and_what_is_none() {
        use Kind::{Interactive, NotAConversation, Print};
        for (line, kind) in [
            ("", Interactive),
            ("hello there", Interactive),
            ("-i hello", Interactive),
            ("-e mcp hooks", Interactive),
            ("-p hello", Print),
            ("--prompt=hello -m x", Print),
            ("--acp", Print),
            ("mcp list", NotAConversation),
            ("-d extensions list", NotAConversation),
            ("--version", NotAConversation),
            ("-h", NotAConversation),
            ("--list-sessions", NotAConversation),
            ("--delete-session 3", NotAConversation),
        ] {
            assert_eq!(classify(line).kind, kind, "gemini {line}");
        }
    }

    #[test]
    fn which_conversation_and_whether_an_id_may_be_added() {
        let id = AgentSessionId("11111111-2222-4333-8444-555555555555".into());
        for (line, session, injectable) in [
            ("-p hi", Conversation::Fresh, true),
            ("-r latest -p hi", Conversation::Continue, false),
            ("-r", Conversation::Continue, false),
            ("--resume 5", Conversation::Continue, false),
            ("--resume 11111111-2222-4333-8444-555555555555", Conversation::Named(id.clone()), false),
            ("--session-id 11111111-2222-4333-8444-555555555555", Conversation::Chosen(id), false),
            ("--session-file x.json", Conversation::Unknown, false),
            ("--resume latest --session-id x", Conversation::Unknown, false),
            ("--brand-new", Conversation::Fresh, false),
        ] {
            let invocation = classify(line);
            assert_eq!((invocation.session, invocation.injectable), (session, injectable), "gemini {line}");
        }
    }
}
