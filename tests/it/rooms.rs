//! The rooms of the house and who may ask whom: read from the sources, tests left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the top to the ground: a room uses those below it, and none above. (The walls between crates are the compiler's.)
const ROOMS: &[&str] = &[
    "main",
    "cmd",
    "cli",
    "doctor",
    "mcp",
    "host",
    "mirror",
    "report",
    "launch",
    "proxy",
    "track",
    "remote",
    "live",
    "forward",
    "search",
    "scan",
    "registry",
    "demo",
    "agent",
    "budget",
    "session",
    "store",
    "meter",
    "shim",
    "config",
    "fullscreen",
    "output",
    "detached",
    "log",
    "project",
    "home",
    "short",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What is compiled into the program: without items under `#[cfg(test)]`, comments and strings' lines that are comments.
fn without_tests(source: &str) -> String {
    let mut kept = String::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        if code.starts_with("#[cfg(test)]") {
            let indent = line.len() - code.len();
            // The item: up to a line that ends it at the same depth.
            for item in lines.by_ref() {
                let depth = item.len() - item.trim_start().len();
                let last = item.trim_end();
                if depth == indent
                    && (last.ends_with(';') || last.ends_with('}'))
                    && !last.trim_start().starts_with("#[")
                {
                    break;
                }
            }
            continue;
        }
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

/// The rooms that a source names as `crate::room`, or in `use crate::{room, …}`.
fn named(source: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    let mut rest = source;
    while let Some(at) = rest.find("crate::") {
        let inside =
            rest[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$');
        rest = &rest[at + "crate::".len()..];
        if inside {
            continue;
        }
        let name = |text: &str| -> String {
            text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        if let Some(list) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut part = String::new();
            for letter in list.chars() {
                match letter {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        rooms.insert(name(part.trim()));
                        part.clear();
                        continue;
                    }
                    _ => {}
                }
                part.push(letter);
            }
            rooms.insert(name(part.trim()));
        } else {
            rooms.insert(name(rest));
        }
    }
    rooms.remove("");
    rooms
}

/// For each room the rooms it names, and a file that does.
fn matrix() -> BTreeMap<String, BTreeMap<String, String>> {
    let src = root().join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    assert!(files.len() > 100, "the sources are not where they were");
    let mut matrix: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for file in files {
        let path = file.strip_prefix(&src).unwrap();
        let text = path.display().to_string();
        if text.contains("tests/")
            || text.ends_with("tests.rs")
            || text.ends_with("recordings.rs")
            || text.ends_with("scribe.rs")
        {
            continue;
        }
        let first = path.components().next().unwrap().as_os_str().to_str().unwrap();
        let room = first.trim_end_matches(".rs").to_owned();
        if room == "lib" {
            continue;
        }
        let row = matrix.entry(room.clone()).or_default();
        for other in named(&without_tests(&fs::read_to_string(&file).unwrap())) {
            if other != room {
                row.entry(other).or_insert_with(|| text.clone());
            }
        }
    }
    matrix
}

#[test]
fn every_room_uses_only_rooms_below_it() {
    let place = |room: &str| ROOMS.iter().position(|known| *known == room);
    let mut against = Vec::new();
    for (room, row) in matrix() {
        let Some(here) = place(&room) else {
            against.push(format!("{room} has no place in ROOMS"));
            continue;
        };
        for (other, file) in row {
            match place(&other) {
                Some(there) if there > here => {}
                Some(_) => against.push(format!("{room} uses {other}, which is above it: {file}")),
                // A macro or a constant of the crate's root.
                None => against.push(format!("{room} names {other}, which is no room: {file}")),
            }
        }
    }
    assert_eq!(against, [""; 0], "see the picture of the rooms in ARCHITECTURE.md");
}

#[test]
fn crates_depend_on_no_more_than_they_declare_here() {
    let allowed: &[(&str, &[&str])] = &[
        ("testing", &[]),
        ("types", &[]),
        ("os", &["testing", "types"]),
        ("human", &["types"]),
        ("pricing", &["human", "types"]),
        ("pty", &["os", "testing", "types"]),
        ("relay", &["os", "pricing", "types"]),
        ("backend", &["human", "os", "pricing", "types"]),
    ];
    let names: Vec<&str> = allowed.iter().map(|(name, _)| *name).collect();
    let mut found: Vec<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort_unstable();
    let mut declared: Vec<&str> = names.clone();
    declared.sort_unstable();
    assert_eq!(found, declared);
    for (name, may) in allowed {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let uses: Vec<&str> = manifest
            .lines()
            .filter_map(|line| line.split_once(" = ").map(|(dependency, _)| dependency))
            .filter(|dependency| names.contains(dependency) || *dependency == "codemie")
            .collect();
        assert!(uses.iter().all(|one| may.contains(one)), "{name} depends on {uses:?}, may on {may:?}");
    }
}

#[test]
fn the_reader_of_sources_sees_lists_paths_and_no_tests() {
    let source = "use crate::{agent, store::{self, Tx}};\nfn f() { crate::track::go(); $crate::no(); }\n// crate::comment\n\
                  #[cfg(test)]\nmod tests {\n    use crate::demo;\n}\n#[cfg(test)]\nuse crate::scan;\nuse crate::home;\n";
    let rooms: Vec<String> = named(&without_tests(source)).into_iter().collect();
    assert_eq!(rooms, ["agent", "home", "store", "track"]);
}
