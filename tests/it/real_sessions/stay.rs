//! What changes a conversation without leaving it.

use std::fs;

use super::scene::Scene;
use crate::support::fake_api::Kind;
use crate::support::pty::Exit;

on_both_versions!(sub_agents_compaction_and_another_folder);

fn sub_agents_compaction_and_another_folder(scene: &Scene) {
    let elsewhere = scene.stage.home.project().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let claude = scene.start(&[]);
    claude.prompt("one [subagent look around]");
    claude.prompt("two");
    let since = scene.stage.api.log().calls.len();
    claude.command("/compact");
    claude.wait_call("the summary", since, |call| call.kind == Kind::Compact);
    claude.wait_ready();
    claude.prompt("three");
    let before = claude.session();
    claude.command("/cd elsewhere");
    scene.wait("the file in its new place", |records| {
        let now = records.iter().find(|record| record.session_id == before.session_id)?;
        (now.correlation.agent_session_file != before.correlation.agent_session_file).then_some(())
    });
    claude.wait_ready();
    claude.prompt("four");
    claude.clear();
    claude.prompt("five");
    assert_eq!(claude.exit(), Exit::Code(0));
    scene.expect(&[
        "A startup by assigned [one [subagent look around] | two | three | four] clear -> B",
        "B clear from A by registry [five] exit 0",
    ]);
    for session in scene.recorded() {
        assert_eq!(
            session.record.working_directory,
            elsewhere.to_str().unwrap(),
            "where it is to be resumed"
        );
    }
    let log = scene.stage.api.log();
    assert!(log.calls.iter().any(|call| call.kind == Kind::Subagent && call.recorded()), "{log}");
}
