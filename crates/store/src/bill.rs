//! The calls of a session by who saw them.

use super::proxied::Seen;
use super::row::uncount;
use super::total::usage_sums;
use super::{Error, View};
use types::{CallKind, PicoDollars, Sums, Timestamp};

/// Calls of one kind, seen by the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BilledCalls {
    pub seen: Seen,
    /// `None` where the proxy has not seen them.
    pub kind: Option<CallKind>,
    /// Broken off before their ends.
    pub aborted: i64,
    /// Not the first attempt.
    pub repeated: i64,
    /// Those without a price.
    pub unpriced: i64,
    pub sums: Sums,
}

impl View<'_> {
    /// The calls of a session by who saw them and by kind.
    pub fn billed_calls(&self, session: i64) -> Result<Vec<BilledCalls>, Error> {
        self.all(
            &format!(
                "SELECT seen, call_kind, ifnull(sum(aborted), 0), ifnull(sum(attempt > 1), 0), sum(cost IS NULL), count(*), {}
                 FROM record WHERE session = ?1 AND kind = 'usage' GROUP BY 1, 2 ORDER BY 1, 2",
                usage_sums()
            ),
            [session],
            |row| {
                let kind: Option<String> = row.get(1)?;
                Ok(BilledCalls {
                    seen: row.get::<_, Option<Seen>>(0)?.unwrap_or_default(),
                    kind: kind.map(|kind| CallKind::parse(&kind).unwrap_or(CallKind::Other)),
                    aborted: row.get(2)?,
                    repeated: row.get(3)?,
                    unpriced: row.get(4)?,
                    sums: Sums {
                        api_calls: row.get(5)?,
                        input: row.get(6)?,
                        output: row.get(7)?,
                        cache_read: row.get(8)?,
                        cache_write: row.get(9)?,
                        reasoning: row.get(10)?,
                        cost: PicoDollars(row.get(11)?),
                        ..Sums::default()
                    },
                })
            },
        )
    }

    /// Model, milliseconds and time of every call of a session that the proxy saw.
    pub fn call_durations(&self, session: i64) -> Result<Vec<(String, u64, Timestamp)>, Error> {
        self.all(
            "SELECT ifnull(model, ''), latency_ms, at FROM record
             WHERE session = ?1 AND kind = 'usage' AND latency_ms IS NOT NULL",
            [session],
            |row| Ok((row.get(0)?, uncount(row.get(1)?), row.get(2)?)),
        )
    }

    /// How long the answers of a session took, as far as the proxy saw them: to the end, and to the first token.
    pub fn latencies(&self, session: i64) -> Result<Vec<(u64, Option<u64>)>, Error> {
        self.all(
            "SELECT latency_ms, ttft_ms FROM record
             WHERE session = ?1 AND kind = 'usage' AND latency_ms IS NOT NULL AND ifnull(aborted, 0) = 0",
            [session],
            |row| {
                let ttft: Option<i64> = row.get(1)?;
                Ok((uncount(row.get(0)?), ttft.map(uncount)))
            },
        )
    }
}
