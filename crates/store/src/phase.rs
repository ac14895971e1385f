//! How far a stored session has got, and how its agent ended.

use serde::{Deserialize, Serialize};
use types::{as_word, spelled};

spelled!(
    /// Whether a session is going on. A provisional one is, but may yet turn out to be another.
    Phase { Provisional = "provisional", Open = "open", Closed = "closed" }
);
as_word!(Phase);

/// How the agent's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}
