//! Taking a batch in: the statements. What to write is decided by [`Intake`].

use std::collections::{HashMap, HashSet};

use deadpool_postgres::Object;
use futures_util::future::{FutureExt, try_join, try_join_all, try_join4};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::rows::Rows;
use super::{IngestError, RowColumns};
use crate::fold::{Arrival, SessionChange};
use crate::intake::{Found, Intake};
use crate::sql::{
    COST, COUNTED, Get, LIFE, LISTED, STORED_EVENT_COLUMNS, SessionColumn, SessionKey, SessionKeys, added,
    numbers_added, session, session_columns, session_quarter, session_quarter_columns, stored_event,
};
use reader::Session;
use reader::{Numbers, Quarter};
use types::Event;
use types::Timestamp;

/// Sessions are locked by stripes: a batch of ten thousand sessions must not fill the server's table of locks.
const STRIPES: u32 = 256;
/// The class of our advisory locks.
const LOCKS: i32 = 0x636d;

/// Each statement sees everything committed before it, whatever the default of the server or the role is. Under a stricter
/// level all of them would see the state from before the wait for the lock.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Three waits for the server: the stored sessions, the new events, and the commit.
pub(super) async fn ingest(
    client: &Object,
    owner: i64,
    intake: &mut Intake,
    now: Timestamp,
) -> Result<(), IngestError> {
    let mut tx = Transaction { client, open: false };
    let (keys, sessions) = begin(&mut tx, intake).await?;
    let revisions = stored_revisions(&tx, owner, intake.far_revisions()).await?;
    intake.load(Found { owner, sessions, revisions });
    add_events(&tx, owner, intake, &keys).await?;
    let before = quarters_before(&tx, intake, &keys).await?;
    write(&mut tx, intake, &keys, &before, now).await
}

/// A transaction whose BEGIN and COMMIT are sent together with other statements. Dropped before the end, it rolls back.
struct Transaction<'a> {
    client: &'a Object,
    open: bool,
}

impl Transaction<'_> {
    async fn query(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, IngestError> {
        let statement = self.client.prepare_cached(sql).await?;
        Ok(self.client.query(&statement, values).await?)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.open {
            // Sent, and not waited for: the next statement on this connection comes after it.
            let _ = self.client.batch_execute("ROLLBACK").now_or_never();
        }
    }
}

fn stripe(session: &str) -> i32 {
    // FNV-1a: every node and every version must come to the same.
    let hash = session
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash % STRIPES).cast_signed()
}

/// Locks the sessions of the batch, then reads them; new ones get numbers. All statements go out at once.
async fn begin(
    tx: &mut Transaction<'_>,
    intake: &Intake,
) -> Result<(SessionKeys, Vec<Session>), IngestError> {
    let (client, ids) = (tx.client, intake.sessions());
    let mut stripes: Vec<i32> = ids.iter().map(|id| stripe(id)).collect();
    stripes.sort_unstable();
    stripes.dedup();
    let lock = format!("SELECT pg_advisory_xact_lock({LOCKS}, stripe) FROM unnest($1::int[]) AS stripe");
    // A statement of its own: it sees everything committed during the wait for the lock.
    let select = format!("SELECT {}, s.n AS n FROM session s WHERE s.id = ANY($1)", session_columns());
    // A number for each, since it is not known yet which are there; there are more than will ever be used.
    let numbers = "SELECT nextval('session_n') AS n FROM generate_series(1, $1::bigint)";
    let count = i64::try_from(ids.len()).unwrap_or(i64::MAX);
    let lock = client.prepare_cached(&lock).await?;
    let select = client.prepare_cached(&select).await?;
    let numbers = client.prepare_cached(numbers).await?;
    tx.open = true;
    let ((), _, rows, numbers) = try_join4(
        client.batch_execute(BEGIN),
        client.query(&lock, &[&stripes]),
        client.query(&select, &[&ids]),
        client.query(&numbers, &[&count]),
    )
    .await?;
    let (mut keys, mut sessions) = (SessionKeys::new(), Vec::new());
    for row in &rows {
        // A session that cannot be read must not be written over.
        let stored = session(&RowColumns(row))?;
        let key = SessionKey { n: row.try_get("n")?, stored: true };
        keys.insert(stored.id.clone(), key);
        sessions.push(stored);
    }
    for (id, row) in ids.into_iter().zip(&numbers) {
        let new = SessionKey { n: row.try_get("n")?, stored: false };
        keys.entry(id).or_insert(new);
    }
    Ok((keys, sessions))
}

fn session_number(keys: &SessionKeys, id: &str) -> i64 {
    keys.get(id).map_or(0, |key| key.n)
}

/// The stored revisions of the events that [`Intake::far_revisions`] names.
async fn stored_revisions(
    tx: &Transaction<'_>,
    owner: i64,
    ids: Vec<Uuid>,
) -> Result<HashMap<Uuid, (String, i64)>, IngestError> {
    let mut revisions = HashMap::new();
    if !ids.is_empty() {
        let sql =
            "SELECT e.id AS id, s.id AS session, e.rev AS rev FROM event e JOIN session s ON s.n = e.session
             WHERE e.owner = $1 AND e.id = ANY($2)";
        for row in tx.query(sql, &[&owner, &ids]).await? {
            revisions.insert(row.try_get("id")?, (row.try_get("session")?, row.try_get("rev")?));
        }
    }
    Ok(revisions)
}

async fn add_events(
    tx: &Transaction<'_>,
    owner: i64,
    intake: &mut Intake,
    keys: &SessionKeys,
) -> Result<(), IngestError> {
    let events = || intake.events().iter();
    let rows = Rows::default()
        .int("session", events().map(|event| session_number(keys, &event.session)))
        .int("seq", events().map(|event| event.seq))
        .uuid("id", events().map(|event| event.id))
        .int("rev", events().map(|event| event.rev))
        .text("kind", events().map(|event| Some(event.kind().as_str().to_owned())))
        .int("time", events().map(|event| event.time.0))
        .text("attributes", events().map(|event| Some(event.attributes.to_kept_json())))
        .int("owner", events().map(|_| owner));
    // Which were added is answered only if some were not.
    let sql = format!(
        "WITH added AS ({} ON CONFLICT (owner, id) DO NOTHING RETURNING id)
         SELECT CASE WHEN count(*) < cardinality($3::uuid[]) THEN coalesce(array_agg(id), '{{}}') END AS ids FROM added",
        rows.insert("event")
    );
    let answer = tx.query(&sql, &rows.values()).await?;
    let added: Option<Vec<Uuid>> = answer.first().map_or(Ok(None), |row| row.try_get("ids"))?;
    let mut arrivals = vec![Arrival::New; intake.events().len()];
    if let Some(added) = added {
        let added = added.into_iter().collect();
        settle_stored(tx, owner, intake.events(), &added, &mut arrivals, keys).await?;
    }
    for (at, arrival) in arrivals.iter().enumerate() {
        intake.settle(at, arrival);
    }
    Ok(())
}

/// Events whose ids are stored: replaced by a higher revision of the same session, else left alone.
async fn settle_stored(
    tx: &Transaction<'_>,
    owner: i64,
    events: &[Event],
    added: &HashSet<Uuid>,
    arrivals: &mut [Arrival],
    keys: &SessionKeys,
) -> Result<(), IngestError> {
    let ids: Vec<Uuid> = events.iter().map(|event| event.id).filter(|id| !added.contains(id)).collect();
    let sql = format!("SELECT id, {STORED_EVENT_COLUMNS} FROM event WHERE owner = $1 AND id = ANY($2)");
    let mut stored: HashMap<Uuid, Row> = HashMap::with_capacity(ids.len());
    for row in tx.query(&sql, &[&owner, &ids]).await? {
        stored.insert(row.try_get("id")?, row);
    }
    let mut revised = Vec::new();
    for (event, arrival) in events.iter().zip(arrivals).filter(|(event, _)| !added.contains(&event.id)) {
        *arrival = match stored.get(&event.id) {
            Some(row) => stored_event(&RowColumns(row), session_number(keys, &event.session))?.against(event),
            None => Arrival::Duplicate,
        };
        if matches!(arrival, Arrival::Revised { .. }) {
            revised.push(event);
        }
    }
    if !revised.is_empty() {
        let rows = Rows::default()
            .int("owner", revised.iter().map(|_| owner))
            .uuid("id", revised.iter().map(|event| event.id))
            .int("rev", revised.iter().map(|event| event.rev))
            .int("time", revised.iter().map(|event| event.time.0))
            .text("attributes", revised.iter().map(|event| Some(event.attributes.to_kept_json())));
        tx.query(&rows.update("event", 2), &rows.values()).await?;
    }
    Ok(())
}

type Slots = HashMap<String, Vec<(Quarter, String, Numbers)>>;

/// The quarters of the sessions whose sums move to another project, user or agent.
async fn quarters_before(
    tx: &Transaction<'_>,
    intake: &Intake,
    keys: &SessionKeys,
) -> Result<Slots, IngestError> {
    let mut days = Slots::new();
    for change in intake.changes().filter(|change| change.moves()) {
        let sql = format!("SELECT {} FROM session_quarter WHERE session = $1", session_quarter_columns());
        let rows = tx.query(&sql, &[&session_number(keys, &change.session.id)]).await?;
        let rows = rows.iter().map(|row| session_quarter(&RowColumns(row)));
        days.insert(change.session.id.clone(), rows.collect::<Result<_, _>>()?);
    }
    Ok(days)
}

/// All statements go out at once, the commit with them, and are carried out in order: one wait instead of nine. After a
/// statement that failed, the server takes the commit for a rollback.
async fn write(
    tx: &mut Transaction<'_>,
    intake: &Intake,
    keys: &SessionKeys,
    before: &Slots,
    now: Timestamp,
) -> Result<(), IngestError> {
    let changes: Vec<&SessionChange> = intake.changes().collect();
    let here = |change: &&&SessionChange| keys.get(&change.session.id).is_some_and(|key| key.stored);
    let (old, new): (Vec<&SessionChange>, Vec<&SessionChange>) =
        changes.iter().copied().partition(|change| here(&change));
    // Of all new sessions and of some stored ones the description changes. Each row is written once: every version of one is
    // a whole row.
    let (described, recounted): (Vec<&SessionChange>, Vec<&SessionChange>) =
        changes.iter().partition(|change| change.life_changed);
    let redescribed: Vec<&SessionChange> = old.iter().copied().filter(|change| change.life_changed).collect();
    let sums = intake.daily(before).0;
    let origins: Vec<_> = intake.origins().collect();
    let mut statements: Vec<(String, Rows<'_>)> = Vec::new();
    let mut add = |some: bool, rows, sql: &dyn Fn(&Rows<'_>) -> String| {
        if some {
            statements.push((sql(&rows), rows));
        }
    };
    add(!new.is_empty(), counted(with(named(&new, keys), &LIFE, &new), &new), &|rows| rows.insert("session"));
    let lives = counted(with(numbered("n", &redescribed, keys), &LIFE, &redescribed), &redescribed);
    add(!redescribed.is_empty(), lives, &|rows| rows.update("session", 1));
    let numbers = counted(numbered("n", &recounted, keys), &recounted);
    add(!recounted.is_empty(), numbers, &|rows| rows.update("session", 1));
    add(!described.is_empty(), with(numbered("session", &described, keys), &LISTED, &described), &|rows| {
        let set: Vec<_> = LISTED.iter().map(|(name, _)| format!("{name} = excluded.{name}")).collect();
        let insert = rows.insert("session_list");
        format!("{insert} ON CONFLICT (session) DO UPDATE SET {}", set.join(", "))
    });
    let costs = with(numbered("session", &recounted, keys), &[COST], &recounted);
    add(!recounted.is_empty(), costs, &|rows| rows.update("session_list", 1));
    let slots = session_quarters(&changes, keys);
    add(changes.iter().any(|change| !change.slots.is_empty()), slots, &|rows| {
        upsert(rows, "session_quarter", "session, quarter, model")
    });
    let tools = session_tools(&changes, keys);
    add(changes.iter().any(|change| !change.tools.is_empty()), tools, &|rows| {
        let sums = ["calls", "errors", "lines_added", "lines_removed"];
        let set: Vec<_> = sums.iter().map(|sum| added("session_tool", sum)).collect();
        let insert = rows.insert("session_tool");
        format!("{insert} ON CONFLICT (session, tool, kind) DO UPDATE SET {}", set.join(", "))
    });
    let keys = || sums.keys();
    let daily = Rows::default()
        .int("day", keys().map(|key| key.row.0))
        .text("agent", keys().map(|key| Some(&*key.dimensions.agent)))
        .text("model", keys().map(|key| Some(&*key.model)))
        .text("project", keys().map(|key| Some(&*key.dimensions.project)))
        .text("user_name", keys().map(|key| Some(&*key.dimensions.user)))
        .numbers(sums.values());
    add(!sums.is_empty(), daily, &|rows| upsert(rows, "daily", "day, agent, model, project, user_name"));
    let origin = Rows::default()
        .text("machine", origins.iter().map(|origin| Some(origin.0)))
        .text("user_name", origins.iter().map(|origin| Some(origin.1)))
        .int("first_received_at", origins.iter().map(|_| now.0))
        .int("last_received_at", origins.iter().map(|_| now.0))
        .int("events", origins.iter().map(|origin| origin.2));
    add(!origins.is_empty(), origin, &|rows| {
        format!(
            "{} ON CONFLICT (machine, user_name) DO UPDATE SET
               last_received_at = greatest(origin.last_received_at, excluded.last_received_at),
               events = origin.events + excluded.events",
            rows.insert("origin")
        )
    });
    let client = tx.client;
    let prepared = try_join_all(statements.iter().map(|(sql, _)| client.prepare_cached(sql))).await?;
    let values: Vec<_> = statements.iter().map(|(_, rows)| rows.values()).collect();
    // Fewer than the number from which on their order would not be kept.
    let run = prepared.iter().zip(&values).map(|(statement, values)| client.execute(statement, values));
    tx.open = false;
    try_join(try_join_all(run), client.batch_execute("COMMIT")).await?;
    Ok(())
}

fn upsert(rows: &Rows<'_>, table: &str, key: &str) -> String {
    format!("{} ON CONFLICT ({key}) DO UPDATE SET {}", rows.insert(table), numbers_added(table))
}

fn numbered<'a>(name: &'static str, changes: &[&SessionChange], keys: &SessionKeys) -> Rows<'a> {
    Rows::default().int(name, changes.iter().map(|change| session_number(keys, &change.session.id)))
}

fn named<'a>(changes: &[&'a SessionChange], keys: &SessionKeys) -> Rows<'a> {
    numbered("n", changes, keys)
        .text("id", changes.iter().map(|change| Some(&*change.session.id)))
        .int("owner", changes.iter().map(|change| change.session.owner))
}

fn with<'a>(mut rows: Rows<'a>, columns: &[SessionColumn], changes: &[&'a SessionChange]) -> Rows<'a> {
    let sessions = || changes.iter().map(|change| &change.session);
    for (name, get) in columns {
        rows = match *get {
            Get::Int(get) => rows.int(name, sessions().map(get)),
            Get::Text(get) => rows.text(name, sessions().map(get)),
        };
    }
    rows
}

/// With the columns that every batch changes.
fn counted<'a>(rows: Rows<'a>, changes: &[&'a SessionChange]) -> Rows<'a> {
    with(rows, &COUNTED, changes).numbers(changes.iter().map(|change| &change.session.numbers))
}

fn session_quarters<'a>(changes: &[&'a SessionChange], keys: &SessionKeys) -> Rows<'a> {
    let slots = || {
        changes.iter().flat_map(|change| {
            let n = session_number(keys, &change.session.id);
            change.slots.iter().map(move |((quarter, model), numbers)| (n, quarter, model, numbers))
        })
    };
    Rows::default()
        .int("session", slots().map(|row| row.0))
        .int("quarter", slots().map(|row| row.1.0))
        .text("model", slots().map(|row| Some(&**row.2)))
        .numbers(slots().map(|row| row.3).collect::<Vec<_>>().into_iter())
}

fn session_tools<'a>(changes: &[&'a SessionChange], keys: &SessionKeys) -> Rows<'a> {
    let tools = || {
        changes.iter().flat_map(|change| {
            let n = session_number(keys, &change.session.id);
            change.tools.iter().map(move |((tool, kind), sums)| (n, tool, *kind, sums))
        })
    };
    Rows::default()
        .int("session", tools().map(|row| row.0))
        .text("tool", tools().map(|row| Some(&**row.1)))
        .text("kind", tools().map(|row| Some(row.2)))
        .int("calls", tools().map(|row| row.3.calls))
        .int("errors", tools().map(|row| row.3.errors))
        .int("lines_added", tools().map(|row| row.3.lines_added))
        .int("lines_removed", tools().map(|row| row.3.lines_removed))
}
