-- One row per run: where its log stands, and its state as of then.
CREATE TABLE runs (
    run_id      TEXT PRIMARY KEY,
    version     INTEGER NOT NULL,
    hash        BLOB NOT NULL,
    floor       INTEGER NOT NULL DEFAULT 0,
    floor_hash  BLOB NOT NULL DEFAULT (zeroblob(32)),
    agent       TEXT NOT NULL,
    principal   TEXT NOT NULL,
    conversation TEXT NOT NULL,
    state       TEXT NOT NULL,
    ended       INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    body        BLOB NOT NULL
) WITHOUT ROWID;

-- What has to be taken up after a restart.
CREATE INDEX runs_unfinished ON runs (created_at, run_id) WHERE ended = 0;

-- The log. Clustered by run, so that reading on from a cursor is one range scan whatever the log's length.
-- `digest` is set only where `payload` was erased: the chain can still be walked.
CREATE TABLE events (
    run_id  TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    type    TEXT NOT NULL,
    payload BLOB,
    digest  BLOB,
    hash    BLOB NOT NULL,
    PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;

CREATE TABLE keys (
    scope   TEXT NOT NULL,
    name    TEXT NOT NULL,
    run_id  TEXT NOT NULL,
    version INTEGER NOT NULL,
    digest  BLOB NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (scope, name)
) WITHOUT ROWID;
