//! The script: messages, tool calls and their usage. Data only: the player shows it, the journal writes it, the tests add it
//! up.

use types::Tokens;

/// A model with a list price, so that there is a cost to show.
pub const MODEL: &str = "claude-opus-4-8";

/// The folder it all happens in.
pub const PROJECT: &str = "greeter";

/// One conversation: everything between two `/clear`s.
#[derive(Debug)]
pub struct Conversation {
    pub turns: &'static [Turn],
}

#[derive(Debug)]
pub struct Turn {
    pub prompt: &'static str,
    pub calls: &'static [Call],
}

/// One call of the model's API: its text, its tool call, its usage.
#[derive(Debug)]
pub struct Call {
    pub text: &'static str,
    pub tool: Option<Tool>,
    pub tokens: Tokens,
}

#[derive(Debug)]
pub enum Tool {
    Write {
        file: &'static str,
        content: &'static str,
    },
    /// A patch of one hunk that begins at `line`; its lines carry their signs.
    Edit {
        file: &'static str,
        line: u32,
        patch: &'static [&'static str],
    },
    Read {
        file: &'static str,
    },
}

impl Tool {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Write { .. } => "Write",
            Self::Edit { .. } => "Edit",
            Self::Read { .. } => "Read",
        }
    }

    pub fn file(&self) -> &'static str {
        match self {
            Self::Write { file, .. } | Self::Edit { file, .. } | Self::Read { file } => file,
        }
    }
}

const fn tokens(input: u64, output: u64, cache_read: u64, cache_write: u64) -> Tokens {
    Tokens { input, output, cache_read, cache_write_5m: cache_write, cache_write_1h: 0, reasoning: 0 }
}

pub const GREETING: &str = "import sys\n\nprint(\"Hello, world\")\n";

pub const SCRIPT: [Conversation; 2] = [
    Conversation {
        turns: &[
            Turn {
                prompt: "Write a greeting in Python",
                calls: &[
                    Call {
                        text: "I'll put it into greet.py.",
                        tool: Some(Tool::Write { file: "greet.py", content: GREETING }),
                        tokens: tokens(1204, 118, 0, 11_420),
                    },
                    Call {
                        text: "Done: `python greet.py` says hello to the world.",
                        tool: None,
                        tokens: tokens(16, 64, 12_624, 214),
                    },
                ],
            },
            Turn {
                prompt: "Let it greet whoever is named",
                calls: &[
                    Call {
                        text: "",
                        tool: Some(Tool::Edit {
                            file: "greet.py",
                            line: 1,
                            patch: &[
                                " import sys",
                                " ",
                                "-print(\"Hello, world\")",
                                "+name = sys.argv[1] if sys.argv[1:] else \"world\"",
                                "+print(f\"Hello, {name}\")",
                            ],
                        }),
                        tokens: tokens(22, 176, 12_838, 187),
                    },
                    Call {
                        text: "Now `python greet.py Ada` greets Ada, and nobody is left out.",
                        tool: None,
                        tokens: tokens(14, 58, 13_025, 263),
                    },
                ],
            },
        ],
    },
    Conversation {
        turns: &[Turn {
            prompt: "What does greet.py do?",
            calls: &[
                Call {
                    text: "",
                    tool: Some(Tool::Read { file: "greet.py" }),
                    tokens: tokens(1187, 61, 11_420, 0),
                },
                Call {
                    text: "It greets the name given on the command line, or the world. What we said before /clear, \
                           I no longer know.",
                    tool: None,
                    tokens: tokens(12, 92, 11_420, 1366),
                },
            ],
        }],
    },
];

impl Conversation {
    pub fn calls(&self) -> impl Iterator<Item = &'static Call> {
        self.turns.iter().flat_map(|turn| turn.calls)
    }

    /// All tokens of all its calls.
    pub fn tokens(&self) -> Tokens {
        self.calls().fold(Tokens::default(), |sum, Call { tokens, .. }| Tokens {
            input: sum.input + tokens.input,
            output: sum.output + tokens.output,
            cache_read: sum.cache_read + tokens.cache_read,
            cache_write_5m: sum.cache_write_5m + tokens.cache_write_5m,
            cache_write_1h: sum.cache_write_1h + tokens.cache_write_1h,
            reasoning: sum.reasoning + tokens.reasoning,
        })
    }
}

/// A file's content after the patch: kept and added lines.
pub fn patched(patch: &[&str]) -> String {
    side(patch, '+')
}

/// A file's content before the patch.
pub fn original(patch: &[&str]) -> String {
    side(patch, '-')
}

fn side(patch: &[&str], sign: char) -> String {
    let lines = patch.iter().filter_map(|line| line.strip_prefix([' ', sign]));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_fit_their_files() {
        assert!(pricing::Prices::of(MODEL).is_some(), "a demonstration without a cost shows nothing");
        for call in SCRIPT.iter().flat_map(Conversation::calls) {
            assert!(call.tool.is_some() || !call.text.is_empty(), "an answer is something: {call:?}");
            if let Some(Tool::Edit { patch, .. }) = &call.tool {
                assert_eq!(original(patch), GREETING, "the edit fits the written file");
                assert_ne!(patched(patch), GREETING);
            }
        }
        let Tokens { input, output, .. } = SCRIPT[0].tokens();
        assert_eq!((input, output), (1256, 416));
    }
}
