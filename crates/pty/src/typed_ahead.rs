//! Input that was typed before the program ran, or that it has not read at its end.
//!
//! A terminal in canonical mode keeps lines, and ^D as the end of one; raw, it keeps bytes. So lines are read as lines before
//! the switch to raw mode, and are put into the other terminal as lines, with an end of file where one was typed. They are not
//! echoed a second time: the terminal they were typed on has done that.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::io::{Errno, ioctl_fionread, read, write};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use super::sys;
use super::wait::{Watch, wait};

/// The input queue of a terminal in canonical mode on Linux, and so the longest line.
const LONGEST: usize = 4096;

/// Unread input of a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypedAhead {
    /// Each as one read gives it to a program. An empty one is an end of file.
    pub lines: Vec<Vec<u8>>,
    /// The beginning of a line, or bytes of a terminal in raw mode.
    pub partial: Vec<u8>,
}

impl TypedAhead {
    /// Takes the lines that wait on a terminal, if it is in canonical mode. Its descriptor must not block.
    pub fn take_lines(tty: BorrowedFd<'_>) -> Self {
        let mut lines = Vec::new();
        let mut line = [0; LONGEST];
        while is_canonical(tty) && lines.len() < LONGEST {
            match read(tty, &mut line[..]) {
                Ok(count) => lines.push(line[..count].to_vec()),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        Self { lines, partial: Vec::new() }
    }

    /// Takes the bytes that wait on a terminal that is not in canonical mode any more.
    pub fn take_bytes(&mut self, tty: BorrowedFd<'_>) {
        let mut bytes = [0; LONGEST];
        while self.partial.len() < LONGEST {
            match read(tty, &mut bytes[..]) {
                Ok(0) => break,
                Ok(count) => self.partial.extend_from_slice(&bytes[..count]),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
    }

    /// Makes lines of the bytes that were typed between the last read of lines and the switch to raw mode. There the kernel
    /// leaves a zero where a line was ended by ^D. Just after the switch keys arrive unprocessed: `end` is ^D, a return a newline.
    pub fn split_lines(&mut self, end: u8) {
        let mut line = Vec::new();
        for key in std::mem::take(&mut self.partial) {
            match key {
                b'\n' | b'\r' => {
                    line.push(b'\n');
                    self.lines.push(std::mem::take(&mut line));
                }
                key if key == 0 || key == end => self.lines.push(std::mem::take(&mut line)),
                key => line.push(key),
            }
        }
        self.partial = line;
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.partial.is_empty()
    }

    /// Puts it into the input of the terminal `far`, through its master. `far` has the settings given, which are in
    /// canonical mode, and nobody reads it yet.
    pub fn put_into(
        &self,
        far: BorrowedFd<'_>,
        master: BorrowedFd<'_>,
        settings: &Termios,
    ) -> io::Result<()> {
        let end = self.unused_byte();
        tcsetattr(far, OptionalActions::Now, &quiet(settings, end))?;
        let put = || -> io::Result<()> {
            if !self.lines.is_empty() {
                write(master, &self.keys(end))?;
                self.wait_for_lines(far)?;
            }
            if !self.partial.is_empty() {
                write(master, &self.partial)?;
                if self.lines.is_empty() {
                    // Looking for input makes the kernel process the bytes written before.
                    wait(&mut [Watch::new(far, true, false)], Some(Duration::ZERO))?;
                } else {
                    // It does not, where there is some already. The price of being too early is a second echo.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Ok(())
        };
        let put = put();
        tcsetattr(far, OptionalActions::Now, settings)?;
        put
    }

    /// Gives it back to the user's terminal, where the kernel allows that. `settings` are those it is about to get.
    pub fn type_into(&self, tty: BorrowedFd<'_>, settings: &Termios) -> io::Result<()> {
        if self.is_empty() || !settings.local_modes.contains(LocalModes::ICANON) {
            return Ok(());
        }
        let end = self.unused_byte();
        tcsetattr(tty, OptionalActions::Drain, &quiet(settings, end))?;
        self.keys(end).iter().chain(&self.partial).try_for_each(|key| sys::type_into(tty, *key))
    }

    /// The lines as keys, where `end` ends one that has no newline.
    fn keys(&self, end: u8) -> Vec<u8> {
        let mut keys = Vec::new();
        for line in &self.lines {
            keys.extend_from_slice(line);
            if line.last() != Some(&b'\n') {
                keys.push(end);
            }
        }
        keys
    }

    /// A byte to end lines with that does not occur in the input.
    fn unused_byte(&self) -> u8 {
        let used = |byte: &u8| self.lines.iter().chain([&self.partial]).any(|line| line.contains(byte));
        (1..=u8::MAX).find(|byte| *byte != b'\n' && !used(byte)).unwrap_or(4)
    }

    fn wait_for_lines(&self, far: BorrowedFd<'_>) -> io::Result<()> {
        let expected: usize = self.lines.iter().map(Vec::len).sum();
        for _ in 0..100 {
            let mut watch = [Watch::new(far, true, false)];
            wait(&mut watch, Some(Duration::from_millis(1)))?;
            if watch[0].readable && ioctl_fionread(far)? >= expected as u64 {
                break;
            }
        }
        Ok(())
    }
}

fn is_canonical(tty: BorrowedFd<'_>) -> bool {
    tcgetattr(tty).is_ok_and(|settings| settings.local_modes.contains(LocalModes::ICANON))
}

/// The settings, but that nothing is shown and no key means anything but the newline and `end`.
fn quiet(settings: &Termios, end: u8) -> Termios {
    let mut quiet = settings.clone();
    quiet.input_modes = InputModes::empty();
    quiet.local_modes = LocalModes::ICANON;
    for key in [SpecialCodeIndex::VERASE, SpecialCodeIndex::VKILL, SpecialCodeIndex::VEOL] {
        quiet.special_codes[key] = 0;
    }
    quiet.special_codes[SpecialCodeIndex::VEOF] = end;
    quiet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_typed_around_the_switch_to_raw_mode_become_lines() {
        let table: [(&[u8], &[&[u8]], &[u8]); 5] = [
            (b"", &[], b""),
            (b"begun", &[], b"begun"),
            (b"a line\n\0", &[b"a line\n", b""], b""),
            (b"a line\r\x04", &[b"a line\n", b""], b""),
            (b"no newline\0begun", &[b"no newline"], b"begun"),
        ];
        for (typed, lines, partial) in table {
            let mut ahead = TypedAhead { lines: Vec::new(), partial: typed.to_vec() };
            ahead.split_lines(4);
            assert_eq!(
                (&ahead.lines[..], &ahead.partial[..]),
                (&lines.iter().map(|l| l.to_vec()).collect::<Vec<_>>()[..], partial)
            );
        }
    }

    #[test]
    fn lines_become_keys_and_an_empty_line_an_end_of_file() {
        let ahead = |lines: &[&str]| TypedAhead {
            lines: lines.iter().map(|line| line.as_bytes().to_vec()).collect(),
            partial: Vec::new(),
        };
        for (lines, keys) in [
            (&["a\n"][..], &b"a\n"[..]),
            (&["a\n", "", "b\n"], b"a\n\x01b\n"),
            (&["no newline"], b"no newline\x01"),
            (&["\x01\n", ""], b"\x01\n\x02"),
        ] {
            let ahead = ahead(lines);
            assert_eq!(ahead.keys(ahead.unused_byte()), keys, "{lines:?}");
        }
    }
}
