-- What a sender notes of a receiver.

ALTER TABLE sink ADD COLUMN asked_until INTEGER; -- the receiver's own Retry-After
ALTER TABLE sink ADD COLUMN trouble TEXT;        -- what went wrong last
ALTER TABLE sink ADD COLUMN target TEXT;         -- a fingerprint of address and credentials
