//! The recordings: reading, comparing, and writing them anew when that is asked for.

use std::fs;
use std::path::PathBuf;

/// How much of a long line is shown on either side of the first difference.
const AROUND: usize = 120;

pub(super) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// Whether this run writes the recordings instead of comparing with them.
pub(super) fn is_recording() -> bool {
    std::env::var("CODEMIE_TEST_RECORD").is_ok_and(|value| value == "1")
}

pub(super) fn read(name: &str) -> String {
    let path = path(&format!("events/{name}"));
    fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; CODEMIE_TEST_RECORD=1 writes the recordings", path.display())
    })
}

/// Collects the differences of a test, so that one run shows all files that have one.
#[derive(Default)]
pub(super) struct Comparison {
    differences: Vec<String>,
}

impl Comparison {
    pub(super) fn add(&mut self, name: &str, actual: &str) {
        if is_recording() {
            fs::write(path(&format!("events/{name}")), actual).unwrap();
            return;
        }
        self.differences.extend(first_difference(name, &read(name), actual));
    }

    pub(super) fn finish(self) {
        assert!(
            self.differences.is_empty(),
            "{}\nIf the change is meant, CODEMIE_TEST_RECORD=1 writes the recordings anew.",
            self.differences.join("\n")
        );
    }
}

/// The first line that differs, with the lines before it; of long lines the part around the first differing byte.
fn first_difference(name: &str, expected: &str, actual: &str) -> Option<String> {
    if expected == actual {
        return None;
    }
    let (old, new): (Vec<&str>, Vec<&str>) = (expected.split('\n').collect(), actual.split('\n').collect());
    let at = (0..old.len().max(new.len())).find(|at| old.get(*at) != new.get(*at)).unwrap_or_default();
    let (before, after) = (old.get(at), new.get(at));
    let same = |(a, b): (&&str, &&str)| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let column = before.zip(after).map_or(0, same);
    let context: Vec<String> =
        old[at.saturating_sub(2)..at].iter().map(|line| format!("  {}", part(line, column))).collect();
    let shown = |line: Option<&&str>| line.map_or("(end of file)".to_owned(), |line| part(line, column));
    Some(format!(
        "tests/fixtures/events/{name} differs first in line {}, byte {}:\n{}\n- {}\n+ {}\n",
        at + 1,
        column + 1,
        context.join("\n"),
        shown(before),
        shown(after)
    ))
}

fn part(line: &str, column: usize) -> String {
    let from = line.floor_char_boundary(column.saturating_sub(AROUND).min(line.len()));
    let to = line.floor_char_boundary((column + AROUND).min(line.len()));
    let (begin, end) = (if from > 0 { "…" } else { "" }, if to < line.len() { "…" } else { "" });
    format!("{begin}{}{end}", &line[from..to])
}

#[test]
fn difference_names_line_and_byte_and_shows_both_sides() {
    assert_eq!(first_difference("x", "a\nb\n", "a\nb\n"), None);
    let shown = first_difference("x", "a\nb\nc1\n", "a\nb\nc2\n").unwrap();
    assert!(shown.contains("line 3, byte 2:\n  a\n  b\n- c1\n+ c2"), "{shown}");
    let shorter = first_difference("x", "a\nb", "a").unwrap();
    assert!(shorter.contains("- b\n+ (end of file)"), "{shorter}");
    let long = first_difference("x", &"é".repeat(900), &format!("{}x", "é".repeat(800))).unwrap();
    assert!(long.contains("…") && long.len() < 2000, "{long}");
}
