//! A named pipe by which a program in a terminal tells the test something without using the terminal.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct Mailbox {
    dir: TempDir,
    pipe: OwnedFd,
    unread: Vec<u8>,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mailbox");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        // Open for writing too, so that no end of file comes between two writers.
        let pipe = open(&path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).unwrap();
        Self { dir, pipe, unread: Vec::new() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("mailbox")
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self, timeout: Duration) -> String {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return String::from_utf8_lossy(&line[..end]).into_owned();
            }
            let limit = Timespec::try_from(timeout).unwrap();
            let ready = poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&limit)).unwrap();
            assert!(
                ready > 0,
                "waited {timeout:?} in vain for a line in the mailbox, which holds {:?}",
                self.unread
            );
            let mut chunk = [0; 4096];
            let count = rustix::io::read(&self.pipe, &mut chunk).unwrap();
            self.unread.extend_from_slice(&chunk[..count]);
        }
    }
}
