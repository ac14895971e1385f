//! Homes, folders, names and attributes as they come.
use crate::sandbox::{CODEMIE, Sandbox, output_of};
use crate::support::agents::left_out;
use crate::support::pty::{Exit, Terminal};
use crate::support::wrapper::Bench;
use rustix::termios::Termios;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Runs a command that converses, and sees that it does.
const COMMAND: &str = "echo home ${HOME-none}.; read line; echo \"got $line.\"; exit 3";

fn converse(terminal: &Terminal, first: &str) {
    terminal.wait_text(first);
    terminal.type_line("hello");
    terminal.wait_text("got hello.");
    assert_eq!(terminal.wait_exit(), Exit::Code(3));
    assert_eq!(terminal.modes(), terminal.first_modes());
}

pub(super) fn no_home(bench: &Bench) {
    let path = std::env::var_os("PATH").unwrap();
    // Without the variable it would be the home of the user who runs the tests.
    let own = bench.home().join("own");
    let start = bench.start(&["sh", "-c", COMMAND]).env_clear().env("PATH", path).env("CODEMIE_HOME", own);
    converse(&start.spawn(), "home none.");
}

pub(super) fn home_that_is_no_folder(bench: &Bench) {
    for home in ["/dev/null", "/nowhere/at/all", "relative", ""] {
        let start = bench.start(&["sh", "-c", COMMAND]).cwd(bench.home());
        converse(&start.env("HOME", home).env("CODEMIE_HOME", home).spawn(), &format!("home {home}."));
    }
}

pub(super) fn no_controlling_terminal(bench: &Bench) {
    converse(&bench.start_in("exec setsid -w {}", &["sh", "-c", COMMAND]).spawn(), "home");
}

/// As in `unshare -pf` or a container's shell: for our session and process group the kernel answers 0.
pub(super) fn session_led_from_another_pid_namespace(bench: &Bench) {
    let Some(way) = pid_namespace() else { return left_out("pid namespaces are not permitted here") };
    let start = bench.start_in(&format!("exec unshare {way} -- {{}}"), &["sh", "-c", COMMAND]);
    converse(&start.spawn(), "home");
}

/// The options with which unshare makes a pid namespace here.
fn pid_namespace() -> Option<&'static str> {
    ["-pf --mount-proc", "-Urpf --mount-proc"].into_iter().find(|way| {
        let tried = Command::new("unshare").args(way.split(' ')).args(["--", "true"]).output();
        tried.is_ok_and(|output| output.status.success())
    })
}

/// The launcher looks at its ancestors and its session's leader, the host at the peer of its socket.
#[test]
fn background_session_led_from_another_pid_namespace() {
    let Some(way) = pid_namespace() else { return left_out("pid namespaces are not permitted here") };
    let sandbox = Sandbox::new();
    let script = r#"
        "$codemie" run --detach --name far -- sh -c 'echo begun; read line; exit 3' >id
        "$codemie" current || echo "outside: $?"
        "$codemie" stop far
        "$codemie" wait far --until exit --timeout 50s"#;
    let mut command = sandbox.command("unshare");
    command.args(way.split(' ')).args(["--", "sh", "-c", script]).env("codemie", CODEMIE);
    let output = output_of(&mut command);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.out.contains("outside: ") && output.out.contains("exit"), "{output:?}");
}

pub(super) fn deleted_folder(bench: &Bench) {
    let script = "mkdir \"$HOME/gone\"; cd \"$HOME/gone\"; rmdir \"$HOME/gone\"; exec {}";
    converse(&bench.start_in(script, &["sh", "-c", COMMAND]).spawn(), "home");
}

pub(super) fn command_named_by_odd_bytes(bench: &Bench) {
    let folder = bench.home().join(OsStr::from_bytes(b"\xff\xfe \n"));
    let program = folder.join(OsStr::from_bytes(b"-run\x80"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(&program, format!("#!/bin/sh\n{COMMAND}\n")).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let home = folder.join("home");
    converse(&bench.start(&[&program]).cwd(&folder).env("CODEMIE_HOME", home).spawn(), "home");
}

pub(super) fn not_executable(bench: &Bench) {
    std::fs::write(bench.home().join("text"), "text").unwrap();
    for name in ["./text", "."] {
        let terminal = bench.start_in("cd \"$HOME\"; exec {}", &[name]).spawn();
        assert_eq!(terminal.wait_exit(), Exit::Code(126), "{name}");
        assert!(terminal.text().contains(name), "no message: {}", terminal.text());
        assert_eq!(terminal.modes(), terminal.first_modes());
    }
}

/// Mask, limits, priority, capabilities, signal dispositions, terminal modes: as the caller had them.
pub(super) fn process_attributes(bench: &Bench) {
    let look = "umask; ulimit -a; stty -g; cut -d' ' -f19 /proc/self/stat; cat /proc/self/oom_score_adj
        grep -E '^(Umask|Groups|Sig(Blk|Ign)|Cap|NoNewPrivs|Seccomp|Cpus_allowed)' /proc/self/status; pwd";
    let script = format!(
        "umask 027; ulimit -c 0; trap '' USR2 PIPE; cd /usr; {{ {look}; }} >\"$HOME/before\"; exec {{}}"
    );
    let command = format!("{{ {look}; }} >\"$HOME/inside\"");
    let terminal = bench.start_in(&script, &["sh", "-c", &command]).modes(Termios::make_raw).spawn();
    assert_eq!(terminal.wait_exit(), Exit::Code(0), "{}", terminal.text());
    let told = |name| std::fs::read_to_string(bench.home().join(name)).unwrap();
    assert_eq!(told("inside"), told("before"));
    assert!(told("before").contains("SigIgn"));
}

/// The database of users that is read is another file, in a mount namespace; a number that stands in none has no home folder.
#[test]
fn without_home_the_folder_of_the_database_of_users_is_used() {
    if !std::process::Command::new("unshare")
        .args(["-rm", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        return left_out("user namespaces are not permitted here");
    }
    let folder = tempfile::tempdir().unwrap();
    let (home, users) = (folder.path().join("account"), folder.path().join("passwd"));
    std::fs::create_dir(&home).unwrap();
    std::fs::write(&users, format!("dev:x:0:0::{}:/bin/sh\n", home.display())).unwrap();
    let run = |namespaces: &[&str], script: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(namespaces).args(["sh", "-c", script, "sh"]).arg(&users);
        command.args(["env", "-i", "PATH=/usr/bin:/bin", env!("CARGO_BIN_EXE_codemie"), "run", "--"]);
        let output = command.args(["sh", "-c", "exit 3"]).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let known = run(&["-rm"], "mount --bind \"$1\" /etc/passwd && shift && exec \"$@\"");
    assert_eq!(known, "");
    assert!(home.join(".codemie/codemie.db").exists());
    let unknown = run(&["--map-user=54321"], "shift && exec \"$@\"");
    assert_eq!(unknown, "codemie: this session is not recorded: set HOME or CODEMIE_HOME\n");
}
