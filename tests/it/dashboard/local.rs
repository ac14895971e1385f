//! `codemie dashboard`: the pages on this user's own store.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use agents::meter::title::{Title, TitleSource};
use backend::sqlite::Sqlite;
use dashboard::{Dashboard, Gate, KnownAgents, LocalFacts, Outbox, router};
use os::clock::SystemClock;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use super::http::{Answer, ask};
use crate::commands::World;
use crate::sandbox::Sandbox;
use crate::support::scripted::await_some;
use crate::support::trees::{self, Plan};

/// What it printed, and the process.
struct Running {
    child: Child,
    /// Kept open: whoever closes it has seen enough.
    _output: BufReader<ChildStdout>,
    address: SocketAddr,
    entrance: String,
}

fn dashboard(sandbox: &Sandbox) -> Running {
    started(&mut sandbox.codemie(&["dashboard", "--no-open"]))
}

fn started(command: &mut Command) -> Running {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let rest = line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("no address: {line}"));
    let (address, path) = rest.split_once('/').unwrap();
    Running { child, _output: output, address: address.parse().unwrap(), entrance: format!("/{path}") }
}

impl Running {
    fn enter(&self) -> String {
        let entered = ask(self.address, "GET", &self.entrance, &[], "");
        assert_eq!(entered.status, 200, "{entered:?}");
        assert!(entered.body.contains("0;url=/\""), "{entered:?}");
        entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    }

    fn page(&self, cookie: &str, path: &str) -> Answer {
        ask(self.address, "GET", path, &[("cookie", cookie)], "")
    }

    /// Until the page says so. Fails, with what it does say, after longer than any machine takes.
    fn page_with(&self, cookie: &str, path: &str, words: &str) -> Answer {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let answer = self.page(cookie, path);
            if answer.body.contains(words) {
                return answer;
            }
            assert!(Instant::now() < deadline, "no {words:?} on {path}: {}", answer.body);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Notes how it was called, and what it was given to open.
const OPENER: &str = "#!/bin/sh
cp \"$1\" \"$0.page\"; stat -c %a \"$1\" > \"$0.mode\"; tr '\\0' '\\n' < /proc/$$/cmdline > \"$0.new\"; mv \"$0.new\" \"$0.called\"
";

#[test]
fn the_browsers_command_line_holds_no_secret() {
    let world = World::new();
    let programs = tempfile::tempdir().unwrap();
    let opener = programs.path().join("xdg-open");
    std::fs::write(&opener, OPENER).unwrap();
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = world.sandbox.codemie(&["dashboard"]);
    let path = format!("{}:/usr/bin:/bin", programs.path().display());
    let mut running = started(command.env("PATH", path).env("DISPLAY", ":0"));
    let called = programs.path().join("xdg-open.called");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !called.exists() {
        assert!(Instant::now() < deadline, "no browser was opened");
        std::thread::sleep(Duration::from_millis(20)); // it runs by itself
    }
    let noted =
        |what: &str| std::fs::read_to_string(programs.path().join(format!("xdg-open.{what}"))).unwrap();
    let (called, page) = (noted("called"), noted("page"));
    assert!(!called.contains("token") && !called.contains("http"), "{called}");
    let url = format!("http://{}{}", running.address, running.entrance);
    assert!(page.contains(&format!("content=\"0;url={url}\"")), "{page}");
    assert_eq!(noted("mode").trim(), "600");
    running.enter();
    let file = called.lines().last().unwrap();
    assert!(std::path::Path::new(file).exists(), "{called}");
    let pid = rustix::process::Pid::from_child(&running.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
    assert!(!std::path::Path::new(file).exists(), "it is of no use any more");
}

#[test]
fn a_second_dashboard_opens_the_first() {
    let world = World::new();
    let mut first = dashboard(&world.sandbox);
    let port = first.address.port();
    for arguments in
        [&["dashboard", "--no-open"][..], &["dashboard", "--no-open", "--port", &port.to_string()]]
    {
        let mut second = started(&mut world.sandbox.codemie(arguments));
        assert!(second.child.wait().unwrap().success());
        assert_eq!(second.address, first.address);
        assert_ne!(second.entrance, first.entrance);
        second.enter();
    }
    let cookie = first.enter();
    assert_eq!(first.page(&cookie, "/").status, 200);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let again = dashboard(&world.sandbox);
    assert_eq!(
        again.page(&cookie.replace(&port.to_string(), &again.address.port().to_string()), "/").status,
        200
    );
}

#[test]
fn a_dashboard_goes_on_when_nobody_reads_what_it_prints() {
    let world = World::new();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    drop(reader);
    let mut command = world.sandbox.codemie(&["dashboard", "--no-open"]);
    let mut child = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
    let lock = world.sandbox.path(".codemie/run/dashboard.lock");
    await_some("the dashboard's port", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::fs::read_to_string(&lock).is_ok_and(|port| !port.is_empty()).then_some(())
    });
    dashboard(&world.sandbox).enter();
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The sums of a table by their key: calls, tokens, cost in millionths of a cent.
type Table = BTreeMap<String, (Vec<i64>, i64)>;

const NUMBERS: [&str; 5] = ["apiCalls", "inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens"];

#[expect(clippy::cast_possible_truncation, reason = "dollars of a test")]
fn millionths(dollars: f64) -> i64 {
    (dollars * 1e8).round() as i64
}

/// The rows of a CSV file of the dashboard.
fn table_of_csv(csv: &str) -> Table {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let column = |name: &str| names.iter().position(|found| *found == name).unwrap();
    let row = |fields: Vec<&str>| {
        let numbers = NUMBERS.iter().map(|name| fields[column(name)].parse().unwrap()).collect();
        (fields[0].to_owned(), (numbers, millionths(fields[column("costUsd")].parse().unwrap())))
    };
    lines.map(row).collect()
}

/// The same of `usage --scan`.
fn table_of_scan(world: &World, by: &str) -> Table {
    let report = world.json(&["usage", "--scan", "--by", by, "--json"]);
    let row = |row: &Value| {
        let numbers = NUMBERS.iter().map(|name| row[*name].as_i64().unwrap()).collect();
        let key = row["key"].as_str().unwrap_or_default().to_owned();
        (key, (numbers, millionths(row["costUsd"].as_f64().unwrap())))
    };
    report["rows"].as_array().unwrap().iter().map(row).collect()
}

impl Running {
    /// Until the table of all history is this one; it is read by a thread of its own.
    fn history_becomes(&self, cookie: &str, by: &str, expected: &Table) {
        let deadline = Instant::now() + Duration::from_mins(2);
        loop {
            let answer = self.page(cookie, &format!("/csv/{by}?history=all&range=all"));
            let shown = (answer.status == 200).then(|| table_of_csv(&answer.body));
            if shown.as_ref() == Some(expected) {
                return;
            }
            assert!(Instant::now() < deadline, "{by}: {shown:?}, expected {expected:?}: {}", answer.body);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn all_history_is_what_a_scan_counts_and_the_switch_takes_it_away() {
    let mut world = World::new();
    let root = world.sandbox.path(".claude");
    let truth = trees::make(&root, Plan { seed: 12, bytes: 600_000, session_bytes: 60_000 }).unwrap();
    let wrapped = truth.sessions.keys().next().unwrap().clone();
    let run = world.start("fix-auth");
    world.bind(run, &wrapped, None);
    world.call(run, "msg_live", "claude-opus-4-8", Some(2_000_000_000));
    let running = dashboard(&world.sandbox);
    let cookie = running.enter();
    for by in ["day", "model", "agent", "project"] {
        running.history_becomes(&cookie, by, &table_of_scan(&world, by));
    }
    let agents = table_of_scan(&world, "agent");
    assert_eq!(agents["claude"].0[0], i64::try_from(truth.total.calls).unwrap() + 1);
    let wrapped_alone = table_of_csv(&running.page(&cookie, "/csv/agent?range=all").body);
    assert_eq!(wrapped_alone["claude"].0[0], 1, "what was wrapped, alone");

    // The pages: both choices, the list, one conversation.
    let overview = running.page(&cookie, "/?history=all&range=all").body;
    assert!(
        overview.contains(">All history</a>") && overview.contains("of wrapped")
            || overview.contains("not known"),
        "{overview}"
    );
    assert!(!running.page(&cookie, "/?range=all").body.contains("reading history"));
    let list = running.page(&cookie, "/sessions?history=all&tag=foreign").body;
    let (_, after) = list.split_once("href=\"/sessions/").expect("a conversation");
    let id = &after[..after.find('"').unwrap()];
    let page = running.page(&cookie, &format!("/sessions/{id}"));
    assert!(page.status == 200 && page.body.contains("it never ran through codemie"), "{page:?}");
    assert_eq!(world.listed(&[]).len(), 1, "no session of the store");

    // A call of the history becomes a session's; a conversation is deleted.
    let preview = world.run(&["sync", "preview"]).out;
    assert!(!preview.contains("foreign"), "{preview}");
    let file = session_file(&root, |name| !name.contains(&*wrapped));
    std::fs::remove_file(&file).unwrap();
    running.history_becomes(&cookie, "agent", &table_of_scan(&world, "agent"));
    running.history_becomes(&cookie, "day", &table_of_scan(&world, "day"));

    // Another dashboard finds the same, and none keeps a copy.
    drop(running);
    let running = dashboard(&world.sandbox);
    let cookie = running.enter();
    running.history_becomes(&cookie, "model", &table_of_scan(&world, "model"));
    assert!(world.home.former_dashboard_copies().iter().all(|copy| !copy.exists()));
}

#[test]
fn titles_of_all_history_are_found_and_a_changed_one_is_shown() {
    let world = World::new();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/claude/02-tools/projects/-home-dev-project")
        .join("02000000-0000-4000-8000-000000000002.jsonl");
    let text = std::fs::read_to_string(&fixture).unwrap();
    let file = Path::new(".claude/projects/-home-dev-project").join(fixture.file_name().unwrap());
    let file = file.to_str().unwrap();
    world.sandbox.file(file, &text);
    let running = dashboard(&world.sandbox);
    let cookie = running.enter();
    let found = running.page_with(&cookie, "/sessions?history=all&q=FAKE%20title", "Fake title 1");
    assert!(found.body.contains("claude-02000000"), "{found:?}");
    assert!(!running.page(&cookie, "/sessions?history=all&q=quite").body.contains("claude-02000000"));
    assert!(
        !running.page(&cookie, "/sessions?q=fake").body.contains("claude-02000000"),
        "wrapped ones alone"
    );
    world.sandbox.file(file, &text.replace("Fake title 1", "Quite another"));
    running.page_with(&cookie, "/sessions?history=all&q=quite", "Quite another");
}

/// A conversation's file whose name is wanted.
fn session_file(root: &Path, wanted: impl Fn(&str) -> bool) -> PathBuf {
    let mut folders = vec![root.join("projects")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "jsonl") && wanted(&name) {
                return path;
            }
        }
    }
    panic!("no session file in {}", root.display())
}

#[test]
fn titles_are_shown_and_found_on_this_machine_and_never_sent() {
    let mut world = World::new();
    let run = world.start("first-work");
    world.bind(run, "a", None);
    let second = world.clear(run, "b");
    let other = world.start("other-work");
    let title = Title::given(TitleSource::Agent, "Fix <b>the</b> Ölogin\u{202e}").unwrap();
    world.store.write(|tx| tx.set_title(second.session, &title)).unwrap();
    let running = dashboard(&world.sandbox);
    let cookie = running.enter();
    let escaped = "Fix &lt;b&gt;the&lt;/b&gt; Ölogin\u{fffd}";
    let (first, of_second) = (format!("/sessions/{}", run.session), format!("/sessions/{}", second.session));
    for page in ["/sessions", &*first, &*of_second, "/live"] {
        let page = running.page_with(&cookie, page, escaped);
        assert!(!page.body.contains("<b>the</b>") && !page.body.contains('\u{202e}'), "{page:?}");
    }
    let found = running.page(&cookie, "/sessions?q=the%3C%2Fb%3E%20%C3%B6LOGIN").body;
    assert!(found.contains(&*of_second) && !found.contains(&other.session.to_string()), "{found}");
    assert!(running.page(&cookie, "/sessions?q=nobody").body.contains("No sessions match"));
    assert!(!running.page(&cookie, "/csv/sessions").body.contains("login"));
    assert!(!world.run(&["sync", "preview"]).out.contains("login"));
}

#[test]
fn the_local_store_is_shown_and_followed_until_interrupted() {
    let mut world = World::new();
    let run = world.start("first-work");
    world.bind(run, "a", None);
    let mut running = dashboard(&world.sandbox);
    assert!(running.address.ip().is_loopback());
    assert_eq!(ask(running.address, "GET", "/", &[], "").status, 303, "nobody is let in without");
    let cookie = running.enter();
    let sessions = running.page(&cookie, "/sessions");
    assert!(sessions.status == 200 && sessions.body.contains("first-work"), "{sessions:?}");
    let again = ask(running.address, "GET", &running.entrance, &[], "");
    assert_eq!((again.status, again.header("location")), (303, Some("/login")), "the address is used up");
    assert!(ask(running.address, "GET", "/login", &[], "").body.contains("used up"));

    // What happens now appears: a call, a clear, an end.
    world.call(run, "k1", "claude-sonnet-4-5", Some(2_000_000_000));
    let page = format!("/sessions/{}", run.session);
    running.page_with(&cookie, &page, "claude-sonnet-4-5");
    let second = world.clear(run, "b");
    let chained = running.page_with(&cookie, &page, "ol class=\"chain\"");
    assert!(chained.body.contains(&format!("/sessions/{}", second.session)), "{chained:?}");
    world.end(second, 0);
    let ended =
        running.page_with(&cookie, &format!("/sessions/{}", second.session), "every event has arrived");
    assert!(!ended.body.contains("Last received"), "nothing is received here: {ended:?}");
    assert!(ended.body.contains("codemie resume "), "{ended:?}");
    let health = running.page(&cookie, "/health").body;
    assert!(health.contains("No receiver is configured") && !health.contains("from any machine"), "{health}");
    let html = ask(running.address, "GET", "/nope", &[("accept", "text/html")], "");
    assert!(html.status == 404 && html.body.contains("There is no such page"), "{html:?}");
    assert!(!ask(running.address, "GET", "/nope", &[], "").body.is_empty());

    let pid = rustix::process::Pid::from_child(&running.child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(running.child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_demonstration_is_no_cost_unless_it_is_all_there_is() {
    let mut world = World::new();
    let begin = store::session::lifecycle::RunStart {
        agent: "demo".into(),
        local_only: true,
        ..World::begin("play")
    };
    let demo = world.start_as(&begin);
    world.bind(demo, "d", None);
    world.call(demo, "k0", "claude-sonnet-4-5", Some(5_000_000_000_000));
    let running = dashboard(&world.sandbox);
    let cookie = running.enter();
    running.page_with(&cookie, "/", "$5.00");
    let run = world.start("work");
    world.bind(run, "a", None);
    world.call(run, "k1", "claude-sonnet-4-5", Some(2_000_000_000_000));
    world.call(run, "k2", "unheard-of", None);
    let overview = running.page_with(&cookie, "/", "$2.00+").body;
    assert!(!overview.contains("$5.00") && overview.contains("left out"), "{overview}");
    let sessions = running.page(&cookie, "/sessions").body;
    assert!(
        !sessions.contains(">play<") && sessions.contains("left out"),
        "the same in the list: {sessions}"
    );
    assert!(sessions.contains(">work<") && !sessions.contains(">User<"), "{sessions}");
    assert!(running.page(&cookie, "/sessions?agent=demo").body.contains(">play<"));
    for path in ["/?model=unheard-of", "/sessions?model=unheard-of", "/sessions?agent=claude"] {
        let page = running.page(&cookie, path).body;
        assert!(!page.contains("left out"), "there it has nothing: {page}");
    }
    assert!(overview.contains("no price"), "a model without a price: {overview}");
    running.page_with(&cookie, "/?agent=demo", "$5.00");
}

#[test]
fn an_outbox_is_shown_as_it_is() {
    let mut world = World::new();
    world.store.write(|tx| tx.add_sink("native")).unwrap();
    world.start("waits");
    world.store.write(|tx| tx.pause("native", Some("the backend refuses the token"))).unwrap();
    let running = dashboard(&world.sandbox);
    let health = running.page(&running.enter(), "/health");
    assert!(
        health.body.contains("native") && health.body.contains("the backend refuses the token"),
        "{health:?}"
    );
}

/// Answers once other pages were served.
struct SlowOutbox {
    tell_asked: Mutex<mpsc::Sender<()>>,
    others: Mutex<mpsc::Receiver<()>>,
}

impl LocalFacts for SlowOutbox {
    fn agents(&self) -> KnownAgents {
        KnownAgents::default()
    }

    fn command(&self) -> &'static str {
        "codemie dashboard"
    }

    fn outbox(&self) -> Option<Vec<Outbox>> {
        self.tell_asked.lock().unwrap().send(()).unwrap();
        let others = self.others.lock().unwrap();
        others.recv_timeout(Duration::from_secs(30)).expect("others are served meanwhile");
        Some(Vec::new())
    }
}

#[test]
fn a_slow_outbox_does_not_delay_other_pages() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let storage = Arc::new(Sqlite::open(&folder.path().join("backend.db")).unwrap());
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (gate, code) = Gate::once(address.port(), [7; 32]).unwrap();
    let (closing, closed) = watch::channel(false);
    let ((tell_asked, asked), (tell_others, others)) = (mpsc::channel(), mpsc::channel());
    let (tell_asked, others) = (Mutex::new(tell_asked), Mutex::new(others));
    let facts = Arc::new(SlowOutbox { tell_asked, others });
    let dashboard = Dashboard::local(storage, gate, facts, Arc::new(SystemClock), closed);
    let (stop, stopped) = oneshot::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let asked_to_end = async { drop(stopped.await) };
            runtime.block_on(server::serve(
                listener,
                router(dashboard),
                server::Clients::default(),
                closing,
                asked_to_end,
            ));
        });
        let entered = ask(address, "GET", &format!("/enter?code={code}"), &[], "");
        let cookie = entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let page = move |path| ask(address, "GET", path, &[("cookie", &cookie)], "");
        let health = scope.spawn({
            let page = page.clone();
            move || page("/health")
        });
        asked.recv_timeout(Duration::from_secs(30)).unwrap();
        assert_eq!(page("/sessions").status, 200);
        tell_others.send(()).unwrap();
        let health = health.join().unwrap();
        assert!(health.body.contains("No receiver is configured"), "{health:?}");
        stop.send(()).unwrap();
    });
}
