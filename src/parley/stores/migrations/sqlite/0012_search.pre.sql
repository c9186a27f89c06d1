-- The words of each run's first message and error. The rowid sorts by creation: FTS5 reads matches in its order.
CREATE VIRTUAL TABLE run_search USING fts5 (run_id UNINDEXED, words, detail = none, tokenize = 'ascii');

-- Only an erased run loses its principal; nothing of it may stay here.
CREATE TRIGGER runs_unsearchable AFTER UPDATE OF principal ON runs WHEN new.principal = ''
BEGIN
    DELETE FROM run_search WHERE rowid = (new.created_at << 20) | (new.arrival & 1048575);
END;
