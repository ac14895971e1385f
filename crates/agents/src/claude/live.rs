//! What Claude Code says of itself while it runs: in the lines of its session file and in its registry entry. (Its screen:
//! `screen.rs`.)

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::agent::{FORMAT, PROGRAM};
use super::evidence;
use super::invocation;
use super::lines::is_prompt;
use super::shape::{Block, Content, Line, Message, Text};
use super::view;
use crate::InvocationKind;
use crate::kit::registry::{MAX_ENTRY, RegistryFiles};
use crate::live::{Published, TurnKind, TurnMark};
use os::file::read_at_most;
use pty::process::Processes;
use types::{Pid, Timestamp};

/// An entry is rewritten in place, so a reader may find it empty; the writer takes microseconds.
const TRIES: usize = 4;
const PAUSE: Duration = Duration::from_millis(1);

/// What a line of the session file says about its turns. Lines of sub-agents say nothing: their turns are parts of one.
pub(super) fn read_turn(line: &[u8]) -> Option<TurnMark> {
    let line: Line = serde_json::from_slice(line.trim_ascii()).ok()?;
    if line.subagent().is_some() {
        return None;
    }
    let kind = match line.kind.0.as_deref()? {
        "user" => of_user(&line)?,
        "assistant" => of_assistant(&line)?,
        // The last line of a turn, written once its hooks have run; older versions write none.
        "system" if line.subtype.0.as_deref() == Some("turn_duration") => TurnKind::Ended,
        _ => return None,
    };
    Some(TurnMark { at: line.timestamp.0.as_deref().and_then(Timestamp::parse), kind })
}

fn of_user(line: &Line) -> Option<TurnKind> {
    let message: Message = serde_json::from_str(line.message?.get()).ok()?;
    let content = Content::of(message.content)?;
    let texts = view::texts(&content);
    // Also of a tool that was refused: the turn is over all the same.
    let interrupted = texts.iter().any(|text| text.starts_with("[Request interrupted by user"));
    if line.interrupted_message_id.is_some() || interrupted {
        return Some(TurnKind::Ended);
    }
    if is_prompt(line, &content) {
        return Some(TurnKind::Prompt(texts.join("\n")));
    }
    let is_result =
        |blocks: &[Block]| blocks.iter().any(|block| block.kind.0.as_deref() == Some("tool_result"));
    matches!(&content, Content::Blocks(blocks) if is_result(blocks)).then_some(TurnKind::Goes)
}

fn of_assistant(line: &Line) -> Option<TurnKind> {
    #[derive(Deserialize)]
    struct Stopped<'a> {
        #[serde(borrow, default)]
        stop_reason: Text<'a>,
        #[serde(borrow, default)]
        content: Option<&'a RawValue>,
    }
    let stopped: Stopped = serde_json::from_str(line.message?.get()).ok()?;
    let blocks = match Content::of(stopped.content) {
        Some(Content::Blocks(blocks)) => blocks,
        _ => Vec::new(),
    };
    let is =
        |block: &Block, kinds: &[&str]| block.kind.0.as_deref().is_some_and(|kind| kinds.contains(&kind));
    // A line per block, each with the reason why the whole message ended: its text comes after its thoughts.
    let only_thinks =
        !blocks.is_empty() && blocks.iter().all(|block| is(block, &["thinking", "redacted_thinking"]));
    let speaks = blocks.iter().any(|block| is(block, &["text"]));
    // An API error that is written down is one after which the agent gave up.
    let gave_up = line.is_api_error_message.0 == Some(true);
    Some(match stopped.stop_reason.0.as_deref() {
        _ if gave_up => TurnKind::Ended,
        Some("end_turn" | "stop_sequence" | "refusal") if !only_thinks => TurnKind::Ended,
        // Older versions write no reason at all. With `max_tokens` it may go on by itself.
        None | Some("max_tokens") if speaks => TurnKind::Speaks,
        _ => TurnKind::Goes,
    })
}

/// What the process `pid` has published, or the nearest one below it: a launcher may have started the agent proper.
pub(super) fn published(files: &RegistryFiles, pid: Pid, processes: &dyn Processes) -> Option<Published> {
    let entry = entry_of(files, pid, processes);
    // Only where it has none of its own: to find all below it takes long.
    let below = || processes.family(pid).into_iter().skip(1);
    entry.or_else(|| below().find_map(|pid| entry_of(files, pid, processes)))?.published
}

/// The registry entry of a process.
struct Entry {
    /// `None`: it does not say what the process does.
    published: Option<Published>,
}

/// `None`: there is no entry of this very process.
fn entry_of(files: &RegistryFiles, pid: Pid, processes: &dyn Processes) -> Option<Entry> {
    let path = files.registry_entry(pid);
    for attempt in 1..=TRIES {
        let bytes = read_at_most(&path, MAX_ENTRY).ok()?;
        let (Ok(entry), Ok(status)) = (FORMAT.entry(&bytes), evidence::registry_status(&bytes)) else {
            if attempt < TRIES {
                std::thread::sleep(PAUSE);
            }
            continue;
        };
        // Entries of killed processes stay behind, and pids come again.
        let started = processes.start_time(pid)?;
        if entry.pid != pid || entry.start.is_some_and(|start| start != started) {
            return None;
        }
        let conversation = Some(entry.session);
        let published = status.map(|(status, since)| Published { status, since, conversation });
        return Some(Entry { published });
    }
    None
}

/// The prompt as an operand behind `--`, so that no option before it takes it and none is seen in it. A prompt of one word that is
/// the name of a subcommand would be that subcommand all the same.
pub(super) fn prompt_arguments(prompt: &str) -> Option<Vec<OsString>> {
    let args: Vec<OsString> = vec!["--".into(), prompt.into()];
    let begins = invocation::classify(&args).kind == InvocationKind::Interactive;
    (begins && !prompt.trim().is_empty()).then_some(args)
}

/// `claude daemon run`, which hosts conversations that no terminal shows, and the processes that it keeps for them.
pub(super) fn is_shared_daemon(command: &[OsString]) -> bool {
    let words: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
    let works_for_daemon =
        |word: &&[u8]| matches!(*word, b"--daemon-worker" | b"--bg-pty-host" | b"--bg-spare");
    PROGRAM.is_run_by(command)
        && (words.windows(2).any(|pair| pair == [&b"daemon"[..], b"run"])
            || words.iter().any(works_for_daemon))
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
