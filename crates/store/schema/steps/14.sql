-- Evidence of the proxy's.

-- Which process of a run has asked the model in which conversation, where the run was not known to be in that one.
CREATE TABLE caller (
  run          INTEGER NOT NULL REFERENCES run (n) ON DELETE CASCADE,
  conversation TEXT NOT NULL,
  pid          INTEGER NOT NULL,
  PRIMARY KEY (run, conversation, pid)
) STRICT, WITHOUT ROWID;
