//! What a session that waits for its user shows: its screen, and the dialog on it.

use std::time::Duration;

use serde::Serialize;

use os::home::Home;
use runtime::remote::protocol::{Dialog, FromHost, ToHost};
use runtime::remote::{Connection, RemoteError, address};
use types::{Activity, LiveState, RunId};

/// How long a host may take for each of its answers. It answers from memory; this bounds one that is stopped.
const WITHIN: Duration = Duration::from_secs(2);

/// The screen of a session whose agent asks something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Question {
    /// Its rows, without blank ones at the end.
    pub screen: Vec<String>,
    /// `None`: what is asked cannot be read off the screen.
    pub dialog: Option<Dialog>,
}

/// Whether an agent in this state waits for its user.
pub fn asks(state: &LiveState) -> bool {
    matches!(state.is, Activity::NeedsInput | Activity::Dialog)
}

impl Question {
    /// Of the first of these runs that asks something; `None`: none of them does, or no host serves it.
    pub fn of_runs(home: &Home, runs: &[RunId]) -> Option<Self> {
        runs.iter().filter(|run| address::exists(home, **run)).find_map(|run| ask(home, *run).ok().flatten())
    }
}

fn ask(home: &Home, run: RunId) -> Result<Option<Question>, RemoteError> {
    let mut connection = Connection::open_within(home, run, WITHIN)?;
    let mut ask = |question: &ToHost| {
        connection.say(question)?;
        connection.hear(Some(WITHIN))
    };
    let FromHost::State(state) = ask(&ToHost::State)? else { return Err(Connection::unexpected()) };
    if !asks(&state) {
        return Ok(None);
    }
    let FromHost::Screen(screen) = ask(&ToHost::Screen)? else { return Err(Connection::unexpected()) };
    let mut rows = screen.rows;
    rows.truncate(rows.iter().rposition(|row| !row.trim().is_empty()).map_or(0, |last| last + 1));
    Ok(Some(Question { screen: rows, dialog: screen.dialog }))
}
