"""JSON as it comes from others: what it is, is asked before it is used."""

import json
from typing import Any, cast

Json = dict[str, Any]


def as_object(value: object) -> Json | None:
    return cast(Json, value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any] | None:
    return cast(list[Any], value) if isinstance(value, list) else None


def read_object(content: bytes) -> Json | None:
    """The object that stands there; None for whatever else stands there."""
    try:
        return as_object(json.loads(content))
    except (ValueError, RecursionError):
        return None


def encoded(body: Json) -> bytes:
    """As JSON in UTF-8; half a character, which JSON can spell and UTF-8 cannot, becomes a question mark."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
