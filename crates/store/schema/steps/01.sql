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
