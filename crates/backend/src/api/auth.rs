//! Authentication: a token, looked up by its hash, compared in constant time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};

use super::answer::Refusal;
use crate::storage::Storage;
use reader::token::{Role, Token, TokenHash};

/// How long a lookup is used. A revoked token is refused by every node after that.
const REMEMBERED_FOR: Duration = Duration::from_secs(2);
/// That many lookups that found nothing, and all that found a token.
const REMEMBERED: usize = 10_000;

/// The token that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    /// Any token.
    Any,
    Role(Role),
}

impl Need {
    pub(super) fn met_by(self, role: Role) -> bool {
        match self {
            Self::Nothing | Self::Any => true,
            Self::Role(needed) => role.covers(needed),
        }
    }
}

/// Checks the token of a request against those of the storage. Each lookup is remembered for a moment, also one that found none.
pub(super) struct Authenticator {
    storage: Arc<dyn Storage>,
    cache: LookupCache,
}

impl Authenticator {
    pub(super) fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, cache: LookupCache::default() }
    }

    /// The token that a request shows, if it is a good one.
    pub(super) async fn of(&self, headers: &HeaderMap) -> Result<Token, Refusal> {
        let hash = TokenHash::of(bearer(headers).ok_or(Refusal::NoToken)?);
        let Lookup(token) = if let Some(cached) = self.cache.get(hash, Instant::now()) {
            cached
        } else {
            let found = Lookup(self.storage.token(hash).await?);
            self.cache.put(hash, found.clone(), Instant::now());
            found
        };
        token.filter(|token| token.hash == hash && token.revoked_at.is_none()).ok_or(Refusal::NoToken)
    }
}

/// The token of a hash, or that there is none.
#[derive(Clone, Debug, PartialEq)]
struct Lookup(Option<Token>);

/// The last lookup of each hash, and when it was made.
#[derive(Default)]
struct LookupCache(Mutex<HashMap<[u8; 32], (Lookup, Instant)>>);

impl LookupCache {
    fn get(&self, hash: TokenHash, now: Instant) -> Option<Lookup> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (lookup, at) = known.get(&hash.0)?;
        (now.saturating_duration_since(*at) < REMEMBERED_FOR).then(|| lookup.clone())
    }

    /// Made-up tokens fill it, and are no longer remembered then; good ones still are.
    fn put(&self, hash: TokenHash, lookup: Lookup, now: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.retain(|_, (_, at)| now.saturating_duration_since(*at) < REMEMBERED_FOR);
        }
        if known.len() < REMEMBERED || lookup.0.is_some() {
            known.insert(hash.0, (lookup, now));
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reader::token::Owner;
    use types::Timestamp;

    fn token(name: &str) -> Token {
        Token {
            name: name.to_owned(),
            role: Role::Read,
            owner: Owner::default(),
            hash: TokenHash::of(name),
            created_at: Timestamp(0),
            revoked_at: None,
        }
    }

    #[test]
    fn lookups_are_remembered_for_a_moment_and_made_up_tokens_do_not_pile_up() {
        let (memory, start) = (LookupCache::default(), Instant::now());
        let (good, bad) = (TokenHash::of("good"), TokenHash::of("bad"));
        assert_eq!(memory.get(good, start), None);
        let known = Lookup(Some(token("good")));
        memory.put(good, known.clone(), start);
        memory.put(bad, Lookup(None), start);
        assert_eq!(memory.get(good, start), Some(known.clone()));
        assert_eq!(memory.get(bad, start), Some(Lookup(None)));
        let later = start + REMEMBERED_FOR;
        assert_eq!((memory.get(good, later), memory.get(bad, later)), (None, None));
        for number in 0..REMEMBERED + 100 {
            memory.put(TokenHash::of(&number.to_string()), Lookup(None), later);
        }
        assert_eq!(memory.0.lock().unwrap().len(), REMEMBERED);
        memory.put(good, known.clone(), later);
        assert_eq!(memory.get(good, later), Some(known));
    }
}
