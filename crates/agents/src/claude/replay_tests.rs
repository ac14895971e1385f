//! The recorded `/clear`s and the `/branch`, replayed in the recorded order of events: with the registry, with one that is
//! stale after its first entry, and without any.

use std::path::Path;

use serde_json::Value;

use super::{FORMAT, evidence};
use crate::correlate::{Beginning, Correlator, Decision, Method, NewSessionFile, SETTLE, Signal};
use types::AgentSessionId;
use types::Timestamp;
use types::{EvidenceKind, TransitionKind};
use types::{Pid, ProcessId, StartTime};

#[derive(Clone, Copy, PartialEq)]
enum Registry {
    Works,
    Stale,
    Missing,
}

struct Recording {
    registry: Vec<(i64, Vec<u8>)>,
    history: Vec<(i64, Vec<u8>)>,
    /// Time, conversation, size.
    files: Vec<(i64, String, usize)>,
    folder: std::path::PathBuf,
}

impl Recording {
    fn of(case: &str, pid: i64) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/claude").join(case);
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let snapshots: Vec<Value> = serde_json::from_str(&text("registry.json")).unwrap();
        let registry =
            snapshots.iter().filter(|snapshot| snapshot["content"]["pid"] == pid).map(|snapshot| {
                let entry = &snapshot["content"];
                (entry["updatedAt"].as_i64().unwrap(), entry.to_string().into_bytes())
            });
        let text_history = text("history.jsonl");
        let history = text_history.lines().map(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            (value["timestamp"].as_i64().unwrap(), line.as_bytes().to_vec())
        });
        let text_files = text("file-events.tsv");
        let files = text_files.lines().map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let (seconds, millis) = columns[0].split_once('.').unwrap();
            let at = seconds.parse::<i64>().unwrap() * 1000 + millis.parse::<i64>().unwrap();
            let id = columns[2].split_once('/').unwrap().1.strip_suffix(".jsonl").unwrap();
            (at, id.to_owned(), columns[3].parse().unwrap())
        });
        Self { registry: registry.collect(), history: history.collect(), files: files.collect(), folder }
    }

    /// How the file of `id` began at that time. (The fixtures are cut only after every beginning.)
    fn beginning(&self, id: &str, now: i64) -> Beginning {
        let size =
            self.files.iter().filter(|(at, of, _)| of == id && *at <= now).map(|(.., size)| *size).max();
        let Some(size) = size else { return Beginning::Absent };
        let bytes =
            std::fs::read(self.folder.join(format!("projects/-home-dev-project/{id}.jsonl"))).unwrap();
        FORMAT.head(&bytes[..size.min(bytes.len())]).beginning
    }

    /// Every decision, with its time.
    fn replay(&self, agent: ProcessId, assigned: &str, mode: Registry) -> Vec<(i64, Decision)> {
        let start = self.registry[0].0 - 1000;
        let mut events = vec![(start, Signal::Assigned(AgentSessionId(assigned.to_owned())))];
        let entries = match mode {
            Registry::Works => &self.registry[..],
            Registry::Stale => &self.registry[..1],
            Registry::Missing => &[],
        };
        for (at, bytes) in entries {
            let entry = FORMAT.entry(bytes).unwrap();
            let file = self.beginning(&entry.session.0, *at);
            events.push((*at, Signal::Registry { entry, file }));
        }
        for (at, line) in &self.history {
            events.push((*at, Signal::History(evidence::history_line(line).unwrap())));
        }
        for (at, id, _) in &self.files {
            let beginning = self.beginning(id, *at);
            let cwd = Some("/home/dev/project".to_owned());
            events.push((
                *at,
                Signal::NewFile(NewSessionFile {
                    id: AgentSessionId(id.clone()),
                    cwd,
                    beginning,
                    maker: None,
                    follows: None,
                }),
            ));
            events.push((*at + i64::try_from(SETTLE.as_millis()).unwrap(), Signal::Tick));
        }
        events.retain(|(at, _)| *at >= start);
        events.sort_by_key(|(at, _)| *at);
        let mut correlator = Correlator::new(Method::Registry, agent, Timestamp(start));
        let mut decisions = Vec::new();
        for (at, signal) in events {
            decisions.extend(
                correlator.feed(Timestamp(at), signal).decisions.into_iter().map(|decision| (at, decision)),
            );
        }
        decisions
    }
}

fn transition(kind: TransitionKind, to: &str, evidence: EvidenceKind) -> Decision {
    Decision::Transition { kind, to: Some(AgentSessionId(to.to_owned())), evidence }
}

const FIRST: &str = "03000000-0000-4000-8000-000000000003";
const CHAIN: [&str; 3] = [
    "4b53ca41-3374-4ace-a8a7-cce49511d241",
    "93979bdb-a691-4733-b68d-056fecc880fb",
    "96909672-6f11-47d5-8ee4-141db9e43317",
];

#[test]
fn three_clears_in_one_process_are_three_transitions() {
    let recording = Recording::of("03-clear", 17558);
    let agent = ProcessId { pid: Pid(17558), start: StartTime(269_779) };
    for (mode, evidence) in [
        (Registry::Works, EvidenceKind::Registry),
        (Registry::Stale, EvidenceKind::Log),
        (Registry::Missing, EvidenceKind::Log),
    ] {
        let decisions = recording.replay(agent, FIRST, mode);
        let expected: Vec<Decision> =
            [Decision::Bind { id: AgentSessionId(FIRST.into()), evidence: EvidenceKind::Assigned }]
                .into_iter()
                .chain(CHAIN.map(|to| transition(TransitionKind::Clear, to, evidence)))
                .collect();
        let made: Vec<Decision> = decisions.iter().map(|(_, decision)| decision.clone()).collect();
        assert_eq!(made, expected);
        if mode == Registry::Works {
            for ((at, _), (written, _)) in decisions[1..].iter().zip(&recording.registry[2..]) {
                assert_eq!(at, written, "decided on the registry entry, before the file was there");
            }
        }
    }
}

#[test]
fn a_branch_is_a_switch() {
    let recording = Recording::of("05-resume-fork-branch-rewind", 18700);
    let agent = ProcessId { pid: Pid(18700), start: StartTime(274_877) };
    let fork = "05000000-0000-4000-8000-00000000f05c";
    let made: Vec<Decision> =
        recording.replay(agent, fork, Registry::Works).into_iter().map(|(_, decision)| decision).collect();
    let branch = "30374d2a-265c-4426-ad8b-cb9209a4e41c";
    assert_eq!(
        made,
        [
            Decision::Bind { id: AgentSessionId(fork.into()), evidence: EvidenceKind::Assigned },
            transition(TransitionKind::Switch, branch, EvidenceKind::Registry),
        ]
    );
}
