//! What is known of a run before it begins.

use std::path::PathBuf;

use super::notify::Notifier;
use super::version;
use agents::Observer;
use delivery::Sinks;
use os::home::Home;
use store::EnvSnapshot;
use store::session::lifecycle::ConversationStart;
use store::session::lineage::Lineage;
use store::session::names;
use types::Evidence;
use types::{AgentSessionId, RunId, SessionId, Timestamp};

#[expect(missing_debug_implementations, reason = "an observer has nothing to show")]
pub struct Plan {
    pub home: Home,
    pub begun_at: Timestamp,
    /// Both are handed to the agent in its environment, so they are chosen before the store is open.
    pub run: RunId,
    pub session: SessionId,
    pub agent: String,
    /// Nothing of it is ever sent: the demonstration.
    pub local_only: bool,
    /// Its calls go through the proxy, as far as they go to its API at all.
    pub proxied: bool,
    /// How to follow it; `None` for a program that is no agent: a session with its lifecycle and no meter.
    pub observer: Option<Box<dyn Observer>>,
    pub version: Option<String>,
    /// For noting the version, once the agent has reported it.
    pub binary: Option<version::BinaryIdentity>,
    pub conversation: ConversationStart,
    /// A first prompt stands in its arguments.
    pub prompted: bool,
    /// The id of the agent's session that stands in its arguments: codemie chose it, or the user.
    pub assigned: Option<AgentSessionId>,
    pub folder: PathBuf,
    /// The environment as it was when `observer` was made, for the recovery of this run.
    pub surroundings: EnvSnapshot,
    pub name: Option<String>,
    pub tags: Vec<String>,
    pub group: Option<String>,
    /// Which run this one was started inside of, once the store is asked.
    pub lineage: Lineage,
    /// What was added to the agent's arguments and environment or taken away, for `explain`.
    pub notes: Vec<Evidence>,
    /// A summary of the session is wanted in the end.
    pub summary: bool,
    /// `CODEMIE_LOG` or the configured level.
    pub log_level: Option<String>,
    /// Where events are sent; `None`: nowhere.
    pub sinks: Option<Sinks>,
    /// Where they are to be sent by now: asked when the store has come to know of other receivers.
    pub sinks_now: fn(&Home) -> Option<Sinks>,
    /// Called by the tracker's thread after every look that may have found something: for the host of a background session.
    pub on_news: Option<Box<dyn Fn(RunNews) + Send>>,
    /// Tells the user what happens in a session without a host. A host does so itself: it sees more.
    pub notifier: Notifier,
}

/// Where a run is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunNews {
    pub session: SessionId,
    /// The session's name when the run came to it.
    pub name: String,
    pub conversation: Option<AgentSessionId>,
    /// The conversation's file, once there is one.
    pub file: Option<PathBuf>,
    /// The START is in the store.
    pub recorded: bool,
    /// Why it never will be.
    pub refused: Option<String>,
}

impl Plan {
    /// Drops labels that are not allowed and returns why. The command line refuses them; should one come here all the same, it
    /// does not cost the session.
    pub(super) fn drop_bad_labels(&mut self) -> Vec<names::NameError> {
        let mut bad = Vec::new();
        let mut good =
            |checked: Result<&str, names::NameError>| checked.map_err(|error| bad.push(error)).is_ok();
        self.name.take_if(|name| !good(names::check(name)));
        self.tags.retain(|tag| good(names::check_tag(tag)));
        self.group.take_if(|group| !good(names::check_group(group)));
        bad
    }

    /// Takes the id that the arguments name: one that was chosen for a new conversation, or that of an existing one, which is
    /// as certain.
    pub(super) fn take_assigned(&mut self) -> Option<AgentSessionId> {
        self.assigned.take().or_else(|| match &self.conversation {
            ConversationStart::Named(id) => Some(id.clone()),
            _ => None,
        })
    }
}
