//! What a call may cost, before it is made: the amount that is reserved for it.
//!
//! A call starts beside others only if everything reserved fits into what is left; else it waits and goes alone. Too low an estimate
//! lets calls at the same moment exceed the budget by more than one of them; too high a one makes a call wait that could have gone.
//! Hence:
//! - With calls of the same model in the session: the most expensive of the last [`LATEST`]. A conversation grows slowly, so the
//!   next call costs what the last ones did. The mean would be too low for every call that writes the cache anew.
//! - Else the most that the request allows: four bytes a token (English and code have between three and a half and five), all of
//!   them written to the cache, as the first call of a conversation does, and the longest answer that it asks for.
//! - A model without a price does not count, so nothing is reserved for it.
//! - A request that cannot be read (its body is too long, compressed in an unknown way, or comes only when asked for) has no
//!   estimate: it needs all that is left.

use pricing::PriceList;
use pricing::tier::Tier;
use serde::Deserialize;
use types::{PicoDollars, Tokens};

/// Of the session's last calls, so many are looked at: a turn with tools makes about as many.
pub(super) const LATEST: u32 = 5;

const BYTES_PER_TOKEN: u64 = 4;
/// Where a request does not limit its answer (Codex's do not): the longest one that the vendors' current models give.
const LONGEST_ANSWER: u64 = 128_000;

/// What a request says about its cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestFacts {
    pub(super) model: Option<String>,
    bytes: u64,
    most_output: Option<u64>,
}

/// The fields of the three APIs that matter here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Body {
    model: Option<String>,
    max_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    #[serde(rename = "generationConfig")]
    generation: Generation,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Generation {
    #[serde(rename = "maxOutputTokens")]
    most: Option<u64>,
}

impl RequestFacts {
    /// A body that is no JSON says nothing but its size; one that is not known, nothing at all.
    pub(super) fn of(path: &str, body: Option<&[u8]>) -> Self {
        let Some(body) = body else { return Self::default() };
        let parsed: Body = serde_json::from_slice(body).unwrap_or_default();
        // Gemini's is in the address: `/v1beta/models/NAME:streamGenerateContent`.
        let in_path = || {
            let path = relay::meter::plain_path(path);
            let (_, rest) = path.rsplit_once("/models/")?;
            rest.split([':', '/']).next().filter(|name| !name.is_empty()).map(str::to_owned)
        };
        let most = [
            parsed.max_tokens,
            parsed.max_output_tokens,
            parsed.max_completion_tokens,
            parsed.generation.most,
        ];
        Self {
            model: parsed.model.or_else(in_path),
            bytes: body.len() as u64,
            most_output: most.into_iter().flatten().min(),
        }
    }

    /// `latest`: what the session's last calls of this model cost. `None`: nothing is known of it.
    pub(super) fn estimate(&self, prices: &PriceList, latest: &[PicoDollars]) -> Option<PicoDollars> {
        if let Some(most) = latest.iter().max() {
            return Some(*most);
        }
        let model = self.model.as_ref()?;
        let tokens = Tokens {
            cache_write_5m: self.bytes / BYTES_PER_TOKEN,
            output: self.most_output.unwrap_or(LONGEST_ANSWER),
            ..Tokens::default()
        };
        Some(prices.cost(model, &tokens, Tier::Standard).map_or(PicoDollars(0), |cost| cost.amount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_and_the_longest_answer_are_found_in_each_apis_form() {
        for (path, body, model, most) in [
            (
                "/v1/messages",
                r#"{"model":"claude-opus-4-8","max_tokens":32000,"messages":[]}"#,
                Some("claude-opus-4-8"),
                Some(32_000),
            ),
            (
                "/responses",
                r#"{"model":"gpt-5.5","input":[],"max_output_tokens":7}"#,
                Some("gpt-5.5"),
                Some(7),
            ),
            (
                "/v1beta/models/gemini-2.5-pro:streamGenerateContent",
                r#"{"contents":[],"generationConfig":{"maxOutputTokens":9}}"#,
                Some("gemini-2.5-pro"),
                Some(9),
            ),
            (
                "/v1beta/%6dodels/gemini-2.5-pro%3AgenerateContent",
                r#"{"contents":[]}"#,
                Some("gemini-2.5-pro"),
                None,
            ),
            ("/v1/messages", "no json", None, None),
            ("/v1/messages", r#"{"model":7}"#, None, None),
            ("/v1/models/", "", None, None),
        ] {
            let facts = RequestFacts::of(path, Some(body.as_bytes()));
            assert_eq!((facts.model.as_deref(), facts.most_output), (model, most), "{body}");
            assert_eq!(facts.bytes, body.len() as u64);
        }
    }

    #[test]
    fn an_estimate_is_the_dearest_of_the_last_calls_else_the_most_that_the_request_allows() {
        let facts =
            RequestFacts { model: Some("claude-opus-4-8".into()), bytes: 40_000, most_output: Some(32_000) };
        let prices = PriceList::default();
        let latest = [PicoDollars(3), PicoDollars(9), PicoDollars(1)];
        assert_eq!(facts.estimate(&prices, &latest), Some(PicoDollars(9)));
        // 10,000 × 6.25 + 32,000 × 25 dollars per million tokens
        assert_eq!(facts.estimate(&prices, &[]), Some(PicoDollars(862_500_000_000)));
        let open = RequestFacts { most_output: None, ..facts.clone() };
        assert_eq!(open.estimate(&prices, &[]), Some(PicoDollars(3_262_500_000_000)));
        let unpriced = RequestFacts { model: Some("nobody-knows".into()), ..facts };
        assert_eq!(unpriced.estimate(&prices, &[]), Some(PicoDollars(0)));
        let unread = RequestFacts::of("/v1beta/models/gemini-2.5-pro:generateContent", None);
        assert_eq!(unread.estimate(&prices, &[]), None);
        assert_eq!(unread.estimate(&prices, &latest), Some(PicoDollars(9)));
    }
}
