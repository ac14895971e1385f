//! Merges sorted runs: every call once, with its sightings in all files.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use super::call::Sighting;
use super::run::{Reader, damaged};

/// One call with its sightings, one per file, in the order of the files' numbers.
#[derive(Debug)]
pub(super) struct Group<'a> {
    pub(super) hash: u64,
    pub(super) key: &'a [u8],
    pub(super) sightings: &'a [Sighting],
}

/// Goes through the runs in order. The sightings of one file in several runs become one.
pub(super) fn merge(
    mut runs: Vec<Reader>,
    mut each: impl FnMut(&Group<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut heads = BinaryHeap::with_capacity(runs.len());
    for (number, run) in runs.iter_mut().enumerate() {
        if let Some((call, _)) = run.peek()? {
            heads.push(Reverse((call.hash, number)));
        }
    }
    let mut same = SameHash::default();
    while let Some(&Reverse((hash, _))) = heads.peek() {
        same.clear();
        while let Some(mut head) = heads.peek_mut().filter(|head| head.0.0 == hash) {
            let run = &mut runs[head.0.1];
            let next = loop {
                let Some((call, length)) = run.peek()? else { break None };
                if call.hash != hash {
                    break Some(call.hash);
                }
                same.add(call.key, call.sighting);
                run.pass(length);
            };
            match next {
                // A run that is not in order is damaged; reading on would count its keys twice.
                Some(next) if next < hash => {
                    return Err(damaged("the cache is not in order"));
                }
                Some(next) => head.0.0 = next,
                None => drop(std::collections::binary_heap::PeekMut::pop(head)),
            }
        }
        same.each(hash, &mut each)?;
    }
    Ok(())
}

/// Everything under one hash: nearly always one key.
#[derive(Debug, Default)]
struct SameHash {
    keys: Vec<u8>,
    calls: Vec<(usize, usize, Sighting)>,
    sightings: Vec<Sighting>,
}

impl SameHash {
    fn clear(&mut self) {
        self.keys.clear();
        self.calls.clear();
    }

    fn add(&mut self, key: &[u8], sighting: Sighting) {
        let (start, end) = match self.calls.last() {
            Some(&(start, end, _)) if &self.keys[start..end] == key => (start, end),
            _ => {
                self.keys.extend_from_slice(key);
                (self.keys.len() - key.len(), self.keys.len())
            }
        };
        self.calls.push((start, end, sighting));
    }

    fn each(&mut self, hash: u64, each: &mut impl FnMut(&Group<'_>) -> io::Result<()>) -> io::Result<()> {
        let Self { keys, calls, sightings } = self;
        // Stable: lines of one file stay in the order of reading.
        calls.sort_by(|a, b| keys[a.0..a.1].cmp(&keys[b.0..b.1]).then(a.2.file.cmp(&b.2.file)));
        for of_key in calls.chunk_by(|a, b| keys[a.0..a.1] == keys[b.0..b.1]) {
            sightings.clear();
            for (_, _, more) in of_key {
                match sightings.last_mut() {
                    Some(last) if last.file == more.file => last.revise(more),
                    _ => sightings.push(*more),
                }
            }
            each(&Group { hash, key: &keys[of_key[0].0..of_key[0].1], sightings })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::call::Call;
    use crate::spill::{Buffer, Spill};
    use crate::strings::StringId;
    use pricing::tier::Tier;
    use types::Timestamp;
    use types::Tokens;

    fn sighting(file: u32, output: u64) -> Sighting {
        let tokens = Tokens { output, ..Tokens::default() };
        let (at, model, subagent) = (Timestamp(1), StringId(0), StringId(0));
        Sighting { file, at, copied: false, tier: Tier::Standard, model, subagent, tokens }
    }

    fn run(folder: &Path, calls: &[(u64, &str, u32, u64)]) -> Reader {
        let mut buffer = Buffer::new();
        for &(hash, key, file, output) in calls {
            buffer.add(&Call { hash, key: key.as_bytes(), sighting: sighting(file, output) });
        }
        let mut spill = Spill::in_folder(folder);
        spill.take(&mut buffer).unwrap();
        Reader::new(spill.runs.remove(0))
    }

    /// Hash, key, and the output in each file.
    type Merged = (u64, String, Vec<(u32, u64)>);

    fn merged(runs: Vec<Reader>) -> Vec<Merged> {
        let mut all = Vec::new();
        merge(runs, |group| {
            let sighting =
                group.sightings.iter().map(|sighting| (sighting.file, sighting.tokens.output)).collect();
            all.push((group.hash, String::from_utf8(group.key.to_vec()).unwrap(), sighting));
            Ok(())
        })
        .unwrap();
        all
    }

    #[test]
    fn every_key_comes_once_with_all_its_files() {
        let folder = tempfile::tempdir().unwrap();
        // In a missing folder runs stay in memory.
        for folder in [folder.path(), &folder.path().join("nowhere")] {
            let one = run(folder, &[(9, "z", 1, 5), (3, "a", 1, 1), (3, "a", 1, 4), (3, "b", 1, 2)]);
            let two = run(folder, &[(3, "a", 2, 9), (3, "b", 1, 7), (4, "c", 2, 1)]);
            let three = run(folder, &[(3, "a", 1, 3)]);
            assert_eq!(
                merged(vec![one, two, three]),
                [
                    (3, "a".into(), vec![(1, 4), (2, 9)]),
                    (3, "b".into(), vec![(1, 7)]),
                    (4, "c".into(), vec![(2, 1)]),
                    (9, "z".into(), vec![(1, 5)]),
                ]
            );
        }
        assert!(merged(Vec::new()).is_empty());
    }

    #[test]
    fn too_many_runs_are_merged() {
        let folder = tempfile::tempdir().unwrap();
        let mut spill = Spill::in_folder(folder.path());
        let mut buffer = Buffer::new();
        for round in 0..150_u64 {
            buffer.add(&Call { hash: round % 7, key: b"k", sighting: sighting(1, round) });
            buffer.add(&Call { hash: 100 + round, key: b"k", sighting: sighting(2, round) });
            spill.take(&mut buffer).unwrap();
        }
        assert!(spill.runs.len() < 70, "{}", spill.runs.len());
        let all = merged(spill.runs.into_iter().map(Reader::new).collect());
        assert_eq!(all.len(), 157);
        assert_eq!(all[6], (6, "k".into(), vec![(1, 146)]), "the largest of all rounds");
    }

    #[test]
    fn long_runs_are_read_piece_by_piece() {
        let folder = tempfile::tempdir().unwrap();
        let keys: Vec<String> = (0..5000).map(|n| format!("key-{n:05}")).collect();
        let runs = (0..3_u32)
            .map(|file| {
                let calls: Vec<_> = keys
                    .iter()
                    .zip(0..)
                    .skip(file as usize)
                    .step_by(2)
                    .map(|(key, n)| (n, key.as_str(), file, n))
                    .collect();
                run(folder.path(), &calls)
            })
            .collect();
        let all = merged(runs);
        assert_eq!(all.len(), 5000);
        assert!(all.iter().zip(0..).all(|((hash, key, sighting), n)| {
            *hash == n
                && *key == keys[usize::try_from(n).unwrap()]
                && sighting.iter().all(|sighting| sighting.1 == n)
        }));
        assert_eq!(all.iter().map(|(_, _, sighting)| sighting.len()).sum::<usize>(), 2500 + 2500 + 2499);
    }
}
