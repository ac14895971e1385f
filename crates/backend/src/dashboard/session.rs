//! One session: what it was, what happened in it, what it cost, what came before and after.

use maud::{Markup, html};

use super::axis::{self, Axis};
use super::frame::{Frame, Place, Room, empty};
use super::model::Story;
use super::sessions::{address, chain_mark, foreign, link, marks};
use super::text::{self, count, duration, float, grouped, share, short, short_count};
use super::turns::{self, Step, Turn};
use super::{chart, controls, course};
use crate::model::{ModelRow, Session, SessionDetail, ToolNumbers, ToolRow};
use crate::numbers::Numbers;
use human::shell;
use wire::PicoDollars;
use wire::Timestamp;
use wire::{EndReason, StartReason, Status};

/// Links of a chain that are shown around the session; a longer one is cut on both sides.
const AROUND: usize = 5;
/// Steps of the story shown at first; the rest is one click away.
const STEPS: usize = 60;

pub fn page(frame: &Frame, view: &Story) -> Markup {
    let (session, detail) = (&view.detail.session, &view.detail);
    let (first, last) = span(session, frame.now.at);
    let time = Axis::new(first, last, &axis::closed(&detail.openings));
    let (missing, amounts) = (session.missing_seq(), Amounts::of(session));
    let content = html! {
        h1 { (session.name()) " " (controls::status(session)) @if let Some(place) = place(detail) { (chain_mark(&place)) } (marks(session)) }
        p.lead {
            (controls::agent(frame.agents, &session.life.agent))
            @if let Some(start) = &session.life.start && let Some(version) = &start.said.agent_version { " " (&**version) }
            @if let Some(project) = session.project() { " · " (project) }
            @if let Some(branch) = session.branch() { " · " span.mono { (branch) } }
            " · started " (frame.now.ago(session.started_at()))
            @for tag in session.tags() { " " span.pill.tag { (&**tag) } }
        }
        @if !missing.is_empty() {
            p.note { "Not all of this session has arrived: " (holes(&missing)) " missing. The numbers are what is there; the sender brings the rest when it can." }
        }
        @if detail.chain.len() > 1 {
            section.panel {
                h2 { "Chain" span.aside { (detail.chain.len()) " sessions, " (amounts.spent(&whole(&detail.chain))) " in all" } }
                (chain(frame, &detail.chain, &session.id, amounts))
            }
        }
        (totals(frame, session, amounts))
        section.panel { h2 { "Cost and events over time" } (course::chart(frame, view, &time)) }
        div.grid {
            section.panel { h2 { "Models" } (models(&detail.models, amounts)) }
            section.panel { h2 { "Tools" } (tools(&detail.tools, foreign(session))) }
        }
        div.grid {
            section.panel { h2 { "Turns" } (story(frame, view)) }
            section.panel { h2 { "Record" } (record(frame, view, &missing)) }
        }
    };
    frame.page(Some(Room::Sessions), session.name(), &content)
}

/// Which one of its chain it is.
fn place(detail: &SessionDetail) -> Option<String> {
    let at = detail.chain.iter().position(|session| session.id == detail.session.id)?;
    (detail.chain.len() > 1).then(|| format!("{} of {}", at + 1, detail.chain.len()))
}

fn whole(chain: &[Session]) -> Numbers {
    let mut whole = Numbers::default();
    for session in chain {
        whole.add(&session.numbers);
    }
    whole
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
    format!("{} ({}{rest})", human::counted(usize::try_from(number).unwrap_or(0), "event"), shown.join(", "))
}

/// The sessions of a chain, linked by what ended each of them.
fn chain(frame: &Frame, chain: &[Session], here: &str, amounts: Amounts) -> Markup {
    let at = chain.iter().position(|session| session.id == here).unwrap_or(0);
    let (from, to) = (at.saturating_sub(AROUND), chain.len().min(at + AROUND + 1));
    html! {
        ol.chain {
            @if from > 0 {
                li { a.node href=(address(&chain[0].id)) { b { (from) " before" } span.muted.small { "to the first" } } (joint(&chain[from - 1], &chain[from])) }
            }
            @for (n, session) in chain.iter().enumerate().take(to).skip(from) {
                li {
                    (node(frame, session, session.id == here, amounts))
                    @if let Some(next) = chain.get(n + 1) { (joint(session, next)) }
                }
            }
            @if to < chain.len() {
                li { a.node href=(address(&chain[chain.len() - 1].id)) { b { (chain.len() - to) " after" } span.muted.small { "to the last" } } }
            }
        }
    }
}

fn node(frame: &Frame, session: &Session, here: bool, amounts: Amounts) -> Markup {
    let inside = html! {
        b { (session.name()) }
        span.muted.small {
            (amounts.spent(&session.numbers)) " · " (duration(session.duration_ms(frame.now.at)))
            @if session.status() == Status::Active { " · running" }
        }
    };
    html! {
        @if here {
            span.node.here aria-current="true" { (inside) }
        } @else {
            a.node href=(address(&session.id)) { (inside) }
        }
    }
}

/// What led from one session to the next. Each tells of its last opening only, so either may know it.
fn joint(session: &Session, next: &Session) -> Markup {
    let reason = next.life.start.as_ref().and_then(|start| start.said.reason);
    let word = match (reason, session.ending().and_then(|end| end.said.end_reason)) {
        (Some(StartReason::Clear), _) | (_, Some(EndReason::Clear)) => "/clear",
        (Some(StartReason::Switch), _) | (_, Some(EndReason::Switch)) => "switch",
        _ => "",
    };
    html! {
        span.link {
            i { (word) } span.stem {}
            svg.arrow width="9" height="10" aria-hidden="true" { path d="M2 1L7 5L2 9" {} }
        }
    }
}

fn totals(frame: &Frame, session: &Session, amounts: Amounts) -> Markup {
    let numbers = &session.numbers;
    // Nobody looked: that is not the same as none.
    let unseen = foreign(session);
    let seen = |number: i64| if unseen { "–".to_owned() } else { grouped(number) };
    let unknown = "not known";
    let files = session
        .life
        .end
        .as_ref()
        .and_then(|end| end.said.totals.as_ref())
        .map_or(0, |totals| totals.files_changed.get());
    html! {
        dl.totals {
            div {
                dt { "Cost" }
                dd { span title={ "$" (numbers.money()) } { (amounts.spent(numbers)) } }
                dd.hint {
                    @if numbers.unpriced_calls > 0 { (grouped(numbers.unpriced_calls)) " calls have no price" }
                    @else if numbers.prompts > 0 { (amounts.said(numbers.money().0 / numbers.prompts)) " per prompt" }
                }
            }
            div { dt { "Tokens" } dd { (count(numbers.tokens())) } dd.hint { (short_count(numbers.output)) " of output" } }
            div { dt { "API calls" } dd { (grouped(numbers.api_calls)) } dd.hint { (grouped(numbers.api_errors)) " failed" } }
            div { dt { "Prompts" } dd { (seen(numbers.prompts)) } dd.hint { @if unseen { (unknown) } @else { (duration(session.duration_ms(frame.now.at))) " open" } } }
            div { dt { "Tool calls" } dd { (seen(numbers.tool_calls)) } dd.hint { @if unseen { (unknown) } @else if numbers.tool_calls > 0 { (grouped(numbers.tool_errors)) " failed" } @else { "none" } } }
            div { dt { "Lines" } @if unseen { dd { "–" } dd.hint { (unknown) } } @else { dd { "+" (grouped(numbers.lines_added)) } dd.hint { "−" (grouped(numbers.lines_removed)) @if files > 0 { " in " (human::counted(usize::try_from(files).unwrap_or(0), "file")) } } } }
        }
    }
}

/// How amounts are said on the whole page, so that they can be compared: with cents where there are dollars, else finer.
#[derive(Clone, Copy, Debug)]
struct Amounts {
    fine: bool,
}

impl Amounts {
    fn of(session: &Session) -> Self {
        Self { fine: session.numbers.dollars() < 1.0 }
    }

    fn said(self, pico: i64) -> String {
        if self.fine { human::dollars(pico) } else { text::cents(PicoDollars(pico).dollars()) }
    }

    /// With a plus where calls without a price are not in it.
    fn spent(self, numbers: &Numbers) -> String {
        match (numbers.unpriced_calls > 0, numbers.money().0 > 0) {
            (false, _) => self.said(numbers.money().0),
            (true, true) => self.said(numbers.money().0) + "+",
            (true, false) => "no price".to_owned(),
        }
    }
}

fn calls(number: i64) -> String {
    human::counted(usize::try_from(number).unwrap_or(0), "call")
}

fn models(rows: &[ModelRow], amounts: Amounts) -> Markup {
    if rows.is_empty() {
        return html! { p.muted { "The agent has not called its model yet." } };
    }
    html! {
        div.scroll { table.plain {
            thead { tr { th { "Model" } th.n { "Calls" } th.n.wide { "Input" } th.n.wide { "Cache read" } th.n.wide { "Cache write" } th.n { "Output" } th.n { "Cost" } } }
            tbody {
                @for ModelRow { model, numbers } in rows {
                    @let input = numbers.input + numbers.cache_read + numbers.cache_write;
                    tr {
                        td.name { span.line title=(model) { (model) } }
                        td.n { (grouped(numbers.api_calls)) }
                        td.n.wide { (count(numbers.input)) }
                        td.n.wide title={ (grouped(numbers.cache_read)) " read from the cache, " (share(float(numbers.cache_read), float(input))) " of all input" } { (short_count(numbers.cache_read)) }
                        td.n.wide { (count(numbers.cache_write)) }
                        td.n { (count(numbers.output)) }
                        td.n title={ "$" (numbers.money()) } { (amounts.spent(numbers)) }
                    }
                }
            }
        } }
    }
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

fn tools(rows: &[ToolRow], unseen: bool) -> Markup {
    let rows = by_name(rows);
    let largest = rows.iter().map(|(_, numbers)| numbers.calls).max().map_or(0.0, float);
    html! {
        @if unseen {
            p.muted { "Not known: it never ran through codemie." }
        } @else if rows.is_empty() {
            p.muted { "No tool was called." }
        }
        table.bars {
            thead.hidden { tr { th { "Tool" } th { "as a bar" } th { "calls" } th { "failed" } } }
            tbody {
                @for (name, numbers) in &rows {
                    tr {
                        td.mono title=(name) { (name) }
                        td { (chart::bar(float(numbers.calls), float(numbers.errors), largest, "c1")) }
                        td.n { (grouped(numbers.calls)) }
                        td.n.small { @if numbers.errors > 0 { span.bad { (grouped(numbers.errors)) " failed" } } }
                    }
                }
            }
        }
    }
}

fn story(frame: &Frame, view: &Story) -> Markup {
    let steps = turns::steps(&view.events);
    let before = std::iter::once(None).chain(steps.iter().map(|(at, _)| Some(*at)));
    let steps: Vec<_> = steps.iter().zip(before).collect();
    let (shown, rest) = steps.split_at(steps.len().min(STEPS));
    let item = |((at, what), before): &(&(Timestamp, Step<'_>), Option<Timestamp>)| {
        step(&frame.now.time_after(*at, *before), *at, what, &view.detail.session)
    };
    html! {
        ol.turns { @for one in shown { (item(one)) } }
        @if !rest.is_empty() {
            details {
                summary { (rest.len()) " more" }
                ol.turns { @for one in rest { (item(one)) } }
            }
        }
        @if view.course.is_some() {
            p.muted.small { "Only the first " (grouped(i64::try_from(view.events.len()).unwrap_or(i64::MAX))) " events are shown here; the numbers above count all of them." }
        }
    }
}

fn step(time: &Markup, at: Timestamp, what: &Step<'_>, session: &Session) -> Markup {
    let time = html! { span.muted.small { (time) } };
    match what {
        Step::Start(start) => html! {
            li.life.begin { div.turn {
                b { (match start.reason { Some(StartReason::Resume) => "Resumed", Some(StartReason::Clear) => "Began after /clear", Some(StartReason::Switch) => "Switched to", _ => "Started" }) }
                (time)
            } }
        },
        Step::Bound(evidence) => html! {
            li.life { div.turn { b { "Conversation known" } (time) @if let Some(evidence) = evidence { span.muted.small { "by " (evidence.in_words()) } } } }
        },
        Step::End(end) => html! {
            li.life.failed[end.status == Status::Failed] { div.turn {
                b { "Ended" } (time)
                span.muted.small { (end.end_reason.map_or(end.status.as_str(), EndReason::as_str)) @if let Some(code) = end.exit_code { ", exit code " (code) } }
            } }
        },
        Step::Turn(turn) => turn_item(&time, at, turn, session),
    }
}

fn turn_item(time: &Markup, at: Timestamp, turn: &Turn<'_>, session: &Session) -> Markup {
    html! {
        li.failed[!turn.errors.is_empty()] {
            div.turn {
                b { @if let Some(number) = turn.number { "Prompt " (number) } @else if foreign(session) { "Calls" } @else { "Without a prompt" } }
                (time)
                @if turn.unanswered() {
                    span.muted.small { "no answer" }
                } @else {
                    span.muted.small {
                        (calls(turn.sums.api_calls))
                        @if turn.subagent_calls > 0 { ", " (turn.subagent_calls) " by sub-agents" }
                        " · " (duration(turn.until.0 - at.0))
                        @if turn.sums.lines_added + turn.sums.lines_removed > 0 { " · +" (grouped(turn.sums.lines_added)) " −" (grouped(turn.sums.lines_removed)) }
                    }
                    span.end { @if turn.sums.api_calls > 0 { (Amounts::of(session).spent(&turn.sums)) } }
                }
            }
            @if !turn.tools.is_empty() || !turn.errors.is_empty() {
                ul.tools {
                    @for (name, tally) in &turn.tools {
                        li.bad[tally.errors > 0] { (name) @if tally.calls > 1 { " ×" (tally.calls) } @if tally.errors > 0 { " · " (tally.errors) " failed" } }
                    }
                    @for error in &turn.errors { li.bad { (error) } }
                }
            }
        }
    }
}

fn record(frame: &Frame, view: &Story, missing: &[(i64, i64)]) -> Markup {
    let (session, detail) = (&view.detail.session, &view.detail);
    let (start, end) = (session.life.start.as_ref().map(|told| &told.said), session.ending());
    let mono = |text: &str| html! { span.mono { (text) } };
    let facts: Vec<(&str, Markup)> = [
        ("Session", Some(mono(&session.id))),
        ("Agent's session", session.life.bound.as_ref().map(|bound| html! {
            (mono(&bound.said.agent_session_id))
            @if let Some(evidence) = bound.said.evidence { span.muted { ", known by " (evidence.in_words()) } }
        })),
        ("Started", Some(html! { (frame.now.exact(session.started_at())) })),
        ("Ended", end.map(|end| html! {
            (frame.now.exact(end.time))
            @if let Some(reason) = end.said.end_reason { span.muted { ", " (reason.as_str()) } }
            @if let Some(code) = end.said.exit_code { span.muted { ", exit code " (code) } }
        })),
        ("Open for", Some(html! { (duration(session.duration_ms(frame.now.at))) @if session.life.starts > 1 { span.muted { ", opened " (session.life.starts) " times" } } })),
        ("User", session.life.user.as_ref().map(|user| html! { (user) })),
        ("Machine", session.life.machine.as_ref().map(|machine| html! { span.mono title=(machine) { (short(machine)) } })),
        ("Repository", session.repository().map(|repository| html! { (repository) })),
        ("Group", session.group().map(|group| html! { (group) })),
        ("Started inside", detail.parent.as_ref().map(link)),
        ("Started from it", (!detail.children.is_empty()).then(|| html! {
            @for (n, child) in detail.children.iter().enumerate() { @if n > 0 { ", " } (link(child)) }
        })),
        ("Go on with it", resume(frame, session)),
        ("codemie", start.and_then(|start| start.wrapper_version.as_ref()).map(|version| html! { (&**version) })),
        // Here nothing is received: the pages are made from a copy of what is there.
        ("Last received", (frame.place == Place::Backend).then(|| frame.now.ago(session.received_at))),
        ("Completeness", Some(html! {
            @if session.complete() { "every event has arrived" }
            @else if missing.is_empty() { "nothing missing so far" }
            @else { (holes(missing)) " missing" }
        })),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect();
    html! { dl.facts { @for (name, value) in &facts { dt { (name) } dd { (value) } } } }
}

/// The command that opens it again, on the machine where it is.
fn resume(frame: &Frame, session: &Session) -> Option<Markup> {
    let here = frame.place == Place::Local && session.status() != Status::Active;
    let can = here && session.agent_session().is_some() && frame.agents.contains(&session.life.agent);
    can.then(|| html! { code { "codemie resume " (shell::word(session.name())) } })
}

/// For a session that is not there.
pub fn absent(frame: &Frame, id: &str) -> Markup {
    let next = html! { "Nothing has arrived under the id " code { (id) } ". " a href="/sessions" { "All sessions" } };
    frame.page(
        Some(Room::Sessions),
        "No such session",
        &html! { div.panel { (empty("No such session", &next)) } },
    )
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
        let told: Vec<_> = by_name(&rows).into_iter().map(|(name, n)| (name, n.calls, n.errors)).collect();
        assert_eq!(told, [("apply_patch", 5, 2), ("Read", 4, 0)]);
    }
}
