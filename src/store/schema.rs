//! The tables, and how one version becomes the next. `user_version` counts the migrations a database has had.
//!
//! A migration is never edited after a release; the next one is appended.

use rusqlite::{Connection, TransactionBehavior};

use super::Error;

/// The schema version this binary knows.
pub(super) const KNOWN: i64 = 9;

const MIGRATIONS: &[&str] = &[V1, V2, V3, V4, V5, V6, V7, V8, V9];

const V1: &str = "
-- One agent session each, whatever number of runs and openings it has.
CREATE TABLE session (
  n                  INTEGER PRIMARY KEY,
  id                 TEXT NOT NULL UNIQUE,
  former_id          TEXT,              -- imported under an id that is no UUID: shown in place of id
  name               TEXT NOT NULL UNIQUE,
  name_base          TEXT NOT NULL,     -- fix-auth, of which this is number name_number of the chain
  name_number        INTEGER NOT NULL,
  named              INTEGER NOT NULL,  -- by the user
  agent              TEXT NOT NULL,
  agent_version      TEXT,
  wrapper_version    TEXT NOT NULL,
  phase              TEXT NOT NULL,
  link               TEXT NOT NULL,
  opening            INTEGER NOT NULL,  -- how often it was opened; the last one's number
  started_at         INTEGER NOT NULL,
  -- The last closing; null while it goes on.
  ended_at           INTEGER,
  status             TEXT,
  end_reason         TEXT,
  exit_code          INTEGER,
  signal             INTEGER,
  transitioned_to    TEXT,
  -- The last opening.
  transitioned_from  TEXT,
  run                INTEGER REFERENCES run (n),
  parent             INTEGER REFERENCES session (n) ON DELETE SET NULL,
  cwd                TEXT,
  project            TEXT,
  repository         TEXT,
  branch             TEXT,
  agent_session      TEXT,
  agent_session_file TEXT,
  evidence           TEXT,
  bound_at           INTEGER,
  owns_from          INTEGER,           -- lines older than this are not its own; null: all are
  last_seq           INTEGER NOT NULL DEFAULT 0,
  last_delivered_at  INTEGER,
  grp                TEXT,
  archived           INTEGER NOT NULL DEFAULT 0,
  imported_from      TEXT,
  unpublished        INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX session_of_agent_session ON session (agent, agent_session) WHERE agent_session IS NOT NULL;
CREATE INDEX session_by_start ON session (started_at);
CREATE INDEX session_of_parent ON session (parent) WHERE parent IS NOT NULL;
CREATE INDEX session_unpublished ON session (n) WHERE unpublished = 1;

-- Other ids a session answers to: provisional ones, and those of old stores.
CREATE TABLE alias (
  id      TEXT PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES session (n) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX alias_of_session ON alias (session);

CREATE TABLE tag (
  session INTEGER NOT NULL REFERENCES session (n) ON DELETE CASCADE,
  tag     TEXT NOT NULL,
  PRIMARY KEY (session, tag)
) STRICT, WITHOUT ROWID;

-- One run of the wrapper. It is in one session at a time.
CREATE TABLE run (
  n             INTEGER PRIMARY KEY,
  id            TEXT NOT NULL UNIQUE,
  boot          TEXT NOT NULL,
  pids          TEXT NOT NULL,
  wrapper_pid   INTEGER NOT NULL,
  wrapper_start INTEGER NOT NULL,
  agent_pid     INTEGER,
  agent_start   INTEGER,
  started_at    INTEGER NOT NULL,
  ended_at      INTEGER,
  session       INTEGER REFERENCES session (n) ON DELETE SET NULL
) STRICT;
CREATE INDEX run_of_session ON run (session);
CREATE INDEX run_alive ON run (n) WHERE ended_at IS NULL;

CREATE TABLE opening (
  session           INTEGER NOT NULL REFERENCES session (n) ON DELETE CASCADE,
  number            INTEGER NOT NULL,
  reason            TEXT NOT NULL,
  opened_at         INTEGER NOT NULL,
  closed_at         INTEGER,
  transitioned_from TEXT,
  PRIMARY KEY (session, number)
) STRICT, WITHOUT ROWID;

-- What codemie saw and what it made of it, for explain.
CREATE TABLE evidence (
  n             INTEGER PRIMARY KEY,
  session       INTEGER NOT NULL REFERENCES session (n) ON DELETE CASCADE,
  at            INTEGER NOT NULL,
  source        TEXT NOT NULL,
  verdict       TEXT NOT NULL,
  agent_session TEXT,
  detail        TEXT NOT NULL
) STRICT;
CREATE INDEX evidence_of_session ON evidence (session);

-- One fact of an agent's file, owned by one session for good.
CREATE TABLE record (
  n              INTEGER PRIMARY KEY,
  agent          TEXT NOT NULL,
  kind           TEXT NOT NULL,
  key            TEXT NOT NULL,
  session        INTEGER NOT NULL REFERENCES session (n) ON DELETE CASCADE,
  at             INTEGER NOT NULL,
  subagent       TEXT,
  -- usage
  model          TEXT,
  input          INTEGER,
  output         INTEGER,
  cache_read     INTEGER,
  cache_write_5m INTEGER,
  cache_write_1h INTEGER,
  reasoning      INTEGER,
  fast           INTEGER,
  request_id     TEXT,
  cost           INTEGER,               -- pico-dollars; null: no price known
  prices         TEXT,                  -- version of the table the cost was made with
  -- tool
  tool           TEXT,
  tool_kind      TEXT,
  ok             INTEGER,
  file           TEXT,
  lines_added    INTEGER,
  lines_removed  INTEGER,
  -- error
  error_status   INTEGER,
  error_kind     TEXT,
  UNIQUE (agent, kind, key)
) STRICT;
CREATE INDEX record_of_session ON record (session, kind, at);
CREATE INDEX record_unpriced ON record (session, model) WHERE kind = 'usage' AND cost IS NULL;

-- The sums over a session's records, kept beside them by the same transactions.
CREATE TABLE total (
  session       INTEGER PRIMARY KEY REFERENCES session (n) ON DELETE CASCADE,
  api_calls     INTEGER NOT NULL,
  input         INTEGER NOT NULL,
  output        INTEGER NOT NULL,
  cache_read    INTEGER NOT NULL,
  cache_write   INTEGER NOT NULL,
  reasoning     INTEGER NOT NULL,
  cost          INTEGER NOT NULL,
  prompts       INTEGER NOT NULL,
  tool_calls    INTEGER NOT NULL,
  tool_errors   INTEGER NOT NULL,
  files_changed INTEGER NOT NULL,
  lines_added   INTEGER NOT NULL,
  lines_removed INTEGER NOT NULL,
  api_errors    INTEGER NOT NULL
) STRICT;
CREATE TABLE changed_file (
  session INTEGER NOT NULL REFERENCES session (n) ON DELETE CASCADE,
  path    TEXT NOT NULL,
  PRIMARY KEY (session, path)
) STRICT, WITHOUT ROWID;

-- How far a file has been read; moves only together with the records read.
CREATE TABLE position (
  device     INTEGER NOT NULL,
  inode      INTEGER NOT NULL,
  path       TEXT NOT NULL,
  offset     INTEGER NOT NULL,
  state      BLOB NOT NULL,
  unreadable INTEGER NOT NULL,
  PRIMARY KEY (device, inode)
) STRICT, WITHOUT ROWID;

-- The outbox. change rises with every insertion and every revision, so a sink's cursor is one number;
-- null: kept back until a backfill.
CREATE TABLE event (
  n          INTEGER PRIMARY KEY,
  id         BLOB NOT NULL,
  session    INTEGER NOT NULL REFERENCES session (n) ON DELETE CASCADE,
  seq        INTEGER NOT NULL,
  rev        INTEGER NOT NULL,
  type       TEXT NOT NULL,
  opening    INTEGER NOT NULL,
  time       INTEGER NOT NULL,
  record     INTEGER REFERENCES record (n) ON DELETE CASCADE,
  attributes TEXT,                      -- of START, bound and END; what has a record is told from the record
  change     INTEGER,
  UNIQUE (session, seq)
) STRICT;
CREATE INDEX event_of_record ON event (record) WHERE record IS NOT NULL;
CREATE INDEX event_of_life ON event (session, type, opening) WHERE record IS NULL;
CREATE INDEX event_by_change ON event (change) WHERE change IS NOT NULL;

CREATE TABLE outbox (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  change  INTEGER NOT NULL,             -- the last number given out; never given again, even if rows are pruned
  durable INTEGER NOT NULL,             -- up to here a power cut takes nothing back
  logs    INTEGER NOT NULL              -- counts checkpoints; its change is what begins a new log
) STRICT;
INSERT INTO outbox VALUES (1, 0, 0, 0);

CREATE TABLE sink (
  name              TEXT PRIMARY KEY,
  since             INTEGER NOT NULL,   -- what changed up to here it was never to get
  cursor            INTEGER NOT NULL,   -- everything up to this change is delivered, or stands in letter
  lease_holder      TEXT,
  lease_until       INTEGER,
  failures          INTEGER NOT NULL DEFAULT 0,
  retry_at          INTEGER,
  paused            TEXT,
  last_delivered_at INTEGER
) STRICT, WITHOUT ROWID;

-- What a sink's cursor has passed without delivering it: dead, or deferred by the sink's own rules.
CREATE TABLE letter (
  sink   TEXT NOT NULL REFERENCES sink (name) ON DELETE CASCADE,
  event  INTEGER NOT NULL REFERENCES event (n) ON DELETE CASCADE,
  fate   TEXT NOT NULL,
  rev    INTEGER NOT NULL,
  reason TEXT NOT NULL,
  at     INTEGER NOT NULL,
  PRIMARY KEY (sink, event)
) STRICT, WITHOUT ROWID;
CREATE INDEX letter_of_event ON letter (event);

-- The agents' versions by the identity of their binaries.
CREATE TABLE agent_version (
  identity TEXT PRIMARY KEY,
  version  TEXT NOT NULL,
  at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What went wrong with the store itself, for doctor.
CREATE TABLE incident (
  n      INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  kind   TEXT NOT NULL,
  detail TEXT NOT NULL
) STRICT;

-- Entries of old stores that have been taken over.
CREATE TABLE imported (
  source  TEXT NOT NULL,
  entry   TEXT NOT NULL,
  session TEXT NOT NULL,
  at      INTEGER NOT NULL,
  PRIMARY KEY (source, entry)
) STRICT, WITHOUT ROWID;

CREATE TABLE setting (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
";

/// What a sender notes of a receiver.
const V2: &str = "
ALTER TABLE sink ADD COLUMN asked_until INTEGER; -- the receiver's own Retry-After
ALTER TABLE sink ADD COLUMN trouble TEXT;        -- what went wrong last
ALTER TABLE sink ADD COLUMN target TEXT;         -- a fingerprint of address and credentials
";

/// What recovery and `explain` must know of a run. The agents' versions are noted in files.
const V3: &str = "
ALTER TABLE run ADD COLUMN surroundings TEXT;    -- JSON: the variables that say where the agent's files are
ALTER TABLE evidence ADD COLUMN run INTEGER REFERENCES run (n) ON DELETE SET NULL; -- in which it was seen
DROP TABLE agent_version;
";

/// How many of the requests that describe an event were accepted (column `told`). It stood in the reason, where the next one
/// wrote over it.
const V4: &str = "
ALTER TABLE letter ADD COLUMN told INTEGER NOT NULL DEFAULT 0;
UPDATE letter SET told = CAST(substr(reason, 27) AS INTEGER), reason = ''
  WHERE reason LIKE 'requests accepted so far: %';
";

/// What every command asks for, and hardly ever finds.
const V5: &str = "
CREATE INDEX session_broken_off ON session (ended_at) WHERE end_reason = 'crash' OR signal IS NOT NULL;
";

/// What senders and the dashboard's copy look for among everything there is; and where a sink leads, in two columns instead
/// of one text, with the places of addresses it led to before.
const V6: &str = "
CREATE INDEX event_kept_back ON event (n) WHERE change IS NULL;
CREATE INDEX letter_waiting ON letter (sink, fate, at) WHERE fate <> 'done';
ALTER TABLE sink ADD COLUMN address TEXT;
ALTER TABLE sink ADD COLUMN credentials TEXT;   -- null with an address: it is no longer set up
UPDATE sink SET address = substr(target, 1, instr(target, '.') - 1),
    credentials = nullif(substr(target, instr(target, '.') + 1), '') WHERE target IS NOT NULL;
ALTER TABLE sink DROP COLUMN target;
CREATE TABLE former_address (
  sink              TEXT NOT NULL REFERENCES sink (name) ON DELETE CASCADE,
  address           TEXT NOT NULL,
  since             INTEGER NOT NULL,
  cursor            INTEGER NOT NULL,
  last_delivered_at INTEGER,
  PRIMARY KEY (sink, address)
) STRICT, WITHOUT ROWID;
";

/// The calls of pruned sessions, so that sums outlive them and a scan knows whose they were. And two look-ups that went through
/// everything: an id among the entries of one old store, and the sessions of a run.
const V7: &str = "
CREATE TABLE pruned_session (
  n                 INTEGER PRIMARY KEY,
  id                TEXT NOT NULL UNIQUE,
  name              TEXT NOT NULL,
  agent             TEXT NOT NULL,
  agent_session     TEXT,
  started_at        INTEGER NOT NULL,
  ended_at          INTEGER,
  transitioned_from TEXT,
  project           TEXT,
  repository        TEXT,
  branch            TEXT,
  grp               TEXT,
  tags              TEXT NOT NULL       -- JSON
) STRICT;
CREATE INDEX pruned_session_of_agent_session ON pruned_session (agent_session);
CREATE TABLE pruned_call (
  agent          TEXT NOT NULL,
  key            TEXT NOT NULL,
  session        INTEGER NOT NULL REFERENCES pruned_session (n),
  at             INTEGER NOT NULL,
  model          TEXT,
  input          INTEGER,
  output         INTEGER,
  cache_read     INTEGER,
  cache_write_5m INTEGER,
  cache_write_1h INTEGER,
  reasoning      INTEGER,
  fast           INTEGER,
  cost           INTEGER,
  PRIMARY KEY (agent, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX imported_as ON imported (source, session);
CREATE INDEX session_of_run ON session (run) WHERE run IS NOT NULL;
";

/// The few sessions that went on in an agent's background service: every command looks for them, and went through all sessions
/// for it. A piece of evidence that is none of these costs its insertion two comparisons.
const V8: &str = "
-- Nothing of it is ever sent, and usage leaves it out: the demonstration.
ALTER TABLE session ADD COLUMN local_only INTEGER NOT NULL DEFAULT 0;
UPDATE session SET local_only = 1 WHERE agent = 'demo';
CREATE INDEX evidence_handed_over ON evidence (session) WHERE source = 'handed-over' AND verdict = 'accepted';
";

/// Requests that must not be carried out twice, by their idempotency keys. Nothing of earlier versions reads it, so that a
/// process that opened the database before goes on as ever.
const V9: &str = "
CREATE TABLE request (
  kind        TEXT NOT NULL,
  key         TEXT NOT NULL,
  content     TEXT NOT NULL,            -- a fingerprint of what was asked for
  -- The process that carries it out.
  owner_pid   INTEGER NOT NULL,
  owner_start INTEGER NOT NULL,
  boot        TEXT NOT NULL,
  pids        TEXT NOT NULL,
  run         TEXT,
  session     TEXT,
  stage       TEXT NOT NULL,
  answer      TEXT,                     -- JSON; null: none yet, or never
  created_at  INTEGER NOT NULL,
  PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_by_age ON request (created_at);
";

/// The version a database is at; reading it also proves that the file is a database.
pub(super) fn version(conn: &Connection) -> Result<i64, Error> {
    Ok(conn.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

/// Brings a database to the known version. Of two processes that try at once, the second finds nothing to do.
pub(super) fn migrate(conn: &mut Connection) -> Result<(), Error> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = version(&tx)?;
    if found > KNOWN {
        return Err(Error::Newer { found, known: KNOWN });
    }
    debug_assert_eq!(i64::try_from(MIGRATIONS.len()), Ok(KNOWN));
    let done = usize::try_from(found).unwrap_or(0);
    for migration in &MIGRATIONS[done..] {
        tx.execute_batch(migration)?;
    }
    tx.pragma_update(None, "user_version", KNOWN)?;
    tx.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_of_any_earlier_version_becomes_one_of_this() {
        for version in 1..MIGRATIONS.len() {
            let mut old = Connection::open_in_memory().unwrap();
            for migration in &MIGRATIONS[..version] {
                old.execute_batch(migration).unwrap();
            }
            old.pragma_update(None, "user_version", i64::try_from(version).unwrap()).unwrap();
            let run = "INSERT INTO run (id, boot, pids, wrapper_pid, wrapper_start, started_at) VALUES ('r', '', '', 1, 1, 1)";
            old.execute_batch(run).unwrap();
            if (2..6).contains(&version) {
                old.execute_batch(
                    "INSERT INTO sink (name, since, cursor, target) VALUES ('used', 0, 0, 'a.c'), ('retired', 0, 0, 'a.')",
                )
                .unwrap();
            }
            migrate(&mut old).unwrap();
            assert_eq!(self::version(&old).unwrap(), KNOWN);
            let leads: Vec<(String, Option<String>)> = old
                .prepare("SELECT address, credentials FROM sink ORDER BY name")
                .unwrap()
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap();
            if !leads.is_empty() {
                assert_eq!(leads, [("a".into(), None), ("a".into(), Some("c".into()))], "from {version}");
            }
            let kept: Option<String> =
                old.query_row("SELECT surroundings FROM run WHERE id = 'r'", [], |row| row.get(0)).unwrap();
            assert_eq!(kept, None, "from {version}");
        }
    }
}
