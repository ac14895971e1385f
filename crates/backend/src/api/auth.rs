//! Who asks: a token, looked up by its hash, compared in constant time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};

use super::answer::Refusal;
use crate::storage::Storage;
use crate::token::{Role, Token, TokenHash};

/// So long a node may go on with what it knows of a token. A revoked one is refused everywhere after that.
const REMEMBERED_FOR: Duration = Duration::from_secs(2);
/// That many made-up tokens, and all good ones.
const REMEMBERED: usize = 10_000;

/// What a route asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    /// Whoever has a token.
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

/// The tokens of the storage. What it said of each is remembered for a moment, also that it knows none.
pub(super) struct Tokens {
    storage: Arc<dyn Storage>,
    known: Memory,
}

impl Tokens {
    pub(super) fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, known: Memory::default() }
    }

    /// The token that a request shows, if it is a good one.
    pub(super) async fn of(&self, headers: &HeaderMap) -> Result<Token, Refusal> {
        let hash = TokenHash::of(bearer(headers).ok_or(Refusal::NoToken)?);
        let Said(token) = if let Some(said) = self.known.get(hash, Instant::now()) {
            said
        } else {
            let said = Said(self.storage.token(hash).await?);
            self.known.put(hash, said.clone(), Instant::now());
            said
        };
        token.filter(|token| token.hash == hash && token.revoked_at.is_none()).ok_or(Refusal::NoToken)
    }
}

/// What the storage said of a hash: the token, or that there is none.
#[derive(Clone, Debug, PartialEq)]
struct Said(Option<Token>);

/// What it said of each, and when.
#[derive(Default)]
struct Memory(Mutex<HashMap<[u8; 32], (Said, Instant)>>);

impl Memory {
    fn get(&self, hash: TokenHash, now: Instant) -> Option<Said> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (said, at) = known.get(&hash.0)?;
        (now.saturating_duration_since(*at) < REMEMBERED_FOR).then(|| said.clone())
    }

    /// Whoever makes up tokens fills it, and then no more of those are remembered; good ones are.
    fn put(&self, hash: TokenHash, said: Said, now: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.retain(|_, (_, at)| now.saturating_duration_since(*at) < REMEMBERED_FOR);
        }
        if known.len() < REMEMBERED || said.0.is_some() {
            known.insert(hash.0, (said, now));
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
    use crate::token::Owner;
    use wire::Timestamp;

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
    fn what_was_said_is_remembered_for_a_moment_and_made_up_tokens_do_not_pile_up() {
        let (memory, start) = (Memory::default(), Instant::now());
        let (good, bad) = (TokenHash::of("good"), TokenHash::of("bad"));
        assert_eq!(memory.get(good, start), None);
        let known = Said(Some(token("good")));
        memory.put(good, known.clone(), start);
        memory.put(bad, Said(None), start);
        assert_eq!(memory.get(good, start), Some(known.clone()));
        assert_eq!(memory.get(bad, start), Some(Said(None)));
        let later = start + REMEMBERED_FOR;
        assert_eq!((memory.get(good, later), memory.get(bad, later)), (None, None));
        for number in 0..REMEMBERED + 100 {
            memory.put(TokenHash::of(&number.to_string()), Said(None), later);
        }
        assert_eq!(memory.0.lock().unwrap().len(), REMEMBERED);
        memory.put(good, known.clone(), later);
        assert_eq!(memory.get(good, later), Some(known));
    }
}
