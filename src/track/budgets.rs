//! Looks at the budgets after calls were stored, and tells the user when one is nearly or wholly spent.

use std::time::{Duration, Instant};

use jiff::tz::TimeZone;

use super::clock::Moment;
use super::notify::Notifier;
use crate::budget::{CurrentBudgets, Level, Standing, Subject, crossed, standings};
use crate::home::Home;
use crate::session;
use crate::store::Store;
use wire::SessionId;

/// Calls come in bursts; nobody reads faster than this.
const PACE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct BudgetWatch {
    current: CurrentBudgets,
    zone: Option<TimeZone>,
    /// Calls were stored since the last look.
    unchecked: bool,
    checked: Option<Instant>,
    notifier: Notifier,
}

impl BudgetWatch {
    pub(super) fn of(home: &Home) -> Self {
        let current = CurrentBudgets::of(home);
        Self { current, zone: None, unchecked: false, checked: None, notifier: Notifier::default() }
    }

    pub(super) fn note_calls(&mut self) {
        self.unchecked = true;
    }

    /// When to look, if that is not now.
    pub(super) fn due(&self) -> Option<Instant> {
        self.checked.filter(|_| self.unchecked).map(|checked| checked + PACE)
    }

    /// Whether it is time for a look. `last`: there will be no other.
    pub(super) fn is_due(&self, now: Moment, last: bool) -> bool {
        self.unchecked && (last || self.due().is_none_or(|due| due <= now.steady))
    }

    /// Notifies of the budgets that have come to a mark, each once however many runs see it.
    pub(super) fn check(
        &mut self,
        store: &mut Store,
        session: SessionId,
        now: Moment,
    ) -> Result<(), session::Error> {
        (self.unchecked, self.checked) = (false, Some(now.steady));
        let used = self.used(store, session, now)?;
        if used.is_empty() {
            return Ok(());
        }
        let news = store.write(|tx| crossed(tx, used, now.wall))?;
        let Some(row) = store.read(|view| view.session(session))?.filter(|_| !news.is_empty()) else {
            return Ok(());
        };
        if self.notifier.is_off() {
            // One for the whole run: it bounds how many commands run at once.
            self.notifier = Notifier::of(self.current.notify());
        }
        for standing in &news {
            let why = standing.in_words(now.wall, self.zone.get_or_insert_with(system::zone::local));
            tracing::info!(%session, "budget {why}");
            self.notifier.run_for_budget(session, &row.name, &row.agent, &why);
        }
        Ok(())
    }

    /// The budgets that this session counts towards and that are used by 80 % or more. Without budgets the store is not asked.
    pub(super) fn used(
        &mut self,
        store: &mut Store,
        session: SessionId,
        now: Moment,
    ) -> Result<Vec<Standing>, session::Error> {
        let budgets = self.current.look(now.wall);
        if budgets.is_empty() {
            return Ok(Vec::new());
        }
        let zone = self.zone.get_or_insert_with(system::zone::local);
        store.read(|view| {
            let row = view.session(session)?.ok_or(session::Error::NoSession(session))?;
            let Some(subject) = Subject::of(view, &row)? else { return Ok(Vec::new()) };
            let mut used = standings(view, budgets, Some(&subject), now.wall, zone)?;
            used.retain(|standing| standing.level() != Level::Within);
            Ok(used)
        })
    }
}
