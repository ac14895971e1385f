//! Which database: from what the user wrote to an open storage.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use super::postgres::Postgres;
use super::sqlite::Sqlite;
use super::storage::{Error, Storage};

/// A database's address. A password in it is never shown.
#[derive(Clone, PartialEq, Eq)]
pub enum Database {
    Sqlite(PathBuf),
    Postgres(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write it as sqlite:PATH or postgres://USER@HOST/DATABASE")]
pub struct NoDatabase;

impl FromStr for Database {
    type Err = NoDatabase;

    fn from_str(text: &str) -> Result<Self, NoDatabase> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(NoDatabase) } else { Ok(Self::Sqlite(path.into())) };
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        Err(NoDatabase)
    }
}

impl Database {
    pub async fn open(&self) -> Result<Arc<dyn Storage>, Error> {
        Ok(match self {
            Self::Sqlite(path) => Arc::new(Sqlite::open(path)?),
            Self::Postgres(url) => Arc::new(Postgres::connect(url).await?),
        })
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            // Everything before the last @ may be a password, and so may what stands in the query.
            Self::Postgres(url) => {
                let place = url.split('?').next().unwrap_or_default();
                let place = place.rsplit(['@', '/']).take(2).collect::<Vec<_>>();
                let place: Vec<_> = place.into_iter().rev().collect();
                write!(f, "postgres://{}", place.join("/"))
            }
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_they_are_written_and_shown() {
        let table = [
            ("sqlite:/a/b.db", Some("sqlite:/a/b.db")),
            ("sqlite:///a/b.db", Some("sqlite:/a/b.db")),
            ("sqlite:b.db", Some("sqlite:b.db")),
            ("postgres://u:canary@db/codemie?password=canary", Some("postgres://db/codemie")),
            ("postgresql://u:can@ary@db/codemie", Some("postgres://db/codemie")),
            ("sqlite:", None),
            ("mysql://x", None),
            ("/a/b.db", None),
        ];
        for (text, shown) in table {
            let database = text.parse::<Database>().ok();
            assert_eq!(database.map(|database| database.to_string()).as_deref(), shown, "{text}");
        }
    }
}
