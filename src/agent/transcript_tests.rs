//! Paging over real files, with lines that are simply what was said.

use std::io::Write;

use super::*;

/// `u text`, `a text`, and `2 text`, which is two items; everything else says nothing.
fn read(line: &[u8]) -> Vec<Item> {
    let text = String::from_utf8_lossy(line.trim_ascii_end());
    let said = match text.split_once(' ') {
        Some(("u", text)) => vec![Said::User(text.into())],
        Some(("a", text)) => vec![Said::Assistant(text.into())],
        Some(("2", text)) => vec![Said::User(text.into()), Said::Assistant(text.into())],
        _ => Vec::new(),
    };
    said.into_iter().map(|said| Item { at: None, said }).collect()
}

fn file(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    file
}

fn texts(page: &Page) -> Vec<&str> {
    page.items
        .iter()
        .map(|item| match &item.said {
            Said::User(text) | Said::Assistant(text) => text.as_str(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn the_last_whole_items_that_fit() {
    let talk = file(b"u one\nnoise\na two\n2 three\nu fo");
    for (bytes, expected, truncated) in [
        (1000, &["one", "two", "three", "three"][..], false),
        (16, &["one", "two", "three", "three"], false),
        (15, &["two", "three", "three"], true),
        (10, &["three", "three"], true),
        (5, &["three"], true),
        (3, &["…ree"], true),
        (0, &[], true),
    ] {
        let page = last(&talk, bytes, read).unwrap();
        assert_eq!((&texts(&page)[..], page.truncated), (expected, truncated), "{bytes} bytes");
        assert_eq!(page.cursor.offset, 26, "behind the last whole line");
    }
}

#[test]
fn pages_from_the_beginning_give_everything_once() {
    let talk = file("u one\n2 three\n\na ünf\nu six".as_bytes());
    for bytes in 1..20 {
        let (mut cursor, mut all, mut pages) = (None, Vec::new(), 0);
        loop {
            let page = after(&talk, cursor, bytes, read).unwrap();
            all.extend(texts(&page).into_iter().map(str::to_owned));
            cursor = Some(page.cursor.to_string().parse().unwrap());
            pages += 1;
            assert!(pages < 10, "paging does not end");
            if page.items.is_empty() {
                break;
            }
        }
        if bytes >= 5 {
            assert_eq!(all, ["one", "three", "three", "ünf"], "{bytes} bytes");
        } else {
            assert_eq!(all.len(), 4, "each at least in part: {all:?}");
        }
    }
}

#[test]
fn what_is_appended_comes_after_the_cursor() {
    let mut talk = file(b"u one\nu two");
    let page = last(&talk, 1000, read).unwrap();
    assert_eq!(texts(&page), ["one"]);
    assert!(after(&talk, Some(page.cursor), 1000, read).unwrap().items.is_empty());
    talk.write_all(b" and a half\na three\n").unwrap();
    let next = after(&talk, Some(page.cursor), 1000, read).unwrap();
    assert_eq!((texts(&next), next.truncated), (vec!["two and a half", "three"], false));
}

#[test]
fn a_cursor_of_another_file_is_refused() {
    let talk = file(b"u one\n");
    let cursor = last(&talk, 1000, read).unwrap().cursor;
    for wrong in [Cursor { inode: cursor.inode + 1, ..cursor }, Cursor { offset: 7, ..cursor }] {
        assert!(matches!(after(&talk, Some(wrong), 1000, read), Err(Error::Stale)));
    }
    for text in ["", "0", "1.2", "1.2.3.4", "x.y.z", "-1.0.0"] {
        assert_eq!(text.parse::<Cursor>(), Err(NoCursor), "{text:?}");
    }
}

#[test]
fn long_lines_are_read_and_monstrous_ones_passed_over() {
    let long = format!("u {}\n", "x".repeat(5 * CHUNK + 7));
    let monster = format!("u {}\n", "y".repeat(MAX_LINE + 2 * CHUNK));
    let talk = file(format!("u first\n{long}{monster}a last\n").as_bytes());
    for page in [last(&talk, usize::MAX, read).unwrap(), after(&talk, None, usize::MAX, read).unwrap()] {
        assert_eq!(page.items.len(), 3);
        assert_eq!(page.items[1].len(), 5 * CHUNK + 7);
        assert_eq!(page.cursor.offset, talk.metadata().unwrap().len());
        assert!(page.truncated, "the monster is missing");
    }
    let torn = file(monster.trim_end().as_bytes());
    assert_eq!(last(&torn, 1000, read).unwrap().cursor.offset, 0, "it may yet be finished");
    assert_eq!(after(&torn, None, 1000, read).unwrap().cursor.offset, 0);
}

#[test]
fn an_empty_file_is_an_empty_conversation() {
    for content in [&b""[..], b"u torn"] {
        let page = last(&file(content), 1000, read).unwrap();
        assert_eq!((page.items.len(), page.truncated, page.cursor.offset), (0, false, 0));
    }
}
