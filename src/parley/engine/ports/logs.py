"""Where logs live."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from msgspec import Struct

from parley.core.documents import Change
from parley.core.events import GENESIS, Event
from parley.core.runs import Run, State
from parley.engine.ports.library import Library
from parley.errors import ParleyError
from parley.ids import RunId

LASTING = "run:"
"""Keys of a scope that begins so, and goes on with a run's id, are kept as long as that run's log."""

READ_BYTES = 1 << 20
"""Size of the payloads at which a read of events stops, so that a page of large events takes no more memory."""


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
    newest: bool = False
    """In the opposite order, the one begun last first: a page stays what it was, whatever happens to its runs."""
    prefix: str = ""
    """What their ids begin with."""
    counted: bool = True
    """Whether it is asked how many there are; 0 is answered where it is not."""


Done = Callable[[ParleyError | None], None]
"""Told what became of an append: None when it is durable."""


class Readable(Protocol):
    """Logs that can be read, by whoever audits them."""

    async def head(self, run: RunId) -> Head | None: ...

    async def read(self, run: RunId, after: int, limit: int) -> list[Event]:
        """The first events with seq > after, in order: at most `limit`, fewer where they are large (READ_BYTES), none
        only where there are none."""
        ...

    async def read_types(self, run: RunId, types: Collection[str], after: int, limit: int) -> list[Event]:
        """The same of the events of some types only."""
        ...

    async def read_last(self, run: RunId, types: Collection[str], limit: int) -> list[Event]:
        """The last events of some types, in order."""
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

    async def waiting(self, agent: str, most: int) -> int:
        """How many submitted runs of an agent there are, counted up to `most`."""
        ...

    async def ahead(self, run: RunId, agent: str, most: int) -> int | None:
        """How many submitted runs of its agent arrived before this one, counted up to `most`; None if this run does
        not wait."""
        ...

    async def list_runs(self, listing: Listing) -> tuple[list[Run], int]:
        """A page of runs, and how many there are on all pages. Those that were erased are not among them."""
        ...

    async def size(self) -> int:
        """How many bytes it takes up, with all that is in the same database; 0 where nothing is kept."""
        ...

    async def close(self) -> None: ...


class Trim(Struct, frozen=True):
    """Forget a run's events up to and including `floor`; `snapshot` is what could be seen of the run there."""

    run: RunId
    floor: int
    snapshot: bytes | None = None


class Archive(Protocol):
    """The part of a store that lets the past be forgotten."""

    async def expired(self, before: int, limit: int) -> list[Run]:
        """Runs that ended before a time (ms) and still have events."""
        ...

    async def trim(self, run: RunId, floor: int, snapshot: bytes | None = None) -> None:
        """Forget the events up to and including `floor`, and the run's lasting keys that led to them; the chain stays
        verifiable from there."""
        ...

    async def trim_all(self, trims: Sequence[Trim]) -> None:
        """The same for several runs, in few transactions. A log too long for one transaction goes piece by piece."""
        ...

    async def erase(self, run: RunId) -> None:
        """Forget all of a run that has ended but its place in the world: nothing of what was in it can be read again,
        and it belongs to nobody. Its chain ends where it ended."""
        ...

    async def forget_keys(self, before: int) -> int:
        """Forget idempotency keys older than a time (ms), but no lasting ones, batch by batch; how many."""
        ...


class Nonces(Protocol):
    """What may be used once, on whichever replica."""

    async def claim(self, nonce: str, until: int) -> bool:
        """Remember it until a time (ms) at least; False if it is known already. Of rivals exactly one is told True."""
        ...

    async def forget_nonces(self, before: int) -> int:
        """Forget those whose time was before this one (ms); how many."""
        ...


class Checked(Protocol):
    """The part of a store that says whether its writer works."""

    async def check_writing(self, patience_s: float) -> None:
        """Commit something small. StoreUnavailable when that fails, or nothing at all is committed for this long."""
        ...


class Tally(Protocol):
    """Counts what is under way."""

    async def unfinished(self, principal: str, most: int) -> int:
        """How many of a principal's runs have not ended; it need not count beyond `most`."""
        ...


class LogStore(Store, Archive, Nonces, Tally, Checked, Protocol):
    """What an adapter for logs implements: all of it."""

    @property
    def library(self) -> Library: ...
