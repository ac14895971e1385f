//! An agent that starts itself again within a run, with the same arguments, and refuses the id among them because the id is
//! used already: Gemini CLI does so after some settings change. Without codemie it would simply run on.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::sandbox::{CODEMIE, Sandbox, TOOLS};
use crate::support::pty::{Exit, Start};

/// Where it has been given an id, it has talked under it and refuses it; else it says how it was called.
const AGENT: &str = r#"#!/bin/sh
if [ "$1" = --session-id ]; then
  chats="$HOME/.gemini/tmp/project/chats"
  mkdir -p "$chats"
  printf '{"sessionId":"%s","projectHash":"h","startTime":"2026-11-16T00:00:00.000Z","kind":"main"}\n' "$2" \
    > "$chats/session-2026-11-16T00-00-$(printf %.8s "$2").jsonl"
  echo "Error starting session: Session ID already exists."
  exit 42
fi
echo "called with [$*], told [${CODEMIE_STARTED_ANEW-nothing}]"
exit 7
"#;

#[test]
fn an_agent_that_refuses_the_id_we_gave_it_is_started_without_one() {
    let sandbox = Sandbox::new();
    let package = sandbox.path("node_modules/@google/gemini-cli");
    fs::create_dir_all(package.join("bundle")).unwrap();
    fs::write(package.join("package.json"), r#"{"name":"@google/gemini-cli","version":"0.61.0"}"#).unwrap();
    let program = package.join("bundle/gemini");
    fs::write(&program, AGENT).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let start = |arguments: &[&str]| {
        let argv = [CODEMIE, "gemini"].iter().chain(arguments);
        let start =
            Start::new(argv).env_clear().cwd(sandbox.home()).env("PATH", TOOLS).env("HOME", sandbox.home());
        start.env("CODEMIE_REAL_GEMINI", &program).env("CODEMIE_QUIET", "1").spawn()
    };
    let talking = start(&["hello", "there"]);
    talking.wait_text("called with [hello there], told [nothing]");
    assert_eq!(talking.wait_exit(), Exit::Code(7));

    // What was asked once is not asked again.
    let printing = start(&["-p", "hello"]);
    assert_eq!(printing.wait_exit(), Exit::Code(42));
    assert!(!printing.text().contains("called with"), "{}", printing.text());
}
