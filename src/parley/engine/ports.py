"""What the engine needs from the outside, as protocols. An adapter is one module that implements one of them."""

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from msgspec import Struct

from parley.core.agents import Agent
from parley.core.artifacts import Parts
from parley.core.canonical import Fields
from parley.core.documents import Change, Conversation, Document, Kind, Operation, Version
from parley.core.events import GENESIS, Event
from parley.core.functions import Function, Returned, Wanted
from parley.core.policy import ReasonCode
from parley.core.runs import Run, State
from parley.core.tools import Manifest, Pack
from parley.core.turns import Output
from parley.errors import ParleyError
from parley.ids import RunId

if TYPE_CHECKING:
    from parley.engine.turns import Turn


LASTING = "run:"
"""Keys of a scope that begins so, and goes on with a run's id, are kept as long as that run's log."""


class Key(Struct, frozen=True):
    """An idempotency key, in the scope in which it is unique, and the digest of what was asked with it."""

    scope: str
    name: str
    digest: bytes

    @property
    def lasting(self) -> bool:
        """Whether it never expires."""
        return self.scope.startswith(LASTING)


class StoredKey(Struct, frozen=True):
    """What a key led to: the run, and its version right after."""

    run: RunId
    version: int
    digest: bytes
    at: int


class Head(Struct, frozen=True):
    """Where a run's log stands: its state, the hash of its last event, and the first event still kept."""

    run: Run
    hash: bytes
    floor: int = 0
    floor_hash: bytes = GENESIS
    snapshot: bytes | None = None
    """What could be seen of the run at its floor, when events before it were forgotten."""


class Append(Struct):
    """One atomic step of one run: from version `expected` to `run.version`."""

    run: Run
    expected: int
    events: list[Event]
    keys: list[Key]
    keys_expired_before: int = 0
    """A stored key older than this (ms) counts as gone, unless it is lasting."""
    changes: tuple[Change, ...] = ()
    """What is written of documents in the same transaction. One that does not fit refuses the append: Outdated."""

    @property
    def hash(self) -> bytes:
        return self.events[-1].hash


class Listing(Struct, frozen=True):
    """Which runs to list; None does not ask."""

    principal: str | None = None
    agent: str | None = None
    conversation: str | None = None
    state: State | None = None
    since: int | None = None
    """Only runs whose status is of this time (ms) or later."""
    after: tuple[int, str] | None = None
    """Go on after the run with this `status_at` and id."""
    limit: int = 50
    oldest: bool = False
    """In the order in which they were begun, not latest status first; `after` then names a `created_at`."""
    counted: bool = True
    """Whether it is asked how many there are; 0 is answered where it is not."""


Done = Callable[[ParleyError | None], None]
"""Told what became of an append: None when it is durable."""


class Readable(Protocol):
    """Logs that can be read, by whoever audits them."""

    async def head(self, run: RunId) -> Head | None: ...

    async def read(self, run: RunId, after: int, limit: int) -> list[Event]:
        """The events with seq > after, in order."""
        ...

    async def run_ids(self, after: str, limit: int) -> list[RunId]:
        """All runs in the order of their ids, by pages."""
        ...


class Store(Readable, Protocol):
    """Where logs live. `parley.testing.stores` holds the suite that every implementation passes."""

    def append(self, append: Append, done: Done) -> None:
        """Commit all of it or nothing, and say so: VersionConflict, KeyTaken or Outdated when a rival was first. Never
        waits.

        `done` is called in the event loop, later.
        """
        ...

    async def find_key(self, scope: str, name: str) -> StoredKey | None: ...

    async def runs_in(
        self, state: State, *, agent: str | None = None, owner: str | None = None, limit: int = 1000
    ) -> list[Run]:
        """Runs in a state, in the order in which they arrived."""
        ...

    async def list_runs(self, listing: Listing) -> tuple[list[Run], int]:
        """A page of runs, and how many there are on all pages. Those that were erased are not among them."""
        ...

    async def close(self) -> None: ...


class Archive(Protocol):
    """The part of a store that lets the past be forgotten."""

    async def expired(self, before: int, limit: int) -> list[Run]:
        """Runs that ended before a time (ms) and still have events."""
        ...

    async def trim(self, run: RunId, floor: int, snapshot: bytes | None = None) -> None:
        """Forget the events up to and including `floor`, and the run's lasting keys that led to them; the chain stays
        verifiable from there."""
        ...

    async def erase(self, run: RunId) -> None:
        """Forget all of a run that has ended but its place in the world: nothing of what was in it can be read again,
        and it belongs to nobody. Its chain ends where it ended."""
        ...

    async def forget_keys(self, before: int) -> int:
        """Forget idempotency keys older than a time (ms), but no lasting ones; how many."""
        ...


class Nonces(Protocol):
    """What may be used once, on whichever replica."""

    async def claim(self, nonce: str, until: int) -> bool:
        """Remember it until a time (ms) at least; False if it is known already. Of rivals exactly one is told True."""
        ...

    async def forget_nonces(self, before: int) -> int:
        """Forget those whose time was before this one (ms); how many."""
        ...


class Found(Struct, frozen=True):
    """What a conversation has of one kind: perhaps nothing; a document; and a version of it with its content."""

    document: Document | None = None
    version: Version | None = None
    content: str = ""


class Legible(Protocol):
    """Documents that can be read."""

    async def find(self, principal: str, conversation: str, kind: Kind, version: str | None = None) -> Found | None:
        """The current version or another of the same document; None when there is no such conversation."""
        ...

    async def version(self, id_: str) -> Found | None:
        """A version of whichever document."""
        ...

    async def versions(self, document: str, limit: int, offset: int = 0) -> list[Version]:
        """Newest first, with their previews."""
        ...

    async def documents(self, principal: str, limit: int) -> list[Document]:
        """Those of the conversations that a principal has, the one that changed last first."""
        ...


class Library(Legible, Protocol):
    """The documents beside a log, which are written by its appends; and what was asked without a run."""

    async def conversation(self, principal: str, id_: str) -> Conversation | None:
        """None when nobody has begun it, or it was deleted."""
        ...

    async def begin(self, conversation: Conversation) -> Conversation:
        """Keep it unless it is there already; as it is then."""
        ...

    async def note(self, operations: Sequence[Operation]) -> None: ...

    async def operation(self, id_: str) -> Operation | None: ...

    async def forget_operations(self, before: int) -> int:
        """Forget those of before a time (ms), at most a batch; how many."""
        ...


class LogStore(Store, Archive, Nonces, Protocol):
    """What an adapter for logs implements: all of it."""

    @property
    def library(self) -> Library: ...


class Cluster(Protocol):
    """Who works on a store. One process alone is a cluster of one."""

    @property
    def replica(self) -> str:
        """This replica's id, new at every `join`."""
        ...

    async def join(self) -> None: ...

    async def renew(self) -> list[str] | None:
        """Prove to be alive; everyone who is, oldest first. None: this replica was given up, and must join anew."""
        ...

    async def bury(self) -> list[str]:
        """Give up those that did not renew in time; all whose work has not been taken up yet."""
        ...

    async def forget(self, replica: str) -> None:
        """All work of a buried replica has been taken up; its slots are free."""
        ...

    async def take_slot(self, agent: str, limit: int) -> bool: ...

    async def give_slot(self, agent: str, replica: str) -> None:
        """Give back a slot that was taken as `replica`, which may have joined anew since."""
        ...

    async def leave(self) -> None: ...


Heard = Callable[[list[tuple[RunId, int]], list[str]], None]
"""Called with the runs that have grown elsewhere (and to which version), and the agents that have work to do."""


class Signals(Protocol):
    """Wakes the other replicas. A signal may be lost; the store has the truth."""

    def tell(self, run: RunId, version: int) -> None:
        """A run has grown. Never waits."""
        ...

    def wake(self, agent: str) -> None:
        """Somebody may begin waiting work of this agent. Never waits."""
        ...

    async def listen(self, heard: Heard, of_interest: Callable[[], list[RunId]]) -> None:
        """Call `heard` for what others tell; and look after the runs `of_interest` from time to time all the same."""
        ...

    async def close(self) -> None: ...


class Blobs(Protocol):
    """Bytes found by their content."""

    async def put(self, content: bytes) -> str:
        """Keep it durably; its sha256 in hex."""
        ...

    async def put_file(self, path: Path) -> str:
        """The same for a file of any size, which is never held in memory."""
        ...

    async def get(self, sha256: str) -> bytes: ...

    def stream(self, sha256: str) -> AsyncGenerator[bytes, None]:
        """Piece by piece. The last piece is given only when all of them together are what was put: a damaged blob
        breaks off."""
        ...


class PassingBlobs(Blobs, Protocol):
    """Bytes that are kept for a while only, apart from those that logs refer to."""

    async def delete(self, sha256: str) -> None:
        """Forget it; it need not be there."""
        ...

    async def forget(self, before: int) -> int:
        """Forget what was put before a time (ms); how many."""
        ...


class Record(Struct, frozen=True):
    """Something small that an operator or a caller keeps here; what `body` means is its kind's own affair."""

    kind: str
    scope: str
    id: str
    body: bytes
    at: int
    due: int | None = None
    """When somebody has to look after it (ms); None for never."""


Place = tuple[str, str]
"""Scope and id: where a page of records goes on."""
Moment = tuple[int, str, str]
"""Time, scope and id: where a page of what is due goes on."""


class Records(Protocol):
    """Small data that is not a log: keys, push configurations. `parley.testing.records` holds its suite."""

    async def put(self, record: Record) -> None:
        """Keep it, in place of what had its kind, scope and id."""
        ...

    async def add(self, record: Record) -> bool:
        """Keep it unless its kind, scope and id are taken; whether it was kept."""
        ...

    async def swap(self, old: Record, new: Record) -> bool:
        """Keep `new` in place of `old` if that is still there as it was; whether it was. They share a place."""
        ...

    async def get(self, kind: str, scope: str, id_: str) -> Record | None: ...

    async def list(
        self, kind: str, scope: str | None = None, after: Place = ("", ""), limit: int = 100
    ) -> "list[Record]":
        """Those of one scope, or of all, in the order of scope and id, by pages."""
        ...

    async def delete(self, kind: str, scope: str, id_: str) -> bool:
        """Whether there was one."""
        ...

    async def due(self, kind: str, now: int, limit: int = 100, after: Moment = (-1, "", "")) -> "list[Record]":
        """Those whose time has come, the longest waiting first, by pages."""
        ...

    async def close(self) -> None: ...


class Speech(Struct, frozen=True):
    """One message of what a model reads."""

    role: Literal["user", "agent"]
    parts: Parts
    calls: tuple[Wanted, ...] = ()
    """What the agent wanted called then."""
    results: tuple[Returned, ...] = ()
    """What came of the calls of the speech before."""


class Sampling(Struct, frozen=True):
    """How a model is asked. None leaves it to the vendor."""

    instructions: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    model: str | None = None
    """Another model of the same vendor, for this once."""
    functions: tuple[Function, ...] = ()


class Delta(Struct, frozen=True):
    """The next words."""

    text: str


class Usage(Struct, frozen=True):
    """What the answer took so far, as the vendor counts; told again when it changes."""

    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None


class Finish(Struct, frozen=True):
    """The model has ended its answer. An answer without it was broken off."""

    reason: str


Answered = Delta | Wanted | Usage | Finish
"""What a model's answer is made of."""


class Llm(Protocol):
    """A language model. Raises ModelError: words for the one who asked, details for the operator."""

    @property
    def reads(self) -> tuple[str, ...]:
        """The media types it can be given."""
        ...

    def stream(self, messages: Sequence[Speech], sampling: Sampling) -> AsyncGenerator[Answered, None]:
        """Answer. To close the generator is to end the vendor's request."""
        ...


class ToolResult(Struct, frozen=True):
    """What a provider said to one call, or why it said nothing. `data` and `message` are still as they came."""

    state: Literal["succeeded", "failed"]
    data: Fields = {}
    code: ReasonCode | None = None
    """Why it failed, where a code says more than that."""
    message: str = ""
    effect: Literal["done", "none", "unknown"] = "done"
    """Whether what was asked for has happened."""
    well: bool = True
    """Whether the provider works; that it refused something is no sign of the contrary."""


class ToolPack(Protocol):
    """Tools of one kind, and whoever provides them."""

    @property
    def rules(self) -> Pack: ...

    def host(self, manifest: Manifest) -> str:
        """Who would be called: their failures are counted together."""
        ...

    async def call(self, operation: str, request: Fields, manifest: Manifest) -> ToolResult:
        """Carry out a request in which nothing is wrong. To cancel it is to break it off."""
        ...


class Driver(Protocol):
    """How an agent does its work. `run` yields what happens during one turn."""

    @property
    def agent(self) -> Agent: ...

    def run(self, turn: "Turn") -> AsyncGenerator[Output, None]: ...


@runtime_checkable
class Forsaken(Protocol):
    """A driver whose work goes on elsewhere, so that it must be told when nobody wants it any more."""

    async def forsake(self, run: Run) -> None:
        """The run, of which something was noted, was canceled or has failed. Best effort, within a few seconds."""
        ...


@runtime_checkable
class Leaving(Protocol):
    """A driver whose work leaves something on this machine that nobody needs once the run has ended."""

    async def left(self) -> list[RunId]:
        """The runs of which something is there."""
        ...

    async def clear(self, run: Run) -> None:
        """The run, of which something was noted, has ended, and what it made is in the log."""
        ...


@runtime_checkable
class Distant(Protocol):
    """A driver whose turns are done elsewhere, by somebody who comes for them (`engine.elsewhere`): nothing of it runs
    in a replica, and `run` is never called."""

    @property
    def distant(self) -> Literal[True]: ...
