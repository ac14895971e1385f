-- The sessions that came after one, for the sums of a chain.

CREATE INDEX opening_came_from ON opening (transitioned_from) WHERE transitioned_from IS NOT NULL;
