//! Why an event was refused. The text repeats nothing of the event, which may hold anything: it goes to the log, and to the
//! sender.

use super::attributes::Attributes;
use super::envelope_names;

/// What is wrong with the part of an event that begins at `place`.
pub(super) fn reason(place: &str, json: &str, error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.split(" at line ").next().unwrap_or_default();
    let wrong =
        if let Some(rest) = text.strip_prefix("invalid type: ").or(text.strip_prefix("invalid value: ")) {
            let found = rest.split([' ', ',']).next().unwrap_or_default();
            let expected = rest.rsplit(", expected ").next().unwrap_or_default();
            format!("expected {expected}, found {found}")
        } else if text.starts_with("unknown variant") {
            let expected = text.rsplit(", expected ").next().unwrap_or_default();
            format!("unknown word, expected {expected}")
        } else if text.starts_with("UUID parsing failed") {
            "id is no UUID".to_owned()
        } else {
            text.to_owned()
        };
    match field_before(json, error) {
        Some(field) if wrong.starts_with("is ") => format!("{field} {wrong}"),
        Some(field) if !wrong.contains(field) => format!("{place}{field}: {wrong}"),
        _ => format!("{place}{wrong}"),
    }
}

/// The name before the place where reading failed, if it is one of ours: only these are given back.
fn field_before(json: &str, error: &serde_json::Error) -> Option<&'static str> {
    let line_start =
        json.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum::<usize>();
    let before = json.get(..(line_start + error.column()).min(json.len()))?;
    let (head, _) = before.rsplit_once("\":")?;
    let name = head.rsplit('"').next()?;
    names().find(|field| *field == name)
}

/// Every name there is, outside and in the attributes.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    envelope_names().iter().copied().chain(Attributes::names())
}
