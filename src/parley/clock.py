"""Time as the log stores it: milliseconds since 1970, UTC."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

Clock = Callable[[], int]
Monotonic = Callable[[], float]
"""Seconds by a clock that is never set; only differences count."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def iso(at_ms: int) -> str:
    """Format a time as ISO 8601 in UTC with milliseconds, as A2A requires."""
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


@lru_cache(maxsize=64)
def _second(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
