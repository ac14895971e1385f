//! How long to wait before the next attempt. Pure: clock and chance are handed in.

use std::time::Duration;

use types::Timestamp;

/// The first wait; each further failure doubles it.
const FIRST: Duration = Duration::from_secs(1);
/// A receiver that was away for a week is found within this time of its return.
pub const LONGEST: Duration = Duration::from_mins(5);
/// No receiver may silence us for longer, whatever it asks for.
pub const LONGEST_ASKED: Duration = Duration::from_hours(1);

/// Another process may note a wait after we read the clock and before we read the note; the wait then seems longer than it
/// is. A busy store can put ten seconds between the two.
pub const OVERTAKEN: Duration = Duration::from_mins(1);

/// The wait after so many failures in a row. Half of it is chance (`random` in 0..1), so that a thousand machines do not
/// come back to a recovering receiver in step.
pub fn delay(failures: i64, random: f64) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1).clamp(0, 30)).unwrap_or(30);
    let whole = FIRST.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST);
    whole / 2 + (whole / 2).mul_f64(random.clamp(0.0, 1.0))
}

/// What `Retry-After` asks for: seconds, or the date when to come back.
pub fn asked(header: &str, now: Timestamp) -> Option<Duration> {
    let header = header.trim();
    let wait = if header.bytes().all(|byte| byte.is_ascii_digit()) && !header.is_empty() {
        Duration::from_secs(header.parse().unwrap_or(u64::MAX))
    } else {
        let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(header).ok()?;
        Timestamp(at.as_millisecond()).since(now)
    };
    Some(wait.min(LONGEST_ASKED))
}

/// How long to wait by the noted time. A wait longer than any that is ever noted means that the clock was set back
/// since, and is over.
pub fn left(until: Option<Timestamp>, now: Timestamp, longest: Duration) -> Duration {
    let wait = until.map_or(Duration::ZERO, |until| until.since(now));
    if wait > longest + OVERTAKEN { Duration::ZERO } else { wait }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_the_longest_and_half_of_it_is_chance() {
        for (failures, least, most) in [
            (0, 500, 1000),
            (1, 500, 1000),
            (2, 1000, 2000),
            (5, 8000, 16_000),
            (9, 128_000, 256_000),
            (10, 150_000, 300_000),
            (1_000_000, 150_000, 300_000),
            (i64::MAX, 150_000, 300_000),
        ] {
            assert_eq!(delay(failures, 0.0).as_millis(), least, "{failures}");
            assert_eq!(delay(failures, 1.0).as_millis(), most, "{failures}");
        }
        assert_eq!(delay(3, f64::INFINITY), delay(3, 1.0));
    }

    #[test]
    fn retry_after_takes_seconds_and_dates_and_is_capped() {
        let now = Timestamp::parse("2026-11-16T10:00:00Z").unwrap();
        for (header, seconds) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("Mon, 16 Nov 2026 10:00:30 GMT", Some(30)),
            ("Mon, 16 Nov 2026 09:00:00 GMT", Some(0)),
            ("Sun, 16 Nov 2036 10:00:00 GMT", Some(3600)),
            ("86400000", Some(3600)),
            ("99999999999999999999999999", Some(3600)),
            ("-5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(asked(header, now).map(|wait| wait.as_secs()), seconds, "{header:?}");
        }
    }

    #[test]
    fn a_clock_set_back_does_not_lengthen_the_wait() {
        let (day, just_noted) = (86_400_000, 300_007);
        for (until, now, ms) in [
            (None, 0, 0),
            (Some(500), 0, 500),
            (Some(500), 900, 0),
            (Some(just_noted), 0, 300_007),
            (Some(day), 0, 0),
        ] {
            assert_eq!(left(until.map(Timestamp), Timestamp(now), LONGEST).as_millis(), ms, "{until:?}");
        }
    }
}
