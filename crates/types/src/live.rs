//! What a running session does at this moment (`state` of the record). Computed when it is asked for, never stored.

use serde::{Deserialize, Serialize};

use super::Timestamp;
use crate::spelled;

spelled!(
    /// What the agent does. `Unknown` is the default: everything else needs proof.
    Activity {
        /// It runs and has not shown anything to type into yet.
        Starting = "starting",
        /// It asks something before a conversation can go on: trust, update, login, a menu.
        Dialog = "dialog",
        Working = "working",
        /// In the middle of a turn it waits for the user: a permission or a question.
        NeedsInput = "needs-input",
        /// The last turn is over, and the next prompt can be typed.
        Idle = "idle",
        Unknown = "unknown",
    }
);
spelled!(
    /// Where the knowledge of a state comes from.
    StateSource {
        /// What the agent itself publishes about its process.
        Registry = "registry",
        SessionFile = "session-file",
        /// A control sequence with which the agent reports its state to the terminal.
        Sequence = "osc",
        Screen = "screen",
        Process = "process",
    }
);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveState {
    pub is: Activity,
    /// Since when it is known to be so.
    pub since: Timestamp,
    /// In words, for people.
    pub why: String,
    pub source: Option<StateSource>,
}

spelled!(
    /// What `wait` can wait for, and what `notify.command` is run for.
    Moment {
        TurnEnd = "turn-end",
        NeedsInput = "needs-input",
        Exit = "exit",
    }
);

spelled!(
    /// What became of a text that was sent to a session.
    Delivery {
        /// It left the place where prompts are typed.
        Accepted = "accepted",
        /// The agent is busy and has taken it for later.
        Queued = "queued",
        /// It stands in the conversation's file.
        TurnStarted = "turn_started",
        /// Nothing was typed, or what was typed was taken back.
        Rejected = "rejected",
        /// Time was up before there was proof of anything.
        Unknown = "unknown",
    }
);
