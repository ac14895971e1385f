//! The ids of the domain, each a type of its own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

uuid_id!(
    /// A codemie session, assigned by codemie, never the agent's own id.
    SessionId
);
uuid_id!(
    /// One run of the wrapper: one agent process from spawn to exit, over any number of sessions.
    RunId
);

/// The agent's own id of a conversation, spelled as the agent spells it. All three use UUIDs today, none promises to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentSessionId(pub String);

impl AgentSessionId {
    /// Whether it is safe on a command line and in the name of a file: neither an option nor a path. Ids from files that are not
    /// the agent's own, and ids that go on a command line, must be plain; one that the agent itself reports is accepted as it is.
    pub fn is_plain(&self) -> bool {
        self.0.len() <= 256
            && self.0.starts_with(|first: char| first.is_ascii_alphanumeric())
            && self.0.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
    }

    /// `None` for a text that is not plain.
    pub fn plain(text: String) -> Option<Self> {
        Some(Self(text)).filter(Self::is_plain)
    }
}

impl fmt::Display for AgentSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where ids come from; tests hand in a counter.
pub trait Ids: Send + Sync {
    fn uuid(&self) -> Uuid;

    fn session(&self) -> SessionId {
        SessionId(self.uuid())
    }

    fn run(&self) -> RunId {
        RunId(self.uuid())
    }
}

/// Random version 4 ids: four characters of one usually suffice to name it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn uuid(&self) -> Uuid {
        Uuid::new_v4()
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn an_id_is_no_option_and_no_path() {
        for (id, plain) in [
            ("7a276c6b-7bd6-4aa4-8e1e-2b1e2f1d3c4b", true),
            ("session_1.2", true),
            ("", false),
            ("-c", false),
            ("--dangerously-skip-permissions", false),
            ("..", false),
            ("a/b", false),
            ("a b", false),
            ("a\nb", false),
            ("ü", false),
            (&"a".repeat(257), false),
        ] {
            assert_eq!(AgentSessionId::plain(id.into()).is_some(), plain, "{id:?}");
        }
    }
}
