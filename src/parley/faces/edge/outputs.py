"""What a local agent answers, as the local adapter contract has it, in the vocabulary of a turn."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.core.agents import Replies
from parley.core.artifacts import Part, Parts, text_part
from parley.core.events import Failed
from parley.core.turns import ArtifactChunk, Done, NeedAuth, NeedInput, Output, Reply, Status, Text
from parley.faces.edge.words import ProgressIn

T = TypeVar("T")

PIECE = 128 * 1024
"""A long text is told in pieces: an event has a limit, an answer need not. So many characters fit, however they are
written, and what is shorter is one chunk, as it would be from an agent here."""
MAX_REASON = 4000
MAX_CODE = 64

_QUESTIONS: dict[str, type[NeedInput] | type[NeedAuth]] = {
    "input_required": NeedInput, "input_needed": NeedInput, "auth_required": NeedAuth,
}  # fmt: skip
_READ = frozenset(("text", "parts", "state", "artifact_refs", "artifacts", "artifact_writes"))
"""Members that are read, or that only repeat what was written as artifacts before; the others are the agent's own."""


class _FileIn(Struct, frozen=True):
    raw: bytes | None = msgspec.field(default=None, name="bytes")
    uri: str | None = None
    name: str | None = None
    mime_type: str | None = msgspec.field(default=None, name="mimeType")


class _PartIn(Struct, frozen=True):
    """`type` or `kind` names the member, or nothing does; in A2A 1.0 the members themselves say it."""

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
    """What ends a turn well: an answer, or a question."""
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
    return [Failed(code if known else "agent_error", reason[:MAX_REASON] or "The agent failed, and did not say why.")]


def progressed(progress: ProgressIn) -> Status | None:
    """None when there is nothing to show: then it only says that the work goes on."""
    parts = [text_part(progress.text)] if progress.text else []
    parts += [part for raw in progress.parts or () if (part := _part(raw)) is not None]
    if progress.percent is not None:
        parts.append(Part(data=Raw(b'{"percent":%b}' % msgspec.json.encode(_number(progress.percent)))))
    return Status(tuple(parts)) if parts else None


def _number(value: float) -> float | int:
    return int(value) if value.is_integer() else value


def _said(output: Mapping[str, Raw]) -> Iterator[Part]:
    """The text, and the parts that say something else."""
    text = _decoded(output.get("text"), str)
    if text is not None:
        yield text_part(text)
    for raw in _decoded(output.get("parts"), list[Raw]) or ():
        part = _part(raw)
        if part is not None and part != text_part(text or ""):
            yield part


def _rest(output: Mapping[str, Raw]) -> Parts:
    """Members of the agent's own, as one value; also one of ours that is not what it should be."""
    own = {name: raw for name, raw in output.items() if name not in _READ or _is_odd(name, raw)}
    return (Part(data=Raw(msgspec.json.encode(own))),) if own else ()


def _is_odd(name: str, raw: Raw) -> bool:
    if name == "text" or name == "state":
        return bytes(raw) != b"null" and _decoded(raw, str) is None
    return name == "parts" and bytes(raw) != b"null" and _decoded(raw, list[Raw]) is None


def _part(raw: Raw) -> Part | None:
    """A part as A2A of any version writes it; None for a reference to an artifact that was written before; and what
    nobody knows is kept as it is."""
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
