//! An old store that lies in the working folder, however large, costs a run nothing: it is taken in by a process apart.

use std::fmt::Write as _;
use std::fs;
use std::process::Stdio;

use rusqlite::Connection;
use rustix::fs::FlockOperation;
use serde_json::Value;

use crate::sandbox::{Sandbox, output_of};
use crate::support::scripted::{Scripted, await_some, install};

/// genie's store: entries with names of their own and others of one time, and nothing else up to so many bytes.
fn genie(named: usize, of_one_time: usize, bytes: usize) -> String {
    let mut text = String::from(r#"{"version":2,"sessions":{"first":{"agent":"plan"}"#);
    for n in 1..named {
        let _ = write!(
            text,
            r#","id-{n}":{{"agent":"plan","created":{},"sessionId":"id-{n}"}}"#,
            1_759_000_000_000 + n
        );
    }
    text.push_str(r#"},"agents":{"junk":[1]"#);
    for n in 0..of_one_time {
        let _ = write!(text, r#","a{n}":{{"agent":"qa","created":1759267994137}}"#);
    }
    text.push_str(r#"},"junk":["#);
    while text.len() + 3 < bytes {
        text.push_str("[],");
    }
    text + "0]}"
}

fn sessions(sandbox: &Sandbox, which: &str) -> i64 {
    let conn = Connection::open(sandbox.path(".codemie/codemie.db")).unwrap();
    conn.query_row(&format!("SELECT count(*) FROM session WHERE {which}"), [], |row| row.get(0)).unwrap()
}

#[test]
fn a_large_old_store_is_not_taken_in_by_the_run_that_finds_it() {
    let sandbox = Sandbox::new();
    let agent = install(&sandbox);
    let folder = sandbox.path("project");
    let store = sandbox.file("project/.genie/state/sessions.json", &genie(3000, 300, 14 << 20));
    let before = fs::read(&store).unwrap();
    // While this is held, another process is taking the store in, as far as anybody can tell.
    let lock = fs::File::create(sandbox.file(".codemie/run/import-found.lock", "")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();

    let mut run = Scripted::start(&sandbox, &agent, &folder, &[]);
    run.be("one");
    run.order("say first");
    run.be("two");
    run.order("say second");
    run.order("say third");
    assert_eq!(run.exit(0), Some(0));
    let output = output_of(&mut sandbox.codemie(&["list", "--json"]));
    let listed: Vec<Value> = serde_json::from_str(&output.out).unwrap();
    let summary = |record: &Value| {
        let field = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
        let id = record["correlation"]["agentSessionId"].as_str().unwrap_or_default().to_owned();
        (id, field("status"), field("endReason"), record["usage"]["apiCalls"].as_i64().unwrap())
    };
    let listed: Vec<_> = listed.iter().map(summary).collect();
    let ended =
        |id: &str, reason: &str, calls| (id.to_owned(), "completed".to_owned(), reason.to_owned(), calls);
    assert_eq!(listed, [ended("two", "exit", 2), ended("one", "clear", 1)]);

    // The next run has it taken in beside it.
    drop(lock);
    let mut next = Scripted::start(&sandbox, &agent, &folder, &[]);
    next.be("three");
    await_some("every entry of the old store", || {
        (sessions(&sandbox, "agent <> 'claude'") == 3300).then_some(())
    });
    assert_eq!(next.exit(0), Some(0));
    assert_eq!(fs::read(&store).unwrap(), before);
}

#[test]
fn a_large_old_store_is_taken_in_within_little_memory() {
    let sandbox = Sandbox::new();
    let store = sandbox.file("sessions.json", &genie(40, 40, 14 << 20));
    // In kilobytes of address space: the binary, its stacks and some room. Held as a tree of values the file takes 600 MB.
    let limited = r#"ulimit -v 240000; exec "$0" import "$1""#;
    let mut command = sandbox.command("/bin/sh");
    let output =
        output_of(command.args(["-c", limited, crate::sandbox::CODEMIE]).arg(store).stdin(Stdio::null()));
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(sessions(&sandbox, "1"), 80);
}
