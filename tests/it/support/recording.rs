//! A screen as an agent drew it, and the form in which `tests/fixtures/screens` keeps it (described there).

use std::fmt::Write;
use std::fs;
use std::num::NonZeroU16;
use std::path::Path;

use pty::screen::{CellRange, ScreenView};

/// The screen that these bytes draw on an empty terminal.
pub(crate) fn drawn(bytes: &[u8], rows: u16, cols: u16) -> ScreenView {
    #[derive(Default)]
    struct Reported {
        title: String,
        state: Option<String>,
    }
    impl vt100::Callbacks for Reported {
        fn set_window_title(&mut self, _: &mut vt100::Screen, title: &[u8]) {
            self.title = String::from_utf8_lossy(title).into_owned();
        }

        fn unhandled_osc(&mut self, _: &mut vt100::Screen, params: &[&[u8]]) {
            if let [b"7501", rest @ ..] = params {
                self.state = Some(String::from_utf8_lossy(&rest.join(&b';')).into_owned());
            }
        }
    }
    let size = |n| NonZeroU16::new(n).unwrap();
    let mut parser = vt100::Parser::new_with_callbacks(size(rows), size(cols), 0, Reported::default());
    parser.process(bytes);
    let screen = parser.screen();
    ScreenView {
        rows: screen.rows(0, cols).map(|row| row.trim_end().to_owned()).collect(),
        cursor: screen.cursor_position(),
        cursor_visible: !screen.hide_cursor(),
        title: parser.callbacks().title.clone(),
        reported_state: parser.callbacks().state.clone(),
        bracketed_paste: screen.bracketed_paste(),
        alternate_screen: screen.alternate_screen(),
        faint: cells(screen, rows, cols, vt100::Cell::dim),
        inverse: cells(screen, rows, cols, vt100::Cell::inverse),
    }
}

fn cells(screen: &vt100::Screen, rows: u16, cols: u16, wanted: fn(&vt100::Cell) -> bool) -> Vec<CellRange> {
    let mut found: Vec<CellRange> = Vec::new();
    for row in 0..rows {
        for col in 0..cols {
            let drawn = |cell: &vt100::Cell| cell.has_contents() || cell.is_wide_continuation();
            if !screen.cell(row, col).is_some_and(|cell| wanted(cell) && drawn(cell)) {
                continue;
            }
            match found.last_mut() {
                Some(last) if last.row == row && last.to == col => last.to = col + 1,
                _ => found.push(CellRange { row, from: col, to: col + 1 }),
            }
        }
    }
    found
}

/// What is known of a screen besides.
#[derive(Debug, Default)]
pub(crate) struct Recording<'a> {
    /// `claude 2.1.197`.
    pub(crate) agent: &'a str,
    pub(crate) state: &'a str,
    /// `None`: there is no place to type in.
    pub(crate) composer: Option<&'a str>,
    pub(crate) registry: Option<&'a str>,
    pub(crate) why: Option<&'a str>,
    /// The last lines of the conversation's file.
    pub(crate) lines: &'a [u8],
    /// The home folder of the test; `/home/dev` in the recording.
    pub(crate) home: &'a str,
}

impl Recording<'_> {
    /// Writes it to `path`, without what names this machine.
    pub(crate) fn write(&self, view: &ScreenView, path: &Path) {
        let neutral = |text: &str| text.replace(self.home, "/home/dev");
        let or_dash = |text: Option<&str>| text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned();
        let composer = self.composer.map(|text| serde_json::to_string(text).unwrap());
        let hidden = if view.cursor_visible { "" } else { " hidden" };
        let mut text = format!(
            "agent: {}\nstate: {}\ncursor: {} {}{hidden}\ntitle: {}\nosc7501: {}\ncomposer: {}\n",
            self.agent,
            self.state,
            view.cursor.0,
            view.cursor.1,
            or_dash(Some(&neutral(&view.title))),
            or_dash(view.reported_state.as_deref()),
            composer.as_deref().unwrap_or("-"),
        );
        for (name, ranges) in [("faint", &view.faint), ("inverse", &view.inverse)] {
            let ranges = ranges.iter().map(|cells| format!(" {}:{}-{}", cells.row, cells.from, cells.to));
            let ranges: String = ranges.collect();
            if !ranges.is_empty() {
                writeln!(text, "{name}:{ranges}").unwrap();
            }
        }
        for (name, value) in [("registry", self.registry), ("why", self.why)] {
            if let Some(value) = value {
                writeln!(text, "{name}: {value}").unwrap();
            }
        }
        text += "---\n";
        for row in &view.rows {
            text += &(neutral(row) + "\n");
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.trim_end().to_owned() + "\n").unwrap();
        let lines = path.with_extension("jsonl");
        if self.lines.is_empty() {
            let _ = fs::remove_file(lines);
        } else {
            fs::write(lines, neutral(&String::from_utf8_lossy(self.lines))).unwrap();
        }
    }
}

#[test]
fn a_screen_is_drawn_with_its_title_and_its_faint_cells() {
    let bytes = b"\x1b]0;a title\x07\x1b]7501;state=idle\x07\x1b[?25l> \x1b[7mT\x1b[27m\x1b[2mry this\x1b[22m  x\r\nb";
    let view = drawn(bytes, 3, 20);
    assert_eq!(view.rows, ["> Try this  x", "b", ""]);
    assert_eq!((view.cursor, view.cursor_visible), ((1, 1), false));
    assert_eq!((view.title.as_str(), view.reported_state.as_deref()), ("a title", Some("state=idle")));
    assert_eq!(view.faint, [CellRange { row: 0, from: 3, to: 10 }]);
    assert_eq!(view.inverse, [CellRange { row: 0, from: 2, to: 3 }]);
}
