//! The host's side of the pump: where viewers' keys come from and where the program's output goes.
//!
//! The pump has the main thread and the server one of its own; a socket pair between them carries the output, and wakes the pump
//! when a key, or another size, waits in the queue. The server reads as fast as its screen model takes bytes (some 50 MiB/s, as
//! much as a PTY delivers), and no viewer can hold it back, so neither can one hold the program back.
//!
//! Terminals that viewers have handed over ([`super::handoff`]) are read and written by the pump itself: a key and its echo pass no
//! other thread.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pty::PtySize;
use pty::front_end::{FrontEnd, Input, JobControl};
use pty::handoff::HandedTerminal;

use super::handoff::{HandedTerminals, Sources};
use super::notes::Reporter;
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

/// What both threads use. Nobody keeps it for longer than a few system calls that do not wait.
#[derive(Debug)]
struct Shared {
    queue: Queue,
    handed: HandedTerminals,
    /// Output that handed-over terminals have and the socket had no room for. The server takes it behind what is in the socket.
    overflow: Vec<u8>,
}

/// The server's end.
#[derive(Debug)]
pub(super) struct PumpLink {
    stream: UnixStream,
    shared: Arc<Mutex<Shared>>,
}

impl PumpLink {
    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Types something. False: there is no room, and nothing of it was taken.
    pub(super) fn type_keys(&self, keys: &[u8]) -> bool {
        let mut shared = lock(&self.shared);
        if shared.queue.bytes + keys.len() > MAX_QUEUED {
            return false;
        }
        shared.queue.bytes += keys.len();
        shared.queue.entries.push_back(Entry::Keys(keys.to_vec()));
        drop(shared);
        self.wake();
        true
    }

    /// Bytes that were typed and that the pump has not taken yet.
    pub(super) fn unwritten(&self) -> usize {
        lock(&self.shared).queue.bytes
    }

    pub(super) fn resize(&self, size: Size) {
        lock(&self.shared).queue.entries.push_back(Entry::Resize(size));
        self.wake();
    }

    fn wake(&self) {
        // A full socket holds a wake-up already.
        let _ = (&self.stream).write(&[1]);
    }

    /// The next output, at most a buffer full. `None`: there is none now.
    pub(super) fn take_output(&self, buffer: &mut [u8]) -> Option<usize> {
        let count = (&self.stream).read(buffer).unwrap_or(0);
        if count > 0 {
            return Some(count);
        }
        // Under the lock nothing gets into the socket any more: what is behind it is next.
        let mut shared = lock(&self.shared);
        let count = (&self.stream).read(buffer).unwrap_or(0);
        if count > 0 {
            return Some(count);
        }
        let count = shared.overflow.len().min(buffer.len());
        buffer[..count].copy_from_slice(&shared.overflow[..count]);
        shared.overflow.drain(..count);
        (count > 0).then_some(count)
    }

    /// Whether terminals can be handed over to this host.
    pub(super) fn takes_terminals(&self) -> bool {
        lock(&self.shared).handed.is_possible()
    }

    /// Takes a terminal. `make` gets the output that the server has not taken yet, which is handed to the server at once; the
    /// terminal gets what comes after it, once [`begin`](Self::begin) is called.
    pub(super) fn take_terminal(
        &self,
        client: u64,
        read_only: bool,
        make: impl FnOnce(&[u8]) -> io::Result<HandedTerminal>,
    ) -> (Vec<u8>, io::Result<()>) {
        let mut shared = lock(&self.shared);
        let mut pending = Vec::new();
        let _ = (&self.stream).read_to_end(&mut pending); // up to "would block"
        pending.append(&mut shared.overflow);
        let taken = make(&pending).map(|terminal| shared.handed.add(client, read_only, terminal));
        (pending, taken)
    }

    /// Lets the pump read and write the terminal from now on.
    pub(super) fn begin(&self, client: u64) {
        lock(&self.shared).handed.begin(client);
    }

    pub(super) fn give_back(&self, client: u64) -> Option<HandedTerminal> {
        lock(&self.shared).handed.give_back(client)
    }

    /// Whose keys pass without the server, and whether any do: none do while a text is on its way.
    pub(super) fn set_direct(&self, owner: Option<u64>, held: bool) {
        lock(&self.shared).handed.set_direct(owner, held);
    }

    /// The server has handled keys that the pump had left to it.
    pub(super) fn handled(&self) {
        lock(&self.shared).handed.handled();
    }

    /// Keys of a terminal that were held back and whose time is up, and when to ask again.
    pub(super) fn time_up(&self, client: u64, now: Instant) -> (Vec<u8>, Option<Instant>) {
        lock(&self.shared).handed.time_up(client, now)
    }

    /// HandedOver terminals that have not taken everything.
    pub(super) fn lagging(&self) -> Vec<(u64, Arc<OwnedFd>)> {
        lock(&self.shared).handed.lagging()
    }

    pub(super) fn flush(&self, client: u64) {
        lock(&self.shared).handed.flush(client);
    }

    /// Shows something else on all of them, between two sequences of the program's.
    pub(super) fn notify(&self, bytes: &[u8]) {
        lock(&self.shared).handed.notify(bytes);
    }
}

/// The pump's end.
#[derive(Debug)]
pub(super) struct HostFrontEnd {
    stream: UnixStream,
    shared: Arc<Mutex<Shared>>,
    sources: Arc<Sources>,
    reporter: Reporter,
    size: Size,
    /// The server is gone.
    closed: bool,
}

/// Both ends, and the size that the program's terminal begins with.
pub(super) fn front_end(size: Size, reporter: Reporter) -> io::Result<(HostFrontEnd, PumpLink)> {
    let (near, far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let sources = Arc::new(Sources::new(near.as_fd()));
    let handed = HandedTerminals::new(Arc::clone(&sources));
    let shared = Arc::new(Mutex::new(Shared { queue: Queue::default(), handed, overflow: Vec::new() }));
    let link = PumpLink { stream: far, shared: Arc::clone(&shared) };
    Ok((HostFrontEnd { stream: near, shared, sources, reporter, size, closed: false }, link))
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

/// Takes the wake-ups. True: the server is gone.
fn drain(stream: &UnixStream) -> bool {
    loop {
        match (&*stream).read(&mut [0; 64]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

impl FrontEnd for HostFrontEnd {
    fn input(&self) -> Option<BorrowedFd<'_>> {
        (!self.closed).then(|| self.sources.as_fd().unwrap_or_else(|| self.stream.as_fd()))
    }

    fn output(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stream.as_fd())
    }

    fn size(&self) -> io::Result<PtySize> {
        Ok(PtySize { rows: self.size.rows, cols: self.size.cols, pixel_width: 0, pixel_height: 0 })
    }

    fn read(&mut self, buffer: &mut [u8]) -> Input {
        // Under the lock nobody can add an entry between the look and the wake-ups: none is left without one.
        let mut shared = lock(&self.shared);
        if let Some(input) = shared.queue.next(buffer, &mut self.size) {
            return input;
        }
        let ready = self.sources.ready();
        if ready.woken && drain(&self.stream) {
            // The server is gone. Nobody types any more, and the program runs on.
            self.closed = true;
            shared.handed.clear();
            return Input::Nothing;
        }
        for client in ready.terminals() {
            if let Some(count) = shared.handed.read(client, buffer, &self.reporter) {
                return Input::Bytes(count);
            }
        }
        Input::Nothing
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut shared = lock(&self.shared);
        if !shared.overflow.is_empty() {
            let Some(count) = offer(&self.stream, &shared.overflow) else { return Ok(bytes.len()) };
            shared.overflow.drain(..count);
            if !shared.overflow.is_empty() {
                return Ok(0);
            }
        }
        if shared.handed.is_empty() {
            return Ok(offer(&self.stream, bytes).unwrap_or(bytes.len()));
        }
        // People first, then the screen model: that one wakes another thread.
        shared.handed.show(bytes, &self.reporter);
        let count = offer(&self.stream, bytes).unwrap_or(bytes.len());
        shared.overflow.extend_from_slice(&bytes[count..]);
        Ok(bytes.len())
    }
}

/// Writes what the server's socket takes now. `None`: there is no server any more; the program still runs to its end.
fn offer(stream: &UnixStream, bytes: &[u8]) -> Option<usize> {
    match (&*stream).write(bytes) {
        Ok(count) => Some(count),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Some(0)
        }
        Err(_) => None,
    }
}

impl JobControl for HostFrontEnd {}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::notes::notes;

    fn ends(size: Size) -> io::Result<(HostFrontEnd, PumpLink)> {
        front_end(size, notes()?.0)
    }

    #[test]
    fn keys_and_sizes_arrive_in_order_and_long_keys_in_pieces() {
        let (mut front, link) = ends(Size { rows: 40, cols: 120 }).unwrap();
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
        let (mut front, link) = ends(Size { rows: 1, cols: 1 }).unwrap();
        assert!(link.type_keys(&vec![b'x'; MAX_QUEUED]));
        assert!(!link.type_keys(b"y"));
        let mut buffer = vec![0; MAX_QUEUED];
        assert_eq!(front.read(&mut buffer), Input::Bytes(MAX_QUEUED));
        assert!(link.type_keys(b"y"));
    }

    #[test]
    fn output_waits_for_the_server_and_is_dropped_without_one() {
        let (mut front, link) = ends(Size { rows: 1, cols: 1 }).unwrap();
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
