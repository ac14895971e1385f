//! OpenAI Chat Completions, those who speak it, and the older `/completions` and `/embeddings`, which report usage in the same form.
//!
//! Usage comes with a last chunk without choices where the request asked for it; some servers repeat it in every chunk.

use super::{Account, Facts, keep, keep_count};
use crate::meter::json::Value;

pub(super) fn note(facts: &mut Facts, path: &str, value: Value<'_>) {
    if let Some(field) = path.strip_prefix("usage.") {
        return note_usage(facts, field, value);
    }
    match path {
        "id" => keep(&mut facts.id, value),
        "model" => keep(&mut facts.model, value),
        "service_tier" => keep(&mut facts.tier, value),
        "error.code" => keep(&mut facts.error, value),
        "error.type" if facts.error.is_none() => keep(&mut facts.error, value),
        // Of the older `/completions`.
        "choices[].text" => facts.written |= value.is_written(),
        "choices[].finish_reason" => facts.ending |= value.is_written(),
        _ => {
            let delta =
                path.strip_prefix("choices[].delta.").or_else(|| path.strip_prefix("choices[].message."));
            facts.written |= delta.is_some_and(|field| field != "role") && value.is_written();
        }
    }
}

fn note_usage(facts: &mut Facts, field: &str, value: Value<'_>) {
    let counts = &mut facts.counts;
    let place = match field {
        "prompt_tokens" => &mut counts.input,
        "completion_tokens" => &mut counts.output,
        "prompt_tokens_details.cached_tokens" => &mut counts.cache_read,
        "prompt_tokens_details.cache_write_tokens" => &mut counts.cache_write,
        "completion_tokens_details.reasoning_tokens" => &mut counts.reasoning,
        _ => return,
    };
    facts.unread |= keep_count(place, value);
    facts.has_usage |= value.is_something();
}

pub(super) fn apply(account: &mut Account, facts: &Facts) {
    if facts.has_usage {
        account.metered.tokens = Some(facts.counts.with_cached_input());
    }
    account.set_tier(facts.tier.as_deref());
    account.metered.finished |= facts.ending;
}
