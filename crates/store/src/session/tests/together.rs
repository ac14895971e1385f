//! Many at once on one database.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;

use super::super::absorb::{Absorbed, Batch, absorb};
use super::super::lifecycle::{self, Binding, ConversationStart, Transition};
use super::super::state::{Ending, Exit};
use super::{World, agent_session, check, usage};
use crate::session::recover::recover;
use crate::{BootAndPidNs, FileId, Priced, Store};
use os::home::Home;
use pty::process::SystemProcesses;
use types::EvidenceKind;
use types::RandomIds;
use types::Timestamp;
use types::TransitionKind;

#[test]
fn fifty_wrappers_in_one_folder() {
    // The database does not exist yet: they also race to make it.
    let folder = tempfile::tempdir().unwrap();
    let home = Home::at(folder.path().join("home"));
    let barrier = Barrier::new(50);
    let template = World::new().begin(ConversationStart::Fresh);
    thread::scope(|scope| {
        for writer in 0..50_i64 {
            let (home, barrier, mut begin) = (&home, &barrier, template.clone());
            scope.spawn(move || {
                begin.run.id = super::Ids::run(&RandomIds);
                let run = begin.run.id;
                barrier.wait();
                let at = Timestamp(1_794_000_000_000 + writer);
                let mut store = Store::open(home, at).unwrap();
                let mut session =
                    store.write(|tx| lifecycle::start(tx, at, &RandomIds, &begin)).unwrap().session;
                for clear in 0..4 {
                    let binding = Binding {
                        agent_session: agent_session(&format!("{writer}-{clear}")),
                        file: None,
                        evidence: EvidenceKind::Registry,
                    };
                    store.write(|tx| lifecycle::bind(tx, at, &RandomIds, session, &binding)).unwrap();
                    let records = [usage(&format!("{writer}-{clear}-m"), at, 10)];
                    let batch = Batch {
                        file: FileId { device: 1, inode: u64::try_from(writer * 10 + clear).unwrap() },
                        path: Path::new("/f"),
                        from: 0,
                        restart: false,
                        to: 10,
                        state: &[],
                        unreadable: 0,
                        records: &records,
                    };
                    store.write(|tx| absorb(tx, at, session, &batch)).unwrap();
                    let change = Transition { kind: TransitionKind::Clear, binding: None, workspace: None };
                    let result =
                        store.write(|tx| lifecycle::transition(tx, at, &RandomIds, run, &change)).unwrap();
                    session = result.new.session;
                }
                store.write(|tx| lifecycle::end(tx, at, run, Ending::exited(Exit::Code(0)))).unwrap();
            });
        }
    });
    let mut store = Store::open(&home, Timestamp(0)).unwrap();
    check(store.sql());
    let count = |sql: &str| store.sql().query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM session"), 250);
    assert_eq!(count("SELECT count(DISTINCT name) FROM session"), 250);
    assert_eq!(count("SELECT sum(output) FROM total"), 2000);
    assert_eq!(count("SELECT count(*) FROM event"), count("SELECT max(change) FROM event"));
    store.checkpoint().unwrap();
}

#[test]
fn two_readers_of_one_file_count_each_call_once() {
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Fresh);
    world.bind(started.session, "a").unwrap();
    let at = world.now;
    let lines: Vec<Priced> = (0..200).map(|n| usage(&format!("m{n}"), at, 1)).collect();
    let barrier = Barrier::new(4);
    thread::scope(|scope| {
        for reader in 0..4_usize {
            let (mut store, lines, barrier) = (world.another(), &lines, &barrier);
            let session = started.session;
            scope.spawn(move || {
                barrier.wait();
                let mut from = 0_usize;
                while from < lines.len() {
                    // Each in strides of its own, so they meet in the middle of each other's.
                    let to = (from + 3 + reader).min(lines.len());
                    let batch = Batch {
                        file: FileId { device: 1, inode: 7 },
                        path: Path::new("/f"),
                        from: from as u64,
                        restart: false,
                        to: to as u64,
                        state: &[],
                        unreadable: 0,
                        records: &lines[from..to],
                    };
                    from = match store.write(|tx| absorb(tx, at, session, &batch)).unwrap() {
                        Absorbed::Written(_) => to,
                        Absorbed::Elsewhere(position) => {
                            usize::try_from(position.map_or(0, |position| position.offset)).unwrap()
                        }
                    };
                }
            });
        }
    });
    world.check();
    let row = world.session(started.session);
    assert_eq!(world.store.read(|view| view.totals(row.n)).unwrap().calls.api_calls, 200);
    assert_eq!(row.last_seq, 202);
}

const VICTIM: &str = "CODEMIE_TEST_VICTIM_HOME";

/// Not a test of its own: what the next one starts and kills. Says a word after each commit.
#[test]
fn victim() {
    let Some(folder) = std::env::var_os(VICTIM) else { return };
    let home = Home::at(folder);
    let at = Timestamp(1_794_000_000_000);
    let mut store = Store::open(&home, at).unwrap();
    let mut begin = World::new().begin(ConversationStart::Fresh);
    begin.run.id = super::Ids::run(&RandomIds);
    begin.run.realm = BootAndPidNs::here();
    let me = types::Pid(i32::try_from(std::process::id()).unwrap());
    begin.run.wrapper = pty::process::Processes::identify(&SystemProcesses, me).unwrap();
    let mut session = store.write(|tx| lifecycle::start(tx, at, &RandomIds, &begin)).unwrap().session;
    for round in 0_u64.. {
        let key = format!("{session}-{round}");
        let binding =
            Binding { agent_session: agent_session(&key), file: None, evidence: EvidenceKind::Registry };
        store.write(|tx| lifecycle::bind(tx, at, &RandomIds, session, &binding)).unwrap();
        println!("bound");
        let records: Vec<_> = (0..20).map(|n| usage(&format!("{key}-{n}"), at, 1)).collect();
        let batch = Batch {
            file: FileId { device: u64::from(std::process::id()), inode: round },
            path: Path::new("/f"),
            from: 0,
            restart: false,
            to: 20,
            state: &[],
            unreadable: 0,
            records: &records,
        };
        store.write(|tx| absorb(tx, at, session, &batch)).unwrap();
        println!("absorbed");
        let change = Transition { kind: TransitionKind::Clear, binding: None, workspace: None };
        session = store
            .write(|tx| lifecycle::transition(tx, at, &RandomIds, begin.run.id, &change))
            .unwrap()
            .new
            .session;
        println!("passed");
        if round % 3 == 0 {
            store.checkpoint().unwrap();
            store.make_durable().unwrap();
            println!("durable");
        }
    }
}

#[test]
fn killed_at_any_moment_nothing_is_half_done_and_recovery_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let home = Home::at(folder.path().join("home"));
    for words in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "session::tests::together::victim", "--nocapture"])
            .env(VICTIM, home.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It is in the middle of whatever comes after that many words.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let announced =
            lines.by_ref().filter(|line| ["bound", "absorbed", "passed", "durable"].contains(&&**line));
        assert_eq!(announced.take(words + 1).count(), words + 1);
        child.kill().unwrap();
        child.wait().unwrap();

        let mut store = Store::open(&home, Timestamp(0)).unwrap();
        check(store.sql());
        let ended = recover(
            &mut store,
            &SystemProcesses,
            &BootAndPidNs::here(),
            Timestamp(i64::MAX),
            |_| None,
            |_, _, _| Ok(None),
        )
        .unwrap();
        assert_eq!(ended.len(), 1);
        check(store.sql());
        let open = "SELECT count(*) FROM session WHERE phase <> 'closed'";
        assert_eq!(store.sql().query_row(open, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    }
}
