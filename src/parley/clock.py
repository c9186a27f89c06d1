"""Time as the log knows it: milliseconds since 1970, UTC."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from parley.errors import Invalid

Clock = Callable[[], int]
Timestamp = Annotated[datetime, Meta(tz=True)]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def iso(at_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds, as A2A asks for."""
    return f"{_second(at_ms // 1000)}.{at_ms % 1000:03d}Z"


def check_timestamp(text: str | None, field: str) -> None:
    """Raise Invalid unless the text is an RFC 3339 time with an offset, or absent."""
    try:
        msgspec.convert(text, Timestamp | None)
    except msgspec.ValidationError:
        raise Invalid(f"{field} must be an RFC 3339 time such as 2026-02-19T18:00:00Z", field=field) from None


@lru_cache(maxsize=64)
def _second(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
