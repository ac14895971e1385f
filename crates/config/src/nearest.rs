//! The name that was meant by one with a typing mistake.

/// The name that resembles `typed` most, if one does.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let resembling = names.into_iter().filter_map(|name| Some((mistakes(typed, name)?, name)));
    resembling
        .min_by_key(|(mistakes, _)| *mistakes)
        .filter(|(mistakes, _)| *mistakes > 0)
        .map(|(_, name)| name)
}

/// How many mistakes somebody has made who meant `name`; `None` for more than one in four letters: something else was meant.
pub fn mistakes(typed: &str, name: &str) -> Option<usize> {
    let most = typed.chars().count().div_ceil(4).min(3);
    Some(distance(typed, name)).filter(|mistakes| *mistakes <= most)
}

/// How many letters have to be added, left out, changed or swapped with the next one to make one text the other, case aside.
fn distance(one: &str, other: &str) -> usize {
    let letters = |text: &str| text.to_lowercase().chars().collect::<Vec<char>>();
    let (one, other) = (letters(one), letters(other));
    let mut before = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut line = vec![row + 1];
        for (column, wanted) in other.iter().enumerate() {
            let changed = above[column] + usize::from(letter != wanted);
            let mut least = changed.min(above[column + 1] + 1).min(line[column] + 1);
            if row > 0 && column > 0 && *letter == other[column - 1] && one[row - 1] == *wanted {
                let swapped: &Vec<usize> = &before;
                least = least.min(swapped[column - 1] + 1);
            }
            line.push(least);
        }
        before = std::mem::replace(&mut above, line);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_mistake_or_two_is_known() {
        let names = ["claude", "codex", "gemini", "upstream", "interval", "quiet"];
        for (typed, meant) in [
            ("claud", Some("claude")),
            ("cluade", Some("claude")),
            ("Codexx", Some("codex")),
            ("interwal", Some("interval")),
            ("upstraem", Some("upstream")),
            ("quite", Some("quiet")),
            ("claude", None),
            ("aider", None),
            ("wat", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, names), meant, "{typed}");
        }
    }

    #[test]
    fn a_mistake_is_a_letter_too_many_too_few_another_or_two_swapped() {
        for (one, other, expected) in
            [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("abc", "xabd", 2), ("ABC", "abc", 0)]
        {
            assert_eq!((distance(one, other), distance(other, one)), (expected, expected), "{one} {other}");
        }
    }
}
