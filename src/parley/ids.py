"""Identifiers: opaque to clients, and ordered by time so that ids made together are stored together."""

import os
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NewType

RunId = NewType("RunId", str)
ConversationId = NewType("ConversationId", str)

MAX_LENGTH = 128
PATTERN = r"[A-Za-z0-9][A-Za-z0-9._:@/+=~-]{0,127}"
_ID = re.compile(PATTERN)
_VERSION_AND_VARIANT = (0x7 << 76) | (0x2 << 62)


_latest = 0
"""Timestamp and counter of the newest id."""
_time_ns = time.time_ns
_random_bytes = os.urandom


def new_id() -> str:
    """Return a UUID of version 7 (RFC 9562). Ids that one process makes in the same millisecond are ascending: the
    twelve bits after the timestamp are a counter (method 1 of §6.2). A counter that overflows continues in the next
    millisecond."""
    global _latest
    ticks = _time_ns() // 1_000_000 << 12
    _latest = ticks = ticks if ticks > _latest else _latest + 1
    noise = int.from_bytes(_random_bytes(8), "big") & ~(0x3 << 62)
    value = (ticks >> 12 << 80) | ((ticks & 0xFFF) << 64) | noise | _VERSION_AND_VARIANT
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@contextmanager
def drawn_from(time_ns: Callable[[], int], random_bytes: Callable[[int], bytes]) -> Generator[None, None, None]:
    """Take the time and the random part of all new ids from these functions, for a simulation that must repeat itself.
    Nothing else in this process may create ids meanwhile."""
    global _latest, _time_ns, _random_bytes
    before = _latest, _time_ns, _random_bytes
    _latest, _time_ns, _random_bytes = 0, time_ns, random_bytes
    try:
        yield
    finally:
        _latest, _time_ns, _random_bytes = before


def new_run_id() -> RunId:
    return RunId(new_id())


def new_conversation_id() -> ConversationId:
    return ConversationId(new_id())


def is_id(text: str) -> bool:
    """Return whether an identifier that a client chose can be stored and shown."""
    return _ID.fullmatch(text) is not None
