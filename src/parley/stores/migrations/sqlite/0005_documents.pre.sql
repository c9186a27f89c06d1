-- Conversations as their owners began them, the plan and the deliverable of each, and the versions of those.
CREATE TABLE conversations (
    principal  TEXT NOT NULL,
    id         TEXT NOT NULL,
    agent      TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    deleted_at INTEGER,
    PRIMARY KEY (principal, id)
) WITHOUT ROWID;

-- `conversation` is null for a document that outlived its conversation. `last` is the highest number ever used.
CREATE TABLE documents (
    id           TEXT PRIMARY KEY,
    principal    TEXT NOT NULL,
    conversation TEXT,
    kind         TEXT NOT NULL,
    agent        TEXT NOT NULL,
    title        TEXT NOT NULL,
    type         TEXT NOT NULL,
    current      TEXT NOT NULL,
    revision     INTEGER NOT NULL,
    last         INTEGER NOT NULL,
    versions     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    UNIQUE (principal, conversation, kind)
);

CREATE TABLE versions (
    id         TEXT PRIMARY KEY,
    document   TEXT NOT NULL,
    number     INTEGER NOT NULL,
    format     TEXT NOT NULL,
    provenance TEXT NOT NULL,
    metadata   BLOB NOT NULL,
    at         INTEGER NOT NULL,
    content    TEXT NOT NULL,
    UNIQUE (document, number)
);

-- What was asked and made no run of its own: reads, and what was refused.
CREATE TABLE operations (
    id           TEXT PRIMARY KEY,
    principal    TEXT NOT NULL,
    conversation TEXT NOT NULL,
    agent        TEXT NOT NULL,
    mode         TEXT NOT NULL,
    action       TEXT NOT NULL,
    code         TEXT NOT NULL,
    message      TEXT NOT NULL,
    started_at   INTEGER NOT NULL,
    completed_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX operations_old ON operations (completed_at);
