//! What sessions are called: by the user, else `{agent}-{YYMMDDHHmm}`; after a `/clear` of `fix-auth`, `fix-auth.2`.

use jiff::tz::TimeZone;
use types::Timestamp;

/// A name, and its place in the chain of `/clear`s it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub full: String,
    pub base: String,
    pub number: u32,
}

impl Name {
    fn first(name: String) -> Self {
        Self { full: name.clone(), base: name, number: 1 }
    }
}

/// What is wrong with a name, a tag or a group: `0` names which of them it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a {0} cannot be empty")]
    Empty(&'static str),
    #[error("the {0} {1:?} begins with a dash, which commands would take for an option")]
    Dash(&'static str, String),
    #[error("the {0} {1:?} holds a slash, a control character or one that turns the writing direction")]
    Character(&'static str, String),
    #[error("the {0} {1:?} is how a folder is called; choose another")]
    Folder(&'static str, String),
    #[error("the {0} is longer than 100 characters")]
    Long(&'static str),
}

/// A name that a person gives, as it is kept: without the spaces around it, which no table shows.
pub fn check(name: &str) -> Result<&str, NameError> {
    check_as("name", name)
}

pub fn check_tag(tag: &str) -> Result<&str, NameError> {
    check_as("tag", tag)
}

pub fn check_group(group: &str) -> Result<&str, NameError> {
    check_as("group", group)
}

fn check_as<'a>(what: &'static str, text: &'a str) -> Result<&'a str, NameError> {
    // Line breaks are not trimmed, so that they are refused below: they are no spaces typed by accident.
    let text = text.trim_matches(|c: char| c.is_whitespace() && !c.is_control());
    match text {
        _ if text.trim().is_empty() => Err(NameError::Empty(what)),
        _ if text.starts_with('-') => Err(NameError::Dash(what, text.into())),
        "." | ".." => Err(NameError::Folder(what, text.into())),
        _ if text.chars().any(is_refused) => Err(NameError::Character(what, text.into())),
        _ if text.chars().count() > 100 => Err(NameError::Long(what)),
        _ => Ok(text),
    }
}

/// Whether no name holds it: a terminal could be steered by it, or a path made of it.
fn is_refused(letter: char) -> bool {
    letter == '/' || format::text::is_harmful(letter)
}

/// The name of an imported session: its own, made valid where needed, else one made of its agent and time.
pub(super) fn of_elsewhere(name: Option<&str>, agent: &str, at: Timestamp) -> String {
    let after_agent = || {
        let agent = tamed(agent, 80).unwrap_or_else(|| "session".into());
        default_name(&agent, at, &os::zone::local())
    };
    name.and_then(|name| tamed(name, 100)).unwrap_or_else(after_agent)
}

/// A name made valid; `None` if no valid character is left.
fn tamed(name: &str, longest: usize) -> Option<String> {
    let name: String = name
        .trim_start_matches(|c: char| c == '-' || c.is_whitespace())
        .chars()
        .map(|c| if is_refused(c) { '-' } else { c })
        .take(longest)
        .collect();
    check(&name).ok().map(str::to_owned)
}

/// Whether a name is that number of the chain that `base` began.
pub(super) fn is_of(name: &str, base: &str, number: u32) -> bool {
    match number {
        1 => name == base,
        _ => name.strip_prefix(base).and_then(|rest| rest.strip_prefix('.')) == Some(&number.to_string()),
    }
}

/// `claude-2611160042`, in the user's own time.
pub fn default_name(agent: &str, at: Timestamp, zone: &TimeZone) -> String {
    let local = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default().to_zoned(zone.clone());
    format!(
        "{agent}-{:02}{:02}{:02}{:02}{:02}",
        local.year().rem_euclid(100),
        local.month(),
        local.day(),
        local.hour(),
        local.minute()
    )
}

/// The name itself, or one of `name-2`, `name-3`, … that is free: the lowest, where no more than [`IN_TURN`] are taken.
///
/// Beyond that, numbers are tried in growing steps and then between the last that is taken and the first that is free: a
/// thousand sessions of one name are numbered by a dozen looks each. A gap that renaming left may be passed over.
pub(super) fn first_free<E>(
    wanted: &str,
    mut is_taken: impl FnMut(&str) -> Result<bool, E>,
) -> Result<String, E> {
    const IN_TURN: u64 = 8;
    if !is_taken(wanted)? {
        return Ok(wanted.to_owned());
    }
    let numbered = |number: u64| format!("{wanted}-{number}");
    let (mut taken, mut step) = (1, 1);
    let mut free = loop {
        let next = taken + step;
        if !is_taken(&numbered(next))? {
            break next;
        }
        taken = next;
        step = if taken < IN_TURN { 1 } else { step.saturating_mul(2) };
    };
    while free - taken > 1 {
        let between = taken + (free - taken) / 2;
        if is_taken(&numbered(between))? { taken = between } else { free = between }
    }
    Ok(numbered(free))
}

pub(super) fn first(view: &crate::View<'_>, wanted: &str) -> Result<Name, crate::Error> {
    Ok(Name::first(first_free(wanted, |name| view.name_taken(name))?))
}

/// The next of the chain that `base` began; a number already taken by another branch of it is passed over. Where there are
/// no more numbers, another chain begins.
pub(super) fn successor(view: &crate::View<'_>, base: &str, number: u32) -> Result<Name, crate::Error> {
    let mut last = number;
    while let Some(number) = last.checked_add(1) {
        let full = format!("{base}.{number}");
        if !view.name_taken(&full)? {
            return Ok(Name { full, base: base.to_owned(), number });
        }
        last = number;
    }
    first(view, base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_agent_and_local_minute() {
        let at = Timestamp::parse("2026-11-15T23:45:44.931Z").unwrap();
        assert_eq!(default_name("claude", at, &TimeZone::UTC), "claude-2611152345");
        let east = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(default_name("codex", at, &east), "codex-2611160145");
    }

    #[test]
    fn the_next_of_the_same_name_gets_the_lowest_free_number() {
        let table = [
            ("fix", &[][..], "fix"),
            ("fix", &["fix"], "fix-2"),
            ("fix", &["fix", "fix-2", "fix-3"], "fix-4"),
            ("fix", &["fix", "fix-3"], "fix-2"),
            ("fix", &["fix-2"], "fix"),
            ("fix", &["fix", "fix-two"], "fix-2"),
        ];
        for (wanted, names, expected) in table {
            let free = first_free(wanted, |name| Ok::<_, ()>(names.contains(&name)));
            assert_eq!(free.as_deref(), Ok(expected), "{names:?}");
        }
    }

    #[test]
    fn a_free_number_is_found_by_few_looks_however_many_are_taken() {
        for last in [1, 2, 7, 8, 9, 10, 100, 4_096, 100_000] {
            let mut looks = 0;
            let taken = |name: &str| {
                looks += 1;
                Ok::<_, ()>(name == "x" || name[2..].parse::<u64>().unwrap() <= last)
            };
            assert_eq!(first_free("x", taken).unwrap(), format!("x-{}", last + 1));
            assert!(looks < 50, "{last}: {looks}");
        }
    }

    #[test]
    fn spaces_around_a_name_are_not_part_of_it() {
        for (given, kept) in [
            ("fix auth", Ok("fix auth")),
            ("  sp  ", Ok("sp")),
            ("\u{3000}sp\u{a0}", Ok("sp")),
            ("   ", Err(NameError::Empty("name"))),
            (" -x", Err(NameError::Dash("name", "-x".into()))),
            ("x\n", Err(NameError::Character("name", "x\n".into()))),
        ] {
            assert_eq!(check(given), kept, "{given:?}");
        }
        assert_eq!((check_tag(" t "), check_group(" g ")), (Ok("t"), Ok("g")));
    }

    #[test]
    fn what_is_called_elsewhere_is_tamed() {
        let long = "x".repeat(101);
        for (name, tame) in [
            ("fix auth", Some("fix auth")),
            ("a/b\nc", Some("a-b-c")),
            ("a\u{202e}b", Some("a-b")),
            ("..", None),
            ("--force", Some("force")),
            (" - fix ", Some("fix")),
            (" - ", None),
            ("", None),
            (&long, Some(&long[1..])),
        ] {
            assert_eq!(tamed(name, 100).as_deref(), tame, "{name:?}");
        }
    }

    #[test]
    fn what_has_no_name_is_called_after_its_agent() {
        for (name, agent, begin) in [
            (None, "claude", "claude-"),
            (Some("-"), "a/b", "a-b-"),
            (None, "--x", "x-"),
            (None, "", "session-"),
        ] {
            let name = of_elsewhere(name, agent, Timestamp(0));
            assert!(name.starts_with(begin) && check(&name).is_ok(), "{name:?}");
        }
        assert!(check(&of_elsewhere(None, &"x".repeat(500), Timestamp(0))).is_ok());
    }

    #[test]
    fn a_name_tells_its_place_in_the_chain() {
        for (name, base, number, is) in [
            ("fix", "fix", 1, true),
            ("fix.2", "fix", 2, true),
            ("fix.02", "fix", 2, false),
            ("fix.2", "fix", 3, false),
            ("fix", "other", 1, false),
            ("fix.1", "fix", 1, false),
            ("fix.2", "fix.2", 1, true),
        ] {
            assert_eq!(is_of(name, base, number), is, "{name} {base} {number}");
        }
    }

    #[test]
    fn names_that_would_trip_a_command_line_are_refused() {
        for good in ["fix-auth", "fix auth", "v1.2", "日本", "a"] {
            assert_eq!(check(good), Ok(good));
        }
        for bad in [
            "",
            "  ",
            "-x",
            "a\nb",
            "a/b",
            ".",
            "..",
            "\u{1b}[31m",
            "a\u{202e}b",
            "\u{2066}a",
            "a\u{2028}b",
            &"x".repeat(101),
        ] {
            assert!(check(bad).is_err(), "{bad:?}");
            let message = check_tag(bad).unwrap_err().to_string();
            assert!(message.contains("tag") && !message.contains("name"), "{message}");
        }
    }
}
