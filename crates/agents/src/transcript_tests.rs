//! Paging over real files, with lines in a simple notation.

use std::io::Write;

use super::*;

fn content(file: &File) -> Opened {
    Opened::File(file.try_clone().unwrap())
}

fn last(file: &File, bytes: usize, reader: Reader) -> io::Result<Page> {
    super::last(&content(file), bytes, reader)
}

fn after(file: &File, cursor: Option<Cursor>, bytes: usize, reader: Reader) -> Result<Page, Error> {
    super::after(&content(file), cursor, bytes, reader)
}

fn before(file: &File, cursor: Cursor, bytes: usize, reader: Reader) -> Page {
    super::before(&content(file), cursor, bytes, reader).unwrap()
}

const READ: Reader = Reader::Lines(read);

/// `u text`, `a text`, and `2 text`, which is two items; any other line has none.
fn read(line: &[u8]) -> Vec<Item> {
    let text = String::from_utf8_lossy(line.trim_ascii_end());
    let kind = match text.split_once(' ') {
        Some(("u", text)) => vec![ItemKind::User(text.into())],
        Some(("a", text)) => vec![ItemKind::Assistant(text.into())],
        Some(("2", text)) => vec![ItemKind::User(text.into()), ItemKind::Assistant(text.into())],
        _ => Vec::new(),
    };
    kind.into_iter().map(|kind| Item { at: None, kind }).collect()
}

fn file(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    file
}

fn texts(page: &Page) -> Vec<&str> {
    page.items
        .iter()
        .map(|item| match &item.kind {
            ItemKind::User(text) | ItemKind::Assistant(text) => text.as_str(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn the_end_has_as_many_whole_items_as_fit() {
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
        let page = last(&talk, bytes, READ).unwrap();
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
            let page = after(&talk, cursor, bytes, READ).unwrap();
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
fn appended_lines_come_after_the_cursor() {
    let mut talk = file(b"u one\nu two");
    let page = last(&talk, 1000, READ).unwrap();
    assert_eq!(texts(&page), ["one"]);
    assert!(after(&talk, Some(page.cursor), 1000, READ).unwrap().items.is_empty());
    talk.write_all(b" and a half\na three\n").unwrap();
    let next = after(&talk, Some(page.cursor), 1000, READ).unwrap();
    assert_eq!((texts(&next), next.truncated), (vec!["two and a half", "three"], false));
}

#[test]
fn a_cursor_of_another_file_is_refused() {
    let talk = file(b"u one\n");
    let cursor = last(&talk, 1000, READ).unwrap().cursor;
    for wrong in [Cursor { inode: cursor.inode + 1, ..cursor }, Cursor { offset: 7, ..cursor }] {
        assert!(matches!(after(&talk, Some(wrong), 1000, READ), Err(Error::Stale)));
    }
    for text in ["", "0", "1.2", "1.2.0.4", "1.2.3.11", "1.2.3.4.5", "x.y.z", "-1.0.0"] {
        assert_eq!(text.parse::<Cursor>(), Err(NoCursor), "{text:?}");
    }
}

#[test]
fn long_lines_are_read_and_lines_over_the_limit_skipped() {
    let long = format!("u {}\n", "x".repeat(5 * CHUNK + 7));
    let monster = format!("u {}\n", "y".repeat(MAX_LINE + 2 * CHUNK));
    let talk = file(format!("u first\n{long}{monster}a last\n").as_bytes());
    for page in [last(&talk, usize::MAX, READ).unwrap(), after(&talk, None, usize::MAX, READ).unwrap()] {
        assert_eq!(page.items.len(), 3);
        assert_eq!(page.items[1].len(), 5 * CHUNK + 7);
        assert_eq!(page.cursor.offset, talk.metadata().unwrap().len());
        assert!(page.truncated, "the monster is missing");
    }
    let torn = file(monster.trim_end().as_bytes());
    assert_eq!(last(&torn, 1000, READ).unwrap().cursor.offset, 0, "it may yet be finished");
    assert_eq!(after(&torn, None, 1000, READ).unwrap().cursor.offset, 0);
}

#[test]
fn an_empty_file_is_an_empty_conversation() {
    for content in [&b""[..], b"u torn"] {
        let page = last(&file(content), 1000, READ).unwrap();
        assert_eq!((page.items.len(), page.truncated, page.cursor.offset), (0, false, 0));
    }
}

#[test]
fn a_summary_is_one_short_line() {
    assert_eq!(one_line("a\nb\tc\u{1b}[2m "), "a b c [2m");
    assert_eq!(one_line(&"é".repeat(MAX_SUMMARY + 1)), format!("{}…", "é".repeat(MAX_SUMMARY)));
}

/// `ID text…` is a message with an item per word, `= ID:word,…` replaces all, `< ID` rewinds.
fn journal(line: &[u8]) -> Option<Entry> {
    let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
    let item = |word: &str| Item { at: None, kind: ItemKind::User(word.to_owned()) };
    let (first, rest) = text.split_once(' ')?;
    let message = |id: &str, words: &str| Message {
        id: id.to_owned(),
        items: words.split_whitespace().map(item).collect(),
    };
    Some(match first {
        "<" => Entry::Rewind(rest.to_owned()),
        "=" => Entry::Replace(
            rest.split(',')
                .filter_map(|part| part.split_once(':'))
                .map(|(id, word)| message(id, word))
                .collect(),
        ),
        id => Entry::Message(message(id, rest)),
    })
}

#[test]
fn a_journal_shows_the_valid_messages_each_once() {
    const READ: Reader = Reader::Journal(journal);
    for (content, expected) in [
        (&b"1 one\n2 two\n2 two run\n2 two run\n"[..], &["one", "two", "run"][..]),
        (b"1 one\n2 two\n3 three\n< 2\n4 four\n", &["one", "four"]),
        (b"1 one\n2 two\n< 9\n4 four\n", &["four"]),
        (b"1 one\n2 two\n3 three\n= 1:one,3:three\n4 four\n", &["one", "three", "four"]),
        (b"1 one\n= 7:short\nnoise\n8 more\n9 tor", &["short", "more"]),
    ] {
        let talk = file(content);
        let whole = last(&talk, 1000, READ).unwrap();
        assert_eq!(texts(&whole), expected, "{}", String::from_utf8_lossy(content));
        // By pages of any size.
        for bytes in [5, 9, 1000] {
            let (mut cursor, mut paged) = (None, Vec::new());
            loop {
                let page = after(&talk, cursor, bytes, READ).unwrap();
                paged.extend(texts(&page).into_iter().map(str::to_owned));
                cursor = Some(page.cursor);
                if !page.truncated {
                    break;
                }
            }
            assert_eq!(paged, expected, "{bytes} bytes at once");
            assert_eq!(cursor, Some(whole.cursor));
        }
        let short = last(&talk, expected[expected.len() - 1].len(), READ).unwrap();
        assert_eq!(
            (texts(&short), short.truncated),
            (vec![expected[expected.len() - 1]], expected.len() > 1)
        );
    }
    assert_eq!(texts(&last(&file(b"1 long\n"), 2, READ).unwrap()), ["…ng"]);
}

#[test]
fn a_message_that_grew_since_the_last_page_gives_its_new_items() {
    const READ: Reader = Reader::Journal(journal);
    let mut talk = file(b"1 one\n2 two\n");
    let cursor = last(&talk, 1000, READ).unwrap().cursor;
    talk.write_all(b"2 two run\n= 1:one,2:two\n3 three\n").unwrap();
    assert_eq!(texts(&after(&talk, Some(cursor), 1000, READ).unwrap()), ["run", "three"]);
}

#[test]
fn a_document_is_paged_by_its_messages_and_the_last_one_may_grow() {
    fn message(element: &[u8]) -> Option<Entry> {
        let text: String = serde_json::from_slice(element).ok()?;
        journal(text.as_bytes())
    }
    const READ: Reader = Reader::Document("list", message);
    let written = |list: &str| file(format!("{{\"id\": 7, \"list\": [{list}], \"more\": []}}").as_bytes());
    let talk = written(r#""1 one", "2 two run", "3 three""#);
    let whole = last(&talk, 1000, READ).unwrap();
    assert_eq!((texts(&whole), whole.truncated), (vec!["one", "two", "run", "three"], false));
    assert_eq!(texts(&last(&talk, 8, READ).unwrap()), ["run", "three"]);
    for bytes in [5, 9, 1000] {
        let (mut cursor, mut paged) = (None, Vec::new());
        loop {
            let page = after(&talk, cursor, bytes, READ).unwrap();
            paged.extend(texts(&page).into_iter().map(str::to_owned));
            cursor = Some(page.cursor.to_string().parse().unwrap());
            if !page.truncated {
                break;
            }
        }
        assert_eq!(paged, ["one", "two", "run", "three"], "{bytes} bytes at once");
        assert_eq!(cursor, Some(whole.cursor));
    }
    let grown = br#"{"list": ["1 one", "2 two run", "3 three run", "4 four"]}"#;
    std::os::unix::fs::FileExt::write_all_at(&talk, grown, 0).unwrap();
    talk.set_len(grown.len() as u64).unwrap();
    assert_eq!(texts(&after(&talk, Some(whole.cursor), 1000, READ).unwrap()), ["run", "four"]);
    talk.set_len(20).unwrap();
    assert_eq!(
        texts(&last(&talk, 1000, READ).unwrap()),
        ["one"],
        "one that stays torn is read as far as it goes"
    );
}

/// `ID>PARENT word…` waits for its parent, `ID word…` does not; an item per word.
fn threaded(line: &[u8]) -> Threaded {
    let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
    let Some((link, words)) = text.split_once(' ') else { return Threaded::default() };
    let (id, follows) =
        link.split_once('>').map_or((link, None), |(id, parent)| (id, Some(parent.to_owned())));
    let items = words.split(' ').map(|word| Item { at: None, kind: ItemKind::User(word.into()) }).collect();
    Threaded { id: Some(id.into()), follows, items }
}

fn paged(talk: &File, bytes: usize, reader: Reader) -> (Vec<String>, Option<Cursor>) {
    let (mut cursor, mut all) = (None, Vec::new());
    loop {
        let page = after(talk, cursor, bytes, reader).unwrap();
        all.extend(texts(&page).into_iter().map(str::to_owned));
        cursor = Some(page.cursor.to_string().parse().unwrap());
        if !page.truncated {
            return (all, cursor);
        }
    }
}

#[test]
fn an_answer_is_shown_after_its_prompt_in_any_order() {
    const READ: Reader = Reader::Threads(threaded);
    let far = format!("2>1 two\n{}1 one\n", "noise\n".repeat(16));
    for (content, expected) in [
        ("1 one\n2>1 two\n3 three\n", &["one", "two", "three"][..]),
        ("2>1 two\nnoise\n1 one\n3 three\n4>3 four\n", &["one", "two", "three", "four"]),
        // What follows an answer waits with it; an irrelevant line may come between the two.
        ("a>x two deux\nb>a run\n1 one\nx>1 -\n3 three\n", &["one", "-", "two", "deux", "run", "three"]),
        ("a>x two\nx>1 -\n1 one\n", &["one", "-", "two"]),
        // One whose parent is long past, or never comes, does not wait; nor do two that wait for each other.
        ("1 one\n2>0 two\n3>2 three\n", &["one", "two", "three"]),
        ("1>2 one\n2>1 two\n3 three\n", &["one", "two", "three"]),
        (&far, &["two", "one"]),
    ] {
        let talk = file(content.as_bytes());
        let whole = last(&talk, 1000, READ).unwrap();
        assert_eq!(texts(&whole), expected, "{content}");
        for bytes in [5, 9, 1000] {
            assert_eq!(
                paged(&talk, bytes, READ),
                (expected.iter().map(ToString::to_string).collect(), Some(whole.cursor)),
                "{content}"
            );
        }
        let end = last(&talk, 5, READ).unwrap();
        assert!(expected.ends_with(&texts(&end)), "{content}");
    }
}

#[test]
fn lines_that_come_between_two_pages_do_not_change_a_begun_group() {
    const READ: Reader = Reader::Threads(threaded);
    let mut talk = file(b"2>1 two deux\n");
    let first = after(&talk, None, 3, READ).unwrap();
    assert_eq!(texts(&first), ["two"]);
    talk.write_all(b"1 one\n3>9 three trois\n4>3 four\n9 nine\n5>4 five\n").unwrap();
    let mut next = after(&talk, Some(first.cursor), 7, READ).unwrap();
    assert_eq!(texts(&next), ["deux", "one"]);
    next = after(&talk, Some(next.cursor), 4, READ).unwrap();
    assert_eq!(texts(&next), ["nine"]);
    talk.write_all(b"6>7 six\n7 seven\n").unwrap();
    next = after(&talk, Some(next.cursor.to_string().parse().unwrap()), 1000, READ).unwrap();
    assert_eq!(texts(&next), ["three", "trois", "four", "five", "seven", "six"]);
}

/// Every page from the end to the beginning, joined.
fn paged_backwards(talk: &File, bytes: usize, reader: Reader) -> Vec<String> {
    let mut page = last(talk, bytes, reader).unwrap();
    let mut all = Vec::new();
    for _ in 0..100 {
        if page.items.is_empty() {
            assert!(!page.truncated, "nothing is left out before the first item");
            return all;
        }
        all.splice(0..0, texts(&page).into_iter().map(str::to_owned));
        let again = after(talk, Some(page.start), bytes, reader).unwrap();
        let whole = !texts(&page)[0].starts_with('…');
        assert!(!whole || again.items.starts_with(&page.items), "the same page from its beginning");
        page = before(talk, page.start.to_string().parse().unwrap(), bytes, reader);
    }
    panic!("paging does not end");
}

#[test]
fn pages_lead_from_the_end_to_the_beginning_in_every_form() {
    fn element(element: &[u8]) -> Option<Entry> {
        journal(serde_json::from_slice::<String>(element).ok()?.as_bytes())
    }
    let document = br#"{"list": ["1 one", "2 two run", "3 three"]}"#;
    for (content, reader, expected) in [
        (
            "u one\n2 three\n\na five\nu six\nu to".as_bytes(),
            READ,
            &["one", "three", "three", "five", "six"][..],
        ),
        (
            b"1 one\n2 two\n2 two run\n3 three\n< 3\n4 four\n",
            Reader::Journal(journal),
            &["one", "two", "run", "four"],
        ),
        (document, Reader::Document("list", element), &["one", "two", "run", "three"]),
        (
            b"2>1 two deux\nnoise\n1 one\n3 three\n4>3 four\n",
            Reader::Threads(threaded),
            &["one", "two", "deux", "three", "four"],
        ),
        (b"u torn", READ, &[]),
    ] {
        let talk = file(content);
        for bytes in [5, 6, 9, 10, 1000] {
            assert_eq!(paged_backwards(&talk, bytes, reader), expected, "{bytes} bytes: {reader:?}");
        }
        let cut = paged_backwards(&talk, 1, reader);
        assert_eq!(cut.len(), expected.len(), "each at least in part: {cut:?}");
    }
    let talk = file(b"u one\n");
    let cursor = last(&talk, 1000, READ).unwrap().cursor;
    let wrong = super::before(&content(&talk), Cursor { inode: cursor.inode + 1, ..cursor }, 10, READ);
    assert!(matches!(wrong, Err(Error::Stale)));
}
