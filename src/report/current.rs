//! The session that a process runs inside of, after any number of `/clear`s.

use crate::launch::{Origin, RUN_VARIABLE, SESSION_VARIABLE};
use crate::store::{self, SessionRow, View};

/// What a process's variables say of the run it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunMarks {
    run: Option<String>,
    session: Option<String>,
}

impl RunMarks {
    /// `None` where the variables name no run.
    pub fn of(origin: &Origin) -> Option<Self> {
        let text = |name| origin.var(name)?.into_string().ok().filter(|value| !value.is_empty());
        let marks = Self { run: text(RUN_VARIABLE), session: text(SESSION_VARIABLE) };
        (marks.run.is_some() || marks.session.is_some()).then_some(marks)
    }

    /// As an error names it.
    pub fn id(&self) -> &str {
        self.run.as_deref().or(self.session.as_deref()).unwrap_or_default()
    }
}

/// The run knows the session it is in now. The session it began with is older than the last `/clear`, but leads to the run.
pub fn current(view: &View<'_>, marks: &RunMarks) -> Result<Option<SessionRow>, store::Error> {
    if let Some(run) = marks.run.as_ref().and_then(|run| run.parse().ok())
        && let Some(row) = view.current(run)?
    {
        return Ok(Some(row));
    }
    let first = marks.session.as_ref().and_then(|id| id.parse().ok());
    let Some(first) = first.map(|id| view.session(id)).transpose()?.flatten() else { return Ok(None) };
    let run = first.run.map(|run| view.run_number(run)).transpose()?.flatten();
    let now_in = run.and_then(|run| run.session).map(|n| view.session_number(n)).transpose()?.flatten();
    Ok(Some(now_in.unwrap_or(first)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::lifecycle::ConversationStart;
    use crate::session::tests::World;

    fn marks(run: &str, session: &str) -> Option<RunMarks> {
        let vars = [(RUN_VARIABLE.into(), run.into()), (SESSION_VARIABLE.into(), session.into())];
        RunMarks::of(&Origin::given(vars, "/".into()))
    }

    #[test]
    fn either_variable_leads_to_the_session() {
        let mut world = World::new();
        let (run, started) = world.start(ConversationStart::Fresh);
        let (run, session) = (run.to_string(), started.session.to_string());
        let other = "00000000-0000-4000-8000-000000000009";
        for (run, session, found) in [
            (run.as_str(), session.as_str(), true),
            (&run, "", true),
            ("", &session, true),
            (other, &session, true),
            (other, other, false),
            ("x", "y", false),
        ] {
            let marks = marks(run, session).unwrap();
            let row = world.store.read(|view| current(view, &marks)).unwrap();
            assert_eq!(row.map(|row| row.id), found.then_some(started.session), "{marks:?}");
        }
        assert_eq!(marks("", ""), None);
    }
}
