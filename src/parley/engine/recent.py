"""Logs of runs that were worked on here lately: the next turn of one reads only what it does not know."""

from collections import OrderedDict

from msgspec import Struct

from parley.core.events import ENDINGS, Event
from parley.engine.ports import Store
from parley.engine.streams import read_all
from parley.ids import RunId

MOST_BYTES = 16 * 1024 * 1024
_EACH = 600
"""What an event takes beside its body."""


class _Log(Struct):
    events: list[Event]
    size: int = 0

    @property
    def version(self) -> int:
        return self.events[-1].seq if self.events else 0

    def add(self, events: list[Event]) -> None:
        self.events += events
        self.size += sum(_EACH + len(event.body or b"") for event in events)


class RecentLogs:
    """A log only grows, so what is known of one is never wrong. Those not used for longest are forgotten first."""

    def __init__(self, store: Store, most: int = MOST_BYTES) -> None:
        self._store = store
        self._most = most
        self._logs: OrderedDict[RunId, _Log] = OrderedDict()
        self.size = 0

    async def read(self, run_id: RunId, version: int) -> list[Event]:
        """A run's events, at least up to this version, for one turn."""
        log = self._taken(run_id) or _Log([])
        if log.version < version:
            log.add(await read_all(self._store, run_id, log.version))
        self._keep(run_id, log)
        return list(log.events)

    def heard(self, run_id: RunId, events: list[Event]) -> None:
        """What was just appended here; of a run that has ended nothing will be asked again."""
        log = self._taken(run_id)
        if log is None or events[-1].type in ENDINGS:
            return
        if events[0].seq == log.version + 1:
            log.add(events)
        self._keep(run_id, log)

    def _keep(self, run_id: RunId, log: _Log) -> None:
        self._taken(run_id)
        self._logs[run_id] = log
        self.size += log.size
        while self.size > self._most:
            self._taken(next(iter(self._logs)))

    def _taken(self, run_id: RunId) -> _Log | None:
        log = self._logs.pop(run_id, None)
        self.size -= log.size if log else 0
        return log
