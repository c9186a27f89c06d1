-- Runs whose words are not in the index yet, in the order in which they got them.
CREATE TABLE run_search_queue (place INTEGER PRIMARY KEY, run_id TEXT NOT NULL);
