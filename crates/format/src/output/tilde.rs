//! The user's own folder as people write it.

use super::Style;

/// For a terminal: paths in the user's folder begin with `~`. Whatever is not a terminal gets them whole.
pub fn at_home(text: &str, style: Style) -> String {
    let home = std::env::var("HOME").ok().filter(|_| style.columns != usize::MAX);
    home.map_or_else(|| text.to_owned(), |home| tilde(text, &home))
}

/// Only where a shell understands it: at the beginning of a word. In quotes, or behind `=`, it would not.
fn tilde(text: &str, home: &str) -> String {
    let home = home.trim_end_matches('/');
    if !home.starts_with('/') {
        return text.to_owned();
    }
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(home) {
        let (before, found) = rest.split_at(at);
        let behind = &found[home.len()..];
        let begins = match before.chars().next_back().or_else(|| short.chars().next_back()) {
            None => true,
            Some(last) => last.is_whitespace() || last == '(',
        };
        let ends = behind.chars().next().is_none_or(|next| next == '/' || next.is_whitespace());
        short.push_str(before);
        short.push_str(if begins && ends { "~" } else { home });
        rest = behind;
    }
    short + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_short_where_a_shell_makes_it_whole_again() {
        for (text, home, short) in [
            ("/home/dev/project", "/home/dev", "~/project"),
            ("/home/dev", "/home/dev/", "~"),
            ("/home/developer/x", "/home/dev", "/home/developer/x"),
            ("cannot read /home/dev/a (/home/dev/b)", "/home/dev", "cannot read ~/a (~/b)"),
            ("cd '/home/dev/a b'; PATH=/home/dev/bin", "/home/dev", "cd '/home/dev/a b'; PATH=/home/dev/bin"),
            ("/mnt/home/dev/x", "/home/dev", "/mnt/home/dev/x"),
            ("/etc", "/", "/etc"),
            ("/etc", "", "/etc"),
        ] {
            assert_eq!(tilde(text, home), short, "{text} in {home}");
        }
        let whole = Style { colour: false, columns: usize::MAX };
        assert_eq!(at_home("/home/dev/project", whole), "/home/dev/project");
    }
}
