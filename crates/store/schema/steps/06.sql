-- What senders and the dashboard's copy look for among everything there is; and where a sink leads, in two columns instead
-- of one text, with the places of addresses it led to before.

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
