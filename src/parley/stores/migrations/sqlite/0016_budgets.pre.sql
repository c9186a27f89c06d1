-- What was spent, by subject and period. Raised in the transaction that stores the usage.
CREATE TABLE spending (
    subject TEXT NOT NULL,
    period  TEXT NOT NULL,
    tokens  INTEGER NOT NULL,
    cost    INTEGER NOT NULL,
    runs    INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (subject, period)
);

-- The last turn that each principal got from the queue of an agent with a limit.
CREATE TABLE turns_served (
    agent     TEXT NOT NULL,
    principal TEXT NOT NULL,
    number    INTEGER NOT NULL,
    PRIMARY KEY (agent, principal)
);
CREATE INDEX turns_served_last ON turns_served (agent, number);
CREATE INDEX runs_waiting_principal ON runs (agent, principal, arrival) WHERE state = 'submitted';
