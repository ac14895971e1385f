//! Which evidence bound a session to which conversation of the agent's, and what was rejected.

use std::collections::BTreeSet;

use serde::Serialize;

use store::session::record::record;
use store::{self, SessionRow, View};
use types::Evidence;
use types::{AgentSessionId, Correlation, RunId, SessionId, StartReason, Timestamp};

/// The sources of what codemie itself did to the agent, as opposed to what it saw.
const ADDITIONS: [&str; 2] = ["arguments", "environment"];

/// Why a session is bound to a conversation, or is not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub session_id: String,
    pub name: String,
    pub agent: String,
    pub correlation: Correlation,
    /// The session it came from within a process, and how.
    pub follows: Option<Predecessor>,
    /// The runs that were in it, in order; more than one where it was resumed.
    pub runs: Vec<RunSeen>,
    /// What was added to the agent's arguments and environment or taken away when its process was started, which may
    /// have been in an earlier session of the run.
    pub additions: Vec<RunEvidence>,
    /// The evidence in order; where it follows another session, beginning with what led from there to here.
    pub evidence: Vec<RunEvidence>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Predecessor {
    pub session_id: String,
    pub name: String,
    pub end_reason: StartReason,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSeen {
    #[serde(skip)]
    pub n: Option<i64>,
    pub run_id: Option<RunId>,
    pub start_time: Option<Timestamp>,
}

/// A piece of evidence, and in which run it was seen.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEvidence {
    #[serde(skip)]
    pub run: Option<i64>,
    pub run_id: Option<RunId>,
    #[serde(flatten)]
    pub evidence: Evidence,
}

impl Explanation {
    pub fn of(view: &View<'_>, row: &SessionRow, now: Timestamp) -> Result<Self, store::Error> {
        let record = record(view, row, now)?;
        let is_addition = |evidence: &Evidence| ADDITIONS.contains(&evidence.source.as_str());
        let (own_additions, own): (Vec<_>, Vec<_>) =
            view.evidence_by_run(row.n)?.into_iter().partition(|(_, seen)| is_addition(seen));
        let mut evidence = led_here(view, row)?;
        evidence.extend(own);

        let mut numbers: BTreeSet<Option<i64>> =
            evidence.iter().chain(&own_additions).map(|(run, _)| *run).collect();
        numbers.extend(row.run.map(Some));
        let (mut runs, mut additions) = (Vec::new(), Vec::new());
        for n in numbers {
            let of_run: Vec<Evidence> = match n {
                Some(n) => view.evidence_of_run(n)?,
                None => first_of_chain(view, row)?,
            };
            additions.extend(of_run.into_iter().filter(is_addition).map(|seen| (n, seen)));
            let run = n.map(|n| view.run_number(n)).transpose()?.flatten();
            runs.push(RunSeen {
                n,
                run_id: run.as_ref().map(|run| run.id),
                start_time: run.as_ref().map(|run| run.started_at),
            });
        }
        // A stable sort: within a run the order is that in which things were seen.
        evidence.sort_by_key(|(run, _)| *run);
        let seen = |(run, evidence): (Option<i64>, Evidence)| RunEvidence {
            run,
            run_id: runs.iter().find(|known| known.n == run).and_then(|known| known.run_id),
            evidence,
        };
        let (additions, evidence) =
            (additions.into_iter().map(seen).collect(), evidence.into_iter().map(seen).collect());
        Ok(Self {
            session_id: record.session_id,
            name: record.name,
            agent: record.agent,
            correlation: record.correlation,
            follows: follows(view, row)?,
            runs,
            additions,
            evidence,
        })
    }
}

/// Whether a piece of evidence names a conversation.
fn names(seen: &Evidence, conversation: &AgentSessionId) -> bool {
    seen.agent_session_id.as_ref() == Some(conversation) || seen.detail.contains(&conversation.0)
}

/// The session it came from, whatever runs have been in it since.
fn follows(view: &View<'_>, row: &SessionRow) -> Result<Option<Predecessor>, store::Error> {
    let Some((from, end_reason)) = view.came_from(row.n)? else { return Ok(None) };
    Ok(view.session(from)?.map(|before| Predecessor {
        session_id: before.shown_id(),
        name: before.name,
        end_reason,
    }))
}

/// Evidence from the sessions before it that names its conversation.
fn led_here(view: &View<'_>, row: &SessionRow) -> Result<Vec<(Option<i64>, Evidence)>, store::Error> {
    let Some(here) = &row.agent_session else { return Ok(Vec::new()) };
    let from: BTreeSet<SessionId> =
        view.openings(row.n)?.iter().filter_map(|opening| opening.transitioned_from).collect();
    let mut led = Vec::new();
    for id in from {
        if let Some(before) = view.session(id)?.filter(|before| before.n != row.n) {
            led.extend(view.evidence_by_run(before.n)?.into_iter().filter(|(_, seen)| names(seen, here)));
        }
    }
    Ok(led)
}

/// Older versions noted the changes to a process with its first session and named no run.
fn first_of_chain(view: &View<'_>, row: &SessionRow) -> Result<Vec<Evidence>, store::Error> {
    let (mut first, mut seen) = (row.clone(), vec![row.n]);
    while let Some((from, _)) = view.came_from(first.n)?
        && let Some(before) = view.session(from)?.filter(|before| !seen.contains(&before.n))
    {
        seen.push(before.n);
        first = before;
    }
    let noted = view.evidence_by_run(first.n)?;
    Ok(noted.into_iter().filter(|(run, _)| run.is_none()).map(|(_, seen)| seen).collect())
}
