//! Which options a version of Codex takes.

use crate::kit::version::major_and_minor;

/// The first that takes `--no-daemon`, and the first that starts a shared server by itself: 0.155.1 does neither. Its own
/// pre-releases were not looked at.
const FIRST_WITH_NO_DAEMON: (u64, u64) = (0, 156);

/// Whether this version takes `-c`: it is as old as the program, except for the first weeks before that was rewritten.
pub(super) fn takes_config_flag(version: &str) -> bool {
    !version.starts_with("0.0.") && !version.starts_with("0.1.")
}

/// Whether this version takes `--no-daemon`; one that does not would refuse to start with it. A new major version is a new
/// program.
pub(super) fn takes_no_daemon(version: &str) -> bool {
    major_and_minor(version).is_some_and(|numbers| {
        let first = numbers == FIRST_WITH_NO_DAEMON && !version.contains('-');
        first || numbers > FIRST_WITH_NO_DAEMON && numbers.0 == FIRST_WITH_NO_DAEMON.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_take_the_options_are_known() {
        for (version, config_flag, no_daemon) in [
            ("0.169.0", true, true),
            ("0.166.0", true, true),
            ("0.157.0-alpha.3", true, true),
            ("0.156.0", true, true),
            ("0.156.0-alpha.3", true, false),
            ("0.155.1", true, false),
            ("0.60.1", true, false),
            ("0.1.2504301751", false, false),
            ("1.0.0", true, false),
            ("latest", true, false),
            ("", true, false),
        ] {
            assert_eq!(
                (takes_config_flag(version), takes_no_daemon(version)),
                (config_flag, no_daemon),
                "{version}"
            );
        }
    }
}
