//! OpenAI Codex. Flags and subcommands as `codex --help` of 0.166.0 lists them.

use std::ffi::OsString;

use super::args::{self, Arity, Flag, Item, flag};
use super::{Agent, Conversation, Invocation, Kind};
use crate::session::id::AgentSessionId;

#[derive(Debug)]
pub(super) struct Codex;

/// Of the interactive command, `exec`, `resume` and `fork` together: none means two things.
static FLAGS: [Flag; 38] = [
    flag(&["--config", "-c"], Arity::One),
    flag(&["--enable"], Arity::One),
    flag(&["--disable"], Arity::One),
    flag(&["--remote"], Arity::One),
    flag(&["--remote-auth-token-env"], Arity::One),
    flag(&["--strict-config"], Arity::None),
    flag(&["--image", "-i"], Arity::Many),
    flag(&["--model", "-m"], Arity::One),
    flag(&["--oss"], Arity::None),
    flag(&["--local-provider"], Arity::One),
    flag(&["--profile", "-p"], Arity::One),
    flag(&["--sandbox", "-s"], Arity::One),
    flag(&["--approve-for-me"], Arity::None),
    flag(&["--dangerously-bypass-approvals-and-sandbox"], Arity::None),
    flag(&["--dangerously-bypass-hook-trust"], Arity::None),
    flag(&["--cd", "-C"], Arity::One),
    flag(&["--worktree"], Arity::None),
    flag(&["--add-dir"], Arity::One),
    flag(&["--ask-for-approval", "-a"], Arity::One),
    flag(&["--search"], Arity::None),
    flag(&["--no-alt-screen"], Arity::None),
    flag(&["--no-daemon"], Arity::None),
    flag(&["--help", "-h"], Arity::None),
    flag(&["--version", "-V"], Arity::None),
    // exec
    flag(&["--thread-source"], Arity::One),
    flag(&["--cyber-access-program"], Arity::One),
    flag(&["--skip-git-repo-check"], Arity::None),
    flag(&["--ephemeral"], Arity::None),
    flag(&["--ignore-user-config"], Arity::None),
    flag(&["--ignore-rules"], Arity::None),
    flag(&["--output-schema"], Arity::One),
    flag(&["--color"], Arity::One),
    flag(&["--json"], Arity::None),
    flag(&["--output-last-message", "-o"], Arity::One),
    // resume and fork
    flag(&["--last"], Arity::None),
    flag(&["--all"], Arity::None),
    flag(&["--include-non-interactive"], Arity::None),
    flag(&["--full-auto"], Arity::None),
];

const MANAGEMENT: [&str; 24] = [
    "agents",
    "login",
    "logout",
    "mcp",
    "plugin",
    "app-server",
    "remote-control",
    "completion",
    "update",
    "doctor",
    "sandbox",
    "debug",
    "apply",
    "a",
    "queue",
    "archive",
    "delete",
    "migrate-rollouts",
    "migrate-nfs-db",
    "unarchive",
    "cloud",
    "exec-server",
    "features",
    "help",
];

impl Agent for Codex {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn provider(&self) -> Option<&'static str> {
        Some("openai")
    }

    fn classify(&self, args: &[OsString]) -> Invocation {
        let items = args::read(args, &FLAGS);
        let has =
            |name: &str| items.iter().any(|item| matches!(item, Item::Flag(known, _) if *known == name));
        let mut words = items.iter().filter_map(|item| match item {
            Item::Operand(word) => std::str::from_utf8(word).ok(),
            _ => None,
        });
        let mut first = words.next();
        if has("--help") || has("--version") || first.is_some_and(|word| MANAGEMENT.contains(&word)) {
            return Invocation::not_a_conversation();
        }
        let print = matches!(first, Some("exec" | "e" | "review"));
        if matches!(first, Some("exec" | "e")) {
            first = words.next();
            if first == Some("help") {
                return Invocation::not_a_conversation();
            }
        }
        let last = has("--last");
        let named = |word: Option<&str>| word.filter(|_| !last).map(|id| AgentSessionId(id.to_owned()));
        let session = match first {
            Some("resume") => match named(words.next()) {
                Some(id) => Conversation::Named(id),
                None if last => Conversation::Continue,
                None => Conversation::Picker,
            },
            Some("fork") => Conversation::Fork { from: named(words.next()), to: None },
            _ => Conversation::Fresh,
        };
        Invocation {
            kind: if print { Kind::Print } else { Kind::Interactive },
            session,
            injectable: !items.contains(&Item::Unknown),
            persistent: !has("--ephemeral"),
        }
    }

    fn resume(&self, conversation: &AgentSessionId, fork: bool) -> Option<Vec<OsString>> {
        let verb = if fork { "fork" } else { "resume" };
        Some(vec![verb.into(), OsString::from(&conversation.0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(line: &str) -> Invocation {
        Codex.classify(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn conversations_and_what_is_none() {
        use Kind::{Interactive, NotAConversation, Print};
        for (line, kind) in [
            ("", Interactive),
            ("fix-the-test", Interactive),
            ("-m exec hello", Interactive),
            ("--model=o9 --search", Interactive),
            ("resume", Interactive),
            ("fork --last", Interactive),
            ("exec hello", Print),
            ("-c model=o9 e hello", Print),
            ("exec resume --last", Print),
            ("review", Print),
            ("-- login", Interactive),
            ("login", NotAConversation),
            ("-c a=b mcp list", NotAConversation),
            ("--version", NotAConversation),
            ("-V", NotAConversation),
            ("exec --help", NotAConversation),
            ("exec help", NotAConversation),
            ("help exec", NotAConversation),
            ("completion bash", NotAConversation),
            ("app-server", NotAConversation),
        ] {
            assert_eq!(classify(line).kind, kind, "codex {line}");
        }
    }

    #[test]
    fn which_conversation() {
        let id = AgentSessionId("01a1e18d-8b20-7270-b8c1-15f14562bb0c".into());
        for (line, session) in [
            ("hello", Conversation::Fresh),
            ("resume 01a1e18d-8b20-7270-b8c1-15f14562bb0c", Conversation::Named(id.clone())),
            ("exec resume 01a1e18d-8b20-7270-b8c1-15f14562bb0c go on", Conversation::Named(id.clone())),
            ("resume --last", Conversation::Continue),
            ("exec resume --last go on", Conversation::Continue),
            ("resume", Conversation::Picker),
            ("fork 01a1e18d-8b20-7270-b8c1-15f14562bb0c", Conversation::Fork { from: Some(id), to: None }),
        ] {
            assert_eq!(classify(line).session, session, "codex {line}");
        }
    }

    #[test]
    fn nothing_is_added_beside_an_unknown_flag() {
        assert!(classify("--model x hello").injectable);
        assert!(!classify("--brand-new x hello").injectable);
    }
}
