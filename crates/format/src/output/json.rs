//! JSON for programs, which people look at on terminals all the same.

use std::borrow::Cow;
use std::fmt::Write;

use serde::Serialize;

use crate::text::is_harmful;

/// Over several lines, with a line end.
#[expect(clippy::disallowed_methods, reason = "the one place that makes JSON to be printed")]
pub fn pretty(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value).map(printable)
}

/// On one line, with a line end.
pub fn line(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(printable)
}

fn printable(json: String) -> String {
    let mut text = match escaped(&json) {
        Cow::Borrowed(_) => json,
        Cow::Owned(text) => text,
    };
    text.push('\n');
    text
}

/// The same JSON without characters that a terminal might obey: `\u009b` instead of the character itself. They can stand in
/// strings alone, where either means the same.
pub fn escaped(json: &str) -> Cow<'_, str> {
    let mut text = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(next) = beyond_ascii(&json.as_bytes()[at..]) {
        at += next;
        let Some(letter) = json[at..].chars().next() else { break };
        if is_harmful(letter) {
            text += &json[copied..at];
            _ = write!(text, "\\u{:04x}", u32::from(letter)); // none of them lies beyond four digits
            copied = at + letter.len_utf8();
        }
        at += letter.len_utf8();
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    text += &json[copied..];
    Cow::Owned(text)
}

/// Where the first byte stands that is no printable ASCII; JSON holds no control characters below. Ten thousand records are
/// 16 MB, so most of it is passed over many bytes at a time.
fn beyond_ascii(json: &[u8]) -> Option<usize> {
    const AT_ONCE: usize = 64;
    let beyond = |byte: u8| byte >= 0x7f;
    let any = |bytes: &[u8]| bytes.iter().fold(false, |any, byte| any | beyond(*byte));
    let from = json.chunks(AT_ONCE).position(any)? * AT_ONCE;
    json[from..].iter().position(|byte| beyond(*byte)).map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn control_characters_are_escaped_and_the_value_stays_the_same() {
        let all: String = ('\0'..='\u{ffff}').filter(|letter| is_harmful(*letter)).collect();
        let value = json!({"name": format!("a{all}ü修👩‍💻"), "list": ["\u{9b}31m", "\u{202e}"]});
        for text in [pretty(&value).unwrap(), line(&value).unwrap()] {
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            assert!(text.chars().all(|letter| letter == '\n' || !is_harmful(letter)), "{text:?}");
            assert!(text.contains("ü修👩‍💻") && text.contains("\\u009b31m"), "{text}");
        }
    }

    #[test]
    fn harmless_text_is_not_copied() {
        let long = "ü修 and some more".repeat(40);
        for text in ["", "plain", "ü", &long] {
            assert!(matches!(escaped(text), Cow::Borrowed(same) if same == text), "{text}");
        }
        for at in [0, 1, 63, 64, 65, 500] {
            let (before, after) = ("-".repeat(at), "ü-".repeat(70));
            assert_eq!(escaped(&format!("{before}\u{9b}{after}")), format!("{before}\\u009b{after}"));
        }
    }
}
