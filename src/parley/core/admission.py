"""How much may be asked for: a rate that allows bursts, and how long to wait when there was too much."""

import math

from msgspec import Struct

LEAST_WAIT_S = 1


class Rate(Struct, frozen=True):
    """So many a second in the long run; `burst` at once."""

    per_second: float
    burst: float

    def shared(self, among: int) -> "Rate":
        """The share of each of so many that are asked alike. A share that is less than one at once is one."""
        return Rate(self.per_second / among, max(1.0, self.burst / among)) if among > 1 else self


class Bucket(Struct, frozen=True):
    """What is left of a burst, as of a time (ms)."""

    left: float
    at: int


def rate_of(per_second: float | None, burst: int | None) -> Rate | None:
    """Without a burst, what comes in one second may come at once."""
    if per_second is None:
        return None
    return Rate(per_second, max(1.0, per_second if burst is None else float(burst)))


def filled(bucket: Bucket | None, rate: Rate, now: int) -> Bucket:
    """A bucket nobody has seen is full. A clock that was set back fills nothing."""
    if bucket is None:
        return Bucket(rate.burst, now)
    gained = max(0, now - bucket.at) / 1000 * rate.per_second
    return Bucket(min(rate.burst, bucket.left + gained), max(now, bucket.at))


def wait_s(bucket: Bucket, rate: Rate) -> int:
    """Whole seconds until there is room for one more; 0 when there is."""
    if bucket.left >= 1:
        return 0
    return max(LEAST_WAIT_S, math.ceil((1 - bucket.left) / rate.per_second))


def taken(bucket: Bucket) -> Bucket:
    return Bucket(bucket.left - 1, bucket.at)
