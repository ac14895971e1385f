use std::cell::{Cell, RefCell};

use super::*;
use crate::meter::line::Unreadable;
use crate::meter::record::{Fact, LONGEST_KEY, Record};
use types::Timestamp;

/// Keeps every line; one that begins with `!` is unreadable. Its state is the number of lines read.
#[derive(Debug, Default)]
struct Keep(u64);

impl Lines for Keep {
    fn read(&mut self, line: &[u8], into: &mut ParsedLines) -> Result<(), Unreadable> {
        self.0 += 1;
        if line.starts_with(b"!") {
            return Err(Unreadable::Shape("no"));
        }
        let key = kept(std::str::from_utf8(line).unwrap());
        into.records.push(Record {
            key,
            at: Timestamp(0),
            copied: false,
            subagent: None,
            fact: Fact::Prompt,
        });
        Ok(())
    }

    fn state(&self) -> Option<String> {
        Some(self.0.to_string())
    }

    fn forget(&mut self) {
        self.0 = 0;
    }
}

/// The record of a line; of one that is too long for a key, its length.
fn kept(line: &str) -> String {
    if line.len() > LONGEST_KEY && !line.starts_with('?') {
        format!("{} bytes", line.len())
    } else {
        line.to_owned()
    }
}

/// A file in memory that gives at most `at_once` bytes per read.
#[derive(Debug)]
struct Memory {
    data: RefCell<Vec<u8>>,
    inode: Cell<u64>,
    at_once: Cell<usize>,
}

impl Memory {
    fn new(data: &[u8]) -> Self {
        Self { data: RefCell::new(data.to_vec()), inode: Cell::new(1), at_once: Cell::new(usize::MAX) }
    }

    fn append(&self, more: &[u8]) {
        self.data.borrow_mut().extend_from_slice(more);
    }

    fn become_file(&self, inode: u64, data: &[u8]) {
        self.inode.set(inode);
        *self.data.borrow_mut() = data.to_vec();
    }
}

impl Source for Memory {
    fn identity(&self) -> io::Result<(FileId, u64)> {
        Ok((FileId { device: 7, inode: self.inode.get() }, self.data.borrow().len() as u64))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let data = self.data.borrow();
        let rest = data.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let got = rest.len().min(into.len()).min(self.at_once.get());
        into[..got].copy_from_slice(&rest[..got]);
        Ok(got)
    }
}

fn drain(tail: &mut Tail<Keep>, file: &Memory) -> (Vec<String>, u64) {
    let (mut keys, mut unreadable) = (Vec::new(), 0);
    while let Some(batch) = tail.next(file).unwrap() {
        keys.extend(batch.parsed.records.into_iter().map(|record| record.key));
        unreadable += batch.unreadable;
    }
    (keys, unreadable)
}

fn tail() -> Tail<Keep> {
    Tail::new(None, Keep::default())
}

#[test]
fn whole_lines_only_and_a_torn_one_waits() {
    let file = Memory::new(b"one\ntw");
    let mut tail = tail();
    let batch = tail.next(&file).unwrap().unwrap();
    assert_eq!(batch.parsed.records[0].key, "one");
    assert_eq!((batch.from, batch.to.offset, batch.lines, batch.unreadable), (None, 4, 1, 0));
    assert_eq!(batch.state.as_deref(), Some("1"));
    assert_eq!(tail.next(&file).unwrap(), None);
    file.append(b"o");
    assert_eq!(tail.next(&file).unwrap(), None);
    file.append(b"\n!bad\n\nthree\n");
    let next = tail.next(&file).unwrap().unwrap();
    assert_eq!(next.from, Some(batch.to));
    assert_eq!((next.lines, next.unreadable), (4, 1));
    assert_eq!(next.parsed.records.iter().map(|r| r.key.as_str()).collect::<Vec<_>>(), ["two", "", "three"]);
    assert_eq!(tail.next(&file).unwrap(), None);
}

#[test]
fn reading_goes_on_where_a_batch_ended() {
    let file = Memory::new(b"one\ntwo\n");
    let first = tail().next(&file).unwrap().unwrap();
    let stored = Position::decode(first.to.file, first.to.encode());
    file.append(b"three\n");
    let mut after_restart = Tail::new(Some(stored), Keep(first.state.unwrap().parse().unwrap()));
    let batch = after_restart.next(&file).unwrap().unwrap();
    assert_eq!(batch.parsed.records.len(), 1);
    assert_eq!((batch.state.as_deref(), batch.restart), (Some("3"), None));
}

#[test]
fn an_empty_file_and_one_without_a_newline_give_nothing() {
    assert_eq!(tail().next(&Memory::new(b"")).unwrap(), None);
    assert_eq!(tail().next(&Memory::new(b"{\"torn\":")).unwrap(), None);
}

#[test]
fn truncation_and_replacement_start_again() {
    for (inode, data, restart, lines) in [
        (1, &b"x\n"[..], Restart::Truncated, 1),
        (1, b"", Restart::Truncated, 0),
        (2, b"one\ntwo\n", Restart::Replaced, 2),
        (2, b"", Restart::Replaced, 0),
        (1, b"uno\ndue\ntre\n", Restart::Truncated, 3), // the inode was given to a longer file
    ] {
        let file = Memory::new(b"one\ntwo\n");
        let mut tail = tail();
        drain(&mut tail, &file);
        file.become_file(inode, data);
        let batch = tail.next(&file).unwrap().unwrap();
        assert_eq!(batch.restart, Some(restart), "{data:?}");
        assert_eq!((batch.lines, batch.to.offset), (lines, data.len() as u64), "{data:?}");
        assert_eq!(batch.state, Some(lines.to_string()), "the reader's memory is of the new file");
        assert_eq!(batch.to.file.inode, inode);
        file.append(b"more\n");
        assert_eq!(tail.next(&file).unwrap().unwrap().restart, None);
    }
}

#[test]
fn a_line_over_the_limit_is_passed_over_in_bounded_memory() {
    let long = vec![b'x'; MAX_LINE * 2 + 12_345];
    let file = Memory::new(&[b"one\n", long.as_slice()].concat());
    let mut tail = tail();
    assert_eq!(drain(&mut tail, &file), (vec!["one".into()], 1));
    let inside = tail.position().unwrap();
    assert!(inside.inside_long_line);
    assert_eq!(inside.offset, file.data.borrow().len() as u64);
    assert_eq!(tail.buffer.capacity(), 0, "the buffer is given back");
    file.append(b"the end of it\ntwo\nthr");
    let mut after_restart = Tail::new(Some(inside), Keep(1));
    for tail in [&mut tail, &mut after_restart] {
        assert_eq!(drain(tail, &file), (vec!["two".into()], 0));
        assert!(!tail.position().unwrap().inside_long_line);
    }
    file.append(b"ee\n");
    assert_eq!(drain(&mut tail, &file), (vec!["three".into()], 0));
    assert!(tail.buffer.capacity() <= CHUNK);
}

#[test]
fn a_long_line_under_the_limit_is_read() {
    let long = "y".repeat(MAX_LINE - 1);
    let file = Memory::new(format!("one\n{long}\ntwo\n").as_bytes());
    let (keys, unreadable) = drain(&mut tail(), &file);
    assert_eq!((keys, unreadable), (vec!["one".into(), kept(&long), "two".into()], 0));
}

#[test]
fn an_interrupted_read_is_repeated_and_an_error_is_reported() {
    struct Failing(Cell<u32>);
    impl Source for Failing {
        fn identity(&self) -> io::Result<(FileId, u64)> {
            Ok((FileId { device: 1, inode: 1 }, 9))
        }
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            self.0.set(self.0.get() + 1);
            Err(if self.0.get() == 1 { io::ErrorKind::Interrupted } else { io::ErrorKind::Other }.into())
        }
    }
    let source = Failing(Cell::new(0));
    assert!(tail().next(&source).is_err());
    assert_eq!(source.0.get(), 2);
}

#[test]
fn a_real_file_is_followed_across_a_rename() {
    let folder = tempfile::tempdir().unwrap();
    let (before, after) = (folder.path().join("a"), folder.path().join("b"));
    std::fs::write(&before, "one\n").unwrap();
    let mut tail = tail();
    assert_eq!(tail.next(&File::open(&before).unwrap()).unwrap().unwrap().lines, 1);
    std::fs::rename(&before, &after).unwrap();
    let mut file = File::options().append(true).open(&after).unwrap();
    io::Write::write_all(&mut file, b"two\n").unwrap();
    let batch = tail.next(&File::open(&after).unwrap()).unwrap().unwrap();
    assert_eq!((batch.lines, batch.restart), (1, None));
}

#[test]
fn a_file_rewritten_to_the_same_length_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let write = |text: &str, at: u64| {
        std::fs::write(&path, text).unwrap();
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(at);
        File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
    };
    let mut tail = tail();
    let mut next = || tail.next(&File::open(&path).unwrap()).unwrap();
    write("one\ntwo\n", 1);
    assert_eq!(next().unwrap().lines, 2);
    assert_eq!(next(), None);
    write("uno\ndue\n", 2);
    let batch = next().unwrap();
    assert_eq!((batch.restart, batch.lines), (Some(Restart::Truncated), 2));
    write("uno\ndue\n", 3);
    assert_eq!(next(), None, "written, but nothing else");
}

#[test]
fn an_implausible_line_is_unreadable_and_leaves_nothing() {
    let absurd = format!("?{}", "x".repeat(LONGEST_KEY));
    let file = Memory::new(format!("one\n{absurd}\ntwo\n").as_bytes());
    assert_eq!(drain(&mut tail(), &file), (vec!["one".into(), "two".into()], 1));
}

#[test]
fn chunks_of_any_size_give_the_same_lines() {
    let expected: Vec<String> = (0..2000).map(|n| format!("{n}:{}", "é".repeat(n % 97))).collect();
    let text = expected.join("\n") + "\n";
    for at_once in [1, 2, 3, 7, 64, 1000, 65_536] {
        let file = Memory::new(text.as_bytes());
        file.at_once.set(at_once);
        assert_eq!(drain(&mut tail(), &file), (expected.clone(), 0), "{at_once} bytes at once");
    }
}

#[test]
fn readers_with_lent_buffers_hold_long_lines_one_at_a_time_and_give_the_buffer_back() {
    let turn = Arc::<LongLineTurn>::default();
    let long = 5 * CHUNK;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut room = vec![0; CHUNK];
                for _ in 0..3 {
                    let line = "x".repeat(long);
                    let file = Memory::new(format!("a\n{line}\nb\n{line}\n{line}").as_bytes());
                    let mut tail = Tail::with_buffer(None, Keep::default(), room, Arc::clone(&turn));
                    assert_eq!(drain(&mut tail, &file).0, ["a", &kept(&line), "b", &kept(&line)]);
                    // One more is torn: the turn must not be kept for it.
                    room = tail.into_parts().1;
                    assert_eq!(room.len(), CHUNK);
                }
            });
        }
    });
    assert!(!*turn.held.lock().unwrap());
}
