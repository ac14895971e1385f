//! Keys that become signals on the inner terminal: our own process group gets the signal, too, and pending output is dropped.

use std::time::{Duration, Instant};

use libc::c_int;

use super::Pump;
use crate::front_end::{Foreground, FrontEnd};
use crate::interrupt::{Interrupt, Keys, Stale};
use crate::sys;

/// The kernel reports a key that became a signal within microseconds. A report later than this is of something else.
const REPORTED_WITHIN: Duration = Duration::from_secs(1);

/// What a master in packet mode reports about the inner terminal's queues.
const INPUT_FLUSHED: u8 = 1;
const OUTPUT_FLUSHED: u8 = 2;

impl<F: FrontEnd> Pump<'_, F> {
    /// Does the input just read hold a key that the inner terminal turns into a signal for the program's group?
    pub(super) fn interrupt_typed(&self) -> Option<Interrupt> {
        let inner = self.inner.as_ref()?;
        let found = Keys::of(&inner.settings().ok()?)?.find(self.to_program.filled())?;
        self.program.is_some_and(|program| inner.is_foreground(program)).then_some(found)
    }

    pub(super) fn on_interrupt(&mut self, interrupt: Interrupt) {
        if interrupt.flush && self.inner.as_ref().is_some_and(|inner| inner.packets) {
            self.interrupt = Some((interrupt, Instant::now()));
        } else {
            self.share(interrupt);
        }
    }

    /// Sends the signal to our own process group, as the kernel would have. We ourselves wait for the program's reaction.
    pub(super) fn share(&mut self, interrupt: Interrupt) {
        if self.front.foreground() != Foreground::Ours {
            return;
        }
        // The script that started us may die of it, now or later, and then the shell behind it takes the terminal as it is.
        self.leader = self.leader.take().or_else(sys::watch_group_leader);
        self.group_signalled = true;
        interrupt.signals().for_each(sys::signal_own_group);
    }

    /// Is a report about the queues to be waited for by itself? It would wait behind output that the front end does not take.
    pub(super) fn expects_report(&self) -> bool {
        !self.to_front.is_empty() && self.inner.as_ref().is_some_and(|inner| inner.packets)
    }

    /// The process that the shell waits for has ended, and we have not. The shell must not find the terminal raw.
    pub(super) fn on_leader_gone(&mut self) {
        self.leader = None;
        self.front.abandon();
    }

    /// The program has died of a key whose report never came.
    pub(super) fn died_of_key(&self, signal: c_int) -> Option<Interrupt> {
        let (interrupt, at) = self.interrupt.as_ref()?;
        let recent = at.elapsed() < REPORTED_WITHIN;
        (recent && interrupt.signals().any(|sent| sent == signal)).then_some(*interrupt)
    }

    /// Reads a report about the inner terminal's queues, and no output.
    pub(super) fn read_report(&mut self) {
        let Some(inner) = self.inner.as_ref().filter(|inner| inner.packets) else { return };
        if !inner.has_report() {
            return;
        }
        let mut flags = [0];
        if rustix::io::read(inner, &mut flags) == Ok(1) && flags != [0] {
            self.on_flushed(flags[0]);
        }
    }

    /// The inner terminal has dropped its queues. Output from them that has come further is dropped, too.
    pub(super) fn on_flushed(&mut self, flags: u8) {
        if flags & OUTPUT_FLUSHED == 0 {
            return;
        }
        self.to_front.clear();
        if self.front_open && self.front.is_held() {
            self.front.drop_output();
        }
        let interrupt = self.interrupt.take_if(|_| flags & INPUT_FLUSHED != 0);
        if let Some((interrupt, at)) = interrupt
            && at.elapsed() < REPORTED_WITHIN
        {
            self.stale = interrupt.echo.map(Stale::before);
            self.share(interrupt);
        }
    }
}
