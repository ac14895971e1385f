//! Keeps several runs at once to one budget: a call reserves an amount before it is made, and gives it back when it is stored.
//!
//! Everything about one call happens in one transaction of the store, which has the database to itself. A reservation belongs to
//! the process that passes the call on, by pid and start time: those of a process that was killed do not count. One of a call that
//! is over and waits for its session counts, with what it cost, until its record is stored.

use std::collections::HashMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use prices::PriceList;
use terminal::process::Processes;

use super::estimate::{LATEST, RequestFacts};
use super::standing::{Standing, raise_command, standing};
use super::{Budget, Subject};
use crate::store::{self, Hold, Realm, RecordKind, Tx};
use wire::{AgentSessionId, PicoDollars, ProcessId, RunId, Timestamp};

/// A reservation that is older is one that was never given back, or belongs to a process that cannot be seen from here. No answer
/// was measured to take longer.
const LONGEST_CALL: Duration = Duration::from_hours(1);

/// How long a call that is over may wait for its record. Its session is known within seconds; where the agent's file has the call
/// under another key, it would be counted twice for longer.
const LONGEST_WAIT: Duration = Duration::from_mins(2);

/// How soon to ask again where reservations of others alone are in the way: most calls are over by then.
const CALLS_UNDER_WAY: Duration = Duration::from_secs(10);

/// A call that is about to be made.
#[derive(Clone, Debug)]
pub struct AskedCall<'a> {
    /// Names the reservation; unique.
    pub call: &'a str,
    pub agent: &'a str,
    pub run: Option<RunId>,
    /// The conversation that the request names.
    pub conversation: Option<&'a AgentSessionId>,
    pub path: &'a str,
    /// Empty where it is not known.
    pub body: &'a [u8],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// No enforced budget counts it.
    Free,
    /// So much is reserved for it.
    Held(PicoDollars),
    Refused(Box<Refused>),
}

/// The budget that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub standing: Standing,
    /// Reserved by calls under way.
    pub held: PicoDollars,
}

impl Refused {
    /// For the agent's user: which budget, what was spent, when it begins anew, how to go on.
    pub fn message(&self, now: Timestamp, zone: &TimeZone) -> String {
        let Self { standing, held } = self;
        let session = standing.session.as_ref();
        let which = match session {
            Some(session) => format!("{} budget of {}", standing.budget.which, session.name),
            None => format!("{} budget", standing.budget.which),
        };
        let [limit, spent, reserved] =
            [standing.limit().0, standing.spent.cost.0, held.0].map(human::dollars);
        let mut text = if standing.left().0 <= 0 {
            format!("codemie: the {which}, {limit}, is used up: {spent} spent")
        } else {
            format!(
                "codemie: the {which}, {limit}, is used up by calls under way: {spent} spent, {reserved} reserved"
            )
        };
        if let Some(window) = &standing.window {
            text += "; it begins anew ";
            text += &human::moment(window.end, now, zone);
        }
        let raise = raise_command(
            &standing.budget.which,
            session.map(|session| session.name.as_str()),
            &self.proposal(),
        );
        text + &format!(". Nothing was sent. To go on, in another terminal: {raise}")
    }

    /// In cents: what is spent and reserved beyond the limit, and a quarter of the limit to go on with.
    fn proposal(&self) -> String {
        const CENT: i64 = 10_000_000_000;
        let beyond = self.held.0.saturating_sub(self.standing.left().0).max(0);
        let quarter = (self.standing.budget.limit.0 / 4).max(CENT);
        let cents = beyond.saturating_add(quarter).saturating_add(CENT - 1) / CENT;
        let (dollars, cents) = (cents / 100, cents % 100);
        if cents == 0 { dollars.to_string() } else { format!("{dollars}.{cents:02}") }
    }

    /// When it is worth asking again without a person's doing.
    pub fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        if self.standing.left().0 > 0 {
            return Some(CALLS_UNDER_WAY);
        }
        self.standing.window.as_ref().map(|window| window.end.since(now))
    }
}

/// Who passes calls on.
#[derive(Clone, Debug)]
pub struct Guard {
    pub owner: ProcessId,
    pub realm: Realm,
}

impl Guard {
    /// Asks for one call, and reserves for it. `budgets`: the enforced ones.
    #[expect(clippy::too_many_arguments, reason = "everything that decides is handed in")]
    pub fn admit(
        &self,
        tx: &Tx<'_>,
        budgets: &[Budget],
        prices: &PriceList,
        asked: &AskedCall<'_>,
        processes: &dyn Processes,
        now: Timestamp,
        zone: &TimeZone,
    ) -> Result<Admission, store::Error> {
        let Some(subject) = subject(tx, asked)? else { return Ok(Admission::Free) };
        let mut counting = Vec::new();
        for budget in budgets {
            let Some(standing) = standing(tx, budget, Some(&subject), now, zone)? else { continue };
            let held = self.held(tx, &standing, processes, now)?;
            if standing.spent.cost.0.saturating_add(held.0) >= standing.limit().0 {
                return Ok(Admission::Refused(Box::new(Refused { standing, held })));
            }
            counting.push(standing);
        }
        if counting.is_empty() {
            return Ok(Admission::Free);
        }
        let facts = RequestFacts::of(asked.path, asked.body);
        let latest = match &subject.session {
            Some(session) => tx.latest_costs(session.n, facts.model.as_deref(), LATEST)?,
            None => Vec::new(),
        };
        let amount = facts.estimate(prices, &latest);
        let (call, agent) = (asked.call.to_owned(), asked.agent.to_owned());
        let hold =
            Hold { call, amount, at: now, agent, key: None, owner: self.owner, realm: self.realm.clone() };
        for Standing { budget, span, .. } in &counting {
            tx.hold_budget(&budget.which.to_string(), span, &hold)?;
        }
        Ok(Admission::Held(amount))
    }

    /// What calls under way have reserved. Reservations of processes that are gone are taken out.
    fn held(
        &self,
        tx: &Tx<'_>,
        standing: &Standing,
        processes: &dyn Processes,
        now: Timestamp,
    ) -> Result<PicoDollars, store::Error> {
        let mut sum = 0_i64;
        let mut alive: HashMap<ProcessId, bool> = HashMap::new();
        for hold in tx.budget_holds(&standing.budget.which.to_string(), &standing.span)? {
            let mut lives = || *alive.entry(hold.owner).or_insert_with(|| processes.alive(hold.owner));
            let fresh = now.since(hold.at) < LONGEST_CALL;
            let counts = if let Some(key) = &hold.key {
                // What is spent is spent, whatever became of the process.
                now.since(hold.at) < LONGEST_WAIT && !is_stored(tx, &hold.agent, key)?
            } else {
                let here = hold.realm.boot == self.realm.boot;
                fresh && here && (hold.realm.pids != self.realm.pids || lives())
            };
            if counts {
                sum = sum.saturating_add(hold.amount.0);
            } else {
                tx.release_budget(&hold.call)?;
            }
        }
        Ok(PicoDollars(sum))
    }
}

fn is_stored(tx: &Tx<'_>, agent: &str, key: &str) -> Result<bool, store::Error> {
    Ok(tx.stored_record(agent, RecordKind::Usage, key)?.is_some() || tx.is_pruned_call(agent, key)?)
}

/// By the conversation that the request names, else by the session that its run is in. `None`: it is never counted.
fn subject(tx: &Tx<'_>, asked: &AskedCall<'_>) -> Result<Option<Subject>, store::Error> {
    let named = asked.conversation.map(|id| tx.session_by_agent_session(asked.agent, id));
    let named = named.transpose()?.flatten();
    let row = match (named, asked.run) {
        (None, Some(run)) => tx.current(run)?,
        (named, _) => named,
    };
    match row {
        Some(row) => Subject::of(tx, &row),
        None => Ok(Some(Subject::of_agent(asked.agent))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Only, Per, Which, Window};
    use crate::config::budget::Kind;
    use crate::store::Spent;

    const DOLLAR: i64 = 1_000_000_000_000;

    fn refused(which: Which, spent: i64, held: i64) -> Refused {
        let now = Timestamp::parse("2026-11-17T12:00:00Z").unwrap();
        let window = Window::of(which.per, now, &TimeZone::UTC);
        let budget = Budget { which, limit: PicoDollars(20 * DOLLAR), enforce: true };
        let spent = Spent { cost: PicoDollars(spent), calls: 1, unpriced: 0 };
        let span = window.as_ref().map_or("id".to_owned(), |window| window.span.clone());
        let standing = Standing { budget, span, window, session: None, spent, raised: PicoDollars(0) };
        Refused { standing, held: PicoDollars(held) }
    }

    #[test]
    fn a_refusal_names_the_budget_the_amount_the_time_and_the_way_on() {
        let now = Timestamp::parse("2026-11-17T12:00:00Z").unwrap();
        let day = refused(Which { per: Per::Day, only: None }, 20 * DOLLAR + DOLLAR / 8, 0);
        assert_eq!(
            day.message(now, &TimeZone::UTC),
            "codemie: the day budget, $20.00, is used up: $20.13 spent; it begins anew Nov 18 00:00. Nothing was sent. \
             To go on, in another terminal: codemie budget raise day 5.13"
        );
        assert_eq!(day.retry_after(now), Some(Duration::from_hours(12)));
        let only = Some(Only { kind: Kind::Project, name: "my widgets".into() });
        let month = refused(Which { per: Per::Month, only }, 19 * DOLLAR, DOLLAR);
        assert_eq!(
            month.message(now, &TimeZone::UTC),
            "codemie: the month of project my widgets budget, $20.00, is used up by calls under way: $19.00 spent, $1.00 \
             reserved; it begins anew Dec 01 00:00. Nothing was sent. To go on, in another terminal: codemie budget raise \
             month 5 --project 'my widgets'"
        );
        assert_eq!(month.retry_after(now), Some(CALLS_UNDER_WAY));
    }
}
