//! Who may see the pages, and how they prove it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderMap, header};

use super::login::{GOOD_FOR_MS, Pass, cookie};
use reader::token::{NoRandomness, Role, TokenHash, new_code};
use reader::{Error, Tokens};
use types::Timestamp;

/// The token name in the cookie of a local dashboard; no token has it.
const LOCAL: &str = "local";
/// The same in an entry, which is exchanged for such a cookie.
const ENTRY: &str = "entry";
/// How long an entry is good: as long as it takes to open a browser by hand.
const ENTRY_FOR_MS: i64 = 10 * 60_000;

pub enum Gate {
    /// A backend's own tokens.
    Tokens(Arc<dyn Tokens>),
    /// One secret, good once.
    Once(Once),
}

#[derive(Debug)]
pub struct Once {
    /// Taken by the first request with the right code, or by too many wrong ones.
    code: Mutex<Option<PendingCode>>,
    /// Signs the cookies. They outlive the process where the caller keeps the key.
    key: [u8; 32],
    /// Signatures of passes that a logout ended, and of entries that were used.
    ended: Mutex<Vec<[u8; 32]>>,
    /// Cookies ignore ports: each dashboard of this machine has a name of its own.
    cookie: String,
}

/// A code that nobody has used yet.
#[derive(Debug)]
struct PendingCode {
    hash: TokenHash,
    wrong: u32,
}

/// After so many wrong codes the right one is void, too: nobody guesses forty bits in twenty tries.
const WRONG_CODES: u32 = 20;

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tokens(_) => "Gate::Tokens",
            Self::Once(_) => "Gate::Once",
        })
    }
}

impl Gate {
    /// A gate for the dashboard on this port of loopback, and the code that opens it once. The key signs the cookies.
    pub fn once(port: u16, key: [u8; 32]) -> Result<(Self, String), NoRandomness> {
        let code = new_code()?;
        let once = Once {
            code: Mutex::new(Some(PendingCode { hash: TokenHash::of(&code), wrong: 0 })),
            key,
            ended: Mutex::default(),
            cookie: format!("codemie_{port}"),
        };
        Ok((Self::Once(once), code))
    }

    /// A code for a dashboard that runs already, from somebody who knows its key: it opens the gate once, and for a short time.
    pub fn entry(key: &[u8; 32], now: Timestamp) -> String {
        Pass::sign(key, ENTRY, Timestamp(now.0.saturating_add(ENTRY_FOR_MS))).to_cookie()
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
            Self::Tokens(tokens) => {
                let token = tokens.token(hash).await?;
                let token = token.filter(|token| {
                    token.hash == hash && token.revoked_at.is_none() && token.role.covers(Role::Read)
                });
                Ok(token.map(|token| Pass::sign(&token.hash.0, &token.name, until)))
            }
            Self::Once(once) if once.takes_entry(secret.trim(), now) => {
                Ok(Some(Pass::sign(&once.key, LOCAL, until)))
            }
            Self::Once(once) => {
                let hash = TokenHash::of(&secret.trim().to_uppercase());
                let mut code = once.code.lock().unwrap_or_else(PoisonError::into_inner);
                let right = code.take_if(|code| {
                    let right = code.hash == hash;
                    code.wrong += u32::from(!right);
                    right || code.wrong > WRONG_CODES
                });
                Ok(right.filter(|code| code.hash == hash).map(|_| Pass::sign(&once.key, LOCAL, until)))
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
            Self::Tokens(tokens) => tokens.end_pass(pass.signature, pass.until, now).await,
            Self::Once(once) => {
                once.ended.lock().unwrap_or_else(PoisonError::into_inner).push(pass.signature);
                Ok(())
            }
        }
    }

    async fn good_pass(&self, cookies: &str, now: Timestamp) -> Result<Option<Pass>, Error> {
        let Some(pass) = cookie(cookies, self.cookie_name()).and_then(Pass::parse) else { return Ok(None) };
        let good = match self {
            Self::Tokens(tokens) => {
                let good = tokens.tokens().await?.into_iter().find(|token| {
                    token.name == pass.token && token.revoked_at.is_none() && token.role.covers(Role::Read)
                });
                good.is_some_and(|token| pass.holds(&token.hash.0, now))
                    && !tokens.pass_ended(pass.signature).await?
            }
            Self::Once(once) => {
                let ended = once.ended.lock().unwrap_or_else(PoisonError::into_inner);
                pass.token == LOCAL && pass.holds(&once.key, now) && !ended.contains(&pass.signature)
            }
        };
        Ok(good.then_some(pass))
    }
}

impl Once {
    /// Whether this is an [entry](Gate::entry) that nobody has used; it is used up then.
    fn takes_entry(&self, secret: &str, now: Timestamp) -> bool {
        let Some(entry) = Pass::parse(secret) else { return false };
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let good = entry.token == ENTRY && entry.holds(&self.key, now) && !ended.contains(&entry.signature);
        if good {
            ended.push(entry.signature);
        }
        good
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
    async fn a_code_opens_the_gate_once_and_the_cookie_after_that() {
        let (gate, secret) = Gate::once(4000, [1; 32]).unwrap();
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
        let (other, _) = Gate::once(4000, [2; 32]).unwrap();
        assert!(!other.admits(&header, now).await.unwrap(), "it has another key");
        let (again, _) = Gate::once(4000, [1; 32]).unwrap();
        assert!(again.admits(&header, now).await.unwrap(), "a cookie outlives the process that gave it");
    }

    #[tokio::test]
    async fn an_entry_opens_the_gate_of_its_key_once_and_is_no_cookie() {
        let now = Timestamp(1_000_000);
        let (gate, code) = Gate::once(4000, [1; 32]).unwrap();
        let entry = Gate::entry(&[1; 32], now);
        assert!(!gate.admits(&format!("codemie_4000={entry}"), now).await.unwrap());
        assert!(gate.open(&Gate::entry(&[2; 32], now), now).await.unwrap().is_none(), "another key");
        assert!(gate.open(&entry, Timestamp(now.0 + ENTRY_FOR_MS)).await.unwrap().is_none(), "too late");
        let pass = gate.open(&entry, now).await.unwrap().unwrap();
        assert!(gate.open(&entry, now).await.unwrap().is_none(), "used up");
        assert!(gate.open(&pass.to_cookie(), now).await.unwrap().is_none(), "a cookie is no entry");
        assert!(gate.open(&code, now).await.unwrap().is_some(), "the code is as good as before");
    }

    #[tokio::test]
    async fn a_code_is_void_after_too_many_wrong_ones() {
        let now = Timestamp(1_000_000);
        for (wrong, opens) in [(WRONG_CODES, true), (WRONG_CODES + 1, false)] {
            let (gate, code) = Gate::once(4000, [1; 32]).unwrap();
            assert_eq!((code.len(), &code[4..5]), (9, "-"));
            for _ in 0..wrong {
                assert!(gate.open("0000-0000", now).await.unwrap().is_none());
            }
            assert_eq!(gate.open(&code.to_lowercase(), now).await.unwrap().is_some(), opens);
        }
    }
}
