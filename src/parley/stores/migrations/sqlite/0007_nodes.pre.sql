-- Registered places where agents live. `words` is what a search looks through; `body` is everything but the card.
CREATE TABLE nodes (
    id        TEXT PRIMARY KEY,
    parent_id TEXT,
    status    TEXT NOT NULL,
    version   INTEGER NOT NULL,
    words     TEXT NOT NULL,
    body      BLOB NOT NULL,
    card      BLOB NOT NULL
) WITHOUT ROWID;

CREATE INDEX nodes_parent ON nodes (parent_id, id);

-- Signs of life, apart from the nodes: written a hundred times as often, and small.
CREATE TABLE node_beats (
    id   TEXT PRIMARY KEY,
    at   INTEGER NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID;

-- What happened to nodes. A number is never given twice, also not when the newest events are forgotten.
CREATE TABLE node_events (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    name    TEXT NOT NULL,
    node    TEXT NOT NULL,
    kind    TEXT NOT NULL,
    payload BLOB NOT NULL,
    private BLOB NOT NULL
);

CREATE INDEX node_events_node ON node_events (node, name, seq);
CREATE INDEX node_events_at ON node_events (at);
