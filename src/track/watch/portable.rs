//! The notify crate, for systems that have no inotify.

use std::io;
use std::path::Path;

use notify::event::{EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::{Extent, Notifier};

#[derive(Debug)]
pub(super) struct Portable(RecommendedWatcher);

impl Portable {
    /// `changed` is called on a thread of its own with what has changed; `None`: more than is known by name.
    pub(super) fn start(changed: impl Fn(Option<&Path>) + Send + 'static) -> io::Result<Self> {
        let handler = move |event: notify::Result<notify::Event>| match event {
            Ok(event) if event.need_rescan() => changed(None),
            Ok(event) if is_news(event.kind) => event.paths.iter().for_each(|path| changed(Some(path))),
            Ok(_) => {}
            Err(_) => changed(None),
        };
        notify::recommended_watcher(handler).map(Self).map_err(io::Error::other)
    }
}

impl Notifier for Portable {
    /// The crate has no smaller extent.
    fn watch(&mut self, path: &Path, _: Extent) -> io::Result<()> {
        self.0.watch(path, RecursiveMode::NonRecursive).map_err(io::Error::other)
    }

    fn unwatch(&mut self, path: &Path) {
        let _ = self.0.unwatch(path);
    }
}

/// Reading a file is no news; without this our own looks would wake us.
fn is_news(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(_)))
}
