//! Which sessions or calls are asked about.

use crate::{Span, Status};

/// What can be asked about a session or a call. Every condition that is set must hold.
///
/// Commands, the HTTP interface and the dashboard fill it in. What answers (the local store, the sums of `usage`, a backend's
/// databases) decides whether a name is meant whole or in part, and says so where it carries the filter out, as it does of
/// conditions that it cannot know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub agent: Option<String>,
    /// Not of this agent.
    pub without_agent: Option<String>,
    pub project: Option<String>,
    pub branch: Option<String>,
    pub user: Option<String>,
    pub machine: Option<String>,
    pub model: Option<String>,
    /// One of its tags.
    pub tag: Option<String>,
    pub group: Option<String>,
    pub status: Option<Status>,
    pub span: Span,
    /// Each is contained in what people know the session by; upper and lower case are the same.
    pub words: Vec<String>,
}
