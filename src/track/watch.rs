//! Reports of file changes: one inotify instance for the whole process, or none where there is none to be had.

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod inotify;
#[cfg(any(not(target_os = "linux"), feature = "portable"))]
mod portable;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

#[cfg(all(target_os = "linux", not(feature = "portable")))]
use inotify::Inotify as System;
#[cfg(any(not(target_os = "linux"), feature = "portable"))]
use portable::Portable as System;

/// Whose change it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// This run's own, or nobody knows whose: worth a look at once.
    Own,
    /// Another run's. A look at everybody's changes by everybody would cost the square of their number, so these are reported
    /// once and then not until there was a look ([`Watch::begin_look`]).
    Others,
}

/// What reports changes of single paths.
trait Notifier: Send {
    fn watch(&mut self, path: &Path) -> io::Result<()>;
    fn unwatch(&mut self, path: &Path);
}

/// Watches folders and files, and calls out whenever something in them may have changed.
pub struct Watch {
    /// `None`: no instance was to be had (`max_user_instances`), so the caller has to look from time to time.
    notifier: Option<Box<dyn Notifier>>,
    watched: BTreeMap<PathBuf, Identity>,
    /// Some of what is wanted is not watched: there are no more watches to be had (`max_user_watches`).
    short: bool,
    filter: Arc<Filter>,
}

/// Tells own changes from those of others; used by the notifier's thread.
#[derive(Debug, Default)]
struct Filter {
    /// What is ours, with everything below it; `None`: nobody can tell, so everything is.
    own: Mutex<Option<Vec<PathBuf>>>,
    /// Others' changes have been reported since the last look.
    reported: AtomicBool,
}

impl Filter {
    /// `None`: there is nothing to report.
    fn sort(&self, path: Option<&Path>) -> Option<Change> {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let is_own = match (&*own, path) {
            (Some(own), Some(path)) => own.iter().any(|own| path.starts_with(own)),
            _ => true,
        };
        if is_own {
            return Some(Change::Own);
        }
        (!self.reported.swap(true, Ordering::Relaxed)).then_some(Change::Others)
    }
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
    pub fn new(changed: impl Fn(Change) + Send + 'static) -> Self {
        let filter = Arc::<Filter>::default();
        let sorting = Arc::clone(&filter);
        let started = System::start(move |path| {
            if let Some(change) = sorting.sort(path) {
                changed(change);
            }
        });
        if let Err(error) = &started {
            tracing::warn!("file changes are not reported here ({error}): looking twice a second instead");
        }
        Self::by(started.ok().map(|started| Box::new(started) as _), filter)
    }

    fn by(notifier: Option<Box<dyn Notifier>>, filter: Arc<Filter>) -> Self {
        Self { notifier, watched: BTreeMap::new(), short: false, filter }
    }

    /// Whether all changes are reported.
    pub fn works(&self) -> bool {
        self.notifier.is_some() && !self.short
    }

    /// Everything is looked at now: what others change from here on is reported again.
    pub fn begin_look(&self) {
        self.filter.reported.store(false, Ordering::Relaxed);
    }

    /// Says what is this run's own from here on; `None`: everything.
    pub fn set_own(&self, own: Option<Vec<PathBuf>>) {
        *self.filter.own.lock().unwrap_or_else(PoisonError::into_inner) = own;
    }

    /// Watches exactly these. For one that does not exist yet the nearest folder above it is watched, so that the next
    /// call comes when it appears.
    pub fn set(&mut self, wanted: impl IntoIterator<Item = PathBuf>) {
        let Some(notifier) = &mut self.notifier else { return };
        let wanted: BTreeMap<PathBuf, Identity> =
            wanted.into_iter().filter_map(|path| nearest(&path)).collect();
        self.watched.retain(|path, identity| {
            let stays = wanted.get(path) == Some(identity);
            if !stays {
                notifier.unwatch(path);
            }
            stays
        });
        let mut refused = None;
        let mut begin = |path: &Path| match notifier.watch(path) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Has watches for so many paths.
    #[derive(Debug)]
    struct Few(usize);

    impl Notifier for Few {
        fn watch(&mut self, _: &Path) -> io::Result<()> {
            self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
            Ok(())
        }

        fn unwatch(&mut self, _: &Path) {
            self.0 += 1;
        }
    }

    #[test]
    fn it_works_only_if_all_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        for path in &paths {
            fs::create_dir(path).unwrap();
        }
        let mut watch = Watch::by(Some(Box::new(Few(1))), Arc::default());
        watch.set(paths[..1].to_vec());
        assert!(watch.works());
        watch.set(paths.to_vec());
        assert!(!watch.works(), "the other is to be looked at");
        watch.set(paths[1..].to_vec());
        assert!(watch.works());
        assert!(!Watch::by(None, Arc::default()).works());
    }

    #[test]
    fn a_change_is_told_and_a_look_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (sender, receiver) = channel();
        let mut watch = Watch::new(move |_| {
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

    #[test]
    fn changes_of_others_are_reported_once_until_there_is_a_look() {
        let filter = Filter::default();
        let sort = |path: &str| filter.sort(Some(Path::new(path)));
        assert_eq!([sort("/r/1.json"), sort("/r/1.json")], [Some(Change::Own); 2], "nobody can tell yet");
        *filter.own.lock().unwrap() = Some(vec!["/r/7.json".into(), "/p/a".into()]);
        assert_eq!(sort("/r/8.json"), Some(Change::Others));
        assert_eq!([sort("/r/8.json"), sort("/r/7.json.tmp"), sort("/p/b.jsonl")], [None; 3]);
        assert_eq!([sort("/r/7.json"), sort("/p/a/subagents/x.jsonl")], [Some(Change::Own); 2]);
        assert_eq!(filter.sort(None), Some(Change::Own), "the queue ran over");
        filter.reported.store(false, Ordering::Relaxed);
        assert_eq!([sort("/r/8.json"), sort("/r/8.json")], [Some(Change::Others), None]);
    }
}
