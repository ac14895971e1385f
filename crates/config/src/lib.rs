//! Settings: flag, then `CODEMIE_*` variable, then `config.toml`, then default.
//!
//! Promises: reading never fails. A broken file, or one wrong value in it, leaves the default in its place and a line to
//! print after the agent has ended. Unknown keys are kept. One that resembles a known key is reported in the same way, because it
//! is a typing mistake; others may belong to a newer version, and the doctor alone reports them.
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests open what they made; the build without them is checked"
    )
)]

pub mod budget;
pub mod delivery;
pub mod edit;
pub mod keys;
pub mod mcp;
pub mod prices;
pub mod proxy;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::pricing::PriceList;
use pty::chord::Chord;
use toml_edit::{DocumentMut, Item, TableLike, Value};

pub use budget::Budget;
pub use delivery::Delivery;
pub use mcp::McpConfig;
pub use proxy::ProxyConfig;

use os::file::text_at_most;
use types::PicoDollars;

/// More than anybody writes by hand; it is read on the way to exec.
const MAX_BYTES: u64 = 4 << 20;

/// The settings in force, as codemie uses them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub quiet: bool,
    pub log_level: String,
    pub delivery: Delivery,
    pub host: HostConfig,
    pub mcp: McpConfig,
    /// What leaves an attached session.
    pub detach_keys: Chord,
    pub notify: Notify,
    pub proxy: ProxyConfig,
    pub budgets: Vec<Budget>,
    pub prices: PriceList,
    pub runaway: RunawayLimits,
    /// What is paid a month for agents that are paid so.
    pub plans: Vec<(String, PicoDollars)>,
    /// What `codemie statusline` prints.
    pub statusline_format: String,
    agents: Vec<(String, AgentConfig)>,
    /// One line each, for after the agent has ended.
    pub problems: Vec<String>,
}

/// Settings of background sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    pub columns: u16,
    pub rows: u16,
    pub idle_limit: Option<Duration>,
    pub total_limit: Option<Duration>,
}

impl HostConfig {
    fn read<V: Fn(&str) -> Option<OsString>>(settings: &mut Settings<V>) -> Self {
        let (columns, rows) = settings.text("host.size").as_deref().and_then(keys::size).unwrap_or((120, 40));
        let mut limit = |key: &str| settings.text(key).as_deref().and_then(format::since::length);
        Self { columns, rows, idle_limit: limit("host.idleLimit"), total_limit: limit("host.totalLimit") }
    }
}

/// From when on a running session shows a sign (`failing`, `growing`, `spending`); 0 switches that sign off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunawayLimits {
    /// Failures of one tool in a row.
    pub failures: i64,
    /// Tokens by which the context grew without an edit.
    pub context: i64,
    /// How many times the session's own spending per minute.
    pub spend: i64,
}

impl RunawayLimits {
    /// Every sign is switched off.
    pub const NEVER: Self = Self { failures: 0, context: 0, spend: 0 };

    const KEYS: [&str; 3] = ["runaway.failures", "runaway.contextTokens", "runaway.spendFactor"];

    /// Nobody who has not asked for signs is shown any: they are on by `runaway.enabled`, or where a limit is set.
    fn read<V: Fn(&str) -> Option<OsString>>(settings: &mut Settings<V>) -> Self {
        let enabled = settings.in_file("runaway.enabled").and_then(|value| value.as_bool());
        if !enabled.unwrap_or_else(|| Self::KEYS.iter().any(|key| settings.in_file(key).is_some())) {
            return Self::NEVER;
        }
        let mut count = |key: &str| settings.get(key).and_then(|(value, _)| value.as_integer()).unwrap_or(0);
        let [failures, context, spend] = Self::KEYS.map(&mut count);
        Self { failures, context, spend }
    }
}

/// How a user is notified of the moments of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notify {
    /// Program and arguments; empty: nothing is run.
    pub command: Vec<String>,
    /// Whether terminals that are attached to a background session show it themselves.
    pub osc9: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// The real binary, by the file alone; the variable (`CODEMIE_REAL_*`) is read by the search.
    pub path: Option<PathBuf>,
    /// Whether anything may be added to the agent's arguments and environment.
    pub inject: bool,
    /// Whether the agent's conversations are to run in its own process, not in a server that its terminals share. Only Codex has such a server.
    pub embedded: bool,
    /// Whether the agent is to mark what it writes, where the vendor sees that as well.
    pub marks: bool,
}

impl Config {
    /// `file` is `None` on a machine without a home folder.
    pub fn load(file: Option<&Path>, var: impl Fn(&str) -> Option<OsString>, agents: &[&str]) -> Self {
        let home = var("HOME").map(PathBuf::from);
        let mut settings = Settings::read(file, var);
        let config = Self {
            quiet: settings.flag("quiet"),
            log_level: settings.text("log.level").unwrap_or_default(),
            delivery: Delivery::read(&mut settings, home.as_deref()),
            host: HostConfig::read(&mut settings),
            mcp: McpConfig::read(&mut settings),
            detach_keys: settings
                .text(keys::DETACH_KEYS)
                .and_then(|keys| keys.parse().ok())
                .unwrap_or_default(),
            notify: Notify { command: settings.list("notify.command"), osc9: settings.flag("notify.osc9") },
            proxy: ProxyConfig::read(&mut settings, agents),
            budgets: budget::read(&mut settings, agents),
            prices: prices::read(&mut settings),
            runaway: RunawayLimits::read(&mut settings),
            plans: agents
                .iter()
                .filter_map(|name| {
                    let (price, _) = settings.get(&format!("plan.{name}.price"))?;
                    Some(((*name).to_owned(), budget::amount(&Item::Value(price))?))
                })
                .collect(),
            statusline_format: settings.text(keys::STATUSLINE_FORMAT).unwrap_or_default(),
            agents: agents
                .iter()
                .map(|name| {
                    let path = settings.in_file(&format!("agent.{name}.path"));
                    let path = path.and_then(|value| Some(expand_home(value.as_str()?, home.as_deref())));
                    let inject = settings.flag(&format!("agent.{name}.inject"));
                    let embedded = settings.flag(&format!("agent.{name}.embedded"));
                    let marks = settings.flag(&format!("agent.{name}.originator"));
                    ((*name).to_owned(), AgentConfig { path, inject, embedded, marks })
                })
                .collect(),
            problems: Vec::new(),
        };
        settings.report_typing_mistakes(agents);
        Self { problems: settings.problems, ..config }
    }

    pub fn agent(&self, name: &str) -> AgentConfig {
        let known = self.agents.iter().find(|(agent, _)| agent == name);
        let unknown = AgentConfig { path: None, inject: true, embedded: true, marks: false };
        known.map_or(unknown, |(_, config)| config.clone())
    }
}

/// Expands `~/`, which no shell does for a path in a file.
fn expand_home(path: &str, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Variable(String),
    File,
    Default,
}

/// The file and the variables, asked key by key.
pub struct Settings<V> {
    document: DocumentMut,
    var: V,
    pub problems: Vec<String>,
}

impl<V> std::fmt::Debug for Settings<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("problems", &self.problems).finish_non_exhaustive()
    }
}

impl<V: Fn(&str) -> Option<OsString>> Settings<V> {
    pub fn read(file: Option<&Path>, var: V) -> Self {
        let mut problems = Vec::new();
        let document = file.map_or_else(|| Ok(DocumentMut::new()), parse).unwrap_or_else(|problem| {
            problems.push(format!("{problem}; defaults are used"));
            DocumentMut::new()
        });
        Self { document, var, problems }
    }

    /// The value in force. `None`: not set and without a default, or no such key.
    pub fn get(&mut self, key: &str) -> Option<(Value, Source)> {
        let Some(known) = keys::find(key) else {
            return Some((item(&self.document, key)?.as_value()?.clone(), Source::File));
        };
        if let Some(variable) = known.variable_for(key)
            && let Some(text) = (self.var)(&variable).filter(|text| !text.is_empty())
        {
            match known.kind.parse(&text.to_string_lossy()) {
                Ok(value) => return Some((value, Source::Variable(variable))),
                Err(expected) => self.problem(format!("{variable} {expected}")),
            }
        }
        if let Some(value) = self.accepted(known, key) {
            return Some((value, Source::File));
        }
        if known.default.is_empty() {
            return None;
        }
        known.kind.parse(known.default).ok().map(|value| (value, Source::Default))
    }

    /// The value that the file alone gives.
    pub fn in_file(&mut self, key: &str) -> Option<Value> {
        self.accepted(keys::find(key)?, key)
    }

    fn accepted(&mut self, known: &keys::Key, key: &str) -> Option<Value> {
        match known.kind.accept(item(&self.document, key)?) {
            Ok(value) => Some(value),
            Err(expected) => {
                self.problem(format!("config.toml: {key} {expected}"));
                None
            }
        }
    }

    /// Keys in the file that mean nothing to this version, and what was probably meant.
    pub fn unknown(&self, agents: &[&str]) -> Vec<UnknownKey> {
        let mut unknown = Vec::new();
        collect_unknown(self.document.as_table(), "", agents, &mut unknown);
        unknown.into_iter().map(|key| UnknownKey { meant: keys::meant(&key, agents), key }).collect()
    }

    fn report_typing_mistakes(&mut self, agents: &[&str]) {
        for UnknownKey { key, meant } in self.unknown(agents) {
            if let Some(meant) = meant {
                self.problem(format!("config.toml: there is no setting {key}; did you mean {meant}?"));
            }
        }
    }

    /// The names that a table in the file has.
    pub fn names_in(&self, table: &str) -> Vec<String> {
        let table = item(&self.document, table).and_then(Item::as_table_like);
        table.map_or_else(Vec::new, |table| table.iter().map(|(name, _)| name.to_owned()).collect())
    }

    fn flag(&mut self, key: &str) -> bool {
        self.get(key).and_then(|(value, _)| value.as_bool()).unwrap_or(false)
    }

    fn text(&mut self, key: &str) -> Option<String> {
        self.get(key).and_then(|(value, _)| value.as_str().map(str::to_owned))
    }

    fn problem(&mut self, text: String) {
        if !self.problems.contains(&text) {
            self.problems.push(text);
        }
    }
}

/// A file that is not there is an empty one.
fn parse(file: &Path) -> Result<DocumentMut, String> {
    let text = match text_at_most(file, MAX_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DocumentMut::new()),
        Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
    };
    text.parse::<DocumentMut>().map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        format!("{} line {line}: {}", file.display(), error.message().replace('\n', ", "))
    })
}

fn item<'a>(document: &'a DocumentMut, key: &str) -> Option<&'a Item> {
    key.split('.').try_fold(document.as_item(), |item, part| item.as_table_like()?.get(part))
}

/// A key in the file that means nothing to this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKey {
    pub key: String,
    /// The known key that it resembles.
    pub meant: Option<String>,
}

fn collect_unknown(table: &dyn TableLike, prefix: &str, agents: &[&str], unknown: &mut Vec<String>) {
    for (part, item) in table.iter() {
        let key = if prefix.is_empty() { part.to_owned() } else { format!("{prefix}.{part}") };
        match item.as_table_like() {
            // What is wrong in these is a problem of its own.
            _ if [budget::TABLES, prices::TABLE].contains(&&*key) => {}
            Some(table) if keys::find(&key).is_none() => collect_unknown(table, &key, agents, unknown),
            None if keys::find_for(&key, agents).is_none() => unknown.push(key),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENTS: [&str; 2] = ["claude", "codex"];

    fn load(content: &str, vars: &[(&str, &str)]) -> Config {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let var = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into());
        let mut config = Config::load(Some(file.path()), var, &AGENTS);
        for problem in &mut config.problems {
            *problem = problem.replace(file.path().to_str().unwrap(), "FILE");
        }
        config
    }

    #[test]
    fn the_variable_wins_over_the_file_and_the_file_over_the_default() {
        let file = "quiet = true\n[log]\nlevel = 'debug'\n[agent.codex]\ninject = false\nembedded = false\noriginator = true\npath = '~/bin/codex'\n";
        let config = load(file, &[("HOME", "/home/dev")]);
        assert!(config.quiet);
        assert_eq!(config.log_level, "debug");
        assert_eq!(
            config.agent("codex"),
            AgentConfig {
                path: Some("/home/dev/bin/codex".into()),
                inject: false,
                embedded: false,
                marks: true
            }
        );
        let unset = AgentConfig { path: None, inject: true, embedded: false, marks: false };
        assert_eq!(config.agent("claude"), unset);
        assert_eq!(load("", &[]).agent("codex"), AgentConfig { embedded: true, ..unset });
        assert_eq!(config.problems, [""; 0]);

        let config = load(file, &[("CODEMIE_QUIET", "0"), ("CODEMIE_LOG", "trace")]);
        assert!(!config.quiet);
        assert_eq!(config.log_level, "trace");
    }

    #[test]
    fn a_broken_file_gives_defaults_and_a_problem() {
        type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str);
        let cases: &[Case] = &[
            ("quiet = true\n[log\n", &[], "FILE line 2: "),
            ("quiet = 'yes'\n", &[], "config.toml: quiet must be true or false"),
            ("log = 3\n", &[], ""),
            ("", &[("CODEMIE_QUIET", "perhaps")], "CODEMIE_QUIET must be true or false"),
            ("[log]\nlevel = 'loud'\n", &[], "config.toml: log.level must be one of off, error,"),
            ("[sync]\ninterval = 10\n", &[], "config.toml: sync.interval must be a time like"),
            ("[backend]\nurl = 'ftp://x'\n", &[], "backend.url must be an address that begins with http"),
            ("[backend]\nurl = 'https://me:hidden@x'\n", &[], "backend.url must hold no password"),
        ];
        for (file, vars, problem) in cases {
            let config = load(file, vars);
            assert!(!config.quiet && config.log_level == "info", "{file}");
            match config.problems.as_slice() {
                [] => assert_eq!(*problem, "", "{file}"),
                [only] => assert!(!problem.is_empty() && only.starts_with(problem), "{file}: {only}"),
                more => panic!("{file}: {more:?}"),
            }
        }
    }

    #[test]
    fn command_lines_and_arguments_are_lists() {
        let file = "[mcp]\nallowArgs = ['--model *']\nmaxDepth = 0\n[mcp.genie]\ncoder = ['claude', '--model', 'x']\nbad = 3\n";
        let config = load(file, &[]);
        assert_eq!(config.mcp.allow_args, ["--model *"]);
        assert_eq!((config.mcp.max_depth, config.mcp.max_sessions, config.mcp.any_folder), (0, 8, false));
        let genie: Vec<(&str, &[String])> =
            config.mcp.genie.iter().map(|(name, line)| (name.as_str(), line.as_slice())).collect();
        assert_eq!(genie, [("coder", &["claude".to_owned(), "--model".into(), "x".into()][..])]);
        assert_eq!(
            config.problems,
            ["config.toml: mcp.genie.bad must be texts in brackets, like [\"--model *\"]"]
        );
    }

    #[test]
    fn signs_are_off_until_they_are_enabled_or_a_limit_is_set() {
        let all = RunawayLimits { failures: 5, context: 100_000, spend: 5 };
        for (file, expected) in [
            ("", RunawayLimits::NEVER),
            ("[runaway]\nenabled = true\n", all),
            ("[runaway]\nfailures = 7\n", RunawayLimits { failures: 7, ..all }),
            ("[runaway]\nspendFactor = 0\n", RunawayLimits { spend: 0, ..all }),
            ("[runaway]\nenabled = false\nfailures = 7\n", RunawayLimits::NEVER),
            ("[runaway]\nfailures = 'many'\n", RunawayLimits::NEVER),
        ] {
            assert_eq!(load(file, &[]).runaway, expected, "{file}");
        }
    }

    #[test]
    fn one_wrong_value_does_not_cost_the_others() {
        let config = load("quiet = 'yes'\n[log]\nlevel = 'debug'\n", &[]);
        assert_eq!(config.log_level, "debug");
    }

    #[test]
    fn no_file_and_no_home_are_no_problem() {
        let none = Config::load(None, |_| None, &AGENTS);
        assert_eq!(none, Config::load(Some(Path::new("/nonexistent/config.toml")), |_| None, &AGENTS));
        assert_eq!(none.problems, [""; 0]);
    }

    #[test]
    fn unknown_keys_are_found_wherever_they_stand() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "quiet = true\nwat = 1\n[agent.claude]\npath = 'x'\npth = 'x'\n[sync]\ninterwal = '10s'\n";
        std::fs::write(file.path(), text).unwrap();
        let settings = Settings::read(Some(file.path()), |_| None);
        let unknown: Vec<_> =
            settings.unknown(&AGENTS).into_iter().map(|UnknownKey { key, meant }| (key, meant)).collect();
        let expected = [
            ("wat", None),
            ("agent.claude.pth", Some("agent.claude.path")),
            ("sync.interwal", Some("sync.interval")),
        ];
        assert_eq!(unknown, expected.map(|(key, meant)| (key.to_owned(), meant.map(str::to_owned))));
        let config =
            load("sync.interwal = '1s'\nnewer.setting = 1\nproxy.claud.upstream = 'http://x'\n", &[]);
        assert_eq!(
            config.problems,
            [
                "config.toml: there is no setting sync.interwal; did you mean sync.interval?",
                "config.toml: there is no setting proxy.claud.upstream; did you mean proxy.claude.upstream?"
            ]
        );
    }
}
