//! What sessions are called: by the user, else `{agent}-{YYMMDDHHmm}`; after a `/clear` of `fix-auth`, `fix-auth.2`.

use std::collections::HashSet;

use jiff::tz::TimeZone;

use crate::clock::Timestamp;
use crate::store;

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

/// What is wrong with a name, a tag or a group: `0` says which of them it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a {0} cannot be empty")]
    Empty(&'static str),
    #[error("the {0} {1:?} begins with a dash, which commands would take for an option")]
    Dash(&'static str, String),
    #[error("the {0} {1:?} holds a control character or a slash")]
    Character(&'static str, String),
    #[error("the {0} is longer than 100 characters")]
    Long(&'static str),
}

/// A name a person may give.
pub fn check(name: &str) -> Result<(), NameError> {
    check_as("name", name)
}

pub fn check_tag(tag: &str) -> Result<(), NameError> {
    check_as("tag", tag)
}

pub fn check_group(group: &str) -> Result<(), NameError> {
    check_as("group", group)
}

fn check_as(what: &'static str, text: &str) -> Result<(), NameError> {
    match text {
        _ if text.trim().is_empty() => Err(NameError::Empty(what)),
        _ if text.starts_with('-') => Err(NameError::Dash(what, text.into())),
        _ if text.chars().any(|c| c.is_control() || c == '/') => Err(NameError::Character(what, text.into())),
        _ if text.chars().count() > 100 => Err(NameError::Long(what)),
        _ => Ok(()),
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

/// The name itself, or the first of `name-2`, `name-3`, … that is free.
pub fn free(wanted: &str, taken: &[String]) -> String {
    let taken: HashSet<&str> = taken.iter().map(String::as_str).collect();
    if !taken.contains(wanted) {
        return wanted.to_owned();
    }
    let mut number = 2_u64;
    loop {
        let candidate = format!("{wanted}-{number}");
        if !taken.contains(candidate.as_str()) {
            return candidate;
        }
        number += 1;
    }
}

pub(super) fn first(view: &store::View<'_>, wanted: &str) -> Result<Name, store::Error> {
    Ok(Name::first(free(wanted, &view.names_like(wanted)?)))
}

/// The next of the chain that `base` began; a number already taken by another branch of it is passed over.
pub(super) fn successor(view: &store::View<'_>, base: &str, number: u32) -> Result<Name, store::Error> {
    let mut number = number.saturating_add(1);
    loop {
        let full = format!("{base}.{number}");
        if !view.name_taken(&full)? {
            return Ok(Name { full, base: base.to_owned(), number });
        }
        number = number.saturating_add(1);
    }
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
        let taken = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let table = [
            ("fix", &[][..], "fix"),
            ("fix", &["fix"], "fix-2"),
            ("fix", &["fix", "fix-2", "fix-3"], "fix-4"),
            ("fix", &["fix", "fix-3"], "fix-2"),
            ("fix", &["fix-2"], "fix"),
            ("fix", &["fix", "fix-two"], "fix-2"),
        ];
        for (wanted, names, expected) in table {
            assert_eq!(free(wanted, &taken(names)), expected, "{names:?}");
        }
    }

    #[test]
    fn names_that_would_trip_a_command_line_are_refused() {
        for good in ["fix-auth", "fix auth", "v1.2", "日本", "a"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["", "  ", "-x", "a\nb", "a/b", "\u{1b}[31m", &"x".repeat(101)] {
            assert!(check(bad).is_err(), "{bad:?}");
            let said = check_tag(bad).unwrap_err().to_string();
            assert!(said.contains("tag") && !said.contains("name"), "{said}");
        }
    }
}
