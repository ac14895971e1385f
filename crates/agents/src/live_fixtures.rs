//! Recordings of the real agents, for the tests of what reads them: screens (`tests/fixtures/screens/<agent>/<state>-<what>-<version>.txt`),
//! and the turns in the lines of a conversation.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::live::{Live, Shown, TurnKind};
use pty::screen::{CellRange, ScreenView};

/// One screen, and what it shows.
struct Recorded {
    file: PathBuf,
    state: String,
    composer: Option<String>,
    why: Option<String>,
    view: ScreenView,
}

impl Recorded {
    fn read(file: PathBuf) -> Self {
        let text = std::fs::read_to_string(&file).unwrap();
        let (head, rows) = text.split_once("\n---\n").unwrap();
        let optional = |name: &str| {
            let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.filter(|value| *value != "-").map(str::to_owned)
        };
        let cursor = optional("cursor").unwrap();
        let numbers: Vec<u16> = cursor.split(' ').filter_map(|word| word.parse().ok()).collect();
        let view = ScreenView {
            rows: rows.lines().map(str::to_owned).collect(),
            cursor: (numbers[0], numbers[1]),
            cursor_visible: !cursor.ends_with("hidden"),
            title: optional("title").unwrap_or_default(),
            reported_state: optional("osc7501"),
            bracketed_paste: true,
            faint: cells(optional("faint").as_deref()),
            inverse: cells(optional("inverse").as_deref()),
            ..ScreenView::default()
        };
        Self {
            state: optional("state").unwrap(),
            composer: optional("composer").map(|text| serde_json::from_str(&text).unwrap()),
            why: optional("why"),
            view,
            file,
        }
    }
}

/// `row:from-to …`
fn cells(text: Option<&str>) -> Vec<CellRange> {
    let cell = |word: &str| {
        let (row, columns) = word.split_once(':').unwrap();
        let (from, to) = columns.split_once('-').unwrap();
        CellRange { row: row.parse().unwrap(), from: from.parse().unwrap(), to: to.parse().unwrap() }
    };
    text.into_iter().flat_map(str::split_whitespace).map(cell).collect()
}

/// Every recorded screen of the agent is read as what it shows, and so is one whose last rows are blank.
pub(super) fn check(agent: &str, live: &dyn Live) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/screens").join(agent);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut checked = 0;
    for recorded in files.filter(|file| file.extension().is_some_and(|end| end == "txt")).map(Recorded::read)
    {
        let reading = live.read_screen(&recorded.view);
        let what = format!("{}: {reading:?}", recorded.file.display());
        let (state, why) = match reading.shown.as_ref().or(reading.reported.as_ref()) {
            Some(Shown::Dialog(why)) => ("dialog", why.as_str()),
            Some(Shown::NeedsInput(why)) => ("needs-input", why.as_str()),
            Some(Shown::Working(why)) => ("working", why.as_str()),
            Some(Shown::Quiet) => ("idle", "quiet"),
            None => ("unknown", "nothing"),
        };
        assert_eq!(state, recorded.state, "{what}");
        assert!(!why.is_empty() && recorded.why.as_ref().is_none_or(|part| why.contains(part)), "{what}");
        assert_eq!(reading.composer.map(|composer| composer.text), recorded.composer, "{what}");
        let mut longer = recorded.view.clone();
        longer.rows.extend([String::new(), String::new()]);
        assert_eq!(live.read_screen(&longer).shown, live.read_screen(&recorded.view).shown, "{what}");
        checked += 1;
    }
    assert!(checked > 20, "{checked} screens of {agent}");
}

/// Any part of a screen, as a program leaves it in the middle of drawing, is read without a panic.
pub(super) fn check_torn(agent: &str, live: &dyn Live) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/screens").join(agent);
    for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_none_or(|end| end != "txt") {
            continue;
        }
        let whole = Recorded::read(file).view;
        for rows in 0..=whole.rows.len() {
            for cursor in [whole.cursor, (0, 0), (u16::MAX, u16::MAX)] {
                for rows in [&whole.rows[..rows], &whole.rows[rows..]] {
                    live.read_screen(&ScreenView { rows: rows.to_vec(), cursor, ..whole.clone() });
                }
            }
        }
    }
}

/// The marks of a conversation in a row: `>text` for a prompt, `.` for work, `|` for an end.
pub(super) fn marks<'a>(live: &dyn Live, lines: impl Iterator<Item = &'a [u8]>) -> String {
    lines.filter_map(|line| live.read_turn(line)).fold(String::new(), |mut row, mark| {
        assert!(mark.at.is_some());
        match mark.kind {
            TurnKind::Prompt(text) => write!(row, ">{text}").unwrap(),
            TurnKind::Goes | TurnKind::Speaks => row.push('.'),
            TurnKind::Ended => row.push('|'),
        }
        row
    })
}
