"""Who works on a store, and how they wake each other."""

from collections.abc import Callable
from typing import Protocol

from parley.ids import RunId


class Cluster(Protocol):
    """Who works on a store. One process alone is a cluster of one."""

    @property
    def replica(self) -> str:
        """This replica's id, new at every `join`."""
        ...

    async def join(self) -> None: ...

    async def renew(self) -> list[str] | None:
        """Prove to be alive; everyone who is, oldest first. None: this replica was given up, and must join anew."""
        ...

    async def bury(self) -> list[str]:
        """Give up those that did not renew in time; all whose work has not been taken up yet, also of names that nobody
        has any more: one that did not know yet that it was given up may have begun something."""
        ...

    async def forget(self, replica: str) -> None:
        """All work of a buried replica has been taken up; its slots are free."""
        ...

    async def take_slot(self, agent: str, limit: int) -> bool:
        """Never for a replica that was given up."""
        ...

    async def keep_slots(self, agent: str, replica: str, count: int) -> None:
        """Of the slots that were taken as `replica`, which may have joined anew since, so many are in use: give the
        others back."""
        ...

    async def leave(self) -> None: ...


Heard = Callable[[list[tuple[RunId, int]], list[str]], None]
"""Called with the runs that have grown elsewhere (and to which version), and the agents that have work to do."""


class Signals(Protocol):
    """Wakes the other replicas. A signal may be lost; the store has the truth."""

    def tell(self, run: RunId, version: int) -> None:
        """A run has grown. Never waits."""
        ...

    def wake(self, agent: str) -> None:
        """Somebody may begin waiting work of this agent. Never waits."""
        ...

    async def listen(self, heard: Heard, of_interest: Callable[[], list[RunId]]) -> None:
        """Call `heard` for what others tell; and look after the runs `of_interest` from time to time all the same."""
        ...

    async def close(self) -> None: ...
