//! Charts as SVG, made on the server.
//!
//! Widths are percentages and heights are pixels, so that a chart fills any screen while its letters keep their size. A
//! curve (`cost_curve`), which cannot be written in percentages, is drawn in an inner picture that is stretched. The
//! markup holds no style: the style sheet alone says what the classes look like.

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
    /// The text below it.
    pub label: String,
    /// The text shown while the pointer is on it.
    pub title: String,
    /// Where it leads.
    pub href: String,
    /// One value per series.
    pub values: Vec<f64>,
}

/// A chart of stacked columns over time.
#[derive(Debug)]
pub struct ColumnChart<'a> {
    /// What is shown, for screen readers.
    pub label: &'a str,
    pub series: &'a [Series],
    pub columns: &'a [Column],
    /// The smallest step that means anything on the axis.
    pub least: f64,
    pub tick: fn(f64, Scale) -> String,
}

pub const HEIGHT: f64 = 168.0;
/// Space above the highest line for the text of the point under the pointer, and below the axis for the labels.
pub const ABOVE: f64 = 20.0;
pub const BELOW: f64 = 24.0;
/// Labels below the axis, at most; every second one is left out where it is narrow.
const LABELS: usize = 8;

fn total_height() -> String {
    format!("{}", ABOVE + HEIGHT + BELOW)
}

pub fn y(scale: Scale, value: f64) -> f64 {
    ABOVE + HEIGHT * (1.0 - scale.at(value))
}

pub fn px(value: f64) -> String {
    format!("{value:.1}")
}

pub fn percent(value: f64) -> String {
    format!("{:.3}%", value * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "columns of a chart are few")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

/// The values of the lines across, to the left of them.
fn axis(scale: Scale, tick: fn(f64, Scale) -> String) -> Markup {
    html! {
        svg.axis aria-hidden="true" height=(total_height()) width="48" {
            @for value in scale.ticks() {
                text x="42" y=(px(y(scale, value) + 3.5)) { (tick(value, scale)) }
            }
        }
    }
}

/// The lines across, one for each step of the scale.
pub fn grid(scale: Scale) -> Markup {
    html! {
        @for value in scale.ticks() {
            @let y = px(y(scale, value));
            line.grid.base[value == 0.0] x1="0" x2="100%" y1=(y) y2=(y) {}
        }
    }
}

/// Stacked columns over time, with a legend.
pub fn columns(chart: &ColumnChart<'_>) -> Markup {
    let sum = |column: &Column| column.values.iter().sum::<f64>();
    let scale = Scale::up_to(chart.columns.iter().map(sum).fold(0.0, f64::max), chart.least);
    let number = chart.columns.len().max(1);
    let every = number.div_ceil(LABELS);
    html! {
        div.chart {
            (axis(scale, chart.tick))
            svg.plot role="img" aria-label=(chart.label) height=(total_height()) width="100%" {
                (grid(scale))
                @for (at, column) in chart.columns.iter().enumerate() {
                    @let slot = Slot { left: ratio(at, number), width: ratio(1, number) };
                    (stacked(column, chart.series, scale, slot))
                    // Counted from the last one, so that today has its label.
                    @let back = number - 1 - at;
                    @if back.is_multiple_of(every) {
                        text.minor[(back / every) % 2 == 1] x=(percent(slot.middle()))
                            y=(px(ABOVE + HEIGHT + 16.0)) { (column.label) }
                    }
                }
            }
        }
        (legend(chart))
    }
}

/// The part of the width that a column has.
#[derive(Clone, Copy, Debug)]
struct Slot {
    left: f64,
    width: f64,
}

impl Slot {
    fn middle(self) -> f64 {
        self.left + self.width / 2.0
    }
}

/// One column: its parts on each other, and a link over its whole height.
fn stacked(column: &Column, series: &[Series], scale: Scale, slot: Slot) -> Markup {
    let Slot { left, width } = slot;
    html! {
        a href=(column.href) tabindex="-1" {
            title { (column.title) }
            rect.hit x=(percent(left)) y="0" width=(percent(width)) height=(px(ABOVE + HEIGHT)) {}
            @for (class, from, to) in stack(series, &column.values) {
                rect class=(class) x=(percent(left + width * 0.14)) width=(percent(width * 0.72))
                    y=(px(y(scale, to))) height=(px(y(scale, from) - y(scale, to))) {}
            }
            (pointer_text(slot.middle(), &column.title))
        }
    }
}

/// The series that are drawn somewhere, if they are several.
fn legend(chart: &ColumnChart<'_>) -> Markup {
    let drawn = |at: usize| {
        chart.columns.iter().any(|column| column.values.get(at).is_some_and(|value| *value > 0.0))
    };
    let series = chart.series.iter().enumerate().filter(|(at, _)| drawn(*at)).map(|(_, series)| series);
    let series: Vec<&Series> = series.collect();
    html! {
        @if series.len() > 1 {
            ul.legend {
                @for series in series {
                    li { (swatch(&series.class)) span { (series.name) } }
                }
            }
        }
    }
}

fn swatch(class: &str) -> Markup {
    html! {
        svg.swatch aria-hidden="true" width="10" height="10" {
            rect class=(class) width="10" height="10" rx="2" {}
        }
    }
}

/// The first two lines of a title, shown above the chart while the pointer is on its column or point.
pub fn pointer_text(x: f64, title: &str) -> Markup {
    let lines: Vec<&str> = title.lines().take(2).collect();
    html! { text.say.start[x < 0.2].end[x > 0.8] x=(percent(x)) y="11" { (lines.join(" · ")) } }
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
                rect.error x=(percent(width(value - errors))) width=(percent(width(errors)))
                    height="10" rx="2" {}
            }
        }
    }
}

/// Dollars on an axis, all in one unit: cents where a step is less than one.
pub fn dollars(value: f64, scale: Scale) -> String {
    match scale {
        Scale { step, .. } if step < 0.01 => format!("{}¢", decimals(value * 100.0, step * 100.0)),
        Scale { top, step } if top >= 10_000.0 => format!("${}k", decimals(value / 1000.0, step / 1000.0)),
        Scale { step, .. } if step.fract() == 0.0 => format!("${value:.0}"),
        // Money has two decimals, or more.
        Scale { step, .. } => format!("${}", decimals(value, step.min(0.01 + step % 0.01))),
    }
}

/// A count on an axis, all in one unit.
pub fn amount(value: f64, scale: Scale) -> String {
    let units = [(1e9, "B"), (1e6, "M"), (1e3, "k")];
    let (unit, name) = units.into_iter().find(|(unit, _)| scale.top >= *unit).unwrap_or((1.0, ""));
    if value == 0.0 { "0".to_owned() } else { format!("{}{name}", decimals(value / unit, scale.step / unit)) }
}

/// As many decimals as a step has.
fn decimals(value: f64, step: f64) -> String {
    let whole = |places: &usize| {
        let scaled = step * 10f64.powi(i32::try_from(*places).unwrap_or(0));
        (scaled - scaled.round()).abs() < 1e-6 * scaled
    };
    let places = (0..6).find(whole).unwrap_or(6);
    format!("{value:.places$}")
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
    fn an_axis_has_one_unit() {
        let ticks = |largest, tick: fn(f64, Scale) -> String, least| {
            let scale = Scale::up_to(largest, least);
            scale.ticks().map(|value| tick(value, scale)).collect::<Vec<_>>().join(" ")
        };
        for (largest, expected) in [
            (0.003, "0.0¢ 0.1¢ 0.2¢ 0.3¢"),
            (0.01, "0.00¢ 0.25¢ 0.50¢ 0.75¢ 1.00¢"),
            (0.02, "0.0¢ 0.5¢ 1.0¢ 1.5¢ 2.0¢"),
            (0.1, "$0.000 $0.025 $0.050 $0.075 $0.100"),
            (0.37, "$0.00 $0.10 $0.20 $0.30 $0.40"),
            (2.0, "$0.00 $0.50 $1.00 $1.50 $2.00"),
            (8.0, "$0 $2 $4 $6 $8"),
            (10.0, "$0.00 $2.50 $5.00 $7.50 $10.00"),
            (2_500.0, "$0 $1000 $2000 $3000"),
            (10_000.0, "$0.0k $2.5k $5.0k $7.5k $10.0k"),
        ] {
            assert_eq!(ticks(largest, dollars, 0.0), expected);
        }
        for (largest, expected) in [
            (4.0, "0 1 2 3 4"),
            (1_000.0, "0 0.25k 0.50k 0.75k 1.00k"),
            (1.5e6, "0 0.5M 1.0M 1.5M"),
            (8e6, "0 2M 4M 6M 8M"),
        ] {
            assert_eq!(ticks(largest, amount, 1.0), expected);
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
        let chart = ColumnChart {
            label: "cost",
            series: &series,
            columns: &columns,
            least: 0.0,
            tick: |value, _| format!("{value}"),
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
        let empty =
            ColumnChart { label: "", series: &[], columns: &[], least: 1.0, tick: |v, _| format!("{v}") };
        assert!(columns(&empty).into_string().contains("<svg"));
    }
}
