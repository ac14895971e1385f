//! One row of `usage`.

use std::collections::BTreeMap;

use serde::Serialize;

use types::{CallSums, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageRow {
    /// `None`: what belongs to none.
    pub key: Option<String>,
    /// `None` where several agents share the key.
    pub agent: Option<String>,
    pub sums: CallSums,
    /// Models without a price: their calls are in the tokens, not in the cost.
    pub unpriced_models: Vec<String>,
    /// Of those that have a price, and none for one of their modes: how many calls have none.
    pub unpriced_calls: BTreeMap<String, i64>,
    /// The first call counted.
    pub first_at: Timestamp,
    /// None of it was run through codemie: a scan found it.
    pub foreign: bool,
    /// Where rows are sessions.
    pub label: Option<SessionLabel>,
    /// Where rows are commits.
    pub commit: Option<CommitLabel>,
    /// The rows below it, if they were asked for.
    pub breakdown: Vec<UsageRow>,
}

/// The session that a row is about. Of a conversation that never was one, the project alone is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionLabel {
    pub id: Option<String>,
    pub name: String,
    pub project: Option<String>,
    pub started: Option<Timestamp>,
}

/// The commit that a row is about. Of what no repository on this machine has, the project alone is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitLabel {
    pub subject: Option<String>,
    pub at: Option<Timestamp>,
    /// `None` also where it is one of several.
    pub project: Option<String>,
}

/// The numbers, as programs get them.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Numbers<'a> {
    #[serde(flatten)]
    sums: CallSums,
    unpriced_models: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    unpriced_calls: &'a BTreeMap<String, i64>,
}

impl<'a> From<&'a UsageRow> for Numbers<'a> {
    fn from(row: &'a UsageRow) -> Self {
        Self { sums: row.sums, unpriced_models: &row.unpriced_models, unpriced_calls: &row.unpriced_calls }
    }
}

/// What is known of a session besides its numbers. A start that no session recorded is the first call's.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Label<'a> {
    session_id: Option<&'a str>,
    name: Option<&'a str>,
    project: Option<&'a str>,
    start_time: Timestamp,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CommitShape<'a> {
    subject: Option<&'a str>,
    commit_time: Option<Timestamp>,
    project: Option<&'a str>,
}

impl Serialize for UsageRow {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape<'a> {
            key: Option<&'a str>,
            agent: Option<&'a str>,
            #[serde(flatten)]
            label: Option<Label<'a>>,
            #[serde(flatten)]
            commit: Option<CommitShape<'a>>,
            #[serde(flatten)]
            numbers: Numbers<'a>,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            foreign: bool,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            breakdown: &'a [UsageRow],
        }
        Shape {
            key: self.key.as_deref(),
            agent: self.agent.as_deref(),
            label: self.label.as_ref().map(|label| Label {
                session_id: label.id.as_deref(),
                name: Some(label.name.as_str()).filter(|name| !name.is_empty()),
                project: label.project.as_deref(),
                start_time: label.started.unwrap_or(self.first_at),
            }),
            commit: self.commit.as_ref().map(|commit| CommitShape {
                subject: commit.subject.as_deref(),
                commit_time: commit.at,
                project: commit.project.as_deref(),
            }),
            numbers: self.into(),
            foreign: self.foreign,
            breakdown: &self.breakdown,
        }
        .serialize(serializer)
    }
}
