//! What people read and type: numbers, durations, money, times, text, words of a shell. The terminal and the dashboard use
//! the same forms.

use std::time::Duration;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use types::{PicoDollars, Timestamp};

pub mod output;
pub mod shell;
pub mod since;
pub mod status;
pub mod text;

/// `0.4s`, `42s`, `3m 05s`, `2h 07m`, `3d 04h`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => two_units(seconds / 60, "m ", (seconds % 60, 2), "s"),
        3600..86_400 => two_units(seconds / 3600, "h ", (seconds / 60 % 60, 2), "m"),
        _ => two_units(seconds / 86_400, "d ", (seconds / 3600 % 24, 2), "h"),
    }
}

/// Two numbers, the second with so many digits, and what stands behind each.
fn two_units(large: u64, between: &str, (small, digits): (u64, usize), end: &str) -> String {
    let mut text = String::new();
    push_digits(&mut text, large, 1);
    text += between;
    push_digits(&mut text, small, digits);
    text += end;
    text
}

/// A number with at least so many digits. A list has forty thousand of them, for which formats are slow.
fn push_digits(text: &mut String, number: u64, least: usize) {
    let mut digits = [b'0'; 20];
    let (mut first, mut number) = (digits.len(), number);
    while number > 0 || first + least > digits.len() {
        let Some(next) = first.checked_sub(1) else { break };
        first = next;
        digits[first] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
    text.extend(digits[first..].iter().copied().map(char::from));
}

/// `999`, `12.3k`, `4.56M`, `7.89B`: three digits, never more.
pub fn count(number: u64) -> String {
    scaled(number, ["k", "M", "B", "T"])
}

/// `999B`, `12.3kB`, `4.56MB`, `7.89GB`: three digits, never more.
pub fn bytes(number: u64) -> String {
    scaled(number, ["k", "M", "G", "T"]) + "B"
}

/// `letters`: for thousands, millions and so on.
fn scaled(number: u64, letters: [&str; 4]) -> String {
    let units = [1_000, 1_000_000, 1_000_000_000, 1_000_000_000_000_u64].into_iter().zip(letters);
    // Rounding must not give 1000k: the next unit begins where the last one would.
    let Some((unit, letter)) = units.rev().find(|(unit, _)| number.saturating_add(unit / 2000) >= *unit)
    else {
        return number.to_string();
    };
    let (number, unit) = (u128::from(number), u128::from(unit));
    // Rounded to the digits that are shown; one digit more where that makes another.
    let rounded = |parts: u128| u64::try_from((number * parts + unit / 2) / unit).unwrap_or(u64::MAX);
    match (rounded(100), rounded(10)) {
        (hundredths @ 0..1_000, _) => two_units(hundredths / 100, ".", (hundredths % 100, 2), letter),
        (_, tenths @ 0..1_000) => two_units(tenths / 10, ".", (tenths % 10, 1), letter),
        _ => format!("{}{letter}", rounded(1)),
    }
}

/// `1 line`, `2 lines`, `1,810 lines`.
pub fn counted(number: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(number as u64), if number == 1 { "" } else { "s" })
}

/// Digits in groups of three: `12,345,678`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    if digits.len() <= 3 {
        return digits;
    }
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `$0.0123`, `$12.34`: four decimals below a dollar, where they matter.
pub fn dollars(pico: i64) -> String {
    decimals(pico, if pico.unsigned_abs() >= 1_000_000_000_000 { 2 } else { 4 })
}

/// Amounts that stand in one column, each with whether there is more that has no price: one precision for all, so that
/// points are below points. Two decimals where they show something of every amount, else four.
pub fn column(amounts: &[(i64, bool)]) -> Vec<String> {
    const DOLLAR: u64 = 1_000_000_000_000;
    let sizes = || amounts.iter().map(|(pico, _)| pico.unsigned_abs()).filter(|pico| *pico > 0);
    let cents = sizes().max().is_some_and(|most| most >= DOLLAR) && sizes().all(|pico| pico >= DOLLAR / 10);
    let more = amounts.iter().any(|(_, more)| *more);
    let show = |(pico, plus): &(i64, bool)| {
        let mark = match (plus, more) {
            (true, _) => "+",
            (false, true) => " ",
            (false, false) => "",
        };
        decimals(*pico, if cents { 2 } else { 4 }) + mark
    };
    amounts.iter().map(show).collect()
}

fn decimals(pico: i64, places: u32) -> String {
    let sign = if pico < 0 { "-" } else { "" };
    let (one, width) = (10_u64.pow(places), places as usize);
    let unit = 1_000_000_000_000 / one;
    let parts = (pico.unsigned_abs() + unit / 2) / unit;
    let mut text = String::from(sign);
    text.push('$');
    text += &grouped(parts / one);
    text.push('.');
    push_digits(&mut text, parts % one, width);
    text
}

/// Dollars that were summed up elsewhere.
pub fn usd(dollars: f64) -> String {
    self::dollars(PicoDollars::from_dollars(dollars).0)
}

/// `14:05` today, `Nov 15 14:05` this year, `2025-11-15` before.
pub fn moment(at: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    Moments::until(now, zone).moment(at)
}

/// Many moments seen from one: a list has ten thousand.
#[derive(Debug)]
pub struct Moments<'a> {
    today: Option<Date>,
    zone: &'a TimeZone,
}

impl<'a> Moments<'a> {
    pub fn until(now: Timestamp, zone: &'a TimeZone) -> Self {
        Self { today: local(now, zone).map(DateTime::date), zone }
    }

    /// As [`moment`] puts it.
    pub fn moment(&self, at: Timestamp) -> String {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let (Some(at), Some(today)) = (local(at, self.zone), self.today) else { return String::from("?") };
        let mut text = String::new();
        let two = |text: &mut String, number: i8| push_digits(text, u64::try_from(number).unwrap_or(0), 2);
        if at.year() != today.year() {
            push_digits(&mut text, u64::try_from(at.year()).unwrap_or(0), 4);
            text.push('-');
            two(&mut text, at.month());
            text.push('-');
            two(&mut text, at.day());
            return text;
        }
        if at.date() != today {
            let month = usize::try_from(at.month() - 1).ok().and_then(|month| MONTHS.get(month));
            text += month.unwrap_or(&"?");
            text.push(' ');
            two(&mut text, at.day());
            text.push(' ');
        }
        two(&mut text, at.hour());
        text.push(':');
        two(&mut text, at.minute());
        text
    }
}

fn local(at: Timestamp, zone: &TimeZone) -> Option<DateTime> {
    jiff::Timestamp::from_millisecond(at.0).ok().map(|at| zone.to_datetime(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (millis, text) in [
            (0, "0.0s"),
            (440, "0.4s"),
            (9_949, "9.9s"),
            (42_000, "42s"),
            (185_000, "3m 05s"),
            (7_620_000, "2h 07m"),
            (273_600_000, "3d 04h"),
            (8_639_999_999_999, "99999d 23h"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn counts_have_three_digits() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1.00k"),
            (1_234, "1.23k"),
            (9_995, "10.0k"),
            (12_345, "12.3k"),
            (15_994, "16.0k"),
            (23_294, "23.3k"),
            (99_950, "100k"),
            (123_456, "123k"),
            (199_999, "200k"),
            (999_499, "999k"),
            (999_500, "1.00M"),
            (999_999, "1.00M"),
            (4_560_000, "4.56M"),
            (999_500_000, "1.00B"),
            (7_890_000_000, "7.89B"),
            (999_499_999_999, "999B"),
            (1_000_000_000_000, "1.00T"),
            (u64::MAX, "18446744T"),
        ] {
            assert_eq!(count(number), text);
        }
        for (number, text) in
            [(0, "0B"), (12_345, "12.3kB"), (1_990_000_000, "1.99GB"), (999_500_000, "1.00GB")]
        {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(counted(1, "line"), "1 line");
        assert_eq!(counted(1_268, "line"), "1,268 lines");
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }

    #[test]
    fn money() {
        for (pico, text) in [
            (0, "$0.0000"),
            (12_300_000_000, "$0.0123"),
            (999_960_000_000, "$1.0000"),
            (12_345_000_000_000, "$12.35"),
            (1_234_567_890_000_000_000, "$1,234,567.89"),
            (-12_300_000_000, "-$0.0123"),
        ] {
            assert_eq!(dollars(pico), text);
        }
    }

    #[test]
    fn a_column_of_money_has_one_precision() {
        let dollar = 1_000_000_000_000;
        for (amounts, column) in [
            (&[(dollar * 3 / 4, true), (dollar * 107 / 100, true)][..], &["$0.75+", "$1.07+"][..]),
            (&[(dollar / 50, false), (dollar * 1234, true)], &["$0.0200 ", "$1,234.0000+"]),
            (&[(dollar / 2, false), (dollar / 4, false)], &["$0.5000", "$0.2500"]),
            (&[(0, false), (dollar * 2, false)], &["$0.00", "$2.00"]),
            (&[(0, false)], &["$0.0000"]),
            (&[], &[]),
        ] {
            assert_eq!(self::column(amounts), column);
        }
    }

    #[test]
    fn moments_say_as_much_as_is_needed() {
        let now = Timestamp::parse("2026-11-16T12:00:00Z").unwrap();
        for (at, text) in [
            ("2026-11-16T09:05:00Z", "09:05"),
            ("2026-11-15T23:59:00Z", "Nov 15 23:59"),
            ("2025-01-02T03:04:05Z", "2025-01-02"),
            ("0987-12-31T00:00:00Z", "0987-12-31"),
            ("2026-01-01T00:00:00Z", "Jan 01 00:00"),
            ("2026-12-31T23:59:00Z", "Dec 31 23:59"),
        ] {
            assert_eq!(moment(Timestamp::parse(at).unwrap(), now, &TimeZone::UTC), text);
        }
    }
}
