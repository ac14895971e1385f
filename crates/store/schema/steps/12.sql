-- What tells one session from another: its title, and when something last happened in it. Processes of earlier versions leave
-- active_at alone: the index takes the later of what they do write.

ALTER TABLE session ADD COLUMN title TEXT;          -- words of the conversation: never sent
ALTER TABLE session ADD COLUMN title_rank INTEGER;  -- who found them: 0 the first prompt, 1 the agent, 2 the user
ALTER TABLE session ADD COLUMN active_at INTEGER;   -- of its last opening and its last record, the later
UPDATE session SET active_at = (SELECT max(opened_at) FROM opening o WHERE o.session = session.n) WHERE opening > 1;
CREATE INDEX session_by_activity ON session (max(started_at, ifnull(ended_at, 0), ifnull(active_at, 0)));
-- Which models a session used, without looking at its calls one by one.
CREATE INDEX record_model ON record (session, model) WHERE kind = 'usage';
