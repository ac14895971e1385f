//! Reads JSON as its bytes come, and keeps none of it.
//!
//! Every value that is no object and no array is reported with its path: `response.usage.input_tokens`,
//! `candidates[].content.parts[].text`. What is kept meanwhile is bounded: the path, and the value that is being read up to
//! [`LONGEST_TEXT`]. So a document of any length is read in the same few kilobytes.
//!
//! It accepts more than the grammar of JSON does: whether a document is valid is its receiver's business.

/// Longer texts are reported without their content. Ids and names of models have a hundred characters at most.
const LONGEST_TEXT: usize = 256;
/// A longer name of a field is none that is looked for.
const LONGEST_NAME: usize = 64;
/// Values nested deeper are passed over: what is looked for stands in the first five levels.
const DEEPEST: usize = 48;

/// A value that is no object and no array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Text(&'a str),
    /// A text that is longer than [`LONGEST_TEXT`] or not UTF-8.
    Opaque,
    /// As it is written.
    Number(&'a str),
    /// `true`, `false` or `null`.
    Word,
}

impl<'a> Value<'a> {
    pub(super) fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number that is not negative, however it is written: `100.0` and `1e2` are 100. Larger ones than any count of tokens
    /// are none.
    pub(super) fn count(self) -> Option<u64> {
        let Self::Number(digits) = self else { return None };
        let number = match digits.parse() {
            Ok(number) => number,
            Err(_) => whole(digits.parse().ok()?)?,
        };
        (number <= MOST).then_some(number)
    }

    /// Where a number should stand: something else than nothing at all.
    pub(super) fn is_something(self) -> bool {
        !matches!(self, Self::Word)
    }

    pub(super) fn number(self) -> Option<f64> {
        match self {
            Self::Number(digits) => digits.parse().ok().filter(|number: &f64| number.is_finite()),
            _ => None,
        }
    }

    /// A text that is not empty.
    pub(super) fn is_written(self) -> bool {
        match self {
            Self::Text(text) => !text.is_empty(),
            Self::Opaque => true,
            Self::Number(_) | Self::Word => false,
        }
    }
}

/// Beyond it a count is no count, and a float is no longer exact.
const MOST: u64 = 1 << 53;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "within bounds"
)]
fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=MOST as f64).contains(&number)).then_some(number as u64)
}

/// Who is told of values.
pub(super) trait Values {
    fn value(&mut self, path: &str, value: Value<'_>);

    /// A document is at its end. Each element of an array that is the whole is a document of its own.
    fn document_ends(&mut self);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before a value; `true`: the array may end instead.
    Value(bool),
    /// Before the name of a field; `true`: the object may end instead.
    Name(bool),
    Colon,
    /// Behind a value inside an array or an object.
    Comma,
    Text {
        is_name: bool,
        escaped: bool,
    },
    /// A number or a word.
    Bare,
    /// Inside of what is nested too deep: how deep, and whether in a text there.
    Deep {
        levels: u64,
        in_text: bool,
        escaped: bool,
    },
    /// Behind a whole document.
    End,
    Broken,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    is_array: bool,
    /// How much of the path is that of the level itself.
    path: usize,
}

#[derive(Debug)]
pub(super) struct Scanner {
    state: State,
    levels: Vec<Level>,
    path: String,
    /// Of the text, number or name that is being read.
    token: Vec<u8>,
    /// More came than is kept.
    cut: bool,
    /// The text has escapes.
    escapes: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        Self {
            state: State::Value(false),
            levels: Vec::new(),
            path: String::new(),
            token: Vec::new(),
            cut: false,
            escapes: false,
        }
    }
}

impl Scanner {
    /// A new document begins, whatever was read before.
    pub(super) fn reset(&mut self) {
        self.state = State::Value(false);
        self.levels.clear();
        self.path.clear();
        self.token.clear();
    }

    pub(super) fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Behind the last bracket of all.
    pub(super) fn is_at_end(&self) -> bool {
        self.state == State::End
    }

    pub(super) fn read(&mut self, mut bytes: &[u8], into: &mut impl Values) {
        while let Some((&byte, rest)) = bytes.split_first() {
            match self.state {
                State::Broken => return,
                State::Text { is_name, escaped: false } => {
                    let length = memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len());
                    let (inside, after) = bytes.split_at(length);
                    self.keep(inside);
                    bytes = after;
                    if let Some((&byte, rest)) = bytes.split_first() {
                        if byte == b'"' {
                            self.text_ends(is_name, into);
                        } else {
                            self.keep(b"\\");
                            self.escapes = true;
                            self.state = State::Text { is_name, escaped: true };
                        }
                        bytes = rest;
                    }
                    continue;
                }
                State::Text { is_name, escaped: true } => {
                    self.keep(&[byte]);
                    self.state = State::Text { is_name, escaped: false };
                }
                State::Deep { levels, in_text, escaped } => self.deep(byte, levels, in_text, escaped, into),
                State::Bare if is_bare(byte) => self.keep(&[byte]),
                State::Bare => {
                    self.bare_ends(into);
                    continue; // the same byte again, behind the value
                }
                _ if byte.is_ascii_whitespace() => {}
                State::Value(may_end) => self.value(byte, may_end, into),
                State::End => self.value(byte, false, into),
                State::Name(may_end) => match byte {
                    b'"' => self.begin(State::Text { is_name: true, escaped: false }),
                    b'}' if may_end => self.close(false, into),
                    _ => self.state = State::Broken,
                },
                State::Colon if byte == b':' => self.state = State::Value(false),
                State::Comma => match (byte, self.levels.last().is_some_and(|level| level.is_array)) {
                    (b',', true) => self.state = State::Value(false),
                    (b',', false) => self.state = State::Name(false),
                    (b']', is_array @ true) | (b'}', is_array @ false) => self.close(is_array, into),
                    _ => self.state = State::Broken,
                },
                State::Colon => self.state = State::Broken,
            }
            bytes = rest;
        }
    }

    fn value(&mut self, byte: u8, may_end: bool, into: &mut impl Values) {
        match byte {
            b'{' | b'[' if self.levels.len() >= DEEPEST => {
                self.state = State::Deep { levels: 1, in_text: false, escaped: false };
            }
            b'{' => {
                self.levels.push(Level { is_array: false, path: self.path.len() });
                self.state = State::Name(true);
            }
            b'[' => {
                self.levels.push(Level { is_array: true, path: self.path.len() });
                // An array that is the whole holds documents.
                if self.levels.len() > 1 {
                    self.path.push_str("[]");
                }
                self.state = State::Value(true);
            }
            b']' if may_end => self.close(true, into),
            b'"' => self.begin(State::Text { is_name: false, escaped: false }),
            _ if is_bare(byte) => {
                self.begin(State::Bare);
                self.keep(&[byte]);
            }
            _ => self.state = State::Broken,
        }
    }

    fn deep(&mut self, byte: u8, levels: u64, in_text: bool, escaped: bool, into: &mut impl Values) {
        let (levels, in_text, escaped) = match byte {
            _ if escaped => (levels, true, false),
            b'\\' if in_text => (levels, true, true),
            b'"' => (levels, !in_text, false),
            b'{' | b'[' if !in_text => (levels.saturating_add(1), false, false),
            b'}' | b']' if !in_text => (levels - 1, false, false),
            _ => (levels, in_text, false),
        };
        self.state = State::Deep { levels, in_text, escaped };
        if levels == 0 {
            self.value_ends(into);
        }
    }

    fn begin(&mut self, state: State) {
        self.token.clear();
        (self.cut, self.escapes, self.state) = (false, false, state);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LONGEST_TEXT.saturating_sub(self.token.len());
        self.cut |= bytes.len() > room;
        self.token.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn text_ends(&mut self, is_name: bool, into: &mut impl Values) {
        let unescaped = self.escapes.then(|| unescape(&self.token)).flatten();
        let text = if self.cut {
            None
        } else if self.escapes {
            unescaped.as_deref()
        } else {
            std::str::from_utf8(&self.token).ok()
        };
        if is_name {
            let path = self.levels.last().map_or(0, |level| level.path);
            self.path.truncate(path);
            if path > 0 {
                self.path.push('.');
            }
            // A name with a separator in it would look like two.
            let plain = text.filter(|name| {
                name.len() <= LONGEST_NAME && !name.contains(['.', '[', ']']) && !name.is_empty()
            });
            self.path.push_str(plain.unwrap_or("?"));
            self.state = State::Colon;
        } else {
            into.value(&self.path, text.map_or(Value::Opaque, Value::Text));
            self.value_ends(into);
        }
    }

    fn bare_ends(&mut self, into: &mut impl Values) {
        let token = std::str::from_utf8(&self.token).unwrap_or_default();
        let is_number = token.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        if is_number && !self.cut {
            into.value(&self.path, Value::Number(token));
        } else if matches!(token, "true" | "false" | "null") {
            into.value(&self.path, Value::Word);
        } else {
            self.state = State::Broken;
            return;
        }
        self.value_ends(into);
    }

    fn close(&mut self, is_array: bool, into: &mut impl Values) {
        let Some(level) = self.levels.pop() else { return };
        self.path.truncate(level.path);
        if self.levels.is_empty() && is_array {
            // Its elements were the documents.
            self.state = State::End;
        } else {
            self.value_ends(into);
        }
    }

    fn value_ends(&mut self, into: &mut impl Values) {
        self.state = if self.levels.is_empty() { State::End } else { State::Comma };
        let is_document = match self.levels.as_slice() {
            [] => true,
            [whole] => whole.is_array,
            _ => false,
        };
        if is_document {
            into.document_ends();
        }
    }
}

fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

fn unescape(token: &[u8]) -> Option<String> {
    let mut quoted = Vec::with_capacity(token.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(token);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).ok()
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
