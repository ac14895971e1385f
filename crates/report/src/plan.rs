//! What the calls of the calendar month would cost at list price, beside what is paid for a month of their agent.

use jiff::tz::TimeZone;

use config::budget::Per;
use runtime::budget::Window;
use types::Span;
use types::{PicoDollars, Timestamp};
use usage::UsageRow;

/// One agent's month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanWorth {
    pub agent: String,
    pub price: PicoDollars,
    /// At list price.
    pub cost: PicoDollars,
    /// Some calls have no price.
    pub unpriced: bool,
}

/// The calendar month so far.
pub fn month(now: Timestamp, zone: &TimeZone) -> Option<Span> {
    Window::of(Per::Month, now, zone).map(|month| Span::since(month.begin))
}

impl PlanWorth {
    /// Of rows by agent, those with a plan; one that was not used is worth nothing yet.
    pub fn among(rows: &[UsageRow], plans: &[(String, PicoDollars)]) -> Vec<Self> {
        let of = |(agent, price): &(String, PicoDollars)| {
            let row = rows.iter().find(|row| row.key.as_ref() == Some(agent));
            Self {
                agent: agent.clone(),
                price: *price,
                cost: row.map_or(PicoDollars(0), |row| row.sums.cost),
                unpriced: row.is_some_and(|row| !row.unpriced_models.is_empty()),
            }
        };
        plans.iter().map(of).collect()
    }

    /// `claude this month: $61.00, worth 6.1 × the plan ($10.00)`.
    pub fn in_words(&self) -> String {
        let times = self.cost.dollars() / self.price.dollars();
        let (cost, price) = (format::usd(self.cost.dollars()), format::usd(self.price.dollars()));
        let more = if self.unpriced { "+" } else { "" };
        format!("{} this month: {cost}{more}, worth {times:.1} × the plan ({price})", self.agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use types::CallSums;

    const DOLLAR: i64 = 1_000_000_000_000;

    #[test]
    fn a_plan_is_compared_with_its_agents_month() {
        let row = |agent: &str, dollars: i64| UsageRow {
            key: Some(agent.into()),
            sums: CallSums { cost: PicoDollars(dollars * DOLLAR), ..CallSums::default() },
            ..UsageRow::default()
        };
        let plans =
            [("claude".to_owned(), PicoDollars(10 * DOLLAR)), ("codex".to_owned(), PicoDollars(20 * DOLLAR))];
        let mut claude = row("claude", 61);
        claude.unpriced_models = vec!["new".into()];
        let worth = PlanWorth::among(&[claude, row("codex", 4), row("gemini", 7)], &plans);
        let words: Vec<_> = worth.iter().map(PlanWorth::in_words).collect();
        assert_eq!(
            words,
            [
                "claude this month: $61.00+, worth 6.1 × the plan ($10.00)",
                "codex this month: $4.00, worth 0.2 × the plan ($20.00)",
            ]
        );
        assert_eq!(PlanWorth::among(&[row("claude", 61)], &[]), []);
    }

    #[test]
    fn the_month_is_the_calendars() {
        let at = |text: &str| Timestamp::parse(text).unwrap();
        let span = month(at("2026-11-18T12:00:00Z"), &TimeZone::UTC).unwrap();
        assert_eq!(span, Span::since(at("2026-11-01T00:00:00Z")));
    }
}
