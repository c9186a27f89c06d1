"""Delay before the next retry: exponential, with jitter, so that runtimes do not retry at the same time."""

import random
from collections.abc import Callable


class Backoff:
    def __init__(self, cap_s: float, first_s: float = 0.25, chance: Callable[[], float] = random.random) -> None:
        self._cap_s = cap_s
        self._first_s = first_s
        self._chance = chance
        self._tries = 0

    def reset(self) -> None:
        self._tries = 0

    @property
    def tries(self) -> int:
        return self._tries

    def next(self, at_least_s: float = 0.0) -> float:
        """A random delay between half and all of a time that doubles with each try up to the cap."""
        whole = min(self._cap_s, self._first_s * 2 ** min(self._tries, 16))
        self._tries += 1
        return max(at_least_s, whole * (0.5 + self._chance() / 2))
