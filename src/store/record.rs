//! The records: facts of the agents' files, each owned by one session for good.

use std::collections::BTreeMap;

use rusqlite::{Row, params};
use serde::{Deserialize, Serialize};

use super::spelling::{count, uncount};
use super::{Error, Tx, View};
use crate::meter::record::{ApiError, Fact, Record, Tool, Usage};
use prices::tier::Tier;
use wire::PicoDollars;
use wire::Timestamp;
use wire::spelled;
use wire::{Tokens, ToolKind};

/// A record with what it cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priced {
    pub record: Record,
    /// `None` when the model has no price, and for what is no API call.
    pub cost: Option<PicoDollars>,
    /// Version of the price table the cost was made with.
    pub prices: Option<String>,
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
}

impl RecordRow {
    /// What no line of an agent's would be read for is not taken in from elsewhere either.
    pub fn is_plausible(&self) -> bool {
        let Priced { record, cost, .. } = self.priced();
        record.is_plausible()
            && record.at.is_a_date()
            && RecordKind::of(&record.fact) == self.kind
            && cost.is_none_or(|cost| (0..=MOST_OF_A_CALL.0).contains(&cost.0))
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
    })
}

/// The column is called `fast`: a codemie that knows no other tiers reads every number but zero as fast. It prices nothing by
/// that, the cost is stored beside it.
fn read_tier(column: Option<i64>) -> Tier {
    u64::try_from(column.unwrap_or(0)).map_or(Tier::Unknown, Tier::numbered)
}

fn read_tokens(row: &Row<'_>, first: usize) -> rusqlite::Result<Tokens> {
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

impl View<'_> {
    pub fn stored_record(
        &self,
        agent: &str,
        kind: RecordKind,
        key: &str,
    ) -> Result<Option<StoredRecord>, Error> {
        self.maybe(
            "SELECT n, session, cost, input, output, cache_read, cache_write_5m, cache_write_1h, reasoning
             FROM record WHERE agent = ?1 AND kind = ?2 AND key = ?3",
            params![agent, kind, key],
            |row| {
                Ok(StoredRecord {
                    n: row.get(0)?,
                    session: row.get(1)?,
                    cost: row.get(2)?,
                    tokens: read_tokens(row, 3)?,
                })
            },
        )
    }

    /// A session's records, in the order in which they came in.
    pub fn records(&self, session: i64) -> Result<Vec<RecordRow>, Error> {
        self.all(
            "SELECT kind, key, at, subagent, model, input, output, cache_read, cache_write_5m, cache_write_1h, reasoning,
               fast, request_id, cost, prices, tool, ok, tool_kind, file, lines_added, lines_removed, error_status,
               error_kind
             FROM record WHERE session = ?1 ORDER BY n",
            [session],
            read_row,
        )
    }

    pub fn last_record_at(&self, session: i64) -> Result<Option<Timestamp>, Error> {
        self.one("SELECT max(at) FROM record WHERE session = ?1", [session], |row| row.get(0))
    }

    pub fn unpriced_models(&self, session: i64) -> Result<Vec<String>, Error> {
        self.all(
            "SELECT DISTINCT model FROM record WHERE session = ?1 AND kind = 'usage' AND cost IS NULL ORDER BY model",
            [session],
            |row| row.get(0),
        )
    }

    /// How many calls of which model have no price.
    pub fn unpriced_calls(&self, session: i64) -> Result<BTreeMap<String, i64>, Error> {
        let counted = self.all(
            "SELECT model, count(*) FROM record WHERE session = ?1 AND kind = 'usage' AND cost IS NULL GROUP BY model",
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
    pub(crate) fn insert_record(&self, agent: &str, session: i64, priced: &Priced) -> Result<i64, Error> {
        let record = &priced.record;
        let kind = RecordKind::of(&record.fact);
        match &record.fact {
            Fact::Usage(Usage { model, tokens, tier, request_id }) => self.run(
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
            Fact::Tool(Tool { name, ok, kind: of_tool, file, further: _, lines_added, lines_removed }) => self.run(
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
            Fact::Prompt => self.run(
                "INSERT INTO record (agent, kind, key, session, at, subagent) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![agent, kind, record.key, session, record.at, record.subagent],
            )?,
            Fact::Error(error) => self.run(
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

    pub(crate) fn insert_record_row(&self, agent: &str, session: i64, row: &RecordRow) -> Result<i64, Error> {
        self.insert_record(agent, session, &row.priced())
    }

    /// A later line has more of the same call.
    pub(crate) fn revise_usage(&self, n: i64, usage: &Usage, priced: &Priced) -> Result<(), Error> {
        let tokens = &usage.tokens;
        self.run(
            "UPDATE record SET model = ?2, input = ?3, output = ?4, cache_read = ?5, cache_write_5m = ?6,
               cache_write_1h = ?7, reasoning = ?8, fast = ?9, request_id = ?10, cost = ?11, prices = ?12
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
                priced.prices
            ],
        )
        .map(drop)
    }

    /// Whether the file is the first time changed by this session.
    pub(crate) fn note_changed_file(&self, session: i64, path: &str) -> Result<bool, Error> {
        self.run("INSERT OR IGNORE INTO changed_file VALUES (?1, ?2)", params![session, path])
            .map(|added| added > 0)
    }
}
