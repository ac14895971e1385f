//! The overview page: cost, tokens and sessions over time, and the cost by agent, model, project and user.

use std::collections::BTreeMap;

use maud::{Markup, Render, html};

use super::agents::{KnownAgents, OTHERS};
use super::filter::{PageFilter, Range};
use super::frame::{Frame, HistoryView, Section, empty};
use super::model::Overview;
use super::panel::{Figure, figure, figures, panel_with};
use super::sessions::COUNTED;
use super::sort::Sort;
use super::table::{Cell, PageOrder, Table, cell, heading};
use super::text::{cents, cost, count, float, grouped, share, without_date};
use super::trend::Trend;
use super::{chart, controls, heat_map};
use pricing::unpriced;
use reader::{Counted, UsageRow, UsageSums};

/// Rows of a list of bars. One more is asked for, to know whether these are all.
pub const BARS: usize = 8;

const PATH: &str = "/";

/// In place of a name: everything that has no row of its own.
const REST: &str = "all others";

pub fn page(frame: &Frame, filter: &PageFilter, view: &Overview) -> Markup {
    let content = html! {
        div.head {
            h1 { "Overview" (controls::zone(frame)) }
            (controls::history(frame, filter, PATH))
            (controls::ranges(filter, PATH))
        }
        (controls::form(filter, &view.facets, PATH, &html! {}))
        @if view.demo_left_out { (controls::demo_left_out(filter, PATH)) }
        @if let HistoryView::Awaited(state) = &frame.history {
            div.panel { (controls::awaited(state)) }
        } @else if view.days.is_empty() {
            div.panel { (nothing(frame, filter, view)) }
        } @else {
            (numbers(frame, filter, view))
        }
    };
    frame.page(Some(Section::Overview), "Overview", &content)
}

fn nothing(frame: &Frame, filter: &PageFilter, view: &Overview) -> Markup {
    if view.facets.agents.is_empty() {
        return empty("Nothing has arrived yet", &controls::how_to_begin(frame.deployment));
    }
    let all = filter.with(|f| f.range = Range::All);
    empty(
        "No sessions match",
        &html! { "Take a filter away, or look at " a href=(all.address(PATH)) { "all days" } "." },
    )
}

fn numbers(frame: &Frame, filter: &PageFilter, view: &Overview) -> Markup {
    let sums = view.sums();
    html! {
        (totals(frame, filter, view, &sums))
        (without_price(&view.models))
        (Trend::new(frame, filter, view).charts(&sums))
        (breakdowns(frame, filter, view, sums.cost_usd))
        (heat_map::heat_map(&view.hours, &frame.zone_name))
    }
}

fn totals(frame: &Frame, filter: &PageFilter, view: &Overview, sums: &UsageSums) -> Markup {
    let counts = &sums.counts;
    let of_model = filter.chosen.model.is_some();
    let mut all = vec![cost_total(filter, view, sums)];
    all.extend(sessions_total(frame, filter, view, sums));
    all.push(tokens_total(filter, view, sums));
    // Of conversations that never ran through codemie, failed calls are not known.
    let failed =
        (!of_model && !frame.history.is_shown()).then(|| format!("{} failed", grouped(counts.api_errors)));
    all.push(figure("API calls", count(counts.api_calls)).maybe(failed));
    // Numbers that belong to no model are not zero under one: they are not known.
    if frame.history.is_shown() && !of_model {
        all.push(of_wrapped("Tool calls", counts.tool_calls));
        all.push(of_wrapped("Lines", counts.lines_added));
    } else if !of_model {
        let failed = match counts.tool_calls {
            1.. => format!("{} failed", share(float(counts.tool_errors), float(counts.tool_calls))),
            _ => "none".to_owned(),
        };
        all.push(figure("Tool calls", count(counts.tool_calls)).hint(failed));
        let added = html! { "+" (count(counts.lines_added)) };
        all.push(figure("Lines", added).hint(html! { "−" (count(counts.lines_removed)) }));
    }
    figures(&all)
}

/// A number that is known of wrapped sessions alone; of all others it is unknown, which is not none.
fn of_wrapped(name: &'static str, number: i64) -> Figure {
    match number {
        1.. => figure(name, count(number)).hint("of wrapped sessions"),
        _ => figure(name, "–").hint("not known"),
    }
}

fn cost_total(filter: &PageFilter, view: &Overview, sums: &UsageSums) -> Figure {
    figure("Cost", cost(sums.cost_usd, sums.counts.unpriced_calls))
        .maybe(cost_per_session(filter, view, sums))
        .maybe(compared(filter, view, sums, |sums| sums.cost_usd))
}

fn sessions_total(frame: &Frame, filter: &PageFilter, view: &Overview, sums: &UsageSums) -> Option<Figure> {
    if let Some(with_model) = view.with_model {
        return Some(figure("Sessions", at_most(with_model.sessions)).hint("begun, that called it"));
    }
    if filter.chosen.model.is_some() {
        return None;
    }
    let prompts = format::counted(usize::try_from(sums.counts.prompts).unwrap_or(0), "prompt");
    let people = view.users.len();
    let prompts = match (frame.history.is_shown(), sums.counts.prompts) {
        (false, _) => prompts,
        (true, 1..) => format!("{prompts} in wrapped ones"),
        (true, _) => "prompts not known".to_owned(),
    };
    let hint = html! { (prompts) @if people > 1 { " · " (people) " people" } };
    let compared = compared(filter, view, sums, |sums| float(sums.counts.sessions));
    Some(figure("Sessions", grouped(sums.counts.sessions)).hint(hint).maybe(compared))
}

fn tokens_total(filter: &PageFilter, view: &Overview, sums: &UsageSums) -> Figure {
    let counts = &sums.counts;
    let input = counts.input + counts.cache_read + counts.cache_write;
    let cached = match input {
        1.. => format!("{} of input cached", share(float(counts.cache_read), float(input))),
        _ => "none".to_owned(),
    };
    let compared = compared(filter, view, sums, |sums| float(sums.tokens()));
    figure("Tokens", count(sums.tokens())).hint(cached).maybe(compared)
}

/// The average cost of a session, if there is one to divide by.
fn cost_per_session(filter: &PageFilter, view: &Overview, sums: &UsageSums) -> Option<String> {
    let paying = match (&filter.chosen.model, view.with_model) {
        (None, _) => view.paying_sessions(),
        (Some(_), Some(Counted { sessions: 1..COUNTED, .. })) => view.with_model?.sessions,
        (Some(_), _) => return None,
    };
    let all = filter.chosen.model.is_some() || paying == sums.counts.sessions;
    let what = if all { "per session" } else { "per session of an agent" };
    (paying > 0).then(|| format!("{} {what}", cents(sums.cost_usd / float(paying))))
}

fn at_most(sessions: i64) -> String {
    if sessions >= COUNTED { format!("{}+", grouped(COUNTED)) } else { grouped(sessions) }
}

/// `+18 % on 30 days before`.
fn compared(
    filter: &PageFilter,
    view: &Overview,
    now: &UsageSums,
    value: fn(&UsageSums) -> f64,
) -> Option<String> {
    let before = view.before.as_ref()?;
    let days = match filter.range {
        Range::Days(1) => "the day before".to_owned(),
        Range::Days(days) => format!("{days} days before"),
        _ => "before".to_owned(),
    };
    change(value(now), value(before)).map(|change| format!("{change} on {days}"))
}

/// `+18 %`, where there was something before and it can be compared.
fn change(now: f64, before: f64) -> Option<String> {
    let percent = (now / before - 1.0) * 100.0;
    let comparable = before > 0.0 && percent.is_finite() && percent < 1000.0;
    comparable.then(|| {
        if percent.abs() < 0.5 { "±0 %".to_owned() } else { format!("{percent:+.0} %").replace('-', "−") }
    })
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
            p.note {
                "+ No price is known for " (unpriced::named(calls.keys(), &calls))
                ": the tokens are counted, the cost is not."
            }
        }
    }
}

/// The cost by agent, model, project and user.
fn breakdowns(frame: &Frame, filter: &PageFilter, view: &Overview, whole: f64) -> Markup {
    let agents = view.agents(frame.agents);
    let users = view.users.len() > 1;
    let by =
        |title, kind, rows, narrowed| Breakdown { title, kind, rows, whole, filter, narrowed, colours: None };
    let agent =
        |name: &str| (name != OTHERS).then(|| filter.with(|f| f.chosen.agent = Some(name.to_owned())));
    let model = |name: &str| Some(filter.with(|f| f.chosen.model = Some(name.to_owned())));
    let project = |name: &str| Some(filter.with(|f| f.chosen.project = Some(name.to_owned())));
    let user = |name: &str| Some(filter.with(|f| f.chosen.user = Some(name.to_owned())));
    html! {
        div.grid.three[!users] {
            (Breakdown { colours: Some(frame.agents), ..by("By agent", "agent", &agents, &agent) })
            (by("By model", "model", &view.models, &model))
            (by("By project", "project", &view.projects, &project))
            @if users { (by("By user", "user", &view.users, &user)) }
        }
    }
}

/// The parts that the cost is made of, as bars. A name leads to the same page of it alone, an amount to its sessions.
struct Breakdown<'a> {
    title: &'static str,
    kind: &'static str,
    rows: &'a [UsageRow],
    whole: f64,
    filter: &'a PageFilter,
    /// The filter for one name; `None` for a name that there is no filter for.
    narrowed: &'a dyn Fn(&str) -> Option<PageFilter>,
    /// Each row in the colour of its agent, or all in one.
    colours: Option<KnownAgents>,
}

impl Render for Breakdown<'_> {
    fn render(&self) -> Markup {
        let csv = self.filter.address(&format!("/csv/{}", self.kind));
        let links = html! {
            @if self.rows.len() > BARS || self.filter.all_rows {
                @let other = self.filter.with(|filter| filter.all_rows = !filter.all_rows).address(PATH);
                a href=(other) { @if self.filter.all_rows { "the most expensive" } @else { "all" } } " · "
            }
            a href=(csv) { "CSV" }
        };
        panel_with(self.title, links, self.table())
    }
}

impl Breakdown<'_> {
    fn table(&self) -> Table {
        let shown = if self.filter.all_rows { self.rows.len() } else { self.rows.len().min(BARS) };
        let mut rows = self.rows[..shown].to_vec();
        let rest = self.rest(&rows);
        let fixed = usize::from(rest.is_some());
        rows.extend(rest);
        let rows = &rows[..];
        let address = |sort: Sort| self.filter.with(|f| f.sort = Some(sort)).address(PATH);
        let page = PageOrder { asked: self.filter.sort, address: &address };
        let order = page.of(self.kind, ("cost", true)).with_fixed(fixed);
        let largest = self.rows.iter().map(|row| row.sums.cost_usd).fold(0.0, f64::max);
        let colour = |name: &str| self.colours.map_or(0, |agents| agents.colour(name));
        Table::bars()
            .column(heading("", self.heading()).by("name"), rows, |row| self.name(row))
            .column(heading("", ""), rows, |row| {
                let class = format!("c{}", colour(&row.key));
                cell("", chart::bar(row.sums.cost_usd, 0.0, largest, &class))
            })
            .column(heading("n", "Share").by("share"), rows, |row| {
                cell("n small muted", share(row.sums.cost_usd, self.whole)).value(row.sums.cost_usd)
            })
            .column(heading("n", "Cost").by("cost"), rows, |row| self.amount(row).value(row.sums.cost_usd))
            .ordered(&order)
    }

    fn heading(&self) -> &'static str {
        match self.kind {
            "agent" => "Agent",
            "model" => "Model",
            "project" => "Project",
            _ => "User",
        }
    }

    /// What the rows that are not shown cost together.
    fn rest(&self, shown: &[UsageRow]) -> Option<UsageRow> {
        let left_out = self.rows.len() > shown.len();
        let cost_usd = self.whole - shown.iter().map(|row| row.sums.cost_usd).sum::<f64>();
        let sums = UsageSums { cost_usd: cost_usd.max(0.0), ..UsageSums::default() };
        left_out.then(|| UsageRow { key: REST.to_owned(), sums, ..UsageRow::default() })
    }

    fn filter(&self, row: &UsageRow) -> Option<PageFilter> {
        Some(&*row.key).filter(|key| !key.is_empty() && *key != REST).and_then(self.narrowed)
    }

    fn name(&self, row: &UsageRow) -> Cell {
        let (calls, tokens) = (grouped(row.sums.counts.api_calls), grouped(row.sums.tokens()));
        let separator = if row.key.is_empty() { "" } else { ": " };
        if row.key == REST {
            return cell("", html! { span.muted { (REST) } });
        }
        let name = if row.key.is_empty() { "unknown" } else { without_date(&row.key) };
        let content = html! {
            @match self.filter(row) {
                Some(filter) => a href=(filter.address(PATH)) { (name) },
                None => span.muted { (name) },
            }
        };
        cell("", content).value(name).title(format!("{}{separator}{calls} calls, {tokens} tokens", row.key))
    }

    fn amount(&self, row: &UsageRow) -> Cell {
        let amount = cost(row.sums.cost_usd, row.sums.counts.unpriced_calls);
        let content = match self.filter(row) {
            Some(filter) => html! {
                a.plain href=(filter.sessions_address()) title="Its sessions" { (amount) }
            },
            None => amount,
        };
        cell("n", content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter;
    use reader::Numbers;
    use reader::{Day, SeriesRow};

    #[test]
    fn the_note_names_models_and_modes_without_a_price_and_their_calls() {
        let row = |model: &str, unpriced_calls| UsageRow {
            key: model.into(),
            sums: UsageSums {
                counts: Numbers { api_calls: 26_364, unpriced_calls, ..Numbers::default() },
                cost_usd: 1.0,
            },
            unpriced_models: if unpriced_calls > 0 { vec![model.into()] } else { Vec::new() },
            ..UsageRow::default()
        };
        let models = [row("claude-opus-4-5-20251101", 1420), row("claude-opus-4-8", 0), row("new-model", 3)];
        let note = without_price(&models).into_string();
        let expected = "No price is known for claude-opus-4-5-20251101 in fast mode (1,420 calls), new-model: the tokens";
        assert!(note.contains(expected), "{note}");
        assert_eq!(without_price(&models[1..2]).into_string(), "");
    }

    fn all(model: &str) -> PageFilter {
        let parameters: filter::FilterParameters =
            serde_json::from_value(serde_json::json!({"model": model})).unwrap();
        parameters.filter(Range::All).unwrap()
    }

    fn agent_day(agent: &str, cost_usd: f64, api_calls: i64, sessions: i64) -> SeriesRow {
        let counts = Numbers { sessions, api_calls, ..Numbers::default() };
        SeriesRow { day: Day(20_000), key: agent.into(), sums: UsageSums { counts, cost_usd } }
    }

    #[test]
    fn other_programs_are_one_row_and_do_not_count_in_the_average() {
        let days = vec![
            agent_day("ls", 0.0, 0, 3),
            agent_day("sh", 0.0, 0, 1),
            agent_day("claude", 4.0, 2, 2),
            agent_day("codex", 6.0, 2, 3),
            agent_day("gemini", 0.0, 0, 1),
        ];
        let mut view = Overview { days, ..Overview::default() };
        let names = |view: &Overview| {
            view.agents(KnownAgents(&["claude", "codex", "gemini"]))
                .into_iter()
                .map(|row| row.key)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&view), ["codex", "claude"], "the most expensive first, none without a cost");
        assert_eq!(cost_per_session(&all(""), &view, &view.sums()).unwrap(), "$2.00 per session of an agent");
        view.days.push(agent_day("aider", 50.0, 1, 1));
        assert_eq!(names(&view), ["codex", "claude", OTHERS], "what is no agent last");
        view.days.retain(|row| row.sums.counts.api_calls > 0);
        assert_eq!(cost_per_session(&all(""), &view, &view.sums()).unwrap(), "$10.00 per session");
    }

    #[test]
    fn without_a_session_there_is_no_average() {
        let view = Overview { days: vec![agent_day("claude", 34.45, 3, 0)], ..Overview::default() };
        assert_eq!(cost_per_session(&all(""), &view, &view.sums()), None);
        assert_eq!(cost_per_session(&all("m"), &view, &view.sums()), None, "not counted");
        let counted = |sessions| Some(Counted { sessions, ..Counted::default() });
        let of_model = |sessions| Overview { with_model: counted(sessions), ..view.clone() };
        assert_eq!(cost_per_session(&all("m"), &of_model(0), &view.sums()), None);
        assert_eq!(cost_per_session(&all("m"), &of_model(5), &view.sums()).unwrap(), "$6.89 per session");
        assert_eq!(
            cost_per_session(&all("m"), &of_model(COUNTED), &view.sums()),
            None,
            "more than are counted"
        );
    }

    #[test]
    fn a_change_is_shown_where_there_was_something_before() {
        for (now, before, expected) in [
            (118.0, 100.0, Some("+18 %")),
            (50.0, 100.0, Some("−50 %")),
            (100.2, 100.0, Some("±0 %")),
            (5.0, 0.0, None),
            (0.0, 0.0, None),
            (5000.0, 1.0, None),
        ] {
            assert_eq!(change(now, before).as_deref(), expected, "{now} after {before}");
        }
    }
}
