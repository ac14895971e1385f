//! Whether the model is at work in a thread, by the lines at which a turn begins and ends.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::shape::peek;
use os::file::open_regular;

/// What is read at once.
const CHUNK: usize = 64 * 1024;

/// As much of a line as is looked at: its own type, the event's, the item's.
const HEAD: usize = 512;

const BEGINS: [&[u8]; 2] = [b"\"task_started\"", b"\"EnteredReviewMode\""];
const ENDS: [&[u8]; 2] = [b"\"task_complete\"", b"\"turn_aborted\""];

/// One rollout, followed as it grows.
#[derive(Debug, Default)]
pub(super) struct Turn {
    read: u64,
    /// The beginning of a line that is not whole yet.
    line: Vec<u8>,
    open: bool,
}

impl Turn {
    /// Turns in earlier lines are over even without an end: their process was killed.
    pub(super) fn from_here_on(path: &Path) -> Self {
        Self { read: path.metadata().map_or(0, |meta| meta.len()), ..Self::default() }
    }

    /// Reads on and returns whether a turn is open now.
    pub(super) fn follow(&mut self, path: &Path) -> bool {
        if path.metadata().is_ok_and(|meta| meta.len() > self.read)
            && let Ok(file) = open_regular(path)
        {
            let mut chunk = vec![0; CHUNK];
            while let Ok(got @ 1..) = file.read_at(&mut chunk, self.read) {
                self.read += got as u64;
                self.take(&chunk[..got]);
            }
        }
        self.open
    }

    fn take(&mut self, bytes: &[u8]) {
        let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = lines.next() {
            let room = HEAD - self.line.len();
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if lines.peek().is_some() {
                self.judge();
                self.line.clear();
            }
        }
    }

    fn judge(&mut self) {
        if peek(&self.line) != Some(b"event_msg") {
            return;
        }
        let has_type =
            |words: [&[u8]; 2]| words.iter().any(|word| memchr::memmem::find(&self.line, word).is_some());
        if has_type(ENDS) {
            self.open = false;
        } else if has_type(BEGINS) {
            self.open = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str) -> String {
        format!(
            "{{\"timestamp\":\"T\",\"ordinal\":1,\"type\":\"event_msg\",\"payload\":{{\"type\":\"{kind}\"}}}}\n"
        )
    }

    #[test]
    fn a_turn_is_open_from_its_first_line_to_its_last() {
        let long = format!("{{\"type\":\"response_item\",\"payload\":\"{}\"}}\n", "x".repeat(CHUNK));
        let quoted = "{\"type\":\"event_msg\",\"payload\":{\"type\":\"item_completed\",\"text\":\"\\\"task_complete\\\"\"}}\n";
        let review = "{\"type\":\"event_msg\",\"payload\":{\"type\":\"item_completed\",\"item\":{\"type\":\"EnteredReviewMode\"}}}\n";
        for (lines, open) in [
            (vec![event("task_started")], true),
            (vec![event("task_started"), long.clone()], true),
            (vec![event("task_started"), quoted.to_owned()], true),
            (vec![event("task_started"), long, event("task_complete")], false),
            (vec![event("task_started"), event("turn_aborted")], false),
            (vec![review.to_owned()], true),
            (vec![event("token_count")], false),
            (
                vec!["{\"type\":\"response_item\",\"payload\":{\"type\":\"task_started\"}}\n".to_owned()],
                false,
            ),
        ] {
            let text = lines.concat();
            for piece in [1, 7, 4096, usize::MAX] {
                let mut turn = Turn::default();
                text.as_bytes().chunks(piece).for_each(|bytes| turn.take(bytes));
                assert_eq!(turn.open, open, "{text:.200} by {piece}");
            }
        }
    }

    #[test]
    fn a_turn_that_a_killed_run_left_open_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rollout");
        let mut turn = Turn::default();
        assert!(!turn.follow(&path));
        std::fs::write(&path, event("task_started")).unwrap();
        assert!(turn.follow(&path) && turn.follow(&path));
        let mut later = Turn::from_here_on(&path);
        assert!(!later.follow(&path));
        let torn = event("task_complete");
        std::fs::write(&path, event("task_started") + &torn[..30]).unwrap();
        assert!(turn.follow(&path));
        std::fs::write(&path, event("task_started") + &torn).unwrap();
        assert!(!turn.follow(&path) && !later.follow(&path));
    }
}
