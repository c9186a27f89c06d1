"""Wakes those who wait for something by its name. A ring means that it is worth looking; the store has the truth."""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager


class Bells:
    def __init__(self) -> None:
        self._hung: dict[str, set[asyncio.Event]] = {}
        self._marks: dict[str, int] = {}

    @property
    def awaited(self) -> list[str]:
        return list(self._hung)

    def mark(self, name: str) -> int:
        """The highest mark that was rung for a name while somebody waited for it."""
        return self._marks.get(name, 0)

    def ring(self, name: str, mark: int | None = None) -> None:
        """Never waits, and costs a lookup when nobody does. A mark that is not above the last one is no news."""
        bells = self._hung.get(name)
        if bells is None:
            return
        if mark is not None:
            if mark <= self._marks.get(name, 0):
                return
            self._marks[name] = mark
        for bell in bells:
            bell.set()

    @contextmanager
    def hung(self, names: Iterable[str]) -> Generator[asyncio.Event, None, None]:
        """An event that is set when one of the names is rung. Hang it up before looking, so that nothing is missed."""
        bell, names = asyncio.Event(), set(names)
        for name in names:
            self._hung.setdefault(name, set()).add(bell)
        try:
            yield bell
        finally:
            for name in names:
                self._hung[name].discard(bell)
                if not self._hung[name]:
                    del self._hung[name]
                    self._marks.pop(name, None)
