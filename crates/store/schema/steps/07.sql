-- The calls of pruned sessions, so that sums outlive them and a scan knows whose they were. And two look-ups that went through
-- everything: an id among the entries of one old store, and the sessions of a run.

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
