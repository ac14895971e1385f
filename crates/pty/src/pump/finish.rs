//! The end of a run: the last output is written, modes are undone, unread input goes back to the shell.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::{IMPATIENT, LAST_BYTES, Pump};
use crate::buffer::Filled;
use crate::front_end::{Foreground, FrontEnd};
use crate::sys::Sender;
use crate::wait::{Watch, wait};
use crate::{ProgramEnd, ProgramExit};

impl<F: FrontEnd> Pump<'_, F> {
    /// Passes everything that the program has written so far to the front end, and waits for that no longer than `limit`
    /// without progress.
    pub(super) fn flush(&mut self, limit: Option<Duration>) {
        let mut deadline = limit.map(|limit| Instant::now() + limit);
        let mut passed = 0;
        while passed < LAST_BYTES {
            while !self.to_front.is_empty() && self.front_open {
                self.read_report();
                let remaining = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                if remaining.is_some_and(|time| time.is_zero()) || self.interrupted() {
                    return;
                }
                let report = self.inner.as_ref().map_or(self.signals.as_fd(), AsFd::as_fd);
                // Without a descriptor to wait on nothing waits to be written.
                let Some(output) = self.front.output() else { return };
                let mut watches = [
                    Watch::new(output, false, true),
                    Watch::new(self.signals.as_fd(), true, false),
                    Watch::new(report, false, false).or_report(self.expects_report()),
                ];
                if wait(&mut watches, remaining).is_err() {
                    return;
                }
                if watches[2].readable {
                    continue;
                }
                let before = self.to_front.pending().len();
                self.write_front();
                if self.to_front.pending().len() < before {
                    // Only a front end that takes nothing at all is not waited for.
                    deadline = limit.map(|limit| Instant::now() + limit);
                }
            }
            match (self.front_open, self.read_program()) {
                (true, Filled::Some) => passed += self.to_front.filled().len(),
                (true, Filled::Control(_)) => {}
                _ => return,
            }
        }
    }

    /// Did somebody ask us to end while we wait for the terminal?
    pub(super) fn interrupted(&mut self) -> bool {
        while let Some(caught) = self.signals.next() {
            match caught.signal {
                libc::SIGTERM | libc::SIGHUP | libc::SIGINT | libc::SIGQUIT
                    if caught.sender != Sender::Ourselves =>
                {
                    self.early.push(caught);
                    return true;
                }
                _ => self.on_signal(caught),
            }
        }
        false
    }

    /// Gives input that the program has not read back to the shell.
    fn return_input(&mut self) {
        let Some(inner) = self.inner.as_ref().filter(|_| self.front.is_held()) else { return };
        self.front.return_input(&inner.take_unread(), self.to_program.pending());
    }

    pub(super) fn finish(mut self) -> ProgramEnd {
        let exit = self.exit.unwrap_or(ProgramExit::Exited(0));
        // The last output of a crash is worth waiting for. Somebody who ended the program on purpose does not wait.
        let on_purpose = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGKILL];
        let hurried = self.asked_to_end || exit.signal().is_some_and(|signal| on_purpose.contains(&signal));
        self.flush(hurried.then_some(IMPATIENT));
        // It died of the key before the kernel could report that it flushed anything.
        if let Some(interrupt) = exit.signal().and_then(|signal| self.died_of_key(signal)) {
            self.share(interrupt);
        }
        let undo = match exit {
            ProgramExit::Killed(_) => self.modes.undo(),
            // A program that ends by itself leaves the terminal as it wants it; but none that failed wants a keyboard that
            // no shell can read.
            ProgramExit::Exited(code) if code != 0 => self.modes.undo_keyboard(),
            _ => Vec::new(),
        };
        if self.front_open && self.in_foreground() && !undo.is_empty() {
            let taken = self.front.write(&undo).unwrap_or(0).min(undo.len());
            if let Some(tap) = &self.tap {
                tap.output(&undo[..taken]);
            }
        }
        if self.typed && self.front_open && self.front.foreground() == Foreground::Ours {
            self.return_input();
        }
        if self.group_signalled {
            // The script that started us may have died of it by now, and the shell behind it may have the terminal: as it is.
            self.front.abandon();
        }
        self.front.release();
        self.monitor.reap();
        ProgramEnd { exit, asked: self.asked_to_end, stopped: self.stopped, pid: self.program }
    }
}
