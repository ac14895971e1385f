//! A key frame gives a fresh screen the same view, whatever was written; and no input does harm.

use std::fmt::Write;

use super::*;

fn size(rows: u16, cols: u16) -> PtySize {
    PtySize { rows, cols, ..PtySize::default() }
}

fn screen(rows: u16, cols: u16, output: &[u8]) -> Screen {
    let mut screen = Screen::new(size(rows, cols), 100);
    screen.feed(output);
    screen
}

/// A fresh screen that was sent the key frame.
fn replica(original: &Screen) -> Screen {
    let (rows, cols) = original.parser.screen().size();
    screen(rows.get(), cols.get(), &original.key_frame())
}

/// All lines there are, history first.
fn all_lines(screen: &Screen) -> String {
    let mut parser = vt100::Parser::new(NonZeroU16::MIN, NonZeroU16::MIN, 0);
    *parser.screen_mut() = screen.parser.screen().clone();
    let mut text = String::new();
    let mut state = vt100::capture::BasicFormattedCaptureState::new();
    let range = vt100::capture::BasicFormattedCaptureRange::Full(&mut state);
    parser.screen().write_contents_formatted_basic(&mut text, range).unwrap();
    text
}

fn cell_styles(screen: &Screen) -> Vec<String> {
    let screen = screen.parser.screen();
    let (rows, cols) = screen.size();
    (0..rows.get())
        .flat_map(|row| (0..cols.get()).map(move |col| (row, col)))
        .filter_map(|(row, col)| screen.cell(row, col))
        .filter(|cell| !cell.contents().replace('\u{fe0f}', "").trim().is_empty())
        .map(|cell| {
            format!(
                "{}{:?}{:?}{}{}",
                cell.contents().replace('\u{fe0f}', ""),
                cell.fgcolor(),
                cell.bgcolor(),
                cell.bold(),
                cell.inverse()
            )
        })
        .collect()
}

#[test]
fn view_shows_rows_cursor_title_and_modes() {
    let screen = screen(
        3,
        20,
        b"\x1b]0;a; title\x07\x1b]7501;state=idle:app=codex\x1b\\\x1b[?2004h\x1b[?25lone   \r\n\x1b[31mtwo\x1b[2;2H",
    );
    assert_eq!(
        screen.view(),
        ScreenView {
            rows: vec!["one".into(), "two".into(), String::new()],
            cursor: (1, 1),
            cursor_visible: false,
            title: "a; title".into(),
            reported_state: Some("state=idle:app=codex".into()),
            bracketed_paste: true,
            alternate_screen: false,
            ..ScreenView::default()
        }
    );
}

#[test]
fn key_frame_keeps_history_with_its_colours() {
    let mut output = Vec::new();
    for line in 0..30 {
        output.extend_from_slice(format!("\x1b[3{}mline {line}\x1b[0m plain\r\n", line % 8).as_bytes());
    }
    let original = screen(5, 40, &output);
    let copy = replica(&original);
    assert_eq!(copy.view(), original.view());
    assert_eq!(all_lines(&copy), all_lines(&original));
    assert!(
        all_lines(&copy).starts_with("\x1b[30mline 0\x1b[m plain\n\x1b[31mline 1"),
        "{:?}",
        all_lines(&copy)
    );
}

#[test]
fn short_history_and_wrapped_lines_survive() {
    for (rows, cols, output) in [
        (5, 10, &b"1\r\n2\r\n3\r\n4\r\n5\r\n6"[..]),
        (2, 10, b"1\r\n2\r\n3"),
        (1, 10, b"1\r\n2\r\n3"),
        (3, 4, b"abcdefghijklmnopqrstuvwxyz"),
        (3, 5, "中中中中中中中中中中中中中".as_bytes()),
        (3, 4, b"abcd    efgh\r\n1\r\n2\r\n3\r\n4"),
    ] {
        let original = screen(rows, cols, output);
        let copy = replica(&original);
        assert_eq!(copy.view(), original.view());
        // Rows of the screen are drawn one by one, so that they keep their places on a terminal of another width.
        let text = |screen: &Screen| all_lines(screen).replace('\n', "");
        assert_eq!(text(&copy), text(&original), "{}", String::from_utf8_lossy(output));
        let lines = |screen: &Screen| screen.parser.screen().scrollback_len();
        assert_eq!(lines(&copy), lines(&original), "{}", String::from_utf8_lossy(output));
    }
}

#[test]
fn key_frame_sets_every_mode() {
    let modes = "\x1b[?1h\x1b=\x1b[?1002h\x1b[?1006h\x1b[?1004h\x1b[?2004h\x1b[?2031h\x1b[>1u\x1b[>7u\x1b[>4;2m\x1b[?25l\x1b[6 q\x1b[?2026h";
    let original = screen(4, 10, modes.as_bytes());
    let copy = replica(&original);
    assert_eq!(copy.modes.set(), original.modes.set());
    assert_eq!(copy.modes.set_main_keyboard(), original.modes.set_main_keyboard());
    assert_eq!(copy.modes.undo(), original.modes.undo());
    assert_eq!(copy.parser.screen().input_mode_formatted(), original.parser.screen().input_mode_formatted());
}

#[test]
fn command_marks_are_not_repeated() {
    let original = screen(4, 10, b"\x1b]133;A\x07$ \x1b]133;B\x07");
    assert_eq!(replica(&original).modes.undo(), b"");
}

#[test]
fn main_screen_stands_behind_the_alternate_one() {
    let output = "1\r\n2\r\n3\r\n4 \x1b[32mmain\x1b[0m\x1b[2;3H\x1b[>1u\x1b[?1049h\x1b[>5u\x1b[2J\x1b[1;1Halternate\x1b[3;4H";
    let original = screen(3, 20, output.as_bytes());
    let mut copy = replica(&original);
    assert_eq!(copy.view(), original.view());
    assert!(copy.view().alternate_screen);
    assert_eq!(copy.modes.undo(), original.modes.undo());
    let mut original = original;
    for screen in [&mut original, &mut copy] {
        screen.feed(b"\x1b[?1049l");
    }
    assert_eq!(copy.view(), original.view());
    assert_eq!(copy.view().rows, ["2", "3", "4 main"]);
    assert_eq!(copy.view().cursor, (1, 2));
    assert_eq!(all_lines(&copy), all_lines(&original));
}

#[test]
fn output_goes_on_after_a_key_frame_as_without_it() {
    for (before, after) in [
        ("abc\x1b[3", "1mred"),
        ("abc\x1b]0;ti", "tle\x07x"),
        ("abc\x1b", "[1mx"),
        ("abc\x1b[2\n", "Cx"),
        ("0123456789", "x"),
        ("12345678\u{4e2d}", "x"),
        ("\x1b[41m0123456789\x1b[K", "x"),
        ("\x1b[31mred", " and more"),
        ("\x1b[2;4r\x1b[4;1Ha", "\nb\nc\nd"),
        ("\x1b[2;4r\x1b[?6h", "\x1b[Ha\x1b[9;1Hb"),
        ("ab\x1b[33m\x1b7\x1b[0mcd", "\x1b8x"),
        ("\x1b[?47halt\x1b7", "\x1b[?47lmain"),
    ] {
        let mut original = screen(5, 10, before.as_bytes());
        let mut copy = replica(&original);
        assert_eq!(copy.view(), original.view(), "{before:?}");
        for screen in [&mut original, &mut copy] {
            screen.feed(after.as_bytes());
        }
        assert_eq!(copy.view(), original.view(), "{before:?} {after:?}");
        assert_eq!(cell_styles(&copy), cell_styles(&original), "{before:?} {after:?}");
    }
    for split in 1..3 {
        let mut original = screen(5, 10, &"é中".as_bytes()[..2 + split]);
        let mut copy = replica(&original);
        for screen in [&mut original, &mut copy] {
            screen.feed(&"é中".as_bytes()[2 + split..]);
        }
        assert_eq!(copy.view().rows[0], "é中");
    }
}

#[test]
fn memory_and_key_frames_are_bounded() {
    let mut screen = Screen::new(size(u16::MAX, u16::MAX), usize::MAX);
    assert_eq!(screen.view().rows.len(), usize::from(MOST_ROWS));
    screen.feed(b"\x1b]0;");
    for _ in 0..1024 {
        screen.feed(&[b'x'; 1024]);
    }
    assert!(screen.unfinished.len() <= LONGEST_UNFINISHED);
    assert!(screen.key_frame().len() < 2 * LONGEST_UNFINISHED);
    screen.feed(b"\x07");
    assert_eq!(screen.view().title.len(), LONGEST_TEXT);
    // Every cell in a colour of its own, with as many accents as fit.
    let mut cell = 0_u32;
    for _ in 0..2 * u32::from(MOST_ROWS) * u32::from(MOST_COLS) / 100 {
        let mut piece = String::new();
        for _ in 0..100 {
            cell = cell.wrapping_add(7919);
            let [red, green, blue, _] = cell.to_le_bytes();
            let style = format!("1;3;4;38;2;{red};{green};{blue};48;2;{blue};{red};{green}");
            write!(piece, "\x1b[{style}m😀\u{301}\u{301}\u{301}").unwrap();
        }
        screen.feed(piece.as_bytes());
    }
    let frame = screen.key_frame();
    assert!(frame.len() <= KEY_FRAME_LIMIT, "{}", frame.len());
    assert!(frame.len() > 500_000, "{}", frame.len());
    screen.resize(size(0, 0));
    assert_eq!(screen.view().rows.len(), 1);
    assert!(screen.key_frame().len() < KEY_FRAME_LIMIT);
}

#[test]
fn a_repeated_character_fills_a_row_at_most() {
    let mut screen = screen(3, 4, b"");
    for piece in [&b"a\x1b[655"[..], b"35bz\x1b[2b"] {
        screen.feed(piece);
    }
    assert_eq!(screen.view().rows, ["aaaa", "azzz", ""]);
}

/// Small and deterministic (xorshift), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    fn size(&mut self) -> PtySize {
        let side = |random: &mut Self| match random.below(12) {
            0 => 0,
            1 => u16::MAX,
            2 => 1,
            3 => 2,
            _ => u16::try_from(2 + random.below(14)).unwrap(),
        };
        let (rows, cols) = (side(self), side(self));
        // Large in one direction only, so that the test stays quick.
        size(if cols == u16::MAX { rows.min(4) } else { rows.min(64) }, cols.min(300))
    }
}

/// Pieces of output: text of all widths, the sequences that agents use, and those that have caused trouble in terminals.
const PIECES: &[&str] = &[
    "a",
    "text ",
    "é",
    "中",
    "中文",
    "☺\u{fe0f}",
    "☺",
    "\u{fe0f}",
    "\u{301}",
    "👨\u{200d}👩",
    "🇩🇪",
    "\u{17d8}",
    "\u{200d}",
    "\r\n",
    "\n",
    "\r",
    "\t",
    "\x08",
    "\x07",
    "\x1bM",
    "\x1b7",
    "\x1b8",
    "\x1b=",
    "\x1b>",
    "\x1bD",
    "\x1b[A",
    "\x1b[2B",
    "\x1b[C",
    "\x1b[99C",
    "\x1b[D",
    "\x1b[H",
    "\x1b[3;5H",
    "\x1b[99;99H",
    "\x1b[4G",
    "\x1b[2d",
    "\x1b[J",
    "\x1b[1J",
    "\x1b[2J",
    "\x1b[3J",
    "\x1b[K",
    "\x1b[1K",
    "\x1b[2K",
    "\x1b[L",
    "\x1b[9M",
    "\x1b[P",
    "\x1b[3@",
    "\x1b[2X",
    "\x1b[S",
    "\x1b[2T",
    "\x1b[3b",
    "\x1b[r",
    "\x1b[2;4r",
    "\x1b[1;3r",
    "\x1b[?6h",
    "\x1b[?6l",
    "\x1b[m",
    "\x1b[1;31m",
    "\x1b[7m",
    "\x1b[48;5;200m",
    "\x1b[38;2;1;2;3m",
    "\x1b[4m",
    "\x1b[0;2m",
    "\x1b[?1049h",
    "\x1b[?1049l",
    "\x1b[?47h",
    "\x1b[?47l",
    "\x1b[?1047h",
    "\x1b[?1047l",
    "\x1b[?25l",
    "\x1b[?25h",
    "\x1b[?2004h",
    "\x1b[?2004l",
    "\x1b[?1000;1006h",
    "\x1b[?1003l",
    "\x1b[?2026h",
    "\x1b[?2026l",
    "\x1b[?1004h",
    "\x1b[>1u",
    "\x1b[<u",
    "\x1b[=5;2u",
    "\x1b[>4;2m",
    "\x1b[>4m",
    "\x1b[5 q",
    "\x1b[!p",
    "\x1b[?7l",
    "\x1b]0;title\x07",
    "\x1b]2;a;b\x1b\\",
    "\x1b]7501;state=idle\x1b\\",
    "\x1b]133;A\x07",
    "\x1b]133;D\x07",
    "\x1b]8;;http://x\x1b\\",
    "\x1bPq#0\x1b\\",
    "\x1b_G\x1b\\",
    "\x1b(0",
    "\x1b(B",
    "\x1bc",
    "\x1b[8;5;5t",
    "\x18",
    "\x1b",
    "\x1b[",
    "\x1b[?",
    "\x1b]0;",
    "\u{ad}",
    "\u{0}",
];

/// A selector that made nothing wide is lost on a character in the last column.
fn visible(screen: &Screen) -> ScreenView {
    let mut view = screen.view();
    view.rows.iter_mut().for_each(|row| *row = row.replace('\u{fe0f}', "").trim_end().to_owned());
    view
}

fn check(original: &Screen, what: &dyn Fn() -> String) {
    let frame = original.key_frame();
    assert!(frame.len() <= KEY_FRAME_LIMIT);
    let (rows, cols) = original.parser.screen().size();
    let mut copy = Screen::new(size(rows.get(), cols.get()), 100);
    copy.feed(&frame);
    assert_eq!(visible(&copy), visible(original), "{} by {:?}", what(), String::from_utf8_lossy(&frame));
    assert_eq!(
        cell_styles(&copy),
        cell_styles(original),
        "{} by {:?}",
        what(),
        String::from_utf8_lossy(&frame)
    );
}

#[test]
fn any_output_of_programs_survives_a_key_frame() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for round in 0..3000 {
        let mut original = Screen::new(random.size(), 20);
        let mut log = format!("round {round} {original:?}");
        for _ in 0..=random.below(60) {
            if random.below(25) == 0 {
                let size = random.size();
                write!(log, " <{}x{}> ", size.rows, size.cols).unwrap();
                original.resize(size);
            }
            let piece = random.one_of(PIECES);
            write!(log, "{piece:?}").unwrap();
            let bytes = piece.as_bytes();
            let (first, second) = bytes.split_at(random.below(bytes.len() + 1));
            original.feed(first);
            original.feed(second);
            if random.below(30) == 0 {
                check(&original, &|| log.clone());
            }
        }
        check(&original, &|| log.clone());
    }
}

#[test]
fn random_bytes_survive_a_key_frame() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..400 {
        let mut original = Screen::new(random.size(), 20);
        let mut log = Vec::new();
        for _ in 0..random.below(40) {
            let bytes: Vec<u8> = (0..random.below(20))
                .map(|_| match random.below(4) {
                    0 => u8::try_from(random.below(256)).unwrap(),
                    1 => *random.one_of(b"\x1b\x1b\x1b[[[]P?;;0123456789"),
                    2 => *random.one_of("中é☺️".as_bytes()),
                    _ => u8::try_from(0x20 + random.below(0x60)).unwrap(),
                })
                .collect();
            log.extend_from_slice(&bytes);
            original.feed(&bytes);
        }
        check(&original, &|| format!("round {round} {original:?} {:?}", String::from_utf8_lossy(&log)));
    }
}

#[test]
fn questions_that_programs_wait_for_are_answered_as_by_a_terminal() {
    let mut screen = Screen::new(size(10, 40), 0);
    for (question, answer) in [
        ("\x1b[c", "\x1b[?62;22c"),
        ("\x1b[0c", "\x1b[?62;22c"),
        ("\x1b[3;7H\x1b[6n", "\x1b[3;7R"),
        ("\x1b[5n", "\x1b[0n"),
        ("\x1b[>c", "\x1b[>1;10;0c"),
        ("\x1b[?u", ""),
        ("\x1b[?6n", ""),
        ("text", ""),
    ] {
        screen.feed(question.as_bytes());
        assert_eq!(String::from_utf8(screen.take_answers()).unwrap(), answer, "{question:?}");
    }
    assert_eq!(screen.take_answers(), b"");
}

#[test]
fn faint_and_inverse_cells_are_named() {
    let mut screen = Screen::new(size(4, 20), 0);
    screen.feed(b"> \x1b[7mT\x1b[0;2mry this\x1b[0m\r\nplain");
    let view = screen.view();
    assert_eq!(view.inverse, [CellRange { row: 0, from: 2, to: 3 }]);
    assert_eq!(view.faint, [CellRange { row: 0, from: 3, to: 10 }]);
}
