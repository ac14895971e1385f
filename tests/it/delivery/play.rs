//! A scripted agent under the name of Claude Code: the demonstration's, which writes Claude's own files, so that its
//! sessions are sent as any other's.

use std::fs;
use std::path::PathBuf;

use os::clock::{Clock, SystemClock};
use os::home::Home;
use serde_json::Value;
use store::Store;

use crate::sandbox::{CODEMIE, CommandOutput, Sandbox, output_of};
use crate::support::processes;
use crate::support::pty::{Start, Terminal};

pub(crate) struct Play {
    pub(crate) sandbox: Sandbox,
}

impl Play {
    pub(crate) fn new(config: &str) -> Self {
        let sandbox = Sandbox::new();
        sandbox.file(".codemie/config.toml", config);
        let body = "id=$(cat /proc/sys/kernel/random/uuid)\n\
             while [ $# -gt 0 ]; do [ \"$1\" = --session-id ] && id=$2; shift; done\n\
             exec \"$CODEMIE_UNDER_TEST\" demo-agent ${PACE---swift} --session-id \"$id\"";
        sandbox.script("bin/claude", body);
        Self { sandbox }
    }

    fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("HOME", self.sandbox.home().to_owned()),
            ("CODEMIE_HOME", self.sandbox.path(".codemie")),
            ("CODEMIE_REAL_CLAUDE", self.sandbox.path("bin/claude")),
            ("CLAUDE_CONFIG_DIR", self.sandbox.path(".codemie/demo")),
            ("CODEMIE_UNDER_TEST", CODEMIE.into()),
            ("CODEMIE_QUIET", "1".into()),
        ]
    }

    /// The agent in a terminal, wrapped.
    pub(crate) fn start(&self) -> Terminal {
        self.start_as(&["claude"])
    }

    pub(crate) fn start_as(&self, args: &[&str]) -> Terminal {
        let start = Start::new([CODEMIE].iter().chain(args).copied()).cwd(self.sandbox.home()).size(30, 100);
        let start = self.variables().into_iter().fold(start, |start, (name, value)| start.env(name, value));
        start.env("CODEMIE_LOG", "debug").spawn()
    }

    /// A line for the shell, with further variables.
    pub(crate) fn start_in_shell(&self, line: &str, more: &[(&'static str, String)]) -> Terminal {
        let start = Start::new(["sh", "-c", line]).cwd(self.sandbox.home()).size(30, 100);
        let start = self.variables().into_iter().fold(start, |start, (name, value)| start.env(name, value));
        more.iter().fold(start, |start, (name, value)| start.env(*name, value)).spawn()
    }

    /// As if nothing had ever been sent.
    pub(crate) fn forget_deliveries(&self) {
        let home = Home::at(self.sandbox.path(".codemie"));
        let mut store = Store::open(&home, SystemClock.now()).unwrap();
        let sinks = store.read(|view| view.sinks()).unwrap();
        for sink in sinks {
            store
                .write(|tx| {
                    tx.forget_sink(&sink.name)?;
                    tx.add_sink(&sink.name)?;
                    tx.backfill(&sink.name)
                })
                .unwrap();
        }
    }

    pub(crate) fn codemie(&self, args: &[&str]) -> CommandOutput {
        output_of(self.sandbox.codemie(args).envs(self.variables()))
    }

    pub(crate) fn records(&self) -> Vec<Value> {
        let result = self.codemie(&["list", "--all", "--json"]);
        serde_json::from_str(&result.out).unwrap_or_else(|error| panic!("{error}: {result:?}"))
    }

    /// Calls, input, output, cache read and cache write of a conversation by its own file, each call once: the truth.
    pub(crate) fn truth(&self, conversation: &str) -> [i64; 5] {
        let projects = fs::read_dir(self.sandbox.path(".codemie/demo/projects")).unwrap();
        let mut calls = std::collections::BTreeMap::<String, [i64; 4]>::new();
        for project in projects {
            let file = project.unwrap().path().join(format!("{conversation}.jsonl"));
            for line in fs::read_to_string(file).unwrap_or_default().lines() {
                let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
                let (message, usage) = (&line["message"], &line["message"]["usage"]);
                let Some(id) = message["id"].as_str().filter(|_| usage.is_object()) else { continue };
                let fields = [
                    "input_tokens",
                    "output_tokens",
                    "cache_read_input_tokens",
                    "cache_creation_input_tokens",
                ];
                let tokens = fields.map(|field| usage[field].as_i64().unwrap_or(0));
                let known = calls.entry(id.to_owned()).or_insert(tokens);
                if tokens[1] > known[1] {
                    *known = tokens;
                }
            }
        }
        let mut sums = [i64::try_from(calls.len()).unwrap(), 0, 0, 0, 0];
        for tokens in calls.values() {
            for (sum, more) in sums.iter_mut().skip(1).zip(tokens) {
                *sum += more;
            }
        }
        sums
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.sandbox.path(".codemie/logs/codemie.log")).unwrap_or_default()
    }
}

impl Drop for Play {
    fn drop(&mut self) {
        processes::kill_started_in(self.sandbox.home());
    }
}
