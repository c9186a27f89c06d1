"""What the engine needs from the outside, as protocols. An adapter is one module that implements one of them."""

from asyncio import Future
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from parley.core.agents import Agent
from parley.core.events import GENESIS, Event
from parley.core.runs import Run
from parley.core.turns import Output
from parley.ids import RunId

if TYPE_CHECKING:
    from parley.engine.turns import Turn


class Key(Struct, frozen=True):
    """An idempotency key, in the scope in which it is unique, and the digest of what was asked with it."""

    scope: str
    name: str
    digest: bytes


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


class Append(Struct):
    """One atomic step of one run: from version `expected` to `run.version`."""

    run: Run
    expected: int
    events: list[Event]
    keys: list[Key]
    keys_expired_before: int = 0
    """A stored key older than this (ms) counts as gone."""

    @property
    def hash(self) -> bytes:
        return self.events[-1].hash


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

    def append(self, append: Append) -> "Future[None]":
        """Commit all of it or nothing; VersionConflict or KeyTaken when a rival was first."""
        ...

    async def find_key(self, scope: str, name: str) -> StoredKey | None: ...

    async def unfinished(self) -> list[Run]:
        """All runs that have not ended, oldest first."""
        ...

    async def trim(self, run: RunId, floor: int) -> None:
        """Forget the events up to and including `floor`; the chain stays verifiable from there."""
        ...

    async def close(self) -> None: ...


class Blobs(Protocol):
    """Bytes found by their content."""

    async def put(self, content: bytes) -> str:
        """Keep it durably; its sha256 in hex."""
        ...

    async def get(self, sha256: str) -> bytes: ...


class Driver(Protocol):
    """How an agent does its work. `run` yields what happens during one turn."""

    @property
    def agent(self) -> Agent: ...

    def run(self, turn: "Turn") -> AsyncGenerator[Output, None]: ...
