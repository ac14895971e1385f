//! Labels, prune, export and import.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::{Value, json};
use store::session::lifecycle::RunStart;

use super::{DAY, World};
use crate::sandbox::{CODEMIE, TOOLS, output_of};
use crate::support::pty::{Exit, Start};

#[test]
fn names_tags_and_groups_are_changed_and_published() {
    let mut world = World::new();
    let run = world.start("fix-auth");
    let id = run.session.to_string();
    world.publish();
    let published = |world: &World| -> Value {
        serde_json::from_str(&std::fs::read_to_string(world.published(run.session)).unwrap()).unwrap()
    };

    assert_eq!(world.out(&["rename", "fix-auth", "fix-login"]), "fix-auth is now fix-login\n");
    world.fails(&["show", "fix-auth"], 3, "fix-auth");
    assert_eq!(published(&world)["name"], "fix-login");
    world.start("other");
    world.fails(&["rename", "fix-login", "other"], 1, "taken");
    world.fails(&["rename", "fix-login", "a/b"], 2, "slash");
    world.fails(&["rename", "fix-login", ""], 2, "empty");

    assert_eq!(world.out(&["tag", &id[..8], "b", "a"]), "fix-login: tags a, b\n");
    assert_eq!(published(&world)["tags"], json!(["a", "b"]));
    assert_eq!(world.out(&["untag", "fix-login", "a"]), "fix-login: tags b\n");
    world.fails(&["untag", "fix-login", "b", "a"], 1, "no tag \"a\"");
    assert_eq!(published(&world)["tags"], json!(["b"]), "all or nothing");
    assert_eq!(world.out(&["untag", "fix-login", "b"]), "fix-login: no tags\n");
    world.fails(&["tag", "fix-login", "bad\ttag"], 2, "control character");
    world.fails(&["tag", "fix-login"], 2, "TAG");

    assert_eq!(world.out(&["group", "fix-login", "sprint 12"]), "fix-login is in group sprint 12\n");
    assert_eq!(published(&world)["group"], "sprint 12");
    assert_eq!(world.out(&["group", "fix-login", "--none"]), "fix-login is in no group\n");
    assert_eq!(published(&world)["group"], json!(null));
    world.fails(&["group", "fix-login"], 2, "GROUP");
}

#[test]
fn archived_sessions_are_out_of_sight_and_can_be_found() {
    let mut world = World::new();
    for name in ["one", "two", "three"] {
        let run = world.start(name);
        world.end(run, 0);
    }
    world.out(&["archive", "one", "two"]);
    assert_eq!(world.listed(&[]), ["three"]);
    assert!(world.out(&["show", "one"]).contains("archived"));
    world.fails(&["archive", "three", "nobody"], 3, "nobody");
    assert_eq!(world.listed(&[]), ["three"], "all or nothing");
    world.out(&["unarchive", "one"]);
    assert_eq!(world.listed(&[]), ["three", "one"]);
}

#[test]
fn prune_tells_first_and_removes_then() {
    let mut world = World::new();
    world.now.0 -= 100 * DAY;
    let old = world.start("old");
    world.bind(old, "gone-one", None);
    world.call(old, "m1", "claude-sonnet-4-5", Some(1));
    world.end(old, 0);
    world.now.0 += 100 * DAY;
    let young = world.start("young");
    world.end(young, 0);
    world.publish();

    let told = world.json(&["prune", "--older-than", "90d", "--dry-run", "--json"]);
    assert_eq!(told["dryRun"], true);
    assert_eq!(
        (&told["sessions"][0]["name"], told["sessions"].as_array().unwrap().len()),
        (&json!("old"), 1)
    );
    let text = world.out(&["prune", "--older-than", "90d", "--dry-run"]);
    assert!(text.contains("1 session that ended before") && text.contains("would be removed"), "{text}");
    assert_eq!(world.listed(&[]), ["young", "old"], "nothing happened yet");
    assert!(world.published(old.session).exists());

    let text = world.out(&["prune", "--older-than", "90d"]);
    assert!(text.contains("old") && text.contains("removed."), "{text}");
    assert_eq!(world.listed(&["--all"]), ["young"]);
    assert!(!world.published(old.session).exists() && world.published(young.session).exists());
    assert!(world.out(&["prune", "--older-than", "2020-01-01"]).contains("Nothing to remove"));
    world.fails(&["prune"], 2, "--older-than");
    world.fails(&["prune", "--older-than", "90"], 2, "7d");
}

#[test]
fn prune_on_a_terminal_shows_what_goes_and_asks() {
    let mut world = World::new();
    world.now.0 -= 100 * DAY;
    let old = world.start("old");
    world.end(old, 0);
    let start = |args: &[&str]| {
        let argv = [CODEMIE, "prune", "--older-than", "90d"].iter().chain(args);
        let home = world.sandbox.home();
        Start::new(argv).env_clear().cwd(home).env("PATH", TOOLS).env("HOME", home).spawn()
    };
    let asked = start(&[]);
    asked.wait_text("Remove 1 session? [y/N]");
    assert!(asked.text().contains("old") && asked.text().contains("cost stay in"), "{}", asked.text());
    asked.type_line("");
    asked.wait_text("Nothing was removed.");
    assert_eq!(asked.wait_exit(), Exit::Code(1));
    assert_eq!(start(&["--dry-run"]).wait_exit(), Exit::Code(0));
    assert_eq!(world.listed(&[]), ["old"]);
    let asked = start(&[]);
    asked.wait_text("Remove 1 session? [y/N]");
    asked.type_line("y");
    asked.wait_text("1 session that ended before");
    assert_eq!(asked.wait_exit(), Exit::Code(0));
    assert_eq!(world.listed(&["--all"]), Vec::<String>::new());
    assert_eq!(start(&["--yes"]).wait_exit(), Exit::Code(0), "nothing is asked");
}

#[test]
fn what_is_not_delivered_is_not_pruned() {
    let mut world = World::new();
    world.now.0 -= 100 * DAY;
    let old = world.start("old");
    world.end(old, 0);
    world.store.write(|tx| tx.add_sink("backend")).unwrap();
    world.store.write(|tx| tx.backfill("backend")).unwrap();
    let told = world.json(&["prune", "--older-than", "90d", "--json"]);
    assert_eq!((told["sessions"].as_array().unwrap().len(), &told["kept"]), (0, &json!(1)));
    assert_eq!(world.listed(&[]), ["old"]);
    let text = world.out(&["prune", "--older-than", "90d"]);
    let why = "Why: codemie sync --status";
    assert_eq!(text, format!("Not yet removed, because not all of it is delivered: 1 session. {why}\n"));
    // The demonstration's are sent to nobody, so nobody has to get them first.
    let demo = world.start_as(&RunStart { agent: "demo".into(), local_only: true, ..World::begin("demo") });
    world.end(demo, 0);
    assert!(world.out(&["prune", "--agent", "demo"]).contains("1 session of demo that ended removed."));
    assert_eq!(world.listed(&["--all"]), ["old"]);
}

#[test]
fn an_export_that_was_tampered_with_breaks_nothing() {
    let mut here = World::new();
    let first = here.start("fix-auth");
    here.bind(first, "7a276c6b-one", None);
    here.call(first, "m1", "claude-sonnet-4-5", Some(2_000_000_000));
    here.call(first, "m2", "claude-sonnet-4-5", Some(2_000_000_000));
    here.end(first, 0);
    let export = here.json(&["export", "fix-auth"]);
    let import = |there: &World, change: &dyn Fn(&mut serde_json::Value)| {
        let mut export = export.clone();
        change(&mut export["sessions"][0]);
        let file = there.sandbox.file("x.json", &export.to_string());
        output_of(there.command(&["import"]).arg(file))
    };
    // A call at no date is none.
    let there = World::new();
    let result = import(&there, &|session| session["records"][1]["at"] = json!(1_i64 << 62));
    assert_eq!(result.code, Some(0), "{result:?}");
    assert_eq!(there.json(&["usage", "--json"])["total"]["apiCalls"], 1);
    // Nobody else's id, and none that could not be asked for.
    for id in ["../../../pwned", "5e551011-0000-4000-8000-000000000001", "\u{1b}[31mEVIL"] {
        let there = World::new();
        import(&there, &|session| {
            session["session"]["sessionId"] = json!(id);
            session["aliases"] = json!(if id.contains("-4000-") { vec![id] } else { Vec::new() });
        });
        assert_eq!(
            there.json(&["list", "--json"])[0]["sessionId"],
            json!(first.session.to_string()),
            "{id:?}"
        );
    }
    let there = World::new();
    for change in ["openedAt", "reason"] {
        let wrong = if change == "reason" { json!("\u{1b}]0;pwned\u{7}") } else { json!(i64::MAX) };
        let result = import(&there, &|session| session["openings"][0][change] = wrong.clone());
        assert_eq!(result.code, Some(1), "{result:?}");
        assert!(!result.err.trim_end().contains(char::is_control), "{result:?}");
    }
    assert_eq!(there.listed(&["--all"]), [""; 0]);
}

#[test]
fn an_export_taken_in_elsewhere_is_the_same() {
    let mut here = World::new();
    let first = here.start_as(&RunStart {
        tags: vec!["bug".into()],
        group: Some("g".into()),
        ..World::begin("fix-auth")
    });
    here.bind(first, "7a276c6b-one", None);
    here.call(first, "m1", "claude-sonnet-4-5", Some(2_000_000_000));
    let second = here.clear(first, "7a276c6b-two");
    here.end(second, 3);
    let file = here.sandbox.path("sessions.json");
    let path = file.to_str().unwrap();
    let result = here.run(&["export", "fix-auth", "fix-auth.2", &first.session.to_string(), "-o", path]);
    assert_eq!((result.code, result.out.as_str()), (Some(0), ""), "{result:?}");
    assert!(result.err.contains("2 sessions"), "named twice is once: {result:?}");
    let mode = file.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "it holds paths, as the store does");
    assert_eq!(here.out(&["export", "fix-auth"]).lines().next(), Some("{"), "without -o on standard output");

    let there = World::new();
    let report = there.json(&["import", path, "--json"]);
    assert_eq!((report["imported"].as_array().unwrap().len(), &report["known"]), (2, &json!(0)));
    for name in ["fix-auth", "fix-auth.2"] {
        let record = |world: &World| {
            let mut record = world.json(&["show", name, "--json"]);
            // What the wrapper's machine knows and a copy does not.
            for key in ["pid", "wrapperPid", "runId", "sync"] {
                record[key].take();
            }
            record
        };
        assert_eq!(record(&there), record(&here), "{name}");
    }
    assert!(there.out(&["import", path]).contains("0 sessions imported, 2 already here."));
}

#[test]
fn an_import_does_what_it_can_and_says_what_it_could_not() {
    let mut here = World::new();
    here.start("fix-auth");
    let export = here.sandbox.path("sessions.json");
    here.run(&["export", "fix-auth", "-o", export.to_str().unwrap()]);
    let nonsense = here.sandbox.file("nonsense.json", "{}");

    let there = World::new();
    let result = output_of(there.command(&["import"]).arg("/does/not/exist").arg(&nonsense).arg(&export));
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(result.out.contains("1 session imported"), "{result:?}");
    assert_eq!(result.err.matches("/does/not/exist").count(), 1, "{result:?}");
    assert!(result.err.contains("nonsense.json"), "{result:?}");
    assert_eq!(there.listed(&[]), ["fix-auth"]);
}

#[test]
fn an_export_goes_through_a_pipe() {
    let mut here = World::new();
    here.start("fix-auth");
    let mut export = here.command(&["export", "fix-auth"]).stdout(Stdio::piped()).spawn().unwrap();
    let there = World::new();
    let result = output_of(there.command(&["import", "-"]).stdin(export.stdout.take().unwrap()));
    assert!(export.wait().unwrap().success());
    assert_eq!((result.code, result.err.as_str()), (Some(0), ""), "{result:?}");
    assert_eq!(there.listed(&[]), ["fix-auth"]);
    let result = output_of(there.command(&["import", "-"]).stdin(Stdio::null()));
    assert_eq!(result.code, Some(1), "nothing is no export: {result:?}");
}
