//! What the user's arguments ask Claude Code for: a conversation or not, and which one.
//!
//! Promises: an argument vector is read exactly as Claude Code's own parser reads it (commander: options anywhere, optional
//! and variadic values, grouped short flags), and `injectable` is true only when every flag is a known one that is sure to
//! go together with an added `--session-id`. In doubt nothing is added, and the registry is the evidence.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use super::flags::{self, Arity, Flag, Meaning};
use crate::kit::options::looks_like_a_flag;
use crate::{Conversation, Invocation, InvocationKind};
use types::AgentSessionId;

/// Whether the agent's global configuration may open the agents view instead of a prompt. Finding the name suffices: the
/// file can be large, is read on the way to exec, and a wrong yes only means that no id is added.
pub fn defaults_to_agents_view(global_config: &[u8]) -> bool {
    memchr::memmem::find(global_config, b"\"defaultToAgentsView\"").is_some()
}

/// Reads the arguments after the program's name.
pub fn classify(args: &[OsString]) -> Invocation {
    let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
    if is_fast_path(&args) {
        return Invocation::not_a_conversation();
    }
    let parsed = Parsed::read(&args);
    // With a literal -p anywhere, the agent registers no subcommands at all: `claude mcp -p` is a prompt.
    let commands_exist = !args.iter().any(|&arg| arg == b"-p" || arg == b"--print");
    let is_command = commands_exist
        && parsed.first_operand.as_deref().is_some_and(|word| flags::SUBCOMMANDS.contains(&word));
    if parsed.exits || is_command {
        return Invocation::not_a_conversation();
    }
    Invocation {
        kind: if parsed.print { InvocationKind::Print } else { InvocationKind::Interactive },
        session: parsed.conversation(),
        injectable: !parsed.doubt && !parsed.names_a_session(),
        persistent: !parsed.not_persistent,
        prompts: parsed.first_operand.is_some(),
    }
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

/// The arguments as the option parser understands them.
#[derive(Debug, Default)]
struct Parsed {
    first_operand: Option<Vec<u8>>,
    print: bool,
    exits: bool,
    /// A flag that is not known here, or not sure to go with an added id.
    doubt: bool,
    not_persistent: bool,
    continues: bool,
    forks: bool,
    /// A conversation looked up by something other than its id.
    looked_up: bool,
    /// A conversation that lives on another machine or in another process.
    elsewhere: bool,
    /// Empty also without a value: the agent treats both alike.
    resume: Option<Vec<u8>>,
    session_id: Option<Vec<u8>>,
}

impl Parsed {
    fn read(args: &[&[u8]]) -> Self {
        let mut parsed = Self::default();
        let mut rest: VecDeque<Vec<u8>> = args.iter().map(|arg| arg.to_vec()).collect();
        let mut variadic = false;
        let mut unknown_seen = false;
        while let Some(arg) = rest.pop_front() {
            if arg == b"--" {
                parsed.operand(rest.pop_front(), unknown_seen);
                break;
            }
            if !looks_like_a_flag(&arg) {
                if !variadic {
                    parsed.operand(Some(arg), unknown_seen);
                }
                continue;
            }
            variadic = false;
            if let Some(flag) = flags::find(&arg) {
                let value = match flag.arity {
                    Arity::None => None,
                    Arity::Required | Arity::Variadic => rest.pop_front(),
                    Arity::Optional => rest.pop_front_if(|next| !looks_like_a_flag(next)),
                };
                variadic = flag.arity == Arity::Variadic;
                parsed.note(flag, value);
            } else if let Some((flag, letters)) = short_group(&arg) {
                if flag.arity == Arity::None {
                    parsed.note(flag, None);
                    rest.push_front([b"-", letters].concat());
                } else {
                    parsed.note(flag, Some(letters.to_vec()));
                }
            } else if let Some((flag, value)) = with_equals_sign(&arg) {
                parsed.note(flag, Some(value.to_vec()));
            } else {
                unknown_seen = true;
                parsed.doubt = true;
            }
        }
        parsed
    }

    /// After an unknown flag, words may be its value as well as operands.
    fn operand(&mut self, word: Option<Vec<u8>>, unknown_seen: bool) {
        if !unknown_seen && self.first_operand.is_none() {
            self.doubt |=
                word.as_ref().is_some_and(|word| word.starts_with(b"cc://") || word.starts_with(b"cc+"));
            self.first_operand = word;
        }
    }

    fn note(&mut self, flag: &Flag, value: Option<Vec<u8>>) {
        match flag.meaning {
            Meaning::Plain => {}
            Meaning::Doubtful => self.doubt = true,
            Meaning::Print => self.print = true,
            Meaning::Exits => self.exits = true,
            Meaning::NotPersistent => self.not_persistent = true,
            Meaning::Continue => self.continues = true,
            Meaning::Resume => self.resume = Some(value.unwrap_or_default()),
            Meaning::LooksUp => self.looked_up = true,
            Meaning::Fork => self.forks = true,
            Meaning::SessionId => self.session_id = Some(value.unwrap_or_default()),
            Meaning::Elsewhere => self.elsewhere = true,
        }
    }

    fn names_a_session(&self) -> bool {
        self.continues
            || self.forks
            || self.looked_up
            || self.elsewhere
            || self.not_persistent
            || self.resume.is_some()
            || self.session_id.is_some()
    }

    fn conversation(&self) -> Conversation {
        let to = match self.session_id.as_deref().map(uuid) {
            Some(None) => return Conversation::Unknown, // the agent refuses it and exits
            Some(given) => given,
            None => None,
        };
        let sources = [self.continues, self.resume.is_some(), self.looked_up];
        if self.elsewhere || sources.iter().filter(|&&source| source).count() > 1 {
            return Conversation::Unknown;
        }
        let resumes = sources.contains(&true);
        if resumes && self.forks {
            return Conversation::Fork { from: self.fork_source(), to };
        }
        match (&self.resume, to) {
            (_, Some(id)) if !resumes && !self.forks => Conversation::Chosen(id),
            (_, Some(_)) => Conversation::Unknown, // refused, but for a fork
            _ if self.forks => Conversation::Unknown,
            _ if self.continues => Conversation::Continue,
            _ if self.looked_up => Conversation::Picker,
            (Some(path), _) if path.ends_with(b".jsonl") => Conversation::Unknown,
            (Some(value), _) => uuid(value).map_or(Conversation::Picker, Conversation::Named),
            (None, None) => Conversation::Fresh,
        }
    }

    /// The agent itself resumes by path when it forks a conversation into the background.
    fn fork_source(&self) -> Option<AgentSessionId> {
        let value = self.resume.as_deref()?;
        let name = value.rsplit(|&byte| byte == b'/').next()?;
        uuid(name.strip_suffix(b".jsonl").unwrap_or(value))
    }
}

/// A uuid in the only form the agent takes, with dashes, spelled as given.
fn uuid(text: &[u8]) -> Option<AgentSessionId> {
    let text = std::str::from_utf8(text).ok()?;
    (text.len() == 36 && uuid::Uuid::try_parse(text).is_ok()).then(|| AgentSessionId(text.to_owned()))
}

/// `-pc`: the first flag and the letters after it.
fn short_group(arg: &[u8]) -> Option<(&'static Flag, &[u8])> {
    let group = arg.len() > 2 && arg[1] != b'-';
    group.then(|| flags::find(&arg[..2])).flatten().map(|flag| (flag, &arg[2..]))
}

/// `--model=opus`. A flag that takes no value does not take one this way either.
fn with_equals_sign(arg: &[u8]) -> Option<(&'static Flag, &[u8])> {
    let at = memchr::memchr(b'=', arg)?;
    let flag = arg.starts_with(b"--").then(|| flags::find(&arg[..at])).flatten()?;
    (flag.arity != Arity::None).then(|| (flag, &arg[at + 1..]))
}

#[cfg(test)]
#[path = "invocation_tests.rs"]
mod tests;
