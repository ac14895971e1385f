//! What the API was used for in a session: the part that the transcript holds, and the part that only the proxy saw.

use serde::ser::{Serialize, SerializeStruct, Serializer};

use store::{self, BilledCalls, Seen, SessionRow, View};
use types::{CallKind, CallSums};

/// The bill of a session that went through the proxy, at least in part.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bill {
    /// The calls that the agent's own file holds.
    pub transcript: BilledSum,
    /// The calls that only the proxy saw.
    pub proxy_only: BilledSum,
    /// These by what they were for, the most expensive first.
    pub by_kind: Vec<BilledKind>,
    /// The part of the cost that the transcript lacks, 0 to 1; of the tokens where nothing has a price.
    pub difference: f64,
    pub latency: Option<Latency>,
}

/// Calls with what they used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BilledSum {
    pub calls: CallSums,
    /// Broken off before their ends: their numbers are the last known.
    pub aborted: i64,
    /// Not the first attempt.
    pub repeated: i64,
}

impl Serialize for BilledSum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("BilledSum", 8)?;
        fields.serialize_field("apiCalls", &self.calls.api_calls)?;
        fields.serialize_field("inputTokens", &self.calls.input)?;
        fields.serialize_field("outputTokens", &self.calls.output)?;
        fields.serialize_field("cacheReadTokens", &self.calls.cache_read)?;
        fields.serialize_field("cacheWriteTokens", &self.calls.cache_write)?;
        fields.serialize_field("costUsd", &self.calls.cost.dollars())?;
        fields.serialize_field("aborted", &self.aborted)?;
        fields.serialize_field("repeated", &self.repeated)?;
        fields.end()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BilledKind {
    pub kind: CallKind,
    #[serde(flatten)]
    pub sum: BilledSum,
}

/// Of the answers that came to their ends, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    pub calls: usize,
    /// Half of the answers took no longer.
    pub p50_ms: u64,
    pub p95_ms: u64,
    /// Half of the streamed answers began no later.
    pub ttft_p50_ms: Option<u64>,
}

impl BilledSum {
    fn add(&mut self, more: &BilledCalls) {
        self.calls.add(&more.sums);
        self.aborted = self.aborted.saturating_add(more.aborted);
        self.repeated = self.repeated.saturating_add(more.repeated);
    }
}

impl Bill {
    /// `None` for a session that the proxy saw nothing of.
    pub fn of(view: &View<'_>, row: &SessionRow) -> Result<Option<Self>, store::Error> {
        let calls = view.billed_calls(row.n)?;
        if calls.iter().all(|calls| calls.seen == Seen::Transcript) {
            return Ok(None);
        }
        let mut bill = made_of(&calls);
        bill.latency = latency(view.latencies(row.n)?);
        Ok(Some(bill))
    }
}

fn made_of(calls: &[BilledCalls]) -> Bill {
    let (mut transcript, mut proxy_only) = (BilledSum::default(), BilledSum::default());
    let mut by_kind: Vec<BilledKind> = Vec::new();
    for calls in calls {
        if calls.seen != Seen::Proxy {
            transcript.add(calls);
            continue;
        }
        proxy_only.add(calls);
        let kind = calls.kind.unwrap_or(CallKind::Other);
        let at = by_kind.iter().position(|known| known.kind == kind).unwrap_or_else(|| {
            by_kind.push(BilledKind { kind, sum: BilledSum::default() });
            by_kind.len() - 1
        });
        by_kind[at].sum.add(calls);
    }
    by_kind.sort_by_key(|kind| std::cmp::Reverse((kind.sum.calls.cost, kind.sum.calls.tokens())));
    let part = |more: i64, of: i64| {
        let all = of.saturating_add(more);
        #[expect(clippy::cast_precision_loss, reason = "a part of a whole, shown in percent")]
        let part = if all > 0 { more as f64 / all as f64 } else { 0.0 };
        part
    };
    let difference = if transcript.calls.cost.0.saturating_add(proxy_only.calls.cost.0) > 0 {
        part(proxy_only.calls.cost.0, transcript.calls.cost.0)
    } else {
        part(proxy_only.calls.tokens(), transcript.calls.tokens())
    };
    Bill { transcript, proxy_only, by_kind, difference, latency: None }
}

fn latency(mut calls: Vec<(u64, Option<u64>)>) -> Option<Latency> {
    let mut first: Vec<u64> = calls.iter().filter_map(|(_, first)| *first).collect();
    first.sort_unstable();
    calls.sort_unstable();
    Some(Latency {
        calls: calls.len(),
        p50_ms: percentile(&calls, 50)?.0,
        p95_ms: percentile(&calls, 95)?.0,
        ttft_p50_ms: percentile(&first, 50).copied(),
    })
}

/// The value that so many of a hundred do not exceed.
fn percentile<T>(sorted: &[T], percent: usize) -> Option<&T> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PicoDollars;

    fn calls(seen: Seen, kind: Option<CallKind>, number: i64, cost: i64) -> BilledCalls {
        let sums = CallSums {
            api_calls: number,
            output: number * 10,
            cost: PicoDollars(cost),
            ..CallSums::default()
        };
        BilledCalls { seen, kind, aborted: 1, repeated: 0, unpriced: 0, sums }
    }

    #[test]
    fn a_bill_has_what_the_transcript_lacks_by_kind() {
        let bill = made_of(&[
            calls(Seen::Transcript, None, 1, 100),
            calls(Seen::Both, Some(CallKind::Main), 5, 600),
            calls(Seen::Proxy, Some(CallKind::Main), 1, 50),
            calls(Seen::Proxy, Some(CallKind::Title), 2, 250),
        ]);
        assert_eq!((bill.transcript.calls.api_calls, bill.transcript.calls.tokens()), (6, 60));
        assert_eq!((bill.proxy_only.calls.api_calls, bill.proxy_only.aborted), (3, 2));
        let kinds: Vec<_> = bill.by_kind.iter().map(|kind| (kind.kind, kind.sum.calls.api_calls)).collect();
        assert_eq!(kinds, [(CallKind::Title, 2), (CallKind::Main, 1)]);
        assert!((bill.difference - 0.3).abs() < 1e-9, "{}", bill.difference);
        let unpriced = made_of(&[calls(Seen::Both, None, 3, 0), calls(Seen::Proxy, None, 1, 0)]);
        assert!((unpriced.difference - 0.25).abs() < 1e-9);
    }

    #[test]
    fn half_of_the_answers_took_no_longer() {
        assert_eq!(latency(Vec::new()), None);
        let taken = latency(vec![(40, None), (10, Some(2)), (30, Some(6)), (20, Some(4))]).unwrap();
        assert_eq!(taken, Latency { calls: 4, p50_ms: 20, p95_ms: 40, ttft_p50_ms: Some(4) });
    }
}
