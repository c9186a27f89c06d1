-- What was used once: nonces of signed requests, until they would have expired anyway.
CREATE TABLE nonces (
    nonce bytea PRIMARY KEY,
    until bigint NOT NULL
);

CREATE INDEX nonces_until ON nonces (until);

-- Keys that can expire; those of a run (`run:…`) last as long as its log and are never looked through.
CREATE INDEX keys_expiring ON keys (at) WHERE substr(scope, 1, 4) <> 'run:';
