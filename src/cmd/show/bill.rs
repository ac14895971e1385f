//! The part of `show` about what the proxy saw: the bill, how long answers took, what was used of limits.

use jiff::tz::TimeZone;

use super::super::session_text::{Sheet, cost, date, number};
use format::output::table::{Column, Table};
use report::bill::{Bill, BilledSum};
use report::details::SessionDetails;
use store::session::quota_use::QuotaUse;
use types::Utilization;

/// What the transcript holds, and below it what only the proxy saw, by kind.
pub(super) fn table(bill: &Bill, unpriced: &[String]) -> Table {
    let mut table = Table::new([
        Column::text("BILL", 12),
        Column::number("CALLS"),
        Column::number("INPUT").dispensable(2),
        Column::number("OUTPUT").dispensable(1),
        Column::number("CACHE READ").dispensable(3),
        Column::number("CACHE WRITE").dispensable(4),
        Column::number("COST"),
    ]);
    let mut row = |name: String, sum: &BilledSum| {
        let counts = [
            sum.api_calls,
            sum.input_tokens,
            sum.output_tokens,
            sum.cache_read_tokens,
            sum.cache_write_tokens,
        ];
        let counts = counts.into_iter().map(|count| format::grouped(number(count)));
        let cells = [name].into_iter().chain(counts).chain([cost(sum.cost_usd, unpriced)]);
        table.row(cells.map(Into::into));
    };
    row("transcript".into(), &bill.transcript);
    row("proxy only".into(), &bill.proxy_only);
    for kind in &bill.by_kind {
        row(format!("  {}{}", kind.kind, marks(&kind.sum)), &kind.sum);
    }
    table
}

/// `, 1 aborted, 2 repeated`.
fn marks(sum: &BilledSum) -> String {
    let mark = |count: i64, word: &str| {
        if count > 0 { format!(", {} {word}", format::grouped(number(count))) } else { String::new() }
    };
    mark(sum.aborted, "aborted") + &mark(sum.repeated, "repeated")
}

pub(super) fn lines(details: &SessionDetails, zone: &TimeZone, sheet: &mut Sheet) {
    if let Some(bill) = &details.bill {
        let part = percent(bill.difference);
        sheet.line("difference", format!("{part} of the bill is not in the transcript"));
        if let Some(latency) = &bill.latency {
            let time = |ms| format::grouped(ms) + " ms";
            let first = latency.ttft_p50_ms.map(|ms| format!(", first token after {}", time(ms)));
            let first = first.unwrap_or_default();
            sheet.line(
                "answers",
                format!("p50 {}, p95 {}{first}", time(latency.p50_ms), time(latency.p95_ms)),
            );
        }
    }
    for quota in &details.quotas {
        sheet.line("limit", limit(quota, zone));
    }
    if details.waiting_calls > 0 {
        sheet.line(
            "waiting calls",
            format!("{} of its run, of conversations that are no sessions", details.waiting_calls),
        );
    }
}

fn limit(quota: &QuotaUse, zone: &TimeZone) -> String {
    let share = if quota.computed { " (computed: its share by tokens)" } else { "" };
    let resets = quota.resets_at.map(|at| format!(", resets {}", date(at, zone))).unwrap_or_default();
    format!(
        "{} {}: used {}{share}, {} to {}{resets}",
        quota.provider,
        quota.window,
        percent(quota.used.part()),
        percent(quota.first.part()),
        percent(quota.last.part())
    )
}

/// `12.5 %`, to a tenth.
fn percent(part: f64) -> String {
    let millionths = Utilization::of(part).unwrap_or_default().millionths();
    let tenths = (millionths + 500) / 1000;
    match tenths % 10 {
        0 => format!("{} %", tenths / 10),
        rest => format!("{}.{rest} %", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_shown_to_a_tenth_of_a_percent() {
        for (part, shown) in [
            (0.0, "0 %"),
            (0.125, "12.5 %"),
            (0.15, "15 %"),
            (0.0004, "0 %"),
            (0.0006, "0.1 %"),
            (1.0, "100 %"),
        ] {
            assert_eq!(percent(part), shown);
        }
    }
}
