//! What codemie recorded, as lines one can read and compare.
//!
//! ```text
//! A startup by registry [one | two] clear -> B
//! B clear from A by registry [three] exit 0
//! ```
//!
//! Letters go by the order in which sessions began. In brackets stands what the API was asked in that conversation,
//! so a session bound to a wrong conversation shows. Then how it ended, and where to.

use types::SessionRecord;
use types::StartReason;

use crate::support::fake_api::{CallLog, Kind, Spent, Status};

/// A session with the reasons of its openings.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) record: SessionRecord,
    pub(super) openings: Vec<StartReason>,
}

pub(super) fn story(sessions: &[Recorded], log: &CallLog) -> Vec<String> {
    let letter = |id: &str| {
        let place = sessions.iter().position(|session| session.record.session_id == id);
        place.map_or_else(|| format!("unknown {id}"), |at| nth_letter(at).to_string())
    };
    sessions.iter().map(|session| line(session, log, &letter)).collect()
}

fn line(session: &Recorded, log: &CallLog, letter: &dyn Fn(&str) -> String) -> String {
    let Recorded { record, openings } = session;
    let openings: Vec<&str> = openings.iter().map(|reason| reason.as_str()).collect();
    let mut words = vec![letter(&record.session_id), openings.join("+")];
    if let Some(from) = &record.transitioned_from {
        words.push(format!("from {}", letter(from)));
    }
    words.push(match record.correlation.evidence {
        Some(evidence) => format!("by {evidence}"),
        None => record.correlation.status.to_string(),
    });
    let id = record.correlation.agent_session_id.as_ref();
    words.push(format!("[{}]", id.map_or_else(String::new, |id| prompts(log, &id.0).join(" | "))));
    words.push(match (record.end_reason, record.exit_code) {
        (None, _) => "active".to_owned(),
        (Some(reason), Some(code)) => format!("{reason} {code}"),
        (Some(reason), None) => reason.to_string(),
    });
    if let Some(to) = &record.transitioned_to {
        words.push(format!("-> {}", letter(to)));
    }
    words.join(" ")
}

fn nth_letter(n: usize) -> char {
    char::from(b'A' + u8::try_from(n).unwrap())
}

/// What the user asked in a conversation and got answered, in order.
fn prompts(log: &CallLog, conversation: &str) -> Vec<String> {
    let mut asked = Vec::new();
    // An answer that only looks for a tool is none: the question is put again.
    let mut searched = None;
    let answered = log
        .of_session(conversation)
        .filter(|call| call.kind == Kind::Main && call.status == Status::Complete && call.turn == 0);
    for call in answered {
        if searched.replace(&call.prompt).as_ref().is_none_or(|before| **before != call.prompt) {
            asked.push(call.prompt.trim_end().to_owned());
        }
        searched = searched.filter(|_| call.text.is_none());
    }
    asked
}

/// The record's tokens in the form of the API's log.
pub(super) fn spent(record: &SessionRecord) -> Spent {
    let usage = &record.usage;
    let [calls, input, cache_read, cache_write, output, reasoning] = [
        usage.api_calls,
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
    ]
    .map(|number| u64::try_from(number).unwrap());
    Spent { calls, input, cache_read, cache_write, output, reasoning }
}
