-- One row per run: where its log stands, and its state as of then. `arrival` is the order in which runs were accepted.
CREATE TABLE runs (
    run_id      TEXT PRIMARY KEY,
    version     INTEGER NOT NULL,
    hash        BLOB NOT NULL,
    floor       INTEGER NOT NULL DEFAULT 0,
    floor_hash  BLOB NOT NULL DEFAULT (zeroblob(32)),
    snapshot    BLOB,
    arrival     INTEGER NOT NULL,
    agent       TEXT NOT NULL,
    principal   TEXT NOT NULL,
    conversation TEXT NOT NULL,
    state       TEXT NOT NULL,
    owner       TEXT NOT NULL,
    ended       INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    body        BLOB NOT NULL
) WITHOUT ROWID;

-- What waits for a slot, in order; what somebody works on; what may be forgotten one day.
CREATE INDEX runs_waiting ON runs (agent, arrival) WHERE state = 'submitted';
CREATE INDEX runs_working ON runs (arrival) WHERE state = 'working';
CREATE INDEX runs_ended ON runs (updated_at) WHERE ended = 1 AND floor < version;

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
