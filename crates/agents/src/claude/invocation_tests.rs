use super::*;
use crate::kit::options::Arity;

const ID: &str = "3a8a7365-0000-4000-8000-00000000000A";
const OTHER: &str = "3a8a7365-0000-4000-8000-00000000000b";

fn args(line: &str) -> Vec<OsString> {
    line.replace("$ID", ID).replace("$OTHER", OTHER).split_whitespace().map(OsString::from).collect()
}

fn of(line: &str) -> Invocation {
    classify(&args(line))
}

fn id(text: &str) -> AgentSessionId {
    AgentSessionId(text.to_owned())
}

#[test]
fn management_commands_are_no_conversations() {
    for line in [
        "--version",
        "-v",
        "-V",
        "--help",
        "hello -v",
        "-pv",
        "-p hi -h",
        "mcp list",
        "mcp add x -- npx y",
        "--model opus mcp list",
        "--settings {} doctor",
        "-d api mcp list",
        "-- mcp list",
        "plugins list",
        "agents",
        "--model opus agents",
        "agents --json",
        "upgrade",
        "--update",
        "daemon run",
        "attach 1234",
        "rm 1234 -p",
        "rc --verbose",
        "--bg fix the tests",
        "fix --background",
        "--init-only",
    ] {
        let invocation = of(line);
        assert_eq!(invocation.kind, InvocationKind::NotAConversation, "claude {line}");
        assert!(!invocation.injectable, "claude {line}");
    }
}

#[test]
fn conversations_that_resemble_management_commands_are_recognised() {
    for (line, kind) in [
        ("-d mcp list", InvocationKind::Interactive), // mcp is the debug filter, `list` the prompt
        ("--add-dir a mcp list", InvocationKind::Interactive), // variadic: all of them are folders
        ("--allowedTools Bash Edit mcp", InvocationKind::Interactive),
        ("x mcp", InvocationKind::Interactive),
        ("mcp -p", InvocationKind::Print), // no subcommands with a literal -p
        ("-p mcp", InvocationKind::Print),
        ("help", InvocationKind::Interactive),
        ("config list", InvocationKind::Interactive),
        ("x attach", InvocationKind::Interactive),
        ("--model -h", InvocationKind::Interactive), // a required value may look like a flag
        ("-- -h", InvocationKind::Interactive),
        ("-", InvocationKind::Interactive),
    ] {
        assert_eq!(of(line).kind, kind, "claude {line}");
    }
    assert_eq!(classify(&["explain -h and --bg to me".into()]).kind, InvocationKind::Interactive);
    assert_eq!(classify(&[OsString::new()]).kind, InvocationKind::Interactive);
}

#[test]
fn an_id_is_added_when_every_flag_is_known_and_none_names_a_session() {
    for line in [
        "",
        "hello",
        "-p hello",
        "--print --output-format json hello",
        "--output-format=json -p hello",
        "--model opus --verbose -d api,hooks hello",
        "-d2e",
        "--add-dir a b --settings {} -- --resume",
        "--name fix --permission-mode plan",
        "--allowedTools=Bash hello",
        "--max-turns 3 -p hi",
        "--bare",
        "-nfix",
        "--safe-mode --dangerously-skip-permissions --mcp-config a.json b.json --strict-mcp-config",
    ] {
        let invocation = of(line);
        assert!(invocation.injectable, "claude {line}");
        assert_eq!(invocation.session, Conversation::Fresh, "claude {line}");
        assert!(invocation.persistent, "claude {line}");
    }
}

#[test]
fn nothing_is_added_in_doubt() {
    for line in [
        "--not-yet-invented",
        "-x",
        "-px",
        "-5",
        "--print=1",
        "--continue=yes",
        "--worktree",
        "-w fix --tmux=classic",
        "--remote-control",
        "--rc phone",
        "cc://host",
        "--handle-uri claude://x",
        "--resume-session-at msg_1 -p x",
        "--parent-session-id $ID",
        "--no-session-persistence -p x",
    ] {
        assert!(!of(line).injectable, "claude {line}");
    }
    assert!(
        !classify(&[OsString::from("--session-id"), std::os::unix::ffi::OsStringExt::from_vec(vec![0xff])])
            .injectable
    );
}

#[test]
fn arguments_name_the_conversation() {
    use Conversation::{Chosen, Continue, Fork, Named, Picker, Unknown};
    for (line, expected) in [
        ("--session-id $ID", Chosen(id(ID))),
        ("--session-id=$ID -p hi", Chosen(id(ID))),
        ("--session-id $OTHER --session-id $ID", Chosen(id(ID))),
        ("--session-id x", Unknown),
        ("--session-id", Unknown),
        ("--session-id 3a8a736500004000800000000000000a", Unknown),
        ("--resume $ID", Named(id(ID))),
        ("-r $ID more", Named(id(ID))),
        ("-r$ID", Named(id(ID))),
        ("--resume=$ID -p hi", Named(id(ID))),
        ("-pr $ID", Named(id(ID))),
        ("--resume", Picker),
        ("-r -p", Picker),
        ("-r --model opus", Picker),
        ("--resume auth", Picker),
        ("--resume /x/$ID.jsonl", Unknown),
        ("-c", Continue),
        ("--continue -p hi", Continue),
        ("-pc", Continue),
        ("-cp hi", Continue),
        ("--from-pr", Picker),
        ("--from-pr 12", Picker),
        ("-c --fork-session", Fork { from: None, to: None }),
        ("--resume $ID --fork-session", Fork { from: Some(id(ID)), to: None }),
        ("--resume auth --fork-session", Fork { from: None, to: None }),
        ("--session-id $OTHER --fork-session --resume $ID", Fork { from: Some(id(ID)), to: Some(id(OTHER)) }),
        (
            "--session-id $OTHER --fork-session --resume /c/projects/-p/$ID.jsonl --settings {}",
            Fork { from: Some(id(ID)), to: Some(id(OTHER)) },
        ),
        ("--from-pr 12 --fork-session", Fork { from: None, to: None }),
        ("--fork-session", Unknown),
        ("--fork-session --session-id $ID", Unknown),
        ("--session-id $ID -c", Unknown),
        ("--session-id $ID -r $OTHER", Unknown),
        ("-c -r $ID", Unknown),
        ("--teleport", Unknown),
        ("--cloud fix", Unknown),
        ("--sdk-url ws://x -p", Unknown),
        ("--tmux -w", Unknown),
    ] {
        let invocation = of(line);
        assert_eq!(invocation.session, expected, "claude {line}");
        assert!(!invocation.injectable, "claude {line}");
    }
}

#[test]
fn a_prompt_is_found_among_the_arguments() {
    for line in
        ["hi", "--resume 7a276c6b-0000-4000-8000-000000000003 -- hi", "-c hi", "--model x hi", "-- -hi"]
    {
        assert!(of(line).prompts, "claude {line}");
    }
    for line in
        ["", "--resume 7a276c6b-0000-4000-8000-000000000003", "-c", "--model hi", "--unknown hi", "--"]
    {
        assert!(!of(line).prompts, "claude {line}");
    }
}

#[test]
fn no_persistence_means_no_file() {
    assert!(!of("-p hi --no-session-persistence").persistent);
}

#[test]
fn the_agents_view_can_be_the_default_only_without_other_arguments() {
    for line in ["", "-d", "--debug", "-d2e", "--debug=api", "--debug-file x", "--debug-file=x --debug"] {
        assert!(agents_view_possible(&args(line)), "claude {line}");
    }
    for line in ["hi", "--model opus", "-p", "--debug-file", "-d api", "--verbose"] {
        assert!(!agents_view_possible(&args(line)), "claude {line}");
    }
    assert!(defaults_to_agents_view(br#"{"numStartups":3,"defaultToAgentsView":true}"#));
    assert!(!defaults_to_agents_view(br#"{"numStartups":3}"#));
}

#[test]
fn subcommands_of_2_1_325_are_no_conversations() {
    for line in ["purge", "purge /x --yes", "import", "import codex", "workspace-trust"] {
        assert_eq!(of(line).kind, InvocationKind::NotAConversation, "claude {line}");
    }
    for line in ["-p purge", "please purge", "--restricted hi", "--autocompact auto hi"] {
        assert_ne!(of(line).kind, InvocationKind::NotAConversation, "claude {line}");
    }
    for line in ["--restricted hi", "--autocompact auto hi", "--system-prompt-snapshot on hi"] {
        assert!(of(line).injectable, "claude {line}");
    }
    for line in ["--desktop", "--environment env_1 hi"] {
        assert_eq!(of(line).session, Conversation::Unknown, "claude {line}");
    }
}

/// The option table of the real program is the reference: every flag its help names is known here, with its arity.
#[test]
fn every_flag_of_the_help_is_known() {
    let help = [
        include_str!("../../../../tests/fixtures/claude/flags-2.1.197.txt"),
        include_str!("../../../../tests/fixtures/claude/flags-2.1.325.txt"),
    ];
    let mut seen = 0;
    for spec in help.iter().flat_map(|help| help.lines()) {
        for name in spec.split(", ") {
            let (name, value) = name.split_once(' ').unwrap_or((name, ""));
            let Some(flag) = flags::FLAGS.iter().find(|flag| flag.names.contains(&name)) else {
                assert!(matches!(name, "--bg" | "--background"), "{name} is not known"); // a fast path
                continue;
            };
            seen += 1;
            if name == spec.rsplit(", ").next().unwrap().split(' ').next().unwrap() {
                let arity = match value {
                    "" => Arity::None,
                    value if value.ends_with("...>") => Arity::Many,
                    value if value.starts_with('<') => Arity::One,
                    _ => Arity::Optional,
                };
                assert_eq!(flag.arity, arity, "{spec}");
            }
        }
    }
    assert!(seen > 120, "only {seen} flags found in the help");
}
