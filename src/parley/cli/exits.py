"""Exit codes of every command."""

OK = 0
ERROR = 1
"""The server refused, or cannot be reached."""
USAGE = 2
NOT_COMPLETED = 3
"""The task ended in another state than completed."""
WAITS = 4
"""The task waits for an answer."""
INTERRUPTED = 130
