-- Suspended runs, by the time at which they are woken, which is in `owner`.
CREATE INDEX runs_sleeping ON runs (owner) WHERE state = 'sleeping';
