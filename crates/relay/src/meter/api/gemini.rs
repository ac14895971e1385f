//! Gemini's generateContent and streamGenerateContent, and the form in which Code Assist wraps them.
//!
//! Every chunk has the usage so far; a field that is missing is zero.

use types::Tokens;

use super::{Account, Counts, Facts, keep, keep_count};
use crate::meter::json::Value;

pub(super) fn note(facts: &mut Facts, path: &str, value: Value<'_>) {
    let path = path.strip_prefix("response.").unwrap_or(path);
    if let Some(field) = path.strip_prefix("usageMetadata.") {
        return note_usage(facts, field, value);
    }
    match path {
        "responseId" => keep(&mut facts.id, value),
        "modelVersion" => keep(&mut facts.model, value),
        "error.status" => keep(&mut facts.error, value),
        "candidates[].finishReason" | "promptFeedback.blockReason" => facts.ending |= value.is_written(),
        _ => facts.written |= path.starts_with("candidates[].content.parts[].") && value.is_written(),
    }
}

fn note_usage(facts: &mut Facts, field: &str, value: Value<'_>) {
    let counts = &mut facts.counts;
    let place = match field {
        "promptTokenCount" => &mut counts.input,
        "candidatesTokenCount" => &mut counts.output,
        "cachedContentTokenCount" => &mut counts.cache_read,
        "thoughtsTokenCount" => &mut counts.reasoning,
        "toolUsePromptTokenCount" => &mut counts.tools,
        _ => return,
    };
    facts.unread |= keep_count(place, value);
    facts.has_usage |= value.is_something();
}

pub(super) fn apply(account: &mut Account, facts: &Facts) {
    if facts.has_usage {
        account.metered.tokens = Some(tokens(facts.counts));
    }
    account.metered.finished |= facts.ending;
}

/// The input includes cached tokens, but not those of tools in the prompt; the output does not include thoughts.
fn tokens(counts: Counts) -> Tokens {
    let count = |count: Option<u64>| count.unwrap_or(0);
    let cached = count(counts.cache_read);
    Tokens {
        input: count(counts.input).saturating_sub(cached).saturating_add(count(counts.tools)),
        output: count(counts.output).saturating_add(count(counts.reasoning)),
        cache_read: cached,
        cache_write_5m: 0,
        cache_write_1h: 0,
        reasoning: count(counts.reasoning),
    }
}
