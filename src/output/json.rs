//! JSON for programs, which people look at on terminals all the same.

use std::fmt::Write;

use serde::Serialize;

use human::text::is_harmful;

/// Over several lines, with a line end.
#[expect(clippy::disallowed_methods, reason = "the one place that makes JSON to be printed")]
pub fn pretty(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(escaped(&serde_json::to_string_pretty(value)?) + "\n")
}

/// On one line, with a line end.
pub fn line(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(escaped(&serde_json::to_string(value)?) + "\n")
}

/// The same JSON without characters that a terminal might obey: `\u009b` instead of the character itself. They can stand in
/// strings alone, where either means the same.
pub fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        if letter >= '\x7f' && is_harmful(letter) {
            _ = write!(text, "\\u{:04x}", u32::from(letter)); // none of them lies beyond four digits
        } else {
            text.push(letter);
        }
    }
    text
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
}
