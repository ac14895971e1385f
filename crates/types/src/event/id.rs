//! The ids of events: made of what an event describes, so that the same thing read twice is the same event.

use uuid::Uuid;

use crate::{EventType, SessionId};

/// The namespace of all event ids. Changing it would count everything twice.
pub const NAMESPACE: Uuid = Uuid::from_u128(0xf2e5_9732_da71_44bf_b6e4_7c46_ea0d_0566);

/// The id of an event that describes something the agent has a key for. The session is left out, so the same call read
/// from a copy of the conversation makes the same event.
pub fn keyed_id(agent: &str, kind: EventType, key: &str) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("{agent}\0{kind}\0{key}").as_bytes())
}

/// The id of a START, bound or END.
pub fn opening_id(session: SessionId, kind: EventType, opening: u32) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("{session}\0{kind}\0{opening}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_same_in_every_version() {
        // Written down once: a backend holds these, and another spelling would count everything again.
        assert_eq!(
            keyed_id("claude", EventType::Usage, "msg_0001").to_string(),
            "db9134c4-cda6-52de-b5f3-6444cfd3ee65"
        );
        let session = "01a1e18d-8b20-4000-8000-000000000001".parse().unwrap();
        assert_eq!(
            opening_id(session, EventType::Start, 1).to_string(),
            "820e2dcb-23d5-5fe5-8768-f938418d0541"
        );
        assert_ne!(opening_id(session, EventType::End, 1), opening_id(session, EventType::End, 2));
        assert_ne!(keyed_id("claude", EventType::Usage, "k"), keyed_id("codex", EventType::Usage, "k"));
    }
}
