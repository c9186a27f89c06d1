"""Membership of replicas that share a store, and signals between them."""

from collections.abc import Callable
from typing import Protocol

from parley.ids import RunId


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

    async def take_slot(self, agent: str, limit: int) -> bool:
        """Take a slot of an agent. Return False if none is free, or if this replica was declared dead."""
        ...

    async def keep_slots(self, agent: str, replica: str, count: int) -> None:
        """Keep `count` of the slots that were taken as `replica`, and free the others. This replica may have joined
        again under another id since."""
        ...

    async def leave(self) -> None: ...


Heard = Callable[[list[tuple[RunId, int]], list[str]], None]
"""Called with the runs that grew at other replicas (with their new version), and the agents that have work waiting."""


class Signals(Protocol):
    """Wakes the other replicas. A signal may be lost; the store is authoritative."""

    def tell(self, run: RunId, version: int) -> None:
        """Signal that a run has grown. Never blocks."""
        ...

    def wake(self, agent: str) -> None:
        """Signal that work of this agent is waiting. Never blocks."""
        ...

    async def listen(self, heard: Heard, of_interest: Callable[[], list[RunId]]) -> None:
        """Call `heard` for signals of other replicas. Also check the runs `of_interest` from time to time, in case a
        signal was lost."""
        ...

    async def close(self) -> None: ...
