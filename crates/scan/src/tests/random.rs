//! Generated trees with every known difficulty, against their known content: at once, growing, and with a scan that is killed
//! between any two steps.

use super::trees::{Plan, Truth};
use super::*;

fn check(scanned: &Scanned, truth: &Truth, what: &str) {
    for (by, expected) in [
        (By::Session, &truth.sessions),
        (By::Model, &truth.models),
        (By::Day, &truth.days),
        (By::Project, &truth.projects),
        (By::Branch, &truth.branches),
        (By::Agent, &BTreeMap::from([("claude".to_owned(), truth.total)])),
    ] {
        assert_eq!(&counts(&scanned.rows(by)), expected, "{what}, by {by}");
    }
    let unreadable: u64 = scanned.unreadable().iter().map(|(_, lines)| lines).sum();
    assert_eq!((scanned.files() as u64, unreadable), (truth.files, truth.unreadable), "{what}");
}

#[test]
fn a_tree_read_at_once_sums_to_its_content() {
    for seed in 1..=3 {
        let stage = Stage::new();
        let truth =
            trees::make(&stage.root(), Plan { seed, bytes: 6_000_000, session_bytes: 150_000 }).unwrap();
        assert!(truth.files > 20 && truth.unreadable > 0 && truth.usage_lines > truth.total.calls);
        check(&stage.scan(), &truth, &format!("seed {seed}"));
        check(&stage.scan(), &truth, &format!("seed {seed} again"));
    }
}

#[test]
fn a_growing_tree_with_killed_scans_sums_to_its_content() {
    for seed in 11..=14 {
        let made = Stage::new();
        let truth =
            trees::make(&made.root(), Plan { seed, bytes: 1_500_000, session_bytes: 60_000 }).unwrap();
        let mut files: Vec<(PathBuf, Vec<u8>, usize)> = trees::files(&made.root())
            .into_iter()
            .map(|path| (path.strip_prefix(made.root()).unwrap().to_owned(), fs::read(&path).unwrap(), 0))
            .collect();
        let mut random = seed;
        let mut below = |limit: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % limit as u64).unwrap()
        };
        let stage = Stage::new();
        let mut saved: Option<Vec<(PathBuf, Vec<u8>)>> = None;
        while files.iter().any(|(_, data, shown)| shown < &data.len()) {
            for _ in 0..6 {
                let (path, data, shown) = &mut files[below(usize::MAX) % trees::files(&made.root()).len()];
                let more = (1 + below(60_000)).min(data.len() - *shown);
                let path = stage.root().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                let mut file = fs::File::options().append(true).create(true).open(path).unwrap();
                std::io::Write::write_all(&mut file, &data[*shown..*shown + more]).unwrap();
                *shown += more;
            }
            match below(5) {
                // A scan that was killed before it saved: the cache of the scan before is there.
                0 => {
                    let before: Vec<_> = trees::files(&stage.memory())
                        .into_iter()
                        .map(|path| (path.clone(), fs::read(path).unwrap()))
                        .collect();
                    saved = Some(before);
                    stage.scan();
                }
                1 => {
                    if let Some(saved) = saved.take() {
                        stage.forget();
                        for (path, bytes) in saved {
                            fs::create_dir_all(path.parent().unwrap()).unwrap();
                            fs::write(path, bytes).unwrap();
                        }
                    }
                }
                2 => {}
                _ => drop(stage.scan()),
            }
        }
        check(&stage.scan(), &truth, &format!("seed {seed}"));
        stage.forget();
        check(&stage.scan(), &truth, &format!("seed {seed}, all at once"));
    }
}
