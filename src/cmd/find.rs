//! SESSION on a command line, looked up; and what the exit codes of a failed look-up are.

use crate::registry;
use crate::session::lookup::{self, Foreign, Found, LookupError, Scan};
use crate::store::{Filter, SessionRow, Show, View};
use human::shell;

use super::Failure;

const NO_SUCH_SESSION: u8 = 3;
const AMBIGUOUS: u8 = 4;

/// The session files of all agents on this machine.
struct AgentFiles;

impl Scan for AgentFiles {
    fn find(&self, wanted: &str) -> Vec<Foreign> {
        let var = |name: &str| std::env::var_os(name);
        registry::AGENTS.iter().flat_map(|agent| agent.conversations(&var, wanted)).collect()
    }
}

/// A session, or a conversation that codemie never wrapped.
pub(super) fn find(view: &View<'_>, wanted: &str) -> anyhow::Result<Found> {
    lookup::find(view, wanted, &AgentFiles).map_err(|error| match error {
        LookupError::Unknown(_) => match view.list(&Filter { show: Show::All, ..Filter::default() }) {
            Ok(rows) => no_such_session(unknown(wanted, rows.iter().map(|row| row.name.as_str()))),
            Err(error) => error.into(),
        },
        LookupError::Several { .. } => Failure { code: AMBIGUOUS, message: error.to_string() }.into(),
        LookupError::Store(error) => error.into(),
    })
}

/// A session of ours.
pub(super) fn session(view: &View<'_>, wanted: &str) -> anyhow::Result<SessionRow> {
    match find(view, wanted)? {
        Found::Session(row) => Ok(*row),
        Found::Foreign(foreign) => Err(no_such_session(format!(
            "{} is a conversation of {} that never ran through codemie; `codemie resume {}` adopts it",
            foreign.agent_session,
            foreign.agent,
            shell::word(&foreign.agent_session.0)
        ))),
    }
}

pub(super) fn no_such_session(message: String) -> anyhow::Error {
    Failure { code: NO_SUCH_SESSION, message }.into()
}

/// Names offered instead of one that does not exist.
const OFFERED: usize = 5;

fn unknown<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    let resembling = resembling(wanted, names);
    let next = if resembling.is_empty() {
        "`codemie list --all` shows those there are".to_owned()
    } else {
        format!("did you mean {}?", resembling.join(", "))
    };
    format!("there is no session {wanted:?}; {next} (a name is given whole, of an id at least 4 characters)")
}

/// Those that begin with it, then those that hold it, then those that a slip or two away are it.
fn resembling<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut ranked: Vec<(usize, &str)> = names
        .filter_map(|name| {
            let lower = name.to_lowercase();
            let rank = if lower.starts_with(&wanted) {
                0
            } else if lower.contains(&wanted) {
                1
            } else {
                // In a short word everything is a slip away from everything.
                let slips = slips(&wanted, &lower);
                (slips <= 2 && slips * 3 <= wanted.chars().count()).then_some(1 + slips)?
            };
            Some((rank, name))
        })
        .collect();
    // Among equals the newest first, as they came.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().take(OFFERED).map(|(_, name)| name).collect()
}

/// Letters to put in, take out or change until one word is the other (Levenshtein).
fn slips(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (column, known) in other.iter().enumerate() {
            let changed = before + usize::from(letter != *known);
            before = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(before + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right_is_answered_with_the_right_one() {
        let names = ["claude-2611161405", "fix-auth.2", "fix-auth", "Prefix", "docs", "ab"];
        for (wanted, expected) in [
            ("fix", &["fix-auth.2", "fix-auth", "Prefix"][..]),
            ("FIX-A", &["fix-auth.2", "fix-auth"]),
            ("fix-atuh", &["fix-auth"]),
            ("dcos-x", &[]),
            ("dosc", &[]),
            ("doks", &["docs"]),
            ("xy", &[]),
            ("", &[]),
        ] {
            assert_eq!(resembling(wanted, names.into_iter()), expected, "{wanted}");
        }
        let said = unknown("fix", names.into_iter());
        assert!(said.contains("did you mean fix-auth.2, fix-auth, Prefix?"), "{said}");
        assert!(unknown("zzz", names.into_iter()).contains("codemie list --all"));
    }
}
