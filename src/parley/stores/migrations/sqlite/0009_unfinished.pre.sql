-- How many runs of a principal have not ended.
CREATE INDEX runs_unfinished ON runs (principal) WHERE ended = 0;
