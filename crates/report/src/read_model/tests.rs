//! The read model against a backend that was sent the same events, and against a store that changes.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;

use agents::meter::record::{ApiError, Fact, Record, Tool};
use backend::sqlite::Sqlite;
use backend::storage::Storage;
use jiff::tz::TimeZone;
use reader::token::Owner;
use reader::{Day, Order, OrderBy};
use rusqlite::Connection;
use store::Priced;
use store::session::lifecycle::{ConversationStart, RunStart};
use store::session::prune::prune;
use store::session::state::Exit;
use store::session::testing::{World, usage};
use types::{Filter, RunId, SessionId, Span, Status, TransitionKind};

use super::*;

fn wait<T>(answer: impl Future<Output = Result<T, Error>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(answer).unwrap()
}

fn sessions_of(world: &World) -> Arc<LocalSessions> {
    LocalSessions::new(world.another(), world.another())
}

fn shown(sessions: &Arc<LocalSessions>) -> Vec<Session> {
    wait(sessions.reader().sessions(SessionFilter::default(), Page::first(100))).sessions
}

fn names(sessions: &Arc<LocalSessions>) -> Vec<String> {
    shown(sessions).iter().map(|session| session.name().to_owned()).collect()
}

fn fact(key: &str, at: Timestamp, fact: Fact) -> Priced {
    let record = Record { key: key.into(), at, copied: false, subagent: None, fact };
    Priced { record, cost: None, prices: None }
}

fn tool(name: &str, ok: bool, lines_added: u64) -> Fact {
    let kind = if lines_added > 0 { types::ToolKind::Edit } else { types::ToolKind::Exec };
    Fact::Tool(Tool {
        name: name.into(),
        ok,
        kind,
        file: None,
        further: Vec::new(),
        lines_added,
        lines_removed: 1,
    })
}

fn call_of(model: &str, key: &str, at: Timestamp, output: u64, priced: bool) -> Priced {
    let mut call = usage(key, at, output);
    if let Fact::Usage(usage) = &mut call.record.fact {
        usage.model = model.into();
    }
    call.cost = call.cost.filter(|_| priced);
    call
}

/// A start with another agent, project and so on.
fn started(world: &mut World, change: impl FnOnce(&mut RunStart)) -> (RunId, SessionId) {
    let mut begin = world.begin(ConversationStart::Fresh);
    change(&mut begin);
    let (run, started) = world.start_as(&begin);
    (run, started.session)
}

/// Sessions of all kinds over some days.
fn many_kinds() -> World {
    const HOUR: i64 = 3_600_000;
    let mut world = World::new();
    let at = |world: &World, ms: i64| Timestamp(world.now.0 + ms);
    let (run, first) = started(&mut world, |_| ());
    world.bind(first, "a").unwrap();
    let records = [
        fact("p1", at(&world, 10), Fact::Prompt),
        usage("a1", at(&world, 20), 40),
        fact("t1", at(&world, 30), tool("Edit", true, 7)),
        fact("t2", at(&world, 40), tool("Bash(rm -rf x)", false, 0)),
        fact("e1", at(&world, 50), Fact::Error(ApiError { status: Some(529), kind: "overloaded".into() })),
        call_of("unheard-of", "a2", at(&world, 20 * HOUR / 60), 9, false),
        call_of("gpt-5.2", "a3", at(&world, HOUR), 90, true),
    ];
    world.feed(first, 1, &records);
    world.wait(2 * HOUR);
    let second = world.transition(run, TransitionKind::Clear, Some("b")).unwrap().new.session;
    world.feed(second, 2, &[usage("b1", at(&world, 10), 4000), fact("p2", at(&world, 5), Fact::Prompt)]);
    world.wait(9 * HOUR);
    world.end(run, Exit::Code(1));
    // Another agent with tags and a group, a night later.
    world.wait(13 * HOUR);
    let (other, third) = started(&mut world, |begin| {
        begin.agent = "codex".into();
        begin.workspace.project = Some("Ölpumpe".into());
        begin.workspace.repository = None;
        begin.workspace.branch = Some("fix/rounding".into());
        begin.tags = vec!["Night".into(), "b".into()];
        begin.group = Some("wave-1".into());
        begin.parent = Some(run);
    });
    world.bind(third, "c").unwrap();
    world.feed(third, 3, &[call_of("gpt-5.2", "c1", at(&world, 1), 1, true), usage("c2", at(&world, 2), 4)]);
    world.wait(40 * HOUR);
    world.end(other, Exit::Code(0));
    // One that begins and ends without a conversation, and one that runs.
    let (silent, _) = started(&mut world, |begin| begin.workspace.project = None);
    world.end(silent, Exit::Code(0));
    let (_, running) = started(&mut world, |_| ());
    world.bind(running, "d").unwrap();
    world.feed(running, 4, &[usage("d1", at(&world, 1), 30)]);
    // The first call is written on, and the first conversation is resumed.
    world.feed(first, 11, &[usage("a1", Timestamp(records[1].record.at.0), 60)]);
    let again = world.begin(ConversationStart::Named(types::AgentSessionId("a".into())));
    let (run, resumed) = world.start_as(&again);
    assert_eq!(resumed.session, first);
    world.end(run, Exit::Signal(9));
    world
}

/// A backend with the same events.
fn backend_of(world: &mut World) -> (tempfile::TempDir, Sqlite) {
    let folder = tempfile::tempdir().unwrap();
    let backend = Sqlite::open(&folder.path().join("backend.db")).unwrap();
    let events = world.store.read(|view| view.history(10_000)).unwrap();
    let events: Vec<_> = events.into_iter().map(|outgoing| outgoing.event).collect();
    let number = events.len();
    assert_eq!(wait(backend.ingest(&Owner::default(), events, world.now)).accepted, number);
    (folder, backend)
}

/// Holds each answer of the two against one another.
struct Both<'a>(&'a dyn Reader, &'a dyn Reader);

impl Both<'_> {
    fn same<T: Debug + PartialEq>(&self, what: impl Debug, ask: impl Fn(&dyn Reader) -> Answer<'_, T>) -> T {
        let (local, backend) = (wait(ask(self.0)), wait(ask(self.1)));
        assert_eq!(local, backend, "{what:?}");
        local
    }
}

/// Events without what is absent in them: a database keeps nothing of that.
fn kept(events: &[reader::TimelineEvent]) -> Vec<String> {
    events.iter().map(|event| serde_json::to_string(event).unwrap()).collect()
}

/// When something arrived differs, and a database keeps nothing of what is absent.
fn arrived(mut session: Session) -> Session {
    session.received_at = Timestamp(0);
    session.life = serde_json::from_str(&serde_json::to_string(&session.life).unwrap()).unwrap();
    session
}

fn filters() -> Vec<SessionFilter> {
    let text = |text: &str| Some(text.to_owned());
    let all = Filter::default;
    let midnight = Timestamp::parse("2026-11-17T00:00:00Z");
    let filters = [
        all(),
        Filter { agent: text("claude"), ..all() },
        Filter { without_agent: text("claude"), ..all() },
        Filter { project: text("Ölpumpe"), ..all() },
        Filter { branch: text("main"), status: Some(Status::Active), ..all() },
        Filter { status: Some(Status::Failed), ..all() },
        Filter { model: text("gpt-5.2"), ..all() },
        Filter { model: text("unheard-of"), ..all() },
        Filter { machine: text("m"), ..all() },
        Filter { user: text("u"), ..all() },
        Filter { tag: text("NIGHT"), ..all() },
        Filter { group: text("wave-1"), ..all() },
        Filter { group: text("wave"), ..all() },
        Filter { words: vec!["öLP".into()], ..all() },
        Filter { words: vec!["nothing".into()], ..all() },
        Filter { span: Span { since: midnight, until: None }, ..all() },
        Filter { span: Span { since: None, until: midnight }, ..all() },
    ];
    let gaps = SessionFilter { gaps: true, ..SessionFilter::default() };
    filters.into_iter().map(SessionFilter::from).chain([gaps]).collect()
}

fn orders(now: Timestamp) -> Vec<Order> {
    let by = [
        OrderBy::Started,
        OrderBy::Name,
        OrderBy::Agent,
        OrderBy::Project,
        OrderBy::User,
        OrderBy::Status,
        OrderBy::Duration(now),
        OrderBy::Tokens,
        OrderBy::Cost,
    ];
    by.into_iter().flat_map(|by| [true, false].map(|descending| Order { by, descending })).collect()
}

#[test]
fn lists_are_those_of_a_backend_with_the_same_events() {
    let mut world = many_kinds();
    let (_folder, backend) = backend_of(&mut world);
    let local = sessions_of(&world).reader();
    let both = Both(&local, &backend);
    let mut found = Vec::new();
    for filter in filters() {
        found.push(both.same(&filter, |reader| reader.count_sessions(filter.clone(), 1000)).sessions);
        for order in orders(Timestamp(world.now.0 + 500)) {
            let filter = SessionFilter { order, ..filter.clone() };
            let mut page = Page::first(2);
            loop {
                let of = |reader: &dyn Reader| wait(reader.sessions(filter.clone(), page.clone()));
                let (ours, theirs) = (of(both.0), of(both.1));
                let whole =
                    |page: &SessionPage| page.sessions.iter().cloned().map(arrived).collect::<Vec<_>>();
                assert_eq!((whole(&ours), &ours.next), (whole(&theirs), &theirs.next), "{filter:?} {page:?}");
                let Some(next) = ours.next else { break };
                page.after = Some(next);
            }
        }
    }
    assert!(found.iter().filter(|sessions| **sessions > 0).count() >= 12, "{found:?}");
    let two = wait(local.count_sessions(SessionFilter::default(), 2));
    assert_eq!(two.sessions, 2);
}

#[test]
fn sums_are_those_of_a_backend_with_the_same_events() {
    let mut world = many_kinds();
    let (_folder, backend) = backend_of(&mut world);
    let local = sessions_of(&world).reader();
    let both = Both(&local, &backend);
    let text = |text: &str| Some(text.to_owned());
    let day = |day: &str| Day::parse(day);
    let all = Filter::default;
    let whenever = [
        all(),
        Filter { agent: text("claude"), ..all() },
        Filter { without_agent: text("codex"), ..all() },
        Filter { model: text("gpt-5.2"), ..all() },
        Filter { project: text("Ölpumpe"), ..all() },
        Filter { user: text("nobody"), ..all() },
        Filter { branch: text("main"), ..all() },
    ];
    let spans = [
        (day("2026-11-17"), None, None),
        (None, day("2026-11-16"), None),
        (day("2026-11-18"), day("2026-11-16"), None),
        (day("2026-11-16"), day("2026-11-17"), text("fix/rounding")),
    ];
    let mut rows = 0;
    for zone in ["UTC0", "<+0545>-5:45", "EST5EDT,M3.2.0,M11.1.0", "<+14>-14"] {
        let zone = TimeZone::posix(zone).unwrap();
        let within = spans.iter().map(|(first, last, branch)| Filter {
            span: Day::span_in(*first, *last, &zone),
            branch: branch.clone(),
            ..all()
        });
        for filter in whenever.iter().cloned().chain(within) {
            let filter = UsageFilter { filter, zone: zone.clone() };
            for by in [By::Day, By::Session, By::Model, By::Project, By::Agent, By::Branch, By::User] {
                for range in [0..100, 0..1, 1..2] {
                    let what = (by, &filter, &range);
                    rows +=
                        both.same(what, |reader| reader.usage(by, filter.clone(), range.clone())).rows.len();
                }
                rows += both.same((by, &filter), |reader| reader.series(by, filter.clone())).len();
            }
            if filter.filter.branch.is_none() {
                let of = |reader: &dyn Reader| {
                    let exact = |row: HourRow| HourRow { sums: row.sums.exact(), ..row };
                    wait(reader.hours(filter.clone())).into_iter().map(exact).collect::<Vec<_>>()
                };
                assert_eq!(of(both.0), of(both.1), "{filter:?}");
                rows += of(both.0).len();
            }
        }
    }
    assert!(rows > 500, "{rows}");
    assert!(!both.same("spending", |reader| reader.spending()).is_empty());
    let facets = both.same("facets", |reader| reader.facets());
    assert_eq!((facets.agents.len(), facets.models.len(), facets.projects.len()), (2, 3, 2));
}

#[test]
fn sessions_are_those_of_a_backend_with_the_same_events() {
    let mut world = many_kinds();
    let (_folder, backend) = backend_of(&mut world);
    let local = sessions_of(&world).reader();
    let both = Both(&local, &backend);
    let all = wait(local.sessions(SessionFilter::default(), Page::first(100))).sessions;
    let ids: Vec<String> = all.iter().map(|session| session.id.clone()).collect();
    let (mut chained, mut tools, mut children) = (0, 0, 0);
    for id in &ids {
        let of = |reader: &dyn Reader| {
            let mut detail = wait(reader.session(id)).unwrap();
            detail.session = arrived(detail.session);
            for around in [&mut detail.chain, &mut detail.children] {
                *around = std::mem::take(around).into_iter().map(arrived).collect();
            }
            detail.parent = detail.parent.map(arrived);
            let openings = kept(&std::mem::take(&mut detail.openings));
            (detail, openings)
        };
        let found = of(both.0);
        assert_eq!(found, of(both.1));
        let detail = found.0;
        (chained, tools) = (chained + usize::from(detail.chain.len() > 1), tools + detail.tools.len());
        children += detail.children.len();
        let mut after = TimelinePosition::default();
        loop {
            let of = |reader: &dyn Reader| wait(reader.timeline(id, after, 3));
            let (page, other) = (of(both.0), of(both.1));
            assert_eq!((kept(&page.events), page.next), (kept(&other.events), other.next));
            let Some(next) = page.next else { break };
            after = next;
        }
        let (from, to) = (detail.session.started_at(), world.now);
        for parts in [1, 7] {
            let activity = both.same((id, parts), |reader| reader.activity(id, from, to, parts));
            assert!(activity.len() <= parts);
        }
        both.same(id, |reader| reader.activity(id, to, from, 3));
    }
    assert_eq!((chained, tools, children), (2, 2, 1));
    let sorted = |mut ids: Vec<String>| {
        ids.sort();
        ids
    };
    let of = |reader: &dyn Reader| sorted(wait(reader.chained(ids.clone(), ids.clone())));
    assert_eq!(of(both.0).iter().collect::<HashSet<_>>(), of(both.1).iter().collect::<HashSet<_>>());
    assert_eq!(wait(local.sessions_by_id(ids.clone())).len(), 5);
    assert_eq!(wait(local.session("nobody")), None);
    let (ours, theirs) = (wait(local.health(10)), wait(backend.health(10)));
    let numbers =
        |health: &Health| (health.gap_count, health.sessions, health.active, health.origins[0].events);
    assert_eq!(numbers(&ours), numbers(&theirs));
}

#[test]
fn only_sessions_with_new_events_are_read_again() {
    let mut world = World::new();
    let (run, first) = started(&mut world, |_| ());
    started(&mut world, |_| ());
    let sessions = sessions_of(&world);
    assert_eq!(sessions.catch_up().unwrap(), 2);
    assert_eq!(sessions.catch_up().unwrap(), 0, "nothing new");
    let mut live = sessions.reader().live();
    world.bind(first, "a").unwrap();
    let call = |output| [usage("m1", Timestamp(1_780_000_000_000), output)];
    world.feed(first, 1, &call(10));
    assert_eq!(sessions.catch_up().unwrap(), 1);
    let touched: Vec<String> = live.try_recv().unwrap().iter().map(|one| one.session.clone()).collect();
    assert_eq!(touched, [first.to_string()]);
    let output =
        || wait(sessions.reader().usage(By::Agent, UsageFilter::default(), 0..1)).rows[0].sums.counts.output;
    assert_eq!(output(), 10);
    world.feed(first, 2, &call(25));
    sessions.catch_up().unwrap();
    assert_eq!(output(), 25, "the same call, written on");
    let second = world.transition(run, TransitionKind::Clear, Some("b")).unwrap().new.session;
    assert_eq!(sessions.catch_up().unwrap(), 2);
    let chain = wait(sessions.reader().session(&second.to_string())).unwrap().chain;
    assert!(chain[0].complete() && chain[1].status() == Status::Active, "{chain:?}");
    world.end(run, Exit::Code(0));
    sessions.catch_up().unwrap();
    assert_eq!(shown(&sessions).iter().filter(|session| session.complete()).count(), 2);
}

#[test]
fn what_follows_the_store_is_what_a_first_look_finds() {
    let mut world = many_kinds();
    let followed = sessions_of(&world);
    followed.catch_up().unwrap();
    let (run, more) = started(&mut world, |begin| begin.agent = "codex".into());
    world.bind(more, "m").unwrap();
    world.feed(
        more,
        9,
        &[
            usage("m1", Timestamp(1_780_000_000_000), 7),
            fact("p9", Timestamp(1_780_000_001_000), Fact::Prompt),
        ],
    );
    world.end(run, Exit::Code(0));
    followed.catch_up().unwrap();
    let fresh = sessions_of(&world);
    let plain = |sessions: &Arc<LocalSessions>| shown(sessions).into_iter().map(arrived).collect::<Vec<_>>();
    assert_eq!(plain(&followed), plain(&fresh));
    let (followed, fresh) = (followed.reader(), fresh.reader());
    let both = Both(&followed, &fresh);
    for by in [By::Day, By::Session, By::Model, By::Project, By::Agent] {
        both.same(by, |reader| reader.usage(by, UsageFilter::default(), 0..100));
    }
    both.same("hours", |reader| reader.hours(UsageFilter::default()));
    both.same("facets", |reader| reader.facets());
}

#[test]
fn events_that_a_newer_codemie_has_added_count_as_received() {
    let mut world = World::new();
    let (run, session) = started(&mut world, |_| ());
    world.bind(session, "a").unwrap();
    world.end(run, Exit::Code(0));
    let newer = Connection::open(world.home.database()).unwrap();
    let sql =
        "UPDATE event SET type = 'forecast', attributes = '{\"window\":\"5h\"}' WHERE type = 'session.bound'";
    assert_eq!(newer.execute(sql, []).unwrap(), 1);
    assert!(shown(&sessions_of(&world))[0].complete(), "no seq is missing");
}

#[test]
fn the_demo_is_shown_though_it_is_never_sent() {
    let mut world = World::new();
    started(&mut world, |begin| (begin.agent, begin.local_only) = ("demo".into(), true));
    assert_eq!(shown(&sessions_of(&world))[0].life.agent, "demo");
}

#[test]
fn pruned_sessions_are_forgotten_with_their_sums() {
    let mut world = World::new();
    let (old, first) = started(&mut world, |_| ());
    world.bind(first, "a").unwrap();
    world.feed(first, 1, &[usage("m1", world.now, 10)]);
    world.end(old, Exit::Code(0));
    let before = world.wait(1000);
    let (_, second) = started(&mut world, |_| ());
    let sessions = sessions_of(&world);
    assert_eq!(names(&sessions).len(), 2);
    assert_eq!(prune(&mut world.store, &world.home, before, None, false).unwrap().len(), 1);
    sessions.catch_up().unwrap();
    assert_eq!(names(&sessions), [world.session(second).name]);
    let sums = wait(sessions.reader().usage(By::Agent, UsageFilter::default(), 0..9)).rows[0].sums;
    assert_eq!((sums.counts.sessions, sums.counts.api_calls), (1, 0));
    assert!(wait(sessions.reader().facets()).models.is_empty());
}

/// The store gives the highest number again once its session is gone.
#[test]
fn a_session_with_the_number_of_a_pruned_one_takes_its_place() {
    let mut world = World::new();
    let (run, first) = started(&mut world, |_| ());
    world.bind(first, "a").unwrap();
    world.feed(first, 1, &[usage("m1", world.now, 10)]);
    world.end(run, Exit::Code(0));
    let number = world.session(first).n;
    let before = world.wait(1000);
    let sessions = sessions_of(&world);
    assert_eq!(names(&sessions).len(), 1);
    assert_eq!(prune(&mut world.store, &world.home, before, None, false).unwrap().len(), 1);
    let (_, second) = started(&mut world, |_| ());
    assert_eq!(world.session(second).n, number, "else this test shows nothing");
    sessions.catch_up().unwrap();
    assert_eq!(names(&sessions), [world.session(second).name]);
    let sums = wait(sessions.reader().usage(By::Agent, UsageFilter::default(), 0..9)).rows[0].sums;
    assert_eq!((sums.counts.sessions, sums.counts.api_calls), (1, 0));
}

/// An import may replace a session by a later export of it, under another number.
#[test]
fn a_session_that_comes_again_under_another_number_stays() {
    let mut world = World::new();
    let (run, first) = started(&mut world, |_| ());
    world.bind(first, "a").unwrap();
    world.feed(first, 1, &[usage("m1", world.now, 10)]);
    world.end(run, Exit::Code(0));
    let (run, second) = started(&mut world, |_| ());
    world.end(run, Exit::Code(0));
    let mut index = Index::default();
    let mut models = ModelNames::default();
    let now = world.now;
    let mut read = |world: &mut World| {
        world.store.read(|view| read_entries(view, Whose::All, &mut models, now)).unwrap()
    };
    for entry in read(&mut world) {
        index.put(Arc::new(entry));
    }
    let (one, two) = (world.session(first).n, world.session(second).n);
    let mut again = read(&mut world).into_iter().find(|entry| entry.number == Some(one)).unwrap();
    again.number = Some(two + 1);
    index.put(Arc::new(again));
    index.remove(one);
    assert!(index.get(&first.to_string()).is_some(), "its former number names nobody");
    assert_eq!(index.numbers().collect::<BTreeSet<_>>(), BTreeSet::from([two, two + 1]));
    index.remove(two + 1);
    assert!(index.get(&first.to_string()).is_none());
}

/// The record of a call is another session's where an import brought what is here already.
#[test]
fn calls_whose_record_another_session_owns_count_there_alone() {
    let mut world = World::new();
    let (run, first) = started(&mut world, |_| ());
    world.bind(first, "a").unwrap();
    world.feed(first, 1, &[usage("m1", world.now, 10)]);
    world.end(run, Exit::Code(0));
    let calls = |world: &World| {
        let sums = wait(sessions_of(world).reader().usage(By::Agent, UsageFilter::default(), 0..9));
        sums.rows[0].sums.counts.api_calls
    };
    assert_eq!(calls(&world), 1);
    let other = Connection::open(world.home.database()).unwrap();
    let copied =
        "UPDATE event SET record = NULL, attributes = '{\"key\":\"m1\",\"model\":\"claude-opus-4-8\"}'
                  WHERE type = 'usage'";
    assert_eq!(other.execute(copied, []).unwrap(), 1);
    assert_eq!(calls(&world), 1, "by its record, and not by its event once more");
}

#[test]
fn holes_in_an_imported_session_are_shown() {
    let mut world = World::new();
    let (run, session) = started(&mut world, |_| ());
    world.bind(session, "a").unwrap();
    world.end(run, Exit::Code(0));
    let other = Connection::open(world.home.database()).unwrap();
    assert_eq!(other.execute("DELETE FROM event WHERE seq = 2", []).unwrap(), 1);
    let shown = shown(&sessions_of(&world));
    assert_eq!((shown[0].missing_seq(), shown[0].complete()), (vec![(2, 2)], false));
}
