-- The runs of a conversation in the order in which they were begun.
CREATE INDEX runs_begun ON runs (conversation, created_at, run_id);
