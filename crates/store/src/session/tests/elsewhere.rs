//! Sessions from old stores and other homes.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::absorb::{Batch, absorb};
use super::super::exchange::{Titles, export};
use super::super::import::{ImportReport, found, import};
use super::super::lifecycle::{self, ConversationStart};
use super::super::lookup::{Found, NoScan, find};
use super::super::prune::prune;
use super::super::publish::publish;
use super::super::record::record;
use super::super::state::{Ending, Exit};
use super::{World, agent_session, usage};
use crate::session::testing::rows_of;
use crate::{FileId, SessionQuery, Show};
use agents::meter::record::{Fact, Tool};
use agents::meter::title::Title;
use types::SessionId;
use types::SessionRecord;
use types::Timestamp;
use types::ToolKind;
use usage::By;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/old-stores").join(name)
}

impl World {
    fn import(&mut self, path: &Path) -> ImportReport {
        let report = import(&mut self.store, path, self.now).unwrap();
        self.check();
        report
    }

    fn records(&mut self) -> Vec<SessionRecord> {
        let all = SessionQuery::showing(Show::All);
        let now = self.now;
        self.store
            .read(|view| {
                view.list(&all)?.iter().map(|row| record(view, row, now)).collect::<Result<Vec<_>, _>>()
            })
            .unwrap()
    }

    fn shown(&mut self, wanted: &str) -> SessionRecord {
        let now = self.now;
        self.store
            .read(|view| match find(view, wanted, &NoScan)? {
                Found::Session(row) => Ok::<_, super::super::lookup::LookupError>(record(view, &row, now)?),
                Found::Unwrapped(_) => panic!("foreign"),
            })
            .unwrap()
    }
}

#[test]
fn every_entry_of_every_genie_version_survives_once() {
    let table = [("genie/v1.json", 4), ("genie/v2.json", 3), ("genie/v3.json", 4)];
    let mut world = World::new();
    let mut expected = 0;
    for (name, entries) in table {
        let path = fixture(name);
        let before = fs::read(&path).unwrap();
        let report = world.import(&path);
        assert_eq!((report.imported.len(), report.known), (entries, 0), "{name}");
        let again = world.import(&path);
        assert_eq!((again.imported.len(), again.known), (0, entries), "{name} once more");
        assert_eq!(fs::read(&path).unwrap(), before, "{name} was written to");
        expected += entries;
        assert_eq!(world.records().len(), expected);
    }
}

#[test]
fn entries_without_an_id_are_called_after_agent_and_time() {
    let mut world = World::new();
    world.import(&fixture("genie/v1.json"));
    world.import(&fixture("genie/v3.json"));
    let by_id = |world: &mut World, id: &str| {
        let record = world.shown(id);
        assert_eq!(record.session_id, id);
        record
    };
    let plan = by_id(&mut world, "01998f50-6a1c-7a30-8f35-0c3a2f6f0a01");
    assert_eq!((plan.agent.as_str(), plan.status.as_str(), plan.exit_code), ("plan", "completed", Some(0)));
    assert_eq!(
        plan.correlation.agent_session_id,
        Some(agent_session("01998f50-6a1c-7a30-8f35-0c3a2f6f0a01"))
    );
    assert_eq!(plan.start_time.to_string(), "2025-09-30T21:33:14.137Z");
    assert_eq!(plan.duration_ms, 405_863);
    let test = by_id(&mut world, "legacy-qa/codex-parameter-test-1759267994137");
    assert_eq!((test.status.as_str(), test.correlation.status.as_str()), ("interrupted", "failed"));
    let review = by_id(&mut world, "legacy-review-1759270000000");
    assert_eq!((review.status.as_str(), review.exit_code), ("failed", Some(2)));
    by_id(&mut world, "legacy-timeless-unknown");

    let one = by_id(&mut world, "legacy-implementor-1760747400000");
    let two = by_id(&mut world, "legacy-implementor-1760747400000-2");
    assert_eq!((one.name.as_str(), two.name.as_str()), ("lost-one", "lost-two"));
    let first = by_id(&mut world, "250fd0d5-d1fc-4f20-b0f9-cecaf67b62c7");
    let second = by_id(&mut world, "250fd0d5-d1fc-4f20-b0f9-cecaf67b62c7-2");
    assert_eq!((first.name.as_str(), second.name.as_str()), ("fix-auth", "fix-auth-again"));
    assert_eq!(second.correlation.agent_session_id, None, "one agent session is one session");
    let taken: String = world
        .store
        .sql()
        .query_row(
            "SELECT group_concat(detail) || group_concat(attributes) FROM evidence, event",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(!taken.contains("canary"), "a prompt was taken over");
}

#[test]
fn a_copy_of_the_same_store_elsewhere_brings_nothing_new() {
    let mut world = World::new();
    world.import(&fixture("genie/v2.json"));
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join(".genie/state/agents/sessions.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::copy(fixture("genie/v2.json"), &path).unwrap();
    assert_eq!(world.import(&path).known, 3);
}

#[test]
fn files_of_codemie_one_per_session() {
    let mut world = World::new();
    let report = world.import(&fixture("codemie"));
    assert_eq!(report.imported.len(), 3);
    assert_eq!(report.passed_over.len(), 1);
    assert!(report.passed_over[0].0.ends_with("ours.json"));
    let done = world.shown("5f1c2a3b-1111-4222-8333-444455556666");
    assert_eq!(
        (done.agent.as_str(), done.status.as_str(), done.duration_ms),
        ("claude", "completed", 47_792)
    );
    assert_eq!(done.branch.as_deref(), Some("main"));
    assert_eq!(done.correlation.status.as_str(), "matched");
    assert_eq!(world.shown("7a276c6b").session_id, done.session_id, "by the agent's id");
    let active = world.shown("6a1c2a3b-1111-4222-8333-444455557777");
    assert_eq!(active.status.as_str(), "interrupted");
    let nameless = world.shown("legacy-codex-1768137000000");
    assert_eq!(nameless.project.as_deref(), Some("widgets"));
}

#[test]
fn imported_sessions_are_sent_only_when_asked_for() {
    let mut world = World::new();
    world.store.write(|tx| tx.add_sink("native")).unwrap();
    world.import(&fixture("codemie"));
    assert!(world.store.read(|view| view.outgoing(0, 0, i64::MAX, 100)).unwrap().is_empty());
    let done = world.shown("5f1c2a3b-1111-4222-8333-444455556666");
    assert_eq!((done.sync.pending, done.sync.delivered), (0, 0));
    world.store.write(|tx| tx.backfill("native")).unwrap();
    let sent = world.store.read(|view| view.outgoing(0, 0, i64::MAX, 100)).unwrap();
    let of_done: Vec<_> = sent
        .iter()
        .filter(|event| *event.session == *done.session_id)
        .map(|e| (e.seq, e.attributes.type_name()))
        .collect();
    assert_eq!(of_done, [(1, "session.start"), (2, "session.bound"), (3, "session.end")]);
    assert_eq!(sent.len(), 3 + 2 + 2);
}

#[test]
fn an_imported_session_opened_again_is_told_from_its_first_event() {
    let mut world = World::new();
    world.import(&fixture("codemie"));
    let (_, again) =
        world.start(ConversationStart::Named(agent_session("7a276c6b-0000-4000-8000-000000000001")));
    assert_eq!(again.session.to_string(), "5f1c2a3b-1111-4222-8333-444455556666");
    let sent = world.store.read(|view| view.outgoing(0, 0, i64::MAX, 100)).unwrap();
    assert_eq!(sent.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn the_first_start_reads_old_stores_once_and_leaves_them() {
    let mut world = World::new();
    let user = world.home.path().parent().unwrap().join("user");
    let project = user.join("work/widgets");
    let genie = project.join(".genie/state/agents/sessions.json");
    // CodeMie's folder is also where we publish.
    let published = user.join(".codemie/metrics/sessions");
    fs::create_dir_all(genie.parent().unwrap()).unwrap();
    fs::create_dir_all(&published).unwrap();
    fs::copy(fixture("genie/v3.json"), &genie).unwrap();
    let original = "5f1c2a3b-1111-4222-8333-444455556666.json";
    fs::copy(fixture("codemie").join(original), published.join(original)).unwrap();
    fs::write(published.join("torn.json"), "{\"sessionId\": \"x").unwrap();
    world.home = os::home::Home::at(user.join(".codemie"));

    let report = found::take_in(&mut world.store, &user, &project, world.now, None).unwrap();
    assert_eq!((report.imported.len(), report.passed_over.len()), (5, 1));
    assert_eq!(world.shown("fix-auth").project.as_deref(), Some("widgets"));
    let before = fs::read(published.join(original)).unwrap();
    fs::write(&genie, "{\"version\":3,\"sessions\":{\"later\":{\"agent\":\"x\"}}}").unwrap();
    let again = found::take_in(&mut world.store, &user, &project, world.now, None).unwrap();
    assert_eq!(again, ImportReport::default(), "once, ever");

    // Opened again here, it is still not written over the file it came from.
    world.start(ConversationStart::Named(agent_session("7a276c6b-0000-4000-8000-000000000001")));
    publish(&mut world.store, &world.home, world.now).unwrap();
    assert_eq!(fs::read(published.join(original)).unwrap(), before);
}

/// genie's store of entries without an id, all of one time.
fn of_one_time(entries: usize) -> String {
    let entries: Vec<_> =
        (0..entries).map(|n| format!(r#""k{n}":{{"agent":"qa","created":1759267994137}}"#)).collect();
    format!(r#"{{"agents":{{{}}}}}"#, entries.join(","))
}

#[test]
fn entries_of_one_time_are_numbered_without_counting_through_all_of_them() {
    const ENTRIES: u32 = 1000;
    let mut world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.json");
    fs::write(&path, of_one_time(ENTRIES as usize)).unwrap();
    world.store.faults.after(ENTRIES * 200); // statements: about a hundred for each entry
    let report = import(&mut world.store, &path, world.now).unwrap();
    world.store.faults.none();
    assert_eq!(report.imported.len(), ENTRIES as usize);
    world.check();
    assert_eq!(world.shown("legacy-qa-1759267994137-1000").agent, "qa");
}

#[test]
fn a_found_store_is_taken_in_piece_by_piece_and_gone_on_with() {
    let mut world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".genie/state/sessions.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, of_one_time(100)).unwrap();
    let (user, now) = (folder.path().to_owned(), world.now);
    let over = Some(std::time::Instant::now());
    let piece = |world: &mut World| {
        let report = found::take_in(&mut world.store, &user, &user, now, over).unwrap();
        (report.imported.len(), report.known)
    };
    assert_eq!(piece(&mut world), (32, 0), "no time is left after the first piece");
    assert_eq!(piece(&mut world), (32, 0), "and what is known is not even looked at");
    // Another file in its place is read from its beginning.
    fs::write(&path, of_one_time(101)).unwrap();
    assert_eq!(piece(&mut world), (0, 32));
    assert_eq!(piece(&mut world), (0, 32));
    assert_eq!(piece(&mut world), (32, 0));
    assert_eq!(piece(&mut world), (5, 0));
    assert!(!found::is_something(&mut world.store, &user, &user).unwrap());
    assert_eq!(world.records().len(), 101);
}

#[test]
fn a_folder_that_we_made_ourselves_is_no_old_store() {
    let mut world = World::new();
    let user = world.home.path().to_owned();
    world.home = os::home::Home::at(user.join(".codemie"));
    world.start(ConversationStart::Fresh);
    assert_eq!(publish(&mut world.store, &world.home, world.now).unwrap(), 1);
    assert!(!found::is_something(&mut world.store, &user, &user).unwrap());
}

#[test]
fn what_lies_in_a_folder_is_read_within_bounds() {
    let mut world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join(".genie/state");
    fs::create_dir_all(state.join("agents")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", state.join("sessions.json")).unwrap();
    let large = fs::File::create(state.join("agents/sessions.json")).unwrap();
    large.set_len(1 << 40).unwrap();
    let report = found::take_in(&mut world.store, folder.path(), folder.path(), world.now, None).unwrap();
    let reasons: Vec<_> = report.passed_over.iter().map(|(_, reason)| reason.as_str()).collect();
    assert!(reasons[0].contains("larger than") && reasons[1].contains("not a regular file"), "{reasons:?}");
    assert!(
        !found::is_something(&mut world.store, folder.path(), folder.path()).unwrap(),
        "until one changes"
    );
    large.set_len(1 << 41).unwrap();
    assert!(found::is_something(&mut world.store, folder.path(), folder.path()).unwrap());
    let device = import(&mut world.store, Path::new("/dev/zero"), world.now).unwrap();
    assert_eq!(device.passed_over.len(), 1);
}

#[test]
fn an_id_that_could_be_an_option_or_a_path_is_not_taken_in() {
    let mut world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let (genie, codemie) = (folder.path().join("genie.json"), folder.path().join("codemie.json"));
    let option = "--dangerously-skip-permissions";
    fs::write(
        &genie,
        format!(r#"{{"version":3,"sessions":{{"fix-build":{{"agent":"claude","sessionId":"{option}"}}}}}}"#),
    )
    .unwrap();
    let correlation = r#"{"status":"matched","agentSessionId":"../../x"}"#;
    fs::write(
        &codemie,
        format!(r#"{{"sessionId":"s1","agentName":"claude","name":"-rf","correlation":{correlation}}}"#),
    )
    .unwrap();
    let mut here = World::new();
    let exported = folder.path().join("exported.json");
    let session = lived(&mut here);
    export_to(&mut here, session, &exported);
    let text = fs::read_to_string(&exported).unwrap();
    fs::write(&exported, text.replace(r#""agentSessionId": "a""#, r#""agentSessionId": "-c""#)).unwrap();
    for path in [&genie, &codemie, &exported] {
        assert_eq!(world.import(path).imported.len(), 1, "every entry survives");
    }
    for name in ["fix-build", "rf", "fix-auth"] {
        let correlation = world.shown(name).correlation;
        assert_eq!((correlation.agent_session_id, correlation.status.as_str()), (None, "failed"), "{name}");
    }
}

#[test]
fn numbers_that_nobody_can_count_on_from_are_refused() {
    let (mut here, mut there) = (World::new(), World::new());
    let session = lived(&mut here);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.json");
    export_to(&mut here, session, &path);
    assert_eq!(there.import(&path).imported, [session]);
    let sound: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (at, number) in [
        ("/sessions/0/events/0/rev", i64::MAX),
        ("/sessions/0/events/0/rev", -1),
        ("/sessions/0/events/0/seq", i64::MAX),
        ("/sessions/0/events/0/seq", 0),
        ("/sessions/0/events/0/opening", u32::MAX.into()),
        ("/sessions/0/openings/0/number", u32::MAX.into()),
        ("/sessions/0/nameNumber", u32::MAX.into()),
    ] {
        let mut broken = sound.clone();
        *broken.pointer_mut(at).unwrap() = number.into();
        fs::write(&path, broken.to_string()).unwrap();
        let report = there.import(&path);
        assert!(report.imported.is_empty() && report.known == 0, "{at} {number}");
        assert!(report.passed_over[0].1.contains(&number.to_string()), "{:?}", report.passed_over);
    }
}

#[test]
fn labels_and_costs_that_cannot_be_are_left_out() {
    let (mut here, mut there) = (World::new(), World::new());
    let session = lived(&mut here);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.json");
    export_to(&mut here, session, &path);
    let mut file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let exported = &mut file["sessions"][0];
    exported["session"]["tags"] = serde_json::json!(["good", "-bad", "a/b"]);
    exported["session"]["group"] = "g/h".into();
    exported["nameBase"] = "another".into();
    let call = exported["records"].as_array_mut().unwrap().iter_mut().find(|row| row["kind"] == "usage");
    call.unwrap()["usage"]["cost"] = i64::MAX.into();
    fs::write(&path, file.to_string()).unwrap();
    assert_eq!(there.import(&path).imported, [session]);
    let record = there.shown("fix-auth");
    assert_eq!((record.tags, record.group, record.usage.api_calls), (vec!["good".to_owned()], None, 0));
    assert_eq!(there.session(session).name_base, "fix-auth");
}

fn lived(world: &mut World) -> SessionId {
    let mut begin = world.begin(ConversationStart::Fresh);
    begin.name = Some("fix-auth".into());
    begin.tags = vec!["night".into()];
    let (run, started) = world.start_as(&begin);
    world.bind(started.session, "a").unwrap();
    let at = world.now;
    let mut edit = usage("t1", at, 0);
    edit.cost = None;
    edit.record.fact = Fact::Tool(Tool {
        name: "Edit".into(),
        ok: true,
        kind: ToolKind::Edit,
        file: Some("/x/a.rs".into()),
        further: vec!["/x/b.rs".into()],
        lines_added: 3,
        lines_removed: 1,
    });
    let mut prompt = usage("p1", at, 0);
    prompt.cost = None;
    prompt.record.fact = Fact::Prompt;
    let records = [prompt, usage("m1", at, 20), edit, usage("m1", at, 30)];
    let batch = Batch {
        file: FileId { device: 1, inode: 1 },
        path: "/f".as_ref(),
        from: 0,
        restart: false,
        to: 1,
        state: &[],
        unreadable: 0,
        records: &records,
    };
    let title = Title::of_prompt("fix the proxy").unwrap();
    world
        .store
        .write(|tx| {
            absorb(tx, at, started.session, &batch)?;
            Ok::<_, crate::session::Error>(tx.set_title(started.session, &title)?)
        })
        .unwrap();
    let at = world.wait(5000);
    world.store.write(|tx| lifecycle::end(tx, at, run, Ending::exited(Exit::Code(0)))).unwrap();
    started.session
}

fn export_to(world: &mut World, session: SessionId, path: &Path) {
    let row = world.session(session);
    let now = world.now;
    let file =
        world.store.read(|view| export(view, std::slice::from_ref(&row), Titles::Included, now)).unwrap();
    fs::write(path, serde_json::to_vec_pretty(&file).unwrap()).unwrap();
}

/// What must be the same in both homes: the record but for the run, and the events as they are sent.
fn essence(world: &mut World, session: SessionId) -> (Value, Vec<(i64, i64, String, Value)>) {
    let row = world.session(session);
    let now = world.now;
    let mut record = world.store.read(|view| record(view, &row, now)).unwrap();
    (record.pid, record.wrapper_pid, record.run_id) = (None, None, None);
    let events = world.store.read(|view| view.outgoing_of(row.n)).unwrap();
    let events = events.into_iter().map(|event| {
        let attributes = serde_json::to_value(&event.attributes).unwrap();
        (event.seq, event.rev, event.id.to_string(), attributes)
    });
    (serde_json::to_value(record).unwrap(), events.collect())
}

#[test]
fn titles_are_in_the_record_and_in_an_export_only_if_asked_for() {
    let mut world = World::new();
    let session = lived(&mut world);
    let (row, now) = (world.session(session), world.now);
    let shown = world.store.read(|view| record(view, &row, now)).unwrap();
    assert_eq!(shown.title.as_deref(), Some("fix the proxy"));
    assert_eq!(shown.models, ["claude-sonnet-4-5"]);
    for (titles, expected) in [(Titles::LeftOut, false), (Titles::Included, true)] {
        let file = world.store.read(|view| export(view, std::slice::from_ref(&row), titles, now)).unwrap();
        let text = serde_json::to_string(&file).unwrap();
        assert_eq!(text.contains("fix the proxy"), expected, "{titles:?}");
    }
    let events = world.store.read(|view| view.outgoing_of(row.n)).unwrap();
    let sent = events.iter().map(|event| serde_json::to_string(&event.attributes).unwrap());
    assert!(sent.into_iter().all(|text| !text.contains("proxy")), "never in an event");
}

#[test]
fn a_session_survives_the_way_to_another_home_and_back() {
    let (mut here, mut there) = (World::new(), World::new());
    let session = lived(&mut here);
    let folder = tempfile::tempdir().unwrap();
    let (out, back) = (folder.path().join("out.json"), folder.path().join("back.json"));
    export_to(&mut here, session, &out);

    assert_eq!(there.import(&out).imported, [session]);
    assert_eq!(there.import(&out).known, 1, "once more changes nothing");
    assert_eq!(essence(&mut there, session), essence(&mut here, session));
    assert!(there.store.read(|view| view.outgoing(0, 0, i64::MAX, 10)).unwrap().is_empty(), "kept back");

    export_to(&mut there, session, &back);
    let before = essence(&mut here, session);
    assert_eq!(here.import(&back).known, 1, "what this home made is its own");
    assert_eq!(essence(&mut here, session), before);
}

#[test]
fn a_session_that_was_pruned_and_comes_back_is_counted_once() {
    let mut world = World::new();
    let session = lived(&mut world);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.json");
    export_to(&mut world, session, &path);
    let used = |world: &mut World| world.store.read(|view| rows_of(view, By::Session, None)).unwrap();
    let before = used(&mut world);
    for _ in 0..2 {
        let World { store, home, .. } = &mut world;
        assert_eq!(prune(store, home, Timestamp(i64::MAX), None, false).unwrap().len(), 1);
        assert_eq!(used(&mut world), before);
        assert_eq!(world.import(&path).imported, [session]);
        assert_eq!(used(&mut world), before);
        assert_eq!(world.shown("fix-auth").usage.api_calls, 1);
    }
}

#[test]
fn a_later_export_that_knows_more_takes_the_place_of_an_earlier_one() {
    let (mut here, mut there) = (World::new(), World::new());
    let session = lived(&mut here);
    let folder = tempfile::tempdir().unwrap();
    let (early, late) = (folder.path().join("early.json"), folder.path().join("late.json"));
    export_to(&mut here, session, &early);
    let (run, _) = here.start(ConversationStart::Named(agent_session("a")));
    let at = here.wait(1000);
    here.store.write(|tx| lifecycle::end(tx, at, run, Ending::exited(Exit::Code(1)))).unwrap();
    export_to(&mut here, session, &late);

    there.import(&early);
    assert_eq!(there.import(&late).imported, [session]);
    assert_eq!(there.import(&early).known, 1, "not back again");
    assert_eq!(essence(&mut there, session), essence(&mut here, session));
    assert_eq!(there.session(session).opening, 2);
}

#[test]
fn what_is_here_already_keeps_its_name_its_conversation_and_its_calls() {
    let (mut here, mut there) = (World::new(), World::new());
    let session = lived(&mut here);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.json");
    export_to(&mut here, session, &path);
    // The same conversation, synchronised by other means, was resumed and read there under a session of its own.
    there.ids = super::CountingIds::default();
    for _ in 0..20 {
        super::Ids::uuid(&there.ids);
    }
    let own = lived(&mut there);
    assert_ne!(own, session);
    let before = essence(&mut there, own);
    assert_eq!(there.import(&path).imported, [session]);
    assert_eq!(essence(&mut there, own), before);
    let imported = there.shown(&session.to_string());
    assert_eq!((imported.name.as_str(), imported.usage.api_calls), ("fix-auth-2", 0));
    assert_eq!(imported.correlation.agent_session_id, None);
    let total: i64 =
        there.store.sql().query_row("SELECT sum(output) FROM total", [], |row| row.get(0)).unwrap();
    assert_eq!(total, 30, "each call counts once");
    assert_eq!(essence(&mut there, session).1.len(), 6, "and the events have no hole");
}

#[test]
fn one_exported_while_active_has_ended_unseen() {
    let (mut here, mut there) = (World::new(), World::new());
    let (_, started) = here.start(ConversationStart::Fresh);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.json");
    export_to(&mut here, started.session, &path);
    there.import(&path);
    let record = there.shown(&started.session.to_string());
    assert_eq!((record.status.as_str(), record.end_reason.unwrap().as_str()), ("interrupted", "crash"));
    assert_eq!(essence(&mut there, started.session).1.len(), 1, "its own home will make the END");
}

#[test]
fn a_file_that_is_nothing_is_named_and_no_error() {
    let mut world = World::new();
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("a.json", "not json"),
        ("b.json", "{}"),
        ("c.json", "[]"),
        ("d.json", "{\"format\":\"codemie-export\",\"version\":99,\"sessions\":[]}"),
        ("e.json", "{\"format\":\"codemie-export\",\"version\":1}"),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let report = world.import(folder.path());
    assert_eq!((report.imported.len(), report.passed_over.len()), (0, 5));
    assert!(report.passed_over[3].1.contains("newer codemie"));
    assert!(import(&mut world.store, Path::new("/nowhere/at/all.json"), world.now).is_err());
}

#[test]
fn a_folder_where_an_old_store_is_expected_is_refused_once() {
    let mut world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join(".genie/state/sessions.json");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("one.json"), r#"{"version":1,"agents":{"claude":{"sessionId":"a"}}}"#).unwrap();
    let report = found::take_in(&mut world.store, folder.path(), folder.path(), world.now, None).unwrap();
    assert_eq!((report.imported.len(), report.passed_over.len()), (0, 1));
    assert!(!found::is_something(&mut world.store, folder.path(), folder.path()).unwrap());
}
