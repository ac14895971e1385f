//! Which versions take what.

/// The version known to take `--session-id`. It takes any later one of this major version, too; a new major version is a new
/// program.
const FIRST_WITH_SESSION_ID: (u64, u64) = (0, 61);

/// Whether a version (`0.61.0`, `0.62.0-preview.1`) is known to take the flag.
pub(super) fn takes_session_id(version: &str) -> bool {
    let mut parts = version.splitn(3, '.').map(|part| part.parse::<u64>().ok());
    match (parts.next().flatten(), parts.next().flatten(), parts.next()) {
        (Some(major), Some(minor), Some(_)) => {
            major == FIRST_WITH_SESSION_ID.0 && (major, minor) >= FIRST_WITH_SESSION_ID
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_take_the_flag() {
        for (version, takes) in [
            ("0.61.0", true),
            ("0.61.3", true),
            ("0.70.0-nightly.20261201", true),
            ("0.60.9", false),
            ("1.0.0", false),
            ("0.61", false),
            ("", false),
            ("latest", false),
        ] {
            assert_eq!(takes_session_id(version), takes, "{version}");
        }
    }
}
