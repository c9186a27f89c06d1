"""What was found out a moment ago, so that a busy caller is not looked up for every request."""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MAX_ENTRIES = 4096


class Recent(Generic[K, V]):
    """Bounded in time and in number; the oldest make room."""

    def __init__(self, life_s: float, limit: int = MAX_ENTRIES, clock: Callable[[], float] = time.monotonic) -> None:
        self._life_s = life_s
        self._limit = limit
        self._clock = clock
        self._entries: dict[K, tuple[float, V]] = {}

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if self._clock() < entry[0]:
            return entry[1]
        del self._entries[key]
        return None

    def put(self, key: K, value: V, at_most_s: float | None = None) -> None:
        """Keep it for the usual time, or shorter when it will not hold that long."""
        life_s = self._life_s if at_most_s is None else min(self._life_s, at_most_s)
        self._entries.pop(key, None)
        while len(self._entries) >= self._limit:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (self._clock() + life_s, value)

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)

    def forget(self) -> None:
        self._entries.clear()
