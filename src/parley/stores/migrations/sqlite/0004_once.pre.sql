-- What was used once: nonces of signed requests, until they would have expired anyway.
CREATE TABLE nonces (
    nonce BLOB PRIMARY KEY,
    until INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX nonces_until ON nonces (until);

-- Keys that can expire; those of a run (`run:…`) last as long as its log and are never looked through.
CREATE INDEX keys_expiring ON keys (at) WHERE substr(scope, 1, 4) <> 'run:';
