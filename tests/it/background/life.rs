//! A host's start and end.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rusqlite::Connection;
use rustix::process::Signal;

use super::{Scene, TIMEOUT};
use crate::sandbox::CODEMIE;
use crate::support::mounts::with_mounts;
use crate::support::processes;
use crate::support::scripted::{self, Scripted, await_some};

fn pid(record: &serde_json::Value, field: &str) -> i32 {
    record[field].as_i64().unwrap().try_into().unwrap()
}

/// Waits until nothing runs that was started here.
fn await_nothing_left(scene: &Scene) {
    await_some("nothing is left", || {
        let left = processes::started_in(scene.sandbox.home());
        left.iter()
            .all(|pid| processes::process(*pid).is_none_or(|process| process.state == 'Z'))
            .then_some(())
    });
}

#[test]
fn session_is_known_by_the_id_that_was_printed_from_the_first_moment() {
    let scene = Scene::new();
    let id = scene.start("first", "echo up; exec sleep 1000");
    let record = scene.record(&id);
    assert_eq!((&record["name"], &record["status"]), (&"first".into(), &"active".into()));
    assert_eq!(record["sessionId"], id.as_str());
    let host = processes::process(pid(&record, "wrapperPid")).unwrap();
    assert_eq!(host.session, host.pid, "in a session of its own");
    let open = fs::read_link(format!("/proc/{}/fd/0", host.pid)).unwrap();
    assert_eq!(open.to_str(), Some("/dev/null"));
}

#[test]
fn silent_program_that_is_no_agent_is_in_no_known_state() {
    let scene = Scene::new();
    let id = scene.start("silent", "exec sleep 1000");
    let state = await_some("its state after the start", || {
        let state = scene.record(&id)["state"].clone();
        (state["is"] != "starting").then_some(state)
    });
    assert_eq!(state["is"], "unknown", "{state}");
    let (_, listed, _) = scene.codemie(&["list"]);
    assert!(listed.contains(" active "), "{listed}");
}

/// As many as a host takes at once, and nobody else of this user's would reach it.
#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let scene = Scene::new();
    scene.start("asked", "exec sleep 1000");
    let entries = fs::read_dir(scene.home().run()).unwrap().map(|entry| entry.unwrap().path());
    let socket = entries.filter(|path| path.metadata().unwrap().file_type().is_socket()).collect::<Vec<_>>();
    let [socket] = &socket[..] else { panic!("{socket:?}") };
    let mut silent: Vec<UnixStream> = (0..100).map(|_| UnixStream::connect(socket).unwrap()).collect();
    drop(scene.connect("asked"));
    for one in &mut silent {
        one.set_read_timeout(Some(TIMEOUT)).unwrap();
        assert_eq!(one.read(&mut [0]).unwrap_or(0), 0, "its connection is closed");
    }
    drop(scene.connect("asked"));
}

#[test]
fn program_that_cannot_be_started_is_no_session() {
    let scene = Scene::new();
    let (code, out, err) = scene.codemie(&["run", "--detach", "--", "no-such-program"]);
    assert_eq!((code, out.as_str()), (Some(127), ""), "{err}");
    assert!(err.contains("no-such-program: command not found"), "{err}");
    let (code, _, err) = scene.codemie(&["run", "--detach", "--", "/"]);
    assert_eq!(code, Some(126), "{err}");
    assert_eq!(scene.codemie(&["list", "--json"]).1.trim(), "[]");
}

#[test]
fn arguments_that_begin_no_conversation_are_refused() {
    let scene = Scene::new();
    scene.sandbox.script("bin/claude", "echo real");
    let mut command = scene.sandbox.codemie(&["run", "--detach", "claude", "--version"]);
    command.env("PATH", scene.sandbox.search(&["bin"]));
    let output = crate::sandbox::output_of(&mut command);
    assert_eq!(output.code, Some(125), "{output:?}");
    assert!(output.err.contains("begin no conversation"), "{output:?}");
}

#[test]
fn program_that_ends_at_once_has_a_session_with_its_exit_code() {
    let scene = Scene::new();
    let id = scene.start("short", "exit 3");
    let record = scene.await_ended(&id);
    assert_eq!((&record["exitCode"], &record["endReason"]), (&3.into(), &"exit".into()), "{record}");
    let sockets = fs::read_dir(scene.home().run()).unwrap().flatten();
    let sockets: Vec<_> = sockets.map(|entry| entry.file_name()).collect();
    await_some("the socket is removed", || {
        (!runtime::remote::address::exists(&scene.home(), scene.run(&id))).then_some(())
    });
    assert!(sockets.len() < 10, "{sockets:?}");
}

#[test]
fn host_survives_the_launcher_and_its_terminal() {
    let scene = Scene::new();
    let mut command = scene.sandbox.codemie(&["run", "--detach", "--", "sleep", "1000"]);
    let mut launcher = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut id = String::new();
    std::io::Read::read_to_string(launcher.stdout.as_mut().unwrap(), &mut id).unwrap();
    launcher.wait().unwrap();
    let record = scene.record(id.trim());
    assert!(processes::process(pid(&record, "pid")).is_some());
}

#[test]
fn killed_launcher_leaves_one_session_or_none() {
    let scene = Scene::new();
    for _ in 0..5 {
        let mut command = scene.sandbox.codemie(&["run", "--detach", "--", "sleep", "1000"]);
        let mut launcher = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        launcher.kill().unwrap();
        launcher.wait().unwrap();
    }
    // Whatever came up is a session with its program, and nothing else was left.
    let list: Vec<serde_json::Value> =
        serde_json::from_str(&scene.codemie(&["list", "--json"]).1).unwrap_or_default();
    assert!(list.len() <= 5, "{list:?}");
}

#[test]
fn killed_host_takes_its_program_along_and_is_recovered_as_interrupted() {
    let scene = Scene::new();
    let id = scene.start("killed", "trap '' HUP; while :; do sleep 1; done");
    let record = scene.record(&id);
    processes::signal(pid(&record, "wrapperPid"), Signal::KILL);
    assert!(processes::wait_dead(pid(&record, "pid"), TIMEOUT), "the monitor ends the program");
    let record = scene.await_ended(&id);
    assert_eq!((&record["status"], &record["endReason"]), (&"interrupted".into(), &"crash".into()));
}

#[test]
fn signal_to_the_host_ends_the_program_and_the_session() {
    let scene = Scene::new();
    let id = scene.start("term", "exec sleep 1000");
    processes::signal(pid(&scene.record(&id), "wrapperPid"), Signal::TERM);
    let record = scene.await_ended(&id);
    assert_eq!(record["endReason"], "signal", "{record}");
}

#[test]
fn session_that_a_fresh_store_does_not_know_is_named_by_the_doctor() {
    let scene = Scene::new();
    let id = scene.start("orphan", "exec sleep 1000");
    let record = scene.record(&id);
    let host = pid(&record, "wrapperPid");
    // As after damage: the store is set aside, and a new one begun.
    fs::write(scene.home().database(), "damaged").unwrap();
    let (_, listed, _) = scene.codemie(&["list"]);
    assert!(!listed.contains("orphan"), "{listed}");
    let socket =
        runtime::remote::address::path(&scene.home(), record["runId"].as_str().unwrap().parse().unwrap());
    // Not one that has just begun.
    let aged = scene.sandbox.command("touch").args(["-d", "1 hour ago"]).arg(socket).status().unwrap();
    assert!(aged.success());
    let (_, found, _) = scene.codemie(&["doctor"]);
    assert!(found.contains(&format!("does not know: orphan (pid {host})")), "{found}");
    assert!(found.contains(&format!("kill {host}")), "{found}");
    processes::signal(host, Signal::TERM);
    assert!(processes::wait_dead(pid(&record, "pid"), TIMEOUT), "its program ends with it");
    assert!(processes::wait_dead(host, TIMEOUT));
    assert!(!scene.codemie(&["doctor"]).1.contains("orphan"));
}

#[test]
fn twenty_sessions_at_once_are_stopped_and_none_is_left() {
    let scene = Scene::new();
    // Each with a child that left its group and a daemon that forked twice.
    let script =
        "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000 &' &) ; echo up; exec sleep 1000";
    let ids: Vec<String> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..20)
            .map(|n| {
                let scene = &scene;
                scope.spawn(move || scene.start(&format!("many-{n}"), script))
            })
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    for id in &ids {
        scene.attach(id, 24, 80).wait_for("up");
    }
    let (code, out, err) = scene.codemie(&["stop", "--all-mine"]);
    assert_eq!(code, Some(0), "{out}{err}");
    for id in &ids {
        assert_eq!(scene.record(id)["endReason"], "stopped");
    }
    await_nothing_left(&scene);
}

#[test]
fn everything_killed_at_once_is_recovered_as_interrupted() {
    let scene = Scene::new();
    let ids = ["one", "two"].map(|name| scene.start(name, "echo up; exec sleep 1000"));
    processes::kill_started_in(scene.sandbox.home());
    for id in &ids {
        let record = scene.await_ended(id);
        assert_eq!((&record["status"], &record["endReason"]), (&"interrupted".into(), &"crash".into()));
        await_some("its socket is removed", || {
            scene.codemie(&["list"]);
            (!runtime::remote::address::exists(&scene.home(), scene.run(id))).then_some(())
        });
    }
}

#[test]
fn session_is_stopped_at_its_total_limit() {
    let scene = Scene::new();
    scene.sandbox.file(".codemie/config.toml", "[host]\ntotalLimit = '300ms'\n");
    let id = scene.start("limited", "exec sleep 1000");
    assert_eq!(scene.await_ended(&id)["endReason"], "stopped");
    let (code, out, err) = scene.codemie(&["explain", &id]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("host.totalLimit is reached"), "{out}");
}

#[test]
fn wait_for_a_stopped_host_is_pending_when_its_time_is_up() {
    let scene = Scene::new();
    let id = scene.start("frozen", "exec sleep 1000");
    let host = pid(&scene.record(&id), "wrapperPid");
    processes::signal(host, Signal::STOP);
    let (code, out, err) = scene.codemie(&["wait", &id, "--timeout", "300ms", "--json"]);
    processes::signal(host, Signal::CONT);
    assert_eq!(code, Some(5), "{out} {err}");
    assert!(out.contains("pending"), "{out} {err}");
}

#[test]
fn orphans_of_the_program_leave_no_zombies() {
    let scene = Scene::new();
    let script = "for i in 1 2 3 4 5; do (setsid true &) ; done; echo up; exec cat";
    let id = scene.start("orphans", script);
    let host = pid(&scene.record(&id), "wrapperPid");
    scene.attach(&id, 24, 80).wait_for("up");
    await_some("the host has no zombies", || {
        let zombies = processes::processes().into_iter().filter(|one| one.parent == host && one.state == 'Z');
        (zombies.count() == 0).then_some(())
    });
}

#[test]
fn stop_waits_for_what_outlives_the_program() {
    let scene = Scene::new();
    // One child ignores TERM, another one is started by the program's own end.
    let script = "sh -c 'trap \"\" TERM; exec sleep 1000' & trap 'setsid sleep 1000 & exit' TERM; echo up; while :; do sleep 0.05; done";
    let id = scene.start("tree", script);
    scene.attach(&id, 24, 80).wait_for("up");
    let (code, out, err) = scene.codemie(&["stop", &id, "--grace", "500ms"]);
    assert_eq!(code, Some(0), "{out}{err}");
    let left: Vec<i32> = processes::started_in(scene.sandbox.home())
        .into_iter()
        .filter(|pid| processes::process(*pid).is_some_and(|process| process.state != 'Z'))
        .collect();
    assert_eq!(left, Vec::<i32>::new(), "{out}{err}");
    assert_eq!(scene.record(&id)["endReason"], "stopped");
}

#[test]
fn home_that_cannot_be_used_starts_nothing() {
    let scene = Scene::new();
    let mut command = scene.sandbox.codemie(&["run", "--detach", "--", "sleep", "1000"]);
    let output = crate::sandbox::output_of(command.env("CODEMIE_HOME", "/proc/nope"));
    assert_eq!((output.code, output.out.as_str()), (Some(126), ""), "{output:?}");
    assert!(output.err.contains("nothing is started"), "{output:?}");
    assert_eq!(processes::started_in(scene.sandbox.home()), Vec::<i32>::new());
}

#[test]
fn home_that_cannot_be_written_starts_nothing() {
    const CONVERSATION: &str = "7a276c6b-0000-4000-8000-00000000000b";
    let scene = Scene::new();
    let agent = scripted::install(&scene.sandbox);
    let mut first = Scripted::start(&scene.sandbox, &agent, scene.sandbox.home(), &[]);
    first.be(CONVERSATION);
    first.order("say msg_1");
    assert_eq!(first.exit(0), Some(0));
    scene.sandbox.script("agent/claude", ": >\"$HOME/started\"; exec sleep 1000");
    let script = r#"
        export CODEMIE_REAL_CLAUDE="$HOME/agent/claude"
        mount --bind .codemie .codemie; mount -o remount,ro,bind .codemie
        code=0; "$codemie" run --detach claude || code=$?; echo "run $code"
        code=0; "$codemie" resume --detach CONVERSATION || code=$?; echo "resume $code"
        code=0; CODEMIE_HOME="$PWD/.codemie/none" "$codemie" run --detach claude || code=$?; echo "no folder $code"
    "#;
    let Some(output) = with_mounts(&scene.sandbox, &script.replace("CONVERSATION", CONVERSATION)) else {
        return;
    };
    assert_eq!(output.out, "run 126\nresume 126\nno folder 126\n", "{output:?}");
    assert_eq!(output.err.matches("nothing is started in the background").count(), 3, "{output:?}");
    assert!(output.err.contains("the database cannot be written"), "{output:?}");
    assert!(!scene.sandbox.path("started").exists());
    assert_eq!(processes::started_in(scene.sandbox.home()), Vec::<i32>::new());
}

#[test]
fn locked_store_starts_nothing() {
    let scene = Scene::new();
    assert_eq!(scene.codemie(&["run", "--", "true"]).0, Some(0), "makes the store");
    let mut conn = Connection::open(scene.home().database()).unwrap();
    let lock = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let (code, out, err) = scene.codemie(&["run", "--detach", "--", "sleep", "1000"]);
    drop(lock);
    assert_eq!((code, out.as_str()), (Some(126), ""), "{err}");
    assert!(err.contains("nothing is started") && err.contains("stayed locked"), "{err}");
    assert_eq!(processes::started_in(scene.sandbox.home()), Vec::<i32>::new());
}

#[test]
fn program_whose_session_the_store_refuses_is_ended_and_no_id_is_printed() {
    let scene = Scene::new();
    assert_eq!(scene.codemie(&["run", "--", "true"]).0, Some(0), "makes the store");
    let conn = Connection::open(scene.home().database()).unwrap();
    conn.execute_batch(
        "CREATE TRIGGER refuse BEFORE INSERT ON session BEGIN SELECT RAISE(ABORT, 'no more'); END",
    )
    .unwrap();
    // One that ends by itself before anybody notices, and one that does not, with a daemon beside it.
    for (script, said) in [("exit 3", "with code 3"), ("setsid sleep 1000 & exec sleep 1000", "no more")] {
        let (code, out, err) = scene.codemie(&["run", "--detach", "--", "sh", "-c", script]);
        assert_eq!((code, out.as_str()), (Some(126), ""), "{err}");
        assert!(
            err.contains("nothing runs in the background") && err.contains("no more") || err.contains(said),
            "{err}"
        );
        await_nothing_left(&scene);
    }
    let listed: Vec<serde_json::Value> =
        serde_json::from_str(&scene.codemie(&["list", "--all", "--json"]).1).unwrap();
    assert_eq!(listed.len(), 1, "the one that made the store: {listed:?}");
}

#[test]
fn id_that_is_printed_with_few_descriptors_is_that_of_a_session() {
    let scene = Scene::new();
    assert_eq!(scene.codemie(&["run", "--", "true"]).0, Some(0), "makes the store");
    for limit in (10..24).chain(36..48) {
        let script = format!("ulimit -n {limit}; exec \"$0\" run --detach -- sleep 1000");
        let mut command = scene.sandbox.command("sh");
        let output = crate::sandbox::output_of(command.args(["-c", &script, CODEMIE]));
        let known = output.code == Some(0);
        assert_eq!(known, !output.out.is_empty(), "with {limit}: {output:?}");
        assert!(known || !output.err.is_empty(), "with {limit}: {output:?}");
        if known {
            assert_eq!(scene.record(output.out.trim())["status"], "active", "with {limit}");
            assert_eq!(scene.codemie(&["stop", output.out.trim()]).0, Some(0), "with {limit}");
        }
        await_nothing_left(&scene);
    }
}
