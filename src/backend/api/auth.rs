//! Who asks: a token, looked up by its hash, compared in constant time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};

use super::answer::Refusal;
use crate::backend::storage::Storage;
use crate::backend::token::{Role, Token, TokenHash};

/// So long a node may go on with what it knows of a token. A revoked one is refused everywhere after that.
const REMEMBERED_FOR: Duration = Duration::from_secs(2);
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

/// The tokens of the storage, those in use remembered for a moment.
pub(super) struct Tokens {
    storage: Arc<dyn Storage>,
    known: Mutex<HashMap<[u8; 32], (Token, Instant)>>,
}

impl Tokens {
    pub(super) fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, known: Mutex::default() }
    }

    /// The token that a request shows, if it is a good one.
    pub(super) async fn of(&self, headers: &HeaderMap) -> Result<Token, Refusal> {
        let hash = TokenHash::of(bearer(headers).ok_or(Refusal::NoToken)?);
        let token = match self.remembered(hash) {
            Some(token) => Some(token),
            None => self.look_up(hash).await?,
        };
        token.filter(|token| token.hash == hash && token.revoked_at.is_none()).ok_or(Refusal::NoToken)
    }

    fn remembered(&self, hash: TokenHash) -> Option<Token> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (token, at) = known.get(&hash.0)?;
        (at.elapsed() < REMEMBERED_FOR).then(|| token.clone())
    }

    async fn look_up(&self, hash: TokenHash) -> Result<Option<Token>, Refusal> {
        let token = self.storage.token(hash).await?;
        if let Some(token) = &token {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= REMEMBERED {
                known.retain(|_, (_, at)| at.elapsed() < REMEMBERED_FOR);
            }
            known.insert(hash.0, (token.clone(), Instant::now()));
        }
        Ok(token)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
