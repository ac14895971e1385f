//! The seam between a followed conversation and the agent that wrote it: one line in, records and facts out. A *line* is a
//! line of a file, an element of a document's list, or a row of a database.

use super::quota::QuotaReport;
use super::record::Record;
use super::title::Title;
use types::AgentSessionId;
use types::Timestamp;

/// The meaning of an agent's lines. Lines come in the order of the conversation, each whole and without its newline.
pub trait Lines {
    /// Adds the records and facts of the line. An unknown kind of line has none and is no error.
    fn read(&mut self, line: &[u8], into: &mut ParsedLines) -> Result<(), Unreadable>;

    /// What must be remembered between two lines (a tool call that waits for its result), to be committed together with
    /// the position and handed back after a restart. `None`: nothing, as for agents whose lines need none of those before.
    /// Small by promise.
    fn state(&self) -> Option<String> {
        None
    }

    /// The next line is the first of another conversation.
    fn forget(&mut self) {}
}

impl<L: Lines + ?Sized> Lines for Box<L> {
    fn read(&mut self, line: &[u8], into: &mut ParsedLines) -> Result<(), Unreadable> {
        (**self).read(line, into)
    }

    fn state(&self) -> Option<String> {
        (**self).state()
    }

    fn forget(&mut self) {
        (**self).forget();
    }
}

/// The records and facts of a batch of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedLines {
    pub records: Vec<Record>,
    pub facts: LineFacts,
    /// The limits that the lines report, with the time of each.
    pub quotas: Vec<(Timestamp, QuotaReport)>,
    /// What the conversation is about, as far as these lines say. Readers of answered calls alone leave it out.
    pub title: Option<Title>,
}

impl ParsedLines {
    /// Takes a title over, if it is better than the one that is known.
    pub fn note_title(&mut self, title: Option<Title>) {
        if let Some(title) = title
            && self.title.as_ref().is_none_or(|known| title.replaces(known))
        {
            self.title = Some(title);
        }
    }
}

/// What the lines report of their conversation; the latest value counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineFacts {
    /// The conversation the lines name.
    pub session: Option<AgentSessionId>,
    pub cwd: Option<String>,
    pub version: Option<String>,
    pub branch: Option<String>,
    /// Earliest and latest time named; file order is not time order.
    pub first_at: Option<Timestamp>,
    pub last_at: Option<Timestamp>,
}

impl LineFacts {
    pub fn saw(&mut self, at: Timestamp) {
        self.first_at = Some(self.first_at.map_or(at, |first| first.min(at)));
        self.last_at = Some(self.last_at.map_or(at, |last| last.max(at)));
    }

    /// Takes over what `later` knows.
    pub fn merge(&mut self, later: Self) {
        self.session = later.session.or(self.session.take());
        self.cwd = later.cwd.or(self.cwd.take());
        self.version = later.version.or(self.version.take());
        self.branch = later.branch.or(self.branch.take());
        later.first_at.into_iter().chain(later.last_at).for_each(|at| self.saw(at));
    }
}

/// A line that should hold a record and could not be understood. Counted, never fatal.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("not the JSON expected here: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Shape(&'static str),
}
