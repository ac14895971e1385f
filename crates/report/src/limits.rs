//! The windows that vendors limit use by: the running five hours and the week, per agent and model.
//!
//! Where the vendor itself reports a window (its files or its API, see the store's quotas), that report is shown with its
//! source. Otherwise windows are computed: one of five hours begins with the hour of the first call after the last one ended,
//! hours being UTC's, as Claude's are; a week is the calendar's. A limit is shared by everything that runs under one account, so
//! the calls that a scan finds count like those that codemie wrapped. What other machines used is in a vendor's report alone.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use serde::Serialize;

use store::QuotaRow;
use types::{PicoDollars, Timestamp, spelled};
use usage::{DatedSums, Spending};

const HOUR: i64 = 3_600_000;
const QUARTER: i64 = HOUR / 4;
const FIVE_HOURS: i64 = 5 * HOUR;
const WEEK: i64 = 7 * 24 * HOUR;

/// Nothing is forecast before this part of a window has passed, half an hour of five and 17 hours of a week: what comes is then
/// at most nine times of what was, and a week's first morning does not stand for seven nights.
const LEAST_PASSED: i64 = 10;

/// Nothing is forecast from fewer calls: one prompt makes one or two, and says nothing about when the next one comes.
const LEAST_CALLS: i64 = 3;

spelled!(
    /// What is limited.
    LimitWindow { FiveHours = "5h", Week = "week" }
);

impl LimitWindow {
    /// By the name that a vendor gives it.
    fn reported_as(name: &str) -> Option<Self> {
        match name {
            "5h" | "five_hour" | "primary" => Some(Self::FiveHours),
            "7d" | "seven_day" | "week" | "secondary" => Some(Self::Week),
            _ => None,
        }
    }

    fn length(self) -> i64 {
        match self {
            Self::FiveHours => FIVE_HOURS,
            Self::Week => WEEK,
        }
    }
}

/// What was used in one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    pub agent: String,
    /// `None`: all of the agent's.
    pub model: Option<String>,
    pub window: LimitWindow,
    pub begin: Timestamp,
    pub end: Timestamp,
    pub tokens: i64,
    #[serde(rename = "costUsd", serialize_with = "in_dollars")]
    pub cost: PicoDollars,
    /// Since the window's begin; `None` while there is too little to say, and once it is over.
    #[serde(rename = "costPerHour", serialize_with = "maybe_in_dollars")]
    pub cost_per_hour: Option<PicoDollars>,
    /// What it will have cost at its end at this pace; `None` where there is none.
    #[serde(rename = "projectedUsd", serialize_with = "maybe_in_dollars")]
    pub projected: Option<PicoDollars>,
    /// The used part of the quota, 0 to 1, where the vendor reported it.
    pub utilization: Option<f64>,
    /// Who reported it, or `computed`.
    pub source: String,
    /// Calls without a price are in the tokens and not in the cost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unpriced: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn in_dollars<S: serde::Serializer>(amount: &PicoDollars, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(amount.dollars())
}

#[expect(clippy::ref_option, reason = "serde asks so")]
fn maybe_in_dollars<S: serde::Serializer>(
    amount: &Option<PicoDollars>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    amount.map(PicoDollars::dollars).serialize(serializer)
}

pub const COMPUTED: &str = "computed";

/// Since when calls are needed to know the windows that run now: the week, and the time before it in which the first window of
/// the week may have begun. A gap of five hours in between makes every later window certain; a fortnight without one is rare.
pub fn needed_since(now: Timestamp, zone: &TimeZone) -> Timestamp {
    Timestamp(week_begin(now, zone).0.saturating_sub(WEEK))
}

/// Monday's first moment.
pub fn week_begin(now: Timestamp, zone: &TimeZone) -> Timestamp {
    let monday = jiff::Timestamp::from_millisecond(now.0).and_then(|at| {
        let today = at.to_zoned(zone.clone()).date();
        let days = i64::from(today.weekday().to_monday_zero_offset());
        today.checked_sub(jiff::Span::new().days(days))?.to_zoned(zone.clone())
    });
    monday.map_or(now, |at| Timestamp(at.timestamp().as_millisecond()))
}

/// The beginnings of the five-hour windows that these moments lie in; they come in order.
pub fn windows(calls: impl IntoIterator<Item = Timestamp>) -> Vec<Timestamp> {
    let mut begins: Vec<Timestamp> = Vec::new();
    for call in calls {
        if begins.last().is_none_or(|begin| call.0 >= begin.0.saturating_add(FIVE_HOURS)) {
            begins.push(Timestamp(call.0.div_euclid(HOUR).saturating_mul(HOUR)));
        }
    }
    begins
}

/// One agent's calls of one quarter of an hour and one model.
#[derive(Clone, Debug)]
struct Part<'a> {
    /// The quarter's first moment.
    at: Timestamp,
    model: &'a str,
    sums: DatedSums,
}

/// The windows that run now, or with `all` every one; `sources` by quarters of UTC hours.
pub fn limits(
    sources: &[Spending],
    reported: &[QuotaRow],
    all: bool,
    now: Timestamp,
    zone: &TimeZone,
) -> Vec<Limit> {
    let mut agents: BTreeMap<&str, Vec<Part<'_>>> = BTreeMap::new();
    for source in sources {
        for portion in &source.portions {
            let owner = source.owners.get(portion.owner as usize);
            let model = source.models.get(portion.model as usize);
            if let (Some(owner), Some(model)) = (owner, model) {
                let at = Timestamp(i64::from(portion.quarter).saturating_mul(QUARTER));
                agents.entry(&owner.agent).or_default().push(Part { at, model, sums: portion.sums });
            }
        }
    }
    // A quota may be known of an agent that made no call here.
    for limit in reported {
        agents.entry(&limit.agent).or_default();
    }
    let mut limits = Vec::new();
    for (agent, mut parts) in agents {
        parts.sort_by_key(|part| part.at);
        for window in LimitWindow::ALL {
            for span in spans(agent, *window, &parts, reported, all, now, zone) {
                add(&mut limits, agent, *window, &span, &parts, now);
            }
        }
    }
    limits
}

/// From when to when a window lasts, and what its vendor says of it.
struct LimitSpan<'a> {
    begin: Timestamp,
    end: Timestamp,
    reported: Option<&'a QuotaRow>,
}

fn spans<'a>(
    agent: &str,
    window: LimitWindow,
    parts: &[Part<'_>],
    reported: &'a [QuotaRow],
    all: bool,
    now: Timestamp,
    zone: &TimeZone,
) -> Vec<LimitSpan<'a>> {
    let length = window.length();
    let running = reported
        .iter()
        .filter(|limit| {
            limit.agent == agent && LimitWindow::reported_as(&limit.report.window) == Some(window)
        })
        .filter_map(|limit| Some((limit, limit.report.resets_at.filter(|end| *end > now)?)))
        .max_by_key(|(limit, _)| limit.at)
        .map(|(limit, end)| LimitSpan {
            begin: Timestamp(end.0.saturating_sub(length)),
            end,
            reported: Some(limit),
        });
    let computed: Vec<Timestamp> = match window {
        LimitWindow::FiveHours => windows(parts.iter().map(|part| part.sums.first)),
        LimitWindow::Week => {
            let mut weeks: Vec<_> = parts.iter().map(|part| week_begin(part.at, zone)).collect();
            weeks.dedup();
            weeks
        }
    };
    let end = |begin: Timestamp| match window {
        LimitWindow::FiveHours => Timestamp(begin.0.saturating_add(FIVE_HOURS)),
        // A week in which the clock changes is an hour longer or shorter.
        LimitWindow::Week => week_begin(Timestamp(begin.0.saturating_add(WEEK + 12 * HOUR)), zone),
    };
    let mut spans: Vec<LimitSpan<'a>> = computed
        .into_iter()
        .map(|begin| LimitSpan { begin, end: end(begin), reported: None })
        .filter(|span| all || (span.begin <= now && now < span.end))
        // What the vendor reports of the time that runs is better than what we compute.
        .filter(|span| running.as_ref().is_none_or(|known| span.end <= known.begin || span.end <= now))
        .collect();
    spans.extend(running);
    spans
}

/// The row of all models, and one for each.
fn add(
    limits: &mut Vec<Limit>,
    agent: &str,
    window: LimitWindow,
    span: &LimitSpan<'_>,
    parts: &[Part<'_>],
    now: Timestamp,
) {
    let mut all = DatedSums::default();
    let mut models: BTreeMap<&str, DatedSums> = BTreeMap::new();
    // The borders of computed windows are those of quarters. A vendor's may lie within one, whose calls are then counted together.
    let holds = |part: &&Part<'_>| part.sums.last >= span.begin && part.sums.last < span.end;
    for part in parts.iter().filter(holds) {
        all.add(&part.sums);
        models.entry(part.model).or_default().add(&part.sums);
    }
    let limit = |model: Option<&str>, sums: &DatedSums| {
        // Of one model as of all, so that the parts add up to the whole.
        let (passed, left) = (now.0.saturating_sub(span.begin.0), span.end.0.saturating_sub(now.0));
        // Of the window so far, with its pauses and nights: more of them come.
        let over = |time: i64| {
            says_enough(span, &all, now).then(|| PicoDollars(share(sums.calls.cost.0, time, passed)))
        };
        Limit {
            agent: agent.to_owned(),
            model: model.map(str::to_owned),
            window,
            begin: span.begin,
            end: span.end,
            tokens: sums.calls.tokens(),
            cost: sums.calls.cost,
            cost_per_hour: over(HOUR),
            projected: over(left).map(|more| PicoDollars(sums.calls.cost.0.saturating_add(more.0))),
            // A vendor's quota is for all models together.
            utilization: span
                .reported
                .filter(|_| model.is_none())
                .map(|known| known.report.utilization.part()),
            source: span.reported.map_or(COMPUTED, |known| known.report.source.as_str()).to_owned(),
            unpriced: sums.unpriced > 0,
        }
    };
    limits.push(limit(None, &all));
    let mut models: Vec<_> = models.into_iter().collect();
    models.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.calls.cost));
    limits.extend(models.iter().map(|(model, sums)| limit(Some(model), sums)));
}

/// Whether what was used of a running window says how it goes on.
fn says_enough(span: &LimitSpan<'_>, all: &DatedSums, now: Timestamp) -> bool {
    let length = span.end.0.saturating_sub(span.begin.0);
    let passed = now.0.saturating_sub(span.begin.0);
    now < span.end && passed >= length / LEAST_PASSED && all.calls.api_calls >= LEAST_CALLS
}

fn share(amount: i64, part: i64, of: i64) -> i64 {
    i64::try_from(i128::from(amount) * i128::from(part.max(0)) / i128::from(of.max(1))).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use agents::meter::quota::QuotaReport;
    use types::event::Source;
    use types::{Tokens, Utilization};
    use usage::{Owner, Portion};

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    const DOLLAR: i64 = 1_000_000_000_000;

    /// Calls of a dollar each: agent, model, moment.
    fn spending(calls: &[(&str, &str, &str)]) -> Spending {
        let mut spending = Spending::default();
        for (number, (agent, model, moment)) in (0..).zip(calls) {
            let moment = at(moment);
            spending.owners.push(Owner { agent: (*agent).into(), ..Owner::default() });
            spending.models.push((*model).into());
            let tokens = Tokens { output: 10, ..Tokens::default() };
            let sums = DatedSums::of(moment, &tokens, Some(PicoDollars(DOLLAR)));
            let quarter = i32::try_from(moment.0 / QUARTER).unwrap();
            spending.portions.push(Portion { owner: number, model: number, place: None, quarter, sums });
        }
        spending
    }

    fn shown(limits: &[Limit]) -> Vec<String> {
        limits
            .iter()
            .map(|limit| {
                let model = limit.model.as_deref().unwrap_or("all");
                let cost = limit.cost.0 / DOLLAR;
                format!(
                    "{} {model} {} {}..{} ${cost} {}",
                    limit.agent, limit.window, limit.begin, limit.end, limit.source
                )
            })
            .collect()
    }

    #[test]
    fn a_window_begins_with_the_hour_of_its_first_call() {
        for (calls, begins) in [
            (&[][..], &[][..]),
            (&["2026-11-17T09:59:59Z"], &["2026-11-17T09:00:00Z"]),
            // The end is not in it.
            (
                &["2026-11-17T09:30:00Z", "2026-11-17T13:59:59Z", "2026-11-17T14:00:00Z"],
                &["2026-11-17T09:00:00Z", "2026-11-17T14:00:00Z"],
            ),
            (
                &[
                    "2026-11-17T09:30:00Z",
                    "2026-11-17T16:45:00Z",
                    "2026-11-17T20:59:00Z",
                    "2026-11-17T21:00:00Z",
                ],
                &["2026-11-17T09:00:00Z", "2026-11-17T16:00:00Z", "2026-11-17T21:00:00Z"],
            ),
        ] {
            let begins: Vec<_> = begins.iter().map(|text| at(text)).collect();
            assert_eq!(windows(calls.iter().map(|text| at(text))), begins, "{calls:?}");
        }
    }

    #[test]
    fn weeks_begin_on_monday_also_where_clocks_change() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        for (now, begin) in [
            ("2026-11-17T12:00:00Z", "2026-11-15T23:00:00Z"),
            ("2026-11-15T22:59:59Z", "2026-11-08T23:00:00Z"),
            ("2026-10-25T12:00:00Z", "2026-10-18T22:00:00Z"),
            ("2026-10-26T12:00:00Z", "2026-10-25T23:00:00Z"),
            ("2026-03-29T12:00:00Z", "2026-03-22T23:00:00Z"),
        ] {
            assert_eq!(week_begin(at(now), &berlin), at(begin), "{now}");
        }
    }

    #[test]
    fn the_running_windows_are_shown_per_agent_and_model() {
        let calls = spending(&[
            ("claude", "opus", "2026-11-16T08:00:00Z"),
            ("claude", "opus", "2026-11-17T09:10:00Z"),
            ("claude", "haiku", "2026-11-17T10:00:00Z"),
            ("codex", "gpt", "2026-11-17T03:00:00Z"),
            ("codex", "gpt", "2026-11-09T03:00:00Z"),
        ]);
        let now = at("2026-11-17T11:10:00Z");
        let found = limits(std::slice::from_ref(&calls), &[], false, now, &TimeZone::UTC);
        assert_eq!(
            shown(&found),
            [
                "claude all 5h 2026-11-17T09:00:00.000Z..2026-11-17T14:00:00.000Z $2 computed",
                "claude haiku 5h 2026-11-17T09:00:00.000Z..2026-11-17T14:00:00.000Z $1 computed",
                "claude opus 5h 2026-11-17T09:00:00.000Z..2026-11-17T14:00:00.000Z $1 computed",
                "claude all week 2026-11-16T00:00:00.000Z..2026-11-23T00:00:00.000Z $3 computed",
                "claude opus week 2026-11-16T00:00:00.000Z..2026-11-23T00:00:00.000Z $2 computed",
                "claude haiku week 2026-11-16T00:00:00.000Z..2026-11-23T00:00:00.000Z $1 computed",
                "codex all week 2026-11-16T00:00:00.000Z..2026-11-23T00:00:00.000Z $1 computed",
                "codex gpt week 2026-11-16T00:00:00.000Z..2026-11-23T00:00:00.000Z $1 computed",
            ]
        );
        assert_eq!(found[0].tokens, 20);
        assert!(
            found[..3].iter().all(|limit| limit.cost_per_hour.is_none() && limit.projected.is_none()),
            "two calls"
        );
        // Three dollars in the 35 hours since Monday began, and 133 to go; of each model its part.
        let (hours, left) = (35 * 6 + 1, 132 * 6 + 5);
        for (limit, dollars) in found[3..6].iter().zip([3, 2, 1]) {
            let spent = dollars * DOLLAR;
            assert_eq!(limit.cost_per_hour, Some(PicoDollars(spent * 6 / hours)), "{limit:?}");
            assert_eq!(limit.projected, Some(PicoDollars(spent + spent * left / hours)), "{limit:?}");
        }
        let all = limits(&[calls], &[], true, now, &TimeZone::UTC);
        let ended = |limit: &&Limit| limit.end <= now;
        assert_eq!(all.iter().filter(ended).count(), 8);
        assert!(
            all.iter().filter(ended).all(|limit| limit.projected.is_none() && limit.cost_per_hour.is_none())
        );
    }

    /// What the running window of a week, or of five hours, will have cost.
    fn forecast(calls: &Spending, window: LimitWindow, now: &str) -> Option<i64> {
        let found = limits(std::slice::from_ref(calls), &[], false, at(now), &TimeZone::UTC);
        let limit = found.iter().find(|limit| limit.window == window && limit.model.is_none()).unwrap();
        assert_eq!(limit.cost_per_hour.is_some(), limit.projected.is_some(), "{limit:?}");
        limit.projected.map(|cost| cost.0 / DOLLAR)
    }

    #[test]
    fn the_pace_is_that_of_the_window_so_far() {
        // Three dollars within ten minutes of a Wednesday, half of the week.
        let calls = spending(&[
            ("claude", "opus", "2026-11-18T11:45:00Z"),
            ("claude", "opus", "2026-11-18T11:50:00Z"),
            ("claude", "opus", "2026-11-18T11:55:00Z"),
        ]);
        let now = "2026-11-18T12:00:00Z";
        assert_eq!(forecast(&calls, LimitWindow::Week, now), Some(8), "60 of 168 hours have passed");
        // The window of five hours began at eleven.
        assert_eq!(forecast(&calls, LimitWindow::FiveHours, now), Some(15));
        assert_eq!(forecast(&calls, LimitWindow::FiveHours, "2026-11-18T13:30:00Z"), Some(6));
    }

    #[test]
    fn nothing_is_forecast_from_too_little() {
        let monday = ["2026-11-16T00:05:00Z", "2026-11-16T00:10:00Z", "2026-11-16T00:15:00Z"];
        let calls = |count: usize| {
            let calls: Vec<_> = monday[..count].iter().map(|moment| ("claude", "opus", *moment)).collect();
            spending(&calls)
        };
        for (window, now, dollars) in [
            (LimitWindow::FiveHours, "2026-11-16T00:29:59Z", None),
            (LimitWindow::FiveHours, "2026-11-16T00:30:00Z", Some(30)),
            (LimitWindow::Week, "2026-11-16T16:47:00Z", None),
            (LimitWindow::Week, "2026-11-16T16:48:00Z", Some(30)),
        ] {
            assert_eq!(forecast(&calls(3), window, now), dollars, "{window} {now}");
            assert_eq!(forecast(&calls(2), window, now), None, "{window} {now}");
        }
    }

    #[test]
    fn what_the_vendor_reports_takes_the_place_of_what_is_computed() {
        let calls = spending(&[
            ("codex", "gpt", "2026-11-17T07:50:00Z"),
            ("codex", "gpt", "2026-11-17T08:20:00Z"),
            ("codex", "gpt", "2026-11-17T10:00:00Z"),
        ]);
        let report = |window: &str, resets_at: &str, utilization, seen: &str| QuotaRow {
            agent: "codex".into(),
            at: at(seen),
            event_at: at(seen),
            report: QuotaReport {
                provider: "openai".into(),
                window: window.into(),
                utilization: Utilization::of(utilization).unwrap(),
                resets_at: Some(at(resets_at)),
                source: Source::Transcript,
            },
        };
        let reports = [
            report("primary", "2026-11-17T13:15:00Z", 0.42, "2026-11-17T10:00:00Z"),
            report("primary", "2026-11-17T13:15:00Z", 0.12, "2026-11-17T09:00:00Z"),
            report("secondary", "2026-11-17T09:00:00Z", 0.9, "2026-11-17T08:00:00Z"),
            report("something-else", "2026-11-18T09:00:00Z", 0.9, "2026-11-17T08:00:00Z"),
        ];
        let found = limits(&[calls], &reports, false, at("2026-11-17T11:00:00Z"), &TimeZone::UTC);
        assert_eq!(
            shown(&found[..3]),
            [
                "codex all 5h 2026-11-17T08:15:00.000Z..2026-11-17T13:15:00.000Z $2 transcript",
                "codex gpt 5h 2026-11-17T08:15:00.000Z..2026-11-17T13:15:00.000Z $2 transcript",
                "codex all week 2026-11-16T00:00:00.000Z..2026-11-23T00:00:00.000Z $3 computed",
            ],
            "a report of a week that is over says nothing of this one"
        );
        assert_eq!((found[0].utilization, found[1].utilization), (Some(0.42), None));
        let record = serde_json::to_value(&found[0]).unwrap();
        assert_eq!(record["costUsd"], 2.0);
        let keys: Vec<_> = record.as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = [
            "agent",
            "model",
            "window",
            "begin",
            "end",
            "tokens",
            "costUsd",
            "costPerHour",
            "projectedUsd",
            "utilization",
            "source",
        ];
        expected.sort_unstable();
        let mut keys = keys;
        keys.sort_unstable();
        assert_eq!(keys, expected);
    }
}
