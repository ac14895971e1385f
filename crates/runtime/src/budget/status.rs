//! How much of a budget is spent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::{Budget, BudgetKey, BudgetScope, Kind, Per};
use format::shell;
use os::project::Project;
use store::{SessionRow, Spent, SpentBy, Tx, View};
use types::{PicoDollars, SessionId, Timestamp, spelled};

spelled!(
    /// How far a budget is used.
    Level {
        Within = "within",
        /// From 80 % on.
        Near = "near",
        /// From 100 % on.
        Reached = "reached",
    }
);

/// A budget as it stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetStatus {
    pub budget: Budget,
    /// The day, week or month it is for, or the session's id.
    pub span: String,
    /// `None`: it is for a session.
    pub window: Option<Window>,
    /// `None`: it is not for a session.
    pub session: Option<KnownSession>,
    pub spent: Spent,
    /// What a person has added to the limit.
    pub raised: PicoDollars,
}

impl BudgetStatus {
    /// With what was added to it.
    pub fn limit(&self) -> PicoDollars {
        PicoDollars(self.budget.limit.0.saturating_add(self.raised.0))
    }

    /// Below zero where more was spent.
    pub fn left(&self) -> PicoDollars {
        PicoDollars(self.limit().0.saturating_sub(self.spent.cost.0))
    }

    /// Rounded down, so that 100 means that nothing is left.
    pub fn percent(&self) -> i64 {
        let share = i128::from(self.spent.cost.0) * 100 / i128::from(self.limit().0.max(1));
        i64::try_from(share).unwrap_or(i64::MAX)
    }

    pub fn level(&self) -> Level {
        match self.percent() {
            super::REACHED.. => Level::Reached,
            super::NEAR.. => Level::Near,
            _ => Level::Within,
        }
    }

    /// `day: $16.20 of $20.00 (81 %)`, and when it begins anew.
    pub fn in_words(&self, now: Timestamp, zone: &TimeZone) -> String {
        let [spent, limit] = [self.spent.cost.0, self.limit().0].map(format::dollars);
        let anew = self.window.as_ref().map(|window| format::moment(window.end, now, zone));
        let anew = anew.map_or(String::new(), |end| format!(", begins anew {end}"));
        let which = match &self.session {
            Some(session) => format!("{} {}", self.budget.which, session.name),
            None => self.budget.which.to_string(),
        };
        format!("{which}: {spent} of {limit} ({} %){anew}", self.percent())
    }
}

/// The command that adds an amount to a budget, for people to type.
pub fn raise_command(which: &BudgetKey, session: Option<&str>, amount: &str) -> String {
    let only = which
        .only
        .as_ref()
        .map_or(String::new(), |BudgetScope { kind, name }| format!(" --{kind} {}", shell::word(name)));
    let session = session.map_or(String::new(), |name| format!(" --session {}", shell::word(name)));
    format!("codemie budget raise {} {amount}{only}{session}", which.per)
}

/// In the store's words.
pub fn by_scope(which: &BudgetKey) -> SpentBy<'_> {
    match &which.only {
        None => SpentBy::All,
        Some(BudgetScope { kind: Kind::Agent, name }) => SpentBy::Agent(name),
        Some(BudgetScope { kind: Kind::Project, name }) => SpentBy::Project(name),
        Some(BudgetScope { kind: Kind::Branch, name }) => SpentBy::Branch(name),
        Some(BudgetScope { kind: Kind::Tag, name }) => SpentBy::Tag(name),
    }
}

/// One budget now. `subject`: as a session of these facts finds it, with what was added for this session alone; `None`: as
/// everybody finds it. No answer: the subject's calls do not count, or the budget is for a session and none is given.
pub fn status(
    view: &View<'_>,
    budget: &Budget,
    subject: Option<&Subject>,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<Option<BudgetStatus>, store::Error> {
    if subject.is_some_and(|subject| !subject.counts(budget.which.only.as_ref())) {
        return Ok(None);
    }
    let known = subject.and_then(|subject| subject.session.clone());
    let raised =
        |span: &str, session: Option<SessionId>| view.budget_raised(&budget.which.to_string(), span, session);
    let id = known.as_ref().map(|session| session.id);
    if budget.which.per == Per::Session {
        let Some(session) = known else { return Ok(None) };
        let (span, spent) = (session.id.to_string(), view.spent_in_session(session.n)?);
        let raised = raised(&span, id)?;
        return Ok(Some(BudgetStatus {
            budget: budget.clone(),
            span,
            window: None,
            session: Some(session),
            spent,
            raised,
        }));
    }
    let Some(window) = Window::of(budget.which.per, now, zone) else { return Ok(None) };
    Ok(Some(BudgetStatus {
        budget: budget.clone(),
        span: window.span.clone(),
        spent: view.spent(by_scope(&budget.which), window.begin, window.end)?,
        raised: raised(&window.span, id)?,
        window: Some(window),
        session: None,
    }))
}

/// All budgets that the subject's calls count towards; without one, all that are for no session.
pub fn statuses(
    view: &View<'_>,
    budgets: &[Budget],
    subject: Option<&Subject>,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<Vec<BudgetStatus>, store::Error> {
    let mut all = Vec::new();
    for budget in budgets {
        all.extend(status(view, budget, subject, now, zone)?);
    }
    Ok(all)
}

// Whose calls they are: what a budget is matched with.

/// A session, or an agent of which no session is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    pub session: Option<KnownSession>,
    pub agent: String,
    pub project: Option<String>,
    pub folder: Option<PathBuf>,
    pub repository: Option<String>,
    pub branch: Option<String>,
    pub tags: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSession {
    pub n: i64,
    pub id: SessionId,
    pub name: String,
}

impl Subject {
    /// `None` for one that is never counted: the demonstration.
    pub fn of(view: &View<'_>, row: &SessionRow) -> Result<Option<Self>, store::Error> {
        if row.local_only {
            return Ok(None);
        }
        Ok(Some(Self {
            session: Some(KnownSession { n: row.n, id: row.id, name: row.name.clone() }),
            agent: row.agent.clone(),
            project: row.workspace.project.clone(),
            folder: Some(row.workspace.cwd.clone()),
            repository: row.workspace.repository.clone(),
            branch: row.workspace.branch.clone(),
            tags: view.tags(row.n)?,
        }))
    }

    /// A call of which nothing else is known.
    pub fn of_agent(agent: &str) -> Self {
        Self { agent: agent.to_owned(), ..Self::default() }
    }

    /// A conversation that is no session, of an agent in a folder.
    pub fn in_folder(agent: &str, folder: &Path) -> Self {
        let Project { name, repository, branch } = Project::of(folder);
        let folder = Some(folder.to_owned());
        Self { project: name, folder, repository, branch, ..Self::of_agent(agent) }
    }

    /// Whether its calls count: by the same comparisons as the store's sums (`store::SpentBy`).
    pub fn counts(&self, only: Option<&BudgetScope>) -> bool {
        let Some(BudgetScope { kind, name }) = only else { return true };
        let is = |value: &Option<String>| value.as_ref() == Some(name);
        match kind {
            Kind::Agent => self.agent == *name,
            Kind::Project => {
                let folder = self.folder.as_ref().is_some_and(|folder| folder.as_os_str() == name.as_str());
                folder || is(&self.project) || is(&self.repository)
            }
            Kind::Branch => is(&self.branch),
            Kind::Tag => self.tags.contains(name),
        }
    }
}

// The day, the week or the month that a moment lies in, by the calendar of a time zone.

/// A stretch of the calendar. Its first moment belongs to it, its end does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// As keys of `usage` are written: `2026-11-17`, `2026-W47`, `2026-11`.
    pub span: String,
    pub begin: Timestamp,
    pub end: Timestamp,
}

impl Window {
    /// `None` for a session, which is no stretch of the calendar, and for moments beyond it.
    pub fn of(per: Per, now: Timestamp, zone: &TimeZone) -> Option<Self> {
        let today = zone.to_datetime(jiff::Timestamp::from_millisecond(now.0).ok()?).date();
        let (first, next) = match per {
            Per::Session => return None,
            Per::Day => (today, today.tomorrow().ok()?),
            Per::Week => {
                let monday = today.checked_sub(today.weekday().to_monday_zero_offset().days()).ok()?;
                (monday, monday.checked_add(7.days()).ok()?)
            }
            Per::Month => {
                let first = today.first_of_month();
                (first, first.checked_add(1.month()).ok()?)
            }
        };
        let span = match per {
            Per::Session | Per::Day => first.to_string(),
            Per::Week => {
                let week = first.iso_week_date();
                format!("{}-W{:02}", week.year(), week.week())
            }
            Per::Month => format!("{:04}-{:02}", first.year(), first.month()),
        };
        Some(Self { span, begin: midnight(first, zone)?, end: midnight(next, zone)? })
    }
}

/// The first moment of a day: where clocks go forward at midnight, that is one o'clock.
fn midnight(day: Date, zone: &TimeZone) -> Option<Timestamp> {
    Some(Timestamp(day.to_zoned(zone.clone()).ok()?.timestamp().as_millisecond()))
}

// When a user is told of a budget: once at 80 % and once at 100 %, for each budget and each day, week, month or session.

/// From here on, in percent, a budget is shown where it is not asked for.
pub const NEAR: i64 = 80;
/// From here on nothing is left.
pub const REACHED: i64 = 100;

/// Longer than a month: what was notified of is not looked for any more.
const REMEMBERED: Duration = Duration::from_hours(24 * 62);

/// The budgets that have come to one of the two marks and were not reported there. They count as reported from now on. Where both
/// marks were passed at once, it is one report.
pub fn crossed(
    tx: &Tx<'_>,
    statuses: Vec<BudgetStatus>,
    now: Timestamp,
) -> Result<Vec<BudgetStatus>, store::Error> {
    let oldest = Timestamp(now.0.saturating_sub(i64::try_from(REMEMBERED.as_millis()).unwrap_or(i64::MAX)));
    let mut news = Vec::new();
    for status in statuses {
        let (percent, budget) = (status.percent(), status.budget.which.to_string());
        let mut first = false;
        for mark in [NEAR, REACHED] {
            if percent >= mark {
                first |= tx.note_budget_notice(&budget, &status.span, mark, now, oldest)?;
            }
        }
        if first {
            news.push(status);
        }
    }
    Ok(news)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_counts_what_it_is_narrowed_to() {
        let subject = Subject {
            session: None,
            agent: "claude".into(),
            project: Some("widgets".into()),
            folder: Some("/home/dev/widgets".into()),
            repository: Some("acme/widgets".into()),
            branch: Some("main".into()),
            tags: vec!["urgent".into(), "x".into()],
        };
        assert!(subject.counts(None));
        for (kind, name, counts) in [
            (Kind::Agent, "claude", true),
            (Kind::Agent, "codex", false),
            (Kind::Project, "widgets", true),
            (Kind::Project, "/home/dev/widgets", true),
            (Kind::Project, "acme/widgets", true),
            (Kind::Project, "widget", false),
            (Kind::Project, "main", false),
            (Kind::Branch, "main", true),
            (Kind::Branch, "mai", false),
            (Kind::Tag, "x", true),
            (Kind::Tag, "y", false),
        ] {
            assert_eq!(
                subject.counts(Some(&BudgetScope { kind, name: name.into() })),
                counts,
                "{kind} {name}"
            );
        }
        let unknown = Subject::of_agent("claude");
        assert!(!unknown.counts(Some(&BudgetScope { kind: Kind::Project, name: "widgets".into() })));
    }
}

#[cfg(test)]
mod window_tests {
    use super::*;

    fn zone(rule: &str) -> TimeZone {
        TimeZone::posix(rule).unwrap()
    }

    #[test]
    fn days_weeks_and_months_by_the_calendar_of_the_zone() {
        const BERLIN: &str = "CET-1CEST,M3.5.0,M10.5.0/3";
        // Clocks go forward at midnight there, so that one day begins at one o'clock.
        const HAVANA: &str = "CST5CDT,M3.2.0/0,M11.1.0/1";
        const KATHMANDU: &str = "<+0545>-5:45";
        for (rule, per, now, span, begin, end) in [
            (
                "UTC0",
                Per::Day,
                "2026-11-17T00:00:00Z",
                "2026-11-17",
                "2026-11-17T00:00:00Z",
                "2026-11-18T00:00:00Z",
            ),
            (
                "UTC0",
                Per::Day,
                "2026-11-17T23:59:59.999Z",
                "2026-11-17",
                "2026-11-17T00:00:00Z",
                "2026-11-18T00:00:00Z",
            ),
            (
                "UTC0",
                Per::Week,
                "2026-11-17T12:00:00Z",
                "2026-W47",
                "2026-11-16T00:00:00Z",
                "2026-11-23T00:00:00Z",
            ),
            (
                "UTC0",
                Per::Week,
                "2026-11-22T23:00:00Z",
                "2026-W47",
                "2026-11-16T00:00:00Z",
                "2026-11-23T00:00:00Z",
            ),
            (
                "UTC0",
                Per::Week,
                "2027-01-01T00:00:00Z",
                "2026-W53",
                "2026-12-28T00:00:00Z",
                "2027-01-04T00:00:00Z",
            ),
            (
                "UTC0",
                Per::Month,
                "2026-12-31T23:00:00Z",
                "2026-12",
                "2026-12-01T00:00:00Z",
                "2027-01-01T00:00:00Z",
            ),
            // The zone's day, not UTC's.
            (
                BERLIN,
                Per::Day,
                "2026-11-16T23:30:00Z",
                "2026-11-17",
                "2026-11-16T23:00:00Z",
                "2026-11-17T23:00:00Z",
            ),
            (
                KATHMANDU,
                Per::Day,
                "2026-11-17T18:20:00Z",
                "2026-11-18",
                "2026-11-17T18:15:00Z",
                "2026-11-18T18:15:00Z",
            ),
            // The days of 23 and of 25 hours.
            (
                BERLIN,
                Per::Day,
                "2026-03-29T12:00:00Z",
                "2026-03-29",
                "2026-03-28T23:00:00Z",
                "2026-03-29T22:00:00Z",
            ),
            (
                BERLIN,
                Per::Day,
                "2026-10-25T12:00:00Z",
                "2026-10-25",
                "2026-10-24T22:00:00Z",
                "2026-10-25T23:00:00Z",
            ),
            (
                BERLIN,
                Per::Week,
                "2026-03-29T12:00:00Z",
                "2026-W13",
                "2026-03-22T23:00:00Z",
                "2026-03-29T22:00:00Z",
            ),
            (
                BERLIN,
                Per::Month,
                "2026-10-31T12:00:00Z",
                "2026-10",
                "2026-09-30T22:00:00Z",
                "2026-10-31T23:00:00Z",
            ),
            (
                HAVANA,
                Per::Day,
                "2026-03-08T12:00:00Z",
                "2026-03-08",
                "2026-03-08T05:00:00Z",
                "2026-03-09T04:00:00Z",
            ),
        ] {
            let at = |text: &str| Timestamp::parse(text).unwrap();
            let expected = Window { span: span.into(), begin: at(begin), end: at(end) };
            assert_eq!(Window::of(per, at(now), &zone(rule)), Some(expected), "{rule} {per} {now}");
        }
        assert_eq!(Window::of(Per::Session, Timestamp(0), &TimeZone::UTC), None);
        assert_eq!(Window::of(Per::Day, Timestamp(i64::MAX), &TimeZone::UTC), None);
    }
}
