//! What the proxy adds to records: how it saw a call, further keys of a call, and the calls whose session is not known yet.

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::record::RecordKind;
use super::row::{count, uncount};
use super::row::{insert, read_row, read_value};
use super::{Error, SessionRow, Tx, View};
use agents::meter::proxied::ProxiedCall;
use types::event::Source;
use types::row::RowColumns;
use types::{AgentSessionId, Billing, CallKind, Pid, RunId, Timestamp, Tokens};
use types::{row, spelled};

spelled!(
    /// Who has seen a call.
    #[derive(Default)]
    Seen {
        #[default]
        Transcript = "transcript",
        Proxy = "proxy",
        Both = "both",
    }
);

row! {
    /// How the proxy saw a call.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ProxyColumns {
        /// A newer codemie may know more kinds.
        pub kind: CallKind = "call_kind" as String => |kind| CallKind::parse(&kind).unwrap_or(CallKind::Other),
        pub latency_ms: u64 as Option<i64> => |ms| ms.map_or(0, uncount),
        pub ttft_ms: Option<u64> as Option<i64> => |ms| ms.map(uncount),
        /// Broken off before the answer's end: the numbers are the last known.
        pub aborted: bool as Option<bool> => Option::unwrap_or_default,
        /// Counts from 1.
        pub attempt: u32 as Option<u32> => |attempt| attempt.unwrap_or(1),
        /// It waits to be matched with the transcript by its tokens and order.
        #[serde(default)]
        pub loose: bool as Option<bool> => Option::unwrap_or_default,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        /// A kind that only a newer codemie knows is none.
        pub billing: Option<Billing> as Option<String> => |kind| kind.and_then(|kind| Billing::parse(&kind)),
    }
}

impl ProxyColumns {
    pub fn of(call: &ProxiedCall) -> Self {
        // Calls of these kinds stand in no transcript.
        let transcribed = matches!(call.kind, CallKind::Main | CallKind::Subagent | CallKind::Other);
        Self {
            kind: call.kind,
            latency_ms: call.latency_ms,
            ttft_ms: call.ttft_ms,
            aborted: call.aborted,
            attempt: call.attempt,
            loose: !call.keyed && transcribed,
            billing: call.billing,
        }
    }
}

row! {
    /// A waiting call, with its place in the inbox.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct WaitingCall {
        pub n: i64,
        pub call: ProxiedCall [row],
    }
}

/// Equal in every count.
const SAME_TOKENS: &str = "input = ?2 AND output = ?3 AND cache_read = ?4 AND cache_write_5m + cache_write_1h = ?5 AND reasoning = ?6";

impl View<'_> {
    /// The waiting calls of a conversation, in the order in which they were made.
    pub fn waiting_calls(
        &self,
        agent: &str,
        conversation: &AgentSessionId,
    ) -> Result<Vec<WaitingCall>, Error> {
        self.all(
            &WaitingCall::select("FROM proxied_call WHERE agent = ?1 AND conversation = ?2 ORDER BY at, n"),
            params![agent, conversation],
            read_row,
        )
    }

    /// Those that name no conversation, of the runs that were in a session.
    pub fn waiting_calls_of_runs(&self, session: i64) -> Result<Vec<WaitingCall>, Error> {
        self.all(
            &WaitingCall::select(
                "FROM proxied_call WHERE conversation IS NULL AND run IN
                   (SELECT r.id FROM run r JOIN stay y ON y.run = r.n WHERE y.session = ?1)
                 ORDER BY at, n",
            ),
            [session],
            read_row,
        )
    }

    /// Whether calls of a run wait that name no conversation.
    pub fn has_waiting_calls(&self, run: RunId) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM proxied_call WHERE run = ?1 AND conversation IS NULL LIMIT 1";
        Ok(self.maybe(sql, [run], |_| Ok(()))?.is_some())
    }

    pub fn waiting_call(&self, agent: &str, key: &str) -> Result<Option<WaitingCall>, Error> {
        let sql = WaitingCall::select("FROM proxied_call WHERE agent = ?1 AND key = ?2");
        self.maybe(&sql, [agent, key], read_row)
    }

    /// The conversations that a run's proxy was asked in, each with the process that asked, as far as they were no known sessions.
    pub fn callers(&self, run: RunId) -> Result<Vec<(AgentSessionId, Pid)>, Error> {
        self.all(
            "SELECT c.conversation, c.pid FROM caller c JOIN run r ON r.n = c.run WHERE r.id = ?1",
            [run],
            read_row,
        )
    }

    /// How many calls the proxy saw whose session is not known, and when the first of them was made.
    pub fn waiting_count(&self) -> Result<(i64, Option<Timestamp>), Error> {
        self.one("SELECT count(*), min(at) FROM proxied_call", [], read_row)
    }

    /// The same of one run.
    pub fn waiting_count_of_run(&self, run: RunId) -> Result<i64, Error> {
        self.one("SELECT count(*) FROM proxied_call WHERE run = ?1", [run], read_value)
    }

    /// The session that a run was in at a time: it comes to one a little before that is noticed.
    pub fn stayed_in(
        &self,
        run: i64,
        at: Timestamp,
        noticed_within: i64,
    ) -> Result<Option<SessionRow>, Error> {
        let session: Option<i64> = self.maybe(
            "SELECT session FROM stay WHERE run = ?1 AND since <= ?2 ORDER BY since DESC LIMIT 1",
            params![run, at.0.saturating_add(noticed_within)],
            read_value,
        )?;
        session.map(|n| self.session_number(n)).transpose().map(Option::flatten)
    }

    /// Whether a run that led its agent through the proxy was in a session.
    pub fn has_stayed(&self, run: RunId, session: i64) -> Result<bool, Error> {
        let found = self.maybe(
            "SELECT 1 FROM stay y JOIN run r ON r.n = y.run WHERE r.id = ?1 AND y.session = ?2 LIMIT 1",
            params![run, session],
            |_| Ok(()),
        )?;
        Ok(found.is_some())
    }

    /// The earliest call of a session that only the proxy saw, with these tokens, made before `by`.
    pub fn loose_call(&self, session: i64, tokens: &Tokens, by: Timestamp) -> Result<Option<i64>, Error> {
        self.maybe(
            &format!(
                "SELECT n FROM record WHERE session = ?1 AND loose = 1 AND kind = 'usage' AND {SAME_TOKENS} AND at <= ?7
                 ORDER BY at, n LIMIT 1"
            ),
            same_tokens(session, tokens, by),
            read_value,
        )
    }

    /// The earliest call of a session that only the transcript holds, with these tokens, written after `from`.
    pub fn unseen_call(&self, session: i64, tokens: &Tokens, from: Timestamp) -> Result<Option<i64>, Error> {
        self.maybe(
            &format!(
                "SELECT n FROM record WHERE session = ?1 AND kind = 'usage' AND seen IS NULL AND {SAME_TOKENS} AND at >= ?7
                 ORDER BY at, n LIMIT 1"
            ),
            same_tokens(session, tokens, from),
            read_value,
        )
    }

    /// The latest error of a session that only the proxy saw, of this status where both are known, ended between two times.
    pub fn unreported_error(
        &self,
        session: i64,
        status: Option<u16>,
        from: Timestamp,
        by: Timestamp,
    ) -> Result<Option<i64>, Error> {
        self.maybe(
            "SELECT n FROM record WHERE session = ?1 AND kind = 'error' AND seen = 'proxy'
               AND ifnull(error_status = ?2, true) AND at + ifnull(latency_ms, 0) BETWEEN ?3 AND ?4
             ORDER BY at DESC, n DESC LIMIT 1",
            params![session, status, from, by],
            read_value,
        )
    }

    /// The earliest error of a session that only the transcript holds, of this status where both are known, between two times.
    pub fn unseen_error(
        &self,
        session: i64,
        status: Option<u16>,
        from: Timestamp,
        by: Timestamp,
    ) -> Result<Option<i64>, Error> {
        self.maybe(
            "SELECT n FROM record WHERE session = ?1 AND kind = 'error' AND seen IS NULL
               AND ifnull(error_status = ?2, true) AND at BETWEEN ?3 AND ?4
             ORDER BY at, n LIMIT 1",
            params![session, status, from, by],
            read_value,
        )
    }

    /// Whether a session has calls that only the transcript holds.
    pub fn has_unseen_calls(&self, session: i64) -> Result<bool, Error> {
        let found = self.maybe(
            "SELECT 1 FROM record WHERE session = ?1 AND kind = 'usage' AND seen IS NULL LIMIT 1",
            [session],
            |_| Ok(()),
        )?;
        Ok(found.is_some())
    }

    /// How many calls the proxy saw whose usage it could not read in full, and when the last of them was made.
    pub fn unread_usage(&self) -> Result<(u64, Option<Timestamp>), Error> {
        let (calls, last) = self.one("SELECT count(*), max(at) FROM unread_usage", [], read_row)?;
        Ok((uncount(calls), last))
    }

    /// How many calls of a session are such.
    pub fn unread_usage_of(&self, session: i64) -> Result<u64, Error> {
        // From the marks, which are few or none, to the record of each.
        self.one(
            "SELECT count(*) FROM unread_usage u JOIN record r ON r.agent = u.agent AND r.kind = 'usage' AND r.session = ?1
               AND (r.key = u.key OR r.n = (SELECT a.record FROM record_alias a
                 WHERE a.agent = u.agent AND a.kind = 'usage' AND a.key = u.key))",
            [session],
            read_value,
        )
        .map(uncount)
    }

    /// Whether something of a session is kept back until a backfill.
    pub fn keeps_back(&self, session: i64) -> Result<bool, Error> {
        let found = self.maybe(
            "SELECT 1 FROM event WHERE session = ?1 AND change IS NULL LIMIT 1",
            [session],
            |_| Ok(()),
        )?;
        Ok(found.is_some())
    }
}

fn same_tokens(session: i64, tokens: &Tokens, at: Timestamp) -> [i64; 7] {
    [
        session,
        count(tokens.input),
        count(tokens.output),
        count(tokens.cache_read),
        count(tokens.cache_write()),
        count(tokens.reasoning),
        at.0,
    ]
}

impl Tx<'_> {
    /// A process has asked the model in a conversation, through the proxy of this run. `false`: no such run is stored yet.
    pub fn note_caller(&self, run: RunId, conversation: &AgentSessionId, pid: Pid) -> Result<bool, Error> {
        self.execute(
            "INSERT OR REPLACE INTO caller SELECT n, ?2, ?3 FROM run WHERE id = ?1",
            params![run, conversation, pid.0],
        )
        .map(|rows| rows > 0)
    }

    pub fn add_record_alias(
        &self,
        agent: &str,
        kind: RecordKind,
        key: &str,
        record: i64,
    ) -> Result<(), Error> {
        insert!(self, "INSERT OR IGNORE" into "record_alias": { agent, kind, key, record }).map(drop)
    }

    /// Notes who has seen a record by now. It waits for no match any more.
    pub fn set_seen(&self, record: i64, seen: Seen) -> Result<(), Error> {
        self.execute(
            "UPDATE record SET seen = ?2, loose = NULL WHERE n = ?1",
            params![record, (seen != Seen::Transcript).then_some(seen)],
        )
        .map(drop)
    }

    /// Notes how the proxy saw a record.
    pub fn set_proxy_columns(&self, record: i64, seen: Seen, columns: &ProxyColumns) -> Result<(), Error> {
        self.execute(
            "UPDATE record SET seen = ?2, call_kind = ?3, latency_ms = ?4, ttft_ms = ?5, aborted = ?6, attempt = ?7,
               loose = ?8, billing = ?9 WHERE n = ?1",
            params![
                record,
                seen,
                columns.kind,
                count(columns.latency_ms),
                columns.ttft_ms.map(count),
                columns.aborted,
                columns.attempt,
                (columns.loose && seen == Seen::Proxy).then_some(true),
                columns.billing,
            ],
        )
        .map(drop)
    }

    /// Notes whose numbers a record holds.
    pub fn set_source(&self, record: i64, source: Source) -> Result<(), Error> {
        self.execute("UPDATE record SET source = ?2 WHERE n = ?1", params![record, source]).map(drop)
    }

    /// Marks a call as one whose usage could not be read in full.
    pub fn note_unread_usage(&self, call: &ProxiedCall) -> Result<(), Error> {
        insert!(self, "INSERT OR IGNORE" into "unread_usage": { agent: call.agent, key: call.key, at: call.at })
            .map(drop)
    }

    pub fn keep_waiting(&self, call: &ProxiedCall) -> Result<(), Error> {
        let usage = call.usage.as_ref();
        let tokens = usage.map(|usage| usage.tokens);
        let number = |of: fn(&Tokens) -> u64| tokens.as_ref().map(|tokens| count(of(tokens)));
        insert!(self, "INSERT OR REPLACE" into "proxied_call": {
            agent: call.agent,
            key: call.key,
            keyed: call.keyed,
            at: call.at,
            run: call.run,
            conversation: call.conversation,
            subagent: call.subagent,
            call_kind: call.kind,
            latency_ms: count(call.latency_ms),
            ttft_ms: call.ttft_ms.map(count),
            aborted: call.aborted,
            attempt: call.attempt,
            model: usage.map(|usage| usage.model.as_str()),
            input: number(|tokens| tokens.input),
            output: number(|tokens| tokens.output),
            cache_read: number(|tokens| tokens.cache_read),
            cache_write_5m: number(|tokens| tokens.cache_write_5m),
            cache_write_1h: number(|tokens| tokens.cache_write_1h),
            reasoning: number(|tokens| tokens.reasoning),
            fast: usage.map(|usage| usage.tier.number()),
            request_id: usage.and_then(|usage| usage.request_id.as_deref()),
            error_status: call.error.as_ref().and_then(|error| error.status),
            error_kind: call.error.as_ref().map(|error| error.kind.as_str()),
            billing: call.billing,
        })
        .map(drop)
    }

    /// Removes what the proxy saw before a time (of one agent, if it is named) and no session has: calls, marks and reports of limits.
    pub fn prune_waiting(&self, before: Timestamp, agent: Option<&str>) -> Result<(), Error> {
        for table in ["proxied_call", "quota_report", "unread_usage"] {
            self.execute(
                &format!("DELETE FROM {table} WHERE at < ?1 AND (?2 IS NULL OR agent = ?2)"),
                params![before, agent],
            )?;
        }
        let of_ended = "DELETE FROM caller WHERE run IN (SELECT n FROM run WHERE ended_at < ?1)";
        self.execute(of_ended, [before]).map(drop)
    }

    pub fn stop_waiting(&self, waiting: i64) -> Result<(), Error> {
        self.execute("DELETE FROM proxied_call WHERE n = ?1", [waiting]).map(drop)
    }
}
