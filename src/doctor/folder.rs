//! codemie itself: its binary, its home folder, its settings.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};

use super::{Finding, Machine};
use config::{Config, Settings};
use format::shell;
use os::home::{Home, own_var};
use runtime::shim::files::DiskFiles;
use runtime::shim::resolve::{PathKind, Query};

const AREA: &str = "codemie";

/// Below this a busy week may not fit any more.
const LITTLE_SPACE: u64 = 64 * 1024 * 1024;

pub fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let mut findings = vec![Finding::ok(
        AREA,
        format!("codemie {} ({})", env!("CARGO_PKG_VERSION"), machine.codemie.display()),
    )];
    findings.extend(on_path(machine));
    match &machine.home {
        None => findings.push(Finding::error(
            AREA,
            "neither CODEMIE_HOME nor HOME is set, so nothing is tracked",
            "set CODEMIE_HOME to a folder of your own",
        )),
        Some(home) => {
            findings.extend(home_folder(home.path()));
            findings.extend(database(home));
            findings.extend(settings(home, machine.agents));
        }
    }
    findings
}

/// Whether `codemie`, which aliases and scripts call, is us.
fn on_path(machine: &Machine<'_>) -> Option<Finding> {
    let query = Query {
        name: "codemie",
        explicit: None,
        path: machine.path.as_deref(),
        folder: None,
        ourselves: &machine.ourselves,
    };
    let places = query.survey(&DiskFiles);
    let first = places.iter().find(|place| matches!(place.kind, PathKind::SameFile | PathKind::Real));
    match first {
        None => Some(Finding::note(
            AREA,
            "codemie is not on PATH",
            format!("add {} to PATH", machine.codemie.parent().unwrap_or(Path::new("/")).display()),
        )),
        Some(place) if place.kind == PathKind::Real => Some(Finding::warn(
            AREA,
            format!("`codemie` runs another program, {}", place.path.display()),
            "remove it, or put this one's folder before it on PATH",
        )),
        Some(_) => None,
    }
}

fn home_folder(path: &Path) -> Vec<Finding> {
    let shown = path.display();
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.ancestors().skip(1).find(|folder| folder.is_dir());
            let writable = parent.is_some_and(|parent| {
                accessat(CWD, parent, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok()
            });
            return vec![if writable {
                Finding::ok(AREA, format!("{shown} is not there yet; the first session makes it"))
            } else {
                Finding::error(
                    AREA,
                    format!("{shown} cannot be made, so nothing is tracked"),
                    "set CODEMIE_HOME to a folder you may write to",
                )
            }];
        }
        Err(error) => {
            return vec![Finding::error(
                AREA,
                format!("{shown} cannot be looked at: {error}"),
                "set CODEMIE_HOME to a folder of your own",
            )];
        }
    };
    if !meta.is_dir() {
        return vec![Finding::error(AREA, format!("{shown} is not a folder"), "move it away")];
    }
    let word = shell::path(path);
    let mut findings = Vec::new();
    if meta.uid() != rustix::process::geteuid().as_raw() {
        findings.push(Finding::warn(
            AREA,
            format!("{shown} belongs to another user"),
            format!("run: sudo chown -R \"$(id -un)\" {word}"),
        ));
    }
    if meta.mode() & 0o077 != 0 {
        findings.push(Finding::warn(
            AREA,
            format!("{shown} is open to others (mode {:o})", meta.mode() & 0o7777),
            format!("run: chmod 700 {word}"),
        ));
    }
    findings.extend(space(path));
    match tempfile::tempfile_in(path) {
        Ok(_) if findings.is_empty() => {
            findings.push(Finding::ok(AREA, format!("{shown} is private and writable")));
        }
        Ok(_) => {}
        Err(error) => findings.push(not_writable(path, &error)),
    }
    findings
}

fn not_writable(path: &Path, error: &io::Error) -> Finding {
    let shown = path.display();
    let (why, fix) = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            ("is on a read-only file system".to_owned(), "set CODEMIE_HOME to a folder elsewhere".to_owned())
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ("is on a full disk".to_owned(), "make room; `codemie prune` removes old sessions".to_owned())
        }
        io::ErrorKind::PermissionDenied => {
            ("is not writable".to_owned(), format!("run: chmod u+rwx {}", shell::path(path)))
        }
        _ => (format!("is not writable ({error})"), "set CODEMIE_HOME to a folder elsewhere".to_owned()),
    };
    Finding::error(AREA, format!("{shown} {why}, so nothing is tracked"), fix)
}

fn space(path: &Path) -> Option<Finding> {
    let disk = statvfs(path).ok()?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    // Some file systems (9p, some FUSE ones) count nothing at all.
    let counted = disk.f_blocks > 0;
    (counted && free < LITTLE_SPACE).then(|| {
        Finding::warn(
            AREA,
            format!("only {} MiB are free at {}", free / 1024 / 1024, path.display()),
            "make room; `codemie prune` removes old sessions",
        )
    })
}

fn database(home: &Home) -> Option<Finding> {
    let file = home.database();
    let meta = std::fs::metadata(&file).ok()?;
    let mode = meta.mode() & 0o7777;
    (mode & 0o077 != 0).then(|| {
        let shown = file.display();
        Finding::warn(
            AREA,
            format!("{shown} is open to others (mode {mode:o})"),
            format!("run: chmod 600 {}", shell::path(&file)),
        )
    })
}

fn settings(home: &Home, agents: &[&str]) -> Vec<Finding> {
    let file = home.config_file();
    let var = own_var;
    let config = Config::load(Some(&file), var, agents);
    let fix = format!("edit {}", file.display());
    let mut findings: Vec<_> =
        config.problems.into_iter().map(|problem| Finding::error(AREA, problem, fix.clone())).collect();
    findings.extend(
        Settings::read(Some(&file), var)
            .unknown(agents)
            .into_iter()
            .filter(|unknown| unknown.meant.is_none())
            .map(|unknown| {
                let what = format!("config.toml: {} means nothing to this version", unknown.key);
                Finding::note(AREA, what, fix.clone())
            }),
    );
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn levels(findings: &[Finding]) -> Vec<Level> {
        findings.iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn a_folder_open_to_others_is_found_with_the_command_that_closes_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let findings = home_folder(folder.path());
        assert_eq!(levels(&findings), [Level::Warn]);
        assert!(findings[0].fix.as_ref().unwrap().starts_with("run: chmod 700 "), "{findings:?}");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(levels(&home_folder(folder.path())), [Level::Ok]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "looking leaves nothing behind");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(levels(&home_folder(file.path())), [Level::Error]);
        assert_eq!(levels(&home_folder(&file.path().join("inside"))), [Level::Error]);
        let kinds = [
            (io::ErrorKind::ReadOnlyFilesystem, "read-only"),
            (io::ErrorKind::StorageFull, "full disk"),
            (io::ErrorKind::PermissionDenied, "not writable"),
        ];
        for (kind, word) in kinds {
            let finding = not_writable(Path::new("/x"), &kind.into());
            assert!(finding.level == Level::Error && finding.what.contains(word), "{finding:?}");
        }
        let denied = not_writable(Path::new("/it's"), &io::ErrorKind::PermissionDenied.into());
        assert_eq!(denied.fix.as_deref(), Some(r"run: chmod u+rwx '/it'\''s'"));
    }

    #[test]
    fn a_database_open_to_others_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        assert_eq!(database(&home), None);
        fs::write(home.database(), "").unwrap();
        fs::set_permissions(home.database(), fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(database(&home).unwrap().level, Level::Warn);
        fs::set_permissions(home.database(), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(database(&home), None);
    }

    #[test]
    fn a_broken_setting_is_an_error_and_an_unknown_one_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        fs::write(home.config_file(), "wat = 1\n[agent.claude]\ninject = 'x'\n").unwrap();
        assert_eq!(levels(&settings(&home, &["claude"])), [Level::Error, Level::Note]);
    }
}
