"""Leases of turns that paired runtimes hold: the time until which each turn stays with its holder.

The log stores which owner holds a turn, and under which epoch; these records only store for how long. So a record may
be missing, stale or left over without any work being done twice."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.errors import Conflict
from parley.ids import RunId
from parley.records import Moment, Record, Records
from parley.runs.rules.state import Run, State

# A turn at a paired runtime: its holder, and its standing.

Standing = Literal["held", "canceled", "lost", "over"]
"""`held`: the owner works on it. `canceled`: it must stop, held or not. `lost`: it was taken away. `over`: its holder
has ended the turn."""


class Lease(Struct, frozen=True):
    """One claim of a run's turn. Reports under an epoch other than the claim's are refused."""

    owner: str
    run: RunId
    epoch: int
    instance: str = ""
    """The process of the owner that makes the call, if it is named; only the process that claimed the turn may
    report."""


def standing(run: Run | None, owner: str, epoch: int | None = None) -> Standing:
    """Return the standing of a claim as the log shows it; without an epoch, of any claim of this owner.

    A turn that its holder has just ended is `over`, not `lost`, for a call that arrives at that moment.
    """
    if run is None or epoch not in (None, run.epoch):
        return "lost"
    match run.state:
        case State.WORKING if run.owner == owner:
            return "canceled" if run.cancel_requested else "held"
        case State.CANCELED:
            return "canceled"
        case State.SUBMITTED if not run.resuming:
            return "over"
        case State.COMPLETED | State.INPUT_REQUIRED | State.AUTH_REQUIRED:
            return "over"
        case _:
            return "lost"


def last_claim(run: Run, owner: str, instance: str = "") -> Lease | None:
    """Return the claim that a report without a lease is about: the claim that `owner` holds, or the one that has ended.

    None if the run cannot have been claimed yet, or if another owner holds it.
    """
    waiting = run.epoch == 0 or (run.state is State.SUBMITTED and run.resuming)
    if waiting or (run.state is State.WORKING and run.owner != owner):
        return None
    return Lease(owner, run.id, run.epoch, instance)


def time_left(run: Run, timeout_s: float | None) -> int | None:
    """Return the milliseconds that the run's next turn may take; None if its agent has no timeout."""
    return None if timeout_s is None else max(0, int(timeout_s * 1000) - run.spent_ms)


KIND = "runtime.lease"
FRESH = 5 / 6
"""Share of a lease: a lease with more than this left is not renewed, because progress may come many times a second."""
MAX_TRIES = 20
ALWAYS = 2**62
SLACK_MS = 3000
"""Maximum difference between the clocks of replicas."""
MAX_OVERLONG = 1000

_ENDING = b"ending"
_HELD_BY = b"by "
"""Prefix of the body of a record whose holder named its process. Other bodies are empty, also those of earlier
versions."""


# Why: docs/decisions/paired.md#store-the-expiry-of-a-lease-as-a-record
class Leases:
    def __init__(self, records: Records, lease_s: float, clock: Clock = now_ms) -> None:
        self._records = records
        self._lease_ms = int(lease_s * 1000)
        self._clock = clock

    @property
    def lease_ms(self) -> int:
        return self._lease_ms

    def until(self, at_most_ms: int | None = None) -> int:
        """Return the end of a lease that begins now."""
        return self._clock() + (self._lease_ms if at_most_ms is None else min(self._lease_ms, at_most_ms))

    async def hold(self, lease: Lease, until: int) -> None:
        """Store the lease before the turn begins: a turn without a record would never expire. Of two claims of one
        owner, such as two processes of a runtime, the one that loses leaves the record to the other."""
        record = self._record(lease, until)
        if not await self._records.add(record) and await self._set(_of_any(lease), lambda _: until) is None:
            await self._records.put(record)

    async def name_holder(self, lease: Lease) -> None:
        """Store the process that holds the lease after the turn began: only then is it known which process won."""
        for _ in range(MAX_TRIES if lease.instance else 0):
            record = await self._records.get(KIND, lease.owner, _id(lease))
            if record is None or record.body == _ENDING:
                return
            if await self._records.swap(record, replace(record, body=_HELD_BY + lease.instance.encode())):
                return

    async def renew(self, lease: Lease, until: int) -> int | None:
        """Return the time until which the lease is held; None when it is being ended. A lease is held until the leader
        ends it, even after that time."""
        soon = self._clock() + self._lease_ms * FRESH
        return await self._set(lease, lambda due: due if soon < due <= until else until)

    async def shorten(self, lease: Lease, until: int) -> None:
        await self._set(lease, lambda due: min(due, until))

    # Why: docs/decisions/paired.md#end-a-lease-by-an-act-not-by-its-time
    async def end(self, record: Record) -> bool:
        """Mark a lease as ending, so that it cannot be renewed. Return False when it was renewed at this moment."""
        return record.body == _ENDING or await self._records.swap(record, replace(record, body=_ENDING))

    async def is_foreign(self, lease: Lease) -> bool:
        """Return whether another process of the same owner claimed the turn."""
        record = await self._records.get(KIND, lease.owner, _id(lease)) if lease.instance else None
        return record is not None and _is_foreign(record, lease)

    async def claimed_by(self, lease: Lease) -> str:
        """Return the process that claimed the turn; empty if it was not named."""
        record = await self._records.get(KIND, lease.owner, _id(lease))
        return _instance(record) if record is not None else ""

    async def drop(self, lease: Lease) -> None:
        await self._records.delete(KIND, lease.owner, _id(lease))

    async def due(self, after: Moment) -> list[Record]:
        return await self._records.due(KIND, self._clock(), after=after)

    async def overlong(self) -> list[Record]:
        """Return the leases that end later than a lease that begins now: another replica's clock was wrong, or ours
        is."""
        longest = self._clock() + self._lease_ms + SLACK_MS
        return await self._records.due(KIND, ALWAYS, limit=MAX_OVERLONG, after=(longest, "", ""))

    async def _set(self, lease: Lease, change: Callable[[int], int]) -> int | None:
        for _ in range(MAX_TRIES):
            record = await self._records.get(KIND, lease.owner, _id(lease))
            if record is None:
                record = self._record(lease, change(self._clock() + self._lease_ms))
                if await self._records.add(record):
                    return record.due
                continue
            if record.body == _ENDING or record.due is None or _is_foreign(record, lease):
                return None
            due = change(record.due)
            if due == record.due or await self._records.swap(record, replace(record, due=due)):
                return due
        raise Conflict("Too many requests are changing the lease at once; try again.")

    def _record(self, lease: Lease, until: int) -> Record:
        return Record(KIND, lease.owner, _id(lease), b"", self._clock(), until)


def lease_of(record: Record) -> Lease:
    run, _, epoch = record.id.rpartition("/")
    return Lease(record.scope, RunId(run), int(epoch))


def _instance(record: Record) -> str:
    return record.body.removeprefix(_HELD_BY).decode() if record.body.startswith(_HELD_BY) else ""


def _of_any(lease: Lease) -> Lease:
    return replace(lease, instance="")


def _is_foreign(record: Record, lease: Lease) -> bool:
    """Return whether another process of the owner claimed the turn; False if either process is not named."""
    return bool(lease.instance) and _instance(record) not in ("", lease.instance)


def _id(lease: Lease) -> str:
    return f"{lease.run}/{lease.epoch}"
