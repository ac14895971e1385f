//! Being told when files change: one inotify instance for the whole process, or none where there is none to be had.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use notify::event::{EventKind, ModifyKind};
use notify::{RecursiveMode, Watcher};

/// Watches folders and files, and calls out whenever something in them may have changed.
pub struct Watch {
    /// `None`: no instance was to be had (`max_user_instances`), so the caller has to look from time to time.
    watcher: Option<Box<dyn Watcher + Send>>,
    watched: BTreeMap<PathBuf, Identity>,
    /// Some of what is wanted is not watched: there are no more watches to be had (`max_user_watches`).
    short: bool,
}

/// Which one it is that stands at a path: the kernel drops the watch of one that is removed, and another in its place has none.
/// Numbers of inodes are given away again, so birth counts too.
type Identity = (u64, u64, Option<SystemTime>);

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("watched", &self.watched).finish_non_exhaustive()
    }
}

impl Watch {
    /// `changed` is called on a thread of the watcher's and must not block.
    pub fn new(changed: impl Fn() + Send + 'static) -> Self {
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| is_news(event.kind)) {
                changed();
            }
        });
        if let Err(error) = &watcher {
            tracing::warn!("file changes are not reported here ({error}): looking twice a second instead");
        }
        Self::by(watcher.ok().map(|watcher| Box::new(watcher) as _))
    }

    fn by(watcher: Option<Box<dyn Watcher + Send>>) -> Self {
        Self { watcher, watched: BTreeMap::new(), short: false }
    }

    /// Whether all changes are reported.
    pub fn works(&self) -> bool {
        self.watcher.is_some() && !self.short
    }

    /// Watches exactly these. For one that does not exist yet the nearest folder above it is watched, so that the next
    /// call comes when it appears.
    pub fn set(&mut self, wanted: impl IntoIterator<Item = PathBuf>) {
        let Some(watcher) = &mut self.watcher else { return };
        let wanted: BTreeMap<PathBuf, Identity> =
            wanted.into_iter().filter_map(|path| nearest(&path)).collect();
        self.watched.retain(|path, identity| {
            let stays = wanted.get(path) == Some(identity);
            if !stays {
                let _ = watcher.unwatch(path);
            }
            stays
        });
        let mut refused = None;
        let mut begin = |path: &Path| match watcher.watch(path, RecursiveMode::NonRecursive) {
            Ok(()) => true,
            Err(error) => {
                refused = Some(error);
                false
            }
        };
        for (path, identity) in wanted {
            if !self.watched.contains_key(&path) && begin(&path) {
                self.watched.insert(path, identity);
            }
        }
        if let Some(error) = &refused
            && !self.short
        {
            tracing::warn!("not all file changes are reported here ({error}): looking twice a second");
        }
        self.short = refused.is_some();
    }
}

fn nearest(path: &Path) -> Option<(PathBuf, Identity)> {
    path.ancestors().find_map(|path| {
        let meta = path.metadata().ok()?;
        Some((path.to_owned(), (meta.dev(), meta.ino(), meta.created().ok())))
    })
}

/// Reading a file is no news; without this our own looks would wake us.
fn is_news(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Has watches for so many paths.
    #[derive(Debug)]
    struct Few(usize);

    impl Watcher for Few {
        fn new<F: notify::EventHandler>(_: F, _: notify::Config) -> notify::Result<Self> {
            Ok(Self(0))
        }

        fn watch(&mut self, _: &Path, _: RecursiveMode) -> notify::Result<()> {
            let refused = notify::Error::new(notify::ErrorKind::MaxFilesWatch);
            self.0 = self.0.checked_sub(1).ok_or(refused)?;
            Ok(())
        }

        fn unwatch(&mut self, _: &Path) -> notify::Result<()> {
            self.0 += 1;
            Ok(())
        }

        fn kind() -> notify::WatcherKind {
            notify::WatcherKind::NullWatcher
        }
    }

    #[test]
    fn it_works_only_if_all_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        for path in &paths {
            fs::create_dir(path).unwrap();
        }
        let mut watch = Watch::by(Some(Box::new(Few(1))));
        watch.set(paths[..1].to_vec());
        assert!(watch.works());
        watch.set(paths.to_vec());
        assert!(!watch.works(), "the other is to be looked at");
        watch.set(paths[1..].to_vec());
        assert!(watch.works());
        assert!(!Watch::by(None).works());
    }

    #[test]
    fn a_change_is_told_and_a_look_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (sender, receiver) = channel();
        let mut watch = Watch::new(move || {
            let _ = sender.send(());
        });
        if !watch.works() {
            return; // no inotify instance left on this machine
        }
        let late = folder.path().join("late");
        watch.set([late.join("and/deeper"), late.clone()]);
        fs::create_dir(&late).unwrap();
        receiver.recv_timeout(Duration::from_secs(30)).expect("the new folder is told");
        watch.set([late.clone()]);
        // Another in its place, of the same name and perhaps the same inode.
        fs::remove_dir(&late).unwrap();
        fs::create_dir(&late).unwrap();
        while receiver.recv_timeout(Duration::from_millis(200)).is_ok() {}
        watch.set([late.clone()]);
        fs::write(late.join("file"), "x").unwrap();
        receiver.recv_timeout(Duration::from_secs(30)).expect("the new file is told");
        while receiver.recv_timeout(Duration::from_millis(200)).is_ok() {}
        fs::read(late.join("file")).unwrap();
        fs::write(folder.path().join("elsewhere"), "x").unwrap();
        assert!(
            receiver.recv_timeout(Duration::from_millis(200)).is_err(),
            "neither a look nor an unwatched folder"
        );
    }
}
