//! The tables, and how a database of an earlier version gets them. `user_version` counts the steps that a database has had.
//!
//! A new database is made by `schema/current.sql`. An older one becomes the same by the files of `schema/steps`: a step is never edited
//! after a release; the next one is appended, and the current schema changed with it.
//!
//! # The copy
//! Before the steps are committed, the database as it was is kept beside it (`codemie.db.before-upgrade`): what a step gets wrong can
//! be looked up there, and the version before can be gone back to. It is read by a second connection while the first has the right to
//! write, so it holds exactly what the steps began with. There is one: the next migration puts its own in its place.
//!
//! Where there is no room for it, or it cannot be written, the migration says so in the log and goes on. The steps themselves are one
//! transaction, which a full disk takes back whole; to refuse would stop all recording for the lack of something that hardly anybody
//! ever needs.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use rustix::fs::statvfs;

use super::Error;
use super::open::{remove, with_suffix};
use super::row::read_value;
use os::file::open_regular_with;

/// The schema version this binary knows.
pub(super) const KNOWN: i64 = 17;

const CURRENT: &str = include_str!("../schema/current.sql");

const STEPS: [&str; 17] = [
    include_str!("../schema/steps/01.sql"),
    include_str!("../schema/steps/02.sql"),
    include_str!("../schema/steps/03.sql"),
    include_str!("../schema/steps/04.sql"),
    include_str!("../schema/steps/05.sql"),
    include_str!("../schema/steps/06.sql"),
    include_str!("../schema/steps/07.sql"),
    include_str!("../schema/steps/08.sql"),
    include_str!("../schema/steps/09.sql"),
    include_str!("../schema/steps/10.sql"),
    include_str!("../schema/steps/11.sql"),
    include_str!("../schema/steps/12.sql"),
    include_str!("../schema/steps/13.sql"),
    include_str!("../schema/steps/14.sql"),
    include_str!("../schema/steps/15.sql"),
    include_str!("../schema/steps/16.sql"),
    include_str!("../schema/steps/17.sql"),
];

/// The copy of a database as it was before its last migration: its path's suffix.
const COPY: &str = ".before-upgrade";

/// The version a database is at; reading it also proves that the file is a database.
pub(super) fn version(conn: &Connection) -> Result<i64, Error> {
    Ok(conn.query_row("PRAGMA user_version", [], read_value)?)
}

/// Makes the tables in an empty database.
pub(super) fn create(conn: &mut Connection) -> Result<(), Error> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(CURRENT)?;
    tx.pragma_update(None, "user_version", KNOWN)?;
    Ok(tx.commit()?)
}

/// Brings the database at a path to the known version. Of two processes that try at once, the second finds nothing to do.
pub(super) fn migrate(conn: &mut Connection, path: &Path) -> Result<(), Error> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = version(&tx)?;
    if found > KNOWN {
        return Err(Error::Newer { found, known: KNOWN });
    }
    let done = usize::try_from(found).unwrap_or(0);
    if done == STEPS.len() {
        return Ok(());
    }
    for step in &STEPS[done..] {
        tx.execute_batch(step)?;
    }
    tx.pragma_update(None, "user_version", KNOWN)?;
    match keep_copy(path, free_bytes(path)) {
        Ok(()) => tracing::info!(from = found, to = KNOWN, "the database is brought to a newer version"),
        Err(damaged @ Error::Damaged(_)) => return Err(damaged),
        Err(error) => {
            tracing::warn!(from = found, to = KNOWN, %error, "the database is brought to a newer version without a copy of it");
        }
    }
    Ok(tx.commit()?)
}

/// Copies what is committed of a database. Twice its size must be free: the steps need room, too.
fn keep_copy(path: &Path, free: u64) -> Result<(), Error> {
    let size = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
    if free / 2 < size(path) + size(&with_suffix(path, "-wal")) {
        return Err(Error::Full);
    }
    let copy = with_suffix(path, COPY);
    let draft = with_suffix(&copy, ".new");
    remove(&draft)?;
    let written = write_copy(path, &draft);
    if written.is_err() {
        remove(&draft)?;
    }
    written?;
    fs::rename(&draft, &copy).map_err(|source| Error::io(&copy, source))
}

fn write_copy(path: &Path, draft: &Path) -> Result<(), Error> {
    let failed = |source: io::Error| Error::io(draft, source);
    // SQLite takes an empty file for none, and leaves it readable for its owner alone.
    let file = open_regular_with(OpenOptions::new().write(true).create_new(true).mode(0o600), draft)
        .map_err(failed)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)?.execute("VACUUM INTO ?1", [draft.to_string_lossy()])?;
    file.sync_all().map_err(failed)
}

/// What is free where a file is; all, where that cannot be told.
fn free_bytes(path: &Path) -> u64 {
    let folder = path.parent().unwrap_or(path);
    statvfs(folder).map_or(u64::MAX, |room| room.f_bavail.saturating_mul(room.f_frsize))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    use rusqlite::types::Value;

    use super::*;
    use crate::Store;
    use os::home::Home;
    use types::Timestamp;

    const ROWS: &str = include_str!("../fixtures/rows.sql");

    /// A database as it was after a number of steps, with rows in all tables of that time.
    fn old(conn: &Connection, steps: usize) {
        for (step, sql) in (1..=steps).zip(STEPS) {
            conn.execute_batch(sql).unwrap();
            let rows = ROWS.split("\n-- step ").find_map(|part| part.strip_prefix(&format!("{step}\n")));
            conn.execute_batch(rows.unwrap()).unwrap();
        }
        conn.pragma_update(None, "user_version", i64::try_from(steps).unwrap()).unwrap();
    }

    fn texts(conn: &Connection, sql: &str) -> Vec<String> {
        conn.prepare(sql).unwrap().query_map([], read_value).unwrap().collect::<Result<_, _>>().unwrap()
    }

    const TABLES: &str =
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1";

    /// By table, the rows; each with its values by column.
    type Rows = BTreeMap<String, Vec<BTreeMap<String, Value>>>;

    fn rows(conn: &Connection) -> Rows {
        let read = |table: &String| {
            let mut statement = conn.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).unwrap();
            let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let row = |row: &rusqlite::Row<'_>| {
                names.iter().map(|name| Ok((name.clone(), row.get(name.as_str())?))).collect()
            };
            statement.query_map([], row).unwrap().collect::<Result<Vec<_>, _>>().unwrap()
        };
        texts(conn, TABLES).into_iter().map(|table| (table.clone(), read(&table))).collect()
    }

    /// The statements that made the tables, without comments and with one space between words; indexes in the order in which they
    /// were made, which decides between two that serve a query alike.
    fn schema(conn: &Connection) -> Vec<String> {
        let sql = "SELECT tbl_name || ' ' || type || ': ' || sql FROM sqlite_schema WHERE sql IS NOT NULL
                   ORDER BY tbl_name, type, rowid";
        let plain = |sql: String| {
            let lines = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
            let spaced = lines
                .collect::<Vec<_>>()
                .join(" ")
                .replace(',', " , ")
                .replace('(', " ( ")
                .replace(')', " ) ");
            spaced.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        texts(conn, sql).into_iter().map(plain).collect()
    }

    #[test]
    fn all_steps_come_to_the_current_schema() {
        let (stepped, mut current) =
            (Connection::open_in_memory().unwrap(), Connection::open_in_memory().unwrap());
        assert_eq!(i64::try_from(STEPS.len()), Ok(KNOWN));
        for step in STEPS {
            stepped.execute_batch(step).unwrap();
        }
        create(&mut current).unwrap();
        assert_eq!(schema(&stepped), schema(&current));
        assert_eq!(rows(&stepped), rows(&current), "what every database begins with");
    }

    #[test]
    fn rows_of_every_step_survive_and_a_copy_keeps_them_as_they_were() {
        for step in 1..=STEPS.len() {
            let folder = tempfile::tempdir().unwrap();
            let path = Home::at(folder.path()).database();
            let conn = Connection::open(&path).unwrap();
            conn.query_row("PRAGMA journal_mode = WAL", [], read_value::<String>).unwrap();
            old(&conn, step);
            let before = rows(&conn);
            let empty: Vec<_> = before.iter().filter(|(_, rows)| rows.is_empty()).collect();
            assert!(empty.is_empty(), "step {step}: no rows in {empty:?}");
            drop(conn);

            let store = Store::open(&Home::at(folder.path()), Timestamp(0)).unwrap();
            let after = rows(store.sql());
            for (table, rows) in &before {
                // Step 3 takes this one away.
                let Some(after) = after.get(table) else {
                    assert_eq!(table, "agent_version");
                    continue;
                };
                assert_eq!(rows.len(), after.len(), "step {step}: {table}");
                for (old, new) in rows.iter().zip(after) {
                    for (column, value) in old {
                        let rewritten = matches!(
                            (table.as_str(), column.as_str()),
                            ("sink", "target")
                                | ("letter", "reason")
                                | ("session", "local_only" | "active_at")
                        );
                        assert!(
                            rewritten || new.get(column) == Some(value),
                            "step {step}: {table}.{column}: {new:?}"
                        );
                    }
                }
            }
            let copy = with_suffix(&path, COPY);
            assert_eq!(copy.exists(), step < STEPS.len(), "step {step}");
            if copy.exists() {
                let kept = Connection::open(&copy).unwrap();
                assert_eq!(version(&kept).unwrap(), i64::try_from(step).unwrap());
                assert_eq!(rows(&kept), before, "step {step}");
                assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
            }
        }
    }

    #[test]
    fn values_that_steps_rewrite() {
        for step in 1..STEPS.len() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("old.db");
            let mut conn = Connection::open(&path).unwrap();
            conn.query_row("PRAGMA journal_mode = WAL", [], read_value::<String>).unwrap();
            old(&conn, step);
            migrate(&mut conn, &path).unwrap();
            assert_eq!(version(&conn).unwrap(), KNOWN);
            // From step 4 on, the number is in its column.
            let told = if step < 4 { "2" } else { "3" };
            assert_eq!(
                texts(&conn, "SELECT told || reason FROM letter WHERE event = 3"),
                [told],
                "step {step}"
            );
            if (2..6).contains(&step) {
                let leads = texts(
                    &conn,
                    "SELECT name || ' ' || address || ' ' || ifnull(credentials, '-') FROM sink ORDER BY 1",
                );
                assert_eq!(leads, ["native place key", "retired place -"], "step {step}");
            }
            assert_eq!(texts(&conn, "SELECT name FROM session WHERE local_only = 1"), ["old"]);
            assert_eq!(
                texts(
                    &conn,
                    "SELECT format('%d %d %d %d', width, calls, unpriced, cost) FROM spent WHERE session = 1"
                ),
                ["0 2 1 4500000000", "1 2 1 4500000000"],
                "step {step}"
            );
        }
    }

    #[test]
    fn one_copy_is_kept_and_none_where_there_is_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("codemie.db");
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
        let files = || {
            let mut names: Vec<_> =
                fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let size = fs::metadata(&path).unwrap().len();
        assert!(matches!(keep_copy(&path, 2 * size - 1), Err(Error::Full)));
        assert_eq!(files(), ["codemie.db"]);
        keep_copy(&path, 2 * size).unwrap();
        conn.execute_batch("INSERT INTO t VALUES (2)").unwrap();
        // What a process that was killed left behind is in nobody's way.
        fs::write(folder.path().join("codemie.db.before-upgrade.new"), "half").unwrap();
        keep_copy(&path, u64::MAX).unwrap();
        assert_eq!(files(), ["codemie.db", "codemie.db.before-upgrade"]);
        let kept = Connection::open(with_suffix(&path, COPY)).unwrap();
        assert_eq!(texts(&kept, "SELECT CAST(a AS TEXT) FROM t"), ["1", "2"]);
    }

    #[test]
    fn what_is_not_committed_is_not_in_the_copy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("codemie.db");
        let mut conn = Connection::open(&path).unwrap();
        conn.query_row("PRAGMA journal_mode = WAL", [], read_value::<String>).unwrap();
        conn.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        tx.execute_batch("INSERT INTO t VALUES (2)").unwrap();
        keep_copy(&path, u64::MAX).unwrap();
        let kept = Connection::open(with_suffix(&path, COPY)).unwrap();
        assert_eq!(texts(&kept, "SELECT CAST(a AS TEXT) FROM t"), ["1"]);
    }
}
