"""How busy this process was in the last hour, and how long things took: a ring of counts, taken every so often."""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from parley.telemetry.metrics import BOUNDS_S

EVERY_S = 15.0
HOUR_MS = 3_600_000
KEPT = int(HOUR_MS / 1000 / EVERY_S) + 1

Times = tuple[float, ...]
"""How many took how long: one count for each of `BOUNDS_S`, and one for longer."""


class Sample(Struct, frozen=True):
    """What was counted since the server began."""

    at: int
    answers: Times
    turns: Times


class Span(Struct, frozen=True):
    """What came about between two samples."""

    begin: int
    end: int
    answers: Times
    turns: Times


class Samples:
    def __init__(self) -> None:
        self._kept: deque[Sample] = deque(maxlen=KEPT)

    def add(self, at: int, answers: Times, turns: Times) -> None:
        self._kept.append(Sample(at, answers, turns))

    def spans(self, now: int, most: int = 60) -> list[Span]:
        """The last hour in at most so many pieces, the oldest first."""
        kept = [one for one in self._kept if one.at >= now - HOUR_MS - int(EVERY_S * 1000)]
        step = max(1, -(-(len(kept) - 1) // most))
        # Counted back from the newest, so that what is oldest is what falls out.
        chosen = kept[::-1][::step][::-1]
        return [_between(one, two) for one, two in pairwise(chosen)]


def _between(one: Sample, two: Sample) -> Span:
    return Span(one.at, two.at, _less(two.answers, one.answers), _less(two.turns, one.turns))


def _less(later: Times, earlier: Times) -> Times:
    return tuple(two - one for one, two in zip(earlier, later, strict=True))


def per_minute(times: Times, span: Span) -> float:
    return sum(times) * 60_000 / max(span.end - span.begin, 1)


def quantile(times: Sequence[float], share: float) -> float | None:
    """In seconds: within a bucket as if all in it were spread evenly. None where nothing was counted."""
    total = sum(times)
    if not total:
        return None
    wanted, before, low = total * share, 0.0, 0.0
    for count, high in zip(times, BOUNDS_S, strict=False):
        if before + count >= wanted and count:
            return low + (high - low) * (wanted - before) / count
        before, low = before + count, high
    return BOUNDS_S[-1]
