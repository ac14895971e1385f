//! Reports of file changes, and of other threads, as one descriptor that can be polled together with sockets and terminals.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use os::watch::Watch;

pub struct Wake {
    pub(super) watch: Watch,
    changed: UnixStream,
    bell: Bell,
}

/// Wakes whoever polls; for other threads.
#[derive(Clone, Debug)]
pub struct Bell(Arc<UnixStream>);

impl Bell {
    pub fn ring(&self) {
        let _ = (&*self.0).write(&[0]); // a full socket is a wake that was not heard yet
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changed.as_fd()
    }
}

impl std::fmt::Debug for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wake").field("watch", &self.watch).finish_non_exhaustive()
    }
}

impl Wake {
    pub fn new() -> io::Result<Self> {
        let (changed, report) = UnixStream::pair()?;
        changed.set_nonblocking(true)?;
        report.set_nonblocking(true)?;
        let bell = Bell(Arc::new(report));
        let rung = bell.clone();
        Ok(Self { watch: Watch::new(move |_| rung.ring()), changed, bell })
    }

    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// What has been reported so far is known from here on.
    pub fn drain(&mut self) {
        let mut bytes = [0; 256];
        while matches!(self.changed.read(&mut bytes), Ok(count) if count > 0) {}
    }
}
