//! A fixed buffer between two descriptors: filled only when empty, so that a slow reader holds its writer back.

use std::io;
use std::os::fd::AsFd;

use rustix::io::{Errno, read, write};

/// One direction's bytes in flight. A PTY hands out 4 KiB at a time; sixteen of those keep a flood's system calls few,
/// and two such buffers are all the memory a stalled terminal can cost.
pub const CAPACITY: usize = 64 * 1024;

/// A read shorter than this has emptied the PTY: asking again would only cost a system call.
const FULL_READ: usize = 2048;

/// What came of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    Some,
    Nothing,
    /// The other side is gone: end of file, or EIO, which is how Linux says it for terminals.
    Gone,
}

#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Self { bytes: vec![0; CAPACITY].into_boxed_slice(), start: 0, end: 0 }
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
        &self.bytes[..self.end]
    }

    /// Reads what there is, at most what fits. Only called when the buffer is empty.
    pub fn fill(&mut self, from: impl AsFd) -> io::Result<Filled> {
        debug_assert!(self.is_empty(), "filling a buffer that still holds bytes would reorder them");
        self.start = 0;
        self.end = 0;
        while self.end < self.bytes.len() {
            match read(&from, &mut self.bytes[self.end..]) {
                Ok(0) | Err(Errno::IO) => return Ok(self.filled_or(Filled::Gone)),
                Ok(count) => {
                    self.end += count;
                    if count < FULL_READ {
                        break;
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) if self.is_empty() => return Err(error.into()),
                Err(_) => break, // it will say so again when these bytes are out
            }
        }
        Ok(self.filled_or(Filled::Nothing))
    }

    fn filled_or(&self, otherwise: Filled) -> Filled {
        if self.is_empty() { otherwise } else { Filled::Some }
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
