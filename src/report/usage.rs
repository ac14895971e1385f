//! Tokens and cost, added up by what is asked: of the sessions in the store, or of every conversation on this machine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::agent::Agent;
use crate::demo::{self, Demo};
use crate::home::Home;
use crate::scan::Scanner;
use crate::store::{self, By, Filter, SessionRow, Show, Store, UsageRow, View, joined};
use wire::{AgentSessionId, Timestamp};

/// The question: how calls are grouped, and since when they count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageQuery {
    pub by: By,
    pub since: Option<Timestamp>,
}

/// Tokens and cost by row, and what could not be read.
#[derive(Clone, Debug)]
pub struct UsageReport {
    pub by: By,
    pub rows: Vec<UsageRow>,
    /// Files with lines that could not be read, and how many.
    pub unreadable: Vec<(PathBuf, u64)>,
    pub files: u64,
    /// What a scan found beside the store's sessions, if there was a scan.
    pub scan: Option<ForeignUsage>,
    /// The store holds sessions of the demonstration, which are left out.
    pub has_demo: bool,
    /// Files and folders that could not be read, and why.
    pub refused: Vec<String>,
}

impl UsageReport {
    /// Of a machine without a store.
    pub fn empty(by: By) -> Self {
        Self {
            by,
            rows: Vec::new(),
            unreadable: Vec::new(),
            files: 0,
            scan: None,
            has_demo: false,
            refused: Vec::new(),
        }
    }

    /// Of the sessions in the store.
    pub fn recorded(view: &View<'_>, home: &Home, query: UsageQuery) -> Result<Self, store::Error> {
        let demo = Filter { agent: Some(Demo.name().to_owned()), show: Show::All, ..Filter::default() };
        Ok(Self {
            by: query.by,
            rows: view.usage(query.by, query.since)?,
            unreadable: view.unreadable()?,
            files: view.files_read(&demo::folder(home))?,
            scan: None,
            has_demo: !view.list(&demo)?.is_empty(),
            refused: Vec::new(),
        })
    }

    /// Of the sessions in the store and of all files that belong to none, in one look at the store. `compare`: how much of it
    /// never ran through codemie is counted as well.
    pub fn scanned(
        scanner: &Scanner<'_>,
        store: Option<&View<'_>>,
        query: UsageQuery,
        compare: bool,
    ) -> anyhow::Result<Self> {
        let UsageQuery { by, since } = query;
        let found = scanner.scan(store, since)?;
        for refused in found.refused.iter().chain(&found.unsaved) {
            tracing::warn!("scan: {refused}");
        }
        let owned = |by| store.map_or_else(|| Ok(Vec::new()), |view| view.usage(by, since));
        // The meter looks closer at the lines of the files it follows.
        let metered = store.map(View::unreadable).transpose()?.unwrap_or_default();
        let mut unreadable: BTreeMap<PathBuf, u64> = found.unreadable().into_iter().collect();
        for (path, lines) in metered {
            if let Some(known) = unreadable.get_mut(&path) {
                *known = lines.max(*known);
            }
        }
        let scan = if compare {
            ForeignUsage::of(&joined(By::Session, owned(By::Session)?, found.rows(By::Session)))
        } else {
            ForeignUsage::default()
        };
        Ok(Self {
            by,
            rows: joined(by, owned(by)?, found.rows(by)),
            unreadable: unreadable.into_iter().collect(),
            files: found.files() as u64,
            scan: Some(scan),
            has_demo: false,
            refused: found.refused,
        })
    }

    pub fn total(&self) -> UsageRow {
        self.rows.iter().fold(UsageRow::default(), |mut sum, row| {
            sum.add(row);
            sum
        })
    }

    pub fn unreadable_lines(&self) -> u64 {
        self.unreadable.iter().map(|(_, lines)| lines).sum()
    }

    /// As programs get it.
    pub fn record(&self) -> UsageRecord<'_> {
        UsageRecord {
            by: self.by,
            rows: &self.rows,
            total: self.total().into(),
            unreadable_lines: self.unreadable_lines(),
            files: self.files,
        }
    }
}

/// The conversations that never ran through codemie, of a scan.
#[derive(Clone, Debug, Default)]
pub struct ForeignUsage {
    pub conversations: usize,
    pub sum: UsageRow,
}

impl ForeignUsage {
    pub fn of(sessions: &[UsageRow]) -> Self {
        let mut all = Self::default();
        for row in sessions.iter().filter(|row| row.foreign) {
            all.conversations += 1;
            all.sum.add(row);
        }
        all
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageRecord<'a> {
    by: By,
    rows: &'a [UsageRow],
    total: TotalRecord,
    unreadable_lines: u64,
    files: u64,
}

/// The sum of all rows, which has no key.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TotalRecord {
    input_tokens: i64,
    output_tokens: i64,
    cache_read_tokens: i64,
    cache_write_tokens: i64,
    reasoning_tokens: i64,
    api_calls: i64,
    cost_usd: f64,
    unpriced_models: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    unpriced_calls: BTreeMap<String, i64>,
}

impl From<UsageRow> for TotalRecord {
    fn from(total: UsageRow) -> Self {
        Self {
            input_tokens: total.input,
            output_tokens: total.output,
            cache_read_tokens: total.cache_read,
            cache_write_tokens: total.cache_write,
            reasoning_tokens: total.reasoning,
            api_calls: total.api_calls,
            cost_usd: total.cost.dollars(),
            unpriced_models: total.unpriced_models,
            unpriced_calls: total.unpriced_calls,
        }
    }
}

/// The name, project and start of the session that a row is about.
#[derive(Clone, Debug, Default)]
pub struct SessionLabel {
    pub name: String,
    pub project: Option<String>,
    pub started: Option<Timestamp>,
}

/// Labels for rows that are sessions, from the store.
#[derive(Clone, Debug, Default)]
pub struct SessionLabels {
    /// One for each row.
    pub labels: Vec<SessionLabel>,
    /// The ids of all sessions in the store: a short id in the table must not fit a session that is not in it.
    pub ids: Vec<String>,
}

impl SessionLabels {
    pub fn of(store: &mut Store, rows: &[UsageRow]) -> Result<Self, store::Error> {
        store.read(|view| {
            let sessions = view.list(&Filter { show: Show::All, ..Filter::default() })?;
            let ids =
                |row: SessionRow| [row.id.to_string()].into_iter().chain(row.agent_session.map(|id| id.0));
            Ok(Self {
                labels: rows.iter().map(|row| SessionLabel::of(view, row)).collect::<Result<_, _>>()?,
                ids: sessions.into_iter().flat_map(ids).collect(),
            })
        })
    }
}

impl SessionLabel {
    /// Empty for a row that no session is behind.
    fn of(view: &View<'_>, row: &UsageRow) -> Result<Self, store::Error> {
        let Some(agent) = &row.agent else { return Ok(Self::default()) };
        let id = AgentSessionId(row.key.clone());
        if let Some(found) = view.session_by_agent_session(agent, &id)? {
            let started = Some(found.started_at);
            return Ok(Self { name: found.name, project: found.workspace.project, started });
        }
        let pruned = view.pruned_session(agent, &id)?.map(|pruned| Self {
            name: pruned.name,
            project: pruned.project,
            started: Some(pruned.started_at),
        });
        Ok(pruned.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::lifecycle::{ConversationStart, bind};
    use crate::session::tests::{World, binding};

    fn row(key: &str, agent: Option<&str>, foreign: bool) -> UsageRow {
        let agent = agent.map(str::to_owned);
        UsageRow { key: key.into(), agent, api_calls: 2, input: 10, foreign, ..UsageRow::default() }
    }

    #[test]
    fn rows_add_up_and_foreign_ones_are_counted() {
        let rows = vec![row("a", Some("claude"), false), row("b", Some("codex"), true)];
        let foreign = ForeignUsage::of(&rows);
        assert_eq!((foreign.conversations, foreign.sum.api_calls), (1, 2));
        let report = UsageReport {
            rows,
            unreadable: vec![("/a".into(), 2), ("/b".into(), 3)],
            ..UsageReport::empty(By::Session)
        };
        assert_eq!((report.total().api_calls, report.total().input), (4, 20));
        assert_eq!(report.unreadable_lines(), 5);
    }

    #[test]
    fn a_row_is_labelled_by_the_session_of_its_conversation() {
        let mut world = World::new();
        let (_, started) = world.start(ConversationStart::Fresh);
        let (at, ids) = (world.now, &world.ids);
        world.store.write(|tx| bind(tx, at, ids, started.session, &binding("one"))).unwrap();
        let key = binding("one").agent_session.0;
        let rows = [
            row(&key, Some("claude"), false),
            row(&key, Some("codex"), true),
            row("2026-11-16", None, false),
        ];
        let known = SessionLabels::of(&mut world.store, &rows).unwrap();
        let projects: Vec<_> = known.labels.iter().map(|label| label.project.as_deref()).collect();
        assert_eq!(projects, [Some("project"), None, None]);
        assert_eq!(known.labels[0].started, Some(at));
        assert!(known.ids.contains(&key) && known.ids.contains(&started.session.to_string()));
    }
}
