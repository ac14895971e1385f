//! Tokens and cost, added up the way a person asks.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rusqlite::params;
use serde::Serialize;

use super::total::sum;
use super::{Error, View};
use wire::Timestamp;

use crate::meter::record::LONGEST_KEY;
use wire::PicoDollars;
use wire::spelled;

spelled!(
    By {
        Day = "day",
        Session = "session",
        Model = "model",
        Project = "project",
        Agent = "agent",
        Branch = "branch",
    }
);

/// One line of `usage`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageRow {
    pub key: String,
    /// `None` where several agents share the key.
    pub agent: Option<String>,
    pub api_calls: i64,
    pub input: i64,
    pub output: i64,
    pub cache_read: i64,
    pub cache_write: i64,
    pub reasoning: i64,
    pub cost: PicoDollars,
    /// Models without a price: their calls are in the tokens, not in the cost.
    pub unpriced_models: Vec<String>,
    /// Of those that have a price, and none for one of their modes: how many calls have none.
    pub unpriced_calls: BTreeMap<String, i64>,
    /// The first call counted.
    pub first_at: Timestamp,
    /// None of it was run through codemie: a scan found it.
    pub foreign: bool,
    /// Where a conversation that a scan found took place.
    pub project: Option<String>,
}

impl UsageRow {
    /// Adds another row's numbers to this one's.
    pub fn add(&mut self, other: &Self) {
        let add = |sum: &mut i64, more: i64| *sum = sum.saturating_add(more);
        add(&mut self.api_calls, other.api_calls);
        add(&mut self.input, other.input);
        add(&mut self.output, other.output);
        add(&mut self.cache_read, other.cache_read);
        add(&mut self.cache_write, other.cache_write);
        add(&mut self.reasoning, other.reasoning);
        add(&mut self.cost.0, other.cost.0);
        for model in &other.unpriced_models {
            if !self.unpriced_models.contains(model) {
                self.unpriced_models.push(model.clone());
            }
        }
        for (model, calls) in &other.unpriced_calls {
            add(self.unpriced_calls.entry(model.clone()).or_default(), *calls);
        }
    }
}

/// Rows of two sources as those of one, in the order that [`View::usage`] gives.
pub fn joined(by: By, rows: Vec<UsageRow>, more: Vec<UsageRow>) -> Vec<UsageRow> {
    let mut by_key: BTreeMap<(String, Option<String>), UsageRow> = BTreeMap::new();
    for row in rows.into_iter().chain(more) {
        // Two agents' conversations are two, even under one id.
        let agent = row.agent.clone().filter(|_| by == By::Session);
        match by_key.entry((row.key.clone(), agent)) {
            Entry::Vacant(entry) => drop(entry.insert(row)),
            Entry::Occupied(entry) => {
                let known = entry.into_mut();
                known.add(&row);
                known.agent = known.agent.take().filter(|agent| row.agent.as_ref() == Some(agent));
                known.first_at = known.first_at.min(row.first_at);
                known.foreign &= row.foreign;
            }
        }
    }
    let mut rows: Vec<_> = by_key.into_values().collect();
    match by {
        By::Day => {}
        By::Session => rows.sort_by_key(|row| row.first_at),
        By::Model | By::Project | By::Agent | By::Branch => rows.sort_by_key(|row| Reverse(row.cost)),
    }
    rows
}

impl Serialize for UsageRow {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape<'a> {
            key: &'a str,
            agent: Option<&'a str>,
            input_tokens: i64,
            output_tokens: i64,
            cache_read_tokens: i64,
            cache_write_tokens: i64,
            reasoning_tokens: i64,
            api_calls: i64,
            cost_usd: f64,
            unpriced_models: &'a [String],
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            unpriced_calls: &'a BTreeMap<String, i64>,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            foreign: bool,
        }
        Shape {
            key: &self.key,
            agent: self.agent.as_deref(),
            input_tokens: self.input,
            output_tokens: self.output,
            cache_read_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            reasoning_tokens: self.reasoning,
            api_calls: self.api_calls,
            cost_usd: self.cost.dollars(),
            unpriced_models: &self.unpriced_models,
            unpriced_calls: &self.unpriced_calls,
            foreign: self.foreign,
        }
        .serialize(serializer)
    }
}

impl View<'_> {
    /// The calls since a time, by key, those of pruned sessions included; local ones, the demonstration's, are left out.
    pub fn usage(&self, by: By, since: Option<Timestamp>) -> Result<Vec<UsageRow>, Error> {
        let here = "record r JOIN session s ON s.n = r.session AND r.kind = 'usage' AND s.local_only = 0";
        let here = self.usage_in(here, by, since)?;
        let pruned = self.usage_in("pruned_call r JOIN pruned_session s ON s.n = r.session", by, since)?;
        Ok(if pruned.is_empty() { here } else { joined(by, here, pruned) })
    }

    fn usage_in(&self, calls: &str, by: By, since: Option<Timestamp>) -> Result<Vec<UsageRow>, Error> {
        let (key, order) = match by {
            By::Day => ("ifnull(date(r.at / 1000, 'unixepoch', 'localtime'), '(no date)')", "key"),
            By::Session => ("ifnull(s.agent_session, s.id)", "min(r.at)"),
            By::Model => ("r.model", "cost DESC, key"),
            By::Project => ("ifnull(s.project, '(none)')", "cost DESC, key"),
            By::Agent => ("s.agent", "cost DESC, key"),
            By::Branch => ("ifnull(s.branch, '(none)')", "cost DESC, key"),
        };
        let [input, output, cache_read, reasoning] =
            ["r.input", "r.output", "r.cache_read", "r.reasoning"].map(sum);
        let (cache_write, cost) = (sum("r.cache_write_5m + r.cache_write_1h"), sum("r.cost"));
        self.all(
            &format!(
                "SELECT {key} AS key, CASE WHEN min(s.agent) = max(s.agent) THEN min(s.agent) END, count(*),
                   {input}, {output}, {cache_read}, {cache_write}, {reasoning}, {cost} AS cost,
                   json_group_array(r.model) FILTER (WHERE r.cost IS NULL), min(r.at)
                 FROM {calls}
                 WHERE ?1 IS NULL OR r.at >= ?1
                 GROUP BY 1 ORDER BY {order}"
            ),
            params![since],
            |row| {
                let unpriced: Option<String> = row.get(9)?;
                let unpriced: Vec<String> =
                    unpriced.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
                let mut unpriced_calls: BTreeMap<String, i64> = BTreeMap::new();
                for model in unpriced {
                    *unpriced_calls.entry(model).or_default() += 1;
                }
                Ok(UsageRow {
                    key: row.get(0)?,
                    agent: row.get(1)?,
                    api_calls: row.get(2)?,
                    input: row.get(3)?,
                    output: row.get(4)?,
                    cache_read: row.get(5)?,
                    cache_write: row.get(6)?,
                    reasoning: row.get(7)?,
                    cost: row.get(8)?,
                    unpriced_models: unpriced_calls.keys().cloned().collect(),
                    unpriced_calls: prices::of_priced_models(unpriced_calls),
                    first_at: row.get(10)?,
                    foreign: false,
                    project: None,
                })
            },
        )
    }

    /// Changes whenever a call gets an owner here or loses it: numbers that rise with every record, and what shows that a
    /// session was deleted, or deleted and another one made in its place.
    pub fn owned_calls_mark(&self) -> Result<[i64; 5], Error> {
        self.one(
            "SELECT count(*), ifnull(sum(n), 0), ifnull(sum(started_at), 0),
               (SELECT ifnull(max(n), 0) FROM record), (SELECT change FROM outbox)
             FROM session",
            [],
            |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]),
        )
    }

    /// Hands out agent and key of every call that has an owner here, or had one that was pruned. A key that no line is read
    /// with any more, but once was, is nobody's.
    pub fn each_owned_call(&self, mut each: impl FnMut(&str, &str)) -> Result<(), Error> {
        let mut read = || {
            let mut statement = self.conn.prepare_cached(
                "SELECT agent, key FROM record WHERE kind = 'usage' UNION ALL SELECT agent, key FROM pruned_call",
            )?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let (agent, key) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
                if key.len() <= LONGEST_KEY {
                    each(agent, key);
                }
            }
            Ok(())
        };
        self.noted(read())
    }
}
