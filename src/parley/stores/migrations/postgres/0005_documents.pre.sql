-- Conversations as their owners began them, the plan and the deliverable of each, and the versions of those.
CREATE TABLE conversations (
    principal  text NOT NULL,
    id         text NOT NULL,
    agent      text NOT NULL,
    started_at bigint NOT NULL,
    deleted_at bigint,
    PRIMARY KEY (principal, id)
);

-- `conversation` is null for a document that outlived its conversation. `last` is the highest number ever used.
CREATE TABLE documents (
    id           text PRIMARY KEY,
    principal    text NOT NULL,
    conversation text,
    kind         text NOT NULL,
    agent        text NOT NULL,
    title        text NOT NULL,
    type         text NOT NULL,
    current      text NOT NULL,
    revision     bigint NOT NULL,
    last         bigint NOT NULL,
    versions     bigint NOT NULL,
    created_at   bigint NOT NULL,
    updated_at   bigint NOT NULL,
    UNIQUE (principal, conversation, kind)
);

CREATE TABLE versions (
    id         text PRIMARY KEY,
    document   text NOT NULL,
    number     bigint NOT NULL,
    format     text NOT NULL,
    provenance text NOT NULL,
    metadata   bytea NOT NULL,
    at         bigint NOT NULL,
    content    text NOT NULL,
    UNIQUE (document, number)
);

-- What was asked and made no run of its own: reads, and what was refused.
CREATE TABLE operations (
    id           text PRIMARY KEY,
    principal    text NOT NULL,
    conversation text NOT NULL,
    agent        text NOT NULL,
    mode         text NOT NULL,
    action       text NOT NULL,
    code         text NOT NULL,
    message      text NOT NULL,
    started_at   bigint NOT NULL,
    completed_at bigint NOT NULL
);
CREATE INDEX operations_old ON operations (completed_at);
