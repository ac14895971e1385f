//! When a user is told of a budget: once at 80 % and once at 100 %, for each budget and each day, week, month or session.

use std::time::Duration;

use super::Standing;
use store::{self, Tx};
use types::Timestamp;

/// From here on, in percent, a budget is shown where it is not asked for.
pub const NEAR: i64 = 80;
/// From here on nothing is left.
pub const REACHED: i64 = 100;

/// Longer than a month: what was notified of is not looked for any more.
const REMEMBERED: Duration = Duration::from_hours(24 * 62);

/// The budgets that have come to one of the two marks and were not reported there. They count as reported from now on. Where both
/// marks were passed at once, it is one report.
pub fn crossed(tx: &Tx<'_>, standings: Vec<Standing>, now: Timestamp) -> Result<Vec<Standing>, store::Error> {
    let oldest = Timestamp(now.0.saturating_sub(i64::try_from(REMEMBERED.as_millis()).unwrap_or(i64::MAX)));
    let mut news = Vec::new();
    for standing in standings {
        let (percent, budget) = (standing.percent(), standing.budget.which.to_string());
        let mut first = false;
        for mark in [NEAR, REACHED] {
            if percent >= mark {
                first |= tx.note_budget_notice(&budget, &standing.span, mark, now, oldest)?;
            }
        }
        if first {
            news.push(standing);
        }
    }
    Ok(news)
}
