//! Taking a batch in: the statements. What to write is decided by [`Intake`].

use std::borrow::Cow;
use std::collections::HashMap;

use rusqlite::{CachedStatement, Connection, OptionalExtension, ToSql, params, params_from_iter};
use uuid::Uuid;

use super::{RowColumns, failed};
use crate::fold::{Change, Known};
use crate::intake::{Found, Intake, Stored};
use crate::model::{Day, Session};
use crate::numbers::Numbers;
use crate::sql::{
    COST, COUNTED, Get, LIFE, LISTED, SESSION_COLUMNS, SessionColumn, added, day, number_columns, numbers,
    numbers_added, session, session_columns, text,
};
use crate::storage::Error;
use crate::token::Owner;
use wire::Event;
use wire::Timestamp;

/// Sessions by their number in this database.
type Rows = HashMap<String, Place>;

#[derive(Clone, Copy, Debug)]
struct Place {
    n: i64,
    stored: bool,
}

pub(super) fn ingest(
    conn: &Connection,
    owner: &Owner,
    intake: &mut Intake,
    now: Timestamp,
) -> Result<(), Error> {
    let owner = number(conn, owner)?;
    let (rows, sessions) = load(conn, intake)?;
    let revisions = stored_revisions(conn, owner, intake)?;
    intake.load(Found { owner, sessions, revisions });
    add_events(conn, owner, intake, &rows)?;
    let before = days_before(conn, intake, &rows)?;
    write_sessions(conn, intake, &rows)?;
    write_daily(conn, intake, &before)?;
    write_origins(conn, intake, now)
}

/// The owner's number in this database; given now if it has none.
pub(super) fn number(conn: &Connection, owner: &Owner) -> Result<i64, Error> {
    let mut select = prepare(conn, "SELECT n FROM owner WHERE name = ?1")?;
    if let Some(n) = select.query_row([owner.as_str()], |row| row.get(0)).optional().map_err(failed)? {
        return Ok(n);
    }
    let mut insert = prepare(conn, "INSERT INTO owner (name) VALUES (?1) RETURNING n")?;
    insert.query_row([owner.as_str()], |row| row.get(0)).map_err(failed)
}

/// What is stored of the events whose revision is far from the first.
fn stored_revisions(
    conn: &Connection,
    owner: i64,
    intake: &Intake,
) -> Result<HashMap<Uuid, (String, i64)>, Error> {
    let mut revisions = HashMap::new();
    for id in intake.far_revisions() {
        let mut select = prepare(
            conn,
            "SELECT s.id, e.rev FROM event e JOIN session s ON s.n = e.session WHERE e.owner = ?1 AND e.id = ?2",
        )?;
        let stored = select.query_row(params![owner, id.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)));
        revisions.extend(stored.optional().map_err(failed)?.map(|stored| (id, stored)));
    }
    Ok(revisions)
}

fn prepare<'a>(conn: &'a Connection, sql: &str) -> Result<CachedStatement<'a>, Error> {
    conn.prepare_cached(sql).map_err(failed)
}

/// Reads the sessions of the batch; those that are not there get the next numbers. There is one writer at a time.
fn load(conn: &Connection, intake: &Intake) -> Result<(Rows, Vec<Session>), Error> {
    let mut select =
        prepare(conn, &format!("SELECT {}, s.n FROM session s WHERE s.id = ?1", session_columns()))?;
    let mut next = conn
        .query_row("SELECT ifnull(max(n), 0) FROM session", [], |row| row.get::<_, i64>(0))
        .map_err(failed)?;
    let (mut rows, mut sessions) = (Rows::new(), Vec::new());
    for id in intake.sessions() {
        let mut found = select.query([&id]).map_err(failed)?;
        let place = if let Some(row) = found.next().map_err(failed)? {
            sessions.push(session(&RowColumns(row))?);
            Place { n: row.get(SESSION_COLUMNS).map_err(failed)?, stored: true }
        } else {
            next += 1;
            Place { n: next, stored: false }
        };
        rows.insert(id, place);
    }
    Ok((rows, sessions))
}

fn place<'a>(rows: &'a Rows, id: &str) -> Result<&'a Place, Error> {
    rows.get(id).ok_or_else(|| Error::Failed("a session was not loaded".to_owned()))
}

fn add_events(conn: &Connection, owner: i64, intake: &mut Intake, rows: &Rows) -> Result<(), Error> {
    let mut insert = prepare(
        conn,
        "INSERT INTO event (session, seq, id, rev, kind, time, attributes, owner)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
    )?;
    let mut known = Vec::with_capacity(intake.events().len());
    for event in intake.events() {
        let session = place(rows, &event.session)?.n;
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
        known.push(if added == 1 { Known::Fresh } else { against_stored(conn, owner, event, session)? });
    }
    for (at, known) in known.iter().enumerate() {
        intake.settle(at, known);
    }
    Ok(())
}

/// One that is there: replaced by a higher revision of the same session, else left alone.
fn against_stored(conn: &Connection, owner: i64, event: &Event, session: i64) -> Result<Known, Error> {
    let mut select =
        prepare(conn, "SELECT session, rev, kind, time, attributes FROM event WHERE owner = ?1 AND id = ?2")?;
    let stored = select
        .query_row(params![owner, event.id.as_bytes()], |row| {
            Ok(Stored {
                same_session: row.get::<_, i64>(0)? == session,
                rev: row.get(1)?,
                kind: row.get(2)?,
                time: row.get(3)?,
                attributes: row.get(4)?,
            })
        })
        .optional()
        .map_err(failed)?;
    let known = stored.map_or(Known::Already, |stored| stored.against(event));
    if matches!(known, Known::Revised { .. }) {
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
    Ok(known)
}

/// The days of the sessions whose sums move to another project, user or agent.
fn days_before(
    conn: &Connection,
    intake: &Intake,
    rows: &Rows,
) -> Result<HashMap<String, Vec<(Day, String, Numbers)>>, Error> {
    let mut before = HashMap::new();
    for change in intake.changes().filter(|change| change.moves()) {
        let columns = number_columns("{}");
        let sql = format!("SELECT day, model, {columns} FROM session_day WHERE session = ?1");
        let mut select = prepare(conn, &sql)?;
        let mut found = select.query([place(rows, &change.session.id)?.n]).map_err(failed)?;
        let mut days = Vec::new();
        while let Some(row) = found.next().map_err(failed)? {
            let row = RowColumns(row);
            days.push((day(&row, 0)?, text(&row, 1)?, numbers(&row, 2)?));
        }
        before.insert(change.session.id.clone(), days);
    }
    Ok(before)
}

/// The table with everything of a session, and the one with what it is listed by; each with the name of its key.
const SESSION: (&str, &str) = ("session", "n");
const LIST: (&str, &str) = ("session_list", "session");

fn write_sessions(conn: &Connection, intake: &Intake, rows: &Rows) -> Result<(), Error> {
    for change in intake.changes() {
        let (Place { n, stored }, session) = (*place(rows, &change.session.id)?, &change.session);
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

/// What every batch changes, by name and value.
fn counted(session: &Session) -> (String, Vec<Box<dyn ToSql>>) {
    let mut values = values(&COUNTED, session);
    values.extend(session.numbers.values().map(|value| Box::new(value) as Box<dyn ToSql>));
    (format!("{}, {}", names(&COUNTED), number_columns("{}")), values)
}

fn questions(count: usize) -> String {
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
    let sql = format!("INSERT INTO {table} ({key}, {columns}) VALUES ({})", questions(all.len()));
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
    let sql = format!("UPDATE {table} SET ({columns}) = ({}) WHERE {key} = ?", questions(values.len()));
    values.push(Box::new(n));
    prepare(conn, &sql)?.execute(params_from_iter(values)).map_err(failed)?;
    Ok(())
}

fn write_sums(conn: &Connection, n: i64, change: &Change) -> Result<(), Error> {
    let sql = format!(
        "INSERT INTO session_day (session, day, model, {}) VALUES (?, ?, ?, {})
         ON CONFLICT (session, day, model) DO UPDATE SET {}",
        number_columns("{}"),
        questions(Numbers::COUNT),
        numbers_added("session_day")
    );
    let mut upsert = prepare(conn, &sql)?;
    for ((day, model), numbers) in &change.days {
        let key: [&dyn ToSql; 3] = [&n, &day.0, model];
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
    before: &HashMap<String, Vec<(Day, String, Numbers)>>,
) -> Result<(), Error> {
    let sql = format!(
        "INSERT INTO daily (day, agent, model, project, user_name, {}) VALUES (?, ?, ?, ?, ?, {})
         ON CONFLICT (day, agent, model, project, user_name) DO UPDATE SET {}",
        number_columns("{}"),
        questions(Numbers::COUNT),
        numbers_added("daily")
    );
    let mut upsert = prepare(conn, &sql)?;
    for (key, numbers) in &intake.daily(before).0 {
        let dimensions = &key.dimensions;
        let named: [&dyn ToSql; 5] =
            [&key.day.0, &dimensions.agent, &key.model, &dimensions.project, &dimensions.user];
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
