-- Budgets. What was spent is kept by quarters of an hour, at which the days of every zone begin, and by days of UTC, of which a
-- month has few. Triggers keep it, so that the calls which a process of an earlier version stores are in it as well.

CREATE TABLE spent (
  width    INTEGER NOT NULL,            -- 0: quarters of an hour, 1: days of UTC
  slot     INTEGER NOT NULL,            -- so many of them since 1970
  session  INTEGER NOT NULL,            -- without a reference: the triggers take the rows out
  calls    INTEGER NOT NULL,
  unpriced INTEGER NOT NULL,            -- those of them without a price
  cost     INTEGER NOT NULL,
  PRIMARY KEY (width, slot, session)
) STRICT, WITHOUT ROWID;
INSERT INTO spent
  SELECT 0, r.at / 900000, r.session, count(*), sum(r.cost IS NULL),
    CAST(ifnull(sum(r.cost >> 32) * 4294967296 + sum(r.cost & 4294967295), 0) AS INTEGER)
  FROM record r JOIN session s ON s.n = r.session AND s.local_only = 0
  WHERE r.kind = 'usage' GROUP BY 2, 3;
INSERT INTO spent
  SELECT 1, r.at / 86400000, r.session, count(*), sum(r.cost IS NULL),
    CAST(ifnull(sum(r.cost >> 32) * 4294967296 + sum(r.cost & 4294967295), 0) AS INTEGER)
  FROM record r JOIN session s ON s.n = r.session AND s.local_only = 0
  WHERE r.kind = 'usage' GROUP BY 2, 3;
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
CREATE INDEX pruned_call_by_time ON pruned_call (at, session, cost);

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
