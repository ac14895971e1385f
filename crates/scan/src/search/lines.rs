//! The lines of a file that may contain the words, in one pass over its bytes.

use std::fs::File;
use std::io::{self, Read};

use super::sieve::Sieve;
// Longer lines are skipped, as by the meter: no message is that long.
use agents::meter::tail::MAX_LINE;

/// Bytes read at once, as a scan does.
const AT_ONCE: usize = 512 * 1024;

/// What is behind the last newline of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// A line that is still being written.
    Torn,
    Line,
}

/// A buffer, used for one file after the other.
#[derive(Debug)]
pub(super) struct Pass {
    buffer: Vec<u8>,
}

impl Pass {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; AT_ONCE] }
    }

    /// Hands out each whole line that passes all sieves, with its offset, until `each` returns false. `read` learns how many
    /// bytes were read.
    pub(super) fn lines(
        &mut self,
        mut file: &File,
        sieves: &[Sieve],
        rest: Rest,
        read: &dyn Fn(usize),
        each: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> io::Result<()> {
        // The buffer holds the file from `offset` on, `filled` bytes of it; a line begins there, unless it is too long.
        let (mut offset, mut filled, mut inside_long_line) = (0_u64, 0, false);
        loop {
            if filled == self.buffer.len() {
                if filled >= MAX_LINE {
                    inside_long_line = true;
                    (offset, filled) = (offset + filled as u64, 0);
                } else {
                    self.buffer.resize((filled * 2).min(MAX_LINE), 0);
                }
            }
            let more = match file.read(&mut self.buffer[filled..]) {
                Ok(more) => more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if more == 0 {
                if rest == Rest::Line {
                    let line = &self.buffer[..filled];
                    passing(line, 0, sieves, &mut |at, line| each(offset + at as u64, line));
                }
                break;
            }
            read(more);
            let Some(newline) = memchr::memrchr(b'\n', &self.buffer[filled..filled + more]) else {
                filled += more;
                continue;
            };
            let (end, all) = (filled + newline + 1, filled + more);
            let mut begin = 0;
            if std::mem::take(&mut inside_long_line) {
                begin = memchr::memchr(b'\n', &self.buffer[..end]).map_or(end, |newline| newline + 1);
            }
            if !passing(&self.buffer[..end], begin, sieves, &mut |at, line| each(offset + at as u64, line)) {
                break;
            }
            self.buffer.copy_within(end..all, 0);
            (offset, filled) = (offset + end as u64, all - end);
        }
        // One that was very long is no reason to keep as much for the others.
        self.buffer.truncate(self.buffer.len().min(8 * AT_ONCE));
        Ok(())
    }
}

/// The lines of `bytes`, from the one that begins at `at` on, that pass all sieves.
fn passing(
    bytes: &[u8],
    mut at: usize,
    sieves: &[Sieve],
    each: &mut dyn FnMut(usize, &[u8]) -> bool,
) -> bool {
    let Some((first, others)) = sieves.split_first() else { return true };
    let mut places = first.places(bytes);
    while let Some(found) = places.next(at) {
        let begin = memchr::memrchr(b'\n', &bytes[at..found]).map_or(at, |newline| at + newline + 1);
        let end = memchr::memchr(b'\n', &bytes[found..]).map_or(bytes.len(), |newline| found + newline);
        let line = &bytes[begin..end];
        if others.iter().all(|sieve| sieve.passes(line)) && !each(begin, line) {
            return false;
        }
        at = (end + 1).min(bytes.len());
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::super::word::Word;
    use super::*;

    fn found(content: &[u8], words: &[&str]) -> Vec<(u64, String)> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file.rewind().unwrap();
        let sieves: Vec<Sieve> =
            words.iter().map(|word| Sieve::new(&Word::new(word).unwrap()).unwrap()).collect();
        let mut found = Vec::new();
        Pass::new()
            .lines(&file, &sieves, Rest::Torn, &|_| (), &mut |at, line| {
                found.push((at, String::from_utf8_lossy(line).chars().take(40).collect()));
                true
            })
            .unwrap();
        found
    }

    #[test]
    fn each_whole_line_with_all_words_comes_once_with_its_offset() {
        let content = b"one fish\ntwo FISH fish\nred\nblue fish two\ntorn fish";
        let lines =
            |words: &[&str]| -> Vec<u64> { found(content, words).into_iter().map(|line| line.0).collect() };
        assert_eq!(lines(&["fish"]), [0, 9, 27]);
        assert_eq!(lines(&["fish", "two"]), [9, 27]);
        assert_eq!(lines(&["two", "fish"]), [9, 27]);
        assert_eq!(lines(&["torn"]), [0; 0]);
        assert_eq!(found(b"", &["x"]), []);
    }

    #[test]
    fn lines_across_the_ends_of_the_buffer_are_found_and_endless_ones_skipped() {
        for long in [AT_ONCE - 3, AT_ONCE, AT_ONCE + 1, 5 * AT_ONCE, MAX_LINE + 7] {
            let mut content = b"needle first\n".to_vec();
            content.extend(std::iter::repeat_n(b'x', long));
            content.extend_from_slice(b" needle\nlast needle\n");
            let whole = long + 21 < MAX_LINE;
            let lines = found(&content, &["needle"]);
            assert_eq!(lines.len(), 2 + usize::from(whole), "{long}");
            let last = (content.len() - 12) as u64;
            assert_eq!(lines.last().unwrap(), &(last, "last needle".to_owned()), "{long}");
        }
    }
}
