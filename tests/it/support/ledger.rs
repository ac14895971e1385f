//! What an honest receiver keeps: of every event the highest revision, and nothing twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use serde_json::{Value, json};

use super::receiver::{Received, Reply};

#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<String, Value>>);

/// One session as its events describe it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ReportedSession {
    pub(crate) agent_session: Option<String>,
    /// Calls, input, output, cache read, cache write.
    pub(crate) usage: [i64; 5],
    /// The same by the totals of the last END.
    pub(crate) totals: Option<[i64; 5]>,
    /// Whether every `seq` up to the last END's `lastSeq` is there.
    pub(crate) complete: bool,
}

/// The numbers of a [`ReportedSession`], by their names in records and events.
pub(crate) const FIELDS: [&str; 5] =
    ["apiCalls", "inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"];

impl Ledger {
    pub(crate) fn take(&self, received: &Received) -> Reply {
        let events: Vec<Value> = serde_json::from_slice(&received.body).unwrap();
        let mut kept = self.0.lock().unwrap();
        let (mut accepted, mut duplicates) = (0, 0);
        for event in events {
            let id = event["id"].as_str().unwrap().to_owned();
            let newer = kept.get(&id).is_none_or(|known| known["rev"].as_i64() < event["rev"].as_i64());
            if newer {
                kept.insert(id, event);
                accepted += 1;
            } else {
                duplicates += 1;
            }
        }
        Reply::Status(
            200,
            json!({"accepted": accepted, "duplicates": duplicates, "rejected": []}).to_string(),
        )
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        self.0.lock().unwrap().values().cloned().collect()
    }

    /// By session id.
    pub(crate) fn sessions(&self) -> BTreeMap<String, ReportedSession> {
        let mut sessions = BTreeMap::<String, (ReportedSession, BTreeSet<i64>, Vec<(i64, Value)>)>::new();
        for event in self.events() {
            let (session, seqs, ends) =
                sessions.entry(event["sessionId"].as_str().unwrap().to_owned()).or_default();
            let attributes = &event["attributes"];
            let seq = event["seq"].as_i64().unwrap();
            assert!(seqs.insert(seq), "two events with one seq: {event}");
            match event["type"].as_str().unwrap() {
                "session.bound" => {
                    session.agent_session = attributes["agentSessionId"].as_str().map(str::to_owned);
                }
                "usage" => {
                    session.usage[0] += 1;
                    for (sum, field) in session.usage.iter_mut().zip(FIELDS).skip(1) {
                        *sum += attributes[field].as_i64().unwrap();
                    }
                }
                "session.end" => ends.push((seq, attributes.clone())),
                _ => {}
            }
        }
        sessions
            .into_iter()
            .map(|(id, (mut session, seqs, mut ends))| {
                ends.sort_by_key(|(seq, _)| *seq);
                if let Some((_, end)) = ends.last() {
                    session.totals = Some(FIELDS.map(|field| end["totals"][field].as_i64().unwrap()));
                    let last = end["lastSeq"].as_i64().unwrap();
                    session.complete = seqs.iter().copied().eq(1..=last);
                }
                (id, session)
            })
            .collect()
    }
}
