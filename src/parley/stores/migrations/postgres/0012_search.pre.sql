-- The words of each run's first message and error.
CREATE TABLE run_search (
    run_id     text PRIMARY KEY,
    created_at bigint NOT NULL,
    words      text[] NOT NULL
);
CREATE INDEX run_search_words ON run_search USING gin (words);
CREATE INDEX run_search_newest ON run_search (created_at, run_id);

-- Only an erased run loses its principal; nothing of it may stay here, whichever version erases it.
CREATE FUNCTION runs_unsearchable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM run_search WHERE run_id = new.run_id;
    RETURN NULL;
END $$;
CREATE TRIGGER runs_unsearchable AFTER UPDATE OF principal ON runs
FOR EACH ROW WHEN (new.principal = '') EXECUTE FUNCTION runs_unsearchable();
