//! The tables in SQLite, and how one version becomes the next. `user_version` counts the migrations a database has had.
//!
//! A migration is never edited after a release; the next one is appended.

use rusqlite::{Connection, TransactionBehavior};

use crate::sql::{Dialect, first_number_columns, quarters, wide_costs};
use reader::Error;

fn migrations() -> [String; 8] {
    let [passes, listed, gaps, owners] = [ENDED_PASSES, LISTED, GAPS, OWNERS].map(str::to_owned);
    [
        first(),
        passes,
        listed,
        gaps,
        owners,
        wide_costs("INTEGER"),
        quarters(Dialect::Sqlite),
        GROUPS.to_owned(),
    ]
}

/// Tokens, sessions and events have owners. An event's id is known within its owner; `owner` stands beside it because an
/// index cannot look into another table.
const OWNERS: &str = "
CREATE TABLE owner (n INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO owner VALUES (0, 'default');
ALTER TABLE token ADD COLUMN owner TEXT NOT NULL DEFAULT 'default';
ALTER TABLE session ADD COLUMN owner INTEGER NOT NULL DEFAULT 0;
ALTER TABLE event ADD COLUMN owner INTEGER NOT NULL DEFAULT 0;
DROP INDEX event_by_id;
CREATE UNIQUE INDEX event_by_id ON event (owner, id);
";

/// Sessions are listed by their group, too.
const GROUPS: &str = "
ALTER TABLE session_list ADD COLUMN grp TEXT NOT NULL DEFAULT '';
UPDATE session_list SET grp = coalesce((SELECT life ->> '$.start.said.group' FROM session s WHERE s.n = session), '');
";

/// The list of sessions with gaps, in its order.
const GAPS: &str = "CREATE INDEX session_gaps_by_start ON session (started_at, id) WHERE missing > 0";

/// The columns that sessions are searched and ordered by, in short rows. Words leave the table that every batch writes to, and tags
/// no longer have to be cut out of them.
const LISTED: &str = "
CREATE TABLE session_list (
  session    INTEGER PRIMARY KEY,
  started_at INTEGER NOT NULL,
  cost       INTEGER NOT NULL,
  words      TEXT NOT NULL,
  tags       TEXT NOT NULL
) STRICT;
INSERT INTO session_list
  SELECT n, started_at, cost, search,
    (SELECT char(10) || ifnull(group_concat(lower(tag.value) || char(10), ''), '') FROM json_each(life, '$.start.said.tags') tag)
  FROM session;
DROP INDEX session_by_cost;
DROP INDEX session_by_start;
CREATE INDEX session_by_start ON session (started_at, id);
ALTER TABLE session DROP COLUMN search;
";

/// Passes to the dashboard that were given up before their time.
const ENDED_PASSES: &str = "CREATE TABLE ended_pass (signature BLOB NOT NULL PRIMARY KEY, until INTEGER NOT NULL) STRICT, WITHOUT ROWID";

fn first() -> String {
    let numbers = first_number_columns("{} INTEGER NOT NULL");
    format!(
        "
-- One session, everything added up. Beside life (START, bound and END as they stand) are the columns that are asked for.
CREATE TABLE session (
  n                 INTEGER PRIMARY KEY,
  id                TEXT NOT NULL UNIQUE,
  agent             TEXT NOT NULL,
  machine           TEXT,
  user_name         TEXT,
  project           TEXT,
  branch            TEXT,
  agent_session     TEXT,
  parent            TEXT,
  transitioned_from TEXT,
  status            TEXT NOT NULL,
  started_at        INTEGER NOT NULL,
  search            TEXT NOT NULL,
  life              TEXT NOT NULL,
  -- From here on what every batch changes.
  seqs              TEXT NOT NULL,      -- ranges that have arrived
  missing           INTEGER NOT NULL,   -- how many have not
  first_at          INTEGER NOT NULL,
  last_at           INTEGER NOT NULL,
  received_at       INTEGER NOT NULL,
  unpriced          TEXT NOT NULL,      -- models without a price, and their calls
  {numbers}
) STRICT;
-- The list, and a search through it without reading the rows.
CREATE INDEX session_by_start ON session (started_at, id, search);
CREATE INDEX session_by_cost ON session (cost, id);
CREATE INDEX session_by_agent ON session (agent, started_at, id);
CREATE INDEX session_by_project ON session (project, started_at, id) WHERE project IS NOT NULL;
CREATE INDEX session_by_branch ON session (branch, started_at, id) WHERE branch IS NOT NULL;
CREATE INDEX session_by_user ON session (user_name, started_at, id) WHERE user_name IS NOT NULL;
CREATE INDEX session_by_machine ON session (machine, started_at, id) WHERE machine IS NOT NULL;
CREATE INDEX session_by_status ON session (status, started_at, id);
CREATE INDEX session_of_parent ON session (parent, started_at) WHERE parent IS NOT NULL;
CREATE INDEX session_after ON session (transitioned_from, started_at) WHERE transitioned_from IS NOT NULL;
CREATE INDEX session_with_gaps ON session (received_at) WHERE missing > 0;

-- The highest revision of each event, beside its neighbours.
CREATE TABLE event (
  session    INTEGER NOT NULL,
  seq        INTEGER NOT NULL,
  id         BLOB NOT NULL,
  rev        INTEGER NOT NULL,
  kind       TEXT NOT NULL,
  time       INTEGER NOT NULL,
  attributes TEXT NOT NULL,
  PRIMARY KEY (session, seq, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX event_by_id ON event (id);

-- Sums. model is empty for what no model did; unknown project and user are empty, too.
CREATE TABLE session_day (
  session INTEGER NOT NULL,
  day     INTEGER NOT NULL,
  model   TEXT NOT NULL,
  {numbers},
  PRIMARY KEY (session, day, model)
) STRICT, WITHOUT ROWID;
CREATE TABLE session_tool (
  session       INTEGER NOT NULL,
  tool          TEXT NOT NULL,
  kind          TEXT NOT NULL,
  calls         INTEGER NOT NULL,
  errors        INTEGER NOT NULL,
  lines_added   INTEGER NOT NULL,
  lines_removed INTEGER NOT NULL,
  PRIMARY KEY (session, tool, kind)
) STRICT, WITHOUT ROWID;
-- Of each day, and of each month under a number below zero.
CREATE TABLE daily (
  day       INTEGER NOT NULL,
  agent     TEXT NOT NULL,
  model     TEXT NOT NULL,
  project   TEXT NOT NULL,
  user_name TEXT NOT NULL,
  {numbers},
  PRIMARY KEY (day, agent, model, project, user_name)
) STRICT, WITHOUT ROWID;
CREATE INDEX daily_by_model ON daily (model);

CREATE TABLE origin (
  machine           TEXT NOT NULL,
  user_name         TEXT NOT NULL,
  first_received_at INTEGER NOT NULL,
  last_received_at  INTEGER NOT NULL,
  events            INTEGER NOT NULL,
  PRIMARY KEY (machine, user_name)
) STRICT, WITHOUT ROWID;

CREATE TABLE token (
  name       TEXT PRIMARY KEY,
  role       TEXT NOT NULL,
  hash       BLOB NOT NULL UNIQUE,
  created_at INTEGER NOT NULL,
  revoked_at INTEGER
) STRICT, WITHOUT ROWID;
"
    )
}

/// Takes out everything that came of events.
pub(super) const FORGET_EVENTS: &str = "DELETE FROM session; DELETE FROM session_list; DELETE FROM event; DELETE FROM session_quarter; DELETE FROM session_tool; DELETE FROM daily; DELETE FROM origin;";

/// Brings a database to the version this binary knows. A second process finds nothing left to do.
pub(super) fn migrate(conn: &mut Connection) -> Result<(), Error> {
    let migrations = migrations();
    let known = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(super::failed)?;
    let found: i64 =
        tx.query_row("PRAGMA user_version", [], |row| row.get("user_version")).map_err(super::failed)?;
    if found > known {
        return Err(Error::Newer { found, known });
    }
    for migration in &migrations[usize::try_from(found).unwrap_or(0)..] {
        tx.execute_batch(migration).map_err(super::failed)?;
    }
    tx.pragma_update(None, "user_version", known).map_err(super::failed)?;
    tx.commit().map_err(super::failed)
}
