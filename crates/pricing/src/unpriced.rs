//! Models and calls without a price, in words: a model nobody has a price for, or the calls of one in a mode that has none.

use std::collections::BTreeMap;

use super::Prices;

/// Names for a list: `new-model`, or `claude-opus-4-5 in fast mode (1,420 calls)` where the model has a price otherwise.
/// `calls`: how many calls of each have none, where that is known.
pub fn named<'a>(models: impl IntoIterator<Item = &'a String>, calls: &BTreeMap<String, i64>) -> String {
    let names: Vec<String> =
        models.into_iter().map(|model| name(model, calls.get(model).copied().unwrap_or(0))).collect();
    names.join(", ")
}

fn name(model: &str, calls: i64) -> String {
    let Some(prices) = Prices::of(model) else { return model.to_owned() };
    let modes = match prices.modes_without(model) {
        modes if modes.is_empty() => "in some calls".to_owned(),
        modes => modes.join(" or "),
    };
    match usize::try_from(calls) {
        Ok(calls @ 1..) => format!("{model} {modes} ({})", format::counted(calls, "call")),
        _ => format!("{model} {modes}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_with_a_price_is_named_with_the_mode_that_has_none() {
        let calls =
            BTreeMap::from([("claude-opus-4-5-20251101".to_owned(), 1420), ("gpt-5.5".to_owned(), 1)]);
        for (model, expected) in [
            ("new-model", "new-model"),
            ("claude-opus-4-5-20251101", "claude-opus-4-5-20251101 in fast mode (1,420 calls)"),
            (
                "gpt-5.5",
                "gpt-5.5 for long prompts in fast mode or in ultrafast mode or in an unknown mode (1 call)",
            ),
            ("gpt-4", "gpt-4 in fast mode or in flex mode or in ultrafast mode or in an unknown mode"),
            ("gpt-6-astra", "gpt-6-astra in an unknown mode or for 1-hour cache writes"),
            ("claude-haiku-4-5", "claude-haiku-4-5 in fast mode"),
        ] {
            assert_eq!(named([&model.to_owned()], &calls), expected);
        }
        let both = ["new-model".to_owned(), "gpt-5.5".to_owned()];
        assert!(named(&both, &calls).starts_with("new-model, gpt-5.5 for long prompts in fast mode or "));
    }
}
