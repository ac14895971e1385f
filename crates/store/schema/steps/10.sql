-- The proxy as one more producer of records, and the limits that APIs report.

ALTER TABLE record ADD COLUMN seen TEXT;         -- by whom: null is the transcript alone, else 'proxy' or 'both'
ALTER TABLE record ADD COLUMN source TEXT;       -- whose numbers: null is the transcript, else 'proxy'
ALTER TABLE record ADD COLUMN call_kind TEXT;
ALTER TABLE record ADD COLUMN latency_ms INTEGER;
ALTER TABLE record ADD COLUMN ttft_ms INTEGER;
ALTER TABLE record ADD COLUMN aborted INTEGER;
ALTER TABLE record ADD COLUMN attempt INTEGER;
ALTER TABLE record ADD COLUMN loose INTEGER;     -- 1: waits to be matched with the transcript by its tokens
ALTER TABLE record ADD COLUMN branch TEXT;       -- when the call was made
ALTER TABLE record ADD COLUMN head TEXT;
CREATE INDEX record_loose ON record (session) WHERE loose = 1;

-- Further keys of a record: the agent's file and the API call one thing by two names.
CREATE TABLE record_alias (
  n      INTEGER PRIMARY KEY,
  agent  TEXT NOT NULL,
  kind   TEXT NOT NULL,
  key    TEXT NOT NULL,
  record INTEGER NOT NULL REFERENCES record (n) ON DELETE CASCADE,
  UNIQUE (agent, kind, key)
) STRICT;
CREATE INDEX record_alias_of_record ON record_alias (record);
CREATE TABLE pruned_alias (
  agent TEXT NOT NULL,
  key   TEXT NOT NULL,
  PRIMARY KEY (agent, key)
) STRICT, WITHOUT ROWID;

-- Calls that the proxy saw and whose session is not known yet.
CREATE TABLE proxied_call (
  n              INTEGER PRIMARY KEY,
  agent          TEXT NOT NULL,
  key            TEXT NOT NULL,
  keyed          INTEGER NOT NULL,
  at             INTEGER NOT NULL,
  run            TEXT,
  conversation   TEXT,
  subagent       TEXT,
  call_kind      TEXT NOT NULL,
  latency_ms     INTEGER NOT NULL,
  ttft_ms        INTEGER,
  aborted        INTEGER NOT NULL,
  attempt        INTEGER NOT NULL,
  model          TEXT,                  -- null: the API reported no usage
  input          INTEGER,
  output         INTEGER,
  cache_read     INTEGER,
  cache_write_5m INTEGER,
  cache_write_1h INTEGER,
  reasoning      INTEGER,
  fast           INTEGER,
  request_id     TEXT,
  error_status   INTEGER,
  error_kind     TEXT,                  -- null: no error
  UNIQUE (agent, key)
) STRICT;
CREATE INDEX proxied_call_of_conversation ON proxied_call (agent, conversation);
CREATE INDEX proxied_call_of_run ON proxied_call (run) WHERE conversation IS NULL;

ALTER TABLE run ADD COLUMN proxied INTEGER NOT NULL DEFAULT 0;     -- its agent's calls go through the proxy
ALTER TABLE session ADD COLUMN proxied INTEGER NOT NULL DEFAULT 0; -- all runs that were in it were such
-- Which session such a run was in, from when on.
CREATE TABLE stay (
  run     INTEGER NOT NULL REFERENCES run (n) ON DELETE CASCADE,
  since   INTEGER NOT NULL,
  session INTEGER NOT NULL REFERENCES session (n) ON DELETE CASCADE,
  PRIMARY KEY (run, since, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX stay_in_session ON stay (session);

-- The last report of each limit; the utilization is in millionths.
CREATE TABLE quota (
  agent       TEXT NOT NULL,
  provider    TEXT NOT NULL,
  window      TEXT NOT NULL,
  at          INTEGER NOT NULL,
  utilization INTEGER NOT NULL,
  resets_at   INTEGER,
  source      TEXT NOT NULL,
  event_at    INTEGER NOT NULL,         -- of the last report that became an event
  PRIMARY KEY (agent, provider, window)
) STRICT, WITHOUT ROWID;
-- Those that became events.
CREATE TABLE quota_report (
  n           INTEGER PRIMARY KEY,
  agent       TEXT NOT NULL,
  provider    TEXT NOT NULL,
  window      TEXT NOT NULL,
  at          INTEGER NOT NULL,
  utilization INTEGER NOT NULL,
  resets_at   INTEGER,
  source      TEXT NOT NULL,
  session     INTEGER REFERENCES session (n) ON DELETE SET NULL
) STRICT;
CREATE INDEX quota_report_by_time ON quota_report (agent, provider, window, at);
CREATE INDEX quota_report_of_session ON quota_report (session) WHERE session IS NOT NULL;
-- What a session saw of a window, first and last; a window that began anew is another row.
CREATE TABLE quota_use (
  session   INTEGER NOT NULL REFERENCES session (n) ON DELETE CASCADE,
  provider  TEXT NOT NULL,
  window    TEXT NOT NULL,
  period    INTEGER NOT NULL,           -- counts the windows of this name that the session saw
  first     INTEGER NOT NULL,
  first_at  INTEGER NOT NULL,
  last      INTEGER NOT NULL,
  last_at   INTEGER NOT NULL,
  resets_at INTEGER,
  PRIMARY KEY (session, provider, window, period)
) STRICT, WITHOUT ROWID;
