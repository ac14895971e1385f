//! The doctor with real shells and real processes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::sandbox::{CODEMIE, Sandbox, TOOLS, output_of, present};
use crate::support::pty::Start;

/// A home folder with shims, a working `claude`, and PATH set up in `.bashrc` and `.zshrc`.
fn healthy() -> Sandbox {
    let sandbox = Sandbox::new();
    let installed = output_of(&mut sandbox.codemie(&["shim", "install"]));
    assert_eq!(installed.code, Some(0), "{installed:?}");
    sandbox.script("real/claude", "echo 2.1.197 '(Claude Code)'");
    let set_up = "PATH=~/.codemie/shims:~/real:$PATH\n";
    sandbox.file(".bashrc", set_up);
    sandbox.file(".zshrc", set_up);
    sandbox
}

fn doctor(sandbox: &Sandbox, shell: &str) -> Command {
    let mut command = sandbox.codemie(&["doctor", "--json"]);
    let mut path = sandbox.search(&[".codemie/shims", "real"]);
    path.push(":");
    path.push(TOOLS);
    command.env("PATH", path).env("SHELL", shell);
    command
}

/// The findings as `level: what`, those of an area only, and the exit code.
fn findings(command: &mut Command, area: &str) -> (Vec<String>, i32) {
    let output = output_of(command);
    let report: Value =
        serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(report["ok"], output.code == Some(0), "{output:?}");
    let all = report["findings"].as_array().unwrap();
    for finding in all {
        assert_eq!(finding["level"] == "ok", finding["fix"].is_null(), "each finding has its fix: {finding}");
    }
    let shown = all
        .iter()
        .filter(|finding| finding["area"] == area)
        .map(|finding| {
            format!("{}: {}", finding["level"].as_str().unwrap(), finding["what"].as_str().unwrap())
        })
        .collect();
    (shown, output.code.unwrap())
}

fn assert_any(findings: &[String], parts: &[&str]) {
    let found = findings.iter().any(|finding| parts.iter().all(|part| finding.contains(part)));
    assert!(found, "nothing with {parts:?} in {findings:#?}");
}

#[test]
fn a_healthy_machine_is_told_what_runs_where() {
    let sandbox = healthy();
    let before = sandbox.tree();
    let (claude, code) = findings(&mut doctor(&sandbox, "/bin/bash"), "claude");
    assert_eq!(code, 0, "{claude:#?}");
    assert_any(&claude, &["ok: PATH 1: ", ".codemie/shims/claude: a shim of this codemie"]);
    assert_any(&claude, &["ok: PATH 2: ", "real/claude: the agent"]);
    assert_any(&claude, &["ok: interactive shell (bash) runs codemie ("]);
    assert_any(&claude, &["ok: the real claude is ", "real/claude, version: 2.1.197 (Claude Code)"]);
    let (codex, _) = findings(&mut doctor(&sandbox, "/bin/bash"), "codex");
    assert_eq!(codex, ["note: not installed"]);
    assert!(before == sandbox.tree(), "looking changes nothing");
}

/// Gemini, as npm installs it: its version stands beside it, and asking it leaves a file.
fn with_gemini(interpreter: &str) -> Sandbox {
    let sandbox = healthy();
    let package = "lib/node_modules/@google/gemini-cli";
    sandbox.file(&format!("{package}/package.json"), r#"{"name":"@google/gemini-cli","version":"0.61.0"}"#);
    let program = sandbox.script(&format!("{package}/bundle/gemini.js"), "");
    fs::write(&program, format!("#!{interpreter}\nmkdir -p ~/.gemini; echo asked\n")).unwrap();
    symlink(program, sandbox.path("real/gemini")).unwrap();
    sandbox
}

#[test]
fn an_agent_is_not_asked_what_its_installation_says() {
    let sandbox = with_gemini("/bin/sh");
    let before = sandbox.tree();
    let (gemini, code) = findings(&mut doctor(&sandbox, "/bin/bash"), "gemini");
    assert_eq!(code, 0, "{gemini:#?}");
    assert_any(&gemini, &["ok: the real gemini is ", "real/gemini, version: 0.61.0"]);
    assert!(before == sandbox.tree(), "looking changes nothing");
}

#[test]
fn an_agent_without_its_interpreter_is_an_error() {
    for (interpreter, named) in
        [("/usr/bin/env -S no-such-node --x", "no-such-node"), ("/no/such/node", "/no/such/node")]
    {
        let (gemini, code) = findings(&mut doctor(&with_gemini(interpreter), "/bin/bash"), "gemini");
        assert_any(&gemini, &["error: ", "real/gemini cannot be run: there is no ", named]);
        assert_ne!(code, 0, "{gemini:#?}");
    }
}

#[test]
fn shims_that_are_not_on_path_are_told_of_once() {
    let sandbox = healthy();
    sandbox.script("real/codex", "echo codex-cli 0.144.3");
    let path = |folders: &[&str]| {
        let mut path = sandbox.search(folders);
        path.push(":");
        path.push(TOOLS);
        path
    };
    let mut absent = doctor(&sandbox, "/bin/bash");
    absent.env("PATH", path(&["real"]));
    assert_eq!(findings(&mut absent, "shell").0, ["warn: here, the shims are not on PATH"]);
    let (claude, _) = findings(&mut absent, "claude");
    assert!(claude.iter().all(|finding| !finding.contains("the shim")), "{claude:#?}");
    let mut late = doctor(&sandbox, "/bin/bash");
    late.env("PATH", path(&["real", ".codemie/shims"]));
    assert_any(&findings(&mut late, "claude").0, &["warn: ", "comes before the shim"]);
    assert_eq!(findings(&mut late, "shell").0, [""; 0]);
}

#[test]
fn one_cause_is_one_finding_for_all_agents() {
    let sandbox = Sandbox::new();
    for agent in ["claude", "codex"] {
        sandbox.script(&format!("real/{agent}"), "echo 1.2.3");
    }
    sandbox.file(".bashrc", "PATH=~/real:$PATH\n");
    let mut command = sandbox.codemie(&["doctor", "--json"]);
    let mut path = sandbox.search(&["real"]);
    path.push(":");
    path.push(TOOLS);
    command.env("PATH", &path).env("SHELL", "/bin/bash");
    let (shell, _) = findings(&mut command, "shell");
    assert_eq!(
        shell,
        ["note: no shim: claude, codex run without codemie when they are called by their own names"]
    );
    let (claude, _) = findings(&mut command, "claude");
    assert!(!claude.iter().any(|finding| finding.contains("without codemie")), "{claude:#?}");
    assert_eq!(output_of(&mut sandbox.codemie(&["shim", "install"])).code, Some(0));
    let (shell, _) = findings(&mut command, "shell");
    assert_eq!(
        shell,
        [
            "warn: here, the shims are not on PATH",
            "warn: interactive shell (bash) runs claude, codex without codemie"
        ]
    );
}

#[test]
fn where_nothing_is_wrapped_the_doctor_does_not_say_that_all_is_well() {
    let sandbox = Sandbox::new();
    let output = output_of(
        sandbox.codemie(&["doctor"]).env("PATH", TOOLS).env("SHELL", "/bin/bash").env("LANG", "C.UTF-8"),
    );
    assert!(
        output.out.contains("nothing is wrapped yet") && !output.out.contains("All is well"),
        "{output:?}"
    );
}

#[test]
fn aliases_and_functions_that_shadow_are_found() {
    let cases: [(&str, &str, &[&str]); 4] = [
        (".bashrc", "alias claude=~/.claude/local/claude\n", &["warn: ", "bash", "has an alias in front"]),
        (".bashrc", "claude() { :; }\n", &["warn: ", "bash", "has a function claude in front"]),
        (".zshrc", "alias claude='codemie claude'\n", &["ok: ", "zsh", "by an alias (codemie claude)"]),
        (".config/fish/config.fish", "function claude; end\n", &["warn: ", "fish", "has a function claude"]),
    ];
    for (file, line, expected) in cases {
        let shell = expected[1];
        if present(&[&["sh"], &[shell]]).len() == 2 {
            let sandbox = healthy();
            let old = fs::read_to_string(sandbox.path(file)).unwrap_or_default();
            sandbox.file(file, &format!("{old}{line}echo Welcome back\n"));
            let (claude, _) = findings(&mut doctor(&sandbox, shell), "claude");
            assert_any(&claude, expected);
        }
    }
}

#[test]
fn a_folder_before_the_shims_is_found() {
    let sandbox = healthy();
    sandbox.file(".bashrc", "PATH=~/real:~/.codemie/shims:$PATH\n");
    let (shell, code) = findings(&mut doctor(&sandbox, "bash"), "shell");
    assert_any(&shell, &["warn: interactive shell (bash) runs claude without codemie"]);
    assert_eq!(code, 0, "a warning is no failure");
}

#[test]
fn a_loop_is_an_error() {
    let sandbox = healthy();
    sandbox.script("real/claude", "exec ~/.codemie/shims/claude \"$@\"");
    let (claude, code) = findings(&mut doctor(&sandbox, "bash"), "claude");
    assert_any(&claude, &["error: ", "real/claude comes back to codemie"]);
    assert_eq!(code, 1);
}

#[test]
fn a_shell_that_hangs_is_killed_with_all_it_started() {
    let sandbox = healthy();
    let alive = sandbox.path("alive");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &alive,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    // The reader ends when the last process that holds the writing end is gone.
    let (gone, all_gone) = std::sync::mpsc::channel();
    std::thread::spawn(move || gone.send(fs::read(alive).unwrap()));
    sandbox.file(".bashrc", "exec 9>~/alive\nsleep 60 &\nsleep 60\n");
    let (shell, code) = findings(doctor(&sandbox, "bash").args(["--timeout", "1"]), "shell");
    assert_any(&shell, &["warn: the interactive shell (bash) did not start within 1 s"]);
    assert_eq!(code, 0);
    assert_eq!(all_gone.recv_timeout(Duration::from_secs(30)), Ok(Vec::new()), "something still runs");
}

#[test]
fn what_is_wrong_with_the_home_folder_is_told() {
    let sandbox = healthy();
    fs::set_permissions(sandbox.path(".codemie"), fs::Permissions::from_mode(0o755)).unwrap();
    sandbox.file(".codemie/config.toml", "quiet = 'loud'\nfrobnicate = 1\n");
    let (codemie, code) = findings(&mut doctor(&sandbox, "bash"), "codemie");
    assert_any(&codemie, &["warn: ", ".codemie is open to others (mode 755)"]);
    assert_any(&codemie, &["error: config.toml: quiet must be true or false"]);
    assert_any(&codemie, &["note: config.toml: frobnicate means nothing"]);
    assert_eq!(code, 1);

    // A number that stands in no database of users has no home folder there either.
    let usual = doctor(&sandbox, "bash");
    let mut homeless = Command::new("unshare");
    homeless.arg("--map-user=54321").arg(usual.get_program()).args(usual.get_args()).env_clear();
    homeless.envs(
        usual.get_envs().filter_map(|(name, value)| Some((name, value?))).filter(|(name, _)| *name != "HOME"),
    );
    let (codemie, code) = findings(&mut homeless, "codemie");
    assert_any(&codemie, &["error: neither CODEMIE_HOME nor HOME is set"]);
    assert_eq!(code, 1);
}

/// An interactive shell that finds a terminal it is not in the foreground of stops itself; asked from a terminal, the
/// doctor must get its answer all the same, and keep the terminal.
#[test]
fn shells_answer_when_the_doctor_sits_at_a_terminal() {
    let sandbox = healthy();
    let mut path = sandbox.search(&[".codemie/shims", "real"]);
    path.push(":");
    path.push(TOOLS);
    let start = |more: &[(&str, &str)]| {
        let start = Start::new([CODEMIE, "doctor"]).env("HOME", sandbox.home()).env("PATH", &path);
        let start = start.env("SHELL", "/bin/bash").env("LANG", "C.UTF-8").size(60, 200);
        let terminal = more.iter().fold(start, |start, (name, value)| start.env(*name, *value)).spawn();
        assert_eq!(terminal.wait_exit().shell_code(), 0, "{}", terminal.text());
        terminal
    };
    let terminal = start(&[]);
    terminal.wait_text("interactive shell (bash) runs codemie");
    terminal.wait_text("TERM is xterm-256color");
    terminal.wait_text("200 columns, 60 rows");
    assert!(terminal.bytes().contains(&0x1b), "colour on a terminal");
    let plain = start(&[("NO_COLOR", "1")]);
    plain.wait_text("All is well.");
    assert!(!plain.bytes().contains(&0x1b), "no colour when it is not wanted");
}
