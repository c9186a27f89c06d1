"""What a definition names and does not say: values from the environment and from files, and out of every text."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from parley.core.canonical import Json
from parley.core.sanitising import REDACTED
from parley.tools.mcp.faults import NotStarted

_REFERENCE = re.compile(r"\$\{(file:)?([^}]+)\}")
LEAST = 4
"""Shorter values are no secrets, and taking them out would spoil every text."""


def resolved(values: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The values as they are now, and those parts of them that nobody may see."""
    found: list[str] = []

    def looked_up(match: re.Match[str]) -> str:
        value = _from_file(match[2]) if match[1] else _from_environment(match[2])
        found.append(value)
        return value

    return {name: _REFERENCE.sub(looked_up, value) for name, value in values.items()}, found


def without(secrets: Iterable[str], text: str) -> str:
    for secret in secrets:
        if len(secret) >= LEAST:
            text = text.replace(secret, REDACTED)
    return text


def without_in(secrets: Iterable[str], value: Json) -> Json:
    """The same wherever it stands in a value."""
    kept = [secret for secret in secrets if len(secret) >= LEAST]
    return _cleaned(kept, value) if kept else value


def _cleaned(secrets: list[str], value: Json) -> Json:
    match value:
        case str():
            return without(secrets, value)
        case list():
            return [_cleaned(secrets, one) for one in value]
        case dict():
            return {without(secrets, name): _cleaned(secrets, one) for name, one in value.items()}
        case _:
            return value


def _from_environment(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise NotStarted(f"The environment variable {name} is not set.")
    return value


def _from_file(path: str) -> str:
    try:
        value = Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise NotStarted(f"The secret file {Path(path).name} cannot be read ({type(error).__name__}).") from None
    if not value:
        raise NotStarted(f"The secret file {Path(path).name} is empty.")
    return value
