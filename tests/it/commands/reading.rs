//! list, show, explain, current, usage.

use std::process::Stdio;

use codemie::cli::{CommandLine, parse};
use serde_json::json;
use store::session::lifecycle::{ConversationStart, RunStart};
use types::Timestamp;
use types::{AgentSessionId, Ids as _, RandomIds};
use types::{Evidence, EvidenceVerdict};

use super::{DAY, Given, Run, World, gone};
use crate::sandbox::{CODEMIE, Sandbox, output_of};
use crate::support::pty::Start;

#[test]
fn a_home_without_a_store_says_what_to_do_next_and_stays_empty() {
    let sandbox = Sandbox::new();
    let before = sandbox.tree();
    for (args, word) in [
        (&["list"][..], "codemie claude"),
        (&["list", "--active"], "codemie claude"),
        (&["list", "--tag", "x"], "codemie list --all"),
        (&["usage"], "codemie claude"),
        (&["prune", "--older-than", "90d"], "Nothing to remove"),
    ] {
        let result = output_of(&mut sandbox.codemie(args));
        assert_eq!(result.code, Some(0), "{result:?}");
        assert!(result.out.contains(word), "{args:?}: {result:?}");
    }
    let list = output_of(&mut sandbox.codemie(&["list", "--json"]));
    assert_eq!((list.code, list.out.as_str()), (Some(0), "[]\n"));
    assert_eq!(sandbox.tree(), before, "a question makes no store");
}

#[test]
fn a_home_that_can_be_none_is_an_error() {
    let sandbox = Sandbox::new();
    for command in ["list", "usage"] {
        let result = output_of(sandbox.codemie(&[command]).env("CODEMIE_HOME", "/dev/null"));
        assert_eq!((result.code, result.out.as_str()), (Some(1), ""), "{result:?}");
        assert!(result.err.contains("/dev/null is not a folder"), "{result:?}");
    }
}

#[test]
fn a_damaged_store_is_told_of_once_by_whoever_speaks_first() {
    let sandbox = Sandbox::new();
    let damage = || {
        assert_eq!(output_of(&mut sandbox.codemie(&["--name", "keepme", "run", "--", "true"])).code, Some(0));
        for beside in ["codemie.db-wal", "codemie.db-shm"] {
            let _ = std::fs::remove_file(sandbox.path(".codemie").join(beside));
        }
        sandbox.file(".codemie/codemie.db", "garbage");
    };
    for args in [&["list"][..], &["usage"], &["show", "keepme"], &["run", "--", "true"]] {
        damage();
        let result = output_of(&mut sandbox.codemie(args));
        assert!(
            result.err.contains("the database was damaged, and a new one was made: "),
            "{args:?}: {result:?}"
        );
        assert!(
            result.err.contains("set aside as ") && result.err.contains("codemie.db.damaged-"),
            "{result:?}"
        );
        assert_eq!(output_of(&mut sandbox.codemie(&["list"])).err, "", "once");
    }
}

#[test]
fn the_list_is_newest_first_and_narrowed_by_what_is_asked() {
    let mut world = World::new();
    let mut begin = World::begin("old");
    begin.agent = "codex".into();
    begin.workspace.project = Some("other".into());
    world.now.0 -= 30 * DAY;
    let old = world.start_as(&begin);
    world.end(old, 1);
    world.now.0 += 30 * DAY;
    let tagged = world.start_as(&RunStart {
        tags: vec!["bug".into()],
        group: Some("g".into()),
        ..World::begin("tagged")
    });
    world.end(tagged, 0);
    let running = world.start("running");
    let next = world.clear(running, "second");
    let demo = world.start_as(&RunStart { agent: "demo".into(), local_only: true, ..World::begin("demo") });
    world.end(demo, 0);
    world.out(&["archive", "tagged"]);

    let all = ["demo", "running.2", "running", "tagged", "old"];
    for (args, expected) in [
        (&["--all"][..], &all[..]),
        (&[], &["demo", "running.2", "running", "old"]),
        (&["--active"], &["running.2"]),
        (&["--agent", "codex"], &["old"]),
        (&["--project", "widgets", "--all"], &["demo", "running.2", "running", "tagged"]),
        (&["--project", "acme/widgets", "--active"], &["running.2"]),
        (&["--project", "/home/dev/widgets", "--active"], &["running.2"]),
        (&["--tag", "bug"], &[]),
        (&["--tag", "bug", "--all"], &["tagged"]),
        (&["--group", "g", "--all"], &["tagged"]),
        (&["--since", "7d"], &["demo", "running.2", "running"]),
        (&["-n", "2"], &["demo", "running.2"]),
        (&["--limit", "0", "--all"], &all),
        (&["--since", "yesterday"], &["demo", "running.2", "running"]),
        (&["--since", "40d"], &["demo", "running.2", "running", "old"]),
        (&["--since", "2020-01-01", "--agent", "codex"], &["old"]),
    ] {
        assert_eq!(world.listed(args), expected, "list {args:?}");
    }
    let records = world.json(&["list", "--active", "--json"]);
    let record = &records[0];
    assert_eq!(record["sessionId"], next.session.to_string());
    assert_eq!(record["transitionedFrom"], running.session.to_string());
    assert_eq!((&record["status"], &record["endTime"]), (&json!("active"), &json!(null)));
    let ended = world.json(&["list", "--agent", "codex", "--json"]);
    assert_eq!(ended[0], world.json(&["show", "old", "--json"]), "list and show tell the same");

    world.fails(&["list", "--all", "--active"], 2, "cannot be used with");
    world.fails(&["list", "--since", "tomorrow"], 2, "7d");
    world.fails(&["prune", "--agent", "codex"], 2, "--older-than");
    world.fails(&["show", "runing"], 3, "did you mean running?");
    assert!(world.out(&["list", "-n", "1"]).contains("… 3 more, `--limit 0` shows all"));
}

#[test]
fn the_list_fits_the_terminal_and_is_coloured_only_there() {
    let mut world = World::new();
    let failed = world.start("a-name-of-quite-some-length-for-a-session");
    world.bind(failed, "one", None);
    world.call(failed, "m1", "claude-sonnet-4-5", Some(2_000_000_000));
    world.end(failed, 3);
    world.start("claude-2611160731.2");
    let gone =
        RunStart { run: store::NewRun { wrapper: gone(), ..World::begin("x").run }, ..World::begin("lost") };
    world.start_as(&gone);

    let on = |columns: u16, more: &[(&str, &str)]| {
        let start = Start::new([CODEMIE, "list"]).env("HOME", world.sandbox.home()).size(24, columns);
        let terminal = more.iter().fold(start, |start, (name, value)| start.env(*name, *value)).spawn();
        assert_eq!(terminal.wait_exit().shell_code(), 0, "{}", terminal.text());
        (terminal.text(), terminal.bytes())
    };
    let (text, bytes) = on(80, &[]);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(lines.len(), 4, "one line each, none folded:\n{text}");
    for word in ["STATUS", "failed", "active", "interrupted", "widgets", "$0.0020", "claude-2611160731.2"] {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
    // By how much is told by the time beside it: in the first hour of a day these sessions are yesterday's, dated and all.
    let long = lines[3].split_whitespace().next().unwrap();
    assert!(long.starts_with("a-name-of-quite-") && long.ends_with('…'), "shortened to fit:\n{text}");
    assert!(text.contains(&failed.session.to_string()[..8]), "the id to name it by:\n{text}");
    for (colour, word) in [("31", "failed"), ("32", "active"), ("33", "interrupted")] {
        let painted = format!("\x1b[{colour}m{word}");
        assert!(bytes.windows(painted.len()).any(|part| part == painted.as_bytes()), "{word}:\n{text}");
    }
    let (_, plain) = on(80, &[("NO_COLOR", "1")]);
    assert!(!plain.contains(&0x1b));
    let (narrow, _) = on(50, &[]);
    assert_eq!(narrow.lines().filter(|line| !line.trim().is_empty()).count(), 4, "{narrow}");
    let piped = world.out(&["list"]);
    assert!(
        !piped.contains('\x1b') && piped.contains("a-name-of-quite-some-length-for-a-session"),
        "{piped}"
    );
}

#[test]
fn what_vanished_is_ended_before_anything_is_told() {
    let mut world = World::new();
    let begin = World::begin("lost");
    let lost =
        world.start_as(&RunStart { run: store::NewRun { wrapper: gone(), ..begin.run.clone() }, ..begin });
    let record = world.json(&["show", "lost", "--json"]);
    assert_eq!((&record["status"], &record["endReason"]), (&json!("interrupted"), &json!("crash")));
    let published = std::fs::read_to_string(world.published(lost.session)).unwrap();
    assert!(published.contains("interrupted"), "{published}");
    assert!(world.listed(&["--active"]).is_empty());
}

#[test]
fn a_session_is_found_by_all_its_names() {
    let mut world = World::new();
    let first = world.start_with(&World::begin("first"), &Given("aaaa1111-0000-4000-8000-000000000001"));
    world.bind(first, "7a276c6b-agent", None);
    world.start_with(&World::begin("second"), &Given("aaaa2222-0000-4000-8000-000000000002"));
    for wanted in ["aaaa1111-0000-4000-8000-000000000001", "first", "7a276c6b-agent", "aaaa1", "7a27"] {
        assert_eq!(world.json(&["show", wanted, "--json"])["name"], "first", "{wanted}");
    }
    world.fails(&["show", "aaaa"], 4, "aaaa1111-0000-4000-8000-000000000001  first");
    world.fails(&["show", "aaaa"], 4, "aaaa2222-0000-4000-8000-000000000002  second");
    for command in ["show", "view", "explain", "archive", "unarchive", "export"] {
        world.fails(&[command, "nobody"], 3, "codemie list --all");
    }
    world.fails(&["rename", "nobody", "x"], 3, "nobody");
    world.fails(&["show"], 2, "SESSION");
}

#[test]
fn show_tells_the_whole_story_to_a_person() {
    let mut world = World::new();
    let first = world.start("fix-auth");
    world.bind(first, "7a276c6b-one", None);
    world.call(first, "m1", "claude-sonnet-4-5", Some(2_000_000_000));
    let second = world.clear(first, "7a276c6b-two");
    let third = world.clear(second, "7a276c6b-three");
    let text = world.out(&["show", "fix-auth.2"]);
    for word in [
        "fix-auth.2  cleared",
        &second.session.to_string(),
        "claude 2.1.197",
        "/home/dev/widgets",
        "widgets · acme/widgets · main",
        "fix-auth → [fix-auth.2] → fix-auth.3",
        "7a276c6b-two",
        "by what its process shows (registry)",
        "no backend is set up",
    ] {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
    let text = world.out(&["show", &first.session.to_string()]);
    assert!(text.contains("$0.0020") && text.contains("[fix-auth] → fix-auth.2 → fix-auth.3"), "{text}");
    let text = world.out(&["show", &third.session.to_string()[..8]]);
    assert!(text.contains("fix-auth.3  active") && !text.contains("ended"), "{text}");
}

#[test]
fn a_switch_back_and_forth_is_a_chain_that_ends() {
    let mut world = World::new();
    let run = world.start("there");
    world.bind(run, "one", None);
    let away = world.clear(run, "two");
    let back = world.clear(away, "one");
    assert_eq!(back.session, run.session, "the same conversation is the same session");
    let text = world.out(&["show", "there"]);
    assert!(text.contains("there.2 → [there]"), "{text}");
    world.out(&["explain", "there"]);
}

#[test]
fn a_resumed_session_keeps_its_chain_and_the_evidence_of_every_run() {
    let mut world = World::new();
    let note = |detail: &str, source: &str, verdict| Evidence {
        at: Timestamp(1_794_819_900_000),
        source: source.into(),
        verdict,
        agent_session_id: None,
        detail: detail.into(),
    };
    let noted = |world: &mut World, run: Run, one: &Evidence| {
        world.store.write(|tx| tx.note_evidence(run.session, run.id, one)).unwrap();
    };
    let first = world.start("fix-auth");
    noted(&mut world, first, &note("added: --session-id one-1", "arguments", EvidenceVerdict::Noted));
    world.bind(first, "one-1", None);
    noted(
        &mut world,
        first,
        &note("two-2: another id in the registry", "registry", EvidenceVerdict::Accepted),
    );
    let second = world.clear(first, "two-2");
    world.end(second, 0);
    let mut begin = World::begin("ignored");
    begin.name = None;
    begin.conversation = ConversationStart::Named(AgentSessionId("two-2".into()));
    let resumed = world.start_as(&begin);
    assert_eq!(resumed.session, second.session);
    noted(
        &mut world,
        resumed,
        &note("two-2: the id stands in the arguments", "assigned", EvidenceVerdict::Accepted),
    );

    let text = world.out(&["show", "fix-auth.2"]);
    assert!(text.contains("fix-auth → [fix-auth.2]"), "{text}");
    let account = world.json(&["explain", "fix-auth.2", "--json"]);
    let runs = [json!(first.id), json!(resumed.id)];
    assert_eq!([&account["runs"][0]["runId"], &account["runs"][1]["runId"]], [&runs[0], &runs[1]]);
    let seen: Vec<_> = account["evidence"].as_array().unwrap().iter().map(|seen| &seen["runId"]).collect();
    assert_eq!(seen, [&runs[0], &runs[1]], "{account}");
    assert_eq!(account["additions"][0]["runId"], runs[0], "{account}");
    assert_eq!(account["follows"]["name"], "fix-auth");
    let text = world.out(&["explain", "fix-auth.2"]);
    assert!(text.contains("It follows fix-auth") && text.contains("by clear"), "{text}");

    // The other way round: who is gone on with knows where it once led.
    world.end(resumed, 0);
    begin.run.id = RandomIds.run();
    begin.conversation = ConversationStart::Named(AgentSessionId("one-1".into()));
    world.start_as(&begin);
    let text = world.out(&["show", "fix-auth"]);
    assert!(text.contains("[fix-auth] → fix-auth.2"), "{text}");
}

#[test]
fn explain_tells_what_was_added_seen_and_rejected() {
    let mut world = World::new();
    let run = world.start("fix-auth");
    let note = |at, source: &str, verdict, detail: &str| Evidence {
        at,
        source: source.into(),
        verdict,
        agent_session_id: None,
        detail: detail.into(),
    };
    let at = world.now;
    let notes = [
        note(at, "arguments", EvidenceVerdict::Noted, "added: --session-id 7a276c6b"),
        note(at, "registry", EvidenceVerdict::Rejected, "0badf00d: another process wrote it"),
        note(
            at,
            "registry",
            EvidenceVerdict::Accepted,
            "7a276c6b: names the conversation of this very process",
        ),
        note(
            at,
            "registry",
            EvidenceVerdict::Accepted,
            "9b8dbe46: changed to a conversation that has no file yet",
        ),
    ];
    world
        .store
        .write(|tx| notes.iter().try_for_each(|one| tx.note_evidence(run.session, run.id, one)))
        .unwrap();
    world.bind(run, "7a276c6b", None);
    let next = world.clear(run, "9b8dbe46");

    let account = world.json(&["explain", "fix-auth", "--json"]);
    assert_eq!(account["correlation"]["evidence"], "registry");
    assert_eq!(account["additions"].as_array().unwrap().len(), 1);
    let verdicts: Vec<_> = account["evidence"]
        .as_array()
        .unwrap()
        .iter()
        .map(|seen| seen["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["rejected", "accepted", "accepted"], "in order");
    let text = world.out(&["explain", "fix-auth"]);
    for word in ["Bound to 7a276c6b", "added: --session-id", "rejected  registry  0badf00d: another process"]
    {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }

    let account = world.json(&["explain", &next.session.to_string(), "--json"]);
    assert_eq!(
        (&account["follows"]["name"], &account["follows"]["endReason"]),
        (&json!("fix-auth"), &json!("clear"))
    );
    assert_eq!(account["additions"].as_array().unwrap().len(), 1, "of the process, which is the same");
    assert_eq!(account["evidence"].as_array().unwrap().len(), 1, "what led here");
}

#[test]
fn the_current_session_is_that_of_the_run_after_any_number_of_clears() {
    let mut world = World::new();
    let run = world.start("inside");
    world.bind(run, "one", None);
    let second = world.clear(run, "two");
    let third = world.clear(second, "three");
    let inside = |variables: &[(&str, String)]| {
        let mut command = world.command(&["current", "--json"]);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        output_of(&mut command)
    };
    let (run_id, first) = (run.id.to_string(), run.session.to_string());
    for variables in [
        &[("CODEMIE_RUN_ID", run_id.clone()), ("CODEMIE_SESSION_ID", first.clone())][..],
        &[("CODEMIE_RUN_ID", run_id.clone())],
        &[("CODEMIE_SESSION_ID", first.clone())],
        &[("CODEMIE_RUN_ID", "nonsense".into()), ("CODEMIE_SESSION_ID", first.clone())],
        // Its ancestor is the wrapper, whatever is handed down in variables.
        &[],
        &[("CODEMIE_RUN_ID", "9f3c77aa-0000-4000-8000-000000000009".into())],
    ] {
        let result = inside(variables);
        assert_eq!(result.code, Some(0), "{variables:?}: {result:?}");
        let record: serde_json::Value = serde_json::from_str(&result.out).unwrap();
        assert_eq!(record["sessionId"], third.session.to_string(), "{variables:?}");
    }
    let result = output_of(world.command(&["current"]).env("CODEMIE_RUN_ID", &run_id));
    assert!(result.out.contains("inside.3") && result.out.contains(&third.session.to_string()), "{result:?}");
    world.end(third, 0);
    for variables in [&[][..], &[("CODEMIE_RUN_ID", run_id)]] {
        let mut command = world.command(&["current", "--json"]);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let result = output_of(&mut command);
        assert_eq!((result.code, result.out.as_str()), (Some(3), ""), "{variables:?}: {result:?}");
        assert!(result.err.contains("inside no session"), "{result:?}");
    }
}

#[test]
fn usage_adds_up_and_names_what_has_no_price() {
    let mut world = World::new();
    world.now.0 -= world.now.0.rem_euclid(DAY) + DAY / 2; // a noon: no day ends between two calls
    let first = world.start("first");
    world.bind(first, "7a276c6b-one", None);
    world.call(first, "m1", "claude-sonnet-4-5", Some(2_000_000_000));
    world.call(first, "m2", "brand-new", None);
    let second = world.clear(first, "7a276c6b-two");
    world.call(second, "m3", "claude-sonnet-4-5", Some(2_000_000_000));
    let demo = world.start_as(&RunStart { agent: "demo".into(), local_only: true, ..World::begin("demo") });
    world.bind(demo, "play", None);
    world.call(demo, "m4", "claude-sonnet-4-5", Some(2_000_000_000));

    let report = world.json(&["usage", "--by", "session", "--json"]);
    assert_eq!(report["by"], "session");
    let rows = report["rows"].as_array().unwrap();
    let keys: Vec<_> = rows.iter().map(|row| row["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["7a276c6b-one", "7a276c6b-two"], "the demo's are play money");
    assert_eq!(
        rows[0],
        json!({"key": "7a276c6b-one", "agent": "claude", "inputTokens": 20, "outputTokens": 40,
            "cacheReadTokens": 2000, "cacheWriteTokens": 200, "reasoningTokens": 0, "apiCalls": 2, "costUsd": 0.002,
            "unpricedModels": ["brand-new"], "name": "first", "sessionId": rows[0]["sessionId"], "project": "widgets",
            "startTime": rows[0]["startTime"]})
    );
    assert!(rows[0]["sessionId"].is_string() && rows[0]["startTime"].is_i64());
    assert_eq!((&report["total"]["apiCalls"], &report["total"]["costUsd"]), (&json!(3), &json!(0.004)));
    assert_eq!((&report["unreadableLines"], &report["files"]), (&json!(0), &json!(4)));

    for (by, keys) in [("model", 2), ("project", 1), ("agent", 1), ("branch", 1), ("day", 1)] {
        let report = world.json(&["usage", "--by", by, "--json"]);
        assert_eq!((&report["by"], report["rows"].as_array().unwrap().len()), (&json!(by), keys), "{by}");
        assert_eq!(report["total"]["inputTokens"], 30, "{by}");
    }
    let since = world.json(&["usage", "--since", "1m", "--json"]);
    assert_eq!((since["rows"].as_array().unwrap().len(), &since["total"]["apiCalls"]), (0, &json!(0)));

    let text = world.out(&["usage", "--by", "session"]);
    for word in ["first.2", "total", "$0.0040+", "No price is known for brand-new"] {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
    let csv = world.out(&["usage", "--by", "model", "--csv"]);
    assert!(csv.starts_with("key,agent,inputTokens,"), "{csv}");
    assert!(csv.contains("\nclaude-sonnet-4-5,claude,20,40,2000,200,0,2,0.004,,false\n"), "{csv}");
    world.fails(&["usage", "--json", "--csv"], 2, "cannot be used with");
    world.fails(&["usage", "--by", "colour"], 2, "possible values");
}

#[test]
fn whoever_has_read_enough_may_leave() {
    let mut world = World::new();
    for n in 0..200 {
        let run = world.start(&format!("session-{n}"));
        world.end(run, 0);
    }
    let mut child =
        world.command(&["list", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
}

#[test]
fn words_of_ours_are_not_taken_for_agents() {
    let line = ["show", "claude"].map(std::ffi::OsString::from).to_vec();
    assert!(matches!(parse(line), Ok(CommandLine::Manage(_))), "a session may be called claude");
}
