//! How much of a budget is spent.

use jiff::tz::TimeZone;

use super::subject::KnownSession;
use super::{Budget, Kind, Only, Per, Subject, Which, Window};
use format::shell;
use store::{self, Spent, SpentBy, View};
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
pub struct Standing {
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

impl Standing {
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
pub fn raise_command(which: &Which, session: Option<&str>, amount: &str) -> String {
    let only = which
        .only
        .as_ref()
        .map_or(String::new(), |Only { kind, name }| format!(" --{kind} {}", shell::word(name)));
    let session = session.map_or(String::new(), |name| format!(" --session {}", shell::word(name)));
    format!("codemie budget raise {} {amount}{only}{session}", which.per)
}

/// In the store's words.
pub fn by_scope(which: &Which) -> SpentBy<'_> {
    match &which.only {
        None => SpentBy::All,
        Some(Only { kind: Kind::Agent, name }) => SpentBy::Agent(name),
        Some(Only { kind: Kind::Project, name }) => SpentBy::Project(name),
        Some(Only { kind: Kind::Branch, name }) => SpentBy::Branch(name),
        Some(Only { kind: Kind::Tag, name }) => SpentBy::Tag(name),
    }
}

/// One budget now. `subject`: as a session of these facts finds it, with what was added for this session alone; `None`: as
/// everybody finds it. No answer: the subject's calls do not count, or the budget is for a session and none is given.
pub fn standing(
    view: &View<'_>,
    budget: &Budget,
    subject: Option<&Subject>,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<Option<Standing>, store::Error> {
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
        return Ok(Some(Standing {
            budget: budget.clone(),
            span,
            window: None,
            session: Some(session),
            spent,
            raised,
        }));
    }
    let Some(window) = Window::of(budget.which.per, now, zone) else { return Ok(None) };
    Ok(Some(Standing {
        budget: budget.clone(),
        span: window.span.clone(),
        spent: view.spent(by_scope(&budget.which), window.begin, window.end)?,
        raised: raised(&window.span, id)?,
        window: Some(window),
        session: None,
    }))
}

/// All budgets that the subject's calls count towards; without one, all that are for no session.
pub fn standings(
    view: &View<'_>,
    budgets: &[Budget],
    subject: Option<&Subject>,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<Vec<Standing>, store::Error> {
    let mut all = Vec::new();
    for budget in budgets {
        all.extend(standing(view, budget, subject, now, zone)?);
    }
    Ok(all)
}
