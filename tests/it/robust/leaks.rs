//! Many runs in a row: nothing may pile up.
use crate::support::processes;
use crate::support::pty::Exit;
use crate::support::wrapper::Bench;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(super) fn many_runs_leave_nothing_behind(bench: &Bench) {
    let runs = if std::env::var_os("CODEMIE_TEST_FULL").is_some() { 1000 } else { 100 };
    let tmp = bench.home().join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    // The shell is the long-lived parent. The first two runs make the files that are there to stay.
    let script = format!(
        "{{}}; {{}}; echo two; read go; for n in $(seq 3 {runs}); do {{}} || exit 9; done; echo all; read end"
    );
    let terminal = bench.start_in(&script, &["true"]).env("TMPDIR", &tmp).spawn();
    let mark = terminal.wait_after(0, "two\r\n");
    let (files, descriptors) = (files_in(bench.home()), descriptors_of(terminal.pid()));
    terminal.type_line("");
    terminal.wait_after(mark, "all\r\n");

    assert_eq!(descriptors_of(terminal.pid()), descriptors);
    let children = processes::processes().into_iter().filter(|process| process.parent == terminal.pid());
    assert_eq!(children.count(), 0, "a zombie");
    assert_eq!(processes_of(bench), [terminal.pid()], "somebody is still there");
    assert_eq!(std::fs::read_dir(&tmp).unwrap().count(), 0);
    assert_eq!(files_in(bench.home()), files);
    terminal.type_line("");
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
}

fn descriptors_of(pid: i32) -> BTreeSet<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(Result::ok);
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Everybody who was started with this test's home folder in the environment.
fn processes_of(bench: &Bench) -> Vec<i32> {
    let ours = |pid: i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        memchr::memmem::find(&environment, bench.home().as_os_str().as_bytes()).is_some()
    };
    processes::processes().into_iter().map(|process| process.pid).filter(|pid| ours(*pid)).collect()
}

/// All files below, but for the one that each session has by right, and what SQLite makes and removes as it likes.
fn files_in(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap().filter_map(Result::ok) {
        let path = entry.path();
        let name = path.to_string_lossy().into_owned();
        if path.ends_with("metrics/sessions") || name.ends_with("-wal") || name.ends_with("-shm") {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            found.append(&mut files_in(&path));
        }
        found.insert(name);
    }
    found
}
