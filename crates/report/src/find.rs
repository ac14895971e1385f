//! The session that a person names on the command line, searched in the store and the agents' files, or an error that
//! suggests names. The order of the search is [`lookup`]'s.

use agents::{UnwrappedConversation, registry};
use format::shell;
use os::home::Home;
use runtime::launch::Origin;
use runtime::remote::address;
use store::session::lineage::Lineage;
use store::session::lookup;
use store::session::lookup::{Found, LookupError, Scan};
use store::{BootAndPidNs, RunRow, SessionQuery, SessionRow, Show, View};
use types::{RunId, SessionId};

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
        LookupError::Unknown(_) => match view.list(&SessionQuery::showing(Show::All)) {
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

// The session that a process runs inside of, after any number of `/clear`s.

/// The run knows the session it is in now; the variables of its processes name the one it began with.
pub fn current(view: &View<'_>, lineage: &Lineage) -> Result<Option<SessionRow>, store::Error> {
    let live = view.live_runs()?;
    lineage
        .enclosing(&live, &BootAndPidNs::here())
        .map(|run| view.current(run.id))
        .transpose()
        .map(Option::flatten)
}

// Where a live command (`attach`, `send`, `wait`, `stop`) goes: from the session that a person names to the run it is in now.

/// A session and what goes on in it.
#[derive(Clone, Debug)]
pub struct LiveTarget {
    /// The session that is meant: the one that was named, or the one its run is in now.
    pub session: SessionRow,
    /// The session that was named, where its run has left it by `/clear` or a switch.
    pub redirected_from: Option<SessionId>,
    /// `None`: the session has ended.
    pub run: Option<RunRow>,
    /// The run it is in, or was in last.
    pub last_run: Option<RunId>,
}

impl LiveTarget {
    /// Of several runs in one session, one in the background is meant: only that one can be spoken to.
    pub fn of(view: &View<'_>, home: &Home, named: SessionRow) -> Result<Self, store::Error> {
        let runs = view.live_runs_in(named.n)?;
        let hosted = runs.iter().rev().find(|run| address::exists(home, run.id)).cloned();
        if let Some(run) = hosted.or_else(|| runs.into_iter().next_back()) {
            let last_run = Some(run.id);
            return Ok(Self { session: named, redirected_from: None, run: Some(run), last_run });
        }
        let left = named.run.map(|run| view.run_number(run)).transpose()?.flatten();
        let last_run = left.as_ref().map(|run| run.id);
        let left = left.filter(|run| run.ended_at.is_none());
        let now_in = left.as_ref().and_then(|run| run.session).map(|n| view.session_number(n));
        match (left, now_in.transpose()?.flatten()) {
            (Some(run), Some(session)) => {
                Ok(Self { session, redirected_from: Some(named.id), run: Some(run), last_run })
            }
            _ => Ok(Self { session: named, redirected_from: None, run: None, last_run }),
        }
    }
}

/// Where a session without a host runs, for people: `in the terminal /dev/pts/3 (process 4242)`.
pub fn where_it_runs(run: &RunRow) -> String {
    let pid = run.wrapper.pid;
    let terminal = std::fs::read_link(format!("/proc/{pid}/fd/0")).ok();
    match terminal.filter(|path| path.starts_with("/dev")) {
        Some(terminal) => format!("in the terminal {} (process {pid})", terminal.display()),
        None => format!("in a terminal of its own (process {pid})"),
    }
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

#[cfg(test)]
mod live_target_tests {
    use super::*;
    use store::session::lifecycle::{self, ConversationStart, Transition};
    use store::session::state::{Ending, Exit};
    use store::session::testing::World;
    use types::{RandomIds, Timestamp, TransitionKind};

    #[test]
    fn a_session_that_its_run_has_left_leads_to_the_one_it_is_in_now() {
        let mut world = World::new();
        let home = Home::at("/nonexistent");
        let (run, first) = world.start(ConversationStart::Fresh);
        let target = |world: &mut World, id: SessionId| {
            world
                .store
                .read(|view| LiveTarget::of(view, &home, view.session(id)?.unwrap()))
                .unwrap_or_else(|error: store::Error| panic!("{error}"))
        };
        let own = target(&mut world, first.session);
        assert_eq!((own.session.id, own.redirected_from), (first.session, None));
        assert_eq!(own.run.map(|run| run.id), Some(run));

        let at = Timestamp(1_768_135_100_000);
        let clear = Transition { kind: TransitionKind::Clear, binding: None, workspace: None };
        let second = world
            .store
            .write(|tx| lifecycle::transition(tx, at, &RandomIds, run, &clear))
            .unwrap()
            .new
            .session;
        let moved = target(&mut world, first.session);
        assert_eq!((moved.session.id, moved.redirected_from), (second, Some(first.session)));
        assert_eq!(moved.run.map(|run| run.id), Some(run));

        world.store.write(|tx| lifecycle::end(tx, at, run, Ending::exited(Exit::Code(0)))).unwrap();
        for id in [first.session, second] {
            let ended = target(&mut world, id);
            assert_eq!((ended.session.id, ended.redirected_from), (id, None));
            assert!(ended.run.is_none());
        }
    }
}
