"""Rate limits that allow bursts, with the time to wait after too many requests; circuit breakers."""

import math
from collections import deque

from msgspec import Struct

LEAST_WAIT_S = 1


class Rate(Struct, frozen=True):
    """Rate limit: `per_second` in the long run, and `burst` at once."""

    per_second: float
    burst: float

    def shared(self, among: int) -> "Rate":
        """Return the share of one of `among` replicas with equal load. A share allows at least a burst of one."""
        return Rate(self.per_second / among, max(1.0, self.burst / among)) if among > 1 else self


class Bucket(Struct, frozen=True):
    """Token bucket: the tokens left at a time (ms)."""

    left: float
    at: int


def rate_of(per_second: float | None, burst: int | None) -> Rate | None:
    """Return the rate for two settings. Without `burst`, one second's worth may come at once."""
    if per_second is None:
        return None
    return Rate(per_second, max(1.0, per_second if burst is None else float(burst)))


def filled(bucket: Bucket | None, rate: Rate, now: int) -> Bucket:
    """Return the bucket refilled up to `now`. A missing bucket is full. A clock that was set back adds nothing."""
    if bucket is None:
        return Bucket(rate.burst, now)
    gained = max(0, now - bucket.at) / 1000 * rate.per_second
    return Bucket(min(rate.burst, bucket.left + gained), max(now, bucket.at))


def wait_s(bucket: Bucket, rate: Rate) -> int:
    """Return the whole seconds until one more request is allowed; 0 if it is allowed now."""
    if bucket.left >= 1:
        return 0
    return max(LEAST_WAIT_S, math.ceil((1 - bucket.left) / rate.per_second))


def taken(bucket: Bucket) -> Bucket:
    return Bucket(bucket.left - 1, bucket.at)


# Protection of providers: a circuit breaker that opens after failures, and a limit of calls per minute.

FAILURES = 3
REST_MS = 10_000
MINUTE_MS = 60_000


class Circuit(Struct, frozen=True):
    """Circuit breaker: closed while `opened_at` is None. While open, it admits one trial call after a pause, and the
    result of that call decides whether it closes."""

    failures: int = 0
    opened_at: int | None = None
    tried_at: int | None = None
    """Time at which the trial call was admitted, while that call is running."""


def admitted(circuit: Circuit, now: int) -> Circuit | None:
    """Return the circuit after admitting a call; None when no call may be made. A trial call that never returns blocks
    other calls only for one more pause."""
    if circuit.opened_at is None:
        return circuit
    last = circuit.opened_at if circuit.tried_at is None else circuit.tried_at
    return Circuit(circuit.failures, circuit.opened_at, now) if now - last >= REST_MS else None


def returned(circuit: Circuit, now: int, *, well: bool) -> Circuit:
    """Return the circuit after a call has ended."""
    if well:
        return Circuit()
    failures = circuit.failures + 1
    return Circuit(failures, now if failures >= FAILURES else None)


class Minute:
    """Counts the calls of the last minute."""

    def __init__(self) -> None:
        self._times: deque[int] = deque()

    def admits(self, most: int, now: int) -> bool:
        """Return whether one more call is within the limit, and count it if so."""
        while self._times and self._times[0] <= now - MINUTE_MS:
            self._times.popleft()
        if len(self._times) >= most:
            return False
        self._times.append(now)
        return True
