-- Registered places where agents live. `words` is what a search looks through; `body` is everything but the card.
CREATE TABLE nodes (
    id        text COLLATE "C" PRIMARY KEY,
    parent_id text COLLATE "C",
    status    text NOT NULL,
    version   bigint NOT NULL,
    words     text NOT NULL,
    body      bytea NOT NULL,
    card      bytea NOT NULL
);

CREATE INDEX nodes_parent ON nodes (parent_id, id);

-- Signs of life, apart from the nodes: written a hundred times as often, and small. No index but the key, so that a
-- heartbeat is written in place.
CREATE TABLE node_beats (
    id   text COLLATE "C" PRIMARY KEY,
    at   bigint NOT NULL,
    body bytea NOT NULL
) WITH (fillfactor = 50);

-- What happened to nodes. Writers take turns, so that numbers become visible in their order.
CREATE TABLE node_events (
    seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      bigint NOT NULL,
    name    text NOT NULL,
    node    text COLLATE "C" NOT NULL,
    kind    text NOT NULL,
    payload bytea NOT NULL,
    private bytea NOT NULL
);

CREATE INDEX node_events_node ON node_events (node, name, seq);
CREATE INDEX node_events_at ON node_events (at);
