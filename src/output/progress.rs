//! A bar on standard error while something takes long, gone when it is done.

use std::cell::Cell;
use std::io::{Write, stderr};
use std::time::{Duration, Instant};

use rustix::termios::{isatty, tcgetwinsize};

use super::human;

/// What is over before is not worth a flicker.
const QUIET: Duration = Duration::from_millis(200);

/// Cells of the bar itself.
const WIDTH: u64 = 30;

/// Bytes done of bytes to do.
#[derive(Debug)]
pub struct Bar {
    what: &'static str,
    since: Instant,
    drawn: Cell<bool>,
}

impl Bar {
    /// `None` where nobody would see it.
    pub fn on_terminal(what: &'static str) -> Option<Self> {
        let wide = tcgetwinsize(stderr()).is_ok_and(|size| u64::from(size.ws_col) > WIDTH + 40);
        let bar = Self { what, since: Instant::now(), drawn: Cell::new(false) };
        (isatty(stderr()) && wide).then_some(bar)
    }

    pub fn draw(&self, done: u64, of: u64) {
        if self.since.elapsed() < QUIET {
            return;
        }
        self.drawn.set(true);
        // The cursor stays at the beginning: whatever is written next overwrites the bar.
        let _ = write!(stderr(), "{}\x1b[K\r", line(self.what, done, of));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if self.drawn.get() {
            let _ = write!(stderr(), "\x1b[K");
        }
    }
}

fn line(what: &str, done: u64, of: u64) -> String {
    let done = done.min(of);
    let filled = (done * WIDTH).checked_div(of).unwrap_or(WIDTH);
    let bar: String = (0..WIDTH).map(|cell| if cell < filled { '#' } else { '-' }).collect();
    format!("{what} [{bar}] {}B of {}B", human::count(done), human::count(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_the_work_is_done() {
        assert_eq!(line("reading", 0, 2_000_000), "reading [------------------------------] 0B of 2.00MB");
        assert_eq!(
            line("reading", 1_000_000, 2_000_000),
            "reading [###############---------------] 1.00MB of 2.00MB"
        );
        assert_eq!(line("x", 9, 3), "x [##############################] 3B of 3B");
        assert_eq!(line("x", 0, 0), "x [##############################] 0B of 0B");
    }
}
