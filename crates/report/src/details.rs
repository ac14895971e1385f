//! One session in full, with what came before and after it, what it cost and what was sent of it.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::json;

use super::bill::Bill;
use super::list::RunawayRecord;
use super::question::Question;
use agents::UnwrappedConversation;
use config::RunawayLimits;
use store::session::quota_use::{QuotaUse, quota_uses};
use store::session::record::record;
use store::session::runaway::{Runaway, runaway_of};
use store::{self, SessionRow, View};
use types::LIMIT_EVIDENCE;
use types::{CallSums, EndReason, SessionId, SessionRecord, Timestamp};

/// The host notes a limit beside the end of its session: the grace, and what a slow store takes.
const LIMIT_ENDS: Duration = Duration::from_mins(5);

/// Everything that is known about one session. As JSON, `show --json`: its record, and what is known on this machine alone.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionDetails {
    #[serde(flatten)]
    pub record: SessionRecord,
    #[serde(skip)]
    pub openings: u32,
    #[serde(skip)]
    pub archived: bool,
    #[serde(skip)]
    pub imported_from: Option<String>,
    /// Along `/clear` and switch, oldest first.
    #[serde(skip)]
    pub chain: Chain,
    #[serde(skip)]
    pub parent: Option<String>,
    #[serde(skip)]
    pub children: Vec<String>,
    /// Of a session that has started others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeUsage>,
    /// The limit that ended it.
    #[serde(skip)]
    pub limit: Option<String>,
    /// Whether anything is to be sent anywhere.
    #[serde(skip)]
    pub sends: bool,
    /// Of a session that the proxy saw calls of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bill: Option<Bill>,
    /// What it used of its agent's limits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<QuotaUse>,
    /// Calls that the proxy of its run saw, of conversations that are no sessions.
    #[serde(skip_serializing_if = "is_zero")]
    pub waiting_calls: i64,
    /// Its calls whose usage the proxy could not read in full.
    #[serde(skip_serializing_if = "is_zero")]
    pub unread_calls: u64,
    /// Of one that runs, the sign that it has run away.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_record")]
    pub runaway: Option<Runaway>,
    /// Of one that waits for its user; known when its host was asked.
    #[serde(flatten)]
    pub question: Option<Question>,
}

/// What a session used together with all that it has started, at any depth.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeUsage {
    pub sessions: usize,
    #[serde(flatten)]
    pub sums: CallSums,
    pub unpriced_models: Vec<String>,
}

impl TreeUsage {
    /// `None` for a session that has started none.
    fn of(view: &View<'_>, row: &SessionRow) -> Result<Option<Self>, store::Error> {
        let below = view.descendants(row.n)?;
        if below.is_empty() {
            return Ok(None);
        }
        let mut tree = Self { sessions: below.len() + 1, ..Self::default() };
        for n in below.iter().map(|row| row.n).chain([row.n]) {
            tree.sums.add(&view.totals(n)?.calls);
            tree.unpriced_models.extend(view.unpriced_models(n)?);
        }
        tree.unpriced_models.sort_unstable();
        tree.unpriced_models.dedup();
        Ok(Some(tree))
    }
}

/// Which limit has ended a session, as its host noted it.
fn limit_reached(view: &View<'_>, row: &SessionRow) -> Result<Option<String>, store::Error> {
    if row.end_reason != Some(EndReason::Stopped) {
        return Ok(None);
    }
    let noted = view.evidence(row.n)?.into_iter().rfind(|evidence| evidence.source == LIMIT_EVIDENCE);
    Ok(noted
        .filter(|evidence| row.ended_at.is_some_and(|end| end.since(evidence.at) < LIMIT_ENDS))
        .map(|evidence| evidence.detail))
}

fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}

#[expect(clippy::ref_option, reason = "serde hands over the field as it is")]
fn as_record<S: Serializer>(runaway: &Option<Runaway>, serializer: S) -> Result<S::Ok, S::Error> {
    runaway.as_ref().map(RunawayRecord::from).serialize(serializer)
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
            tree: TreeUsage::of(view, row)?,
            limit: limit_reached(view, row)?,
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
pub fn foreign_record(foreign: &UnwrappedConversation, title: Option<&str>) -> serde_json::Value {
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use store::FileId;
    use store::session::absorb::{Batch, absorb};
    use store::session::lifecycle::{self, ConversationStart};
    use store::session::testing::{World, binding, usage};
    use types::{PicoDollars, RunId};

    #[test]
    fn a_session_has_the_sum_of_all_that_it_started_at_any_depth() {
        let mut world = World::new();
        let mut start = |name: &str, parent: Option<RunId>| {
            let mut begin = world.begin(ConversationStart::Fresh);
            begin.parent = parent;
            let (run, session) = (begin.run.id, world.start_as(&begin).1.session);
            let at = world.now;
            world.store.write(|tx| lifecycle::bind(tx, at, &world.ids, session, &binding(name))).unwrap();
            let inode = u64::try_from(name.len()).unwrap();
            let records = [usage(name, at, inode)];
            let batch = Batch {
                file: FileId { device: 1, inode },
                path: Path::new(name),
                from: 0,
                restart: false,
                to: 1,
                state: &[],
                unreadable: 0,
                records: &records,
            };
            world.store.write(|tx| absorb(tx, at, session, &batch)).unwrap();
            (run, session)
        };
        let (top_run, top) = start("top", None);
        let (child_run, child) = start("child", Some(top_run));
        let (_, grandchild) = start("grandchild", Some(child_run));
        start("stranger", None);
        world
            .store
            .read(|view| {
                let row = |id| Ok::<_, store::Error>(view.session(id)?.unwrap());
                let tree = |id| TreeUsage::of(view, &row(id)?);
                let sessions =
                    |tree: &Option<TreeUsage>| tree.as_ref().map(|tree| (tree.sessions, tree.sums.api_calls));
                let (of_top, of_child) = (tree(top)?, tree(child)?);
                assert_eq!((sessions(&of_top), sessions(&of_child)), (Some((3, 3)), Some((2, 2))));
                assert_eq!(tree(grandchild)?, None);
                let mut cost = PicoDollars(0);
                for id in [top, child, grandchild] {
                    cost.0 += view.totals(row(id)?.n)?.calls.cost.0;
                }
                let whole = of_top.unwrap();
                assert!(cost.0 > 0 && whole.sums.cost == cost, "{whole:?}");
                Ok::<_, store::Error>(())
            })
            .unwrap();
    }
}
