//! Keys that the inner terminal's line discipline turns into signals, and the output that they cut short.
//!
//! Without codemie the kernel sends such a signal to the whole foreground job: to the program, and to the script or the
//! `make` that started it. On the inner terminal it reaches the program alone, so the rest of the job gets it from us.

use libc::c_int;
use memchr::{memchr2, memmem};
use rustix::termios::{LocalModes, SpecialCodeIndex, Termios};

/// The kernel drops what the program has written, but not what it has already handed to our side of the PTY. That is at
/// most this much: the size of a terminal's read buffer on Linux.
const HANDED_OVER: usize = 4096;

/// How a terminal treats the interrupting keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    interrupt: u8,
    quit: u8,
    /// Takes the meaning from the next key.
    literal: Option<u8>,
    /// They are shown as `^C`.
    echo: bool,
    /// Whatever waits in the terminal's queues is dropped.
    flush: bool,
}

/// The signals that the line discipline sends for typed input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupt {
    /// SIGINT, SIGQUIT.
    int: bool,
    quit: bool,
    /// How the first of the keys is shown.
    pub echo: Option<[u8; 2]>,
    /// The kernel reports it through packet mode.
    pub flush: bool,
}

impl Keys {
    /// `None`: the keys are bytes like any other.
    pub fn of(settings: &Termios) -> Option<Self> {
        let modes = settings.local_modes;
        let code = |index| settings.special_codes[index];
        let quoting = modes.contains(LocalModes::ICANON | LocalModes::IEXTEN);
        modes.contains(LocalModes::ISIG).then(|| Self {
            interrupt: code(SpecialCodeIndex::VINTR),
            quit: code(SpecialCodeIndex::VQUIT),
            literal: Some(code(SpecialCodeIndex::VLNEXT)).filter(|key| quoting && *key != 0),
            echo: modes.contains(LocalModes::ECHO | LocalModes::ECHOCTL),
            flush: !modes.contains(LocalModes::NOFLSH),
        })
    }

    pub fn find(self, typed: &[u8]) -> Option<Interrupt> {
        memchr2(self.interrupt, self.quit, typed)?;
        let mut found = None;
        let mut quoted = false;
        for key in typed.iter().copied() {
            if std::mem::take(&mut quoted) {
                continue;
            }
            quoted = self.literal == Some(key);
            // Zero stands for "no such key".
            let signals = key != 0 && !quoted && (key == self.interrupt || key == self.quit);
            if signals {
                let echo = (self.echo && key.is_ascii_control()).then_some([b'^', key ^ 0x40]);
                let interrupt: &mut Interrupt =
                    found.get_or_insert(Interrupt { echo, flush: self.flush, ..Interrupt::default() });
                interrupt.int |= key == self.interrupt;
                interrupt.quit |= key == self.quit;
            }
        }
        found
    }
}

impl Interrupt {
    pub fn signals(self) -> impl Iterator<Item = c_int> {
        let quit = self.quit.then_some(libc::SIGQUIT);
        self.int.then_some(libc::SIGINT).into_iter().chain(quit)
    }
}

/// Output from before an interrupt that is still to be read. It ends where the key is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    echo: [u8; 2],
    remaining: usize,
}

impl Stale {
    pub fn before(echo: [u8; 2]) -> Self {
        Self { echo, remaining: HANDED_OVER }
    }

    /// How many bytes at the beginning of this output are stale.
    pub fn count(&mut self, output: &[u8]) -> usize {
        if let Some(at) = memmem::find(output, &self.echo) {
            let count = at.min(self.remaining);
            self.remaining = 0;
            return count;
        }
        // The two characters may arrive one by one.
        let begun = output.last() == Some(&self.echo[0]);
        let count = (output.len() - usize::from(begun)).min(self.remaining);
        self.remaining = if begun { 0 } else { self.remaining - count };
        count
    }

    pub fn is_over(self) -> bool {
        self.remaining == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: Keys = Keys { interrupt: 3, quit: 28, literal: Some(22), echo: true, flush: true };

    #[test]
    fn keys_that_are_signals_are_found() {
        let disabled = Keys { interrupt: 0, ..KEYS };
        let silent = Keys { echo: false, ..KEYS };
        let unquoted = Keys { literal: None, ..KEYS };
        let table: [(Keys, &[u8], &[c_int], Option<[u8; 2]>); 11] = [
            (KEYS, b"", &[], None),
            (KEYS, b"abc\r", &[], None),
            (KEYS, b"\x03", &[libc::SIGINT], Some(*b"^C")),
            (KEYS, b"abc\x1cdef", &[libc::SIGQUIT], Some(*b"^\\")),
            (KEYS, b"\x1c\x03", &[libc::SIGINT, libc::SIGQUIT], Some(*b"^\\")),
            (KEYS, b"\x16\x03", &[], None),
            (KEYS, b"\x16\x16\x03", &[libc::SIGINT], Some(*b"^C")),
            (unquoted, b"\x16\x03", &[libc::SIGINT], Some(*b"^C")),
            (disabled, b"\0\x03", &[], None),
            (silent, b"\x03", &[libc::SIGINT], None),
            (Keys { interrupt: b'q', ..KEYS }, b"q", &[libc::SIGINT], None),
        ];
        for (keys, typed, signals, echo) in table {
            let found = keys.find(typed).unwrap_or_default();
            assert_eq!(found.signals().collect::<Vec<_>>(), signals, "{typed:?}");
            assert_eq!(found.echo, echo, "{typed:?}");
        }
    }

    #[test]
    fn output_before_the_shown_key_is_stale() {
        for (reads, kept) in [
            (&["old^Cnew"][..], "^Cnew"),
            (&["old", "older", "^Cnew"], "^Cnew"),
            (&["old^", "Cnew"], "^Cnew"),
            (&["old^C", "new ^C"], "^Cnew ^C"),
            (&["^C"], "^C"),
        ] {
            let mut stale = Stale::before(*b"^C");
            let mut out = String::new();
            for read in reads {
                let count = if stale.is_over() { 0 } else { stale.count(read.as_bytes()) };
                out.push_str(&read[count..]);
            }
            assert_eq!(out, kept, "{reads:?}");
        }
    }

    #[test]
    fn no_more_is_dropped_than_the_kernel_had_handed_over() {
        let mut stale = Stale::before(*b"^C");
        assert_eq!(stale.count(&[b'x'; 3000]), 3000);
        assert_eq!(stale.count(&[b'x'; 3000]), 1096);
        assert!(stale.is_over());
    }
}
