//! Which versions take an id, and which keep their first one.

use crate::kit::version::major_and_minor;

/// Measured to take `--session-id`: 0.51.0, 0.61.0; 0.40.1 does not. Later ones of this major version count, too; a new
/// major version is a new program.
const FIRST_WITH_SESSION_ID: (u64, u64) = (0, 51);

/// Measured to give a conversation its new id only with the second `/clear`: 0.20.2, 0.27.4, 0.30.1, 0.33.2; no longer 0.35.3.
const LAST_TO_KEEP_ITS_ID: (u64, u64) = (0, 33);

/// Whether a version (`0.61.0`, `0.62.0-preview.1`) is known to take the flag.
pub(super) fn takes_session_id(version: &str) -> bool {
    major_and_minor(version)
        .is_some_and(|numbers| numbers.0 == FIRST_WITH_SESSION_ID.0 && numbers >= FIRST_WITH_SESSION_ID)
}

/// Whether the first `/clear` of a run goes on under the id that the conversation before it has: the recorder is set up again
/// before the program has chosen another id. In the same minute it is the same file, later another one with the same id.
pub(super) fn keeps_its_first_id(version: &str) -> bool {
    major_and_minor(version).is_some_and(|numbers| numbers <= LAST_TO_KEEP_ITS_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_take_an_id_are_known() {
        for (version, takes) in [
            ("0.61.0", true),
            ("0.61.3", true),
            ("0.70.0-nightly.20261201", true),
            ("0.51.0", true),
            ("0.50.9", false),
            ("0.40.1", false),
            ("1.0.0", false),
            ("0.61", false),
            ("", false),
            ("latest", false),
        ] {
            assert_eq!(takes_session_id(version), takes, "{version}");
        }
    }

    #[test]
    fn versions_whose_first_clear_keeps_the_id_are_known() {
        for (version, keeps) in [
            ("0.20.2", true),
            ("0.30.1", true),
            ("0.40.1", false),
            ("0.61.0", false),
            ("1.0.0", false),
            ("", false),
        ] {
            assert_eq!(keeps_its_first_id(version), keeps, "{version}");
        }
    }
}
