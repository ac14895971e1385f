//! Calls of the proxy beside those of the transcript, in every order.

use super::super::absorb::{Batch, take_records};
use super::super::lifecycle::{self, ConversationStart, Transition};
use super::super::proxied::{Fate, assign_waiting, assign_waiting_of_run, is_counted, take};
use super::super::state::Exit;
use super::super::{exchange, prune, record};
use super::absorb::fact;
use super::{World, agent_session, binding, usage};
use crate::{FileId, Priced, RecordRow, Seen};
use agents::meter::proxied::ProxiedCall;
use agents::meter::record::{ApiError, Fact, Usage};
use pricing::OWN;
use pricing::tier::Tier;
use serde_json::{Value, json};
use types::event::Source;
use types::{Billing, CallKind, Coverage, PicoDollars, RunId, SessionId, Timestamp, Tokens, TransitionKind};

fn tokens(output: u64) -> Tokens {
    Tokens { input: 10, output, cache_read: 1000, cache_write_5m: 100, ..Tokens::default() }
}

/// The proxy's view of what [`usage`] is in a transcript.
pub fn call(key: &str, at: Timestamp, output: u64) -> ProxiedCall {
    ProxiedCall {
        key: key.into(),
        keyed: true,
        at,
        agent: "claude".into(),
        run: None,
        conversation: Some(agent_session("a")),
        subagent: None,
        kind: CallKind::Main,
        latency_ms: 1200,
        ttft_ms: Some(300),
        aborted: false,
        attempt: 1,
        billing: None,
        usage: Some(Usage {
            model: "claude-sonnet-4-5".into(),
            tokens: tokens(output),
            tier: Tier::Standard,
            request_id: Some("req_1".into()),
        }),
        error: None,
        unread: false,
    }
}

fn failed(key: &str, at: Timestamp, status: u16) -> ProxiedCall {
    let error = ApiError { status: Some(status), kind: "overloaded_error".into() };
    ProxiedCall { usage: None, error: Some(error), latency_ms: 100, ttft_ms: None, ..call(key, at, 0) }
}

impl World {
    fn take(&mut self, call: &ProxiedCall) -> Fate {
        let at = self.wait(10);
        let fate = self.store.write(|tx| take(tx, at, call)).unwrap();
        self.check();
        fate
    }

    fn read(&mut self, session: SessionId, records: &[Priced]) {
        let at = self.wait(10);
        let row = self.session(session);
        self.store.write(|tx| take_records(tx, at, &row, records)).unwrap();
        self.check();
    }

    fn kept(&mut self, session: SessionId) -> Vec<RecordRow> {
        let n = self.session(session).n;
        self.store.read(|view| view.records(n)).unwrap()
    }

    fn waiting(&mut self) -> i64 {
        self.store.read(|view| view.waiting_count()).unwrap().0
    }

    fn coverage(&mut self, session: SessionId) -> Coverage {
        let (row, now) = (self.session(session), self.now);
        self.store.read(|view| record::record(view, &row, now)).unwrap().usage.coverage
    }

    /// The last usage event, as it is sent.
    fn sent_usage(&mut self) -> Value {
        let sent = self.store.read(|view| view.outgoing(0, 0, i64::MAX, 1000)).unwrap();
        let event = sent.into_iter().rfind(|event| event.kind().as_str() == "usage").unwrap();
        serde_json::to_value(&event.attributes).unwrap()
    }

    fn proxied(&mut self, agent: &str) -> (RunId, SessionId) {
        let mut begin = self.begin(ConversationStart::Fresh);
        begin.run.proxied = true;
        begin.agent = agent.into();
        let (run, started) = self.start_as(&begin);
        (run, started.session)
    }
}

#[test]
fn a_call_seen_by_both_is_one_record_whoever_came_first() {
    // What each step reports; the numbers that remain, and whose they are.
    #[derive(Clone, Copy)]
    enum Step {
        Proxy(u64),
        Transcript(u64),
    }
    use Step::{Proxy, Transcript};
    let table: &[(&[Step], u64, Source, u64)] = &[
        (&[Proxy(20), Transcript(20)], 20, Source::Proxy, 0),
        (&[Transcript(20), Proxy(20)], 20, Source::Proxy, 1),
        (&[Transcript(5), Transcript(20), Proxy(20)], 20, Source::Proxy, 2),
        (&[Proxy(20), Proxy(20), Transcript(20), Transcript(20)], 20, Source::Proxy, 0),
        (&[Transcript(20), Proxy(20), Proxy(20), Transcript(20)], 20, Source::Proxy, 1),
        (&[Proxy(1), Transcript(20)], 20, Source::Transcript, 1),
        (&[Transcript(20), Proxy(1)], 20, Source::Transcript, 1),
        (&[Transcript(1), Proxy(20)], 20, Source::Proxy, 1),
        (&[Proxy(20), Transcript(1)], 20, Source::Proxy, 0),
        (&[Proxy(1), Proxy(20), Transcript(3)], 20, Source::Proxy, 1),
    ];
    for (row, (steps, output, source, rev)) in table.iter().enumerate() {
        let mut world = World::new();
        let (_, session) = world.bound(ConversationStart::Fresh, "a");
        let at = world.now;
        for step in *steps {
            match *step {
                Proxy(output) => {
                    assert_eq!(world.take(&call("m1", at, output)), Fate::Recorded(session));
                }
                Transcript(output) => world.read(session, &[usage("m1", at, output)]),
            }
        }
        assert_eq!(world.output(session), (1, i64::try_from(*output).unwrap()), "row {row}");
        assert_eq!(world.events(session)[2..], [format!("3.{rev} usage")], "row {row}");
        let kept = world.kept(session).pop().unwrap();
        assert_eq!(
            (kept.seen, kept.source),
            (Seen::Both, Some(*source).filter(|s| *s == Source::Proxy)),
            "row {row}"
        );
        let proxy = kept.proxy.unwrap();
        assert_eq!((proxy.latency_ms, proxy.ttft_ms, proxy.kind), (1200, Some(300), CallKind::Main));
        assert_eq!(world.sent_usage()["source"], source.as_str());
    }
}

#[test]
fn the_event_carries_what_only_the_proxy_knows() {
    let mut world = World::new();
    let (_, _session) = world.bound(ConversationStart::Fresh, "a");
    let at = world.now;
    let title = ProxiedCall { kind: CallKind::Title, aborted: true, attempt: 2, ..call("m1", at, 20) };
    world.take(&ProxiedCall { billing: Some(Billing::Plan), ..title });
    assert_eq!(
        world.sent_usage(),
        json!({"aborted": true, "attempt": 2, "billing": "plan", "cacheReadTokens": 1000, "cacheWriteTokens": 100, "costUsd": 0.001_005,
            "inputTokens": 10, "key": "m1", "kind": "title", "latencyMs": 1200, "model": "claude-sonnet-4-5",
            "outputTokens": 20, "reasoningTokens": 0, "source": "proxy", "subagent": false, "ttftMs": 300})
    );
}

#[test]
fn a_call_waits_until_its_conversation_is_a_session() {
    let mut world = World::new();
    let (run, started) = world.start(ConversationStart::Fresh);
    let at = world.now;
    let mine = ProxiedCall { run: Some(run), billing: Some(Billing::Api), ..call("m1", at, 20) };
    let of_a_bare_agent =
        ProxiedCall { run: Some(run), conversation: Some(agent_session("bare")), ..call("m2", at, 7) };
    for _ in 0..2 {
        assert_eq!(world.take(&mine), Fate::Waiting);
        assert_eq!(world.take(&of_a_bare_agent), Fate::Waiting);
    }
    assert_eq!((world.waiting(), world.events(started.session).len()), (2, 1));
    world.bind(started.session, "a").unwrap();
    assert_eq!(world.output(started.session), (1, 20));
    assert_eq!(world.sent_usage()["billing"], "api", "it has waited with the call");
    assert_eq!(world.take(&mine), Fate::Recorded(started.session));
    world.end(run, Exit::Code(0));
    // A call that is over after the END amends it.
    assert_eq!(world.take(&call("m3", at, 3)), Fate::Recorded(started.session));
    assert_eq!(world.attributes(started.session, "session.end")["totals"]["outputTokens"], 23);
    assert_eq!(world.waiting(), 1, "the bare agent's conversation is nobody's session");
    assert_eq!(world.store.read(|view| view.waiting_count_of_run(run)).unwrap(), 1);
}

#[test]
fn own_prices_hold_for_calls_that_only_the_proxy_saw_waiting_ones_too() {
    let mut world = World::new();
    let own = "[prices.'claude-sonnet-4-5']\ninput = 1\noutput = 2\ncacheRead = 0\ncacheWrite = 3\n";
    std::fs::write(world.home.config_file(), own).unwrap();
    let (_, started) = world.start(ConversationStart::Fresh);
    let at = world.now;
    assert_eq!(world.take(&call("waits", at, 20)), Fate::Waiting);
    world.bind(started.session, "a").unwrap();
    assert_eq!(world.take(&call("at once", at, 20)), Fate::Recorded(started.session));
    // 10 × 1 + 20 × 2 + 100 × 3 dollars per million tokens, in pico-dollars
    let expected = (Some(PicoDollars(350_000_000)), true);
    for row in world.kept(started.session) {
        let usage = row.usage.unwrap();
        let is_own = usage.prices.is_some_and(|version| version.starts_with(OWN));
        assert_eq!((usage.cost, is_own), expected, "{}", row.key);
    }
    // What was priced stays so; what comes later has the price of its own time.
    std::fs::write(world.home.config_file(), own.replace("output = 2", "output = 4")).unwrap();
    assert_eq!(world.take(&call("dearer", at, 20)), Fate::Recorded(started.session));
    let costs: Vec<_> = world.kept(started.session).into_iter().map(|row| row.usage.unwrap().cost).collect();
    assert_eq!(costs.iter().flatten().map(|cost| cost.0).sum::<i64>(), 350_000_000 * 2 + 390_000_000);
}

#[test]
fn nothing_is_half_done_wherever_a_transaction_breaks_off() {
    let mut world = World::new();
    let (run, started) = world.start(ConversationStart::Fresh);
    let at = world.now;
    let calls = [call("m1", at, 20), failed("req_2", at, 529)];
    for call in &calls {
        for statements in 0.. {
            world.store.faults.after(statements);
            let taken = world.store.write(|tx| take(tx, at, call));
            world.store.faults.none();
            if taken.is_ok() {
                break;
            }
            assert_eq!(world.take(call), Fate::Waiting, "the worker started again");
        }
    }
    for statements in 0.. {
        world.store.faults.after(statements);
        let bound = world.bind(started.session, "a");
        world.store.faults.none();
        world.check();
        if bound.is_ok() {
            break;
        }
        assert_eq!(world.waiting(), 2, "still there");
    }
    assert_eq!(world.waiting(), 0);
    for statements in 0.. {
        world.store.faults.after(statements);
        let taken = world.store.write(|tx| take(tx, at, &call("m3", at, 5)));
        world.store.faults.none();
        world.check();
        if taken.is_ok() {
            break;
        }
    }
    world.end(run, Exit::Code(0));
    assert_eq!(world.output(started.session), (2, 25));
    let totals = &world.attributes(started.session, "session.end")["totals"];
    assert_eq!((&totals["apiCalls"], &totals["apiErrors"]), (&json!(2), &json!(1)));
}

#[test]
fn at_a_clear_each_call_is_of_the_conversation_it_names() {
    let mut world = World::new();
    let (run, first) = world.bound(ConversationStart::Fresh, "a");
    let at = world.now;
    // The agent has gone on to the next conversation, and nobody has noticed yet.
    let next = ProxiedCall { conversation: Some(agent_session("b")), ..call("m2", at, 7) };
    assert_eq!(world.take(&call("m1", at, 20)), Fate::Recorded(first));
    assert_eq!(world.take(&next), Fate::Waiting);
    let noticed = world.wait(150);
    let change = Transition { kind: TransitionKind::Clear, binding: Some(binding("b")), workspace: None };
    let ids = &world.ids;
    let second =
        world.store.write(|tx| lifecycle::transition(tx, noticed, ids, run, &change)).unwrap().new.session;
    world.check();
    assert_eq!((world.output(first), world.output(second)), ((1, 20), (1, 7)));
    assert_eq!(world.take(&call("m3", at, 1)), Fate::Recorded(first), "a late one of the old conversation");
}

#[test]
fn a_switch_noticed_late_loses_no_call_and_an_adopted_conversation_takes_none_from_before() {
    let mut world = World::new();
    let (run, _) = world.proxied("claude");
    let at = world.now;
    let early = ProxiedCall { run: Some(run), conversation: Some(agent_session("b")), ..call("m1", at, 20) };
    let of_another_run =
        ProxiedCall { run: None, conversation: Some(agent_session("b")), ..call("m2", at, 7) };
    world.take(&early);
    world.take(&of_another_run);
    let noticed = world.wait(2600);
    let change = Transition { kind: TransitionKind::Switch, binding: Some(binding("b")), workspace: None };
    let ids = &world.ids;
    let second =
        world.store.write(|tx| lifecycle::transition(tx, noticed, ids, run, &change)).unwrap().new.session;
    assert_eq!(world.output(second), (1, 20));
    assert_eq!(world.waiting(), 1);
}

#[test]
fn a_copy_in_a_fork_changes_nothing() {
    let mut world = World::new();
    let (_, parent) = world.bound(ConversationStart::Fresh, "a");
    let (_, fork) = world.bound(ConversationStart::Unsure, "fork");
    let at = world.now;
    let mut copy = usage("m1", at, 20);
    copy.record.copied = true;
    world.take(&call("m1", at, 20));
    world.read(fork, &[copy.clone()]);
    world.read(parent, &[usage("m1", at, 20)]);
    // The copy first: it makes no owner.
    copy.record.key = "m2".into();
    world.read(fork, &[copy]);
    assert_eq!(world.take(&call("m2", at, 5)), Fate::Recorded(parent));
    assert_eq!((world.output(parent), world.output(fork)), ((2, 25), (0, 0)));
}

fn gemini(key: &str, run: RunId, at: Timestamp, output: u64) -> ProxiedCall {
    ProxiedCall {
        agent: "gemini".into(),
        keyed: false,
        run: Some(run),
        conversation: None,
        ..call(key, at, output)
    }
}

#[test]
fn calls_without_shared_keys_are_matched_by_tokens_and_order() {
    let mut world = World::new();
    let (run, session) = world.proxied("gemini");
    world.bind(session, "g").unwrap();
    let (first, second, third) = (world.now, world.wait(3000), world.wait(3000));
    world.wait(3000);
    // Proxy first; equal tokens twice; a router that has the tokens of a later call.
    world.take(&gemini("r1", run, first, 20));
    world.take(&ProxiedCall { kind: CallKind::Router, ..gemini("r2", run, first, 7) });
    world.take(&gemini("r3", run, second, 20));
    world.read(session, &[usage("t1", second, 20)]);
    // Transcript first.
    world.read(session, &[usage("t3", third, 20), usage("t4", third, 7)]);
    world.take(&gemini("r4", run, third, 7));
    for _ in 0..2 {
        world.take(&gemini("r1", run, first, 20));
        world.take(&gemini("r4", run, third, 7));
        world.read(session, &[usage("t1", second, 20), usage("t3", third, 20), usage("t4", third, 7)]);
    }
    let keys: Vec<_> = world.kept(session).into_iter().map(|row| (row.key, row.aliases, row.seen)).collect();
    let row =
        |key: &str, alias: &[&str], seen| (key.into(), alias.iter().map(|key| (*key).into()).collect(), seen);
    assert_eq!(
        keys,
        [
            row("r1", &["t1"], Seen::Both),
            row("r2", &[], Seen::Proxy),
            row("r3", &["t3"], Seen::Both),
            row("t4", &["r4"], Seen::Both)
        ]
    );
    assert_eq!(world.output(session), (4, 54));
    let mut owned = Vec::new();
    world.store.read(|view| view.each_owned_call(|_, key| owned.push(key.to_owned()))).unwrap();
    owned.sort_unstable();
    assert_eq!(owned, ["r1", "r2", "r3", "r4", "t1", "t3", "t4"], "a scan counts none of them as foreign");
}

#[test]
fn a_call_that_waits_is_counted_where_the_transcript_has_it_under_another_key() {
    let mut world = World::new();
    let (run, session) = world.proxied("gemini");
    world.bind(session, "g").unwrap();
    let at = world.now;
    assert_eq!(world.take(&gemini("r1", run, at, 20)), Fate::Waiting);
    assert_eq!(
        world.take(&ProxiedCall { kind: CallKind::Router, ..gemini("r2", run, at, 7) }),
        Fate::Waiting
    );
    let counted = |world: &mut World, key| world.store.write(|tx| is_counted(tx, "gemini", key)).unwrap();
    assert!(!counted(&mut world, "r1"), "nobody else has it yet");
    world.read(session, &[usage("t1", at, 20)]);
    assert!(counted(&mut world, "r1"), "its line has come while it waits");
    assert!(!counted(&mut world, "r2"), "no file has it");
    assert_eq!(world.waiting(), 2);
    let assigned = |world: &mut World| {
        let at = world.wait(400);
        world.store.write(|tx| assign_waiting_of_run(tx, at, run)).unwrap()
    };
    assert_eq!(assigned(&mut world), (0, true), "too early");
    assert_eq!(assigned(&mut world), (2, false));
    assert!(counted(&mut world, "r1") && counted(&mut world, "r2"));
    assert_eq!(world.output(session), (2, 27));
}

#[test]
fn a_call_that_names_no_conversation_is_of_the_session_its_run_was_in() {
    let mut world = World::new();
    let (run, first) = world.proxied("gemini");
    let begun = world.now;
    world.wait(2000);
    assert_eq!(world.take(&gemini("r1", run, begun, 1)), Fate::Waiting, "not bound yet");
    world.bind(first, "g").unwrap();
    assert_eq!(world.output(first), (1, 1));
    // Made right after a /clear that is noticed later.
    let young = world.now;
    assert_eq!(world.take(&gemini("r2", run, young, 2)), Fate::Waiting);
    let noticed = world.wait(200);
    let change = Transition { kind: TransitionKind::Clear, binding: Some(binding("h")), workspace: None };
    let ids = &world.ids;
    let second =
        world.store.write(|tx| lifecycle::transition(tx, noticed, ids, run, &change)).unwrap().new.session;
    world.check();
    let later = world.wait(2000);
    assert_eq!(world.take(&gemini("r3", run, begun, 4)), Fate::Recorded(first), "a late one");
    assert_eq!(world.take(&gemini("r4", run, later, 8)), Fate::Waiting);
    world.end(run, Exit::Code(0));
    assert_eq!((world.output(first), world.output(second), world.waiting()), ((2, 5), (2, 10), 0));
    assert_eq!(world.take(&gemini("r5", run, later, 16)), Fate::Recorded(second), "the run has ended");
}

#[test]
fn each_failed_call_is_one_error_and_the_reported_one_is_the_last_of_them() {
    let error = |key: &str, at: Timestamp| {
        fact(key, at, Fact::Error(ApiError { status: Some(529), kind: "overloaded".into() }))
    };
    for transcript_first in [false, true] {
        let mut world = World::new();
        let (_, session) = world.bound(ConversationStart::Fresh, "a");
        let at = world.now;
        let attempts: Vec<_> =
            (0..3).map(|n| failed(&format!("req_{n}"), Timestamp(at.0 + n * 500), 529)).collect();
        let reported = error("e1", Timestamp(at.0 + 1100));
        world.wait(2000);
        if transcript_first {
            world.read(session, std::slice::from_ref(&reported));
        }
        for attempt in attempts.iter().chain(&attempts) {
            world.take(attempt);
        }
        world.read(session, &[reported.clone(), reported]);
        let row = world.session(session);
        let totals = world.store.read(|view| view.totals(row.n)).unwrap();
        assert_eq!((totals.api_errors, totals.calls.api_calls), (3, 0), "{transcript_first}");
        // Another failure, much later and unseen by the proxy, is another one; so is one of another status.
        world.read(session, &[error("e2", Timestamp(at.0 + 600_000))]);
        world.take(&failed("req_9", Timestamp(at.0 + 599_990), 429));
        let totals = world.store.read(|view| view.totals(row.n)).unwrap();
        assert_eq!(totals.api_errors, 5);
    }
}

#[test]
fn broken_off_and_empty_calls() {
    let mut world = World::new();
    let (_, session) = world.bound(ConversationStart::Fresh, "a");
    let at = world.now;
    let nothing = ProxiedCall { usage: None, ..call("req_1", at, 0) };
    assert_eq!(world.take(&nothing), Fate::Nothing, "as a count of tokens is");
    let broken_off = ProxiedCall { aborted: true, ..nothing };
    assert_eq!(world.take(&broken_off), Fate::Recorded(session));
    let kept = world.kept(session).pop().unwrap();
    assert_eq!((kept.usage.unwrap().tokens, kept.proxy.unwrap().aborted), (Tokens::default(), true));
    let row = world.session(session);
    assert_eq!(world.store.read(|view| view.unpriced_models(row.n)).unwrap(), [""; 0]);
    // Overloaded in the middle of the answer: a call and an error.
    let both = ProxiedCall { aborted: true, error: failed("", at, 529).error, ..call("m1", at, 4) };
    world.take(&both);
    world.take(&both);
    let totals = world.store.read(|view| view.totals(row.n)).unwrap();
    assert_eq!((totals.calls.api_calls, totals.calls.output, totals.api_errors), (2, 4, 1));
    let huge = ProxiedCall { key: "x".repeat(600), ..call("", at, 1) };
    assert_eq!(world.take(&huge), Fate::Nothing);
}

#[test]
fn usage_that_could_not_be_read_marks_the_call_and_its_session() {
    let mut world = World::new();
    let (run, session) = world.proxied("claude");
    world.bind(session, "a").unwrap();
    let row = world.session(session);
    let at = world.now;
    let marked = |world: &mut World| {
        world
            .store
            .read(|view| Ok::<_, crate::Error>((view.unread_usage()?.0, view.unread_usage_of(row.n)?)))
            .unwrap()
    };
    world.take(&ProxiedCall { run: Some(run), ..call("m1", at, 20) });
    assert_eq!((marked(&mut world), world.coverage(session)), ((0, 0), Coverage::Complete));
    let unread = ProxiedCall { run: Some(run), unread: true, ..call("m2", at, 7) };
    for _ in 0..2 {
        assert_eq!(world.take(&unread), Fate::Recorded(session));
    }
    assert_eq!(world.output(session), (2, 27), "it is a call with what could be read");
    assert_eq!((marked(&mut world), world.coverage(session)), ((1, 1), Coverage::Transcript));
    let without_any = ProxiedCall { usage: None, ..ProxiedCall { unread: true, ..call("m3", at, 0) } };
    assert_eq!(world.take(&without_any), Fate::Nothing);
    let elsewhere = ProxiedCall { conversation: Some(agent_session("b")), unread: true, ..call("m4", at, 1) };
    assert_eq!(world.take(&elsewhere), Fate::Waiting);
    assert_eq!(marked(&mut world), (3, 1), "no call is dropped without a word");
}

#[test]
fn a_pruned_call_stays_pruned_under_each_of_its_keys() {
    let mut world = World::new();
    let (run, session) = world.proxied("gemini");
    world.bind(session, "g").unwrap();
    let at = world.now;
    world.wait(2000);
    world.take(&gemini("r1", run, at, 20));
    world.read(session, &[usage("t1", at, 20)]);
    world.end(run, Exit::Code(0));
    let later = world.wait(1000);
    let home = world.home.clone();
    assert_eq!(prune::prune(&mut world.store, &home, later, None, false).unwrap().len(), 1);
    assert_eq!(world.take(&gemini("r1", run, at, 20)), Fate::Pruned);
    let (_, again) = world.proxied("gemini");
    world.bind(again, "g").unwrap();
    world.read(again, &[usage("t1", at, 20), usage("r1", at, 20)]);
    assert_eq!(world.output(again), (0, 0));
    let mut owned = Vec::new();
    world.store.read(|view| view.each_owned_call(|_, key| owned.push(key.to_owned()))).unwrap();
    owned.sort_unstable();
    assert_eq!(owned, ["r1", "t1"]);
}

#[test]
fn what_the_proxy_saw_is_taken_elsewhere() {
    let mut world = World::new();
    let (run, session) = world.proxied("gemini");
    world.bind(session, "g").unwrap();
    let at = world.now;
    world.wait(2000);
    world.take(&gemini("r1", run, at, 20));
    world.take(&ProxiedCall { kind: CallKind::Router, attempt: 3, ..gemini("r2", run, at, 2) });
    world.read(session, &[usage("t1", at, 20)]);
    world.end(run, Exit::Code(0));
    let (row, now) = (world.session(session), world.now);
    let file =
        world.store.read(|view| exchange::export(view, &[row], exchange::Titles::LeftOut, now)).unwrap();
    let text = serde_json::to_string(&file).unwrap();
    let mut other = World::new();
    let path = other.home.published_sessions().with_file_name("export.json");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, &text).unwrap();
    super::super::import::import(&mut other.store, &path, now).unwrap();
    other.check();
    assert_eq!(other.kept(session), world.kept(session));
    assert_eq!(other.coverage(session), Coverage::Complete);
    let row = other.session(session);
    let again =
        other.store.read(|view| exchange::export(view, &[row], exchange::Titles::LeftOut, now)).unwrap();
    assert_eq!(again.sessions[0].records, file.sessions[0].records);
    assert_eq!(again.sessions[0].events, file.sessions[0].events);
    // A late call of a session that is kept back waits until it is opened again.
    let late = ProxiedCall { conversation: Some(agent_session("g")), ..gemini("r3", run, at, 1) };
    assert_eq!(other.take(&late), Fate::Waiting);
    let mut begin = other.begin(ConversationStart::Named(agent_session("g")));
    begin.agent = "gemini".into();
    other.now = other.now.max(now);
    other.start_as(&begin);
    assert_eq!((other.output(session), other.waiting()), ((3, 23), 0));
    assert_eq!(other.coverage(session), Coverage::Transcript, "the second opening went past the proxy");
}

#[test]
fn coverage_is_complete_when_the_proxy_saw_every_call_of_every_opening() {
    let mut world = World::new();
    let (run, session) = world.proxied("claude");
    world.bind(session, "a").unwrap();
    let at = world.now;
    world.read(session, &[usage("m1", at, 20)]);
    assert_eq!(world.coverage(session), Coverage::Transcript, "not seen there yet");
    world.end(run, Exit::Code(0));
    assert_eq!(world.attributes(session, "session.end")["totals"]["coverage"], "transcript");
    world.take(&call("m1", at, 20));
    world.take(&call("m2", at, 1));
    assert_eq!(world.coverage(session), Coverage::Complete);
    assert_eq!(world.attributes(session, "session.end")["totals"]["coverage"], "complete");
    // A run that is not led through the proxy takes the conversation up.
    world.start(ConversationStart::Named(agent_session("a")));
    assert_eq!(world.coverage(session), Coverage::Transcript);
}

/// One call and what each of the two reports of it.
struct Made {
    key: String,
    session: usize,
    at: Timestamp,
    output: u64,
    in_transcript: bool,
    by_proxy: bool,
}

#[test]
fn random_orders_count_every_call_once() {
    for seed in 0..60 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut world = World::new();
        let names = ["a", "b"];
        let sessions = names.map(|_| world.start(ConversationStart::Fresh));
        let mut bound = [false; 2];
        let made: Vec<_> = (0..dice.usize(5..20))
            .map(|n| {
                let (in_transcript, by_proxy) =
                    *dice.choice(&[(true, true), (true, false), (false, true)]).unwrap();
                Made {
                    key: format!("m{n}"),
                    session: dice.usize(0..3),
                    at: world.wait(100),
                    output: dice.u64(1..50),
                    in_transcript,
                    by_proxy,
                }
            })
            .collect();
        // Each report once or twice, first with fewer tokens sometimes, in any order.
        let mut reports: Vec<(usize, bool, u64)> = Vec::new();
        for (n, call) in made.iter().enumerate() {
            for _ in 0..dice.usize(1..3) {
                let partial = dice.u64(1..=call.output);
                reports.extend(call.in_transcript.then_some((n, false, partial)));
                reports.extend(call.by_proxy.then_some((n, true, partial)));
            }
            reports.extend(call.in_transcript.then_some((n, false, call.output)));
            reports.extend(call.by_proxy.then_some((n, true, call.output)));
        }
        dice.shuffle(&mut reports);
        let mut unread: Vec<(usize, bool, u64)> = Vec::new();
        for (n, by_proxy, output) in reports {
            for which in 0..2 {
                if !bound[which] && dice.u8(0..10) == 0 {
                    world.bind(sessions[which].1.session, names[which]).unwrap();
                    bound[which] = true;
                }
            }
            if by_proxy {
                let conversation = agent_session(["a", "b", "nobody"][made[n].session]);
                let proxied = ProxiedCall {
                    conversation: Some(conversation),
                    ..call(&made[n].key, made[n].at, output)
                };
                if dice.bool() {
                    world.store.faults.after(dice.u32(0..12));
                    let now = world.now;
                    drop(world.store.write(|tx| take(tx, now, &proxied)));
                    world.store.faults.none();
                }
                world.take(&proxied);
            } else {
                unread.push((n, by_proxy, output));
            }
            if dice.bool() {
                unread.retain(|(n, _, output)| {
                    let which = made[*n].session;
                    if which > 1 || !bound[which] {
                        return true;
                    }
                    world.read(sessions[which].1.session, &[usage(&made[*n].key, made[*n].at, *output)]);
                    false
                });
            }
        }
        for which in 0..2 {
            let (run, started) = &sessions[which];
            if !bound[which] {
                world.bind(started.session, names[which]).unwrap();
            }
            for (n, _, output) in unread.iter().filter(|(n, _, _)| made[*n].session == which) {
                world.read(started.session, &[usage(&made[*n].key, made[*n].at, *output)]);
            }
            world.end(*run, Exit::Code(0));
            let mine = || made.iter().filter(|call| call.session == which);
            let expected = (mine().count(), mine().map(|call| call.output).sum::<u64>());
            let counted = world.output(started.session);
            assert_eq!(
                counted,
                (i64::try_from(expected.0).unwrap(), i64::try_from(expected.1).unwrap()),
                "{seed}"
            );
        }
        let nobodys = made.iter().filter(|call| call.session == 2 && call.by_proxy).count();
        assert_eq!(world.waiting(), i64::try_from(nobodys).unwrap(), "{seed}");
    }
}

#[test]
fn random_orders_of_calls_without_shared_keys_count_every_call_once() {
    for seed in 0..60 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut world = World::new();
        let (run, session) = world.proxied("gemini");
        world.bind(session, "g").unwrap();
        let calls = dice.usize(3..15);
        let (mut proxied, mut written, mut sum) = (Vec::new(), Vec::new(), 0);
        for n in 0..calls {
            let (at, output) = (world.wait(3000), dice.u64(1..4));
            let hidden = dice.u8(0..4) == 0;
            sum += output;
            let kind = if hidden && dice.bool() { CallKind::Compact } else { CallKind::Main };
            proxied.push(ProxiedCall { kind, ..gemini(&format!("r{n}"), run, at, output) });
            if !hidden {
                written.push(usage(&format!("t{n}"), Timestamp(at.0 + 1500), output));
            }
        }
        world.wait(5000);
        // Each of the two reports in its own order, as files and streams do.
        let (mut next_call, mut next_line) = (0, 0);
        while next_call < proxied.len() || next_line < written.len() {
            if dice.bool() && next_call < proxied.len() {
                world.take(&proxied[next_call]);
                next_call += 1;
            } else if next_line < written.len() {
                let again = dice.usize(0..=next_line);
                world.read(session, &written[again..=next_line]);
                next_line += 1;
            }
        }
        let at = world.now;
        world.store.write(|tx| assign_waiting(tx, at, session)).unwrap();
        let expected = (i64::try_from(calls).unwrap(), i64::try_from(sum).unwrap());
        assert_eq!(world.output(session), expected, "{seed}");
    }
}

#[test]
fn a_file_read_again_finds_the_calls_under_their_further_keys() {
    let mut world = World::new();
    let (run, session) = world.proxied("gemini");
    world.bind(session, "g").unwrap();
    let at = world.now;
    world.wait(2000);
    world.take(&gemini("r1", run, at, 20));
    for (from, to) in [(0, 10), (10, 20)] {
        let records = [usage("t1", at, 20)];
        let batch = Batch {
            file: FileId { device: 1, inode: 1 },
            path: "/f".as_ref(),
            from,
            restart: false,
            to,
            state: &[],
            unreadable: 0,
            records: &records,
        };
        world.absorb(session, &batch);
    }
    assert_eq!(world.output(session), (1, 20));
}
