//! Which database: from the address that the user gave to an open storage.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::postgres::Postgres;
use super::sqlite::Sqlite;
use super::storage::Storage;
use reader::Error;

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
            Self::Postgres(url) => match shown_address(url) {
                Some(address) => write!(f, "postgres://{address}"),
                None => f.write_str("a PostgreSQL database"),
            },
        }
    }
}

/// The port that needs no mention.
const USUAL: u16 = 5432;

/// Host, port and name of the database as the driver reads them, and nothing else of the address. `None` where they could
/// be part of a password: a second `@` belongs to one.
fn shown_address(url: &str) -> Option<String> {
    let config: Config = url.parse().ok().filter(|_| url.matches('@').count() <= 1)?;
    // One port may be given for all hosts.
    let port = |at: usize| config.get_ports().get(at).or(config.get_ports().first());
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
        let name = match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(folder) => folder.display().to_string(),
        };
        port(at).filter(|port| **port != USUAL).map_or(name.clone(), |port| format!("{name}:{port}"))
    });
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    Some(format!("{}/{database}", hosts.collect::<Vec<_>>().join(",")))
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
            ("postgres://u:canary@db", Some("postgres://db/u")),
            ("postgres://u:can?ary@db/codemie", Some("postgres://db/codemie")),
            ("postgres://u:can/ary@db:5433/codemie", Some("postgres://db:5433/codemie")),
            ("postgres://db:5432/codemie", Some("postgres://db/codemie")),
            ("postgres://u@%2Frun%2Fpg/codemie?application_name=canary", Some("postgres:///run/pg/codemie")),
            ("postgres://u@a,b/codemie?sslpassword=canary", Some("a PostgreSQL database")),
            ("postgresql://u:can@ary@db/codemie", Some("a PostgreSQL database")),
            ("postgresql://u:can@ary/canary@db/codemie", Some("a PostgreSQL database")),
            ("postgres://u:canary", Some("a PostgreSQL database")),
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
