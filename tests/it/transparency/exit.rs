//! How the command ends, and that what it said last is heard.
use crate::support::processes;
use crate::support::pty::Exit;
use crate::support::wrapper::Bench;

pub(super) fn exit_code(bench: &Bench) {
    for code in [0, 1, 7, 125, 255] {
        let terminal = bench.start(&["sh", "-c", &format!("exit {code}")]).spawn();
        assert_eq!(terminal.wait_exit(), Exit::Code(code));
        assert_eq!(terminal.text(), "");
    }
}

/// A shell reports a bare command that died of signal n as 128+n; of a wrapper it is the exit code.
pub(super) fn death_by_signal(bench: &Bench) {
    for (name, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139), ("INT", 130)] {
        let command = ["sh", "-c", &format!("ulimit -c 0; kill -{name} $$")];
        let terminal = bench.start_in("{}; exit $?", &command).spawn();
        // The outer shell of an interrupted command may end by the signal itself, which says the same.
        assert_eq!(terminal.wait_exit().shell_code(), code, "SIG{name}");
    }
}

pub(super) fn missing_command(bench: &Bench) {
    let terminal =
        bench.start_in("exec {}", &["no-such-command"]).modes(super::ending::unusual_modes).spawn();
    let exit = terminal.wait_exit();
    assert_eq!(exit, Exit::Code(127));
    assert!(terminal.text().contains("no-such-command"), "no message: {}", terminal.text());
    super::ending::assert_modes_as_before(&terminal);
}

/// A burst larger than the PTY's buffer, then exit at once. Forty times, because what is lost here is lost in a race.
pub(super) fn last_output_arrives(bench: &Bench) {
    let expected: String = (1..=3000).map(|n| format!("{n}\r\n")).chain(["the end".to_owned()]).collect();
    for run in 0..40 {
        let terminal = bench.start(&["sh", "-c", "seq 3000; printf 'the end'"]).spawn();
        assert_eq!(terminal.wait_exit(), Exit::Code(0));
        let got = terminal.bytes();
        assert!(
            got == expected.as_bytes(),
            "run {run}: {} of {} bytes, {}",
            got.len(),
            expected.len(),
            terminal.text()
        );
    }
}

/// The job holds the terminal open and outlives the command, as a daemon started by an agent would.
pub(super) fn background_job_does_not_hold_exit(bench: &Bench) {
    let terminal = bench.start(&["sh", "-c", "trap '' HUP; sleep 60 & echo job $!.; exit 3"]).spawn();
    let start = terminal.wait_after(0, "job ");
    let (job, _) = terminal.number_after(start, ".");
    assert_eq!(terminal.wait_exit(), Exit::Code(3));
    assert!(processes::alive(job), "the wrapper waited for the background job, or killed it");
}
