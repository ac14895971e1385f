//! Shims with real processes: loops, identity, foreign files, shell set-up.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::sandbox::{CODEMIE, Sandbox, TOOLS, output_of, present};

/// A home folder with shims installed and a `claude` that says what it was called with.
fn with_agent() -> Sandbox {
    let sandbox = Sandbox::new();
    let installed = output_of(&mut sandbox.codemie(&["shim", "install"]));
    assert_eq!(installed.code, Some(0), "{installed:?}");
    sandbox.script("real/claude", "echo real \"$@\"");
    sandbox
}

#[test]
fn a_shim_runs_the_real_agent_and_hands_on_its_arguments() {
    let sandbox = with_agent();
    let shim = sandbox.path(".codemie/shims/claude");
    for args in [["--version", "x y"], ["-p", "hi"]] {
        let output = output_of(
            sandbox.command(&shim).args(args).env("PATH", sandbox.search(&[".codemie/shims", "real"])),
        );
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.out.starts_with("real ") && output.out.contains(&args.join(" ")), "{output:?}");
    }
}

#[test]
fn two_shim_managers_that_point_at_each_other_are_stopped_with_the_list() {
    // One manager execs, as mise does; the other starts a child, as volta does.
    for passing_on in ["exec \"$shim\" \"$@\"", "\"$shim\" \"$@\"; exit $?"] {
        for args in [["--version", ""], ["-p", "hi"]] {
            let sandbox = with_agent();
            let shim = sandbox.path(".codemie/shims/claude");
            sandbox.script(
                "manager/claude",
                &format!("echo round >>\"$HOME/rounds\"\nshim=$HOME/.codemie/shims/claude\n{passing_on}"),
            );
            let path = sandbox.search(&[".codemie/shims", "manager"]);
            let output = output_of(sandbox.command(&shim).args(args).env("PATH", &path));
            assert_eq!(output.code, Some(127), "{output:?}");
            for text in [
                "two shim managers point at each other",
                &format!("{}  is codemie itself (same file)", shim.display()),
                &format!("{}  ", sandbox.path("manager/claude").display()),
                "Set CODEMIE_REAL_CLAUDE to the real binary",
            ] {
                assert!(output.err.contains(text), "{text:?} is not in {output:?}");
            }
            let rounds = fs::read_to_string(sandbox.path("rounds")).unwrap().lines().count();
            assert!((1..=6).contains(&rounds), "{rounds} rounds");
        }
    }
}

#[test]
fn agents_that_start_agents_are_no_loop() {
    let sandbox = with_agent();
    // Each level starts the next through the shim, with arguments of its own.
    sandbox.script(
        "real/claude",
        "while [ \"$1\" != -p ]; do shift; done\nif [ \"$2\" -lt 9 ]; then exec claude -p $(($2 + 1)); fi\necho bottom",
    );
    let output = output_of(
        sandbox
            .command(sandbox.path(".codemie/shims/claude"))
            .args(["-p", "0"])
            .env("PATH", sandbox.search(&[".codemie/shims", "real"])),
    );
    assert_eq!((output.code, output.out.as_str()), (Some(0), "bottom\n"), "{output:?}");
}

#[test]
fn a_name_with_nothing_behind_it_is_127_and_one_that_cannot_run_126() {
    let sandbox = with_agent();
    sandbox.file("text/claude", "no program");
    let shim = sandbox.path(".codemie/shims/claude");
    for (folders, code, text) in [
        (&[".codemie/shims", "none"][..], 127, "not found"),
        (&[".codemie/shims", "text"], 126, "not executable"),
    ] {
        let output = output_of(sandbox.command(&shim).env("PATH", sandbox.search(folders)));
        assert_eq!(output.code, Some(code), "{output:?}");
        assert!(output.err.contains(text) && output.err.contains("is codemie itself"), "{output:?}");
    }
}

#[test]
fn another_home_folder_does_not_make_the_shim_find_itself() {
    let sandbox = with_agent();
    let path = sandbox.search(&[".codemie/shims", "real"]);
    let shim = sandbox.path(".codemie/shims/claude");
    let elsewhere = sandbox.outside("elsewhere");
    let mut other = sandbox.command(&shim);
    other.env("HOME", &elsewhere);
    let mut none = sandbox.command(&shim);
    none.env_remove("HOME");
    for mut command in [other, none] {
        let output = output_of(command.arg("--version").env("PATH", &path));
        assert_eq!((output.code, output.out.as_str()), (Some(0), "real --version\n"), "{output:?}");
    }
}

#[test]
fn codemie_is_recognised_under_every_name_it_has() {
    let sandbox = with_agent();
    for folder in ["hard", "second", "far"] {
        fs::create_dir(sandbox.path(folder)).unwrap();
    }
    fs::hard_link(CODEMIE, sandbox.path("hard/claude")).unwrap();
    fs::hard_link(CODEMIE, sandbox.path("second/claude")).unwrap();
    symlink("../hard/claude", sandbox.path("far/claude")).unwrap();
    let script = runtime::shim::install::script_shim(Path::new(CODEMIE), "claude");
    sandbox.script("script/claude", "");
    fs::write(sandbox.path("script/claude"), script).unwrap();

    let path = sandbox.search(&["hard", "second", "far", "script", ".codemie/shims", "real"]);
    for name in ["hard/claude", "far/claude", "script/claude", ".codemie/shims/claude"] {
        let output = output_of(sandbox.command(sandbox.path(name)).arg("--version").env("PATH", &path));
        assert_eq!((output.code, output.out.as_str()), (Some(0), "real --version\n"), "{name}: {output:?}");
    }
}

#[test]
fn the_explicit_binary_wins_and_must_not_be_codemie() {
    let sandbox = with_agent();
    let shim = sandbox.path(".codemie/shims/claude");
    let other = sandbox.script("other/claude-next", "echo next");
    let path = sandbox.search(&[".codemie/shims", "real"]);
    let with = |value: &Path| {
        output_of(
            sandbox.command(&shim).arg("--version").env("PATH", &path).env("CODEMIE_REAL_CLAUDE", value),
        )
    };
    assert_eq!(with(&other).out, "next\n");
    let output = with(&shim);
    assert_eq!(output.code, Some(127), "{output:?}");
    assert!(
        output.err.contains("CODEMIE_REAL_CLAUDE") && output.err.contains("is codemie itself"),
        "{output:?}"
    );

    let set = output_of(&mut sandbox.codemie(&["config", "set", "agent.claude.path", "~/other/claude-next"]));
    assert_eq!(set.code, Some(0), "{set:?}");
    let output = output_of(sandbox.command(&shim).arg("--version").env("PATH", &path));
    assert_eq!(output.out, "next\n", "{output:?}");
}

#[test]
fn without_codemie_the_script_shim_runs_the_agent_itself() {
    let sandbox = with_agent();
    sandbox.script("script/claude", "");
    let gone = sandbox.outside("gone/codemie");
    fs::write(sandbox.path("script/claude"), runtime::shim::install::script_shim(&gone, "claude")).unwrap();
    let shim = sandbox.path("script/claude");
    let output =
        output_of(sandbox.command(&shim).arg("a b").env("PATH", sandbox.search(&["script", "none", "real"])));
    assert_eq!((output.code, output.out.as_str()), (Some(0), "real a b\n"), "{output:?}");
    let output = output_of(sandbox.command(&shim).env("PATH", sandbox.search(&["script"])));
    assert_eq!(output.code, Some(127), "{output:?}");
}

#[test]
fn a_foreign_file_is_never_overwritten_and_never_removed() {
    let sandbox = Sandbox::new();
    let foreign = sandbox.file(".codemie/shims/codex", "mine");
    let installed = output_of(&mut sandbox.codemie(&["shim", "install"]));
    assert_eq!(installed.code, Some(1), "{installed:?}");
    assert!(installed.err.contains(&format!("{} is not a codemie shim", foreign.display())), "{installed:?}");
    assert!(sandbox.path(".codemie/shims/claude").is_symlink(), "the others are there all the same");
    let status = output_of(&mut sandbox.codemie(&["shim", "status", "--json"]));
    let status: serde_json::Value = serde_json::from_str(&status.out).unwrap();
    let states: Vec<_> =
        status["shims"].as_array().unwrap().iter().map(|shim| shim["state"].clone()).collect();
    assert_eq!(states, ["current", "foreign", "current", "current"]);
    let removed = output_of(&mut sandbox.codemie(&["shim", "uninstall"]));
    assert_eq!(removed.code, Some(1), "{removed:?}");
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "mine");
    assert_eq!(fs::read_dir(sandbox.path(".codemie/shims")).unwrap().count(), 1);
}

#[test]
fn init_puts_the_shims_first_and_falls_back_to_aliases() {
    for shell in present(&[&["bash"], &["zsh"], &["fish"]]) {
        let name = shell[0];
        let sandbox = with_agent();
        let load = match name {
            "fish" => "codemie init fish | source".to_owned(),
            _ => format!("eval \"$(codemie init {name})\""),
        };
        let bin = Path::new(CODEMIE).parent().unwrap();
        let path = std::env::join_paths(
            [bin.to_owned(), sandbox.path("real")].into_iter().chain(std::env::split_paths(TOOLS)),
        )
        .unwrap();
        let ask = |script: &str| {
            let output = output_of(sandbox.command(name).args(["-c", script]).env("PATH", &path));
            assert_eq!(output.code, Some(0), "{name}: {output:?}");
            assert_eq!(output.err, "", "{name}: {output:?}");
            output.out
        };
        let shim = format!("{}\n", sandbox.path(".codemie/shims/claude").display());
        assert_eq!(ask(&format!("{load}; command -v claude")), shim, "{name}");

        // Another folder put in front afterwards, then a second time: first again, and there once.
        let real = sandbox.path("real").display().to_string();
        let again = match name {
            "fish" => format!("{load}; set -gx PATH \"{real}\" $PATH; {load}; string join \\n $PATH"),
            _ => format!("{load}; PATH=\"{real}:$PATH\"; {load}; echo \"$PATH\" | tr : '\\n'"),
        };
        let folders = ask(&again);
        let shims = sandbox.path(".codemie/shims").display().to_string();
        assert_eq!(folders.lines().next(), Some(shims.as_str()), "{name}: {folders}");
        assert_eq!(folders.lines().filter(|folder| *folder == shims).count(), 1, "{name}: {folders}");

        let removed = output_of(&mut sandbox.codemie(&["shim", "uninstall"]));
        assert_eq!(removed.code, Some(0), "{removed:?}");
        let show = match name {
            "fish" => "functions claude",
            _ => "alias claude",
        };
        assert!(ask(&format!("{load}; {show}")).contains("codemie claude"), "{name}");
        let own = match name {
            "fish" => format!("function claude; echo own; end; {load}; {show}"),
            _ => format!("alias claude='echo own'; {load}; {show}"),
        };
        assert!(ask(&own).contains("echo own"), "{name}: the user's own alias stays");
    }
}

/// As in a new shell: compinit runs never, or only after the line that evaluates this.
#[test]
fn init_of_zsh_completes_without_compinit_and_before_it() {
    let at_the_prompt =
        "for hook in $precmd_functions; do $hook; done; echo $_comps[codemie] $#precmd_functions";
    for shell in present(&[&["zsh"]]) {
        for own in ["", "autoload -Uz compinit; compinit -u -D;"] {
            let sandbox = with_agent();
            let script = format!("eval \"$(codemie init zsh)\"; {own} {at_the_prompt}");
            let path = format!("{}:{TOOLS}", Path::new(CODEMIE).parent().unwrap().display());
            let mut command = sandbox.command(shell[0]);
            let output = output_of(command.args(["-f", "-i", "-c", &script]).env("PATH", path));
            assert_eq!((output.out.as_str(), output.err.as_str()), ("_codemie 0\n", ""), "{own}");
        }
        let sandbox = with_agent();
        let script =
            "eval \"$(codemie init zsh)\"; echo ${+functions[compdef]} ${+functions[_codemie_complete]}";
        let path = format!("{}:{TOOLS}", Path::new(CODEMIE).parent().unwrap().display());
        let output = output_of(sandbox.command(shell[0]).args(["-f", "-c", script]).env("PATH", path));
        assert_eq!((output.out.as_str(), output.err.as_str()), ("0 0\n", ""), "a script has no use for them");
    }
}

#[test]
fn init_brings_completions() {
    for shell in present(&[&["bash"], &["zsh"], &["fish"]]) {
        let (name, sandbox) = (shell[0], with_agent());
        let script = match name {
            "bash" => "eval \"$(codemie init bash)\"; complete -p codemie",
            "zsh" => {
                "autoload -Uz compinit; compinit -u -D; eval \"$(codemie init zsh)\"; echo $_comps[codemie]"
            }
            _ => "codemie init fish | source; complete -C 'codemie shim '",
        };
        let path = format!("{}:{TOOLS}", Path::new(CODEMIE).parent().unwrap().display());
        let output = output_of(sandbox.command(name).args(["-c", script]).env("PATH", path));
        let expected = if name == "fish" { "uninstall" } else { "_codemie" };
        assert!(output.out.contains(expected), "{name}: {output:?}");
        assert_eq!(output.err, "", "{name}: {output:?}");
    }
}
