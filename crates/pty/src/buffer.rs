//! A fixed buffer between two descriptors: filled only when empty, so that a slow reader holds its writer back.

use std::io;
use std::os::fd::AsFd;

use rustix::io::{Errno, read, write};

use super::front_end::{FrontEnd, Input};

/// One direction's bytes in flight, and all the memory a stalled terminal can cost. A PTY hands out 4 KiB at a time on
/// Linux, more elsewhere.
const CAPACITY: usize = 64 * 1024;

/// After a read this long there is most likely more: worth another read before waiting.
pub const LONG_READ: usize = 2048;

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    Some,
    Nothing,
    /// No bytes: the kernel reports about the PTY's queues, in the flags of `TIOCPKT`.
    Control(u8),
    /// The other side is gone.
    Gone,
}

#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    /// Where the last `fill` begins.
    first: usize,
    start: usize,
    end: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Self { bytes: vec![0; CAPACITY].into_boxed_slice(), first: 0, start: 0, end: 0 }
    }
}

impl Buffer {
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The bytes that are not written yet.
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// All bytes of the last `fill`, written or not.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.first..self.end]
    }

    /// Reads once. Only called when the buffer is empty: collecting more before writing would leave the far side idle.
    pub fn fill(&mut self, from: impl AsFd) -> io::Result<Filled> {
        self.reset();
        Ok(match read_some(from, &mut self.bytes)? {
            Input::Bytes(count) => {
                self.end = count;
                Filled::Some
            }
            Input::Gone => Filled::Gone,
            Input::Nothing | Input::Resized => Filled::Nothing,
        })
    }

    /// The same from the front end.
    pub fn fill_from(&mut self, front: &mut impl FrontEnd) -> Input {
        self.reset();
        let input = front.read(&mut self.bytes);
        if let Input::Bytes(count) = input {
            self.end = count.min(self.bytes.len());
        }
        input
    }

    fn reset(&mut self) {
        debug_assert!(self.is_empty(), "filling a buffer that still holds bytes would reorder them");
        self.first = 0;
        self.start = 0;
        self.end = 0;
    }

    /// The same from a master in packet mode.
    pub fn fill_packet(&mut self, from: impl AsFd) -> io::Result<Filled> {
        Ok(match (self.fill(from)?, self.filled()) {
            (Filled::Some, [0]) => {
                self.clear();
                Filled::Nothing
            }
            (Filled::Some, [0, ..]) => {
                self.first = 1;
                self.start = 1;
                Filled::Some
            }
            (Filled::Some, [flags, ..]) => {
                let flags = *flags;
                self.clear();
                Filled::Control(flags)
            }
            (other, _) => other,
        })
    }

    /// Leaves out the next bytes.
    pub fn skip(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// Writes what the descriptor takes now.
    pub fn drain(&mut self, to: impl AsFd) -> io::Result<()> {
        while !self.is_empty() {
            match write_some(&to, self.pending())? {
                0 => break,
                count => self.start += count,
            }
        }
        Ok(())
    }

    /// Writes what the front end takes now, and returns that.
    pub fn drain_into(&mut self, front: &mut impl FrontEnd) -> io::Result<&[u8]> {
        let from = self.start;
        while !self.is_empty() {
            match front.write(self.pending())? {
                0 => break,
                count => self.start = (self.start + count).min(self.end),
            }
        }
        Ok(&self.bytes[from..self.start])
    }

    pub fn clear(&mut self) {
        self.start = self.end;
    }
}

/// Reads once from a descriptor that does not block.
pub fn read_some(from: impl AsFd, buffer: &mut [u8]) -> io::Result<Input> {
    loop {
        match read(&from, &mut *buffer) {
            // Linux reports the end of a terminal as EIO.
            Ok(0) | Err(Errno::IO) => return Ok(Input::Gone),
            Ok(count) => return Ok(Input::Bytes(count)),
            Err(Errno::AGAIN) => return Ok(Input::Nothing),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes once to a descriptor that does not block; 0 when it takes nothing now.
pub fn write_some(to: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match write(&to, bytes) {
            Ok(count) => return Ok(count),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
