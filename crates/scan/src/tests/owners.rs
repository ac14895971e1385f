//! Scans beside a store: calls that a session owns are counted there, the others are foreign.

use super::*;
use agents::meter::record::{Fact, Record, Usage};
use os::file::FileId;
use pricing::tier::Tier;
use store::session::absorb::{Batch, absorb};
use store::session::lifecycle::{self, Binding, ConversationStart};
use store::session::testing::World;
use store::{PicoDollars, Priced};
use types::EvidenceKind;
use types::Tokens;
use types::{AgentSessionId, SessionId};

/// A session of the store, bound to a conversation, that has read these calls.
fn session(world: &mut World, conversation: &str, calls: &[(&str, u64)]) -> SessionId {
    let (_, started) = world.start(ConversationStart::Fresh);
    let binding = Binding {
        agent_session: AgentSessionId(conversation.into()),
        file: None,
        evidence: EvidenceKind::Registry,
    };
    let at = world.wait(1);
    let ids = &world.ids;
    world.store.write(|tx| lifecycle::bind(tx, at, ids, started.session, &binding)).unwrap();
    read(world, started.session, calls);
    started.session
}

fn read(world: &mut World, session: SessionId, calls: &[(&str, u64)]) {
    let at = world.wait(1);
    let record = |(key, output): &(&str, u64)| {
        let tokens = Tokens { input: 1, output: *output, ..Tokens::default() };
        let usage = Usage { model: "claude-opus-4-8".into(), tokens, tier: Tier::Standard, request_id: None };
        let fact = Fact::Usage(usage);
        let record = Record { key: (*key).into(), at, copied: false, subagent: None, fact };
        Priced { record, cost: Some(PicoDollars(1)), prices: Some("1".into()) }
    };
    let records: Vec<_> = calls.iter().map(record).collect();
    let batch = Batch {
        file: FileId { device: 1, inode: at.0.unsigned_abs() },
        path: Path::new("/x"),
        from: 0,
        restart: false,
        to: 1,
        state: b"",
        unreadable: 0,
        records: &records,
    };
    world.store.write(|tx| absorb(tx, at, session, &batch)).unwrap();
}

/// Rows by session, of the store and the scan.
fn together(view: &View<'_>, scanned: &Scanned) -> Result<Vec<UsageRow>, store::Error> {
    let recorded = view.spending(&LocalClock::of(TimeZone::UTC), Span::default())?;
    Ok(tally(&[recorded, scanned.spending()], &UsageQuery::by(By::Session)).rows)
}

/// Output by session: of the scan alone, and together with the store's.
fn seen(stage: &Stage, world: &mut World) -> [BTreeMap<String, i64>; 2] {
    world
        .store
        .read(|view| {
            let scanned = stage.scan_with(Some(view), None);
            let outputs = |rows: Vec<UsageRow>| rows.iter().map(|row| (key(row), row.sums.output)).collect();
            Ok::<_, store::Error>([outputs(scanned.rows(By::Session)), outputs(together(view, &scanned)?)])
        })
        .unwrap()
}

#[test]
fn calls_of_a_session_are_counted_there_alone() {
    let (stage, mut world) = (Stage::new(), World::new());
    stage.put("a.jsonl", &[answer("m1", "a", 10), answer("m2", "a", 20)]);
    stage.put("b.jsonl", &[answer("m2", "b", 20), answer("m3", "b", 40)]);
    let all = BTreeMap::from([("a".into(), 30), ("b".into(), 40)]);
    assert_eq!(seen(&stage, &mut world), [all.clone(), all.clone()]);
    // Wrapped now. It was live-bound when m2 appeared, though another file is older.
    session(&mut world, "b", &[("m2", 20), ("m3", 40)]);
    let together = BTreeMap::from([("a".into(), 10), ("b".into(), 60)]);
    for _ in 0..2 {
        assert_eq!(seen(&stage, &mut world), [BTreeMap::from([("a".into(), 10)]), together.clone()]);
    }
}

#[test]
fn a_conversation_continued_without_codemie_is_one_row() {
    let (stage, mut world) = (Stage::new(), World::new());
    stage.put("a.jsonl", &[answer("m1", "a", 10), answer("m2", "a", 20)]);
    let a = session(&mut world, "a", &[("m1", 10)]);
    assert_eq!(seen(&stage, &mut world)[1], BTreeMap::from([("a".into(), 30)]));
    let rows = world.store.read(|view| together(view, &stage.scan_with(Some(view), None))).unwrap();
    assert!(!rows[0].foreign && rows.len() == 1, "{rows:?}");
    read(&mut world, a, &[("m2", 20)]);
    assert_eq!(seen(&stage, &mut world), [BTreeMap::new(), BTreeMap::from([("a".into(), 30)])]);
}

#[test]
fn calls_of_a_session_deleted_from_the_store_are_found_again() {
    let (stage, mut world) = (Stage::new(), World::new());
    stage.put("a.jsonl", &[answer("m1", "a", 10)]);
    let a = session(&mut world, "a", &[("m1", 10)]);
    assert_eq!(seen(&stage, &mut world)[0], BTreeMap::new());
    let n = world.session(a).n;
    world.store.sql().execute("DELETE FROM session WHERE n = ?1", [n]).unwrap();
    assert_eq!(seen(&stage, &mut world)[0], BTreeMap::from([("a".into(), 10)]));
}

#[test]
fn foreign_conversations_come_with_their_calls_in_order() {
    let (stage, mut world) = (Stage::new(), World::new());
    let at = |at: &'static str, id: &'static str| Answer { id, session: "b", at, ..Answer::default() }.line();
    stage.put("a.jsonl", &[answer("m1", "a", 10)]);
    stage.put(
        "b.jsonl",
        &[at("2026-11-15T11:00:02.000Z", "m4"), at("2026-11-15T11:00:01.000Z", "m2"), answer("m1", "b", 10)],
    );
    let unknown = Answer {
        id: "m3",
        session: "b",
        at: "2026-11-15T12:00:00.000Z",
        model: "claude-next-9",
        more: r#","isSidechain":true,"agentId":"x""#,
        ..Answer::default()
    };
    stage.put("b/subagents/agent-x.jsonl", &[unknown.line()]);
    session(&mut world, "a", &[("m1", 10)]);
    let root: OsString = stage.root().into();
    let scanner = Scanner {
        folder: stage.memory(),
        agents: &AGENTS,
        var: &|name| (name == "CLAUDE_CONFIG_DIR").then(|| root.clone()),
        days: Days::of(TimeZone::UTC),
        prices: &pricing::PriceList::default(),
        watch: None,
    };
    for _ in 0..2 {
        let foreign = world.store.read(|view| scanner.foreign(Some(view))).unwrap();
        let all: Vec<_> = foreign.calls().map(Result::unwrap).collect();
        assert_eq!(all.len(), 1);
        let (session, calls) = &all[0];
        assert_eq!(
            (session.agent.as_str(), session.conversation.0.as_str(), session.sums.calls.api_calls),
            ("claude", "b", 3)
        );
        assert_eq!((session.project.as_deref(), session.branch.as_deref()), (Some("widgets"), Some("main")));
        assert_eq!(session.sums.first.to_string(), "2026-11-15T11:00:01.000Z");
        assert_eq!(session.sums.last.to_string(), "2026-11-15T12:00:00.000Z");
        let sighting: Vec<_> = calls
            .iter()
            .map(|call| (call.record.key.as_str(), call.cost.is_some(), call.record.subagent.as_deref()))
            .collect();
        assert_eq!(sighting, [("m2", true, None), ("m4", true, None), ("m3", false, Some("x"))]);
    }
    assert!(foreign_of_nothing(&scanner));
}

fn foreign_of_nothing(scanner: &Scanner<'_>) -> bool {
    let empty = tempfile::tempdir().unwrap();
    let nowhere =
        Scanner { folder: empty.path().join("scan"), agents: &[], days: Days::of(TimeZone::UTC), ..*scanner };
    nowhere.foreign(None).unwrap().calls().next().is_none()
}
