use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;
use agents::registry;
use agents::transcript;

const RECORDINGS: [(&str, &str, &str); 5] = [
    ("claude", "CLAUDE_CONFIG_DIR", "claude"),
    ("codex", "CODEX_HOME", "codex"),
    ("codex", "CODEX_HOME", "codex-older"),
    ("gemini", "GEMINI_CLI_HOME", "gemini"),
    ("gemini", "GEMINI_CLI_HOME", "gemini-older"),
];

/// The homes of agents that were recorded; those of Gemini, which are not kept whole, are made in `made`.
fn homes(made: &Path) -> Vec<(&'static dyn Agent, &'static str, PathBuf, &'static str)> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let mut homes = Vec::new();
    for (agent, variable, folder) in RECORDINGS {
        for entry in std::fs::read_dir(fixtures.join(folder)).unwrap() {
            let mut path = entry.unwrap().path();
            if !path.is_dir() {
                continue;
            }
            if agent == "gemini" {
                let home = made.join(folder).join(path.file_name().unwrap());
                let chats = if path.join("chats").is_dir() { path.join("chats") } else { path };
                copy(&chats, &home.join(".gemini/tmp/p/chats"));
                path = home;
            }
            homes.push((registry::by_name(agent).unwrap(), variable, path, folder));
        }
    }
    homes
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, name) = (entry.as_ref().unwrap().path(), entry.unwrap().file_name());
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            std::fs::copy(path, to.join(name)).unwrap();
        }
    }
}

fn query(words: &[&str]) -> Query {
    let words = words.iter().filter_map(|word| Word::new(word)).collect();
    Query { words, role: None, since: None, most: usize::MAX }
}

fn search_in(agent: &'static dyn Agent, variable: &str, home: &Path, query: &Query) -> Hits {
    let var = |name: &str| (name == variable).then(|| home.to_owned().into_os_string());
    search(query, &[agent], &var, &|_, _| true, None)
}

/// Everything that a reader of all conversations sees, without any search in bytes.
fn by_reading(agent: &'static dyn Agent, variable: &str, home: &Path, query: &Query) -> BTreeSet<String> {
    let var = |name: &str| (name == variable).then(|| home.to_owned().into_os_string());
    let mut seen = BTreeSet::new();
    for listed in crate::session_files(&[agent], &var).files {
        let path = &listed.file.path;
        let form = agent.form(path);
        let reader = agent.transcript().unwrap().of_form(form);
        let content = form.open(path).unwrap();
        transcript::each(&content, reader, &mut |_, item| {
            if let Some((role, text)) = query.matches(item.at, item.kind) {
                seen.insert(format!("{} {:?} {role:?} {text}", path.display(), item.at));
            }
        })
        .unwrap();
    }
    seen
}

#[test]
fn every_message_with_the_words_is_found_in_the_recordings_of_every_agent() {
    let mut found_at_all = BTreeSet::new();
    let made = tempfile::tempdir().unwrap();
    for (agent, variable, home, folder) in homes(made.path()) {
        for words in
            [&["prompt"][..], &["one"], &["fake", "answer"], &["e"], &["bash", "ECHO"], &["OK 3: second"]]
        {
            let query = query(words);
            let hits = search_in(agent, variable, &home, &query).hits;
            let found: BTreeSet<String> = hits
                .iter()
                .map(|hit| format!("{} {:?} {:?} {}", hit.file.path.display(), hit.at, hit.role, hit.text))
                .collect();
            assert_eq!(found, by_reading(agent, variable, &home, &query), "{words:?} in {}", home.display());
            if !found.is_empty() {
                found_at_all.insert(folder);
            }
        }
    }
    assert_eq!(found_at_all.len(), RECORDINGS.len(), "{found_at_all:?}");
}

#[test]
fn a_page_from_a_hits_cursor_on_begins_with_it() {
    let made = tempfile::tempdir().unwrap();
    for (agent, variable, home, _) in homes(made.path()) {
        for hit in search_in(agent, variable, &home, &query(&["o"])).hits {
            let form = agent.form(&hit.file.path);
            let content = form.open(&hit.file.path).unwrap();
            let reader = agent.transcript().unwrap().of_form(form);
            let page = transcript::after(&content, Some(hit.cursor), 100_000, reader).unwrap();
            let first = page.items.iter().take(8).filter_map(|item| said(item.kind.clone()));
            assert!(first.into_iter().any(|(_, text)| text == hit.text), "{} {hit:?}", home.display());
        }
    }
}

#[test]
fn the_newest_come_first_and_the_others_are_counted() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/claude/01-plain");
    let agent = registry::by_name("claude").unwrap();
    let all = search_in(agent, "CLAUDE_CONFIG_DIR", &home, &query(&["prompt"])).hits;
    let texts: Vec<&str> = all.iter().map(|hit| hit.text.as_str()).collect();
    assert_eq!(texts, ["OK 4: third prompt", "third prompt", "OK 3: second prompt", "second prompt"]);
    for (most, role, expected, more) in [
        (1, None, &texts[..1], 3),
        (9, Some(Role::User), &["third prompt", "second prompt"][..], 0),
        (9, Some(Role::Assistant), &["OK 4: third prompt", "OK 3: second prompt"], 0),
        (9, Some(Role::Tool), &[], 0),
        (0, None, &[], 4),
    ] {
        let query = Query { role, most, ..query(&["prompt"]) };
        let found = search_in(agent, "CLAUDE_CONFIG_DIR", &home, &query);
        let texts: Vec<&str> = found.hits.iter().map(|hit| hit.text.as_str()).collect();
        assert_eq!((&texts[..], found.more), (expected, more), "{most} {role:?}");
    }
    let since = Query { since: all[1].at, ..query(&["prompt"]) };
    assert_eq!(search_in(agent, "CLAUDE_CONFIG_DIR", &home, &since).hits.len(), 2);
    let none = search_in(agent, "CLAUDE_CONFIG_DIR", &home, &query(&[]));
    assert_eq!(none.hits, []);
    let refused = search(&query(&["prompt"]), &[agent], &|_| Some(home.clone().into()), &|_, _| false, None);
    assert_eq!(refused.hits, []);
}

/// Twenty files of a hundred messages, each a day older than the one before.
#[test]
fn files_that_are_older_than_all_that_is_shown_are_not_read_once_enough_is_counted() {
    use agents::scribe::{Scribe, write_rows};
    const DAY: i64 = 24 * 3600 * 1000;
    let folder = tempfile::tempdir().unwrap();
    let now = 30 * DAY;
    for age in 0..20 {
        let end = now - age * DAY;
        let rows: Vec<String> = (0..100).map(|n| format!("u k{age}-{n} {} fish {age}", end - n)).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        write_rows(folder.path(), &format!("c{age}"), &rows);
    }
    let search = |most| search_in(&Scribe, "SCRIBE_HOME", folder.path(), &Query { most, ..query(&["fish"]) });
    let all = search(usize::MAX);
    assert_eq!((all.hits.len(), all.more, all.more_unread), (2000, 0, false));
    let newest = search(150);
    assert_eq!(newest.hits, all.hits[..150]);
    // Twelve files make up the 150 that are asked for and 1,000 others.
    assert_eq!((newest.more, newest.more_unread), (1050, true));
    assert_eq!((search(900).more, search(900).more_unread), (1000, true));
    assert_eq!((search(1000).more, search(1000).more_unread), (1000, false));
}

/// Rows of a database, as the scribe writes them.
#[test]
fn rows_are_searched_like_lines() {
    use agents::scribe::{Scribe, write_rows};
    let folder = tempfile::tempdir().unwrap();
    write_rows(
        folder.path(),
        "c1",
        &["u k1 1000 hello Proxy", "a k2 2000 1 2 the proxy is fine", "u k3 3000 bye"],
    );
    let hits = search_in(&Scribe, "SCRIBE_HOME", folder.path(), &query(&["PROXY"])).hits;
    let texts: Vec<(Role, &str)> = hits.iter().map(|hit| (hit.role, hit.text.as_str())).collect();
    assert_eq!(texts, [(Role::Assistant, "the proxy is fine"), (Role::User, "hello Proxy")]);
}
