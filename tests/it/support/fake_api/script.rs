//! What a prompt asks of the fake model: marks in square brackets, anything else is answered `pong-<n>`.
//!
//! | mark | answer |
//! |---|---|
//! | `[run CMD]` `[write FILE]` `[edit FILE]` `[subagent TEXT]` | a tool call; several marks: one after the other, a turn each |
//! | `[tool NAME {json}]` | a tool call by its own name |
//! | `[together [run A] [run B]]` | several tool calls in one answer |
//! | `[slow MS]` | the last answer is streamed over that time |
//! | `[hold NAME]` | the last answer begins and waits for `FakeApi::release(NAME)` |
//! | `[error STATUS]` `[error STATUS xN]` | every try, or the first N, fails with that status |
//! | `[cut xN]` | the first N streams break off in the middle |
//! | `[say TEXT]` | the last answer is TEXT, with `\n` for a new line |

use std::time::Duration;

use serde_json::Value;

/// One tool call, in no agent's words.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tool {
    Run(String),
    Write(String),
    Edit(String),
    Subagent(String),
    Named(String, Value),
    /// No mark asks for it: what Codex needs before some of the others.
    Search(&'static str),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Script {
    pub(super) turns: Vec<Vec<Tool>>,
    pub(super) slow: Option<Duration>,
    pub(super) hold: Option<String>,
    pub(super) error: Option<(u16, usize)>,
    pub(super) cut: usize,
    pub(super) say: Option<String>,
}

impl Script {
    pub(super) fn parse(prompt: &str) -> Self {
        let mut script = Self::default();
        for mark in marks(prompt) {
            let (word, rest) = mark.split_once(' ').unwrap_or((mark, ""));
            match word {
                "slow" => script.slow = rest.parse().ok().map(Duration::from_millis),
                "hold" => script.hold = Some(rest.to_owned()),
                "say" => script.say = Some(rest.replace("\\n", "\n")),
                "cut" => script.cut = times(rest),
                "error" => {
                    let (status, count) = rest.split_once(' ').unwrap_or((rest, ""));
                    script.error = status.parse().ok().map(|status| (status, times(count)));
                }
                "together" => script.turns.push(marks(rest).into_iter().filter_map(tool).collect()),
                _ => script.turns.extend(tool(mark).map(|tool| vec![tool])),
            }
        }
        script
    }
}

/// `x3` is three; nothing is for ever.
fn times(text: &str) -> usize {
    text.strip_prefix('x').and_then(|count| count.parse().ok()).unwrap_or(usize::MAX)
}

fn tool(mark: &str) -> Option<Tool> {
    let (word, rest) = mark.split_once(' ')?;
    let text = rest.to_owned();
    Some(match word {
        "run" => Tool::Run(text),
        "write" => Tool::Write(text),
        "edit" => Tool::Edit(text),
        "subagent" => Tool::Subagent(text),
        "tool" => {
            let (name, input) = rest.split_once(' ')?;
            Tool::Named(name.to_owned(), serde_json::from_str(input).ok()?)
        }
        _ => return None,
    })
}

/// The outermost bracketed parts of a text, without their brackets.
fn marks(text: &str) -> Vec<&str> {
    let (mut marks, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => {
                if depth == 0 {
                    start = at + 1;
                }
                depth += 1;
            }
            b']' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    marks.push(&text[start..at]);
                }
            }
            _ => {}
        }
    }
    marks
}

#[test]
fn marks_become_turns() {
    let run = |command: &str| Tool::Run(command.to_owned());
    let cases = [
        ("hello", Script::default()),
        ("see [1] and [slow] for more", Script::default()),
        (
            "[run ls] then [write a.txt]",
            Script { turns: vec![vec![run("ls")], vec![Tool::Write("a.txt".into())]], ..Script::default() },
        ),
        ("[together [run a] [run b]]", Script { turns: vec![vec![run("a"), run("b")]], ..Script::default() }),
        (
            "[subagent do [run a]]",
            Script { turns: vec![vec![Tool::Subagent("do [run a]".into())]], ..Script::default() },
        ),
        ("[error 400]", Script { error: Some((400, usize::MAX)), ..Script::default() }),
        ("[error 529 x2] [cut x1]", Script { error: Some((529, 2)), cut: 1, ..Script::default() }),
        (
            "[slow 20] [hold door] [say a b]",
            Script {
                slow: Some(Duration::from_millis(20)),
                hold: Some("door".into()),
                say: Some("a b".into()),
                ..Script::default()
            },
        ),
    ];
    for (prompt, expected) in cases {
        assert_eq!(Script::parse(prompt), expected, "{prompt}");
    }
}
