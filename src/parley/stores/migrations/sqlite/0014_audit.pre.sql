-- The audit log: who did what, with which result. Its chain covers digests of the people in it, who are stored apart.
CREATE TABLE audit (
  seq INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  action TEXT NOT NULL,
  result TEXT NOT NULL,
  code TEXT NOT NULL,
  kind TEXT NOT NULL,
  target TEXT NOT NULL,
  count INTEGER NOT NULL,
  actor_digest BLOB NOT NULL,
  person_digest BLOB NOT NULL,
  hash BLOB NOT NULL
);
CREATE INDEX audit_action ON audit (action, seq);
CREATE INDEX audit_target ON audit (target, seq);
CREATE TABLE audit_people (
  seq INTEGER NOT NULL,
  part TEXT NOT NULL,
  name TEXT NOT NULL,
  address TEXT NOT NULL,
  salt BLOB NOT NULL,
  PRIMARY KEY (seq, part)
) WITHOUT ROWID;
CREATE INDEX audit_people_named ON audit_people (name, part, seq);
CREATE TABLE audit_floor (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, hash BLOB NOT NULL);
