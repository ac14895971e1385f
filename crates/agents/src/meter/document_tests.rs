use std::cell::RefCell;

use super::super::line::Unreadable;
use pricing::tier::Tier;
use types::Tokens;

use super::super::record::{Fact, Record, Usage};
use super::super::tail::FileId;
use super::*;

/// `{"k":KEY,"n":OUTPUT}` is a call; an element that is not an object is unreadable.
#[derive(Debug, Default)]
struct Calls {
    head: String,
}

#[derive(serde::Deserialize)]
struct Element {
    #[serde(default)]
    k: Option<String>,
    #[serde(default)]
    n: u64,
}

impl Lines for Calls {
    fn read(&mut self, line: &[u8], into: &mut ParsedLines) -> Result<(), Unreadable> {
        let Element { k, n } = serde_json::from_slice(line)?;
        let Some(key) = k else {
            self.head = String::from_utf8(line.to_vec()).unwrap();
            return Ok(());
        };
        let tokens = Tokens { output: n, ..Tokens::default() };
        let usage = Usage { model: "m".into(), tokens, tier: Tier::Standard, request_id: None };
        let fact = Fact::Usage(usage);
        into.records.push(Record { key, at: Timestamp(1), copied: false, subagent: None, fact });
        Ok(())
    }

    fn state(&self) -> Option<String> {
        Some(self.head.clone())
    }

    fn forget(&mut self) {
        self.head.clear();
    }
}

#[derive(Debug)]
struct Written {
    bytes: RefCell<Vec<u8>>,
    inode: u64,
    time: Option<(i64, i64)>,
}

impl Written {
    fn new(text: &str) -> Self {
        Self { bytes: RefCell::new(text.into()), inode: 1, time: None }
    }

    fn write(&self, text: &str) {
        *self.bytes.borrow_mut() = text.into();
    }
}

impl Source for Written {
    fn identity(&self) -> io::Result<(FileId, u64)> {
        Ok((FileId { device: 1, inode: self.inode }, self.bytes.borrow().len() as u64))
    }

    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        // A few bytes at a time, as a slow disk would.
        let bytes = self.bytes.borrow();
        let rest = &bytes[usize::try_from(offset).unwrap().min(bytes.len())..];
        let some = rest.len().min(into.len()).min(7);
        into[..some].copy_from_slice(&rest[..some]);
        Ok(some)
    }

    fn written_at(&self) -> io::Result<Option<(i64, i64)>> {
        Ok(self.time)
    }
}

fn document(position: Option<Position>) -> Document<Calls> {
    Document::new("list", position, Calls::default(), None)
}

fn keys(batch: &Batch) -> Vec<(&str, u64)> {
    let calls = batch.parsed.records.iter().map(|record| match &record.fact {
        Fact::Usage(usage) => (record.key.as_str(), usage.tokens.output),
        other => panic!("{other:?}"),
    });
    calls.collect()
}

#[test]
fn a_document_is_read_whole_each_time_it_changes() {
    let first = r#"{ "id": "s", "list": [ {"k":"a","n":1} ], "more": [1] }"#;
    let file = Written::new(first);
    let mut followed = document(None);
    let batch = followed.next(&file).unwrap().unwrap();
    assert_eq!((keys(&batch), batch.restart, batch.unreadable), (vec![("a", 1)], None, 0));
    assert_eq!(batch.state.as_deref(), Some(r#"{"id":"s"}"#), "the fields before the list come first");
    assert_eq!(followed.next(&file).unwrap(), None, "as it was");
    file.write(r#"{ "id": "s", "list": [ {"k":"a","n":2}, {"k":"b","n":1} ] }"#);
    let batch = followed.next(&file).unwrap().unwrap();
    assert_eq!((keys(&batch), batch.restart), (vec![("a", 2), ("b", 1)], Some(Restart::Rewritten)));
    // After a restart from the last commit nothing is new.
    assert_eq!(document(Some(batch.to)).next(&file).unwrap(), None);
    // To the same length.
    file.write(r#"{ "id": "s", "list": [ {"k":"a","n":3}, {"k":"b","n":1} ] }"#);
    assert_eq!(keys(&followed.next(&file).unwrap().unwrap()), [("a", 3), ("b", 1)]);
}

#[test]
fn a_half_written_document_waits_wherever_it_is_torn() {
    let whole = r#"{"id":"s","list":[{"k":"a","n":1},{"k":"b","n":2}],"end":"x"}"#;
    for cut in 0..whole.len() {
        let file = Written::new(&whole[..cut]);
        let mut followed = document(None);
        assert_eq!(followed.next(&file).unwrap(), None, "{}", &whole[..cut]);
        file.write(whole);
        assert_eq!(keys(&followed.next(&file).unwrap().unwrap()), [("a", 1), ("b", 2)], "{cut}");
    }
}

#[test]
fn a_file_that_is_no_document_is_counted_once_and_left_alone() {
    for broken in ["[]", "7", r#"{"list":7}"#, r#"{"list":[{"k":"a"}]} x"#, "garbage"] {
        let file = Written::new(broken);
        let mut followed = document(None);
        let batch = followed.next(&file).unwrap().unwrap();
        assert_eq!((batch.unreadable, batch.parsed.records.len()), (1, 0), "{broken}");
        assert_eq!(followed.next(&file).unwrap(), None, "{broken}");
    }
    let file = Written::new(r#"{"list":[{"k":"a","n":1},7,{"k":"b","n":-1},{"k":"c","n":3}]}"#);
    let batch = document(None).next(&file).unwrap().unwrap();
    assert_eq!((keys(&batch), batch.unreadable), (vec![("a", 1), ("c", 3)], 2), "one element hides no other");
}

#[test]
fn another_file_in_its_place_is_read() {
    let mut file = Written::new(r#"{"list":[{"k":"a","n":1}]}"#);
    let mut followed = document(None);
    followed.next(&file).unwrap().unwrap();
    file.inode = 2;
    assert_eq!(keys(&followed.next(&file).unwrap().unwrap()), [("a", 1)]);
}

#[test]
fn an_unchanged_time_of_writing_saves_the_reading() {
    let mut file = Written::new(r#"{"list":[{"k":"a","n":1}]}"#);
    file.time = Some((1_000_000, 0));
    let mut followed = document(None);
    followed.next(&file).unwrap().unwrap();
    file.write(r#"{"list":[{"k":"a","n":9}]}"#);
    assert_eq!(followed.next(&file).unwrap(), None, "same length and time: not looked into");
    file.time = Some((1_000_001, 0));
    assert_eq!(keys(&followed.next(&file).unwrap().unwrap()), [("a", 9)]);
}

#[test]
fn a_document_beyond_bounds_is_not_read() {
    #[derive(Debug)]
    struct Huge;
    impl Source for Huge {
        fn identity(&self) -> io::Result<(FileId, u64)> {
            Ok((FileId { device: 1, inode: 1 }, MAX_DOCUMENT + 1))
        }

        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            panic!("it must not be read")
        }
    }
    let mut followed = document(None);
    assert_eq!(followed.next(&Huge).unwrap().unwrap().unreadable, 1);
    assert_eq!(followed.next(&Huge).unwrap(), None);
}
