//! Every recorded screen of every agent is read as the state that it was recorded in.
//! `tests/fixtures/screens/README.md` describes a recording.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Sources, decide};
use agents::live::{Published, PublishedStatus, ScreenReading, Shown, TurnKind, TurnMark};
use agents::registry;
use pty::screen::{CellRange, ScreenView};
use types::{Activity, Timestamp};

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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/screens");
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

/// What is asked and can be chosen, from the beginning of each label on.
const DIALOGS: &[(&str, &str, &[&str])] = &[
    ("claude/needs-input-bash-2.0.74", "touch made.txt", &["Yes", "Yes, and don't ask", "Type here"]),
    (
        "claude/needs-input-bash-2.1.325",
        "touch made.txt",
        &["Yes", "Yes, and always", "Yes, and switch", "No"],
    ),
    ("claude/needs-input-edit-2.1.325", "2 -two\n2 +2", &["Yes", "Yes, and switch", "No"]),
    ("claude/needs-input-fetch-2.1.197", "docs.example.com", &["Yes", "Yes, and don't", "No, and tell"]),
    (
        "claude/needs-input-plan-2.1.197",
        "1. Do this.\n2. Do that.",
        &["Yes, and use", "Yes, manually", "Tell Claude"],
    ),
    (
        "claude/needs-input-plan-2.1.325",
        "1. Do this.\n2. Do that.",
        &["Yes, and use", "Yes, manually", "Tell Claude"],
    ),
    ("claude/needs-input-leave-plan-mode-2.1.325", "Exit plan mode?", &["Yes, and switch", "No"]),
    (
        "claude/needs-input-question-2.1.325",
        "Which colour is it to be?",
        &["Red a warm one", "Blue a cold one", "Type something.", "Chat about this"],
    ),
    ("claude/dialog-trust-2.1.197", "Is this a project you created", &["Yes, I trust", "No, exit"]),
    ("claude/dialog-trust-2.1.325", "Is this a project you created", &["No, exit", "Yes, I trust"]),
    ("claude/dialog-api-key-2.1.325", "Do you want to use this API key?", &["Yes", "No (recommended)"]),
    ("claude/dialog-resume-2.1.325", "Resume session", &[]),
    (
        "codex/needs-input-command-0.166.0-50x18",
        "$ touch made.txt",
        &["Yes, proceed (y)", "Yes, and don't ask again for commands that start with `touch", "No, and tell"],
    ),
    (
        "codex/needs-input-command-0.60.1",
        "$ touch made.txt",
        &["Yes, proceed", "Yes, and don't", "No, and tell"],
    ),
    ("codex/needs-input-edit-0.166.0", "/etc/notes.txt", &["Yes, proceed", "Yes, and don't", "No, and tell"]),
    ("codex/needs-input-plan-0.166.0", "Implement this plan?", &["Yes, implement", "Yes, clear", "No, stay"]),
    ("codex/needs-input-question-0.166.0", "Which database", &["SQLite", "PostgreSQL", "None of the above"]),
    ("codex/dialog-trust-0.166.0", "Trust this folder?", &["Trust and continue", "Quit"]),
    (
        "codex/dialog-login-0.166.0",
        "Choose how",
        &["Sign in with ChatGPT", "Sign in with D", "Use an", "Use Amazon"],
    ),
    (
        "gemini/needs-input-command-0.61.0-50x20",
        "touch made.txt\nAllow execution of [Shell]?",
        &["Allow once", "Allow for this session", "No, suggest changes (esc)"],
    ),
    ("gemini/needs-input-edit-0.40.1", "1 one", &["Allow once", "Allow for", "Modify", "No, suggest"]),
    ("gemini/needs-input-plan-0.61.0", "1. Do it", &["Yes, automatically", "Yes, manually", "Type your"]),
    (
        "gemini/needs-input-question-0.61.0",
        "Which database",
        &["SQLite A file.", "PostgreSQL", "Enter a custom"],
    ),
    ("gemini/dialog-trust-0.61.0", "Do you trust", &["Trust folder", "Trust parent", "Don't trust"]),
];

#[test]
fn dialogs_are_read_with_what_is_asked_and_their_choices() {
    let corpus = corpus();
    for (name, asks, choices) in DIALOGS {
        let ends = format!("{name}.txt");
        let recorded = corpus.iter().find(|recorded| recorded.path.ends_with(&ends)).unwrap();
        let dialog = recorded.reading().dialog.unwrap_or_else(|| panic!("{}", recorded.drawn()));
        assert!(dialog.text.contains(asks), "{name}: {dialog:#?}");
        assert_eq!(dialog.choices.len(), choices.len(), "{name}: {dialog:#?}");
        for ((choice, expected), number) in dialog.choices.iter().zip(*choices).zip(1..) {
            assert!(choice.number == number && choice.label.starts_with(expected), "{name}: {dialog:#?}");
        }
    }
}

#[test]
fn every_question_of_a_turn_can_be_answered_and_only_questions_can() {
    for recorded in corpus() {
        let dialog = recorded.reading().dialog;
        let what = recorded.drawn();
        match recorded.state {
            Activity::NeedsInput => {
                let dialog = dialog.unwrap_or_else(|| panic!("{what}"));
                assert!(dialog.choices.len() >= 2 && dialog.marked.is_some(), "{dialog:?}\n{what}");
            }
            Activity::Dialog => {}
            _ => assert_eq!(dialog, None, "{what}"),
        }
    }
}

/// What moves around a dialog while it stands there: time and signs of work above it, the title, the mark.
#[test]
fn what_goes_on_around_a_question_does_not_change_its_hash() {
    for recorded in corpus().into_iter().filter(|recorded| recorded.state == Activity::NeedsInput) {
        let hash = |view: &ScreenView| {
            let reading = registry::by_name(&recorded.agent).unwrap().read_screen(view);
            reading.dialog.unwrap_or_else(|| panic!("{}", recorded.drawn())).hash("")
        };
        let was = hash(&recorded.view);
        let mut later = recorded.view.clone();
        later
            .rows
            .splice(0..0, ["✻ Pondering… (12s · ↓ 20 tokens)".to_owned(), String::new(), String::new()]);
        later.cursor.0 += 3;
        later.title = "⠹ something else".to_owned();
        assert_eq!(hash(&later), was, "{}", recorded.drawn());
        let mut blank = recorded.view.clone();
        blank.rows.extend([String::new(), String::new()]);
        assert_eq!(hash(&blank), was, "{}", recorded.drawn());
        let last_choice = recorded.view.rows.iter().rposition(|row| row.contains(". ")).unwrap();
        let mut other = recorded.view.clone();
        other.rows[last_choice] = other.rows[last_choice].replacen(". ", ". Not ", 1);
        assert_ne!(hash(&other), was, "{}", recorded.drawn());
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
