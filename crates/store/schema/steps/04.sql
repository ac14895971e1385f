-- How many of the requests that describe an event were accepted (column told). It stood in the reason, where the next one
-- wrote over it.

ALTER TABLE letter ADD COLUMN told INTEGER NOT NULL DEFAULT 0;
UPDATE letter SET told = CAST(substr(reason, 27) AS INTEGER), reason = ''
  WHERE reason LIKE 'requests accepted so far: %';
