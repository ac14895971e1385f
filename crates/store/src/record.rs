//! The records: facts of the agents' files, each owned by one session for good.

use std::collections::BTreeMap;

use rusqlite::{Row, params};
use serde::{Deserialize, Serialize};

use super::proxied::{self, ProxyColumns, Seen};
use super::spelling::{count, uncount};
use super::{Error, Tx, View};
use agents::meter::record::{ApiError, Fact, LONGEST_KEY, Record, Tool, Usage};
use pricing::PriceList;
use pricing::tier::Tier;
use types::PicoDollars;
use types::SessionId;
use types::Timestamp;
use types::event::Source;
use types::spelled;
use types::{MAX_COUNT, Tokens, ToolKind};

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

/// The record already stored under a key, as far as a revision needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    pub n: i64,
    pub session: i64,
    /// All zero for what is no API call.
    pub tokens: Tokens,
    pub cost: Option<PicoDollars>,
    pub seen: Seen,
    /// Whose numbers they are.
    pub source: Source,
}

/// A record as the database holds it, for taking elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordRow {
    pub kind: RecordKind,
    pub key: String,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageColumns>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolColumns>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorColumns>,
    #[serde(default, skip_serializing_if = "is_transcript")]
    pub seen: Seen,
    /// `None`: the numbers are the transcript's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// How the proxy saw it, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyColumns>,
    /// The branch that was checked out when the call was made, and the first 12 digits of its commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Further keys of the same thing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageColumns {
    pub model: String,
    pub tokens: Tokens,
    #[serde(flatten)]
    pub tier: Tier,
    pub request_id: Option<String>,
    pub cost: Option<PicoDollars>,
    pub prices: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolColumns {
    pub name: String,
    pub ok: bool,
    pub kind: ToolKind,
    pub file: Option<String>,
    pub lines_added: u64,
    pub lines_removed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorColumns {
    pub status: Option<u16>,
    pub kind: String,
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<RecordRow> {
    let kind: RecordKind = row.get(0)?;
    Ok(RecordRow {
        kind,
        key: row.get(1)?,
        at: row.get(2)?,
        subagent: row.get(3)?,
        usage: match kind {
            RecordKind::Usage => Some(UsageColumns {
                model: row.get(4)?,
                tokens: read_tokens(row, 5)?,
                tier: read_tier(row.get(11)?),
                request_id: row.get(12)?,
                cost: row.get(13)?,
                prices: row.get(14)?,
            }),
            _ => None,
        },
        tool: match kind {
            RecordKind::Tool => Some(ToolColumns {
                name: row.get(15)?,
                ok: row.get(16)?,
                kind: row.get(17)?,
                file: row.get(18)?,
                lines_added: uncount(row.get(19)?),
                lines_removed: uncount(row.get(20)?),
            }),
            _ => None,
        },
        error: match kind {
            RecordKind::Error => Some(ErrorColumns { status: row.get(21)?, kind: row.get(22)? }),
            _ => None,
        },
        seen: row.get::<_, Option<Seen>>(23)?.unwrap_or_default(),
        source: row.get(24)?,
        branch: row.get(25)?,
        head: row.get(26)?,
        proxy: ProxyColumns::read(row, 27)?,
        aliases: serde_json::from_str(row.get_ref(34)?.as_str()?).unwrap_or_default(),
    })
}

/// The column is called `fast`: a codemie that knows no other tiers reads every number but zero as fast. It prices nothing by
/// that, the cost is stored beside it.
pub(super) fn read_tier(column: Option<i64>) -> Tier {
    u64::try_from(column.unwrap_or(0)).map_or(Tier::Unknown, Tier::numbered)
}

pub(super) fn read_tokens(row: &Row<'_>, first: usize) -> rusqlite::Result<Tokens> {
    let number = |index: usize| row.get::<_, Option<i64>>(first + index).map(|n| uncount(n.unwrap_or(0)));
    Ok(Tokens {
        input: number(0)?,
        output: number(1)?,
        cache_read: number(2)?,
        cache_write_5m: number(3)?,
        cache_write_1h: number(4)?,
        reasoning: number(5)?,
    })
}

/// The calls without a price, for `FROM`. The index is named because SQLite would as soon read all calls, by another one.
pub(super) const UNPRICED: &str = "record INDEXED BY record_unpriced WHERE kind = 'usage' AND cost IS NULL";

const STORED: &str =
    "n, session, cost, input, output, cache_read, cache_write_5m, cache_write_1h, reasoning, seen, source";

fn read_stored(row: &Row<'_>) -> rusqlite::Result<StoredRecord> {
    Ok(StoredRecord {
        n: row.get(0)?,
        session: row.get(1)?,
        cost: row.get(2)?,
        tokens: read_tokens(row, 3)?,
        seen: row.get::<_, Option<Seen>>(9)?.unwrap_or_default(),
        source: row.get::<_, Option<Source>>(10)?.unwrap_or(Source::Transcript),
    })
}

impl View<'_> {
    /// Under its key or a further one.
    pub fn stored_record(
        &self,
        agent: &str,
        kind: RecordKind,
        key: &str,
    ) -> Result<Option<StoredRecord>, Error> {
        self.maybe(
            &format!(
                "SELECT {STORED} FROM record WHERE n = ifnull(
                   (SELECT n FROM record WHERE agent = ?1 AND kind = ?2 AND key = ?3),
                   (SELECT record FROM record_alias WHERE agent = ?1 AND kind = ?2 AND key = ?3))"
            ),
            params![agent, kind, key],
            read_stored,
        )
    }

    pub fn stored_record_number(&self, n: i64) -> Result<Option<StoredRecord>, Error> {
        self.maybe(&format!("SELECT {STORED} FROM record WHERE n = ?1"), [n], read_stored)
    }

    /// A session's records, in the order in which they came in.
    pub fn records(&self, session: i64) -> Result<Vec<RecordRow>, Error> {
        self.all(
            &format!(
                "SELECT kind, key, at, subagent, model, input, output, cache_read, cache_write_5m, cache_write_1h, reasoning,
                   fast, request_id, cost, prices, tool, ok, tool_kind, file, lines_added, lines_removed, error_status,
                   error_kind, seen, source, branch, head, {},
                   (SELECT json_group_array(a.key) FROM record_alias a WHERE a.record = record.n)
                 FROM record WHERE session = ?1 ORDER BY n",
                proxied::COLUMNS
            ),
            [session],
            read_row,
        )
    }

    pub fn last_record_at(&self, session: i64) -> Result<Option<Timestamp>, Error> {
        self.one("SELECT max(at) FROM record WHERE session = ?1", [session], |row| row.get(0))
    }

    pub fn unpriced_models(&self, session: i64) -> Result<Vec<String>, Error> {
        self.all(
            &format!("SELECT DISTINCT model FROM {UNPRICED} AND session = ?1 ORDER BY model"),
            [session],
            |row| row.get(0),
        )
    }

    /// How many calls of which model have no price.
    pub fn unpriced_calls(&self, session: i64) -> Result<BTreeMap<String, i64>, Error> {
        let counted = self.all(
            &format!("SELECT model, count(*) FROM {UNPRICED} AND session = ?1 GROUP BY model"),
            [session],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(counted.into_iter().collect())
    }

    pub fn changed_files(&self, session: i64) -> Result<Vec<String>, Error> {
        self.all("SELECT path FROM changed_file WHERE session = ?1 ORDER BY path", [session], |row| {
            row.get(0)
        })
    }
}

impl Tx<'_> {
    pub fn insert_record(&self, agent: &str, session: i64, priced: &Priced) -> Result<i64, Error> {
        let record = &priced.record;
        let kind = RecordKind::of(&record.fact);
        match &record.fact {
            Fact::Usage(Usage { model, tokens, tier, request_id }) => self.execute(
                "INSERT INTO record (agent, kind, key, session, at, subagent, model, input, output, cache_read,
                   cache_write_5m, cache_write_1h, reasoning, fast, request_id, cost, prices)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
                params![
                    agent,
                    kind,
                    record.key,
                    session,
                    record.at,
                    record.subagent,
                    model,
                    count(tokens.input),
                    count(tokens.output),
                    count(tokens.cache_read),
                    count(tokens.cache_write_5m),
                    count(tokens.cache_write_1h),
                    count(tokens.reasoning),
                    tier.number(),
                    request_id,
                    priced.cost,
                    priced.prices
                ],
            )?,
            Fact::Tool(Tool { name, ok, kind: of_tool, file, further: _, lines_added, lines_removed }) => self.execute(
                "INSERT INTO record (agent, kind, key, session, at, subagent, tool, tool_kind, ok, file, lines_added,
                   lines_removed)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                params![
                    agent,
                    kind,
                    record.key,
                    session,
                    record.at,
                    record.subagent,
                    name,
                    of_tool,
                    ok,
                    file,
                    count(*lines_added),
                    count(*lines_removed)
                ],
            )?,
            Fact::Prompt => self.execute(
                "INSERT INTO record (agent, kind, key, session, at, subagent) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![agent, kind, record.key, session, record.at, record.subagent],
            )?,
            Fact::Error(error) => self.execute(
                "INSERT INTO record (agent, kind, key, session, at, subagent, error_status, error_kind)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![
                    agent,
                    kind,
                    record.key,
                    session,
                    record.at,
                    record.subagent,
                    error.status,
                    error.kind
                ],
            )?,
        };
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
