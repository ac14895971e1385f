//! Reading the agents' screens: the line one types in, what a menu would choose, whether the agent is at work.

use super::agents::Agent;
use super::pty::View;

const RULE: &str = "──";

/// What is in the box one types in, without its spaces, because long text is wrapped at them; `None` before it is painted.
pub(crate) fn composer(agent: Agent, screen: &str) -> Option<String> {
    let rows: Vec<&str> = screen.lines().collect();
    let box_rows = rows[composer_row(agent, &rows)?..].iter();
    let box_rows =
        box_rows.take_while(|row| !row.trim().is_empty() && !row.starts_with(RULE) && !row.starts_with("▀▀"));
    let text = unspaced(&box_rows.copied().collect::<String>());
    let text = text.chars().skip(1).collect::<String>();
    // Qwen Code paints one behind what is typed.
    let text = text.replace('\u{200b}', "");
    let placeholder = match agent {
        Agent::Claude => "Try \"",
        Agent::Codex => "Ask Codex to do anything",
        Agent::Gemini | Agent::Qwen => "Type your message or @path/to/file",
    };
    Some(if text.starts_with(&unspaced(placeholder)) { String::new() } else { text })
}

/// A text as [`composer`] tells it.
pub(crate) fn unspaced(text: &str) -> String {
    text.split_whitespace().collect()
}

/// The command that Enter would take from the open menu.
pub(crate) fn menu_choice(agent: Agent, screen: &str) -> Option<String> {
    let rows: Vec<&str> = screen.lines().collect();
    let composer = composer_row(agent, &rows)?;
    let entry = match agent {
        // Below the line; above it in 2.1.259, the first entry; with a sign, in 2.1.325.
        Agent::Claude => {
            let below = rows.get(composer + 2).and_then(|row| row.trim_start().strip_prefix('/'));
            let above = || rows[..composer].iter().rev();
            let signed = || above().find_map(|row| row.strip_prefix("  ❯ /"));
            let block = || above().skip(1).take_while(|row| !row.trim().is_empty());
            below.or_else(signed).or_else(|| block().filter_map(|row| row.strip_prefix("  /")).last())?
        }
        Agent::Codex => rows[..composer].iter().rev().find_map(|row| row.strip_prefix("› /"))?,
        Agent::Gemini => rows.get(composer + 2)?.trim_start(),
        Agent::Qwen => rows.get(composer + 2)?.strip_prefix("  > ")?,
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
        // Its line is painted before it takes keys.
        Agent::Qwen => {
            ["esc to cancel)", "Initializing..."].iter().any(|at_work| view.text().contains(at_work))
        }
    }
}

fn composer_row(agent: Agent, rows: &[&str]) -> Option<usize> {
    let last = |matches: &dyn Fn(usize) -> bool| (0..rows.len()).rev().find(|&at| matches(at));
    let below_rule = |at: usize, distance: usize| at >= distance && rows[at - distance].starts_with(RULE);
    match agent {
        // Earlier prompts begin with the same sign; only the line one types in stands under a rule. `>` up to 2.0.
        Agent::Claude => last(&|at| rows[at].starts_with(['❯', '>']) && below_rule(at, 1)),
        // The sign tells the approval mode.
        Agent::Qwen => last(&|at| rows[at].starts_with(['>', '*', '!', '?']) && below_rule(at, 1)),
        Agent::Codex => {
            last(&|at| rows[at].starts_with('›')).filter(|&at| !rows[at].starts_with("› /") || at > 0)
        }
        // `*` where it asks for no permissions.
        Agent::Gemini => {
            last(&|at| [" >", " *"].iter().any(|sign| rows[at].starts_with(sign)) && below_rule(at, 3))
        }
    }
}

fn last_codex_state(bytes: &[u8]) -> Option<&[u8]> {
    const BEFORE: &[u8] = b"\x1b]7501;state=";
    let at = memchr::memmem::rfind(bytes, BEFORE)?;
    bytes[at + BEFORE.len()..].split(|byte| !byte.is_ascii_lowercase()).next()
}

#[test]
fn the_box_is_read_as_typed() {
    let rule = "─".repeat(20);
    let claude = format!("❯ old\n\n{rule}\n❯ a long\n  text\n{rule}\n/clear  Start anew\n/cost  Show");
    let codex = "› old\n\n› /clear  start anew\n\n› /cl\n\n  status";
    let qwen =
        format!("  > old\n\n{rule}\n* /cl \u{200b}\n{rule}\n  > clear (alias: reset)  Clear\n    other");
    let gemini = format!("{rule}\n YOLO\n  \n *   Type your message or @path/to/file \n  \n workspace");
    for (agent, screen, text) in [
        (Agent::Claude, claude.as_str(), "alongtext"),
        (Agent::Codex, codex, "/cl"),
        (Agent::Gemini, &gemini, ""),
        (Agent::Qwen, &qwen, "/cl"),
    ] {
        assert_eq!(composer(agent, screen).as_deref(), Some(text), "{screen}");
        assert_eq!(composer(agent, "still starting"), None);
    }
    assert_eq!(menu_choice(Agent::Codex, codex).as_deref(), Some("clear"));
    assert_eq!(menu_choice(Agent::Qwen, &qwen).as_deref(), Some("clear"));
    assert_eq!(menu_choice(Agent::Claude, &claude), None, "the menu stands right under the box of one row");
}
