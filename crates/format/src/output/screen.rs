//! What is written to a terminal, checked once more: of escape sequences only codemie's own colours pass.
//!
//! Text from outside goes through [`crate::text`] where it is formatted. [`Screen`] is the second line of defence, for text
//! that was formatted without it.

use std::io;
use std::io::{ErrorKind, Write};

use super::Colour;
use crate::text::clean_lines;

/// A terminal that is written to: of sequences only the colours of [`Colour`] pass.
///
/// Where the end is no terminal, everything passes as it is: scripts read it.
#[derive(Debug)]
pub struct Screen<W> {
    inner: W,
    terminal: bool,
    /// The beginning of a character whose other bytes have not been written yet.
    torn: Vec<u8>,
}

impl<W: Write> Screen<W> {
    pub fn new(inner: W, terminal: bool) -> Self {
        Self { inner, terminal, torn: Vec::new() }
    }

    fn show(&mut self, text: &str) -> io::Result<()> {
        let mut rest = text;
        while let Some(at) = rest.find('\x1b') {
            let (before, sequence) = rest.split_at(at);
            self.inner.write_all(clean_lines(before).as_bytes())?;
            let length = colour_sequence(sequence);
            let shown = if length > 0 { &sequence[..length] } else { " " };
            self.inner.write_all(shown.as_bytes())?;
            rest = &sequence[length.max(1)..];
        }
        self.inner.write_all(clean_lines(rest).as_bytes())
    }
}

/// How long the colour is that a text begins with; 0 for anything else.
fn colour_sequence(text: &str) -> usize {
    Colour::sequences().iter().find(|own| text.starts_with(own.as_str())).map_or(0, String::len)
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.terminal {
            return self.inner.write(bytes);
        }
        let mut all = std::mem::take(&mut self.torn);
        all.extend_from_slice(bytes);
        for chunk in all.utf8_chunks() {
            self.show(chunk.valid())?;
            match chunk.invalid() {
                [] => {}
                // Whatever is broken off at the very end may go on with the next write.
                torn if all.ends_with(torn) && is_torn(torn) => self.torn = torn.to_vec(),
                _ => self.show("\u{fffd}")?,
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Whether further bytes would make a character of it.
fn is_torn(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

// Output of a program that goes on when nobody reads it any more.

/// Output of a server. Its reader may exit (`codemie proxy serve | head -1`) while the server still has clients, so a write to a closed
/// pipe succeeds and its bytes are dropped.
#[derive(Debug)]
pub struct Unread<W>(pub W);

impl<W: Write> Write for Unread<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match self.0.write(text) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(text.len()),
            outcome => outcome,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            outcome => outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(parts: &[&[u8]], terminal: bool) -> Vec<u8> {
        let mut screen = Screen::new(Vec::new(), terminal);
        for part in parts {
            screen.write_all(part).unwrap();
        }
        screen.inner
    }

    #[test]
    fn a_terminal_gets_our_colours_and_nothing_else_that_steers_it() {
        for (text, shown) in [
            ("\x1b[1mNAME\x1b[0m\n", "\x1b[1mNAME\x1b[0m\n"),
            ("\x1b[8mhidden\x1b[2J", " [8mhidden [2J"),
            ("\x1b]0;owned\x07", " ]0;owned "),
            ("a\rb\u{202e}", "a b\u{fffd}"),
            ("\x1b[31", " [31"),
            ("\x1bm", " m"),
        ] {
            assert_eq!(String::from_utf8(written(&[text.as_bytes()], true)).unwrap(), shown);
            assert_eq!(written(&[text.as_bytes()], false), text.as_bytes(), "a script reads it as it is");
            let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            let torn = written(&single, true);
            assert!(!torn.contains(&0x9b) && !torn.contains(&b'\r'), "{torn:?}");
        }
        let letter = "ü".as_bytes();
        assert_eq!(written(&[&letter[..1], &letter[1..]], true), letter);
        assert_eq!(written(&[b"\xff\xfe.", &letter[..1]], true), "\u{fffd}\u{fffd}.".as_bytes());
    }
}

#[cfg(test)]
mod unread_tests {
    use super::*;

    struct Refusing(ErrorKind);

    impl Write for Refusing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
        let mut closed = Unread(Refusing(ErrorKind::BrokenPipe));
        assert!(writeln!(closed, "a line").and_then(|()| closed.flush()).is_ok());
        let mut full = Unread(Refusing(ErrorKind::StorageFull));
        assert!(full.write(b"x").is_err() && full.flush().is_err());
    }
}
