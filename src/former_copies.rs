//! The databases `dashboard.db` and `history.db`, into which earlier versions copied the store for the dashboard. Nothing reads them
//! any more, and they may be large.

use std::fs;
use std::path::Path;

use os::home::Home;
use rusqlite::{Connection, OpenFlags};

/// Removes them. A file that is no such copy stays.
pub fn remove(home: &Home) {
    for path in home.former_dashboard_copies() {
        if !is_copy(&path) {
            continue;
        }
        for suffix in ["-wal", "-shm", ""] {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            match fs::remove_file(&name) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(%error, file = ?name, "a copy of an earlier version cannot be removed");
                }
                _ => {}
            }
        }
    }
}

/// Whether it is a database that says how far a store was copied into it.
fn is_copy(path: &Path) -> bool {
    if !fs::symlink_metadata(path).is_ok_and(|file| file.is_file()) {
        return false;
    }
    let open = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let copy = Connection::open_with_flags(path, flags)?;
        copy.prepare("SELECT database, change, kept_back FROM copy").map(drop)?;
        copy.prepare("SELECT session, calls, tokens FROM beside").map(drop)
    };
    open().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_earlier_versions_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path());
        let [copy, other] = home.former_dashboard_copies();
        let made = |path: &Path, sql: &str| Connection::open(path).unwrap().execute_batch(sql).unwrap();
        let tables = "CREATE TABLE copy (one, database, change, kept_back); CREATE TABLE beside (session, calls, tokens);";
        made(&copy, &format!("PRAGMA journal_mode = WAL; {tables}"));
        made(&other, "CREATE TABLE mine (a)");
        fs::write(folder.path().join("dashboard.db-wal"), "").unwrap();
        let names = || {
            let mut names: Vec<_> =
                fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        remove(&home);
        assert_eq!(names(), ["history.db"]);
        fs::write(&other, "no database, but long enough to be looked at").unwrap();
        remove(&home);
        assert_eq!(names(), ["history.db"], "somebody else's");
        fs::remove_file(&other).unwrap();
        made(&other, tables);
        remove(&home);
        assert!(names().is_empty());
    }
}
