//! Several runs of one agent in one folder, where no process of it is recognised: the stand-in is a script of the shell.

use rusqlite::Connection;

use crate::sandbox::Sandbox;
use crate::support::scripted::{Scripted, await_some, install};

/// The runs whose `explain` speaks of a conversation.
const JUDGED: &str =
    "SELECT count(DISTINCT run) FROM evidence WHERE agent_session = ?1 OR detail LIKE '%' || ?1 || '%'";

#[test]
fn a_file_of_another_run_is_not_taken_for_ours_where_no_process_is_recognised() {
    let sandbox = Sandbox::new();
    let stand_in = install(&sandbox);
    let database = sandbox.path(".codemie/codemie.db");
    let mut runs: Vec<Scripted> =
        (0..3).map(|_| Scripted::start(&sandbox, &stand_in, sandbox.home(), &[])).collect();
    await_some("the START of every run", || {
        let conn = Connection::open(&database).ok()?;
        let count: i64 = conn.query_row("SELECT count(*) FROM session", [], |row| row.get(0)).ok()?;
        (count == 3).then_some(())
    });
    for run in &runs {
        run.await_first_look();
    }
    // Before any process registers, one of them begins a conversation.
    let at = os::clock::Clock::now(&os::clock::SystemClock);
    let folder = std::fs::canonicalize(sandbox.home()).unwrap();
    let line = format!(
        r#"{{"type":"user","sessionId":"stranger","cwd":"{}","timestamp":"{at}","message":{{"content":"hi"}}}}"#,
        folder.display()
    );
    runs[0].order(&format!("write stranger {line}"));
    await_some("the judgement of every run", || {
        let conn = Connection::open(&database).ok()?;
        let judged: i64 = conn.query_row(JUDGED, ["stranger"], |row| row.get(0)).ok()?;
        (judged == 3).then_some(())
    });
    for (run, id) in runs.iter_mut().zip(["one", "two", "three"]) {
        run.be(id);
    }
    let conn = Connection::open(&database).unwrap();
    let mut sessions =
        conn.prepare("SELECT agent_session, ended_at FROM session ORDER BY agent_session").unwrap();
    let sessions: Vec<(Option<String>, Option<i64>)> =
        sessions.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    let expected = ["one", "three", "two"].map(|id| (Some(id.to_owned()), None));
    assert_eq!(sessions, expected, "no END and no further START");
    for run in runs {
        assert_eq!(run.exit(0), Some(0));
    }
}
