"""Wake-ups for tasks that wait for something by its name. A wake-up is a hint; the store is authoritative."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager


class Wakeups:
    def __init__(self, awaited: Callable[[str], None] = lambda _: None) -> None:
        """`awaited` is called with each name for which a task begins to wait."""
        self._begun = awaited
        self._events: dict[str, dict[asyncio.Event, None]] = {}
        self._marks: dict[str, int] = {}

    @property
    def awaited(self) -> list[str]:
        return list(self._events)

    def mark(self, name: str) -> int:
        """Return the highest mark with which a name was woken while a task waited for it."""
        return self._marks.get(name, 0)

    def wake(self, name: str, mark: int | None = None) -> None:
        """Wake the tasks that wait for a name. Never blocks, and costs only a lookup if no task waits. A mark that is
        not higher than the last one is ignored."""
        events = self._events.get(name)
        if events is None:
            return
        if mark is not None:
            if mark <= self._marks.get(name, 0):
                return
            self._marks[name] = mark
        for event in events:
            event.set()

    @contextmanager
    def subscribed(self, names: Iterable[str]) -> Generator[asyncio.Event, None, None]:
        """Yield an event that is set when one of the names is woken. Subscribe before checking, so that nothing is
        missed."""
        event, names = asyncio.Event(), dict.fromkeys(names)
        for name in names:
            if name not in self._events:
                self._begun(name)
            self._events.setdefault(name, {})[event] = None
        try:
            yield event
        finally:
            for name in names:
                self._events[name].pop(event, None)
                if not self._events[name]:
                    del self._events[name]
                    self._marks.pop(name, None)
