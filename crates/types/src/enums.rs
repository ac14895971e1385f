//! The words for states, reasons and kinds, spelled the same in the database, in JSON and in the log.

use std::fmt;

use serde::Serialize;

/// An enum whose values are spelled the same in the database, in JSON and in the log.
#[macro_export]
macro_rules! spelled {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

spelled!(
    /// What is known of the agent's own session (`correlation.status` of the record).
    Link { Pending = "pending", Ambiguous = "ambiguous", Matched = "matched", Failed = "failed" }
);
spelled!(
    /// `status` of the record.
    Status { Active = "active", Completed = "completed", Failed = "failed", Interrupted = "interrupted" }
);
spelled!(
    /// Why a session's opening ended.
    EndReason {
        Exit = "exit",
        /// A new, empty conversation in the same process.
        Clear = "clear",
        /// To an existing or copied conversation in the same process.
        Switch = "switch",
        Signal = "signal",
        Stopped = "stopped",
        Crash = "crash",
    }
);
spelled!(
    /// Why a session was opened.
    StartReason { Startup = "startup", Resume = "resume", Clear = "clear", Switch = "switch" }
);
spelled!(
    /// How a run goes from one conversation to another inside the same process.
    TransitionKind {
        /// To a new, empty conversation.
        Clear = "clear",
        /// To an existing or copied one.
        Switch = "switch",
    }
);

impl From<TransitionKind> for EndReason {
    fn from(kind: TransitionKind) -> Self {
        match kind {
            TransitionKind::Clear => Self::Clear,
            TransitionKind::Switch => Self::Switch,
        }
    }
}

impl From<TransitionKind> for StartReason {
    fn from(kind: TransitionKind) -> Self {
        match kind {
            TransitionKind::Clear => Self::Clear,
            TransitionKind::Switch => Self::Switch,
        }
    }
}

spelled!(
    /// Which kind of evidence bound a session, strongest first.
    EvidenceKind { Assigned = "assigned", Registry = "registry", Log = "log" }
);

impl EvidenceKind {
    /// For people, to follow "known by".
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Assigned => "the id it was given",
            Self::Registry => "what its process shows",
            Self::Log => "the agent's own log",
        }
    }
}

spelled!(
    /// The types of events, in the words of the wire.
    EventType {
        Start = "session.start",
        Bound = "session.bound",
        Usage = "usage",
        Tool = "tool",
        Prompt = "prompt",
        Error = "error",
        Quota = "quota",
        End = "session.end",
    }
);

/// The type of an event as it was reported: one of ours, or one that a newer codemie has added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    Known(EventType),
    Other(String),
}

impl EventKind {
    pub fn named(name: &str) -> Self {
        EventType::parse(name).map_or_else(|| Self::Other(name.to_owned()), Self::Known)
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(kind) => kind.as_str(),
            Self::Other(name) => name,
        }
    }

    pub fn known(&self) -> Option<EventType> {
        match self {
            Self::Known(kind) => Some(*kind),
            Self::Other(_) => None,
        }
    }
}

impl From<EventType> for EventKind {
    fn from(kind: EventType) -> Self {
        Self::Known(kind)
    }
}

impl PartialEq<EventType> for EventKind {
    fn eq(&self, other: &EventType) -> bool {
        self.known() == Some(*other)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for EventKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

spelled!(
    /// What a tool does, whatever its agent calls it.
    ToolKind { Read = "read", Write = "write", Edit = "edit", Exec = "exec", Other = "other" }
);
spelled!(
    /// How a call is paid for, as the kind of its credential shows.
    Billing {
        /// By the call, with an API key.
        Api = "api",
        /// By the month.
        Plan = "plan",
        /// From an amount that was paid before.
        Credits = "credits",
    }
);
spelled!(
    /// What a call of a model's API was for.
    CallKind {
        /// The conversation itself.
        Main = "main",
        Subagent = "subagent",
        /// A title for the conversation.
        Title = "title",
        /// The conversation is summarised to go on in less room.
        Compact = "compact",
        /// Which model or tool a request is for.
        Router = "router",
        /// Whether something may be done.
        Classifier = "classifier",
        Other = "other",
    }
);
