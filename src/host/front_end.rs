//! The host's side of the pump: where viewers' keys come from and where the program's output goes.
//!
//! The pump has the main thread and the server one of its own; a socket pair between them carries the output, and wakes the pump
//! when a key, or another size, waits in the queue. The server reads as fast as its screen model takes bytes (some 50 MiB/s, as
//! much as a PTY delivers), and no viewer can hold it back, so neither can one hold the program back.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use terminal::PtySize;
use terminal::front_end::{FrontEnd, Input, JobControl};

use crate::remote::protocol::Size;

/// Input that waits for a program that reads nothing. A key more is dropped, as a kernel drops it.
const MAX_QUEUED: usize = 8 << 20;

/// Something for the program, in order.
#[derive(Debug)]
enum Entry {
    Keys(Vec<u8>),
    Resize(Size),
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
}

/// The server's end.
#[derive(Debug)]
pub(super) struct PumpLink {
    stream: UnixStream,
    queue: Arc<Mutex<Queue>>,
}

impl PumpLink {
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Types something. False: there is no room, and nothing of it was taken.
    pub(super) fn type_keys(&self, keys: &[u8]) -> bool {
        let mut queue = lock(&self.queue);
        if queue.bytes + keys.len() > MAX_QUEUED {
            return false;
        }
        queue.bytes += keys.len();
        queue.entries.push_back(Entry::Keys(keys.to_vec()));
        drop(queue);
        self.wake();
        true
    }

    /// Bytes that were typed and that the pump has not taken yet.
    pub(super) fn unwritten(&self) -> usize {
        lock(&self.queue).bytes
    }

    pub(super) fn resize(&self, size: Size) {
        lock(&self.queue).entries.push_back(Entry::Resize(size));
        self.wake();
    }

    fn wake(&self) {
        // A full socket holds a wake-up already.
        let _ = (&self.stream).write(&[1]);
    }
}

/// The pump's end.
#[derive(Debug)]
pub(super) struct HostFrontEnd {
    stream: UnixStream,
    queue: Arc<Mutex<Queue>>,
    size: Size,
    /// The server is gone.
    closed: bool,
}

/// Both ends, and the size that the program's terminal begins with.
pub(super) fn front_end(size: Size) -> io::Result<(HostFrontEnd, PumpLink)> {
    let (near, far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let queue = Arc::<Mutex<Queue>>::default();
    Ok((
        HostFrontEnd { stream: near, queue: Arc::clone(&queue), size, closed: false },
        PumpLink { stream: far, queue },
    ))
}

impl Queue {
    fn next(&mut self, buffer: &mut [u8], size: &mut Size) -> Option<Input> {
        match self.entries.pop_front()? {
            Entry::Resize(new) => {
                *size = new;
                Some(Input::Resized)
            }
            Entry::Keys(mut keys) => {
                let count = keys.len().min(buffer.len());
                buffer[..count].copy_from_slice(&keys[..count]);
                self.bytes -= count;
                if count < keys.len() {
                    keys.drain(..count);
                    self.entries.push_front(Entry::Keys(keys));
                }
                Some(Input::Bytes(count))
            }
        }
    }
}

impl FrontEnd for HostFrontEnd {
    fn input(&self) -> Option<BorrowedFd<'_>> {
        (!self.closed).then(|| self.stream.as_fd())
    }

    fn output(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }

    fn size(&self) -> io::Result<PtySize> {
        Ok(PtySize { rows: self.size.rows, cols: self.size.cols, pixel_width: 0, pixel_height: 0 })
    }

    fn read(&mut self, buffer: &mut [u8]) -> Input {
        // Under the lock nobody can add an entry between the look and the wake-ups: none is left without one.
        let mut queue = lock(&self.queue);
        if let Some(input) = queue.next(buffer, &mut self.size) {
            return input;
        }
        loop {
            match self.stream.read(&mut [0; 64]) {
                // The server is gone. Nobody types any more, and the program runs on.
                Ok(0) => {
                    self.closed = true;
                    return Input::Nothing;
                }
                Ok(_) => {}
                Err(_) => return Input::Nothing,
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.stream.write(bytes) {
            Ok(count) => Ok(count),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(0)
            }
            // Without its server the program still runs to its end.
            Err(_) => Ok(bytes.len()),
        }
    }
}

impl JobControl for HostFrontEnd {}

fn lock(queue: &Mutex<Queue>) -> std::sync::MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_sizes_arrive_in_order_and_long_keys_in_pieces() {
        let (mut front, link) = front_end(Size { rows: 40, cols: 120 }).unwrap();
        assert_eq!(front.read(&mut [0; 4]), Input::Nothing);
        assert!(link.type_keys(b"abcdef"));
        link.resize(Size { rows: 24, cols: 80 });
        assert!(link.type_keys(b"g"));
        let mut buffer = [0; 4];
        assert_eq!(front.read(&mut buffer), Input::Bytes(4));
        assert_eq!(&buffer, b"abcd");
        assert_eq!(front.read(&mut buffer), Input::Bytes(2));
        assert_eq!(front.size().unwrap().rows, 40);
        assert_eq!(front.read(&mut buffer), Input::Resized);
        assert_eq!(front.size().unwrap().rows, 24);
        assert_eq!(front.read(&mut buffer), Input::Bytes(1));
        assert_eq!(front.read(&mut buffer), Input::Nothing);
    }

    #[test]
    fn what_has_no_room_is_refused_whole() {
        let (mut front, link) = front_end(Size { rows: 1, cols: 1 }).unwrap();
        assert!(link.type_keys(&vec![b'x'; MAX_QUEUED]));
        assert!(!link.type_keys(b"y"));
        let mut buffer = vec![0; MAX_QUEUED];
        assert_eq!(front.read(&mut buffer), Input::Bytes(MAX_QUEUED));
        assert!(link.type_keys(b"y"));
    }

    #[test]
    fn output_waits_for_the_server_and_is_dropped_without_one() {
        let (mut front, link) = front_end(Size { rows: 1, cols: 1 }).unwrap();
        let chunk = [b'x'; 4096];
        let mut sent = 0;
        while let Ok(count) = front.write(&chunk)
            && count > 0
        {
            sent += count;
        }
        assert!(sent > 0, "something fits");
        drop(link);
        assert_eq!(front.write(&chunk).unwrap(), chunk.len());
    }
}
