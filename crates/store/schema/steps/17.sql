-- How calls are paid for, where the proxy saw it.

ALTER TABLE record ADD COLUMN billing TEXT;
ALTER TABLE proxied_call ADD COLUMN billing TEXT;
