//! Errors in one line, and standard output with errors that name it.

use std::io::{self, Write};

use format::output::Style;
use format::output::wrap::at_home;

/// An error with its causes. Most of our errors name theirs already: each stands there once.
pub fn format_error(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| {
        match (text.is_empty(), text.contains(&cause)) {
            (true, _) => cause,
            (false, true) => text,
            (false, false) => format!("{text}: {cause}"),
        }
    })
}

/// A message as it is printed on standard error: folded if that is a terminal.
pub fn shown(text: &str) -> String {
    let style = Style::of_stderr();
    style.fold(&at_home(text, style))
}

/// Standard output with errors that name it: an error number alone does not say what could not be written.
#[derive(Debug)]
pub struct Output<W>(pub W);

impl<W> Output<W> {
    fn name<T>(outcome: io::Result<T>) -> io::Result<T> {
        outcome.map_err(|error| {
            io::Error::new(error.kind(), format!("standard output could not be written: {error}"))
        })
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match self.0.write(text) {
            // The caller tries again, and needs the kind of the error unchanged.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            outcome => Self::name(outcome),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::name(self.0.flush())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the copy: {0}; make it again")]
    struct Named(#[source] io::Error);

    #[test]
    fn each_cause_stands_there_once() {
        let denied = || io::Error::from_raw_os_error(libc::EACCES);
        let table = [
            (anyhow!("there is no session"), "there is no session"),
            (
                anyhow::Error::from(Named(denied())),
                "the copy: Permission denied (os error 13); make it again",
            ),
            (
                anyhow::Error::from(denied()).context("cannot write /x"),
                "cannot write /x: Permission denied (os error 13)",
            ),
            (
                Err::<(), _>(Named(denied())).context("cannot start").unwrap_err(),
                "cannot start: the copy: Permission denied (os error 13); make it again",
            ),
        ];
        for (error, expected) in table {
            assert_eq!(format_error(&error), expected);
        }
    }

    #[test]
    fn standard_output_is_named_and_a_closed_pipe_stays_one() {
        struct Refusing(i32);
        impl Write for Refusing {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(self.0))
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let full = Output(Refusing(libc::ENOSPC)).write_all(b"x").unwrap_err();
        let expected = "standard output could not be written: No space left on device (os error 28)";
        assert_eq!((full.kind(), full.to_string().as_str()), (io::ErrorKind::StorageFull, expected));
        assert_eq!(
            Output(Refusing(libc::EPIPE)).write_all(b"x").unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
    }
}
