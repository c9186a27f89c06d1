"""One process per data directory: SQLite's promise that nobody else writes."""

import fcntl
import os
from pathlib import Path

from parley.errors import ConfigurationError

LOCK = "parley.lock"


def lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise ConfigurationError(
            f"Another process uses the data directory {path.parent}; SQLite serves one process at a time."
        ) from None
    return descriptor
