//! Every recorded screen of every agent is read as the state that it was recorded in.
//! `tests/fixtures/screens/README.md` describes a recording.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Sources, decide};
use crate::agent::live::{Published, PublishedStatus, ScreenReading, Shown, TurnKind, TurnMark};
use crate::registry;
use terminal::screen::{CellRange, ScreenView};
use wire::{Activity, Timestamp};

/// A recorded screen, and what it must be read as.
struct Recorded {
    path: PathBuf,
    agent: String,
    state: Activity,
    view: ScreenView,
    /// `None`: there is none.
    composer: Option<String>,
    published: Option<Published>,
    why: Option<String>,
    lines: Vec<u8>,
}

fn corpus() -> Vec<Recorded> {
    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, found);
            } else if path.extension().is_some_and(|end| end == "txt") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/screens");
    let mut found = Vec::new();
    files(&root, &mut found);
    found.sort();
    found.into_iter().map(Recorded::read).collect()
}

impl Recorded {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap();
        let lines = fs::read(path.with_extension("jsonl")).unwrap_or_default();
        Self::parse(path, &text, lines)
    }

    fn parse(path: PathBuf, text: &str, lines: Vec<u8>) -> Self {
        let what = path.display().to_string();
        let (head, rows) = text.split_once("\n---\n").unwrap_or_else(|| panic!("{what} has no `---`"));
        let fields =
            head.lines().map(|line| line.split_once(": ").unwrap_or_else(|| panic!("{what}: {line}")));
        let fields: BTreeMap<&str, &str> = fields.map(|(name, value)| (name, value.trim())).collect();
        let needed = |name: &str| *fields.get(name).unwrap_or_else(|| panic!("{what} has no `{name}`"));
        let optional = |name: &str| fields.get(name).copied().filter(|value| *value != "-");
        let numbers: Vec<u16> = needed("cursor").split(' ').filter_map(|word| word.parse().ok()).collect();
        let view = ScreenView {
            rows: rows.lines().map(|row| row.trim_end().to_owned()).collect(),
            cursor: (numbers[0], numbers[1]),
            cursor_visible: !needed("cursor").ends_with("hidden"),
            title: optional("title").unwrap_or_default().to_owned(),
            reported_state: optional("osc7501").map(str::to_owned),
            bracketed_paste: true,
            alternate_screen: false,
            faint: cells(optional("faint").unwrap_or_default()),
            inverse: cells(optional("inverse").unwrap_or_default()),
        };
        let composer = needed("composer");
        Self {
            agent: needed("agent").split(' ').next().unwrap().to_owned(),
            state: Activity::parse(needed("state")).unwrap(),
            composer: (composer != "-").then(|| serde_json::from_str(composer).unwrap()),
            published: optional("registry").map(published),
            why: optional("why").map(str::to_owned),
            view,
            lines,
            path,
        }
    }

    fn reading(&self) -> ScreenReading {
        registry::by_name(&self.agent).unwrap().read_screen(&self.view)
    }

    /// The last mark in the lines beside the screen.
    fn turn(&self) -> Option<TurnMark> {
        let agent = registry::by_name(&self.agent).unwrap();
        self.lines.split(|byte| *byte == b'\n').filter_map(|line| agent.read_turn(line)).last()
    }

    fn drawn(&self) -> String {
        format!("{}\n{}", self.path.display(), self.view.rows.join("\n"))
    }
}

fn cells(text: &str) -> Vec<CellRange> {
    let range = |range: &str| {
        let (row, columns) = range.split_once(':')?;
        let (from, to) = columns.split_once('-')?;
        Some(CellRange { row: row.parse().ok()?, from: from.parse().ok()?, to: to.parse().ok()? })
    };
    text.split_whitespace().map(|text| range(text).unwrap_or_else(|| panic!("{text:?}"))).collect()
}

fn published(text: &str) -> Published {
    let (word, what) = text.split_once(' ').unwrap_or((text, ""));
    let status = match word {
        "idle" => PublishedStatus::Idle,
        "busy" => PublishedStatus::Busy,
        "waiting" => PublishedStatus::Waiting(what.to_owned()),
        "dialog" => PublishedStatus::Dialog(what.to_owned()),
        other => panic!("{other:?} is no status"),
    };
    Published { status, since: Some(Timestamp(1)), conversation: None }
}

fn shown(reading: &ScreenReading) -> Option<Activity> {
    let activity = |shown: &Shown| match shown {
        Shown::Dialog(_) => Activity::Dialog,
        Shown::NeedsInput(_) => Activity::NeedsInput,
        Shown::Working(_) => Activity::Working,
        Shown::Quiet => Activity::Idle,
    };
    reading.shown.as_ref().or(reading.reported.as_ref()).map(activity)
}

fn ended() -> TurnMark {
    TurnMark { at: Some(Timestamp(0)), kind: TurnKind::Ended }
}

#[test]
fn every_recorded_screen_shows_the_state_it_was_recorded_in() {
    for recorded in corpus() {
        let reading = recorded.reading();
        let seen = shown(&reading).unwrap_or(Activity::Unknown);
        assert_eq!(seen, recorded.state, "{reading:?}\n{}", recorded.drawn());
    }
}

#[test]
fn composers_are_read_as_typed() {
    for recorded in corpus() {
        let composer = recorded.reading().composer.map(|composer| composer.text);
        assert_eq!(composer, recorded.composer, "{}", recorded.drawn());
    }
}

#[test]
fn all_sources_together_give_the_recorded_state_and_its_reason() {
    for recorded in corpus() {
        let (reading, ended) = (recorded.reading(), ended());
        let turn = recorded.turn();
        let sources = Sources {
            published: recorded.published.as_ref(),
            screen: Some(&reading),
            // A screen that was recorded without its conversation: one whose last turn is over.
            turn: if recorded.lines.is_empty() { Some(&ended) } else { turn.as_ref() },
            ..Sources::default()
        };
        let state = decide(&sources, Timestamp(2));
        assert_eq!(state.is, recorded.state, "{state:?} {sources:?}\n{}", recorded.drawn());
        if let Some(why) = &recorded.why {
            assert!(state.why.contains(why), "{state:?}\n{}", recorded.drawn());
        }
    }
}

#[test]
fn a_quiet_screen_alone_is_no_proof_of_idleness() {
    for recorded in corpus() {
        let mut reading = recorded.reading();
        reading.reported = None;
        let state = decide(&Sources { screen: Some(&reading), ..Sources::default() }, Timestamp(2));
        assert_ne!(state.is, Activity::Idle, "{}", recorded.drawn());
    }
}

#[test]
fn names_of_recordings_begin_with_their_state() {
    for recorded in corpus() {
        let name = recorded.path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.starts_with(&format!("{}-", recorded.state)), "{name}");
        let folder = recorded.path.parent().unwrap();
        let agents = folder.ancestors().filter_map(|folder| folder.file_name());
        assert!(agents.into_iter().any(|folder| *folder == *recorded.agent), "{name}");
    }
}

#[test]
fn a_recording_is_parsed() {
    let text = "agent: claude 2.1.197\nstate: idle\ncursor: 1 4 hidden\ntitle: -\nosc7501: -\ncomposer: \"a b\"\n\
                faint: 0:1-3 2:0-9\nregistry: waiting permission prompt\n---\nfirst  \n❯ a b\n";
    let recorded = Recorded::parse("x/claude/idle-typed.txt".into(), text, Vec::new());
    assert_eq!(recorded.view.rows, ["first", "❯ a b"]);
    assert_eq!((recorded.view.cursor, recorded.view.cursor_visible), ((1, 4), false));
    assert_eq!(recorded.view.faint[1], CellRange { row: 2, from: 0, to: 9 });
    assert_eq!(recorded.composer.as_deref(), Some("a b"));
    let status = recorded.published.map(|published| published.status);
    assert_eq!(status, Some(PublishedStatus::Waiting("permission prompt".into())));
}
