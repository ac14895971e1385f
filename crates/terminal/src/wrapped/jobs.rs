//! Job control: the agent is stopped, or we are, and both come back together.

use libc::c_int;

use super::{IMPATIENT, Wrapped};
use crate::monitor::Continue;
use crate::sys;
use crate::tty::RawGuard;

impl Wrapped {
    /// The agent has stopped: show what it said, give the terminal back, stop as well; and when we are continued,
    /// continue it.
    pub(super) fn suspend(&mut self, signal: c_int) {
        self.flush(Some(IMPATIENT));
        let wanted = std::mem::take(&mut self.stop_wanted);
        let background_stop = matches!(signal, libc::SIGTTIN | libc::SIGTTOU) && !wanted;
        if !(background_stop && self.tty.is_foreground()) {
            self.raw = None;
            stop_as(signal);
        }
        let in_foreground = self.take_terminal();
        // Still in the background and not stopped: our group is orphaned and cannot be. The agent must not stop
        // again and again, so it is left waiting for input that does not come.
        let never_stopped = background_stop && !in_foreground;
        self.monitor.resume(Continue { in_foreground: in_foreground || never_stopped });
        for caught in std::mem::take(&mut self.early) {
            self.on_signal(caught);
        }
    }

    /// Somebody has put us into the background without stopping us.
    pub(super) fn stop_in_background(&mut self) {
        self.raw = None;
        stop_as(libc::SIGTTIN);
        self.continued();
    }

    /// We may have been stopped from outside, without a word to the agent, and have come back to another place.
    pub(super) fn continued(&mut self) {
        if self.tty.is_foreground() && self.raw.as_ref().is_some_and(RawGuard::holds) {
            self.follow_size();
            return;
        }
        self.raw = None;
        let in_foreground = self.take_terminal();
        if self.agent.is_some() {
            self.monitor.resume(Continue { in_foreground });
        }
    }

    /// Raw mode and the present size, if the terminal is ours. The settings found now are the ones to give back.
    pub(super) fn take_terminal(&mut self) -> bool {
        let in_foreground = self.tty.is_foreground();
        if in_foreground && self.raw.is_none() {
            self.raw = self.tty.raw().ok();
        }
        self.follow_size();
        in_foreground
    }
}

/// Stops this process the way the agent was stopped. The gentle stops go to our whole group, because the shell waits
/// for all of it (`sh -c 'codemie claude'`), and are dropped by the kernel if nobody could ever continue us.
fn stop_as(signal: c_int) {
    if signal == libc::SIGSTOP {
        return sys::stop_self();
    }
    let _ = sys::set_default(signal);
    sys::signal_own_group(signal);
    let _ = match signal {
        libc::SIGTSTP | libc::SIGTTIN if sys::was_ignored(signal) => sys::ignore(signal),
        libc::SIGTSTP | libc::SIGTTIN => sys::catch(signal),
        libc::SIGTTOU => sys::ignore(signal),
        _ => Ok(()),
    };
}
