"""Stored tool calls: each is carried out once, and its result is returned to every repeated request.

An execution is a record. While it is running, `due` is the time until which its process counts as alive; a process that
finds it past that time takes it over by swapping the record. After its end, `due` is the time when it may be deleted.
"""

import asyncio
from collections.abc import Callable
from typing import Literal
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.errors import Conflict
from parley.ids import new_id
from parley.json_values import readable
from parley.records import Place, Record, Records
from parley.runs.rules.events import ToolStatus
from parley.tools.rules.policy import Evaluation, Figures

# Amounts spent under each authorization, and amounts that running calls may still spend.
#
# A reservation carries the name of its call, so that anything done twice counts once: a call that is resumed finds its
# own reservation, and a settled call is not settled again. The reservation of a read expires when its process has died;
# that of a write does not, since the write may have been done.

BUDGET_KIND = "budget"
MAX_TRIES = 200
FORGOTTEN_MS = 3_600_000

Settlement = Literal["spent", "released", "kept"]
"""The call happened; it did not happen; it is unknown, so the amount stays reserved."""


class _Reservation(Struct, frozen=True, array_like=True):
    sats: int
    until: int | None
    """When it expires unless it is settled; None for never."""


class _Account(Struct, frozen=True, omit_defaults=True):
    spent: int = 0
    reserved: dict[str, _Reservation] = {}

    def figures(self, now: int, besides: str = "") -> Figures:
        live = {call: one for call, one in self.reserved.items() if one.until is None or now < one.until}
        return Figures(self.spent, sum(one.sats for call, one in live.items() if call != besides))

    def reserving(self, call: str, reservation: _Reservation, now: int) -> "_Account":
        """Add a reservation. Reservations that expired long ago are dropped; until then their calls can still report
        that they were done."""
        kept = {name: one for name, one in self.reserved.items() if one.until is None or now < one.until + FORGOTTEN_MS}
        return replace(self, reserved={**kept, call: reservation})

    def settling(self, call: str, how: Settlement) -> "_Account":
        left = {name: one for name, one in self.reserved.items() if name != call}
        return _Account(self.spent + (self.reserved[call].sats if how == "spent" else 0), left)


class Budgets:
    """Accounts of authorizations. Correct on any number of replicas: every change is a compare-and-swap."""

    def __init__(self, records: Records, clock: Clock = now_ms) -> None:
        self._records = records
        self._clock = clock
        self._locks: WeakValueDictionary[Place, asyncio.Lock] = WeakValueDictionary()

    async def figures(self, place: Place) -> Figures:
        """Return the figures of an account; `place` is the principal and the authorization."""
        return (await self._account(place))[1].figures(self._clock())

    async def reserve(
        self, place: Place, call: str, decide: Callable[[Figures], Evaluation], for_ms: int | None = None
    ) -> Evaluation:
        """Decide on the current figures and, if the call is allowed, reserve its cost in the same step."""
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
        """Return the lock of an account. Calls in this process take turns, so that only other replicas can make a swap
        fail."""
        lock = self._locks.get(place)
        if lock is None:
            lock = self._locks[place] = asyncio.Lock()
        return lock

    async def _account(self, place: Place) -> tuple[Record | None, _Account]:
        record = await self._records.get(BUDGET_KIND, *place)
        return record, _decode_budget(record.body) if record is not None else _Account()

    async def _save(self, place: Place, old: Record | None, account: _Account) -> bool:
        record = Record(BUDGET_KIND, *place, _encode_budget(account), self._clock())
        return await (self._records.add(record) if old is None else self._records.swap(old, record))


def _busy() -> Conflict:
    return Conflict("Other calls are changing the budget at the same time; try again.")


_encode_budget = msgspec.json.Encoder().encode
_decode_budget = msgspec.json.Decoder(_Account).decode


KIND = "execution"


class ToolExecution(Struct, frozen=True, omit_defaults=True):
    """One tool call: its request and its result. The same for every pack."""

    call: str
    pack: str
    tool: str
    integration: str
    request: str
    """Hash of the request; a repeated call must have the same."""
    ask: str
    """Hash of everything that the decision depends on: also the manifest and the policy."""
    authorization: str
    started_at: int
    attempt: str
    run: str = ""
    figures: Figures = Figures()
    """Figures on which the decision was made."""
    logged: bool = False
    """True if the run's log has the call."""
    ended_at: int | None = None
    status: ToolStatus | Literal["running"] = "running"
    code: str = ""
    reason: str = ""
    settlement: Settlement = "kept"
    data: Raw | UnsetType = UNSET
    """Data that was returned to the caller."""
    lease_ms: int = 0
    """Milliseconds for which its process counts as alive, if that differs from the default."""
    agent: str = ""
    conversation: str = ""
    input: Raw | UnsetType = UNSET
    """Input of the tool, without secrets; only stored where it can be read again."""

    @property
    def ended(self) -> bool:
        return self.status != "running"


class ExecutionEntry(Struct, frozen=True):
    """An execution with its stored record."""

    record: Record
    execution: ToolExecution


class ToolExecutions:
    def __init__(self, records: Records, lease_ms: int, keep_ms: int | None = None, clock: Clock = now_ms) -> None:
        self._records = records
        self._lease_ms = lease_ms
        self._keep_ms = keep_ms
        self._clock = clock

    async def get(self, place: Place) -> ExecutionEntry | None:
        record = await self._records.get(KIND, *place)
        return None if record is None else ExecutionEntry(record, _decode(record.body))

    async def begin(self, place: Place, execution: ToolExecution) -> ExecutionEntry | None:
        """Store the execution as running; None if its name is taken."""
        entry = self._entry(place, execution)
        return entry if await self._records.add(entry.record) else None

    async def take_over(self, entry: ExecutionEntry, execution: ToolExecution) -> ExecutionEntry | None:
        """Replace an attempt whose process counts as dead, or one that did nothing; None if another process was
        first."""
        return await self._swap(entry, execution)

    async def end(self, entry: ExecutionEntry, execution: ToolExecution) -> bool:
        """Store the result. Return False if another process took the call over meanwhile: then that process's result
        counts."""
        return await self._swap(entry, execution) is not None

    async def forget(self) -> None:
        """Delete executions that have ended and whose retention time is over. One that was interrupted stays until a
        caller asks for it."""
        now, after = self._clock(), (-1, "", "")
        while page := await self._records.due(KIND, now, after=after):
            ended = [(one.scope, one.id) for one in page if _decode(one.body).ended]
            await self._records.delete_all(KIND, ended)
            after = (page[-1].due or 0, page[-1].scope, page[-1].id)

    async def lapsed(self, pack: str) -> list[tuple[Place, ToolExecution]]:
        """Return the interrupted executions of a pack: those whose process counts as dead."""
        found: list[tuple[Place, ToolExecution]] = []
        now, after = self._clock(), (-1, "", "")
        while page := await self._records.due(KIND, now, after=after):
            stored = [((one.scope, one.id), _decode(one.body)) for one in page]
            found += [one for one in stored if one[1].pack == pack and not one[1].ended]
            after = (page[-1].due or 0, page[-1].scope, page[-1].id)
        return found

    def is_live(self, entry: ExecutionEntry) -> bool:
        """Return whether the process that carries it out counts as alive."""
        return entry.record.due is not None and self._clock() < entry.record.due

    async def _swap(self, entry: ExecutionEntry, execution: ToolExecution) -> ExecutionEntry | None:
        after = self._entry((entry.record.scope, entry.record.id), execution)
        return after if await self._records.swap(entry.record, after.record) else None

    def _entry(self, place: Place, execution: ToolExecution) -> ExecutionEntry:
        """Return the record of an execution. It includes the id of the attempt, so that a swap affects only its own
        attempt."""
        if not execution.ended:
            execution = replace(execution, attempt=new_id())
        return ExecutionEntry(
            Record(KIND, *place, _encode(execution), execution.started_at, self._due(execution)), execution
        )

    def _due(self, execution: ToolExecution) -> int | None:
        if execution.ended_at is None:
            return execution.started_at + (execution.lease_ms or self._lease_ms)
        return None if self._keep_ms is None else execution.ended_at + self._keep_ms


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(ToolExecution)


def _decode(body: bytes) -> ToolExecution:
    return _decoder.decode(readable(body))
