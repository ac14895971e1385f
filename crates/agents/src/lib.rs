//! The agents: the only crate that knows one from another.
//!
//! An agent is a folder that implements [`Agent`] in its five parts; `registry` lists them.
//!
//! ```text
//! launch, invocation     what its arguments mean, what may be added to them, which version it is
//! files, transcript      where its conversations are; one of them as pages to read
//! observe, correlate     what a run's files show of the conversation it is in; which one that is (pure)
//! live                   what its screen and files show of what it does now
//! proxied, repeats       which API it would call; what its requests say of themselves
//! meter                  conversations in any form become records
//! kit                    what agents share
//! claude codex gemini qwen, demo    the agents; the demonstration's
//! scribe courier process_table      agents and processes that exist in tests alone
//! conformance            tests that run over every agent of the registry
//! ```
//!
//! Constraints: files are opened to read, never to write, and processes are handed in. Everything above this crate goes by the
//! traits, so a further agent changes nothing there.
//!
//! Decisions and measurements: docs/design/07-evidence.md, 08-agent-versions.md, 13-conversation-forms.md.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

pub mod claude;
pub mod codex;
#[cfg(test)]
mod conformance;
pub mod correlate;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "for tests alone")]
pub mod courier;
pub mod demo;
mod files;
pub mod gemini;
pub mod invocation;
pub mod kit;
mod launch;
pub mod live;
#[cfg(test)]
mod live_fixtures;
pub mod meter;
mod observe;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "for tests alone")]
pub mod process_table;
pub mod proxied;
pub mod qwen;
#[cfg(test)]
mod recordings;
pub mod registry;
mod repeats;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "for tests alone")]
pub mod scribe;
pub mod transcript;

use std::ffi::OsString;
use std::fmt::Debug;

pub use files::{ConversationFiles, FileOwner, SessionFile, SessionFiles, UnwrappedConversation};
pub use invocation::{Conversation, Invocation, InvocationKind};
pub use kit::dialog;
pub use launch::{Assigned, Injection, Launch, LaunchStart, Remark};
pub use live::Live;
pub use observe::{Observation, Observe, Observer};
pub use proxied::{CallIdentity, Proxied, ProxyLead, ProxyRoute, ProxyStart, VendorApi};
pub use repeats::Repeats;

/// Looks up an environment variable.
pub type Var<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// One coding agent: how it is launched, where its conversations are, and how a run of it is followed.
pub trait Agent: Launch + ConversationFiles + Observe + Live + Proxied + Debug + Sync {
    /// The name it is called by, on the command line and in records.
    fn name(&self) -> &'static str;

    /// What its vendor calls it.
    fn product(&self) -> &'static str;

    /// The file in which its user names the program that prints its status line, in words for that user; `None`: it takes none.
    fn status_line_settings(&self, _var: Var<'_>) -> Option<String> {
        None
    }

    /// Who serves its models, as OpenTelemetry's conventions spell it (`gen_ai.provider.name`).
    fn provider(&self) -> Option<&'static str> {
        None
    }
}
