//! Events of conversations that never ran through codemie, for our own backend. Only `sync --backfill --scan` sends them
//! ([`super::direct`]).
//!
//! They are no sessions of the store, so there is no outbox and no cursor. Every time all of their events are sent, under ids
//! made of agent, conversation and key, and the receiver knows which it has. START, bound and END come first (`seq` 1 to 3),
//! so that calls found later are appended. A call that was half written when it was read is sent again with more tokens: `rev`
//! is made of them, the END's of all.

use std::collections::BTreeMap;

use uuid::Uuid;

use agents::meter::record::Fact;
use scan::ForeignSession;
use store::session::record::summary;
use store::{Outgoing, Priced};
use types::event::{
    Bound, Cost, Dimension, End, Flag, Key, NAMESPACE, Seq, Source, Start, Tags, Text, Timing, Usage,
    keyed_id, opening_id,
};
use types::{AgentSessionId, CallSums, FOREIGN_TAG, SessionId, Sums, redact};
use types::{Attributes, Coverage, EndReason, Event, EventType, StartReason, Status, UsageSummary};

/// The highest `rev` there is.
const MOST_REVISED: i64 = i32::MAX as i64;

/// The session id at the receiver, the same every time.
pub fn session_id(session: &ForeignSession) -> SessionId {
    id_of(&session.agent, &session.conversation)
}

/// The same by what it is made of.
pub fn id_of(agent: &str, conversation: &AgentSessionId) -> SessionId {
    SessionId(Uuid::new_v5(&NAMESPACE, format!("foreign\0{agent}\0{conversation}").as_bytes()))
}

/// All events of a foreign conversation, as far as its file shows them.
pub fn life(session: &ForeignSession, calls: &[Priced]) -> Vec<Outgoing> {
    let id = session_id(session);
    let count = i64::try_from(calls.len()).unwrap_or(i64::MAX);
    // One more per call, and some for output that was added to known ones: receivers refuse revisions that jump far.
    let output = calls.iter().fold(0_u64, |sum, call| match &call.record.fact {
        Fact::Usage(usage) => sum.saturating_add(usage.tokens.output),
        _ => sum,
    });
    let all = count.saturating_add(i64::from(u64::BITS - output.leading_zeros())).min(MOST_REVISED);
    let event = |id: Uuid, rev, seq, time, mut attributes: Attributes| {
        redact::publish(&mut attributes);
        let event = Event {
            id,
            rev,
            session: Text::cut(session_id(session).to_string()),
            seq,
            time,
            agent: Dimension::cut(session.agent.clone()),
            machine: None,
            user: None,
            attributes,
        };
        Outgoing { n: 0, change: None, event }
    };
    let of_opening = |kind| opening_id(id, kind, 1);
    let text = |text: &str| Text::cut(text.to_owned());
    let short: String = redact::key(&session.conversation.0).chars().take(8).collect();
    let start = Attributes::Start(Start {
        agent_version: session.version.as_deref().map(text),
        branch: session.branch.as_deref().map(text),
        group: None,
        name: Some(Text::cut(format!("{}-{short}", session.agent))),
        parent_session_id: None,
        project: session.project.clone().map(Dimension::cut),
        reason: Some(StartReason::Startup),
        repository: session.repository.as_deref().map(text),
        tags: Tags::cut([FOREIGN_TAG.to_owned()]),
        transitioned_from: None,
        wrapper_version: Some(text(env!("CARGO_PKG_VERSION"))),
    });
    let bound = Attributes::Bound(Bound { agent_session_id: text(&session.conversation.0), evidence: None });
    let open_for = session.sums.last.since(session.sums.first).as_millis();
    let end = Attributes::End(Box::new(End {
        duration_ms: u64::try_from(open_for).unwrap_or(u64::MAX).into(),
        end_reason: Some(EndReason::Exit),
        exit_code: None,
        last_seq: Seq(count.saturating_add(3)),
        status: Status::Completed,
        totals: Some(totals(calls).into()),
        transitioned_to: None,
    }));
    let mut events = vec![
        event(of_opening(EventType::Start), 0, 1, session.sums.first, start),
        event(of_opening(EventType::Bound), 0, 2, session.sums.first, bound),
        event(of_opening(EventType::End), all, 3, session.sums.last, end),
    ];
    for (seq, call) in (4..).zip(calls) {
        let Fact::Usage(usage) = &call.record.fact else { continue };
        let tokens = &usage.tokens;
        let attributes = Attributes::Usage(Usage {
            aborted: Flag::default(),
            attempt: None,
            billing: None,
            branch: None,
            cache_read_tokens: tokens.cache_read.into(),
            cache_write_tokens: tokens.cache_write().into(),
            cost_usd: call.cost.map(Cost),
            head: None,
            input_tokens: tokens.input.into(),
            key: Key(Some(call.record.key.clone())),
            kind: None,
            latency_ms: Timing::NONE,
            model: Dimension::cut(usage.model.clone()),
            output_tokens: tokens.output.into(),
            reasoning_tokens: tokens.reasoning.into(),
            source: Some(Source::Transcript),
            subagent: call.record.subagent.is_some().into(),
            ttft_ms: Timing::NONE,
        });
        let id = keyed_id(&session.agent, EventType::Usage, &call.record.key);
        events.push(event(id, revision(call), seq, call.record.at, attributes));
    }
    events
}

/// Grows while a call is being written: later lines add output, and of lines with the same output the larger sum counts.
fn revision(call: &Priced) -> i64 {
    let Fact::Usage(usage) = &call.record.fact else { return 0 };
    let sum = usage.tokens.total().saturating_add(usage.tokens.output);
    i64::try_from(sum).map_or(MOST_REVISED, |sum| sum.min(MOST_REVISED))
}

fn totals(calls: &[Priced]) -> UsageSummary {
    let mut sums = Sums::default();
    let mut unpriced: BTreeMap<String, i64> = BTreeMap::new();
    for call in calls {
        let Fact::Usage(usage) = &call.record.fact else { continue };
        sums.calls.add(&CallSums::of(&usage.tokens, call.cost));
        if call.cost.is_none() {
            *unpriced.entry(usage.model.clone()).or_default() += 1;
        }
    }
    summary(sums, unpriced, Coverage::Transcript)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use serde_json::json;
    use store::session::testing::usage;
    use types::Timestamp;
    use usage::DatedSums;

    fn session(calls: i64) -> ForeignSession {
        ForeignSession {
            agent: "claude".into(),
            conversation: AgentSessionId("7a276c6b-0000".into()),
            project: Some("widgets".into()),
            repository: None,
            branch: None,
            version: None,
            file: "/f".into(),
            sums: DatedSums {
                calls: CallSums { api_calls: calls, ..CallSums::default() },
                first: Timestamp(1000),
                last: Timestamp(5000),
                ..DatedSums::default()
            },
            models: BTreeSet::new(),
            unpriced_models: BTreeSet::new(),
        }
    }

    #[test]
    fn calls_found_later_are_appended_and_the_end_is_revised() {
        let calls = [usage("m1", Timestamp(1000), 20), usage("m2", Timestamp(5000), 5)];
        let (first, second) = (life(&session(1), &calls[..1]), life(&session(2), &calls));
        assert_eq!(first[..2], second[..2]);
        assert_eq!(first[3], second[3], "the same call is the same event");
        assert_eq!((first[2].id, first[2].seq), (second[2].id, second[2].seq));
        assert!(first[2].rev < second[2].rev);
        assert_eq!(second.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        let more = [usage("m1", Timestamp(1000), 300), calls[1].clone()];
        let third = life(&session(2), &more);
        assert_eq!(third[3].id, second[3].id);
        assert!(third[3].rev > second[3].rev && third[2].rev > second[2].rev, "half written the time before");
        let mut larger = calls[0].clone();
        if let Fact::Usage(usage) = &mut larger.record.fact {
            usage.tokens.input += 999;
        }
        let fourth = life(&session(2), &[larger, calls[1].clone()]);
        assert!(fourth[3].rev > second[3].rev, "the same output, a larger sum");
        let sent = |at: usize| serde_json::to_value(&second[at].attributes).unwrap();
        assert_eq!((&sent(2)["lastSeq"], &sent(2)["totals"]["outputTokens"]), (&json!(5), &json!(25)));
        assert_eq!(sent(0)["tags"], json!(["foreign"]));
        assert_eq!(sent(0)["name"], "claude-7a276c6b");
    }
}
