"""Membership of replicas that share a store, signals between them, and the slots that a replica holds."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Literal, Protocol

from parley.errors import ParleyError
from parley.ids import RunId
from parley.runs.listeners import Listeners
from parley.telemetry import tell


class Cluster(Protocol):
    """The replicas that work on a store. A single process is a cluster of one."""

    @property
    def replica(self) -> str:
        """This replica's id, new at every `join`."""
        ...

    async def join(self) -> None: ...

    async def renew(self) -> list[str] | None:
        """Renew this replica's lease. Return all live replicas, the oldest first; None if this replica was declared
        dead and must join again."""
        ...

    async def expire_replicas(self) -> list[str]:
        """Declare replicas dead whose lease has expired. Return all dead replicas whose work has not been taken over,
        including ids that no replica uses any more: a replica that did not know yet that it was declared dead may have
        begun work under such an id."""
        ...

    async def forget(self, replica: str) -> None:
        """Remove a dead replica after all its work has been taken over; its slots become free."""
        ...

    async def take_slot(self, agent: str, replica: str, limit: int) -> bool:
        """Take a slot of an agent as `replica`. Return False if none is free, or if this id was declared dead."""
        ...

    async def keep_slots(self, agent: str, replica: str, count: int) -> None:
        """Keep `count` of the slots that were taken as `replica`, and free the others. This replica may have joined
        again under another id since."""
        ...

    async def leave(self) -> None: ...


Heard = Callable[[list[tuple[RunId, int]], list[str]], None]
"""Called with the runs that grew at other replicas (with their new version), and the agents that have work waiting."""


class Interest:
    """The signals of others that matter to this replica. Adapters that send signals to all replicas need only call it,
    for the runs whose growth must be noticed soon."""

    def __init__(
        self, runs: Callable[[], list[RunId]], names: Callable[[], list[str]], everything: Callable[[], bool]
    ) -> None:
        self._runs = runs
        self.names = names
        """The agents and other names whose wake-ups matter here."""
        self.everything = everything
        """True while the growth of all runs matters here: to the console, and to the replica that delivers webhooks."""
        self.added = Listeners[Callable[[Literal["run", "name"], str], None]]()
        """Called at once for a run or a name that begins to matter; what has ceased to is no longer returned."""

    def __call__(self) -> list[RunId]:
        return self._runs()

    def add(self, kind: Literal["run", "name"], name: str) -> None:
        for listener in self.added:
            listener(kind, name)


class Signals(Protocol):
    """Wakes the other replicas. A signal may be lost; the store is authoritative."""

    def tell(self, run: RunId, version: int) -> None:
        """Signal that a run has grown. Never blocks."""
        ...

    def wake(self, agent: str) -> None:
        """Signal that work of this agent is waiting. Never blocks."""
        ...

    async def listen(self, heard: Heard, of_interest: Interest) -> None:
        """Call `heard` for signals of other replicas. Also check the runs `of_interest` from time to time, in case a
        signal was lost."""
        ...

    async def close(self) -> None: ...


_Place = tuple[str, str]
"""An agent, and the replica id under which this replica took a slot of it."""


class Slots:
    """The slots that this replica holds for agents with a limit. The replica counts them and reports the count to the
    store, so that a lost answer neither keeps a slot taken for ever nor frees one that is in use."""

    def __init__(self, cluster: Cluster, sure: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._sure = sure
        """Returns whether this replica has certainly not been declared dead."""
        self._held: Counter[_Place] = Counter()
        self._doubtful: dict[_Place, None] = {}
        """Slots whose count in the store may differ from the count here."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def take(self, agent: str, limit: int) -> str | None:
        """Take a slot. Return the replica id under which it was taken; None when no slot is free."""
        async with self._locks[agent]:
            place = agent, self._cluster.replica
            await self._settle(place)
            self._doubtful[place] = None
            taken = await self._cluster.take_slot(*place, limit)
            del self._doubtful[place]
            self._held[place] += taken
            if taken and not self.holds(place[1]):
                # The answer came so late that the slot may no longer be ours.
                self._held[place] -= 1
                self._doubtful[place] = None
                return None
            return place[1] if taken else None

    def holds(self, replica: str) -> bool:
        """Return whether a slot that was taken under this id is certainly still ours."""
        return replica == self._cluster.replica and self._sure()

    # Why: docs/decisions/execution.md#report-slots-as-a-number
    async def give(self, agent: str, replica: str) -> None:
        """Free a slot. If the store cannot be reached now, the slot is freed there before the next one is taken."""
        async with self._locks[agent]:
            place = agent, replica
            self._held[place] -= 1
            self._doubtful[place] = None
            await self._settle_if_possible(place)

    async def settle(self) -> None:
        """Report every count that is in doubt: it may take long until another turn of that agent begins here."""
        for place in list(self._doubtful):
            async with self._locks[place[0]]:
                await self._settle_if_possible(place)

    async def _settle_if_possible(self, place: _Place) -> None:
        try:
            await self._settle(place)
        except ParleyError as error:
            tell("dispatch.failed", agent=place[0], code=error.code)

    async def _settle(self, place: _Place) -> None:
        if place in self._doubtful:
            await self._cluster.keep_slots(*place, self._held[place])
            self._doubtful.pop(place, None)
        if not self._held[place]:
            del self._held[place]
