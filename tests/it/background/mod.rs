//! Background sessions of plain programs: the host, its socket, its viewers, its end. Those of real agents are in
//! `real_background`.

mod answers;
mod documented;
mod handoff;
mod life;
mod top;
mod turns;
mod viewers;

use std::path::Path;
use std::time::Duration;

use os::home::Home;
use runtime::remote::Connection;
use runtime::remote::protocol::{Attach, FromHost, Size, ToHost};
use serde_json::Value;
use types::RunId;

use crate::sandbox::{Sandbox, output_of};
use crate::support::processes;
use crate::support::scripted::await_some;

/// Bounds failures only.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A home whose background sessions end with the test.
struct Scene {
    sandbox: Sandbox,
}

impl Drop for Scene {
    fn drop(&mut self) {
        processes::kill_started_in(self.sandbox.home());
    }
}

impl Scene {
    fn new() -> Self {
        Self { sandbox: Sandbox::new() }
    }

    fn home(&self) -> Home {
        Home::at(self.sandbox.path(".codemie"))
    }

    /// Starts a shell script in the background; returns the session's id.
    fn start(&self, name: &str, script: &str) -> String {
        let mut command =
            self.sandbox.codemie(&["run", "--detach", "--name", name, "--", "sh", "-c", script]);
        let output = output_of(&mut command);
        assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{output:?}");
        let (id, rest) = output.out.split_once('\n').unwrap();
        assert_eq!((id.len(), rest), (36, ""), "the id alone: {output:?}");
        id.to_owned()
    }

    fn codemie(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let output = output_of(&mut self.sandbox.codemie(args));
        (output.code, output.out, output.err)
    }

    /// With a stand-in for Claude Code.
    fn codemie_with(&self, claude: &Path, args: &[&str]) -> (Option<i32>, String, String) {
        let output = output_of(self.sandbox.codemie(args).env("CODEMIE_REAL_CLAUDE", claude));
        (output.code, output.out, output.err)
    }

    fn record(&self, session: &str) -> Value {
        let (code, out, err) = self.codemie(&["show", session, "--json"]);
        assert_eq!(code, Some(0), "{err}");
        serde_json::from_str(&out).unwrap()
    }

    fn run(&self, session: &str) -> RunId {
        self.record(session)["runId"].as_str().unwrap().parse().unwrap()
    }

    fn connect(&self, session: &str) -> Connection {
        Connection::open(&self.home(), self.run(session)).unwrap()
    }

    fn attach(&self, session: &str, rows: u16, cols: u16) -> Viewer {
        Viewer::over(self.connect(session), rows, cols)
    }

    fn await_ended(&self, session: &str) -> Value {
        await_some("the session's end", || {
            let record = self.record(session);
            (!record["endTime"].is_null()).then_some(record)
        })
    }
}

/// A viewer without a terminal: it collects what a terminal would show.
struct Viewer {
    connection: Connection,
    seen: Vec<u8>,
}

impl Viewer {
    fn over(mut connection: Connection, rows: u16, cols: u16) -> Self {
        let attach = Attach { size: Size { rows, cols }, read_only: false };
        connection.say(&ToHost::Attach(attach)).unwrap();
        let mut viewer = Self { connection, seen: Vec::new() };
        assert!(matches!(viewer.hear(), FromHost::KeyFrame(_)), "the screen comes first");
        viewer
    }

    fn hear(&mut self) -> FromHost {
        let message = self.connection.hear(Some(TIMEOUT)).unwrap();
        if let FromHost::KeyFrame(bytes) | FromHost::Output(bytes) = &message {
            self.seen.extend_from_slice(bytes);
        }
        message
    }

    fn wait_for(&mut self, text: &str) {
        let mut searched = 0;
        // Only what is new is searched: a viewer that takes long is disconnected.
        while memchr::memmem::find(&self.seen[searched..], text.as_bytes()).is_none() {
            searched = self.seen.len().saturating_sub(text.len());
            let message = self.hear();
            assert!(!matches!(message, FromHost::Ended(_)), "ended before {text:?}: {}", self.text());
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    fn keys(&mut self, keys: &str) {
        self.connection.say(&ToHost::Keys(keys.into())).unwrap();
    }
}
