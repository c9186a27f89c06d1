"""Records of clients, receivers and faults during the test. Times are of the machine's monotonic clock, which all
processes share and no fault changes."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

Json = dict[str, Any]


class Input(Struct):
    """A message with a text that no other has, and the task it was acknowledged for, if it was."""

    key: str
    agent: str
    text: str
    into: str = ""
    """The task it was addressed to, if it began none."""
    task: str = ""
    attempts: int = 0


class Frame(Struct):
    seq: int
    result: Json


class Stream(Struct):
    """All that one reader saw of a task, over as many connections as it took."""

    task: str = ""
    start: int = 0
    """Where it began: the number that came with the task as it was, or the cursor that it was asked for."""
    begun: bool = False
    """True if there is an event number to resume after."""
    state: str = ""
    """State of the task in the first frame, if the stream started with the task."""
    frames: list[Frame] = field(default_factory=list)
    connections: int = 0
    ended: bool = False
    """True if the reader saw the end of the task."""
    given_up: bool = False
    """True if the reader was still waiting at the end of the test."""

    @property
    def cursor(self) -> int:
        return self.frames[-1].seq if self.frames else self.start


class Hook(Struct):
    path: str
    task: str = ""


class Post(Struct):
    """A notification as it arrived, and whether it was taken."""

    path: str
    seq: int
    body: Json
    taken: bool


class Edit(Struct):
    """A new version of a plan; `version` is its id, once it was acknowledged."""

    conversation: str
    text: str
    version: str = ""


class Cancel(Struct):
    task: str
    state: str


class Refusal(Struct):
    """An answer that was no success."""

    what: str
    status: int
    code: str


class Mark(Struct):
    """A turn of the limited agent started or ended."""

    pid: int
    run: str
    what: str
    at: float


class Pause(Struct):
    """A process that did nothing: stopped for a while, or dead from then on."""

    pid: int
    since: float
    until: float = float("inf")


class Version(Struct):
    """A version of a plan as it is kept in the end."""

    conversation: str
    id: str
    number: int
    content: str
    current: bool


class History(Struct):
    inputs: list[Input] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    hooks: list[Hook] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def save(self, file: Path) -> None:
        """Save the history, to investigate violations."""
        file.write_bytes(msgspec.json.encode(self))
