//! Many runs in a row: nothing may pile up.
use crate::support::processes;
use crate::support::pty::Exit;
use crate::support::wrapper::Bench;
use std::collections::BTreeSet;
use std::path::Path;

pub(super) fn many_runs_leave_nothing_behind(bench: &Bench) {
    let runs = if std::env::var_os("CODEMIE_TEST_FULL").is_some() { 1000 } else { 100 };
    let tmp = bench.home().join("tmp");
    std::fs::create_dir(&tmp).unwrap();
    // The shell is the long-lived parent. The first two runs make the files that are there to stay.
    let script = format!(
        "{{}}; {{}}; echo two; read go; for n in $(seq 3 {runs}); do {{}} || exit 9; echo n $n.; done; echo all; read end"
    );
    let terminal = bench.start_in(&script, &["true"]).env("TMPDIR", &tmp).spawn();
    let mark = terminal.wait_after(0, "two\r\n");
    let (files, descriptors) = (files_in(bench.home()), descriptors_of(terminal.pid()));
    terminal.type_line("");
    let mark = (3..=runs).fold(mark, |mark, n| terminal.wait_after(mark, format!("n {n}.\r\n")));
    terminal.wait_after(mark, "all\r\n");

    assert_eq!(descriptors_of(terminal.pid()), descriptors);
    let children = processes::processes().into_iter().filter(|process| process.parent == terminal.pid());
    assert_eq!(children.count(), 0, "a zombie");
    assert_eq!(processes::started_in(bench.home()), [terminal.pid()], "somebody is still there");
    assert_eq!(std::fs::read_dir(&tmp).unwrap().count(), 0);
    assert_eq!(files_in(bench.home()), files);
    terminal.type_line("");
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
}

fn descriptors_of(pid: i32) -> BTreeSet<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().filter_map(Result::ok);
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// All files below, but for the one that each session has by right, and what SQLite makes and removes as it likes.
fn files_in(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap().filter_map(Result::ok) {
        let path = entry.path();
        let name = path.to_string_lossy().into_owned();
        let of_a_session =
            folder.ends_with("metrics/sessions") && path.extension().is_some_and(|end| end == "json");
        if of_a_session || name.ends_with("-wal") || name.ends_with("-shm") {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            found.append(&mut files_in(&path));
        }
        found.insert(name);
    }
    found
}
