//! OpenAI Responses.
//!
//! Events wrap the answer in `response`; a document, and that of a compaction, is the answer. Usage comes with its last event.

use super::{Account, Facts, Form, keep, keep_count};
use crate::meter::json::Value;

pub(super) fn note(facts: &mut Facts, path: &str, value: Value<'_>) {
    let inner = path.strip_prefix("response.").unwrap_or(path);
    if let Some(field) = inner.strip_prefix("usage.") {
        return note_usage(facts, field, value);
    }
    match inner {
        "type" if inner == path => keep(&mut facts.kind, value),
        "id" => keep(&mut facts.id, value),
        "model" => keep(&mut facts.model, value),
        "service_tier" => keep(&mut facts.tier, value),
        // The code says more than the type, whichever comes first.
        "error.code" => keep(&mut facts.error, value),
        "error.type" if facts.error.is_none() => keep(&mut facts.error, value),
        // Of an event that is an error. Elsewhere it may be a program that the model wrote.
        "code" if inner == path => keep(&mut facts.code, value),
        "delta" => facts.written |= value.is_written(),
        _ => facts.written |= is_written_by_model(path) && value.is_written(),
    }
}

/// In a document, or in an item that is complete.
fn is_written_by_model(path: &str) -> bool {
    let item = path.strip_prefix("output[].").or_else(|| path.strip_prefix("item."));
    item.is_some_and(|field| !matches!(field, "type" | "id" | "status" | "role"))
}

fn note_usage(facts: &mut Facts, field: &str, value: Value<'_>) {
    let counts = &mut facts.counts;
    let place = match field {
        "input_tokens" => &mut counts.input,
        "output_tokens" => &mut counts.output,
        "input_tokens_details.cached_tokens" => &mut counts.cache_read,
        "input_tokens_details.cache_write_tokens" => &mut counts.cache_write,
        "output_tokens_details.reasoning_tokens" => &mut counts.reasoning,
        _ => return,
    };
    facts.unread |= keep_count(place, value);
    facts.has_usage |= value.is_something();
}

pub(super) fn is_content(facts: &Facts, form: Form) -> bool {
    match (form, facts.kind.as_deref()) {
        (Form::Event, Some(kind)) => {
            kind == "response.output_item.done" || kind.rsplit('.').next() == Some("delta")
        }
        (Form::Event, None) => false,
        (Form::Document, _) => true,
    }
}

/// Whether an event is about the answer. Others report limits, or keep the connection alive.
pub(super) fn is_own(facts: &Facts) -> bool {
    facts.kind.as_deref().is_some_and(|kind| kind.starts_with("response.") || kind == "error")
}

/// Whether an event of this type is the last of its answer.
pub(in crate::meter) fn is_last(kind: &str) -> bool {
    ["response.completed", "response.incomplete", "response.failed", "response.cancelled"].contains(&kind)
}

pub(super) fn apply(account: &mut Account, facts: &Facts) {
    if facts.has_usage {
        account.metered.tokens = Some(facts.counts.with_cached_input());
    }
    account.set_tier(facts.tier.as_deref());
    account.metered.finished |= facts.kind.as_deref().is_some_and(is_last);
}
