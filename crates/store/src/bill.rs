//! The calls of a session by who saw them.

use super::proxied::Seen;
use super::row::{read_row, uncount};
use super::total::call_sums;
use super::{Error, View};
use types::{CallKind, CallSums, Timestamp, row};

row! {
    /// Calls of one kind, seen by the same.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct BilledCalls {
        pub seen: Seen as Option<Seen> => Option::unwrap_or_default,
        /// `None` where the proxy has not seen them.
        pub kind: Option<CallKind> as Option<String> => |kind| kind.map(|kind| CallKind::parse(&kind).unwrap_or(CallKind::Other)),
        /// Broken off before their ends.
        pub aborted: i64,
        /// Not the first attempt.
        pub repeated: i64,
        /// Those without a price.
        pub unpriced: i64,
        pub sums: CallSums [row],
    }
}

impl View<'_> {
    /// The calls of a session by who saw them and by kind.
    pub fn billed_calls(&self, session: i64) -> Result<Vec<BilledCalls>, Error> {
        self.all(
            &format!(
                "SELECT seen, call_kind, ifnull(sum(aborted), 0), ifnull(sum(attempt > 1), 0), sum(cost IS NULL), {}
                 FROM record r WHERE session = ?1 AND kind = 'usage' GROUP BY 1, 2 ORDER BY 1, 2",
                call_sums()
            ),
            [session],
            read_row,
        )
    }

    /// Model, milliseconds and time of every call of a session that the proxy saw.
    pub fn call_durations(&self, session: i64) -> Result<Vec<(String, u64, Timestamp)>, Error> {
        let sql = "SELECT ifnull(model, ''), latency_ms, at FROM record
                   WHERE session = ?1 AND kind = 'usage' AND latency_ms IS NOT NULL";
        let calls: Vec<(String, i64, Timestamp)> = self.all(sql, [session], read_row)?;
        Ok(calls.into_iter().map(|(model, latency, at)| (model, uncount(latency), at)).collect())
    }

    /// How long the answers of a session took, as far as the proxy saw them: to the end, and to the first token.
    pub fn latencies(&self, session: i64) -> Result<Vec<(u64, Option<u64>)>, Error> {
        let sql = "SELECT latency_ms, ttft_ms FROM record
                   WHERE session = ?1 AND kind = 'usage' AND latency_ms IS NOT NULL AND ifnull(aborted, 0) = 0";
        let calls: Vec<(i64, Option<i64>)> = self.all(sql, [session], read_row)?;
        Ok(calls.into_iter().map(|(latency, ttft)| (uncount(latency), ttft.map(uncount))).collect())
    }
}
