//! What Codex's arguments ask for. Flags and subcommands as `codex --help` of 0.166.0 lists them.

use std::ffi::OsString;

use uuid::Uuid;

use crate::kit::options::{self, Arity, Flag, Item, flag};
use crate::{Conversation, Invocation, InvocationKind};
use types::AgentSessionId;

/// Flags of the interactive command, `exec`, `review`, `resume` and `fork` together: no flag has two meanings.
static FLAGS: [Flag; 42] = [
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
    // review
    flag(&["--uncommitted"], Arity::None),
    flag(&["--base"], Arity::One),
    flag(&["--commit"], Arity::One),
    flag(&["--title"], Arity::One),
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

/// Flags by which the user decides where the conversation runs: each keeps it out of the shared background server, except
/// `--remote`, which names another.
const DECIDES_WHERE: [&str; 6] = ["--config", "--enable", "--disable", "--search", "--no-daemon", "--remote"];

pub(super) fn classify(args: &[OsString]) -> Invocation {
    let items = options::read(args, &FLAGS);
    let has = |name: &str| has(&items, name);
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
    // Behind `--last` the first word is the prompt; and a word may be the conversation's title as well as its id.
    let last = has("--last");
    let mut named = || if last { None } else { words.next().and_then(thread) };
    let session = match first {
        Some("resume") => match named() {
            Some(id) => Conversation::Named(id),
            None if last => Conversation::Continue,
            None => Conversation::Picker,
        },
        Some("fork") => Conversation::Fork { from: named(), to: None },
        _ => Conversation::Fresh,
    };
    let word = if matches!(first, Some("resume" | "fork")) { words.next() } else { first };
    let prompts = word.is_some() || items.iter().any(|item| matches!(item, Item::Text(_)));
    Invocation {
        kind: if print { InvocationKind::Print } else { InvocationKind::Interactive },
        session,
        injectable: !items.contains(&Item::Unknown),
        persistent: !has("--ephemeral"),
        prompts,
    }
}

/// Whether the arguments themselves decide where the conversation runs.
pub(super) fn decides_where(args: &[OsString]) -> bool {
    let items = options::read(args, &FLAGS);
    DECIDES_WHERE.iter().any(|name| has(&items, name))
}

/// Whether the conversation may run in a server, its own or one that `--remote` names.
pub(super) fn may_be_client(args: &[OsString]) -> bool {
    let items = options::read(args, &FLAGS);
    has(&items, "--remote") || !DECIDES_WHERE.iter().any(|name| has(&items, name))
}

/// The folder that the arguments have it work in, if they name one.
pub(super) fn folder(args: &[OsString]) -> Option<OsString> {
    use std::os::unix::ffi::OsStringExt;
    options::read(args, &FLAGS).into_iter().find_map(|item| match item {
        Item::Flag("--cd", Some(folder)) => Some(OsString::from_vec(folder.to_vec())),
        _ => None,
    })
}

/// The option by which the arguments choose a provider, an address or a profile that may hold either.
pub(super) fn chooses_api(args: &[OsString]) -> Option<&'static str> {
    const OPTIONS: [&str; 5] = ["--profile", "--oss", "--local-provider", "--remote", "--ignore-user-config"];
    const KEYS: [&[u8]; 8] = [
        b"openai_base_url",
        b"chatgpt_base_url",
        b"model_provider",
        b"model_providers.",
        b"profile",
        b"oss_provider",
        b"forced_login_method",
        b"cli_auth_credentials_store",
    ];
    options::read(args, &FLAGS).iter().find_map(|item| match item {
        Item::Flag(option, _) if OPTIONS.contains(option) => Some(*option),
        Item::Flag("--config", Some(value)) => {
            KEYS.iter().any(|key| value.trim_ascii_start().starts_with(key)).then_some("-c")
        }
        _ => None,
    })
}

fn has(items: &[Item<'_>], name: &str) -> bool {
    items.iter().any(|item| matches!(item, Item::Flag(known, _) if *known == name))
}

/// An id as the agent writes it; anything else it looks up among the titles.
fn thread(word: &str) -> Option<AgentSessionId> {
    (word.len() == 36 && Uuid::try_parse(word).is_ok()).then(|| AgentSessionId(word.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    fn classify(line: &str) -> Invocation {
        super::classify(&args(line))
    }

    #[test]
    fn conversations_are_distinguished_from_management_commands() {
        use InvocationKind::{Interactive, NotAConversation, Print};
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
    fn arguments_name_the_conversation() {
        let id = AgentSessionId("01a1e18d-8b20-7270-b8c1-15f14562bb0c".into());
        for (line, session) in [
            ("hello", Conversation::Fresh),
            ("resume 01a1e18d-8b20-7270-b8c1-15f14562bb0c", Conversation::Named(id.clone())),
            ("exec resume 01a1e18d-8b20-7270-b8c1-15f14562bb0c go on", Conversation::Named(id.clone())),
            ("resume --last", Conversation::Continue),
            ("exec resume --last go on", Conversation::Continue),
            ("resume 01A1E18D-8B20-7270-B8C1-15F14562BB0C", Conversation::Named(id.clone())),
            ("resume --last 01a1e18d-8b20-7270-b8c1-15f14562bb0c", Conversation::Continue),
            ("resume", Conversation::Picker),
            ("resume my-refactoring", Conversation::Picker),
            ("exec resume my-refactoring go on", Conversation::Picker),
            ("review --base main", Conversation::Fresh),
            ("exec review --uncommitted", Conversation::Fresh),
            ("fork", Conversation::Fork { from: None, to: None }),
            ("fork --last", Conversation::Fork { from: None, to: None }),
            (
                "exec fork 01a1e18d-8b20-7270-b8c1-15f14562bb0c go on",
                Conversation::Fork { from: Some(id.clone()), to: None },
            ),
            ("fork 01a1e18d-8b20-7270-b8c1-15f14562bb0c", Conversation::Fork { from: Some(id), to: None }),
        ] {
            assert_eq!(classify(line).session, session, "codex {line}");
        }
    }

    #[test]
    fn a_prompt_is_found_among_the_arguments() {
        let id = "01a1e18d-8b20-7270-b8c1-15f14562bb0c";
        let resumed = [format!("resume {id} -- hi"), format!("fork {id} hi")];
        let lines = resumed.iter().map(String::as_str);
        for line in lines.chain(["hi", "-- -hi", "resume --last hi", "exec hi"]) {
            assert!(classify(line).prompts, "codex {line}");
        }
        let resumed = [format!("resume {id}"), format!("fork {id}")];
        let lines = resumed.iter().map(String::as_str);
        for line in lines.chain(["", "-m hi", "resume", "resume --last", "exec"]) {
            assert!(!classify(line).prompts, "codex {line}");
        }
    }

    #[test]
    fn ephemeral_runs_write_no_file() {
        assert!(!classify("exec --ephemeral hello").persistent);
        assert!(classify("exec --json hello").persistent);
    }

    #[test]
    fn flags_that_decide_where_it_runs_are_known() {
        for line in [
            "-c a=b",
            "--config=a=b hi",
            "-ca=b",
            "--enable x",
            "resume --disable x",
            "--search",
            "--no-daemon",
            "--remote ws://x",
        ] {
            assert!(super::decides_where(&args(line)), "{line}");
        }
        for line in ["", "hello", "-m c", "-p work", "--strict-config", "-- -c a=b", "resume --last"] {
            assert!(!super::decides_where(&args(line)), "{line}");
        }
    }

    #[test]
    fn nothing_is_added_beside_an_unknown_flag() {
        assert!(classify("--model x hello").injectable);
        assert!(!classify("--brand-new x hello").injectable);
    }
}
