//! The API against its own description: schemathesis makes requests out of `/openapi.json`, right and wrong ones, and
//! checks every answer.
use std::path::{Path, PathBuf};
use std::process::Command;

use super::events::{life, session};
use super::nodes::{Process, tokens};
use crate::support::agents::left_out;

/// As many requests per route as tests/run.sh has time for.
const EXAMPLES: &str = "60";
const EXAMPLES_FULL: &str = "1000";

fn program() -> PathBuf {
    let folder = std::env::var_os("CODEMIE_TEST_SCHEMATHESIS").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/schemathesis"));
    folder.join("bin/schemathesis")
}

#[test]
fn every_answer_is_as_described() {
    if !program().exists() {
        left_out("schemathesis is not installed under target/schemathesis (tests/run.sh does it)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let node = Process::start(home, None);
    let made = tokens(home);
    let token = made["admin"].as_str().unwrap();
    // Something to be found.
    for number in 1..=3 {
        assert_eq!(node.client(token).post_events(&life(&session(number), "widgets")).status, 200);
    }
    let full = std::env::var_os("CODEMIE_TEST_FULL").is_some();
    let output = Command::new(program())
        .current_dir(home)
        .arg("run")
        .arg(format!("http://{}/openapi.json", node.address))
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--checks", "all", "--phases", "examples,coverage,fuzzing"])
        // The stream never ends by itself; it has a test of its own.
        .args(["--exclude-path", "/v1/live"])
        .args(["--max-examples", if full { EXAMPLES_FULL } else { EXAMPLES }])
        .args(["--seed", "1", "--generation-deterministic", "--request-timeout", "20", "--no-color"])
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{report}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(!std::fs::read_to_string(&node.log).unwrap().contains("\"level\":\"error\""), "{report}");
}
