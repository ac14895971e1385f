//! One form for each fact that leaves a crate: ids, moments, money, tokens, the words for states and reasons, the record of a
//! session, and an event with its attributes.
//!
//! Senders build these types, receivers parse them, and no other code spells the name of a field. No I/O, no policy.

mod coverage;
mod enums;
pub mod event;
mod evidence;
mod filter;
pub mod hex;
mod id;
mod live;
pub mod money;
mod process;
mod record;
pub mod redact;
pub mod row;
mod span;
#[cfg(feature = "sqlite")]
mod sqlite;
mod sums;
mod time;
mod tokens;
mod utilization;

/// For the macro that spells enums in columns.
#[cfg(feature = "sqlite")]
#[doc(hidden)]
pub use rusqlite;

/// The agent of the demonstration: local only, left out of `usage`, sent to the embedded backend alone.
pub const DEMO: &str = "demo";
/// The tag of conversations that never ran through codemie, where they are reported at all.
pub const FOREIGN_TAG: &str = "foreign";

/// The tag of sessions that a proxy opened which stands alone.
pub const PROXY_TAG: &str = "proxy";

/// What people read in place of the sessions of calls that name no conversation.
pub const UNATTRIBUTED: &str = "unattributed";

/// The name of the session that a proxy which stands alone opens for an API's calls that name no conversation.
pub fn name_of_unattributed(agent: &str) -> String {
    format!("{PROXY_TAG}-{agent}")
}

/// Whether a session is one of those; a further one of the same name has a number behind it.
pub fn is_unattributed(agent: &str, name: &str, tags: &[String]) -> bool {
    name.starts_with(&name_of_unattributed(agent)) && tags.iter().any(|tag| tag == PROXY_TAG)
}

pub use coverage::{Coverage, Reading};
pub use enums::{
    Billing, CallKind, EndReason, EventKind, EventType, EvidenceKind, Link, StartReason, Status, ToolKind,
    TransitionKind,
};
pub use event::{Attributes, Event};
pub use evidence::{Evidence, EvidenceVerdict, LIMIT_EVIDENCE};
pub use filter::Filter;
pub use id::{AgentSessionId, Ids, RandomIds, RunId, SessionId};
pub use live::{Activity, Delivery, LiveState, Moment, StateSource};
pub use money::PicoDollars;
pub use process::{Pid, ProcessId, StartTime};
pub use record::{Correlation, SessionRecord, Sync, UsageSummary};
pub use span::Span;
pub use sums::{CallSums, Sums};
pub use time::Timestamp;
pub use tokens::{MAX_COUNT, Tokens};
pub use utilization::Utilization;
