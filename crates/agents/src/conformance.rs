//! What every agent of the registry must do with its own recordings, whoever it is: `tests/fixtures/<agent>` holds a folder per case
//! and in `expected.json` what the API that answered knows of each; `tests/fixtures/screens/<agent>` holds its screens.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::kit::version;
use crate::meter::line::Lines;
use crate::meter::record::Fact;
use crate::recordings::{
    Counted, besides_usage, count_all, pieces_readers_and_restarts_change_nothing, read_whole, usage,
};
use crate::registry::AGENTS;
use crate::transcript::{self, Item, ItemKind};
use crate::{Agent, Assigned, Conversation, LaunchStart, SessionFile, live_fixtures};
use types::{AgentSessionId, Tokens};

/// Where the files of a case stand in an agent's home: the variable that names it, and the folder below.
const HOMES: &[(&str, &str, &str)] = &[
    ("claude", "CLAUDE_CONFIG_DIR", ""),
    ("codex", "CODEX_HOME", ""),
    ("gemini", "HOME", ".gemini/tmp/project/chats"),
    ("qwen", "QWEN_HOME", ""),
];

/// What a case comes to.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expected {
    calls: u64,
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    reasoning: u64,
    prompts: u64,
    tools: u64,
    tool_errors: u64,
    lines_added: u64,
    lines_removed: u64,
    api_errors: u64,
}

impl Expected {
    fn usage(&self) -> (u64, Tokens) {
        let tokens = Tokens {
            input: self.input,
            output: self.output,
            cache_read: self.cache_read,
            cache_write_5m: self.cache_write,
            reasoning: self.reasoning,
            ..Tokens::default()
        };
        (self.calls, tokens)
    }

    fn besides(&self) -> [u64; 6] {
        let tools = [self.tools, self.tool_errors, self.lines_added, self.lines_removed];
        [self.prompts, tools[0], tools[1], tools[2], tools[3], self.api_errors]
    }
}

/// A case in a home of its own.
struct Case {
    agent: &'static dyn Agent,
    name: String,
    expected: Expected,
    home: tempfile::TempDir,
    variable: &'static str,
}

impl Case {
    fn var(&self, name: &str) -> Option<OsString> {
        (name == self.variable).then(|| self.home.path().into())
    }

    /// As a scan finds them.
    fn files(&self) -> Vec<SessionFile> {
        let var = |name: &str| self.var(name);
        let mut found = self.agent.session_files(&var);
        for folder in std::mem::take(&mut found.folders) {
            let inside = self.agent.session_files_in(&folder);
            found.files.extend(inside.files);
            found.refused.extend(inside.refused);
        }
        assert_eq!(found.refused, Vec::<String>::new());
        found.files.sort();
        assert!(!found.files.is_empty(), "{self}: no files");
        found.files
    }

    fn contents(&self) -> Vec<(String, Vec<u8>)> {
        let files = self.files().into_iter();
        files.map(|file| (file.path.display().to_string(), fs::read(&file.path).unwrap())).collect()
    }

    fn lines(&self, state: Option<&str>) -> Box<dyn Lines + Send> {
        self.agent.observer(&|name| self.var(name), self.home.path()).unwrap().lines(state)
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.agent.name(), self.name)
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

fn cases() -> Vec<Case> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let mut cases = Vec::new();
    for agent in AGENTS.iter().copied() {
        let name = agent.name();
        let (_, variable, below) = HOMES.iter().find(|(of, ..)| *of == name).expect(name);
        let text = fs::read_to_string(fixtures.join(name).join("expected.json")).expect(name);
        let expected: BTreeMap<String, Expected> = serde_json::from_str(&text).unwrap();
        assert!(expected.len() > 5, "{name}");
        cases.extend(expected.into_iter().map(|(case, expected)| {
            let home = tempfile::tempdir().unwrap();
            copy(&fixtures.join(name).join(&case), &home.path().join(below));
            Case { agent, name: case, expected, home, variable }
        }));
    }
    cases
}

#[test]
fn totals_equal_the_truth_of_the_api() {
    for case in cases() {
        for usage_only in [false, true] {
            let mut all = Counted::new();
            let files = case.contents();
            // Twice, and backwards: a key counts once.
            for (path, data) in files.iter().chain(files.iter().rev()) {
                let scanned = || case.agent.usage_lines(None).unwrap();
                let lines = if usage_only { scanned() } else { case.lines(None) };
                let mut one = Counted::new();
                assert_eq!(read_whole(data, lines, &mut one), 0, "{path}");
                count_all(&mut all, one.into_values());
            }
            assert_eq!(usage(&all), case.expected.usage(), "{case}");
            let besides = if usage_only { [0; 6] } else { case.expected.besides() };
            assert_eq!(besides_usage(&all), besides, "{case}");
            let modelled = all.values().all(|record| match &record.fact {
                Fact::Usage(usage) => !usage.model.is_empty(),
                _ => true,
            });
            assert!(modelled && all.values().all(|record| record.at.0 > 0), "{case}");
        }
    }
}

#[test]
fn random_pieces_two_readers_and_restarts_change_nothing() {
    for case in cases() {
        pieces_readers_and_restarts_change_nothing(&case.to_string(), &case.contents(), &|state| {
            case.lines(state)
        });
    }
}

#[test]
fn conversations_are_shown_page_by_page_as_in_one_go() {
    for case in cases() {
        let reader = case.agent.transcript().unwrap();
        let mut said = (0, 0);
        for SessionFile { path, .. } in case.files() {
            let form = case.agent.form(&path);
            let (content, reader) = (form.open(&path).unwrap(), reader.of_form(form));
            let mut whole: Vec<Item> = Vec::new();
            transcript::each(&content, reader, &mut |_, item| whole.push(item)).unwrap();
            said.0 += whole.iter().filter(|item| matches!(item.kind, ItemKind::User(_))).count();
            said.1 += whole.iter().filter(|item| matches!(item.kind, ItemKind::Assistant(_))).count();
            let (mut forwards, mut at) = (Vec::new(), None);
            loop {
                let page = transcript::after(&content, at, 600, reader).unwrap();
                if at == Some(page.cursor) {
                    break;
                }
                at = Some(page.cursor);
                forwards.push(page.items);
            }
            let long = whole.iter().any(|item| format!("{item:?}").len() > 500);
            if !long {
                assert_eq!(forwards.concat(), whole, "{}", path.display());
                let last = transcript::last(&content, 1 << 20, reader).unwrap();
                assert_eq!(last.items, whole, "{}", path.display());
            }
        }
        assert!(said.0 > 0, "{case}: nobody said anything");
        assert!(said.1 > 0 || case.expected.calls == 0, "{case}: nobody answered");
    }
}

#[test]
fn every_file_has_an_owner_that_its_id_finds_and_that_can_be_resumed() {
    for case in cases() {
        let var = |name: &str| case.var(name);
        let roots = case.agent.session_roots(&var);
        let mut owners: BTreeMap<AgentSessionId, PathBuf> = BTreeMap::new();
        for file in case.files() {
            assert!(roots.iter().any(|root| file.path.starts_with(root)), "{}", file.path.display());
            let owner = case.agent.owner(&var, &file).expect("an owner");
            if !owner.subagent {
                owners.insert(owner.conversation, file.path);
            }
        }
        assert!(!owners.is_empty(), "{case}");
        for (id, path) in owners {
            let found = case.agent.conversations(&var, &id.0);
            assert_eq!(found.len(), 1, "{case}: {id}");
            assert_eq!((&found[0].agent_session, found[0].agent.as_str()), (&id, case.agent.name()));
            let files = case.agent.observer(&var, case.home.path()).unwrap().files(&id);
            assert!(files.contains(&path), "{}: {files:?}", path.display());
            let args = case.agent.resume(&id, false).expect("arguments");
            assert_eq!(case.agent.classify(&args).session, Conversation::Named(id.clone()), "{args:?}");
            if let Some(args) = case.agent.resume(&id, true) {
                let fork = Conversation::Fork { from: Some(id), to: None };
                assert_eq!(case.agent.classify(&args).session, fork, "{args:?}");
            }
        }
    }
}

/// What a version is told to add, its own parser must take for the conversation's id.
#[test]
fn an_added_id_is_the_conversation_of_the_arguments() {
    let fresh = uuid::Uuid::from_u128(7);
    for agent in AGENTS {
        let var = |_: &str| Some(OsString::from("/nowhere"));
        let invocation = agent.classify(&[]);
        let (folder, args) = (Path::new("/project"), &[][..]);
        let of = |version| LaunchStart { invocation: &invocation, args, version, fresh, var: &var, folder };
        assert!(invocation.persistent && invocation.session == Conversation::Fresh, "{}", agent.name());
        let versions = ["0.24.4", "0.61.0", "2.1.197", "0.166.0"];
        assert!(versions.iter().all(|version| version::major_and_minor(version).is_some()));
        for version in versions {
            let added = agent.inject(&of(Some(version)));
            let assigned = added.and_then(|added| Some((added.assigned?, added.args)));
            if let Some((Assigned::Id(id), args)) = assigned {
                assert_eq!(agent.classify(&args).session, Conversation::Chosen(id), "{args:?}");
            }
        }
        assert_eq!(agent.inject(&of(None)), None, "of no known version");
    }
}

#[test]
fn every_recorded_screen_shows_its_state() {
    for agent in AGENTS {
        live_fixtures::check(agent.name(), *agent);
    }
}

#[test]
fn a_torn_screen_is_read() {
    for agent in AGENTS {
        live_fixtures::check_torn(agent.name(), *agent);
    }
}
