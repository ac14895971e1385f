-- The tables as they are. A new database is made by this file; an older one becomes the same by the files in steps/.
-- Whoever changes it appends a step. That both come to the same is tested.

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
  unpublished        INTEGER NOT NULL DEFAULT 0,
  local_only         INTEGER NOT NULL DEFAULT 0, -- nothing of it is ever sent, and usage leaves it out: the demonstration
  proxied            INTEGER NOT NULL DEFAULT 0, -- all runs that were in it were such
  title              TEXT,              -- words of the conversation: never sent
  title_rank         INTEGER,           -- who found them: 0 the first prompt, 1 the agent, 2 the user
  active_at          INTEGER            -- of its last opening and its last record, the later
) STRICT;
CREATE UNIQUE INDEX session_of_agent_session ON session (agent, agent_session) WHERE agent_session IS NOT NULL;
CREATE INDEX session_by_start ON session (started_at);
CREATE INDEX session_of_parent ON session (parent) WHERE parent IS NOT NULL;
CREATE INDEX session_unpublished ON session (n) WHERE unpublished = 1;
-- What every command asks for, and hardly ever finds.
CREATE INDEX session_broken_off ON session (ended_at) WHERE end_reason = 'crash' OR signal IS NOT NULL;
CREATE INDEX session_of_run ON session (run) WHERE run IS NOT NULL;
-- Processes of earlier versions leave active_at alone: the index takes the later of what they do write.
CREATE INDEX session_by_activity ON session (max(started_at, ifnull(ended_at, 0), ifnull(active_at, 0)));

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
  session       INTEGER REFERENCES session (n) ON DELETE SET NULL,
  surroundings  TEXT,                   -- JSON: the variables that say where the agent's files are
  proxied       INTEGER NOT NULL DEFAULT 0 -- its agent's calls go through the proxy
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
-- The sessions that came after one, for the sums of a chain.
CREATE INDEX opening_came_from ON opening (transitioned_from) WHERE transitioned_from IS NOT NULL;

-- What codemie saw and what it made of it, for explain.
CREATE TABLE evidence (
  n             INTEGER PRIMARY KEY,
  session       INTEGER NOT NULL REFERENCES session (n) ON DELETE CASCADE,
  at            INTEGER NOT NULL,
  source        TEXT NOT NULL,
  verdict       TEXT NOT NULL,
  agent_session TEXT,
  detail        TEXT NOT NULL,
  run           INTEGER REFERENCES run (n) ON DELETE SET NULL -- in which it was seen
) STRICT;
CREATE INDEX evidence_of_session ON evidence (session);
-- The few sessions that went on in an agent's background service: every command looks for them.
CREATE INDEX evidence_handed_over ON evidence (session) WHERE source = 'handed-over' AND verdict = 'accepted';

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
  -- how the proxy saw it
  seen           TEXT,                  -- by whom: null is the transcript alone, else 'proxy' or 'both'
  source         TEXT,                  -- whose numbers: null is the transcript, else 'proxy'
  call_kind      TEXT,
  latency_ms     INTEGER,
  ttft_ms        INTEGER,
  aborted        INTEGER,
  attempt        INTEGER,
  loose          INTEGER,               -- 1: waits to be matched with the transcript by its tokens
  branch         TEXT,                  -- when the call was made
  head           TEXT,
  billing        TEXT,
  UNIQUE (agent, kind, key)
) STRICT;
CREATE INDEX record_of_session ON record (session, kind, at);
CREATE INDEX record_unpriced ON record (session, model) WHERE kind = 'usage' AND cost IS NULL;
CREATE INDEX record_loose ON record (session) WHERE loose = 1;
-- Which models a session used, without looking at its calls one by one.
CREATE INDEX record_model ON record (session, model) WHERE kind = 'usage';

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
-- What senders and the dashboard look for among everything there is.
CREATE INDEX event_kept_back ON event (n) WHERE change IS NULL;

CREATE TABLE outbox (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  change  INTEGER NOT NULL,             -- the last number given out; never given again, even if rows are pruned
  durable INTEGER NOT NULL,             -- up to here a power cut takes nothing back
  logs    INTEGER NOT NULL              -- counts checkpoints; its change is what begins a new log
) STRICT;

CREATE TABLE sink (
  name              TEXT PRIMARY KEY,
  since             INTEGER NOT NULL,   -- what changed up to here it was never to get
  cursor            INTEGER NOT NULL,   -- everything up to this change is delivered, or stands in letter
  lease_holder      TEXT,
  lease_until       INTEGER,
  failures          INTEGER NOT NULL DEFAULT 0,
  retry_at          INTEGER,
  paused            TEXT,
  last_delivered_at INTEGER,
  asked_until       INTEGER,            -- the receiver's own Retry-After
  trouble           TEXT,               -- what went wrong last
  address           TEXT,               -- fingerprints of where it leads
  credentials       TEXT                -- null with an address: it is no longer set up
) STRICT, WITHOUT ROWID;

-- What a sink's cursor has passed without delivering it: dead, or deferred by the sink's own rules.
CREATE TABLE letter (
  sink   TEXT NOT NULL REFERENCES sink (name) ON DELETE CASCADE,
  event  INTEGER NOT NULL REFERENCES event (n) ON DELETE CASCADE,
  fate   TEXT NOT NULL,
  rev    INTEGER NOT NULL,
  reason TEXT NOT NULL,
  at     INTEGER NOT NULL,
  told   INTEGER NOT NULL DEFAULT 0,    -- how many of the requests that describe the event were accepted
  PRIMARY KEY (sink, event)
) STRICT, WITHOUT ROWID;
CREATE INDEX letter_of_event ON letter (event);
CREATE INDEX letter_waiting ON letter (sink, fate, at) WHERE fate <> 'done';

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
CREATE INDEX imported_as ON imported (source, session);

CREATE TABLE setting (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- How far a sink had got at addresses that it led to before.
CREATE TABLE former_address (
  sink              TEXT NOT NULL REFERENCES sink (name) ON DELETE CASCADE,
  address           TEXT NOT NULL,
  since             INTEGER NOT NULL,
  cursor            INTEGER NOT NULL,
  last_delivered_at INTEGER,
  PRIMARY KEY (sink, address)
) STRICT, WITHOUT ROWID;

-- The calls of pruned sessions, so that sums outlive them and a scan knows whose they were.
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
CREATE INDEX pruned_call_by_time ON pruned_call (at, session, cost);

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
  billing        TEXT,
  UNIQUE (agent, key)
) STRICT;
CREATE INDEX proxied_call_of_conversation ON proxied_call (agent, conversation);
CREATE INDEX proxied_call_of_run ON proxied_call (run) WHERE conversation IS NULL;

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

-- For budgets: what was spent, kept by quarters of an hour, at which the days of every zone begin, and by days of UTC, of which a
-- month has few. Triggers add it up, so that the calls which a process of an earlier version stores are in it as well.
CREATE TABLE spent (
  width    INTEGER NOT NULL,            -- 0: quarters of an hour, 1: days of UTC
  slot     INTEGER NOT NULL,            -- so many of them since 1970
  session  INTEGER NOT NULL,            -- without a reference: the triggers take the rows out
  calls    INTEGER NOT NULL,
  unpriced INTEGER NOT NULL,            -- those of them without a price
  cost     INTEGER NOT NULL,
  PRIMARY KEY (width, slot, session)
) STRICT, WITHOUT ROWID;

-- Amounts that a person has added to a budget.
CREATE TABLE budget_raise (
  n       INTEGER PRIMARY KEY,
  budget  TEXT NOT NULL,                -- as config.toml has it, in words: 'month of project widgets'
  span    TEXT NOT NULL,                -- the day, week or month it holds for; a session's id
  session TEXT,                         -- it holds for this session's calls alone
  amount  INTEGER NOT NULL,             -- pico-dollars
  at      INTEGER NOT NULL
) STRICT;
CREATE INDEX budget_raise_of ON budget_raise (budget, span);

-- What calls under way may cost, one row for each budget that they count towards.
CREATE TABLE budget_hold (
  call        TEXT NOT NULL,
  budget      TEXT NOT NULL,
  span        TEXT NOT NULL,
  amount      INTEGER NOT NULL,
  at          INTEGER NOT NULL,
  agent       TEXT NOT NULL,
  key         TEXT,                     -- the call is over and its record will have this key; its session is not known yet
  -- The process that passes the call on. When it is gone, its rows mean nothing.
  owner_pid   INTEGER NOT NULL,
  owner_start INTEGER NOT NULL,
  boot        TEXT NOT NULL,
  pids        TEXT NOT NULL,
  waits       INTEGER NOT NULL DEFAULT 0, -- the call has not begun; its place is by at
  PRIMARY KEY (call, budget)
) STRICT, WITHOUT ROWID;
CREATE INDEX budget_hold_of ON budget_hold (budget, span);

-- What a user was told of, so that it is told once.
CREATE TABLE budget_notice (
  budget  TEXT NOT NULL,
  span    TEXT NOT NULL,
  percent INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  PRIMARY KEY (budget, span, percent)
) STRICT, WITHOUT ROWID;

-- Which process of a run has asked the model in which conversation, where the run was not known to be in that one.
CREATE TABLE caller (
  run          INTEGER NOT NULL REFERENCES run (n) ON DELETE CASCADE,
  conversation TEXT NOT NULL,
  pid          INTEGER NOT NULL,
  PRIMARY KEY (run, conversation, pid)
) STRICT, WITHOUT ROWID;

-- The mark of calls whose usage the proxy could not read in full, by the calls' keys. A table of its own: such a call may wait for
-- its session, or become no record at all.
CREATE TABLE unread_usage (
  agent TEXT NOT NULL,
  key   TEXT NOT NULL,
  at    INTEGER NOT NULL,
  PRIMARY KEY (agent, key)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER spent_by_new_call AFTER INSERT ON record
WHEN NEW.kind = 'usage' AND (SELECT local_only FROM session WHERE n = NEW.session) = 0
BEGIN
  INSERT INTO spent
    VALUES (0, NEW.at / 900000, NEW.session, 1, NEW.cost IS NULL, ifnull(NEW.cost, 0)),
      (1, NEW.at / 86400000, NEW.session, 1, NEW.cost IS NULL, ifnull(NEW.cost, 0))
    ON CONFLICT (width, slot, session) DO UPDATE SET calls = calls + 1, unpriced = unpriced + excluded.unpriced,
      cost = CAST(cost + excluded.cost AS INTEGER);
END;

CREATE TRIGGER spent_without_call AFTER DELETE ON record WHEN OLD.kind = 'usage'
BEGIN
  UPDATE spent SET calls = calls - 1, unpriced = unpriced - (OLD.cost IS NULL),
      cost = CAST(cost - ifnull(OLD.cost, 0) AS INTEGER)
    WHERE width = 0 AND slot = OLD.at / 900000 AND session = OLD.session;
  UPDATE spent SET calls = calls - 1, unpriced = unpriced - (OLD.cost IS NULL),
      cost = CAST(cost - ifnull(OLD.cost, 0) AS INTEGER)
    WHERE width = 1 AND slot = OLD.at / 86400000 AND session = OLD.session;
  DELETE FROM spent
    WHERE width = 0 AND slot = OLD.at / 900000 AND session = OLD.session AND calls <= 0;
  DELETE FROM spent
    WHERE width = 1 AND slot = OLD.at / 86400000 AND session = OLD.session AND calls <= 0;
END;

CREATE TRIGGER spent_by_revised_call AFTER UPDATE OF at, session, cost ON record
WHEN NEW.kind = 'usage' AND (SELECT local_only FROM session WHERE n = NEW.session) = 0
BEGIN
  UPDATE spent SET calls = calls - 1, unpriced = unpriced - (OLD.cost IS NULL),
      cost = CAST(cost - ifnull(OLD.cost, 0) AS INTEGER)
    WHERE width = 0 AND slot = OLD.at / 900000 AND session = OLD.session;
  UPDATE spent SET calls = calls - 1, unpriced = unpriced - (OLD.cost IS NULL),
      cost = CAST(cost - ifnull(OLD.cost, 0) AS INTEGER)
    WHERE width = 1 AND slot = OLD.at / 86400000 AND session = OLD.session;
  INSERT INTO spent
    VALUES (0, NEW.at / 900000, NEW.session, 1, NEW.cost IS NULL, ifnull(NEW.cost, 0)),
      (1, NEW.at / 86400000, NEW.session, 1, NEW.cost IS NULL, ifnull(NEW.cost, 0))
    ON CONFLICT (width, slot, session) DO UPDATE SET calls = calls + 1, unpriced = unpriced + excluded.unpriced,
      cost = CAST(cost + excluded.cost AS INTEGER);
  DELETE FROM spent
    WHERE width = 0 AND slot = OLD.at / 900000 AND session = OLD.session AND calls <= 0;
  DELETE FROM spent
    WHERE width = 1 AND slot = OLD.at / 86400000 AND session = OLD.session AND calls <= 0;
END;

INSERT INTO outbox VALUES (1, 0, 0, 0);
