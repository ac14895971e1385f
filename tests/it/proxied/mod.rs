//! The proxy's processes beside a run: what dies is started again, what nobody uses ends by itself, and nothing is led where it
//! is not certain.

mod budgets;
mod scene;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::fake_api::Status;
use crate::support::processes;
use scene::{KEY, Scene, await_file, await_some, begin, call, kill};

const FIRST: &str = "11111111-1111-4111-8111-111111111111";

fn conversation(n: usize) -> String {
    format!("{n:08}-1111-4111-8111-111111111111")
}

fn ok(address: &str, conversation: &str) {
    let (status, body) = call(address, conversation, "hello").unwrap();
    let body = String::from_utf8_lossy(&body);
    assert!(status == 200 && body.contains("message_stop"), "{status} {body}");
}

#[test]
fn a_call_is_counted_and_nothing_is_left_behind() {
    let scene = Scene::set();
    let run = scene.start("one", FIRST, &[]);
    let address = run.address();
    assert_ne!(address, scene.api.url());
    ok(&address, FIRST);
    ok(&address, FIRST);
    let record = scene.wait_calls("one", 2);
    let expected: u64 = scene.api.log().calls.iter().map(|call| call.told.input).sum();
    assert_eq!(record["usage"]["inputTokens"], expected, "{record}");
    assert_eq!(record["usage"]["coverage"], "complete", "{record}");
    let status = scene.json(&["proxy", "status", "--json"]);
    assert_eq!(status[0]["routes"][0]["upstream"], scene.api.url(), "{status}");
    let output = run.end();
    assert!(output.status.success(), "{output:?}");
    scene.wait_gone();
    let explained = scene.codemie(&["explain", "one"]).output().unwrap();
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.contains("calls go through the proxy to http://127.0.0.1:"), "{explained}");
    let secret = address.rsplit('/').next().unwrap();
    assert!(secret.len() >= 32);
    for text in [explained, scene.log(), status.to_string(), format!("{output:?}")] {
        assert!(!text.contains(secret), "{text}");
    }
    assert_eq!(files_with(&scene.codemie_home(), secret.as_bytes()), [""; 0], "the secret stands in no file");
    let store = rusqlite::Connection::open(scene.codemie_home().join("codemie.db")).unwrap();
    let billed = "SELECT count(*) FROM record WHERE kind = 'usage' AND billing = 'api'";
    assert_eq!(store.query_row(billed, [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    assert_eq!(files_with(&scene.codemie_home(), KEY.as_bytes()), [""; 0], "nor does the agent's own");
}

/// The files below a folder that hold these bytes.
fn files_with(folder: &std::path::Path, bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, bytes));
        } else if memchr::memmem::find(&fs::read(&path).unwrap_or_default(), bytes).is_some() {
            found.push(path.display().to_string());
        }
    }
    found
}

#[test]
fn a_call_is_counted_once_though_its_worker_is_killed_before_it_is_stored() {
    let scene = Scene::set();
    let run = scene.start("one", FIRST, &[]);
    let address = run.address();
    ok(&address, FIRST);
    scene.wait_calls("one", 1);
    let worker = scene.wait_own("proxy-worker", |own| own.len() == 1)[0];
    // Nobody can write to the store: the call is over, and stands in the journal alone.
    let store = rusqlite::Connection::open(scene.codemie_home().join("codemie.db")).unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    ok(&address, FIRST);
    await_some("the call in the journal", || (scene.journaled() == 1).then_some(()));
    kill(worker);
    scene.wait_own("proxy-worker", |own| own.len() == 1 && own[0] != worker);
    store.execute_batch("ROLLBACK").unwrap();
    scene.wait_calls("one", 2);
    ok(&address, FIRST);
    let record = scene.wait_calls("one", 3);
    let expected: u64 = scene.api.log().calls.iter().map(|call| call.told.input).sum();
    assert_eq!(record["usage"]["inputTokens"], expected, "{record}");
    assert!(run.end().status.success());
    scene.wait_gone();
    assert_eq!(fs::read_dir(scene.journals()).unwrap().count(), 0, "no journal is left behind");
    assert_eq!(scene.json(&["show", "one", "--json"])["usage"]["apiCalls"], 3);
}

/// It is to go on with a conversation that its arguments do not name, and leaves neither an entry in a registry nor a file: only its
/// calls say where it is.
#[test]
fn a_run_that_leaves_no_other_trace_is_bound_by_its_own_calls() {
    let scene = Scene::set();
    scene.calling_agent();
    let run = scene.start_continuing("one");
    run.address();
    // Another process that has the address calls first, in a conversation of its own.
    run.ask_nested(&conversation(2));
    run.ask(&conversation(1));
    let record = scene.wait_calls("one", 1);
    assert_eq!(record["correlation"]["agentSessionId"], conversation(1), "{record}");
    assert_eq!(record["correlation"]["evidence"], "registry", "{record}");
    assert!(run.end().status.success());
    scene.wait_gone();
    let explained = scene.codemie(&["explain", "one"]).output().unwrap();
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.contains("this very process calls the API in this conversation"), "{explained}");
    assert!(explained.contains("is not the agent's own"), "{explained}");
    assert_eq!(scene.json(&["show", "one", "--json"])["usage"]["apiCalls"], 1);
}

#[test]
fn a_killed_worker_is_replaced_on_the_same_address() {
    let scene = Scene::set();
    let run = scene.start("one", FIRST, &[]);
    let address = run.address();
    ok(&address, FIRST);
    for round in 0..3 {
        // Known to the store before its worker dies.
        scene.wait_calls("one", round + 1);
        // In the middle of an answer: that one is cut, as by a network that breaks; the next call is served.
        let (mut answer, status) = begin(&address, FIRST, "wait [hold never]").unwrap();
        assert_eq!(status, 200);
        let workers = scene.wait_own("proxy-worker", |workers| workers.len() == 1);
        kill(workers[0]);
        let mut rest = Vec::new();
        let _ = answer.read_to_end(&mut rest);
        assert!(!String::from_utf8_lossy(&rest).contains("message_stop"), "round {round}");
        ok(&address, FIRST);
    }
    assert!(run.end().status.success());
    scene.wait_gone();
    let record = scene.json(&["show", "one", "--json"]);
    let calls = scene.api.log().calls.iter().filter(|call| call.status == Status::Complete).count();
    assert_eq!(
        record["usage"]["apiCalls"], calls as u64,
        "the calls that died with a worker are not known: {record}"
    );
}

#[test]
fn a_killed_keeper_is_replaced_while_the_wrapper_lives() {
    let scene = Scene::set();
    let run = scene.start("one", FIRST, &[]);
    let address = run.address();
    ok(&address, FIRST);
    let keepers = scene.wait_own("proxy-keeper", |keepers| keepers.len() == 1);
    // An answer under way goes on in the worker that has lost its keeper.
    let (mut answer, _) = begin(&address, FIRST, "wait [hold door]").unwrap();
    kill(keepers[0]);
    let next = scene.wait_own("proxy-keeper", |own| own.len() == 1 && own[0] != keepers[0]);
    ok(&address, FIRST);
    scene.api.release("door");
    let mut rest = String::new();
    answer.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("message_stop"), "{rest}");
    // And both at once.
    let workers = scene.wait_own("proxy-worker", |workers| workers.len() == 1);
    kill(next[0]);
    kill(workers[0]);
    ok(&address, FIRST);
    assert!(run.end().status.success());
    scene.wait_gone();
    scene.wait_calls("one", 4);
}

#[test]
fn a_daemon_that_outlives_the_wrapper_is_served_until_it_ends() {
    let scene = Scene::set();
    fs::write(
        scene.folder("one").join("nest"),
        "setsid sleep 600 >/dev/null 2>&1 & echo $! > \"$folder/daemon\"\n",
    )
    .unwrap();
    let run = scene.start("one", FIRST, &[]);
    let address = run.address();
    let daemon: i32 =
        await_some("the daemon", || fs::read_to_string(run.folder.join("daemon")).ok()?.trim().parse().ok());
    ok(&address, FIRST);
    scene.wait_calls("one", 1);
    run.kill();
    scene.wait_own("proxy-keeper", |keepers| keepers.len() == 1);
    ok(&address, FIRST);
    // Without a wrapper a killed keeper is replaced by its worker.
    await_some("a keeper that knows it is alone", || {
        scene.log().contains("the wrapper has gone").then_some(())
    });
    let keepers = scene.own("proxy-keeper");
    kill(keepers[0]);
    scene.wait_own("proxy-keeper", |own| own.len() == 1 && own != keepers);
    ok(&address, FIRST);
    processes::signal(daemon, Signal::KILL);
    scene.wait_gone();
    scene.wait_calls("one", 3);
}

#[test]
fn ten_wrappers_at_once_have_a_proxy_each() {
    let scene = Scene::set();
    let runs: Vec<_> = (0..10).map(|n| scene.start(&format!("run{n}"), &conversation(n), &[])).collect();
    let mut addresses: Vec<String> = runs.iter().map(scene::ScriptedRun::address).collect();
    for (n, address) in addresses.iter().enumerate() {
        for _ in 0..=n % 3 {
            ok(address, &conversation(n));
        }
    }
    assert_eq!(scene.json(&["proxy", "status", "--json"]).as_array().map(Vec::len), Some(10));
    for run in runs {
        assert!(run.end().status.success());
    }
    for n in 0..10_usize {
        scene.wait_calls(&format!("run{n}"), n as u64 % 3 + 1);
    }
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 10);
    scene.wait_gone();
}

#[test]
fn nothing_is_led_where_another_provider_is_used() {
    let scene = Scene::set();
    let run = scene.start("one", FIRST, &[("CLAUDE_CODE_USE_BEDROCK", "1")]);
    assert_eq!(run.address(), scene.api.url(), "the user's own address is left alone");
    assert_eq!(scene.own("proxy-keeper"), [0; 0]);
    let output = run.end();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the proxy was not used: CLAUDE_CODE_USE_BEDROCK is set"), "{said}");
    let explained = scene.codemie(&["explain", "one"]).output().unwrap();
    let explained = String::from_utf8_lossy(&explained.stdout);
    assert!(explained.contains("not used: CLAUDE_CODE_USE_BEDROCK is set"), "{explained}");
}

#[test]
fn a_proxy_inside_a_proxied_agent_goes_to_the_same_upstream() {
    let scene = Scene::set();
    let inner = scene.folder("inner");
    let nest = format!(
        "SCENE_FOLDER='{}' '{}' --proxy --name inner claude --session-id {} </dev/null >/dev/null 2>&1 &\n",
        inner.display(),
        env!("CARGO_BIN_EXE_codemie"),
        conversation(2)
    );
    fs::write(scene.folder("outer").join("nest"), nest).unwrap();
    let run = scene.start("outer", &conversation(1), &[]);
    let (outer, within) = (run.address(), await_file(&inner.join("address")));
    assert_ne!(outer, within);
    let two = await_some("two listeners", || {
        let status = scene.json(&["proxy", "status", "--json"]);
        (status.as_array()?.len() == 2).then_some(status)
    });
    let upstreams: Vec<&Value> =
        two.as_array().unwrap().iter().map(|one| &one["routes"][0]["upstream"]).collect();
    assert_eq!(upstreams, [scene.api.url().as_str(); 2]);
    ok(&within, &conversation(2));
    ok(&outer, &conversation(1));
    scene.wait_calls("inner", 1);
    scene.wait_calls("outer", 1);
    fs::write(inner.join("end"), "").unwrap();
    assert!(run.end().status.success());
    scene.wait_gone();
}

#[test]
fn a_stopped_background_session_leaves_no_proxy_but_for_who_uses_it() {
    let scene = Scene::set();
    let folder = scene.folder("bg");
    fs::write(folder.join("nest"), "sleep 600 & echo $! > \"$folder/child\"\n").unwrap();
    let mut command =
        scene.codemie(&["run", "--proxy", "--detach", "--name", "bg", "claude", "--session-id", FIRST]);
    let output = command.env("SCENE_FOLDER", &folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let address = await_file(&folder.join("address"));
    ok(&address, FIRST);
    scene.wait_calls("bg", 1);
    // Somebody else of this user, who was given the address.
    let mut user = std::process::Command::new("sleep").arg("600").env("BASE", &address).spawn().unwrap();
    let stopped = scene.codemie(&["stop", "bg", "--grace", "1s"]).output().unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
    await_some("the end of the host", || scene.log().contains("the wrapper has gone").then_some(()));
    ok(&address, FIRST);
    user.kill().unwrap();
    user.wait().unwrap();
    scene.wait_gone();
}

fn serve_command(scene: &Scene) -> std::process::Command {
    let upstream = format!("anthropic={}", scene.api.url());
    let mut command = scene.codemie(&["proxy", "serve", "--listen", "127.0.0.1:0", "--upstream", &upstream]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

/// A proxy that stands alone, and the first line it prints. What it prints after that is not read.
fn serve(scene: &Scene) -> (std::process::Child, String) {
    let mut server = serve_command(scene).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(server.stdout.take().unwrap()));
    (server, lines.next().unwrap().unwrap())
}

#[test]
fn a_proxy_goes_on_when_nobody_reads_what_it_prints() {
    let scene = Scene::set();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let mut command = serve_command(&scene);
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut server = command.spawn().unwrap();
    drop(command);
    let port = await_some("the proxy's note", || {
        assert_eq!(server.try_wait().unwrap(), None, "it ended");
        scene.json(&["proxy", "status", "--json"])[0]["port"].as_u64()
    });
    let token = await_some("its token", || {
        let file = fs::read_to_string(scene.codemie_home().join("proxy/token")).ok()?;
        Some(file.trim().to_owned())
    });
    let address = format!("http://127.0.0.1:{port}/{token}/anthropic");
    ok(&address, FIRST);
    ok(&address, FIRST);
    assert_eq!(server.try_wait().unwrap(), None);
    processes::signal(server.id().cast_signed(), Signal::INT);
    assert!(server.wait().unwrap().success());
}

/// Nobody wraps the programs behind it: a conversation that calls name becomes a session, and so do all calls that name none.
#[test]
fn calls_through_a_proxy_on_its_own_are_counted() {
    let scene = Scene::set();
    let (mut server, line) = serve(&scene);
    let address = line.strip_prefix("ANTHROPIC_BASE_URL=").unwrap().to_owned();
    ok(&address, FIRST);
    ok(&address, "");
    ok(&address, "");
    let nameless = scene.wait_calls("proxy-anthropic", 2);
    assert_eq!(
        (&nameless["agent"], &nameless["status"]),
        (&"anthropic".into(), &"active".into()),
        "{nameless}"
    );
    processes::signal(server.id().cast_signed(), Signal::INT);
    assert!(server.wait().unwrap().success());
    let sessions = scene.json(&["list", "--json"]);
    let sessions = sessions.as_array().unwrap();
    let named = sessions.iter().find(|session| session["agent"] == "claude").unwrap();
    assert_eq!(named["correlation"]["agentSessionId"], FIRST, "{named}");
    let sum = |of: fn(&serde_json::Value) -> u64| sessions.iter().map(of).sum::<u64>();
    assert_eq!(sum(|session| session["usage"]["apiCalls"].as_u64().unwrap()), 3);
    let told: u64 = scene.api.log().calls.iter().map(|call| call.told.input).sum();
    assert_eq!(sum(|session| session["usage"]["inputTokens"].as_u64().unwrap()), told);
    assert!(sessions.iter().all(|session| session["status"] == "completed"), "{sessions:?}");
    // People see one row for what no conversation is named of.
    let usage = scene.json(&["usage", "--by", "session", "--json"]);
    let rows = usage["rows"].as_array().unwrap().iter();
    let calls: BTreeMap<_, _> = rows.map(|row| (row["key"].as_str().unwrap(), &row["apiCalls"])).collect();
    assert_eq!(calls, BTreeMap::from([(FIRST, &1.into()), ("unattributed", &2.into())]));
}

#[test]
fn a_proxy_on_its_own_serves_with_its_token_alone() {
    let scene = Scene::set();
    let (mut server, line) = serve(&scene);
    let address = line.strip_prefix("ANTHROPIC_BASE_URL=").unwrap().to_owned();
    ok(&address, FIRST);
    let (root, token) = address.strip_suffix("/anthropic").unwrap().rsplit_once('/').unwrap();
    let (status, _) = call(&format!("{root}/{}/anthropic", "0".repeat(token.len())), FIRST, "hello").unwrap();
    assert!((400..500).contains(&status), "{status}");
    assert_eq!(scene.api.log().calls.len(), 1);
    let (mut answer, _) = begin(&address, FIRST, "wait [hold door]").unwrap();
    processes::signal(server.id().cast_signed(), Signal::INT);
    scene.api.release("door");
    let mut rest = String::new();
    answer.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("message_stop"), "it drains: {rest}");
    assert!(server.wait().unwrap().success());
    assert_eq!(scene.notes(), 0);
    let (mut server, line) = serve(&scene);
    assert!(line.ends_with("/TOKEN/anthropic"), "the token is shown once");
    processes::signal(server.id().cast_signed(), Signal::TERM);
    assert!(server.wait().unwrap().success());
}
