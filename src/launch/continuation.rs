//! Which conversation the agent's arguments continue, and what that means for the session's life.

use crate::agent::{Conversation as Asked, Invocation};
use crate::session::lifecycle::Conversation;
use wire::AgentSessionId;

/// `assigned`: codemie put the conversation's id into the arguments.
pub(super) fn conversation(invocation: &Invocation, assigned: bool) -> Conversation {
    match &invocation.session {
        // Beside a flag that codemie does not know, even a fresh conversation is not certain.
        Asked::Fresh if !assigned && !invocation.injectable => Conversation::Unsure,
        Asked::Fresh | Asked::Chosen(_) => Conversation::Fresh,
        Asked::Named(id) => Conversation::Named(id.clone()),
        Asked::Continue | Asked::Picker => Conversation::Unnamed,
        Asked::Fork { .. } | Asked::Unknown => Conversation::Unsure,
    }
}

/// The id that the user chose for a conversation that is new, or a new copy.
pub(super) fn chosen(invocation: &Invocation) -> Option<AgentSessionId> {
    match &invocation.session {
        Asked::Chosen(id) | Asked::Fork { to: Some(id), .. } => Some(id.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Kind;

    fn invocation(session: Asked, injectable: bool) -> Invocation {
        Invocation { kind: Kind::Interactive, session, injectable, persistent: true }
    }

    fn id() -> AgentSessionId {
        AgentSessionId("22222222-2222-4222-8222-222222222222".into())
    }

    #[test]
    fn an_id_the_user_chose_counts_like_one_of_ours() {
        for (session, expected) in [
            (Asked::Chosen(id()), Some(id())),
            (Asked::Fork { from: None, to: Some(id()) }, Some(id())),
            (Asked::Fork { from: Some(id()), to: None }, None),
            (Asked::Named(id()), None),
            (Asked::Fresh, None),
        ] {
            let invocation = invocation(session, false);
            assert_eq!(chosen(&invocation), expected, "{invocation:?}");
        }
    }

    #[test]
    fn a_conversation_is_fresh_only_where_the_arguments_leave_no_doubt() {
        for (session, injectable, assigned, expected) in [
            (Asked::Fresh, true, true, Conversation::Fresh),
            (Asked::Fresh, true, false, Conversation::Fresh),
            (Asked::Fresh, false, false, Conversation::Unsure),
            (Asked::Chosen(id()), false, false, Conversation::Fresh),
            (Asked::Named(id()), false, false, Conversation::Named(id())),
            (Asked::Continue, false, false, Conversation::Unnamed),
            (Asked::Picker, false, false, Conversation::Unnamed),
            (Asked::Fork { from: None, to: None }, false, false, Conversation::Unsure),
            (Asked::Unknown, false, false, Conversation::Unsure),
        ] {
            let invocation = invocation(session, injectable);
            assert_eq!(conversation(&invocation, assigned), expected, "{invocation:?} {assigned}");
        }
    }
}
