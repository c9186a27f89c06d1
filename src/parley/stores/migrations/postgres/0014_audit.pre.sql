-- The audit log: who did what, with which result. Its chain covers digests of the people in it, who are stored apart.
CREATE TABLE audit (
  seq bigint PRIMARY KEY,
  at bigint NOT NULL,
  action text NOT NULL,
  result text NOT NULL,
  code text NOT NULL,
  kind text NOT NULL,
  target text NOT NULL,
  count bigint NOT NULL,
  actor_digest bytea NOT NULL,
  person_digest bytea NOT NULL,
  hash bytea NOT NULL
);
CREATE INDEX audit_action ON audit (action, seq);
CREATE INDEX audit_target ON audit (target, seq);
CREATE TABLE audit_people (
  seq bigint NOT NULL,
  part text NOT NULL,
  name text NOT NULL,
  address text NOT NULL,
  salt bytea NOT NULL,
  PRIMARY KEY (seq, part)
);
CREATE INDEX audit_people_named ON audit_people (name, part, seq);
CREATE TABLE audit_floor (one integer PRIMARY KEY CHECK (one = 1), seq bigint NOT NULL, hash bytea NOT NULL);
