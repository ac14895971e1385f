//! How a session stands, in one word: the same one in tables, sheets and pages.

use types::{EndReason, Status};

/// Its status, or how it came to it where that says more. Programs read both, apart from each other.
pub fn word(status: Status, reason: Option<EndReason>) -> &'static str {
    match (status, reason) {
        (Status::Active, _) => status.as_str(),
        (_, Some(EndReason::Stopped)) => "stopped",
        (Status::Completed, Some(EndReason::Clear)) => "cleared",
        (Status::Completed, Some(EndReason::Switch)) => "switched",
        _ => status.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_shown_where_it_says_more_than_the_status() {
        for (status, reason, expected) in [
            (Status::Active, None, "active"),
            (Status::Active, Some(EndReason::Clear), "active"),
            (Status::Completed, None, "completed"),
            (Status::Completed, Some(EndReason::Exit), "completed"),
            (Status::Completed, Some(EndReason::Clear), "cleared"),
            (Status::Completed, Some(EndReason::Switch), "switched"),
            (Status::Completed, Some(EndReason::Stopped), "stopped"),
            (Status::Failed, Some(EndReason::Stopped), "stopped"),
            (Status::Failed, Some(EndReason::Exit), "failed"),
            (Status::Failed, Some(EndReason::Signal), "failed"),
            (Status::Interrupted, Some(EndReason::Crash), "interrupted"),
        ] {
            assert_eq!(word(status, reason), expected, "{status} {reason:?}");
        }
    }
}
