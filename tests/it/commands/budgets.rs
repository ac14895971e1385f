//! Budgets and prices, by the commands that people type.

use std::fs;

use os::clock::{Clock, SystemClock};

use super::World;
use crate::support::pty::{Exit, Start};

/// A thousandth of a dollar.
const MILLI: i64 = 1_000_000_000;

#[test]
fn budgets_are_set_shown_raised_and_removed_and_an_agent_may_not_loosen_them() {
    let mut world = World::new();
    let config = world.home.config_file();
    fs::write(&config, "# mine\nquiet = true\n").unwrap();
    assert!(world.out(&["budget"]).starts_with("No budgets."));
    assert_eq!(
        world.out(&["budget", "set", "month", "0.010", "--project", "widgets"]),
        "month of project widgets: $0.0100\n"
    );
    let said = world.out(&["budget", "set", "month", "$0.01", "--enforce"]);
    assert!(said.starts_with("month: $0.0100; runs that begin from now on go through the proxy"), "{said}");
    assert_eq!(
        fs::read_to_string(&config).unwrap(),
        "# mine\nquiet = true\n\n[[budget]]\nper = \"month\"\nusd = 0.01\nproject = \"widgets\"\n\n\
         [[budget]]\nper = \"month\"\nusd = 0.01\nenforce = true\n"
    );
    world.fails(&["budget", "set", "year", "3"], 2, "year");
    world.fails(&["budget", "set", "day", "-3"], 2, "-3");
    world.fails(&["budget", "set", "day", "nothing"], 2, "amount of dollars like 20");
    world.fails(&["budget", "set", "day", "3", "--project", "a", "--tag", "b"], 2, "--tag");
    world.fails(
        &["budget", "unset", "day"],
        2,
        "there is no budget day; there are: month of project widgets, month",
    );

    // The run of this very test: whatever it starts is inside of it.
    world.now = SystemClock.now();
    let run = world.start("fix-auth");
    world.bind(run, "conversation", None);
    world.call(run, "a", "claude-opus-4-8", Some(9 * MILLI));
    world.call(run, "b", "new-model", None);
    let shown = world.json(&["budget", "show", "--json"]);
    let month = &shown[1];
    assert_eq!(
        (&month["budget"], &month["percent"], &month["level"]),
        (&"month".into(), &90.into(), &"near".into())
    );
    assert_eq!((&month["unpricedCalls"], &month["enforce"]), (&1.into(), &true.into()));
    let table = world.out(&["budget", "show"]);
    assert!(table.contains("1 call has no price and is not counted"), "{table}");
    let words = "not enforced: fix-auth runs without the proxy";
    assert!(table.contains(words), "{table}");
    assert!(world.run(&["doctor"]).out.contains(words));
    let list = world.out(&["list"]);
    assert!(list.contains("BUDGET") && list.contains("90 %"), "{list}");
    assert!(list.contains("Budget month: $0.0090 of $0.0100 (90 %), begins anew "), "{list}");
    for refused in [
        &["budget", "raise", "month", "5"][..],
        &["budget", "raise", "5"],
        &["budget", "unset", "month"],
        &["budget", "set", "month", "0.02", "--enforce"],
        &["budget", "set", "month", "0.01"],
    ] {
        world.fails(refused, 2, "from inside a run");
    }
    world.out(&["budget", "set", "month", "0.009", "--enforce"]);

    world.end(run, 0);
    let typed = |args: &[&str], code, words: &[&str]| {
        let terminal = Start::of(&world.command(args)).spawn();
        assert_eq!(terminal.wait_exit(), Exit::Code(code), "{}", terminal.text());
        let text = terminal.text();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    typed(&["budget", "raise", "0.005"], 0, &["month: $0.0140, until "]);
    typed(&["budget", "raise", "1"], 1, &["no enforced budget is used up"]);
    let alone = ["month: $1.01, for fix-auth alone, until ", "; $0.0090 spent"];
    typed(&["budget", "raise", "month", "1", "--session", "fix-auth"], 0, &alone);
    let mut apart = std::process::Command::new("setsid");
    let raise = world.command(&["budget", "raise", "month", "1"]);
    apart.arg("--wait").arg(raise.get_program()).args(raise.get_args()).env("HOME", world.sandbox.home());
    let apart = apart.env_remove("CODEMIE_HOME").output().unwrap();
    let said = String::from_utf8_lossy(&apart.stderr);
    assert!(
        apart.status.code() == Some(2) && said.contains("in a terminal of their own: here is none"),
        "{said}"
    );
    assert_eq!(world.json(&["budget", "show", "--json"])[1]["raisedUsd"], 0.005);
    let unchanged = fs::read_to_string(&config).unwrap();
    assert!(unchanged.contains("usd = 0.009\n") && unchanged.starts_with("# mine\n"), "{unchanged}");
    assert_eq!(world.out(&["budget", "unset", "month"]), "month: no budget any more\n");
    assert_eq!(world.json(&["budget", "show", "--json"]).as_array().unwrap().len(), 1);
    // A raise was the old budget's: a new one begins without it.
    world.out(&["budget", "set", "month", "0.02"]);
    let shown = world.json(&["budget", "show", "--json"]);
    assert_eq!((&shown[1]["limitUsd"], &shown[1]["raisedUsd"]), (&0.02.into(), &shown[0]["raisedUsd"]));
}

#[test]
fn a_bad_budget_is_reported_by_the_doctor_and_prices_show_what_is_set() {
    let world = World::new();
    fs::write(
        world.home.config_file(),
        "[[budget]]\nper = 'year'\nusd = 1\n[prices.\"gpt-5.5\"]\ninput = 1.5\noutput = 3\n[prices.broken]\ninput = 1\n",
    )
    .unwrap();
    let findings = world.run(&["doctor", "--json"]).out;
    assert!(findings.contains("budget 1 is left out: per must be session, day, week or month"), "{findings}");
    assert!(findings.contains("prices of broken are left out: output is missing"), "{findings}");
    assert!(!findings.contains("means nothing to this version"), "{findings}");
    let prices = world.json(&["prices", "gpt-5.5", "--json"]);
    let first = &prices["models"][0];
    assert_eq!(
        (&first["model"], &first["source"], &first["input"]),
        (&"gpt-5.5".into(), &"own".into(), &1.5.into())
    );
    let text = world.out(&["prices", "gpt-5.5"]);
    assert!(text.contains("own") && text.contains("gpt-5.5: the price was not used yet."), "{text}");
    assert!(text.contains("Table of 20"), "{text}");
    assert!(world.out(&["prices", "nobody-knows"]).starts_with("No price for nobody-knows."));
}
