"""What a remote agent says, in plain values: whatever binding and version it came by."""

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from parley.core.artifacts import Artifact, Parts
from parley.core.runs import State


class Words(Struct, frozen=True):
    """A message of the remote task; `code` when it says why it failed."""

    id: str
    role: Literal["user", "agent"]
    parts: Parts
    code: str | None = None
    metadata: Raw | UnsetType = UNSET


class Snapshot(Struct, frozen=True):
    """The whole task as it is."""

    task: str
    context: str
    state: State
    said: Words | None
    history: tuple[Words, ...]
    artifacts: tuple[Artifact, ...]
    metadata: Raw | UnsetType = UNSET


class Moved(Struct, frozen=True):
    """A new status, with the metadata that it adds to the task."""

    state: State
    said: Words | None
    metadata: Raw | UnsetType = UNSET


class Made(Struct, frozen=True):
    """An artifact, or a chunk of one."""

    artifact: str
    parts: Parts
    name: str | None
    description: str | None
    append: bool
    last: bool
    metadata: Raw | UnsetType = UNSET


class Answered(Struct, frozen=True):
    """A direct message, and no task."""

    context: str
    said: Words


Heard = Snapshot | Moved | Made | Answered


class Step(Struct, frozen=True):
    """What was heard, and the number of the event if the remote numbers them."""

    heard: Heard
    cursor: int | None = None
    task: str = ""
    """The task that an update is about."""
    context: str = ""


class Lost(Exception):
    """The connection is gone, or there never was one (`unsent`): then nothing can have happened over there.
    `silent`: it was there, and nothing came in time."""

    def __init__(self, why: str, *, unsent: bool = False, silent: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.unsent = unsent
        self.silent = silent


Refusal = Literal["not_found", "over", "unknown", "credentials", "other"]


class Refused(Exception):
    """The remote answered, and the answer is no."""

    def __init__(self, kind: Refusal, words: str) -> None:
        super().__init__(words)
        self.kind: Refusal = kind
        self.words = words
