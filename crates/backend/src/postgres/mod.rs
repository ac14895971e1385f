//! Events in PostgreSQL: any number of nodes share one database, each with a pool of connections.
//!
//! Two nodes that take in the same batch at once do the work once. A transaction first takes a lock for each session of
//! the batch, then reads, adds, adds up; every transaction takes its locks in the same order (sessions, events by id, sums
//! by key), so none waits in a ring.

mod connect;
mod feed;
mod rows;
mod schema;
mod write;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use tokio::sync::broadcast;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::intake::Intake;
use super::read::{EachRow, SqlDatabase};
use super::sql::{Columns, Dialect, Query, TOKEN_COLUMNS, Value, token};
use super::storage::{Ingested, Storage};
use feed::Feed;
use reader::Touched;
use reader::token::{Owner, Token, TokenHash};
use reader::{Answer, Error, Tokens};
use types::Event;
use types::Timestamp;

/// Connections of one node. A batch holds one for some milliseconds; PostgreSQL allows a hundred in all by default.
const CONNECTIONS: usize = 16;
/// How long a request waits for a connection; the client tries again later.
const POOL_TIMEOUT: Duration = Duration::from_secs(10);
/// A deadlock or a serialization failure is rare and gone the next time.
const TRIES: usize = 5;

#[derive(Debug)]
pub struct Postgres {
    pool: Pool,
    feed: Feed,
    /// The numbers of owners, as far as they were asked for. They never change.
    owners: Mutex<HashMap<Owner, i64>>,
}

impl Postgres {
    /// Connects, and brings the database to the schema of this version.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let (config, tls, limits) = connect::settings(url)?;
        let manager = Manager::from_config(
            config.clone(),
            tls.clone(),
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(POOL_TIMEOUT))
            .create_timeout(Some(POOL_TIMEOUT))
            .post_create(Hook::async_fn(move |client: &mut ClientWrapper, _| {
                let limits = limits.clone();
                Box::pin(async move { client.batch_execute(&limits).await.map_err(HookError::Backend) })
            }))
            .build()
            .map_err(|error| Error::Open(error.to_string()))?;
        let mut client = pool.get().await.map_err(|error| Error::Open(pool_error_text(&error)))?;
        schema::migrate(&mut client).await?;
        drop(client);
        let feed = Feed::start(pool.clone(), config, tls);
        Ok(Self { pool, feed, owners: Mutex::default() })
    }

    async fn client(&self) -> Result<Object, Error> {
        self.pool.get().await.map_err(|error| Error::Unavailable(pool_error_text(&error)))
    }

    /// The owner's number in this database; given now if it has none. It is not part of a transaction: it stays if the batch
    /// fails.
    async fn owner_number(&self, owner: &Owner) -> Result<i64, Error> {
        let known = || self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(n) = known().get(owner) {
            return Ok(*n);
        }
        let (select, name) = ("SELECT n FROM owner WHERE name = $1", owner.as_str());
        let mut rows = self.run(select, &[&name]).await?;
        if rows.is_empty() {
            self.run("INSERT INTO owner (name) VALUES ($1) ON CONFLICT DO NOTHING", &[&name]).await?;
            rows = self.run(select, &[&name]).await?;
        }
        let row = rows.first().ok_or_else(|| Error::Failed("an owner got no number".to_owned()))?;
        let n = row.try_get("n").map_err(|error| failed(&error))?;
        known().insert(owner.clone(), n);
        Ok(n)
    }

    /// One statement, by itself.
    async fn run(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        let client = self.client().await?;
        let statement = client.prepare_cached(sql).await.map_err(|error| failed(&error))?;
        client.query(&statement, values).await.map_err(|error| failed(&error))
    }
}

/// With the cause: the outer error alone reads "db error".
fn pool_error_text(error: &PoolError) -> String {
    match error {
        PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
            failed(error).to_string()
        }
        PoolError::Timeout(_) => "no connection was free or could be made in time".to_owned(),
        error => error.to_string(),
    }
}

/// Without `detail`, which holds the values of the statement.
fn failed(error: &tokio_postgres::Error) -> Error {
    let text = match error.as_db_error() {
        Some(cause) => format!("{} ({})", cause.message(), cause.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    };
    match error.code() {
        Some(&SqlState::DISK_FULL) => return Error::Full(text),
        Some(&SqlState::READ_ONLY_SQL_TRANSACTION) => return Error::ReadOnly(text),
        _ => {}
    }
    let code = error.code().map_or("08", SqlState::code);
    // Connections (08), conflicts (40), resources (53), the operator and time limits (57), locks that others hold (55P03),
    // a pause that was too long (25P03): none of them is the statement's fault.
    let passing = ["08", "40", "53", "57", "55P03", "25P03"];
    if passing.iter().any(|some| code.starts_with(some)) {
        Error::Unavailable(text)
    } else {
        Error::Failed(text)
    }
}

/// A row of PostgreSQL for the read model.
struct RowColumns<'a>(&'a Row);

impl Columns for RowColumns<'_> {
    fn int(&self, column: &str) -> Result<Option<i64>, Error> {
        self.0.try_get(column).map_err(|error| failed(&error))
    }

    fn text(&self, column: &str) -> Result<Option<String>, Error> {
        self.0.try_get(column).map_err(|error| failed(&error))
    }

    fn float(&self, column: &str) -> Result<Option<f64>, Error> {
        self.0.try_get(column).map_err(|error| failed(&error))
    }

    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, Error> {
        self.0.try_get(column).map_err(|error| failed(&error))
    }
}

impl Value {
    fn for_postgres(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Int(value) => value,
            Self::Text(value) => value,
            Self::Ints(values) => values,
            Self::Texts(values) => values,
        }
    }
}

impl SqlDatabase for Postgres {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn rows(&self, query: Query, mut each: EachRow) -> Answer<'_, ()> {
        Box::pin(async move {
            let values: Vec<_> = query.values.iter().map(Value::for_postgres).collect();
            let rows = self.run(&query.sql, &values).await?;
            rows.iter().try_for_each(|row| each(&RowColumns(row)))
        })
    }

    fn listen(&self) -> broadcast::Receiver<Arc<[Touched]>> {
        self.feed.subscribe()
    }
}

impl Storage for Postgres {
    fn ingest(&self, owner: &Owner, batch: Vec<Event>, now: Timestamp) -> Answer<'_, Ingested> {
        let owner = owner.clone();
        Box::pin(async move {
            if batch.is_empty() {
                return Ok(Ingested::default());
            }
            let owner = self.owner_number(&owner).await?;
            let mut intake = Intake::new(batch, now);
            let mut tries = 0;
            loop {
                tries += 1;
                let client = self.client().await?;
                match write::ingest(&client, owner, &mut intake, now).await {
                    Ok(()) => {
                        let (ingested, touched) = intake.finish();
                        self.feed.publish(touched);
                        return Ok(ingested);
                    }
                    Err(error) if tries < TRIES && error.is_conflict() => {
                        tracing::debug!(tries, "a batch met another one, and is tried again");
                        intake = intake.again();
                    }
                    Err(IngestError::Database(error)) => return Err(failed(&error)),
                    Err(IngestError::Stored(error)) => return Err(error),
                }
            }
        })
    }

    fn ready(&self) -> Answer<'_, ()> {
        // A lock on a row is written and committed, and leaves nothing behind. Another node may be holding it, asked the same.
        let touch = "SELECT 1 FROM owner WHERE n = 0 FOR UPDATE SKIP LOCKED";
        Box::pin(async move { self.run(touch, &[]).await.map(drop) })
    }

    fn add_token(&self, token: Token) -> Answer<'_, bool> {
        Box::pin(async move {
            let added = self
                .run(
                    "INSERT INTO token (name, role, hash, created_at, revoked_at, owner) VALUES ($1, $2, $3, $4, $5, $6)
                     ON CONFLICT DO NOTHING RETURNING 1",
                    &[
                        &token.name,
                        &token.role.as_str(),
                        &token.hash.0.as_slice(),
                        &token.created_at.0,
                        &token.revoked_at.map(|at| at.0),
                        &token.owner.as_str(),
                    ],
                )
                .await?;
            Ok(!added.is_empty())
        })
    }

    fn revoke_token(&self, name: &str, now: Timestamp) -> Answer<'_, bool> {
        let name = name.to_owned();
        Box::pin(async move {
            let sql = "UPDATE token SET revoked_at = $2 WHERE name = $1 AND revoked_at IS NULL RETURNING 1";
            Ok(!self.run(sql, &[&name, &now.0]).await?.is_empty())
        })
    }
}

impl Tokens for Postgres {
    fn tokens(&self) -> Answer<'_, Vec<Token>> {
        Box::pin(async move {
            let sql = format!("SELECT {TOKEN_COLUMNS} FROM token ORDER BY created_at, name");
            self.run(&sql, &[]).await?.iter().map(|row| token(&RowColumns(row))).collect()
        })
    }

    fn token(&self, hash: TokenHash) -> Answer<'_, Option<Token>> {
        Box::pin(async move {
            let sql = format!("SELECT {TOKEN_COLUMNS} FROM token WHERE hash = $1");
            let rows = self.run(&sql, &[&hash.0.as_slice()]).await?;
            rows.first().map(|row| token(&RowColumns(row))).transpose()
        })
    }

    fn end_pass(&self, signature: [u8; 32], until: Timestamp, now: Timestamp) -> Answer<'_, ()> {
        Box::pin(async move {
            self.run("DELETE FROM ended_pass WHERE until < $1", &[&now.0]).await?;
            let sql = "INSERT INTO ended_pass (signature, until) VALUES ($1, $2) ON CONFLICT DO NOTHING";
            self.run(sql, &[&signature.as_slice(), &until.0]).await.map(drop)
        })
    }

    fn pass_ended(&self, signature: [u8; 32]) -> Answer<'_, bool> {
        Box::pin(async move {
            let sql = "SELECT 1 FROM ended_pass WHERE signature = $1";
            Ok(!self.run(sql, &[&signature.as_slice()]).await?.is_empty())
        })
    }
}

/// Why a batch was not taken in.
#[derive(Debug)]
enum IngestError {
    Database(tokio_postgres::Error),
    /// A stored row cannot be read; it must not be overwritten.
    Stored(Error),
}

impl IngestError {
    /// Whether another try may succeed.
    fn is_conflict(&self) -> bool {
        let conflicts = [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
        matches!(self, Self::Database(error) if error.code().is_some_and(|code| conflicts.contains(code)))
    }
}

impl From<tokio_postgres::Error> for IngestError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Error> for IngestError {
    fn from(error: Error) -> Self {
        Self::Stored(error)
    }
}
