//! The calls of a session that a proxy saw: what they were for, how long they took, and what was used of limits.
//! Pure: events in, rows out.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::panel::panel;
use super::session::Amounts;
use super::table::{PageOrder, Table, TableOrder, cell, heading};
use super::text::{count, grouped, share};
use reader::Numbers;
use reader::TimelineEvent;
use types::event::Attributes;
use types::{CallKind, Utilization};

/// Calls of one kind.
#[derive(Debug, Default, PartialEq)]
struct Kind {
    numbers: Numbers,
    aborted: i64,
    repeated: i64,
    latencies: Vec<i64>,
    first_tokens: Vec<i64>,
}

/// A limit as the session saw it, first and last.
#[derive(Debug, PartialEq)]
struct Limit<'a> {
    provider: &'a str,
    window: &'a str,
    first: Utilization,
    last: Utilization,
}

/// `None` where no proxy saw a call and no limit was reported.
pub fn panels(events: &[TimelineEvent], amounts: Amounts, order: &PageOrder<'_>) -> Option<Markup> {
    let (kinds, limits) = (kinds(events), limits(events));
    (!kinds.is_empty() || !limits.is_empty()).then(|| {
        html! {
            div.grid {
                @if !kinds.is_empty() {
                    (panel("Calls through the proxy", table(&kinds, amounts, &order.of("kinds", ("name", false)))))
                }
                @if !limits.is_empty() {
                    (panel("Limits", limit_table(&limits, &order.of("limits", ("name", false)))))
                }
            }
        }
    })
}

fn kinds(events: &[TimelineEvent]) -> Vec<(CallKind, Kind)> {
    let mut kinds: BTreeMap<CallKind, Kind> = BTreeMap::new();
    for event in events {
        let Attributes::Usage(usage) = &event.attributes else { continue };
        let Some(kind) = usage.kind else { continue };
        let sums = kinds.entry(kind).or_default();
        sums.numbers.add(&Numbers::of_call(usage));
        sums.aborted += i64::from(usage.aborted.is_set());
        sums.repeated += i64::from(usage.attempt.is_some_and(|attempt| attempt.get() > 1));
        sums.latencies.extend(usage.latency_ms.get());
        sums.first_tokens.extend(usage.ttft_ms.get());
    }
    kinds.into_iter().collect()
}

fn limits(events: &[TimelineEvent]) -> Vec<Limit<'_>> {
    let mut limits: Vec<Limit<'_>> = Vec::new();
    for event in events {
        let Attributes::Quota(quota) = &event.attributes else { continue };
        let (provider, window): (&str, &str) = (&quota.provider, &quota.window);
        match limits.iter_mut().find(|limit| (limit.provider, limit.window) == (provider, window)) {
            Some(limit) => limit.last = quota.utilization,
            None => {
                limits.push(Limit { provider, window, first: quota.utilization, last: quota.utilization });
            }
        }
    }
    limits
}

/// Half of them are no longer than this.
fn median(times: &[i64]) -> Option<i64> {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).copied()
}

fn table(rows: &[(CallKind, Kind)], amounts: Amounts, order: &TableOrder<'_>) -> Markup {
    let time = |times: &[i64]| median(times).map_or_else(|| "–".to_owned(), |ms| grouped(ms) + " ms");
    let marks = |kind: &Kind| {
        html! {
            @if kind.aborted > 0 { (grouped(kind.aborted)) " aborted " }
            @if kind.repeated > 0 { (grouped(kind.repeated)) " repeated" }
        }
    };
    Table::plain()
        .column(heading("", "Kind").by("name"), rows, |(kind, _)| {
            cell("", kind.as_str()).value(kind.as_str())
        })
        .column(heading("n", "Calls").by("calls"), rows, |(_, kind)| {
            cell("n", grouped(kind.numbers.api_calls)).value(kind.numbers.api_calls)
        })
        .column(heading("n wide", "Tokens").by("tokens"), rows, |(_, kind)| {
            cell("n wide", count(kind.numbers.tokens())).value(kind.numbers.tokens())
        })
        .column(heading("n", "Cost").by("cost"), rows, |(_, kind)| {
            let exact = format!("${}", kind.numbers.money());
            cell("n", amounts.spent(&kind.numbers)).title(exact).value(kind.numbers.dollars())
        })
        .column(heading("n", "Answer, median").by("answer"), rows, |(_, kind)| {
            cell("n", time(&kind.latencies)).value_if(median(&kind.latencies))
        })
        .column(heading("n wide", "First token").by("firstToken"), rows, |(_, kind)| {
            cell("n wide", time(&kind.first_tokens)).value_if(median(&kind.first_tokens))
        })
        .column(heading("wide", "Of these").by("marks"), rows, |(_, kind)| {
            cell("small wide", marks(kind)).value(kind.aborted + kind.repeated)
        })
        .ordered(order)
        .scrolling()
}

fn limit_table(rows: &[Limit<'_>], order: &TableOrder<'_>) -> Markup {
    let part = |used: Utilization| share(used.part(), 1.0);
    Table::plain()
        .column(heading("", "Limit").by("name"), rows, |limit| {
            let name = format!("{} {}", limit.provider, limit.window);
            cell("", &name).value(&*name)
        })
        .column(heading("n", "First seen").by("first"), rows, |limit| {
            cell("n", part(limit.first)).value(limit.first.part())
        })
        .column(heading("n", "Last seen").by("last"), rows, |limit| {
            cell("n", part(limit.last)).value(limit.last.part())
        })
        .ordered(order)
        .scrolling()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use types::{EventType, Timestamp};

    fn event(kind: EventType, attributes: &Value) -> TimelineEvent {
        TimelineEvent {
            seq: 1,
            rev: 0,
            kind: kind.into(),
            time: Timestamp(1),
            attributes: Attributes::parse(kind, &attributes.to_string()).unwrap(),
        }
    }

    #[test]
    fn calls_are_shown_by_kind_and_limits_from_first_to_last() {
        let call = |kind: &str, latency: i64, more: Value| {
            let mut attributes = json!({"model": "m", "outputTokens": 5, "kind": kind, "latencyMs": latency});
            attributes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            event(EventType::Usage, &attributes)
        };
        let quota = |used: f64| {
            let attributes = json!({"provider": "anthropic", "window": "5h", "utilization": used});
            event(EventType::Quota, &attributes)
        };
        let events = [
            call("main", 100, json!({"ttftMs": 10})),
            call("main", 300, json!({"aborted": true})),
            call("title", 50, json!({"attempt": 2})),
            event(EventType::Usage, &json!({"model": "m"})),
            quota(0.25),
            quota(0.5),
        ];
        let kinds = kinds(&events);
        let seen: Vec<_> = kinds
            .iter()
            .map(|(kind, sums)| (kind.as_str(), sums.numbers.api_calls, sums.aborted, sums.repeated))
            .collect();
        assert_eq!(seen, [("main", 2, 1, 0), ("title", 1, 0, 1)]);
        assert_eq!((median(&kinds[0].1.latencies), median(&[])), (Some(100), None));
        let limits = limits(&events);
        assert_eq!((limits.len(), limits[0].first.part(), limits[0].last.part()), (1, 0.25, 0.5));
        let order = PageOrder { asked: None, address: &|sort| sort.address("/") };
        assert!(panels(&events[3..4], Amounts::fine(), &order).is_none());
        let page = panels(&events, Amounts::fine(), &order).unwrap().into_string();
        assert!(
            page.contains("title") && page.contains("1 repeated") && page.contains("anthropic 5h"),
            "{page}"
        );
    }
}
