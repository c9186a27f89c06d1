"""A cluster of one: this process has the store for itself, and whoever worked before it is gone."""

from collections import Counter

from parley.core.runs import State
from parley.engine.ports import Store
from parley.ids import new_id


class Solo:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._taken: Counter[str] = Counter()
        self._replica = new_id()
        self._buried = False

    @property
    def replica(self) -> str:
        return self._replica

    async def join(self) -> None:
        return

    async def renew(self) -> list[str] | None:
        return [self._replica]

    async def bury(self) -> list[str]:
        """Every replica that left work behind. Nobody can join them later: the store is locked."""
        if self._buried:
            return []
        self._buried = True
        owners = {run.owner for run in await self._store.runs_in(State.WORKING) if not run.elsewhere}
        return sorted(owners - {self._replica})

    async def forget(self, replica: str) -> None:
        return

    async def take_slot(self, agent: str, limit: int) -> bool:
        if self._taken[agent] >= limit:
            return False
        self._taken[agent] += 1
        return True

    async def keep_slots(self, agent: str, replica: str, count: int) -> None:
        self._taken[agent] = min(self._taken[agent], count)

    async def leave(self) -> None:
        return
