-- One row per run: where its log stands, and its state as of then. `arrival` is the order in which runs were accepted.
CREATE TABLE runs (
    run_id       text PRIMARY KEY,
    version      bigint NOT NULL,
    hash         bytea NOT NULL,
    floor        bigint NOT NULL DEFAULT 0,
    floor_hash   bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    snapshot     bytea,
    arrival      bigint GENERATED ALWAYS AS IDENTITY,
    agent        text NOT NULL,
    principal    text NOT NULL,
    conversation text NOT NULL,
    state        text NOT NULL,
    owner        text NOT NULL,
    ended        boolean NOT NULL,
    created_at   bigint NOT NULL,
    updated_at   bigint NOT NULL,
    body         bytea NOT NULL
) WITH (fillfactor = 80);

-- What waits for a slot, in order; what somebody works on; what may be forgotten one day.
CREATE INDEX runs_waiting ON runs (agent, arrival) WHERE state = 'submitted';
CREATE INDEX runs_working ON runs (owner) WHERE state = 'working';
CREATE INDEX runs_ended ON runs (updated_at) WHERE ended AND floor < version;

-- The log. `digest` is set only where `payload` was erased: the chain can still be walked.
CREATE TABLE events (
    run_id  text NOT NULL,
    seq     bigint NOT NULL,
    at      bigint NOT NULL,
    type    text NOT NULL,
    payload bytea,
    digest  bytea,
    hash    bytea NOT NULL,
    PRIMARY KEY (run_id, seq)
);

CREATE TABLE keys (
    scope   text NOT NULL,
    name    text NOT NULL,
    run_id  text NOT NULL,
    version bigint NOT NULL,
    digest  bytea NOT NULL,
    at      bigint NOT NULL,
    PRIMARY KEY (scope, name)
);

-- Who serves this database. A row that was not renewed in time is buried: it can never be renewed again.
CREATE TABLE replicas (
    id          text PRIMARY KEY,
    alive_until timestamptz NOT NULL,
    buried      boolean NOT NULL DEFAULT false
);

-- The slots of agents that have a limit; `replica` holds one or is null.
CREATE TABLE slots (
    agent   text NOT NULL,
    number  integer NOT NULL,
    replica text,
    PRIMARY KEY (agent, number)
);
