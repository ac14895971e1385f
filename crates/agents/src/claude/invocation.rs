//! What the user's arguments ask Claude Code for: a conversation or not, and which one.
//!
//! Promises: an argument vector is read exactly as Claude Code's own parser reads it (commander: options anywhere, optional
//! and variadic values, grouped short flags), and `injectable` is true only when every flag is a known one that is sure to
//! go together with an added `--session-id`. In doubt nothing is added, and the registry is the evidence.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use super::flags;
use crate::kit::options::{Arguments, Item, uuid};
use crate::{Conversation, Invocation, InvocationKind};
use types::AgentSessionId;

/// Whether the agent's global configuration may open the agents view instead of a prompt. Finding the name suffices: the
/// file can be large, is read on the way to exec, and a wrong yes only means that no id is added.
pub fn defaults_to_agents_view(global_config: &[u8]) -> bool {
    memchr::memmem::find(global_config, b"\"defaultToAgentsView\"").is_some()
}

/// Reads the arguments after the program's name.
pub fn classify(args: &[OsString]) -> Invocation {
    let raw: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
    if is_fast_path(&raw) {
        return Invocation::not_a_conversation();
    }
    let args = Arguments::read_as_commander(args, flags::FLAGS);
    let any = |names: &[&str]| names.iter().any(|name| args.has(name));
    let first = first_word(&args);
    // With a literal -p anywhere, the agent registers no subcommands at all: `claude mcp -p` is a prompt.
    let commands_exist = !raw.iter().any(|&arg| arg == b"-p" || arg == b"--print");
    let is_command = commands_exist && first.is_some_and(|word| flags::SUBCOMMANDS.contains(&word));
    if any(flags::EXITING) || is_command {
        return Invocation::not_a_conversation();
    }
    let linked = |word: &[u8]| word.starts_with(b"cc://") || word.starts_with(b"cc+");
    let doubt = args.has_unknown() || any(flags::DOUBTFUL) || first.is_some_and(linked);
    let not_persistent = args.has("--no-session-persistence");
    let names_a_session = not_persistent
        || any(flags::ELSEWHERE)
        || any(&["--continue", "--fork-session", "--from-pr", "--resume", "--session-id"]);
    Invocation {
        kind: if args.has("--print") { InvocationKind::Print } else { InvocationKind::Interactive },
        session: conversation(&args),
        injectable: !doubt && !names_a_session,
        persistent: !not_persistent,
        prompts: first.is_some(),
    }
}

/// The first operand. After an unknown flag, words may be its value as well as operands.
fn first_word<'a>(args: &Arguments<'a>) -> Option<&'a [u8]> {
    let known = args.0.iter().take_while(|item| **item != Item::Unknown);
    known.into_iter().find_map(|item| match item {
        Item::Operand(word) | Item::Text(word) => Some(*word),
        _ => None,
    })
}

fn conversation(args: &Arguments<'_>) -> Conversation {
    // A flag that is given again takes the place of the one before; one without a value has an empty one.
    let to = match args.last("--session-id").map(uuid) {
        Some(None) => return Conversation::Unknown, // the agent refuses it and exits
        Some(given) => given,
        None => None,
    };
    let resume = args.last("--resume");
    let (continues, looked_up) = (args.has("--continue"), args.has("--from-pr"));
    let forks = args.has("--fork-session");
    let sources = [continues, resume.is_some(), looked_up];
    let elsewhere = flags::ELSEWHERE.iter().any(|name| args.has(name));
    if elsewhere || sources.iter().filter(|&&source| source).count() > 1 {
        return Conversation::Unknown;
    }
    let resumes = sources.contains(&true);
    if resumes && forks {
        return Conversation::Fork { from: resume.and_then(fork_source), to };
    }
    match (resume, to) {
        (_, Some(id)) if !resumes && !forks => Conversation::Chosen(id),
        (_, Some(_)) => Conversation::Unknown, // refused, but for a fork
        _ if forks => Conversation::Unknown,
        _ if continues => Conversation::Continue,
        _ if looked_up => Conversation::Picker,
        (Some(path), _) if path.ends_with(b".jsonl") => Conversation::Unknown,
        (Some(value), _) => uuid(value).map_or(Conversation::Picker, Conversation::Named),
        (None, None) => Conversation::Fresh,
    }
}

/// The agent itself resumes by path when it forks a conversation into the background.
fn fork_source(value: &[u8]) -> Option<AgentSessionId> {
    let name = value.rsplit(|&byte| byte == b'/').next()?;
    uuid(name.strip_suffix(b".jsonl").unwrap_or(value))
}

/// What the agent decides on the raw arguments, before its option parser runs.
fn is_fast_path(args: &[&[u8]]) -> bool {
    let Some(&first) = args.first() else { return false };
    flags::FIRST_WORDS.contains(&first)
        || args.iter().any(|&arg| arg == b"--bg" || arg == b"--background")
        || (args.len() == 1 && matches!(first, b"-V" | b"--update" | b"--upgrade"))
}

/// With these arguments the user's setting `defaultToAgentsView` decides whether a conversation or the agents view opens,
/// and any added argument would decide otherwise: inject only if the setting is absent ([`defaults_to_agents_view`]).
pub fn agents_view_possible(args: &[OsString]) -> bool {
    let mut args = args.iter().map(|arg| arg.as_bytes());
    while let Some(arg) = args.next() {
        match arg {
            b"--debug" | b"-d" | b"--debug-to-stderr" | b"-d2e" => {}
            b"--debug-file" => {
                if args.next().is_none() {
                    return false;
                }
            }
            _ if arg.starts_with(b"--debug=") || arg.starts_with(b"--debug-file=") => {}
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
#[path = "invocation_tests.rs"]
mod tests;
