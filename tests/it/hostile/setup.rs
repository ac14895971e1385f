//! A set-up that looks well and is not is told from one that is.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::bounded;
use crate::delivery::play::Play;
use crate::sandbox::{CODEMIE, CommandOutput, Sandbox, output_of};
use crate::support::pty::Exit;
use crate::support::receiver::{Receiver, Reply};

/// Answers every request with this status.
fn refusing(status: u16) -> Receiver {
    Receiver::start(move |_| Reply::Status(status, "{}".into()))
}

/// An address where nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn set_up(url: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.file(".codemie/config.toml", &format!("[backend]\nurl = '{url}'\ntoken = 't'\n"));
    sandbox
}

fn doctor(sandbox: &Sandbox) -> CommandOutput {
    output_of(&mut bounded(sandbox, &["doctor", "--timeout", "20s"]))
}

#[test]
fn doctor_and_an_empty_sync_say_what_keeps_a_receiver() {
    let (wrong, reading) = (refusing(401), refusing(403));
    for (url, why) in [
        (wrong.url(), "refused the credentials (401)"),
        (reading.url(), "refused the token (403): one of role ingest is needed"),
        (nobody(), "nobody listens at http://127.0.0.1:"),
    ] {
        let sandbox = set_up(&url);
        let sick = doctor(&sandbox);
        assert!(sick.out.replace('\n', " ").contains(why), "no database yet: {sick:?}");
        let sync = output_of(&mut bounded(&sandbox, &["sync", "--timeout", "20s"]));
        assert_eq!(sync.code, Some(1), "{sync:?}");
        assert!(
            sync.err.contains("0 events delivered, but it would take none: ") && sync.err.contains(why),
            "{sync:?}"
        );
        let sick = doctor(&sandbox);
        assert!(sick.out.contains("takes nothing: ") && sick.out.contains(why), "{sick:?}");
    }
}

#[test]
fn a_receiver_that_takes_events_is_asked_and_told_nothing() {
    let receiver = Receiver::start(|received| {
        assert_eq!(received.path, "/v1/events");
        let events: Vec<serde_json::Value> = serde_json::from_slice(&received.body).unwrap();
        assert!(events.is_empty(), "{events:?}");
        Reply::Status(200, r#"{"accepted":0,"duplicates":0,"rejected":[]}"#.into())
    });
    let sandbox = set_up(&receiver.url());
    let well = doctor(&sandbox);
    assert!(well.out.contains("it answers"), "{well:?}");
    let sync = output_of(&mut bounded(&sandbox, &["sync"]));
    assert_eq!(
        (sync.code, sync.err.as_str()),
        (Some(0), "codemie: backend: 0 events delivered, nothing is left\n")
    );
    assert_eq!(receiver.received().len(), 2);
}

#[test]
fn a_paused_delivery_is_said_after_a_run_on_a_terminal() {
    let receiver = refusing(401);
    let config = format!("[backend]\nurl = '{}'\ntoken = 't'\n[sync]\nexitTimeout = '20s'\n", receiver.url());
    let play = Play::new(&config);
    let line = "exec \"$CODEMIE_UNDER_TEST\" claude";
    let terminal = play.start_in_shell(line, &[("CODEMIE_QUIET", String::new())]);
    assert_eq!(terminal.wait_exit(), Exit::Code(0), "{}", terminal.text());
    let output =
        "codemie: delivery to backend is paused: it refused the credentials (401); see: codemie doctor";
    let text = terminal.text();
    let shown: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains(output), "{text}");
    let quiet = play.start();
    assert_eq!(quiet.wait_exit(), Exit::Code(0));
    assert!(!quiet.text().contains("is paused"), "{}", quiet.text());
    let status = play.codemie(&["sync", "--status"]);
    assert!(status.out.contains("refused the credentials (401)"), "{status:?}");
}

/// As somebody whom permissions bind; `None` where that cannot be had.
fn bound(sandbox: &Sandbox, args: &[&str]) -> Option<CommandOutput> {
    if !rustix::process::geteuid().is_root() {
        return Some(output_of(&mut sandbox.codemie(args)));
    }
    let mut command = sandbox.command("/usr/bin/setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", CODEMIE]).args(args);
    let output = output_of(&mut command);
    (output.code != Some(127) && output.code != Some(126)).then_some(output)
}

#[test]
fn a_home_that_may_not_be_searched_is_not_an_empty_one() {
    let sandbox = Sandbox::new();
    assert_eq!(output_of(&mut sandbox.codemie(&["run", "--", "true"])).code, Some(0));
    if rustix::process::geteuid().is_root() {
        for folder in [sandbox.home().parent().unwrap(), sandbox.home(), &sandbox.path(".codemie")] {
            chown(folder, Some(65534), Some(65534)).unwrap();
        }
    }
    let mode =
        |mode| fs::set_permissions(sandbox.path(".codemie"), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o000);
    for args in [&["list"][..], &["usage"], &["show", "x"], &["list", "--json"]] {
        let Some(output) = bound(&sandbox, args) else {
            testing::left_out("there is no way to be another user");
            break;
        };
        assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "codemie {args:?}: {output:?}");
        let why = output.err.contains("cannot be read") && output.err.contains("Permission denied");
        assert!(why && output.err.contains("check the permissions"), "codemie {args:?}: {output:?}");
        assert!(!output.err.contains("cannot be written"), "{output:?}");
    }
    if let Some(sick) = bound(&sandbox, &["doctor", "--timeout", "5s"]) {
        assert_eq!(sick.code, Some(1), "{sick:?}");
        assert!(sick.out.contains("cannot be read") && sick.out.contains("chmod u+rwx"), "{sick:?}");
    }
    mode(0o700);
}

#[test]
fn a_home_that_leads_nowhere_is_said_to_whoever_asks() {
    let sandbox = Sandbox::new();
    symlink(".codemie", sandbox.path(".codemie")).unwrap();
    for args in [&["list"][..], &["usage"]] {
        let output = output_of(&mut bounded(&sandbox, args));
        assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "codemie {args:?}: {output:?}");
        assert!(output.err.contains("symbolic links"), "{output:?}");
    }
}
