//! The overview: what was spent, by whom and on what, over time.

use std::collections::BTreeMap;

use jiff::civil::Date;
use maud::{Markup, html};

use super::agents::{KnownAgents, OTHERS};
use super::chart::{self, Column, Series};
use super::controls;
use super::filter::{self, Filter, Range};
use super::frame::{Frame, Section, empty};
use super::model::Overview;
use super::sessions::COUNTED;
use super::span::{self, Columns};
use super::text::{cents, cost, count, float, grouped, priced, share, short_count};
use crate::model::{Counted, SeriesRow, Sums, UsageRow};
use prices::unpriced;

/// Rows of a list of bars. One more is asked for, to know whether these are all.
pub const BARS: usize = 8;

const PATH: &str = "/";

pub fn page(frame: &Frame, filter: &Filter, view: &Overview) -> Markup {
    let sums = view.sums();
    let whole = sums.cost_usd;
    let content = html! {
        div.head {
            h1 { "Overview" (controls::utc()) }
            (controls::ranges(filter, PATH))
        }
        (controls::form(filter, &view.facets, PATH, &html! {}))
        @if view.demo_left_out { (controls::demo_left_out(filter, PATH)) }
        @if view.days.is_empty() {
            div.panel { (nothing(frame, filter, view)) }
        } @else {
            (totals(filter, view, &sums))
            (without_price(&view.models))
            (charts(frame, filter, view, &sums))
            div.grid.three[view.users.len() < 2] {
                (parts("By agent", "agent", &view.agents(frame.agents), whole, |name| (name != OTHERS).then(|| filter.with(|f| f.agent = Some(name.to_owned()))), Some(frame.agents)))
                (parts("By model", "model", &view.models, whole, |name| Some(filter.with(|f| f.model = Some(name.to_owned()))), None))
                (parts("By project", "project", &view.projects, whole, |name| Some(filter.with(|f| f.project = Some(name.to_owned()))), None))
                @if view.users.len() > 1 {
                    (parts("By user", "user", &view.users, whole, |name| Some(filter.with(|f| f.user = Some(name.to_owned()))), None))
                }
            }
        }
    };
    frame.page(Some(Section::Overview), "Overview", &content)
}

fn nothing(frame: &Frame, filter: &Filter, view: &Overview) -> Markup {
    if view.facets.agents.is_empty() {
        return empty("Nothing has arrived yet", &controls::how_to_begin(frame.deployment));
    }
    let all = filter.with(|f| f.range = Range::All);
    empty(
        "No sessions match",
        &html! { "Take a filter away, or look at " a href=(all.address(PATH)) { "all days" } "." },
    )
}

fn totals(filter: &Filter, view: &Overview, sums: &Sums) -> Markup {
    let (counts, of_model) = (&sums.counts, filter.model.is_some());
    let input = counts.input + counts.cache_read + counts.cache_write;
    let prompts = human::counted(usize::try_from(counts.prompts).unwrap_or(0), "prompt");
    let before = |now: f64, of: fn(&Sums) -> f64| {
        html! {
            @if let Some(change) = view.before.as_ref().and_then(|before| change(now, of(before))) { dd.hint { (change) " on " (days_before(filter)) } }
        }
    };
    html! {
        dl.totals {
            div { dt { "Cost" } dd { (cost(sums.cost_usd, counts.unpriced_calls)) } @if let Some(each) = each(filter, view, sums) { dd.hint { (each) } } (before(sums.cost_usd, |sums| sums.cost_usd)) }
            @if let Some(with_model) = view.with_model {
                div { dt { "Sessions" } dd { (at_most(with_model.sessions)) } dd.hint { "begun, that called it" } }
            } @else if !of_model {
                div { dt { "Sessions" } dd { (grouped(counts.sessions)) } dd.hint { (prompts) @if view.users.len() > 1 { " · " (view.users.len()) " people" } } (before(float(counts.sessions), |sums| float(sums.counts.sessions))) }
            }
            div { dt { "Tokens" } dd { (count(sums.tokens())) } dd.hint { @if input > 0 { (share(float(counts.cache_read), float(input))) " of input cached" } @else { "none" } } (before(float(sums.tokens()), |sums| float(sums.tokens()))) }
            div { dt { "API calls" } dd { (count(counts.api_calls)) } @if !of_model { dd.hint { (grouped(counts.api_errors)) " failed" } } }
            // What no model does is not none under one: it is not known.
            @if !of_model {
                div { dt { "Tool calls" } dd { (count(counts.tool_calls)) } dd.hint { @if counts.tool_calls > 0 { (share(float(counts.tool_errors), float(counts.tool_calls))) " failed" } @else { "none" } } }
                div { dt { "Lines" } dd { "+" (count(counts.lines_added)) } dd.hint { "−" (count(counts.lines_removed)) } }
            }
        }
    }
}

/// What a session costs on average, where there is one to divide by.
fn each(filter: &Filter, view: &Overview, sums: &Sums) -> Option<String> {
    let paying = match (&filter.model, view.with_model) {
        (None, _) => view.paying_sessions(),
        (Some(_), Some(Counted { sessions: 1..COUNTED, .. })) => view.with_model?.sessions,
        (Some(_), _) => return None,
    };
    let all = filter.model.is_some() || paying == sums.counts.sessions;
    let what = if all { "per session" } else { "per session of an agent" };
    (paying > 0).then(|| format!("{} {what}", cents(sums.cost_usd / float(paying))))
}

fn at_most(sessions: i64) -> String {
    if sessions >= COUNTED { format!("{}+", grouped(COUNTED)) } else { grouped(sessions) }
}

/// `+18 %`, where there was something before and it can be compared.
fn change(now: f64, before: f64) -> Option<String> {
    let percent = (now / before - 1.0) * 100.0;
    let comparable = before > 0.0 && percent.is_finite() && percent < 1000.0;
    comparable.then(|| {
        if percent.abs() < 0.5 { "±0 %".to_owned() } else { format!("{percent:+.0} %").replace('-', "−") }
    })
}

fn days_before(filter: &Filter) -> String {
    match filter.range {
        Range::Days(1) => "the day before".to_owned(),
        Range::Days(days) => format!("{days} days before"),
        _ => "before".to_owned(),
    }
}

fn without_price(models: &[UsageRow]) -> Markup {
    let mut calls: BTreeMap<String, i64> = BTreeMap::new();
    for row in models {
        for model in &row.unpriced_models {
            // One row is one model.
            *calls.entry(model.clone()).or_default() += row.sums.counts.unpriced_calls;
        }
    }
    html! {
        @if !calls.is_empty() {
            p.note { "+ No price is known for " (unpriced::named(calls.keys(), &calls)) ": the tokens are counted, the cost is not." }
        }
    }
}

/// For each column its sums, and those of each agent.
type Data = Vec<(Sums, Vec<Sums>)>;

fn charts(frame: &Frame, filter: &Filter, view: &Overview, sums: &Sums) -> Markup {
    let today = frame.now.today();
    let days = view.days.iter().map(|row| filter::date(row.day));
    let columns = Columns::told(filter.days(today), days, today);
    let known = frame.agents;
    let mut agents: Vec<&str> = view.days.iter().map(|row| known.known(&row.key)).collect();
    agents.sort_unstable_by_key(|agent| (known.order(agent), *agent));
    agents.dedup();
    let data = gathered(&columns, known, &agents, &view.days);
    let by_agent: Vec<Series> = agents
        .iter()
        .map(|agent| Series { name: (*agent).to_owned(), class: format!("c{}", known.colour(agent)) })
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
    let tokens = html! { section.panel { h2 { "Tokens per " (unit) span.aside { (short_count(sums.tokens())) } } (tokens) } };
    html! {
        section.panel {
            h2 { "Cost per " (unit) span.aside { (priced(sums.cost_usd, sums.counts.unpriced_calls)) } }
            (spent)
            (table(unit, &columns, &data, filter.model.is_none()))
        }
        @if filter.model.is_some() {
            (tokens)
        } @else {
            div.grid {
                (tokens)
                section.panel { h2 { "Sessions per " (unit) span.aside { (grouped(sums.counts.sessions)) } } (sessions) }
            }
        }
    }
}

fn gathered(columns: &Columns, known: KnownAgents, agents: &[&str], days: &[SeriesRow]) -> Data {
    let mut data = vec![(Sums::default(), vec![Sums::default(); agents.len()]); columns.spans.len()];
    for row in days {
        let at = columns.of(filter::date(row.day));
        let agent = agents.iter().position(|agent| *agent == known.known(&row.key));
        if let (Some(at), Some(agent)) = (at, agent) {
            data[at].0.add(&row.sums);
            data[at].1[agent].add(&row.sums);
        }
    }
    data
}

/// The same numbers for those who do not see the charts, or want to copy them.
fn table(unit: &str, columns: &Columns, data: &Data, sessions: bool) -> Markup {
    let filled = columns.spans.iter().zip(data).rev();
    let filled = filled.filter(|(_, (sums, _))| sums.counts.sessions + sums.counts.api_calls > 0);
    html! {
        details {
            summary { "As a table; a " (unit) " begins at midnight UTC" }
            div.scroll { table.plain {
                thead { tr { th { (unit) } @if sessions { th.n { "Sessions" } } th.n { "Calls" } th.n { "Input" } th.n { "Cache read" } th.n { "Cache write" } th.n { "Output" } th.n { "Cost" } } }
                tbody {
                    @for ((first, last), (sums, _)) in filled {
                        @let counts = &sums.counts;
                        tr {
                            td.nowrap { (date_or_span(*first, *last)) }
                            @if sessions { td.n { (grouped(counts.sessions)) } }
                            td.n { (grouped(counts.api_calls)) } td.n { (grouped(counts.input)) } td.n { (grouped(counts.cache_read)) }
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

/// What the cost is made of. A name leads to the same page of it alone, an amount to its sessions.
fn parts(
    title: &str,
    kind: &str,
    rows: &[UsageRow],
    whole: f64,
    narrowed: impl Fn(&str) -> Option<Filter>,
    coloured: Option<KnownAgents>,
) -> Markup {
    let largest = rows.iter().map(|row| row.sums.cost_usd).fold(0.0, f64::max);
    let class = |name: &str| format!("c{}", coloured.map_or(0, |agents| agents.colour(name)));
    html! {
        section.panel {
            h2 { (title) @if rows.len() > BARS { span.aside { "the dearest " (BARS) } } }
            table.bars {
                thead.hidden { tr { th { (kind) } th { "as a bar" } th { "share" } th { "cost" } } }
                tbody {
                    @for row in rows.iter().take(BARS) {
                        @let narrowed = Some(&*row.key).filter(|key| !key.is_empty()).and_then(&narrowed);
                        @let amount = cost(row.sums.cost_usd, row.sums.counts.unpriced_calls);
                        tr {
                            td title={ (row.key) @if !row.key.is_empty() { ": " } (grouped(row.sums.counts.api_calls)) " calls, " (grouped(row.sums.tokens())) " tokens" } {
                                @match &narrowed {
                                    Some(narrowed) => a href=(narrowed.address(PATH)) { (row.key) },
                                    None => span.muted { @if row.key.is_empty() { "unknown" } @else { (row.key) } },
                                }
                            }
                            td { (chart::bar(row.sums.cost_usd, 0.0, largest, &class(&row.key))) }
                            td.n.small.muted { (share(row.sums.cost_usd, whole)) }
                            td.n { @if let Some(narrowed) = &narrowed { a.plain href=(narrowed.sessions_address()) title="Its sessions" { (amount) } } @else { (amount) } }
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
    use crate::model::Day;
    use crate::numbers::Numbers;

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
        let agents = ["claude", "codex"];
        let data = gathered(&columns, KnownAgents(&["claude", "codex"]), &agents, &days);
        let costs = |(whole, parts): &(Sums, Vec<Sums>)| {
            (whole.cost_usd, parts.iter().map(|part| part.cost_usd).collect::<Vec<_>>())
        };
        assert_eq!(
            data.iter().map(costs).collect::<Vec<_>>(),
            [(1.0, vec![1.0, 0.0]), (0.0, vec![0.0, 0.0]), (5.0, vec![3.0, 2.0])]
        );
    }

    #[test]
    fn the_banner_says_how_many_calls_of_which_mode_have_no_price() {
        let row = |model: &str, unpriced_calls| UsageRow {
            key: model.into(),
            sums: Sums {
                counts: Numbers { api_calls: 26_364, unpriced_calls, ..Numbers::default() },
                cost_usd: 1.0,
            },
            unpriced_models: if unpriced_calls > 0 { vec![model.into()] } else { Vec::new() },
            ..UsageRow::default()
        };
        let models = [row("claude-opus-4-5-20251101", 1420), row("claude-opus-4-8", 0), row("new-model", 3)];
        let banner = without_price(&models).into_string();
        let said = "No price is known for claude-opus-4-5-20251101 in fast mode (1,420 calls), new-model: the tokens";
        assert!(banner.contains(said), "{banner}");
        assert_eq!(without_price(&models[1..2]).into_string(), "");
    }

    fn all(model: &str) -> Filter {
        let parameters: filter::Parameters =
            serde_json::from_value(serde_json::json!({"model": model})).unwrap();
        parameters.filter(Range::All).unwrap()
    }

    fn told(agent: &str, cost_usd: f64, api_calls: i64, sessions: i64) -> SeriesRow {
        let counts = Numbers { sessions, api_calls, ..Numbers::default() };
        SeriesRow { day: Day(20_000), key: agent.into(), sums: Sums { counts, cost_usd } }
    }

    #[test]
    fn programs_that_are_no_agent_are_one_and_cost_no_session_anything() {
        let days = vec![
            told("ls", 0.0, 0, 3),
            told("sh", 0.0, 0, 1),
            told("claude", 4.0, 2, 2),
            told("codex", 6.0, 2, 3),
            told("gemini", 0.0, 0, 1),
        ];
        let mut view = Overview { days, ..Overview::default() };
        let names = |view: &Overview| {
            view.agents(KnownAgents(&["claude", "codex", "gemini"]))
                .into_iter()
                .map(|row| row.key)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&view), ["codex", "claude"], "the dearest first, none without a cost");
        assert_eq!(each(&all(""), &view, &view.sums()).unwrap(), "$2.00 per session of an agent");
        view.days.push(told("aider", 50.0, 1, 1));
        assert_eq!(names(&view), ["codex", "claude", OTHERS], "what is no agent last");
        view.days.retain(|row| row.sums.counts.api_calls > 0);
        assert_eq!(each(&all(""), &view, &view.sums()).unwrap(), "$10.00 per session");
    }

    #[test]
    fn nothing_is_divided_by_no_session() {
        let view = Overview { days: vec![told("claude", 34.45, 3, 0)], ..Overview::default() };
        assert_eq!(each(&all(""), &view, &view.sums()), None);
        assert_eq!(each(&all("m"), &view, &view.sums()), None, "not counted");
        let counted = |sessions| Some(Counted { sessions, ..Counted::default() });
        let of_model = |sessions| Overview { with_model: counted(sessions), ..view.clone() };
        assert_eq!(each(&all("m"), &of_model(0), &view.sums()), None);
        assert_eq!(each(&all("m"), &of_model(5), &view.sums()).unwrap(), "$6.89 per session");
        assert_eq!(
            each(&all("m"), &of_model(COUNTED), &view.sums()),
            None,
            "nobody knows how many there are"
        );
    }

    #[test]
    fn a_change_is_told_where_there_was_something_before() {
        for (now, before, said) in [
            (118.0, 100.0, Some("+18 %")),
            (50.0, 100.0, Some("−50 %")),
            (100.2, 100.0, Some("±0 %")),
            (5.0, 0.0, None),
            (0.0, 0.0, None),
            (5000.0, 1.0, None),
        ] {
            assert_eq!(change(now, before).as_deref(), said, "{now} after {before}");
        }
    }
}
