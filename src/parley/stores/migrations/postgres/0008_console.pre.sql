-- The newest runs of everybody, of one principal, by one agent, in one state. None of these changes but the state, so
-- that a log which grows does not touch them.
CREATE INDEX runs_newest ON runs (created_at, run_id);
CREATE INDEX runs_newest_of ON runs (principal, created_at, run_id);
CREATE INDEX runs_newest_by ON runs (agent, created_at, run_id);
CREATE INDEX runs_newest_in ON runs (state, created_at, run_id);
CREATE INDEX runs_newest_of_in ON runs (principal, state, created_at, run_id);
CREATE INDEX runs_newest_by_in ON runs (agent, state, created_at, run_id);
-- Ids that begin with something, whatever the database's order of letters is.
CREATE INDEX runs_named ON runs (run_id text_pattern_ops);
