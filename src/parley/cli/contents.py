"""What is said from a terminal, as parts: text, files with their name and media type, JSON."""

import json
import mimetypes
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parley.errors import ConfigurationError

MAX_BYTES = 7 * 1024 * 1024
"""All files of a message together: as base64 they fit into the 10 MiB that a server takes unless told otherwise."""
STDIN = "-"

Json = dict[str, Any]


def parts(text: str | None, files: Sequence[str] = (), data: str | None = None) -> list[Json]:
    """In the order: text, files, data. `-` is standard input, once."""
    if [text, *files].count(STDIN) > 1:
        raise ConfigurationError("Standard input can be read only once.")
    if text is None and not files and data is None:
        raise ConfigurationError("There is nothing to say: give a text, --file or --data.")
    said: list[Json] = []
    if text is not None:
        said.append({"text": _content(STDIN, MAX_BYTES).decode(errors="replace") if text == STDIN else text})
    left = MAX_BYTES
    for file in files:
        content = _content(file, left)
        left -= len(content)
        said.append(file_part(file, content))
    if data is not None:
        said.append({"data": _data(data)})
    return said


def file_part(file: str, content: bytes) -> Json:
    part: Json = {"raw": b64encode(content).decode(), "mediaType": media_type(file, content)}
    return part if file == STDIN else {**part, "filename": Path(file).name}


def media_type(file: str, content: bytes) -> str:
    """By the name; else text if it reads as such."""
    known = mimetypes.guess_type(file)[0]
    if known:
        return known
    try:
        content.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"


def _content(file: str, limit: int) -> bytes:
    try:
        if file == STDIN:
            content = sys.stdin.buffer.read(limit + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(limit + 1)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read ({error.strerror}).") from None
    if len(content) > limit:
        raise ConfigurationError(f"{file} is too large: what a message carries may have {MAX_BYTES >> 20} MiB in all.")
    return content


def _data(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"--data is not JSON: {error}.") from None
