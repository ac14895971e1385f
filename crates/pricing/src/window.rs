//! How much of its context window a prompt fills.

use super::row;

/// Claude Code asks for a window of a million tokens or for this one, by plan, setting and beta. Its session files name the model
/// alone, so nothing there shows which.
const SHORT: u64 = 200_000;
const LONG: u64 = 1_000_000;

/// In percent, rounded down; `None` where the window is not certain. A prompt that is longer than the window proves that another
/// one is in use, so nothing beyond 100 is ever returned.
pub fn filled(model: &str, tokens: u64) -> Option<u64> {
    let window = in_use(model, row(model)?.window?, tokens)?;
    (window > 0 && tokens <= window).then(|| tokens.saturating_mul(100) / window)
}

/// The window that calls with such a prompt have. `listed`: the longest that the model has.
fn in_use(model: &str, listed: u64, tokens: u64) -> Option<u64> {
    if let Some((_, asked)) = model.split_once('[') {
        return (asked == "1m]" && listed >= LONG).then_some(listed);
    }
    let either = model.contains("claude") && listed > SHORT;
    (!either || tokens > SHORT).then_some(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_shown_only_where_the_window_is_certain() {
        for (model, tokens, percent) in [
            ("claude-haiku-4-5", 0, Some(0)),
            ("claude-haiku-4-5", 84_000, Some(42)),
            ("claude-haiku-4-5-20251001", 199_999, Some(99)),
            ("claude-sonnet-4-5", 200_000, Some(100)),
            ("claude-sonnet-4-5", 200_001, None), // a longer one is in use
            ("claude-sonnet-4-5[1m]", 100_000, None), // not known of this model
            ("claude-opus-4-8", 100_000, None),   // 200,000 or a million
            ("claude-opus-4-8", 250_000, Some(25)),
            ("claude-opus-4-8[1m]", 100_000, Some(10)),
            ("claude-opus-4-8[2m]", 100_000, None),
            ("anthropic/claude-haiku-4-5", 100_000, Some(50)),
            ("gpt-5.2", 136_000, Some(50)),
            ("gpt-5.2", 300_000, None),
            ("gpt-5.5-cyber", 1000, None), // no window in the table
            ("gemini-2.5-pro", 524_288, Some(50)),
            ("claude-opus-9", 1000, None),
            ("", 1, None),
            ("gpt-5.2", u64::MAX, None),
        ] {
            assert_eq!(filled(model, tokens), percent, "{model} {tokens}");
        }
    }
}
