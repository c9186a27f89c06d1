-- When what a run's status shows was last changed, and the order in which a principal's runs are listed. Filters by
-- agent and state are answered from the index alone.
ALTER TABLE runs ADD COLUMN status_at bigint NOT NULL DEFAULT 0;
UPDATE runs SET status_at = updated_at;
CREATE INDEX runs_listed ON runs (principal, status_at, run_id, agent, state);
CREATE INDEX runs_conversation ON runs (conversation);
