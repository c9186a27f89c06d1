"""Identifiers: opaque to clients, ordered by time so that neighbours in time are neighbours on disk."""

import os
import re
import time
from typing import NewType

RunId = NewType("RunId", str)
ConversationId = NewType("ConversationId", str)

MAX_LENGTH = 128
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+=~-]{0,127}")
_VERSION_AND_VARIANT = (0x7 << 76) | (0x2 << 62)


def new_id() -> str:
    """A UUID of version 7 (RFC 9562)."""
    stamp = time.time_ns() // 1_000_000
    noise = int.from_bytes(os.urandom(10), "big")
    value = (stamp << 80) | (noise & ~((0xF << 76) | (0x3 << 62))) | _VERSION_AND_VARIANT
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_run_id() -> RunId:
    return RunId(new_id())


def new_conversation_id() -> ConversationId:
    return ConversationId(new_id())


def is_id(text: str) -> bool:
    """Whether a client's own identifier is one we can store and show again."""
    return _ID.fullmatch(text) is not None
