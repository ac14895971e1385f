//! For tests: sessions over a real database in a temporary folder.

use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use serde_json::Value;
use uuid::Uuid;

use super::Error;
use super::absorb::{Batch, absorb};
use super::lifecycle::{
    self, BindResult, Binding, ConversationStart, RunStart, StartResult, Transition, TransitionResult,
};
use super::state::{Ending, Exit};
use crate::FileId;
use crate::{BootAndPidNs, NewRun, PicoDollars, Priced, SessionRow, Store, View, Workspace};
use agents::meter::record::{Fact, Record, Usage};
use os::calendar::LocalClock;
use os::home::Home;
use pricing::tier::Tier;
use types::EvidenceKind;
use types::Span;
use types::Timestamp;
use types::Tokens;
use types::TransitionKind;
use types::{AgentSessionId, Ids, RunId, SessionId};
use types::{Pid, ProcessId, StartTime};
use usage::{By, UsageQuery, UsageRow, tally};

/// Ids that count: a test can say which comes next.
#[derive(Debug, Default)]
pub struct CountingIds(AtomicU64);

impl Ids for CountingIds {
    fn uuid(&self) -> Uuid {
        let n = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        Uuid::from_u128(0x4000_8000_0000_0000_0000 | u128::from(n) << 96)
    }
}

#[derive(Debug)]
pub struct World {
    pub home: Home,
    pub store: Store,
    pub ids: CountingIds,
    pub now: Timestamp,
    _folder: tempfile::TempDir,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().join("home"));
        let now = Timestamp::parse("2026-11-16T10:00:00Z").unwrap();
        let store = Store::open(&home, now).unwrap();
        Self { home, store, ids: CountingIds::default(), now, _folder: folder }
    }

    /// A second process's connection.
    pub fn another(&self) -> Store {
        Store::open(&self.home, self.now).unwrap()
    }

    pub fn wait(&mut self, ms: i64) -> Timestamp {
        self.now.0 += ms;
        self.now
    }

    pub fn begin(&self, conversation: ConversationStart) -> RunStart {
        let run = self.ids.run();
        RunStart {
            run: NewRun { id: run, realm: realm(), wrapper: process(run), proxied: false },
            agent: "claude".into(),
            local_only: false,
            agent_version: None,
            workspace: Workspace {
                cwd: "/home/dev/project".into(),
                project: Some("project".into()),
                repository: Some("acme/widgets".into()),
                branch: Some("main".into()),
            },
            conversation,
            name: None,
            tags: Vec::new(),
            group: None,
            parent: None,
        }
    }

    /// Starts a run and gives its id with the session it is in.
    pub fn start(&mut self, conversation: ConversationStart) -> (RunId, StartResult) {
        let begin = self.begin(conversation);
        self.start_as(&begin)
    }

    pub fn start_as(&mut self, begin: &RunStart) -> (RunId, StartResult) {
        let at = self.wait(1000);
        let started = self.store.write(|tx| super::lifecycle::start(tx, at, &self.ids, begin)).unwrap();
        self.check();
        (begin.run.id, started)
    }

    pub fn session(&mut self, id: SessionId) -> SessionRow {
        self.store.read(|view| view.session(id)).unwrap().unwrap()
    }

    /// `seq.rev type word`, where the word is what a test asks about most.
    pub fn events(&mut self, id: SessionId) -> Vec<String> {
        let row = self.session(id);
        let events = self.store.read(|view| view.events(row.n)).unwrap();
        events
            .into_iter()
            .map(|event| {
                let attributes: Value = event
                    .attributes
                    .as_deref()
                    .map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
                let word =
                    ["reason", "endReason", "agentSessionId"].iter().find_map(|key| attributes[key].as_str());
                format!("{}.{} {} {}", event.seq, event.rev, event.kind, word.unwrap_or(""))
                    .trim_end()
                    .to_owned()
            })
            .collect()
    }

    /// The attributes of the last event of a type.
    pub fn attributes(&mut self, id: SessionId, kind: &str) -> Value {
        let row = self.session(id);
        let events = self.store.read(|view| view.events(row.n)).unwrap();
        let event = events.into_iter().rfind(|event| event.kind.as_str() == kind).unwrap();
        serde_json::from_str(&event.attributes.unwrap()).unwrap()
    }

    pub fn end(&mut self, run: RunId, exit: Exit) -> lifecycle::EndResult {
        let at = self.wait(1000);
        let ended = self.store.write(|tx| lifecycle::end(tx, at, run, Ending::exited(exit))).unwrap();
        self.check();
        ended
    }

    pub fn transition(
        &mut self,
        run: RunId,
        kind: TransitionKind,
        agent_session: Option<&str>,
    ) -> Result<TransitionResult, Error> {
        let at = self.wait(1000);
        let change = Transition { kind, binding: agent_session.map(binding), workspace: None };
        let result = self.store.write(|tx| lifecycle::transition(tx, at, &self.ids, run, &change));
        self.check();
        result
    }

    pub fn bind(&mut self, session: SessionId, agent_session: &str) -> Result<BindResult, Error> {
        let at = self.wait(100);
        let bound =
            self.store.write(|tx| lifecycle::bind(tx, at, &self.ids, session, &binding(agent_session)));
        self.check();
        bound
    }

    pub fn feed(&mut self, session: SessionId, inode: u64, records: &[Priced]) {
        let at = self.now;
        let batch = Batch {
            file: FileId { device: 1, inode },
            path: "/f".as_ref(),
            from: 0,
            restart: false,
            to: 1,
            state: &[],
            unreadable: 0,
            records,
        };
        self.store.write(|tx| absorb(tx, at, session, &batch)).unwrap();
    }

    pub fn check(&self) {
        check(self.store.sql());
    }
}

pub fn realm() -> BootAndPidNs {
    BootAndPidNs { boot: "boot".into(), pids: "pids".into() }
}

pub fn process(run: RunId) -> ProcessId {
    ProcessId { pid: Pid(4242), start: StartTime(u64::try_from(run.0.as_u128() >> 96).unwrap()) }
}

pub fn agent_session(text: &str) -> AgentSessionId {
    AgentSessionId(text.into())
}

pub fn binding(text: &str) -> Binding {
    Binding { agent_session: agent_session(text), file: None, evidence: EvidenceKind::Registry }
}

pub fn usage(key: &str, at: Timestamp, output: u64) -> Priced {
    Priced {
        record: Record {
            key: key.into(),
            at,
            copied: false,
            subagent: None,
            fact: Fact::Usage(Usage {
                model: "claude-sonnet-4-5".into(),
                tokens: Tokens {
                    input: 10,
                    output,
                    cache_read: 1000,
                    cache_write_5m: 100,
                    ..Tokens::default()
                },
                tier: Tier::Standard,
                request_id: None,
            }),
        },
        cost: Some(PicoDollars(1_000_000 * i64::try_from(output).unwrap())),
        prices: Some("2026-11".into()),
    }
}

/// What holds between the rows at every moment, whatever happened.
pub fn check(sql: &Connection) {
    let none = |what: &str, query: &str| {
        let mut statement = sql.prepare(query).unwrap();
        let columns = statement.column_count();
        let rows: Vec<String> = statement
            .query_map([], |row| {
                let cells =
                    (0..columns).map(|i| format!("{:?}", row.get_ref(i).unwrap())).collect::<Vec<_>>();
                Ok(cells.join(" "))
            })
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(rows.is_empty(), "{what}: {rows:?}");
    };
    none(
        "seq has a hole, or last_seq is not the last",
        "SELECT s.id, s.last_seq, count(e.n), max(e.seq), min(e.seq) FROM session s LEFT JOIN event e ON e.session = s.n
         GROUP BY s.n HAVING count(e.n) <> s.last_seq OR (s.last_seq > 0 AND (max(e.seq) <> s.last_seq OR min(e.seq) <> 1))",
    );
    none(
        "a provisional session has events",
        "SELECT id FROM session WHERE phase = 'provisional' AND last_seq <> 0",
    );
    none(
        "an opening without its START, or a closed one without its END",
        "SELECT s.id, o.number FROM session s JOIN opening o ON o.session = s.n
         WHERE s.phase <> 'provisional' AND s.imported_from IS NULL AND (
           (SELECT count(*) FROM event e WHERE e.session = s.n AND e.type = 'session.start' AND e.opening = o.number) <> 1
           OR (SELECT count(*) FROM event e WHERE e.session = s.n AND e.type = 'session.end' AND e.opening = o.number)
              <> (o.closed_at IS NOT NULL))",
    );
    none(
        "open and closed do not agree with the openings",
        "SELECT s.id FROM session s JOIN opening o ON o.session = s.n AND o.number = s.opening
         WHERE (s.phase = 'closed') <> (o.closed_at IS NOT NULL) OR (s.phase = 'closed') <> (s.ended_at IS NOT NULL)
            OR (s.phase = 'closed') <> (s.status IS NOT NULL)",
    );
    none(
        "an open session that no run is in, or a closed one that a run is in",
        "SELECT s.id, s.phase FROM session s WHERE (s.phase <> 'closed')
           <> EXISTS (SELECT 1 FROM run r WHERE r.session = s.n AND r.ended_at IS NULL)",
    );
    none(
        "the last END of a closed session does not say the last seq",
        "SELECT s.id, s.last_seq, e.attributes FROM session s
         JOIN event e ON e.session = s.n AND e.type = 'session.end' AND e.opening = s.opening
         WHERE s.phase = 'closed' AND json_extract(e.attributes, '$.lastSeq') <> s.last_seq",
    );
    none(
        "the sums are not those of the records",
        "SELECT s.id FROM session s LEFT JOIN total t ON t.session = s.n
         LEFT JOIN (SELECT session, sum(kind = 'usage') AS calls, sum(output) AS output, sum(input) AS input,
             sum(cache_read) AS cache_read, sum(cache_write_5m + cache_write_1h) AS cache_write, sum(cost) AS cost,
             sum(kind = 'prompt') AS prompts, sum(kind = 'tool') AS tools, sum(kind = 'error') AS errors,
             sum(lines_added) AS added FROM record GROUP BY session) r ON r.session = s.n
         WHERE ifnull(t.api_calls, 0) <> ifnull(r.calls, 0) OR ifnull(t.output, 0) <> ifnull(r.output, 0)
            OR ifnull(t.input, 0) <> ifnull(r.input, 0) OR ifnull(t.cache_read, 0) <> ifnull(r.cache_read, 0)
            OR ifnull(t.cache_write, 0) <> ifnull(r.cache_write, 0) OR ifnull(t.cost, 0) <> ifnull(r.cost, 0)
            OR ifnull(t.prompts, 0) <> ifnull(r.prompts, 0) OR ifnull(t.tool_calls, 0) <> ifnull(r.tools, 0)
            OR ifnull(t.api_errors, 0) <> ifnull(r.errors, 0) OR ifnull(t.lines_added, 0) <> ifnull(r.added, 0)",
    );
    none(
        "what was spent by quarters of an hour and by days is not what the records say",
        "SELECT * FROM (SELECT width, slot, session, calls, unpriced, cost FROM spent EXCEPT
           SELECT w.width, r.at / w.ms, r.session, count(*), sum(r.cost IS NULL), ifnull(sum(r.cost), 0)
           FROM record r JOIN session s ON s.n = r.session AND s.local_only = 0,
             (SELECT 0 AS width, 900000 AS ms UNION SELECT 1, 86400000) w
           WHERE r.kind = 'usage' GROUP BY 1, 2, 3)
         UNION ALL SELECT -1, sum(calls), 0, 0, 0, 0 FROM spent
           HAVING ifnull(sum(calls), 0) <> 2 * (SELECT count(*) FROM record r JOIN session s ON s.n = r.session
             WHERE r.kind = 'usage' AND s.local_only = 0)",
    );
    none(
        "the last END of a closed session does not say the sums",
        "SELECT s.id FROM session s JOIN total t ON t.session = s.n
         JOIN event e ON e.session = s.n AND e.type = 'session.end' AND e.opening = s.opening
         WHERE s.phase = 'closed' AND s.imported_from IS NULL
           AND json_extract(e.attributes, '$.totals.outputTokens') <> t.output",
    );
    none(
        "a record without exactly one event of its session",
        "SELECT r.key FROM record r WHERE (SELECT count(*) FROM event e WHERE e.record = r.n AND e.session = r.session) <> 1",
    );
    none(
        "two rows with one change",
        "SELECT change FROM event WHERE change IS NOT NULL GROUP BY change HAVING count(*) > 1",
    );
    none("a change beyond the counter", "SELECT e.change FROM event e, outbox o WHERE e.change > o.change");
    none("foreign keys", "PRAGMA foreign_key_check");
}

/// The rows of `usage` over the store's sessions, days as UTC has them.
pub fn rows_of(view: &View<'_>, by: By, since: Option<Timestamp>) -> Result<Vec<UsageRow>, crate::Error> {
    let clock = LocalClock::of(jiff::tz::TimeZone::UTC);
    let spending = view.spending(&clock, Span { since, until: None })?;
    Ok(tally(&[spending], &UsageQuery::by(by)).rows)
}
