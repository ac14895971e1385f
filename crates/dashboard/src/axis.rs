//! The time of a session as the length of its charts. Pure.
//!
//! A session that was closed and opened again later would be all gap: closed periods are cut out, and a break of a fixed
//! width is drawn instead.

use std::collections::HashSet;

use jiff::tz::TimeZone;

use super::text::float;
use reader::TimelineEvent;
use types::Attributes;
use types::Timestamp;

/// Both ends of the axis stay free, so that a mark at either is drawn whole.
const BEGIN: f64 = 0.004;
const END: f64 = 0.99;
/// A break, and all of them together at most.
const BREAK: f64 = 0.03;
const BREAKS: f64 = 0.3;
/// Closed periods that are all below this part of the open time together are as good as none.
const WORTH_A_BREAK: i64 = 20;
/// An opening is no narrower than this part of them all, however short it was.
const NARROWEST: f64 = 0.03;
/// Labels stand no closer than this: a date and a time have room, on half of a screen.
const LABEL_DISTANCE: f64 = 0.1;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// Steps between labels that people count in.
const STEPS: [i64; 24] = [
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
    91 * DAY,
    364 * DAY,
];

/// Where on the axis something stands: 0 at the left, 1 at the right.
#[derive(Clone, Debug)]
pub struct Axis {
    pieces: Vec<Piece>,
    pub breaks: Vec<Break>,
}

/// An opening, or several with next to nothing between them.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: i64,
    last: i64,
    left: f64,
    width: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Break {
    pub left: f64,
    pub width: f64,
    /// How long it was closed.
    pub ms: i64,
}

/// The time between an END and the START after it.
pub fn closed(openings: &[TimelineEvent]) -> Vec<(Timestamp, Timestamp)> {
    let (mut closed, mut ended) = (Vec::new(), None);
    for event in openings {
        match &event.attributes {
            Attributes::End(_) => ended = Some(event.time),
            Attributes::Start(_) => {
                closed.extend(ended.take().map(|end| (end, event.time)).filter(|(end, start)| end < start));
            }
            _ => {}
        }
    }
    closed
}

impl Axis {
    pub fn new(first: Timestamp, last: Timestamp, closed: &[(Timestamp, Timestamp)]) -> Self {
        let (first, last) = (first.0, last.0.max(first.0));
        let inside = |(from, to): &(Timestamp, Timestamp)| from.0 >= first && to.0 <= last;
        let mut cuts: Vec<(i64, i64)> =
            closed.iter().filter(|cut| inside(cut)).map(|(from, to)| (from.0, to.0)).collect();
        cuts.sort_unstable();
        let shut: i64 = cuts.iter().map(|(from, to)| to - from).sum();
        let number = i64::try_from(cuts.len()).unwrap_or(i64::MAX).max(1);
        let worth = (last - first - shut).max(0) / WORTH_A_BREAK / number;
        let mut spans = vec![(first, last)];
        for (from, to) in cuts {
            let (begin, end) = spans[spans.len() - 1];
            if to - from > worth && from >= begin {
                let at = spans.len() - 1;
                spans[at].1 = from;
                spans.push((to, end));
            }
        }
        Self::laid_out(&spans)
    }

    fn laid_out(spans: &[(i64, i64)]) -> Self {
        let number = float(i64::try_from(spans.len()).unwrap_or(i64::MAX));
        let each = BREAK.min(BREAKS / number);
        let whole = spans.iter().map(|(first, last)| float(last - first)).sum::<f64>().max(1.0);
        let share = |(first, last): &(i64, i64)| (float(last - first) / whole).max(NARROWEST);
        let scale = (END - BEGIN - each * (number - 1.0)) / spans.iter().map(share).sum::<f64>();
        let (mut pieces, mut breaks): (Vec<Piece>, Vec<Break>) = (Vec::new(), Vec::new());
        let mut left = BEGIN;
        for span in spans {
            if let Some(before) = pieces.last() {
                breaks.push(Break { left, width: each, ms: span.0 - before.last });
                left += each;
            }
            let width = share(span) * scale;
            pieces.push(Piece { first: span.0, last: span.1, left, width });
            left += width;
        }
        Self { pieces, breaks }
    }

    /// An event from a time in which it was closed is placed where it was closed.
    pub fn at(&self, time: Timestamp) -> f64 {
        let after = self.pieces.partition_point(|piece| piece.first <= time.0);
        self.pieces[after.saturating_sub(1)].at(time.0)
    }

    /// Round times along it, each text once.
    pub fn labels(&self, zone: &TimeZone) -> Vec<(f64, String)> {
        let open: i64 = self.pieces.iter().map(|piece| piece.last - piece.first).sum();
        let rough = float(open) * LABEL_DISTANCE;
        let step = STEPS.into_iter().find(|step| float(*step) >= rough).unwrap_or(STEPS[STEPS.len() - 1]);
        let format = LabelFormat::new(self.pieces[0].first, self.pieces[self.pieces.len() - 1].last, zone);
        let (mut labels, mut seen): (Vec<(f64, String)>, HashSet<String>) = (Vec::new(), HashSet::new());
        for piece in &self.pieces {
            let mut times: Vec<i64> = piece.multiples(step, offset(zone, piece.first)).collect();
            // Too short for a round time: when it was opened is still worth knowing.
            if times.is_empty() {
                times.push(piece.first);
            }
            for time in times {
                let (x, label) = (piece.at(time), format.label(time, step));
                let clear = labels.last().is_none_or(|(last, _)| x - last >= LABEL_DISTANCE * 0.85);
                if clear && seen.insert(label.clone()) {
                    labels.push((x, label));
                }
            }
        }
        labels
    }
}

impl Piece {
    fn at(&self, time: i64) -> f64 {
        let part = float(time - self.first) / float((self.last - self.first).max(1));
        self.left + self.width * part.clamp(0.0, 1.0)
    }

    /// The multiples of a step within it, as a clock with that offset shows them.
    fn multiples(&self, step: i64, offset: i64) -> impl Iterator<Item = i64> {
        let first = (self.first + offset + step - 1).div_euclid(step) * step - offset;
        let (last, size) = (self.last, usize::try_from(step).unwrap_or(usize::MAX));
        // One more than fits: a clock that jumps does not make it endless.
        (first..=last).step_by(size).take(200)
    }
}

/// How far a zone's clock is ahead of UTC, in milliseconds.
fn offset(zone: &TimeZone, at: i64) -> i64 {
    let at = jiff::Timestamp::from_millisecond(at).unwrap_or_default();
    i64::from(zone.to_offset(at).seconds()) * SECOND
}

/// The format of the labels of an axis, by the times it covers.
struct LabelFormat<'a> {
    zone: &'a TimeZone,
    date: &'static str,
    years: bool,
}

impl<'a> LabelFormat<'a> {
    fn new(first: i64, last: i64, zone: &'a TimeZone) -> Self {
        let local = |ms| jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_zoned(zone.clone());
        let (begun, ended) = (local(first), local(last));
        let date = match last - first {
            _ if begun.date() == ended.date() => "",
            ms if ms < 6 * DAY => "%a ",
            _ => "%-d %b ",
        };
        Self { zone, date, years: begun.year() != ended.year() }
    }

    fn label(&self, time: i64, step: i64) -> String {
        let local = jiff::Timestamp::from_millisecond(time).unwrap_or_default().to_zoned(self.zone.clone());
        if step >= DAY {
            return local.strftime(if self.years { "%-d %b %Y" } else { "%-d %b" }).to_string();
        }
        let clock = if time % MINUTE == 0 { "%H:%M" } else { "%H:%M:%S" };
        let clock = if step < MINUTE { "%H:%M:%S" } else { clock };
        local.strftime(&format!("{}{clock}", self.date)).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use types::EventType;

    fn at(text: &str) -> Timestamp {
        let time: jiff::Timestamp = text.parse().unwrap();
        Timestamp(time.as_millisecond())
    }

    fn labels(axis: &Axis) -> Vec<String> {
        axis.labels(&TimeZone::UTC).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn labels_are_round_and_never_the_same_twice() {
        for (first, last, expected) in [
            ("2026-11-16T11:46:23Z", "2026-11-16T12:09:36Z", vec!["11:50", "11:55", "12:00", "12:05"]),
            (
                "2026-11-16T11:46:23Z",
                "2026-11-16T11:46:40Z",
                vec![
                    "11:46:24", "11:46:26", "11:46:28", "11:46:30", "11:46:32", "11:46:34", "11:46:36",
                    "11:46:38", "11:46:40",
                ],
            ),
            ("2026-11-16T11:46:23.5Z", "2026-11-16T11:46:23.7Z", vec!["11:46:23"]),
            ("2026-11-16T11:46:23Z", "2026-11-16T11:46:23Z", vec!["11:46:23"]),
            (
                "2026-11-16T20:00:00Z",
                "2026-11-17T04:00:00Z",
                vec![
                    "Mon 20:00",
                    "Mon 21:00",
                    "Mon 22:00",
                    "Mon 23:00",
                    "Tue 00:00",
                    "Tue 01:00",
                    "Tue 02:00",
                    "Tue 03:00",
                    "Tue 04:00",
                ],
            ),
            (
                "2025-12-01T00:00:00Z",
                "2026-02-14T00:00:00Z",
                vec!["4 Dec 2025", "18 Dec 2025", "1 Jan 2026", "15 Jan 2026", "29 Jan 2026", "12 Feb 2026"],
            ),
        ] {
            assert_eq!(labels(&Axis::new(at(first), at(last), &[])), expected, "{first} to {last}");
        }
    }

    #[test]
    fn labels_are_round_in_the_zone_of_the_reader() {
        let zone = TimeZone::fixed(jiff::tz::offset(5).saturating_add(jiff::SignedDuration::from_mins(30)));
        let axis = Axis::new(at("2026-11-16T10:10:00Z"), at("2026-11-16T14:00:00Z"), &[]);
        let labels: Vec<String> = axis.labels(&zone).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["16:00", "16:30", "17:00", "17:30", "18:00", "18:30", "19:00", "19:30"]);
    }

    #[test]
    fn closed_time_is_a_break() {
        let (first, last) = (at("2026-11-17T03:07:18Z"), at("2026-11-17T03:22:02Z"));
        let closed = [(at("2026-11-17T03:08:49Z"), at("2026-11-17T03:21:56Z"))];
        let axis = Axis::new(first, last, &closed);
        assert_eq!(axis.breaks.len(), 1);
        assert_eq!(axis.breaks[0].ms, 787_000);
        let Break { left, width, .. } = axis.breaks[0];
        assert!(axis.at(first) < 0.01 && (axis.at(last) - END).abs() < 1e-9, "the ends are the ends");
        assert!(left > 0.8 && (axis.at(closed[0].0) - left).abs() < 1e-9, "{axis:?}");
        assert!((axis.at(closed[0].1) - left - width).abs() < 1e-9);
        assert!((axis.at(at("2026-11-17T03:15:00Z")) - left).abs() < 1e-9, "while it was closed");
        let labels = labels(&axis);
        assert_eq!((labels.len(), &*labels[0], &*labels[9]), (10, "03:07:20", "03:22:00"), "{labels:?}");
    }

    #[test]
    fn short_closed_times_are_no_break_and_many_breaks_leave_space() {
        let (first, hour) = (at("2026-11-17T03:00:00Z"), 3_600_000);
        let moment = [(Timestamp(first.0 + hour), Timestamp(first.0 + hour + 1000))];
        assert_eq!(Axis::new(first, Timestamp(first.0 + 2 * hour), &moment).breaks, []);
        let closed: Vec<_> = (0..100)
            .map(|n| (Timestamp(first.0 + n * 2 * hour + hour), Timestamp(first.0 + (n + 1) * 2 * hour)))
            .collect();
        let axis = Axis::new(first, Timestamp(first.0 + 201 * hour), &closed);
        assert_eq!(axis.breaks.len(), 100);
        assert!(axis.breaks.iter().map(|one| one.width).sum::<f64>() <= BREAKS);
        let labels = axis.labels(&TimeZone::UTC);
        assert!(labels.windows(2).all(|two| two[1].0 - two[0].0 > 0.08), "{labels:?}");
        let everything = [(first, Timestamp(first.0 + hour))];
        let all = Axis::new(first, Timestamp(first.0 + hour), &everything);
        assert_eq!(all.breaks.len(), 1, "never open, and still an axis");
        assert!(all.at(first) < all.at(Timestamp(first.0 + hour)));
    }

    #[test]
    fn closed_is_from_an_end_to_the_next_start() {
        let event = |time, kind: EventType, attributes: serde_json::Value| TimelineEvent {
            seq: time,
            rev: 0,
            kind: kind.into(),
            time: Timestamp(time),
            attributes: Attributes::parse(kind, &attributes.to_string()).unwrap(),
        };
        let start = |time| event(time, EventType::Start, json!({"reason": "startup"}));
        let end = |time| event(time, EventType::End, json!({"status": "completed", "lastSeq": 5}));
        let openings = [start(1), end(5), start(9), start(12), end(20), end(21), start(30)];
        let found = closed(&openings);
        assert_eq!(found, [(Timestamp(5), Timestamp(9)), (Timestamp(21), Timestamp(30))]);
    }
}
