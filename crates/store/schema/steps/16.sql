-- The mark of calls whose usage the proxy could not read in full, by the calls' keys. A table of its own: such a call may wait for
-- its session, or become no record at all.

CREATE TABLE unread_usage (
  agent TEXT NOT NULL,
  key   TEXT NOT NULL,
  at    INTEGER NOT NULL,
  PRIMARY KEY (agent, key)
) STRICT, WITHOUT ROWID;
