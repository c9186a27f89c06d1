"""In-memory caches: one with expiry, and one with a bounded number of entries."""

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

MAX_ENTRIES = 4096


class ExpiringCache(Generic[K, V]):
    """Cache whose entries expire and whose size is bounded; the oldest entries are evicted first."""

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
        """Store a value for the default lifetime, or for `at_most_s` if that is shorter."""
        life_s = self._life_s if at_most_s is None else min(self._life_s, at_most_s)
        self._entries.pop(key, None)
        while len(self._entries) >= self._limit:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (self._clock() + life_s, value)

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)

    def forget(self) -> None:
        self._entries.clear()


MAX_KEPT = 10_000

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """Cache of at most `MAX_KEPT` entries that creates missing values; the least recently used are evicted first."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._entries: dict[Key, Value] = {}

    def get(self, key: Key) -> Value:
        value = self._entries.pop(key, None)
        return self.put(key, self._make() if value is None else value)

    def put(self, key: Key, value: Value) -> Value:
        self._entries.pop(key, None)
        while len(self._entries) >= MAX_KEPT:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = value
        return value
