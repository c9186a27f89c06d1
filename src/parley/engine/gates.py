"""What stands between a permitted call and its provider, in this process: a limit per minute, and circuits."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from parley.clock import Clock, now_ms
from parley.core.circuits import Circuit, Minute, admitted, returned
from parley.engine.asks import Asked
from parley.engine.ports import Place

MAX_KEPT = 10_000

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """As many as there is room for; those that were not used for longest make room."""

    def __init__(self, make: Callable[[], V]) -> None:
        self._make = make
        self._entries: dict[K, V] = {}

    def get(self, key: K) -> V:
        value = self._entries.pop(key, None)
        return self.put(key, self._make() if value is None else value)

    def put(self, key: K, value: V) -> V:
        self._entries.pop(key, None)
        while len(self._entries) >= MAX_KEPT:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = value
        return value


class Gates:
    def __init__(self, clock: Clock = now_ms) -> None:
        self._clock = clock
        self._minutes: Kept[Place, Minute] = Kept(Minute)
        self._circuits: Kept[Place, Circuit] = Kept(Circuit)

    def within_limit(self, call: Asked) -> bool:
        """The limit is the manifest's; whose integration it is, the principal says."""
        most, key = call.manifest.per_minute, (str(call.principal), call.manifest.integration)
        return most is None or self._minutes.get(key).admits(most, self._clock())

    def opens(self, call: Asked) -> bool:
        """Whether a call may go through; whoever was let through says how it ended."""
        circuit = admitted(self._circuits.get(_circuit(call)), self._clock())
        if circuit is not None:
            self._circuits.put(_circuit(call), circuit)
        return circuit is not None

    def ended(self, call: Asked, *, well: bool) -> None:
        before = self._circuits.get(_circuit(call))
        self._circuits.put(_circuit(call), returned(before, self._clock(), well=well))


def _circuit(call: Asked) -> Place:
    return call.manifest.integration, call.pack.host(call.manifest)
