"""Read JSON from other programs: types are checked before use."""

import json
from typing import Any, cast

Json = dict[str, Any]


def as_object(value: object) -> Json | None:
    return cast(Json, value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any] | None:
    return cast(list[Any], value) if isinstance(value, list) else None


def read_object(content: bytes) -> Json | None:
    """Parse a JSON object; None for anything else."""
    try:
        return as_object(json.loads(content))
    except (ValueError, RecursionError):
        return None


def encoded(body: Json) -> bytes:
    """JSON in UTF-8. A lone surrogate, which UTF-8 cannot encode, becomes a question mark."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
