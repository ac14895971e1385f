//! Keeps several runs at once to one budget: a call reserves an amount before it is made, and gives it back when it is stored.
//!
//! A call that does not fit beside those under way waits until there are none, and goes alone. So the overshoot is one call at
//! most, and a budget refuses nothing as long as anything of it is left. Whoever came first goes first: a call that would fit
//! waits behind one that waits already, which small calls could otherwise keep waiting for ever.
//!
//! Everything about one call happens in one transaction of the store, which has the database to itself. A reservation belongs to
//! the process that passes the call on, by pid and start time: those of a process that was killed do not count. One of a call that
//! is over and waits for its session counts, with what it cost, until its record is stored.

use std::collections::HashMap;
use std::time::Duration;

use jiff::tz::TimeZone;
use serde::Deserialize;

use super::status::{BudgetStatus, raise_command, status};
use super::{Budget, Subject};
use pricing::PriceList;
use pricing::tier::Tier;
use pty::process::Processes;
use store::session::proxied::is_counted;
use store::{BootAndPidNs, Hold, Tx};
use types::{AgentSessionId, PicoDollars, ProcessId, RunId, Timestamp, Tokens};

/// A reservation that is older is one that was never given back, or belongs to a process that cannot be seen from here. No answer
/// was measured to take longer.
const LONGEST_CALL: Duration = Duration::from_hours(1);

/// How long a call that is over may wait for its record. Its session is known within seconds.
const LONGEST_WAIT: Duration = Duration::from_mins(2);

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
    /// `None` where it is not known.
    pub body: Option<&'a [u8]>,
    /// When it was first asked for: its place among the calls that wait.
    pub since: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// No enforced budget counts it.
    Free,
    /// So much is reserved for it; where it counts towards several budgets, the largest of the amounts.
    Held(PicoDollars),
    /// It has a place among the calls that wait: to be asked for again.
    Waits,
    Refused(Box<Refused>),
}

/// What one budget says to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Start(PicoDollars),
    Wait,
    Refuse,
}

/// What stands against a budget besides the calls that are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Claims {
    /// Calls that are over and not stored yet, with what they cost.
    ended: PicoDollars,
    under_way: u32,
    /// What those have reserved.
    reserved: PicoDollars,
    /// A call that came earlier waits.
    is_waited_for: bool,
}

impl Claims {
    /// `left`: of the budget, after the calls that are stored. `estimate`: of the call that asks; `None`: not known.
    fn answer(self, left: PicoDollars, estimate: Option<PicoDollars>) -> Answer {
        let left = left.0.saturating_sub(self.ended.0);
        if left <= 0 {
            return Answer::Refuse;
        }
        if self.is_waited_for {
            return Answer::Wait;
        }
        if self.under_way == 0 {
            // Nobody else begins beside a call that has reserved everything.
            return Answer::Start(estimate.unwrap_or(PicoDollars(left)));
        }
        match estimate {
            Some(own) if self.reserved.0.saturating_add(own.0) <= left => Answer::Start(own),
            _ => Answer::Wait,
        }
    }
}

/// The budget that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub status: BudgetStatus,
    /// Spent by calls that are over and not stored yet.
    pub ended: PicoDollars,
}

impl Refused {
    /// For the agent's user: which budget, what was spent, when it begins anew, how to go on.
    pub fn message(&self, now: Timestamp, zone: &TimeZone) -> String {
        let Self { status, ended } = self;
        let session = status.session.as_ref();
        let which = match session {
            Some(session) => format!("{} budget of {}", status.budget.which, session.name),
            None => format!("{} budget", status.budget.which),
        };
        let spent = status.spent.cost.0.saturating_add(ended.0);
        let [limit, spent] = [status.limit().0, spent].map(format::dollars);
        let mut text = format!("codemie: the {which}, {limit}, is used up: {spent} spent");
        if let Some(window) = &status.window {
            text += "; it begins anew ";
            text += &format::moment(window.end, now, zone);
        }
        let raise = raise_command(
            &status.budget.which,
            session.map(|session| session.name.as_str()),
            &self.proposal(),
        );
        text + &format!(". Nothing was sent. To go on, in another terminal: {raise}")
    }

    /// In cents: what is spent beyond the limit, and a quarter of the limit to go on with.
    fn proposal(&self) -> String {
        const CENT: i64 = 10_000_000_000;
        let beyond = self.ended.0.saturating_sub(self.status.left().0).max(0);
        let quarter = (self.status.budget.limit.0 / 4).max(CENT);
        let cents = beyond.saturating_add(quarter).saturating_add(CENT - 1) / CENT;
        let (dollars, cents) = (cents / 100, cents % 100);
        if cents == 0 { dollars.to_string() } else { format!("{dollars}.{cents:02}") }
    }

    /// When it is worth asking again without a person's doing.
    pub fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        self.status.window.as_ref().map(|window| window.end.since(now))
    }
}

/// Who passes calls on.
#[derive(Clone, Debug)]
pub struct Guard {
    pub owner: ProcessId,
    pub realm: BootAndPidNs,
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
        let facts = RequestFacts::of(asked.path, asked.body);
        let latest = match &subject.session {
            Some(session) => tx.latest_costs(session.n, facts.model.as_deref(), LATEST)?,
            None => Vec::new(),
        };
        let estimate = facts.estimate(prices, &latest);
        let (mut counting, mut waits) = (Vec::new(), false);
        for budget in budgets {
            let Some(status) = status(tx, budget, Some(&subject), now, zone)? else { continue };
            let claims = self.claims(tx, &status, asked, processes, now)?;
            let amount = match claims.answer(status.left(), estimate) {
                Answer::Start(amount) => amount,
                Answer::Wait => {
                    waits = true;
                    PicoDollars(0)
                }
                Answer::Refuse => {
                    tx.release_budget(asked.call)?;
                    return Ok(Admission::Refused(Box::new(Refused { status, ended: claims.ended })));
                }
            };
            counting.push((status, amount));
        }
        // It may have waited for a budget that is no longer there, or for a day that is over.
        tx.release_budget(asked.call)?;
        let Some(most) = counting.iter().map(|(_, amount)| *amount).max() else {
            return Ok(Admission::Free);
        };
        for (BudgetStatus { budget, span, .. }, amount) in &counting {
            let hold = Hold {
                call: asked.call.to_owned(),
                amount: if waits { PicoDollars(0) } else { *amount },
                at: if waits { asked.since } else { now },
                agent: asked.agent.to_owned(),
                key: None,
                waits,
                owner: self.owner,
                realm: self.realm.clone(),
            };
            tx.hold_budget(&budget.which.to_string(), span, &hold)?;
        }
        Ok(if waits { Admission::Waits } else { Admission::Held(most) })
    }

    /// What other calls claim of a budget. Reservations of processes that are gone are taken out.
    fn claims(
        &self,
        tx: &Tx<'_>,
        status: &BudgetStatus,
        asked: &AskedCall<'_>,
        processes: &dyn Processes,
        now: Timestamp,
    ) -> Result<Claims, store::Error> {
        let mut claims = Claims::default();
        let mut alive: HashMap<ProcessId, bool> = HashMap::new();
        for hold in tx.budget_holds(&status.budget.which.to_string(), &status.span)? {
            if hold.call == asked.call {
                continue;
            }
            let mut lives = || *alive.entry(hold.owner).or_insert_with(|| processes.alive(hold.owner));
            let fresh = now.since(hold.at) < LONGEST_CALL;
            let counts = if let Some(key) = &hold.key {
                // What is spent is spent, whatever became of the process.
                now.since(hold.at) < LONGEST_WAIT && !is_counted(tx, &hold.agent, key)?
            } else {
                let here = hold.realm.boot == self.realm.boot;
                fresh && here && (hold.realm.pids != self.realm.pids || lives())
            };
            if !counts {
                tx.release_budget(&hold.call)?;
            } else if hold.waits {
                claims.is_waited_for |= (hold.at, hold.call.as_str()) < (asked.since, asked.call);
            } else if hold.key.is_some() {
                claims.ended.0 = claims.ended.0.saturating_add(hold.amount.0);
            } else {
                claims.under_way += 1;
                claims.reserved.0 = claims.reserved.0.saturating_add(hold.amount.0);
            }
        }
        Ok(claims)
    }
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

// What a call may cost, before it is made: the amount that is reserved for it.
//
// A call starts beside others only if everything reserved fits into what is left; else it waits and goes alone. Too low an estimate
// lets calls at the same moment exceed the budget by more than one of them; too high a one makes a call wait that could have gone.
// Hence:
// - With calls of the same model in the session: the most expensive of the last [`LATEST`]. A conversation grows slowly, so the
//   next call costs what the last ones did. The mean would be too low for every call that writes the cache anew.
// - Else the most that the request allows: four bytes a token (English and code have between three and a half and five), all of
//   them written to the cache, as the first call of a conversation does, and the longest answer that it asks for.
// - A model without a price does not count, so nothing is reserved for it.
// - A request that cannot be read (its body is too long, compressed in an unknown way, or comes only when asked for) has no
//   estimate: it needs all that is left.

/// Of the session's last calls, so many are looked at: a turn with tools makes about as many.
pub(super) const LATEST: u32 = 5;

const BYTES_PER_TOKEN: u64 = 4;
/// Where a request does not limit its answer (Codex's do not): the longest one that the vendors' current models give.
const LONGEST_ANSWER: u64 = 128_000;

/// What a request says about its cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestFacts {
    pub(super) model: Option<String>,
    bytes: u64,
    most_output: Option<u64>,
}

/// The fields of the three APIs that matter here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Body {
    model: Option<String>,
    max_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    #[serde(rename = "generationConfig")]
    generation: Generation,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Generation {
    #[serde(rename = "maxOutputTokens")]
    most: Option<u64>,
}

impl RequestFacts {
    /// A body that is no JSON says nothing but its size; one that is not known, nothing at all.
    pub(super) fn of(path: &str, body: Option<&[u8]>) -> Self {
        let Some(body) = body else { return Self::default() };
        let parsed: Body = serde_json::from_slice(body).unwrap_or_default();
        // Gemini's is in the address: `/v1beta/models/NAME:streamGenerateContent`.
        let in_path = || {
            let path = relay::meter::plain_path(path);
            let (_, rest) = path.rsplit_once("/models/")?;
            rest.split([':', '/']).next().filter(|name| !name.is_empty()).map(str::to_owned)
        };
        let most = [
            parsed.max_tokens,
            parsed.max_output_tokens,
            parsed.max_completion_tokens,
            parsed.generation.most,
        ];
        Self {
            model: parsed.model.or_else(in_path),
            bytes: body.len() as u64,
            most_output: most.into_iter().flatten().min(),
        }
    }

    /// `latest`: what the session's last calls of this model cost. `None`: nothing is known of it.
    pub(super) fn estimate(&self, prices: &PriceList, latest: &[PicoDollars]) -> Option<PicoDollars> {
        if let Some(most) = latest.iter().max() {
            return Some(*most);
        }
        let model = self.model.as_ref()?;
        let tokens = Tokens {
            cache_write_5m: self.bytes / BYTES_PER_TOKEN,
            output: self.most_output.unwrap_or(LONGEST_ANSWER),
            ..Tokens::default()
        };
        Some(prices.cost(model, &tokens, Tier::Standard).map_or(PicoDollars(0), |cost| cost.amount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{BudgetKey, BudgetScope, Per, Window};
    use config::budget::Kind;
    use store::Spent;

    const DOLLAR: i64 = 1_000_000_000_000;

    fn refused(which: BudgetKey, spent: i64, ended: i64) -> Refused {
        let now = Timestamp::parse("2026-11-17T12:00:00Z").unwrap();
        let window = Window::of(which.per, now, &TimeZone::UTC);
        let budget = Budget { which, limit: PicoDollars(20 * DOLLAR), enforce: true };
        let spent = Spent { cost: PicoDollars(spent), calls: 1, unpriced: 0 };
        let span = window.as_ref().map_or("id".to_owned(), |window| window.span.clone());
        let status = BudgetStatus { budget, span, window, session: None, spent, raised: PicoDollars(0) };
        Refused { status, ended: PicoDollars(ended) }
    }

    #[test]
    fn a_refusal_names_the_budget_the_amount_the_time_and_the_way_on() {
        let now = Timestamp::parse("2026-11-17T12:00:00Z").unwrap();
        let day = refused(BudgetKey { per: Per::Day, only: None }, 20 * DOLLAR + DOLLAR / 8, 0);
        assert_eq!(
            day.message(now, &TimeZone::UTC),
            "codemie: the day budget, $20.00, is used up: $20.13 spent; it begins anew Nov 18 00:00. Nothing was sent. \
             To go on, in another terminal: codemie budget raise day 5.13"
        );
        assert_eq!(day.retry_after(now), Some(Duration::from_hours(12)));
        let only = Some(BudgetScope { kind: Kind::Project, name: "my widgets".into() });
        let month = refused(BudgetKey { per: Per::Month, only }, 19 * DOLLAR, DOLLAR);
        assert_eq!(
            month.message(now, &TimeZone::UTC),
            "codemie: the month of project my widgets budget, $20.00, is used up: $20.00 spent; it begins anew Dec 01 00:00. \
             Nothing was sent. To go on, in another terminal: codemie budget raise month 5 --project 'my widgets'"
        );
    }

    #[test]
    fn a_call_starts_where_it_fits_waits_for_others_else_and_is_refused_when_nothing_is_left() {
        let claims = |ended, under_way, reserved| Claims {
            ended: PicoDollars(ended),
            under_way,
            reserved: PicoDollars(reserved),
            is_waited_for: false,
        };
        let start = |amount| Answer::Start(PicoDollars(amount));
        for (claims, left, estimate, expected, why) in [
            (claims(0, 0, 0), 10, Some(3), start(3), "the first"),
            (claims(0, 0, 0), 10, Some(30), start(30), "alone, though it may exceed the budget"),
            (claims(0, 0, 0), 10, None, start(10), "not known: alone"),
            (claims(0, 1, 7), 10, Some(3), start(3), "it just fits"),
            (claims(0, 1, 7), 10, Some(4), Answer::Wait, "it does not fit beside the other"),
            (claims(4, 1, 3), 10, Some(4), Answer::Wait, "what was just spent counts"),
            (claims(3, 1, 3), 10, Some(4), start(4), "and fits"),
            (claims(0, 1, 0), 10, None, Answer::Wait, "not known, and not alone"),
            (claims(0, 1, 30), 10, Some(0), Answer::Wait, "one that goes alone goes alone"),
            (claims(0, 1, 3), 10, Some(0), start(0), "a model without a price"),
            (claims(0, 0, 0), 0, Some(0), Answer::Refuse, "nothing is left"),
            (
                claims(10, 1, 3),
                10,
                Some(1),
                Answer::Refuse,
                "nothing is left when those that ended are stored",
            ),
            (claims(0, 2, 30), -5, Some(1), Answer::Refuse, "exceeded"),
        ] {
            let (left, estimate) = (PicoDollars(left), estimate.map(PicoDollars));
            assert_eq!(claims.answer(left, estimate), expected, "{why}");
            let waited_for = Claims { is_waited_for: true, ..claims }.answer(left, estimate);
            let expected = if expected == Answer::Refuse { Answer::Refuse } else { Answer::Wait };
            assert_eq!(waited_for, expected, "{why}, and one that came earlier waits");
        }
    }
}

#[cfg(test)]
mod estimate_tests {
    use super::*;

    #[test]
    fn the_model_and_the_longest_answer_are_found_in_each_apis_form() {
        for (path, body, model, most) in [
            (
                "/v1/messages",
                r#"{"model":"claude-opus-4-8","max_tokens":32000,"messages":[]}"#,
                Some("claude-opus-4-8"),
                Some(32_000),
            ),
            (
                "/responses",
                r#"{"model":"gpt-5.5","input":[],"max_output_tokens":7}"#,
                Some("gpt-5.5"),
                Some(7),
            ),
            (
                "/v1beta/models/gemini-2.5-pro:streamGenerateContent",
                r#"{"contents":[],"generationConfig":{"maxOutputTokens":9}}"#,
                Some("gemini-2.5-pro"),
                Some(9),
            ),
            (
                "/v1beta/%6dodels/gemini-2.5-pro%3AgenerateContent",
                r#"{"contents":[]}"#,
                Some("gemini-2.5-pro"),
                None,
            ),
            ("/v1/messages", "no json", None, None),
            ("/v1/messages", r#"{"model":7}"#, None, None),
            ("/v1/models/", "", None, None),
        ] {
            let facts = RequestFacts::of(path, Some(body.as_bytes()));
            assert_eq!((facts.model.as_deref(), facts.most_output), (model, most), "{body}");
            assert_eq!(facts.bytes, body.len() as u64);
        }
    }

    #[test]
    fn an_estimate_is_the_dearest_of_the_last_calls_else_the_most_that_the_request_allows() {
        let facts =
            RequestFacts { model: Some("claude-opus-4-8".into()), bytes: 40_000, most_output: Some(32_000) };
        let prices = PriceList::default();
        let latest = [PicoDollars(3), PicoDollars(9), PicoDollars(1)];
        assert_eq!(facts.estimate(&prices, &latest), Some(PicoDollars(9)));
        // 10,000 × 6.25 + 32,000 × 25 dollars per million tokens
        assert_eq!(facts.estimate(&prices, &[]), Some(PicoDollars(862_500_000_000)));
        let open = RequestFacts { most_output: None, ..facts.clone() };
        assert_eq!(open.estimate(&prices, &[]), Some(PicoDollars(3_262_500_000_000)));
        let unpriced = RequestFacts { model: Some("nobody-knows".into()), ..facts };
        assert_eq!(unpriced.estimate(&prices, &[]), Some(PicoDollars(0)));
        let unread = RequestFacts::of("/v1beta/models/gemini-2.5-pro:generateContent", None);
        assert_eq!(unread.estimate(&prices, &[]), None);
        assert_eq!(unread.estimate(&prices, &latest), Some(PicoDollars(9)));
    }
}
