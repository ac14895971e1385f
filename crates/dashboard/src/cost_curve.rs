//! The curve of a session's cost over time: a sum that grows in steps.

use maud::{Markup, Render, html};

use super::activity::counted;
use super::axis::Axis;
use super::chart::{ABOVE, HEIGHT, dollars, grid, percent, pointer_text, px, y};
use super::frame::Frame;
use super::model::SessionView;
use super::scale::Scale;
use types::Attributes;
use types::PicoDollars;
use types::Timestamp;

/// How many points can be pointed at: more are too close together to be hit.
const DOTS: usize = 240;

pub struct CostCurve {
    points: Vec<Point>,
    scale: Scale,
}

/// One or more calls, and what had been spent by then.
#[derive(Clone, Debug)]
struct Point {
    x: f64,
    y: f64,
    title: String,
    /// The title in short.
    short: String,
}

impl CostCurve {
    pub fn new(frame: &Frame, view: &SessionView, time: &Axis) -> Self {
        let points = points(frame, view, time);
        let scale = Scale::up_to(points.iter().map(|point| point.y).fold(0.0, f64::max), 0.0);
        Self { points, scale }
    }

    /// No model was called yet.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The amounts beside the axis.
    pub fn amounts(&self) -> Markup {
        let scale = self.scale;
        html! {
            @if !self.is_empty() {
                @for value in scale.ticks() {
                    text x="56" y=(px(y(scale, value) + 3.5)) { (dollars(value, scale)) }
                }
            }
        }
    }

    fn dot(&self, point: &Point) -> Markup {
        html! {
            g.point {
                title { (point.title) }
                circle.dot cx=(percent(point.x)) cy=(px(y(self.scale, point.y))) r="5" {}
                (pointer_text(point.x, &point.short))
            }
        }
    }
}

impl Render for CostCurve {
    fn render(&self) -> Markup {
        let every = self.points.len().div_ceil(DOTS).max(1);
        let (line, area) = steps(&self.points, self.scale);
        html! {
            (grid(self.scale))
            svg x="0" y=(px(ABOVE)) width="100%" height=(px(HEIGHT)) viewBox="0 0 1000 1000"
                preserveAspectRatio="none" {
                path.area d=(area) {}
                path.line d=(line) {}
            }
            @for (at, point) in self.points.iter().enumerate() {
                @if at % every == 0 || at + 1 == self.points.len() { (self.dot(point)) }
            }
        }
    }
}

fn points(frame: &Frame, view: &SessionView, time: &Axis) -> Vec<Point> {
    let mut sum = PicoDollars(0);
    let mut point = |at: Timestamp, text: &str, cost: PicoDollars| {
        sum.0 = sum.0.saturating_add(cost.0);
        let so_far = format!("so far {}", format::dollars(sum.0));
        let title = format!("{}\n{text}\n{so_far}", frame.now.exact(at));
        let short = format!("{}\n{so_far}", frame.now.clock(at));
        Point { x: time.at(at), y: sum.dollars(), title, short }
    };
    if let Some(buckets) = &view.activity {
        let called = buckets.iter().filter(|bucket| bucket.calls > 0);
        let text =
            |calls, cost: PicoDollars| format!("{}, {}", counted(calls, "call"), format::dollars(cost.0));
        return called.map(|part| point(part.until, &text(part.calls, part.cost), part.cost)).collect();
    }
    let usages = view.events.iter().filter_map(|event| match &event.attributes {
        Attributes::Usage(usage) => Some((event.time, usage)),
        _ => None,
    });
    usages
        .map(|(at, usage)| {
            let cost = usage.cost().map_or("no price".to_owned(), |cost| format::dollars(cost.0));
            point(at, &format!("{}, {cost}", &*usage.model), usage.cost().unwrap_or_default())
        })
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_goes_in_steps() {
        let point = |x, y| Point { x, y, title: String::new(), short: String::new() };
        let scale = Scale { top: 4.0, step: 1.0 };
        let (line, area) = steps(&[point(0.0, 1.0), point(0.5, 4.0)], scale);
        assert_eq!(line, "M0 1000H0.0V750.0H500.0V0.0H1000");
        assert_eq!(area, format!("{line}V1000Z"));
        let empty = CostCurve { points: Vec::new(), scale };
        assert!(empty.render().into_string().contains("M0 1000H1000"));
    }
}
