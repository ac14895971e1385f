//! Every recording, through the store: growing in random pieces, read by two processes at once, each of which may crash
//! between any two commits. The truth is what the API that answered noted per conversation.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use serde_json::Value;

use super::{Follower, News};
use agents::Observer;
use agents::claude::Claude;
use agents::claude::FORMAT;
use agents::claude::files::LAYOUT;
use agents::codex::files::{CodexFiles, thread_of};
use agents::codex::observer::CodexObserver;
use agents::gemini::files::GeminiFiles;
use agents::gemini::observer::GeminiObserver;
use agents::kit::registry::{RegistryFiles, RegistryObserver, session_id};
use scan::{Days, Scanner};
use store::Store;
use store::View;
use store::session::lifecycle::{self, Binding, ConversationStart};
use store::session::testing::World;
use types::EvidenceKind;
use types::Span;
use types::Timestamp;
use types::{AgentSessionId, SessionId};
use usage::{By, UsageQuery, UsageRow, tally};

/// calls, input, cache creation, cache read, output
type Spent = [i64; 5];

/// What an agent wrote, and what it spent.
struct Recording {
    agent: &'static str,
    name: String,
    /// Where each file stands in the agent's home, and what is in it.
    files: Vec<(PathBuf, Vec<u8>)>,
    /// Each conversation with when its own part begins, and whether there is a part that it copied.
    conversations: Vec<(AgentSessionId, Timestamp, bool)>,
    truth: BTreeMap<AgentSessionId, Spent>,
    /// Over an agent's home.
    observer: fn(&Path) -> Box<dyn Observer>,
}

fn fixtures(agent: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(agent)
}

fn truths(agent: &str) -> serde_json::Map<String, Value> {
    serde_json::from_slice(&fs::read(fixtures(agent).join("truth.json")).unwrap()).unwrap()
}

fn read_below(folder: &Path, stands_in: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let stands = |file: &PathBuf| Path::new(stands_in).join(file.strip_prefix(folder).unwrap());
    files_below(folder).iter().map(|file| (stands(file), fs::read(file).unwrap())).collect()
}

fn claude() -> Vec<Recording> {
    let recording = |(name, case): (String, Value)| {
        let projects = fixtures("claude").join(&name).join("projects");
        Recording {
            agent: "claude",
            files: read_below(&projects, "projects"),
            conversations: conversations(&files_below(&projects)),
            truth: truth(&case),
            observer: |root| {
                Box::new(RegistryObserver::new(
                    &FORMAT,
                    RegistryFiles::at(LAYOUT, root),
                    Path::new("/home/dev/project"),
                ))
            },
            name,
        }
    };
    truths("claude").into_iter().map(recording).collect()
}

/// The truth is noted per thread; a sub-agent's is its root's. A fork has no lines of its parent's.
fn codex() -> Vec<Recording> {
    let recording = |(name, case): (String, Value)| {
        let sessions = fixtures("codex").join(&name).join("sessions");
        let mut conversations: Vec<(AgentSessionId, Timestamp, bool)> = Vec::new();
        let mut truth: BTreeMap<AgentSessionId, Spent> = BTreeMap::new();
        for file in files_below(&sessions) {
            let text = fs::read_to_string(&file).unwrap();
            let meta: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            let root = AgentSessionId(meta["payload"]["session_id"].as_str().unwrap().to_owned());
            let thread = thread_of(&file).unwrap();
            if root == thread {
                let at = Timestamp::parse(meta["timestamp"].as_str().unwrap()).unwrap();
                conversations.push((root.clone(), at, !meta["payload"]["forked_from_id"].is_null()));
            }
            let calls = text.matches("\"type\":\"token_usage_record\"").count();
            let field = |name: &str| case["per_thread"][&thread.0][name].as_i64().unwrap();
            let cached = field("cached_input_tokens");
            let spent = [
                i64::try_from(calls).unwrap(),
                field("input_tokens") - cached,
                0,
                cached,
                field("output_tokens"),
            ];
            let sum = truth.entry(root).or_default();
            *sum = std::array::from_fn(|at| sum[at] + spent[at]);
        }
        let calls: i64 = truth.values().map(|spent| spent[0]).sum();
        assert_eq!(Some(calls), case["main"]["calls"].as_i64(), "{name}");
        Recording {
            agent: "codex",
            files: read_below(&sessions, "sessions"),
            conversations,
            truth,
            observer: |root| Box::new(CodexObserver::new(CodexFiles::at(root), None)),
            name,
        }
    };
    truths("codex").into_iter().map(recording).collect()
}

/// The truth is noted per case; which calls of the one case with several conversations were made in which stands in its
/// answers, which name their call.
fn gemini() -> Vec<Recording> {
    const CALLS: [(&str, i64); 3] = [("22222222", 2), ("6b32319f", 4), ("47ff49c5", 6)];
    let recording = |(name, case): (String, Value)| {
        let chats = fixtures("gemini").join(&name);
        let mut conversations: Vec<(AgentSessionId, Timestamp, bool)> = Vec::new();
        for file in files_below(&chats) {
            let text = fs::read_to_string(&file).unwrap();
            let header: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            let id = AgentSessionId(header["sessionId"].as_str().unwrap().to_owned());
            let at = Timestamp::parse(header["startTime"].as_str().unwrap()).unwrap();
            if header["kind"] == "main" && !conversations.iter().any(|(known, ..)| *known == id) {
                conversations.push((id, at, false));
            }
        }
        let field = |name: &str| case["main"]["usage"][name].as_i64().unwrap();
        let input = field("input") - field("cached") + field("tool");
        let output = field("output") + field("thoughts");
        let all = [case["main"]["calls"].as_i64().unwrap(), input, 0, field("cached"), output];
        let truth: BTreeMap<AgentSessionId, Spent> = match &conversations[..] {
            [(only, ..)] => [(only.clone(), all)].into(),
            several => {
                let ids = several.iter().map(|(id, ..)| id.clone());
                let calls = ids.filter_map(|id| {
                    CALLS.iter().find(|(begin, _)| id.0.starts_with(begin)).map(|(_, n)| (id, n))
                });
                calls
                    .map(|(id, n)| (id, [1, 1000 + 10 * n - 500 - n + 1 + n, 0, 500 + n, 110 + 2 * n]))
                    .collect()
            }
        };
        let sum =
            truth.values().fold(Spent::default(), |sum, more| std::array::from_fn(|at| sum[at] + more[at]));
        assert_eq!(sum, all, "{name}");
        Recording {
            agent: "gemini",
            files: read_below(&chats, "tmp/project/chats"),
            conversations,
            truth,
            observer: |root| {
                Box::new(GeminiObserver::new(GeminiFiles::at(root), Path::new("/home/dev/project")))
            },
            name,
        }
    };
    truths("gemini").into_iter().map(recording).collect()
}

/// What the API billed each conversation for, but for the calls that no transcript holds.
fn truth(case: &Value) -> BTreeMap<AgentSessionId, Spent> {
    let spent = |value: &Value| -> Spent {
        ["calls", "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"]
            .map(|field| value[field].as_i64().unwrap())
    };
    let sessions = case["server_by_session"].as_object().unwrap();
    let per_session = sessions.iter().map(|(id, kinds)| {
        let kinds = kinds.as_object().unwrap().iter();
        let recorded = kinds.filter(|(kind, _)| !matches!(kind.as_str(), "title" | "compact"));
        let sum = recorded
            .map(|(_, value)| spent(value))
            .fold(Spent::default(), |sum, more| std::array::from_fn(|at| sum[at] + more[at]));
        (AgentSessionId(id.clone()), sum)
    });
    per_session.collect()
}

struct Growth {
    target: PathBuf,
    rest: Vec<u8>,
}

impl Growth {
    fn grow(&mut self, bytes: usize) {
        let now: Vec<u8> = self.rest.drain(..bytes.min(self.rest.len())).collect();
        fs::create_dir_all(self.target.parent().unwrap()).unwrap();
        let mut file = fs::File::options().append(true).create(true).open(&self.target).unwrap();
        file.write_all(&now).unwrap();
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "jsonl") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The times of the lines that have one, and the id of the API's answer if the line is one.
fn lines(file: &Path) -> Vec<(Timestamp, Option<String>)> {
    let text = fs::read_to_string(file).unwrap();
    let values = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    values
        .filter_map(|line| {
            let at = Timestamp::parse(line["timestamp"].as_str()?)?;
            Some((at, line["message"]["id"].as_str().map(str::to_owned)))
        })
        .collect()
}

/// The conversations in the order they began in, each with when its own part begins: after the last answer it copied.
fn conversations(files: &[PathBuf]) -> Vec<(AgentSessionId, Timestamp, bool)> {
    let mut known: Vec<String> = Vec::new();
    let mut mains: Vec<_> = files.iter().filter_map(|file| Some((session_id(file)?, lines(file)))).collect();
    // A copy is longer than what it copies.
    mains.sort_by_key(|(id, lines)| (lines.len(), id.clone()));
    mains
        .into_iter()
        .map(|(id, lines)| {
            let is_known = |message: &Option<String>| message.as_ref().is_some_and(|id| known.contains(id));
            let copied = lines.iter().filter(|(_, message)| is_known(message)).map(|(at, _)| *at).max();
            let first = lines.iter().map(|(at, _)| *at).min().unwrap_or_default();
            known.extend(lines.into_iter().filter_map(|(_, message)| message));
            (id, copied.map_or(first, |at| Timestamp(at.0 + 1)), copied.is_some())
        })
        .collect()
}

struct Process {
    store: Store,
    observer: Box<dyn Observer>,
    followers: BTreeMap<SessionId, Follower>,
}

impl Process {
    fn start(world: &World, observer: Box<dyn Observer>) -> Self {
        Self { store: world.another(), observer, followers: BTreeMap::new() }
    }

    fn read(&mut self, at: Timestamp, session: SessionId, conversation: &AgentSessionId) {
        let files = self.observer.files(conversation);
        let follower = self.followers.entry(session).or_default();
        follower.read(&mut self.store, at, session, &*self.observer, &files, &mut News::default()).unwrap();
    }
}

fn play(recording: &Recording, seed: u64) {
    let mut random = seed;
    let mut below = move |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % limit).unwrap()
    };
    let mut world = World::new();
    let root = tempfile::tempdir().unwrap();
    let sessions: Vec<_> = recording
        .conversations
        .iter()
        .map(|(id, at, copies)| {
            let mut begin =
                world.begin(if *copies { ConversationStart::Unsure } else { ConversationStart::Fresh });
            recording.agent.clone_into(&mut begin.agent);
            let binding = Binding { agent_session: id.clone(), file: None, evidence: EvidenceKind::Registry };
            let ids = &world.ids;
            let session = world.store.write(|tx| {
                let started = lifecycle::start(tx, *at, ids, &begin)?;
                lifecycle::bind(tx, *at, ids, started.session, &binding)?;
                Ok::<_, store::session::Error>(started.session)
            });
            (id, session.unwrap(), *at)
        })
        .collect();
    let mut growing: Vec<Growth> = recording
        .files
        .iter()
        .map(|(file, content)| Growth { target: root.path().join(file), rest: content.clone() })
        .collect();
    let start = |world: &World| Process::start(world, (recording.observer)(root.path()));
    let mut processes = [start(&world), start(&world)];
    while growing.iter().any(|file| !file.rest.is_empty()) {
        let file = below(growing.len() as u64);
        growing[file].grow(1 + below(9000));
        let reader = below(2);
        if below(4) == 0 {
            processes[reader] = start(&world); // it was killed
        }
        let (id, session, at) = &sessions[below(sessions.len() as u64)];
        processes[reader].read(*at, *session, id);
    }
    for process in &mut processes {
        for (id, session, at) in &sessions {
            process.read(*at, *session, id);
        }
    }
    for (id, session, _) in &sessions {
        let calls = world
            .store
            .read(|view| {
                let row = view.session(*session)?.unwrap();
                view.totals(row.n)
            })
            .unwrap()
            .calls;
        let counted: Spent =
            [calls.api_calls, calls.input, calls.cache_write, calls.cache_read, calls.output];
        let Recording { agent, name, truth, .. } = recording;
        assert_eq!(counted, truth.get(*id).copied().unwrap_or_default(), "{agent} {name}, {id}, seed {seed}");
    }
    if recording.agent == "claude" {
        scan(recording, root.path(), &mut world);
    }
    world.check();
}

/// Whoever reads all files afterwards finds the same: without the store the same numbers, beside it nothing more.
fn scan(recording: &Recording, root: &Path, world: &mut World) {
    let spent = |store: Option<&View<'_>>| -> BTreeMap<String, Spent> {
        let memory = tempfile::tempdir().unwrap();
        let scanner = Scanner {
            folder: memory.path().to_owned(),
            agents: &[&Claude],
            var: &|name| (name == "CLAUDE_CONFIG_DIR").then(|| root.into()),
            days: Days::of(TimeZone::UTC),
            prices: &pricing::PriceList::default(),
            watch: None,
        };
        let found = scanner.scan(store, Span::default()).unwrap().spending();
        let rows = tally(&[found], &UsageQuery::by(By::Session)).rows.into_iter();
        let numbers = |row: &UsageRow| {
            [row.sums.api_calls, row.sums.input, row.sums.cache_write, row.sums.cache_read, row.sums.output]
        };
        rows.map(|row| (row.key.clone().unwrap_or_default(), numbers(&row))).collect()
    };
    let truth = recording.truth.iter().filter(|(_, spent)| spent[0] > 0);
    let expected: BTreeMap<_, _> = truth.map(|(id, spent)| (id.0.clone(), *spent)).collect();
    assert_eq!(spent(None), expected, "{}", recording.name);
    let foreign = world.store.read(|view| Ok::<_, store::Error>(spent(Some(view))));
    assert_eq!(foreign.unwrap(), BTreeMap::new(), "{}", recording.name);
}

#[test]
fn every_recording_is_counted_exactly_whatever_happens() {
    for recording in claude().iter().chain(&codex()).chain(&gemini()) {
        for seed in 1..=5 {
            play(recording, seed * 0x9e37_79b9);
        }
    }
}
