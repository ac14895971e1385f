//! Charts as SVG, made on the server.
//!
//! Widths are percentages and heights are pixels, so that a chart fills any screen while its letters keep their size. A
//! curve, which cannot be told in percentages, is drawn in an inner picture that is stretched. No style stands in the
//! markup: what the classes look like is the style sheet's affair.

use maud::{Markup, html};

use super::scale::Scale;

/// A kind of thing that is stacked, and the class that colours it.
#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub class: String,
}

/// One day, week or month.
#[derive(Clone, Debug)]
pub struct Column {
    /// What stands below it.
    pub label: String,
    /// What it says when pointed at.
    pub title: String,
    /// Where it leads.
    pub href: String,
    /// One value per series.
    pub values: Vec<f64>,
}

#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "columns is what columns are made of")]
pub struct Columns<'a> {
    /// What is shown, for those who do not see it.
    pub label: &'a str,
    pub series: &'a [Series],
    pub columns: &'a [Column],
    /// The smallest step that means anything on the axis.
    pub least: f64,
    pub tick: fn(f64) -> String,
}

const HEIGHT: f64 = 168.0;
/// Room above the highest line for half a letter, and below the axis for the labels.
const ABOVE: f64 = 8.0;
const BELOW: f64 = 24.0;
/// Labels below the axis, at most; every second one is left out where it is narrow.
const LABELS: usize = 8;

fn total_height() -> String {
    format!("{}", ABOVE + HEIGHT + BELOW)
}

fn y(scale: Scale, value: f64) -> f64 {
    ABOVE + HEIGHT * (1.0 - scale.at(value))
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}

fn percent(value: f64) -> String {
    format!("{:.3}%", value * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "columns of a chart are few")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

/// The lines across, and what they stand for, to the left of them.
fn axis(scale: Scale, tick: fn(f64) -> String) -> Markup {
    html! {
        svg.axis aria-hidden="true" height=(total_height()) width="48" {
            @for value in scale.ticks() {
                text x="42" y=(px(y(scale, value) + 3.5)) { (tick(value)) }
            }
        }
    }
}

fn grid(scale: Scale) -> Markup {
    html! {
        @for value in scale.ticks() {
            line.grid.base[value == 0.0] x1="0" x2="100%" y1=(px(y(scale, value))) y2=(px(y(scale, value))) {}
        }
    }
}

/// Stacked columns over time.
pub fn columns(chart: &Columns<'_>) -> Markup {
    let sum = |column: &Column| column.values.iter().sum::<f64>();
    let scale = Scale::up_to(chart.columns.iter().map(sum).fold(0.0, f64::max), chart.least);
    let number = chart.columns.len().max(1);
    let every = number.div_ceil(LABELS);
    let width = ratio(1, number);
    html! {
        div.chart {
            (axis(scale, chart.tick))
            svg.plot role="img" aria-label=(chart.label) height=(total_height()) width="100%" {
                (grid(scale))
                @for (at, column) in chart.columns.iter().enumerate() {
                    @let left = ratio(at, number);
                    a href=(column.href) tabindex="-1" {
                        title { (column.title) }
                        rect.hit x=(percent(left)) y="0" width=(percent(width)) height=(px(ABOVE + HEIGHT)) {}
                        @for (class, from, to) in stack(chart.series, &column.values) {
                            rect class=(class) x=(percent(left + width * 0.14)) width=(percent(width * 0.72))
                                y=(px(y(scale, to))) height=(px(y(scale, from) - y(scale, to))) {}
                        }
                    }
                    // Counted from the last one, so that today has its label.
                    @if (number - 1 - at).is_multiple_of(every) {
                        text.minor[((number - 1 - at) / every) % 2 == 1] x=(percent(left + width / 2.0))
                            y=(px(ABOVE + HEIGHT + 16.0)) { (column.label) }
                    }
                }
            }
        }
        @if chart.series.len() > 1 {
            ul.legend {
                @for series in chart.series {
                    li { (swatch(&series.class)) span { (series.name) } }
                }
            }
        }
    }
}

pub fn swatch(class: &str) -> Markup {
    html! { svg.swatch aria-hidden="true" width="10" height="10" { rect class=(class) width="10" height="10" rx="2" {} } }
}

/// Where each part of a column begins and ends; what is nothing is not drawn.
fn stack<'a>(series: &'a [Series], values: &'a [f64]) -> impl Iterator<Item = (&'a str, f64, f64)> {
    let mut from = 0.0;
    series.iter().zip(values).filter(|(_, value)| **value > 0.0).map(move |(series, value)| {
        let bottom = from;
        from += value;
        (series.class.as_str(), bottom, from)
    })
}

/// A part of a whole as a bar that fills its cell; a second part of it stands out (errors).
pub fn bar(value: f64, errors: f64, largest: f64, class: &str) -> Markup {
    let width = |value: f64| if largest > 0.0 { (value / largest).clamp(0.0, 1.0) } else { 0.0 };
    html! {
        svg.bar aria-hidden="true" width="100%" height="10" {
            @if value > 0.0 {
                rect class=(class) width=(percent(width(value).max(0.004))) height="10" rx="2" {}
            }
            @if errors > 0.0 {
                rect.error x=(percent(width(value - errors))) width=(percent(width(errors))) height="10" rx="2" {}
            }
        }
    }
}

/// A point of a curve, and what it says when pointed at.
#[derive(Clone, Debug)]
pub struct Point {
    /// From 0 at the left to 1 at the right.
    pub x: f64,
    pub y: f64,
    pub title: String,
}

#[derive(Debug)]
pub struct Curve<'a> {
    pub label: &'a str,
    pub points: &'a [Point],
    /// Below the axis: where, and what.
    pub labels: &'a [(f64, String)],
    pub tick: fn(f64) -> String,
}

/// How many points can be pointed at: more are too close together to be hit.
const DOTS: usize = 240;

/// A sum that grows in steps.
pub fn curve(chart: &Curve<'_>) -> Markup {
    let scale = Scale::up_to(chart.points.iter().map(|point| point.y).fold(0.0, f64::max), 0.0);
    let every = chart.points.len().div_ceil(DOTS).max(1);
    let (line, area) = steps(chart.points, scale);
    html! {
        div.chart {
            (axis(scale, chart.tick))
            svg.plot role="img" aria-label=(chart.label) height=(total_height()) width="100%" {
                (grid(scale))
                svg x="0" y=(px(ABOVE)) width="100%" height=(px(HEIGHT)) viewBox="0 0 1000 1000" preserveAspectRatio="none" {
                    path.area d=(area) {}
                    path.line d=(line) {}
                }
                @for (at, point) in chart.points.iter().enumerate() {
                    @if at % every == 0 || at + 1 == chart.points.len() {
                        circle.dot cx=(percent(point.x)) cy=(px(y(scale, point.y))) r="5" { title { (point.title) } }
                    }
                }
                @for (at, (x, label)) in chart.labels.iter().enumerate() {
                    text.start[*x == 0.0].end[*x >= 1.0].minor[at % 2 == 1] x=(percent(*x)) y=(px(ABOVE + HEIGHT + 16.0)) { (label) }
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

/// Dollars on an axis.
pub fn dollars(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("${}k", trimmed(v / 1000.0, 1)),
        v if v >= 10.0 || v == 0.0 => format!("${}", trimmed(v, 1)),
        v if v >= 0.1 => format!("${v:.2}"),
        v if v >= 0.01 => format!("${}", trimmed(v, 4)),
        v => format!("{}¢", trimmed(v * 100.0, 3)),
    }
}

/// A count on an axis.
pub fn amount(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{}G", trimmed(v / 1e9, 2)),
        v if v >= 1e6 => format!("{}M", trimmed(v / 1e6, 2)),
        v if v >= 1e3 => format!("{}k", trimmed(v / 1e3, 2)),
        v => trimmed(v, 1),
    }
}

/// At most so many decimals, and no zeros behind them.
fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// One kind of event along the time of a session.
#[derive(Clone, Debug)]
pub struct Lane {
    pub name: &'static str,
    pub class: &'static str,
    pub marks: Vec<Point>,
}

const LANE: f64 = 26.0;

/// What happened when: a line for each kind of event, a mark for each event. Marks too close to be told apart are one.
pub fn lanes(label: &str, lanes: &[Lane], labels: &[(f64, String)]) -> Markup {
    let middle = |at: usize| LANE * (ratio(at, 1) + 0.5);
    let bottom = LANE * ratio(lanes.len(), 1);
    html! {
        div.chart.lanes {
            svg.axis aria-hidden="true" height=(px(bottom + BELOW)) width="64" {
                @for (at, lane) in lanes.iter().enumerate() {
                    text x="58" y=(px(middle(at) + 3.5)) { (lane.name) }
                }
            }
            svg.plot role="img" aria-label=(label) height=(px(bottom + BELOW)) width="100%" {
                @for (at, lane) in lanes.iter().enumerate() {
                    line.grid x1="0" x2="100%" y1=(px(middle(at))) y2=(px(middle(at))) {}
                    @for mark in apart(&lane.marks) {
                        rect class={ "mark " (lane.class) } x=(percent(mark.x)) y=(px(middle(at) - 8.0)) width="3" height="16" rx="1.5" {
                            title { (mark.title) }
                        }
                    }
                }
                @for (at, (x, label)) in labels.iter().enumerate() {
                    text.start[*x == 0.0].end[*x >= 1.0].minor[at % 2 == 1] x=(percent(*x)) y=(px(bottom + 16.0)) { (label) }
                }
            }
        }
    }
}

/// Leaves out what would lie on another mark: a screen shows no more than this many beside each other.
fn apart(marks: &[Point]) -> impl Iterator<Item = &Point> {
    let mut last = f64::NEG_INFINITY;
    marks.iter().filter(move |mark| {
        let clear = mark.x - last >= 1.0 / 400.0;
        if clear {
            last = mark.x;
        }
        clear
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(names: &[&str]) -> Vec<Series> {
        names.iter().map(|name| Series { name: (*name).into(), class: format!("s-{name}") }).collect()
    }

    fn column(values: &[f64]) -> Column {
        Column { label: "16 Nov".into(), title: "a <b>".into(), href: "/x".into(), values: values.into() }
    }

    #[test]
    fn axes_say_amounts_shortly() {
        for (value, text) in [
            (0.0, "$0"),
            (0.00075, "0.075¢"),
            (0.0025, "0.25¢"),
            (0.025, "$0.025"),
            (0.05, "$0.05"),
            (0.5, "$0.50"),
            (2.5, "$2.50"),
            (12.5, "$12.5"),
            (40.0, "$40"),
            (2500.0, "$2.5k"),
        ] {
            assert_eq!(dollars(value), text);
        }
        for (value, text) in
            [(0.0, "0"), (4.0, "4"), (20.0, "20"), (2_500.0, "2.5k"), (25e6, "25M"), (1.25e9, "1.25G")]
        {
            assert_eq!(amount(value), text);
        }
    }

    #[test]
    fn parts_stand_on_each_other_and_nothing_is_not_drawn() {
        let series = series(&["a", "b", "c"]);
        let parts: Vec<_> = stack(&series, &[1.0, 0.0, 2.5]).collect();
        assert_eq!(parts, [("s-a", 0.0, 1.0), ("s-c", 1.0, 3.5)]);
    }

    #[test]
    fn a_chart_has_axes_titles_and_no_style_of_its_own() {
        let (series, columns) = (series(&["a", "b"]), [column(&[1.0, 2.0]), column(&[0.0, 0.0])]);
        let chart = Columns {
            label: "cost",
            series: &series,
            columns: &columns,
            least: 0.0,
            tick: |value| format!("{value}"),
        };
        let drawn = super::columns(&chart).into_string();
        assert_eq!(drawn.matches("<rect class=\"hit\"").count(), 2);
        assert_eq!(
            drawn.matches("<rect class=\"s-").count(),
            4,
            "two in the chart, two in the legend: {drawn}"
        );
        assert!(drawn.contains("<title>a &lt;b&gt;</title>"));
        assert!(drawn.contains(">3</text>"), "the top of the axis: {drawn}");
        assert!(!drawn.contains("style"));
    }

    #[test]
    fn an_empty_chart_is_drawn_too() {
        let empty = Columns { label: "", series: &[], columns: &[], least: 1.0, tick: |v| format!("{v}") };
        assert!(columns(&empty).into_string().contains("<svg"));
        let none = Curve { label: "", points: &[], labels: &[], tick: |v| format!("{v}") };
        assert!(curve(&none).into_string().contains("M0 1000H1000"));
        assert!(lanes("", &[], &[]).into_string().contains("<svg"));
    }

    #[test]
    fn a_curve_goes_in_steps() {
        let point = |x, y| Point { x, y, title: String::new() };
        let (line, area) = steps(&[point(0.0, 1.0), point(0.5, 4.0)], Scale { top: 4.0, step: 1.0 });
        assert_eq!(line, "M0 1000H0.0V750.0H500.0V0.0H1000");
        assert_eq!(area, format!("{line}V1000Z"));
    }

    #[test]
    fn marks_that_would_lie_on_each_other_are_one() {
        let point = |x| Point { x, y: 0.0, title: String::new() };
        let marks: Vec<_> = (0..10_000).map(|n| point(f64::from(n) / 10_000.0)).collect();
        let apart: Vec<f64> = apart(&marks).map(|mark| mark.x).collect();
        assert!((300..=400).contains(&apart.len()), "{}", apart.len());
        assert!(apart[0].abs() < 1e-9);
    }
}
