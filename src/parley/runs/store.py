"""Interfaces of the store of logs."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from msgspec import Struct

from parley.budgets.rules import CounterPlace, Spend, Spent
from parley.clock import Monotonic
from parley.documents.rules import Change
from parley.documents.store import Library
from parley.errors import ParleyError
from parley.execution.turn_order import AgentQueue, Served
from parley.ids import RunId
from parley.runs.rules.events import GENESIS, Event
from parley.runs.rules.state import Run, State

LASTING = "run:"
"""Prefix of a scope, followed by a run's id: keys in it are kept as long as that run's log."""

READ_BYTES = 1 << 20
"""Total payload size at which a read of events stops, to limit the memory of a page of large events."""


class Key(Struct, frozen=True):
    """An idempotency key, the scope in which it is unique, and the digest of the request."""

    scope: str
    name: str
    digest: bytes

    # Why: docs/decisions/runs.md#keep-a-runs-own-keys-as-long-as-its-log
    @property
    def lasting(self) -> bool:
        """True if the key never expires."""
        return self.scope.startswith(LASTING)


class StoredKey(Struct, frozen=True):
    """The result of a key: the run, and its version right after the request."""

    run: RunId
    version: int
    digest: bytes
    at: int


class Head(Struct, frozen=True):
    """The head of a run's log: its state, the hash of its last event, and the floor, after which events are kept."""

    run: Run
    hash: bytes
    floor: int = 0
    floor_hash: bytes = GENESIS
    snapshot: bytes | None = None
    """The visible state of the run at its floor, if events before it were deleted."""


class Append(Struct):
    """One atomic step of one run: from version `expected` to `run.version`."""

    run: Run
    expected: int
    events: list[Event]
    keys: list[Key]
    keys_expired_before: int = 0
    """A stored key older than this (ms) counts as expired, unless it is lasting."""
    changes: tuple[Change, ...] = ()
    """Document changes in the same transaction. If one of them conflicts, the append is refused with Outdated."""
    spends: tuple[Spend, ...] = ()
    """Spending that the events mean, added to its counters in the same transaction."""
    served: Served | None = None
    """The turn that the run gets from the queue of its agent, in the same transaction."""

    @property
    def hash(self) -> bytes:
        return self.events[-1].hash


class Listing(Struct, frozen=True):
    """A filter for runs; a field that is None is not used."""

    principal: str | None = None
    agent: str | None = None
    conversation: str | None = None
    state: State | None = None
    since: int | None = None
    """Only runs whose status changed at this time (ms) or later."""
    after: tuple[int, str] | None = None
    """Continue after the run with this `status_at` and id."""
    limit: int = 50
    oldest: bool = False
    """Order by creation, the oldest first, instead of by latest status; `after` then holds a `created_at`."""
    newest: bool = False
    """Order by creation, the newest first; `after` then holds a `created_at`. Pages stay stable while runs change."""
    prefix: str = ""
    """Only runs whose id starts with this."""
    text: str = ""
    """Only runs whose first message or error has these words. Only `Store.search` uses it."""
    created_from: int | None = None
    """Only runs created at this time (ms) or later."""
    created_before: int | None = None
    counted: bool = True
    """True to count all matching runs; otherwise the count is 0."""


Done = Callable[[ParleyError | None], None]
"""Called with the result of an append: None when it is durable."""


class Readable(Protocol):
    """Read access to logs, also for audits."""

    async def head(self, run: RunId) -> Head | None: ...

    async def read(self, run: RunId, after: int, limit: int) -> list[Event]:
        """Return the first events with seq > after, in order: at most `limit`, fewer if they are large (READ_BYTES),
        and none only if there are none."""
        ...

    async def read_types(self, run: RunId, types: Collection[str], after: int, limit: int) -> list[Event]:
        """Return the same, for events of some types only."""
        ...

    async def read_last(self, run: RunId, types: Collection[str], limit: int) -> list[Event]:
        """Return the last events of some types, in order."""
        ...

    async def run_ids(self, after: str, limit: int) -> list[RunId]:
        """Return a page of all runs, ordered by id."""
        ...


class Store(Readable, Protocol):
    """The store of logs. `parley.testing.stores` has the tests that every implementation must pass."""

    # Why: docs/decisions/stores.md#answer-an-append-by-a-callback
    def append(self, append: Append, done: Done) -> None:
        """Commit all of it or nothing. The error is VersionConflict, KeyTaken or Outdated when a concurrent append was
        first. Never blocks.

        `done` is called later, in the event loop.
        """
        ...

    async def find_key(self, scope: str, name: str) -> StoredKey | None: ...

    async def runs_in(
        self, state: State, *, agent: str | None = None, owner: str | None = None, limit: int = 1000
    ) -> list[Run]:
        """Return runs in a state, in the order in which they arrived."""
        ...

    async def sleepers(self, now: int, limit: int) -> list[Run]:
        """Return suspended runs whose time has come (ms), the longest overdue first. `runs_in` leaves suspended runs
        out."""
        ...

    async def waiting(self, agent: str, most: int) -> int:
        """Return the number of submitted runs of an agent, counted up to `most`."""
        ...

    async def queue(self, agent: str, without: Collection[RunId]) -> AgentQueue:
        """Return the first submitted run of each principal, apart from some runs. Of many principals, those are
        returned whose last turn is the longest ago."""
        ...

    async def ahead(self, run: RunId, agent: str, most: int) -> int | None:
        """Return the number of submitted runs of the agent that arrived before this one, counted up to `most`; None if
        this run does not wait."""
        ...

    async def list_runs(self, listing: Listing) -> tuple[list[Run], int]:
        """Return a page of runs, and the number of runs on all pages. Erased runs are left out."""
        ...

    async def search(self, listing: Listing) -> list[Run]:
        """Return the newest runs with the words of `listing.text` in their first message or error, of its principal
        and agent, in the order of their creation. Other fields of the listing are not used, except `after` (a
        `created_at` and an id) and `limit`. Runs written by a version without this index are not found."""
        ...

    async def size(self) -> int:
        """Return the size of the database in bytes, including other data in it; 0 if nothing is stored on disk."""
        ...

    async def close(self) -> None: ...


class Trim(Struct, frozen=True):
    """Deletion of a run's events up to and including `floor`; `snapshot` is the visible state of the run there."""

    run: RunId
    floor: int
    snapshot: bytes | None = None


class Archive(Protocol):
    """The part of a store that deletes old data."""

    async def expired(self, before: int, limit: int) -> list[Run]:
        """Return runs that ended before a time (ms) and still have events."""
        ...

    async def trim(self, run: RunId, floor: int, snapshot: bytes | None = None) -> None:
        """Delete the events up to and including `floor`, and the run's lasting keys that led to them. The chain stays
        verifiable from there."""
        ...

    async def trim_all(self, trims: Sequence[Trim]) -> None:
        """Trim several runs in few transactions. A log that is too long for one transaction is deleted in pieces."""
        ...

    async def erase(self, run: RunId) -> None:
        """Erase a run that has ended. Its row and the end of its chain stay; its contents cannot be read again, and it
        has no owner any more."""
        ...

    async def forget_keys(self, before: int) -> int:
        """Delete idempotency keys older than a time (ms) in batches, except lasting ones. Return their number."""
        ...


class Nonces(Protocol):
    """Values that may be used only once, across all replicas."""

    async def claim(self, nonce: str, until: int) -> bool:
        """Store a nonce until at least a time (ms). Return False if it is known already. Of rivals exactly one gets
        True."""
        ...

    async def forget_nonces(self, before: int) -> int:
        """Delete the nonces whose time was before this one (ms). Return their number."""
        ...


class Checked(Protocol):
    """The part of a store that checks its writer."""

    async def check_writing(self, patience_s: float) -> None:
        """Commit a small write. Raise StoreUnavailable if that fails, or if nothing is committed within this time."""
        ...


class Tally(Protocol):
    """Counts unfinished runs."""

    async def unfinished(self, principal: str, most: int) -> int:
        """Return the number of a principal's runs that have not ended; it need not count beyond `most`."""
        ...

    async def unfinished_of(self, agent: str, most: int) -> int:
        """Return the same for the runs of an agent."""
        ...


class Ledger(Protocol):
    """Counters of what was spent."""

    async def spent(self, places: Collection[CounterPlace]) -> dict[CounterPlace, Spent]:
        """Return the counters at these places; those that are zero may be missing."""
        ...

    async def forget_spent(self, now: int) -> int:
        """Delete counters that were not raised for long: of trees for 40 days, of other subjects for 400. Return their
        number."""
        ...


class LogStore(Store, Archive, Nonces, Tally, Checked, Ledger, Protocol):
    """The complete interface that an adapter for logs implements."""

    @property
    def library(self) -> Library: ...


# Readiness: work can be accepted when the store can be read and its writer commits.

WORKS_FOR_S = 5.0
"""Seconds for which a committed write proves that the writer works: probes come about every second."""
FAILS_FOR_S = 1.0
PATIENCE_S = 2.0
"""Seconds that the writer may take. Shorter than the timeout of a container's health check."""


class Readiness:
    def __init__(self, store: LogStore, patience_s: float = PATIENCE_S, monotonic: Monotonic = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._patience_s = patience_s
        self._check: asyncio.Task[ParleyError | None] | None = None
        self._checked_until = 0.0

    async def error(self) -> ParleyError | None:
        """Return why the store cannot be used now; None if it can be used."""
        try:
            await self._store.run_ids("", 1)
        except ParleyError as error:
            return error
        if self._check is None or (self._check.done() and self._monotonic() >= self._checked_until):
            self._check = asyncio.get_running_loop().create_task(self._check_writing())
        return await asyncio.shield(self._check)

    async def _check_writing(self) -> ParleyError | None:
        """Do one write for all callers that ask meanwhile."""
        error: ParleyError | None = None
        try:
            await self._store.check_writing(self._patience_s)
        except ParleyError as failure:
            error = failure
        self._checked_until = self._monotonic() + (FAILS_FOR_S if error else WORKS_FOR_S)
        return error
