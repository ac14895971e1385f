//! The commands about sessions: the real binary on a home whose sessions were made through the library.

mod budgets;
mod changing;
mod conversation;
mod finding;
mod reading;
mod scan;
mod watching;

use std::path::{Path, PathBuf};
use std::process::Command;

use agents::meter::record::{Fact, Record, Tool, Usage};
use os::clock::{Clock, SystemClock};
use os::home::Home;
use pricing::tier::Tier;
use pty::process::{Processes, SystemProcesses};
use serde_json::Value;
use store::session::absorb::{Batch, absorb};
use store::session::lifecycle::{self, Binding, ConversationStart, RunStart, Transition};
use store::session::publish::publish;
use store::session::state::{Ending, Exit};
use store::{BootAndPidNs, FileId, NewRun, PicoDollars, Priced, Store, Workspace};
use types::EvidenceKind;
use types::Timestamp;
use types::TransitionKind;
use types::{AgentSessionId, Ids, RandomIds, RunId, SessionId};
use types::{Pid, ProcessId, StartTime};
use types::{Tokens, ToolKind};
use uuid::Uuid;

use crate::sandbox::{CommandOutput, Sandbox, output_of};
use crate::support::pty::Terminal;

const DAY: i64 = 24 * 3_600_000;

/// A home folder with a store, and a clock that begins an hour ago.
pub(crate) struct World {
    pub(crate) sandbox: Sandbox,
    pub(crate) home: Home,
    pub(crate) store: Store,
    pub(crate) now: Timestamp,
}

/// A run and the session it is in.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) id: RunId,
    pub(crate) session: SessionId,
}

impl World {
    pub(crate) fn new() -> Self {
        let sandbox = Sandbox::new();
        let home = Home::at(sandbox.path(".codemie"));
        let now = Timestamp(SystemClock.now().0 - 3_600_000);
        let store = Store::open(&home, now).unwrap();
        Self { sandbox, home, store, now }
    }

    pub(crate) fn tick(&mut self, ms: i64) -> Timestamp {
        self.now.0 += ms;
        self.now
    }

    /// A run of claude in the project `widgets`, by this very process, so that it lives.
    pub(crate) fn begin(name: &str) -> RunStart {
        let me = Pid(i32::try_from(std::process::id()).unwrap());
        RunStart {
            run: NewRun {
                id: RandomIds.run(),
                realm: BootAndPidNs::here(),
                wrapper: SystemProcesses.identify(me).unwrap(),
                proxied: false,
            },
            agent: "claude".into(),
            local_only: false,
            agent_version: Some("2.1.197".into()),
            workspace: Workspace {
                cwd: "/home/dev/widgets".into(),
                project: Some("widgets".into()),
                repository: Some("acme/widgets".into()),
                branch: Some("main".into()),
            },
            conversation: ConversationStart::Fresh,
            name: Some(name.into()),
            tags: Vec::new(),
            group: None,
            parent: None,
        }
    }

    pub(crate) fn start(&mut self, name: &str) -> Run {
        self.start_as(&Self::begin(name))
    }

    pub(crate) fn start_as(&mut self, begin: &RunStart) -> Run {
        self.start_with(begin, &RandomIds)
    }

    pub(crate) fn start_with(&mut self, begin: &RunStart, ids: &dyn Ids) -> Run {
        let at = self.tick(1000);
        let started = self.store.write(|tx| lifecycle::start(tx, at, ids, begin)).unwrap();
        Run { id: begin.run.id, session: started.session }
    }

    pub(crate) fn bind(&mut self, run: Run, agent_session: &str, file: Option<&Path>) {
        let at = self.tick(100);
        let binding = binding(agent_session, file);
        self.store.write(|tx| lifecycle::bind(tx, at, &RandomIds, run.session, &binding)).unwrap();
    }

    pub(crate) fn clear(&mut self, run: Run, agent_session: &str) -> Run {
        let at = self.tick(1000);
        let change = Transition {
            kind: TransitionKind::Clear,
            binding: Some(binding(agent_session, None)),
            workspace: None,
        };
        let result =
            self.store.write(|tx| lifecycle::transition(tx, at, &RandomIds, run.id, &change)).unwrap();
        Run { session: result.new.session, ..run }
    }

    pub(crate) fn end(&mut self, run: Run, code: i32) {
        let at = self.tick(1000);
        self.store.write(|tx| lifecycle::end(tx, at, run.id, Ending::exited(Exit::Code(code)))).unwrap();
    }

    /// One call with 10 tokens of input, 20 of output, 1000 and 100 of cache, for 0.002 dollars; `None`: no price.
    pub(crate) fn call(&mut self, run: Run, key: &str, model: &str, cost: Option<i64>) {
        self.tick(10);
        let tokens =
            Tokens { input: 10, output: 20, cache_read: 1000, cache_write_5m: 100, ..Tokens::default() };
        let fact = Fact::Usage(Usage { model: model.into(), tokens, tier: Tier::Standard, request_id: None });
        self.absorb(run, key, fact, cost);
    }

    /// One tool that has ended.
    pub(crate) fn tool(&mut self, run: Run, key: &str, name: &str, ok: bool) {
        self.tick(10);
        let tool = Tool {
            name: name.into(),
            ok,
            kind: ToolKind::Exec,
            file: None,
            further: Vec::new(),
            lines_added: 0,
            lines_removed: 0,
        };
        self.absorb(run, key, Fact::Tool(tool), None);
    }

    fn absorb(&mut self, run: Run, key: &str, fact: Fact, cost: Option<i64>) {
        let at = self.now;
        let priced = Priced {
            record: Record { key: key.into(), at, copied: false, subagent: None, fact },
            cost: cost.map(PicoDollars),
            prices: None,
        };
        let batch = Batch {
            file: FileId { device: 1, inode: u64::try_from(at.0).unwrap() },
            path: Path::new("/f"),
            from: 0,
            restart: false,
            to: 1,
            state: &[],
            unreadable: 0,
            records: &[priced],
        };
        self.store.write(|tx| absorb(tx, at, run.session, &batch)).unwrap();
    }

    pub(crate) fn publish(&mut self) {
        publish(&mut self.store, &self.home, self.now).unwrap();
    }

    pub(crate) fn published(&self, session: SessionId) -> PathBuf {
        self.home.published_sessions().join(format!("{session}.json"))
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.sandbox.codemie(args)
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        output_of(&mut self.command(args))
    }

    /// What a command that must succeed prints.
    pub(crate) fn out(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "codemie {args:?}: {}", output.out);
        output.out
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let out = self.out(args);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("codemie {args:?}: {error}: {out}"))
    }

    /// The names of `list` with these options, in its order.
    pub(crate) fn listed(&self, args: &[&str]) -> Vec<String> {
        let args: Vec<&str> = ["list", "--json"].iter().chain(args).copied().collect();
        let list = self.json(&args);
        list.as_array().unwrap().iter().map(|record| record["name"].as_str().unwrap().to_owned()).collect()
    }

    /// A command that must fail, with an exit code and a word of what it says.
    pub(crate) fn fails(&self, args: &[&str], code: i32, word: &str) {
        let output = self.run(args);
        assert_eq!(output.code, Some(code), "codemie {args:?}: {output:?}");
        assert!(output.err.contains(word) && output.out.is_empty(), "codemie {args:?}: {output:?}");
    }
}

/// A view has given the terminal back as it was.
fn assert_restored(terminal: &Terminal) {
    assert_eq!(terminal.modes(), terminal.first_modes(), "settings");
    terminal.wait_for("its own screen and a cursor", |view| {
        let screen = view.screen();
        !screen.alternate_screen() && !screen.hide_cursor()
    });
}

/// A view is left by each of these keys, and by signals; `ready` is on its screen.
fn assert_left_by(keys: &[&str], ready: &str, open: impl Fn() -> Terminal) {
    for keys in keys {
        let terminal = open();
        terminal.wait_text(ready);
        terminal.send(keys);
        assert_eq!(terminal.wait_exit().shell_code(), 0, "{keys:?}");
        assert_restored(&terminal);
    }
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
        let terminal = open();
        terminal.wait_text(ready);
        let pid = rustix::process::Pid::from_raw(terminal.pid()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::from_named_raw(signal).unwrap()).unwrap();
        assert_eq!(terminal.wait_exit().shell_code(), 128 + signal);
        assert_restored(&terminal);
    }
}

fn binding(agent_session: &str, file: Option<&Path>) -> Binding {
    Binding {
        agent_session: AgentSessionId(agent_session.into()),
        file: file.map(Path::to_owned),
        evidence: EvidenceKind::Registry,
    }
}

/// The process of a wrapper that is no more.
fn gone() -> ProcessId {
    ProcessId { pid: Pid(i32::MAX), start: StartTime(1) }
}

/// Hands out one id.
struct Given(&'static str);

impl Ids for Given {
    fn uuid(&self) -> Uuid {
        self.0.parse().unwrap()
    }
}
