//! Job control: the program is stopped, or we are, and both come back together.

use libc::c_int;

use super::{IMPATIENT, Pump};
use crate::front_end::FrontEnd;
use crate::monitor::Continue;

impl<F: FrontEnd> Pump<'_, F> {
    /// The program has stopped: show its last output, give the terminal back, stop as well; and when we are
    /// continued, continue it.
    pub(super) fn suspend(&mut self, signal: c_int) {
        self.flush(Some(IMPATIENT));
        let wanted = std::mem::take(&mut self.stop_wanted);
        let background_stop = matches!(signal, libc::SIGTTIN | libc::SIGTTOU) && !wanted;
        if !(background_stop && self.in_foreground()) {
            self.front.suspend(signal);
        }
        let in_foreground = self.take_terminal();
        // Still in the background and not stopped: our group is orphaned and cannot be. The program must not stop
        // again and again, so it is left waiting for input that does not come.
        let never_stopped = background_stop && !in_foreground;
        self.monitor.resume(Continue { in_foreground: in_foreground || never_stopped });
        for caught in std::mem::take(&mut self.early) {
            self.on_signal(caught);
        }
    }

    /// Somebody has put us into the background without stopping us.
    pub(super) fn stop_in_background(&mut self) {
        self.front.suspend(libc::SIGTTIN);
        self.continued();
    }

    /// We may have been stopped from outside, unknown to the program, and may now be in the background or have another size.
    pub(super) fn continued(&mut self) {
        if self.in_foreground() && self.front.is_undisturbed() {
            self.follow_size();
            return;
        }
        self.front.release();
        let in_foreground = self.take_terminal();
        if self.program.is_some() {
            self.monitor.resume(Continue { in_foreground });
        }
    }

    /// Takes the front end, if no other job is in its foreground, and its present size.
    pub(super) fn take_terminal(&mut self) -> bool {
        let in_foreground = self.in_foreground();
        if in_foreground {
            self.front.take();
        }
        self.follow_size();
        in_foreground
    }
}
