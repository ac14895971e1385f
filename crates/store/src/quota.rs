//! The limits that agents' APIs report: the last report of each, those that became events, and what each session saw.

use rusqlite::params;

use super::row::{insert, read_keyed, read_row};
use super::{Error, Tx, View};
use agents::meter::quota::QuotaReport;
use types::row::RowColumns;
use types::{Timestamp, Utilization, row};

row! {
    /// The last report of a limit.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct QuotaRow {
        pub agent: String,
        pub at: Timestamp,
        pub report: QuotaReport [row],
        /// When the last report was made that became an event.
        pub event_at: Timestamp,
    }
}

row! {
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
}

impl View<'_> {
    /// The last report of each limit there is.
    pub fn quotas(&self) -> Result<Vec<QuotaRow>, Error> {
        self.all(&QuotaRow::select("FROM quota ORDER BY agent, provider, window"), [], read_row)
    }

    pub fn quota(&self, agent: &str, provider: &str, window: &str) -> Result<Option<QuotaRow>, Error> {
        self.maybe(
            &QuotaRow::select("FROM quota WHERE agent = ?1 AND provider = ?2 AND window = ?3"),
            [agent, provider, window],
            read_row,
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
            &format!(
                "SELECT at, {} FROM quota_report
                 WHERE agent = ?1 AND provider = ?2 AND window = ?3 AND at >= ?4 ORDER BY at, n",
                QuotaReport::COLUMNS
            ),
            params![agent, provider, window, since],
            read_keyed,
        )
    }

    /// What a session saw of each window, in order.
    pub fn quota_uses(&self, session: i64) -> Result<Vec<QuotaUseRow>, Error> {
        self.all(
            &QuotaUseRow::select("FROM quota_use WHERE session = ?1 ORDER BY provider, window, period"),
            [session],
            read_row,
        )
    }

    pub fn last_quota_use(
        &self,
        session: i64,
        provider: &str,
        window: &str,
    ) -> Result<Option<QuotaUseRow>, Error> {
        self.maybe(
            &QuotaUseRow::select(
                "FROM quota_use WHERE session = ?1 AND provider = ?2 AND window = ?3
                 ORDER BY period DESC LIMIT 1",
            ),
            params![session, provider, window],
            read_row,
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
            read_row,
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
        let QuotaReport { provider, window, utilization, resets_at, source } = report;
        insert!(self, "INSERT OR REPLACE" into "quota": { agent, provider, window, at, utilization, resets_at, source, event_at }).map(drop)
    }

    pub fn add_quota_report(
        &self,
        agent: &str,
        session: Option<i64>,
        at: Timestamp,
        report: &QuotaReport,
    ) -> Result<(), Error> {
        let QuotaReport { provider, window, utilization, resets_at, source } = report;
        insert!(self, "quota_report": { agent, provider, window, at, utilization, resets_at, source, session })
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
                report.utilization,
                at,
                report.resets_at
            ],
        )
        .map(drop)
    }
}
