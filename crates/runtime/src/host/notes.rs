//! What the host's other threads report to its server: a queue, and a byte on a socket that wakes it.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::track::RunNews;
use types::Pid;

#[derive(Debug)]
pub(super) enum Note {
    /// The agent runs.
    Started(Pid),
    /// The tracker has looked.
    News(RunNews),
    /// The agent has ended, with the exit code a shell would report; its last output is in the socket.
    Ended(u8),
    /// The END is stored, or left to the recovery: nothing more will come.
    Finished,
    /// The store does not take the session: its program is to be ended.
    NotRecorded,
    /// The tree was ended, but for these.
    TreeEnded(Vec<String>),
    /// Of the terminal that this client has handed over.
    Terminal(u64, TerminalNote),
}

/// What the pump reports of such a terminal.
#[derive(Debug)]
pub(super) enum TerminalNote {
    /// The server is to decide about these keys. It says when it has.
    Keys(Vec<u8>),
    /// The beginning of a sequence is held back, for a moment.
    HoldsKeys,
    /// The chord was typed.
    Left,
    /// It does not keep up.
    Lags,
    /// Its viewer has it no more, for the time being: a shell does.
    Withdrawn,
    Gone,
}

/// Leaves notes; any thread may have one.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    notes: Sender<Note>,
    wake: Arc<UnixStream>,
}

impl Reporter {
    pub(super) fn report(&self, note: Note) {
        if self.notes.send(note).is_ok() {
            let _ = (&*self.wake).write(&[1]); // a full socket holds a wake-up already
        }
    }
}

/// The server's end.
#[derive(Debug)]
pub(super) struct Notes {
    notes: Receiver<Note>,
    woken: UnixStream,
}

impl Notes {
    /// Readable while notes wait.
    pub(super) fn stream(&self) -> &UnixStream {
        &self.woken
    }

    pub(super) fn take(&mut self) -> Vec<Note> {
        while matches!(self.woken.read(&mut [0; 64]), Ok(count) if count > 0) {}
        self.notes.try_iter().collect()
    }
}

pub(super) fn notes() -> io::Result<(Reporter, Notes)> {
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let (sender, receiver) = channel();
    Ok((Reporter { notes: sender, wake: Arc::new(wake) }, Notes { notes: receiver, woken }))
}
