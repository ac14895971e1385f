//! Signs that a session has run away, from numbers alone: the same tool failing again and again, a context that grows without an
//! edit, spending far above the session's own. Pure, over its latest steps; the limits are settings, argued beside them.

use std::time::Duration;

use crate::{Step, StepKind, Tx, View};
use config::RunawayLimits;
use types::{PicoDollars, SessionId, Timestamp};

/// Enough for the longest of the signs: a hundred thousand tokens are read in some dozens of calls.
const STEPS: usize = 500;

/// The time whose spending is compared with the time before.
const RECENT: i64 = 5 * 60_000;

/// And how long that must have been: a session's first minutes have no usual pace.
const BEFORE: i64 = 15 * 60_000;

/// Below this nobody is worried, whatever the factor: a dollar.
const LEAST: PicoDollars = PicoDollars(1_000_000_000_000);

/// A session that runs longer than this may be reported once more.
const REMEMBERED: Duration = Duration::from_hours(24 * 62);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runaway {
    Failing { tool: String, times: i64 },
    Growing { tokens: i64 },
    Spending { per_minute: PicoDollars, times: i64 },
}

impl Runaway {
    /// Which of the signs it is, for programs: a session is reported once for each.
    pub fn sign(&self) -> &'static str {
        match self {
            Self::Failing { .. } => "failing",
            Self::Growing { .. } => "growing",
            Self::Spending { .. } => "spending",
        }
    }

    /// In two words, for a column: `Bash ×6`, `context +105k`, `spend ×40`.
    pub fn in_short(&self) -> String {
        match self {
            Self::Failing { tool, times } => format!("{tool} ×{times}"),
            Self::Growing { tokens } => {
                format!("context +{}", format::count(u64::try_from(*tokens).unwrap_or(0)))
            }
            Self::Spending { times, .. } => format!("spend ×{times}"),
        }
    }

    /// In a few words, for a line.
    pub fn in_words(&self) -> String {
        match self {
            Self::Failing { tool, times } => format!("{tool} failed {times} times in a row"),
            Self::Growing { tokens } => {
                let tokens = format::count(u64::try_from(*tokens).unwrap_or(0));
                format!("context grew by {tokens} tokens without an edit")
            }
            Self::Spending { per_minute, times } => {
                format!("{} a minute, {times} times its usual", format::dollars(per_minute.0))
            }
        }
    }
}

/// The first sign that a session shows, if any. For sessions that run: what has ended runs nowhere.
pub fn runaway_of(
    view: &View<'_>,
    session: i64,
    limits: RunawayLimits,
    now: Timestamp,
) -> Result<Option<Runaway>, crate::Error> {
    if limits == RunawayLimits::NEVER {
        return Ok(None);
    }
    Ok(runaway(&view.recent_steps(session, STEPS)?, limits, now))
}

/// Whether a session's user has not heard of this sign. From now on it counts as reported, whichever run saw it.
pub fn is_first_report(
    tx: &Tx<'_>,
    session: SessionId,
    runaway: &Runaway,
    now: Timestamp,
) -> Result<bool, crate::Error> {
    let oldest = Timestamp(now.0.saturating_sub(i64::try_from(REMEMBERED.as_millis()).unwrap_or(i64::MAX)));
    tx.note_session_notice(&format!("runaway {}", runaway.sign()), session, now, oldest)
}

/// Steps come in order, the latest last.
pub fn runaway(steps: &[Step], limits: RunawayLimits, now: Timestamp) -> Option<Runaway> {
    failing(steps, limits.failures)
        .or_else(|| growing(steps, limits.context))
        .or_else(|| spending(steps, limits.spend, now))
}

/// The latest tool, if it has only failed since it last succeeded. Other tools between are no success of this one.
fn failing(steps: &[Step], least: i64) -> Option<Runaway> {
    let mut tools = steps.iter().rev().filter_map(|step| match &step.kind {
        StepKind::Tool { name, ok, .. } => Some((name, *ok)),
        StepKind::Call { .. } => None,
    });
    let (tool, ok) = tools.next()?;
    if ok || least <= 0 {
        return None;
    }
    let before = tools.filter(|(name, _)| *name == tool).take_while(|(_, ok)| !ok).count();
    let times = i64::try_from(before).unwrap_or(i64::MAX).saturating_add(1);
    (times >= least).then(|| Runaway::Failing { tool: tool.clone(), times })
}

/// From the smallest context since the last edit to the latest: a compaction begins anew.
fn growing(steps: &[Step], least: i64) -> Option<Runaway> {
    let (mut smallest, mut last): (Option<i64>, i64) = (None, 0);
    for step in steps {
        match step.kind {
            StepKind::Tool { ok: true, edits: true, .. } => smallest = None,
            StepKind::Tool { .. } => {}
            StepKind::Call { context, .. } => {
                smallest = Some(smallest.map_or(context, |smallest| smallest.min(context)));
                last = context;
            }
        }
    }
    let tokens = last.saturating_sub(smallest?);
    (least > 0 && tokens >= least).then_some(Runaway::Growing { tokens })
}

/// The last minutes against the time before them.
fn spending(steps: &[Step], factor: i64, now: Timestamp) -> Option<Runaway> {
    let since = Timestamp(now.0.saturating_sub(RECENT));
    let first = steps.first()?.at;
    let usual_for = since.0.saturating_sub(first.0);
    if factor <= 0 || usual_for < BEFORE {
        return None;
    }
    let sum = |recent: bool| {
        let costs = steps.iter().filter(|step| (step.at >= since) == recent).map(|step| match step.kind {
            StepKind::Call { cost, .. } => cost.0,
            StepKind::Tool { .. } => 0,
        });
        costs.fold(0, i64::saturating_add)
    };
    let (recent, usual) = (sum(true), sum(false));
    // Both per minute; whole numbers, so that nothing is divided by nothing.
    let recent_rate = i128::from(recent) * i128::from(usual_for);
    let usual_rate = (i128::from(usual) * i128::from(RECENT)).max(1);
    let times = i64::try_from(recent_rate / usual_rate).unwrap_or(i64::MAX);
    (recent >= LEAST.0 && usual > 0 && times >= factor)
        .then_some(Runaway::Spending { per_minute: PicoDollars(recent / (RECENT / 60_000)), times })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RunawayLimits = RunawayLimits { failures: 5, context: 100_000, spend: 5 };
    const DOLLAR: i64 = 1_000_000_000_000;

    fn tool(name: &str, ok: bool, edits: bool) -> Step {
        Step { at: Timestamp(0), kind: StepKind::Tool { name: name.into(), ok, edits } }
    }

    fn call(minute: i64, context: i64, cents: i64) -> Step {
        let cost = PicoDollars(DOLLAR / 100 * cents);
        Step { at: Timestamp(minute * 60_000), kind: StepKind::Call { context, cost } }
    }

    #[test]
    fn a_tool_that_fails_again_and_again() {
        let failed = |times: usize| vec![tool("Bash", false, false); times];
        let sign = |steps: &[Step]| failing(steps, 5).map(|sign| sign.in_words());
        assert_eq!(sign(&failed(4)), None);
        assert_eq!(sign(&failed(6)).as_deref(), Some("Bash failed 6 times in a row"));
        assert_eq!(failing(&failed(6), 5).map(|sign| sign.in_short()).as_deref(), Some("Bash ×6"));
        let mut between = failed(3);
        between.push(tool("Read", true, false));
        between.extend(failed(2));
        assert!(sign(&between).is_some(), "another tool's success is none of this one");
        between.insert(4, tool("Bash", true, false));
        assert_eq!(sign(&between), None);
        between.extend(failed(9));
        between.push(tool("Read", true, false));
        assert_eq!(sign(&between), None, "it has gone on to something else");
        assert_eq!(failing(&failed(9), 0), None, "switched off");
    }

    #[test]
    fn a_context_that_grows_without_an_edit() {
        let sign = |steps: &[Step]| growing(steps, 100_000).map(|sign| sign.in_words());
        let mut steps =
            vec![call(0, 20_000, 1), call(1, 90_000, 1), tool("Read", true, false), call(2, 125_000, 1)];
        assert_eq!(sign(&steps).as_deref(), Some("context grew by 105k tokens without an edit"));
        steps.push(tool("Edit", false, true));
        assert!(sign(&steps).is_some(), "an edit that failed is none");
        steps.push(tool("Edit", true, true));
        steps.push(call(3, 130_000, 1));
        assert_eq!(sign(&steps), None);
        steps.push(call(4, 30_000, 1));
        steps.push(call(5, 60_000, 1));
        assert_eq!(sign(&steps), None, "compacted");
        assert_eq!(growing(&[call(0, 0, 1), call(1, 999_999, 1)], 0), None, "switched off");
    }

    #[test]
    fn spending_far_above_the_sessions_own() {
        let usual: Vec<Step> = (0..30).map(|minute| call(minute, 0, 2)).collect();
        let sign = |steps: &[Step]| spending(steps, 5, Timestamp(34 * 60_000)).map(|sign| sign.in_words());
        let with = |cents: i64| [usual.clone(), vec![call(31, 0, cents), call(33, 0, cents)]].concat();
        assert_eq!(sign(&usual), None);
        assert_eq!(sign(&with(20)), None, "twenty cents more are nobody's worry");
        assert_eq!(sign(&with(200)).as_deref(), Some("$0.8040 a minute, 40 times its usual"));
        assert_eq!(spending(&with(200)[20..], 5, Timestamp(34 * 60_000)), None, "too young to have a pace");
        assert_eq!(spending(&with(200), 0, Timestamp(34 * 60_000)), None, "switched off");
    }

    #[test]
    fn a_quiet_session_shows_no_sign() {
        assert_eq!(runaway(&[], LIMITS, Timestamp(0)), None);
        assert_eq!(runaway(&[call(0, 10_000, 5), tool("Edit", true, true)], LIMITS, Timestamp(60_000)), None);
    }
}
