//! Anthropic Messages.
//!
//! `message_start` has the id, the model and the input; `message_delta` the output, and input again in some versions;
//! `message_stop` ends. A document has it all at its root. Numbers of server tools are requests, not tokens, and `iterations`
//! repeat what the totals hold.

use types::Tokens;

use super::{Account, Counts, Facts, Form, keep, keep_count};
use crate::meter::json::Value;

pub(super) fn note(facts: &mut Facts, path: &str, value: Value<'_>) {
    let inner = path.strip_prefix("message.").unwrap_or(path);
    if let Some(field) = inner.strip_prefix("usage.") {
        return note_usage(facts, field, value);
    }
    match inner {
        "type" if inner == path => keep(&mut facts.kind, value),
        "id" => keep(&mut facts.id, value),
        "model" => keep(&mut facts.model, value),
        "error.type" => keep(&mut facts.error, value),
        "delta.text" | "delta.thinking" | "delta.partial_json" | "delta.signature" | "delta.content" => {
            facts.written |= value.is_written();
        }
        _ => {
            facts.written |= path.starts_with("content[].") && path != "content[].type" && value.is_written();
        }
    }
}

fn note_usage(facts: &mut Facts, field: &str, value: Value<'_>) {
    let counts = &mut facts.counts;
    let place = match field {
        "input_tokens" => &mut counts.input,
        "output_tokens" => &mut counts.output,
        "cache_read_input_tokens" => &mut counts.cache_read,
        "cache_creation_input_tokens" => &mut counts.cache_write,
        "cache_creation.ephemeral_5m_input_tokens" => &mut counts.cache_write_5m,
        "cache_creation.ephemeral_1h_input_tokens" => &mut counts.cache_write_1h,
        "output_tokens_details.thinking_tokens" => &mut counts.reasoning,
        // The price depends on the speed alone, as in the agent's own files: a `service_tier` says from which contract's
        // capacity the answer came.
        "speed" => return keep(&mut facts.tier, value),
        _ => return,
    };
    facts.unread |= keep_count(place, value);
    facts.has_usage |= value.is_something();
}

pub(super) fn is_content(facts: &Facts, form: Form) -> bool {
    match form {
        Form::Event => facts.kind.as_deref() == Some("content_block_delta"),
        Form::Document => true,
    }
}

pub(super) fn apply(account: &mut Account, facts: &Facts) {
    if facts.has_usage {
        merge(&mut account.counts, facts.counts);
        account.metered.tokens = Some(tokens(account.counts));
    }
    // Any other speed is the standard one, as for the agent's own files.
    if let Some(speed) = facts.tier.as_deref() {
        account.set_tier(Some(if speed == "fast" { "fast" } else { "standard" }));
    }
    account.metered.finished |= facts.kind.as_deref() == Some("message_stop");
}

/// Numbers are totals so far. Claude Code takes a zero of the input in a later event for "not repeated"; so do we.
fn merge(known: &mut Counts, new: Counts) {
    let replace = |known: &mut Option<u64>, new: Option<u64>| {
        if new.is_some_and(|count| count > 0) || known.is_none() {
            *known = new.or(*known);
        }
    };
    replace(&mut known.input, new.input);
    replace(&mut known.cache_read, new.cache_read);
    replace(&mut known.cache_write, new.cache_write);
    for (known, new) in [
        (&mut known.cache_write_5m, new.cache_write_5m),
        (&mut known.cache_write_1h, new.cache_write_1h),
        (&mut known.output, new.output),
        (&mut known.reasoning, new.reasoning),
    ] {
        *known = new.or(*known);
    }
}

/// The split by lifetime is a part of the total; without it all cache entries live 5 minutes.
fn tokens(counts: Counts) -> Tokens {
    let one_hour = counts.cache_write_1h.unwrap_or(0);
    let five_minutes = counts.cache_write_5m.unwrap_or(0);
    let written = counts.cache_write.unwrap_or_else(|| five_minutes.saturating_add(one_hour));
    Tokens {
        input: counts.input.unwrap_or(0),
        output: counts.output.unwrap_or(0),
        cache_read: counts.cache_read.unwrap_or(0),
        cache_write_5m: written.saturating_sub(one_hour),
        cache_write_1h: one_hour.min(written),
        reasoning: counts.reasoning.unwrap_or(0),
    }
}
