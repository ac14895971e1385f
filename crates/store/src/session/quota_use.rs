//! What a session used of its agent's limits.

use serde::Serialize;

use crate::{QuotaUseRow, SessionRow, View};
use types::{Timestamp, Utilization};

/// What a session used of one window.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaUse {
    pub provider: String,
    pub window: String,
    /// The use of the whole window when the session's first call had been answered, and its last.
    pub first: Utilization,
    pub last: Utilization,
    pub resets_at: Option<Timestamp>,
    /// The part of the window that the session used in between.
    pub used: Utilization,
    /// Other sessions used the same window meanwhile: `used` is this session's share by tokens. Otherwise it is what the API
    /// reported.
    pub computed: bool,
}

/// What the session used of each window, in the order of their names.
pub fn quota_uses(view: &View<'_>, row: &SessionRow) -> Result<Vec<QuotaUse>, crate::Error> {
    view.quota_uses(row.n)?
        .into_iter()
        .map(|seen| {
            let tokens = view.tokens_between(&row.agent, seen.first_at, seen.last_at)?;
            Ok(shared(row.n, seen, &tokens))
        })
        .collect()
}

fn shared(session: i64, seen: QuotaUseRow, tokens: &[(i64, i64)]) -> QuotaUse {
    let all: i64 = tokens.iter().map(|(_, tokens)| *tokens).fold(0, i64::saturating_add);
    let own: i64 = tokens.iter().filter(|(n, _)| *n == session).map(|(_, tokens)| *tokens).sum();
    let computed = own < all;
    let whole = u64::from(seen.last.millionths().saturating_sub(seen.first.millionths()));
    let part = |of: i64| u64::try_from(of).unwrap_or(0);
    let used = if computed {
        u32::try_from(u128::from(whole) * u128::from(part(own)) / u128::from(part(all).max(1))).unwrap_or(0)
    } else {
        u32::try_from(whole).unwrap_or(0)
    };
    QuotaUse {
        provider: seen.provider,
        window: seen.window,
        first: seen.first,
        last: seen.last,
        resets_at: seen.resets_at,
        used: Utilization::of_millionths(used),
        computed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_others_used_is_shared_by_tokens() {
        let seen = || QuotaUseRow {
            provider: "anthropic".into(),
            window: "5h".into(),
            period: 0,
            first: Utilization::of_millionths(100_000),
            first_at: Timestamp(0),
            last: Utilization::of_millionths(300_000),
            last_at: Timestamp(1),
            resets_at: None,
        };
        let used = |tokens: &[(i64, i64)]| {
            let used = shared(1, seen(), tokens);
            (used.used.millionths(), used.computed)
        };
        assert_eq!(used(&[(1, 500)]), (200_000, false));
        assert_eq!(used(&[]), (200_000, false), "a single report, or calls without tokens");
        assert_eq!(used(&[(1, 500), (2, 1500)]), (50_000, true));
        assert_eq!(used(&[(2, 1500)]), (0, true));
        let back = QuotaUseRow { last: Utilization::default(), ..seen() };
        assert_eq!(shared(1, back, &[(1, 1)]).used, Utilization::default());
    }
}
