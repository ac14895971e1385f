//! What the tests of all crates share; a dev-dependency only.
//!
//! A test that cannot run where it is started says so ([`left_out`]), so that it is counted as left out and not as passed.
//! `CODEMIE_TEST_REQUIRE=1` makes that a failure: `tests/run.sh` sets it where it could install everything the tests need.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "the tests open what they made"))]

use std::io::Write;

use rustix::process::{Uid, geteuid};

/// Reports that this test was not run. It is written past the test harness's capture, or nobody would see it.
///
/// # Panics
/// Where nothing may be left out.
pub fn left_out(reason: &str) {
    // tests/each.sh passes the name; a harness that runs one test alone does not name its thread after it.
    let name = std::env::var("CODEMIE_TEST_NAME").ok();
    let name = name.or_else(|| std::thread::current().name().map(str::to_owned)).unwrap_or_default();
    assert!(std::env::var_os("CODEMIE_TEST_REQUIRE").is_none(), "{name} must not be left out, but {reason}");
    let _ = std::io::stderr().write_all(format!("left out: {name}: {reason}\n").as_bytes());
}

/// The user that tests become when they are started by root: any number that is not root's and owns nothing.
const ORDINARY_USER: u32 = 54_321;

/// Runs a test as a user to whom files can be forbidden: as it is, or where root started it, on a thread that has become
/// [`ORDINARY_USER`]. (On Linux a user belongs to a thread, and threads that it starts inherit it.) What the test needs it
/// makes itself, in a temporary folder.
///
/// # Panics
/// If the test does.
pub fn as_ordinary_user(test: impl FnOnce() + Send + 'static) {
    if !geteuid().is_root() {
        return test();
    }
    let user = Uid::from_raw(ORDINARY_USER);
    let outcome = std::thread::spawn(move || match become_user(user) {
        Ok(()) => {
            test();
            None
        }
        Err(error) => Some(format!("root cannot become another user here: {error}")),
    });
    match outcome.join() {
        Ok(None) => {}
        Ok(Some(reason)) => left_out(&reason),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

#[cfg(target_os = "linux")]
fn become_user(user: Uid) -> std::io::Result<()> {
    Ok(rustix::thread::set_thread_res_uid(user, user, user)?)
}

#[cfg(not(target_os = "linux"))]
fn become_user(_: Uid) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_can_be_forbidden_to_an_ordinary_user() {
        as_ordinary_user(|| {
            assert!(!geteuid().is_root());
            let name = format!("codemie-testing-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
            let read = fs::read(&path);
            fs::remove_file(&path).unwrap();
            assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        });
    }

    #[test]
    #[should_panic(expected = "what it found")]
    fn a_failure_as_an_ordinary_user_is_a_failure() {
        as_ordinary_user(|| panic!("what it found"));
    }
}
