//! The overview's charts over time: cost, tokens and sessions per day, week, month or year, and the same as a table.

use std::collections::BTreeMap;

use jiff::civil::Date;
use maud::{Markup, html};

use super::agents::KnownAgents;
use super::chart::{self, Column, Series};
use super::filter::{PageFilter, Range, Stack};
use super::frame::Frame;
use super::model::Overview;
use super::panel::panel_with;
use super::scale::Scale;
use super::sort::Sort;
use super::span::{self, TimeColumns};
use super::table::{PageOrder, Table, cell, heading};
use super::text::{cost, float, grouped, priced, short_count, without_date};
use reader::{SeriesRow, UsageSums};

/// The days of an overview, gathered into the columns of its charts.
pub struct Trend<'a> {
    filter: &'a PageFilter,
    columns: TimeColumns,
    known: KnownAgents,
    zone_name: &'a str,
    /// The agents there are, in the order of their colours.
    agents: Vec<&'a str>,
    /// Of each column.
    sums: Vec<ColumnSums>,
    /// What the cost is split by, where that is not the agents: names, and the cost of each in each column.
    stack: Option<(Vec<String>, Vec<Vec<f64>>)>,
}

#[derive(Clone, Debug)]
struct ColumnSums {
    whole: UsageSums,
    /// Of each agent.
    by_agent: Vec<UsageSums>,
}

/// A chart of a trend: its name and scale, and of each column the text and the values.
struct Plot<'a> {
    name: &'a str,
    series: &'a [Series],
    /// The smallest step that means anything on the axis.
    least: f64,
    tick: fn(f64, Scale) -> String,
    column: &'a dyn Fn(&ColumnSums) -> (String, Vec<f64>),
}

impl<'a> Trend<'a> {
    pub fn new(frame: &'a Frame, filter: &'a PageFilter, view: &'a Overview) -> Self {
        let (today, known) = (frame.now.today(), frame.agents);
        let days = view.days.iter().map(|row| row.day.date());
        let columns = TimeColumns::covering(filter.days(today), days, today);
        let mut agents: Vec<&str> = view.days.iter().map(|row| known.known(&row.key)).collect();
        agents.sort_unstable_by_key(|agent| (known.order(agent), *agent));
        agents.dedup();
        let sums = gather(&columns, known, &agents, &view.days);
        let stack = (filter.stack != Stack::Agent).then(|| stacked(&columns, &view.stacked));
        Self { filter, columns, known, zone_name: &frame.zone_name, agents, sums, stack }
    }

    /// All charts. Of one model the sessions are not known.
    pub fn charts(&self, sums: &UsageSums) -> Markup {
        let per = |what: &str| format!("{what} per {}", self.unit());
        let spent = priced(sums.cost_usd, sums.counts.unpriced_calls);
        let with_table = html! { (self.stack_choice()) (self.cost()) (self.table()) };
        let tokens = html! { (self.cache_choice()) (self.tokens()) };
        let tokens = panel_with(&per("Tokens"), short_count(sums.tokens()), tokens);
        html! {
            (panel_with(&per("Cost"), spent, with_table))
            @if self.filter.chosen.model.is_some() {
                (tokens)
            } @else {
                div.grid {
                    (tokens)
                    (panel_with(&per("Sessions"), grouped(sums.counts.sessions), self.sessions()))
                }
            }
        }
    }

    fn unit(&self) -> &'static str {
        self.columns.unit.name()
    }

    /// Links to the same page with the cost split by something else.
    fn stack_choice(&self) -> Markup {
        html! {
            nav.choice aria-label="Split the cost by" {
                @for stack in Stack::ALL {
                    @let current = (self.filter.stack == stack).then_some("true");
                    a href=(self.filter.with(|f| f.stack = stack).address("/")) aria-current=[current] { "by " (stack.name()) }
                }
            }
        }
    }

    fn cache_choice(&self) -> Markup {
        html! {
            nav.choice aria-label="Tokens" {
                @for (without, name) in [(false, "all"), (true, "without cache reads")] {
                    @let current = (self.filter.without_cache == without).then_some("true");
                    a href=(self.filter.with(|f| f.without_cache = without).address("/")) aria-current=[current] { (name) }
                }
            }
        }
    }

    fn cost(&self) -> Markup {
        match &self.stack {
            Some((names, costs)) => self.stacked_cost(names, costs),
            None => self.cost_by_agent(),
        }
    }

    fn stacked_cost(&self, names: &[String], costs: &[Vec<f64>]) -> Markup {
        let series: Vec<Series> = names
            .iter()
            .enumerate()
            .map(|(at, name)| Series {
                name: without_date(name).to_owned(),
                class: format!("c{}", at.min(OTHERS_COLOUR)),
            })
            .collect();
        let of_column: Vec<(&ColumnSums, &Vec<f64>)> = self.sums.iter().zip(costs).collect();
        self.plot(&Plot {
            name: "Cost in US dollars",
            series: &series,
            least: 0.0,
            tick: chart::dollars,
            column: &|sums| {
                let parts =
                    of_column.iter().find(|(known, _)| std::ptr::eq(*known, sums)).map(|(_, parts)| *parts);
                let parts = parts.cloned().unwrap_or_default();
                let mut lines = vec![priced(sums.whole.cost_usd, sums.whole.counts.unpriced_calls)];
                let each = names.iter().zip(&parts).filter(|(_, part)| **part > 0.0);
                lines.extend(each.map(|(name, part)| format!("{} {}", without_date(name), priced(*part, 0))));
                (lines.join("\n"), parts)
            },
        })
    }

    fn cost_by_agent(&self) -> Markup {
        let amount = |sums: &UsageSums| priced(sums.cost_usd, sums.counts.unpriced_calls);
        let spent = |sums: &UsageSums| sums.cost_usd > 0.0 || sums.counts.unpriced_calls > 0;
        self.plot(&Plot {
            name: "Cost in US dollars",
            series: &self.agent_series(),
            least: 0.0,
            tick: chart::dollars,
            column: &|ColumnSums { whole, by_agent }| {
                let mut lines = vec![amount(whole)];
                if self.agents.len() > 1 {
                    let each = by_agent.iter().zip(&self.agents).filter(|(part, _)| spent(part));
                    lines.extend(each.map(|(part, agent)| format!("{agent} {}", amount(part))));
                }
                (lines.join("\n"), by_agent.iter().map(|part| part.cost_usd).collect())
            },
        })
    }

    fn tokens(&self) -> Markup {
        let kinds = [
            ("read from cache", "t-read"),
            ("written to cache", "t-write"),
            ("input", "t-input"),
            ("output", "t-output"),
        ];
        let skipped = usize::from(self.filter.without_cache);
        let series = kinds.map(|(name, class)| Series { name: name.to_owned(), class: class.to_owned() });
        self.plot(&Plot {
            name: "Tokens",
            series: &series[skipped..],
            least: 1.0,
            tick: chart::amount,
            column: &|ColumnSums { whole, .. }| {
                let counts = &whole.counts;
                let values = [counts.cache_read, counts.cache_write, counts.input, counts.output];
                let lines =
                    values.iter().zip(kinds).map(|(value, (kind, _))| format!("{} {kind}", grouped(*value)));
                let mut text = format!("{} tokens", grouped(whole.tokens()));
                for line in lines {
                    text.push('\n');
                    text.push_str(&line);
                }
                (text, values[skipped..].iter().map(|value| float(*value)).collect())
            },
        })
    }

    fn sessions(&self) -> Markup {
        self.plot(&Plot {
            name: "Sessions begun",
            series: &self.agent_series(),
            least: 1.0,
            tick: chart::amount,
            column: &|ColumnSums { whole, by_agent }| {
                let values = by_agent.iter().map(|part| float(part.counts.sessions)).collect();
                (format!("{} begun", grouped(whole.counts.sessions)), values)
            },
        })
    }

    fn agent_series(&self) -> Vec<Series> {
        let colour = |agent: &&str| format!("c{}", self.known.colour(agent));
        self.agents.iter().map(|agent| Series { name: (*agent).to_owned(), class: colour(agent) }).collect()
    }

    /// Stacked columns, each with a link to its sessions.
    fn plot(&self, plot: &Plot<'_>) -> Markup {
        let column = |((first, last), sums): (&(Date, Date), &ColumnSums)| {
            let (text, values) = (plot.column)(sums);
            let sessions = self.filter.with(|f| f.range = Range::Between(Some(*first), Some(*last)));
            Column {
                label: span::label(self.columns.unit, *first),
                title: format!("{}\n{text}", span::title(*first, *last)),
                href: sessions.address("/sessions"),
                values,
            }
        };
        let columns: Vec<Column> = self.columns.spans.iter().zip(&self.sums).map(column).collect();
        chart::columns(&chart::ColumnChart {
            label: &format!("{} per {}", plot.name, self.unit()),
            series: plot.series,
            columns: &columns,
            least: plot.least,
            tick: plot.tick,
        })
    }

    /// The same numbers for people who do not see the charts, or want to copy them.
    fn table(&self) -> Markup {
        let rows = self.columns.spans.iter().zip(&self.sums).map(|(span, sums)| (span, &sums.whole)).rev();
        let used = |sums: &UsageSums| sums.counts.sessions + sums.counts.api_calls > 0;
        let rows: Vec<(&(Date, Date), &UsageSums)> = rows.filter(|(_, sums)| used(sums)).collect();
        let number = |value: i64| cell("n", grouped(value)).value(value);
        let sessions = self.filter.chosen.model.is_none();
        let address = |sort: Sort| self.filter.with(|f| f.sort = Some(sort)).address("/");
        let order = PageOrder { asked: self.filter.sort, address: &address }.of("day", ("name", true));
        let table = Table::plain()
            .column(heading("", self.unit()).by("name"), &rows, |(span, _)| {
                cell("nowrap", date_or_span(**span)).value(&*date_or_span(**span))
            })
            .column_if(sessions, heading("n", "Sessions").by("sessions"), &rows, |(_, sums)| {
                number(sums.counts.sessions)
            })
            .column(heading("n", "Calls").by("calls"), &rows, |(_, sums)| number(sums.counts.api_calls))
            .column(heading("n", "Input").by("input"), &rows, |(_, sums)| number(sums.counts.input))
            .column(heading("n", "Cache read").by("cacheRead"), &rows, |(_, sums)| {
                number(sums.counts.cache_read)
            })
            .column(heading("n", "Cache write").by("cacheWrite"), &rows, |(_, sums)| {
                number(sums.counts.cache_write)
            })
            .column(heading("n", "Output").by("output"), &rows, |(_, sums)| number(sums.counts.output))
            .column(heading("n", "Cost").by("cost"), &rows, |(_, sums)| {
                cell("n", cost(sums.cost_usd, sums.counts.unpriced_calls)).value(sums.cost_usd)
            })
            .ordered(&order);
        html! {
            details open[order.is_asked_for()] {
                summary { "As a table; a " (self.unit()) " begins at midnight in " (self.zone_name) }
                (table.scrolling())
            }
        }
    }
}

/// Parts of a stack that have a colour of their own; all others are one part.
const PARTS: usize = 4;
/// The colour of that one.
const OTHERS_COLOUR: usize = PARTS;

/// The most expensive keys of all days, and what each cost in each column; the last one stands for all others.
fn stacked(columns: &TimeColumns, days: &[SeriesRow]) -> (Vec<String>, Vec<Vec<f64>>) {
    let mut totals: BTreeMap<&str, f64> = BTreeMap::new();
    for row in days {
        *totals.entry(&row.key).or_default() += row.sums.cost_usd;
    }
    let mut names: Vec<&str> =
        totals.iter().filter(|(_, cost)| **cost > 0.0).map(|(name, _)| *name).collect();
    names.sort_by(|one, two| totals[two].total_cmp(&totals[one]));
    let others = names.len() > PARTS;
    names.truncate(PARTS);
    let width = names.len() + usize::from(others);
    let mut costs = vec![vec![0.0; width]; columns.spans.len()];
    for row in days {
        let part = names.iter().position(|name| *name == row.key).unwrap_or(names.len());
        if let Some(cost) = columns.of(row.day.date()).and_then(|at| costs[at].get_mut(part)) {
            *cost += row.sums.cost_usd;
        }
    }
    let shown = |name: &str| if name.is_empty() { "unknown".to_owned() } else { name.to_owned() };
    let mut names: Vec<String> = names.into_iter().map(shown).collect();
    if others {
        names.push("all others".to_owned());
    }
    (names, costs)
}

fn gather(columns: &TimeColumns, known: KnownAgents, agents: &[&str], days: &[SeriesRow]) -> Vec<ColumnSums> {
    let none = ColumnSums { whole: UsageSums::default(), by_agent: vec![UsageSums::default(); agents.len()] };
    let mut sums = vec![none; columns.spans.len()];
    for row in days {
        let at = columns.of(row.day.date());
        let agent = agents.iter().position(|agent| *agent == known.known(&row.key));
        if let (Some(at), Some(agent)) = (at, agent) {
            sums[at].whole.add(&row.sums);
            sums[at].by_agent[agent].add(&row.sums);
        }
    }
    sums
}

fn date_or_span((first, last): (Date, Date)) -> String {
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use reader::Day;

    #[test]
    fn the_most_expensive_keys_have_a_part_each_and_the_others_one() {
        let row = |key: &str, cost_usd| SeriesRow {
            day: Day::parse("2026-11-14").unwrap(),
            key: key.into(),
            sums: UsageSums { cost_usd, ..UsageSums::default() },
        };
        let columns = TimeColumns::between(date(2026, 11, 14), date(2026, 11, 15));
        let days = [row("a", 1.0), row("b", 5.0), row("c", 3.0), row("", 2.0), row("e", 4.0), row("f", 0.0)];
        let (names, costs) = stacked(&columns, &days);
        assert_eq!(names, ["b", "e", "c", "unknown", "all others"]);
        assert_eq!(costs, [vec![5.0, 4.0, 3.0, 2.0, 1.0], vec![0.0; 5]]);
        assert_eq!(stacked(&columns, &days[..2]).0, ["b", "a"]);
    }

    #[test]
    fn days_are_gathered_into_columns_by_agent() {
        let row = |day: &str, agent: &str, cost_usd| SeriesRow {
            day: Day::parse(day).unwrap(),
            key: agent.into(),
            sums: UsageSums { cost_usd, ..UsageSums::default() },
        };
        let columns = TimeColumns::between(date(2026, 11, 14), date(2026, 11, 16));
        let days = [
            row("2026-11-14", "claude", 1.0),
            row("2026-11-16", "codex", 2.0),
            row("2026-11-16", "claude", 3.0),
            row("2026-11-13", "claude", 100.0),
        ];
        let agents = ["claude", "codex"];
        let data = gather(&columns, KnownAgents(&["claude", "codex"]), &agents, &days);
        let costs = |column: &ColumnSums| {
            let agents = column.by_agent.iter().map(|part| part.cost_usd).collect::<Vec<_>>();
            (column.whole.cost_usd, agents)
        };
        assert_eq!(
            data.iter().map(costs).collect::<Vec<_>>(),
            [(1.0, vec![1.0, 0.0]), (0.0, vec![0.0, 0.0]), (5.0, vec![3.0, 2.0])]
        );
    }
}
