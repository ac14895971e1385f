//! How much of the agent's use of its API the numbers of a session cover.
//!
//! A session without calls is either one in which nobody asked anything, or one whose calls could not be read. Its prompts, tool
//! calls and unreadable lines decide between the two.

use super::{Link, spelled};

spelled!(
    /// How much of the agent's use of its API the numbers cover.
    Coverage {
        /// Nothing could be read.
        None = "none",
        /// Every call that the agent's own file records.
        Transcript = "transcript",
        /// Every call, seen by the proxy.
        Complete = "complete",
    }
);

/// The content of a conversation, as far as it could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    pub calls: i64,
    pub errors: i64,
    pub prompts: i64,
    pub tool_calls: i64,
    /// The agent has ended with an error: then a prompt without a call is one that got no answer.
    pub failed: bool,
    /// Lines of its file could not be understood.
    pub unreadable: bool,
    /// Every opening went through the proxy.
    pub proxied: bool,
    /// The transcript holds calls that the proxy has not seen: they went another way. Or it could not read the usage of one.
    pub unseen: bool,
}

impl Coverage {
    /// - A call or an API error was read: `transcript`.
    /// - Neither, but the conversation shows that the model was asked (a prompt, unless the agent then failed; a tool call), or
    ///   lines that could not be understood: `none`. Zero calls would be a guess. An answer that is still being written, or was
    ///   broken off, is such a case, too: nothing of it can be read.
    /// - Nothing at all, in a conversation that is known: nobody has asked anything, and zero calls is the
    ///   right number: `transcript`.
    /// - Of what would be `transcript`, `complete` is what went through the proxy in every opening, and past it in no call, and could be read.
    pub fn of(link: Link, read: Reading) -> Self {
        let asked = read.prompts > 0 && !read.failed || read.tool_calls > 0 || read.unreadable;
        match link {
            Link::Matched if read.calls > 0 || read.errors > 0 || !asked => {
                if read.proxied && !read.unseen {
                    Self::Complete
                } else {
                    Self::Transcript
                }
            }
            _ => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn coverage_depends_on_the_content_and_on_the_link() {
        let nothing = Reading::default();
        for (read, expected) in [
            (nothing, Coverage::Transcript),
            (Reading { calls: 1, prompts: 1, ..nothing }, Coverage::Transcript),
            (Reading { calls: 1, prompts: 1, unreadable: true, ..nothing }, Coverage::Transcript),
            (Reading { errors: 1, prompts: 1, ..nothing }, Coverage::Transcript),
            (Reading { prompts: 1, ..nothing }, Coverage::None),
            (Reading { prompts: 1, failed: true, ..nothing }, Coverage::Transcript),
            (Reading { tool_calls: 1, failed: true, ..nothing }, Coverage::None),
            (Reading { tool_calls: 1, ..nothing }, Coverage::None),
            (Reading { unreadable: true, ..nothing }, Coverage::None),
        ] {
            assert_eq!(Coverage::of(Link::Matched, read), expected, "{read:?}");
            for link in [Link::Pending, Link::Ambiguous, Link::Failed] {
                assert_eq!(Coverage::of(link, read), Coverage::None, "{link} {read:?}");
            }
            let proxied = Reading { proxied: true, ..read };
            let complete = if expected == Coverage::None { expected } else { Coverage::Complete };
            assert_eq!(Coverage::of(Link::Matched, proxied), complete, "{proxied:?}");
            let past_it = Reading { unseen: true, ..proxied };
            assert_eq!(Coverage::of(Link::Matched, past_it), expected, "{past_it:?}");
        }
    }
}
