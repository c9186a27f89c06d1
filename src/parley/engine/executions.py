"""Tool calls as they are remembered: each is carried out once, and told again to whoever asks again.

An execution is a record. While it is under way `due` says until when its process is believed in; whoever finds that
time past takes it over, by swapping the record. After its end `due` says when it may be forgotten.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.core.events import ToolStatus
from parley.core.nesting import readable
from parley.core.policy import Figures
from parley.engine.budgets import Settlement
from parley.engine.ports import Place, Record, Records
from parley.ids import new_id

KIND = "execution"


class Execution(Struct, frozen=True, omit_defaults=True):
    """One tool call: what was asked for, and what came of it. The same for every pack."""

    call: str
    pack: str
    tool: str
    integration: str
    request: str
    """The hash of the request: the same call asks for the same."""
    ask: str
    """The hash of all that decided about it: manifest and policy too."""
    authorization: str
    started_at: int
    attempt: str
    run: str = ""
    figures: Figures = Figures()
    """What had been counted when it was decided about."""
    logged: bool = False
    """Whether its run knows of it."""
    ended_at: int | None = None
    status: ToolStatus | Literal["running"] = "running"
    code: str = ""
    reason: str = ""
    settlement: Settlement = "kept"
    data: Raw | UnsetType = UNSET
    """What its caller was told."""
    lease_ms: int = 0
    """For how long its process is believed in, where that is not as usual."""
    agent: str = ""
    conversation: str = ""
    input: Raw | UnsetType = UNSET
    """What its tool was given, without secrets; only where that can be read again."""

    @property
    def ended(self) -> bool:
        return self.status != "running"


class Entry(Struct, frozen=True):
    """An execution as it lies in the store."""

    record: Record
    execution: Execution


class Executions:
    def __init__(self, records: Records, lease_ms: int, keep_ms: int | None = None, clock: Clock = now_ms) -> None:
        self._records = records
        self._lease_ms = lease_ms
        self._keep_ms = keep_ms
        self._clock = clock

    async def get(self, place: Place) -> Entry | None:
        record = await self._records.get(KIND, *place)
        return None if record is None else Entry(record, _decode(record.body))

    async def begin(self, place: Place, execution: Execution) -> Entry | None:
        """Under way from here on; None when its name is taken."""
        entry = self._entry(place, execution)
        return entry if await self._records.add(entry.record) else None

    async def take_over(self, entry: Entry, execution: Execution) -> Entry | None:
        """In place of an attempt that nobody believes in, or of one that did nothing; None when a rival was first."""
        return await self._swap(entry, execution)

    async def end(self, entry: Entry, execution: Execution) -> bool:
        """False when somebody else took it over meanwhile: then that one's end counts."""
        return await self._swap(entry, execution) is not None

    async def forget(self) -> None:
        """Those that have ended and whose time is up; one that broke off stays until somebody asks for it."""
        now, after = self._clock(), (-1, "", "")
        while page := await self._records.due(KIND, now, after=after):
            ended = [(one.scope, one.id) for one in page if _decode(one.body).ended]
            await self._records.delete_all(KIND, ended)
            after = (page[-1].due or 0, page[-1].scope, page[-1].id)

    async def lapsed(self, pack: str) -> list[tuple[Place, Execution]]:
        """Those of a pack that broke off: nobody is believed to carry them out any more."""
        found: list[tuple[Place, Execution]] = []
        now, after = self._clock(), (-1, "", "")
        while page := await self._records.due(KIND, now, after=after):
            stored = [((one.scope, one.id), _decode(one.body)) for one in page]
            found += [one for one in stored if one[1].pack == pack and not one[1].ended]
            after = (page[-1].due or 0, page[-1].scope, page[-1].id)
        return found

    def believed(self, entry: Entry) -> bool:
        """Whether whoever carries it out may still be at it."""
        return entry.record.due is not None and self._clock() < entry.record.due

    async def _swap(self, entry: Entry, execution: Execution) -> Entry | None:
        after = self._entry((entry.record.scope, entry.record.id), execution)
        return after if await self._records.swap(entry.record, after.record) else None

    def _entry(self, place: Place, execution: Execution) -> Entry:
        """The name of the attempt makes records of two attempts differ, so that a swap knows its own."""
        if not execution.ended:
            execution = replace(execution, attempt=new_id())
        return Entry(Record(KIND, *place, _encode(execution), execution.started_at, self._due(execution)), execution)

    def _due(self, execution: Execution) -> int | None:
        if execution.ended_at is None:
            return execution.started_at + (execution.lease_ms or self._lease_ms)
        return None if self._keep_ms is None else execution.ended_at + self._keep_ms


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Execution)


def _decode(body: bytes) -> Execution:
    return _decoder.decode(readable(body))
