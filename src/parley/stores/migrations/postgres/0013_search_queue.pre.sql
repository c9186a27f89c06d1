-- Runs whose words are not in the index yet. A run may be here twice: nothing waits for its entry.
CREATE TABLE run_search_queue (
    place  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id text NOT NULL
);
