//! What commands read and change.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::super::lifecycle::{self, ConversationStart, RunStart};
use super::super::prune::{prune, remove};
use super::super::publish::publish;
use super::super::record::{record, records};
use super::super::state::{Ending, Exit};
use super::super::{Error, labels};
use super::{World, agent_session, usage};
use crate::session::testing::rows_of;
use crate::{FileId, Priced, SessionQuery, Show};
use agents::meter::record::Fact;
use types::{EndReason, Filter, Pid, SessionId, Span, Status, Timestamp};
use usage::By;

impl World {
    fn publish(&mut self) -> usize {
        publish(&mut self.store, &self.home, self.now).unwrap()
    }

    fn published(&self, id: SessionId) -> Option<Value> {
        let text = fs::read_to_string(self.home.published_sessions().join(format!("{id}.json"))).ok()?;
        Some(serde_json::from_str(&text).unwrap())
    }

    fn end_with(&mut self, run: super::RunId, exit: Exit) {
        self.end_as(run, Ending::exited(exit));
    }

    fn end_as(&mut self, run: super::RunId, ending: Ending) {
        let at = self.wait(1000);
        self.store.write(|tx| lifecycle::end(tx, at, run, ending)).unwrap();
    }

    fn names(&mut self, query: &SessionQuery) -> Vec<String> {
        self.store.read(|view| view.list(query)).unwrap().into_iter().map(|row| row.name).collect()
    }

    fn named(&self, name: &str) -> RunStart {
        RunStart { name: Some(name.into()), ..self.begin(ConversationStart::Fresh) }
    }
}

#[test]
fn the_record_is_the_one_promised() {
    let mut world = World::new();
    let (run, started) = world.start_as(&world.named("fix-auth"));
    world.store.write(|tx| tx.set_agent_process(run, Pid(4243), None)).unwrap();
    world.bind(started.session, "7a276c6b").unwrap();
    world.feed(started.session, 1, &[usage("m1", world.now, 20)]);
    world.end_with(run, Exit::Code(0));
    let row = world.session(started.session);
    let record = world.store.read(|view| record(view, &row, world.now)).unwrap();
    let expected = serde_json::json!({
        "sessionId": started.session, "name": "fix-auth", "agent": "claude", "agentVersion": null,
        "wrapperVersion": env!("CARGO_PKG_VERSION"),
        "status": "completed", "endReason": "exit", "exitCode": 0, "signal": null,
        "startTime": 1_794_823_201_000_i64, "endTime": 1_794_823_202_100_i64, "durationMs": 1100,
        "workingDirectory": "/home/dev/project", "project": "project", "repository": "acme/widgets", "branch": "main",
        "pid": 4243, "wrapperPid": 4242, "runId": run, "parentSessionId": null,
        "transitionedFrom": null, "transitionedTo": null,
        "correlation": {"status": "matched", "agentSessionId": "7a276c6b", "agentSessionFile": null,
            "evidence": "registry", "boundAt": 1_794_823_201_100_i64},
        "usage": {"apiCalls": 1, "inputTokens": 10, "outputTokens": 20, "cacheReadTokens": 1000, "cacheWriteTokens": 100,
            "reasoningTokens": 0, "costUsd": 0.00002, "unpricedModels": [], "prompts": 0, "toolCalls": 0,
            "toolErrors": 0, "filesChanged": 0, "linesAdded": 0, "linesRemoved": 0, "apiErrors": 0,
            "coverage": "transcript"},
        "sync": {"pending": 0, "delivered": 0, "dead": 0, "lastDeliveredAt": null},
        "tags": [], "group": null, "state": null, "title": null, "models": ["claude-sonnet-4-5"]
    });
    assert_eq!(serde_json::to_value(&record).unwrap(), expected);
    let back: types::SessionRecord = serde_json::from_value(expected).unwrap();
    assert_eq!(back, record);
}

#[test]
fn an_active_record_counts_the_time_until_now() {
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Fresh);
    let now = world.wait(2500);
    let row = world.session(started.session);
    let record = world.store.read(|view| record(view, &row, now)).unwrap();
    assert_eq!((record.status.as_str(), record.duration_ms, record.end_time), ("active", 2500, None));
    assert_eq!(record.correlation.status.as_str(), "pending");
    assert_eq!(record.usage.coverage.as_str(), "none");
}

#[test]
fn coverage_says_transcript_only_where_something_was_read() {
    let mut world = World::new();
    let (run, started) = world.start(ConversationStart::Fresh);
    let session = started.session;
    world.bind(session, "a").unwrap();
    let coverage = |world: &mut World| {
        let row = world.session(session);
        world.store.read(|view| record(view, &row, world.now)).unwrap().usage.coverage.as_str()
    };
    assert_eq!(coverage(&mut world), "transcript", "nothing was asked");
    let mut prompt = usage("p1", world.now, 0);
    (prompt.record.fact, prompt.cost, prompt.prices) = (Fact::Prompt, None, None);
    world.feed(session, 1, &[prompt]);
    assert_eq!(coverage(&mut world), "none", "asked, and no call could be read");
    world.end_with(run, Exit::Code(0));
    assert_eq!(world.attributes(session, "session.end")["totals"]["coverage"], "none");
    world.feed(session, 2, &[usage("m1", world.now, 20)]);
    assert_eq!(coverage(&mut world), "transcript");
    assert_eq!(world.attributes(session, "session.end")["totals"]["coverage"], "transcript");
}

#[test]
fn a_session_that_moved_is_found_in_its_new_folder_and_counts_for_the_old() {
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Fresh);
    world.publish();
    let project = world.published(started.session).unwrap()["project"].clone();
    let folder = std::path::Path::new("/home/dev/elsewhere");
    world.store.write(|tx| tx.set_folder(started.session, folder)).unwrap();
    assert_eq!(world.publish(), 1);
    let published = world.published(started.session).unwrap();
    assert_eq!(published["workingDirectory"], "/home/dev/elsewhere");
    assert_eq!(published["project"], project);
    world.store.write(|tx| tx.set_folder(started.session, folder)).unwrap();
    assert_eq!(world.publish(), 0, "nothing changed");
}

#[test]
fn each_change_of_a_life_is_published() {
    let mut world = World::new();
    let (run, started) = world.start(ConversationStart::Fresh);
    assert_eq!(world.publish(), 1);
    assert_eq!(world.published(started.session).unwrap()["status"], "active");
    assert_eq!(world.publish(), 0, "nothing changed");
    world.bind(started.session, "a").unwrap();
    world.publish();
    assert_eq!(world.published(started.session).unwrap()["correlation"]["status"], "matched");
    world.end_with(run, Exit::Code(0));
    world.publish();
    assert_eq!(world.published(started.session).unwrap()["status"], "completed");
    // Late lines amend the END, and so the file.
    world.feed(started.session, 1, &[usage("m1", world.now, 20)]);
    assert_eq!(world.publish(), 1);
    assert_eq!(world.published(started.session).unwrap()["usage"]["outputTokens"], 20);
    let path = world.home.published_sessions().join(format!("{}.json", started.session));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(world.home.published_sessions()).unwrap().count(), 1, "no draft is left");
}

#[test]
fn what_a_killed_process_did_not_publish_the_next_one_does() {
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Fresh);
    let mut another = world.another();
    assert_eq!(publish(&mut another, &world.home, world.now).unwrap(), 1);
    assert!(world.published(started.session).is_some());
}

#[test]
fn the_file_of_a_provisional_session_goes_with_it() {
    let mut world = World::new();
    let (run, known) = world.start(ConversationStart::Fresh);
    world.bind(known.session, "a").unwrap();
    world.end_with(run, Exit::Code(0));
    let (_, provisional) = world.start(ConversationStart::Unnamed);
    world.publish();
    assert_eq!(world.published(provisional.session).unwrap()["correlation"]["status"], "pending");
    world.bind(provisional.session, "a").unwrap();
    world.publish();
    assert_eq!(world.published(provisional.session), None);
    assert_eq!(world.published(known.session).unwrap()["status"], "active");
}

#[test]
fn lists_are_filtered_and_newest_first() {
    let mut world = World::new();
    let (one, first) = world.start_as(&world.named("one"));
    world.end_with(one, Exit::Code(0));
    let week = world.wait(7 * 86_400_000);
    let mut second = world.named("two");
    second.agent = "codex".into();
    second.tags = vec!["night".into()];
    second.group = Some("g".into());
    second.workspace.project = Some("other".into());
    world.start_as(&second);
    let (three, _) = world.start_as(&world.named("three"));
    world.end_with(three, Exit::Code(0));
    let row = world.session(first.session);
    world.store.write(|tx| labels::archive(tx, &row, true)).unwrap();

    for (show, expected) in [
        (Show::NotArchived, &["three", "two"][..]),
        (Show::All, &["three", "two", "one"]),
        (Show::Archived, &["one"]),
        (Show::Active, &["two"]),
    ] {
        assert_eq!(world.names(&SessionQuery::showing(show)), expected, "{show:?}");
    }
    let text = |text: &str| Some(text.to_owned());
    let until = |at| Span { since: None, until: Some(at) };
    let of = |filter| SessionQuery { filter, ..SessionQuery::showing(Show::All) };
    let table: [(Filter, &[&str]); 10] = [
        (Filter { agent: text("claude"), ..Filter::default() }, &["three", "one"]),
        (Filter { without_agent: text("claude"), ..Filter::default() }, &["two"]),
        (Filter { project: text("other"), ..Filter::default() }, &["two"]),
        (Filter { project: text("acme/widgets"), ..Filter::default() }, &["three", "two", "one"]),
        (Filter { tag: text("night"), ..Filter::default() }, &["two"]),
        (Filter { group: text("g"), ..Filter::default() }, &["two"]),
        (Filter { span: Span::since(week), ..Filter::default() }, &["three", "two"]),
        (Filter { span: until(row.started_at), ..Filter::default() }, &[]),
        (Filter { span: until(Timestamp(row.started_at.0 + 1)), ..Filter::default() }, &["one"]),
        (Filter { words: vec!["ot".to_owned(), "W".to_owned()], ..Filter::default() }, &["two"]),
    ];
    for (filter, expected) in table {
        assert_eq!(world.names(&of(filter.clone())), expected, "{filter:?}");
    }

    let (four, _) = world.start_as(&world.named("four"));
    world.end_as(four, Ending::stopped(Exit::Code(143)));
    let (five, _) = world.start_as(&world.named("five"));
    world.end_with(five, Exit::Code(1));
    for (status, expected) in [
        (Status::Active, &["two"][..]),
        (Status::Completed, &["four", "three", "one"]),
        (Status::Failed, &["five"]),
    ] {
        let query = of(Filter { status: Some(status), ..Filter::default() });
        assert_eq!(world.names(&query), expected, "{status}");
    }
    for (reason, expected) in [(EndReason::Stopped, &["four"][..]), (EndReason::Clear, &[])] {
        let query = SessionQuery { ended_by: Some(reason), ..SessionQuery::showing(Show::All) };
        assert_eq!(world.names(&query), expected, "{reason}");
    }
}

#[test]
fn usage_adds_up_by_every_key() {
    let mut world = World::new();
    let (_, one) = world.start(ConversationStart::Fresh);
    world.bind(one.session, "a").unwrap();
    let mut unpriced = usage("m2", world.now, 5);
    unpriced.cost = None;
    world.feed(one.session, 1, &[usage("m1", world.now, 20), unpriced]);
    let mut begin = world.begin(ConversationStart::Fresh);
    begin.agent = "codex".into();
    begin.workspace.branch = None;
    let (_, two) = world.start_as(&begin);
    world.bind(two.session, "b").unwrap();
    let next_day = world.wait(86_400_000);
    world.feed(two.session, 2, &[usage("m3", next_day, 7)]);
    begin = world.begin(ConversationStart::Fresh);
    begin.agent = "demo".into();
    begin.local_only = true;
    let (_, demo) = world.start_as(&begin);
    world.bind(demo.session, "c").unwrap();
    world.feed(demo.session, 3, &[usage("m4", next_day, 1000)]);

    let rows = |world: &mut World, by, since| {
        let rows = world.store.read(|view| rows_of(view, by, since)).unwrap();
        rows.into_iter()
            .map(|row| (row.key.unwrap_or("(none)".into()), row.sums.api_calls, row.sums.output))
            .collect::<Vec<_>>()
    };
    let row = |key: &str, calls, output| (key.to_owned(), calls, output);
    assert_eq!(rows(&mut world, By::Session, None), [row("a", 2, 25), row("b", 1, 7)]);
    assert_eq!(rows(&mut world, By::Agent, None), [row("claude", 2, 25), row("codex", 1, 7)]);
    assert_eq!(rows(&mut world, By::Branch, None), [row("main", 2, 25), row("(none)", 1, 7)]);
    assert_eq!(rows(&mut world, By::Model, None), [row("claude-sonnet-4-5", 3, 32)]);
    assert_eq!(rows(&mut world, By::Project, None), [row("project", 3, 32)]);
    assert_eq!(rows(&mut world, By::Day, None).len(), 2);
    assert_eq!(rows(&mut world, By::Session, Some(next_day)), [row("b", 1, 7)]);
    let by_model = world.store.read(|view| rows_of(view, By::Model, None)).unwrap().remove(0);
    assert_eq!((by_model.agent, by_model.unpriced_models), (None, vec!["claude-sonnet-4-5".to_owned()]));
    assert_eq!(by_model.sums.cost.0, 27_000_000);
}

#[test]
fn labels_revise_the_start() {
    let mut world = World::new();
    let (_, started) = world.start_as(&world.named("one"));
    world.start_as(&world.named("two"));
    let row = world.session(started.session);
    world.store.write(|tx| labels::rename(tx, &row, "uno")).unwrap();
    assert!(world.store.write(|tx| labels::tag(tx, &row, "night")).unwrap());
    assert!(!world.store.write(|tx| labels::tag(tx, &row, "night")).unwrap());
    assert!(world.store.write(|tx| labels::untag(tx, &row, "night")).unwrap());
    world.store.write(|tx| labels::group(tx, &row, Some("g"))).unwrap();
    assert_eq!(world.events(started.session), ["1.4 session.start startup"]);
    let start = world.attributes(started.session, "session.start");
    assert_eq!((&start["name"], &start["group"]), (&"uno".into(), &"g".into()));
    let taken = world.store.write(|tx| labels::rename(tx, &row, "two"));
    assert!(matches!(taken, Err(Error::NameTaken(_))));
    assert_eq!(world.session(started.session).name, "uno");
}

/// Sessions of every kind that a list may hold, more than are asked for one by one.
fn many(world: &mut World) {
    world
        .store
        .sql()
        .execute("INSERT INTO sink (name, since, cursor) VALUES ('native', 20, 150)", [])
        .unwrap();
    for n in 0..70 {
        let (run, started) = world.start_as(&RunStart {
            tags: vec![format!("t{}", n % 3), "all".into()],
            parent: None,
            ..world.named(&format!("s{n}"))
        });
        if n % 2 == 0 {
            world.bind(started.session, &format!("a{n}")).unwrap();
            let mut call = usage(&format!("m{n}"), world.now, 20);
            call.cost = call.cost.filter(|_| n % 4 == 0);
            world.feed(started.session, n + 1, &[call]);
        }
        if n % 5 != 0 {
            world.end_with(run, Exit::Code(0));
        }
        if n % 10 == 4 {
            world.start(ConversationStart::Named(agent_session(&format!("a{n}"))));
        }
    }
    let dead = "INSERT INTO letter (sink, event, fate, rev, reason, at)
        SELECT 'native', n, CASE WHEN n % 2 THEN 'dead' ELSE 'deferred' END, 0, '', 0 FROM event WHERE n % 7 = 0";
    world.store.sql().execute(dead, []).unwrap();
    world.check();
}

#[test]
fn records_of_many_are_those_of_each_by_a_handful_of_queries() {
    let mut world = World::new();
    many(&mut world);
    let now = world.now;
    let all = SessionQuery::showing(Show::All);
    let rows = world.store.read(|view| view.list(&all)).unwrap();
    assert_eq!(rows.len(), 70);
    let each: Vec<_> =
        rows.iter().map(|row| world.store.read(|view| record(view, row, now)).unwrap()).collect();
    world.store.faults.after(24);
    let together = world.store.read(|view| records(view, &rows, now));
    world.store.faults.none();
    assert_eq!(together.unwrap(), each);
    assert_eq!(world.store.read(|view| view.count(&all)).unwrap(), 70);
    assert_eq!(world.store.read(|view| view.list_first(&all, 3)).unwrap(), rows[..3]);
    assert!(each.iter().any(|record| record.sync.pending > 0 && record.sync.delivered > 0));
    assert!(each.iter().any(|record| record.sync.dead > 0));
}

const REFUSED: &str = "INSERT INTO letter (sink, event, fate, rev, reason, at)
    SELECT 'native', n, 'dead', 0, 'refused', 0 FROM event WHERE session = 1 LIMIT 1";

#[test]
fn prune_takes_what_is_old_ended_and_delivered() {
    let mut world = World::new();
    let (run, old) = world.start_as(&world.named("old"));
    world.bind(old.session, "a").unwrap();
    world.feed(old.session, 1, &[usage("m1", world.now, 20)]);
    world.end_with(run, Exit::Code(0));
    let (_, open) = world.start_as(&world.named("open"));
    let before = world.wait(1000);
    let (run, young) = world.start_as(&world.named("young"));
    world.end_with(run, Exit::Code(0));
    world.publish();

    let names = |rows: Vec<crate::SessionRow>| rows.into_iter().map(|row| row.name).collect::<Vec<_>>();
    let World { store, home, .. } = &mut world;
    assert_eq!(names(prune(store, home, before, None, true).unwrap()), ["old"]);
    store.sql().execute("INSERT INTO sink (name, since, cursor) VALUES ('native', 0, 1)", []).unwrap();
    assert!(prune(store, home, before, None, true).unwrap().is_empty(), "a sink has not got all of it");
    store.sql().execute("UPDATE sink SET cursor = 1000", []).unwrap();
    assert_eq!(store.sql().execute(REFUSED, []).unwrap(), 1);
    assert!(prune(store, home, before, None, true).unwrap().is_empty(), "a sink has refused some of it");
    store.write(|tx| tx.forget_sink("native")).unwrap();
    assert_eq!(names(prune(store, home, before, None, false).unwrap()), ["old"]);
    world.check();
    assert!(world.published(old.session).is_none());
    assert!(world.published(young.session).is_some() && world.published(open.session).is_some());
    // What was read is not read again, and the agent's conversation may come back as a session of its own.
    assert!(world.store.read(|view| view.position(FileId { device: 1, inode: 1 })).unwrap().is_some());
    let (_, again) = world.start(ConversationStart::Named(agent_session("a")));
    assert_ne!(again.session, old.session);
}

#[test]
fn usage_by_every_key_is_the_same_after_a_prune() {
    let mut world = World::new();
    for (session, keys) in [("a", &["m1", "m2"][..]), ("b", &["m3"])] {
        let (run, started) = world.start_as(&world.named(session));
        world.bind(started.session, session).unwrap();
        let inode = world.now.0.unsigned_abs();
        let mut calls: Vec<Priced> = keys.iter().map(|key| usage(key, world.now, 20)).collect();
        calls[0].cost = None;
        world.feed(started.session, inode, &calls);
        world.end_with(run, Exit::Code(0));
    }
    let all = |world: &mut World| {
        By::ALL
            .iter()
            .map(|by| world.store.read(|view| rows_of(view, *by, None)).unwrap())
            .collect::<Vec<_>>()
    };
    let (before, last) = (all(&mut world), world.now);
    for _ in 0..2 {
        let World { store, home, .. } = &mut world;
        prune(store, home, Timestamp(i64::MAX), None, false).unwrap();
        world.check();
        assert_eq!(all(&mut world), before);
    }
    let since =
        |world: &mut World, at| world.store.read(|view| rows_of(view, By::Day, Some(at))).unwrap().len();
    assert_eq!((since(&mut world, Timestamp(0)), since(&mut world, Timestamp(last.0 + 1))), (1, 0));

    // Taken up again, the conversation counts what is new in its file, which may be read from the beginning.
    let (_, again) = world.start(ConversationStart::Fresh);
    world.bind(again.session, "a").unwrap();
    world.feed(again.session, 99, &[usage("m1", world.now, 20), usage("m4", world.now, 20)]);
    world.check();
    let rows = world.store.read(|view| rows_of(view, By::Session, None)).unwrap();
    let calls: Vec<_> = rows.into_iter().map(|row| (row.key.unwrap(), row.sums.api_calls)).collect();
    assert_eq!(calls, [("a".to_owned(), 3), ("b".to_owned(), 1)]);
    let mut owned = Vec::new();
    world.store.read(|view| view.each_owned_call(|_, key| owned.push(key.to_owned()))).unwrap();
    owned.sort();
    assert_eq!(owned, ["m1", "m2", "m3", "m4"], "a scan knows them all");
}

#[test]
fn what_came_between_the_look_and_the_removal_keeps_a_session() {
    let amended = "UPDATE event SET rev = rev + 1, change = 1001 WHERE session = 1 AND type = 'session.end'";
    let opened = "UPDATE session SET phase = 'open' WHERE n = 1";
    let sent = "UPDATE sink SET cursor = 1001";
    for (between, stays) in [(amended, true), (REFUSED, true), (opened, true), (sent, false)] {
        let mut world = World::new();
        let (run, _) = world.start_as(&world.named("old"));
        world.end_with(run, Exit::Code(0));
        let before = world.wait(1000);
        let store = &mut world.store;
        store.sql().execute("INSERT INTO sink (name, since, cursor) VALUES ('native', 0, 1000)", []).unwrap();
        let [row] = &store.read(|view| view.prunable(before, None)).unwrap()[..] else {
            panic!("one can go")
        };
        assert_eq!(store.sql().execute(between, []).unwrap(), 1, "{between}");
        assert_eq!(remove(store, row.n, before).unwrap().is_none(), stays, "{between}");
        assert_eq!(store.read(|view| view.session_number(row.n)).unwrap().is_some(), stays, "{between}");
    }
}

#[test]
fn numbers_of_changes_are_not_given_again_after_a_prune() {
    let mut world = World::new();
    let (run, _) = world.start(ConversationStart::Fresh);
    world.end_with(run, Exit::Code(0));
    let change = |world: &World| -> i64 {
        world.store.sql().query_row("SELECT change FROM outbox", [], |row| row.get(0)).unwrap()
    };
    let before = change(&world);
    let World { store, home, .. } = &mut world;
    prune(store, home, Timestamp(i64::MAX), None, false).unwrap();
    world.start(ConversationStart::Fresh);
    assert_eq!(change(&world), before + 1, "a cursor at {before} would otherwise never see it");
}
