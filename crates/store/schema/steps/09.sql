-- Requests that must not be carried out twice, by their idempotency keys. Nothing of earlier versions reads it, so that a
-- process that opened the database before goes on as ever.

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
