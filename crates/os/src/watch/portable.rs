//! The notify crate, for systems that have no inotify.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::event::{EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::{Extent, Notifier};

pub(super) struct Portable {
    watcher: RecommendedWatcher,
    reports: Arc<Mutex<Reports>>,
}

/// What the watcher's thread calls out, and by which names.
struct Reports {
    changed: Box<dyn Fn(Option<&Path>) + Send>,
    /// What is watched: the path without symbolic links, by which FSEvents reports it, and the path as it was asked for.
    watched: BTreeMap<PathBuf, PathBuf>,
}

impl Portable {
    /// `changed` is called on a thread of its own with what has changed; `None`: more than is known by name.
    pub(super) fn start(changed: impl Fn(Option<&Path>) + Send + 'static) -> io::Result<Self> {
        let reports = Reports { changed: Box::new(changed), watched: BTreeMap::new() };
        let reports = Arc::new(Mutex::new(reports));
        let handled = Arc::clone(&reports);
        let handler = move |event: notify::Result<notify::Event>| match event {
            Ok(event) if event.need_rescan() => lock(&handled).report_all(),
            Ok(event) if is_news(event.kind) => {
                let reports = lock(&handled);
                event.paths.iter().for_each(|path| reports.report(path));
            }
            Ok(_) => {}
            Err(_) => lock(&handled).report_all(),
        };
        let watcher = notify::recommended_watcher(handler).map_err(io::Error::other)?;
        Ok(Self { watcher, reports })
    }
}

fn lock(reports: &Mutex<Reports>) -> MutexGuard<'_, Reports> {
    reports.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reports {
    fn report(&self, path: &Path) {
        (self.changed)(Some(&self.as_asked_for(path)));
    }

    fn report_all(&self) {
        (self.changed)(None);
    }

    fn forget(&mut self, path: &Path) {
        self.watched.retain(|_, asked_for| asked_for != path);
    }

    /// `/tmp` is `/private/tmp` on macOS, and whose a change is, is known by the paths that were asked for.
    fn as_asked_for(&self, path: &Path) -> PathBuf {
        let watched = path.ancestors().find_map(|above| {
            let asked_for = self.watched.get(above)?;
            Some(match path.strip_prefix(above) {
                Ok(rest) if !rest.as_os_str().is_empty() => asked_for.join(rest),
                _ => asked_for.clone(),
            })
        });
        watched.unwrap_or_else(|| path.to_owned())
    }
}

impl Notifier for Portable {
    /// The crate has no smaller extent.
    fn watch(&mut self, path: &Path, _: Extent) -> io::Result<()> {
        let real = path.canonicalize()?;
        if lock(&self.reports).watched.insert(real, path.to_owned()).as_deref() == Some(path) {
            return Ok(());
        }
        // Not under the lock: on macOS this waits for the watcher's thread, which may be about to report.
        let begun = self.watcher.watch(path, RecursiveMode::NonRecursive).map_err(io::Error::other);
        if begun.is_err() {
            lock(&self.reports).forget(path);
        }
        begun
    }

    /// On macOS the watcher begins anew with what is left, and what changed at that moment is not reported: so everything is
    /// looked at once. (After [`Self::watch`] the caller does so by itself.)
    fn unwatch(&mut self, path: &Path) {
        let _ = self.watcher.unwatch(path);
        let mut reports = lock(&self.reports);
        reports.forget(path);
        if cfg!(target_os = "macos") {
            reports.report_all();
        }
    }
}

/// Reading a file is no news; without this our own looks would wake us.
fn is_news(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(_) | EventKind::Modify(ModifyKind::Metadata(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_the_names_that_were_asked_for() {
        let watched = [("/private/tmp/home", "/tmp/home"), ("/private/tmp/home/p", "/tmp/home/link")];
        let watched = watched.map(|(real, asked_for)| (real.into(), asked_for.into())).into();
        let reports = Reports { changed: Box::new(|_| {}), watched };
        for (reported, name) in [
            ("/private/tmp/home", "/tmp/home"),
            ("/private/tmp/home/a.json", "/tmp/home/a.json"),
            ("/private/tmp/home/p/x.jsonl", "/tmp/home/link/x.jsonl"),
            ("/elsewhere/y", "/elsewhere/y"),
        ] {
            assert_eq!(reports.as_asked_for(reported.as_ref()), PathBuf::from(name));
        }
    }
}
