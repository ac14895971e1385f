//! Taking a batch in: the statements. What to write is decided by [`Intake`].

use std::borrow::Cow;
use std::collections::HashMap;

use rusqlite::{CachedStatement, Connection, OptionalExtension, ToSql, params, params_from_iter};
use uuid::Uuid;

use super::{RowColumns, failed, read_rows};
use crate::fold::{Arrival, SessionChange};
use crate::intake::{Found, Intake};
use crate::sql::{
    COST, COUNTED, Get, LIFE, LISTED, STORED_EVENT_COLUMNS, SessionColumn, SessionKey, SessionKeys, added,
    number_columns, numbers_added, session, session_columns, session_quarter, session_quarter_columns,
    stored_event,
};
use reader::Error;
use reader::Session;
use reader::token::Owner;
use reader::{Numbers, Quarter};
use types::Event;
use types::Timestamp;

pub(super) fn ingest(
    conn: &Connection,
    owner: &Owner,
    intake: &mut Intake,
    now: Timestamp,
) -> Result<(), Error> {
    let owner = owner_number(conn, owner)?;
    let (keys, sessions) = load(conn, intake)?;
    let revisions = stored_revisions(conn, owner, intake)?;
    intake.load(Found { owner, sessions, revisions });
    add_events(conn, owner, intake, &keys)?;
    let before = quarters_before(conn, intake, &keys)?;
    write_sessions(conn, intake, &keys)?;
    write_daily(conn, intake, &before)?;
    write_origins(conn, intake, now)
}

/// The owner's number in this database; given now if it has none.
fn owner_number(conn: &Connection, owner: &Owner) -> Result<i64, Error> {
    let mut select = prepare(conn, "SELECT n FROM owner WHERE name = ?1")?;
    if let Some(n) = select.query_row([owner.as_str()], |row| row.get("n")).optional().map_err(failed)? {
        return Ok(n);
    }
    let mut insert = prepare(conn, "INSERT INTO owner (name) VALUES (?1) RETURNING n")?;
    insert.query_row([owner.as_str()], |row| row.get("n")).map_err(failed)
}

/// The stored revisions of the events that [`Intake::far_revisions`] names.
fn stored_revisions(
    conn: &Connection,
    owner: i64,
    intake: &Intake,
) -> Result<HashMap<Uuid, (String, i64)>, Error> {
    let mut revisions = HashMap::new();
    for id in intake.far_revisions() {
        let mut select = prepare(
            conn,
            "SELECT s.id AS session, e.rev AS rev FROM event e JOIN session s ON s.n = e.session WHERE e.owner = ?1 AND e.id = ?2",
        )?;
        let stored =
            select.query_row(params![owner, id.as_bytes()], |row| Ok((row.get("session")?, row.get("rev")?)));
        revisions.extend(stored.optional().map_err(failed)?.map(|stored| (id, stored)));
    }
    Ok(revisions)
}

fn prepare<'a>(conn: &'a Connection, sql: &str) -> Result<CachedStatement<'a>, Error> {
    conn.prepare_cached(sql).map_err(failed)
}

/// Reads the sessions of the batch; new ones get the next numbers. There is one writer at a time.
fn load(conn: &Connection, intake: &Intake) -> Result<(SessionKeys, Vec<Session>), Error> {
    let mut select =
        prepare(conn, &format!("SELECT {}, s.n AS n FROM session s WHERE s.id = ?1", session_columns()))?;
    let mut next = conn
        .query_row("SELECT ifnull(max(n), 0) AS last FROM session", [], |row| row.get::<_, i64>("last"))
        .map_err(failed)?;
    let (mut keys, mut sessions) = (SessionKeys::new(), Vec::new());
    for id in intake.sessions() {
        let mut found = select.query([&id]).map_err(failed)?;
        let key = if let Some(row) = found.next().map_err(failed)? {
            sessions.push(session(&RowColumns(row))?);
            SessionKey { n: row.get("n").map_err(failed)?, stored: true }
        } else {
            next += 1;
            SessionKey { n: next, stored: false }
        };
        keys.insert(id, key);
    }
    Ok((keys, sessions))
}

fn session_key<'a>(keys: &'a SessionKeys, id: &str) -> Result<&'a SessionKey, Error> {
    keys.get(id).ok_or_else(|| Error::Failed("a session was not loaded".to_owned()))
}

fn add_events(conn: &Connection, owner: i64, intake: &mut Intake, keys: &SessionKeys) -> Result<(), Error> {
    let mut insert = prepare(
        conn,
        "INSERT INTO event (session, seq, id, rev, kind, time, attributes, owner)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
    )?;
    let mut arrivals = Vec::with_capacity(intake.events().len());
    for event in intake.events() {
        let session = session_key(keys, &event.session)?.n;
        let added = insert
            .execute(params![
                session,
                event.seq,
                event.id.as_bytes(),
                event.rev,
                event.kind().as_str(),
                event.time,
                event.attributes.to_kept_json(),
                owner
            ])
            .map_err(failed)?;
        arrivals.push(if added == 1 { Arrival::New } else { against_stored(conn, owner, event, session)? });
    }
    for (at, arrival) in arrivals.iter().enumerate() {
        intake.settle(at, arrival);
    }
    Ok(())
}

/// An event whose id is stored: replaced by a higher revision of the same session, else left alone.
fn against_stored(conn: &Connection, owner: i64, event: &Event, session: i64) -> Result<Arrival, Error> {
    let sql = format!("SELECT {STORED_EVENT_COLUMNS} FROM event WHERE owner = ?1 AND id = ?2");
    let mut stored = None;
    read_rows(conn, &sql, params![owner, event.id.as_bytes()], &mut |row| {
        stored_event(row, session).map(|event| stored = Some(event))
    })?;
    let arrival = stored.map_or(Arrival::Duplicate, |stored| stored.against(event));
    if matches!(arrival, Arrival::Revised { .. }) {
        let mut update = prepare(
            conn,
            "UPDATE event SET rev = ?3, time = ?4, attributes = ?5 WHERE owner = ?1 AND id = ?2",
        )?;
        update
            .execute(params![
                owner,
                event.id.as_bytes(),
                event.rev,
                event.time,
                event.attributes.to_kept_json()
            ])
            .map_err(failed)?;
    }
    Ok(arrival)
}

/// The quarters of the sessions whose sums move to another project, user or agent.
fn quarters_before(
    conn: &Connection,
    intake: &Intake,
    keys: &SessionKeys,
) -> Result<HashMap<String, Vec<(Quarter, String, Numbers)>>, Error> {
    let mut before = HashMap::new();
    for change in intake.changes().filter(|change| change.moves()) {
        let sql = format!("SELECT {} FROM session_quarter WHERE session = ?1", session_quarter_columns());
        let mut days = Vec::new();
        read_rows(conn, &sql, [session_key(keys, &change.session.id)?.n], &mut |row| {
            session_quarter(row).map(|day| days.push(day))
        })?;
        before.insert(change.session.id.clone(), days);
    }
    Ok(before)
}

/// The table of sessions, and the one that they are listed by; each with the name of its key.
const SESSION: (&str, &str) = ("session", "n");
const LIST: (&str, &str) = ("session_list", "session");

fn write_sessions(conn: &Connection, intake: &Intake, keys: &SessionKeys) -> Result<(), Error> {
    for change in intake.changes() {
        let (SessionKey { n, stored }, session) = (*session_key(keys, &change.session.id)?, &change.session);
        let (counted, counted_values) = counted(session);
        if stored {
            let (mut columns, mut all, mut listed) = (counted, counted_values, &[COST][..]);
            if change.life_changed {
                columns = format!("{}, {columns}", names(&LIFE));
                all.splice(0..0, values(&LIFE, session));
                listed = &LISTED;
            }
            update(conn, SESSION, n, &columns, all)?;
            update(conn, LIST, n, &names(listed), values(listed, session))?;
        } else {
            let columns = format!("id, owner, {}, {counted}", names(&LIFE));
            let whose: [Box<dyn ToSql>; 2] = [Box::new(session.id.clone()), Box::new(session.owner)];
            let life = values(&LIFE, session);
            insert(conn, SESSION, n, &columns, whose.into_iter().chain(life).chain(counted_values))?;
            insert(conn, LIST, n, &names(&LISTED), values(&LISTED, session))?;
        }
        write_sums(conn, n, change)?;
    }
    Ok(())
}

fn values(columns: &[SessionColumn], session: &Session) -> Vec<Box<dyn ToSql>> {
    let values = columns.iter().map(|(_, get)| match get {
        Get::Int(get) => Box::new(get(session)) as Box<dyn ToSql>,
        Get::Text(get) => Box::new(get(session).map(Cow::into_owned)),
    });
    values.collect()
}

fn names(columns: &[SessionColumn]) -> String {
    let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

/// The columns that every batch changes, and their values.
fn counted(session: &Session) -> (String, Vec<Box<dyn ToSql>>) {
    let mut values = values(&COUNTED, session);
    values.extend(session.numbers.values().map(|value| Box::new(value) as Box<dyn ToSql>));
    (format!("{}, {}", names(&COUNTED), number_columns("{}")), values)
}

fn placeholders(count: usize) -> String {
    vec!["?"; count].join(", ")
}

fn insert(
    conn: &Connection,
    (table, key): (&str, &str),
    n: i64,
    columns: &str,
    values: impl IntoIterator<Item = Box<dyn ToSql>>,
) -> Result<(), Error> {
    let mut all: Vec<Box<dyn ToSql>> = vec![Box::new(n)];
    all.extend(values);
    let sql = format!("INSERT INTO {table} ({key}, {columns}) VALUES ({})", placeholders(all.len()));
    prepare(conn, &sql)?.execute(params_from_iter(all)).map_err(failed)?;
    Ok(())
}

fn update(
    conn: &Connection,
    (table, key): (&str, &str),
    n: i64,
    columns: &str,
    mut values: Vec<Box<dyn ToSql>>,
) -> Result<(), Error> {
    let sql = format!("UPDATE {table} SET ({columns}) = ({}) WHERE {key} = ?", placeholders(values.len()));
    values.push(Box::new(n));
    prepare(conn, &sql)?.execute(params_from_iter(values)).map_err(failed)?;
    Ok(())
}

fn write_sums(conn: &Connection, n: i64, change: &SessionChange) -> Result<(), Error> {
    let sql = format!(
        "INSERT INTO session_quarter (session, quarter, model, {}) VALUES (?, ?, ?, {})
         ON CONFLICT (session, quarter, model) DO UPDATE SET {}",
        number_columns("{}"),
        placeholders(Numbers::COUNT),
        numbers_added("session_quarter")
    );
    let mut upsert = prepare(conn, &sql)?;
    for ((quarter, model), numbers) in &change.slots {
        let key: [&dyn ToSql; 3] = [&n, &quarter.0, model];
        let values = numbers.values();
        let values = key.into_iter().chain(values.iter().map(|value| value as &dyn ToSql));
        upsert.execute(params_from_iter(values)).map_err(failed)?;
    }
    let sums = ["calls", "errors", "lines_added", "lines_removed"].map(|sum| added("session_tool", sum));
    let sql = format!(
        "INSERT INTO session_tool (session, tool, kind, calls, errors, lines_added, lines_removed)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (session, tool, kind) DO UPDATE SET {}",
        sums.join(", ")
    );
    let mut upsert = prepare(conn, &sql)?;
    for ((tool, kind), sums) in &change.tools {
        let numbers = (sums.calls, sums.errors, sums.lines_added, sums.lines_removed);
        upsert.execute(params![n, tool, kind, numbers.0, numbers.1, numbers.2, numbers.3]).map_err(failed)?;
    }
    Ok(())
}

fn write_daily(
    conn: &Connection,
    intake: &Intake,
    before: &HashMap<String, Vec<(Quarter, String, Numbers)>>,
) -> Result<(), Error> {
    let sql = format!(
        "INSERT INTO daily (day, agent, model, project, user_name, {}) VALUES (?, ?, ?, ?, ?, {})
         ON CONFLICT (day, agent, model, project, user_name) DO UPDATE SET {}",
        number_columns("{}"),
        placeholders(Numbers::COUNT),
        numbers_added("daily")
    );
    let mut upsert = prepare(conn, &sql)?;
    for (key, numbers) in &intake.daily(before).0 {
        let dimensions = &key.dimensions;
        let named: [&dyn ToSql; 5] =
            [&key.row.0, &dimensions.agent, &key.model, &dimensions.project, &dimensions.user];
        let values = numbers.values();
        let values = named.into_iter().chain(values.iter().map(|value| value as &dyn ToSql));
        upsert.execute(params_from_iter(values)).map_err(failed)?;
    }
    Ok(())
}

fn write_origins(conn: &Connection, intake: &Intake, now: Timestamp) -> Result<(), Error> {
    let mut upsert = prepare(
        conn,
        "INSERT INTO origin (machine, user_name, first_received_at, last_received_at, events)
         VALUES (?1, ?2, ?3, ?3, ?4)
         ON CONFLICT (machine, user_name) DO UPDATE SET
           last_received_at = max(origin.last_received_at, excluded.last_received_at),
           events = origin.events + excluded.events",
    )?;
    for (machine, user, events) in intake.origins() {
        upsert.execute(params![machine, user, now, events]).map_err(failed)?;
    }
    Ok(())
}
