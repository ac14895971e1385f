//! What an answer says, from its plain bytes.
//!
//! Which form it has is seen from its first byte: headers may be missing (Codex accepts events without a Content-Type).

use std::io::{self, Write};

use super::api::{Account, Facts, Form};
use super::json::{Scanner, Value, Values};
use super::sse::{Events, Splitter};
use super::{Api, Metered, Unread};

/// No answer is longer: of four bytes a token, that would be 64 million tokens. Only compressed bytes that are made for it
/// become so many. (Less in tests, which are slow.)
const LONGEST: u64 = if cfg!(test) { 4 << 20 } else { 256 << 20 };

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nothing but white space was read, and so many bytes of a byte order mark.
    Unknown(usize),
    Events,
    Documents,
}

#[derive(Debug)]
pub(super) struct Body {
    kind: Kind,
    events: Splitter,
    reading: Reading,
    /// Bytes so far.
    length: u64,
}

impl Body {
    pub(super) fn new(api: Api) -> Self {
        Self {
            kind: Kind::Unknown(0),
            events: Splitter::default(),
            reading: Reading::new(api, Form::Document),
            length: 0,
        }
    }

    pub(super) fn metered(&self) -> &Metered {
        &self.reading.account.metered
    }

    pub(super) fn has_content(&self) -> bool {
        self.reading.account.has_content
    }

    pub(super) fn give_up(&mut self, why: Unread) {
        self.reading.account.metered.unread.get_or_insert(why);
    }

    fn read(&mut self, mut bytes: &[u8]) {
        while let Kind::Unknown(marks) = self.kind {
            let Some((&byte, rest)) = bytes.split_first() else { return };
            self.kind = match byte {
                _ if BYTE_ORDER_MARK.get(marks) == Some(&byte) => Kind::Unknown(marks + 1),
                _ if byte.is_ascii_whitespace() => Kind::Unknown(BYTE_ORDER_MARK.len()),
                b'{' | b'[' => Kind::Documents,
                _ => {
                    self.reading.form = Form::Event;
                    Kind::Events
                }
            };
            if let Kind::Unknown(_) = self.kind {
                bytes = rest;
            }
        }
        match self.kind {
            Kind::Events => self.events.read(bytes, &mut self.reading),
            Kind::Documents | Kind::Unknown(_) => self.reading.json(bytes),
        }
        self.reading.look_for_content();
    }

    /// No more bytes come.
    pub(super) fn finish(mut self) -> Metered {
        self.reading.finish();
        self.reading.account.metered
    }
}

impl Write for Body {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.length = self.length.saturating_add(bytes.len() as u64);
        if self.length > LONGEST {
            self.give_up(Unread::TooLong);
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.read(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where events and documents become numbers.
#[derive(Debug)]
struct Reading {
    form: Form,
    scanner: Scanner,
    facts: Facts,
    account: Account,
    /// The event's first bytes, [`HEAD`] at most.
    head: Vec<u8>,
    /// The rest of the event is passed over.
    is_passed_over: bool,
    /// The event has ended as a document already.
    applied: bool,
}

/// Enough to know an event's type by.
const HEAD: usize = 64;

/// The data of the last event of Chat Completions.
const DONE: &[u8] = b"[DONE]";

impl Reading {
    fn new(api: Api, form: Form) -> Self {
        Self {
            form,
            scanner: Scanner::default(),
            facts: Facts::default(),
            account: Account::new(api),
            head: Vec::new(),
            is_passed_over: false,
            applied: false,
        }
    }

    fn json(&mut self, bytes: &[u8]) {
        let mut noting = Noting {
            form: self.form,
            facts: &mut self.facts,
            account: &mut self.account,
            applied: &mut self.applied,
        };
        self.scanner.read(bytes, &mut noting);
        if self.form == Form::Document {
            if self.scanner.is_broken() {
                self.account.metered.unread.get_or_insert(Unread::Form);
            } else if self.scanner.is_at_end() {
                self.account.done();
            }
        }
    }

    fn look_for_content(&mut self) {
        self.account.look_for_content(&self.facts, self.form);
    }

    fn finish(&mut self) {
        // An event whose last line end is missing was applied when its document closed.
        if self.form == Form::Event && self.head.starts_with(DONE) {
            self.account.done();
        }
        self.account.apply_cut(&self.facts, self.form);
    }
}

impl Events for Reading {
    /// Most events of a stream are a few more words each. Once the model is known to have written something, nothing in them counts.
    fn data(&mut self, bytes: &[u8]) {
        let room = HEAD.saturating_sub(self.head.len());
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.is_passed_over = self.is_passed_over || self.account.is_further_content(&self.head);
        if !self.is_passed_over {
            self.json(bytes);
        }
    }

    fn event_ends(&mut self) {
        if std::mem::take(&mut self.is_passed_over) {
            // It has no facts.
        } else if self.head.starts_with(DONE) {
            self.account.done();
        } else if !self.applied {
            self.account.apply_cut(&self.facts, self.form);
            // An event without any data is none.
            if !self.head.trim_ascii().is_empty() {
                self.account.metered.unread.get_or_insert(Unread::Form);
            }
        }
        self.facts = Facts::default();
        self.head.clear();
        self.applied = false;
        self.scanner.reset();
    }
}

struct Noting<'a> {
    form: Form,
    facts: &'a mut Facts,
    account: &'a mut Account,
    applied: &'a mut bool,
}

impl Values for Noting<'_> {
    fn value(&mut self, path: &str, value: Value<'_>) {
        self.account.note(self.facts, path, value);
    }

    fn document_ends(&mut self) {
        self.account.apply(std::mem::take(self.facts), self.form);
        *self.applied = true;
    }
}
