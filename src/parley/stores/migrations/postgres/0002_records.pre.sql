-- Small data that is not a log: API keys, signing keys, push configurations.
-- Collated by bytes, so that every store lists in the same order.
CREATE TABLE records (
    kind  text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    id    text COLLATE "C" NOT NULL,
    body  bytea NOT NULL,
    at    bigint NOT NULL,
    due   bigint,
    PRIMARY KEY (kind, scope, id)
);

CREATE INDEX records_due ON records (kind, due) WHERE due IS NOT NULL;
