//! A bar on standard error while something takes long, gone when it is done.

use std::cell::Cell;
use std::io::{Write, stderr};
use std::time::{Duration, Instant};

use rustix::termios::{isatty, tcgetwinsize};

use format::text::shorten;

/// Work that ends sooner shows no bar.
const QUIET: Duration = Duration::from_millis(200);

/// Cells of the bar itself, at most.
const WIDTH: u64 = 30;
/// On fewer columns there is no room for anything.
const NARROWEST: u64 = 20;

/// How the numbers of a bar are written: [`format::bytes`], [`format::count`].
pub type Number = fn(u64) -> String;

/// Work done of work to do.
#[derive(Debug)]
pub struct Bar {
    what: &'static str,
    since: Instant,
    number: Number,
    drawn: Cell<bool>,
}

impl Bar {
    /// `None` where nobody would see it.
    pub fn on_terminal(what: &'static str, number: Number) -> Option<Self> {
        let bar = Self { what, number, since: Instant::now(), drawn: Cell::new(false) };
        (isatty(stderr()) && columns() >= NARROWEST).then_some(bar)
    }

    pub fn draw(&self, done: u64, of: u64) {
        if self.since.elapsed() < QUIET {
            return;
        }
        if !self.drawn.replace(true) {
            pty::clear_line_on_interrupt();
        }
        // The cursor stays at the beginning: whatever is written next overwrites the bar.
        let _ = write!(stderr(), "{}\x1b[K\r", line(self.what, self.number, done, of, columns()));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.drawn.get() {
            pty::restore_sigint();
            let _ = write!(stderr(), "\x1b[K");
        }
    }
}

/// One line on a terminal, in the place of the one drawn before.
pub fn draw_line(text: &str) {
    let width = usize::try_from(columns()).unwrap_or(usize::MAX).saturating_sub(1);
    let _ = write!(stderr(), "\r{}\x1b[K", shorten(text, width));
}

/// As if it had never been drawn.
pub fn erase_line() {
    let _ = write!(stderr(), "\r\x1b[K");
}

fn columns() -> u64 {
    tcgetwinsize(stderr()).map_or(0, |size| u64::from(size.ws_col))
}

/// One cell less than there are columns, or the terminal would fold it. Where it does not fit, the bar shrinks, then the words
/// are left out.
fn line(what: &str, number: Number, done: u64, of: u64, columns: u64) -> String {
    let done = done.min(of);
    let numbers = format!("{} of {}", number(done), number(of));
    let taken = |words: &str| words.len() as u64 + numbers.len() as u64 + 5;
    let what = if taken(what) + 5 <= columns { format!("{what} ") } else { String::new() };
    let width = columns.saturating_sub(taken(&what)).min(WIDTH);
    let filled = (done * width).checked_div(of).unwrap_or(width);
    let bar: String = (0..width).map(|cell| if cell < filled { '#' } else { '-' }).collect();
    format!("{what}[{bar}] {numbers}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_the_work_is_done() {
        let line = |what, done, of| line(what, format::bytes, done, of, 120);
        assert_eq!(line("reading", 0, 2_000_000), "reading [------------------------------] 0B of 2.00MB");
        assert_eq!(
            line("reading", 1_000_000, 2_000_000),
            "reading [###############---------------] 1.00MB of 2.00MB"
        );
        assert_eq!(line("x", 9, 3), "x [##############################] 3B of 3B");
        assert_eq!(line("x", 0, 0), "x [##############################] 0B of 0B");
    }

    #[test]
    fn a_narrow_terminal_has_a_narrow_bar() {
        for columns in NARROWEST..120 {
            let drawn = line("reading session files", format::bytes, 999_000_000, 1_990_000_000, columns);
            let fits = (drawn.len() as u64) < columns || columns < 25;
            assert!(fits && drawn.contains("999MB of 1.99GB"), "{columns}: {drawn}");
        }
        let drawn = line("reading session files", format::bytes, 1_000_000, 2_000_000, 60);
        assert_eq!(drawn, "reading session files [########---------] 1.00MB of 2.00MB");
    }
}
