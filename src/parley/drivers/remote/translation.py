"""Events of a remote agent in plain values, the same for each binding and version of A2A."""

import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.execution.rules import ArtifactChunk, Done, NeedAuth, NeedInput, Output, Reply, Status
from parley.runs.rules.content import Artifact, BlobRef, Part, Parts, merged, names_in, text_of
from parley.runs.rules.events import Failed, Rejected
from parley.runs.rules.state import TERMINAL, WAITING, State
from parley.runs.rules.usage import MAX_MODELS, MAX_NAME, MAX_TOKENS, ModelTotals, Totals


class RemoteMessage(Struct, frozen=True):
    """A message of the remote task. `code` is the error code if the message explains a failure."""

    id: str
    role: Literal["user", "agent"]
    parts: Parts
    code: str | None = None
    metadata: Raw | UnsetType = UNSET


class RemoteTask(Struct, frozen=True):
    """The whole task in its current state."""

    task: str
    context: str
    state: State
    said: RemoteMessage | None
    history: tuple[RemoteMessage, ...]
    artifacts: tuple[Artifact, ...]
    metadata: Raw | UnsetType = UNSET
    generation: int = 0
    """Its generation (A2A 1.1); 0 if the remote has none."""


class RemoteStatus(Struct, frozen=True):
    """A new status, with the metadata that it adds to the task."""

    state: State
    said: RemoteMessage | None
    metadata: Raw | UnsetType = UNSET


class RemoteArtifact(Struct, frozen=True):
    """An artifact, or a chunk of one."""

    artifact: str
    parts: Parts
    name: str | None
    description: str | None
    append: bool
    last: bool
    metadata: Raw | UnsetType = UNSET


class RemoteReply(Struct, frozen=True):
    """A direct message instead of a task."""

    context: str
    said: RemoteMessage


Heard = RemoteTask | RemoteStatus | RemoteArtifact | RemoteReply


class RemoteStep(Struct, frozen=True):
    """One received event, and its number if the remote numbers its events."""

    heard: Heard
    cursor: int | None = None
    task: str = ""
    """Id of the task that an update is about."""
    context: str = ""
    generation: int = 0
    """The generation of the task after the event (A2A 1.1); 0 if the remote has none."""


class ConnectionLost(Exception):
    """The connection broke. `unsent`: there was no connection, so the remote did nothing. `silent`: the connection was
    open, but no data arrived in time."""

    def __init__(self, why: str, *, unsent: bool = False, silent: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.unsent = unsent
        self.silent = silent


Refusal = Literal["not_found", "over", "unknown", "credentials", "other"]


class RemoteRefused(Exception):
    """The remote answered with a refusal."""

    def __init__(self, kind: Refusal, words: str) -> None:
        super().__init__(words)
        self.kind: Refusal = kind
        self.words = words


# From remote events to outputs of our turn. Pure; content that was shown once is not shown again.

_SAID = "said:"
"""Prefix of the mark of a status message from a remote that does not number its events."""


class ShownUpdates:
    """The parts of a remote task that are already in our log."""

    def __init__(self, artifacts: Iterable[Artifact], marks: Iterable[str] = (), task: str = "") -> None:
        self._artifacts = {artifact.id: [_print(part) for part in artifact.parts] for artifact in artifacts}
        # A Parley server builds the id of an agent's message from the task and the event number.
        self._said = {mark.removeprefix(_SAID) if mark.startswith(_SAID) else f"{task}.{mark}" for mark in marks}

    def said(self, words: RemoteMessage | None) -> list[Output]:
        """Return the agent's status message, unless it was shown already."""
        if words is None or not words.parts or words.id in self._said:
            return []
        self._said.add(words.id)
        return [Status(words.parts, f"{_SAID}{words.id}")]

    def made(self, made: RemoteArtifact) -> list[Output]:
        prints = [_print(part) for part in made.parts]
        if made.append and made.artifact in self._artifacts:
            self._artifacts[made.artifact].extend(prints)
        else:
            self._artifacts[made.artifact] = prints
        return [
            ArtifactChunk(
                made.parts,
                made.artifact,
                made.name,
                made.description,
                append=made.append,
                last=made.last,
                metadata=made.metadata,
            )
        ]

    def caught_up(self, now: RemoteTask, message: str) -> list[Output]:
        """Return everything in the task that was not shown yet: messages since our `message`, and artifacts."""
        outputs: list[Output] = []
        for words in _since(now.history, message):
            outputs += self.said(words)
        if now.state not in TERMINAL and now.state not in WAITING:
            outputs += self.said(now.said)
        for artifact in now.artifacts:
            outputs += self._rest(artifact, last=now.state in TERMINAL)
        return outputs

    def _rest(self, artifact: Artifact, *, last: bool) -> list[Output]:
        known = merged(self._artifacts.get(artifact.id, ()))
        append = artifact.id in self._artifacts
        rest = _missing(known, artifact.parts) if append else artifact.parts
        if rest is None:
            append, rest = False, artifact.parts
        if not rest:
            return []
        return self.made(
            RemoteArtifact(artifact.id, rest, artifact.name, artifact.description, append, last, artifact.metadata)
        )


def marked(outputs: list[Output], cursor: int | None) -> list[Output]:
    """Put the event number on the last output: an event counts as shown only when all its outputs are in the log."""
    if cursor is None or not outputs:
        return outputs
    last = outputs[-1]
    before = [replace(one, mark="") if isinstance(one, Status) else one for one in outputs[:-1]]
    return [*before, replace(last, mark=str(cursor)) if isinstance(last, Status | ArtifactChunk) else last]


def _since(history: Sequence[RemoteMessage], message: str) -> list[RemoteMessage]:
    """Return the agent's messages after ours; nothing if ours is no longer in the history."""
    places = [place for place, words in enumerate(history) if words.role == "user" and words.id == message]
    return [words for words in history[places[-1] + 1 :] if words.role == "agent"] if places else []


def _missing(known: Parts, whole: Parts) -> Parts | None:
    """Return the part of `whole` that follows `known`; None if `whole` does not begin with `known`."""
    prints = [_print(part) for part in merged(whole)]
    whole = merged(whole)
    if len(known) > len(prints):
        return None
    for place, part in enumerate(known):
        other = prints[place]
        if part == other or (part.blob is not None and part == _filed(other)):
            continue
        if place < len(known) - 1 or part.text is None or other.text is None:
            return None
        if not other.text.startswith(part.text) or replace(other, text=part.text) != part:
            return None
        return (replace(whole[place], text=other.text[len(part.text) :]), *whole[place + 1 :])
    return whole[len(known) :]


def _print(part: Part) -> Part:
    """Return a small copy of a part for comparison, with bytes replaced by their digest."""
    if part.raw is None:
        return part
    return replace(part, raw=None, blob=BlobRef(hashlib.sha256(part.raw).hexdigest(), len(part.raw)))


def _filed(part: Part) -> Part:
    """Return a text part as it is stored when it is large: as a blob."""
    content = (part.text or "").encode()
    return replace(part, text=None, blob=BlobRef(hashlib.sha256(content).hexdigest(), len(content), text=True))


# The end of a turn, from the final state of an A2A agent: a remote agent, or an executor in this process.

Ends = Done | NeedInput | NeedAuth | Reply | Failed | Rejected
ENDS = (Done, NeedInput, NeedAuth, Reply, Failed, Rejected)
MAX_WORDS = 2000
MAX_COST = 1e9
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Speaker(Struct, frozen=True):
    """The A2A agent in our texts: prefix of error codes, name in sentences, and the text for a cancel that no caller of
    this server requested."""

    prefix: str
    name: str
    canceled: str


REMOTE = Speaker("remote", "The remote agent", "The task was canceled at the remote agent.")
EXECUTOR = Speaker("agent", "The agent", "The agent canceled the task by itself.")


def ending(
    state: State, said: RemoteMessage | None, who: Speaker = REMOTE, metadata: Raw | UnsetType = UNSET
) -> Ends | None:
    """Return the end of the turn; None while the task continues. `metadata` is that of the task."""
    about, task = members(said.metadata) if said else None, members(metadata)
    parts = said.parts if said else ()
    words = text_of(parts)[:MAX_WORDS]
    code = said.code if said and said.code and _CODE.fullmatch(said.code) else None
    match state:
        case State.COMPLETED:
            return Done(parts, about, task)
        case State.INPUT_REQUIRED:
            return NeedInput(parts or f"{who.name} needs more input.", about, task)
        case State.AUTH_REQUIRED:
            return NeedAuth(parts or f"{who.name} needs authorization.", about, task)
        case State.FAILED:
            reason = words or f"{who.name} failed without giving a reason."
            return Failed(code or f"{who.prefix}_failed", reason, metadata)
        case State.REJECTED:
            return Rejected(code or f"{who.prefix}_rejected", words or f"{who.name} rejected the task.")
        case State.CANCELED:
            return Failed(f"{who.prefix}_canceled", words or who.canceled, metadata)
        case _:
            return None


class _Counted(Struct, frozen=True):
    """Usage in the metadata of a task. Servers use different names for the same numbers."""

    model: Any = None
    input_tokens: Any = None
    output_tokens: Any = None
    cached_tokens: Any = None
    inputTokens: Any = None  # noqa: N815
    outputTokens: Any = None  # noqa: N815
    cachedTokens: Any = None  # noqa: N815
    prompt_tokens: Any = None
    completion_tokens: Any = None
    cost: Any = None
    models: Any = None


class _Used(Struct, frozen=True):
    usage: Any = None
    model: Any = None


def usage_in(metadata: Raw | UnsetType) -> Totals:
    """Return the total usage of a remote task, if its metadata reports any; by model, as far as it names models."""
    try:
        told = msgspec.json.decode(b"{}" if metadata is UNSET else metadata, type=_Used)
        counted = msgspec.convert(told.usage or {}, _Counted)
        if counted.models:
            each = msgspec.convert(counted.models, dict[str, _Counted])
            return {_name(model): _totals(one) for model, one in list(each.items())[:MAX_MODELS]}
    except (msgspec.MsgspecError, RecursionError):
        return {}
    totals = _totals(counted)
    return {_name(counted.model or told.model): totals} if totals != ModelTotals() else {}


def _name(model: object) -> str:
    return model[:MAX_NAME] if isinstance(model, str) and model and model.isprintable() else "remote"


def _totals(one: _Counted) -> ModelTotals:
    read = _count(one.inputTokens, one.input_tokens, one.prompt_tokens)
    written = _count(one.outputTokens, one.output_tokens, one.completion_tokens)
    cached = min(read, _count(one.cachedTokens, one.cached_tokens))
    priced = isinstance(one.cost, int | float) and not isinstance(one.cost, bool) and 0 <= one.cost < MAX_COST
    return ModelTotals(read, written, cached, float(one.cost) if priced else None)


def _count(*found: object) -> int:
    """Return the first number; protocol buffers turn whole numbers into floats."""
    numbers = [one for one in found if isinstance(one, int | float) and not isinstance(one, bool)]
    return int(numbers[0]) if numbers and 0 <= numbers[0] <= MAX_TOKENS else 0


def members(metadata: Raw | UnsetType) -> dict[str, Raw] | None:
    return None if metadata is UNSET else names_in(metadata)


# JSON in a form of which equal values have equal bytes.


def tidy(value: object) -> bytes:
    """Encode JSON with sorted members on one line. Whole numbers are written as integers, because protobuf, through
    which some servers pass JSON, has only floating-point numbers. So a send repeated after a crash is identical."""
    if isinstance(value, Raw):
        value = msgspec.json.decode(value)
    return msgspec.json.encode(_whole(value), order="sorted")


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole(one) for name, one in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_whole(one) for one in cast(list[Any], value)]
    if isinstance(value, float) and math.isfinite(value) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
