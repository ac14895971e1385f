//! One call as one file records it: the entry of the cache, sorted by key.

use super::bytes::{Bytes, put, put_bytes, put_signed};
use super::hash::hash;
use super::strings::StringId;
use agents::meter::record::LONGEST_KEY;
use pricing::tier::Tier;
use types::Timestamp;
use types::Tokens;

/// A file by its number in the index.
pub(super) type FileNo = u32;

/// Not a file: the key is owned by a session of the store.
pub(super) const STORE: FileNo = FileNo::MAX;

/// Above the bits of a file's number and the two below it.
const TIER_AT: u32 = FileNo::BITS + 2;

/// No encoded call is longer: the key, and sixteen numbers of at most ten bytes.
pub(super) const LONGEST: usize = LONGEST_KEY + 16 * 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call<'a> {
    /// Of agent and key: calls are sorted by it, then by key and file.
    pub(super) hash: u64,
    pub(super) key: &'a [u8],
    pub(super) sighting: Sighting,
}

/// A call as one file records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    pub(super) file: FileNo,
    pub(super) at: Timestamp,
    pub(super) copied: bool,
    pub(super) tier: Tier,
    pub(super) model: StringId,
    pub(super) subagent: StringId,
    pub(super) tokens: Tokens,
}

/// Keys are unique within an agent, so the hash is of both.
pub(super) fn key_hash(agent: u64, key: &[u8]) -> u64 {
    hash(agent, key)
}

impl Sighting {
    /// Another line of the same call. The earliest time counts, whatever the order of reading; a call is a copy only if
    /// every line of it is marked as one.
    pub(super) fn revise(&mut self, later: &Self) {
        if later.tokens.supersedes(&self.tokens) {
            (self.tokens, self.model, self.tier) = (later.tokens, later.model, later.tier);
        }
        self.at = earlier(self.at, later.at);
        self.copied &= later.copied;
    }
}

/// The earlier of two times; zero is no time.
pub(super) fn earlier(a: Timestamp, b: Timestamp) -> Timestamp {
    match (a.0, b.0) {
        (0, _) => b,
        (_, 0) => a,
        _ => a.min(b),
    }
}

impl<'a> Call<'a> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let Sighting { file, at, copied, tier, model, subagent, tokens } = &self.sighting;
        out.extend_from_slice(&self.hash.to_le_bytes());
        put_bytes(out, self.key);
        // The tier's lowest bit is below the file's number and the others above it: calls that were written when standard
        // and fast were all the tiers keep their meaning, also those of deleted files.
        let tier = u64::from(tier.number());
        put(out, tier >> 1 << TIER_AT | u64::from(*file) << 2 | u64::from(*copied) << 1 | tier & 1);
        put_signed(out, at.0);
        put(out, u64::from(model.0));
        put(out, u64::from(subagent.0));
        for count in [
            tokens.input,
            tokens.output,
            tokens.cache_read,
            tokens.cache_write_5m,
            tokens.cache_write_1h,
            tokens.reasoning,
        ] {
            put(out, count);
        }
    }

    /// The call at the beginning of `bytes`, and how long it is.
    pub(super) fn read(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let mut rest = Bytes(bytes);
        let hash = rest.fixed()?;
        let key = rest.bytes().filter(|key| key.len() <= LONGEST_KEY)?;
        let file = rest.number()?;
        let sighting = Sighting {
            file: FileNo::try_from(file >> 2 & u64::from(FileNo::MAX)).ok()?,
            copied: file & 2 != 0,
            tier: Tier::numbered(file >> TIER_AT << 1 | file & 1),
            at: Timestamp(rest.signed()?),
            model: StringId(rest.small()?),
            subagent: StringId(rest.small()?),
            tokens: Tokens {
                input: rest.number()?,
                output: rest.number()?,
                cache_read: rest.number()?,
                cache_write_5m: rest.number()?,
                cache_write_1h: rest.number()?,
                reasoning: rest.number()?,
            },
        };
        Some((Self { hash, key, sighting }, bytes.len() - rest.0.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn sighting(file: FileNo, at: i64, output: u64, copied: bool) -> Sighting {
        let tokens = Tokens { output, ..Tokens::default() };
        Sighting {
            file,
            at: Timestamp(at),
            copied,
            tier: Tier::Standard,
            model: StringId(1),
            subagent: StringId(0),
            tokens,
        }
    }

    #[test]
    fn a_written_call_is_read() {
        let big = Tokens {
            input: u64::MAX,
            output: 1,
            cache_read: u64::MAX,
            cache_write_5m: u64::MAX,
            cache_write_1h: u64::MAX,
            reasoning: u64::MAX,
        };
        let key = vec![b'k'; LONGEST_KEY];
        for tier in Tier::ALL {
            let sighting = Sighting {
                tokens: big,
                tier,
                model: StringId(u32::MAX),
                ..sighting(STORE, i64::MIN, 0, true)
            };
            let call = Call { hash: u64::MAX, key: &key, sighting };
            let mut out = Vec::new();
            call.write(&mut out);
            assert!(out.len() <= LONGEST);
            assert_eq!(Call::read(&out), Some((call, out.len())));
            for torn in 0..out.len() {
                assert_eq!(Call::read(&out[..torn]), None);
            }
        }
    }

    #[test]
    fn calls_written_before_there_were_other_tiers_than_fast_are_read() {
        for (fast, tier) in [(0, Tier::Standard), (1, Tier::Fast)] {
            let mut out = 7_u64.to_le_bytes().to_vec();
            put_bytes(&mut out, b"key");
            put(&mut out, u64::from(STORE) << 2 | fast);
            out.extend([0; 9]);
            let (call, _) = Call::read(&out).unwrap();
            assert_eq!((call.sighting.file, call.sighting.copied, call.sighting.tier), (STORE, false, tier));
        }
    }

    #[test]
    fn lines_of_one_call_are_combined_in_any_order() {
        let lines = [sighting(1, 30, 5, true), sighting(1, 0, 9, true), sighting(1, 20, 7, false)];
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let mut call = lines[order[0]];
            call.revise(&lines[order[1]]);
            call.revise(&lines[order[2]]);
            assert_eq!((call.at, call.tokens.output, call.copied), (Timestamp(20), 9, false), "{order:?}");
        }
    }
}
