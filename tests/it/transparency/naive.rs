//! Proof that the checks can fail: two bad wrappers against all of them.
use super::CHECKS;
use crate::support::pty::TIMEOUT;
use crate::support::wrapper::{Bench, Wrapper};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

/// Where the wrapper that people write first differs from the bare command: half of the 22, and why each.
const NAIVE_FAILS: [(&str, &str); 11] = [
    ("death_by_signal", "portable-pty keeps a text of the signal, its exit code is 1"),
    ("missing_command", "an error like any other: 1"),
    ("arguments_environment_folder", "portable-pty sets SHELL"),
    ("inherited_descriptor", "portable-pty closes every descriptor above 2"),
    ("ignored_hangup_stays_ignored", "portable-pty resets it"),
    ("piped_stdio_is_untouched", "a PTY whatever stdin and stdout are"),
    ("background_job_does_not_hold_exit", "waits for the end of the output"),
    ("modes_restored_after_sigterm", "restores on its way out, which it does not come to"),
    ("suspend_by_sigstop", "does not look for stopped children"),
    ("suspend_by_sigtstp", "the command's group is orphaned, the kernel drops the signal"),
    ("suspend_by_control_z", "the same"),
];

/// Most failures are a wait in vain, so the checks run beside each other, and those that are to fail give up early.
/// The others have the usual time: 22 checks at once, on two processors that may have more to do, are slow.
const EARLY: Duration = Duration::from_secs(10);

#[test]
fn naive_wrapper_fails_half_of_the_checks() {
    let failed = failures(Wrapper::Naive, fails_naively);
    let mut expected = NAIVE_FAILS.map(|(name, _)| name);
    expected.sort_unstable();
    assert_eq!(failed, expected);
}

/// The careless wrapper fails where the naive one passes, so that no check is left that has never failed.
#[test]
fn every_check_fails_for_somebody() {
    let failed = failures(Wrapper::Careless, |_| true);
    let passed: Vec<&str> = CHECKS
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| !failed.contains(name) && !fails_naively(name))
        .collect();
    assert!(passed.is_empty(), "nobody fails {passed:?}");
}

fn fails_naively(name: &str) -> bool {
    NAIVE_FAILS.iter().any(|(fails, _)| *fails == name)
}

/// Runs all checks, prints what became of each, and returns the names of those that failed, sorted.
fn failures(wrapper: Wrapper, is_to_fail: fn(&str) -> bool) -> Vec<&'static str> {
    let runs = CHECKS.map(|(name, check)| {
        let run = thread::spawn(move || {
            let timeout = if is_to_fail(name) { EARLY } else { TIMEOUT };
            let bench = Bench::with_timeout(wrapper, timeout);
            catch_unwind(AssertUnwindSafe(|| check(&bench)))
        });
        (name, run)
    });
    let mut failed = Vec::new();
    for (name, run) in runs {
        let passed = run.join().unwrap().is_ok();
        println!("{wrapper:?} {name:34} {}", if passed { "passes" } else { "fails" });
        if !passed {
            failed.push(name);
        }
    }
    failed.sort_unstable();
    failed
}
