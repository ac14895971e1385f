//! The line below Claude Code's prompt: what the session, its chain of `/clear`s and the day cost, how far the five-hour window,
//! the context and the budgets are used.
//!
//! It is asked for several times a minute, so it reads the store alone, by its indexes: nothing is recovered, scanned or written.
//! Whatever cannot be known is left out.

use std::path::PathBuf;

use jiff::tz::TimeZone;
use serde_json::Value;

use super::context::ContextFill;
use super::limits::windows;
use runtime::budget::{Budget, BudgetStatus, Subject, statuses};
use store::{self, SpentBy, View};
use types::{AgentSessionId, PicoDollars, Timestamp};

const HOUR: i64 = 3_600_000;
const QUARTER: i64 = HOUR / 4;

/// Of an hour: after a gap this long a call begins a window for certain.
const GAP: i64 = 21;

/// How far back a gap is looked for. Somebody who never pauses for five hours in two weeks gets a window that may begin at
/// another hour.
const LOOK_BACK: i64 = 14 * 24 * 4;

/// What Claude Code writes to the command's standard input, as far as it is used. Every field may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentStatus {
    pub session: Option<AgentSessionId>,
    /// Where the agent works now.
    pub folder: Option<PathBuf>,
    /// What it cost by the agent's own count, since its process began.
    pub cost: Option<PicoDollars>,
    /// In percent.
    pub context: Option<f64>,
    /// The five-hour window as the vendor reports it: percent used, and when it ends.
    pub window: Option<(f64, Option<Timestamp>)>,
}

impl AgentStatus {
    /// Whatever was written: a text that is no JSON says nothing.
    pub fn read(bytes: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
        let number =
            |pointer: &str| value.pointer(pointer).and_then(Value::as_f64).filter(|number| *number >= 0.0);
        let tokens = |name: &str| number(&format!("/context_window/current_usage/{name}"));
        let filled = || {
            let parts =
                ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"].map(tokens);
            let sum = parts.iter().any(Option::is_some).then(|| parts.into_iter().flatten().sum::<f64>())?;
            number("/context_window/context_window_size")
                .filter(|size| *size > 0.0)
                .map(|size| sum * 100.0 / size)
        };
        let resets_at = || {
            let seconds = value.pointer("/rate_limits/five_hour/resets_at")?.as_i64()?;
            Some(Timestamp(seconds.checked_mul(1000)?)).filter(|at| at.is_a_date())
        };
        Self {
            session: text("/session_id").filter(|id| !id.is_empty()).map(|id| AgentSessionId(id.to_owned())),
            folder: ["/workspace/current_dir", "/cwd"]
                .into_iter()
                .find_map(text)
                .map(PathBuf::from)
                .filter(|folder| folder.is_absolute()),
            cost: number("/cost/total_cost_usd").map(PicoDollars::from_dollars),
            context: number("/context_window/used_percentage")
                .or_else(filled)
                .filter(|percent| *percent <= 1000.0),
            window: number("/rate_limits/five_hour/used_percentage").map(|used| (used, resets_at())),
        }
    }
}

/// An amount, and whether there is more that has no price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    pub cost: PicoDollars,
    pub incomplete: bool,
}

impl Amount {
    /// Everything that was spent today.
    pub fn of_today(view: &View<'_>, now: Timestamp, zone: &TimeZone) -> Result<Self, store::Error> {
        let (begin, end) = day(now, zone);
        let today = view.spent(SpentBy::All, begin, end)?;
        Ok(Self { cost: today.cost, incomplete: today.unpriced > 0 })
    }
}

/// What is shown; `None` where it is not known, or says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusLine {
    pub session: Option<Amount>,
    /// Only where the chain has more than one session.
    pub chain: Option<Amount>,
    pub today: Option<Amount>,
    pub window: Option<Window>,
    pub context: Option<f64>,
    /// The same from the store, where the agent does not say it.
    pub recorded_context: Option<ContextFill>,
    /// The budget that is used most.
    pub budget: Option<(String, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    pub used: WindowUse,
    pub end: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowUse {
    /// As the vendor reports it.
    Percent(f64),
    /// As far as codemie knows.
    Cost(PicoDollars),
}

impl StatusLine {
    /// Without a store: what the agent itself says.
    pub fn of_agent(status: &AgentStatus) -> Self {
        Self {
            session: status.cost.map(|cost| Amount { cost, incomplete: false }),
            context: status.context,
            window: status.window.map(|(used, end)| Window { used: WindowUse::Percent(used), end }),
            ..Self::default()
        }
    }

    pub fn of(
        view: &View<'_>,
        agent: &str,
        status: &AgentStatus,
        budgets: &[Budget],
        now: Timestamp,
        zone: &TimeZone,
    ) -> Result<Self, store::Error> {
        let mut line = Self::of_agent(status);
        let id = status.session.as_ref();
        let row = id.map(|id| view.session_by_agent_session(agent, id)).transpose()?.flatten();
        if let Some(row) = &row {
            let own = view.spent_in_session(row.n)?;
            // The agent has shown its first answer before it is in its file.
            if own.calls > 0 || line.session.is_none() {
                line.session = Some(Amount { cost: own.cost, incomplete: own.unpriced > 0 });
            }
            let chain = view.spent_in_chain(row.n)?;
            if line.context.is_none() {
                line.recorded_context = ContextFill::of(view, row.n)?;
            }
            line.chain =
                (chain.sessions > 1).then_some(Amount { cost: chain.cost, incomplete: chain.unpriced });
        }
        line.today = Some(Amount::of_today(view, now, zone)?);
        if line.window.is_none() {
            line.window = running_window(view, agent, now)?;
        }
        if !budgets.is_empty() {
            let subject = match &row {
                Some(row) => Subject::of(view, row)?,
                None => Some(unknown(agent, status)),
            };
            let applying = |subject: Subject| statuses(view, budgets, Some(&subject), now, zone);
            line.budget = tightest(&subject.map_or(Ok(Vec::new()), applying)?);
        }
        Ok(line)
    }

    /// Puts the values into the places of a format. A value that is not known takes the text before it with it, so that no
    /// separator stands alone.
    pub fn fill(&self, format: &str, now: Timestamp) -> String {
        let mut text = String::new();
        let mut rest = format;
        let mut is_first = true;
        let mut any = false;
        let mut between = "";
        while let Some((place, before, after)) = next_place(rest) {
            if std::mem::take(&mut is_first) {
                // What stands before all values is always shown.
                text += before;
            } else if !before.is_empty() {
                between = before;
            }
            if let Some(value) = self.value(place, now) {
                text += if any { between } else { "" };
                text += &value;
                (any, between) = (true, "");
            }
            rest = after;
        }
        text + rest
    }

    fn value(&self, place: Place, now: Timestamp) -> Option<String> {
        let amount =
            |amount: Amount| format::dollars(amount.cost.0) + if amount.incomplete { "+" } else { "" };
        match place {
            Place::Session => self.session.map(|cost| format!("{} session", amount(cost))),
            Place::Chain => self.chain.map(|cost| format!("{} chain", amount(cost))),
            Place::Today => self.today.map(|cost| format!("{} today", amount(cost))),
            Place::Context => match self.context {
                Some(percent) => Some(format!("{percent:.0} % context")),
                None => self.recorded_context.map(|fill| format!("{} context", fill.in_short())),
            },
            Place::Budget => {
                self.budget.as_ref().map(|(name, percent)| format!("{percent} % of {name} budget"))
            }
            Place::Window => self.window.map(|window| {
                let used = match window.used {
                    WindowUse::Percent(percent) => format!("{percent:.0} % of 5h"),
                    WindowUse::Cost(cost) => format!("{} in 5h", format::dollars(cost.0)),
                };
                match window.end.filter(|end| *end > now) {
                    Some(end) => format!("{used}, {} left", format::duration(end.since(now))),
                    None => used,
                }
            }),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Session,
    Chain,
    Today,
    Window,
    Context,
    Budget,
}

const PLACES: [(&str, Place); 6] = [
    ("{session}", Place::Session),
    ("{chain}", Place::Chain),
    ("{today}", Place::Today),
    ("{window}", Place::Window),
    ("{context}", Place::Context),
    ("{budget}", Place::Budget),
];

/// The first place of a format, with the text before and after it. Braces that are none stay as they are.
fn next_place(format: &str) -> Option<(Place, &str, &str)> {
    let found = PLACES.iter().filter_map(|(name, place)| Some((format.find(name)?, name.len(), *place)));
    let (at, length, place) = found.min_by_key(|(at, ..)| *at)?;
    Some((place, &format[..at], &format[at + length..]))
}

/// The day's first moment, and the next one's.
fn day(now: Timestamp, zone: &TimeZone) -> (Timestamp, Timestamp) {
    let today = format::since::Since::DaysAgo(0);
    (today.before(now, zone), today.end(now, zone))
}

/// The five-hour window that runs now, from the sums by quarters of an hour.
fn running_window(view: &View<'_>, agent: &str, now: Timestamp) -> Result<Option<Window>, store::Error> {
    let slot = now.0.div_euclid(QUARTER);
    let mut spent = Vec::new();
    for (at, cost) in view.spent_by_quarter(agent, slot - LOOK_BACK)? {
        // A clock that was wrong, here or where the call was recorded: no window of now begins then.
        if at > slot {
            continue;
        }
        if spent.last().is_some_and(|(later, _)| later - at >= GAP) {
            break;
        }
        spent.push((at, cost));
    }
    spent.reverse();
    let begins = windows(spent.iter().map(|(at, _)| Timestamp(at * QUARTER)));
    let Some(begin) = begins.last().copied() else { return Ok(None) };
    let end = Timestamp(begin.0 + 5 * HOUR);
    if end <= now {
        return Ok(None);
    }
    let cost = spent.iter().filter(|(at, _)| at * QUARTER >= begin.0).map(|(_, cost)| cost.0).sum();
    Ok(Some(Window { used: WindowUse::Cost(PicoDollars(cost)), end: Some(end) }))
}

/// A conversation that codemie does not know: only its agent and its folder can have a budget.
fn unknown(agent: &str, status: &AgentStatus) -> Subject {
    match &status.folder {
        Some(folder) => Subject::in_folder(agent, folder),
        None => Subject::of_agent(agent),
    }
}

fn tightest(statuses: &[BudgetStatus]) -> Option<(String, i64)> {
    let most = statuses.iter().max_by_key(|status| status.percent())?;
    Some((most.budget.which.to_string(), most.percent()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_status_is_read_whatever_it_holds() {
        let whole = br#"{"session_id":"abc","cwd":"/w/old","workspace":{"current_dir":"/w/new"},"cost":{"total_cost_usd":0.5},"model":{"id":"x"},
            "context_window":{"used_percentage":42.6,"context_window_size":200000},
            "rate_limits":{"five_hour":{"used_percentage":23.5,"resets_at":1794900000}},"more":[1]}"#;
        let read = AgentStatus::read(whole);
        assert_eq!(read.session.unwrap().0, "abc");
        assert_eq!(read.folder, Some("/w/new".into()));
        assert_eq!(AgentStatus::read(br#"{"cwd":"/w/old","workspace":{}}"#).folder, Some("/w/old".into()));
        assert_eq!((read.cost, read.context), (Some(PicoDollars(500_000_000_000)), Some(42.6)));
        assert_eq!(read.window, Some((23.5, Some(Timestamp(1_794_900_000_000)))));
        let older = br#"{"context_window":{"context_window_size":200000,"current_usage":{"input_tokens":1000,
            "cache_creation_input_tokens":9000,"cache_read_input_tokens":40000}}}"#;
        assert_eq!(AgentStatus::read(older).context, Some(25.0));
        for odd in [
            &b""[..],
            b"{",
            b"null",
            b"[]",
            b"\xff",
            br#"{"session_id":7,"cwd":"relative","workspace":7,"cost":"much","context_window":[],"rate_limits":{"five_hour":3}}"#,
            br#"{"session_id":"","cost":{"total_cost_usd":-1},"context_window":{"context_window_size":0,"current_usage":{"input_tokens":1}}}"#,
        ] {
            assert_eq!(AgentStatus::read(odd), AgentStatus::default(), "{}", String::from_utf8_lossy(odd));
        }
    }

    fn line() -> StatusLine {
        let amount =
            |dollars: i64| Some(Amount { cost: PicoDollars(dollars * 1_000_000_000_000), incomplete: false });
        StatusLine {
            session: amount(1),
            chain: amount(2),
            today: Some(Amount { cost: PicoDollars(3_500_000_000_000), incomplete: true }),
            window: Some(Window {
                used: WindowUse::Cost(PicoDollars(3_000_000_000_000)),
                end: Some(Timestamp(9_600_000)),
            }),
            context: Some(41.7),
            recorded_context: None,
            budget: Some(("day".into(), 81)),
        }
    }

    #[test]
    fn values_stand_in_their_places_and_no_separator_stands_alone() {
        let all = "{session} | {chain} | {today} | {window} | {context} | {budget}";
        let full = line();
        let none = StatusLine::default();
        let few = StatusLine { chain: None, window: None, budget: None, ..line() };
        let recorded = |percent| StatusLine {
            recorded_context: Some(ContextFill { tokens: 84_200, percent }),
            ..StatusLine::default()
        };
        let (by_window, by_tokens) = (recorded(Some(42)), recorded(None));
        for (line, format, expected) in [
            (
                &full,
                all,
                "$1.00 session | $2.00 chain | $3.50+ today | $3.00 in 5h, 2h 40m left | 42 % context | 81 % of day budget",
            ),
            (&few, all, "$1.00 session | $3.50+ today | 42 % context"),
            (&none, all, ""),
            (&by_window, all, "42 % context"),
            (&by_tokens, all, "84.2k context"),
            (&full, "", ""),
            (&full, "plain {text}", "plain {text}"),
            (&few, "[{chain}/{session}]", "[$1.00 session]"),
            (&none, "<{chain}>", "<>"),
            (&full, "{today}{session}", "$3.50+ today$1.00 session"),
        ] {
            assert_eq!(line.fill(format, Timestamp(0)), expected, "{format}");
        }
    }

    #[test]
    fn a_window_that_the_vendor_reports_is_shown_in_percent() {
        let status = AgentStatus { window: Some((23.5, Some(Timestamp(60_000)))), ..AgentStatus::default() };
        let line = StatusLine::of_agent(&status);
        assert_eq!(line.fill("{window}", Timestamp(0)), "24 % of 5h, 1m 00s left");
        assert_eq!(line.fill("{window}", Timestamp(60_000)), "24 % of 5h");
    }

    #[test]
    fn a_session_and_its_chain_over_clears() {
        use store::session::lifecycle::ConversationStart;
        use store::session::testing::{World, agent_session, usage};
        use types::TransitionKind;

        let mut world = World::new();
        let call = |key: &str, at| {
            let mut call = usage(key, at, 1);
            call.cost = Some(PicoDollars(1_000_000_000_000));
            call
        };
        let (run, first) = world.start(ConversationStart::Fresh);
        world.bind(first.session, "a").unwrap();
        world.feed(first.session, 1, &[call("m1", world.now)]);
        let mut names = vec!["a".to_owned()];
        for number in 2..=4_u64 {
            let name = format!("s{number}");
            let next = world.transition(run, TransitionKind::Clear, Some(&name)).unwrap().new.session;
            let calls: Vec<_> = (0..number).map(|n| call(&format!("{name}-{n}"), world.now)).collect();
            world.feed(next, number, &calls);
            names.push(name);
        }
        // Back to the first one: the chain is the same.
        world.transition(run, TransitionKind::Switch, Some("a")).unwrap();
        let (_, other) = world.start(ConversationStart::Fresh);
        world.bind(other.session, "other").unwrap();
        world.feed(other.session, 9, &[call("o1", world.now)]);
        let now = world.wait(1000);
        let mut line = |id: &str| {
            let status = AgentStatus { session: Some(agent_session(id)), ..AgentStatus::default() };
            let line =
                world.store.read(|view| StatusLine::of(view, "claude", &status, &[], now, &TimeZone::UTC));
            line.unwrap()
        };
        let dollars = |amount: Option<Amount>| amount.map(|amount| amount.cost.0 / 1_000_000_000_000);
        for (id, own) in [("a", 1), ("s2", 2), ("s3", 3), ("s4", 4)] {
            let line = line(id);
            assert_eq!((dollars(line.session), dollars(line.chain)), (Some(own), Some(10)), "{id}");
        }
        let alone = line("other");
        assert_eq!((dollars(alone.session), alone.chain), (Some(1), None), "a chain of one says nothing new");
        assert_eq!(dollars(alone.today), Some(11));
        assert_eq!(
            alone.window.map(|window| window.used),
            Some(WindowUse::Cost(PicoDollars(11_000_000_000_000)))
        );
        let unknown = line("never seen");
        assert_eq!((unknown.session, dollars(unknown.today)), (None, Some(11)));
    }

    #[test]
    fn a_call_of_the_future_begins_no_window_of_now() {
        use store::session::lifecycle::ConversationStart;
        use store::session::testing::{World, usage};

        let mut world = World::new();
        let (_, started) = world.start(ConversationStart::Fresh);
        world.bind(started.session, "a").unwrap();
        let call = |world: &mut World, n: u64, at: Timestamp| {
            let mut call = usage(&format!("m{n}"), at, 1);
            call.cost = Some(PicoDollars(1_000_000_000_000));
            world.feed(started.session, n, &[call]);
        };
        let now = world.now;
        let window =
            |world: &mut World| world.store.read(|view| running_window(view, "claude", now)).unwrap();
        call(&mut world, 1, Timestamp(now.0 + 400 * 24 * HOUR));
        assert_eq!(window(&mut world).map(|window| window.used), None);
        call(&mut world, 2, now);
        let found = window(&mut world).unwrap();
        assert_eq!(found.used, WindowUse::Cost(PicoDollars(1_000_000_000_000)), "that one alone");
        assert!(found.end.is_some_and(|end| end > now && end.0 <= now.0 + 5 * HOUR));
    }

    #[test]
    fn an_unknown_session_shows_only_budgets_that_apply_to_it() {
        use runtime::budget::{BudgetKey, BudgetScope, Kind, Per};
        use store::session::lifecycle::ConversationStart;
        use store::session::testing::{World, agent_session, usage};

        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("elsewhere");
        std::fs::create_dir_all(folder.join(".git")).unwrap();
        std::fs::write(folder.join(".git/HEAD"), "ref: refs/heads/topic\n").unwrap();
        let mut world = World::new();
        let (_, spender) = world.start(ConversationStart::Fresh);
        world.bind(spender.session, "spender").unwrap();
        let mut call = usage("m1", world.now, 1);
        call.cost = Some(PicoDollars(1_000_000_000_000));
        world.feed(spender.session, 1, &[call]);
        let row = world.session(spender.session);
        let (agent, now) = (row.agent.clone(), world.wait(1000));
        let project = row.workspace.project.clone().unwrap();
        let branch = row.workspace.branch.clone().unwrap();
        let mut shown = |only: Option<(Kind, &str)>, session: &str, folder: Option<PathBuf>| {
            let only = only.map(|(kind, name)| BudgetScope { kind, name: name.into() });
            let which = BudgetKey { per: Per::Day, only };
            let limit = PicoDollars(2_000_000_000_000);
            let budgets = [Budget { which, limit, enforce: false }];
            let status =
                AgentStatus { session: Some(agent_session(session)), folder, ..AgentStatus::default() };
            let line =
                world.store.read(|view| StatusLine::of(view, &agent, &status, &budgets, now, &TimeZone::UTC));
            line.unwrap().budget.map(|(_, percent)| percent)
        };
        let here = || Some(folder.clone());
        for (only, session, at, expected) in [
            (None, "unknown", None, Some(50)),
            (Some((Kind::Agent, &*agent)), "unknown", None, Some(50)),
            (Some((Kind::Agent, "codex")), "unknown", here(), None),
            (Some((Kind::Project, &*project)), "spender", here(), Some(50)),
            (Some((Kind::Project, &*project)), "unknown", here(), None),
            (Some((Kind::Branch, &*branch)), "unknown", here(), None),
            (Some((Kind::Project, "elsewhere")), "unknown", here(), Some(0)),
            (Some((Kind::Project, "elsewhere")), "unknown", Some(folder.join("deep")), Some(0)),
            (Some((Kind::Branch, "topic")), "unknown", here(), Some(0)),
            (Some((Kind::Branch, "topic")), "unknown", None, None),
            (Some((Kind::Tag, "urgent")), "unknown", here(), None),
        ] {
            assert_eq!(shown(only, session, at), expected, "{only:?} {session}");
        }
    }

    #[test]
    fn nothing_that_is_asked_goes_through_a_whole_table() {
        use store::session::testing::World;
        let world = World::new();
        for sql in store::chain_queries() {
            let mut plan = world.store.sql().prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let count = plan.parameter_count();
            let steps =
                plan.query_map(rusqlite::params_from_iter(vec![0; count]), |row| row.get::<_, String>(3));
            for step in steps.unwrap().map(Result::unwrap) {
                let table = ["session", "opening", "record", "total", "spent", "s ", "o ", "p ", "t "];
                let scans = step.starts_with("SCAN") && table.iter().any(|name| step[5..].starts_with(name));
                assert!(!scans, "{step}");
            }
        }
    }
}
