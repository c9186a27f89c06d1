"""Translation of a local agent's output, in the format of the local adapter contract, to the outputs of a turn."""

import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.errors import InvalidArtifact, PayloadTooLarge
from parley.execution.rules import ArtifactChunk, Done, NeedAuth, NeedInput, Output, Reply, Status, Text
from parley.faces.pairing.messages import ArtifactIn, ProgressIn
from parley.runs.rules.agents import Replies
from parley.runs.rules.content import Part, Parts, text_part
from parley.runs.rules.events import Failed
from parley.runs.rules.state import Run

T = TypeVar("T")

PIECE = 128 * 1024
"""Largest piece of a text, in characters. A long text is split because events have a size limit and answers have none.
This many characters fit in any encoding. A shorter text is one chunk, as it is from an agent in this process."""
MAX_REASON = 4000
MAX_CODE = 64

_QUESTIONS: dict[str, type[NeedInput] | type[NeedAuth]] = {
    "input_required": NeedInput, "input_needed": NeedInput, "auth_required": NeedAuth,
}  # fmt: skip
_READ = frozenset(("text", "parts", "state", "artifact_refs", "artifacts", "artifact_writes"))
"""Members that Parley reads, or that only repeat artifacts written before. All other members belong to the agent."""


class _FileIn(Struct, frozen=True):
    raw: bytes | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None
    name: str | None = None
    mime_type: str | None = msgspec.field(default=None, name="mimeType")


class _PartIn(Struct, frozen=True):
    """A part in the format of any A2A version. `type` or `kind` names the member with the content; A2A 1.0 has neither,
    and the member itself shows the kind."""

    type: str | None = None
    kind: str | None = None
    text: str | None = None
    data: Raw | UnsetType = UNSET
    url: str | None = None
    raw: bytes | None = None
    file: _FileIn | None = None
    filename: str | None = None
    media_type: str | None = msgspec.field(default=None, name="mediaType")


_part_in = msgspec.json.Decoder(_PartIn).decode


def completed(output: Mapping[str, Raw], replies: Replies) -> list[Output]:
    """Return the outputs of a turn that ends with an answer or a question."""
    parts = (*_said(output), *_rest(output))
    question = _QUESTIONS.get(_text(output, "state").replace("-", "_").lower())
    if question is not None:
        return [question(parts)]
    if replies == "message":
        return [Reply(parts)]
    words = [part.text or "" for part in parts if _is_plain(part)]
    pieces = [Text(piece) for piece in _pieces("\n".join(words))] if words else []
    return [*pieces, *(ArtifactChunk(part) for part in parts if not _is_plain(part)), Done()]


def failed(output: Mapping[str, Raw]) -> list[Output]:
    code, reason = _text(output, "code"), _text(output, "error")
    known = 0 < len(code) <= MAX_CODE and code.isascii() and code.isprintable() and " " not in code
    return [
        Failed(code if known else "agent_error", reason[:MAX_REASON] or "The agent failed without giving a reason.")
    ]


def progressed(progress: ProgressIn) -> Status | None:
    """Return the status for a progress report; None if it has no content and only renews the lease."""
    parts = [text_part(progress.text)] if progress.text else []
    parts += [part for raw in progress.parts or () if (part := _part(raw)) is not None]
    if progress.percent is not None:
        parts.append(Part(data=Raw(b'{"percent":%b}' % msgspec.json.encode(_number(progress.percent)))))
    return Status(tuple(parts)) if parts else None


def _number(value: float) -> float | int:
    return int(value) if value.is_integer() else value


def _said(output: Mapping[str, Raw]) -> Iterator[Part]:
    """Yield the text, and the parts that do not merely repeat it."""
    text = _decoded(output.get("text"), str)
    if text is not None:
        yield text_part(text)
    for raw in _decoded(output.get("parts"), list[Raw]) or ():
        part = _part(raw)
        if part is not None and part != text_part(text or ""):
            yield part


def _rest(output: Mapping[str, Raw]) -> Parts:
    """Return the agent's own members as one value, including known members of the wrong type."""
    own = {name: raw for name, raw in output.items() if name not in _READ or _is_odd(name, raw)}
    return (Part(data=Raw(msgspec.json.encode(own))),) if own else ()


def _is_odd(name: str, raw: Raw) -> bool:
    if name == "text" or name == "state":
        return bytes(raw) != b"null" and _decoded(raw, str) is None
    return name == "parts" and bytes(raw) != b"null" and _decoded(raw, list[Raw]) is None


def _part(raw: Raw) -> Part | None:
    """Read a part in the format of any A2A version. Return None for a reference to an artifact written before. A part
    of unknown format is kept as data."""
    try:
        given = _part_in(raw)
    except msgspec.MsgspecError:
        return Part(data=Raw(bytes(raw)))
    if (given.type or given.kind) == "artifact_ref":
        return None
    if given.text is not None:
        return Part(text=given.text, filename=given.filename, media_type=given.media_type)
    if given.data is not UNSET:
        return Part(data=Raw(bytes(given.data)))
    file = given.file or _FileIn(given.raw, given.url)
    name, media = file.name or given.filename, file.mime_type or given.media_type
    if file.raw is not None or file.uri is not None:
        url = None if file.raw is not None else file.uri
        return Part(raw=file.raw, url=url, filename=name, media_type=media)
    return Part(data=Raw(bytes(raw)))


def _is_plain(part: Part) -> bool:
    return part.text is not None and part.filename is None and part.media_type in (None, "text/plain")


def _pieces(text: str) -> list[str]:
    return [text[place : place + PIECE] for place in range(0, len(text), PIECE)] or [""]


def _text(output: Mapping[str, Raw], name: str) -> str:
    return _decoded(output.get(name), str) or ""


def _decoded(raw: Raw | None, kind: type[T]) -> T | None:
    try:
        return None if raw is None else msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        return None


# Files that a local agent made: validation, and their form as artifacts.

MAX_CONTENT = 1024 * 1024
MAX_NAME = 500
MAX_WORDS = 4000
MAX_KEYWORDS = 50

_MEDIA = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}(\s*;\s*[\w.+-]+=[^;\r\n]{1,60})*", re.ASCII)


class File(Struct, frozen=True):
    """A file that was written, and the URL to download it."""

    artifact_id: str
    filename: str
    title: str
    mime_type: str
    artifact_type: str
    summary: str
    size_bytes: int
    url: str


def written(run: Run, wanted: ArtifactIn, base_url: str) -> File:
    """Validate a file. The same file of the same turn gets the same id, so that a repeated turn replaces its files."""
    size = len(wanted.content_text.encode())
    if size > MAX_CONTENT:
        raise PayloadTooLarge(f"A file of {size} bytes exceeds the limit of {MAX_CONTENT} bytes.", limit=MAX_CONTENT)
    name = f"{run.id}/{run.turns}/{wanted.index or 0}/{_checked_name(wanted.filename)}"
    id_ = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    return File(
        id_,
        wanted.filename,
        _words("title", wanted.title) or wanted.filename,
        _media(wanted.mime_type),
        _words("artifact_type", wanted.artifact_type) or "file",
        _words("summary", wanted.summary),
        size,
        f"{base_url}/agents/{run.agent}/tasks/{quote(run.id, safe='')}/artifacts/{id_}",
    )


def chunk(file: File, wanted: ArtifactIn) -> ArtifactChunk:
    about: dict[str, Any] = {"artifactType": file.artifact_type, "filename": file.filename, "url": file.url}
    if wanted.keywords:
        about["keywords"] = [_words("keywords", word) for word in wanted.keywords[:MAX_KEYWORDS]]
    return ArtifactChunk(
        wanted.content_text,
        id=file.artifact_id,
        name=file.title,
        description=file.summary or None,
        filename=file.filename,
        media_type=file.mime_type,
        metadata=Raw(msgspec.json.encode(about)),
    )


def digest_of(file: File, wanted: ArtifactIn) -> bytes:
    said = [file.artifact_id, file.title, file.mime_type, file.artifact_type, file.summary, wanted.keywords]
    return hashlib.sha256(msgspec.json.encode([*said, wanted.content_text])).digest()


def _checked_name(name: str) -> str:
    steps = name.split("/")
    wrong = (
        not 0 < len(name) <= MAX_NAME
        or not name.isprintable()
        or "\\" in name
        or ":" in steps[0]
        or any(step in ("", ".", "..") for step in steps)
    )
    if wrong:
        raise InvalidArtifact("filename must be a relative path without . and .., such as reports/result.md.")
    return name


def _media(media: str | None) -> str:
    if not media:
        return "text/plain"
    if _MEDIA.fullmatch(media) is None:
        raise InvalidArtifact("mime_type must be a media type, such as text/markdown.")
    return media


def _words(field: str, text: str | None) -> str:
    if text and len(text) > MAX_WORDS:
        raise InvalidArtifact(f"{field} must have at most {MAX_WORDS} characters.")
    return text or ""
