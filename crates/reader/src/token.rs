//! Tokens: who may do what. Only their hashes are stored; a token itself is shown once.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use types::Timestamp;
use types::hex::hex;
use types::spelled;

spelled!(
    /// What a token is for.
    Role {
        /// Send events, nothing else.
        Ingest = "ingest",
        /// Read everything, send nothing.
        Read = "read",
        /// Both.
        Admin = "admin",
    }
);

impl Role {
    /// Whether a token of this role may do what that one is for.
    pub fn covers(self, needed: Self) -> bool {
        self == Self::Admin || self == needed
    }
}

/// The stored form of a token. The token has 256 random bits, so a plain hash is no easier to guess than it.
#[derive(Clone, Copy)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    pub fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }
}

impl PartialEq for TokenHash {
    /// In constant time.
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for TokenHash {}

/// Not even the hash is printed.
impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

/// Whose sessions a token reports. Tokens of one owner may all send events of its sessions; those of another may not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(String);

/// An owner's or a token's name that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to 100 bytes and no control characters")]
pub struct BadName;

impl Owner {
    pub fn new(name: &str) -> Result<Self, BadName> {
        check_name(name).map(|()| Self(name.to_owned()))
    }

    /// As a database has it.
    pub fn stored(name: String) -> Self {
        Self(name)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The owner of everything in databases that knew no owners.
impl Default for Owner {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a token or an owner can be called this.
pub fn check_name(name: &str) -> Result<(), BadName> {
    let good = (1..=100).contains(&name.len()) && !name.contains(char::is_control);
    good.then_some(()).ok_or(BadName)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub name: String,
    pub role: Role,
    pub owner: Owner,
    pub hash: TokenHash,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

/// Where random bytes are not to be had, no token can be made.
#[derive(Debug, thiserror::Error)]
#[error("the system gives no random numbers")]
pub struct NoRandomness;

/// Letters and digits of a code that a person may have to type: none that look alike.
const CODE_LETTERS: &[u8; 32] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";

/// A short code: `K7QF-3M2X`. Forty bits are enough where few wrong ones are allowed.
pub fn new_code() -> Result<String, NoRandomness> {
    let letters: String =
        random_bytes::<8>()?.iter().map(|byte| char::from(CODE_LETTERS[usize::from(byte % 32)])).collect();
    Ok(format!("{}-{}", &letters[..4], &letters[4..]))
}

/// A new key to sign with.
pub fn new_key() -> Result<[u8; 32], NoRandomness> {
    random_bytes()
}

fn random_bytes<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

/// A new secret: `codemie_<role>_` and 64 hexadecimal digits.
pub fn new_secret(role: Role) -> Result<String, NoRandomness> {
    let digits = hex(&random_bytes::<32>()?);
    Ok(format!("codemie_{role}_{digits}"))
}
