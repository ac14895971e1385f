use super::*;
use types::Moment;

fn parsed(line: &[&str]) -> String {
    match parse(line.iter().map(OsString::from).collect()) {
        Ok(CommandLine::Run { options, target, args }) => {
            format!("{} {args:?}{}", target.name(), if options.quiet { " quiet" } else { "" })
        }
        Ok(CommandLine::Manage(command)) => format!("{command:?}"),
        Err(refusal) => format!("exit {}", refusal.code),
    }
}

#[test]
fn what_a_terminal_would_obey_is_not_in_a_refusal() {
    for word in ["\u{1b}]0;owned\u{7}", "\u{1b}[31mred", "\u{9b}31m", "a\u{202e}b", "ok"] {
        let Err(refusal) = parse(vec![word.into()]) else { panic!("{word:?} is a command") };
        let text = refusal.in_plain_words();
        assert!(text.contains("subcommand") && text.contains('\n'), "{text:?}");
        assert!(is_harmless(&text.replace('\n', "")), "{text:?}");
        assert_eq!(is_harmless(word), word == "ok");
    }
}

#[test]
fn everything_after_the_agents_name_is_the_agents() {
    for (line, expected) in [
        (&["claude"][..], "claude []"),
        (&["claude", "--help"], "claude [\"--help\"]"),
        (&["claude", "--", "--quiet"], "claude [\"--\", \"--quiet\"]"),
        (&["--quiet", "codex", "exec", "--quiet"], "codex [\"exec\", \"--quiet\"] quiet"),
        (&["run", "gemini", "-p", "hi"], "gemini [\"-p\", \"hi\"]"),
        (&["run", "--quiet", "--", "claude", "-x"], "claude [\"-x\"] quiet"),
        (&["run", "--", "/bin/ls", "--", "a"], "ls [\"--\", \"a\"]"),
        (&["run", "--", "run"], "run []"),
        (&["run", "ls"], "exit 125"),
        (&["run"], "exit 125"),
        (&["run", "--"], "exit 125"),
        (&["--bogus", "claude"], "exit 125"),
        (&["run", "--bogus", "--", "ls"], "exit 125"),
        (&["bogus"], "exit 2"),
        (&["--name", "x"], "exit 125"),
        (&["--name", "x", "list"], "exit 125"),
        (&["--nme", "x", "claude"], "exit 125"),
        (&["--help"], "exit 0"),
        (&["--help", "claude"], "exit 0"),
        (&["--version"], "exit 0"),
        (&["--version", "claude"], "exit 0"),
        (&["run", "--help"], "exit 0"),
        (&["help"], "exit 0"),
        (&[], "exit 2"),
        (&["config"], "Config(Config { action: None })"),
        (&["help", "claude"], "exit 0"),
        (&["help", "config", "set"], "exit 0"),
        (&["help", "bogus"], "exit 2"),
    ] {
        assert_eq!(parsed(line), expected, "codemie {line:?}");
    }
}

fn message(line: &[&str]) -> String {
    parse(line.iter().map(OsString::from).collect()).unwrap_err().text.to_string()
}

#[test]
fn every_help_lists_the_options_of_a_run() {
    for line in [&["--help"][..], &["help"], &["--help", "claude"], &["run", "--help"], &["help", "claude"]] {
        let message = message(line);
        for wanted in ["--name <NAME>", "--tag <TAG>", "--group <GROUP>", "--quiet", "AGENT [ARGS…]"] {
            assert!(message.contains(wanted), "codemie {line:?}, {wanted}:\n{message}");
        }
    }
}

#[test]
fn an_error_names_the_wrong_part_of_the_line() {
    for (line, wanted, unwanted) in [
        (&["--nme", "x", "claude"][..], "exists: '--name'", "claude --name"),
        (&["--nme", "claude"], "exists: '--name'", "claude --name"),
        (&["--name", "x"], "which agent?", "unexpected"),
        (&["run", "--name", "x"], "which agent?", "unexpected"),
        (&["--name", "x", "list"], "belong to a run", "unexpected"),
        (&["run", "ls"], "codemie run -- ls", "which agent?"),
        (&["complet"], "'completions'", "'complete'"),
        (&["help", "demo-agnt"], "unrecognized", "'demo-agent'"),
        (&["lst"], "'list'", "'complete'"),
        (&["run", "my tool"], "codemie run -- 'my tool'", "which agent?"),
    ] {
        let message = message(line);
        assert!(message.contains(wanted) && !message.contains(unwanted), "codemie {line:?}:\n{message}");
    }
}

#[test]
fn every_visible_command_and_option_has_a_help_text() {
    fn look(command: &clap::Command) {
        for arg in command.get_arguments() {
            assert!(arg.get_help().is_some() && !arg.is_hide_set(), "{} {arg}", command.get_name());
        }
        for command in command.get_subcommands() {
            assert!(command.get_about().is_some() && !command.is_hide_set(), "{}", command.get_name());
            look(command);
        }
    }
    look(&visible());
}

#[test]
fn invalid_labels_are_refused_before_the_agent_starts() {
    let long = "x".repeat(150);
    for (option, value, reason) in [
        ("--name", "a/b", "the name \"a/b\" holds"),
        ("--name", "", "a name cannot be empty"),
        ("--name", long.as_str(), "the name is longer"),
        ("--tag", "", "a tag cannot be empty"),
        ("--tag", "a/b", "the tag \"a/b\" holds"),
        ("--group", "a/b", "the group \"a/b\" holds"),
    ] {
        for line in [vec![option, value, "claude"], vec!["run", option, value, "--", "true"]] {
            let refused = parse(line.iter().map(OsString::from).collect()).unwrap_err();
            assert_eq!(refused.code, 125, "{line:?}");
            assert!(refused.text.to_string().contains(reason), "{line:?}: {}", refused.text);
        }
    }
    assert_eq!(parsed(&["--name", "fix auth", "--tag", "v1.2", "claude"]), "claude []");
}

#[test]
fn the_split_knows_every_option_that_takes_a_value() {
    let command = RunOptions::augment_args(clap::Command::new("codemie"));
    let mut expected: Vec<_> = command
        .get_arguments()
        .filter(|arg| arg.get_action().takes_values())
        .filter_map(|arg| arg.get_long().map(|long| format!("--{long}")))
        .collect();
    expected.sort();
    let mut known = WITH_VALUE.map(String::from);
    known.sort();
    assert_eq!(known[..], expected);
}

#[test]
fn a_timeout_takes_a_unit_or_plain_seconds() {
    for (text, seconds) in
        [("5", Some(5)), ("5s", Some(5)), ("2m", Some(120)), ("-5", None), ("", None), ("s", None)]
    {
        assert_eq!(time(text).ok(), seconds.map(Duration::from_secs), "{text}");
    }
    for line in [["doctor", "--timeout", "5s"], ["doctor", "--timeout", "5"], ["sync", "--timeout", "5"]] {
        assert!(!parsed(&line).starts_with("exit"), "{line:?}");
    }
}

#[test]
fn the_definition_passes_clap_s_own_checks() {
    command().debug_assert();
}

#[test]
fn every_agent_of_the_registry_is_a_sub_command_in_help_and_completions() {
    let help = message(&["--help"]);
    let mut after = help.find("Run:").unwrap();
    for agent in registry::AGENTS {
        let line = format!("Run {}", agent.product());
        let at = after + help[after..].find(&line).unwrap_or_else(|| panic!("{line}:\n{help}"));
        assert!(help[..at].trim_end().ends_with(agent.name()), "{line}:\n{help}");
        after = at;
        assert!(visible().find_subcommand(agent.name()).is_some());
    }
    assert!(help[after..].contains("run "), "the other commands follow:\n{help}");
    let run = message(&["run", "--help"]);
    assert!(run.contains(&format!("({})", registry::names().join(", "))), "{run}");
}

#[test]
fn an_agent_behind_a_separator_is_refused() {
    let refused = message(&["--name", "x", "--", "claude"]);
    assert!(refused.contains("unexpected argument 'claude'"), "{refused}");
}

#[test]
fn a_text_to_send_may_look_like_an_option() {
    let sent = |line: &[&str]| match parse(line.iter().map(OsString::from).collect()) {
        Ok(CommandLine::Manage(Command::Send(args))) => (args.text, args.json),
        other => panic!("{other:?}"),
    };
    assert_eq!(sent(&["send", "fix", "hello", "--json"]), ("hello".to_owned(), true));
    assert_eq!(sent(&["send", "fix", "--json", "hello"]), ("hello".to_owned(), true));
    assert_eq!(sent(&["send", "fix", "-"]), ("-".to_owned(), false));
    assert_eq!(sent(&["send", "fix", "- a point"]), ("- a point".to_owned(), false));
    assert_eq!(sent(&["send", "fix", "--", "--json"]), ("--json".to_owned(), false));
    assert_eq!(parsed(&["send", "fix"]), "exit 2");
}

#[test]
fn several_moments_are_separated_by_commas() {
    let waits = |line: &[&str]| match parse(line.iter().map(OsString::from).collect()) {
        Ok(CommandLine::Manage(Command::Wait(args))) => (args.sessions.len(), args.until, args.timeout),
        other => panic!("{other:?}"),
    };
    let (sessions, until, timeout) = waits(&["wait", "a", "b", "--until", "turn-end,exit"]);
    assert_eq!((sessions, until), (2, vec![Moment::TurnEnd, Moment::Exit]));
    assert_eq!(timeout, Duration::from_secs(50));
    for line in [&["wait"][..], &["wait", "a", "--until", "never"], &["wait", "a", "--cursor", "x"]] {
        assert_eq!(parsed(line), "exit 2", "{line:?}");
    }
}
