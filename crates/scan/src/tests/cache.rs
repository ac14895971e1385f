//! What a scan remembers for the next one, and what makes it invalid.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

fn append(path: &Path, line: &str) {
    let mut file = fs::File::options().append(true).open(path).unwrap();
    writeln!(file, "{line}").unwrap();
}

/// Makes every file unreadable: reading one fails the test.
fn close(stage: &Stage, mode: u32) {
    for file in trees::files(&stage.root()) {
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// The state that a scan with nothing to do must not change.
fn cache(stage: &Stage) -> Vec<(PathBuf, u64, i64)> {
    let files = trees::files(&stage.memory()).into_iter().filter(|path| !path.ends_with("lock"));
    files
        .map(|path| {
            let meta = fs::metadata(&path).unwrap();
            (path, meta.ino(), meta.mtime_nsec())
        })
        .collect()
}

#[test]
fn an_unchanged_tree_is_neither_read_nor_written() {
    let stage = Stage::new();
    stage.put("a.jsonl", &[answer("m1", "a", 10)]);
    stage.put("empty.jsonl", &[]);
    assert_eq!(stage.sessions()["a"], 10);
    let before = cache(&stage);
    assert_eq!(before.len(), 2);
    // The roll-ups answer: the calls may be missing.
    for by in [By::Day, By::Session, By::Model, By::Project, By::Agent, By::Branch] {
        let scanned = stage.scan();
        assert_eq!(outputs(&scanned, by).into_values().collect::<Vec<_>>(), [10], "{by}");
        assert_eq!(scanned.files(), 2);
    }
    assert_eq!(cache(&stage), before);
}

#[test]
fn every_table_has_its_keys() {
    let stage = Stage::new();
    stage.put("a.jsonl", &[answer("m1", "a", 10)]);
    let named = [By::Day, By::Week, By::Month, By::Session, By::Model, By::Project, By::Agent, By::Branch];
    let keys = named.map(|by| key(&stage.scan().rows(by)[0]));
    let days = ["2026-11-15", "2026-W46", "2026-11"];
    assert_eq!(keys[..3], days);
    assert_eq!(keys[3..], ["a", "claude-opus-4-8", "widgets", "claude", "main"]);
    // A foreign conversation has neither chain nor tags, and nobody looked at its commits.
    for by in [By::Chain, By::Root, By::Commit, By::Tag, By::Group] {
        assert_eq!(stage.scan().rows(by)[0].key, None, "{by}");
    }
}

#[test]
fn hours_and_other_zones_are_added_up_from_the_calls() {
    let stage = Stage::new();
    let at =
        |at: &'static str, id: &'static str, output| Answer { id, output, at, ..Answer::default() }.line();
    stage.put(
        "s.jsonl",
        &[
            at("2026-11-15T22:10:00.000Z", "m1", 1),
            at("2026-11-15T22:50:00.000Z", "m2", 2),
            at("2026-11-15T23:05:00.000Z", "m3", 4),
        ],
    );
    let root: OsString = stage.root().into();
    let scanner = Scanner {
        folder: stage.memory(),
        agents: &AGENTS,
        var: &|name| (name == "CLAUDE_CONFIG_DIR").then(|| root.clone()),
        days: Days::of(TimeZone::UTC),
        prices: &pricing::PriceList::default(),
        watch: None,
    };
    let scanned = |zone: &str, hours, until: &str| {
        let clock = LocalClock::of(TimeZone::posix(zone).unwrap());
        let span = Span { since: None, until: Timestamp::parse(until) };
        let scanned = scanner.scan_by(None, span, &clock, hours).unwrap();
        outputs(&scanned, if hours { By::Hour } else { By::Day }).into_iter().collect::<Vec<_>>()
    };
    let row = |key: &str, output| (key.to_owned(), output);
    for _ in 0..2 {
        assert_eq!(scanned("UTC0", true, ""), [row("2026-11-15T22", 3), row("2026-11-15T23", 4)]);
        assert_eq!(scanned("UTC0", false, ""), [row("2026-11-15", 7)]);
        assert_eq!(scanned("CET-1", false, ""), [row("2026-11-15", 3), row("2026-11-16", 4)]);
        let nepal = [row("2026-11-16T03", 1), row("2026-11-16T04", 6)];
        assert_eq!(scanned("<+0545>-5:45", true, ""), nepal);
        assert_eq!(scanned("UTC0", false, "2026-11-15T22:50:00Z"), [row("2026-11-15", 1)]);
        assert_eq!(scanned("UTC0", true, "2026-11-15T23:00:00Z"), [row("2026-11-15T22", 3)]);
    }
}

#[test]
fn a_file_that_grows_is_read_from_where_it_was() {
    let stage = Stage::new();
    let path = stage.put("a.jsonl", &[answer("m1", "a", 10)]);
    stage.put("b.jsonl", &[answer("m1", "b", 10)]);
    assert_eq!(stage.sessions(), BTreeMap::from([("a".into(), 10)]));
    // The beginning now holds other values of the same length, which would show if it were read again.
    let changed = fs::read_to_string(&path).unwrap().replace("\"m1\"", "\"mX\"");
    let file = fs::File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, changed.as_bytes(), 0).unwrap();
    append(&path, &answer("m2", "a", 20));
    assert_eq!(stage.sessions(), BTreeMap::from([("a".into(), 30)]));
}

#[test]
fn a_later_revision_in_a_later_scan_takes_the_place_of_the_earlier() {
    let stage = Stage::new();
    let path = stage.put("a.jsonl", &[answer("m1", "a", 10)]);
    stage.sessions();
    append(&path, &answer("m1", "a", 70));
    append(&path, &answer("m1", "a", 30));
    assert_eq!(stage.sessions()["a"], 70);
}

#[test]
fn a_truncated_or_replaced_file_is_read_again_and_its_old_calls_stay_counted() {
    let stage = Stage::new();
    let path = stage.put("a.jsonl", &[answer("m1", "a", 10), answer("m2", "a", 20)]);
    stage.sessions();
    fs::write(&path, answer("m3", "a", 40) + "\n").unwrap();
    assert_eq!(stage.sessions()["a"], 70, "shorter");
    let other = stage.file("a.new");
    fs::write(&other, format!("{}\n{}\n", answer("m3", "a", 40), answer("m4", "a", 80))).unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(stage.sessions()["a"], 150, "another in its place");
    let longer =
        [answer("m4", "a", 80), answer("m5", "a", 160), answer("m6", "a", 320), answer("m7", "a", 0)];
    stage.put("a.jsonl", &longer);
    assert_eq!(stage.sessions()["a"], 630, "the same inode, longer, other content");
}

#[test]
fn a_file_that_is_rewritten_many_times_leaves_no_closed_entries_behind() {
    let stage = Stage::new();
    for round in 0..20 {
        let lines: Vec<_> = (0..=round).map(|n| answer(&format!("m{n}"), "a", 1)).collect();
        let draft = stage.put("a.draft", &lines);
        fs::rename(draft, stage.file("a.jsonl")).unwrap();
        assert_eq!(stage.sessions()["a"], round + 1);
    }
    let scanned = stage.scan();
    assert!(scanned.index.files.iter().flatten().count() <= 2, "{:?}", scanned.index.files);
    let calls = fs::metadata(stage.memory().join(&scanned.index.calls.unwrap().0)).unwrap().len();
    assert!(calls < 2 * 20 * 40, "{calls}");
}

#[test]
fn a_deleted_file_stays_counted_when_its_inode_is_reused() {
    let stage = Stage::new();
    let path = stage.put("a.jsonl", &[answer("m1", "a", 10)]);
    stage.put("b.jsonl", &[answer("m2", "b", 20)]);
    stage.sessions();
    fs::remove_file(&path).unwrap();
    // On many file systems this gets the same inode.
    stage.put("c.jsonl", &[answer("m3", "c", 40), answer("m4", "c", 80)]);
    let expected = BTreeMap::from([("a".into(), 10), ("b".into(), 20), ("c".into(), 120)]);
    let scanned = stage.scan();
    assert_eq!((outputs(&scanned, By::Session), scanned.files()), (expected.clone(), 2));
    stage.put("a.jsonl", &[answer("m1", "a", 10)]);
    assert_eq!(stage.sessions(), expected, "it is back");
}

#[test]
fn a_moved_file_is_the_same_file() {
    let stage = Stage::new();
    let path = stage.put("a.jsonl", &[answer("m1", "a", 10)]);
    stage.sessions();
    let elsewhere = stage.root().join("projects/-q/a.jsonl");
    fs::create_dir_all(elsewhere.parent().unwrap()).unwrap();
    fs::rename(path, &elsewhere).unwrap();
    let scanned = stage.scan();
    assert_eq!((outputs(&scanned, By::Session)["a"], scanned.files()), (10, 1));
    append(&elsewhere, &answer("m2", "a", 20));
    assert_eq!(stage.sessions()["a"], 30);
}

#[test]
fn links_to_one_file_are_one_file() {
    let stage = Stage::new();
    let path = stage.put("a.jsonl", &[answer("m1", "a", 10)]);
    fs::hard_link(&path, stage.file("b.jsonl")).unwrap();
    std::os::unix::fs::symlink(stage.root().join("projects/-p"), stage.root().join("projects/-q")).unwrap();
    for _ in 0..2 {
        let scanned = stage.scan();
        assert_eq!((outputs(&scanned, By::Agent)["claude"], scanned.files()), (10, 1));
    }
}

#[test]
fn another_root_shows_other_files_and_forgets_none() {
    let (one, two) = (Stage::new(), Stage::new());
    one.put("a.jsonl", &[answer("m1", "a", 10)]);
    let gone = one.put("b.jsonl", &[answer("m2", "b", 20)]);
    two.put("c.jsonl", &[answer("m1", "c", 10), answer("m9", "c", 1)]);
    let memory = one.memory();
    let seen = |stage: &Stage| outputs(&scan(&stage.root(), &memory, None, None), By::Session);
    let of_one = BTreeMap::from([("a".into(), 10), ("b".into(), 20)]);
    assert_eq!(seen(&one), of_one);
    fs::remove_file(gone).unwrap();
    assert_eq!(
        seen(&two),
        BTreeMap::from([("c".into(), 11)]),
        "the same call, in the one file that is in view"
    );
    assert_eq!(seen(&one), of_one);
}

#[test]
fn another_time_zone_changes_the_days() {
    let stage = Stage::new();
    let late = Answer { at: "2026-11-15T23:30:00.000Z", ..Answer::default() }.line();
    stage.put("a.jsonl", &[late]);
    for (zone, day) in [("UTC0", "2026-11-15"), ("CET-1", "2026-11-16"), ("UTC0", "2026-11-15")] {
        let zone = TimeZone::posix(zone).unwrap();
        let scanned = in_zone(&stage.root(), &stage.memory(), None, None, zone);
        assert_eq!(key(&scanned.rows(By::Day)[0]), day);
    }
}

#[test]
fn a_new_price_table_changes_the_costs() {
    let stage = Stage::new();
    stage.put("a.jsonl", &[answer("m1", "a", 10)]);
    let cost = stage.scan().rows(By::Agent)[0].sums.cost;
    let path = stage.memory().join("index");
    let mut index = Index::load(&path).unwrap();
    index.basis.prices -= 1;
    index.daily[0].sums.calls.cost.0 = 7;
    index.save(&path).unwrap();
    assert_eq!(stage.scan().rows(By::Agent)[0].sums.cost, cost, "made with an earlier table");
}

#[test]
fn since_may_cut_within_a_day() {
    let stage = Stage::new();
    let at =
        |at: &'static str, id: &'static str, output| Answer { id, output, at, ..Answer::default() }.line();
    let path = stage.put(
        "s.jsonl",
        &[
            at("2026-11-14T10:00:00.000Z", "m1", 1),
            at("2026-11-15T10:00:00.000Z", "m2", 2),
            at("2026-11-15T12:00:00.000Z", "m3", 4),
            at("2026-11-16T00:00:00.000Z", "m4", 8),
        ],
    );
    let since = |text: &str| {
        let since = Timestamp::parse(text).unwrap();
        outputs(&stage.scan_with(None, Some(since)), By::Agent).get("claude").copied().unwrap_or(0)
    };
    for _ in 0..2 {
        for (from, expected) in [
            ("2026-11-01T00:00:00Z", 15),
            ("2026-11-15T00:00:00Z", 14),
            ("2026-11-15T10:00:00Z", 14),
            ("2026-11-15T10:00:00.001Z", 12),
            ("2026-11-15T12:00:00.001Z", 8),
            ("2026-11-16T00:00:00.001Z", 0),
        ] {
            assert_eq!(since(from), expected, "{from}");
        }
        append(&path, ""); // the second time with something to read
    }
}

#[test]
fn a_damaged_cache_is_rebuilt_with_the_same_numbers() {
    let stage = Stage::new();
    let path = stage.put("a.jsonl", &[answer("m1", "a", 10), answer("m2", "a", 20)]);
    stage.sessions();
    let calls = || {
        trees::files(&stage.memory())
            .into_iter()
            .find(|path| path.to_str().unwrap().contains("calls-"))
            .unwrap()
    };
    let breaks: [&dyn Fn(); 7] = [
        &|| fs::write(stage.memory().join("index"), "").unwrap(),
        &|| fs::write(stage.memory().join("index"), "codemie scan\nrubbish").unwrap(),
        &|| fs::remove_file(stage.memory().join("index")).unwrap(),
        &|| fs::write(calls(), "").unwrap(),
        &|| fs::remove_file(calls()).unwrap(),
        &|| {
            let mut bytes = fs::read(calls()).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(calls(), bytes).unwrap();
        },
        &|| fs::write(stage.memory().join("calls-left-behind"), "x").unwrap(),
    ];
    for (number, harm) in breaks.iter().enumerate() {
        harm();
        append(&path, &answer("m1", "a", 10));
        assert_eq!(stage.sessions()["a"], 30, "{number}");
        assert_eq!(cache(&stage).len(), 2, "{number}: {:?}", cache(&stage));
    }
    // Nothing to read, and the calls are needed: half a day was asked for.
    fs::remove_file(calls()).unwrap();
    let since = Timestamp::parse("2026-11-15T09:00:00Z").unwrap();
    assert_eq!(outputs(&stage.scan_with(None, Some(since)), By::Session)["a"], 30);
}

#[test]
fn a_scan_that_cannot_save_still_counts() {
    let stage = Stage::new();
    stage.put("a.jsonl", &[answer("m1", "a", 10)]);
    fs::create_dir_all(stage.memory().parent().unwrap()).unwrap();
    fs::write(stage.memory(), "a file where a folder should be").unwrap();
    let scanned = stage.scan();
    assert_eq!(outputs(&scanned, By::Session)["a"], 10);
    assert!(scanned.unsaved.is_some());
}

#[test]
fn a_file_without_permission_is_reported_and_the_others_counted() {
    testing::as_ordinary_user(|| {
        let stage = Stage::new();
        stage.put("a.jsonl", &[answer("m1", "a", 10)]);
        close(&stage, 0);
        let scanned = stage.scan();
        assert_eq!((scanned.rows(By::Agent).len(), scanned.refused.len()), (0, 1));
        close(&stage, 0o600);
        assert_eq!(stage.sessions()["a"], 10);
    });
}

#[test]
fn no_files_are_no_error() {
    let stage = Stage::new();
    fs::remove_dir_all(stage.root()).unwrap();
    for _ in 0..2 {
        let scanned = stage.scan();
        assert_eq!((scanned.rows(By::Day), scanned.files()), (Vec::new(), 0));
    }
}

#[test]
fn two_scans_at_once_change_nothing() {
    let stage = Stage::new();
    let plan = trees::Plan { seed: 3, bytes: 2_000_000, session_bytes: 100_000 };
    let truth = trees::make(&stage.root(), plan).unwrap();
    for round in 0..3 {
        std::thread::scope(|scope| {
            let scans: Vec<_> =
                (0..4).map(|_| scope.spawn(|| counts(&stage.scan().rows(By::Session)))).collect();
            for scan in scans {
                assert_eq!(scan.join().unwrap(), truth.sessions, "{round}");
            }
        });
        if round == 1 {
            stage.forget();
        }
    }
    assert_eq!(cache(&stage).len(), 2, "{:?}", cache(&stage));
}

#[test]
fn new_readers_read_every_file_again_and_keep_deleted_ones() {
    let stage = Stage::new();
    let gone = stage.put("gone.jsonl", &[answer("m1", "gone", 5)]);
    stage.put("here.jsonl", &[answer("m2", "here", 7)]);
    stage.scan();
    fs::remove_file(gone).unwrap();
    stage.scan();
    let path = stage.memory().join("index");
    Index::load(&path).unwrap().save_as_before(&path).unwrap();
    let expected = BTreeMap::from([("gone".to_owned(), 5), ("here".to_owned(), 7)]);
    for _ in 0..2 {
        assert_eq!(stage.sessions(), expected);
    }
    let index = Index::load(&path).unwrap();
    let open = index.files.iter().flatten().filter(|file| !file.closed).count();
    assert_eq!((index.files.iter().flatten().count(), open), (2, 1), "read again, and no file is kept twice");
}

#[test]
fn calls_that_only_an_earlier_reader_found_no_longer_count() {
    let stage = Stage::new();
    let path = stage.put("here.jsonl", &[answer("m1", "here", 5), answer("m2", "here", 7)]);
    stage.scan();
    let index = stage.memory().join("index");
    Index::load(&index).unwrap().save_as_before(&index).unwrap();
    // For a reader that recognises the second line as a copy.
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{}\n", text.lines().next().unwrap())).unwrap();
    for _ in 0..2 {
        assert_eq!(stage.sessions(), BTreeMap::from([("here".to_owned(), 5)]));
    }
}

#[test]
fn a_file_overwritten_with_the_same_length_and_time_is_read_again() {
    let stage = Stage::new();
    let path = stage.put("a.jsonl", &[answer("m1", "a", 5)]);
    assert_eq!(stage.sessions(), BTreeMap::from([("a".to_owned(), 5)]));
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"output_tokens\":5", "\"output_tokens\":7")).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    assert_eq!(stage.sessions(), BTreeMap::from([("a".to_owned(), 7)]));
}
