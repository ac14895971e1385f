//! What every storage must do, once for SQLite and once for PostgreSQL.
use std::collections::BTreeMap;

use backend::storage::Storage;
use reader::token::{Owner, Role, Token, TokenHash};
use reader::{
    By, Cursor, Day, Numbers, Order, OrderBy, OrderKey, Page, SessionFilter, TimelinePosition, UsageFilter,
};
use serde_json::{Value, json};
use types::Event;
use types::{CallSums, EventType, Filter, PicoDollars, Span, Status, Timestamp, Tokens};

use super::events::{
    MIDNIGHT, NOW, assert_same, bound, but, end, event, everything, life, parsed, post, prompt, record,
    session, start, tool, usage,
};
use super::owners::{
    a_long_session_arrives_in_any_order, a_rejected_event_costs_none_of_the_same_id,
    another_owners_events_are_rejected_and_change_nothing, ids_of_one_owner_suppress_no_event_of_another,
    jumps_of_seq_and_rev_are_rejected, two_nodes_decide_once_whose_a_session_is,
    unknown_types_count_as_received,
};
use super::{Kind, block_on};
use crate::support::postgres::Cluster;

/// One test per case with SQLite, one over all with PostgreSQL: a server takes longer to start than all of them to run.
macro_rules! conformance {
    ($($case:ident),+ $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $case() {
                super::block_on(super::$case(super::Kind::Sqlite));
            })+
        }

        #[test]
        fn every_case_on_postgres() {
            let Some(cluster) = Cluster::start() else { return };
            block_on(async {
                $(
                    eprintln!(stringify!($case));
                    $case(Kind::Postgres(&cluster)).await;
                )+
            });
        }
    };
}

conformance!(
    a_life_is_told_whole,
    nothing_counts_twice,
    any_order_and_any_batches_give_the_same,
    the_highest_revision_counts,
    an_id_known_elsewhere_is_received_and_not_added,
    when_something_happened_counts_in_any_order,
    gaps_are_told_until_filled,
    sums_follow_a_session_to_another_project,
    days_of_every_zone_are_sums_of_their_own_events,
    a_session_can_be_opened_again,
    transitions_make_a_chain_and_a_ring_is_walked_once,
    sessions_are_found,
    pages_neither_overlap_nor_skip,
    sessions_are_listed_by_every_column_and_page_by_page,
    without_its_start_a_session_began_with_the_earliest_that_is_told,
    words_that_many_have_find_them_all,
    a_long_life_is_told_in_parts,
    zeros_take_nobodys_place,
    sessions_of_one_conversation_are_each_on_some_page,
    usage_is_split_and_filtered,
    the_same_batches_to_two_nodes_at_once,
    sums_equal_what_was_sent,
    every_sum_is_the_sum_of_the_calls,
    who_watches_hears_of_it,
    origins_are_remembered,
    tokens_are_kept_and_revoked,
    a_pass_that_was_given_up_is_so_on_every_node,
    too_many_holes_are_refused,
    long_and_strange_texts_survive,
    the_longest_keys_are_stored_and_longer_ones_refused,
    sums_beyond_all_bounds_keep_nothing_out,
    sums_near_the_limit_are_exact_after_revisions,
    the_newest_days_are_shown_and_that_there_are_more,
    events_with_one_seq_are_all_on_some_page,
    another_owners_events_are_rejected_and_change_nothing,
    ids_of_one_owner_suppress_no_event_of_another,
    a_rejected_event_costs_none_of_the_same_id,
    jumps_of_seq_and_rev_are_rejected,
    a_long_session_arrives_in_any_order,
    two_nodes_decide_once_whose_a_session_is,
    unknown_types_count_as_received,
);

async fn a_life_is_told_whole(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = session(1);
    assert_eq!(post(&*world.one, &life(&id, "widgets")).await, (9, 0, 0));
    let mut told = record(&*world.one, &id).await;
    let usage = told["usage"].take();
    assert_eq!(
        usage,
        json!({"apiCalls": 2, "inputTokens": 20, "outputTokens": 120, "cacheReadTokens": 2000, "cacheWriteTokens": 200,
            "reasoningTokens": 2, "costUsd": 0.0246, "unpricedModels": [], "prompts": 1, "toolCalls": 2, "toolErrors": 1,
            "filesChanged": 2, "linesAdded": 6, "linesRemoved": 2, "apiErrors": 1, "coverage": "transcript"})
    );
    for (field, expected) in [
        ("name", json!(format!("name-{id}"))),
        ("status", json!("completed")),
        ("endReason", json!("exit")),
        ("exitCode", json!(0)),
        ("startTime", json!(MIDNIGHT + 1000)),
        ("endTime", json!(MIDNIGHT + 9000)),
        ("durationMs", json!(9000)),
        ("project", json!("widgets")),
        ("repository", json!("acme/widgets")),
        ("branch", json!("main")),
        ("tags", json!(["blue"])),
        ("workingDirectory", json!(null)),
        ("complete", json!(true)),
        ("missingSeq", json!([])),
        ("user", json!("dev")),
    ] {
        assert_eq!(told[field], expected, "{field}");
    }
    assert_eq!(told["correlation"]["status"], "matched");
    assert_eq!(told["correlation"]["agentSessionId"], format!("agent-{id}"));
    let detail = world.one.session(&id).await.unwrap().unwrap();
    assert_eq!(detail.tools.len(), 1);
    assert_eq!((detail.tools[0].numbers.calls, detail.tools[0].numbers.errors), (2, 1));
    let kinds: Vec<_> = detail.openings.iter().map(|event| event.kind.clone()).collect();
    assert_eq!(kinds, [EventType::Start, EventType::Bound, EventType::End]);
    let page = world.one.timeline(&id, TimelinePosition { seq: 3, id: None }, 2).await.unwrap();
    assert_eq!(page.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [4, 5]);
    assert!(world.one.session("nobody").await.unwrap().is_none());
}

async fn nothing_counts_twice(kind: Kind<'_>) {
    let world = kind.world().await;
    let batch = life(&session(1), "widgets");
    assert_eq!(post(&*world.one, &batch).await, (9, 0, 0));
    let once = everything(&*world.one).await;
    assert_eq!(post(&*world.one, &batch).await, (0, 9, 0));
    assert_eq!(post(&*world.other, &batch).await, (0, 9, 0));
    let twice: Vec<_> = batch.iter().chain(&batch).cloned().collect();
    assert_eq!(post(&*world.other, &twice).await, (0, 18, 0));
    assert_same(&everything(&*world.one).await, &once);
    let fresh: Vec<_> =
        life(&session(2), "widgets").into_iter().flat_map(|event| [event.clone(), event]).collect();
    assert_eq!(post(&*world.one, &fresh).await, (9, 9, 0), "twice within a batch");
}

/// A small generator, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.roll(at + 1));
        }
    }
}

/// Two lives with revisions, one opened again, on different days and projects.
pub(super) fn story() -> Vec<Value> {
    let (a, b) = (session(1), session(2));
    let mut story = life(&a, "widgets");
    story.extend(life(&b, "gadgets"));
    let late = json!({"time": Timestamp(MIDNIGHT + 90_000_000).to_string()});
    story.push(but(usage(&a, 10, 5), &late));
    story.push(but(end(&a, 9, 10), &json!({"rev": 1})));
    story.push(but(usage(&a, 4, 500), &json!({"rev": 2, ".model": "claude-opus-4-5", ".costUsd": null})));
    story.push(but(usage(&a, 4, 60), &json!({"rev": 1})));
    story.push(but(tool(&b, 6, true), &json!({"rev": 1})));
    story.push(but(start(&b, 1, "gizmos"), &json!({"rev": 3, ".branch": "topic"})));
    story.push(but(start(&b, 10, "gizmos"), &late));
    story.push(but(usage(&b, 11, 7), &late));
    story.push(but(end(&b, 12, 12), &json!({".status": "failed", ".exitCode": 1})));
    story
}

async fn any_order_and_any_batches_give_the_same(kind: Kind<'_>) {
    let story = story();
    let world = kind.world().await;
    post(&*world.one, &story).await;
    let expected = everything(&*world.one).await;
    assert!(expected.contains("claude-opus-4-5") && expected.contains("gizmos"), "{expected}");
    for seed in 1..=8 {
        let (mut dice, world) = (Dice(seed), kind.world().await);
        let mut shuffled = story.clone();
        dice.shuffle(&mut shuffled);
        let mut rest = &shuffled[..];
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(1 + dice.roll(rest.len()));
            let again: Vec<_> = batch.iter().chain(&batch[..1]).cloned().collect();
            let node = if dice.roll(2) == 0 { &world.one } else { &world.other };
            post(&**node, &again).await;
            rest = after;
        }
        println!("seed {seed}");
        assert_same(&everything(&*world.one).await, &expected);
    }
}

async fn the_highest_revision_counts(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = session(1);
    let call = usage(&id, 2, 50);
    post(
        &*world.one,
        &[start(&id, 1, "widgets"), but(call.clone(), &json!({"rev": 5, ".outputTokens": 80}))],
    )
    .await;
    assert_eq!(
        post(&*world.one, &[but(call.clone(), &json!({"rev": 4, ".outputTokens": 999}))]).await,
        (0, 1, 0)
    );
    assert_eq!(record(&*world.one, &id).await["usage"]["outputTokens"], 80);
    let revised = but(
        call.clone(),
        &json!({"rev": 6, ".outputTokens": 90, ".model": "other", ".costUsd": null,
            "time": Timestamp(MIDNIGHT - 1000).to_string()}),
    );
    assert_eq!(post(&*world.other, &[revised]).await, (1, 0, 0));
    let told = record(&*world.one, &id).await;
    assert_eq!(told["usage"]["outputTokens"], 90);
    assert_eq!(told["usage"]["apiCalls"], 1);
    assert_eq!(told["usage"]["costUsd"], 0.0);
    assert_eq!(told["usage"]["unpricedModels"], json!(["other"]));
    let days =
        world.one.usage(By::Day, Filter { model: Some("other".into()), ..Filter::default() }.into(), 0..10);
    let days = days.await.unwrap().rows;
    assert_eq!(days.len(), 1, "it moved to the day before: {days:?}");
    assert_eq!((&*days[0].key, days[0].sums.counts.output), ("2026-11-15", 90));
    let models = world.one.usage(By::Model, UsageFilter::default(), 0..10).await.unwrap().rows;
    assert_eq!(models.len(), 1, "nothing is left of the first: {models:?}");
}

/// Calls at all times of three weeks in which clocks change, added up by days of zones that differ by quarters of an hour.
async fn days_of_every_zone_are_sums_of_their_own_events(kind: Kind<'_>) {
    const BEGIN: i64 = 1_792_368_000_000; // 2026-10-19
    let world = kind.world().await;
    let id = session(1);
    let mut dice = Dice(7);
    let mut calls = vec![start(&id, 1, "widgets")];
    let mut times = Vec::new();
    for seq in 2..300 {
        let at = BEGIN + i64::try_from(dice.roll(21 * 86_400)).unwrap() * 1000;
        times.push((at, seq));
        calls.push(but(usage(&id, seq, seq), &json!({"time": Timestamp(at).to_string()})));
    }
    post(&*world.one, &calls).await;
    let rules = [
        "UTC0",
        "CET-1CEST,M3.5.0,M10.5.0/3",
        "<+0545>-5:45",
        "EST5EDT,M3.2.0,M11.1.0",
        "<+1245>-12:45<+1345>,M9.5.0/2:45,M4.1.0/3:45",
    ];
    for rule in rules {
        let zone = jiff::tz::TimeZone::posix(rule).unwrap();
        let mut expected: BTreeMap<String, i64> = BTreeMap::new();
        for (at, output) in &times {
            let local = jiff::Timestamp::from_millisecond(*at).unwrap().to_zoned(zone.clone());
            *expected.entry(local.date().to_string()).or_default() += output;
        }
        let filter = UsageFilter { filter: Filter::default(), zone: zone.clone() };
        let days = world.one.usage(By::Day, filter.clone(), 0..100).await.unwrap().rows;
        let found: BTreeMap<String, i64> = days
            .iter()
            .filter(|row| row.sums.counts.output > 0)
            .map(|row| (row.key.clone(), row.sums.counts.output))
            .collect();
        assert_eq!(found, expected, "{rule}");
        // A part of the time, as one sum and as days.
        let (since, until) = (Day::parse("2026-10-24"), Day::parse("2026-11-02"));
        let span = Day::span_in(since, until, &zone);
        let part = UsageFilter { filter: Filter { span, ..Filter::default() }, zone };
        let within: i64 =
            expected.range("2026-10-24".to_owned()..="2026-11-02".to_owned()).map(|(_, sum)| sum).sum();
        for by in [By::Day, By::Model, By::Project, By::Session, By::Branch] {
            let rows = world.one.usage(by, part.clone(), 0..100).await.unwrap().rows;
            let sum: i64 = rows.iter().map(|row| row.sums.counts.output).sum();
            assert_eq!(sum, within, "{rule} {by}");
        }
        let hours = world.one.hours(part).await.unwrap();
        assert_eq!(hours.iter().map(|row| row.sums.counts.output).sum::<i64>(), within, "{rule}");
    }
}

async fn an_id_known_elsewhere_is_received_and_not_added(kind: Kind<'_>) {
    let world = kind.world().await;
    let (a, b) = (session(1), session(2));
    post(&*world.one, &life(&a, "widgets")).await;
    let copy = but(usage(&a, 4, 50), &json!({"sessionId": b, "seq": 2}));
    let larger = but(usage(&a, 7, 5000), &json!({"sessionId": b, "seq": 3, "rev": 7}));
    assert_eq!(post(&*world.one, &[start(&b, 1, "copy"), copy, larger, end(&b, 4, 4)]).await, (2, 2, 0));
    let told = record(&*world.one, &b).await;
    assert_eq!(told["complete"], true);
    assert_eq!(told["usage"]["apiCalls"], 0);
    let told = record(&*world.one, &a).await;
    assert_eq!(told["usage"]["outputTokens"], 120, "another session revises nothing");
    // Both within one batch.
    let (c, d) = (session(3), session(4));
    let call = usage(&c, 1, 5);
    let copy = but(call.clone(), &json!({"sessionId": d, "rev": 3}));
    assert_eq!(post(&*world.one, &[call, copy]).await, (1, 1, 0));
    assert_eq!(record(&*world.one, &c).await["usage"]["outputTokens"], 5);
    assert_eq!(record(&*world.one, &d).await["usage"]["apiCalls"], 0);
    assert_eq!(record(&*world.one, &d).await["missingSeq"], json!([]));
}

async fn when_something_happened_counts_in_any_order(kind: Kind<'_>) {
    let (a, b) = (session(1), session(2));
    let at = |day: i64| Timestamp(MIDNIGHT + day * 86_400_000).to_string();
    // Neither session has a START: each began with the earliest that is told of it.
    let told = [
        // Known to be another session's.
        but(usage(&a, 4, 50), &json!({"sessionId": b, "seq": 1, "time": at(-3)})),
        usage(&b, 2, 5),
        // Revised, and at another time.
        but(usage(&b, 3, 7), &json!({"time": at(-4)})),
        but(usage(&b, 3, 9), &json!({"rev": 1, "time": at(2)})),
        but(prompt(&b, 4), &json!({"time": at(1)})),
    ];
    let mut first = None;
    for seed in 1..=8 {
        let (mut dice, world) = (Dice(seed), kind.world().await);
        post(&*world.one, &[usage(&a, 4, 50)]).await;
        let mut shuffled = told.clone();
        dice.shuffle(&mut shuffled);
        for batch in shuffled.chunks(1 + dice.roll(told.len())) {
            post(&*world.one, batch).await;
        }
        let everything = everything(&*world.one).await;
        println!("seed {seed}");
        assert_same(&everything, first.get_or_insert_with(|| everything.clone()));
        assert_eq!(record(&*world.one, &b).await["startTime"], MIDNIGHT - 4 * 86_400_000);
        let days = by_key(&*world.one, By::Day).await;
        assert_eq!(days.get("2026-11-12"), Some(&(1, 0)), "{days:?}");
    }
}

async fn gaps_are_told_until_filled(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = session(1);
    let whole = life(&id, "widgets");
    let part: Vec<_> = [0, 3, 4, 8].map(|at| whole[at].clone()).into();
    post(&*world.one, &part).await;
    let told = record(&*world.one, &id).await;
    assert_eq!((&told["complete"], &told["missingSeq"]), (&json!(false), &json!([[2, 3], [6, 8]])));
    let health = world.one.health(10).await.unwrap();
    assert_eq!((health.gap_count, health.gaps.len(), health.sessions), (1, 1, 1));
    let gaps = SessionFilter { gaps: true, ..SessionFilter::default() };
    assert_eq!(world.one.sessions(gaps.clone(), Page::first(10)).await.unwrap().sessions.len(), 1);
    // The END's own word: three more are to come.
    post(&*world.one, &[but(end(&id, 9, 12), &json!({"rev": 1}))]).await;
    assert_eq!(record(&*world.one, &id).await["missingSeq"], json!([[2, 3], [6, 8], [10, 12]]));
    post(&*world.one, &whole).await;
    assert_eq!(record(&*world.one, &id).await["missingSeq"], json!([[10, 12]]));
    post(&*world.one, &[usage(&id, 12, 1), usage(&id, 11, 1), usage(&id, 10, 1)]).await;
    let told = record(&*world.one, &id).await;
    assert_eq!((&told["complete"], &told["missingSeq"]), (&json!(true), &json!([])));
    assert_eq!(world.one.health(10).await.unwrap().gap_count, 0);
    assert!(world.one.sessions(gaps, Page::first(10)).await.unwrap().sessions.is_empty());
    // Without an END nothing is complete.
    let open = session(2);
    post(&*world.one, &[start(&open, 1, "widgets"), bound(&open, 2)]).await;
    let told = record(&*world.one, &open).await;
    assert_eq!(
        (&told["complete"], &told["missingSeq"], &told["status"]),
        (&json!(false), &json!([]), &json!("active"))
    );
}

async fn by_key(storage: &dyn Storage, by: By) -> BTreeMap<String, (i64, i64)> {
    let rows = storage.usage(by, UsageFilter::default(), 0..1000).await.unwrap().rows;
    rows.into_iter().map(|row| (row.key, (row.sums.counts.sessions, row.sums.counts.output))).collect()
}

async fn sums_follow_a_session_to_another_project(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = session(1);
    // Calls first: nobody knows the project yet.
    post(&*world.one, &[usage(&id, 4, 50), usage(&id, 7, 70)]).await;
    assert_eq!(by_key(&*world.one, By::Project).await, BTreeMap::from([(String::new(), (1, 120))]));
    post(&*world.one, &[start(&id, 1, "widgets")]).await;
    assert_eq!(by_key(&*world.one, By::Project).await, BTreeMap::from([("widgets".into(), (1, 120))]));
    post(
        &*world.one,
        &[but(start(&id, 1, "gadgets"), &json!({"rev": 1, "user": "other"})), usage(&id, 8, 1)],
    )
    .await;
    assert_eq!(by_key(&*world.one, By::Project).await, BTreeMap::from([("gadgets".into(), (1, 121))]));
    assert_eq!(by_key(&*world.one, By::User).await, BTreeMap::from([("other".into(), (1, 121))]));
    let facets = world.one.facets().await.unwrap();
    assert_eq!(facets.projects, ["gadgets"]);
    // A START that tells of an earlier day moves the session there.
    let earlier = but(
        start(&id, 1, "gadgets"),
        &json!({"rev": 2, "user": "other", "time": Timestamp(MIDNIGHT - 1000).to_string()}),
    );
    post(&*world.one, &[earlier]).await;
    let days = by_key(&*world.one, By::Day).await;
    assert_eq!(days, BTreeMap::from([("2026-11-15".into(), (1, 0)), ("2026-11-16".into(), (0, 121))]));
}

async fn a_session_can_be_opened_again(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = session(1);
    post(&*world.one, &life(&id, "widgets")).await;
    let again = but(start(&id, 10, "widgets"), &json!({".reason": "resume", ".branch": "topic"}));
    post(&*world.one, &[again, usage(&id, 11, 1)]).await;
    let told = record(&*world.one, &id).await;
    assert_eq!(
        (&told["status"], &told["complete"], &told["endTime"]),
        (&json!("active"), &json!(false), &json!(null))
    );
    assert_eq!(told["startTime"], MIDNIGHT + 1000);
    assert_eq!(told["branch"], "topic");
    assert_eq!(told["durationMs"], 9000 + NOW.0 - (MIDNIGHT + 10_000));
    // A late revision of the first END does not close it.
    post(&*world.one, &[but(end(&id, 9, 9), &json!({"rev": 4}))]).await;
    assert_eq!(record(&*world.one, &id).await["status"], "active");
    post(&*world.one, &[but(end(&id, 12, 12), &json!({".status": "interrupted", ".endReason": "crash"}))])
        .await;
    let told = record(&*world.one, &id).await;
    assert_eq!((&told["status"], &told["complete"]), (&json!("interrupted"), &json!(true)));
    let sessions: i64 = by_key(&*world.one, By::Day).await.values().map(|day| day.0).sum();
    assert_eq!(sessions, 1, "opened twice, begun once");
}

async fn transitions_make_a_chain_and_a_ring_is_walked_once(kind: Kind<'_>) {
    let world = kind.world().await;
    let ids: Vec<String> = (1..=3).map(session).collect();
    for (at, id) in ids.iter().enumerate() {
        let from = at.checked_sub(1).map(|before| ids[before].clone());
        let to = ids.get(at + 1).cloned();
        post(
            &*world.one,
            &[
                but(start(id, 1, "widgets"), &json!({".transitionedFrom": from})),
                but(end(id, 2, 2), &json!({".transitionedTo": to, ".endReason": "clear"})),
            ],
        )
        .await;
    }
    for id in &ids {
        let detail = world.one.session(id).await.unwrap().unwrap();
        let chain: Vec<_> = detail.chain.into_iter().map(|session| session.id).collect();
        assert_eq!(chain, ids);
    }
    // The third switches back to the first.
    post(
        &*world.one,
        &[
            but(start(&ids[0], 3, "widgets"), &json!({".transitionedFrom": ids[2]})),
            but(end(&ids[2], 2, 2), &json!({"rev": 1, ".transitionedTo": ids[0], ".endReason": "switch"})),
        ],
    )
    .await;
    let detail = world.one.session(&ids[1]).await.unwrap().unwrap();
    assert_eq!(detail.chain.len(), 3);
    // An agent inside an agent.
    let child = session(9);
    post(&*world.one, &[but(start(&child, 1, "widgets"), &json!({".parentSessionId": ids[0]}))]).await;
    let detail = world.one.session(&ids[0]).await.unwrap().unwrap();
    assert_eq!(detail.children.iter().map(|session| &*session.id).collect::<Vec<_>>(), [&*child]);
    let detail = world.one.session(&child).await.unwrap().unwrap();
    assert_eq!(detail.parent.map(|session| session.id), Some(ids[0].clone()));
    // Two that were opened again by themselves, and say nothing of it any more.
    let two = [session(11), session(12)];
    let again = json!({".reason": "resume"});
    post(
        &*world.one,
        &[
            start(&two[0], 1, "widgets"),
            but(end(&two[0], 2, 2), &json!({".transitionedTo": two[1], ".endReason": "clear"})),
            but(start(&two[0], 3, "widgets"), &again),
            end(&two[0], 4, 4),
            but(start(&two[1], 1, "widgets"), &json!({".transitionedFrom": two[0]})),
            end(&two[1], 2, 2),
            but(start(&two[1], 3, "widgets"), &again),
        ],
    )
    .await;
    for id in &two {
        let chain = world.one.session(id).await.unwrap().unwrap().chain;
        assert_eq!(chain.into_iter().map(|session| session.id).collect::<Vec<_>>(), two);
    }
    let asked = [two.to_vec(), vec![child]].concat();
    let mut chained = world.one.chained(asked.clone(), asked).await.unwrap();
    chained.sort();
    assert_eq!(chained, two);
}

async fn sessions_are_found(kind: Kind<'_>) {
    let world = kind.world().await;
    post(&*world.one, &life(&session(1), "widgets")).await;
    post(
        &*world.one,
        &[but(
            start(&session(2), 1, "Gadgets"),
            &json!({"agent": "codex", "user": "eve", ".name": "Fix Auth", ".tags": ["bug", "foreign"]}),
        )],
    )
    .await;
    let late =
        json!({"time": Timestamp(MIDNIGHT + 86_400_000).to_string(), "machine": "m2", ".branch": "topic"});
    post(&*world.one, &[but(start(&session(3), 1, "widgets"), &late), usage(&session(3), 3, 1)]).await;
    let text = |text: &str| Some(text.to_owned());
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let all = Filter::default;
    let table = [
        (all(), &[3, 2, 1][..]),
        (Filter { agent: text("codex"), ..all() }, &[2]),
        (Filter { without_agent: text("codex"), ..all() }, &[3, 1]),
        (Filter { project: text("widgets"), ..all() }, &[3, 1]),
        (Filter { branch: text("topic"), ..all() }, &[3]),
        (Filter { user: text("eve"), ..all() }, &[2]),
        (Filter { machine: text("m2"), ..all() }, &[3]),
        (Filter { model: text("claude-sonnet-4-5"), ..all() }, &[3, 1]),
        (Filter { status: Some(Status::Active), ..all() }, &[3, 2]),
        (Filter { tag: text("foreign"), ..all() }, &[2]),
        (Filter { tag: text("Bug"), ..all() }, &[2]),
        (Filter { tag: text("fore"), ..all() }, &[]),
        (Filter { tag: text("gadgets"), ..all() }, &[]),
        (Filter { span: Span::since(Timestamp(MIDNIGHT + 86_400_000)), ..all() }, &[3]),
        (Filter { span: until(MIDNIGHT + 86_400_000), ..all() }, &[2, 1]),
        (Filter { words: words(&["fix auth"]), ..all() }, &[2]),
        (Filter { words: words(&["GADG"]), ..all() }, &[2]),
        (Filter { words: words(&["agent-5e551011"]), ..all() }, &[1]),
        (Filter { words: words(&["gadg", "FIX"]), ..all() }, &[2]),
        (Filter { words: words(&["gadg", "name-"]), ..all() }, &[]),
        (Filter { words: words(&["blue"]), project: text("widgets"), ..all() }, &[3, 1]),
        (Filter { words: words(&["%"]), ..all() }, &[]),
        (Filter { words: words(&["'; DROP TABLE session"]), ..all() }, &[]),
    ];
    let gaps = SessionFilter { gaps: true, ..SessionFilter::default() };
    let table = table.map(|(filter, expected)| (SessionFilter::from(filter), expected));
    for (filter, expected) in table.into_iter().chain([(gaps, &[3][..])]) {
        let count = world.one.count_sessions(filter.clone(), 10).await.unwrap().sessions;
        assert_eq!(usize::try_from(count).unwrap(), expected.len(), "{filter:?}");
        let found = world.one.sessions(filter.clone(), Page::first(10)).await.unwrap().sessions;
        let found: Vec<_> = found.into_iter().map(|session| session.id).collect();
        assert_eq!(found, expected.iter().map(|number| session(*number)).collect::<Vec<_>>(), "{filter:?}");
    }
    assert_eq!(
        world.one.count_sessions(SessionFilter::default(), 2).await.unwrap().sessions,
        2,
        "counted no further"
    );
    let named = world.one.sessions_by_id(vec![session(2), "nobody".into(), session(1)]).await.unwrap();
    assert_eq!(named.len(), 2);
}

async fn pages_neither_overlap_nor_skip(kind: Kind<'_>) {
    let world = kind.world().await;
    // Several begin at the same moment.
    let batch: Vec<_> = (0..25)
        .map(|number| {
            let time = Timestamp(MIDNIGHT + i64::from(number / 4)).to_string();
            but(start(&session(number), 1, "widgets"), &json!({"time": time}))
        })
        .collect();
    post(&*world.one, &batch).await;
    let found = walk(&*world.one, &SessionFilter::default(), 10).await;
    assert_eq!(found, (0..25).rev().map(session).collect::<Vec<_>>());
}

async fn sessions_are_listed_by_every_column_and_page_by_page(kind: Kind<'_>) {
    let world = kind.world().await;
    let mut batch = Vec::new();
    for number in 0..30_u32 {
        let id = session(number);
        let time = Timestamp(MIDNIGHT + i64::from(number / 4) * 1000).to_string();
        let agent = ["codex", "claude"][(number % 2) as usize];
        let project = ["widgets", "Gadgets", "éclairs"][(number % 3) as usize];
        let name = format!("{}-{}", ["Beta", "alpha", "Éa"][(number % 3) as usize], number / 2);
        let changes = json!({"time": time, "agent": agent, ".name": name});
        batch.push(but(start(&id, 1, project), &changes));
        if number % 5 != 0 {
            let cost = f64::from(number % 4) / 100.0;
            batch.push(but(
                usage(&id, 2, i64::from(number % 7) * 10),
                &json!({"agent": agent, ".costUsd": cost}),
            ));
        }
        if number % 4 == 1 {
            batch.push(but(end(&id, 3, 3), &json!({"agent": agent, ".durationMs": number * 500})));
        }
    }
    post(&*world.one, &batch).await;
    let now = Timestamp(MIDNIGHT + 3_600_000);
    let known = world.one.sessions(SessionFilter::default(), Page::first(100)).await.unwrap().sessions;
    assert_eq!(known.len(), 30);
    for by in [
        OrderBy::Started,
        OrderBy::Name,
        OrderBy::Agent,
        OrderBy::Project,
        OrderBy::User,
        OrderBy::Status,
        OrderBy::Duration(now),
        OrderBy::Tokens,
        OrderBy::Cost,
    ] {
        for descending in [false, true] {
            let order = Order { by, descending };
            let filter = SessionFilter { order, ..SessionFilter::default() };
            let found = walk(&*world.one, &filter, 7).await;
            let mut expected: Vec<_> = known.iter().map(|session| Cursor::after(session, order)).collect();
            expected.sort_by(|one, two| {
                let newest = (two.started_at, &two.id).cmp(&(one.started_at, &one.id));
                let by_key = match (&one.key, &two.key) {
                    (Some(OrderKey::Text(one)), Some(OrderKey::Text(two))) => one.cmp(two),
                    _ => one.number().cmp(&two.number()),
                };
                let by_key = if descending { by_key.reverse() } else { by_key };
                // By the start itself, the ids go the same way.
                let same = if by == OrderBy::Started && !descending { newest.reverse() } else { newest };
                by_key.then(same)
            });
            let expected: Vec<_> = expected.into_iter().map(|cursor| cursor.id).collect();
            assert_eq!(found, expected, "{order:?}");
            let words = vec!["gadgets".to_owned()];
            let searched = SessionFilter { filter: Filter { words, ..Filter::default() }, ..filter };
            let of_search: Vec<_> =
                expected.into_iter().filter(|id| (0..30).any(|n| n % 3 == 1 && session(n) == *id)).collect();
            assert_eq!(walk(&*world.one, &searched, 4).await, of_search, "{order:?}, searched");
        }
    }
    let also = vec![session(2), session(9)];
    let nowhere = Filter { words: vec!["nowhere".to_owned()], ..Filter::default() };
    let filter = SessionFilter { also, ..nowhere.into() };
    assert_eq!(walk(&*world.one, &filter, 1).await, [session(9), session(2)], "found by their titles");
    let sums = world.one.spending().await.unwrap();
    let calls: i64 = sums.iter().map(|row| row.sums.counts.api_calls).sum();
    assert_eq!((sums.len(), calls), (6, 24), "{sums:?}");
}

async fn without_its_start_a_session_began_with_the_earliest_that_is_told(kind: Kind<'_>) {
    let world = kind.world().await;
    for (number, seq, day) in [(1, 3, 10), (2, 2, 5), (1, 2, 1)] {
        let time = Timestamp(MIDNIGHT + day * 86_400_000);
        let call = but(usage(&session(number), seq, 1), &json!({"time": time.to_string()}));
        post(&*world.one, &[call]).await;
    }
    let all = SessionFilter::default();
    assert_eq!(walk(&*world.one, &all, 1).await, [session(2), session(1)]);
    let late = Filter { span: Span::since(Timestamp(MIDNIGHT + 9 * 86_400_000)), ..Filter::default() };
    assert_eq!(walk(&*world.one, &late.into(), 1).await, [""; 0]);
    let searched = Filter { words: vec!["5e55".to_owned()], ..Filter::default() };
    assert_eq!(walk(&*world.one, &searched.into(), 1).await, [session(2), session(1)]);
}

fn until(at: i64) -> Span {
    Span { since: None, until: Some(Timestamp(at)) }
}

/// Every session that the filter lets through, page by page.
async fn walk(storage: &dyn Storage, filter: &SessionFilter, limit: usize) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = storage.sessions(filter.clone(), Page { after, limit }).await.unwrap();
        assert!(page.sessions.len() <= limit);
        found.extend(page.sessions.into_iter().map(|session| session.id));
        let Some(next) = page.next else { return found };
        after = Some(next.to_string().parse::<Cursor>().unwrap());
    }
}

async fn words_that_many_have_find_them_all(kind: Kind<'_>) {
    const MANY: u32 = 2_300;
    let world = kind.world().await;
    // A few hundred at each moment, the oldest in another project, every hundredth with a tag of its own.
    let batch: Vec<_> = (0..MANY)
        .map(|number| {
            let time = Timestamp(MIDNIGHT + i64::from(number / 300)).to_string();
            let tags = if number % 100 == 7 { json!(["blue", "rare"]) } else { json!(["blue"]) };
            let project = if number < 20 { "oldest" } else { "widgets" };
            but(start(&session(number), 1, project), &json!({"time": time, ".tags": tags}))
        })
        .collect();
    post(&*world.one, &batch).await;
    let all = |wanted: fn(u32) -> bool| -> Vec<_> {
        (0..MANY).rev().filter(|number| wanted(*number)).map(session).collect()
    };
    let text = |text: &str| Some(text.to_owned());
    let named = Filter { words: vec!["name-".to_owned()], ..Filter::default() };
    for (limit, filter, expected) in [
        (500, named.clone().into(), all(|_| true)),
        (7, Filter { project: text("oldest"), ..named.clone() }.into(), all(|number| number < 20)),
        (500, SessionFilter { order: Order::MOST_EXPENSIVE, ..named.clone().into() }, all(|_| true)),
        (500, Filter { tag: text("blue"), ..Filter::default() }.into(), all(|_| true)),
        (7, Filter { tag: text("rare"), ..named.clone() }.into(), all(|number| number % 100 == 7)),
        (500, Filter { span: until(MIDNIGHT + 2), ..named }.into(), all(|n| n < 600)),
    ] {
        assert_eq!(walk(&*world.one, &filter, limit).await, expected, "{filter:?}");
    }
}

async fn a_long_life_is_told_in_parts(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = session(1);
    post(&*world.one, &life(&id, "widgets")).await;
    // The first second is before them all, the last after.
    let (from, to) = (Timestamp(MIDNIGHT + 3_000), Timestamp(MIDNIGHT + 8_000));
    let parts = world.one.activity(&id, from, to, 5).await.unwrap();
    let told: Vec<_> = parts
        .iter()
        .map(|part| {
            let at = part.until.0 - MIDNIGHT;
            (at, part.prompts, part.calls, part.cost.to_string(), part.tools, part.errors)
        })
        .collect();
    let none = || "0".to_owned();
    assert_eq!(
        told,
        [
            (3_000, 1, 0, none(), 0, 0),
            (4_000, 0, 1, "0.0123".to_owned(), 0, 0),
            (5_000, 0, 0, none(), 1, 0),
            (6_000, 0, 0, none(), 0, 1),
            (8_000, 0, 1, "0.0123".to_owned(), 0, 1),
        ]
    );
    let whole = world.one.activity(&id, to, from, 5).await.unwrap();
    assert_eq!((whole.iter().map(|part| part.calls).sum::<i64>(), whole.len()), (2, 1), "{whole:?}");
    assert_eq!(world.one.activity("nobody", from, to, 5).await.unwrap(), []);
}

/// A late START moves a session to its day and project, and leaves sums of zero where it was.
async fn zeros_take_nobodys_place(kind: Kind<'_>) {
    let world = kind.world().await;
    let late = json!({"time": Timestamp(MIDNIGHT + 86_400_000).to_string()});
    post(&*world.one, &[but(bound(&session(1), 2), &late)]).await;
    post(&*world.one, &[start(&session(1), 1, "widgets")]).await;
    for (by, key) in [(By::Day, "2026-11-16"), (By::Project, "widgets")] {
        let page = world.one.usage(by, UsageFilter::default(), 0..1).await.unwrap();
        let keys: Vec<_> = page.rows.iter().map(|row| row.key.as_str()).collect();
        assert_eq!((keys.as_slice(), page.more), (&[key][..], false), "{by}");
    }
}

/// As a store begun anew tells them: other sessions, the same conversation.
async fn sessions_of_one_conversation_are_each_on_some_page(kind: Kind<'_>) {
    let world = kind.world().await;
    for number in 0..40 {
        let id = session(number);
        let same = but(bound(&id, 1), &json!({".agentSessionId": "same"}));
        post(&*world.one, &[same, but(usage(&id, 2, 1), &json!({".costUsd": null}))]).await;
    }
    let mut found = Vec::new();
    for at in (0..40).step_by(7) {
        let page = world.one.usage(By::Session, UsageFilter::default(), at..at + 7).await.unwrap();
        found.extend(page.rows.into_iter().filter_map(|row| row.session_id));
    }
    assert_eq!(found, (0..40).map(session).collect::<Vec<_>>());
}

async fn usage_is_split_and_filtered(kind: Kind<'_>) {
    let world = kind.world().await;
    post(&*world.one, &life(&session(1), "widgets")).await;
    let tomorrow =
        json!({"time": Timestamp(MIDNIGHT + 86_400_000).to_string(), "agent": "codex", "user": "eve"});
    let other =
        json!({"time": tomorrow["time"], "agent": "codex", "user": "eve", ".model": "gpt", ".costUsd": 2.5});
    post(
        &*world.one,
        &[
            but(but(start(&session(2), 1, "gadgets"), &tomorrow), &json!({".branch": "topic"})),
            but(usage(&session(2), 2, 1), &other),
        ],
    )
    .await;
    let text = |text: &str| Some(text.to_owned());
    let all = Filter::default;
    let days = |first, last| Day::span_in(Day::parse(first), Day::parse(last), &jiff::tz::TimeZone::UTC);
    let eve = format!("{} codex 1", session(2));
    let dev = format!("agent-{} claude 120", session(1));
    let table = [
        (By::Day, all(), vec!["2026-11-16 claude 120", "2026-11-17 codex 1"]),
        (By::Agent, all(), vec!["codex codex 1", "claude claude 120"]),
        (By::Model, all(), vec!["gpt codex 1", "claude-sonnet-4-5 claude 120"]),
        (By::Project, all(), vec!["gadgets codex 1", "widgets claude 120"]),
        (By::Branch, all(), vec!["topic codex 1", "main claude 120"]),
        (By::User, all(), vec!["eve codex 1", "dev claude 120"]),
        (By::Session, all(), vec![&*eve, &*dev]),
        (By::Session, Filter { agent: text("claude"), ..all() }, vec![&*dev]),
        (By::Day, Filter { without_agent: text("codex"), ..all() }, vec!["2026-11-16 claude 120"]),
        (By::Session, Filter { without_agent: text("claude"), ..all() }, vec![&*eve]),
        (By::Day, Filter { branch: text("topic"), ..all() }, vec!["2026-11-17 codex 1"]),
        (By::Day, Filter { model: text("gpt"), ..all() }, vec!["2026-11-17 codex 1"]),
        (By::Day, Filter { user: text("dev"), ..all() }, vec!["2026-11-16 claude 120"]),
        (By::Agent, Filter { project: text("gadgets"), ..all() }, vec!["codex codex 1"]),
        (By::Agent, Filter { span: days("2026-11-17", ""), ..all() }, vec!["codex codex 1"]),
        (By::Agent, Filter { span: days("", "2026-11-16"), ..all() }, vec!["claude claude 120"]),
        (By::Branch, Filter { span: days("", "2026-11-15"), ..all() }, vec![]),
    ];
    for (by, filter, expected) in table {
        let rows = world.one.usage(by, filter.clone().into(), 0..100).await.unwrap().rows;
        let rows: Vec<_> = rows
            .into_iter()
            .map(|row| format!("{} {} {}", row.key, row.agent.unwrap_or_default(), row.sums.counts.output))
            .collect();
        assert_eq!(rows, expected, "{by} {filter:?}");
    }
    let limited = world.one.usage(By::Agent, all().into(), 0..1).await.unwrap().rows;
    assert_eq!((limited.len(), limited[0].sums.cost_usd), (1, 2.5), "the most expensive first");
    let series = world.one.series(By::Model, all().into()).await.unwrap();
    let series: Vec<_> =
        series.into_iter().map(|row| format!("{} {} {}", row.day, row.key, row.sums.tokens())).collect();
    assert_eq!(series, ["2026-11-16 claude-sonnet-4-5 2340", "2026-11-17 gpt 1111"]);
}

async fn the_same_batches_to_two_nodes_at_once(kind: Kind<'_>) {
    let alone = kind.world().await;
    let world = kind.world().await;
    // Sessions that share some ids, so that nodes meet on events, sessions and sums.
    let batches: Vec<Vec<Value>> = (0..24)
        .map(|number| {
            let id = session(number % 8);
            let mut batch = life(&id, if number % 2 == 0 { "widgets" } else { "gadgets" });
            let seq = 20 + i64::from(number);
            batch.push(usage(&id, seq, 1));
            batch.push(but(tool(&id, 5, true), &json!({"rev": 1, ".linesAdded": 30})));
            batch
        })
        .collect();
    let mut accepted = 0;
    for batch in &batches {
        accepted += post(&*alone.one, batch).await.0;
    }
    let mut tasks = Vec::new();
    for (at, batch) in batches.iter().enumerate().flat_map(|batch| [batch, batch, batch]) {
        let node = if (at + tasks.len()) % 2 == 0 { &world.one } else { &world.other };
        let (node, batch) = (node.clone(), parsed(batch));
        tasks.push(tokio::spawn(async move { node.ingest(&Owner::default(), batch, NOW).await.unwrap() }));
    }
    let mut counted = 0;
    for task in tasks {
        counted += task.await.unwrap().accepted;
    }
    // A revision is accepted beside the first telling if it comes after it, and in its place if it comes before.
    assert!(counted <= accepted && counted + 8 >= accepted, "{counted} instead of {accepted}");
    assert_same(&everything(&*world.one).await, &everything(&*alone.one).await);
}

async fn sums_equal_what_was_sent(kind: Kind<'_>) {
    let world = kind.world().await;
    let mut dice = Dice(7);
    let (mut expected, mut all): (BTreeMap<(String, String), (i64, i64)>, Vec<Value>) = Default::default();
    for number in 0..20 {
        let id = session(number);
        let project = ["widgets", "gadgets", "gizmos"][dice.roll(3)];
        let mut batch = vec![start(&id, 1, project)];
        let last = 2 + i64::try_from(dice.roll(30)).unwrap();
        for seq in 2..=last {
            let output = i64::try_from(dice.roll(1000)).unwrap();
            let day = i64::try_from(dice.roll(3)).unwrap();
            let time = Timestamp(MIDNIGHT + day * 86_400_000 + seq).to_string();
            batch.push(but(usage(&id, seq, output), &json!({"time": time, ".costUsd": 0.000_001_25})));
            let sums = expected.entry((time[..10].to_owned(), project.to_owned())).or_default();
            sums.0 += output;
            sums.1 += 1;
        }
        batch.push(end(&id, last + 1, last + 1));
        all.extend(batch);
    }
    dice.shuffle(&mut all);
    for batch in all.chunks(37) {
        post(&*world.one, batch).await;
    }
    let series = world.one.series(By::Project, UsageFilter::default()).await.unwrap();
    let told: BTreeMap<_, _> = series
        .iter()
        .map(|row| {
            ((row.day.to_string(), row.key.clone()), (row.sums.counts.output, row.sums.counts.api_calls))
        })
        .filter(|(_, sums)| sums.1 > 0)
        .collect();
    assert_eq!(told, expected);
    for row in &series {
        let calls = f64::from(u32::try_from(row.sums.counts.api_calls).unwrap());
        assert!((row.sums.cost_usd - calls * 0.000_001_25).abs() < 1e-12, "{row:?}");
    }
    let page = world.one.sessions(SessionFilter::default(), Page::first(100)).await.unwrap();
    assert!(page.sessions.iter().all(reader::Session::complete));
}

/// Random calls, revised, priced anew and sent again, in any order, against a list of them: by model, project, day and session.
async fn every_sum_is_the_sum_of_the_calls(kind: Kind<'_>) {
    for seed in 1..=3 {
        let world = kind.world().await;
        let mut dice = Dice(seed);
        let (mut sent, mut truth): (Vec<Value>, BTreeMap<(String, String), Numbers>) = Default::default();
        for number in 0..12 {
            let id = session(number);
            let project = ["widgets", "gadgets", "gizmos"][dice.roll(3)];
            sent.push(start(&id, 1, project));
            let last = 2 + i64::try_from(dice.roll(25)).unwrap();
            for seq in 2..=last {
                let day = i64::try_from(dice.roll(3)).unwrap();
                let time = Timestamp(MIDNIGHT + day * 86_400_000 + seq).to_string();
                let model = ["claude-opus-4-8", "claude-sonnet-4-5", "claude-next-9"][dice.roll(3)];
                // The last revision counts, whichever arrives last.
                let revisions = dice.roll(3);
                for rev in 0..=revisions {
                    let mut tokens = || i64::try_from(dice.roll(100_000)).unwrap();
                    let [input, read, write, output, reasoning] = std::array::from_fn(|_| tokens());
                    let cost =
                        (dice.roll(4) > 0).then(|| PicoDollars(i64::try_from(dice.roll(1 << 30)).unwrap()));
                    let event = but(
                        usage(&id, seq, output),
                        &json!({"rev": rev, "time": time, ".model": model, ".inputTokens": input, ".cacheReadTokens": read,
                            ".cacheWriteTokens": write, ".reasoningTokens": reasoning,
                            ".costUsd": cost.map(PicoDollars::dollars)}),
                    );
                    if rev == revisions {
                        let tokens = [input, output, read, write, reasoning].map(i64::cast_unsigned);
                        let [input, output, cache_read, cache_write_5m, reasoning] = tokens;
                        let tokens = Tokens {
                            input,
                            output,
                            cache_read,
                            cache_write_5m,
                            cache_write_1h: 0,
                            reasoning,
                        };
                        let calls = CallSums::of(&tokens, cost);
                        let keys =
                            [("model", model), ("project", project), ("day", &time[..10]), ("session", &id)];
                        for (by, key) in keys {
                            let sums = truth.entry((by.to_owned(), key.to_owned())).or_default();
                            sums.add(&Numbers {
                                api_calls: calls.api_calls,
                                unpriced_calls: i64::from(cost.is_none()),
                                input: calls.input,
                                output: calls.output,
                                cache_read: calls.cache_read,
                                cache_write: calls.cache_write,
                                reasoning: calls.reasoning,
                                cost: calls.cost.0,
                                ..Numbers::default()
                            });
                        }
                    }
                    sent.push(event.clone());
                    if dice.roll(5) == 0 {
                        sent.push(event);
                    }
                }
            }
            sent.push(end(&id, last + 1, last + 1));
        }
        dice.shuffle(&mut sent);
        for (batch, node) in sent.chunks(41).zip([&world.one, &world.other].into_iter().cycle()) {
            post(&**node, batch).await;
        }
        let calls_of = |numbers: Numbers| Numbers { sessions: 0, ..numbers };
        // Sums of usage have their cost in dollars.
        #[expect(clippy::cast_possible_truncation, reason = "less than a dollar")]
        let costing =
            |cost_usd: f64, numbers: Numbers| Numbers { cost: (cost_usd * 1e12).round() as i64, ..numbers };
        let mut told: BTreeMap<(String, String), Numbers> = BTreeMap::new();
        for (name, by) in [("model", By::Model), ("project", By::Project), ("day", By::Day)] {
            let rows = world.one.usage(by, UsageFilter::default(), 0..1000).await.unwrap().rows;
            let rows = rows.into_iter().map(|row| {
                ((name.to_owned(), row.key), costing(row.sums.cost_usd, calls_of(row.sums.counts)))
            });
            told.extend(rows.filter(|(_, numbers)| numbers.api_calls > 0));
        }
        let page = world.one.sessions(SessionFilter::default(), Page::first(100)).await.unwrap();
        let rows = page
            .sessions
            .into_iter()
            .map(|session| (("session".to_owned(), session.id.clone()), calls_of(session.numbers)));
        told.extend(rows.filter(|(_, numbers)| numbers.api_calls > 0));
        assert_eq!(told, truth, "seed {seed}");
    }
}

async fn who_watches_hears_of_it(kind: Kind<'_>) {
    let world = kind.world().await;
    let mut here = world.one.live();
    let mut there = world.other.live();
    // The other node's ear needs a moment to open; told again until it hears.
    let id = session(1);
    post(&*world.one, &[start(&id, 1, "widgets")]).await;
    let heard = here.recv().await.unwrap();
    assert_eq!((&*heard[0].session, heard[0].latest), (&*id, EventType::Start));
    if matches!(kind, Kind::Postgres(_)) {
        for seq in 2.. {
            post(&*world.one, &[prompt(&id, seq)]).await;
            let wait = std::time::Duration::from_millis(500);
            if let Ok(heard) = tokio::time::timeout(wait, there.recv()).await {
                assert_eq!(heard.unwrap()[0].session, id);
                break;
            }
            assert!(seq < 120, "the other node never heard of it");
        }
    }
    post(&*world.one, &[start(&id, 1, "widgets")]).await;
    while let Ok(heard) = here.try_recv() {
        assert_eq!(heard[0].latest, EventType::Prompt, "what was known already is no news");
    }
}

async fn origins_are_remembered(kind: Kind<'_>) {
    let world = kind.world().await;
    post(&*world.one, &life(&session(1), "widgets")).await;
    let anonymous = json!({"machine": null, "user": null});
    let batch = parsed(&[but(start(&session(2), 1, "widgets"), &anonymous)]);
    world.one.ingest(&Owner::default(), batch, Timestamp(NOW.0 + 5)).await.unwrap();
    let health = world.one.health(0).await.unwrap();
    let told: Vec<_> =
        health.origins.iter().map(|o| (o.machine.as_deref(), o.user.as_deref(), o.events)).collect();
    assert_eq!(told, [(None, None, 1), (Some("m1"), Some("dev"), 9)]);
    assert_eq!(health.origins[0].last_received_at, Timestamp(NOW.0 + 5));
    assert_eq!((health.sessions, health.active), (2, 1));
}

async fn tokens_are_kept_and_revoked(kind: Kind<'_>) {
    let world = kind.world().await;
    let token = |name: &str, role| Token {
        name: name.to_owned(),
        role,
        owner: Owner::new(&format!("{name}'s")).unwrap(),
        hash: TokenHash::of(name),
        created_at: NOW,
        revoked_at: None,
    };
    assert!(world.one.add_token(token("laptop", Role::Ingest)).await.unwrap());
    assert!(
        !world
            .one
            .add_token(Token { hash: TokenHash::of("x"), ..token("laptop", Role::Admin) })
            .await
            .unwrap()
    );
    let same = Token { name: "laptop-2".into(), ..token("laptop", Role::Ingest) };
    assert!(!world.other.add_token(same).await.unwrap(), "another node has read the same file");
    assert!(world.one.add_token(token("wall", Role::Read)).await.unwrap());
    assert_eq!(
        world.other.token(TokenHash::of("laptop")).await.unwrap(),
        Some(token("laptop", Role::Ingest))
    );
    assert_eq!(world.other.token(TokenHash::of("x")).await.unwrap(), None);
    assert!(world.one.revoke_token("laptop", NOW).await.unwrap());
    assert!(!world.one.revoke_token("laptop", NOW).await.unwrap());
    assert!(!world.one.revoke_token("nobody", NOW).await.unwrap());
    assert_eq!(world.other.token(TokenHash::of("laptop")).await.unwrap().unwrap().revoked_at, Some(NOW));
    let names: Vec<_> = world.one.tokens().await.unwrap().into_iter().map(|token| token.name).collect();
    assert_eq!(names, ["laptop", "wall"]);
}

async fn a_pass_that_was_given_up_is_so_on_every_node(kind: Kind<'_>) {
    let world = kind.world().await;
    let later = |ms: i64| Timestamp(NOW.0 + ms);
    world.one.end_pass([1; 32], later(10), NOW).await.unwrap();
    world.one.end_pass([1; 32], later(10), NOW).await.unwrap();
    assert!(world.other.pass_ended([1; 32]).await.unwrap());
    assert!(!world.other.pass_ended([2; 32]).await.unwrap());
    world.other.end_pass([2; 32], later(30), later(20)).await.unwrap();
    assert!(world.one.pass_ended([2; 32]).await.unwrap());
    assert!(!world.one.pass_ended([1; 32]).await.unwrap(), "its time is over, and it is forgotten");
}

async fn too_many_holes_are_refused(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = session(1);
    let batch: Vec<_> = (0..4100).map(|number| prompt(&id, 2 + number * 2)).collect();
    let (accepted, duplicates, rejected) = post(&*world.one, &batch).await;
    assert_eq!((accepted, duplicates, rejected), (4096, 0, 4));
    assert_eq!(record(&*world.one, &id).await["usage"]["prompts"], 4096, "what was refused was not stored");
}

async fn long_and_strange_texts_survive(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = "legacy-claude-2024 'quoted' \"double\" \\ $1 ?1 ü 💡".to_owned();
    let long = "x".repeat(1024);
    let odd = json!({".name": long, ".project": "a,b;\"c\"{d}\n", ".branch": "NULL", ".tags": ["", "\t"]});
    post(
        &*world.one,
        &[but(start(&id, 1, "x"), &odd), but(usage(&id, 2, 1), &json!({".model": "a,b", ".costUsd": null}))],
    )
    .await;
    let told = record(&*world.one, &id).await;
    assert_eq!(told["name"], long);
    assert_eq!(told["project"], "a,b;\"c\"{d}\n");
    assert_eq!(told["branch"], "NULL");
    assert_eq!(told["usage"]["unpricedModels"], json!(["a,b"]));
    let rows = world.one.usage(By::Project, UsageFilter::default(), 0..10).await.unwrap().rows;
    assert_eq!(rows[0].unpriced_models, ["a,b"]);
    let found = SessionFilter::from(Filter { words: vec!["Ü 💡".to_owned()], ..Filter::default() });
    assert_eq!(world.one.sessions(found, Page::first(1)).await.unwrap().sessions.len(), 1);
    let empty = world.one.ingest(&Owner::default(), Vec::new(), NOW).await.unwrap();
    assert_eq!((empty.accepted, empty.duplicates), (0, 0));
    let error = event(&id, 3, "error", &json!({"status": 500}));
    assert_eq!(post(&*world.one, &[error]).await, (1, 0, 0));
}

/// A text of so many bytes that no compression makes shorter.
fn noise(bytes: usize) -> String {
    let mut dice = Dice(u64::try_from(bytes).unwrap());
    (0..bytes)
        .map(|_| {
            char::from(
                b"!#$%&()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_abcdefghij"[dice.roll(69)],
            )
        })
        .collect()
}

async fn the_longest_keys_are_stored_and_longer_ones_refused(kind: Kind<'_>) {
    let world = kind.world().await;
    let (key, long) = (noise(512), noise(1024));
    let who = json!({"sessionId": long, "agent": key, "user": key, "machine": long});
    let opening = json!({".name": "x", ".project": key, ".branch": long, ".transitionedFrom": long, ".parentSessionId": long});
    let batch = [
        but(but(start(&long, 1, "x"), &who), &opening),
        but(but(bound(&long, 2), &who), &json!({".agentSessionId": long})),
        but(but(usage(&long, 3, 1), &who), &json!({".model": key, ".costUsd": null})),
        but(but(tool(&long, 4, true), &who), &json!({".name": long, ".kind": "other"})),
    ];
    assert_eq!(post(&*world.one, &batch).await, (4, 0, 0));
    for by in [By::Agent, By::Model, By::Project, By::User] {
        assert_eq!(
            world.one.usage(by, UsageFilter::default(), 0..10).await.unwrap().rows[0].key,
            key,
            "{by}"
        );
    }
    let longer = noise(513);
    for (event, named) in [
        (but(batch[2].clone(), &json!({"agent": longer})), "agent"),
        (but(batch[2].clone(), &json!({"user": longer})), "user"),
        (but(batch[2].clone(), &json!({".model": longer})), "model"),
        (but(batch[0].clone(), &json!({".project": longer})), "project"),
    ] {
        let refused = Event::parse(&event.to_string()).unwrap_err();
        assert_eq!(refused, format!("{named} is longer than 512 bytes"));
    }
}

async fn sums_beyond_all_bounds_keep_nothing_out(kind: Kind<'_>) {
    let world = kind.world().await;
    // Nine million dollars are the most that 64 bits of pico-dollars hold.
    let call = |id: &str, seq| {
        but(usage(id, seq, 1_000_000_000), &json!({".costUsd": 1000, ".cacheReadTokens": 1_000_000_000}))
    };
    let (a, b) = (session(1), session(2));
    for (id, project, first) in [(&a, "widgets", 2), (&a, "widgets", 5002), (&b, "gadgets", 2)] {
        let mut batch = vec![start(id, 1, project)];
        batch.extend((first..first + 5000).map(|seq| call(id, seq)));
        let (accepted, duplicates, rejected) = post(&*world.one, &batch).await;
        assert_eq!((accepted + duplicates, rejected), (5001, 0));
    }
    for by in By::ALL {
        let rows = world.one.usage(*by, UsageFilter::default(), 0..10).await.unwrap().rows;
        let dollars: f64 = rows.iter().map(|row| row.sums.cost_usd).sum();
        assert!((dollars - 15e6).abs() < 0.01, "{by}: {dollars}");
        let output: i64 = rows.iter().map(|row| row.sums.counts.output).sum();
        assert_eq!(output, 15_000_000_000_000, "{by}");
        assert!(!world.one.series(*by, UsageFilter::default()).await.unwrap().is_empty());
    }
    let told = world.one.session(&a).await.unwrap().unwrap();
    let ten_million = 10_000_000 * 1_000_000_000_000;
    assert_eq!((told.session.numbers.api_calls, told.session.numbers.pico_dollars()), (10_000, ten_million));
    assert_eq!(told.models[0].numbers.pico_dollars(), ten_million);
    let counted = world.one.count_sessions(SessionFilter::default(), 10).await.unwrap();
    assert!((counted.cost_usd - 15e6).abs() < 0.01, "{counted:?}");
}

/// Added up beyond what 64 bits of pico-dollars hold, then revised to a cent a call.
async fn sums_near_the_limit_are_exact_after_revisions(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = session(1);
    let calls = |rev: i64, dollars: f64| -> Vec<Value> {
        let call = |seq| but(usage(&id, seq, 1), &json!({"rev": rev, ".costUsd": dollars}));
        (2..9_992).map(call).collect()
    };
    for (rev, each) in [(0, 1000.0), (1, 0.01), (2, 999.99), (3, 0.0)] {
        for batch in calls(rev, each).chunks(5_000) {
            let (accepted, _, rejected) = post(&*world.one, batch).await;
            assert_eq!((accepted, rejected), (batch.len(), 0));
        }
        let expected = 9_990.0 * each;
        let told = record(&*world.one, &id).await["usage"]["costUsd"].as_f64().unwrap();
        assert!((told - expected).abs() < 0.000_1, "{told} instead of {expected}");
        for by in By::ALL {
            let rows = world.one.usage(*by, UsageFilter::default(), 0..10).await.unwrap().rows;
            let dollars: f64 = rows.iter().map(|row| row.sums.cost_usd).sum();
            assert!((dollars - expected).abs() < 0.01, "{by}: {dollars} instead of {expected}");
        }
    }
}

async fn the_newest_days_are_shown_and_that_there_are_more(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = session(1);
    let day = |number: i64| Timestamp(MIDNIGHT + number * 86_400_000).to_string();
    let calls: Vec<_> = (1..=5).map(|at| but(usage(&id, at, 1), &json!({"time": day(at)}))).collect();
    post(&*world.one, &calls).await;
    for (limit, days, more) in [
        (2, &["2026-11-20", "2026-11-21"][..], true),
        (4, &["2026-11-18", "2026-11-19", "2026-11-20", "2026-11-21"], true),
        (5, &["2026-11-17", "2026-11-18", "2026-11-19", "2026-11-20", "2026-11-21"], false),
    ] {
        let page = world.one.usage(By::Day, UsageFilter::default(), 0..limit).await.unwrap();
        let found: Vec<_> = page.rows.iter().map(|row| &*row.key).collect();
        assert_eq!((&*found, page.more), (days, more));
    }
}

async fn events_with_one_seq_are_all_on_some_page(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = session(1);
    let again = |number: u128| {
        let uuid = uuid::Uuid::from_u128(number << 64 | number);
        but(prompt(&id, 2), &json!({"id": uuid}))
    };
    let batch = [start(&id, 1, "widgets"), again(0xff), again(1), again(0x80), prompt(&id, 3)];
    post(&*world.one, &batch).await;
    for limit in 1..=5 {
        let (mut seqs, mut after) = (Vec::new(), TimelinePosition::default());
        loop {
            let page = world.one.timeline(&id, after, limit).await.unwrap();
            assert!(page.events.len() <= limit);
            seqs.extend(page.events.iter().map(|event| event.seq));
            let Some(next) = page.next else { break };
            after = next.to_string().parse().unwrap();
        }
        assert_eq!(seqs, [1, 2, 2, 2, 3], "{limit} at a time");
    }
}
