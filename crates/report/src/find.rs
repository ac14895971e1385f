//! The session that a person names on the command line, searched in the store and the agents' files, or an error that
//! suggests names. The order of the search is [`lookup`]'s.

use agents::UnwrappedConversation;
use agents::registry;
use format::shell;
use runtime::launch::Origin;
use store::session::lookup::{self, Found, LookupError, Scan};
use store::{self, Filter, SessionRow, Show, View};

/// Why there is no one session to answer with.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("{}", unknown(.wanted, .resembling))]
    Unknown { wanted: String, resembling: Vec<String> },
    /// [`LookupError::Several`]: it has the candidates.
    #[error(transparent)]
    Several(LookupError),
    /// Only sessions of codemie's own were asked for.
    #[error(
        "{} is a conversation of {} that never ran through codemie; `codemie resume {}` adopts it",
        .0.agent_session, .0.agent, shell::word(&.0.agent_session.0)
    )]
    Unwrapped(UnwrappedConversation),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// The session files of all agents, where `Origin`'s variables say they are.
struct AgentFiles<'a>(&'a Origin);

impl Scan for AgentFiles<'_> {
    fn find(&self, wanted: &str) -> Vec<UnwrappedConversation> {
        registry::AGENTS
            .iter()
            .flat_map(|agent| agent.conversations(&|name| self.0.var(name), wanted))
            .collect()
    }
}

/// A session, or a conversation that codemie never wrapped.
pub fn find(view: &View<'_>, wanted: &str, origin: &Origin) -> Result<Found, FindError> {
    lookup::find(view, wanted, &AgentFiles(origin)).map_err(|error| match error {
        LookupError::Unknown(_) => match view.list(&Filter { show: Show::All, ..Filter::default() }) {
            Ok(rows) => {
                let names = resembling(wanted, rows.iter().map(|row| row.name.as_str()));
                let resembling = names.into_iter().map(str::to_owned).collect();
                FindError::Unknown { wanted: wanted.to_owned(), resembling }
            }
            Err(error) => error.into(),
        },
        LookupError::Store(error) => error.into(),
        several @ LookupError::Several { .. } => FindError::Several(several),
    })
}

/// A session of codemie's own.
pub fn session(view: &View<'_>, wanted: &str, origin: &Origin) -> Result<SessionRow, FindError> {
    match find(view, wanted, origin)? {
        Found::Session(row) => Ok(*row),
        Found::Unwrapped(foreign) => Err(FindError::Unwrapped(foreign)),
    }
}

/// Names offered instead of one that does not exist.
const OFFERED: usize = 5;

fn unknown(wanted: &str, resembling: &[String]) -> String {
    let next = if resembling.is_empty() {
        "`codemie list --all` shows every session".to_owned()
    } else {
        format!("did you mean {}?", resembling.join(", "))
    };
    format!(
        "there is no session {wanted:?}; {next} (give the name or an id, or at least the first 4 characters of it)"
    )
}

/// Names that begin with it, then names that contain it, then names that differ from it by one or two typing errors.
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
                // In a short word everything is one typing error away from everything.
                let errors = edit_distance(&wanted, &lower);
                (errors <= 2 && errors * 3 <= wanted.chars().count()).then_some(1 + errors)?
            };
            Some((rank, name))
        })
        .collect();
    // Among equals the newest first, as they came.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().take(OFFERED).map(|(_, name)| name).collect()
}

/// Letters to insert, delete or change until one word is the other (Levenshtein).
fn edit_distance(one: &str, other: &str) -> usize {
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
    fn a_mistyped_name_is_answered_with_the_names_it_resembles() {
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
        let message = unknown("fix", &["fix-auth.2".into(), "fix-auth".into()]);
        assert!(message.contains("did you mean fix-auth.2, fix-auth?"), "{message}");
        assert!(unknown("zzz", &[]).contains("codemie list --all"));
    }

    #[test]
    fn each_failure_has_its_own_error() {
        use store::session::lifecycle::ConversationStart;
        use store::session::testing::World;

        let mut world = World::new();
        for name in ["fix-auth", "docs"] {
            let mut begin = world.begin(ConversationStart::Fresh);
            begin.name = Some(name.into());
            world.start_as(&begin);
        }
        let nowhere = Origin::given([], "/".into());
        let mut find = |wanted: &str| world.store.read(|view| session(view, wanted, &nowhere));
        assert_eq!(find("docs").unwrap().name, "docs");
        assert!(matches!(
            find("fix-atuh"),
            Err(FindError::Unknown { resembling, .. }) if resembling == ["fix-auth"]
        ));
        assert_eq!(find("fix-").unwrap().name, "fix-auth", "a unique beginning suffices");
        assert!(matches!(find("zzzz"), Err(FindError::Unknown { resembling, .. }) if resembling.is_empty()));
    }
}
