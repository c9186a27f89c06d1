-- What was spent, by subject and period. Raised in the transaction that stores the usage.
CREATE TABLE spending (
    subject text NOT NULL,
    period  text NOT NULL,
    tokens  bigint NOT NULL,
    cost    bigint NOT NULL,
    runs    bigint NOT NULL,
    at      bigint NOT NULL,
    PRIMARY KEY (subject, period)
);

-- The last turn that each principal got from the queue of an agent with a limit.
CREATE TABLE turns_served (
    agent     text NOT NULL,
    principal text NOT NULL,
    number    bigint NOT NULL,
    PRIMARY KEY (agent, principal)
);
CREATE INDEX turns_served_last ON turns_served (agent, number);
CREATE INDEX runs_waiting_principal ON runs (agent, principal, arrival) WHERE state = 'submitted';
