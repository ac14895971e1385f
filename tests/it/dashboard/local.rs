//! `codemie dashboard`: the pages on this user's own store.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use backend::dashboard::{Dashboard, Gate, KnownAgents, LocalFacts, Outbox, router};
use backend::sqlite::Sqlite;
use system::clock::SystemClock;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use super::http::{Answer, ask};
use crate::commands::World;
use crate::sandbox::Sandbox;

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
    let begin = codemie::session::lifecycle::RunStart {
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
            runtime.block_on(backend::serve(listener, router(dashboard), closing, asked_to_end));
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
