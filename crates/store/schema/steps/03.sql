-- What recovery and explain must know of a run. The agents' versions are noted in files.

ALTER TABLE run ADD COLUMN surroundings TEXT;    -- JSON: the variables that say where the agent's files are
ALTER TABLE evidence ADD COLUMN run INTEGER REFERENCES run (n) ON DELETE SET NULL; -- in which it was seen
DROP TABLE agent_version;
