//! What Qwen Code's arguments ask for. Flags and subcommands as `qwen --help` of 0.24.4 lists them.

use std::ffi::OsString;

use crate::kit::options::{Arguments, Arity, Flag, flag, uuid};
use crate::{Conversation, Invocation, InvocationKind};

static FLAGS: [Flag; 63] = [
    flag(&["--telemetry"], Arity::None),
    flag(&["--telemetry-target"], Arity::One),
    flag(&["--telemetry-otlp-endpoint"], Arity::One),
    flag(&["--telemetry-otlp-protocol"], Arity::One),
    flag(&["--telemetry-log-prompts"], Arity::None),
    flag(&["--telemetry-outfile"], Arity::One),
    flag(&["--debug", "-d"], Arity::None),
    flag(&["--bare"], Arity::None),
    flag(&["--safe-mode"], Arity::None),
    flag(&["--proxy"], Arity::One),
    flag(&["--insecure"], Arity::None),
    flag(&["--chat-recording"], Arity::None),
    flag(&["--no-chat-recording"], Arity::None),
    flag(&["--model", "-m"], Arity::One),
    flag(&["--fallback-model"], Arity::Many),
    flag(&["--prompt", "-p"], Arity::One),
    flag(&["--prompt-interactive", "-i"], Arity::One),
    flag(&["--system-prompt"], Arity::One),
    flag(&["--append-system-prompt"], Arity::One),
    flag(&["--output-style"], Arity::One),
    flag(&["--sandbox", "-s"], Arity::None),
    flag(&["--sandbox-image"], Arity::One),
    flag(&["--yolo", "-y"], Arity::None),
    flag(&["--approval-mode"], Arity::One),
    flag(&["--acp"], Arity::None),
    flag(&["--experimental-lsp"], Arity::None),
    flag(&["--restore-ask-user-question"], Arity::None),
    flag(&["--channel"], Arity::One),
    flag(&["--allowed-mcp-server-names"], Arity::Many),
    flag(&["--mcp-config"], Arity::One),
    flag(&["--allowed-tools"], Arity::Many),
    flag(&["--extensions", "-e"], Arity::Many),
    flag(&["--list-extensions", "-l"], Arity::None),
    flag(&["--include-directories", "--add-dir"], Arity::Many),
    flag(&["--openai-logging"], Arity::None),
    flag(&["--openai-logging-dir"], Arity::One),
    flag(&["--openai-api-key"], Arity::One),
    flag(&["--openai-base-url"], Arity::One),
    flag(&["--screen-reader"], Arity::None),
    flag(&["--input-format"], Arity::One),
    flag(&["--output-format", "-o"], Arity::One),
    flag(&["--include-partial-messages"], Arity::None),
    flag(&["--json-fd"], Arity::One),
    flag(&["--json-file"], Arity::One),
    flag(&["--json-schema"], Arity::One),
    flag(&["--input-file"], Arity::One),
    flag(&["--continue", "-c"], Arity::None),
    flag(&["--resume", "-r"], Arity::Optional),
    flag(&["--session-id"], Arity::One),
    flag(&["--fork-session"], Arity::None),
    flag(&["--worktree"], Arity::Optional),
    flag(&["--max-session-turns"], Arity::One),
    flag(&["--max-wall-time"], Arity::One),
    flag(&["--max-tool-calls"], Arity::One),
    flag(&["--max-subagent-depth"], Arity::One),
    flag(&["--core-tools"], Arity::Many),
    flag(&["--exclude-tools"], Arity::Many),
    flag(&["--disabled-slash-commands"], Arity::Many),
    flag(&["--auth-type"], Arity::One),
    flag(&["--version", "-v"], Arity::None),
    flag(&["--help", "-h"], Arity::None),
    flag(&["--experimental-acp"], Arity::None),
    flag(&["--no-telemetry"], Arity::None),
];

const MANAGEMENT: [&str; 11] = [
    "auth",
    "board",
    "channel",
    "extensions",
    "hooks",
    "mcp",
    "review",
    "sandbox",
    "serve",
    "sessions",
    "update",
];

/// Flags that print something and exit.
const LEAVING: [&str; 3] = ["--version", "--help", "--list-extensions"];

/// Sessions that are made later and by another program, over a protocol: an id in the arguments is not theirs.
const PROTOCOLS: [&str; 2] = ["--acp", "--experimental-acp"];

/// What asks for another API than the environment and the settings do.
const ELSEWHERE: [&str; 4] = ["--openai-base-url", "--auth-type", "--proxy", "--sandbox"];

pub(super) fn classify(args: &[OsString]) -> Invocation {
    let args = Arguments::read(args, &FLAGS);
    let given = |name: &&str| args.has(name);
    let first = args.operand(0);
    // A review that runs by itself is a conversation; the other subcommands of it are its helpers.
    let reviews = first == Some("review") && args.operand(1) == Some("run");
    let manages = first.is_some_and(|word| MANAGEMENT.contains(&word));
    if LEAVING.iter().any(given) || manages && !reviews {
        return Invocation::not_a_conversation();
    }
    let session = conversation(&args);
    let protocol = PROTOCOLS.iter().any(given);
    // A prompt without a flag is answered, and the program ends.
    let ends = args.has("--prompt") || first.is_some() || args.has_text();
    let recorded = !args.has("--no-chat-recording") && args.value("--chat-recording") != Some(b"false");
    Invocation {
        kind: if protocol || ends && !args.has("--prompt-interactive") {
            InvocationKind::Print
        } else {
            InvocationKind::Interactive
        },
        injectable: session == Conversation::Fresh && !protocol && !reviews && !args.has_unknown(),
        session,
        persistent: recorded,
        prompts: ends && !reviews || args.value("--prompt-interactive").is_some(),
    }
}

fn conversation(args: &Arguments<'_>) -> Conversation {
    let chosen = match args.value("--session-id").map(uuid) {
        Some(None) => return Conversation::Unknown, // the agent refuses it and exits
        Some(id) => id,
        None => None,
    };
    let (resumes, continues) = (args.has("--resume"), args.has("--continue"));
    let named = args.value("--resume").and_then(uuid);
    match (resumes, continues, args.has("--fork-session"), chosen) {
        (false, false, false, None) => Conversation::Fresh,
        (false, false, false, Some(id)) => Conversation::Chosen(id),
        (true, false, true, to) => Conversation::Fork { from: named, to },
        (false, true, true, to) => Conversation::Fork { from: None, to },
        (true, false, false, None) => named.map_or(Conversation::Picker, Conversation::Named),
        (false, true, false, None) => Conversation::Continue,
        _ => Conversation::Unknown,
    }
}

/// The flag by which the arguments lead its calls elsewhere.
pub(super) fn leads_elsewhere(args: &[OsString]) -> Option<&'static str> {
    let args = Arguments::read(args, &FLAGS);
    ELSEWHERE.into_iter().find(|name| args.has(name))
}
