//! Amounts that a user wants to keep to: `[[budget]]` in the file.

use std::fmt;

use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::Settings;
use super::keys::nearest;
use types::{PicoDollars, spelled};

/// The name of the tables.
pub(super) const TABLES: &str = "budget";
const KEYS: &[&str] = &["per", "usd", "enforce", "agent", "project", "branch", "tag"];

/// Less than what 64 bits of pico-dollars hold, so that sums never reach the end.
const MOST: PicoDollars = PicoDollars(1_000_000 * 1_000_000_000_000);

spelled!(
    /// What an amount is for.
    Per { Session = "session", Day = "day", Week = "week", Month = "month" }
);

spelled!(
    /// By what a budget may be narrowed.
    Kind { Agent = "agent", Project = "project", Branch = "branch", Tag = "tag" }
);

/// An amount of dollars per session or per day, week or month of the calendar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    pub which: BudgetKey,
    pub limit: PicoDollars,
    /// Whether the proxy refuses calls beyond it.
    pub enforce: bool,
}

impl Budget {
    /// Whether calls of an agent may be refused by it. What else they are (project, branch, tags) may change while it runs.
    pub fn may_refuse(&self, agent: &str) -> bool {
        let of_another = |only: &BudgetScope| only.kind == Kind::Agent && only.name != agent;
        self.enforce && !self.which.only.as_ref().is_some_and(of_another)
    }
}

/// By what a budget is told from others: there is one for each.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BudgetKey {
    pub per: Per,
    /// `None`: everything counts.
    pub only: Option<BudgetScope>,
}

/// The part of all calls that counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BudgetScope {
    pub kind: Kind,
    pub name: String,
}

/// `day`, `month of project widgets`: as people read it, and as the store names it.
impl fmt::Display for BudgetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.only {
            None => self.per.fmt(f),
            Some(BudgetScope { kind, name }) => write!(f, "{} of {kind} {name}", self.per),
        }
    }
}

/// An amount as people write it: `20`, `0.10`, `$5`. Exact to a millionth of a dollar.
pub fn dollars(text: &str) -> Result<PicoDollars, String> {
    let expected = || "write an amount of dollars like 20 or 0.50".to_owned();
    let text = text.trim();
    let text = text.strip_prefix('$').unwrap_or(text);
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() && part.is_empty() || !digits(whole) || !digits(part) || part.len() > 6 {
        return Err(expected());
    }
    let micro = format!("{whole}{part:0<6}").parse::<i64>().map_err(|_| expected())?;
    limit(PicoDollars(micro.saturating_mul(1_000_000))).ok_or_else(expected)
}

fn limit(amount: PicoDollars) -> Option<PicoDollars> {
    (amount.0 > 0 && amount <= MOST).then_some(amount)
}

/// The budgets of the file. One that cannot be read, or that is there twice, is left out and reported.
pub(super) fn read<V>(settings: &mut Settings<V>, agents: &[&str]) -> Vec<Budget>
where
    V: Fn(&str) -> Option<std::ffi::OsString>,
{
    let (mut budgets, mut problems): (Vec<Budget>, Vec<String>) = (Vec::new(), Vec::new());
    match settings.document.get(TABLES) {
        None => {}
        Some(item) => match tables(item) {
            None => problems.push("config.toml: budget must be tables: [[budget]]".to_owned()),
            Some(tables) => {
                for (table, number) in tables.into_iter().zip(1..) {
                    match budget(table) {
                        Ok(new) if budgets.iter().any(|known| known.which == new.which) => {
                            problems
                                .push(format!("config.toml: budget {number} ({}) is there twice", new.which));
                        }
                        Ok(new) => {
                            problems.extend(
                                no_such_agent(&new, agents)
                                    .map(|what| format!("config.toml: budget {number} is {what}")),
                            );
                            budgets.push(new);
                        }
                        Err(why) => problems.push(format!("config.toml: budget {number} is left out: {why}")),
                    }
                }
            }
        },
    }
    for problem in problems {
        settings.problem(problem);
    }
    budgets
}

/// A budget of an agent whose name has a typing mistake. Any other name is a program's (`codemie run -- make` is one of `make`).
fn no_such_agent(budget: &Budget, agents: &[&str]) -> Option<String> {
    let BudgetScope { kind: Kind::Agent, name } = budget.which.only.as_ref()? else { return None };
    let meant = nearest(name, agents.iter().copied()).filter(|_| !agents.contains(&name.as_str()))?;
    Some(format!("for the agent {name}, and there is none; did you mean {meant}?"))
}

/// `[[budget]]`, or tables in brackets.
fn tables(item: &Item) -> Option<Vec<&dyn TableLike>> {
    match item {
        Item::ArrayOfTables(tables) => Some(tables.iter().map(|table| table as &dyn TableLike).collect()),
        Item::Value(Value::Array(list)) => {
            list.iter().map(|value| value.as_inline_table().map(|table| table as &dyn TableLike)).collect()
        }
        _ => None,
    }
}

/// An amount as the file holds it.
pub(super) fn amount(item: &Item) -> Option<PicoDollars> {
    let whole = || item.as_integer().and_then(|whole| i32::try_from(whole).ok()).map(f64::from);
    let dollars = item.as_float().or_else(whole).filter(|dollars| dollars.is_finite())?;
    limit(PicoDollars::from_dollars(dollars))
}

fn budget(table: &dyn TableLike) -> Result<Budget, String> {
    if let Some((key, _)) = table.iter().find(|(key, _)| !KEYS.contains(key)) {
        return Err(format!("{key} means nothing to this version"));
    }
    let limit = table.get("usd").and_then(amount).ok_or("usd must be an amount of dollars above zero")?;
    let enforce = match table.get("enforce") {
        None => false,
        Some(item) => item.as_bool().ok_or("enforce must be true or false")?,
    };
    Ok(Budget { which: which(table)?, limit, enforce })
}

fn which(table: &dyn TableLike) -> Result<BudgetKey, String> {
    let per = table.get("per").and_then(Item::as_str).and_then(Per::parse);
    let per = per.ok_or("per must be session, day, week or month")?;
    let mut only = None;
    for &kind in Kind::ALL {
        let Some(item) = table.get(kind.as_str()) else { continue };
        let name = item.as_str().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| format!("{kind} must be a text in quotes"))?.to_owned();
        if only.replace(BudgetScope { kind, name }).is_some() {
            return Err("at most one of agent, project, branch and tag may be given".to_owned());
        }
    }
    Ok(BudgetKey { per, only })
}

/// Puts a budget into the file's document: in its place if it is there, else at the end. `Err`: `budget` is something else.
pub(super) fn put(document: &mut DocumentMut, budget: &Budget) -> Result<(), ()> {
    let item = document.entry(TABLES).or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    match item {
        Item::ArrayOfTables(tables) => {
            let known = tables.iter().position(|table| is(table, &budget.which));
            if let Some(table) = known.and_then(|at| tables.get_mut(at)) {
                write(table, budget);
            } else {
                let mut table = Table::new();
                write(&mut table, budget);
                tables.push(table);
            }
        }
        Item::Value(Value::Array(list)) => {
            let known = position(list, &budget.which).and_then(|at| list.get_mut(at));
            if let Some(table) = known.and_then(Value::as_inline_table_mut) {
                write(table, budget);
            } else {
                let mut table = InlineTable::new();
                write(&mut table, budget);
                list.push(table);
            }
        }
        _ => return Err(()),
    }
    Ok(())
}

fn write(table: &mut dyn TableLike, budget: &Budget) {
    let Budget { which: BudgetKey { per, only }, limit, enforce } = budget;
    let mut put = |key: &str, value: Value| match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            let decor = old.decor().clone();
            *old = value;
            *old.decor_mut() = decor;
        }
        None => drop(table.insert(key, Item::Value(value))),
    };
    put("per", per.as_str().into());
    put("usd", limit.to_string().parse::<i64>().map_or_else(|_| limit.dollars().into(), Value::from));
    if let Some(BudgetScope { kind, name }) = only {
        put(kind.as_str(), name.into());
    }
    if *enforce {
        put("enforce", true.into());
    } else {
        table.remove("enforce");
    }
}

/// Takes a budget out; whether it was there.
pub(super) fn take_out(document: &mut DocumentMut, wanted: &BudgetKey) -> bool {
    let empty = match document.get_mut(TABLES) {
        Some(Item::ArrayOfTables(tables)) => {
            let Some(at) = tables.iter().position(|table| is(table, wanted)) else { return false };
            tables.remove(at);
            tables.is_empty()
        }
        Some(Item::Value(Value::Array(list))) => {
            let Some(at) = position(list, wanted) else { return false };
            list.remove(at);
            list.is_empty()
        }
        _ => return false,
    };
    if empty {
        document.remove(TABLES);
    }
    true
}

fn is(table: &dyn TableLike, wanted: &BudgetKey) -> bool {
    which(table).as_ref() == Ok(wanted)
}

fn position(list: &Array, wanted: &BudgetKey) -> Option<usize> {
    list.iter().position(|value| value.as_inline_table().is_some_and(|table| is(table, wanted)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::{Config, edit};
    use super::*;

    fn load(content: &str) -> (Vec<Budget>, Vec<String>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        let config = Config::load(Some(file.path()), |_| None, &[]);
        (config.budgets, config.problems)
    }

    fn which(per: Per, only: Option<(Kind, &str)>) -> BudgetKey {
        BudgetKey { per, only: only.map(|(kind, name)| BudgetScope { kind, name: name.into() }) }
    }

    #[test]
    fn budgets_are_read_and_a_bad_one_costs_none_of_the_others() {
        let (budgets, problems) = load(
            "[[budget]]\nper = 'day'\nusd = 20\nenforce = true\n\
             [[budget]]\nper = 'month'\nusd = 0.10\nproject = 'widgets'\n\
             [[budget]]\nper = 'year'\nusd = 1\n\
             [[budget]]\nper = 'day'\nusd = 3\n\
             [[budget]]\nper = 'day'\nusd = 3\ntag = 'a'\nbranch = 'b'\n\
             [[budget]]\nper = 'week'\nusd = -3\n\
             [[budget]]\nper = 'week'\nusd = 3\nenforced = true\n\
             [[budget]]\nper = 'week'\nusd = 3\nenforce = 'yes'\n",
        );
        assert_eq!(
            budgets,
            [
                Budget {
                    which: which(Per::Day, None),
                    limit: PicoDollars(20_000_000_000_000),
                    enforce: true
                },
                Budget {
                    which: which(Per::Month, Some((Kind::Project, "widgets"))),
                    limit: PicoDollars(100_000_000_000),
                    enforce: false
                },
            ]
        );
        assert_eq!(
            problems,
            [
                "config.toml: budget 3 is left out: per must be session, day, week or month",
                "config.toml: budget 4 (day) is there twice",
                "config.toml: budget 5 is left out: at most one of agent, project, branch and tag may be given",
                "config.toml: budget 6 is left out: usd must be an amount of dollars above zero",
                "config.toml: budget 7 is left out: enforced means nothing to this version",
                "config.toml: budget 8 is left out: enforce must be true or false",
            ]
        );
        assert_eq!(load("budget = [{ per = 'day', usd = 1 }]\n").0.len(), 1);
        assert_eq!(load("budget = 3\n").1, ["config.toml: budget must be tables: [[budget]]"]);
    }

    #[test]
    fn editing_keeps_what_a_person_wrote_around_it() {
        let day = |usd: i64, enforce| Budget {
            which: which(Per::Day, None),
            limit: PicoDollars(usd * 1_000_000_000_000),
            enforce,
        };
        let widgets =
            Budget { which: which(Per::Month, Some((Kind::Project, "widgets"))), ..day(300, false) };
        let mine = "# mine\nquiet = true # why\n\n# what I may spend\n[[budget]] # a\nper = 'day' # b\nusd = 5 # c\n\n[log]\nlevel = 'info'\n";
        for (before, budget, after) in [
            ("", day(20, true), "[[budget]]\nper = \"day\"\nusd = 20\nenforce = true\n".to_owned()),
            (mine, day(20, false), mine.replace("'day'", "\"day\"").replace("usd = 5", "usd = 20")),
            (
                "[[budget]]\nper = 'day'\nusd = 5\n",
                widgets.clone(),
                "[[budget]]\nper = 'day'\nusd = 5\n\n[[budget]]\nper = \"month\"\nusd = 300\nproject = \"widgets\"\n".into(),
            ),
            ("budget = [{ per = 'day', usd = 5, enforce = true }]\n", day(7, false), "budget = [{ per = \"day\", usd = 7}]\n".into()),
        ] {
            assert_eq!(edited(before, |file| edit::set_budget(file, &budget).unwrap()), after);
        }
        let two = "[[budget]]\nper = 'day'\nusd = 5\n\n# for widgets\n[[budget]]\nper = 'month'\nusd = 300\nproject = 'widgets'\n";
        let unset = |file: &Path| assert!(edit::unset_budget(file, &widgets.which).unwrap());
        assert_eq!(edited(two, unset), "[[budget]]\nper = 'day'\nusd = 5\n");
        assert_eq!(
            edited(mine, |file| assert!(edit::unset_budget(file, &which(Per::Day, None)).unwrap())),
            "# mine\nquiet = true # why\n\n[log]\nlevel = 'info'\n"
        );
        assert_eq!(
            edited(two, |file| assert!(!edit::unset_budget(file, &which(Per::Week, None)).unwrap())),
            two
        );
    }

    fn edited(before: &str, edit: impl FnOnce(&Path)) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        fs::write(&file, before).unwrap();
        edit(&file);
        fs::read_to_string(&file).unwrap()
    }

    #[test]
    fn amounts_are_exact_and_above_zero() {
        for (text, pico) in [
            ("20", Some(20_000_000_000_000)),
            ("$5", Some(5_000_000_000_000)),
            (" 0.10 ", Some(100_000_000_000)),
            (".5", Some(500_000_000_000)),
            ("0.000001", Some(1_000_000)),
            ("0", None),
            ("-1", None),
            ("1e3", None),
            ("0.0000001", None),
            ("", None),
            (".", None),
            ("2000000", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(dollars(text).ok().map(|amount| amount.0), pico, "{text}");
        }
    }

    #[test]
    fn a_budget_is_named_by_what_it_is_for() {
        assert_eq!(which(Per::Day, None).to_string(), "day");
        assert_eq!(which(Per::Month, Some((Kind::Tag, "x"))).to_string(), "month of tag x");
    }
}
