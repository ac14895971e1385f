//! The records: facts of the agents' files, each owned by one session for good.

use std::collections::BTreeMap;

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::proxied::{ProxyColumns, Seen};
use super::row::{count, uncount};
use super::row::{insert, read_row, read_value};
use super::{Error, Tx, View};
use agents::meter::record::{ApiError, Fact, LONGEST_KEY, Record, Tool, Usage};
use pricing::PriceList;
use pricing::tier::Tier;
use types::PicoDollars;
use types::SessionId;
use types::Timestamp;
use types::event::Source;
use types::row::RowColumns;
use types::{MAX_COUNT, Tokens, ToolKind};
use types::{row, spelled};

/// A record with what it cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priced {
    pub record: Record,
    /// `None` when the model has no price, and for what is no API call.
    pub cost: Option<PicoDollars>,
    /// Version of the prices the cost was made with: of the table, or of a price that the user has set (`own-…`).
    pub prices: Option<String>,
}

impl Priced {
    /// What it cost by a price list.
    pub fn by(prices: &PriceList, record: Record) -> Self {
        let cost = match &record.fact {
            Fact::Usage(usage) => prices.cost(&usage.model, &usage.tokens, usage.tier),
            Fact::Tool(_) | Fact::Prompt | Fact::Error(_) => None,
        };
        let (cost, prices) = cost.map(|cost| (cost.amount, cost.version)).unzip();
        Self { record, cost, prices }
    }
}

spelled!(
    /// Keys are unique within an agent and a kind.
    RecordKind { Usage = "usage", Tool = "tool", Prompt = "prompt", Error = "error" }
);

impl RecordKind {
    pub fn of(fact: &Fact) -> Self {
        match fact {
            Fact::Usage(_) => Self::Usage,
            Fact::Tool(_) => Self::Tool,
            Fact::Prompt => Self::Prompt,
            Fact::Error(_) => Self::Error,
        }
    }
}

row! {
    /// The record already stored under a key, as far as a revision needs it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct StoredRecord {
        pub n: i64,
        pub session: i64,
        /// All zero for what is no API call.
        pub tokens: Tokens [row],
        pub cost: Option<PicoDollars>,
        pub seen: Seen as Option<Seen> => Option::unwrap_or_default,
        /// Whose numbers they are.
        pub source: Source as Option<Source> => |source| source.unwrap_or(Source::Transcript),
    }
}

row! {
    /// A record as the database holds it, for taking elsewhere.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct RecordRow from "r" {
        pub kind: RecordKind,
        pub key: String,
        pub at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub subagent: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub usage: Option<UsageColumns> [row],
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool: Option<ToolColumns> [row],
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<ErrorColumns> [row],
        #[serde(default, skip_serializing_if = "is_transcript")]
        pub seen: Seen as Option<Seen> => Option::unwrap_or_default,
        /// `None`: the numbers are the transcript's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub source: Option<Source>,
        /// How the proxy saw it, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub proxy: Option<ProxyColumns> [row],
        /// The branch that was checked out when the call was made, and the first 12 digits of its commit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub branch: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub head: Option<String>,
        /// Further keys of the same thing.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub aliases: Vec<String> = "(SELECT json_group_array(a.key) FROM record_alias a WHERE a.record = r.n)"
            as String => |keys| serde_json::from_str(&keys).unwrap_or_default(),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_transcript(seen: &Seen) -> bool {
    *seen == Seen::Transcript
}

impl RecordRow {
    /// What no line of an agent's would be read for is not taken in from elsewhere either.
    pub fn is_plausible(&self) -> bool {
        let Priced { record, cost, .. } = self.priced();
        record.is_plausible()
            && record.at.is_a_date()
            && RecordKind::of(&record.fact) == self.kind
            && self.aliases.len() <= MOST_ALIASES
            && self.aliases.iter().all(|key| key.len() <= LONGEST_KEY)
            && self
                .proxy
                .as_ref()
                .is_none_or(|proxy| proxy.latency_ms.max(proxy.ttft_ms.unwrap_or(0)) <= MAX_COUNT)
            && [&self.branch, &self.head].into_iter().flatten().all(|text| text.len() <= LONGEST_KEY)
            && cost.is_none_or(|cost| (0..=MOST_OF_A_CALL.0).contains(&cost.0))
    }

    /// Its key and its further ones.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        [&self.key].into_iter().chain(&self.aliases).map(String::as_str)
    }

    fn priced(&self) -> Priced {
        let fact = match (&self.usage, &self.tool, &self.error) {
            (Some(usage), _, _) => Fact::Usage(Usage {
                model: usage.model.clone(),
                tokens: usage.tokens,
                tier: usage.tier,
                request_id: usage.request_id.clone(),
            }),
            (_, Some(tool), _) => Fact::Tool(Tool {
                name: tool.name.clone(),
                ok: tool.ok,
                kind: tool.kind,
                file: tool.file.clone(),
                further: Vec::new(),
                lines_added: tool.lines_added,
                lines_removed: tool.lines_removed,
            }),
            (_, _, Some(error)) => Fact::Error(ApiError { status: error.status, kind: error.kind.clone() }),
            (None, None, None) => Fact::Prompt,
        };
        let (key, subagent) = (self.key.clone(), self.subagent.clone());
        let usage = self.usage.as_ref();
        Priced {
            record: Record { key, at: self.at, copied: false, subagent, fact },
            cost: usage.and_then(|usage| usage.cost),
            prices: usage.and_then(|usage| usage.prices.clone()),
        }
    }
}

/// A call has two names at most; a copy of a conversation may add some.
const MOST_ALIASES: usize = 16;

/// A hundred thousand dollars: no call costs as much, and all that a store can hold of them fits a sum.
const MOST_OF_A_CALL: PicoDollars = PicoDollars(100_000 * 1_000_000_000_000);

row! {
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct UsageColumns from "r" {
        pub model: String,
        pub tokens: Tokens [row],
        #[serde(flatten)]
        /// The column is called `fast`: a codemie that knows no other tiers reads every number but zero as fast. It prices nothing
        /// by that, the cost is stored beside it.
        pub tier: Tier = "r.fast" as Option<i64> => Tier::stored,
        pub request_id: Option<String>,
        pub cost: Option<PicoDollars>,
        pub prices: Option<String>,
    }
}

row! {
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ToolColumns from "r" {
        pub name: String = "r.tool",
        pub ok: bool,
        pub kind: ToolKind = "r.tool_kind",
        pub file: Option<String>,
        pub lines_added: u64 as i64 => uncount,
        pub lines_removed: u64 as i64 => uncount,
    }
}

row! {
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ErrorColumns from "r" {
        pub status: Option<u16> = "r.error_status",
        pub kind: String = "r.error_kind",
    }
}

/// The calls without a price, for `FROM`. The index is named because SQLite would as soon read all calls, by another one.
pub(super) const UNPRICED: &str = "record INDEXED BY record_unpriced WHERE kind = 'usage' AND cost IS NULL";

impl View<'_> {
    /// Under its key or a further one.
    pub fn stored_record(
        &self,
        agent: &str,
        kind: RecordKind,
        key: &str,
    ) -> Result<Option<StoredRecord>, Error> {
        self.maybe(
            &StoredRecord::select(
                "FROM record WHERE n = ifnull(
                   (SELECT n FROM record WHERE agent = ?1 AND kind = ?2 AND key = ?3),
                   (SELECT record FROM record_alias WHERE agent = ?1 AND kind = ?2 AND key = ?3))",
            ),
            params![agent, kind, key],
            read_row,
        )
    }

    pub fn stored_record_number(&self, n: i64) -> Result<Option<StoredRecord>, Error> {
        self.maybe(&StoredRecord::select("FROM record WHERE n = ?1"), [n], read_row)
    }

    /// A session's records, in the order in which they came in.
    pub fn records(&self, session: i64) -> Result<Vec<RecordRow>, Error> {
        self.all(&RecordRow::select("FROM record r WHERE r.session = ?1 ORDER BY r.n"), [session], read_row)
    }

    pub fn last_record_at(&self, session: i64) -> Result<Option<Timestamp>, Error> {
        self.one("SELECT max(at) FROM record WHERE session = ?1", [session], read_value)
    }

    pub fn unpriced_models(&self, session: i64) -> Result<Vec<String>, Error> {
        self.all(
            &format!("SELECT DISTINCT model FROM {UNPRICED} AND session = ?1 ORDER BY model"),
            [session],
            read_value,
        )
    }

    /// How many calls of which model have no price.
    pub fn unpriced_calls(&self, session: i64) -> Result<BTreeMap<String, i64>, Error> {
        let counted = self.all(
            &format!("SELECT model, count(*) FROM {UNPRICED} AND session = ?1 GROUP BY model"),
            [session],
            read_row,
        )?;
        Ok(counted.into_iter().collect())
    }

    pub fn changed_files(&self, session: i64) -> Result<Vec<String>, Error> {
        self.all("SELECT path FROM changed_file WHERE session = ?1 ORDER BY path", [session], read_value)
    }
}

impl Tx<'_> {
    pub fn insert_record(&self, agent: &str, session: i64, priced: &Priced) -> Result<i64, Error> {
        let record = &priced.record;
        let (kind, key, at, subagent) =
            (RecordKind::of(&record.fact), &record.key, record.at, &record.subagent);
        match &record.fact {
            Fact::Usage(Usage { model, tokens, tier, request_id }) => insert!(self, "record": {
                agent,
                kind,
                key,
                session,
                at,
                subagent,
                model,
                input: count(tokens.input),
                output: count(tokens.output),
                cache_read: count(tokens.cache_read),
                cache_write_5m: count(tokens.cache_write_5m),
                cache_write_1h: count(tokens.cache_write_1h),
                reasoning: count(tokens.reasoning),
                fast: tier.number(),
                request_id,
                cost: priced.cost,
                prices: priced.prices,
            }),
            Fact::Tool(tool) => insert!(self, "record": {
                agent,
                kind,
                key,
                session,
                at,
                subagent,
                tool: tool.name,
                tool_kind: tool.kind,
                ok: tool.ok,
                file: tool.file,
                lines_added: count(tool.lines_added),
                lines_removed: count(tool.lines_removed),
            }),
            Fact::Prompt => insert!(self, "record": { agent, kind, key, session, at, subagent }),
            Fact::Error(error) => insert!(self, "record": {
                agent,
                kind,
                key,
                session,
                at,
                subagent,
                error_status: error.status,
                error_kind: error.kind,
            }),
        }?;
        Ok(self.last_inserted())
    }

    pub fn insert_record_row(&self, agent: &str, session: i64, row: &RecordRow) -> Result<i64, Error> {
        let n = self.insert_record(agent, session, &row.priced())?;
        if let Some(proxy) = &row.proxy {
            self.set_proxy_columns(n, row.seen, proxy)?;
        }
        if row.source.is_some() || row.branch.is_some() || row.head.is_some() {
            self.execute(
                "UPDATE record SET source = ?2, branch = ?3, head = ?4 WHERE n = ?1",
                params![n, row.source, row.branch, row.head],
            )?;
        }
        for alias in &row.aliases {
            self.add_record_alias(agent, row.kind, alias, n)?;
        }
        Ok(n)
    }

    /// The same call with better numbers, and whose these are.
    pub fn revise_usage(&self, n: i64, usage: &Usage, priced: &Priced, source: Source) -> Result<(), Error> {
        let tokens = &usage.tokens;
        self.execute(
            "UPDATE record SET model = ?2, input = ?3, output = ?4, cache_read = ?5, cache_write_5m = ?6,
               cache_write_1h = ?7, reasoning = ?8, fast = ?9, request_id = ifnull(?10, request_id), cost = ?11, prices = ?12, source = ?13
             WHERE n = ?1",
            params![
                n,
                usage.model,
                count(tokens.input),
                count(tokens.output),
                count(tokens.cache_read),
                count(tokens.cache_write_5m),
                count(tokens.cache_write_1h),
                count(tokens.reasoning),
                usage.tier.number(),
                usage.request_id,
                priced.cost,
                priced.prices,
                (source != Source::Transcript).then_some(source),
            ],
        )
        .map(drop)
    }

    /// Where a call of this session was made, if that was not noted before.
    pub fn set_call_place(
        &self,
        session: SessionId,
        key: &str,
        branch: Option<&str>,
        head: &str,
    ) -> Result<(), Error> {
        self.execute(
            "UPDATE record SET branch = ?3, head = ?4 WHERE head IS NULL AND kind = 'usage' AND key = ?2
               AND (agent, session) = (SELECT agent, n FROM session WHERE id = ?1)",
            params![session, key, branch, head],
        )
        .map(drop)
    }

    /// Whether the file is the first time changed by this session.
    pub fn note_changed_file(&self, session: i64, path: &str) -> Result<bool, Error> {
        self.execute("INSERT OR IGNORE INTO changed_file VALUES (?1, ?2)", params![session, path])
            .map(|added| added > 0)
    }
}
