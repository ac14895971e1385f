//! The read model over SQL, the same for both databases.

mod chain;
mod health;
mod sessions;
mod usage;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;

use super::sql::{Columns, Decode, Dialect, Query};
use reader::Numbers;
use reader::{
    ActivityBucket, Answer, By, Counted, Error, Facets, Health, HourRow, Page, Reader, SeriesRow, Session,
    SessionDetail, SessionFilter, SessionPage, SpendingRow, TimelinePage, TimelinePosition, Touched,
    UsageFilter, UsagePage,
};
use std::ops::Range;
use types::Timestamp;

/// What differs between the databases when reading. It is used as `&dyn SqlDatabase`, so that every query of the read model is
/// compiled once and not once per database.
pub trait SqlDatabase: Send + Sync {
    fn dialect(&self) -> Dialect;

    /// Runs a query, and hands each row of the answer to `each`, in order.
    fn rows(&self, query: Query, each: EachRow) -> Answer<'_, ()>;

    fn listen(&self) -> broadcast::Receiver<Arc<[Touched]>>;
}

/// Takes one row; an error ends the query.
pub type EachRow = Box<dyn FnMut(&dyn Columns) -> Result<(), Error> + Send>;

/// All rows of an answer, decoded.
pub async fn fetch<T: Send + 'static>(
    database: &dyn SqlDatabase,
    query: Query,
    decode: Decode<T>,
) -> Result<Vec<T>, Error> {
    // Rows are decoded on the thread that reads them, which outlives this future if that is dropped.
    let decoded = Arc::new(Mutex::new(Vec::new()));
    let into = decoded.clone();
    let each = move |row: &dyn Columns| {
        let value = decode(row)?;
        into.lock().unwrap_or_else(PoisonError::into_inner).push(value);
        Ok(())
    };
    database.rows(query, Box::new(each)).await?;
    Ok(std::mem::take(&mut *decoded.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Implements `Reader` for a [`SqlDatabase`].
macro_rules! reader_by_sql {
    ($database:ty) => {
        impl Reader for $database {
            fn sessions(&self, filter: SessionFilter, page: Page) -> Answer<'_, SessionPage> {
                Box::pin(sessions::list(self, filter, page))
            }

            fn count_sessions(&self, filter: SessionFilter, most: i64) -> Answer<'_, Counted> {
                Box::pin(sessions::count(self, filter, most))
            }

            fn chained(&self, ids: Vec<String>, reopened: Vec<String>) -> Answer<'_, Vec<String>> {
                Box::pin(chain::chained(self, ids, reopened))
            }

            fn session(&self, id: &str) -> Answer<'_, Option<SessionDetail>> {
                Box::pin(sessions::detail(self, id.to_owned()))
            }

            fn sessions_by_id(&self, ids: Vec<String>) -> Answer<'_, Vec<Session>> {
                Box::pin(sessions::by_ids(self, ids))
            }

            fn timeline(&self, id: &str, after: TimelinePosition, limit: usize) -> Answer<'_, TimelinePage> {
                Box::pin(sessions::timeline(self, id.to_owned(), after, limit))
            }

            fn activity(
                &self,
                id: &str,
                from: Timestamp,
                to: Timestamp,
                parts: usize,
            ) -> Answer<'_, Vec<ActivityBucket>> {
                Box::pin(sessions::activity(self, id.to_owned(), from, to, parts))
            }

            fn usage(&self, by: By, filter: UsageFilter, rows: Range<usize>) -> Answer<'_, UsagePage> {
                Box::pin(usage::page(self, by, filter, rows))
            }

            fn series(&self, by: By, filter: UsageFilter) -> Answer<'_, Vec<SeriesRow>> {
                Box::pin(usage::series(self, by, filter))
            }

            fn hours(&self, filter: UsageFilter) -> Answer<'_, Vec<HourRow>> {
                Box::pin(usage::hours(self, filter))
            }

            fn spending(&self) -> Answer<'_, Vec<SpendingRow>> {
                Box::pin(usage::spending(self))
            }

            fn health(&self, limit: usize) -> Answer<'_, Health> {
                Box::pin(health::health(self, limit))
            }

            fn facets(&self) -> Answer<'_, Facets> {
                Box::pin(health::facets(self))
            }

            fn live(&self) -> broadcast::Receiver<Arc<[Touched]>> {
                self.listen()
            }
        }
    };
}
reader_by_sql!(crate::sqlite::Sqlite);
reader_by_sql!(crate::postgres::Postgres);

fn limit_to(query: &mut Query, limit: usize) {
    let limit = query.bind(i64::try_from(limit).unwrap_or(i64::MAX));
    query.push(&format!(" LIMIT {limit}"));
}

fn numbers_summed(dialect: Dialect, table: &str) -> String {
    let columns: Vec<_> = Numbers::COLUMNS
        .iter()
        .map(|column| format!("{} AS {column}", dialect.sum(&format!("{table}{column}"))))
        .collect();
    columns.join(", ")
}
