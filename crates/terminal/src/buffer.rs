//! A fixed buffer between two descriptors: filled only when empty, so that a slow reader holds its writer back.

use std::io;
use std::os::fd::AsFd;

use rustix::io::{Errno, read, write};

/// One direction's bytes in flight, and all the memory a stalled terminal can cost. A PTY hands out 4 KiB at a time on
/// Linux, more elsewhere.
const CAPACITY: usize = 64 * 1024;

/// A read this long has left something behind, most likely: worth asking again before waiting.
pub const LONG_READ: usize = 2048;

/// What came of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    Some,
    Nothing,
    /// No bytes: the kernel tells of the PTY's queues, in the flags of `TIOCPKT`.
    Control(u8),
    /// The other side is gone: end of file, or EIO, which is how Linux says it for terminals.
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

    /// What waits to be written.
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// All that the last `fill` brought, written or not.
    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.first..self.end]
    }

    /// Reads once. Only called when the buffer is empty: collecting more before writing would leave the far side idle.
    pub fn fill(&mut self, from: impl AsFd) -> io::Result<Filled> {
        debug_assert!(self.is_empty(), "filling a buffer that still holds bytes would reorder them");
        self.first = 0;
        self.start = 0;
        self.end = 0;
        loop {
            match read(&from, &mut *self.bytes) {
                Ok(0) | Err(Errno::IO) => return Ok(Filled::Gone),
                Ok(count) => {
                    self.end = count;
                    return Ok(Filled::Some);
                }
                Err(Errno::AGAIN) => return Ok(Filled::Nothing),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
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
            match write(&to, self.pending()) {
                Ok(count) => self.start += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub fn clear(&mut self) {
        self.start = self.end;
    }
}
