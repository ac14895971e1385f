//! Looks at the budgets after calls were stored, and tells the user when one is nearly or wholly spent. With the same look: whether
//! the session shows a sign of having run away.

use std::time::{Duration, Instant};

use jiff::tz::TimeZone;

use super::notify::{Alarm, Notifier};
use super::timers::Moment;
use crate::budget::{BudgetStatus, CurrentBudgets, Level, Subject, crossed, statuses};
use os::home::Home;
use store::Store;
use store::session;
use store::session::runaway::{is_first_report, runaway_of};
use types::SessionId;

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
    /// Signs that were seen in this run, so that the store is not asked for each again and again.
    seen_signs: Vec<(SessionId, &'static str)>,
}

impl BudgetWatch {
    pub(super) fn of(home: &Home) -> Self {
        let current = CurrentBudgets::of(home);
        let notifier = Notifier::default();
        Self { current, zone: None, unchecked: false, checked: None, notifier, seen_signs: Vec::new() }
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
        self.follow_settings();
        for status in &news {
            let why = status.in_words(now.wall, self.zone.get_or_insert_with(os::zone::local));
            tracing::info!(%session, "budget {why}");
            self.notifier.run_for(Alarm::Budget, session, &row.name, &row.agent, &why);
        }
        Ok(())
    }

    fn follow_settings(&mut self) {
        if self.notifier.is_off() {
            // One for the whole run: it bounds how many commands run at once.
            self.notifier = Notifier::of(self.current.notify());
        }
    }

    /// Notifies of a sign that the session has run away, once for each sign however many runs see it. Without a command nobody
    /// would hear of it: `list` and `top` look for themselves.
    pub(super) fn check_runaway(
        &mut self,
        store: &mut Store,
        session: SessionId,
        now: Moment,
    ) -> Result<(), session::Error> {
        self.current.look(now.wall);
        self.follow_settings();
        if self.notifier.is_off() {
            return Ok(());
        }
        let limits = self.current.runaway();
        let found = store.read(|view| {
            let row = view.session(session)?.ok_or(session::Error::NoSession(session))?;
            Ok::<_, session::Error>(runaway_of(view, row.n, limits, now.wall)?.map(|sign| (row, sign)))
        })?;
        let Some((row, runaway)) = found else { return Ok(()) };
        if self.seen_signs.contains(&(session, runaway.sign())) {
            return Ok(());
        }
        if store.write(|tx| is_first_report(tx, session, &runaway, now.wall))? {
            let why = runaway.in_words();
            tracing::info!(%session, "runaway: {why}");
            self.notifier.run_for(Alarm::Runaway, session, &row.name, &row.agent, &why);
        }
        self.seen_signs.push((session, runaway.sign()));
        Ok(())
    }

    /// The budgets that this session counts towards and that are used by 80 % or more. Without budgets the store is not asked.
    pub(super) fn used(
        &mut self,
        store: &mut Store,
        session: SessionId,
        now: Moment,
    ) -> Result<Vec<BudgetStatus>, session::Error> {
        let budgets = self.current.look(now.wall);
        if budgets.is_empty() {
            return Ok(Vec::new());
        }
        let zone = self.zone.get_or_insert_with(os::zone::local);
        store.read(|view| {
            let row = view.session(session)?.ok_or(session::Error::NoSession(session))?;
            let Some(subject) = Subject::of(view, &row)? else { return Ok(Vec::new()) };
            let mut used = statuses(view, budgets, Some(&subject), now.wall, zone)?;
            used.retain(|status| status.level() != Level::Within);
            Ok(used)
        })
    }
}
