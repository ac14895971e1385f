//! Which conversation the agent's arguments continue, and what that means for the session's life.

use agents::{Conversation, Invocation};
use store::session::lifecycle::ConversationStart;
use types::AgentSessionId;

/// `assigned`: codemie put the conversation's id into the arguments.
pub(super) fn conversation(invocation: &Invocation, assigned: bool) -> ConversationStart {
    match &invocation.session {
        // Beside a flag that codemie does not know, even a fresh conversation is not certain.
        Conversation::Fresh if !assigned && !invocation.injectable => ConversationStart::Unsure,
        Conversation::Fresh | Conversation::Chosen(_) => ConversationStart::Fresh,
        Conversation::Named(id) => ConversationStart::Named(id.clone()),
        Conversation::Continue | Conversation::Picker => ConversationStart::Unnamed,
        Conversation::Fork { .. } | Conversation::Unknown => ConversationStart::Unsure,
    }
}

/// The id that the user chose for a conversation that is new, or a new copy.
pub(super) fn chosen(invocation: &Invocation) -> Option<AgentSessionId> {
    match &invocation.session {
        Conversation::Chosen(id) | Conversation::Fork { to: Some(id), .. } => Some(id.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::InvocationKind;

    fn invocation(session: Conversation, injectable: bool) -> Invocation {
        Invocation {
            kind: InvocationKind::Interactive,
            session,
            injectable,
            persistent: true,
            prompts: false,
        }
    }

    fn id() -> AgentSessionId {
        AgentSessionId("22222222-2222-4222-8222-222222222222".into())
    }

    #[test]
    fn an_id_the_user_chose_counts_like_one_of_ours() {
        for (session, expected) in [
            (Conversation::Chosen(id()), Some(id())),
            (Conversation::Fork { from: None, to: Some(id()) }, Some(id())),
            (Conversation::Fork { from: Some(id()), to: None }, None),
            (Conversation::Named(id()), None),
            (Conversation::Fresh, None),
        ] {
            let invocation = invocation(session, false);
            assert_eq!(chosen(&invocation), expected, "{invocation:?}");
        }
    }

    #[test]
    fn a_conversation_is_fresh_only_where_the_arguments_leave_no_doubt() {
        for (session, injectable, assigned, expected) in [
            (Conversation::Fresh, true, true, ConversationStart::Fresh),
            (Conversation::Fresh, true, false, ConversationStart::Fresh),
            (Conversation::Fresh, false, false, ConversationStart::Unsure),
            (Conversation::Chosen(id()), false, false, ConversationStart::Fresh),
            (Conversation::Named(id()), false, false, ConversationStart::Named(id())),
            (Conversation::Continue, false, false, ConversationStart::Unnamed),
            (Conversation::Picker, false, false, ConversationStart::Unnamed),
            (Conversation::Fork { from: None, to: None }, false, false, ConversationStart::Unsure),
            (Conversation::Unknown, false, false, ConversationStart::Unsure),
        ] {
            let invocation = invocation(session, injectable);
            assert_eq!(conversation(&invocation, assigned), expected, "{invocation:?} {assigned}");
        }
    }
}
