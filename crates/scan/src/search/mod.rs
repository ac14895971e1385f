//! Words in the conversations of all agents on this machine, wrapped or not. There is no index: what is on the disk is read.
//!
//! Promises:
//! - A message that contains all of the words is found, as the agent's own reader of conversations gives it
//!   ([`transcript::Reader`]), in whatever form its file is written.
//! - Only lines that may contain the words are parsed ([`sieve`]); everything else costs one search over its bytes.
//! - Memory is bounded by the messages that are asked for and by the longest line.
//!
//! The files are those that a scan reads, and the threads share them as there.

mod lines;
mod read;
mod sieve;
mod word;

#[cfg(test)]
mod tests;

use crate::Progress;
use agents::transcript::{Cursor, ItemKind};
use agents::{Agent, SessionFile, Var};
use types::Timestamp;
pub use word::{Word, are_in, places};

/// Who said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
    Tool,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// What to look for.
#[derive(Clone, Debug)]
pub struct Query {
    /// All of them in one message; none finds nothing.
    pub words: Vec<Word>,
    pub role: Option<Role>,
    pub since: Option<Timestamp>,
    /// How many of the newest messages are given.
    pub most: usize,
}

impl Query {
    /// The text of an item if it is asked for and contains the words.
    fn matches(&self, at: Option<Timestamp>, kind: ItemKind) -> Option<(Role, String)> {
        let (role, text) = said(kind)?;
        let wanted = self.role.is_none_or(|wanted| wanted == role)
            && self.since.is_none_or(|since| at.is_some_and(|at| at >= since));
        (wanted && are_in(&self.words, &text)).then_some((role, text))
    }
}

/// What an item says, and who; `None` for what nobody said.
fn said(kind: ItemKind) -> Option<(Role, String)> {
    match kind {
        ItemKind::User(text) => Some((Role::User, text)),
        ItemKind::Assistant(text) => Some((Role::Assistant, text)),
        ItemKind::Tool { name, about } if about.is_empty() => Some((Role::Tool, name)),
        ItemKind::Tool { name, about } => Some((Role::Tool, format!("{name} {about}"))),
        ItemKind::ToolFailed(text) => Some((Role::Tool, text)),
        ItemKind::Filler(_) | ItemKind::Note(_) => None,
    }
}

/// A message that contains the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The agent's place in the list of agents.
    pub agent: usize,
    pub file: SessionFile,
    /// A page from here on begins with it.
    pub cursor: Cursor,
    pub role: Role,
    pub at: Option<Timestamp>,
    pub text: String,
}

/// What a search found.
#[derive(Debug, Default)]
pub struct Hits {
    /// Newest first.
    pub hits: Vec<Hit>,
    /// Further messages, older than all of these.
    pub more: usize,
    /// There were so many that older files were not read any more.
    pub more_unread: bool,
    /// Files and folders that could not be read, and why.
    pub refused: Vec<String>,
}

impl Hits {
    /// Keeps the newest.
    fn keep(&mut self, most: usize) {
        self.hits.sort_by(|a, b| (b.at, &b.file, place(b)).cmp(&(a.at, &a.file, place(a))));
        self.more += self.hits.len().saturating_sub(most);
        self.hits.truncate(most);
    }

    fn add(&mut self, others: Self) {
        self.hits.extend(others.hits);
        self.more += others.more;
        self.refused.extend(others.refused);
    }
}

fn place(hit: &Hit) -> (u64, usize) {
    hit.cursor.position()
}

/// Whether a file's conversation is asked for; only files with a hit are looked at.
pub type Accept<'a> = &'a (dyn Fn(usize, &SessionFile) -> bool + Sync);

/// Searches the conversations of these agents.
pub fn search(
    query: &Query,
    agents: &[&'static dyn Agent],
    var: Var<'_>,
    accept: Accept<'_>,
    watch: Option<&dyn Progress>,
) -> Hits {
    let listed = crate::session_files(agents, var);
    let mut found = read::search(query, agents, &listed.files, accept, watch);
    found.refused.extend(listed.refused);
    found.keep(query.most);
    found
}
