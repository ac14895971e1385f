use super::super::Error;
use super::super::lifecycle::{self, BindResult, ConversationStart, StartKind, Transition};
use super::super::state::{Exit, Phase};
use super::{World, agent_session, binding};
use types::TransitionKind;
use types::{EndReason, Link, Status};
use types::{RunId, SessionId};

#[test]
fn a_run_from_start_to_exit() {
    let mut world = World::new();
    let (run, started) = world.start(ConversationStart::Fresh);
    assert_eq!(started.kind, StartKind::New);
    let row = world.session(started.session);
    assert_eq!((row.phase, row.link, row.status), (Phase::Open, Link::Pending, None));

    assert_eq!(world.bind(started.session, "a").unwrap(), BindResult::New);
    assert_eq!(world.bind(started.session, "a").unwrap(), BindResult::Already);
    assert!(world.end(run, Exit::Code(0)).closed);

    let row = world.session(started.session);
    assert_eq!((row.phase, row.link, row.status), (Phase::Closed, Link::Matched, Some(Status::Completed)));
    assert_eq!(
        world.events(started.session),
        ["1.0 session.start startup", "2.0 session.bound a", "3.0 session.end exit"]
    );
    let end = world.attributes(started.session, "session.end");
    assert_eq!(end["lastSeq"], 3);
    assert_eq!(end["exitCode"], 0);
    assert_eq!(end["durationMs"], 1100 + 100);
    assert_eq!(end["totals"]["apiCalls"], 0);
}

#[test]
fn ending_twice_ends_once() {
    let mut world = World::new();
    let (run, started) = world.start(ConversationStart::Fresh);
    assert!(world.end(run, Exit::Signal(15)).closed);
    assert!(!world.end(run, Exit::Code(0)).closed);
    assert_eq!(world.events(started.session), ["1.0 session.start startup", "2.0 session.end signal"]);
    let row = world.session(started.session);
    assert_eq!((row.status, row.signal, row.exit_code), (Some(Status::Failed), Some(15), None));
    assert_eq!(row.link, Link::Failed);
}

#[test]
fn clears_make_a_chain() {
    let mut world = World::new();
    let mut begin = world.begin(ConversationStart::Fresh);
    begin.name = Some("fix-auth".into());
    begin.tags = vec!["night".into()];
    let (run, first) = world.start_as(&begin);
    world.bind(first.session, "a").unwrap();
    let mut chain = vec![first];
    for agent in ["b", "c", "d"] {
        let result = world.transition(run, TransitionKind::Clear, Some(agent)).unwrap();
        assert!(result.old.closed);
        chain.push(result.new);
    }
    // And one whose agent session is not known at once, ended before it ever is.
    chain.push(world.transition(run, TransitionKind::Clear, None).unwrap().new);
    world.end(run, Exit::Code(0));

    let names: Vec<_> = chain.iter().map(|started| started.name.as_str()).collect();
    assert_eq!(names, ["fix-auth", "fix-auth.2", "fix-auth.3", "fix-auth.4", "fix-auth.5"]);
    for pair in chain.windows(2) {
        let (old, new) = (world.session(pair[0].session), world.session(pair[1].session));
        assert_eq!((old.transitioned_to, new.transitioned_from), (Some(new.id), Some(old.id)));
        assert_eq!((old.end_reason, old.status), (Some(EndReason::Clear), Some(Status::Completed)));
        assert_eq!(old.ended_at, Some(new.started_at));
        assert_eq!(world.attributes(new.id, "session.start")["tags"][0], "night");
    }
    assert_eq!(
        world.events(chain[1].session),
        ["1.0 session.start clear", "2.0 session.bound b", "3.0 session.end clear"]
    );
    assert_eq!(world.events(chain[4].session), ["1.0 session.start clear", "2.0 session.end exit"]);
    assert_eq!(world.session(chain[4].session).link, Link::Failed);
}

#[test]
fn a_chain_without_further_numbers_goes_on_as_another() {
    let mut world = World::new();
    let (run, started) = world.start_as(&world.begin(ConversationStart::Fresh));
    world.bind(started.session, "a").unwrap();
    let last = "UPDATE session SET name_base = 'fix', name_number = 4294967295, name = 'fix.4294967295'";
    world.store.sql().execute(last, []).unwrap();
    let change = Transition { kind: TransitionKind::Clear, binding: Some(binding("b")), workspace: None };
    let at = world.wait(10);
    let result = world.store.write(|tx| lifecycle::transition(tx, at, &world.ids, run, &change)).unwrap();
    assert_eq!(world.session(result.new.session).name, "fix");
    world.check();
}

#[test]
fn a_transition_is_whole_or_not_at_all() {
    // Broken off before its first statement, its second, …: each time nothing of it is there.
    let mut world = World::new();
    let (run, first) = world.start(ConversationStart::Fresh);
    world.bind(first.session, "a").unwrap();
    let before = world.events(first.session);
    let mut broken = 0;
    for statements in 0.. {
        world.store.faults.after(statements);
        let at = world.wait(10);
        let change = Transition { kind: TransitionKind::Clear, binding: Some(binding("b")), workspace: None };
        let result = world.store.write(|tx| lifecycle::transition(tx, at, &world.ids, run, &change));
        world.store.faults.none();
        world.check();
        if result.is_ok() {
            break;
        }
        broken += 1;
        assert_eq!(world.events(first.session), before);
        let sessions: i64 =
            world.store.sql().query_row("SELECT count(*) FROM session", [], |row| row.get(0)).unwrap();
        assert_eq!(sessions, 1);
    }
    assert!(broken > 10, "only {broken} statements were tried");
    assert_eq!(world.events(first.session).last().unwrap(), "3.0 session.end clear");
}

#[test]
fn resume_by_id_reopens_the_session() {
    let mut world = World::new();
    let (run, first) = world.start(ConversationStart::Fresh);
    world.bind(first.session, "a").unwrap();
    world.end(run, Exit::Code(1));
    world.wait(3_600_000);

    let (run, again) = world.start(ConversationStart::Named(agent_session("a")));
    assert_eq!((again.session, again.kind), (first.session, StartKind::Reopened));
    let row = world.session(first.session);
    assert_eq!((row.ended_at, row.end_reason, row.exit_code, row.status), (None, None, None, None));
    world.end(run, Exit::Code(0));

    assert_eq!(
        world.events(first.session),
        [
            "1.0 session.start startup",
            "2.0 session.bound a",
            "3.0 session.end exit",
            "4.0 session.start resume",
            "5.0 session.end exit",
        ]
    );
    let row = world.session(first.session);
    assert_eq!((row.opening, row.status), (2, Some(Status::Completed)));
    // The hour in between is not open time.
    assert_eq!(world.attributes(first.session, "session.end")["durationMs"], 1100 + 1000);
}

#[test]
fn resume_of_a_conversation_never_seen_adopts_it() {
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Named(agent_session("foreign")));
    assert_eq!(started.kind, StartKind::New);
    world.bind(started.session, "foreign").unwrap();
    assert_eq!(world.events(started.session), ["1.0 session.start resume", "2.0 session.bound foreign"]);
    let row = world.session(started.session);
    assert_eq!(row.owns_from, Some(row.started_at));
}

#[test]
fn a_provisional_session_tells_nothing_until_it_is_bound() {
    let mut world = World::new();
    let (run, started) = world.start(ConversationStart::Unnamed);
    assert_eq!(started.kind, StartKind::Provisional);
    assert!(world.events(started.session).is_empty());
    let row = world.session(started.session);
    assert_eq!((row.phase, row.link), (Phase::Provisional, Link::Pending));

    assert_eq!(world.bind(started.session, "new").unwrap(), BindResult::New);
    assert_eq!(world.events(started.session), ["1.0 session.start resume", "2.0 session.bound new"]);
    let events = world.store.read(|view| view.events(row.n)).unwrap();
    assert_eq!(events[0].time, row.started_at);
    world.end(run, Exit::Code(0));
}

#[test]
fn a_provisional_session_that_ends_unbound_tells_both() {
    let mut world = World::new();
    let (run, started) = world.start(ConversationStart::Unnamed);
    world.end(run, Exit::Code(1));
    assert_eq!(world.events(started.session), ["1.0 session.start resume", "2.0 session.end exit"]);
    assert_eq!(world.session(started.session).link, Link::Failed);
}

#[test]
fn a_provisional_session_of_a_known_conversation_becomes_an_alias() {
    let mut world = World::new();
    let (run, known) = world.start(ConversationStart::Fresh);
    world.bind(known.session, "a").unwrap();
    world.end(run, Exit::Code(0));

    let mut begin = world.begin(ConversationStart::Unnamed);
    begin.name = Some("second-look".into());
    begin.tags = vec!["night".into()];
    let (run, provisional) = world.start_as(&begin);
    let began = world.now;
    // An agent started inside the agent before it was bound: its parent must not be reported by the provisional id.
    let mut inner = world.begin(ConversationStart::Fresh);
    inner.parent = Some(run);
    let (_, child) = world.start_as(&inner);
    assert!(world.attributes(child.session, "session.start")["parentSessionId"].is_null());

    let BindResult::Merged(into) = world.bind(provisional.session, "a").unwrap() else {
        panic!("not merged")
    };
    assert_eq!(
        (into.session, into.kind, into.name.as_str()),
        (known.session, StartKind::Reopened, "second-look")
    );
    assert_eq!(world.session(provisional.session).id, known.session, "the id is an alias now");
    assert_eq!(world.store.read(|view| view.current(run)).unwrap().unwrap().id, known.session);
    assert_eq!(
        world.events(known.session),
        [
            "1.0 session.start startup",
            "2.0 session.bound a",
            "3.0 session.end exit",
            "4.1 session.start resume",
        ]
    );
    let opening =
        world.store.read(|view| view.openings(world_n(view, known.session))).unwrap().pop().unwrap();
    assert_eq!(opening.opened_at, began);
    let parent = world.attributes(child.session, "session.start")["parentSessionId"].clone();
    assert_eq!(parent, known.session.to_string());

    world.end(run, Exit::Code(0));
    assert_eq!(world.events(known.session).last().unwrap(), "5.0 session.end exit");
    let everything: String = world
        .store
        .sql()
        .query_row("SELECT group_concat(attributes) FROM event", [], |row| row.get(0))
        .unwrap();
    assert!(!everything.contains(&provisional.session.to_string()));
}

fn world_n(view: &crate::View<'_>, id: SessionId) -> i64 {
    view.session(id).unwrap().unwrap().n
}

#[test]
fn a_second_run_joins_and_the_last_one_ends_the_session() {
    let mut world = World::new();
    let (one, started) = world.start(ConversationStart::Fresh);
    world.bind(started.session, "a").unwrap();
    let (two, joined) = world.start(ConversationStart::Named(agent_session("a")));
    assert_eq!((joined.session, joined.kind), (started.session, StartKind::Joined));
    assert!(!world.end(one, Exit::Code(0)).closed);
    assert_eq!(world.session(started.session).phase, Phase::Open);
    assert!(world.end(two, Exit::Code(3)).closed);
    assert_eq!(
        world.events(started.session),
        ["1.0 session.start startup", "2.0 session.bound a", "3.0 session.end exit"]
    );
    assert_eq!(world.session(started.session).exit_code, Some(3));
}

#[test]
fn a_session_names_a_run_that_is_in_it() {
    let mut world = World::new();
    let (one, started) = world.start(ConversationStart::Fresh);
    world.bind(started.session, "a").unwrap();
    let (two, _) = world.start(ConversationStart::Named(agent_session("a")));
    let mut number = |run| world.store.read(|view| view.run(run)).unwrap().map(|row| row.n);
    let (first, second) = (number(one), number(two));
    assert_eq!(world.session(started.session).run, second);
    world.end(two, Exit::Code(0));
    assert_eq!(world.session(started.session).run, first);
}

#[test]
fn a_clear_of_one_of_two_runs_leaves_the_session_to_the_other() {
    let mut world = World::new();
    let (one, started) = world.start(ConversationStart::Fresh);
    world.bind(started.session, "a").unwrap();
    let (two, _) = world.start(ConversationStart::Named(agent_session("a")));
    let result = world.transition(one, TransitionKind::Clear, Some("b")).unwrap();
    assert!(!result.old.closed);
    let (old, new) = (world.session(started.session), world.session(result.new.session));
    assert_eq!((old.transitioned_to, old.phase), (None, Phase::Open));
    assert_eq!(new.transitioned_from, Some(old.id));
    world.end(one, Exit::Code(0));
    world.end(two, Exit::Code(0));
    assert_eq!(world.session(started.session).end_reason, Some(EndReason::Exit));
}

#[test]
fn switching_back_and_forth_reopens_each_time() {
    let mut world = World::new();
    let (run, first) = world.start(ConversationStart::Fresh);
    world.bind(first.session, "a").unwrap();
    let second = world.transition(run, TransitionKind::Switch, Some("b")).unwrap().new;
    let back = world.transition(run, TransitionKind::Switch, Some("a")).unwrap().new;
    assert_eq!((back.session, back.kind), (first.session, StartKind::Reopened));
    let forth = world.transition(run, TransitionKind::Switch, Some("b")).unwrap().new;
    assert_eq!((forth.session, forth.kind), (second.session, StartKind::Reopened));
    assert!(matches!(world.transition(run, TransitionKind::Switch, Some("b")), Err(Error::AlreadyThere(_))));
    world.end(run, Exit::Code(0));
    assert_eq!(
        world.events(first.session),
        [
            "1.0 session.start startup",
            "2.0 session.bound a",
            "3.0 session.end switch",
            "4.0 session.start switch",
            "5.0 session.end switch",
        ]
    );
    assert_eq!(world.session(first.session).transitioned_to, Some(second.session));
    assert_eq!(world.session(first.session).transitioned_from, Some(second.session));
    assert_eq!(world.session(second.session).transitioned_to, None, "its last closing was the exit");
}

#[test]
fn a_session_already_told_of_that_is_a_known_one_ends_as_a_switch() {
    let mut world = World::new();
    let (run, known) = world.start(ConversationStart::Fresh);
    world.bind(known.session, "a").unwrap();
    world.end(run, Exit::Code(0));
    let (run, started) = world.start(ConversationStart::Unsure);
    let BindResult::Switched(result) = world.bind(started.session, "a").unwrap() else {
        panic!("not switched")
    };
    assert_eq!(result.new.session, known.session);
    assert_eq!(world.events(started.session), ["1.0 session.start startup", "2.0 session.end switch"]);
    assert_eq!(world.store.read(|view| view.current(run)).unwrap().unwrap().id, known.session);
    world.end(run, Exit::Code(0));
}

#[test]
fn doubt_stays_until_evidence_decides() {
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Fresh);
    world.store.write(|tx| lifecycle::doubt(tx, started.session)).unwrap();
    assert_eq!(world.session(started.session).link, Link::Ambiguous);
    world.bind(started.session, "a").unwrap();
    assert_eq!(world.session(started.session).link, Link::Matched);
    let refused = world.store.write(|tx| lifecycle::doubt(tx, started.session));
    assert!(matches!(refused, Err(Error::Illegal { .. })));
    assert_eq!(world.session(started.session).link, Link::Matched);
}

#[test]
fn late_evidence_binds_an_ended_session_and_amends_its_end() {
    let mut world = World::new();
    let (run, started) = world.start(ConversationStart::Fresh);
    world.end(run, Exit::Code(0));
    world.bind(started.session, "a").unwrap();
    assert_eq!(
        world.events(started.session),
        ["1.0 session.start startup", "2.1 session.end exit", "3.0 session.bound a"]
    );
    assert_eq!(world.attributes(started.session, "session.end")["lastSeq"], 3);
}

#[test]
fn another_conversation_needs_a_transition_not_a_binding() {
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Fresh);
    world.bind(started.session, "a").unwrap();
    assert!(matches!(world.bind(started.session, "b"), Err(Error::Illegal { .. })));
}

#[test]
fn nothing_happens_in_a_run_that_has_ended() {
    let mut world = World::new();
    let (run, _) = world.start(ConversationStart::Fresh);
    world.end(run, Exit::Code(0));
    assert!(matches!(world.transition(run, TransitionKind::Clear, Some("b")), Err(Error::NoRun(_))));
    assert!(matches!(world.transition(world.ids_run(), TransitionKind::Clear, None), Err(Error::NoRun(_))));
}

#[test]
fn a_clock_set_back_gives_no_negative_time() {
    let mut world = World::new();
    let (run, started) = world.start(ConversationStart::Fresh);
    world.wait(-3_600_000);
    world.end(run, Exit::Code(0));
    assert_eq!(world.attributes(started.session, "session.end")["durationMs"], 0);
}

#[test]
fn names_are_unique() {
    let mut world = World::new();
    let named = |world: &World, name: &str| {
        let mut begin = world.begin(ConversationStart::Fresh);
        begin.name = Some(name.into());
        begin
    };
    for expected in ["fix", "fix-2", "fix-3"] {
        let begin = named(&world, "fix");
        assert_eq!(world.start_as(&begin).1.name, expected);
    }
    // The chains of `fix` and of a session called `fix.2` do not run into each other.
    let begin = named(&world, "fix.2");
    let (other, _) = world.start_as(&begin);
    let run = world.store.sql().query_row("SELECT id FROM run WHERE n = 1", [], |row| row.get(0)).unwrap();
    assert_eq!(world.transition(run, TransitionKind::Clear, Some("x")).unwrap().new.name, "fix.3");
    assert_eq!(world.transition(other, TransitionKind::Clear, Some("y")).unwrap().new.name, "fix.2.2");
    let begin = named(&world, "-bad");
    let at = world.wait(1);
    assert!(matches!(
        world.store.write(|tx| lifecycle::start(tx, at, &world.ids, &begin)),
        Err(Error::Name(_))
    ));
}

#[test]
fn the_version_learned_later_revises_the_start() {
    let mut world = World::new();
    let (_, started) = world.start(ConversationStart::Fresh);
    assert!(world.attributes(started.session, "session.start")["agentVersion"].is_null());
    for _ in 0..2 {
        world.store.write(|tx| lifecycle::learn_version(tx, started.session, "2.1.197")).unwrap();
    }
    assert_eq!(world.events(started.session), ["1.1 session.start startup"]);
    assert_eq!(world.attributes(started.session, "session.start")["agentVersion"], "2.1.197");
}

impl World {
    fn ids_run(&self) -> RunId {
        use types::Ids;
        self.ids.run()
    }
}

#[test]
fn only_a_session_marked_local_stays_here_whatever_its_agent_is_called() {
    let mut world = World::new();
    for (local_only, sent) in [(true, false), (false, true)] {
        // `codemie run -- ./demo` is a program of the user's; the demonstration is not.
        let begin =
            lifecycle::RunStart { agent: "demo".into(), local_only, ..world.begin(ConversationStart::Fresh) };
        let (run, started) = world.start_as(&begin);
        let next = world.transition(run, TransitionKind::Clear, None).unwrap().new.session;
        assert_eq!(world.session(next).local_only, local_only, "a /clear changes nothing of it");
        let outgoing = world.store.read(|view| view.outgoing(0, 0, i64::MAX, 100)).unwrap();
        for session in [started.session, next] {
            assert_eq!(outgoing.iter().any(|event| *event.session == *session.to_string()), sent);
        }
    }
}
