//! The fake API's own account of what was asked and answered: the truth that tests compare against.

use std::fmt;
use std::ops::AddAssign;

use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Vendor {
    Anthropic,
    /// The Responses API.
    OpenAi,
    /// The Chat Completions API.
    OpenAiChat,
    Google,
}

/// What the agent wanted the call for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Main,
    Subagent,
    Title,
    Compact,
    Router,
    /// What the user might type next.
    Suggestion,
    /// Some other helper of the agent's own.
    Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Streaming,
    /// Answered to the end and billed.
    Complete,
    /// Refused with this HTTP status.
    Refused(u16),
    /// The server broke the stream off.
    Cut,
    /// The agent hung up before the end.
    Aborted,
}

/// Tokens in codemie's own, disjoint fields (PRODUCT.md section 4), and the number of calls they were spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) calls: u64,
    pub(crate) input: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
    pub(crate) output: u64,
    pub(crate) reasoning: u64,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.input += other.input;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.output += other.output;
        self.reasoning += other.reasoning;
    }
}

impl std::iter::Sum for Spent {
    fn sum<I: Iterator<Item = Self>>(calls: I) -> Self {
        calls.fold(Self::default(), |mut sum, call| {
            sum += call;
            sum
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Counts from 1 over all calls of one server; the tokens of a call follow from it.
    pub(crate) n: u64,
    pub(crate) vendor: Vendor,
    pub(crate) kind: Kind,
    /// The agent's own session id. Gemini and Qwen Code send none.
    pub(crate) session: Option<String>,
    /// Which sub-agent asks, where the agent says so.
    pub(crate) subagent: Option<String>,
    pub(crate) model: String,
    /// The user's last prompt in the conversation so far.
    pub(crate) prompt: String,
    /// How many answers that prompt has had before this call.
    pub(crate) turn: usize,
    pub(crate) status: Status,
    /// The text of the answer, when it was text and not a tool call.
    pub(crate) text: Option<String>,
    /// The id the answer carries (`message.id`, `response.id`, `responseId`).
    pub(crate) id: String,
    pub(crate) spent: Spent,
    /// What the client was told of its cost, also where the answer broke off: what a proxy can know.
    pub(crate) told: Spent,
    /// The request's header lines, as they came.
    pub(crate) head: Vec<String>,
    /// What was asked, whole.
    pub(crate) body: Value,
}

impl Call {
    /// Whether the agent writes this call's tokens into its session files (agents' pages in the shared folder).
    pub(crate) fn recorded(&self) -> bool {
        self.status == Status::Complete
            && match self.kind {
                Kind::Main | Kind::Subagent => true,
                Kind::Compact => matches!(self.vendor, Vendor::OpenAi | Vendor::OpenAiChat),
                Kind::Title | Kind::Router | Kind::Suggestion | Kind::Side => false,
            }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct CallLog {
    pub(crate) calls: Vec<Call>,
    /// `METHOD target` of every request that no agent is known to make.
    pub(crate) strangers: Vec<String>,
}

impl CallLog {
    pub(crate) fn of_session<'a>(&'a self, session: &'a str) -> impl Iterator<Item = &'a Call> {
        self.calls.iter().filter(move |call| call.session.as_deref() == Some(session))
    }

    /// Every session whose user spoke to the model, in the order of the first call.
    pub(crate) fn sessions(&self) -> Vec<String> {
        let mut sessions = Vec::new();
        for session in
            self.calls.iter().filter(|call| call.kind == Kind::Main).filter_map(|call| call.session.as_ref())
        {
            if !sessions.contains(session) {
                sessions.push(session.clone());
            }
        }
        sessions
    }

    /// What a correct reader of the session's files finds in them.
    pub(crate) fn recorded(&self, session: &str) -> Spent {
        self.of_session(session).filter(|call| call.recorded()).map(|call| call.spent).sum()
    }
}

impl fmt::Display for CallLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for call in &self.calls {
            let prompt: String = call.prompt.chars().take(60).collect();
            let session = call.session.as_deref().unwrap_or("-");
            writeln!(
                f,
                "  call {} {:?} {session} turn {} {:?} {prompt:?} -> {:?}",
                call.n, call.kind, call.turn, call.status, call.text
            )?;
        }
        self.strangers.iter().try_for_each(|stranger| writeln!(f, "  stranger {stranger}"))
    }
}
