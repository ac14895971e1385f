//! Who may see the pages, and how they prove it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderMap, header};

use super::login::{GOOD_FOR_MS, Pass, cookie};
use crate::storage::{Error, Storage};
use crate::token::{NoRandomness, Role, TokenHash, new_secret};
use wire::Timestamp;

/// The token name in the cookie of a local dashboard; no token has it.
const LOCAL: &str = "local";

pub enum Gate {
    /// A backend's own tokens.
    Tokens(Arc<dyn Storage>),
    /// One secret, good once.
    Once(Once),
}

#[derive(Debug)]
pub struct Once {
    /// Taken by the first request with the right secret.
    secret: Mutex<Option<TokenHash>>,
    /// Signs the cookies of this process.
    key: TokenHash,
    /// Signatures of passes that a logout ended.
    ended: Mutex<Vec<[u8; 32]>>,
    /// Cookies ignore ports: each dashboard of this machine has a name of its own.
    cookie: String,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tokens(_) => "Gate::Tokens",
            Self::Once(_) => "Gate::Once",
        })
    }
}

impl Gate {
    /// A gate for the dashboard on this port of loopback, and the secret that opens it.
    pub fn once(port: u16) -> Result<(Self, String), NoRandomness> {
        let secret = new_secret(Role::Read)?;
        let once = Once {
            secret: Mutex::new(Some(TokenHash::of(&secret))),
            key: TokenHash::of(&new_secret(Role::Read)?),
            ended: Mutex::default(),
            cookie: format!("codemie_{port}"),
        };
        Ok((Self::Once(once), secret))
    }

    pub fn cookie_name(&self) -> &str {
        match self {
            Self::Tokens(_) => "codemie",
            Self::Once(once) => &once.cookie,
        }
    }

    /// A pass for this secret, if it is one that may read.
    pub async fn open(&self, secret: &str, now: Timestamp) -> Result<Option<Pass>, Error> {
        let (hash, until) = (TokenHash::of(secret.trim()), Timestamp(now.0.saturating_add(GOOD_FOR_MS)));
        match self {
            Self::Tokens(storage) => {
                let token = storage.token(hash).await?;
                let token = token.filter(|token| {
                    token.hash == hash && token.revoked_at.is_none() && token.role.covers(Role::Read)
                });
                Ok(token.map(|token| Pass::sign(&token.hash.0, &token.name, until)))
            }
            Self::Once(once) => {
                let mut kept = once.secret.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(kept.take_if(|kept| *kept == hash).map(|_| Pass::sign(&once.key.0, LOCAL, until)))
            }
        }
    }

    /// Whether a `Cookie` header holds a pass of ours that is still good.
    pub async fn admits(&self, cookies: &str, now: Timestamp) -> Result<bool, Error> {
        Ok(self.good_pass(cookies, now).await?.is_some())
    }

    /// Ends the pass in a `Cookie` header, wherever else it may be kept. What is no good pass is not remembered.
    pub async fn close(&self, cookies: &str, now: Timestamp) -> Result<(), Error> {
        let Some(pass) = self.good_pass(cookies, now).await? else { return Ok(()) };
        match self {
            Self::Tokens(storage) => storage.end_pass(pass.signature, pass.until, now).await,
            Self::Once(once) => {
                once.ended.lock().unwrap_or_else(PoisonError::into_inner).push(pass.signature);
                Ok(())
            }
        }
    }

    async fn good_pass(&self, cookies: &str, now: Timestamp) -> Result<Option<Pass>, Error> {
        let Some(pass) = cookie(cookies, self.cookie_name()).and_then(Pass::parse) else { return Ok(None) };
        let good = match self {
            Self::Tokens(storage) => {
                let good = storage.tokens().await?.into_iter().find(|token| {
                    token.name == pass.token && token.revoked_at.is_none() && token.role.covers(Role::Read)
                });
                good.is_some_and(|token| pass.holds(&token.hash.0, now))
                    && !storage.pass_ended(pass.signature).await?
            }
            Self::Once(once) => {
                let ended = once.ended.lock().unwrap_or_else(PoisonError::into_inner);
                pass.token == LOCAL && pass.holds(&once.key.0, now) && !ended.contains(&pass.signature)
            }
        };
        Ok(good.then_some(pass))
    }
}

/// The `Cookie` header of a request.
pub fn cookies(headers: &HeaderMap) -> &str {
    headers.get(header::COOKIE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_secret_opens_the_gate_once_and_the_cookie_after_that() {
        let (gate, secret) = Gate::once(4000).unwrap();
        let now = Timestamp(1_000_000);
        assert!(gate.open("codemie_read_0000", now).await.unwrap().is_none());
        let pass = gate.open(&secret, now).await.unwrap().unwrap();
        assert!(gate.open(&secret, now).await.unwrap().is_none(), "used up");
        let header = format!("other=1; codemie_4000={}", pass.to_cookie());
        assert!(gate.admits(&header, now).await.unwrap());
        assert!(!gate.admits(&header, Timestamp(now.0 + GOOD_FOR_MS)).await.unwrap(), "expired");
        assert!(!gate.admits(&header.replace("codemie_4000", "codemie_4001"), now).await.unwrap());
        gate.close("codemie_4000=1.00.00", now).await.unwrap();
        assert!(gate.admits(&header, now).await.unwrap());
        gate.close(&header, now).await.unwrap();
        assert!(!gate.admits(&header, now).await.unwrap(), "ended by a logout");
        let (other, _) = Gate::once(4000).unwrap();
        assert!(!other.admits(&header, now).await.unwrap(), "another process has another key");
    }
}
