//! What Gemini CLI's arguments ask for. Flags and subcommands as `gemini --help` of 0.61.0 lists them.

use std::ffi::OsString;

use crate::kit::options::{Arguments, Arity, Flag, Item, flag, uuid};
use crate::{Conversation, Invocation, InvocationKind};
use types::AgentSessionId;

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

/// Flags that print or change something and exit.
const LEAVING: [&str; 5] =
    ["--version", "--help", "--list-extensions", "--list-sessions", "--delete-session"];

/// Sessions that are made later and by another program, over a protocol: an id in the arguments is not theirs.
const PROTOCOLS: [&str; 2] = ["--acp", "--experimental-acp"];

pub(super) fn classify(args: &[OsString]) -> Invocation {
    let args = Arguments::read(args, &FLAGS);
    let given = |name: &str| args.has(name);
    let manages = args.operand(0).is_some_and(|word| MANAGEMENT.contains(&word));
    if LEAVING.into_iter().any(given) || manages {
        return Invocation::not_a_conversation();
    }
    let id = |text: &[u8]| AgentSessionId(String::from_utf8_lossy(text).into_owned());
    let session = match (given("--resume"), given("--session-id"), args.value("--session-id")) {
        (false, false, _) if given("--session-file") => Conversation::Unknown,
        (false, false, _) => Conversation::Fresh,
        (false, true, Some(chosen)) => Conversation::Chosen(id(chosen)),
        // It compares a whole id; a number is a place in a list, `latest` the end of it.
        (true, false, _) => {
            args.value("--resume").and_then(uuid).map_or(Conversation::Continue, Conversation::Named)
        }
        _ => Conversation::Unknown,
    };
    let protocol = PROTOCOLS.into_iter().any(given);
    Invocation {
        kind: if protocol || given("--prompt") { InvocationKind::Print } else { InvocationKind::Interactive },
        injectable: session == Conversation::Fresh && !protocol && !args.has_unknown(),
        session,
        persistent: true,
        prompts: args.0.iter().any(|item| {
            matches!(
                item,
                Item::Operand(_) | Item::Text(_) | Item::Flag("--prompt" | "--prompt-interactive", Some(_))
            )
        }),
    }
}

/// Whether the arguments ask for a sandbox, in which this machine's own addresses may be others.
pub(super) fn in_a_sandbox(args: &[OsString]) -> bool {
    Arguments::read(args, &FLAGS).has("--sandbox")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(line: &str) -> Invocation {
        super::classify(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn conversations_are_distinguished_from_management_commands() {
        use InvocationKind::{Interactive, NotAConversation, Print};
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
    fn a_prompt_is_found_among_the_arguments() {
        for line in ["hi", "-i hi", "--prompt-interactive=hi", "-p hi", "-r latest -i hi"] {
            assert!(classify(line).prompts, "gemini {line}");
        }
        for line in ["", "-m hi", "-r latest", "--resume 11111111-2222-4333-8444-555555555555"] {
            assert!(!classify(line).prompts, "gemini {line}");
        }
    }

    #[test]
    fn arguments_name_the_conversation_and_decide_on_injection() {
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
            ("--resume 11111111", Conversation::Continue, false),
            ("--acp", Conversation::Fresh, false),
            ("-m x -e a b -p hi", Conversation::Fresh, true),
            ("--brand-new", Conversation::Fresh, false),
        ] {
            let invocation = classify(line);
            assert_eq!((invocation.session, invocation.injectable), (session, injectable), "gemini {line}");
        }
    }
}
