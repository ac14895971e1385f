//! How an agent writes a conversation decides how it is opened and followed.
//!
//! Everybody who follows, scans or shows conversations does so through this. To them a position is opaque: they keep it and
//! hand it back. A further database implements [`Rows`]; a form of another kind is a variant of [`Form`], [`Opened`] and
//! [`FormReader`].

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::document::Document;
use super::line::Lines;
use super::rows::{RowSource, RowStatus, RowTail, Rows};
use super::tail::{Batch, LongLineTurn, Position, Source, Tail};
use os::file::{FileId, open_regular};

/// How a conversation is written.
#[derive(Clone, Copy, Debug, Default)]
pub enum Form {
    /// A file to which lines are appended.
    #[default]
    Lines,
    /// A file that is one JSON document, rewritten whole; its records stand in this field, in a list.
    Document { list: &'static str },
    /// Rows behind a cursor, in a database that holds many conversations.
    Rows(&'static dyn Rows),
}

impl Form {
    /// Opens what `path` names, for reading alone.
    pub fn open(self, path: &Path) -> io::Result<Opened> {
        match self {
            Self::Lines | Self::Document { .. } => open_regular(path).map(Opened::File),
            Self::Rows(rows) => rows.open(path).map(Opened::Rows),
        }
    }

    /// What can be known of a conversation that is no file of its own, without reading it; `None`: it is one, and its
    /// metadata are as good.
    pub fn status(self, path: &Path) -> Option<io::Result<RowStatus>> {
        match self {
            Self::Lines | Self::Document { .. } => None,
            Self::Rows(rows) => Some(rows.open(path).and_then(|rows| rows.status())),
        }
    }

    /// Whether there is something at `path`.
    pub fn exists(self, path: &Path) -> bool {
        match self {
            Self::Lines | Self::Document { .. } => path.exists(),
            Self::Rows(rows) => rows.open(path).is_ok(),
        }
    }
}

/// An opened conversation.
#[derive(Debug)]
pub enum Opened {
    File(File),
    Rows(Box<dyn RowSource>),
}

impl Opened {
    /// By what a conversation is known, whatever path leads to it.
    pub fn id(&self) -> io::Result<FileId> {
        match self {
            Self::File(file) => file.identity().map(|(id, _)| id),
            Self::Rows(rows) => rows.status().map(|status| status.id),
        }
    }
}

/// One followed conversation, of whatever form.
#[derive(Debug)]
pub enum FormReader<L> {
    Lines(Tail<L>),
    Document(Document<L>),
    Rows(RowTail<L>),
}

impl<L: Lines> FormReader<L> {
    /// Goes on at `position`, with `lines` as they were there.
    pub fn new(form: Form, position: Option<Position>, lines: L) -> Self {
        match form {
            Form::Lines => Self::Lines(Tail::new(position, lines)),
            Form::Document { list } => Self::Document(Document::new(list, position, lines, None)),
            Form::Rows(_) => Self::Rows(RowTail::new(position, lines)),
        }
    }

    /// Goes on where a [`Checkpoint`] of the conversation `id` was made; `lines` makes a reader from the state there.
    /// A checkpoint that cannot be read is none.
    pub fn resume(
        form: Form,
        id: FileId,
        checkpoint: Option<(u64, &[u8])>,
        lines: impl FnOnce(Option<&str>) -> L,
    ) -> Self {
        let saved = checkpoint.and_then(|(progress, state)| {
            let saved: Saved = serde_json::from_slice(state).ok()?;
            Some((
                Position::decode(id, [progress, saved.mark, u64::from(saved.inside_long_line)]),
                saved.lines,
            ))
        });
        match saved {
            Some((position, state)) => Self::new(form, Some(position), lines(state.as_deref())),
            None => Self::new(form, None, lines(None)),
        }
    }

    /// Reads only the end of the conversation, and what comes later: about so many bytes of a file of lines, so many rows of a
    /// database. A document is always read whole.
    pub fn near_end(form: Form, content: &Opened, bytes: u64, rows: u64, lines: L) -> io::Result<Self> {
        let position = match (form, content) {
            (Form::Lines, Opened::File(file)) => Position::near_end(file, bytes)?,
            (Form::Rows(_), Opened::Rows(source)) => {
                let status = source.status()?;
                Some(Position { offset: status.end.saturating_sub(rows), ..Position::start_of(status.id) })
            }
            _ => None,
        };
        Ok(Self::new(form, position, lines))
    }

    /// As [`Tail::with_buffer`]; gives the buffer back in [`Self::into_parts`].
    pub fn with_buffer(
        form: Form,
        position: Option<Position>,
        lines: L,
        buffer: &mut Vec<u8>,
        turn: Arc<LongLineTurn>,
    ) -> Self {
        match form {
            Form::Lines => Self::Lines(Tail::with_buffer(position, lines, std::mem::take(buffer), turn)),
            Form::Document { list } => Self::Document(Document::new(list, position, lines, Some(turn))),
            Form::Rows(_) => Self::Rows(RowTail::new(position, lines)),
        }
    }

    /// Reader and buffer, for the next conversation. No buffer: none was taken.
    pub fn into_parts(self) -> (L, Option<Vec<u8>>) {
        match self {
            Self::Lines(tail) => {
                let (lines, buffer) = tail.into_parts();
                (lines, Some(buffer))
            }
            Self::Document(document) => (document.into_lines(), None),
            Self::Rows(rows) => (rows.into_lines(), None),
        }
    }

    /// The next batch; `None` when nothing is new.
    pub fn next(&mut self, content: &Opened) -> io::Result<Option<Batch>> {
        match (self, content) {
            (Self::Lines(tail), Opened::File(file)) => tail.next(file),
            (Self::Document(document), Opened::File(file)) => document.next(file),
            (Self::Rows(rows), Opened::Rows(source)) => rows.next(&**source),
            _ => Err(io::Error::other("opened in another form than it is followed in")),
        }
    }
}

/// Where a batch ends, as the store keeps it: opaque but for its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Grows as reading goes on: two readers of one conversation compare it.
    pub progress: u64,
    pub state: Vec<u8>,
}

/// The state of a checkpoint. Stores of earlier versions hold it.
#[derive(Serialize, Deserialize)]
struct Saved {
    mark: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    inside_long_line: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lines: Option<String>,
}

impl Batch {
    pub fn checkpoint(&self) -> Checkpoint {
        let saved = Saved {
            mark: self.to.mark,
            inside_long_line: self.to.inside_long_line,
            lines: self.state.clone(),
        };
        Checkpoint { progress: self.to.offset, state: serde_json::to_vec(&saved).unwrap_or_default() }
    }

    /// Where it began, as [`Checkpoint::progress`]: zero where reading began at the start.
    pub fn began_at(&self) -> u64 {
        self.from.filter(|_| self.restart.is_none()).map_or(0, |from| from.offset)
    }
}
