//! What vendors report of their limits, as far as it was recorded.

use super::{Error, View};
use types::Timestamp;

/// The last report of one limit.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportedLimit {
    pub agent: String,
    /// The vendor's own name of the window.
    pub window: String,
    pub at: Timestamp,
    /// The used part, 0 to 1.
    pub utilization: f64,
    pub resets_at: Option<Timestamp>,
    pub source: String,
}

impl View<'_> {
    pub fn reported_limits(&self) -> Result<Vec<ReportedLimit>, Error> {
        self.all("SELECT agent, window, at, utilization, resets_at, source FROM quota", [], |row| {
            Ok(ReportedLimit {
                agent: row.get(0)?,
                window: row.get(1)?,
                at: row.get(2)?,
                // In millionths.
                utilization: row.get::<_, f64>(3)? / 1e6,
                resets_at: row.get(4)?,
                source: row.get(5)?,
            })
        })
    }
}
