//! Output of a program that goes on when nobody reads it any more.

use std::io::{self, ErrorKind, Write};

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
