"""Files that a local agent made: what may be written, and how it is shown as an artifact."""

import hashlib
import re
import uuid
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from parley.core.runs import Run
from parley.core.turns import ArtifactChunk
from parley.errors import InvalidArtifact, PayloadTooLarge
from parley.faces.edge.words import ArtifactIn

MAX_CONTENT = 1024 * 1024
MAX_NAME = 500
MAX_WORDS = 4000
MAX_KEYWORDS = 50

_MEDIA = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}(\s*;\s*[\w.+-]+=[^;\r\n]{1,60})*", re.ASCII)


class File(Struct, frozen=True):
    """What was written, and how it can be had again."""

    artifact_id: str
    filename: str
    title: str
    mime_type: str
    artifact_type: str
    summary: str
    size_bytes: int
    url: str


def written(run: Run, wanted: ArtifactIn, base_url: str) -> File:
    """The same file of the same turn has the same id, so that a turn that is done again replaces what it wrote."""
    size = len(wanted.content_text.encode())
    if size > MAX_CONTENT:
        raise PayloadTooLarge(f"A file of {size} bytes is over the limit of {MAX_CONTENT}.", limit=MAX_CONTENT)
    name = f"{run.id}/{run.turns}/{wanted.index or 0}/{_checked_name(wanted.filename)}"
    id_ = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    return File(
        id_, wanted.filename, _words("title", wanted.title) or wanted.filename, _media(wanted.mime_type),
        _words("artifact_type", wanted.artifact_type) or "file", _words("summary", wanted.summary), size,
        f"{base_url}/agents/{run.agent}/tasks/{quote(run.id, safe='')}/artifacts/{id_}",
    )  # fmt: skip


def chunk(file: File, wanted: ArtifactIn) -> ArtifactChunk:
    about: dict[str, Any] = {"artifactType": file.artifact_type, "filename": file.filename, "url": file.url}
    if wanted.keywords:
        about["keywords"] = [_words("keywords", word) for word in wanted.keywords[:MAX_KEYWORDS]]
    return ArtifactChunk(
        wanted.content_text, id=file.artifact_id, name=file.title, description=file.summary or None,
        filename=file.filename, media_type=file.mime_type, metadata=Raw(msgspec.json.encode(about)),
    )  # fmt: skip


def digest_of(file: File, wanted: ArtifactIn) -> bytes:
    said = [file.artifact_id, file.title, file.mime_type, file.artifact_type, file.summary, wanted.keywords]
    return hashlib.sha256(msgspec.json.encode([*said, wanted.content_text])).digest()


def _checked_name(name: str) -> str:
    steps = name.split("/")
    wrong = (
        not 0 < len(name) <= MAX_NAME or not name.isprintable() or "\\" in name or ":" in steps[0]
        or any(step in ("", ".", "..") for step in steps)
    )  # fmt: skip
    if wrong:
        raise InvalidArtifact("A filename is a relative path without . and .., such as reports/result.md.")
    return name


def _media(media: str | None) -> str:
    if not media:
        return "text/plain"
    if _MEDIA.fullmatch(media) is None:
        raise InvalidArtifact("mime_type is a media type, such as text/markdown.")
    return media


def _words(field: str, text: str | None) -> str:
    if text and len(text) > MAX_WORDS:
        raise InvalidArtifact(f"{field} has at most {MAX_WORDS} characters.")
    return text or ""
