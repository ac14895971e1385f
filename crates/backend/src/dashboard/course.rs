//! What a session cost and did over time: a curve, and below it a line for each kind of event, over one axis.

use maud::{Markup, html};

use super::axis::Axis;
use super::chart::{ABOVE, BELOW, HEIGHT, dollars, percent, px, said, y};
use super::frame::Frame;
use super::model::Story;
use super::scale::Scale;
use super::text::{about, grouped};
use wire::Attributes;
use wire::PicoDollars;
use wire::Timestamp;

/// A call, or several, and what had been spent by then.
#[derive(Clone, Debug)]
struct Point {
    x: f64,
    y: f64,
    title: String,
    /// The same in short.
    said: String,
}

/// Something that happened so often.
#[derive(Clone, Debug, PartialEq)]
struct Mark {
    x: f64,
    at: Timestamp,
    number: i64,
    said: String,
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
/// How many points can be pointed at: more are too close together to be hit.
const DOTS: usize = 240;
/// Marks closer than this lie on each other: a screen has room for some hundred.
const CLOSE: f64 = 0.006;
/// Events that a merged mark names one by one.
const NAMED: usize = 6;
/// Two breaks whose lengths can both be written.
const WORDS: f64 = 0.12;

pub fn chart(frame: &Frame, view: &Story, time: &Axis) -> Markup {
    let (points, lanes) = (points(frame, view, time), lanes(view, time));
    let below = if points.is_empty() { 0.0 } else { ABOVE + HEIGHT + GAP };
    let middle = |at: i32| below + LANE * (f64::from(at) + 0.5);
    let bottom = below + LANE * 4.0;
    let scale = Scale::up_to(points.iter().map(|point| point.y).fold(0.0, f64::max), 0.0);
    let labels = time.labels(&frame.now.zone);
    html! {
        @if points.is_empty() { p.muted { "The agent has not called its model yet." } }
        div.chart.course {
            svg.axis aria-hidden="true" height=(px(bottom + BELOW)) width="64" {
                @if !points.is_empty() {
                    @for value in scale.ticks() { text x="56" y=(px(y(scale, value) + 3.5)) { (dollars(value, scale)) } }
                }
                @for (lane, at) in lanes.iter().zip(0..) { text x="56" y=(px(middle(at) + 3.5)) { (lane.name) } }
            }
            svg.plot role="img" aria-label="Cost so far in US dollars, and what happened when" height=(px(bottom + BELOW)) width="100%" {
                @for (x, _) in &labels { line.tick x1=(percent(*x)) x2=(percent(*x)) y1=(px(ABOVE)) y2=(px(bottom)) {} }
                @if !points.is_empty() { (curve(&points, scale)) }
                @for (lane, at) in lanes.iter().zip(0..) { (line(frame, lane, middle(at))) }
                (breaks(time, below, bottom))
                @for (at, (x, label)) in labels.iter().enumerate() {
                    text.start[*x < 0.04].end[*x > 0.95].minor[at % 3 > 0] x=(percent(*x)) y=(px(bottom + 16.0)) { (label) }
                }
            }
        }
    }
}

fn points(frame: &Frame, view: &Story, time: &Axis) -> Vec<Point> {
    let mut sum = PicoDollars(0);
    let mut point = |at: Timestamp, said: &str, cost: PicoDollars| {
        sum.0 = sum.0.saturating_add(cost.0);
        let so_far = format!("so far {}", human::dollars(sum.0));
        let title = format!("{}\n{said}\n{so_far}", frame.now.exact(at));
        Point { x: time.at(at), y: sum.dollars(), title, said: format!("{}\n{so_far}", frame.now.clock(at)) }
    };
    if let Some(course) = &view.course {
        let called = course.iter().filter(|stretch| stretch.calls > 0);
        let told =
            |calls, cost: PicoDollars| format!("{}, {}", counted(calls, "call"), human::dollars(cost.0));
        return called.map(|part| point(part.until, &told(part.calls, part.cost), part.cost)).collect();
    }
    let usages = view.events.iter().filter_map(|event| match &event.attributes {
        Attributes::Usage(usage) => Some((event.time, usage)),
        _ => None,
    });
    usages
        .map(|(at, usage)| {
            let cost = usage.cost().map_or("no price".to_owned(), |cost| human::dollars(cost.0));
            point(at, &format!("{}, {cost}", &*usage.model), usage.cost().unwrap_or_default())
        })
        .collect()
}

fn counted(number: i64, one: &str) -> String {
    human::counted(usize::try_from(number).unwrap_or(0), one)
}

fn lanes(view: &Story, time: &Axis) -> [Lane; 4] {
    let mut lanes = [
        ("prompts", "prompt", "c3"),
        ("calls", "call", "c0"),
        ("tools", "tool call", "c1"),
        ("errors", "error", "error"),
    ]
    .map(|(name, one, class)| Lane { name, one, class, marks: Vec::new() });
    let mut mark = |lane: usize, at: Timestamp, number: i64, said: String| {
        lanes[lane].marks.push(Mark { x: time.at(at), at, number, said });
    };
    if let Some(course) = &view.course {
        for part in course {
            let numbers = [part.prompts, part.calls, part.tools, part.errors];
            for (lane, number) in numbers.into_iter().enumerate().filter(|(_, number)| *number > 0) {
                mark(lane, part.until, number, String::new());
            }
        }
        return lanes;
    }
    for event in &view.events {
        let (lane, said) = match &event.attributes {
            Attributes::Prompt(_) => (0, String::new()),
            Attributes::Usage(usage) => {
                (1, format!("{}, {} tokens of output", &*usage.model, grouped(usage.output_tokens.get())))
            }
            Attributes::Tool(tool) if tool.ok == Some(false) => (3, format!("{} failed", &*tool.name)),
            Attributes::Tool(tool) => (2, tool.name.to_string()),
            Attributes::Error(error) => (3, error.kind.as_deref().unwrap_or("API error").to_owned()),
            _ => continue,
        };
        mark(lane, event.time, 1, said);
    }
    lanes
}

/// A sum that grows in steps.
fn curve(points: &[Point], scale: Scale) -> Markup {
    let every = points.len().div_ceil(DOTS).max(1);
    let (line, area) = steps(points, scale);
    html! {
        @for value in scale.ticks() {
            line.grid.base[value == 0.0] x1="0" x2="100%" y1=(px(y(scale, value))) y2=(px(y(scale, value))) {}
        }
        svg x="0" y=(px(ABOVE)) width="100%" height=(px(HEIGHT)) viewBox="0 0 1000 1000" preserveAspectRatio="none" {
            path.area d=(area) {}
            path.line d=(line) {}
        }
        @for (at, point) in points.iter().enumerate() {
            @if at % every == 0 || at + 1 == points.len() {
                g.point {
                    title { (point.title) }
                    circle.dot cx=(percent(point.x)) cy=(px(y(scale, point.y))) r="5" {}
                    (said(point.x, &point.said))
                }
            }
        }
    }
}

/// The path of the line and of the area below it, in thousandths of the picture.
fn steps(points: &[Point], scale: Scale) -> (String, String) {
    use std::fmt::Write;

    let mut line = String::from("M0 1000");
    for point in points {
        let _ = write!(line, "H{:.1}V{:.1}", point.x * 1000.0, (1.0 - scale.at(point.y)) * 1000.0);
    }
    line.push_str("H1000");
    let area = format!("{line}V1000Z");
    (line, area)
}

fn line(frame: &Frame, lane: &Lane, middle: f64) -> Markup {
    html! {
        line.grid x1="0" x2="100%" y1=(px(middle)) y2=(px(middle)) {}
        @for marks in apart(&lane.marks) {
            rect class={ "mark " (lane.class) } x=(percent(marks[0].x)) y=(px(middle - 8.0)) width=(if marks.len() > 1 { "5" } else { "3" }) height="16" rx="1.5" {
                title { (title(frame, lane, marks)) }
            }
        }
    }
}

/// Marks that would lie on each other are one.
fn apart(marks: &[Mark]) -> Vec<&[Mark]> {
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

/// What a mark says when pointed at: how many it stands for, when, and what they were.
fn title(frame: &Frame, lane: &Lane, marks: &[Mark]) -> String {
    let number = marks.iter().map(|mark| mark.number).sum();
    let (first, last) = (marks[0].at, marks[marks.len() - 1].at);
    let mut said = frame.now.exact(first);
    if last != first {
        said = format!("{said} to {}", frame.now.clock(last));
    }
    let told: Vec<&str> = marks.iter().map(|mark| &*mark.said).filter(|said| !said.is_empty()).collect();
    if number > 1 || told.is_empty() {
        said = format!("{said}\n{}", counted(number, lane.one));
    }
    for one in told.iter().take(NAMED) {
        said = format!("{said}\n{one}");
    }
    if told.len() > NAMED { format!("{said}\n…") } else { said }
}

/// Where it was closed: the charts are cut through, and how long it was is written there.
fn breaks(time: &Axis, below: f64, bottom: f64) -> Markup {
    let mut written = f64::NEG_INFINITY;
    let mut words = 0;
    html! {
        @for cut in &time.breaks {
            @let (middle, said) = (cut.left + cut.width / 2.0, format!("{} closed", about(cut.ms)));
            g.cut {
                title { (said) }
                rect x=(percent(cut.left)) width=(percent(cut.width)) y="0" height=(px(bottom)) {}
                @for x in [cut.left, cut.left + cut.width] { line x1=(percent(x)) x2=(percent(x)) y1="0" y2=(px(bottom)) {} }
                @if middle - written >= WORDS {
                    @let () = { written = middle; words += 1; };
                    text.end[middle > 0.93].minor[words % 2 == 0] x=(percent(middle)) y=(px((below - GAP - 6.0).max(10.0))) { (said) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::super::agents::KnownAgents;
    use super::*;
    use crate::dashboard::frame::Place;
    use crate::dashboard::text::Now;

    fn mark(x: f64, said: &str) -> Mark {
        Mark { x, at: Timestamp(1000), number: 1, said: said.into() }
    }

    #[test]
    fn marks_that_would_lie_on_each_other_are_one_and_say_how_many() {
        let marks: Vec<Mark> = (0..10_000).map(|n| mark(f64::from(n) / 10_000.0, "")).collect();
        let groups = apart(&marks);
        assert!((100..=170).contains(&groups.len()), "{}", groups.len());
        assert_eq!(groups.iter().map(|group| group.len()).sum::<usize>(), marks.len(), "none is left out");
        let now = Now { at: Timestamp(0), zone: TimeZone::UTC };
        let frame = Frame { now, place: Place::Local, agents: KnownAgents::default() };
        let lane = Lane { name: "calls", one: "call", class: "c0", marks: Vec::new() };
        let three = [mark(0.1, "a"), mark(0.1, "b"), Mark { at: Timestamp(3000), ..mark(0.1, "c") }];
        assert_eq!(
            title(&frame, &lane, &three),
            "Thu 1 Jan 1970, 00:00:01 UTC to 00:00:03\n3 calls\na\nb\nc"
        );
        assert_eq!(title(&frame, &lane, &three[..1]), "Thu 1 Jan 1970, 00:00:01 UTC\na");
        let stretch = [Mark { number: 12, ..mark(0.1, "") }];
        assert_eq!(title(&frame, &lane, &stretch), "Thu 1 Jan 1970, 00:00:01 UTC\n12 calls");
    }

    #[test]
    fn a_curve_goes_in_steps() {
        let point = |x, y| Point { x, y, title: String::new(), said: String::new() };
        let (line, area) = steps(&[point(0.0, 1.0), point(0.5, 4.0)], Scale { top: 4.0, step: 1.0 });
        assert_eq!(line, "M0 1000H0.0V750.0H500.0V0.0H1000");
        assert_eq!(area, format!("{line}V1000Z"));
        assert!(curve(&[], Scale { top: 4.0, step: 1.0 }).into_string().contains("M0 1000H1000"));
    }
}
