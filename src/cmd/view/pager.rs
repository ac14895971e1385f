//! A long text on a terminal: through the user's pager.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use format::output::Style;
use format::output::screen::Screen;

/// When a text goes through the pager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cmd) enum Paging {
    Never,
    /// Where it is longer than the terminal.
    IfLong,
    Always,
}

/// Shows a text in `$PAGER`, or less; with `at_end`, its end first. False: print it.
pub(super) fn page(text: &str, paging: Paging, at_end: bool) -> io::Result<bool> {
    let rows = Style::rows_of_stdout().filter(|rows| match paging {
        Paging::Never => false,
        Paging::IfLong => text.lines().count() >= *rows,
        Paging::Always => true,
    });
    let Some(mut command) = rows.and_then(|_| pager(std::env::var_os("PAGER"), at_end)) else {
        return Ok(false);
    };
    let mut child = match command.stdin(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    // ^C is for the pager.
    pty::ignore_interrupt();
    if let Some(stdin) = child.stdin.take() {
        // Who leaves it early has seen enough.
        let _ = Screen::new(stdin, true).write_all(text.as_bytes());
    }
    let ended = child.wait();
    pty::restore_sigint();
    // A shell that cannot find it.
    ended.map(|status| status.code() != Some(127))
}

/// The user's own pager by the shell, which splits its arguments; `None` where it is none.
fn pager(wanted: Option<OsString>, at_end: bool) -> Option<Command> {
    match wanted.filter(|pager| !pager.is_empty()) {
        Some(pager) if pager == "cat" => None,
        Some(pager) => {
            let mut command = Command::new("sh");
            command.arg("-c").arg(pager);
            Some(command)
        }
        None => {
            let mut command = Command::new("less");
            command.arg("-R").args(at_end.then_some("+G"));
            Some(command)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_pager_or_less() {
        let line = |wanted: Option<&str>, at_end| {
            let command = pager(wanted.map(OsString::from), at_end)?;
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            Some(words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(line(None, true).as_deref(), Some("less -R +G"));
        assert_eq!(line(Some(""), false).as_deref(), Some("less -R"));
        assert_eq!(line(Some("most -s"), true).as_deref(), Some("sh -c most -s"));
        assert_eq!(line(Some("cat"), true), None);
    }
}
