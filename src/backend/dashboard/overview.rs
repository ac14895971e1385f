//! The overview: what was spent, by whom and on what, over time.

use jiff::civil::Date;
use maud::{Markup, html};

use super::chart::{self, Column, Series};
use super::controls;
use super::filter::{self, Filter, Range};
use super::frame::{Frame, Room, empty};
use super::model::Overview;
use super::span::{self, Columns};
use super::text::{cents, cost, count, float, grouped, priced, share, short_count};
use crate::agent::Agent;
use crate::backend::model::{SeriesRow, Sums, UsageRow};
use crate::demo::Demo;
use crate::output::human;

/// Rows of a list of bars. One more is asked for, to know whether these are all.
pub const BARS: usize = 8;

const PATH: &str = "/";

pub fn page(frame: &Frame, filter: &Filter, view: &Overview) -> Markup {
    let sums = view.sums();
    let content = html! {
        div.head {
            h1 { "Overview" (controls::utc()) }
            (controls::ranges(filter, PATH))
        }
        (controls::form(filter, &view.facets, PATH, &html! {}))
        @if view.demo_left_out {
            p.muted.small { "The demonstration's sessions are left out. " a href=(filter.with(|f| f.agent = Some(Demo.name().to_owned())).address(PATH)) { "Show them" } }
        }
        @if view.days.is_empty() {
            div.panel { (nothing(frame, filter, view)) }
        } @else {
            (totals(view, &sums))
            (unpriced(&view.models))
            (charts(frame, filter, view, &sums))
            div.grid.three[view.users.len() < 2] {
                (parts("By agent", "agent", &view.agents(), |name| filter.with(|f| f.agent = Some(name)), true))
                (parts("By model", "model", &view.models, |name| filter.with(|f| f.model = Some(name)), false))
                (parts("By project", "project", &view.projects, |name| filter.with(|f| f.project = Some(name)), false))
                @if view.users.len() > 1 {
                    (parts("By user", "user", &view.users, |name| filter.with(|f| f.user = Some(name)), false))
                }
            }
        }
    };
    frame.page(Some(Room::Overview), "Overview", &content)
}

fn nothing(frame: &Frame, filter: &Filter, view: &Overview) -> Markup {
    if view.facets.agents.is_empty() {
        return empty("Nothing has arrived yet", &controls::how_to_begin(frame.place));
    }
    let all = filter.with(|f| f.range = Range::All);
    empty(
        "No sessions match",
        &html! { "Take a filter away, or look at " a href=(all.address(PATH)) { "all days" } "." },
    )
}

fn totals(view: &Overview, sums: &Sums) -> Markup {
    let counts = &sums.counts;
    let each = |number: i64| cents(sums.cost_usd / float(number.max(1)));
    let input = counts.input + counts.cache_read + counts.cache_write;
    let people = i64::try_from(view.users.len()).unwrap_or(i64::MAX);
    html! {
        dl.totals {
            div { dt { "Cost" } dd { (cost(sums.cost_usd, counts.unpriced_calls)) } dd.hint { (each(counts.sessions)) " per session" } }
            div { dt { "Sessions" } dd { (grouped(counts.sessions)) } dd.hint { (human::counted(usize::try_from(counts.prompts).unwrap_or(0), "prompt")) } }
            div { dt { "Tokens" } dd { (count(sums.tokens())) } dd.hint { @if input > 0 { (share(float(counts.cache_read), float(input))) " of input from cache" } @else { "none" } } }
            div { dt { "API calls" } dd { (count(counts.api_calls)) } dd.hint { (grouped(counts.api_errors)) " failed" } }
            div { dt { "Tool calls" } dd { (count(counts.tool_calls)) } dd.hint { @if counts.tool_calls > 0 { (share(float(counts.tool_errors), float(counts.tool_calls))) " failed" } @else { "none" } } }
            div { dt { "Lines" } dd { "+" (count(counts.lines_added)) } dd.hint { "−" (count(counts.lines_removed)) @if people > 1 { " · " (people) " people" } } }
        }
    }
}

fn unpriced(models: &[UsageRow]) -> Markup {
    let mut names: Vec<&str> =
        models.iter().flat_map(|row| row.unpriced_models.iter().map(String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    html! {
        @if !names.is_empty() {
            p.note { "+ No price is known for " (names.join(", ")) ": the tokens are counted, the cost is not." }
        }
    }
}

/// For each column its sums, and those of each agent.
type Data = Vec<(Sums, Vec<Sums>)>;

fn charts(frame: &Frame, filter: &Filter, view: &Overview, sums: &Sums) -> Markup {
    let today = frame.now.today();
    let days = view.days.iter().map(|row| filter::date(row.day));
    let columns = Columns::told(filter.days(today), days, today);
    let mut agents: Vec<&str> = view.days.iter().map(|row| row.key.as_str()).collect();
    agents.sort_unstable();
    agents.dedup();
    let data = gathered(&columns, &agents, &view.days);
    let by_agent: Vec<Series> = agents
        .iter()
        .map(|agent| Series { name: (*agent).to_owned(), class: controls::colour(agent) })
        .collect();
    let by_kind = [
        ("read from cache", "t-read"),
        ("written to cache", "t-write"),
        ("input", "t-input"),
        ("output", "t-output"),
    ]
    .map(|(name, class)| Series { name: name.to_owned(), class: class.to_owned() });
    let unit = columns.unit.name();
    let draw = |what: &str,
                series: &[Series],
                least,
                tick,
                told: &dyn Fn(&(Sums, Vec<Sums>)) -> (String, Vec<f64>)| {
        let drawn: Vec<Column> = columns
            .spans
            .iter()
            .zip(&data)
            .map(|((first, last), data)| {
                let (title, values) = told(data);
                let sessions = filter.with(|f| f.range = Range::Between(Some(*first), Some(*last)));
                Column {
                    label: span::label(columns.unit, *first),
                    title: format!("{}\n{title}", span::title(*first, *last)),
                    href: sessions.address("/sessions"),
                    values,
                }
            })
            .collect();
        chart::columns(&chart::Columns {
            label: &format!("{what} per {unit}"),
            series,
            columns: &drawn,
            least,
            tick,
        })
    };
    let spent = draw("Cost in US dollars", &by_agent, 0.0, chart::dollars, &|(whole, parts)| {
        let said = |sums: &Sums| priced(sums.cost_usd, sums.counts.unpriced_calls);
        let any = |sums: &Sums| sums.cost_usd > 0.0 || sums.counts.unpriced_calls > 0;
        let each = parts.iter().zip(&agents).filter(|(part, _)| agents.len() > 1 && any(part));
        let lines = each.map(|(part, agent)| format!("{agent} {}", said(part)));
        let title: Vec<String> = std::iter::once(said(whole)).chain(lines).collect();
        (title.join("\n"), parts.iter().map(|part| part.cost_usd).collect())
    });
    let tokens = draw("Tokens", &by_kind, 1.0, chart::amount, &|(whole, _)| {
        let counts = &whole.counts;
        let said = format!(
            "{} tokens\n{} read from cache\n{} written to cache\n{} input\n{} output",
            grouped(whole.tokens()),
            grouped(counts.cache_read),
            grouped(counts.cache_write),
            grouped(counts.input),
            grouped(counts.output)
        );
        let values = [counts.cache_read, counts.cache_write, counts.input, counts.output];
        (said, values.map(float).to_vec())
    });
    let sessions = draw("Sessions begun", &by_agent, 1.0, chart::amount, &|(whole, parts)| {
        let said = format!("{} begun", grouped(whole.counts.sessions));
        (said, parts.iter().map(|part| float(part.counts.sessions)).collect())
    });
    html! {
        section.panel {
            h2 { "Cost per " (unit) span.aside { (priced(sums.cost_usd, sums.counts.unpriced_calls)) } }
            (spent)
            (table(unit, &columns, &data))
        }
        div.grid {
            section.panel { h2 { "Tokens per " (unit) span.aside { (short_count(sums.tokens())) } } (tokens) }
            section.panel { h2 { "Sessions per " (unit) span.aside { (grouped(sums.counts.sessions)) } } (sessions) }
        }
    }
}

fn gathered(columns: &Columns, agents: &[&str], days: &[SeriesRow]) -> Data {
    let mut data = vec![(Sums::default(), vec![Sums::default(); agents.len()]); columns.spans.len()];
    for row in days {
        let at = columns.of(filter::date(row.day));
        if let (Some(at), Ok(agent)) = (at, agents.binary_search(&row.key.as_str())) {
            data[at].0.add(&row.sums);
            data[at].1[agent].add(&row.sums);
        }
    }
    data
}

/// The same numbers for those who do not see the charts, or want to copy them.
fn table(unit: &str, columns: &Columns, data: &Data) -> Markup {
    let filled = columns.spans.iter().zip(data).rev();
    let filled = filled.filter(|(_, (sums, _))| sums.counts.sessions + sums.counts.api_calls > 0);
    html! {
        details {
            summary { "As a table; a " (unit) " begins at midnight UTC" }
            div.scroll { table.plain {
                thead { tr { th { (unit) } th.n { "Sessions" } th.n { "Calls" } th.n { "Input" } th.n { "Cache read" } th.n { "Cache write" } th.n { "Output" } th.n { "Cost" } } }
                tbody {
                    @for ((first, last), (sums, _)) in filled {
                        @let counts = &sums.counts;
                        tr {
                            td.nowrap { (date_or_span(*first, *last)) }
                            td.n { (grouped(counts.sessions)) } td.n { (grouped(counts.api_calls)) } td.n { (grouped(counts.input)) } td.n { (grouped(counts.cache_read)) }
                            td.n { (grouped(counts.cache_write)) } td.n { (grouped(counts.output)) } td.n { (cost(sums.cost_usd, counts.unpriced_calls)) }
                        }
                    }
                }
            } }
        }
    }
}

fn date_or_span(first: Date, last: Date) -> String {
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}

fn parts(
    title: &str,
    kind: &str,
    rows: &[UsageRow],
    narrowed: impl Fn(String) -> Filter,
    coloured: bool,
) -> Markup {
    let largest = rows.iter().map(|row| row.sums.cost_usd).fold(0.0, f64::max);
    let class = |name: &str| if coloured { controls::colour(name) } else { "c0".to_owned() };
    html! {
        section.panel {
            h2 { (title) @if rows.len() > BARS { span.aside { "the dearest " (BARS) } } }
            table.bars {
                thead.hidden { tr { th { (kind) } th { "as a bar" } th { "cost" } } }
                tbody {
                    @for row in rows.iter().take(BARS) {
                        tr {
                            td title={ (grouped(row.sums.counts.api_calls)) " calls, " (grouped(row.sums.tokens())) " tokens" } {
                                @if row.key.is_empty() { span.muted { "unknown" } } @else { a href=(narrowed(row.key.clone()).address(PATH)) { (row.key) } }
                            }
                            td { (chart::bar(row.sums.cost_usd, 0.0, largest, &class(&row.key))) }
                            td.n { (cost(row.sums.cost_usd, row.sums.counts.unpriced_calls)) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::backend::model::Day;

    #[test]
    fn days_are_gathered_into_columns_by_agent() {
        let row = |day: &str, agent: &str, cost_usd| SeriesRow {
            day: Day::parse(day).unwrap(),
            key: agent.into(),
            sums: Sums { cost_usd, ..Sums::default() },
        };
        let columns = Columns::between(date(2026, 11, 14), date(2026, 11, 16));
        let days = [
            row("2026-11-14", "claude", 1.0),
            row("2026-11-16", "codex", 2.0),
            row("2026-11-16", "claude", 3.0),
            row("2026-11-13", "claude", 100.0),
        ];
        let data = gathered(&columns, &["claude", "codex"], &days);
        let costs = |(whole, parts): &(Sums, Vec<Sums>)| {
            (whole.cost_usd, parts.iter().map(|part| part.cost_usd).collect::<Vec<_>>())
        };
        assert_eq!(
            data.iter().map(costs).collect::<Vec<_>>(),
            [(1.0, vec![1.0, 0.0]), (0.0, vec![0.0, 0.0]), (5.0, vec![3.0, 2.0])]
        );
    }
}
