//! What is printed cannot steer the terminal it is printed on, nor a spreadsheet.

use serde_json::Value;
use store::session::lifecycle::RunStart;

use super::{bounded, sources};
use crate::commands::World;
use crate::sandbox::{CODEMIE, Sandbox, output_of};
use crate::support::pty::{Exit, Start};

const EVIL: &str = "a\u{202e}b\u{9b}31mc";

fn evil_world() -> World {
    let mut world = World::new();
    let mut begin = World::begin("fix-auth");
    begin.workspace.project = Some(EVIL.into());
    begin.workspace.branch = Some("=HYPERLINK(1)".into());
    let run = world.start_as(&RunStart { tags: vec!["ok".into()], ..begin });
    world.bind(run, "7a276c6b-d81e", None);
    world.call(run, "msg_1", EVIL, None);
    world.end(run, 0);
    world
}

fn harmful(text: &str) -> bool {
    text.chars().any(|letter| letter != '\n' && format::text::is_harmful(letter))
}

#[test]
fn names_from_outside_are_shown_and_not_obeyed() {
    let world = evil_world();
    for args in [
        &["list", "--all"][..],
        &["list", "--json"],
        &["show", "fix-auth"],
        &["show", "fix-auth", "--json"],
        &["explain", "fix-auth"],
        &["explain", "fix-auth", "--json"],
        &["usage"],
        &["usage", "--by", "project"],
        &["usage", "--by", "model", "--json"],
        &["usage", "--by", "project", "--csv"],
        &["prune", "--older-than", "1s", "--dry-run"],
        &["prune", "--older-than", "1s", "--dry-run", "--json"],
        &["sync", "preview"],
        &["export", "fix-auth"],
    ] {
        let result = world.run(args);
        assert_eq!(result.code, Some(0), "{result:?}");
        assert!(!harmful(&result.out) && !harmful(&result.err), "codemie {args:?}: {result:?}");
    }
    let record = world.json(&["show", "fix-auth", "--json"]);
    assert_eq!(record["project"], EVIL, "JSON means what it is");
    let export: Value = world.json(&["export", "fix-auth"]);
    assert_eq!(export["sessions"][0]["session"]["project"], EVIL);
}

#[test]
fn a_spreadsheet_takes_no_branch_for_a_formula() {
    let world = evil_world();
    let csv = world.out(&["usage", "--by", "branch", "--csv"]);
    assert!(csv.contains("\n\"'=HYPERLINK(1)\",,10,20,") || csv.contains("\n\"'=HYPERLINK(1)\","), "{csv}");
    assert!(!csv.contains("\n="), "{csv}");
}

#[test]
fn an_import_prints_no_file_name_as_it_is() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("ev\x1b]0;owned\x07il\u{202e}.json", "no json");
    let result = output_of(&mut bounded(&sandbox, &["import", file.to_str().unwrap()]));
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(
        !harmful(&result.err) && result.err.contains("owned il\u{fffd}.json was not imported"),
        "{result:?}"
    );
}

#[test]
fn a_terminal_is_not_steered_by_whatever_is_forgotten() {
    // The settings' own path is printed as it is, for scripts; on a terminal nothing passes.
    let sandbox = Sandbox::new();
    let home = sandbox.path("ho\x1b]0;owned\x07me\u{9b}");
    let terminal = Start::new([CODEMIE, "config", "path"]).env("CODEMIE_HOME", &home).spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(0));
    let bytes = terminal.bytes();
    let shown = String::from_utf8_lossy(&bytes).into_owned();
    assert!(!shown.contains(['\x1b', '\x07', '\u{9b}']) && shown.contains("owned"), "{shown:?}");
    let result = output_of(sandbox.codemie(&["config", "path"]).env("CODEMIE_HOME", &home));
    assert_eq!(result.out, format!("{}\n", home.join("config.toml").display()), "a script gets the path");
}

#[test]
fn completions_offer_agents_where_an_agent_is_asked_for() {
    let sandbox = Sandbox::new();
    for (shell, offered) in [
        ("bash", "compgen -W \"claude codex gemini qwen demo\""),
        ("zsh", ":AGENT:(claude codex gemini qwen demo)'"),
        ("fish", "-l agent -d 'Only of this agent' -r -f -a \"claude"),
    ] {
        let script = output_of(&mut sandbox.codemie(&["completions", shell])).out;
        assert!(
            script.contains(offered),
            "{shell}: {:?}",
            script.lines().find(|line| line.contains("-l agent"))
        );
    }
    let result = output_of(&mut sandbox.codemie(&["list", "--agent", "make"]));
    assert_eq!(result.code, Some(0), "any other program has sessions, too: {result:?}");
}

#[test]
fn commands_print_only_through_the_writers_they_are_given() {
    // `main` puts the guard around those two; whoever takes the stream itself would pass it by.
    let allowed = [
        "src/main.rs",       // puts the guard there; its own words are folded, and so cleaned
        "src/progress.rs",   // a bar and a line that erase themselves, cleaned there
        "src/demo/stage.rs", // draws the demonstration's own screen
    ];
    let streams =
        ["(stdout()", "(stderr()", "(io::stdout()", "(io::stderr()", "stdout().lock()", "stderr().lock()"];
    let writes = ["write!(", "writeln!(", "write_all(", ".lock()"];
    let mut found = Vec::new();
    for file in sources() {
        let name = file.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string();
        for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
            let hit = streams.iter().any(|stream| line.contains(stream))
                && writes.iter().any(|call| line.contains(call));
            if hit && !allowed.contains(&name.as_str()) {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_eq!(found, [""; 0]);
}
