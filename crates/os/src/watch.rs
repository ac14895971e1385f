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

/// Whose changes are whose, as far as a run knows its own files. Changes that are not its own can wait for a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchScope {
    /// What only this run changes, each with everything below it.
    pub own: Vec<PathBuf>,
    /// Folders that all runs write to. What is this run's own in them is watched by itself, so only what appears or vanishes
    /// there is worth a report: fifty runs must not wake each other with every line they write.
    pub shared: Vec<PathBuf>,
    /// Those of them where what appears for others means nothing to this run before its next look at everything.
    pub ignored: Vec<PathBuf>,
}

/// Which changes of a path are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Everything,
    /// Of a folder: what appears in it and vanishes from it, but no changes of what is there.
    Appearances,
}

/// What reports changes of single paths.
trait Notifier: Send {
    /// Of a path that is watched already: from now on to this extent. More may be reported, never less.
    fn watch(&mut self, path: &Path, extent: Extent) -> io::Result<()>;
    fn unwatch(&mut self, path: &Path);
}

/// Watches folders and files, and calls out whenever something in them may have changed.
pub struct Watch {
    /// `None`: no instance was to be had (`max_user_instances`), so the caller has to look from time to time.
    notifier: Option<Box<dyn Notifier>>,
    watched: BTreeMap<PathBuf, (PathIdentity, Extent)>,
    /// Some of what is wanted is not watched: there are no more watches to be had (`max_user_watches`).
    short: bool,
    filter: Arc<Filter>,
}

/// Sorts changes into own ones and those of other runs; used by the notifier's thread.
#[derive(Debug, Default)]
struct Filter {
    /// `None`: nobody can tell whose a change is, so everything is ours.
    scope: Mutex<Option<WatchScope>>,
    /// Others' changes have been reported since the last look.
    reported: AtomicBool,
}

impl Filter {
    /// `None`: there is nothing to report.
    fn sort(&self, path: Option<&Path>) -> Option<Change> {
        let scope = self.scope.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(WatchScope { own, ignored, .. }), Some(path)) = (&*scope, path) else {
            return Some(Change::Own);
        };
        if own.iter().any(|own| path.starts_with(own)) {
            return Some(Change::Own);
        }
        if path.parent().is_some_and(|folder| ignored.iter().any(|ignored| ignored == folder)) {
            return None;
        }
        (!self.reported.swap(true, Ordering::Relaxed)).then_some(Change::Others)
    }
}

/// Which file or folder is at a path: device, inode, time of birth. The kernel drops the watch of one that is removed, and
/// another one at the same path has none. Inode numbers are used again, so the time of birth counts, too.
type PathIdentity = (u64, u64, Option<SystemTime>);

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

    /// Watches exactly these paths, and sorts changes by `scope` from here on. For a path that does not exist yet the
    /// nearest folder above it is watched, so that the next call comes when it appears. Returns whether a path is watched that
    /// was not before: it may have changed in between.
    pub fn set(&mut self, wanted: impl IntoIterator<Item = PathBuf>, scope: Option<WatchScope>) -> bool {
        let shared = scope.as_ref().map(|scope| scope.shared.clone()).unwrap_or_default();
        *self.filter.scope.lock().unwrap_or_else(PoisonError::into_inner) = scope;
        let Some(notifier) = &mut self.notifier else { return false };
        let extent = |path: &PathBuf| {
            if shared.contains(path) { Extent::Appearances } else { Extent::Everything }
        };
        let wanted: BTreeMap<PathBuf, PathIdentity> =
            wanted.into_iter().filter_map(|path| nearest(&path)).collect();
        self.watched.retain(|path, (identity, _)| {
            let stays = wanted.get(path) == Some(identity);
            if !stays {
                notifier.unwatch(path);
            }
            stays
        });
        let (known, new): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|(path, _)| self.watched.contains_key(path));
        let (mut begun, mut refused) = (false, None);
        // New ones first: what is in a folder is watched by itself before the folder's own watch says less.
        for (path, identity) in new.into_iter().chain(known) {
            let extent = extent(&path);
            let before = self.watched.get(&path).map(|(_, extent)| *extent);
            if before == Some(extent) {
                continue;
            }
            match notifier.watch(&path, extent) {
                Ok(()) => {
                    begun |= before.is_none();
                    self.watched.insert(path, (identity, extent));
                }
                Err(error) => refused = Some(error),
            }
        }
        if let Some(error) = &refused
            && !self.short
        {
            tracing::warn!("not all file changes are reported here ({error}): looking twice a second");
        }
        self.short = refused.is_some();
        begun
    }
}

fn nearest(path: &Path) -> Option<(PathBuf, PathIdentity)> {
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
        fn watch(&mut self, _: &Path, _: Extent) -> io::Result<()> {
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
        watch.set(paths[..1].to_vec(), None);
        assert!(watch.works());
        watch.set(paths.to_vec(), None);
        assert!(!watch.works(), "the other is to be looked at");
        watch.set(paths[1..].to_vec(), None);
        assert!(watch.works());
        assert!(!Watch::by(None, Arc::default()).works());
    }

    #[test]
    fn changes_are_reported_and_looks_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (sender, receiver) = channel();
        let mut watch = Watch::new(move |_| {
            let _ = sender.send(());
        });
        if !watch.works() {
            return testing::left_out("no inotify instance is left");
        }
        let late = folder.path().join("late");
        watch.set([late.join("and/deeper"), late.clone()], None);
        fs::create_dir(&late).unwrap();
        receiver.recv_timeout(Duration::from_secs(30)).expect("the new folder is reported");
        watch.set([late.clone()], None);
        // Another in its place, of the same name and perhaps the same inode.
        fs::remove_dir(&late).unwrap();
        fs::create_dir(&late).unwrap();
        while receiver.recv_timeout(Duration::from_millis(200)).is_ok() {}
        watch.set([late.clone()], None);
        fs::write(late.join("file"), "x").unwrap();
        receiver.recv_timeout(Duration::from_secs(30)).expect("the new file is reported");
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
        *filter.scope.lock().unwrap() = Some(WatchScope {
            own: vec!["/r/7.json".into(), "/p/a".into()],
            shared: vec!["/r".into(), "/p".into()],
            ignored: vec!["/p".into()],
        });
        assert_eq!(
            [sort("/p/b.jsonl"), sort("/p/b")],
            [None; 2],
            "nobody is woken by another's conversation"
        );
        assert_eq!(sort("/r/8.json"), Some(Change::Others));
        assert_eq!([sort("/r/8.json"), sort("/r/7.json.tmp"), sort("/p/b.jsonl")], [None; 3]);
        assert_eq!([sort("/r/7.json"), sort("/p/a/subagents/x.jsonl")], [Some(Change::Own); 2]);
        assert_eq!(filter.sort(None), Some(Change::Own), "the queue ran over");
        filter.reported.store(false, Ordering::Relaxed);
        assert_eq!([sort("/r/8.json"), sort("/r/8.json")], [Some(Change::Others), None]);
    }

    /// Counts reports, not time: what comes last is ours, and comes after everything that others did. The portable form has no
    /// smaller extent of a folder.
    #[cfg(all(target_os = "linux", not(feature = "portable")))]
    #[test]
    fn what_others_write_in_a_shared_folder_is_not_reported() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().to_owned();
        let [own, others] = ["own.jsonl", "others.jsonl"].map(|name| shared.join(name));
        for file in [&own, &others] {
            fs::write(file, "").unwrap();
        }
        let (sender, receiver) = channel();
        let mut watch = Watch::new(move |change| {
            let _ = sender.send(change);
        });
        if !watch.works() {
            return testing::left_out("no inotify instance is left");
        }
        assert!(watch.set([shared.clone()], None), "nobody can tell yet whose a change is");
        let scope = WatchScope { own: vec![own.clone()], shared: vec![shared.clone()], ignored: Vec::new() };
        assert!(watch.set([shared.clone(), own.clone()], Some(scope.clone())), "its own file by itself");
        assert!(!watch.set([shared.clone(), own.clone()], Some(scope)));
        for _ in 0..3 {
            fs::write(&others, "a line\n").unwrap();
        }
        fs::write(&own, "a line\n").unwrap();
        let first = receiver.recv_timeout(Duration::from_secs(30));
        assert_eq!(first, Ok(Change::Own), "nobody hears of the other's lines");
        while receiver.recv_timeout(Duration::from_millis(200)).is_ok() {}
        fs::write(shared.join("new.jsonl"), "").unwrap();
        assert_eq!(receiver.recv_timeout(Duration::from_secs(30)), Ok(Change::Others), "but of a new file");
    }
}
