"""Exit codes: done; refused or unreachable; wrong use; the task ended otherwise; the task waits for an answer."""

OK, ERROR, USAGE, NOT_COMPLETED, WAITS = 0, 1, 2, 3, 4
