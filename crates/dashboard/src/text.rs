//! Numbers and times as the pages show them: grouped, short where there is little space, and exact in the title.

use std::time::Duration;

use jiff::Zoned;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use maud::{Markup, html};

use types::Timestamp;

/// The time and the zone a page is made for: days and times are those of the zone.
#[derive(Clone, Debug)]
pub struct Now {
    pub at: Timestamp,
    pub zone: TimeZone,
}

impl Now {
    /// A time relative to now; the exact one is in its title, and for machines.
    pub fn ago(&self, at: Timestamp) -> Markup {
        let text = relative(at, self.at).unwrap_or_else(|| self.date(at));
        html! { time datetime=(at) title=(self.exact(at)) data-ago { (text) } }
    }

    /// `Mon 16 Nov 2026, 14:05:12 CET`.
    pub fn exact(&self, at: Timestamp) -> String {
        self.local(at)
            .map_or_else(|| at.to_string(), |local| local.strftime("%a %-d %b %Y, %H:%M:%S %Z").to_string())
    }

    /// `14:05:12`, with the date in its title.
    pub fn time_of_day(&self, at: Timestamp) -> Markup {
        html! { time datetime=(at) title=(self.exact(at)) { (self.clock(at)) } }
    }

    pub fn clock(&self, at: Timestamp) -> String {
        self.local(at).map_or_else(|| at.to_string(), |local| local.strftime("%H:%M:%S").to_string())
    }

    /// The same with the date in front where it is another than before.
    pub fn time_after(&self, at: Timestamp, before: Option<Timestamp>) -> Markup {
        let day = |at: Timestamp| self.local(at).map(|local| local.date());
        html! {
            @if before.is_some_and(|before| day(before) != day(at)) { (self.date(at)) ", " }
            (self.time_of_day(at))
        }
    }

    pub fn today(&self) -> Date {
        let now = jiff::Timestamp::from_millisecond(self.at.0).unwrap_or_default();
        now.to_zoned(self.zone.clone()).date()
    }

    /// `3 Oct`, with the year where it is another.
    fn date(&self, at: Timestamp) -> String {
        let (at, now) = (self.local(at), self.local(self.at));
        let year = at.as_ref().map(Zoned::year) != now.as_ref().map(Zoned::year);
        at.map_or_else(String::new, |at| at.strftime(if year { "%-d %b %Y" } else { "%-d %b" }).to_string())
    }

    fn local(&self, at: Timestamp) -> Option<Zoned> {
        jiff::Timestamp::from_millisecond(at.0).ok().map(|at| at.to_zoned(self.zone.clone()))
    }
}

/// A model's name without the date that its vendor puts behind it: `claude-opus-4-5` of `claude-opus-4-5-20251101`.
pub fn without_date(model: &str) -> &str {
    let is_date = |part: &str| {
        part.len() == 8 && part.starts_with("20") && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    match model.rsplit_once('-') {
        Some((name, date)) if is_date(date) && !name.is_empty() => name,
        _ => model,
    }
}

/// `just now`, `3 min ago`, `2 h ago`, `yesterday`, `6 days ago`; what is longer ago has a date. The clock of another
/// machine may be ahead of ours: what seems to be in the future is now.
fn relative(at: Timestamp, now: Timestamp) -> Option<String> {
    let seconds = now.since(at).as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    Some(match seconds {
        ..45 => "just now".to_owned(),
        45..3570 => format!("{} min ago", (seconds + 30) / 60),
        3570..84_600 => format!("{} h ago", (minutes + 30) / 60),
        84_600..170_000 => "yesterday".to_owned(),
        170_000..604_800 => format!("{} days ago", (hours + 12) / 24),
        _ => return None,
    })
}

/// Two decimals, so that a column of them lines up. A little is not nothing.
pub fn cents(dollars: f64) -> String {
    let sign = if dollars < 0.0 { "-" } else { "" };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "for showing; saturates")]
    let cents = (dollars.abs() * 100.0).round() as u64;
    if cents == 0 && dollars != 0.0 {
        return "< $0.01".to_owned();
    }
    match cents {
        ..1_000_000 => format!("{sign}${}.{:02}", format::grouped(cents / 100), cents % 100),
        // Cents do not matter beside so much.
        _ => format!("{sign}${}", format::grouped((cents + 50) / 100)),
    }
}

/// A cost, with a plus if there are also calls without a price, as the command line writes it.
pub fn priced(dollars: f64, unpriced_calls: i64) -> String {
    match (unpriced_calls > 0, dollars > 0.0) {
        (false, _) => cents(dollars),
        (true, true) => cents(dollars) + "+",
        (true, false) => "no price".to_owned(),
    }
}

/// The same, exact in its title.
pub fn cost(dollars: f64, unpriced_calls: i64) -> Markup {
    let more = if unpriced_calls > 0 { ", and calls without a known price" } else { "" };
    let class = (unpriced_calls > 0 && dollars <= 0.0).then_some("muted");
    let title = format!("${dollars:.6}{more}");
    html! { span class=[class] title=(title) { (priced(dollars, unpriced_calls)) } }
}

/// Three digits and a unit; all of them in the title.
pub fn count(number: i64) -> Markup {
    let number = natural(number);
    html! { span title=(format::grouped(number)) { (format::count(number)) } }
}

pub fn short_count(number: i64) -> String {
    format::count(natural(number))
}

/// For drawing and for shares.
#[expect(clippy::cast_precision_loss, reason = "the sixteenth digit is not shown")]
pub fn float(number: i64) -> f64 {
    number as f64
}

pub fn grouped(number: i64) -> String {
    format::grouped(natural(number))
}

/// Counts are never negative; a negative one is a mistake elsewhere, not a reason to fail.
fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub fn duration(ms: i64) -> String {
    format::duration(Duration::from_millis(natural(ms)))
}

/// `13 min`: how long, where there is little space.
pub fn about(ms: i64) -> String {
    let seconds = natural(ms) / 1000;
    match seconds {
        ..90 => format!("{seconds} s"),
        90..5_400 => format!("{} min", (seconds + 30) / 60),
        5_400..172_800 => format!("{} h", (seconds + 1_800) / 3_600),
        _ => format!("{} days", (seconds + 43_200) / 86_400),
    }
}

/// `12 %`, of a whole that may be nothing.
pub fn share(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return String::new();
    }
    let percent = part / whole * 100.0;
    if percent > 0.0 && percent < 1.0 { "< 1 %".to_owned() } else { format!("{percent:.0} %") }
}

/// The first characters of an id: enough to distinguish it and to look it up.
pub fn short(id: &str) -> &str {
    id.char_indices().nth(8).map_or(id, |(at, _)| &id[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_for_a_week() {
        let now = Timestamp(1_800_000_000_000);
        for (seconds, text) in [
            (-100, "just now"),
            (0, "just now"),
            (50, "1 min ago"),
            (89, "1 min ago"),
            (91, "2 min ago"),
            (3569, "59 min ago"),
            (3600, "1 h ago"),
            (84_599, "23 h ago"),
            (86_400, "yesterday"),
            (172_800, "2 days ago"),
            (604_799, "7 days ago"),
            (604_800, ""),
        ] {
            let shown = relative(Timestamp(now.0 - seconds * 1000), now);
            assert_eq!(shown.unwrap_or_default(), text, "{seconds} s");
        }
        let now = Now { at: now, zone: TimeZone::UTC };
        assert_eq!(now.exact(Timestamp(0)), "Thu 1 Jan 1970, 00:00:00 UTC");
        assert_eq!(now.date(Timestamp(0)), "1 Jan 1970");
        assert_eq!(now.date(Timestamp(now.at.0 - 8 * 86_400_000)), "7 Jan");
    }

    #[test]
    fn a_little_money_is_not_nothing() {
        for (dollars, text) in [
            (0.0, "$0.00"),
            (1e-12, "< $0.01"),
            (0.005, "$0.01"),
            (12.345_1, "$12.35"),
            (9_999.994, "$9,999.99"),
            (9_999.999, "$10,000"),
            (1_234_567.89, "$1,234,568"),
            (-0.02, "-$0.02"),
        ] {
            assert_eq!(cents(dollars), text);
        }
        assert_eq!(cost(0.001, 0).into_string(), r#"<span title="$0.001000">&lt; $0.01</span>"#);
    }

    #[test]
    fn calls_without_a_price_are_marked() {
        for (dollars, unpriced, text) in
            [(0.0, 0, "$0.00"), (1.5, 0, "$1.50"), (1.5, 2, "$1.50+"), (0.0, 2, "no price")]
        {
            assert_eq!(priced(dollars, unpriced), text);
        }
    }

    #[test]
    fn durations_are_rounded_where_there_is_little_space() {
        for (seconds, text) in [
            (0, "0 s"),
            (89, "89 s"),
            (787, "13 min"),
            (5_399, "90 min"),
            (7_100, "2 h"),
            (200_000, "2 days"),
        ] {
            assert_eq!(about(seconds * 1000), text);
        }
    }

    #[test]
    fn shares_and_short_ids() {
        assert_eq!(share(1.0, 0.0), "");
        assert_eq!(share(0.001, 1.0), "< 1 %");
        assert_eq!(share(1.0, 3.0), "33 %");
        assert_eq!(short("01a1e18d-8b20"), "01a1e18d");
        assert_eq!(short("ähnlich"), "ähnlich");
    }
}
