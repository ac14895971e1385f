//! One session: what it was, what happened in it, what it cost, and its chain.

use maud::{Markup, html};

use super::axis::{self, Axis};
use super::frame::{Deployment, Frame, Section, empty};
use super::model::SessionView;
use super::panel::{Figure, facts, figure, figures, panel};
use super::sessions::{address, chain_mark, foreign, link, marks, tag_text};
use super::sort::Sort;
use super::table::{PageOrder, Table, TableOrder, cell, heading};
use super::text::{cents, count, duration, float, grouped, share, short, short_count, without_date};
use super::{activity, calls, chain, chart, controls, steps};
use format::shell;
use reader::Numbers;
use reader::{ModelRow, Session, SessionDetail, ToolNumbers, ToolRow};
use types::PicoDollars;
use types::Status;
use types::Timestamp;

/// `sort`: the order of one of its tables.
pub fn page(frame: &Frame, view: &SessionView, sort: Option<Sort>) -> Markup {
    let (session, detail) = (&view.detail.session, &view.detail);
    let (first, last) = span(session, frame.now.at);
    let time = Axis::new(first, last, &axis::closed(&detail.openings));
    let (missing, amounts) = (session.missing_seq(), Amounts::of(session));
    let here = |sort: Sort| sort.address(&address(&session.id));
    let order = PageOrder { asked: sort, address: &here };
    let content = html! {
        (title(detail))
        @if let Some(title) = frame.titles.of(session) { p.about { (title) } }
        (summary(frame, session))
        @if !missing.is_empty() { (incomplete(&missing)) }
        @if detail.chain.len() > 1 { (chain::panel(frame, detail, amounts)) }
        (totals(frame, session, amounts))
        (panel("Cost and events over time", activity::chart(frame, view, &time)))
        div.grid {
            (panel("Models", models(&detail.models, amounts, &order.of("models", ("name", false)))))
            (panel("Tools", tools(&detail.tools, foreign(session), &order.of("tools", ("calls", true)))))
        }
        @if view.activity.is_none() { @if let Some(calls) = calls::panels(&view.events, amounts, &order) { (calls) } }
        div.grid {
            (panel("Turns", steps::list(frame, view)))
            (panel("Record", record(frame, detail, &missing)))
        }
    };
    frame.page(Some(Section::Sessions), session.name(), &content)
}

fn title(detail: &SessionDetail) -> Markup {
    let session = &detail.session;
    html! {
        h1 {
            (session.name()) " " (controls::status(session))
            @if let Some(position) = chain::position(detail) { (chain_mark(&position)) }
            (marks(session))
        }
    }
}

/// One line: the agent, where it worked, and when it started.
fn summary(frame: &Frame, session: &Session) -> Markup {
    let start = session.life.start.as_ref().map(|start| &start.value);
    html! {
        p.lead {
            (controls::agent(frame.agents, &session.life.agent))
            @if let Some(version) = start.and_then(|start| start.agent_version.as_deref()) { " " (version) }
            @if let Some(project) = session.project() { " · " (project) }
            @if let Some(branch) = session.branch() { " · " span.mono { (branch) } }
            " · started " (frame.now.ago(session.started_at()))
            @for tag in session.tags() { " " span.pill.tag { (tag_text(tag)) } }
        }
    }
}

fn incomplete(missing: &[(i64, i64)]) -> Markup {
    html! {
        p.note {
            "Not all of this session has arrived: " (holes(missing)) " missing. "
            "The numbers are what is there; the sender brings the rest when it can."
        }
    }
}

/// From when until when there is something to show.
pub fn span(session: &Session, now: Timestamp) -> (Timestamp, Timestamp) {
    let last = session.last_at;
    (session.started_at(), if session.status() == Status::Active { now.max(last) } else { last })
}

/// `event 5, 7 to 9`.
pub fn holes(missing: &[(i64, i64)]) -> String {
    const SHOWN: usize = 6;
    let number: i64 = missing.iter().map(|(from, to)| to - from + 1).sum();
    let range =
        |(from, to): &(i64, i64)| if from == to { from.to_string() } else { format!("{from} to {to}") };
    let shown: Vec<String> = missing.iter().take(SHOWN).map(range).collect();
    let rest = if missing.len() > SHOWN { ", …" } else { "" };
    format!("{} ({}{rest})", format::counted(usize::try_from(number).unwrap_or(0), "event"), shown.join(", "))
}

fn totals(frame: &Frame, session: &Session, amounts: Amounts) -> Markup {
    let numbers = &session.numbers;
    let calls = figure("API calls", grouped(numbers.api_calls));
    let failed = (!foreign(session)).then(|| format!("{} failed", grouped(numbers.api_errors)));
    let mut all = vec![
        cost_total(numbers, amounts),
        figure("Tokens", count(numbers.tokens())).hint(format!("{} of output", short_count(numbers.output))),
        calls.maybe(failed),
    ];
    if foreign(session) {
        // They were not counted: that is not the same as none.
        all.extend(["Prompts", "Tool calls", "Lines"].map(|name| figure(name, "–").hint("not known")));
    } else {
        let open = format!("{} open", duration(session.duration_ms(frame.now.at)));
        all.push(figure("Prompts", grouped(numbers.prompts)).hint(open));
        let failed = match numbers.tool_calls {
            1.. => format!("{} failed", grouped(numbers.tool_errors)),
            _ => "none".to_owned(),
        };
        all.push(figure("Tool calls", grouped(numbers.tool_calls)).hint(failed));
        all.push(lines_total(session));
    }
    figures(&all)
}

fn cost_total(numbers: &Numbers, amounts: Amounts) -> Figure {
    let exact = html! { span title={ "$" (numbers.money()) } { (amounts.spent(numbers)) } };
    figure("Cost", exact).hint(html! {
        @if numbers.unpriced_calls > 0 {
            (grouped(numbers.unpriced_calls)) " calls have no price"
        } @else if numbers.prompts > 0 {
            (amounts.text(numbers.money().0 / numbers.prompts)) " per prompt"
        }
    })
}

fn lines_total(session: &Session) -> Figure {
    let (numbers, end) = (&session.numbers, session.life.end.as_ref());
    let files = end.and_then(|end| end.value.totals.as_ref()).map_or(0, |totals| totals.files_changed.get());
    let removed = html! {
        "−" (grouped(numbers.lines_removed))
        @if files > 0 { " in " (format::counted(usize::try_from(files).unwrap_or(0), "file")) }
    };
    figure("Lines", format!("+{}", grouped(numbers.lines_added))).hint(removed)
}

/// How amounts are written on the whole page, so that they can be compared: with cents where there are dollars, else finer.
#[derive(Clone, Copy, Debug)]
pub struct Amounts {
    fine: bool,
}

impl Amounts {
    pub fn of(session: &Session) -> Self {
        Self { fine: session.numbers.dollars() < 1.0 }
    }

    #[cfg(test)]
    pub(super) fn fine() -> Self {
        Self { fine: true }
    }

    fn text(self, pico: i64) -> String {
        if self.fine { format::dollars(pico) } else { cents(PicoDollars(pico).dollars()) }
    }

    /// With a plus where calls without a price are not in it.
    pub fn spent(self, numbers: &Numbers) -> String {
        match (numbers.unpriced_calls > 0, numbers.money().0 > 0) {
            (false, _) => self.text(numbers.money().0),
            (true, true) => self.text(numbers.money().0) + "+",
            (true, false) => "no price".to_owned(),
        }
    }
}

fn models(rows: &[ModelRow], amounts: Amounts, order: &TableOrder<'_>) -> Markup {
    if rows.is_empty() {
        return html! { p.muted { "The agent has not called its model yet." } };
    }
    let cached = |numbers: &Numbers| {
        let input = numbers.input + numbers.cache_read + numbers.cache_write;
        let part = share(float(numbers.cache_read), float(input));
        format!("{} read from the cache, {part} of all input", grouped(numbers.cache_read))
    };
    Table::plain()
        .column(heading("", "Model").by("name"), rows, |row| {
            cell("name", without_date(&row.model)).title(&*row.model).value(&*row.model)
        })
        .column(heading("n", "Calls").by("calls"), rows, |row| {
            cell("n", grouped(row.numbers.api_calls)).value(row.numbers.api_calls)
        })
        .column(heading("n wide", "Input").by("input"), rows, |row| {
            cell("n wide", count(row.numbers.input)).value(row.numbers.input)
        })
        .column(heading("n wide", "Cache read").by("cacheRead"), rows, |row| {
            let read = row.numbers.cache_read;
            cell("n wide", short_count(read)).title(cached(&row.numbers)).value(read)
        })
        .column(heading("n wide", "Cache write").by("cacheWrite"), rows, |row| {
            cell("n wide", count(row.numbers.cache_write)).value(row.numbers.cache_write)
        })
        .column(heading("n", "Output").by("output"), rows, |row| {
            cell("n", count(row.numbers.output)).value(row.numbers.output)
        })
        .column(heading("n", "Cost").by("cost"), rows, |row| {
            let exact = format!("${}", row.numbers.money());
            cell("n", amounts.spent(&row.numbers)).title(exact).value(row.numbers.dollars())
        })
        .ordered(order)
        .scrolling()
}

/// One row for each name, the most used first: a tool may have been of several kinds.
fn by_name(rows: &[ToolRow]) -> Vec<(&str, ToolNumbers)> {
    let mut tools: Vec<(&str, ToolNumbers)> = Vec::new();
    for row in rows {
        match tools.iter_mut().find(|(name, _)| *name == row.name) {
            Some((_, numbers)) => numbers.add(&row.numbers),
            None => tools.push((&row.name, row.numbers)),
        }
    }
    tools.sort_by(|(name, one), (other, two)| two.calls.cmp(&one.calls).then(name.cmp(other)));
    tools
}

fn tools(rows: &[ToolRow], unknown: bool, order: &TableOrder<'_>) -> Markup {
    let rows = by_name(rows);
    let largest = rows.iter().map(|(_, numbers)| numbers.calls).max().map_or(0.0, float);
    let table = Table::bars()
        .column(heading("", "Tool").by("name"), &rows, |(name, _)| {
            cell("mono", *name).title(*name).value(*name)
        })
        .column(heading("", ""), &rows, |(_, numbers)| {
            cell("", chart::bar(float(numbers.calls), float(numbers.errors), largest, "c1"))
        })
        .column(heading("n", "Calls").by("calls"), &rows, |(_, numbers)| {
            cell("n", grouped(numbers.calls)).value(numbers.calls)
        })
        .column(heading("n", "Failed").by("failed"), &rows, |(_, numbers)| {
            let failed = html! {
                @if numbers.errors > 0 { span.bad { (grouped(numbers.errors)) " failed" } }
            };
            cell("n small", failed).value(numbers.errors)
        })
        .ordered(order);
    html! {
        @if unknown {
            p.muted { "Not known: it never ran through codemie." }
        } @else if rows.is_empty() {
            p.muted { "No tool was called." }
        } @else {
            (table)
        }
    }
}

fn record(frame: &Frame, detail: &SessionDetail, missing: &[(i64, i64)]) -> Markup {
    let session = &detail.session;
    let wrapper = session.life.start.as_ref().and_then(|start| start.value.wrapper_version.as_deref());
    // The local dashboard receives nothing: its pages are made from a copy of the store.
    let received = (frame.deployment == Deployment::Backend).then(|| frame.now.ago(session.received_at));
    facts([
        ("Session", Some(mono(&session.id))),
        ("Agent's session", agent_session(session)),
        ("Started", Some(text(&frame.now.exact(session.started_at())))),
        ("Ended", ended(frame, session)),
        ("Open for", Some(open_for(frame, session))),
        ("User", session.life.user.as_deref().map(text)),
        ("Machine", session.life.machine.as_deref().map(machine)),
        ("Repository", session.repository().map(text)),
        ("Group", session.group().map(text)),
        ("Started inside", detail.parent.as_ref().map(link)),
        ("Started from it", children(&detail.children)),
        ("Go on with it", resume(frame, session)),
        ("codemie", wrapper.map(text)),
        ("Last received", received),
        ("Completeness", Some(text(&completeness(session, missing)))),
    ])
}

fn text(text: &str) -> Markup {
    html! { (text) }
}

fn mono(text: &str) -> Markup {
    html! { span.mono { (text) } }
}

pub fn machine(id: &str) -> Markup {
    html! { span.mono title=(id) { (short(id)) } }
}

fn agent_session(session: &Session) -> Option<Markup> {
    let bound = &session.life.bound.as_ref()?.value;
    Some(html! {
        (mono(&bound.agent_session_id))
        @if let Some(evidence) = bound.evidence { span.muted { ", known by " (evidence.in_words()) } }
    })
}

fn ended(frame: &Frame, session: &Session) -> Option<Markup> {
    let end = session.ending()?;
    Some(html! {
        (frame.now.exact(end.time))
        @if let Some(reason) = end.value.end_reason { span.muted { ", " (reason.as_str()) } }
        @if let Some(code) = end.value.exit_code { span.muted { ", exit code " (code) } }
    })
}

fn open_for(frame: &Frame, session: &Session) -> Markup {
    let starts = session.life.starts;
    html! {
        (duration(session.duration_ms(frame.now.at)))
        @if starts > 1 { span.muted { ", opened " (starts) " times" } }
    }
}

fn children(children: &[Session]) -> Option<Markup> {
    let list = html! {
        @for (n, child) in children.iter().enumerate() { @if n > 0 { ", " } (link(child)) }
    };
    (!children.is_empty()).then_some(list)
}

fn completeness(session: &Session, missing: &[(i64, i64)]) -> String {
    if session.complete() {
        "every event has arrived".to_owned()
    } else if missing.is_empty() {
        "nothing missing so far".to_owned()
    } else {
        format!("{} missing", holes(missing))
    }
}

/// The command that opens it again, on the machine where it is.
fn resume(frame: &Frame, session: &Session) -> Option<Markup> {
    let here = frame.deployment == Deployment::Local && session.status() != Status::Active;
    let can = here && session.agent_session().is_some() && frame.agents.contains(&session.life.agent);
    // The store has no name for one that never ran through codemie.
    let name = session.agent_session().filter(|_| foreign(session)).unwrap_or(session.name());
    can.then(|| html! { code { "codemie resume " (shell::word(name)) } })
}

/// The page for an id without a session.
pub fn absent(frame: &Frame, id: &str) -> Markup {
    let next = html! {
        "Nothing has arrived under the id " code { (id) } ". " a href="/sessions" { "All sessions" }
    };
    let content = html! { div.panel { (empty("No such session", &next)) } };
    frame.page(Some(Section::Sessions), "No such session", &content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_of_several_kinds_is_one_row() {
        let row = |name: &str, kind: &str, calls, errors| ToolRow {
            name: name.into(),
            kind: kind.into(),
            numbers: ToolNumbers { calls, errors, ..ToolNumbers::default() },
        };
        let rows =
            [row("Read", "read", 4, 0), row("apply_patch", "edit", 3, 1), row("apply_patch", "write", 2, 1)];
        let tools: Vec<_> = by_name(&rows).into_iter().map(|(name, n)| (name, n.calls, n.errors)).collect();
        assert_eq!(tools, [("apply_patch", 5, 2), ("Read", 4, 0)]);
    }
}
