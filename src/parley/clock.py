"""Time as the log knows it: milliseconds since 1970, UTC."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], int]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def iso(at_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds, as A2A asks for."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"
