//! How an agent writes a file decides how it is followed. Everybody who follows files does so through this.

use std::io;
use std::sync::Arc;

use super::document::Document;
use super::line::Lines;
use super::tail::{Batch, LongLines, Position, Source, Tail};

/// How a file is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Lines are appended.
    #[default]
    Lines,
    /// One JSON document, rewritten whole; its records stand in this field, in a list.
    Document { list: &'static str },
}

/// One followed file, of whatever form.
#[derive(Debug)]
pub enum Followed<L> {
    Lines(Tail<L>),
    Document(Document<L>),
}

impl<L: Lines> Followed<L> {
    /// Goes on at `position`, with `lines` as they were there.
    pub fn new(form: Form, position: Option<Position>, lines: L) -> Self {
        match form {
            Form::Lines => Self::Lines(Tail::new(position, lines)),
            Form::Document { list } => Self::Document(Document::new(list, position, lines, None)),
        }
    }

    /// As [`Tail::lent`]; gives the buffer back in [`Self::into_parts`].
    pub fn lent(
        form: Form,
        position: Option<Position>,
        lines: L,
        buffer: &mut Vec<u8>,
        turn: Arc<LongLines>,
    ) -> Self {
        match form {
            Form::Lines => Self::Lines(Tail::lent(position, lines, std::mem::take(buffer), turn)),
            Form::Document { list } => Self::Document(Document::new(list, position, lines, Some(turn))),
        }
    }

    /// Reader and buffer, for the next file. No buffer: none was taken.
    pub fn into_parts(self) -> (L, Option<Vec<u8>>) {
        match self {
            Self::Lines(tail) => {
                let (lines, buffer) = tail.into_parts();
                (lines, Some(buffer))
            }
            Self::Document(document) => (document.into_lines(), None),
        }
    }

    /// What is new; `None` when nothing is.
    pub fn next(&mut self, source: &impl Source) -> io::Result<Option<Batch>> {
        match self {
            Self::Lines(tail) => tail.next(source),
            Self::Document(document) => document.next(source),
        }
    }
}
