//! Whose session it is, and what may be added to it: cases for every storage, run by `conformance`.
use reader::TimelinePosition;
use reader::token::Owner;
use serde_json::{Value, json};
use uuid::Uuid;

use super::Kind;
use super::events::{
    NOW, assert_same, but, end, event, everything, life, parsed, post, post_as, prompt, record, session,
    start, usage,
};

pub(super) async fn another_owners_events_are_rejected_and_change_nothing(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = session(1);
    post_as(&*world.one, "alice", &life(&id, "widgets")).await;
    let before = everything(&*world.one).await;
    let mut here = world.one.live();
    let attacks = [
        // The same again, what would rewrite it, what would tear a hole into it, and what it does not know yet.
        life(&id, "widgets"),
        vec![but(usage(&id, 4, 1), &json!({"rev": 2_147_483_647}))],
        vec![but(usage(&id, 4, 1), &json!({"rev": 1}))],
        vec![but(start(&id, 1_000_000_000, "mallory's"), &json!({"rev": 0}))],
        vec![but(end(&id, 10, 10), &json!({"machine": "m2", "user": "mallory"})), usage(&id, 11, 1)],
    ];
    for (attack, node) in attacks.iter().zip([&world.one, &world.other].into_iter().cycle()) {
        let answer = post_as(&**node, "mallory", attack).await;
        assert_eq!((answer.accepted, answer.duplicates, answer.rejected.len()), (0, 0, attack.len()));
        for (rejected, event) in answer.rejected.iter().zip(attack) {
            assert_eq!(rejected.id.as_deref(), event["id"].as_str());
        }
    }
    let answer = post_as(&*world.one, "mallory", &attacks[1]).await;
    let error = &answer.rejected[0].error;
    assert!(error.contains("belongs to another owner") && error.contains("--replaces"), "{error}");
    assert_same(&everything(&*world.one).await, &before);
    assert!(here.try_recv().is_err(), "nobody is told of what did not happen");
    // Its owner goes on, with whichever token.
    let answer = post_as(&*world.other, "alice", &[usage(&id, 10, 1)]).await;
    assert_eq!((answer.accepted, answer.rejected.len()), (1, 0));
}

pub(super) async fn ids_of_one_owner_suppress_no_event_of_another(kind: Kind<'_>) {
    let world = kind.world().await;
    let (mine, theirs) = (session(1), session(2));
    let whole = life(&mine, "widgets");
    // Every id of it is posted first, under a session of the other's own, and highly revised.
    let first: Vec<Value> =
        whole.iter().map(|event| but(event.clone(), &json!({"sessionId": theirs, "rev": 90_000}))).collect();
    assert_eq!(post_as(&*world.one, "mallory", &first).await.accepted, 9);
    let answer = post_as(&*world.one, "alice", &whole).await;
    assert_eq!((answer.accepted, answer.duplicates, answer.rejected.len()), (9, 0, 0));
    let alone = kind.world().await;
    post_as(&*alone.one, "alice", &whole).await;
    assert_eq!(record(&*world.one, &mine).await, record(&*alone.one, &mine).await);
    // Within an owner an id is known once.
    let copy = but(usage(&mine, 4, 50), &json!({"sessionId": session(3), "seq": 1}));
    let answer = post_as(&*world.other, "alice", &[copy]).await;
    assert_eq!((answer.accepted, answer.duplicates), (0, 1));
    // Each owner's revisions are its own.
    post_as(&*world.one, "alice", &[but(usage(&mine, 4, 77), &json!({"rev": 1}))]).await;
    assert_eq!(record(&*world.one, &mine).await["usage"]["outputTokens"], 77 + 70);
    assert_eq!(record(&*world.one, &theirs).await["usage"]["outputTokens"], 120);
}

pub(super) async fn a_rejected_event_costs_none_of_the_same_id(kind: Kind<'_>) {
    let world = kind.world().await;
    let (theirs, mine) = (session(1), session(2));
    post_as(&*world.one, "alice", &[start(&theirs, 1, "widgets")]).await;
    let call = usage(&mine, 1, 5);
    let under_theirs = but(call.clone(), &json!({"sessionId": theirs, "seq": 2}));
    let too_far = but(call.clone(), &json!({"rev": 2_000_000_000}));
    let answer = post_as(&*world.one, "bob", &[under_theirs, too_far, call]).await;
    assert_eq!((answer.accepted, answer.duplicates, answer.rejected.len()), (1, 0, 2));
    assert_eq!(record(&*world.one, &mine).await["usage"]["outputTokens"], 5);
}

pub(super) async fn jumps_of_seq_and_rev_are_rejected(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = session(1);
    post(&*world.one, &[start(&id, 1, "widgets"), usage(&id, 2, 5), end(&id, 3, 3)]).await;
    let before = record(&*world.one, &id).await;
    for far in [
        but(start(&id, 1_000_000_000, "widgets"), &json!({})),
        prompt(&id, 100_004),
        but(end(&id, 3, 100_004), &json!({"rev": 1})),
        but(usage(&id, 2, 9), &json!({"rev": 100_001})),
        but(usage(&id, 2, 9), &json!({"rev": 2_147_483_647})),
        but(prompt(&id, 4), &json!({"rev": 2_147_483_647})),
    ] {
        assert_eq!(post(&*world.one, std::slice::from_ref(&far)).await, (0, 0, 1), "{far}");
        assert_eq!(record(&*world.one, &id).await, before, "{far}");
    }
    let unknown = session(2);
    assert_eq!(post(&*world.one, &[start(&unknown, 1_000_000_000, "widgets")]).await, (0, 0, 1));
    assert!(world.one.session(&unknown).await.unwrap().is_none(), "nothing is known of it");
    // As far as that is allowed, from the known one on.
    for near in [
        but(usage(&id, 2, 6), &json!({"rev": 100_000})),
        but(usage(&id, 2, 7), &json!({"rev": 200_000})),
        prompt(&id, 100_003),
        prompt(&id, 200_003),
        but(end(&id, 3, 300_003), &json!({"rev": 1})),
        prompt(&id, 400_003),
    ] {
        assert_eq!(post(&*world.other, std::slice::from_ref(&near)).await, (1, 0, 0), "{near}");
    }
    assert_eq!(record(&*world.one, &id).await["usage"]["outputTokens"], 7);
    // A call of a conversation that never ran through codemie has a revision made of its tokens.
    let found = but(usage(&session(3), 4, 5), &json!({"rev": 2_100_000}));
    assert_eq!(post(&*world.one, std::slice::from_ref(&found)).await, (1, 0, 0));
    assert_eq!(post(&*world.one, &[but(found, &json!({"rev": 2_100_900}))]).await, (1, 0, 0));
}

/// Every ninety-thousandth of a session's events stands for those around it.
pub(super) async fn a_long_session_arrives_in_any_order(kind: Kind<'_>) {
    let far = |id: &str| -> Vec<Value> {
        let mut events: Vec<Value> = (0..6).map(|part| prompt(id, 1 + part * 90_000)).collect();
        events.push(end(id, 450_002, 450_002));
        events
    };
    let world = kind.world().await;
    let (one, two, three, four) = (session(1), session(2), session(3), session(4));
    for event in far(&one) {
        assert_eq!(post(&*world.one, &[event]).await, (1, 0, 0), "from the first on");
    }
    for event in far(&two).into_iter().rev() {
        assert_eq!(post(&*world.one, &[event]).await, (1, 0, 0), "from the last on");
    }
    let mut turned = far(&three);
    turned.reverse();
    assert_eq!(post(&*world.one, &turned).await, (7, 0, 0), "in one batch");
    // One that begins late here, where its first events are not for this receiver.
    let late: Vec<Value> = far(&four).split_off(3);
    assert_eq!(post(&*world.one, &late).await, (4, 0, 0));
    for id in [&one, &two, &three] {
        let told = record(&*world.one, id).await;
        assert_eq!((&told["usage"]["prompts"], &told["status"]), (&json!(6), &json!("completed")), "{id}");
    }
}

pub(super) async fn two_nodes_decide_once_whose_a_session_is(kind: Kind<'_>) {
    let world = kind.world().await;
    for number in 0..20 {
        let events = life(&session(number), "widgets");
        let (one, other) =
            tokio::join!(post_as(&*world.one, "alice", &events), post_as(&*world.other, "bob", &events));
        let mut outcomes = [(one.accepted, one.rejected.len()), (other.accepted, other.rejected.len())];
        outcomes.sort_unstable();
        assert_eq!(outcomes, [(0, 9), (9, 0)], "session {number}");
        let told = record(&*world.one, &session(number)).await;
        assert_eq!((&told["complete"], &told["usage"]["apiCalls"]), (&json!(true), &json!(2)));
    }
}

pub(super) async fn unknown_types_count_as_received(kind: Kind<'_>) {
    let world = kind.world().await;
    let id = session(1);
    let forecast =
        event(&id, 2, "forecast", &json!({"window": "5h", "utilization": 0.5, "model": {"deep": [1]}}));
    assert_eq!(post(&*world.one, &[start(&id, 1, "widgets"), end(&id, 3, 3)]).await, (2, 0, 0));
    assert_eq!(record(&*world.one, &id).await["missingSeq"], json!([[2, 2]]));
    assert_eq!(post(&*world.one, std::slice::from_ref(&forecast)).await, (1, 0, 0));
    let told = record(&*world.one, &id).await;
    assert_eq!((&told["complete"], &told["missingSeq"]), (&json!(true), &json!([])));
    assert_eq!(post(&*world.other, &[forecast.clone(), forecast.clone()]).await, (0, 2, 0));
    assert_eq!(
        post(&*world.other, &[but(forecast, &json!({"rev": 1}))]).await,
        (1, 0, 0),
        "revised like any"
    );
    let timeline = world.one.timeline(&id, TimelinePosition::default(), 10).await.unwrap();
    let kinds: Vec<_> = timeline.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["session.start", "forecast", "session.end"]);
    let first = json!({"id": Uuid::from_u128(7)});
    let alone = but(event(&session(2), 1, "x.y", &json!({})), &first);
    let ingested = world.one.ingest(&Owner::default(), parsed(&[alone]), NOW).await.unwrap();
    assert_eq!(
        (ingested.accepted, &*session(2)),
        (1, &*world.one.session(&session(2)).await.unwrap().unwrap().session.id)
    );
}
