//! `codemie budget show|set|unset|raise`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use jiff::tz::TimeZone;

use super::list::project;
use super::{Failure, USAGE};
use crate::cli::{self, BudgetAction};
use agents::registry;
use config::{Config, edit};
use format::counted;
use format::output::table::{Cell, Column, Table};
use format::output::{Colour, Style, json};
use os::clock::{Clock, SystemClock};
use os::home::{Home, own_var};
use pty::process::{Processes, SystemProcesses};
use report::budget::{self, BudgetRecord};
use report::find;
use report::open::{open, open_existing};
use runtime::budget::{Budget, BudgetKey, BudgetStatus, Per, Subject, Window, raise_command, status};
use runtime::launch::{Origin, lineage};
use store::{BootAndPidNs, RunRow, SessionRow, Store, View};
use types::{PicoDollars, Pid, Timestamp};

pub fn run(args: &cli::Budget, home: &Home, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let config = Config::load(Some(&home.config_file()), own_var, registry::names());
    match &args.action {
        None => show(&config.budgets, home, false, out)?,
        Some(BudgetAction::Show { json }) => show(&config.budgets, home, *json, out)?,
        Some(BudgetAction::Set { per, usd, only, enforce }) => {
            let budget = Budget { which: only.of(*per, project), limit: *usd, enforce: *enforce };
            let known = config.budgets.iter().find(|known| known.which == budget.which);
            if known.is_some_and(|known| loosens(known, Some(&budget))) {
                refuse_inside_a_run(home, "loosen an enforced budget")?;
            }
            edit::set_budget(&home.config_file(), &budget)?;
            writeln!(out, "{}", stated(&budget))?;
        }
        Some(BudgetAction::Unset { per, only }) => {
            let which = only.of(*per, project);
            let known = config.budgets.iter().find(|known| known.which == which);
            if known.is_some_and(|known| loosens(known, None)) {
                refuse_inside_a_run(home, "remove an enforced budget")?;
            }
            if !edit::unset_budget(&home.config_file(), &which)? {
                return Err(no_such_budget(&which, &config.budgets));
            }
            forget_raises(&which, home)?;
            writeln!(out, "{which}: no budget any more")?;
        }
        Some(BudgetAction::Raise { per, amount, only, session }) => {
            refuse_inside_a_run(home, "raise a budget")?;
            let mut store = open(home)?;
            let runs = store.read(|view| view.live_runs())?;
            if !has_own_terminal(
                &TerminalSession::of_this_process(),
                &runs,
                &BootAndPidNs::here(),
                &SystemProcesses,
            ) {
                let message = "a budget is raised by a person, in a terminal of their own: here is none";
                return Err(Failure { code: USAGE, message: message.to_owned() }.into());
            }
            let wanted = match per {
                Some(per) => vec![find_budget(&config.budgets, &only.of(*per, project))?],
                None => config.budgets.iter().filter(|budget| budget.enforce).collect(),
            };
            let raise = Raise { wanted, any: per.is_none(), amount: *amount, session: session.as_deref() };
            for line in raise.carry_out(&mut store, SystemClock.now(), &os::zone::local())? {
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A raise belongs to the budget it was made for, not to one of the same name that is set later.
fn forget_raises(which: &BudgetKey, home: &Home) -> anyhow::Result<()> {
    if home.may_have_database() {
        open(home)?.write(|tx| tx.forget_budget_raises(&which.to_string()))?;
    }
    Ok(())
}

/// Whether more can be spent than before.
fn loosens(known: &Budget, new: Option<&Budget>) -> bool {
    known.enforce && new.is_none_or(|new| !new.enforce || new.limit > known.limit)
}

fn stated(budget: &Budget) -> String {
    let limit = format::dollars(budget.limit.0);
    let enforced = if budget.enforce {
        "; runs that begin from now on go through the proxy, which refuses calls beyond it"
    } else {
        ""
    };
    format!("{}: {limit}{enforced}", budget.which)
}

fn no_such_budget(which: &BudgetKey, budgets: &[Budget]) -> anyhow::Error {
    let known: Vec<String> = budgets.iter().map(|budget| budget.which.to_string()).collect();
    let known = if known.is_empty() {
        "there is none".to_owned()
    } else {
        format!("there are: {}", known.join(", "))
    };
    Failure { code: USAGE, message: format!("there is no budget {which}; {known}") }.into()
}

fn find_budget<'a>(budgets: &'a [Budget], which: &BudgetKey) -> anyhow::Result<&'a Budget> {
    budgets.iter().find(|budget| budget.which == *which).ok_or_else(|| no_such_budget(which, budgets))
}

/// What a person decides is not decided by an agent. Whose process this is, is known by its ancestors: one of them is the wrapper
/// of a live run. (It guards against a mistake, not against malice: what can edit files can edit config.toml.)
pub(super) fn refuse_inside_a_run(home: &Home, what: &str) -> anyhow::Result<()> {
    let Some(mut store) = open_existing(home)? else { return Ok(()) };
    let runs = store.read(|view| view.live_runs())?;
    if lineage(&Origin::of_this_process()).enclosing(&runs, &BootAndPidNs::here()).is_some() {
        let message =
            format!("cannot {what} from inside a run: that is for a person, in a terminal of their own");
        return Err(Failure { code: USAGE, message }.into());
    }
    Ok(())
}

/// The session of processes that belongs to a controlling terminal.
struct TerminalSession {
    leader: Option<Pid>,
}

impl TerminalSession {
    fn of_this_process() -> Self {
        let own = Pid(std::process::id().cast_signed());
        // Only who has a controlling terminal can open it by this name.
        #[expect(
            clippy::disallowed_methods,
            reason = "a device of the kernel's own: nobody else can put anything there"
        )]
        let has_terminal = std::fs::File::open("/dev/tty").is_ok();
        Self { leader: has_terminal.then(|| SystemProcesses.session_leader(own)).flatten() }
    }
}

/// Whether there is a controlling terminal, and it is not one that a live run gave its agent. What an agent starts apart from itself
/// (a daemon, `setsid`) has none, though no ancestor shows whose it is.
fn has_own_terminal(
    own: &TerminalSession,
    runs: &[RunRow],
    here: &BootAndPidNs,
    processes: &dyn Processes,
) -> bool {
    let Some(leader) = own.leader else { return false };
    let gave_its_agent = |run: &RunRow| {
        let of_agent = run.agent.and_then(|agent| processes.session_leader(agent));
        // An agent without a terminal of its own is in its wrapper's session, which may be a person's.
        of_agent == Some(leader) && processes.session_leader(run.wrapper.pid) != of_agent
    };
    !runs.iter().any(|run| run.realm == *here && gave_its_agent(run))
}

/// An amount to be added.
struct Raise<'a> {
    wanted: Vec<&'a Budget>,
    /// None was named: those of them that are used up.
    any: bool,
    amount: PicoDollars,
    session: Option<&'a str>,
}

impl Raise<'_> {
    /// One line for each budget.
    fn carry_out(&self, store: &mut Store, now: Timestamp, zone: &TimeZone) -> anyhow::Result<Vec<String>> {
        let origin = Origin::of_this_process();
        let named =
            self.session.map(|wanted| store.read(|view| find::session(view, wanted, &origin))).transpose()?;
        let statuses = store.read(|view| self.statuses(view, named.as_ref(), now, zone))?;
        let mut lines = Vec::new();
        for status in statuses {
            let which = status.budget.which.to_string();
            let alone =
                named.as_ref().map(|row| row.id).or(status.session.as_ref().map(|session| session.id));
            store.write(|tx| tx.raise_budget(&which, &status.span, alone, self.amount, now))?;
            lines.push(self.said(&status, named.as_ref(), now, zone));
        }
        if lines.is_empty() {
            bail!("no enforced budget is used up; name the one to raise: codemie budget raise day 5");
        }
        Ok(lines)
    }

    fn statuses(
        &self,
        view: &View<'_>,
        named: Option<&SessionRow>,
        now: Timestamp,
        zone: &TimeZone,
    ) -> anyhow::Result<Vec<BudgetStatus>> {
        let subject = named.map(|row| Subject::of(view, row)).transpose()?.flatten();
        let mut all = Vec::new();
        for budget in &self.wanted {
            let found = match (budget.which.per, &subject) {
                (Per::Session, None) => budget::all(view, std::slice::from_ref(budget), now, zone)?,
                (_, subject) => status(view, budget, subject.as_ref(), now, zone)?.into_iter().collect(),
            };
            all.extend(found.into_iter().filter(|status| !self.any || status.left().0 <= 0));
            if !self.any && budget.which.per == Per::Session && subject.is_none() {
                all.retain(|status| status.left().0 <= 0);
                if all.is_empty() {
                    let command = raise_command(&budget.which, Some("SESSION"), &human_amount(self.amount));
                    bail!("no running session has used up its budget; name one: {command}");
                }
            }
            if !self.any && all.is_empty() {
                let name = named.map_or("it", |row| row.name.as_str());
                bail!("{name} does not count towards the budget {}", budget.which);
            }
        }
        Ok(all)
    }

    fn said(
        &self,
        status: &BudgetStatus,
        named: Option<&SessionRow>,
        now: Timestamp,
        zone: &TimeZone,
    ) -> String {
        let limit = format::dollars(status.limit().0.saturating_add(self.amount.0));
        let spent = format::dollars(status.spent.cost.0);
        let session = named.map(|row| row.name.as_str());
        let session = session.or(status.session.as_ref().map(|session| session.name.as_str()));
        let of = session.map_or(String::new(), |name| format!(", for {name} alone"));
        let until = status.window.as_ref().map(|Window { end, .. }| format::moment(*end, now, zone));
        let until = until.map_or(String::new(), |end| format!(", until {end}"));
        format!("{}: {limit}{of}{until}; {spent} spent", status.budget.which)
    }
}

fn human_amount(amount: PicoDollars) -> String {
    amount.to_string()
}

fn show(budgets: &[Budget], home: &Home, as_json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let (now, zone) = (SystemClock.now(), os::zone::local());
    let read = |view: &View<'_>| {
        Ok::<_, store::Error>((budget::all(view, budgets, now, &zone)?, budget::not_enforced(view, budgets)?))
    };
    let statuses = match open_existing(home)? {
        Some(mut store) => store.read(read),
        None if budgets.is_empty() => Ok(Default::default()),
        None => open(home)?.read(read),
    };
    let (statuses, not_enforced) = statuses.context("the budgets cannot be counted")?;
    if as_json {
        let records: Vec<BudgetRecord> = statuses.iter().map(BudgetRecord::from).collect();
        out.write_all(json::pretty(&records)?.as_bytes())?;
        return Ok(());
    }
    let style = Style::of_stdout();
    out.write_all(drawn(budgets, &statuses, now, &zone, style).as_bytes())?;
    if !not_enforced.is_empty() {
        out.write_all(style.fold(&budget::not_enforced_words(&not_enforced)).as_bytes())?;
    }
    Ok(())
}

fn drawn(
    budgets: &[Budget],
    statuses: &[BudgetStatus],
    now: Timestamp,
    zone: &TimeZone,
    style: Style,
) -> String {
    if budgets.is_empty() {
        return style.fold("No budgets. `codemie budget set day 20` sets one.");
    }
    let raised = statuses.iter().any(|status| status.raised.0 > 0);
    let mut columns = vec![
        Column::text("BUDGET", 12),
        Column::number("LIMIT"),
        Column::number("SPENT"),
        Column::number("%"),
        Column::number("LEFT").dispensable(2),
    ];
    columns.extend(raised.then(|| Column::number("RAISED BY").dispensable(4)));
    columns.extend([
        Column::text("BEGINS ANEW", usize::MAX).dispensable(3),
        Column::text("ENFORCED", usize::MAX).dispensable(1),
    ]);
    let mut table = Table::new(columns);
    let amounts = |of: fn(&BudgetStatus) -> PicoDollars| {
        format::column(&statuses.iter().map(|status| (of(status).0, false)).collect::<Vec<_>>())
    };
    let (limits, spent, left) =
        (amounts(BudgetStatus::limit), amounts(|status| status.spent.cost), amounts(BudgetStatus::left));
    let amounts = limits.into_iter().zip(spent).zip(left);
    for (status, ((limit, spent), left)) in statuses.iter().zip(amounts) {
        let which = match &status.session {
            Some(session) => format!("{} {}", status.budget.which, session.name),
            None => status.budget.which.to_string(),
        };
        let percent = status.percent();
        let mut cells: Vec<Cell<'_>> = vec![
            which.into(),
            limit.into(),
            spent.into(),
            Cell::painted(percent.to_string(), colour(percent)),
            left.into(),
        ];
        cells.extend(raised.then(|| {
            if status.raised.0 > 0 { format::dollars(status.raised.0) } else { String::new() }.into()
        }));
        let anew = status.window.as_ref().map(|window| format::moment(window.end, now, zone));
        cells
            .extend([anew.unwrap_or_default().into(), if status.budget.enforce { "yes" } else { "" }.into()]);
        table.row(cells);
    }
    let mut text = if statuses.is_empty() { String::new() } else { table.render(style) };
    let idle: Vec<&Budget> = budgets
        .iter()
        .filter(|budget| statuses.iter().all(|shown| shown.budget.which != budget.which))
        .collect();
    for budget in idle {
        text += &style.fold(&format!(
            "{}: {}; no session runs that it is for.",
            budget.which,
            format::dollars(budget.limit.0)
        ));
    }
    if let Some(unpriced) = statuses.iter().map(|status| status.spent.unpriced).max().filter(|most| *most > 0)
    {
        let calls = counted(usize::try_from(unpriced).unwrap_or(usize::MAX), "call");
        let which = if unpriced == 1 { "has no price and is" } else { "have no price and are" };
        text += &style.fold(&format!("{calls} {which} not counted; `codemie prices` shows which models have one, [prices.MODEL] in config.toml sets one."));
    }
    text
}

/// Of a percentage of a budget.
pub(super) fn colour(percent: i64) -> Colour {
    match percent {
        runtime::budget::REACHED.. => Colour::Bad,
        runtime::budget::NEAR.. => Colour::Warning,
        _ => Colour::Good,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::budget::{BudgetScope, Kind};
    use store::session::absorb::take_records;
    use store::session::lifecycle::{self, ConversationStart};
    use store::session::testing::{World, binding, usage};

    const DOLLAR: i64 = 1_000_000_000_000;

    fn budget(per: Per, project: Option<&str>, dollars: i64, enforce: bool) -> Budget {
        let only = project.map(|name| BudgetScope { kind: Kind::Project, name: name.into() });
        Budget { which: BudgetKey { per, only }, limit: PicoDollars(dollars * DOLLAR), enforce }
    }

    /// A session that has spent 17 dollars.
    fn world() -> World {
        let mut world = World::new();
        let mut begin = world.begin(ConversationStart::Fresh);
        begin.name = Some("fix".into());
        let (_, started) = world.start_as(&begin);
        let at = world.now;
        world
            .store
            .write(|tx| {
                lifecycle::bind(tx, at, &world.ids, started.session, &binding("one"))?;
                let row = tx.session(started.session)?.unwrap();
                let unpriced = store::Priced { cost: None, prices: None, ..usage("b", at, 1) };
                take_records(tx, at, &row, &[usage("a", at, 17_000_000), unpriced])
            })
            .unwrap();
        world
    }

    #[test]
    fn a_table_shows_what_is_spent_what_is_left_and_what_is_not_counted() {
        let mut world = world();
        let now = world.now;
        let budgets = [
            budget(Per::Day, None, 20, true),
            budget(Per::Month, Some("other"), 300, false),
            budget(Per::Session, None, 10, false),
            budget(Per::Session, Some("other"), 1, false),
        ];
        let raise = PicoDollars(5 * DOLLAR);
        world.store.write(|tx| tx.raise_budget("day", "2026-11-16", None, raise, now)).unwrap();
        let statuses = world.store.read(|view| budget::all(view, &budgets, now, &TimeZone::UTC)).unwrap();
        let style = Style { colour: false, columns: 120 };
        assert_eq!(
            drawn(&budgets, &statuses, now, &TimeZone::UTC, style),
            "\
BUDGET                    LIMIT   SPENT    %     LEFT  RAISED BY  BEGINS ANEW   ENFORCED
day                      $25.00  $17.00   68    $8.00      $5.00  Nov 17 00:00  yes
month of project other  $300.00   $0.00    0  $300.00             Dec 01 00:00
session fix              $10.00  $17.00  170   -$7.00
session of project other: $1.00; no session runs that it is for.
1 call has no price and is not counted; `codemie prices` shows which models have one, [prices.MODEL] in config.toml sets
  one.
"
        );
        let records = serde_json::to_value(BudgetRecord::from(&statuses[1])).unwrap();
        assert_eq!(
            (&records["project"], &records["percent"], &records["level"]),
            (&"other".into(), &0.into(), &"within".into())
        );
        let none = drawn(&[], &[], now, &TimeZone::UTC, style);
        assert_eq!(none, "No budgets. `codemie budget set day 20` sets one.\n");
    }

    #[test]
    fn a_raise_holds_for_the_window_or_for_one_session() {
        let mut world = world();
        let now = world.now;
        let (day, session) = (budget(Per::Day, None, 17, true), budget(Per::Session, None, 17, true));
        let mut raise = |wanted: Vec<&Budget>, any, named| {
            let raise = Raise { wanted, any, amount: PicoDollars(5 * DOLLAR), session: named };
            raise.carry_out(&mut world.store, now, &TimeZone::UTC).map_err(|error| error.to_string())
        };
        assert_eq!(
            raise(vec![&day, &session], true, None).unwrap(),
            ["day: $22.00, until Nov 17 00:00; $17.00 spent", "session: $22.00, for fix alone; $17.00 spent"]
        );
        assert_eq!(
            raise(vec![&day, &session], true, None).unwrap_err(),
            "no enforced budget is used up; name the one to raise: codemie budget raise day 5"
        );
        assert_eq!(
            raise(vec![&day], false, Some("fix")).unwrap(),
            ["day: $27.00, for fix alone, until Nov 17 00:00; $17.00 spent"]
        );
        assert_eq!(
            raise(vec![&session], false, None).unwrap_err(),
            "no running session has used up its budget; name one: codemie budget raise session 5 --session SESSION"
        );
        let other = budget(Per::Day, Some("other"), 17, true);
        assert_eq!(
            raise(vec![&other], false, Some("fix")).unwrap_err(),
            "fix does not count towards the budget day of project other"
        );
    }

    #[test]
    fn sessions_that_an_enforced_budget_cannot_stop_are_named() {
        let mut world = world();
        let mut named =
            |budgets: &[Budget]| world.store.read(|view| budget::not_enforced(view, budgets)).unwrap();
        assert_eq!(named(&[budget(Per::Day, None, 1, true)]), ["fix"]);
        assert!(named(&[budget(Per::Day, None, 1, false)]).is_empty());
        assert!(named(&[budget(Per::Day, Some("other"), 1, true)]).is_empty());
        assert_eq!(
            budget::not_enforced_words(&["fix".into()]),
            "not enforced: fix runs without the proxy; `codemie explain fix` shows why"
        );
    }

    /// Wrapper 10 in a person's session 5, its monitor 11 and its agent 12 in one of their own; wrapper 20 and its agent 21 without
    /// a terminal, in session 6.
    struct Sessions;

    impl Processes for Sessions {
        fn start_time(&self, _pid: Pid) -> Option<types::StartTime> {
            None
        }

        fn parent(&self, _pid: Pid) -> Option<Pid> {
            None
        }

        fn session_leader(&self, pid: Pid) -> Option<Pid> {
            let leader =
                [(10, 5), (11, 11), (12, 11), (20, 6), (21, 6)].iter().find(|(known, _)| *known == pid.0);
            leader.map(|(_, leader)| Pid(*leader))
        }
    }

    #[test]
    fn a_terminal_is_ones_own_unless_a_live_run_gave_it_to_its_agent() {
        let mut world = world();
        let row = world.store.read(|view| view.live_runs()).unwrap().remove(0);
        let here = row.realm.clone();
        let run = |wrapper, agent, realm: &BootAndPidNs| RunRow {
            wrapper: types::ProcessId { pid: Pid(wrapper), start: types::StartTime(1) },
            agent: Some(Pid(agent)),
            realm: realm.clone(),
            ..row.clone()
        };
        let runs = [run(10, 12, &here), run(20, 21, &here)];
        for (leader, expected, why) in [
            (None, false, "no terminal"),
            (Some(5), true, "where the wrapper was started"),
            (Some(6), true, "where an agent without a terminal was started"),
            (Some(11), false, "the agent's"),
            (Some(77), true, "another"),
        ] {
            let own = TerminalSession { leader: leader.map(Pid) };
            assert_eq!(has_own_terminal(&own, &runs, &here, &Sessions), expected, "{why}");
        }
        let elsewhere = [run(10, 12, &BootAndPidNs { pids: "another".into(), ..here.clone() })];
        let own = TerminalSession { leader: Some(Pid(11)) };
        assert!(
            has_own_terminal(&own, &elsewhere, &here, &Sessions),
            "pids of another namespace mean nothing"
        );
    }

    #[test]
    fn only_what_lets_more_be_spent_is_loosening() {
        let known = budget(Per::Day, None, 20, true);
        assert!(loosens(&known, None));
        assert!(loosens(&known, Some(&Budget { enforce: false, ..known.clone() })));
        assert!(loosens(&known, Some(&budget(Per::Day, None, 21, true))));
        assert!(!loosens(&known, Some(&budget(Per::Day, None, 19, true))));
        assert!(!loosens(&Budget { enforce: false, ..known }, None));
    }
}
