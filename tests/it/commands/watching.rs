//! What runs now, live: `codemie top` on a real terminal, and the signs that sessions show.

use super::{Run, World, assert_left_by, assert_restored};
use crate::sandbox::CODEMIE;
use crate::support::pty::{Start, Terminal};
use agents::meter::title::Title;
use os::clock::{Clock, SystemClock};
use types::Timestamp;

/// A home with two sessions that run, both in this very process: `fix-auth`, whose tool fails again and again, and `docs`.
struct Watching {
    world: World,
    docs: Run,
}

impl Watching {
    fn new() -> Self {
        let mut world = World::new();
        world.now = Timestamp(SystemClock.now().0 - 120_000);
        let fix = world.start("fix-auth");
        world.bind(fix, "one", None);
        // A title that would steer the terminal.
        let title = Title::of_prompt("why \x1b]0;owned\x07\x1b[2Jdoes the login flicker?").unwrap();
        world.store.write(|tx| tx.set_title(fix.session, &title)).unwrap();
        world.call(fix, "m1", "claude-opus-4-8", Some(2_000_000_000));
        for time in 1..=6 {
            world.tool(fix, &format!("t{time}"), "Bash", false);
        }
        let docs = world.start("docs");
        Self { world, docs }
    }

    fn terminal(&self, rows: u16, columns: u16, variables: &[(&str, &str)]) -> Terminal {
        top_on(&self.world, rows, columns, variables)
    }
}

fn top_on(world: &World, rows: u16, columns: u16, variables: &[(&str, &str)]) -> Terminal {
    let mut start = Start::new([CODEMIE, "top"])
        .env("HOME", world.sandbox.home())
        .env("PATH", "/usr/bin:/bin")
        .size(rows, columns);
    for (name, value) in variables {
        start = start.env(*name, *value);
    }
    start.spawn()
}

#[test]
fn signs_are_shown_in_list_and_show_once_they_are_switched_on() {
    let mut watching = Watching::new();
    let world = &mut watching.world;
    let list = world.out(&["list"]);
    assert!(!list.contains("SIGN") && !list.contains("shows a sign"), "{list}");
    assert!(world.json(&["show", "fix-auth", "--json"])["runaway"].is_null());
    world.out(&["config", "set", "runaway.enabled", "true"]);
    let list = world.out(&["list"]);
    assert!(list.contains("SIGN") && list.contains("Bash ×6"), "{list}");
    assert!(list.contains("fix-auth shows a sign: Bash failed 6 times in a row."), "{list}");
    let listed = world.json(&["list", "--json"]);
    let of = |name: &str| {
        let all = listed.as_array().unwrap();
        all.iter().find(|record| record["name"] == name).unwrap()["runaway"].clone()
    };
    assert_eq!(of("fix-auth"), serde_json::json!({"sign": "failing", "why": "Bash failed 6 times in a row"}));
    assert!(of("docs").is_null());
    assert_eq!(world.json(&["show", "fix-auth", "--json"])["runaway"]["sign"], "failing");
    let shown = world.out(&["show", "fix-auth"]);
    assert!(shown.contains("sign ") && shown.contains("Bash failed 6 times in a row"), "{shown}");
    world.out(&["config", "set", "runaway.failures", "7"]);
    let list = world.out(&["list"]);
    assert!(!list.contains("SIGN") && !list.contains("shows a sign"), "{list}");
    world.out(&["config", "set", "runaway.failures", "5"]);
    let docs = watching.docs;
    watching.world.bind(docs, "two", None);
    watching.world.tool(docs, "d1", "Bash", true);
    let list = watching.world.out(&["list", "--active"]);
    assert_eq!(list.matches("shows a sign").count(), 1, "{list}");
}

#[test]
fn top_shows_every_running_session_at_every_width() {
    let watching = Watching::new();
    watching.world.out(&["config", "set", "runaway.enabled", "true"]);
    for (columns, shown) in [
        (40, &["fix-auth", "docs", "sign", "q leave"][..]),
        (80, &["fix-auth", "TITLE", "COST", "sign: Bash ×6", "q leave", "2 active · 1 with a sign"]),
        (100, &["fix-auth", "AGENT", "claude", "TOK/MIN", "sign: Bash ×6", "tools", "failed"]),
        (140, &["fix-auth", "PROJECT", "widgets", "does the login flicker?", "CONTEXT", "2 active"]),
    ] {
        let terminal = watching.terminal(24, columns, &[("NO_COLOR", "1")]);
        terminal.wait_for(&format!("{shown:?} at {columns}"), |view| {
            let text = view.text();
            shown.iter().all(|part| text.contains(part))
        });
        terminal.resize(15, 60);
        terminal.wait_for("the new size", |view| {
            view.text().lines().last().is_some_and(|last| last.contains("Enter read"))
        });
        let bytes = String::from_utf8_lossy(&terminal.bytes()).into_owned();
        assert!(!["\x1b[0;3", "\x1b[0;1;3"].iter().any(|colour| bytes.contains(colour)), "{columns}: colour");
        assert!(!bytes.contains("owned\x07") && !bytes.contains("\x1b]0"), "{columns}: a title steers");
        terminal.send("q");
        assert_eq!(terminal.wait_exit().shell_code(), 0);
        assert_restored(&terminal);
    }
}

#[test]
fn top_follows_the_store_and_says_where_a_session_runs() {
    let mut watching = Watching::new();
    let terminal = watching.terminal(24, 100, &[]);
    terminal.wait_text("2 active");
    terminal.send("a");
    terminal.wait_for("where it runs", |view| {
        view.text()
            .lines()
            .last()
            .is_some_and(|last| last.contains("fix-auth runs in ") && last.contains("go there"))
    });
    // Whatever is stored is shown without a key.
    let run = watching.world.start("another");
    terminal.wait_text("3 active");
    terminal.send("jj");
    terminal.wait_text("▸ another");
    let cleared = watching.world.clear(run, "two");
    terminal.wait_text("▸ another.2");
    terminal.wait_text("another → [another.2]");
    watching.world.end(cleared, 0);
    terminal.wait_text("2 active");
    terminal.send("s");
    terminal.wait_text("y/n");
    terminal.send("n");
    terminal.wait_text("Enter read");
    terminal.send("\x1b");
    assert_eq!(terminal.wait_exit().shell_code(), 0);
    assert_restored(&terminal);
}

#[test]
fn top_explains_its_keys_filters_and_takes_no_pasted_text_for_a_command() {
    let watching = Watching::new();
    let terminal = watching.terminal(24, 100, &[]);
    terminal.wait_text("2 active");
    terminal.send("?");
    terminal.wait_text("send it a text, if it runs in the background");
    terminal.send("x");
    terminal.wait_text("▸ fix-auth");
    terminal.send("/docs");
    terminal.wait_text("▸ docs");
    terminal.wait_for("the filter alone", |view| {
        !view.text().contains("fix-auth") && view.text().contains("/docs")
    });
    terminal.send("\r");
    terminal.wait_text("only \"docs\"");
    terminal.send("\x1b");
    terminal.wait_text("fix-auth");
    // What is pasted is a text, wherever the keys are: `s` stops, `y` confirms it.
    terminal.send("m");
    terminal.wait_text("to docs: ");
    terminal.send("\x1b[200~sy\r\x1b[201~");
    terminal.wait_text("to docs: sy");
    terminal.send("\r");
    terminal.wait_for("why not", |view| {
        view.text().contains("docs runs in ") && view.text().contains("go there")
    });
    terminal.send("\x1b[200~sy\r\x1b[201~s\x1b[200~y\x1b[201~");
    terminal.send("?");
    terminal.wait_text("stop it, after a question");
    terminal.send("x");
    terminal.wait_text("2 active");
    terminal.send("q");
    assert_eq!(terminal.wait_exit().shell_code(), 0);
    assert_restored(&terminal);
}

#[test]
fn top_is_left_by_keys_and_signals_and_the_terminal_is_restored() {
    let watching = Watching::new();
    assert_left_by(&["q", "\x1b", "\x03"], "Enter read", || watching.terminal(24, 80, &[]));
}

#[test]
fn top_says_what_to_do_where_nothing_runs_and_without_a_terminal() {
    let world = World::new();
    world.fails(&["top"], 2, "codemie list --active");
    let dumb = top_on(&world, 24, 80, &[("TERM", "dumb")]);
    dumb.wait_text("codemie list --active");
    assert_eq!(dumb.wait_exit().shell_code(), 2);
    let terminal = top_on(&world, 24, 80, &[]);
    terminal.wait_text("No session is running.");
    terminal.wait_text("codemie run --detach claude");
    terminal.send("\rsd");
    terminal.send("q");
    assert_eq!(terminal.wait_exit().shell_code(), 0);
    assert_restored(&terminal);
}
