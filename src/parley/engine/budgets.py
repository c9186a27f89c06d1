"""What was spent under each authorization, and what calls under way may still spend.

A reservation carries the name of its call, so that whatever is done twice counts once: a call that is taken up again
finds its own, and one that was settled is not settled again. That of a read ends by itself when its process has died;
that of a write does not, for it may have been done.
"""

import asyncio
from collections.abc import Callable
from typing import Literal
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.core.policy import Evaluation, Figures
from parley.engine.ports import Place, Record, Records
from parley.errors import Conflict

KIND = "budget"
MAX_TRIES = 200
FORGOTTEN_MS = 3_600_000

Settlement = Literal["spent", "released", "kept"]
"""It happened; it did not; nobody knows, so it stays reserved."""


class _Reservation(Struct, frozen=True, array_like=True):
    sats: int
    until: int | None
    """When it ends if nobody settles it; None for never."""


class _Account(Struct, frozen=True, omit_defaults=True):
    spent: int = 0
    reserved: dict[str, _Reservation] = {}

    def figures(self, now: int, besides: str = "") -> Figures:
        live = {call: one for call, one in self.reserved.items() if one.until is None or now < one.until}
        return Figures(self.spent, sum(one.sats for call, one in live.items() if call != besides))

    def reserving(self, call: str, reservation: _Reservation, now: int) -> "_Account":
        """What ended a while ago is forgotten; until then its call can still say that it was done."""
        kept = {name: one for name, one in self.reserved.items() if one.until is None or now < one.until + FORGOTTEN_MS}
        return replace(self, reserved={**kept, call: reservation})

    def settling(self, call: str, how: Settlement) -> "_Account":
        left = {name: one for name, one in self.reserved.items() if name != call}
        return _Account(self.spent + (self.reserved[call].sats if how == "spent" else 0), left)


class Budgets:
    """Correct on any number of replicas: every change is compared and swapped."""

    def __init__(self, records: Records, clock: Clock = now_ms) -> None:
        self._records = records
        self._clock = clock
        self._locks: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    async def figures(self, place: Place) -> Figures:
        """`place` is the principal and the authorization."""
        return (await self._account(place))[1].figures(self._clock())

    async def reserve(
        self, place: Place, call: str, decide: Callable[[Figures], Evaluation], for_ms: int | None = None
    ) -> Evaluation:
        """Decide on the figures as they are and, if it is allowed, take its cost out of them in the same step."""
        async with self._lock(place):
            for _ in range(MAX_TRIES):
                now = self._clock()
                record, account = await self._account(place)
                evaluation = decide(account.figures(now, call))
                if not evaluation.allowed:
                    return evaluation
                reservation = _Reservation(evaluation.cost, None if for_ms is None else now + for_ms)
                if await self._save(place, record, account.reserving(call, reservation, now)):
                    return evaluation
        raise _busy()

    async def settle(self, place: Place, call: str, how: Settlement) -> None:
        if how == "kept":
            return
        async with self._lock(place):
            for _ in range(MAX_TRIES):
                record, account = await self._account(place)
                if call not in account.reserved or await self._save(place, record, account.settling(call, how)):
                    return
        raise _busy()

    def _lock(self, place: Place) -> asyncio.Lock:
        """Rivals in this process take turns, so that only other replicas can make a swap fail."""
        lock = self._locks.get(place)
        if lock is None:
            lock = self._locks[place] = asyncio.Lock()
        return lock

    async def _account(self, place: Place) -> tuple[Record | None, _Account]:
        record = await self._records.get(KIND, *place)
        return record, _decode(record.body) if record is not None else _Account()

    async def _save(self, place: Place, old: Record | None, account: _Account) -> bool:
        record = Record(KIND, *place, _encode(account), self._clock())
        return await (self._records.add(record) if old is None else self._records.swap(old, record))


def _busy() -> Conflict:
    return Conflict("The budget is being changed by others; try again.")


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Account).decode
