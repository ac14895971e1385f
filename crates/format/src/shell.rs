//! Words of a command line that a person may copy into a shell.

use std::borrow::Cow;
use std::path::Path;

/// One word for a POSIX shell, in quotes if it needs them: names are the user's own, and hold whatever was typed.
pub fn word(text: &str) -> Cow<'_, str> {
    let plain = |letter: char| letter.is_alphanumeric() || "._@%+=:,-/".contains(letter);
    // zsh takes a word that begins with `=` for the path of a command.
    if !text.is_empty() && !text.starts_with('=') && text.chars().all(plain) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
    }
}

/// The same of a path. What is no UTF-8 in it is lost, here as in every message.
pub fn path(path: &Path) -> String {
    word(&path.to_string_lossy()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_where_a_shell_would_make_more_of_it() {
        for (text, expected) in [
            ("claude-2611160731.2", "claude-2611160731.2"),
            ("/home/dev/a_b@c%d+e=f:g,h", "/home/dev/a_b@c%d+e=f:g,h"),
            ("größer", "größer"),
            ("修正", "修正"),
            ("", "''"),
            ("=ls", "'=ls'"),
            ("~dev", "'~dev'"),
            ("fix auth", "'fix auth'"),
            ("a\u{3000}b", "'a\u{3000}b'"),
            ("$(rm) `x` \"y\" \\ !1 * ? [a] {b,c} #d &|<>", "'$(rm) `x` \"y\" \\ !1 * ? [a] {b,c} #d &|<>'"),
            ("it's mine; x", r"'it'\''s mine; x'"),
        ] {
            assert_eq!(word(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_shell_reads_the_word_as_it_was() {
        for text in ["", "=ls", "fix auth", "it's mine; x", "'", "a\\'b\\", "$HOME `id` \"\" !! ~ *\u{a0}"] {
            let line = format!("printf %s {}", word(text));
            let printed = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&printed.stdout), text, "{line}");
        }
    }
}
