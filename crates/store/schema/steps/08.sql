-- The few sessions that went on in an agent's background service: every command looks for them, and went through all sessions
-- for it. A piece of evidence that is none of these costs its insertion two comparisons.

-- Nothing of it is ever sent, and usage leaves it out: the demonstration.
ALTER TABLE session ADD COLUMN local_only INTEGER NOT NULL DEFAULT 0;
UPDATE session SET local_only = 1 WHERE agent = 'demo';
CREATE INDEX evidence_handed_over ON evidence (session) WHERE source = 'handed-over' AND verdict = 'accepted';
