//! Budgets as they stand: for `budget show`, closing lines, lists, status lines and pages.

use std::collections::HashMap;

use jiff::tz::TimeZone;
use serde::Serialize;

use agents::registry;
use runtime::budget::{Budget, BudgetScope, BudgetStatus, Kind, Level, Per, Subject, status, statuses};
use store::{self, SessionQuery, SessionRow, Show, View};
use types::Timestamp;

/// Every budget: those of the calendar once, those of sessions for each that runs.
pub fn all(
    view: &View<'_>,
    budgets: &[Budget],
    now: Timestamp,
    zone: &TimeZone,
) -> Result<Vec<BudgetStatus>, store::Error> {
    let mut all = statuses(view, budgets, None, now, zone)?;
    let of_sessions: Vec<_> =
        budgets.iter().filter(|budget| budget.which.per == Per::Session).cloned().collect();
    if of_sessions.is_empty() {
        return Ok(all);
    }
    for row in view.list(&SessionQuery::showing(Show::Active))? {
        if let Some(subject) = Subject::of(view, &row)? {
            all.extend(statuses(view, &of_sessions, Some(&subject), now, zone)?);
        }
    }
    Ok(all)
}

/// The budgets that a session counts towards, the most used first.
pub fn of_session(
    view: &View<'_>,
    budgets: &[Budget],
    row: &SessionRow,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<Vec<BudgetStatus>, store::Error> {
    let Some(subject) = Subject::of(view, row)? else { return Ok(Vec::new()) };
    let mut all = statuses(view, budgets, Some(&subject), now, zone)?;
    all.sort_by_key(|status| std::cmp::Reverse(status.percent()));
    Ok(all)
}

/// The names of running sessions whose calls an enforced budget cannot refuse, because they do not go through the proxy.
pub fn not_enforced(view: &View<'_>, budgets: &[Budget]) -> Result<Vec<String>, store::Error> {
    let mut names = Vec::new();
    if !budgets.iter().any(|budget| budget.enforce) {
        return Ok(names);
    }
    for run in view.live_runs()?.iter().filter(|run| !run.proxied) {
        let Some(row) = run.session.map(|n| view.session_number(n)).transpose()?.flatten() else { continue };
        // Other programs make no calls that anybody counts.
        let Some(subject) = Subject::of(view, &row)?.filter(|_| registry::by_name(&row.agent).is_some())
        else {
            continue;
        };
        if budgets.iter().any(|budget| budget.enforce && subject.counts(budget.which.only.as_ref())) {
            names.push(row.name);
        }
    }
    Ok(names)
}

/// Sessions that an enforced budget cannot stop.
pub fn not_enforced_words(sessions: &[String]) -> String {
    let (run, first) = (if sessions.len() == 1 { "runs" } else { "run" }, sessions.first());
    let first = first.map_or("", String::as_str);
    format!(
        "not enforced: {} {run} without the proxy; `codemie explain {}` shows why",
        sessions.join(", "),
        format::shell::word(first)
    )
}

/// What a list shows of budgets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// By a session's number, the percentage of the most used budget that it counts towards; from 80 % on.
    pub by_session: HashMap<i64, i64>,
    /// The budgets of the calendar that are used by 80 % or more.
    pub used: Vec<BudgetStatus>,
}

impl Marks {
    /// `running`: the numbers of the sessions that run.
    pub fn of(
        view: &View<'_>,
        budgets: &[Budget],
        running: &[i64],
        now: Timestamp,
        zone: &TimeZone,
    ) -> Result<Self, store::Error> {
        if budgets.is_empty() {
            return Ok(Self::default());
        }
        let mut used = statuses(view, budgets, None, now, zone)?;
        used.retain(|status| status.level() != Level::Within);
        let of_sessions = || budgets.iter().filter(|budget| budget.which.per == Per::Session);
        let mut by_session = HashMap::new();
        for n in running {
            let Some(row) = view.session_number(*n)? else { continue };
            let Some(subject) = Subject::of(view, &row)? else { continue };
            let shared = used.iter().filter(|used| subject.counts(used.budget.which.only.as_ref()));
            let mut percent = shared.map(BudgetStatus::percent).max();
            for budget in of_sessions() {
                let own = status(view, budget, Some(&subject), now, zone)?;
                percent =
                    percent.max(own.filter(|own| own.level() != Level::Within).map(|own| own.percent()));
            }
            by_session.extend(percent.map(|percent| (*n, percent)));
        }
        Ok(Self { by_session, used })
    }
}

/// A budget as programs read it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetRecord {
    /// In words: `month of project widgets`.
    pub budget: String,
    pub per: Per,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    pub enforce: bool,
    /// With what was added to it.
    pub limit_usd: f64,
    pub raised_usd: f64,
    pub spent_usd: f64,
    pub left_usd: f64,
    pub percent: i64,
    pub level: Level,
    /// `None`: it is for a session.
    pub begin: Option<Timestamp>,
    pub end: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_name: Option<String>,
    pub api_calls: i64,
    /// Calls without a price: they are not in what was spent.
    pub unpriced_calls: i64,
}

impl From<&BudgetStatus> for BudgetRecord {
    fn from(status: &BudgetStatus) -> Self {
        let which = &status.budget.which;
        let only = |wanted: Kind| match &which.only {
            Some(BudgetScope { kind, name }) if *kind == wanted => Some(name.clone()),
            _ => None,
        };
        let window = status.window.as_ref();
        Self {
            budget: which.to_string(),
            per: which.per,
            agent: only(Kind::Agent),
            project: only(Kind::Project),
            branch: only(Kind::Branch),
            tag: only(Kind::Tag),
            enforce: status.budget.enforce,
            limit_usd: status.limit().dollars(),
            raised_usd: status.raised.dollars(),
            spent_usd: status.spent.cost.dollars(),
            left_usd: status.left().dollars(),
            percent: status.percent(),
            level: status.level(),
            begin: window.map(|window| window.begin),
            end: window.map(|window| window.end),
            session_id: status.session.as_ref().map(|session| session.id.to_string()),
            session_name: status.session.as_ref().map(|session| session.name.clone()),
            api_calls: status.spent.calls,
            unpriced_calls: status.spent.unpriced,
        }
    }
}
