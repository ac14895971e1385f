//! The first start of a backend: one token of each role for this user, in a file that only they can read.
//!
//! `$CODEMIE_HOME/backend/tokens.json`: `{"ingest": "…", "read": "…", "admin": "…"}`. Delivery to a loopback address finds its
//! token there. Tokens of the file that a database does not know (a new one, one that was deleted) are made known to it;
//! revoked ones stay revoked.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::storage::Storage;
use os::file::create_private;
use os::file::read_at_most;
use reader::token::{NoRandomness, Owner, Role, Token, TokenHash, new_secret};
use types::Timestamp;

/// Three tokens are some hundred bytes.
const MAX_TOKENS: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Storage(#[from] reader::Error),
    #[error(transparent)]
    Random(#[from] NoRandomness),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// Where the tokens of this user are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFile {
    /// In the file, which was created now.
    Created,
    /// In the file, which was there; the database knows its tokens.
    Existing,
    /// Not here: the database has tokens of this user, but there is no file.
    Elsewhere,
}

/// Makes sure that this user has tokens.
pub async fn ensure_tokens(
    storage: &dyn Storage,
    file: &Path,
    user: &str,
    now: Timestamp,
) -> Result<TokenFile, Error> {
    let failed = |source| Error::File { path: file.to_owned(), source };
    let known = storage.tokens().await?;
    let owner = owner_of(user, &known);
    if let Some(kept) = read(file).map_err(failed)? {
        for (role, secret) in kept {
            if storage.token(TokenHash::of(&secret)).await?.is_none() {
                add(storage, user, &owner, role, &secret, now).await?;
            }
        }
        return Ok(TokenFile::Existing);
    }
    if known.iter().any(|token| is_of(user, token)) {
        return Ok(TokenFile::Elsewhere);
    }
    let mut created = BTreeMap::new();
    for role in Role::ALL {
        created.insert(*role, new_secret(*role)?);
    }
    // First the file, then the database: a token in the database alone would be useless.
    write(file, &created).map_err(failed)?;
    for (role, secret) in &created {
        add(storage, user, &owner, *role, secret, now).await?;
    }
    Ok(TokenFile::Created)
}

fn name(user: &str, role: Role, number: u32) -> String {
    if number == 1 { format!("{user}-{role}") } else { format!("{user}-{role}-{number}") }
}

fn is_of(user: &str, token: &Token) -> bool {
    Role::ALL.iter().any(|role| token.name == name(user, *role, 1))
}

/// All tokens of a user have one owner: the sessions belong to it, whichever token delivers them. A name that belongs to
/// another owner gets a number.
fn owner_of(user: &str, tokens: &[Token]) -> Owner {
    if let Some(token) = tokens.iter().find(|token| is_of(user, token)) {
        return token.owner.clone();
    }
    let default = Owner::default();
    let taken = |owner: &Owner| *owner == default || tokens.iter().any(|token| token.owner == *owner);
    let numbered = (2..).map(|number| format!("{user}-{number}"));
    let mut owners =
        std::iter::once(user.to_owned()).chain(numbered).map_while(|name| Owner::new(&name).ok());
    owners.find(|owner| !taken(owner)).unwrap_or_default()
}

async fn add(
    storage: &dyn Storage,
    user: &str,
    owner: &Owner,
    role: Role,
    secret: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let hash = TokenHash::of(secret);
    for number in 1..100 {
        let (name, owner) = (name(user, role, number), owner.clone());
        let token = Token { name, role, owner, hash, created_at: now, revoked_at: None };
        // The name is taken, or a node that starts beside this one has read the same file and was faster.
        if storage.add_token(token).await? || storage.token(hash).await?.is_some() {
            break;
        }
    }
    Ok(())
}

fn read(file: &Path) -> io::Result<Option<BTreeMap<Role, String>>> {
    match read_at_most(file, MAX_TOKENS) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Complete or not there, and never readable by others (a temporary file is made 0600).
fn write(file: &Path, tokens: &BTreeMap<Role, String>) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    create_private(folder)?;
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer_pretty(&mut new, tokens)?;
    new.write_all(b"\n")?;
    new.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_tokens_never_take_the_name_of_another_owner() {
        let token = |name: &str, owner: &str| Token {
            name: name.to_owned(),
            role: Role::Ingest,
            owner: Owner::new(owner).unwrap(),
            hash: TokenHash::of(name),
            created_at: Timestamp(0),
            revoked_at: None,
        };
        for (user, tokens, owner) in [
            ("ada", vec![], "ada"),
            ("ada", vec![token("ada", "ada")], "ada-2"),
            ("ada", vec![token("x", "ada"), token("y", "ada-2")], "ada-3"),
            ("ada", vec![token("ada-ingest", "default")], "default"),
            ("default", vec![], "default-2"),
        ] {
            assert_eq!(owner_of(user, &tokens).as_str(), owner, "{user} {tokens:?}");
        }
    }
}
