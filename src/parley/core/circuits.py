"""When to leave a provider alone: a circuit that opens after failures, and a limit per minute."""

from collections import deque

from msgspec import Struct

FAILURES = 3
REST_MS = 10_000
MINUTE_MS = 60_000


class Circuit(Struct, frozen=True):
    """Closed while `opened_at` is None. Open, it lets one call through after a rest, and that one decides."""

    failures: int = 0
    opened_at: int | None = None
    tried_at: int | None = None
    """When the one that decides was let through, if it is under way."""


def admitted(circuit: Circuit, now: int) -> Circuit | None:
    """The circuit once a call goes through it; None when it must not. One that was let through and never came back
    holds up the others only for another rest."""
    if circuit.opened_at is None:
        return circuit
    last = circuit.opened_at if circuit.tried_at is None else circuit.tried_at
    return Circuit(circuit.failures, circuit.opened_at, now) if now - last >= REST_MS else None


def returned(circuit: Circuit, now: int, *, well: bool) -> Circuit:
    """What a call that went through did to it."""
    if well:
        return Circuit()
    failures = circuit.failures + 1
    return Circuit(failures, now if failures >= FAILURES else None)


class Minute:
    """The calls of the last minute."""

    def __init__(self) -> None:
        self._times: deque[int] = deque()

    def admits(self, most: int, now: int) -> bool:
        """Whether one more is within the limit; then it is counted."""
        while self._times and self._times[0] <= now - MINUTE_MS:
            self._times.popleft()
        if len(self._times) >= most:
            return False
        self._times.append(now)
        return True
