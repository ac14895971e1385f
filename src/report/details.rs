//! One session in full, with what came before and after it, what it cost and what was sent of it.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::json;

use super::bill::Bill;
use super::list::RunawayRecord;
use super::question::Question;
use super::quota::{QuotaUse, quota_uses};
use crate::config::RunawayLimits;
use crate::session::lookup::Foreign;
use crate::session::record::record;
use crate::session::runaway::{Runaway, runaway_of};
use crate::store::{self, SessionRow, View};
use wire::{SessionId, SessionRecord, Timestamp};

/// Everything that is known about one session.
#[derive(Clone, Debug)]
pub struct SessionDetails {
    pub record: SessionRecord,
    pub openings: u32,
    pub archived: bool,
    pub imported_from: Option<String>,
    /// Along `/clear` and switch, oldest first.
    pub chain: Chain,
    pub parent: Option<String>,
    pub children: Vec<String>,
    /// Whether anything is to be sent anywhere.
    pub sends: bool,
    /// Of a session that the proxy saw calls of.
    pub bill: Option<Bill>,
    /// What it used of its agent's limits.
    pub quotas: Vec<QuotaUse>,
    /// Calls that the proxy of its run saw, of conversations that are no sessions.
    pub waiting_calls: i64,
    /// Its calls whose usage the proxy could not read in full.
    pub unread_calls: u64,
    /// Of one that runs, the sign that it has run away.
    pub runaway: Option<Runaway>,
    /// Of one that waits for its user; known when its host was asked.
    pub question: Option<Question>,
}

/// A session as `show --json` has it: its record, and what is known on this machine alone.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownRecord<'a> {
    #[serde(flatten)]
    record: &'a SessionRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    bill: Option<&'a Bill>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    quotas: &'a [QuotaUse],
    #[serde(skip_serializing_if = "is_none")]
    waiting_calls: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    unread_calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runaway: Option<RunawayRecord>,
    #[serde(flatten)]
    question: Option<&'a Question>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_none(count: &i64) -> bool {
    *count == 0
}

/// The sessions before and after one, along `/clear` and switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    pub before: VecDeque<String>,
    pub after: Vec<String>,
}

impl SessionDetails {
    pub fn of(
        view: &View<'_>,
        row: &SessionRow,
        limits: RunawayLimits,
        now: Timestamp,
    ) -> Result<Self, store::Error> {
        let parent = row.parent.map(|parent| view.session_number(parent)).transpose()?.flatten();
        let record = record(view, row, now)?;
        let waiting_calls = record.run_id.map_or(Ok(0), |run| view.waiting_count_of_run(run))?;
        Ok(Self {
            record,
            openings: row.opening,
            archived: row.archived,
            imported_from: row.imported_from.clone(),
            chain: Chain::around(view, row)?,
            parent: parent.map(|parent| parent.name),
            children: view.children(row.n)?.into_iter().map(|child| child.name).collect(),
            sends: !view.sinks()?.is_empty(),
            bill: Bill::of(view, row)?,
            quotas: quota_uses(view, row)?,
            waiting_calls,
            unread_calls: view.unread_usage_of(row.n)?,
            runaway: if row.is_active() { runaway_of(view, row.n, limits, now)? } else { None },
            question: None,
        })
    }
}

impl SessionDetails {
    /// For programs: the record, with what only this machine knows.
    pub fn shown(&self) -> impl Serialize + '_ {
        let Self { record, bill, quotas, waiting_calls, question, .. } = self;
        let question = question.as_ref();
        let runaway = self.runaway.as_ref().map(Into::into);
        let unread_calls = Some(self.unread_calls).filter(|calls| *calls > 0);
        ShownRecord {
            record,
            bill: bill.as_ref(),
            quotas,
            waiting_calls: *waiting_calls,
            unread_calls,
            runaway,
            question,
        }
    }
}

impl Chain {
    pub(super) fn around(view: &View<'_>, row: &SessionRow) -> Result<Self, store::Error> {
        // A switch can lead back to where it came from.
        let mut seen = vec![row.id];
        let mut chain = Self::default();
        let mut walk = |on: &dyn Fn(&SessionRow) -> Result<Option<SessionId>, store::Error>| {
            let mut names = Vec::new();
            let mut next = on(row)?;
            while let Some(id) = next.filter(|id| !seen.contains(id)) {
                seen.push(id);
                let row = view.session(id)?;
                names.push(row.as_ref().map_or_else(|| short_id(&id), |row| row.name.clone()));
                next = row.as_ref().map(on).transpose()?.flatten();
            }
            Ok::<_, store::Error>(names)
        };
        // The row of a resumed session no longer names its neighbours; its openings, and theirs, do.
        let before = |row: &SessionRow| Ok(view.came_from(row.n)?.map(|(from, _)| from));
        let after = |row: &SessionRow| match row.transitioned_to {
            Some(to) => Ok(Some(to)),
            None => view.went_to(row.id),
        };
        chain.before.extend(walk(&before)?.into_iter().rev());
        chain.after = walk(&after)?;
        Ok(chain)
    }
}

/// The name of a session that is no longer in the store.
fn short_id(id: &SessionId) -> String {
    id.to_string().chars().take(8).collect()
}

/// The record of a conversation that codemie never wrapped: what its agent's files say of it.
pub fn foreign_record(foreign: &Foreign, title: Option<&str>) -> serde_json::Value {
    json!({
        "foreign": true,
        "agent": foreign.agent,
        "title": title,
        "workingDirectory": foreign.cwd.as_ref().map(|folder| folder.to_string_lossy()),
        "correlation": {
            "agentSessionId": foreign.agent_session,
            "agentSessionFile": foreign.file.to_string_lossy(),
        },
    })
}
