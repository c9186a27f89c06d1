"""The slots that this replica holds for agents with a limit. How many is known here, and the store is told: so that an
answer which never came leaves no slot taken for ever, and gives none back that is in use."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable

from parley.engine.ports import Cluster
from parley.errors import ParleyError
from parley.telemetry import tell

_Place = tuple[str, str]
"""An agent, and the name under which this replica took a slot of it."""


class Slots:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._held: Counter[_Place] = Counter()
        self._doubtful: set[_Place] = set()
        """Of these the store may say something else."""
        self.sure: Callable[[], bool] = lambda: True
        """Whether this replica has surely not been given up."""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def take(self, agent: str, limit: int) -> str | None:
        """The name under which it was taken; None when there is none."""
        async with self._locks[agent]:
            place = agent, self._cluster.replica
            await self._settle(place)
            self._doubtful.add(place)
            taken = await self._cluster.take_slot(agent, limit)
            self._doubtful.discard(place)
            self._held[place] += taken
            if taken and not self.holds(place[1]):
                # The answer came so late that it is not ours any more.
                self._held[place] -= 1
                self._doubtful.add(place)
                return None
            return place[1] if taken else None

    def holds(self, replica: str) -> bool:
        """Whether what was taken under this name is surely still ours."""
        return replica == self._cluster.replica and self.sure()

    async def give(self, agent: str, replica: str) -> None:
        """It is free, also when the store cannot be told now: then it is told before the next one is taken."""
        async with self._locks[agent]:
            place = agent, replica
            self._held[place] -= 1
            self._doubtful.add(place)
            try:
                await self._settle(place)
            except ParleyError as error:
                tell("dispatch.failed", agent=agent, code=error.code)

    async def _settle(self, place: _Place) -> None:
        if place in self._doubtful:
            await self._cluster.keep_slots(*place, self._held[place])
            self._doubtful.discard(place)
        if not self._held[place]:
            del self._held[place]
