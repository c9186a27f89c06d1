-- Small data that is not a log: API keys, signing keys, push configurations.
CREATE TABLE records (
    kind  TEXT NOT NULL,
    scope TEXT NOT NULL,
    id    TEXT NOT NULL,
    body  BLOB NOT NULL,
    at    INTEGER NOT NULL,
    due   INTEGER,
    PRIMARY KEY (kind, scope, id)
) WITHOUT ROWID;

CREATE INDEX records_due ON records (kind, due) WHERE due IS NOT NULL;
