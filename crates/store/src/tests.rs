//! Opening, damage, versions, power: the file itself.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method alone does not fit: its lifetime is bound early"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Barrier;
use std::thread;

use super::{Error, Store, schema};
use crate::session::lifecycle::ConversationStart;
use crate::session::testing::{World, check};
use os::home::Home;
use types::Timestamp;

fn home() -> (tempfile::TempDir, Home) {
    let folder = tempfile::tempdir().unwrap();
    let home = Home::at(folder.path().join("home"));
    (folder, home)
}

const AT: Timestamp = Timestamp(1_794_787_572_577);

#[test]
fn only_its_owner_can_read_it() {
    let (_folder, home) = home();
    let mut store = Store::open(&home, AT).unwrap();
    store.write(|tx| tx.set_setting("a", "b")).unwrap();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.path()), 0o700);
    for entry in fs::read_dir(home.path()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert!(home.path().join("codemie.db-wal").exists());
}

#[test]
fn a_newer_database_is_left_alone() {
    let (_folder, home) = home();
    drop(Store::open(&home, AT).unwrap());
    let other = rusqlite::Connection::open(home.database()).unwrap();
    other.pragma_update(None, "user_version", 99).unwrap();
    drop(other);
    match Store::open(&home, AT) {
        Err(Error::Newer { found, known }) => assert_eq!((found, known), (99, schema::KNOWN)),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().filter(is_damaged).count(), 0);
}

fn is_damaged(entry: &std::io::Result<fs::DirEntry>) -> bool {
    entry.as_ref().unwrap().file_name().to_string_lossy().contains(".damaged-")
}

#[test]
fn a_damaged_database_is_set_aside_and_told_of() {
    for damage in
        ["", "this is no database, whatever its name says", "SQLite format 3\0 and then nothing of the kind"]
    {
        let (_folder, home) = home();
        fs::create_dir_all(home.path()).unwrap();
        fs::write(home.database(), damage).unwrap();
        fs::write(home.path().join("codemie.db-wal"), "a stale log").unwrap();
        let mut store = Store::open(&home, AT).unwrap();
        check(store.sql());
        let incidents = store.read(|view| view.incidents()).unwrap();
        assert_eq!(incidents.len(), 1, "{damage:?}");
        assert_eq!(incidents[0].at, AT);
        let aside = home.path().join("codemie.db.damaged-20261116T000612577Z");
        assert_eq!(fs::read_to_string(&aside).unwrap(), damage);
        assert!(incidents[0].detail.contains(&aside.display().to_string()), "{}", incidents[0].detail);
    }
}

#[test]
fn damage_met_in_the_middle_of_work_is_set_aside_at_the_next_start() {
    let mut world = World::new();
    for _ in 0..200 {
        world.start(ConversationStart::Fresh);
    }
    world.store.checkpoint().unwrap();
    let root: u32 = world
        .store
        .sql()
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'event'", [], |row| row.get(0))
        .unwrap();
    let file = fs::OpenOptions::new().write(true).open(world.home.database()).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xa5; 4096], u64::from(root - 1) * 4096).unwrap();

    let mut store = world.another();
    let met = store.read(|view| view.events(1));
    assert!(matches!(met, Err(Error::Damaged(_))), "{met:?}");
    drop((store, met));
    let mut fresh = world.another();
    assert_eq!(fresh.read(|view| view.incidents()).unwrap().len(), 1);
    assert!(fresh.read(|view| view.list(&super::SessionQuery::default())).unwrap().is_empty());
    assert_eq!(fs::read_dir(world.home.path()).unwrap().filter(is_damaged).count(), 3, "with its log");
    assert_eq!(world.another().read(|view| view.incidents()).unwrap().len(), 1, "once");
}

#[test]
fn a_false_alarm_sets_nothing_aside() {
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Fresh);
    super::open::suspect(&world.home.database());
    let mut store = world.another();
    assert!(store.read(|view| view.session(started.session)).unwrap().is_some());
    assert!(!world.home.path().join("codemie.db.suspect").exists());
}

#[test]
fn twenty_processes_that_find_the_damage_at_once_set_it_aside_once() {
    let (_folder, home) = home();
    fs::create_dir_all(home.path()).unwrap();
    fs::write(home.database(), "damage").unwrap();
    let barrier = Barrier::new(20);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                barrier.wait();
                let mut store = Store::open(&home, AT).unwrap();
                store.write(|tx| tx.note_incident(AT, "mine", "")).unwrap();
            });
        }
    });
    let mut store = Store::open(&home, AT).unwrap();
    let incidents = store.read(|view| view.incidents()).unwrap();
    assert_eq!(incidents.iter().filter(|incident| incident.kind == "damaged").count(), 1);
    assert_eq!(incidents.len(), 21, "a write went into a database that was set aside");
    assert_eq!(fs::read_dir(home.path()).unwrap().filter(is_damaged).count(), 1);
}

#[test]
fn a_home_that_cannot_be_written_is_said_so() {
    // Nobody, root included, may write there.
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(Store::open(&Home::at(file.path().join("home")), AT).is_err());
    testing::as_ordinary_user(|| {
        let (_folder, home) = home();
        fs::create_dir_all(home.path()).unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o500)).unwrap();
        let opened = Store::open(&home, AT).map(drop);
        assert!(matches!(opened, Err(Error::ReadOnly(_))), "{opened:?}");
    });
}

#[test]
fn a_full_disk_is_said_so_and_takes_everything_back() {
    let mut world = World::new();
    let (_, first) = world.start(ConversationStart::Fresh);
    world.store.sql().query_row("PRAGMA max_page_count = 1", [], |_| Ok(())).unwrap();
    let big = "x".repeat(100_000);
    let refused = world.store.write(|tx| tx.set_setting("big", &big));
    assert!(matches!(refused, Err(Error::Full)), "{refused:?}");
    world.check();
    assert_eq!(world.events(first.session).len(), 1);
}

#[test]
fn a_process_killed_in_a_transaction_leaves_nothing_of_it() {
    // A connection that vanishes without commit is what other processes see of one that was killed.
    let mut world = World::new();
    let begin = world.begin(ConversationStart::Fresh);
    let other = world.another();
    other.sql().execute_batch("BEGIN IMMEDIATE; INSERT INTO setting VALUES ('half', 'done')").unwrap();
    std::mem::drop(other);
    let (_, started) = world.start_as(&begin);
    assert_eq!(world.events(started.session).len(), 1);
    assert_eq!(world.store.read(|view| view.setting("half")).unwrap(), None);
}

#[test]
fn durable_means_up_to_the_last_change_and_costs_nothing_twice() {
    let mut world = World::new();
    world.start(ConversationStart::Fresh);
    assert_eq!(world.store.make_durable().unwrap(), 1);
    let before = world.store.log_bytes();
    assert_eq!(world.store.make_durable().unwrap(), 1);
    assert_eq!(world.store.log_bytes(), before, "nothing new, nothing written");
    world.start(ConversationStart::Fresh);
    assert_eq!(world.store.make_durable().unwrap(), 2);
    let synchronous: i64 = world.store.sql().query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap();
    assert_eq!(synchronous, 1, "back to NORMAL");
}

#[test]
fn a_checkpoint_shortens_the_log_and_loses_nothing() {
    let mut world = World::new();
    for _ in 0..50 {
        world.start(ConversationStart::Fresh);
    }
    let before = world.store.log_bytes();
    world.store.checkpoint().unwrap();
    world.start(ConversationStart::Fresh);
    assert_eq!(world.store.log_bytes(), before, "the log starts over inside the same file");
    world.check();
    let copied = tempfile::NamedTempFile::new().unwrap();
    fs::copy(world.home.database(), copied.path()).unwrap();
    let alone = rusqlite::Connection::open(copied.path()).unwrap();
    let sessions: i64 = alone.query_row("SELECT count(*) FROM session", [], |row| row.get(0)).unwrap();
    assert_eq!(sessions, 50, "the database file alone holds what was there at the checkpoint");
}

/// Sums that were filled up are those of the records again when these are revised.
#[test]
fn sums_near_the_limit_are_exact_after_revisions() {
    use crate::session::absorb::{Batch, absorb};
    use crate::session::testing::usage;
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Fresh);
    world.bind(started.session, "a").unwrap();
    let (at, n) = (world.now, world.session(started.session).n);
    // Six times four million dollars, then a cent each, then six times as much again.
    for (round, (output, cost)) in (1..).zip([
        (1, 4_000_000_000_000_000_000),
        (2, 10_000_000_000),
        (3, 4_000_000_000_000_000_000),
        (4, 7),
    ]) {
        for (inode, key) in (1..).zip(["a", "b", "c", "d", "e", "f"]) {
            let mut record = usage(key, at, output);
            record.cost = Some(super::PicoDollars(cost));
            let batch = Batch {
                file: super::FileId { device: round, inode },
                path: "/a".as_ref(),
                from: 0,
                restart: false,
                to: 1,
                state: &[],
                unreadable: 0,
                records: std::slice::from_ref(&record),
            };
            world.store.write(|tx| absorb(tx, at, started.session, &batch)).unwrap();
        }
        let totals = world.store.read(|view| view.totals(n)).unwrap();
        let exact = i64::try_from(6 * i128::from(cost)).unwrap_or(i64::MAX);
        assert_eq!(
            (totals.calls.cost.0, totals.calls.output),
            (exact, 6 * i64::try_from(output).unwrap()),
            "round {round}"
        );
    }
}

/// Whatever stands in the rows, it can be added up.
#[test]
fn absurd_numbers_do_not_keep_the_rest_from_being_told() {
    use crate::session::absorb::{Batch, absorb};
    use crate::session::testing::rows_of;
    use crate::session::testing::usage;
    use usage::By;
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Fresh);
    world.bind(started.session, "a").unwrap();
    let at = world.now;
    let mut records = [usage("one", at, 1), usage("two", at, 2), usage("three", at, 3)];
    for priced in &mut records {
        priced.cost = Some(super::PicoDollars(i64::MAX));
        if let agents::meter::record::Fact::Usage(usage) = &mut priced.record.fact {
            usage.tokens.input = u64::MAX;
            usage.tokens.cache_write_1h = u64::MAX;
        }
    }
    for (inode, record) in (1..).zip(&records) {
        let batch = Batch {
            file: super::FileId { device: 1, inode },
            path: "/a".as_ref(),
            from: 0,
            restart: false,
            to: 1,
            state: &[],
            unreadable: 0,
            records: std::slice::from_ref(record),
        };
        world.store.write(|tx| absorb(tx, at, started.session, &batch)).unwrap();
    }
    let n = world.session(started.session).n;
    let totals = world.store.read(|view| view.totals(n)).unwrap();
    assert_eq!((totals.calls.api_calls, totals.calls.output, totals.calls.input), (3, 6, i64::MAX));
    world.store.write(|tx| tx.recount(n)).unwrap();
    let recounted = world.store.read(|view| view.totals(n)).unwrap();
    assert_eq!(recounted, totals);
    let rows = world.store.read(|view| rows_of(view, By::Model, None)).unwrap();
    assert_eq!(
        (rows.len(), rows[0].sums.output, rows[0].sums.cost.0, rows[0].sums.cache_write),
        (1, 6, i64::MAX, i64::MAX)
    );
    assert_eq!(world.store.read(|view| view.model_sums(n)).unwrap()[0].calls.input, i64::MAX);
    assert_eq!(world.store.read(|view| view.opening_totals(n, 1)).unwrap().calls.input, i64::MAX);
}

#[test]
fn sums_are_exact() {
    let sql = rusqlite::Connection::open_in_memory().unwrap();
    sql.execute_batch("CREATE TABLE t (a INTEGER) STRICT").unwrap();
    let sum = |sql: &rusqlite::Connection| -> i64 {
        sql.query_row(&format!("SELECT {} FROM t", super::total::sum("a")), [], |row| row.get(0)).unwrap()
    };
    assert_eq!(sum(&sql), 0);
    let values = [9_007_199_254_740_993, -5, 4_294_967_296, 4_294_967_295, -9_007_199_254_740_993, 17];
    for value in values {
        sql.execute("INSERT INTO t VALUES (?1)", [value]).unwrap();
    }
    assert_eq!(sum(&sql), values.iter().sum::<i64>());
}
