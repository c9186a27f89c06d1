"""Until when each turn that is done elsewhere is left to its holder.

The log says who holds what, and under which epoch; these records only say for how long. So a record may be missing,
stale or left over, and nothing is done twice for it.
"""

from collections.abc import Callable

from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.core.leases import Lease
from parley.engine.ports import Moment, Record, Records
from parley.errors import Conflict
from parley.ids import RunId

KIND = "runtime.lease"
FRESH = 5 / 6
"""A lease with more than this part left is not renewed: word of progress may come many times a second."""
MAX_TRIES = 20
ALWAYS = 2**62
SLACK_MS = 3000
"""By how much the clocks of replicas may differ at any time."""
MAX_OVERLONG = 1000

_ENDING = b"ending"
_HELD_BY = b"by "
"""Begins the body of a record whose holder named its process; others are empty, also those of earlier versions."""


class Leases:
    def __init__(self, records: Records, lease_s: float, clock: Clock = now_ms) -> None:
        self._records = records
        self._lease_ms = int(lease_s * 1000)
        self._clock = clock

    @property
    def lease_ms(self) -> int:
        return self._lease_ms

    def until(self, at_most_ms: int | None = None) -> int:
        """The end of a lease that begins now."""
        return self._clock() + (self._lease_ms if at_most_ms is None else min(self._lease_ms, at_most_ms))

    async def hold(self, lease: Lease, until: int) -> None:
        """Before the turn begins: a turn without a record would never be missed. Of rivals with one owner, such as two
        processes of a runtime, the one that loses leaves the record as the other has it."""
        record = self._record(lease, until)
        if not await self._records.add(record) and await self._set(_of_any(lease), lambda _: until) is None:
            await self._records.put(record)

    async def name_holder(self, lease: Lease) -> None:
        """After the turn began: only now is it known which of the owner's processes has it."""
        for _ in range(MAX_TRIES if lease.instance else 0):
            record = await self._records.get(KIND, lease.owner, _id(lease))
            if record is None or record.body == _ENDING:
                return
            if await self._records.swap(record, replace(record, body=_HELD_BY + lease.instance.encode())):
                return

    async def renew(self, lease: Lease, until: int) -> int | None:
        """Until when it holds; None when it is being ended. A lease holds until somebody ends it, whatever the time."""
        soon = self._clock() + self._lease_ms * FRESH
        return await self._set(lease, lambda due: due if soon < due <= until else until)

    async def shorten(self, lease: Lease, until: int) -> None:
        await self._set(lease, lambda due: min(due, until))

    async def end(self, record: Record) -> bool:
        """False when it was renewed in this moment. After this it cannot be."""
        return record.body == _ENDING or await self._records.swap(record, replace(record, body=_ENDING))

    async def is_foreign(self, lease: Lease) -> bool:
        """Whether another process of the same owner claimed it."""
        record = await self._records.get(KIND, lease.owner, _id(lease)) if lease.instance else None
        return record is not None and _is_foreign(record, lease)

    async def claimed_by(self, lease: Lease) -> str:
        """The process that claimed it; empty where that did not say which it is."""
        record = await self._records.get(KIND, lease.owner, _id(lease))
        return _instance(record) if record is not None else ""

    async def drop(self, lease: Lease) -> None:
        await self._records.delete(KIND, lease.owner, _id(lease))

    async def due(self, after: Moment) -> list[Record]:
        return await self._records.due(KIND, self._clock(), after=after)

    async def overlong(self) -> list[Record]:
        """Those that last longer than any lease that begins now: whoever gave them had a wrong clock, or we have."""
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
        raise Conflict("The lease is being changed from too many sides.")

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
    """Whether two processes of one owner are meant; not known where either did not say."""
    return bool(lease.instance) and _instance(record) not in ("", lease.instance)


def _id(lease: Lease) -> str:
    return f"{lease.run}/{lease.epoch}"
