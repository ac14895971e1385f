//! Reading the three agents' screens: the line one types in, what a menu would choose, whether the agent is at work.

use super::agents::Agent;
use super::pty::View;

/// What is in the line one types in; `None` before it is painted.
pub(crate) fn composer(agent: Agent, screen: &str) -> Option<String> {
    let rows: Vec<&str> = screen.lines().collect();
    let text = rows[composer_row(agent, &rows)?].trim_start();
    let text = text.chars().skip(1).collect::<String>();
    let text = text.trim();
    let placeholder = match agent {
        Agent::Claude => "Try \"",
        Agent::Codex => "Ask Codex to do anything",
        Agent::Gemini => "Type your message or @path/to/file",
    };
    Some(if text.starts_with(placeholder) { String::new() } else { text.to_owned() })
}

/// The command that Enter would take from the open menu.
pub(crate) fn menu_choice(agent: Agent, screen: &str) -> Option<String> {
    let rows: Vec<&str> = screen.lines().collect();
    let composer = composer_row(agent, &rows)?;
    let entry = match agent {
        Agent::Claude => rows.get(composer + 2)?.strip_prefix('/')?,
        Agent::Codex => rows[..composer].iter().rev().find_map(|row| row.strip_prefix("› /"))?,
        Agent::Gemini => rows.get(composer + 2)?.trim_start(),
    };
    Some(entry.split_whitespace().next()?.to_owned())
}

/// Whether the agent still works on an answer.
pub(crate) fn busy(agent: Agent, view: &mut View<'_>) -> bool {
    match agent {
        Agent::Claude => view.text().contains("esc to interrupt"),
        // Its screen tells neither that it is still loading, when it swallows keys, nor that an answer streams; it tells
        // the terminal.
        Agent::Codex => !matches!(last_codex_state(view.bytes), Some(b"idle" | b"done")),
        Agent::Gemini => view.text().contains("esc to cancel"),
    }
}

fn composer_row(agent: Agent, rows: &[&str]) -> Option<usize> {
    let last = |matches: &dyn Fn(usize) -> bool| (0..rows.len()).rev().find(|&at| matches(at));
    let below_rule = |at: usize, distance: usize| at >= distance && rows[at - distance].starts_with("──");
    match agent {
        // Earlier prompts begin with the same sign; only the line one types in stands under a rule.
        Agent::Claude => last(&|at| rows[at].starts_with('❯') && below_rule(at, 1)),
        Agent::Codex => {
            last(&|at| rows[at].starts_with('›')).filter(|&at| !rows[at].starts_with("› /") || at > 0)
        }
        Agent::Gemini => last(&|at| rows[at].starts_with(" >") && below_rule(at, 3)),
    }
}

fn last_codex_state(bytes: &[u8]) -> Option<&[u8]> {
    const BEFORE: &[u8] = b"\x1b]7501;state=";
    let at = memchr::memmem::rfind(bytes, BEFORE)?;
    bytes[at + BEFORE.len()..].split(|byte| !byte.is_ascii_lowercase()).next()
}
