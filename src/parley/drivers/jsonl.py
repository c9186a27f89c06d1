"""How a program takes part in a turn: one JSON object in, one JSON object per line out."""

from base64 import b64decode
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.core.artifacts import Artifact, Part, Parts, text_of
from parley.core.events import Failed, Rejected
from parley.core.turns import ArtifactChunk, Content, Done, NeedAuth, NeedInput, Output, Reply, Status, Text
from parley.core.views import Said
from parley.engine.turns import Turn
from parley.errors import CommandOutput


class _Spoken(Struct, frozen=True):
    role: str
    text: str
    parts: Parts


class _Given(Struct, frozen=True):
    """What a program reads: the new input, and everything before it."""

    text: str
    parts: Parts
    history: list[_Spoken]
    artifacts: list[Artifact]
    turn: int
    attempt: int
    agent: str
    run: str
    conversation: str
    principal: str


async def given(turn: Turn) -> bytes:
    new = {message.id for message in turn.inputs}
    parts = tuple(part for message in turn.inputs for part in message.parts)
    history = [await _spoken(turn, said) for said in turn.history if said.id not in new]
    artifacts = [msgspec.structs.replace(one, parts=await turn.loaded(one.parts)) for one in turn.artifacts]
    everything = _Given(
        turn.text, await turn.loaded(parts), history, artifacts, turn.number, turn.attempt, turn.agent.slug,
        turn.run_id, turn.conversation, str(turn.principal),
    )  # fmt: skip
    return msgspec.json.encode(everything)


async def _spoken(turn: Turn, said: Said) -> _Spoken:
    return _Spoken(said.role, text_of(said.parts), await turn.loaded(said.parts))


class _Made(Struct, frozen=True, forbid_unknown_fields=True):
    """An artifact, or a piece of one. Exactly one of `text`, `data`, `base64`, `url`."""

    id: str = ""
    text: str | None = None
    data: Raw | UnsetType = UNSET
    base64: str | None = None
    url: str | None = None
    name: str | None = None
    description: str | None = None
    filename: str | None = None
    media_type: str | None = None
    append: bool = False
    last: bool = True


class _Why(Struct, frozen=True, forbid_unknown_fields=True):
    reason: str
    code: str = "command_failed"


Words = str | dict[str, Any]


class _Line(Struct, frozen=True, forbid_unknown_fields=True):
    text: str | UnsetType = UNSET
    status: Words | UnsetType = UNSET
    artifact: _Made | UnsetType = UNSET
    need_input: Words | UnsetType = UNSET
    need_auth: Words | UnsetType = UNSET
    done: Words | UnsetType | None = UNSET
    reply: Words | UnsetType = UNSET
    failed: _Why | UnsetType = UNSET
    rejected: _Why | UnsetType = UNSET
    metadata: dict[str, Any] | None = None
    """Of a `text` or a `reply`: which model made it, say."""


_decode = msgspec.json.Decoder(_Line).decode


def output(line: bytes, number: int) -> Output:
    """What one line says; CommandOutput when it is not in the vocabulary. The line itself is for the operator only."""
    try:
        return _said(_decode(line))
    except (msgspec.MsgspecError, ValueError) as error:
        raise CommandOutput(
            f"Line {number} of the program's output is not in the vocabulary of a turn.", said=str(error)
        ) from None


def _said(line: _Line) -> Output:
    words = [name for name in _Line.__struct_fields__ if name != "metadata" and getattr(line, name) is not UNSET]
    if len(words) != 1:
        raise ValueError(f"expected exactly one word, got {', '.join(words) or 'none'}")
    match words[0], getattr(line, words[0]):
        case "text", str(text):
            return Text(text, line.metadata)
        case "reply", content:
            return Reply(content, line.metadata)
        case "artifact", _Made() as made:
            return _artifact(made)
        case "failed", _Why() as why:
            return Failed(why.code, why.reason)
        case "rejected", _Why() as why:
            return Rejected(why.code, why.reason)
        case "status", content:
            return Status(content)
        case "need_input", content:
            return NeedInput(content)
        case "need_auth", content:
            return NeedAuth(content)
        case _, content:
            return Done(content or ())


def _artifact(made: _Made) -> ArtifactChunk:
    return ArtifactChunk(
        _content(made), made.id, made.name, made.description, made.filename, made.media_type, made.append, made.last
    )


def _content(made: _Made) -> Content:
    forms = [form for form in (made.text, made.data, made.base64, made.url) if form is not None and form is not UNSET]
    if len(forms) != 1:
        raise ValueError("an artifact has exactly one of text, data, base64, url")
    if made.base64 is not None:
        return b64decode(made.base64, validate=True)
    return Part(text=made.text, data=made.data, url=made.url)
