//! Events of conversations that never ran through codemie, for our own backend. Only `sync --backfill --scan` sends them
//! ([`super::direct`]).
//!
//! They are no sessions of the store, so there is no outbox and no cursor. Every time all of their events are sent, under ids
//! made of agent, conversation and key, and the receiver knows which it has. START, bound and END come first (`seq` 1 to 3),
//! so that calls found later are appended. A call that was half written when it was read is sent again with more tokens: `rev`
//! is made of them, the END's of all.

use std::collections::BTreeMap;

use serde_json::json;
use uuid::Uuid;

use crate::meter::record::Fact;
use crate::scan::ForeignSession;
use crate::session::event::{NAMESPACE, keyed_id, opening_id};
use crate::session::record::summary;
use crate::store::{Outgoing, Priced, Totals, plain};
use wire::SessionId;
use wire::Timestamp;
use wire::{Coverage, UsageSummary};
use wire::{EndReason, EventType, StartReason, Status};
use wire::{FOREIGN_TAG, PicoDollars};

/// The highest `rev` there is.
const MOST_REVISED: i64 = i32::MAX as i64;

/// The session id at the receiver, the same every time.
fn session_id(session: &ForeignSession) -> SessionId {
    let ForeignSession { agent, conversation, .. } = session;
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
    let event = |id: Uuid, rev, kind: EventType, seq, time, attributes| Outgoing {
        n: 0,
        id,
        rev,
        kind: kind.into(),
        session: session_id(session).to_string(),
        seq,
        time,
        agent: session.agent.clone(),
        attributes,
        change: None,
    };
    let of_opening = |rev, kind, seq, time: Timestamp, attributes| {
        event(opening_id(id, kind, 1), rev, kind, seq, time, attributes)
    };
    let short: String = plain::key(&session.conversation.0).chars().take(8).collect();
    let start = json!({
        "name": format!("{}-{short}", session.agent),
        "reason": StartReason::Startup,
        "agentVersion": session.version,
        "wrapperVersion": env!("CARGO_PKG_VERSION"),
        "project": session.project,
        "repository": session.repository,
        "branch": session.branch,
        "transitionedFrom": null,
        "parentSessionId": null,
        "tags": [FOREIGN_TAG],
        "group": null,
    });
    let end = json!({
        "status": Status::Completed,
        "endReason": EndReason::Exit,
        "exitCode": null,
        "durationMs": u64::try_from(session.last_at.since(session.first_at).as_millis()).unwrap_or(u64::MAX),
        "transitionedTo": null,
        "totals": totals(calls),
        "lastSeq": count.saturating_add(3),
    });
    let bound = json!({"agentSessionId": session.conversation, "evidence": null});
    let mut events = vec![
        of_opening(0, EventType::Start, 1, session.first_at, start),
        of_opening(0, EventType::Bound, 2, session.first_at, bound),
        of_opening(all, EventType::End, 3, session.last_at, end),
    ];
    for (seq, call) in (4..).zip(calls) {
        let Fact::Usage(usage) = &call.record.fact else { continue };
        let tokens = &usage.tokens;
        let attributes = json!({
            "key": call.record.key,
            "model": usage.model,
            "inputTokens": tokens.input,
            "outputTokens": tokens.output,
            "cacheReadTokens": tokens.cache_read,
            "cacheWriteTokens": tokens.cache_write(),
            "reasoningTokens": tokens.reasoning,
            "costUsd": call.cost.map(PicoDollars::dollars),
            "subagent": call.record.subagent.is_some(),
            "source": "transcript",
        });
        let id = keyed_id(&session.agent, EventType::Usage, &call.record.key);
        events.push(event(id, revision(call), EventType::Usage, seq, call.record.at, attributes));
    }
    for event in &mut events {
        plain::publish(event.kind.known(), &mut event.attributes);
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
    let mut sums = Totals::default();
    let mut unpriced: BTreeMap<String, i64> = BTreeMap::new();
    let number = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    for call in calls {
        let Fact::Usage(usage) = &call.record.fact else { continue };
        sums.api_calls += 1;
        sums.input += number(usage.tokens.input);
        sums.output += number(usage.tokens.output);
        sums.cache_read += number(usage.tokens.cache_read);
        sums.cache_write += number(usage.tokens.cache_write());
        sums.reasoning += number(usage.tokens.reasoning);
        match call.cost {
            Some(cost) => sums.cost.0 += cost.0,
            None => *unpriced.entry(usage.model.clone()).or_default() += 1,
        }
    }
    summary(&sums, unpriced, Coverage::Transcript)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::usage;
    use wire::AgentSessionId;

    fn session(calls: i64) -> ForeignSession {
        ForeignSession {
            agent: "claude".into(),
            conversation: AgentSessionId("7a276c6b-0000".into()),
            project: Some("widgets".into()),
            repository: None,
            branch: None,
            version: None,
            first_at: Timestamp(1000),
            last_at: Timestamp(5000),
            calls,
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
        let end = &second[2].attributes;
        assert_eq!((&end["lastSeq"], &end["totals"]["outputTokens"]), (&json!(5), &json!(25)));
        assert_eq!(second[0].attributes["tags"], json!(["foreign"]));
        assert_eq!(second[0].attributes["name"], "claude-7a276c6b");
    }
}
