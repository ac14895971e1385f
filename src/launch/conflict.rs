//! A conversation that is to be continued while it runs elsewhere: what to do about the run there. Pure.

use wire::{Pid, ProcessId};

/// What to do if the session is running already: `--on-conflict`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Report it and do nothing.
    #[default]
    Fail,
    /// Connect to it. There are no background sessions yet, so it is refused.
    Attach,
    /// End it, then continue here.
    Takeover,
    /// Continue in a copy.
    Fork,
}

/// How to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No run is in it.
    Continue,
    /// In a copy of the conversation; the other run goes on.
    Fork,
    /// After these wrappers have ended.
    TakeOver(Vec<ProcessId>),
}

/// The session runs, and the user has not chosen what to do about it, or chose what cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    #[error(
        "{name} is running (pid {pid}); end it first, or use --on-conflict takeover or --on-conflict fork"
    )]
    Running { name: String, pid: Pid },
    #[error(
        "{name} runs in a terminal of its own (pid {pid}), which cannot be connected to; go there, or use --on-conflict takeover or fork"
    )]
    Foreground { name: String, pid: Pid },
}

/// `running`: the wrappers that are alive in the session now.
pub fn decide(wanted: OnConflict, name: &str, running: Vec<ProcessId>) -> Result<Decision, Conflict> {
    let Some(first) = running.first() else { return Ok(Decision::Continue) };
    let (name, pid) = (name.to_owned(), first.pid);
    match wanted {
        OnConflict::Fail => Err(Conflict::Running { name, pid }),
        OnConflict::Attach => Err(Conflict::Foreground { name, pid }),
        OnConflict::Fork => Ok(Decision::Fork),
        OnConflict::Takeover => Ok(Decision::TakeOver(running)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::StartTime;

    #[test]
    fn a_session_that_runs_is_left_alone_unless_the_user_chose_otherwise() {
        let wrapper = ProcessId { pid: Pid(4242), start: StartTime(1) };
        let name = || "fix-auth".to_owned();
        let pid = wrapper.pid;
        for (wanted, running, expected) in [
            (OnConflict::Fail, vec![], Ok(Decision::Continue)),
            (OnConflict::Fork, vec![], Ok(Decision::Continue)),
            (OnConflict::Takeover, vec![], Ok(Decision::Continue)),
            (OnConflict::Fail, vec![wrapper], Err(Conflict::Running { name: name(), pid })),
            (OnConflict::Attach, vec![wrapper], Err(Conflict::Foreground { name: name(), pid })),
            (OnConflict::Fork, vec![wrapper], Ok(Decision::Fork)),
            (OnConflict::Takeover, vec![wrapper; 2], Ok(Decision::TakeOver(vec![wrapper; 2]))),
        ] {
            assert_eq!(decide(wanted, "fix-auth", running.clone()), expected, "{wanted:?} {running:?}");
        }
    }
}
