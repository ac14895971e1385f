//! The activity of a session over time: the curve of its cost, and below it a lane for each kind of event, over one axis.

use maud::{Markup, html};

use super::axis::Axis;
use super::chart::{ABOVE, BELOW, HEIGHT, percent, px};
use super::cost_curve::CostCurve;
use super::frame::Frame;
use super::model::SessionView;
use super::text::{about, grouped};
use types::Attributes;
use types::Timestamp;

/// One or more events at a time.
#[derive(Clone, Debug, PartialEq)]
struct Mark {
    x: f64,
    at: Timestamp,
    number: i64,
    /// What it was; empty where only the number is known.
    text: String,
}

/// One kind of event along the time of a session.
#[derive(Clone, Debug)]
struct Lane {
    name: &'static str,
    /// One of them.
    one: &'static str,
    class: &'static str,
    marks: Vec<Mark>,
}

/// Between the curve and the first lane.
const GAP: f64 = 14.0;
const LANE: f64 = 26.0;
/// Marks closer than this lie on each other: a screen has space for some hundred.
const CLOSE: f64 = 0.006;
/// Events that a merged mark names one by one.
const NAMED: usize = 6;
/// The least distance of two breaks whose texts both have space.
const WORDS: f64 = 0.12;

pub fn chart(frame: &Frame, view: &SessionView, time: &Axis) -> Markup {
    let (curve, lanes) = (CostCurve::new(frame, view, time), lanes(view, time));
    let below = if curve.is_empty() { 0.0 } else { ABOVE + HEIGHT + GAP };
    let layout = Layout { below, bottom: below + LANE * 4.0 };
    html! {
        @if curve.is_empty() { p.muted { "The agent has not called its model yet." } }
        div.chart.course {
            (names(&curve, &lanes, layout))
            (plot(frame, &curve, &lanes, time, layout))
        }
    }
}

/// Where the lanes are: below the curve, if there is one.
#[derive(Clone, Copy, Debug)]
struct Layout {
    below: f64,
    bottom: f64,
}

impl Layout {
    fn middle(self, lane: i32) -> f64 {
        self.below + LANE * (f64::from(lane) + 0.5)
    }

    fn height(self) -> String {
        px(self.bottom + BELOW)
    }
}

/// To the left: the amounts of the curve, and the names of the lanes.
fn names(curve: &CostCurve, lanes: &[Lane], layout: Layout) -> Markup {
    html! {
        svg.axis aria-hidden="true" height=(layout.height()) width="64" {
            (curve.amounts())
            @for (lane, at) in lanes.iter().zip(0..) {
                text x="56" y=(px(layout.middle(at) + 3.5)) { (lane.name) }
            }
        }
    }
}

fn plot(frame: &Frame, curve: &CostCurve, lanes: &[Lane], time: &Axis, layout: Layout) -> Markup {
    let labels = time.labels(&frame.now.zone);
    let description = "Cost so far in US dollars, and what happened when";
    html! {
        svg.plot role="img" aria-label=(description) height=(layout.height()) width="100%" {
            @for (x, _) in &labels { (vertical_line("tick", *x, &px(ABOVE), layout.bottom)) }
            @if !curve.is_empty() { (curve) }
            @for (lane, at) in lanes.iter().zip(0..) { (marks(frame, lane, layout.middle(at))) }
            (breaks(time, layout))
            @for (at, (x, label)) in labels.iter().enumerate() {
                text.start[*x < 0.04].end[*x > 0.95].minor[at % 3 > 0]
                    x=(percent(*x)) y=(px(layout.bottom + 16.0)) { (label) }
            }
        }
    }
}

fn vertical_line(class: &str, x: f64, top: &str, bottom: f64) -> Markup {
    let class = Some(class).filter(|class| !class.is_empty());
    html! { line class=[class] x1=(percent(x)) x2=(percent(x)) y1=(top) y2=(px(bottom)) {} }
}

pub fn counted(number: i64, one: &str) -> String {
    format::counted(usize::try_from(number).unwrap_or(0), one)
}

fn lanes(view: &SessionView, time: &Axis) -> [Lane; 4] {
    let mut lanes = [
        ("prompts", "prompt", "c3"),
        ("calls", "call", "c0"),
        ("tools", "tool call", "c1"),
        ("errors", "error", "error"),
    ]
    .map(|(name, one, class)| Lane { name, one, class, marks: Vec::new() });
    let mut mark = |lane: usize, at: Timestamp, number: i64, text: String| {
        lanes[lane].marks.push(Mark { x: time.at(at), at, number, text });
    };
    if let Some(buckets) = &view.activity {
        for part in buckets {
            let numbers = [part.prompts, part.calls, part.tools, part.errors];
            for (lane, number) in numbers.into_iter().enumerate().filter(|(_, number)| *number > 0) {
                mark(lane, part.until, number, String::new());
            }
        }
        return lanes;
    }
    for event in &view.events {
        let (lane, text) = match &event.attributes {
            Attributes::Prompt(_) => (0, String::new()),
            Attributes::Usage(usage) => {
                (1, format!("{}, {} tokens of output", &*usage.model, grouped(usage.output_tokens.get())))
            }
            Attributes::Tool(tool) if tool.ok == Some(false) => (3, format!("{} failed", &*tool.name)),
            Attributes::Tool(tool) => (2, tool.name.to_string()),
            Attributes::Error(error) => (3, error.kind.as_deref().unwrap_or("API error").to_owned()),
            _ => continue,
        };
        mark(lane, event.time, 1, text);
    }
    lanes
}

/// The marks of a lane on its line.
fn marks(frame: &Frame, lane: &Lane, middle: f64) -> Markup {
    html! {
        line.grid x1="0" x2="100%" y1=(px(middle)) y2=(px(middle)) {}
        @for marks in merged(&lane.marks) {
            @let width = if marks.len() > 1 { "5" } else { "3" };
            rect class={ "mark " (lane.class) } x=(percent(marks[0].x)) y=(px(middle - 8.0))
                width=(width) height="16" rx="1.5" {
                title { (title(frame, lane, marks)) }
            }
        }
    }
}

/// Marks that would lie on each other are one.
fn merged(marks: &[Mark]) -> Vec<&[Mark]> {
    let mut rest = marks;
    let mut groups = Vec::new();
    while let Some(first) = rest.first() {
        let together = rest.iter().take_while(|mark| mark.x - first.x < CLOSE).count().max(1);
        let (group, others) = rest.split_at(together);
        groups.push(group);
        rest = others;
    }
    groups
}

/// The title of a mark: when it was, how many events it stands for, and what they were.
fn title(frame: &Frame, lane: &Lane, marks: &[Mark]) -> String {
    let number = marks.iter().map(|mark| mark.number).sum();
    let (first, last) = (marks[0].at, marks[marks.len() - 1].at);
    let mut title = frame.now.exact(first);
    if last != first {
        title = format!("{title} to {}", frame.now.clock(last));
    }
    let texts: Vec<&str> = marks.iter().map(|mark| &*mark.text).filter(|text| !text.is_empty()).collect();
    if number > 1 || texts.is_empty() {
        title = format!("{title}\n{}", counted(number, lane.one));
    }
    for text in texts.iter().take(NAMED) {
        title = format!("{title}\n{text}");
    }
    if texts.len() > NAMED { format!("{title}\n…") } else { title }
}

/// Where the session was closed: the charts are cut through, and the time it was closed is written there.
fn breaks(time: &Axis, layout: Layout) -> Markup {
    let mut written = f64::NEG_INFINITY;
    let mut number = 0;
    html! {
        @for cut in &time.breaks {
            @let (middle, text) = (cut.left + cut.width / 2.0, format!("{} closed", about(cut.ms)));
            g.cut {
                title { (text) }
                rect x=(percent(cut.left)) width=(percent(cut.width)) y="0" height=(px(layout.bottom)) {}
                @for x in [cut.left, cut.left + cut.width] { (vertical_line("", x, "0", layout.bottom)) }
                @if middle - written >= WORDS {
                    @let () = { written = middle; number += 1; };
                    text.end[middle > 0.93].minor[number % 2 == 0]
                        x=(percent(middle)) y=(px((layout.below - GAP - 6.0).max(10.0))) { (text) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;
    use crate::agents::KnownAgents;
    use crate::frame::{Deployment, HistoryView};
    use crate::local_facts::Titles;
    use crate::text::Now;

    fn mark(x: f64, text: &str) -> Mark {
        Mark { x, at: Timestamp(1000), number: 1, text: text.into() }
    }

    #[test]
    fn overlapping_marks_are_merged_and_their_title_has_the_number() {
        let marks: Vec<Mark> = (0..10_000).map(|n| mark(f64::from(n) / 10_000.0, "")).collect();
        let groups = merged(&marks);
        assert!((100..=170).contains(&groups.len()), "{}", groups.len());
        assert_eq!(groups.iter().map(|group| group.len()).sum::<usize>(), marks.len(), "none is left out");
        let now = Now { at: Timestamp(0), zone: TimeZone::UTC };
        let (zone_name, agents) = ("UTC".to_owned(), KnownAgents::default());
        let frame = Frame {
            now,
            zone_name,
            deployment: Deployment::Local,
            agents,
            titles: Titles::default(),
            history: HistoryView::None,
        };
        let lane = Lane { name: "calls", one: "call", class: "c0", marks: Vec::new() };
        let three = [mark(0.1, "a"), mark(0.1, "b"), Mark { at: Timestamp(3000), ..mark(0.1, "c") }];
        assert_eq!(
            title(&frame, &lane, &three),
            "Thu 1 Jan 1970, 00:00:01 UTC to 00:00:03\n3 calls\na\nb\nc"
        );
        assert_eq!(title(&frame, &lane, &three[..1]), "Thu 1 Jan 1970, 00:00:01 UTC\na");
        let bucket = [Mark { number: 12, ..mark(0.1, "") }];
        assert_eq!(title(&frame, &lane, &bucket), "Thu 1 Jan 1970, 00:00:01 UTC\n12 calls");
    }
}
