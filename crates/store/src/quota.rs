//! The limits that agents' APIs report: the last report of each, those that became events, and what each session saw.

use rusqlite::{Row, params};

use super::{Error, Tx, View};
use agents::meter::quota::QuotaReport;
use types::event::Source;
use types::{Timestamp, Utilization};

/// The last report of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaRow {
    pub agent: String,
    pub at: Timestamp,
    pub report: QuotaReport,
    /// When the last report was made that became an event.
    pub event_at: Timestamp,
}

/// What a session saw of one window, from its first report to its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUseRow {
    pub provider: String,
    pub window: String,
    /// Counts the windows of this name that the session saw.
    pub period: i64,
    pub first: Utilization,
    pub first_at: Timestamp,
    pub last: Utilization,
    pub last_at: Timestamp,
    pub resets_at: Option<Timestamp>,
}

fn read_utilization(row: &Row<'_>, at: usize) -> rusqlite::Result<Utilization> {
    row.get::<_, u32>(at).map(Utilization::of_millionths)
}

/// `provider, window, utilization, resets_at, source`, from a column on.
fn read_report(row: &Row<'_>, first: usize) -> rusqlite::Result<QuotaReport> {
    Ok(QuotaReport {
        provider: row.get(first)?,
        window: row.get(first + 1)?,
        utilization: read_utilization(row, first + 2)?,
        resets_at: row.get(first + 3)?,
        source: Source::parse(row.get_ref(first + 4)?.as_str()?).unwrap_or(Source::Transcript),
    })
}

fn read_quota(row: &Row<'_>) -> rusqlite::Result<QuotaRow> {
    Ok(QuotaRow { agent: row.get(0)?, at: row.get(1)?, event_at: row.get(2)?, report: read_report(row, 3)? })
}

const QUOTA: &str = "agent, at, event_at, provider, window, utilization, resets_at, source";

fn read_use(row: &Row<'_>) -> rusqlite::Result<QuotaUseRow> {
    Ok(QuotaUseRow {
        provider: row.get(0)?,
        window: row.get(1)?,
        period: row.get(2)?,
        first: read_utilization(row, 3)?,
        first_at: row.get(4)?,
        last: read_utilization(row, 5)?,
        last_at: row.get(6)?,
        resets_at: row.get(7)?,
    })
}

const USE: &str = "provider, window, period, first, first_at, last, last_at, resets_at";

impl View<'_> {
    /// The last report of each limit there is.
    pub fn quotas(&self) -> Result<Vec<QuotaRow>, Error> {
        self.all(&format!("SELECT {QUOTA} FROM quota ORDER BY agent, provider, window"), [], read_quota)
    }

    pub fn quota(&self, agent: &str, provider: &str, window: &str) -> Result<Option<QuotaRow>, Error> {
        self.maybe(
            &format!("SELECT {QUOTA} FROM quota WHERE agent = ?1 AND provider = ?2 AND window = ?3"),
            [agent, provider, window],
            read_quota,
        )
    }

    /// The reports of a limit that became events, since a time, oldest first.
    pub fn quota_history(
        &self,
        agent: &str,
        provider: &str,
        window: &str,
        since: Timestamp,
    ) -> Result<Vec<(Timestamp, QuotaReport)>, Error> {
        self.all(
            "SELECT at, provider, window, utilization, resets_at, source FROM quota_report
             WHERE agent = ?1 AND provider = ?2 AND window = ?3 AND at >= ?4 ORDER BY at, n",
            params![agent, provider, window, since],
            |row| Ok((row.get(0)?, read_report(row, 1)?)),
        )
    }

    /// What a session saw of each window, in order.
    pub fn quota_uses(&self, session: i64) -> Result<Vec<QuotaUseRow>, Error> {
        self.all(
            &format!("SELECT {USE} FROM quota_use WHERE session = ?1 ORDER BY provider, window, period"),
            [session],
            read_use,
        )
    }

    pub fn last_quota_use(
        &self,
        session: i64,
        provider: &str,
        window: &str,
    ) -> Result<Option<QuotaUseRow>, Error> {
        self.maybe(
            &format!(
                "SELECT {USE} FROM quota_use WHERE session = ?1 AND provider = ?2 AND window = ?3
                 ORDER BY period DESC LIMIT 1"
            ),
            params![session, provider, window],
            read_use,
        )
    }

    /// The tokens that each session of an agent used between two times, by the session's number.
    pub fn tokens_between(
        &self,
        agent: &str,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<(i64, i64)>, Error> {
        // By the sessions that were open then: the calls have no index by time alone.
        self.all(
            &format!(
                "SELECT r.session, {} FROM session s JOIN record r ON r.session = s.n AND r.kind = 'usage'
                 WHERE s.agent = ?1 AND s.started_at <= ?3 AND ifnull(s.ended_at, ?2) >= ?2 AND r.at BETWEEN ?2 AND ?3
                 GROUP BY 1 ORDER BY 1",
                super::total::sum("r.input + r.output + r.cache_read + r.cache_write_5m + r.cache_write_1h")
            ),
            params![agent, from, to],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    }
}

impl Tx<'_> {
    /// Notes the last report of a limit.
    pub fn set_quota(
        &self,
        agent: &str,
        at: Timestamp,
        report: &QuotaReport,
        event_at: Timestamp,
    ) -> Result<(), Error> {
        self.execute(
            "INSERT OR REPLACE INTO quota (agent, provider, window, at, utilization, resets_at, source, event_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                agent,
                report.provider,
                report.window,
                at,
                report.utilization.millionths(),
                report.resets_at,
                report.source,
                event_at
            ],
        )
        .map(drop)
    }

    pub fn add_quota_report(
        &self,
        agent: &str,
        session: Option<i64>,
        at: Timestamp,
        report: &QuotaReport,
    ) -> Result<(), Error> {
        self.execute(
            "INSERT INTO quota_report (agent, provider, window, at, utilization, resets_at, source, session)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                agent,
                report.provider,
                report.window,
                at,
                report.utilization.millionths(),
                report.resets_at,
                report.source,
                session
            ],
        )
        .map(drop)
    }

    /// Notes that a session has seen so much of a window; `period` counts the windows of this name.
    pub fn note_quota_use(
        &self,
        session: i64,
        period: i64,
        at: Timestamp,
        report: &QuotaReport,
    ) -> Result<(), Error> {
        self.execute(
            "INSERT INTO quota_use (session, provider, window, period, first, first_at, last, last_at, resets_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?5, ?6, ?7)
             ON CONFLICT DO UPDATE SET last = excluded.last, last_at = excluded.last_at,
               resets_at = ifnull(excluded.resets_at, resets_at)",
            params![
                session,
                report.provider,
                report.window,
                period,
                report.utilization.millionths(),
                at,
                report.resets_at
            ],
        )
        .map(drop)
    }
}
