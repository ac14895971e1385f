//! `install.sh` under every shell that may run it: twice in a row, then away again, the home folder as before to the byte.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::sandbox::{CODEMIE, CommandOutput, Entry, Sandbox, TOOLS, output_of, present};

const SHELLS: [&[&str]; 4] = [&["dash"], &["bash"], &["busybox", "sh"], &["zsh"]];

const MARK: &str = "# added by the installer of codemie";

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh")
}

fn checksum() -> String {
    checksum_of(CODEMIE)
}

fn checksum_of(file: &str) -> String {
    output_of(Command::new("sha256sum").arg(file)).out[..64].to_owned()
}

/// A home folder as people have it: files with and without a last line break, a symlink into a folder of dotfiles,
/// a private file, an empty one, fish.
fn lived_in() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file(".profile", "umask 022\nexport EDITOR=vi");
    sandbox.file(".bashrc", "# \u{e4}\u{f6}\u{fc} \u{1f600}\nalias ll='ls -l'\n\n");
    let private = sandbox.file(".bash_profile", ". ~/.bashrc\n");
    fs::set_permissions(private, fs::Permissions::from_mode(0o600)).unwrap();
    sandbox.file(".zshrc", "");
    sandbox.file("dotfiles/zshenv", "# from another system\r\ntypeset -U path\n");
    symlink("dotfiles/zshenv", sandbox.path(".zshenv")).unwrap();
    sandbox.file(".config/fish/config.fish", "set -g fish_greeting\n");
    sandbox
}

fn installer(sandbox: &Sandbox, shell: &[&str], args: &[&str]) -> CommandOutput {
    output_of(sandbox.command(shell[0]).args(&shell[1..]).arg(script()).args(args))
}

fn install(sandbox: &Sandbox, shell: &[&str], more: &[&str]) -> CommandOutput {
    let sum = checksum();
    let args = [&["--yes", "--binary", CODEMIE, "--sha256", &sum], more].concat();
    installer(sandbox, shell, &args)
}

fn assert_same(what: &str, before: &BTreeMap<PathBuf, Entry>, after: &BTreeMap<PathBuf, Entry>) {
    let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let changed: Vec<_> = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name))
        .map(|name| format!("{}: {:?} became {:?}", name.display(), before.get(name), after.get(name)))
        .collect();
    assert!(changed.is_empty(), "{what}:\n{}", changed.join("\n"));
}

#[test]
fn what_lies_on_path_is_nobody_elses_to_change() {
    for shell in present(&SHELLS) {
        for (mask, expected) in [("000", 0o755), ("077", 0o700)] {
            let sandbox = Sandbox::new();
            let words = shell.join(" ");
            let line = format!("umask {mask}; exec {words} \"$@\"");
            let sum = checksum();
            let script = script();
            let mut command = sandbox.command("sh");
            command.args(["-c", &line, "sh"]).arg(script);
            command.args(["--yes", "--no-shims", "--binary", CODEMIE, "--sha256", &sum]);
            let installed = output_of(&mut command);
            assert_eq!(installed.code, Some(0), "{shell:?} {mask}: {installed:?}");
            for folder in [".local", ".local/bin"] {
                let mode = fs::metadata(sandbox.path(folder)).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, expected, "{shell:?} {mask}: {folder}");
            }
        }
    }
}

#[test]
fn root_installs_into_no_home_of_another_user() {
    if is_not_root() {
        return testing::left_out("only root can give a folder away");
    }
    for shell in present(&SHELLS) {
        let sandbox = lived_in();
        std::os::unix::fs::chown(sandbox.home(), Some(65_534), None).unwrap();
        let before = sandbox.tree();
        let refused = install(&sandbox, shell, &[]);
        assert_eq!(refused.code, Some(1), "{shell:?}: {refused:?}");
        assert!(refused.err.contains("belongs to another user"), "{refused:?}");
        assert_same(&format!("{shell:?}"), &before, &sandbox.tree());
        std::os::unix::fs::chown(sandbox.home(), Some(0), None).unwrap();
    }
}

fn is_not_root() -> bool {
    !rustix::process::geteuid().is_root()
}

#[test]
fn installs_twice_as_once_and_leaves_no_trace() {
    for shell in present(&SHELLS) {
        let sandbox = lived_in();
        let before = sandbox.tree();

        let first = install(&sandbox, shell, &[]);
        assert_eq!(first.code, Some(0), "{shell:?}: {first:?}");
        assert_eq!(first.err, "", "{shell:?}");
        assert!(first.out.contains("nothing is wrapped yet"), "it ends with the doctor's word: {first:?}");
        let once = sandbox.tree();
        let second = install(&sandbox, shell, &[]);
        assert_eq!(second.code, Some(0), "{shell:?}: {second:?}");
        assert_same(&format!("{shell:?}, installed again"), &once, &sandbox.tree());

        for name in [".profile", ".bashrc", ".bash_profile", ".zshrc", "dotfiles/zshenv"] {
            let text = fs::read_to_string(sandbox.path(name)).unwrap();
            assert_eq!(text.matches(MARK).count(), 1, "{shell:?}: {name}: {text}");
        }
        assert!(sandbox.path(".zshenv").is_symlink());

        let gone = installer(&sandbox, shell, &["--uninstall"]);
        assert_eq!((gone.code, gone.err.as_str()), (Some(0), ""), "{shell:?}: {gone:?}");
        assert_same(&format!("{shell:?}, uninstalled"), &before, &sandbox.tree());
    }
}

#[test]
fn eight_at_once_leave_one_line_and_one_receipt() {
    for shell in present(&SHELLS) {
        let sandbox = lived_in();
        let before = sandbox.tree();
        // One that was killed has left its lock; no process has this number.
        symlink("codemie-installer:4194305", sandbox.path(".codemie-installing")).unwrap();
        let sum = checksum();
        let begin = |_| {
            let mut command = sandbox.command(shell[0]);
            command.args(&shell[1..]).arg(script()).args(["--yes", "--binary", CODEMIE, "--sha256", &sum]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let all: Vec<_> = (0..8).map(begin).collect();
        for one in all {
            let ended = one.wait_with_output().unwrap();
            let output = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(ended.status.success() && output.is_empty(), "{shell:?}: {output}");
        }
        for name in [".profile", ".bashrc", ".bash_profile", ".zshrc", "dotfiles/zshenv"] {
            let text = fs::read_to_string(sandbox.path(name)).unwrap();
            assert_eq!(text.matches(MARK).count(), 1, "{shell:?}: {name}: {text}");
        }
        let receipt = fs::read_to_string(sandbox.path(".codemie/receipt")).unwrap();
        let mut lines: Vec<_> = receipt.lines().collect();
        let count = lines.len();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), count, "{shell:?}: {receipt}");
        let gone = installer(&sandbox, shell, &["--uninstall"]);
        assert_eq!(gone.code, Some(0), "{shell:?}: {gone:?}");
        assert_same(&format!("{shell:?}, taken away"), &before, &sandbox.tree());
    }
}

/// The doctor that ends an installation notes the versions of what it finds; they are no reason to keep a folder.
#[test]
fn what_the_doctor_noted_goes_and_what_the_user_has_stays() {
    let sandbox = lived_in();
    // Not taken for a script that only finds the agent: it says "node".
    sandbox.script("agents/claude", "# node\necho 2.1.197 '(Claude Code)'");
    let before = sandbox.tree();
    let sum = checksum();
    let run = |args: &[&str]| {
        let path = format!("{}:{TOOLS}", sandbox.path("agents").display());
        output_of(sandbox.command("sh").env("PATH", path).arg(script()).args(args))
    };
    let install = ["--yes", "--binary", CODEMIE, "--sha256", &sum];
    assert_eq!(run(&install).code, Some(0));
    assert!(sandbox.path(".codemie/run/version-claude").exists());
    let gone = run(&["--uninstall"]);
    assert_eq!((gone.code, gone.err.as_str()), (Some(0), ""), "{gone:?}");
    assert_same("uninstalled", &before, &sandbox.tree());

    assert_eq!(run(&install).code, Some(0));
    sandbox.file(".codemie/run/deliver.lock", "");
    sandbox.file(".codemie/config.toml", "quiet = true\n");
    let gone = run(&["--uninstall"]);
    assert!(gone.out.contains("your sessions and settings are in it"), "{gone:?}");
    let left: Vec<_> = sandbox.tree().into_keys().filter(|name| !before.contains_key(name)).collect();
    let expected = [".codemie", ".codemie/config.toml", ".codemie/run", ".codemie/run/deliver.lock"];
    assert_eq!(left, expected.map(PathBuf::from));
}

#[test]
fn new_shells_find_the_shims() {
    let sandbox = lived_in();
    let installed = install(&sandbox, &["sh"], &[]);
    assert_eq!(installed.code, Some(0), "{installed:?}");
    let shim = format!("{}\n", sandbox.path(".codemie/shims/claude").display());
    for shell in
        present(&[&["bash", "-lc"], &["bash", "-ic"], &["zsh", "-c"], &["zsh", "-ic"], &["fish", "-c"]])
    {
        let output = output_of(sandbox.command(shell[0]).arg(shell[1]).arg("command -v claude"));
        assert_eq!(output.out, shim, "{shell:?}: {output:?}");
    }
    let output = output_of(sandbox.command("dash").args(["-c", ". ~/.profile; command -v codemie"]));
    assert_eq!(output.out, format!("{}\n", sandbox.path(".local/bin/codemie").display()));
}

/// Each shell is asked for its completions of `codemie att`, as Tab would ask.
#[test]
fn new_shells_complete() {
    let sandbox = lived_in();
    // As people have it: compinit runs before the installer's line, or after it.
    sandbox.file(".zshrc", "autoload -Uz compinit; compinit -u\n");
    let installed = install(&sandbox, &["sh"], &[]);
    assert_eq!(installed.code, Some(0), "{installed:?}");
    assert!(installed.out.contains("codemie init"), "{installed:?}");
    let bash = "COMP_WORDS=(codemie att); COMP_CWORD=1; _codemie_load; echo loaded $?
        complete -p codemie | grep -o -- '-F _codemie_words '; _codemie_words codemie att codemie; echo \"${COMPREPLY[*]}\"";
    let zsh = "echo ${_comps[codemie]}; autoload +X _codemie && echo ${+functions[_codemie]}";
    let asked: [(&[&str], &str, &str); 4] = [
        (&["bash", "-ic"], bash, "loaded 124\n-F _codemie_words \nattach\n"),
        (&["zsh", "-ic"], zsh, "_codemie\n1\n"),
        (&["fish", "-c"], "complete -C 'codemie att' | string split -f1 \\t", "attach\n"),
        (&["bash", "-c"], "type -t _codemie_load || echo none", "none\n"),
    ];
    let here = present(&asked.map(|(shell, ..)| shell));
    for (shell, script, expected) in asked.into_iter().filter(|(shell, ..)| here.contains(shell)) {
        let output = output_of(sandbox.command(shell[0]).arg(shell[1]).arg(script));
        assert_eq!(output.out, expected, "{shell:?}: {output:?}");
    }
}

#[test]
fn refuses_before_it_changes_anything() {
    let sum = checksum();
    let wrong = sum.replace(|digit: char| digit.is_ascii_digit(), "0");
    let cases: &[(&[&str], i32, &str)] = &[
        (&["--binary", CODEMIE, "--sha256", &wrong], 1, "the checksum of"),
        (&["--binary", CODEMIE, "--sha256", "no-checksum"], 1, "the checksum of"),
        (&["--binary", "/nonexistent", "--sha256", &sum], 1, "there is no file"),
        (&["--sha256", &sum], 1, "--sha256 goes with --binary"),
        (&["--frobnicate"], 2, "there is no option --frobnicate"),
        (&["--prefix"], 2, "--prefix needs a value"),
        (&["--uninstall"], 1, "nothing is known to be installed"),
        (&["--purge"], 2, "--purge goes with --uninstall"),
    ];
    for shell in present(&SHELLS) {
        let sandbox = lived_in();
        let before = sandbox.tree();
        for (args, code, text) in cases {
            let output = installer(&sandbox, shell, args);
            assert_eq!(output.code, Some(*code), "{shell:?} {args:?}: {output:?}");
            assert!(output.err.contains(text), "{shell:?} {args:?}: {output:?}");
            assert_same(&format!("{shell:?} {args:?}"), &before, &sandbox.tree());
        }
    }
}

#[test]
fn a_file_without_a_checksum_is_installed_and_its_checksum_is_printed() {
    for shell in present(&SHELLS) {
        let sandbox = lived_in();
        let output = installer(&sandbox, shell, &["--yes", "--binary", CODEMIE]);
        assert_eq!(output.code, Some(0), "{shell:?}: {output:?}");
        assert!(output.out.contains(&format!("sha256 of {CODEMIE}: {}", checksum())), "{output:?}");
    }
}

#[test]
fn a_purge_takes_sessions_and_settings_away_and_asks_before() {
    for shell in present(&SHELLS) {
        let sandbox = lived_in();
        let before = sandbox.tree();
        assert_eq!(install(&sandbox, shell, &[]).code, Some(0));
        sandbox.file(".codemie/config.toml", "quiet = true\n");
        let installed = sandbox.tree();
        let refused = installer(&sandbox, shell, &["--uninstall", "--purge"]);
        assert_eq!(refused.code, Some(1), "{shell:?}: {refused:?}");
        assert!(refused.err.contains("add --yes where nobody can be asked"), "{refused:?}");
        assert_same(&format!("{shell:?}, refused"), &installed, &sandbox.tree());
        let gone = installer(&sandbox, shell, &["--uninstall", "--purge", "--yes"]);
        assert_eq!((gone.code, gone.err.as_str()), (Some(0), ""), "{shell:?}: {gone:?}");
        assert_same(&format!("{shell:?}, purged"), &before, &sandbox.tree());
    }
}

#[test]
fn a_dry_run_tells_and_does_nothing() {
    for shell in present(&SHELLS) {
        let sandbox = lived_in();
        let before = sandbox.tree();
        let output = install(&sandbox, shell, &["--dry-run"]);
        assert_eq!(output.code, Some(0), "{shell:?}: {output:?}");
        for step in ["would install ", "would make shims", "would add a line to ", "would write "] {
            assert!(output.out.contains(step), "{shell:?}: {output:?}");
        }
        assert_same(&format!("{shell:?}"), &before, &sandbox.tree());

        let installed = install(&sandbox, shell, &[]);
        assert_eq!(installed.code, Some(0), "{shell:?}: {installed:?}");
        let before = sandbox.tree();
        let output = installer(&sandbox, shell, &["--uninstall", "--dry-run"]);
        assert!(output.out.contains("would remove a line from "), "{shell:?}: {output:?}");
        assert_same(&format!("{shell:?}, uninstalling"), &before, &sandbox.tree());
    }
}

#[test]
fn options_have_twins_in_the_environment_and_places_can_be_chosen() {
    let sandbox = lived_in();
    let before = sandbox.tree();
    let run = |args: &[&str]| {
        let mut command = sandbox.command("sh");
        command
            .arg(script())
            .args(args)
            .env("CODEMIE_INSTALL_BINARY", CODEMIE)
            .env("CODEMIE_INSTALL_SHA256", checksum().to_uppercase())
            .env("CODEMIE_INSTALL_PREFIX", sandbox.path("my tools"))
            .env("CODEMIE_INSTALL_NO_SHIMS", "1")
            .env("CODEMIE_INSTALL_NO_MODIFY_PATH", "1")
            .env("CODEMIE_HOME", sandbox.path("state/of codemie"));
        output_of(&mut command)
    };
    let output = run(&[]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let made: Vec<_> = sandbox.tree().into_keys().filter(|name| !before.contains_key(name)).collect();
    let expected = [
        "my tools",
        "my tools/bin",
        "my tools/bin/codemie",
        "state",
        "state/of codemie",
        "state/of codemie/completions",
        "state/of codemie/completions/_codemie",
        "state/of codemie/completions/codemie.bash",
        "state/of codemie/completions/codemie.fish",
        "state/of codemie/env",
        "state/of codemie/env.fish",
        "state/of codemie/receipt",
    ];
    assert_eq!(made, expected.map(PathBuf::from));
    assert_eq!(fs::metadata(sandbox.path("state/of codemie")).unwrap().permissions().mode() & 0o777, 0o700);
    let output = run(&["--uninstall"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_same("uninstalled", &before, &sandbox.tree());
}

#[test]
fn what_is_not_from_the_installer_stays() {
    let sandbox = lived_in();
    sandbox.file(".codemie/shims/codex", "mine");
    sandbox.file(".codemie/config.toml", "quiet = true\n");
    let installed = install(&sandbox, &["sh"], &[]);
    assert_eq!(installed.code, Some(0), "{installed:?}");
    assert!(installed.err.contains("is not a codemie shim"), "{installed:?}");
    // Since then the user has worked: sessions, and a line without an end after ours.
    sandbox.file(".codemie/codemie.db", "sessions");
    let bashrc = fs::read_to_string(sandbox.path(".bashrc")).unwrap();
    sandbox.file(".bashrc", &format!("{bashrc}export LATER=1"));
    let profile = fs::read_to_string(sandbox.path(".profile")).unwrap();
    sandbox.file(".profile", &format!("{profile}export LATER=1\n"));

    let gone = installer(&sandbox, &["sh"], &["--uninstall"]);
    assert_eq!(gone.code, Some(0), "{gone:?}");
    let kept = |name: &str| fs::read_to_string(sandbox.path(name)).unwrap();
    assert_eq!(kept(".codemie/shims/codex"), "mine");
    assert_eq!(kept(".codemie/config.toml"), "quiet = true\n");
    assert_eq!(kept(".codemie/codemie.db"), "sessions");
    assert!(kept(".bashrc").ends_with("\n\nexport LATER=1"), "{}", kept(".bashrc"));
    assert_eq!(kept(".profile"), "umask 022\nexport EDITOR=vi\nexport LATER=1\n");
    assert!(!sandbox.path(".local").exists() && !sandbox.path(".codemie/env").exists());
}

#[test]
fn a_program_of_another_origin_is_not_replaced() {
    let sandbox = lived_in();
    sandbox.script(".local/bin/codemie", "echo 0.14.0");
    let before = sandbox.tree();
    let output = install(&sandbox, &["sh"], &[]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("is not this codemie"), "{output:?}");
    assert_same("refused", &before, &sandbox.tree());
}

/// A cargo that builds nothing, but checks how it is asked: a real build is another test's business.
#[test]
fn builds_from_the_checkout_with_the_locked_dependencies() {
    for shell in present(&SHELLS) {
        let sandbox = lived_in();
        let target = sandbox.outside("target folder");
        let cargo = "if [ \"$1\" = --version ]; then echo 'cargo 1.200.1 (f2d3ce0bd 2026-03-21)'; exit; fi
            echo \"in $PWD: cargo $*\"
            while [ \"$1\" != --target-dir ]; do shift; done
            mkdir -p \"$2/dist\" && cp \"$CODEMIE_BUILT\" \"$2/dist/codemie\"";
        let run = |body: &str| {
            let tools = sandbox.outside("tools");
            fs::create_dir_all(&tools).unwrap();
            let program = tools.join("cargo");
            fs::write(&program, format!("#!/bin/sh\n{body}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            let mut command = sandbox.command(shell[0]);
            command
                .args(&shell[1..])
                .arg(script())
                .env("PATH", format!("{}:{TOOLS}", tools.display()))
                .env("CARGO_TARGET_DIR", &target)
                .env("CODEMIE_BUILT", CODEMIE);
            output_of(&mut command)
        };
        let before = sandbox.tree();
        let output = run("exit 101");
        assert_eq!(output.code, Some(1), "{shell:?}: {output:?}");
        assert!(output.err.contains("the build failed"), "{shell:?}: {output:?}");
        assert_same(&format!("{shell:?}: failed build"), &before, &sandbox.tree());

        let output = run("[ \"$1\" = --version ] && echo 'cargo 1.84.1'");
        assert_eq!(output.code, Some(1), "{shell:?}: {output:?}");
        assert!(output.err.contains("and cargo here is 1.84; run: rustup update"), "{shell:?}: {output:?}");
        assert_same(&format!("{shell:?}: old cargo"), &before, &sandbox.tree());

        let output = run(cargo);
        assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{shell:?}: {output:?}");
        // Where cargo finds this project's settings.
        let there =
            format!("in {}: cargo build --profile dist --locked --target-dir ", env!("CARGO_MANIFEST_DIR"));
        assert!(output.out.contains(&there), "{shell:?}: {output:?}");
        assert!(sandbox.path(".local/bin/codemie").is_file());
    }
}

#[test]
fn a_failure_half_way_leaves_only_what_uninstall_removes() {
    for shell in present(&SHELLS) {
        let sandbox = lived_in();
        let before = sandbox.tree();
        let broken = sandbox.outside("broken");
        fs::write(&broken, "#!/bin/sh\nexit 1\n").unwrap();
        let broken = broken.to_str().unwrap();
        let sum = checksum_of(broken);
        let output = installer(&sandbox, shell, &["--yes", "--binary", broken, "--sha256", &sum]);
        assert_eq!(output.code, Some(1), "{shell:?}: {output:?}");
        assert!(output.err.contains("does not run on this machine"), "{shell:?}: {output:?}");
        let left = fs::read_dir(sandbox.path(".local/bin")).unwrap().count();
        assert_eq!(left, 0, "{shell:?}: no temporary file, no program");
        let gone = installer(&sandbox, shell, &["--uninstall"]);
        assert_eq!(gone.code, Some(0), "{shell:?}: {gone:?}");
        assert_same(&format!("{shell:?}"), &before, &sandbox.tree());
    }
}

#[test]
fn a_script_cut_short_does_nothing() {
    let whole = fs::read(script()).unwrap();
    let sum = checksum();
    let sandbox = lived_in();
    let before = sandbox.tree();
    let last_line = whole.len() - "main \"$@\"\n".len();
    for cut in [whole.len() / 4, whole.len() / 2, whole.len() * 3 / 4, last_line] {
        let part = sandbox.outside("part.sh");
        fs::write(&part, &whole[..cut]).unwrap();
        let output = output_of(
            sandbox.command("sh").arg(&part).args(["--yes", "--binary", CODEMIE, "--sha256", &sum]),
        );
        assert_same(&format!("cut at {cut}: {output:?}"), &before, &sandbox.tree());
    }
}
