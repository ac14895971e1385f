//! Scans of small trees.

mod cache;
mod every_agent;
mod owners;
mod random;
mod regressions;

#[path = "../../../../tests/trees.rs"]
mod trees;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;

use super::*;
use agents::claude::Claude;
use trees::Counts;
use types::Timestamp;
use usage::{By, UsageQuery, UsageRow, tally};

pub(super) static AGENTS: [&dyn Agent; 1] = [&Claude];

/// A machine: Claude's folder, and the cache of scans.
pub(super) struct Stage {
    folder: tempfile::TempDir,
}

impl Stage {
    pub(super) fn new() -> Self {
        let stage = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(stage.root().join("projects")).unwrap();
        stage
    }

    /// `~/.claude`
    pub(super) fn root(&self) -> PathBuf {
        self.folder.path().join("claude")
    }

    pub(super) fn memory(&self) -> PathBuf {
        self.folder.path().join("home/scan")
    }

    pub(super) fn forget(&self) {
        let _ = fs::remove_dir_all(self.memory());
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.root().join("projects/-p").join(name)
    }

    pub(super) fn put(&self, name: &str, lines: &[String]) -> PathBuf {
        let path = self.file(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, lines.iter().map(|line| line.clone() + "\n").collect::<String>()).unwrap();
        path
    }

    pub(super) fn scan(&self) -> Scanned {
        self.scan_with(None, None)
    }

    pub(super) fn scan_with(&self, store: Option<&View<'_>>, since: Option<Timestamp>) -> Scanned {
        scan(&self.root(), &self.memory(), store, since)
    }

    pub(super) fn sessions(&self) -> BTreeMap<String, i64> {
        outputs(&self.scan(), By::Session)
    }
}

pub(super) fn scan(
    root: &Path,
    memory: &Path,
    store: Option<&View<'_>>,
    since: Option<Timestamp>,
) -> Scanned {
    in_zone(root, memory, store, since, TimeZone::UTC)
}

pub(super) fn in_zone(
    root: &Path,
    memory: &Path,
    store: Option<&View<'_>>,
    since: Option<Timestamp>,
    zone: TimeZone,
) -> Scanned {
    let root: OsString = root.into();
    let scanner = Scanner {
        folder: memory.to_owned(),
        agents: &AGENTS,
        var: &|name| (name == "CLAUDE_CONFIG_DIR").then(|| root.clone()),
        days: Days::of(zone),
        prices: &pricing::PriceList::default(),
        watch: None,
    };
    scanner.scan(store, Span { since, until: None }).unwrap()
}

impl Scanned {
    pub(super) fn rows(&self, by: By) -> Vec<UsageRow> {
        tally(&[self.spending()], &UsageQuery::by(by)).rows
    }
}

pub(super) fn key(row: &UsageRow) -> String {
    row.key.clone().unwrap_or_else(|| "(none)".into())
}

/// Output tokens by key.
pub(super) fn outputs(scanned: &Scanned, by: By) -> BTreeMap<String, i64> {
    scanned.rows(by).into_iter().map(|row| (key(&row), row.sums.output)).collect()
}

pub(super) fn counts(rows: &[UsageRow]) -> BTreeMap<String, Counts> {
    let count = |number: i64| u64::try_from(number).unwrap();
    rows.iter()
        .map(|row| {
            let counts = Counts {
                calls: count(row.sums.api_calls),
                input: count(row.sums.input),
                output: count(row.sums.output),
                cache_read: count(row.sums.cache_read),
                cache_write: count(row.sums.cache_write),
                cost: count(row.sums.cost.0),
            };
            (key(row), counts)
        })
        .collect()
}

/// A line with usage: the fields that tests vary.
pub(super) struct Answer<'a> {
    pub(super) id: &'a str,
    pub(super) session: &'a str,
    pub(super) output: u64,
    pub(super) model: &'a str,
    /// Further fields of the line.
    pub(super) more: &'a str,
    /// Further fields of its usage.
    pub(super) usage: &'a str,
    pub(super) at: &'a str,
}

impl Default for Answer<'_> {
    fn default() -> Self {
        Self {
            id: "m",
            session: "s",
            output: 10,
            model: "claude-opus-4-8",
            more: r#","requestId":"req_1""#,
            usage: "",
            at: "2026-11-15T10:00:00.000Z",
        }
    }
}

impl Answer<'_> {
    pub(super) fn line(&self) -> String {
        let Self { id, session, output, model, more, usage, at } = self;
        format!(
            r#"{{"type":"assistant","uuid":"u","timestamp":"{at}","sessionId":"{session}","cwd":"/nowhere/widgets","gitBranch":"main","message":{{"id":"{id}","role":"assistant","model":"{model}","content":[],"usage":{{"input_tokens":1,"output_tokens":{output}{usage}}}}}{more}}}"#
        )
    }
}

pub(super) fn answer(id: &str, session: &str, output: u64) -> String {
    Answer { id, session, output, ..Answer::default() }.line()
}
