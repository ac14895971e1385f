//! inotify with no more events than are needed.
//!
//! The notify crate asks for an event at every opening of a file, too, and has no setting for that. Each look of a run opens
//! files in folders that every other run watches, so with fifty runs in one folder each look would wake fifty processes.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::{Extent, Notifier};

/// Watched folders and files by the number that the kernel names them by.
type Watched = Arc<Mutex<HashMap<i32, PathBuf>>>;

#[derive(Debug)]
pub(super) struct Inotify {
    queue: Arc<OwnedFd>,
    watched: Watched,
    /// Closed with this, which ends the thread.
    _alive: OwnedFd,
}

impl Inotify {
    /// `changed` is called on a thread of its own with what has changed; `None`: more than the queue could hold.
    pub(super) fn start(changed: impl Fn(Option<&Path>) + Send + 'static) -> io::Result<Self> {
        let queue = Arc::new(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?);
        let (ended, alive) = pipe_with(PipeFlags::CLOEXEC)?;
        let watched = Watched::default();
        let (of_thread, paths) = (Arc::clone(&queue), Arc::clone(&watched));
        let run = move || report(&of_thread, &ended, &paths, changed);
        std::thread::Builder::new().name("watch".into()).spawn(run)?;
        Ok(Self { queue, watched, _alive: alive })
    }
}

impl Notifier for Inotify {
    fn watch(&mut self, path: &Path, extent: Extent) -> io::Result<()> {
        let appearances = WatchFlags::CREATE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        let news = match extent {
            Extent::Everything => appearances | WatchFlags::MODIFY,
            Extent::Appearances => appearances,
        };
        // Held until the path stands under its number: an event may come at once.
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let number = inotify::add_watch(&self.queue, path, news)?;
        watched.insert(number, path.to_owned());
        Ok(())
    }

    fn unwatch(&mut self, path: &Path) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let number = watched.iter().find(|(_, known)| *known == path).map(|(number, _)| *number);
        if let Some(number) = number {
            watched.remove(&number);
            let _ = inotify::remove_watch(&self.queue, number); // the kernel drops one whose file is gone
        }
    }
}

/// Until the other end of `ended` is closed.
fn report(queue: &OwnedFd, ended: &OwnedFd, watched: &Watched, changed: impl Fn(Option<&Path>)) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(queue, &mut buffer);
    loop {
        let mut wanted = [PollFd::new(queue, PollFlags::IN), PollFd::new(ended, PollFlags::IN)];
        match poll(&mut wanted, None) {
            Ok(_) if !wanted[1].revents().is_empty() => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::warn!("file changes are no longer reported: {error}");
                return;
            }
        }
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::warn!("file changes are no longer reported: {error}");
                    return;
                }
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                changed(None);
                continue;
            }
            let folder = watched.lock().unwrap_or_else(PoisonError::into_inner).get(&event.wd()).cloned();
            let Some(folder) = folder else { continue }; // no longer watched
            match event.file_name() {
                Some(name) => changed(Some(&folder.join(OsStr::from_bytes(name.to_bytes())))),
                None => changed(Some(&folder)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// Nor is any other process woken by it.
    #[test]
    fn opening_and_reading_a_file_is_no_event() {
        let folder = tempfile::tempdir().unwrap();
        let (sender, receiver) = channel();
        let changed = move |path: Option<&Path>| drop(sender.send(path.map(Path::to_owned)));
        let Ok(mut inotify) = Inotify::start(changed) else { return }; // no instance left on this machine
        let (read, written) = (folder.path().join("read"), folder.path().join("written"));
        fs::write(&read, "x").unwrap();
        inotify.watch(folder.path(), Extent::Everything).unwrap();
        for _ in 0..10 {
            fs::read(&read).unwrap();
            fs::read_dir(folder.path()).unwrap().count();
        }
        File::create(&written).unwrap();
        let first = receiver.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(first, Some(written), "events come in order, so there was none before");
        inotify.unwatch(folder.path());
        fs::write(&read, "y").unwrap();
        drop(inotify);
        assert_eq!(
            receiver.recv(),
            Err(std::sync::mpsc::RecvError),
            "its thread has ended, and reported nothing more"
        );
    }
}
